"""Load a masked language model by name."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tilth.errors import InputError
from tilth.models import names
from tilth.models.architecture import architectures_of, max_input_tokens
from tilth.models.device import choose_device
from tilth.models.lm import fingerprint_model
from tilth.models.pretrained import load_pretrained
from tilth.models.trainer import save_transformer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaskedLM:
    """A loaded masked language model, float32, on its device."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    max_length: int  # tokens read of a text
    fingerprint: str

    def save(self, folder: Path) -> None:
        """Save as a transformers folder with safetensors weights."""
        save_transformer(self.model, self.tokenizer, folder)


def load_masked_lm(name: str, *, seed: int = 0, device: str = "auto") -> MaskedLM:
    """Load an encoder with the head that predicts masked tokens.

    A missing head is replaced, with a warning, by a new one drawn from `seed`, whose last layer is
    the encoder's own embeddings. `name` is `starter-mlm`, `starter-small`, `starter-encoder`, a
    folder, a training run or a hub id.
    """
    from transformers import AutoModelForMaskedLM

    place = choose_device(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, tokenizer, drawn = load_pretrained(
            name, names.MASKED_LM, AutoModelForMaskedLM, device=place, new_head=True
        )
    if tokenizer.mask_token_id is None:
        raise InputError(f"base {name!r} has no mask token: give a masked language model")
    if getattr(model.config, "is_decoder", False):
        raise InputError(
            f"base {name!r} is a causal language model ({architectures_of(model.config)}): give a "
            "masked language model"
        )
    if drawn:
        log.warning("base %r has no head that predicts masked tokens: a fresh one is trained", name)
    longest = max_input_tokens(model.config, tokenizer)
    return MaskedLM(model, tokenizer, name, longest, fingerprint_model(model, tokenizer))

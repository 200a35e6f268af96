"""From a name to a masked language model: an encoder that guesses hidden tokens."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tilth.errors import InputError
from tilth.models.architecture import architectures_of
from tilth.models.classifier import max_input_tokens
from tilth.models.device import choose_device
from tilth.models.lm import fingerprint_model
from tilth.models.names import CLASSIFIERS
from tilth.models.source import open_files
from tilth.models.trainer import save_transformer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaskedLM:
    """A loaded masked language model.

    Attributes:
        model: the transformers model, float32, on its device.
        tokenizer: its tokenizer, which has a mask.
        name: what the user asked for.
        max_length: tokens it reads of a text.
        fingerprint: of its weights and pieces.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    max_length: int
    fingerprint: str

    def save(self, folder: Path) -> None:
        """Save model and tokenizer as a transformers folder, weights as safetensors."""
        save_transformer(self.model, self.tokenizer, folder)


def load_masked_lm(name: str, *, seed: int = 0, device: str = "auto") -> MaskedLM:
    """Load an encoder with the head that guesses hidden tokens.

    Where only the head is missing, a fresh one is drawn, whose last layer is the encoder's own
    embeddings, and a warning says so.

    Args:
        name: `starter-mlm`, `starter-small`, `starter-encoder`, a folder, the run of a training,
            or a hub id.
        seed: of a fresh head.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        InputError: there is no such model, it cannot guess hidden tokens, or it has no mask.
    """
    from transformers import AutoModelForMaskedLM

    place = choose_device(device)
    files = open_files(
        name, what="a masked language model", starters=CLASSIFIERS, trained_by="tilth train"
    )
    tokenizer = files.tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, drawn = files.model(AutoModelForMaskedLM, tokenizer, new_head=True)
    if tokenizer.mask_token_id is None:
        raise InputError(f"base {name!r} has no mask token: give a masked language model")
    if getattr(model.config, "is_decoder", False):
        raise InputError(
            f"base {name!r} is a causal language model ({architectures_of(model.config)}): give a "
            "masked language model"
        )
    if drawn:
        log.warning("base %r has no head that guesses hidden tokens: a fresh one is trained", name)
    longest = max_input_tokens(model.config, tokenizer)
    print_of = fingerprint_model(model, tokenizer)
    return MaskedLM(model.to(place).eval(), tokenizer, name, longest, print_of)

"""From a name to a masked language model: an encoder that guesses hidden tokens."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tilth.errors import InputError
from tilth.models.classifier import STARTERS, longest_input
from tilth.models.device import choose_device
from tilth.models.encoder import quietly
from tilth.models.lm import fingerprint_model
from tilth.models.source import Source, find_source, hub_answers, not_reached

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
        with quietly():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)


def load_masked(name: str, *, seed: int = 0, device: str = "auto") -> MaskedLM:
    """Load an encoder with the head that guesses hidden tokens.

    Where only the head is missing, a fresh one is drawn, whose last layer is the encoder's own
    embeddings, and a warning says so.

    Args:
        name: `starter`, `starter-small`, `starter-scorer`, a folder, the run of a training, or a
            hub id.
        seed: of a fresh head.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        InputError: there is no such model, it cannot guess hidden tokens, or it has no mask.
    """
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    place = choose_device(device)
    source = _source(name)
    local = source.on_hub and not hub_answers()
    try:
        with quietly(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            tokenizer = AutoTokenizer.from_pretrained(source.name, local_files_only=local)
            model, found = AutoModelForMaskedLM.from_pretrained(
                source.name, dtype=torch.float32, use_safetensors=True, local_files_only=local,
                output_loading_info=True,
            )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError) as error:
        if local:
            raise not_reached(name) from error
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"base {name!r} does not load as a masked language model: {reason}"
        ) from error
    _check(model, tokenizer, sorted(found["missing_keys"]), name)
    longest = longest_input(model.config, tokenizer)
    print_of = fingerprint_model(model, tokenizer)
    return MaskedLM(model.to(place).eval(), tokenizer, name, longest, print_of)


def _source(name: str) -> Source:
    folder = Path(name).expanduser()
    if (folder / "run.json").is_file():
        return find_source(str(folder / "model"), starters={})
    return find_source(name, starters=STARTERS)


def _check(model: Any, tokenizer: Any, missing: list[str], name: str) -> None:
    """Refuse a model that was trained for something else, or that has no mask."""
    if tokenizer.mask_token_id is None:
        raise InputError(f"base {name!r} has no mask token: give a masked language model")
    body = [key for key in missing if key.startswith(f"{model.base_model_prefix}.")]
    kinds = getattr(model.config, "architectures", None) or []
    if body or getattr(model.config, "is_decoder", False):
        raise InputError(
            f"base {name!r} ({', '.join(kinds) or model.config.model_type}) is no encoder that "
            "guesses hidden tokens: give a masked language model"
        )
    if missing:
        log.warning("base %r has no head that guesses hidden tokens: a fresh one is trained", name)

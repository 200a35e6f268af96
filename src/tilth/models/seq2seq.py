"""Load an encoder-decoder that translates or rewrites: starter, folder, training run or hub id."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tilth.errors import InputError
from tilth.models import names
from tilth.models.device import choose_device, choose_precision
from tilth.models.lm import fingerprint_model
from tilth.models.pretrained import open_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Maximum tokens for models without a limit on positions, such as T5.
_POSITIONS = 1024


@dataclass(frozen=True, slots=True)
class Seq2Seq:
    """A loaded encoder-decoder with a language-modelling head, in evaluation mode.

    `prefix` precedes every source text, such as `>>de<< ` for a model of several targets.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    precision: str
    prefix: str = ""

    @property
    def fingerprint(self) -> str:
        """16 hex digits over weights, precision, vocabulary and prefix."""
        content = f"{fingerprint_model(self.model, self.tokenizer)}\x1f{self.prefix}"
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    @property
    def positions(self) -> int:
        """Maximum number of tokens that the model reads, and that it writes."""
        config: Any = self.model.config
        limits = (getattr(config, "max_position_embeddings", None), self.tokenizer.model_max_length)
        # A tokenizer without a limit reports 1e30.
        return min((int(limit) for limit in limits if limit and limit < 1e6), default=_POSITIONS)


def load_seq2seq(
    name: str, *, device: str = "auto", precision: str = "auto", prefix: str = ""
) -> Seq2Seq:
    """Load an encoder-decoder by name.

    Args:
        name: `starter` (translates text prefixed `>>de<< ` to German and `>>en<< ` to English,
            rewrites text prefixed with two tags), a folder, a run of `tilth paraphrase train`,
            or a hub id.
        prefix: put before every source text.

    Raises:
        InputError: there is no such model, it is no encoder-decoder in safetensors, or a package
            that its tokenizer needs is not installed.
    """
    place = choose_device(device)
    dtype = choose_precision(precision, place)
    from transformers import AutoModelForSeq2SeqLM

    files = open_model(name, names.SEQ2SEQ)
    config = files.config()
    if not getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"model {name!r} is no encoder-decoder ({config.model_type}): give a model such as "
            "facebook/bart-base, or a translation model"
        )
    if config.model_type == "fsmt" and importlib.util.find_spec("sacremoses") is None:
        raise InputError(
            f"model {name!r} (fsmt) needs the package sacremoses: pip install 'tilth[fsmt]'"
        )
    tokenizer = files.tokenizer(has_padding=True)
    model, _ = files.model(AutoModelForSeq2SeqLM, tokenizer, config=config, dtype=dtype)
    model = model.to(place)
    return Seq2Seq(name, model, tokenizer, place, str(model.dtype).removeprefix("torch."), prefix)

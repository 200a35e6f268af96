"""Load language models by name: causal ones, encoder-decoders and masked ones."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tilth.errors import InputError
from tilth.models import names
from tilth.models.device import choose_device, choose_precision, dtype_name
from tilth.models.pretrained import (
    architectures_of,
    fingerprint_model,
    load_pretrained,
    max_input_tokens,
    open_model,
    save_transformer,
    weights_drawn,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tilth.models.endpoint import Endpoint

# Maximum tokens for models without a limit on positions, such as T5.
_POSITIONS = 1024
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LM:
    """A loaded causal language model, in evaluation mode on its device.

    `fingerprint` changes when a weight or the vocabulary changes; `instructions` are from
    `names.known_instructions`.
    """

    name: str
    model: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    fingerprint: str
    instructions: tuple[str, ...] = field(default=(), repr=False)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return torch.device(self.model.device)

    @property
    def precision(self) -> str:
        """`float32`, `bfloat16` or `float16`."""
        return dtype_name(self.model.dtype)


def load_lm(name: str, *, device: str = "auto", precision: str = "auto") -> LM | Endpoint:
    """Load a causal language model by name.

    Args:
        name: `starter`, a folder, a hub id, or an endpoint: `openai:http://host:port/v1#model`
            (completions), `openai-chat:http://host:port/v1#model` (chat).
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `float32`, `bfloat16` or `float16`.

    Raises:
        InputError: there is no such model, or it is not a causal language model in safetensors.
    """
    name = names.name_of(name)
    if name.startswith(names.ENDPOINTS):
        from tilth.models.endpoint import load_endpoint

        return load_endpoint(name)
    place = choose_device(device)
    dtype = choose_precision(precision, place)
    from transformers import AutoModelForCausalLM

    model, tokenizer, _ = load_pretrained(
        name, names.LM, AutoModelForCausalLM, device=place, dtype=dtype
    )
    known = names.known_instructions(name)
    return LM(name, model, tokenizer, fingerprint_model(model, tokenizer), known)


@dataclass(frozen=True, slots=True)
class Seq2Seq:
    """A loaded encoder-decoder with a language-modelling head, in evaluation mode.

    `prefix` precedes every source text, such as `>>de<< ` for a model of several targets.
    """

    name: str
    model: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
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
    name: str | Path, *, device: str = "auto", precision: str = "auto", prefix: str = ""
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
    name = names.name_of(name)
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
    return Seq2Seq(name, model, tokenizer, place, dtype_name(model.dtype), prefix)


@dataclass(frozen=True, slots=True)
class MaskedLM:
    """A loaded masked language model, float32, on its device."""

    model: PreTrainedModel = field(repr=False)
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    name: str
    max_length: int  # tokens read of a text
    fingerprint: str

    def save(self, folder: Path) -> None:
        """Save as a transformers folder with safetensors weights."""
        save_transformer(self.model, self.tokenizer, folder)


def load_masked_lm(name: str | Path, *, seed: int = 0, device: str = "auto") -> MaskedLM:
    """Load an encoder with the head that predicts masked tokens.

    A missing head is replaced, with a warning, by a new one drawn from `seed`, whose last layer is
    the encoder's own embeddings. `name` is `starter-mlm`, `starter-small`, `starter-encoder`, a
    folder, a training run or a hub id.
    """
    from transformers import AutoModelForMaskedLM

    name = names.name_of(name)
    place = choose_device(device)
    with weights_drawn(seed):
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

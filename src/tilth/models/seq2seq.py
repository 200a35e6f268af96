"""From a name to an encoder-decoder that translates or rewrites: starter, folder, run or hub id."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tilth.errors import InputError
from tilth.models.device import choose_device, choose_precision
from tilth.models.encoder import quietly
from tilth.models.lm import fingerprint_model
from tilth.models.source import Source, find_source, hub_answers, not_reached

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Read by models whose positions have no end, such as T5's.
_POSITIONS = 1024


@dataclass(frozen=True, slots=True)
class Seq2Seq:
    """A loaded encoder-decoder with a head that writes.

    Attributes:
        name: what the user asked for.
        model: the transformers model, in evaluation mode on its device.
        tokenizer: its tokenizer.
        device: where the weights are.
        precision: `float32`, `bfloat16` or `float16`.
        prefix: written before every source text, such as `>>de<< ` for a model of several targets.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    precision: str
    prefix: str = ""

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with a weight, the precision, the vocabulary or the prefix."""
        content = f"{fingerprint_model(self.model, self.tokenizer)}\x1f{self.prefix}"
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    @property
    def positions(self) -> int:
        """The most tokens that the model reads, and that it writes."""
        config: Any = self.model.config
        known = [
            int(limit)
            for limit in (
                getattr(config, "max_position_embeddings", None),
                self.tokenizer.model_max_length,  # 1e30 where nobody said
            )
            if limit and limit < 1e6
        ]
        return min(known, default=_POSITIONS)


def load_seq2seq(
    name: str, *, device: str = "auto", precision: str = "auto", prefix: str = ""
) -> Seq2Seq:
    """Load an encoder-decoder by name.

    Args:
        name: `starter` (translates text prefixed `>>de<< ` to German and `>>en<< ` to English,
            rewrites text prefixed with two tags), a folder, the run of a `tilth paraphrase train`,
            or a hub id.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `float32`, `bfloat16` or `float16`.
        prefix: written before every source text.

    Raises:
        InputError: there is no such model, or it is no encoder-decoder in safetensors.
    """
    place = choose_device(device)
    dtype = choose_precision(precision, place)
    model, tokenizer = _load(name, dtype)
    model = model.to(place).eval()
    return Seq2Seq(name, model, tokenizer, place, str(model.dtype).removeprefix("torch."), prefix)


def _load(name: str, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

    source = _source(name)
    local = source.on_hub and not hub_answers()
    try:
        config = AutoConfig.from_pretrained(source.name, local_files_only=local)
        if not getattr(config, "is_encoder_decoder", False):
            raise InputError(
                f"model {name!r} is no encoder-decoder ({config.model_type}): give a model such "
                "as facebook/bart-base, or a translation model"
            )
        with quietly():
            tokenizer = AutoTokenizer.from_pretrained(source.name, local_files_only=local)
            model: Any = AutoModelForSeq2SeqLM.from_pretrained(
                source.name, dtype=dtype, use_safetensors=True, local_files_only=local
            )
    except (OSError, ValueError, KeyError, ImportError, AttributeError, RuntimeError) as error:
        if local:
            raise not_reached(name) from error
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"model {name!r} does not load as an encoder-decoder: {reason}") from error
    if tokenizer.pad_token_id is None:
        raise InputError(f"model {name!r}: its tokenizer has no padding token: set pad_token")
    return model, tokenizer


def _source(name: str) -> Source:
    folder = Path(name).expanduser()
    if (folder / "run.json").is_file():
        if not (folder / "model" / "config.json").is_file():
            raise InputError(
                f"{name}: the run holds no trained model: name the run of a finished "
                "`tilth paraphrase train`"
            )
        return Source(str(folder / "model"), on_hub=False)
    return find_source(name, starters={"starter": "seq2seq"})

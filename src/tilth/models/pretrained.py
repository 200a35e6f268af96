"""Load, describe and save transformers models.

Their own code and pickles are never run; any error is reported in one line.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tilth import files
from tilth.errors import InputError, TilthError, one_line
from tilth.models.names import ONNX, SCORER, ModelSource, Role, find_source

_OTHER_FILES = "its files do not belong together, or are damaged: get or save the model again"
_MAX_TOKENS = 512  # for a model without a stated limit
# Architectures whose first positions are reserved for padding.
_SHIFTED = (
    "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "data2vec-text", "mpnet",
    "roberta-prelayernorm", "xmod", "ibert", "luke", "lilt", "markuplm", "esm",
)  # fmt: skip
# Names of dropouts in the configs of architectures.
DROPOUTS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob",
    "dropout", "attention_dropout", "activation_dropout", "embedding_dropout", "mlp_dropout",
    "classifier_dropout", "seq_classif_dropout", "pooler_dropout", "cls_dropout",
    "summary_last_dropout", "hidden_dropout", "dropout_rate", "attn_pdrop", "embd_pdrop",
    "resid_pdrop",
)  # fmt: skip
_GENERATIVE = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed all random generators, and restore their state afterwards."""
    python, numbers = random.getstate(), np.random.get_state()
    # Of several GPUs the one in use: by default torch would initialise all, and warn.
    gpus = [torch.cuda.current_device()] if torch.cuda.device_count() > 1 else None
    with torch.random.fork_rng(gpus):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)


@contextmanager
def weights_drawn(seed: int) -> Iterator[None]:
    """Draw new weights, on the CPU, from a seed; the generator's state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model; `options` are passed to every loader of transformers."""

    name: str
    role: Role
    source: ModelSource
    options: dict[str, Any]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Convert any error while reading the files into a one-line InputError."""
        try:
            with silence_transformers():
                yield
        except (TilthError, MemoryError):
            raise
        except Exception as error:  # a folder's files are input: they can break a library anywhere
            if self.options["local_files_only"]:
                raise InputError(
                    f"model {self.name!r}: no such folder here, not in the hub's cache, and the "
                    "hub cannot be reached: check the name or the network"
                ) from error
            said = one_line(error)
            if "trust_remote_code" in said:
                said = (
                    "it needs code of its own, which tilth never runs: give a model of an "
                    "architecture that transformers has"
                )
            raise InputError(
                f"model {self.name!r} does not load as {self.role.what}: "
                f"{said[:300] or type(error).__name__}"
            ) from error

    def config(self) -> Any:
        """Read the model's config."""
        from transformers import AutoConfig

        with self.reading():
            return AutoConfig.from_pretrained(self.source.name, **self.options)

    def tokenizer(self, *, has_padding: bool = False) -> Any:
        """Read the model's tokenizer; with `has_padding`, refuse one without a padding token."""
        from transformers import AutoTokenizer

        with self.reading():
            tokenizer = AutoTokenizer.from_pretrained(self.source.name, **self.options)
        if has_padding and tokenizer.pad_token_id is None:
            raise InputError(
                f"model {self.name!r}: its tokenizer has no padding token: set pad_token"
            )
        return tokenizer

    def model(
        self,
        auto_class: Any,
        tokenizer: Any,
        *,
        config: Any = None,
        dtype: torch.dtype = torch.float32,
        new_head: bool = False,
    ) -> tuple[Any, list[str]]:
        """Read the weights; return the model on the CPU and the names of the weights drawn anew.

        Args:
            auto_class: an Auto class of transformers.
            tokenizer: must know no token that the model does not.
            config: replaces the saved one.
            new_head: accept a head that the files lack, or hold in another shape; its weights are
                drawn from torch's random numbers.
        """
        given = {} if config is None else {"config": config}
        if (Path(self.source.name) / ONNX).is_file():
            raise InputError(
                f"model {self.name!r} is exported, for predictions alone: give the model it was "
                "made of"
            )
        with self.reading():
            model, found = auto_class.from_pretrained(
                self.source.name, dtype=dtype, use_safetensors=True, output_loading_info=True,
                ignore_mismatched_sizes=True, **given, **self.options,
            )  # fmt: skip
        drawn = self.check_weights(model, found, new_head=new_head)
        self.check_tokenizer(tokenizer, model.get_input_embeddings().weight)
        return model.eval(), drawn

    def check_weights(self, model: Any, found: Mapping[str, Any], *, new_head: bool) -> list[str]:
        """Return the names of the weights drawn anew; refuse any but those of a new head.

        `found` is the loading info of transformers.
        """
        body = f"{model.base_model_prefix}."
        lacking = {str(key) for key in found["missing_keys"]}
        shapes = {str(key): (saved, ours) for key, saved, ours in found["mismatched_keys"]}
        for key in sorted({*lacking, *shapes}):
            # BERT's first-token pooler belongs to the head of its training task.
            if new_head and (not key.startswith(body) or ".pooler." in key):
                continue
            if key in shapes:
                saved, ours = (tuple(shape) for shape in shapes[key])
                problem = f"its weight {key} has the shape {saved}, its config.json says {ours}"
            else:
                problem = f"its weights hold no {key}"
            raise InputError(
                f"model {self.name!r} does not load as {self.role.what}: {problem}: {_OTHER_FILES}"
            )
        return sorted({*lacking, *shapes})

    def check_tokenizer(self, tokenizer: Any, embeddings: torch.Tensor) -> None:
        """Refuse a tokenizer without words, or with tokens that have no embedding.

        Where a folder has no tokenizer, transformers makes one of special tokens alone.
        `embeddings` are the model's. # (tokens, width)
        """
        vocabulary = tokenizer.get_vocab()
        if set(vocabulary) <= set(getattr(tokenizer, "all_special_tokens", ())):
            raise InputError(
                f"model {self.name!r} has no tokenizer: save the model's own beside its weights"
            )
        largest = max(vocabulary.values(), default=0)
        if largest >= len(embeddings):
            raise InputError(
                f"model {self.name!r}: its tokenizer has token ids up to {largest}, the model "
                f"embeddings for {len(embeddings)} tokens: {_OTHER_FILES}"
            )


def open_model(name: str, role: Role, *, marker: str = "config.json") -> ModelFiles:
    """Find a model's files; a hub id is read from the cache without a network."""
    found = find_source(name, starters=role.starters, marker=marker, trained_by=role.trained_by)
    # Left unset, trust_remote_code makes transformers ask on standard input.
    offline = found.on_hub and not files.hub_answers()
    options = {"trust_remote_code": False, "local_files_only": offline}
    return ModelFiles(name, role, found, options)


def load_pretrained(
    name: str,
    role: Role,
    auto_class: Any,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    new_head: bool = False,
) -> tuple[Any, Any, list[str]]:
    """Return a model on a device, its tokenizer, and the weights drawn for a new head."""
    files = open_model(name, role)
    tokenizer = files.tokenizer(has_padding=role is SCORER)
    model, drawn = files.model(auto_class, tokenizer, dtype=dtype, new_head=new_head)
    return model.to(device), tokenizer, drawn


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Silence the progress bars and warnings of transformers."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def max_input_tokens(config: Any, tokenizer: Any) -> int:
    """Return the model's maximum number of input tokens, special tokens included."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    if positions < 1:  # XLNet's are -1: any number
        positions = _MAX_TOKENS
    if config.model_type in _SHIFTED:
        positions -= (config.pad_token_id or 0) + 1
    return int(min(positions, tokenizer.model_max_length))


def architectures_of(config: Any) -> str:
    """Return the architectures that a model was saved as, for a message."""
    return ", ".join(map(str, getattr(config, "architectures", None) or [config.model_type]))


def is_generative(config: Any) -> bool:
    """Return whether a model is a causal language model or an encoder-decoder."""
    kinds = map(str, getattr(config, "architectures", None) or [])
    return bool(getattr(config, "is_decoder", False)) or any(
        kind.endswith(_GENERATIVE) for kind in kinds
    )


def save_transformer(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save a model and its tokenizer as a transformers folder with safetensors weights."""
    reset_padding(tokenizer)
    with silence_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def reset_padding(tokenizer: Any) -> None:
    """Remove padding and truncation of a tokenizer's last call, which would be saved with it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()


def weight_bytes(tensor: torch.Tensor) -> memoryview:
    """Return all values of a tensor as bytes; hashing takes about a second a gigabyte."""
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().data  # (bytes,)


def add_weight(digest: hashlib.blake2b, key: str, tensor: torch.Tensor) -> None:
    """Add a weight's name, shape and values to a digest, whatever its precision."""
    digest.update(f"{key}{tuple(tensor.shape)}".encode())
    digest.update(weight_bytes(tensor.float()))


def fingerprint_model(model: Any, tokenizer: Any) -> str:
    """Return 16 hex digits over every parameter's name, shape and values, and the vocabulary.

    The precision enters, since its rounding changes rows; the device does not.
    """
    digest = hashlib.blake2b(digest_size=8)
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(f"{key}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(weight_bytes(tensor))
    for token, number in sorted(tokenizer.get_vocab().items()):
        digest.update(f"{token}\x1f{number}\x1e".encode())
    return digest.hexdigest()

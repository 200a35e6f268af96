"""Load a causal language model by name: starter, folder, hub id or endpoint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tilth.models import names
from tilth.models.architecture import weight_bytes
from tilth.models.device import choose_device, choose_precision
from tilth.models.pretrained import load_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tilth.models.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class LM:
    """A loaded causal language model, in evaluation mode on its device.

    `fingerprint` changes when a weight or the vocabulary changes.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    fingerprint: str

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return torch.device(self.model.device)

    @property
    def precision(self) -> str:
        """`float32`, `bfloat16` or `float16`."""
        return str(self.model.dtype).removeprefix("torch.")


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
    if name.startswith(names.ENDPOINTS):
        from tilth.models.endpoint import load_endpoint

        return load_endpoint(name)
    place = choose_device(device)
    dtype = choose_precision(precision, place)
    from transformers import AutoModelForCausalLM

    model, tokenizer, _ = load_pretrained(
        name, names.LM, AutoModelForCausalLM, device=place, dtype=dtype
    )
    return LM(name, model, tokenizer, fingerprint_model(model, tokenizer))


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

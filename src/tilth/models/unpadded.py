"""Run encoders of BERT's architecture without padding, on processors.

Within the encoder the tokens of a batch stand one after the other, without the padding between
them: all products are of tokens, and attention is computed within each text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from tilth.models.kernel_arrays import (
    CODES,
    WIDTH,
    attend_in_sequence,
    attend_texts,
)

_NAME, _KIND = "tilth_unpadded", "_attn_implementation"
_KINDS = ("Bert", "Roberta", "XLMRoberta", "Camembert", "Electra")
_ENCODERS = tuple(f"{kind}Encoder" for kind in _KINDS)
# Tokens are padded to a multiple: for each number of them, a library prepares its products anew.
_MULTIPLE = 32


class _Packing:
    """Packs the batches of one encoder.

    Args:
        first_only: whether only the output of each text's first token is asked for.
    """

    def __init__(self, encoder: Any, *, first_only: bool) -> None:
        self.last = encoder.layer[-1].attention if first_only else None
        self.shape = (0, 0)
        self.indices = torch.empty(0, dtype=torch.int64)  # of tokens in the padded batch
        self.starts: NDArray[np.int64] = np.zeros(1, np.int64)  # (texts + 1,)

    def pack(self, _: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> Any:
        """Take the padding out of a batch, (texts, width, dimension), before the encoder."""
        (states,) = args
        mask = kwargs["attention_mask"]  # (texts, width)
        if mask is None:
            mask = torch.ones(states.shape[:2], dtype=torch.bool)
        self.shape = (states.shape[0], states.shape[1])
        self.starts = np.append(0, np.cumsum(mask.sum(dim=1).numpy()))
        self.indices = mask.flatten().nonzero()[:, 0]
        spare = self.indices.new_zeros(-len(self.indices) % _MULTIPLE)
        packed = states.flatten(0, 1)[torch.cat((self.indices, spare))]
        return (packed[None],), {**kwargs, "attention_mask": None, "attention": self}

    def unpack(self, _: Any, __: Any, output: Any) -> Any:
        """Return the padded batch, or (texts, 1, dimension) of first tokens."""
        (states,) = output.last_hidden_state  # (tokens or texts, dimension)
        if self.last is not None:
            output.last_hidden_state = states[:, None]
            return output
        padded = states.new_zeros(self.shape[0] * self.shape[1], states.shape[1])
        padded[self.indices] = states[: len(self.indices)]
        output.last_hidden_state = padded.unflatten(0, self.shape)
        return output

    def keep_first(self, _: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Keep the first token of each text, in both inputs of the layer after attention."""
        first = torch.from_numpy(self.starts[:-1])
        return tuple(states[:, first] for states in args)

    def attend(
        self,
        layer: int,  # noqa: ARG002 - nothing is kept of a layer
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
    ) -> Tensor:
        """Return attention within texts; all tensors are (tokens, heads, size)."""
        first = self.starts[:-1]
        keys, values = key.transpose(0, 1), value.transpose(0, 1)  # (heads, tokens, size)
        return attend_texts(
            query, keys, values, self.starts, first * key.stride(0), np.diff(self.starts),
            scale=scale, is_causal=False,
        )  # fmt: skip


def _mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """Return the mask of tokens as it is, (texts, width)."""
    return attention_mask


AttentionInterface.register(_NAME, attend_in_sequence)
AttentionMaskInterface.register(_NAME, _mask)


@contextmanager
def unpadded(model: Any, *, first_only: bool = False) -> Iterator[None]:
    """Let a model's encoder compute without padding, where it can.

    It can on a processor, if its architecture is one of BERT's. Its output for padding is 0.

    Args:
        first_only: return the output of each text's first token alone, (texts, 1, dimension), as
            classifying heads read.
    """
    with ExitStack() as stack:
        for encoder in filter(_is_known, _encoders(model)):
            packing = _Packing(encoder, first_only=first_only)
            hooks = [
                encoder.register_forward_pre_hook(packing.pack, with_kwargs=True),
                encoder.register_forward_hook(packing.unpack),
            ]
            if first_only:
                after = encoder.layer[-1].attention.output
                hooks.append(after.register_forward_pre_hook(packing.keep_first))
            for hook in hooks:
                stack.callback(hook.remove)
            stack.callback(setattr, encoder.config, _KIND, getattr(encoder.config, _KIND))
            setattr(encoder.config, _KIND, _NAME)
        yield


def is_unpadded(model: Any) -> bool:
    """Return whether a model's encoder computes without padding now."""
    return getattr(model.config, _KIND, None) == _NAME


@contextmanager
def first_tokens(model: Any) -> Iterator[None]:
    """Let the last layer of BERT's architectures compute each text's first token alone."""
    with ExitStack() as stack:
        for encoder in _encoders(model):
            after = encoder.layer[-1].attention.output
            hook = after.register_forward_pre_hook(
                lambda _, args: tuple(states[:, :1] for states in args)
            )
            stack.callback(hook.remove)
        yield


def _encoders(model: Any) -> list[Any]:
    """Return the encoders of BERT's architectures in a model."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    return [one for one in modules if type(one).__name__ in _ENCODERS]


def _is_known(encoder: Any) -> bool:
    """Return whether the kernels compute what an encoder does."""
    config, weight = encoder.config, next(encoder.parameters())
    return (
        weight.device.type == "cpu"
        and weight.dtype in CODES
        and not config.is_decoder
        and not config.output_hidden_states  # they would come without padding
        and getattr(config, _KIND) == "sdpa"
        and config.hidden_size // config.num_attention_heads % WIDTH == 0
    )

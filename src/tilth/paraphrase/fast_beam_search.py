"""Speeds up the beam search of `transformers` without changing its outputs.

Three costs dominate on a CPU: source keys and values kept and reordered for every beam although
all beams of a text share them; a random number for every vocabulary entry and beam although
only `top_k` can be drawn; and copies of the tokens already written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "tilth_beams"
# The step of `transformers`' search that chooses continuations. It is not part of its interface:
# where it is missing the search runs unchanged.
_CONTINUATIONS = "_get_top_k_continuations"
# Families whose cross-attention is `_attend`. Others run unchanged.
_FAMILIES = ("bart", "mbart", "marian", "pegasus")


@contextmanager
def fast_beam_search(
    model: Any, beams: int, top_k: int | None, length: int
) -> Iterator[dict[str, Any]]:
    """Make an encoder-decoder's beam search cheaper inside the block.

    Args:
        top_k: of sampling; None: no sampling.
        length: maximum tokens of an output, special tokens included.

    Yields:
        Options for `model.generate`, which replace those of the same name.
    """
    options: dict[str, Any] = {}
    before = model.config._attn_implementation
    if model.config.model_type in _FAMILIES and before == "sdpa":
        model.set_attn_implementation(_NAME)
        written: Any = partial(_OutputLayer, length)
        source: Any = partial(_SourceLayer, beams)
        options["past_key_values"] = EncoderDecoderCache(
            Cache(layer_class_to_replicate=written), Cache(layer_class_to_replicate=source)
        )
    if top_k is not None and beams > 1 and hasattr(model, _CONTINUATIONS):
        draw = partial(_draw_continuations, getattr(model, _CONTINUATIONS), top_k)
        setattr(model, _CONTINUATIONS, draw)
        options["top_k"] = 0  # it is applied in the draw
    try:
        yield options
    finally:
        if _CONTINUATIONS in vars(model):
            delattr(model, _CONTINUATIONS)  # the class's own is visible again
        if model.config._attn_implementation != before:
            model.set_attn_implementation(before)


class _OutputLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Output keys and values in memory allocated once; fresh tensors cost more than the step."""

    def __init__(self, length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length, self.filled = length, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:  # noqa: ARG002
        """Allocate twice the memory: beams move from one half to the other."""
        self.dtype, self.device = key_states.dtype, key_states.device
        rows, heads, _, width = key_states.shape
        shape = (4, rows, heads, self.length, width)
        self.buffers = list(torch.empty(shape, dtype=self.dtype, device=self.device))
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Add positions; return all, (rows, heads, filled, head width)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.filled = self.filled, self.filled + key_states.shape[-2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=False):
            buffer[:, :, start : self.filled] = states
        self.keys, self.values = (buffer[:, :, : self.filled] for buffer in self.buffers[:2])
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Copy each beam from the one it continues."""
        for old, new in zip(self.buffers[:2], self.buffers[2:], strict=True):
            torch.index_select(old[:, :, : self.filled], 0, beam_idx, out=new[:, :, : self.filled])
        self.buffers = [*self.buffers[2:], *self.buffers[:2]]


class _SourceLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Source keys and values, stored once for all beams of a text."""

    def __init__(self, beams: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.beams = beams

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep one of the equal beams, (texts, heads, source, head width)."""
        keys, values = key_states[:: self.beams], value_states[:: self.beams]
        return super().update(keys, values, *args, **kwargs)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Do nothing: beams change order only within their text."""


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as `sdpa` does, with the beams of a text as positions of one query."""
    rows, heads, positions, width = query.shape
    if positions > 1:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return output, None
    texts = key.shape[0]
    beams = rows // texts
    folded = query.view(texts, beams, heads, width).transpose(1, 2)  # (texts, heads, beams, width)
    # Plain products: at one position the fused kernel takes several times as long.
    scores = torch.matmul(folded, key.transpose(-1, -2)) * (scaling or width**-0.5)
    if attention_mask is not None:
        seen = attention_mask[::beams]  # (texts, 1, 1, keys)
        scores = scores.masked_fill(~seen, float("-inf")) if seen.dtype == torch.bool else (
            scores + seen
        )  # fmt: skip
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    output = torch.matmul(weights, value)  # (texts, heads, beams, width)
    return output.transpose(1, 2).reshape(rows, 1, heads, width), None


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, sdpa_mask)


def _draw_continuations(
    draw: Any, top_k: int, *, accumulated_log_probs: Tensor, num_beams: int, **given: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw continuations among each beam's `top_k` tokens; `draw` sees indices among these.

    Equal to drawing from the whole vocabulary with all other tokens at probability 0.
    """
    texts = accumulated_log_probs.shape[0]
    each = accumulated_log_probs.view(texts, num_beams, -1)  # (texts, beams, vocabulary)
    # At the first step one beam has them all, and it must have as many as are kept of each.
    width = min(max(top_k, given["beams_to_keep"] // num_beams), each.shape[-1])
    best, tokens = torch.topk(each, width)  # (texts, beams, width)
    log_probs, sequences, indices = draw(
        accumulated_log_probs=best.flatten(1), num_beams=num_beams, **given
    )  # sequences: (texts, kept, length)
    step = given["cur_len"]
    first = torch.arange(texts, device=tokens.device)[:, None] * num_beams
    beams = indices[:, :, step - given["decoder_prompt_len"]].long() - first  # (texts, kept)
    chosen = sequences[:, :, step]  # (texts, kept)
    sequences[:, :, step] = tokens.flatten(1).gather(1, beams * width + chosen)
    return log_probs, sequences, indices

"""Run encoders of BERT's and ModernBERT's architectures without padding, on processors.

Within the encoder the tokens of a batch stand one after the other, without the padding between
them: all products are of tokens, and attention is computed within each text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from tilth.models.kernel_arrays import (
    CODES,
    WIDTH,
    attend_texts,
    gelu_gate,
    gelu_gate_gradient,
    move_heads,
)

_NAME, _KIND = "tilth_unpadded", "_attn_implementation"
_KINDS = ("Bert", "Roberta", "XLMRoberta", "Camembert", "Electra")
_ENCODERS = tuple(f"{kind}Encoder" for kind in _KINDS)
_MODERN = "ModernBertModel"
# Tokens are padded to a multiple: for each number of them, a library prepares its products anew.
# Training prepares three for each: there it is about a sixteenth of the tokens, at most 128.
_MULTIPLE, _TRAINING_MULTIPLE = 32, 128
_Tables: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]
_ROTATED_LATER = None, None
_FULL = 0.9  # in training, batches of more tokens than this share stay as they are


class _Packing:
    """Packs the batches of one encoder.

    Args:
        first_only: whether only the output of each text's first token is asked for.
    """

    def __init__(self, encoder: Any, *, first_only: bool) -> None:
        is_modern = type(encoder).__name__ == _MODERN
        self.first = encoder.layers[0] if is_modern else None
        self.last = encoder.layer[-1].attention if first_only and not is_modern else None
        self.shape = (0, 0)
        self.mask = torch.empty(0)  # (texts, width), of bool
        self.indices = torch.empty(0, dtype=torch.int64)  # of tokens in the padded batch
        self.spare = 0  # tokens of no text
        self.is_packed = True
        self.tables: _Tables | None = None  # of rotary embeddings that are still to be applied
        self.starts: NDArray[np.int64] = np.zeros(1, np.int64)  # (texts + 1,)
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)  # (texts,)

    def pack(self, _: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> Any:
        """Take the padding out of a batch, (texts, width, dimension), before the encoder."""
        (states,) = args
        self._read(states.shape[0], states.shape[1], kwargs["attention_mask"])
        if not self.is_packed:
            return args, {**kwargs, "attention": self}
        packed = self._gather(states.flatten(0, 1))
        return (packed[None],), {**kwargs, "attention_mask": None, "attention": self}

    def pack_layer(self, layer: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> Any:
        """Take the padding out of a batch before the first of ModernBERT's layers."""
        (states,) = args
        if layer is self.first:
            self._read(states.shape[0], states.shape[1], kwargs["attention_mask"])
            if self.is_packed:
                states = self._gather(states.flatten(0, 1))[None]
        if not self.is_packed:
            return args, {**kwargs, "attention": self}
        tables = kwargs["position_embeddings"]  # of rotary embeddings, each (1, width, size)
        if torch.is_grad_enabled():  # they are rotated with the copies of the tokens' heads
            cosines, sines = (table[0].float().numpy() for table in tables)
            self.tables, tables = (cosines, sines), _ROTATED_LATER
        else:
            tables = tuple(
                self._gather(table.expand(*self.shape, -1).flatten(0, 1))[None] for table in tables
            )
        more = {"attention_mask": None, "position_embeddings": tables, "attention": self}
        return (states,), {**kwargs, **more}

    def unpack(self, _: Any, __: Any, output: Any) -> Any:
        """Return the padded batch, or (texts, 1, dimension) of first tokens."""
        if not self.is_packed:
            return output
        (states,) = output.last_hidden_state  # (tokens or texts, dimension)
        if self.last is not None:
            output.last_hidden_state = states[:, None]
            return output
        output.last_hidden_state = self._pad(states)
        return output

    def unpack_states(self, _: Any, __: Any, states: Tensor) -> Tensor:
        """Return the padded batch of ModernBERT's output, (1, tokens, dimension)."""
        return self._pad(states[0]) if self.is_packed else states

    def keep_first(self, _: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Keep the first token of each text, in both inputs of the layer after attention."""
        first = torch.from_numpy(self.starts[:-1])
        return tuple(states[:, first] for states in args)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Return attention within texts; all tensors are (tokens, heads, size)."""
        first = self.starts[:-1]
        keys, values = key.transpose(0, 1), value.transpose(0, 1)  # (heads, tokens, size)
        if keys.stride() != values.stride():
            keys, values = keys.contiguous(), values.contiguous()
        return attend_texts(
            query, keys, values, self.starts, first * keys.stride(1), self.counts,
            scale=scale, is_causal=False,
        )  # fmt: skip

    def attend_padded(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, *, dropout: float,
        window: int | None,
    ) -> Tensor:  # fmt: skip
        """Return attention as `attend` does, with gradients.

        Args:
            window: a token attends to those that are nearer than this many tokens.
        """
        layout = _Layout(self.starts, self.shape[1], len(query))
        tables, self.tables = self.tables, None
        padded = _SpreadHeads.apply(layout, scale, tables, query, key, value)  # type: ignore[no-untyped-call]
        query, key, value = padded
        found = self.attend_masked(query, key, value, 1.0, dropout=dropout, window=window)
        tokens: Tensor = _GatherHeads.apply(layout, found.transpose(1, 2))  # type: ignore[no-untyped-call]
        return tokens

    def attend_masked(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, *, dropout: float,
        window: int | None,
    ) -> Tensor:  # fmt: skip
        """Return attention within the texts of a padded batch, (texts, width, heads, size).

        Queries, keys and values are (texts, heads, width, size).
        """
        mask = self.mask[:, None, None]
        if window is not None:
            places = torch.arange(self.shape[1])
            mask = mask & ((places[:, None] - places).abs() < window)
        found = scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)
        return found.transpose(1, 2)

    def _read(self, texts: int, width: int, mask: Tensor | None) -> None:
        """Note where the tokens of a batch are."""
        self.shape = (texts, width)
        self.mask = torch.ones(self.shape) > 0 if mask is None else mask.bool()
        self.counts = self.mask.sum(dim=1).numpy()
        self.starts = np.append(0, np.cumsum(self.counts))
        self.indices = self.mask.flatten().nonzero()[:, 0]
        count, multiple = len(self.indices), _MULTIPLE
        if torch.is_grad_enabled():
            multiple = min(1 << max(count.bit_length() - 4, 4), _TRAINING_MULTIPLE)
        self.spare = -count % multiple
        self.is_packed = not torch.is_grad_enabled() or count + self.spare < _FULL * texts * width
        if self.is_packed:  # and padded again for attention: at the end, whatever the batch was
            self.mask = torch.arange(width) < torch.from_numpy(self.counts)[:, None]

    def _gather(self, rows: Tensor) -> Tensor:
        """Return the tokens of a padded batch, (texts * width, ...), and spare tokens of 0."""
        tokens: Tensor = _Gather.apply(rows, self.indices, self.spare)  # type: ignore[no-untyped-call]
        return tokens

    def _pad(self, tokens: Tensor) -> Tensor:
        """Return the padded batch of tokens, (texts, width, ...)."""
        rows = math.prod(self.shape)
        padded: Tensor = _Spread.apply(tokens, self.indices, rows)  # type: ignore[no-untyped-call]
        return padded.view(*self.shape, *tokens.shape[1:])


def _gather(rows: Tensor, indices: Tensor, spare: int) -> Tensor:
    """Return some rows, and `spare` rows of 0."""
    found = rows.new_empty(len(indices) + spare, *rows.shape[1:])
    torch.index_select(rows, 0, indices, out=found[: len(indices)])
    found[len(indices) :] = 0
    return found


def _spread(rows: Tensor, indices: Tensor, count: int) -> Tensor:
    """Return `count` rows: the given ones at `indices`, else 0; more rows are left out."""
    return rows.new_zeros(count, *rows.shape[1:]).index_copy_(0, indices, rows[: len(indices)])


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Tensor, spare: int) -> Tensor:
        ctx.indices, ctx.count = indices, len(rows)
        return _gather(rows, indices, spare)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _spread(gradients[0], ctx.indices, ctx.count), None, None


class _Spread(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Tensor, count: int) -> Tensor:
        ctx.indices, ctx.spare = indices, len(rows) - len(indices)
        return _spread(rows, indices, count)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _gather(gradients[0], ctx.indices, ctx.spare), None, None


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the tokens of a batch are: first ones of texts and the end, width, number of all."""

    starts: NDArray[np.int64]
    width: int
    tokens: int

    def padded_like(self, tokens: Tensor) -> Tensor:
        """Return room for tokens, (tokens, heads, size), as (texts, heads, width, size)."""
        return tokens.new_empty(len(self.starts) - 1, tokens.shape[1], self.width, tokens.shape[2])

    def tokens_like(self, padded: Tensor) -> Tensor:
        """Return room for a padded batch's tokens; those of no text are 0."""
        found = padded.new_empty(self.tokens, padded.shape[1], padded.shape[3])
        found[self.starts[-1] :] = 0
        return found


class _SpreadHeads(Function):
    """Rotates queries and keys, scales queries, and pads queries, keys and values."""

    @staticmethod
    def forward(
        ctx: Any, layout: _Layout, scale: float, tables: _Tables | None, *tokens: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.layout, ctx.scale, ctx.tables = layout, scale, tables
        padded = tuple(layout.padded_like(one) for one in tokens)
        move_heads(tokens, padded, layout.starts, to_padded=True, scale=scale, tables=tables)
        return padded

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        padded = [one.contiguous() for one in gradients]
        tokens, tables = [ctx.layout.tokens_like(one) for one in padded], None
        if ctx.tables is not None:  # a rotation back
            cosines, sines = ctx.tables
            tables = cosines, -np.roll(sines, sines.shape[1] // 2, axis=1)
        move_heads(
            tokens, padded, ctx.layout.starts, to_padded=False, scale=ctx.scale, tables=tables
        )
        return None, None, None, *tokens


class _GatherHeads(Function):
    """Takes the padding out of the output of attention."""

    @staticmethod
    def forward(ctx: Any, layout: _Layout, padded: Tensor) -> Tensor:
        ctx.layout = layout
        tokens = layout.tokens_like(padded)
        move_heads([tokens], [padded.contiguous()], layout.starts, to_padded=False)
        return tokens

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        tokens = gradients[0].contiguous()
        padded = ctx.layout.padded_like(tokens)
        move_heads([tokens], [padded], ctx.layout.starts, to_padded=True)
        return None, padded


class _GeluGate(Function):
    """GELU of the first half of each row times the second half."""

    @staticmethod
    def forward(ctx: Any, wide: Tensor) -> Tensor:
        ctx.save_for_backward(wide)
        return gelu_gate(wide)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (wide,) = ctx.saved_tensors
        return gelu_gate_gradient(wide, gradients[0])


@cache
def _change_modern() -> None:
    """Let ModernBERT's layers take GELU and gate in one pass, and leave rotation to attention.

    They do within `unpadded`. Queries and keys stay as they are without rotary tables.
    """
    from transformers.models.modernbert import modeling_modernbert as modern

    rotate, feed_forward = modern.apply_rotary_pos_emb, modern.ModernBertMLP.forward

    def gated(layer: Any, states: Tensor) -> Tensor:
        config = layer.config
        if (
            getattr(config, _KIND) != _NAME
            or config.hidden_activation != "gelu"
            or config.intermediate_size % WIDTH
        ):
            return feed_forward(layer, states)
        narrow: Tensor = _GeluGate.apply(layer.Wi(states))  # type: ignore[no-untyped-call]
        found: Tensor = layer.Wo(layer.drop(narrow))
        return found

    def rotate_or_wait(
        query: Tensor, key: Tensor, cosines: Tensor | None, sines: Tensor | None, **how: Any
    ) -> Any:
        return (query, key) if cosines is None else rotate(query, key, cosines, sines, **how)

    modern.apply_rotary_pos_emb = rotate_or_wait
    modern.ModernBertMLP.forward = gated  # type: ignore[assignment, method-assign]


def _attend(
    module: Any,  # noqa: ARG001 - each layer attends alike
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _: Tensor | None,
    scaling: float | None = None,
    *,
    attention: _Packing,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **__: Any,
) -> tuple[Tensor, None]:
    """Attend within texts, as transformers' attention functions do; the batch is one sequence."""
    scale = scaling or query.shape[-1] ** -0.5
    longest = int(attention.counts.max(initial=0))
    window = sliding_window if sliding_window and longest > sliding_window else None
    if not attention.is_packed:
        some = attention.attend_masked(query, key, value, scale, dropout=dropout, window=window)
        return some, None
    query, key, value = (one[0].transpose(0, 1) for one in (query, key, value))
    if torch.is_grad_enabled() or window is not None:
        found = attention.attend_padded(query, key, value, scale, dropout=dropout, window=window)
    else:
        found = attention.attend(query, key, value, scale)
    return found[None], None


def _mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """Return the mask of tokens as it is, (texts, width)."""
    return attention_mask


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, _mask)


@contextmanager
def unpadded(model: Any, *, first_only: bool = False) -> Iterator[None]:
    """Let a model's encoder compute without padding, where it can.

    It can on a processor, if its architecture is one of BERT's or ModernBERT. Its output for
    padding is 0.

    Args:
        first_only: return the output of each text's first token alone, (texts, 1, dimension), as
            classifying heads of BERT's architectures read.
    """
    with ExitStack() as stack:
        for encoder in filter(_is_known, _encoders(model)):
            packing = _Packing(encoder, first_only=first_only)
            if type(encoder).__name__ == _MODERN:
                hooks = [
                    layer.register_forward_pre_hook(packing.pack_layer, with_kwargs=True)
                    for layer in encoder.layers
                ]
                hooks.append(encoder.final_norm.register_forward_hook(packing.unpack_states))
                _change_modern()
            else:
                hooks = [
                    encoder.register_forward_pre_hook(packing.pack, with_kwargs=True),
                    encoder.register_forward_hook(packing.unpack),
                ]
            if packing.last is not None:
                after = packing.last.output
                hooks.append(after.register_forward_pre_hook(packing.keep_first))
            for hook in hooks:
                stack.callback(hook.remove)
            stack.callback(setattr, encoder.config, _KIND, getattr(encoder.config, _KIND))
            setattr(encoder.config, _KIND, _NAME)
        yield


def is_unpadded(model: Any) -> bool:
    """Return whether a model's encoder computes without padding now."""
    return any(getattr(one.config, _KIND) == _NAME for one in _encoders(model))


@contextmanager
def first_tokens(model: Any) -> Iterator[None]:
    """Let the last layer of BERT's architectures compute each text's first token alone."""
    with ExitStack() as stack:
        for encoder in _encoders(model):
            if type(encoder).__name__ == _MODERN:
                continue
            after = encoder.layer[-1].attention.output
            hook = after.register_forward_pre_hook(
                lambda _, args: tuple(states[:, :1] for states in args)
            )
            stack.callback(hook.remove)
        yield


def _encoders(model: Any) -> list[Any]:
    """Return the encoders of BERT's and ModernBERT's architectures in a model."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    return [one for one in modules if type(one).__name__ in (*_ENCODERS, _MODERN)]


def _is_known(encoder: Any) -> bool:
    """Return whether the kernels compute what an encoder does."""
    config, weight = encoder.config, next(encoder.parameters())
    return (
        weight.device.type == "cpu"
        and weight.dtype in CODES
        and not getattr(config, "is_decoder", False)
        and not config.output_hidden_states  # they would come without padding
        and getattr(config, _KIND) == "sdpa"
        and config.hidden_size // config.num_attention_heads % WIDTH == 0
    )

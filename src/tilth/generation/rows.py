"""Keys and values of the rows being decoded: copied from their prompts, or shared with them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface

from tilth.generation.kv_cache import CachedPrompt, CacheLayer, KVCache, head_size
from tilth.generation.step_graphs import StepGraphs, rounded_columns
from tilth.models.kernel_arrays import (
    HEAD_BYTES,
    KEYS,
    LANES,
    OWN_TOKENS,
    ROW_FIELDS,
    TOKENS,
    VALUES,
    WIDTH,
    attend_texts,
    attention_of,
    codes,
    in_parts,
    rounded_up,
)
from tilth.object_code import Compiled

_Ints = NDArray[np.int64]
_NAME = "tilth-rows"
# What a model may ask of its attention, and the kernels do not compute.
_UNKNOWN = ("softcap", "s_aux", "position_bias")

_attend_rows = Compiled("tilth.models.single_query_kernels", "attend")


class CopiedRows(KVCache):
    """Rows that begin with a copy of their prompt's keys and values.

    Args:
        longest: tokens of the longest prompt.
        new: tokens that a row may add to its prompt.
    """

    prompts_type = KVCache

    def __init__(self, model: Any, rows: int, longest: int, new: int) -> None:
        is_gpu = model.device.type == "cuda"
        super().__init__(model, rows, rounded_columns(longest + new) if is_gpu else longest + new)
        self._graphs = StepGraphs(self) if is_gpu else None

    def enter(self, rows: Sequence[int], prompts: Sequence[CachedPrompt]) -> None:
        """Let rows begin with these prompts."""
        for cache, targets, entering in by_cache(rows, prompts):
            sources = [prompt.row for prompt in entering]
            length = max(prompt.length for prompt in entering)
            self.copy_rows(self._tensor(targets), cache, self._tensor(sources), length)

    def leave(self, rows: _Ints, *, broken: bool) -> None:
        """Free rows; clear broken ones: a masked NaN would spread to every later text of a row."""
        if broken:
            for layer in self.layers:
                layer.keys[self._tensor(rows)] = 0
                layer.values[self._tensor(rows)] = 0

    def move(self, sources: _Ints, positions: _Ints) -> None:
        """Make these rows, of which each has tokens up to its position, the first ones."""
        self.copy_rows(self.every[: len(sources)], self, self._tensor(sources), positions.max())

    def decode(self, tokens: _Ints, positions: _Ints) -> Tensor:
        """Run the next token of the first rows; return the logits after it, (rows, vocab)."""
        given = torch.from_numpy(np.stack([tokens, positions])).to(self.every.device)  # (2, rows)
        end = int(positions.max()) + 1
        if self._graphs is not None:
            return self._graphs.step(given, end)
        return self.step(given[0], given[1], end)

    def _tensor(self, values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values), device=self.every.device)


class _OwnTokens(CacheLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values of the rows' own tokens, which the kernel stores."""

    owner: SharedRows

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Say which layer attends next."""
        self.owner.attending = self.owner.layers.index(self)
        return key_states, value_states


class SharedPrompts(KVCache):
    """Prompts on a processor, whose attention is a kernel's of our own."""

    def _forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, keep: int | Tensor = 0, **more: Any
    ) -> Tensor:
        # One query in each row, or heads that the kernel does not compute: torch's attention.
        if self.positions is not None or head_size(self.model) % WIDTH:
            return super()._forward(ids, positions, mask, keep, **more)
        with attention_of(self.model.config.get_text_config(), _NAME):
            return super()._forward(ids, positions, mask, keep, tilth_cache=self, **more)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Return the attention of each row's last tokens, (rows, tokens, heads, size).

        `query` is (rows, heads, last tokens, size), `key` and `value` of all tokens.
        """
        rows, heads, new, size = query.shape
        if size % WIDTH or value.shape[3] != size:
            raise NotImplementedError(f"heads of size {size}")
        queries, every = query.transpose(1, 2).reshape(-1, heads, size), np.arange(rows + 1)
        out = attend_texts(
            queries, key[0], value[0], new * every, every[:-1] * key.stride(0),
            np.full(rows, key.shape[2]), scale=scaling, is_causal=True,
        )  # fmt: skip
        return out.view(rows, new, heads, size)


class SharedRows(KVCache):
    """Rows on a processor that read their prompt where it was run, and keep their own tokens.

    Attention is a kernel's of our own. Several rows continue each prompt: those of its attempts,
    and of the labels that it is a counter prompt for.
    """

    layer_type, prompts_type = _OwnTokens, SharedPrompts

    def __init__(self, model: Any, rows: int, longest: int, new: int) -> None:  # noqa: ARG002
        super().__init__(model, rows, new)
        self.attending = 0  # number of the layer
        self._prompts: list[CachedPrompt | None] = [None] * rows  # kept from being freed
        self._table = np.zeros((len(self.layers), rows, ROW_FIELDS), np.int64)
        self._order: _Ints = np.arange(rows)

    def enter(self, rows: Sequence[int], prompts: Sequence[CachedPrompt]) -> None:
        """Let rows begin with these prompts."""
        for cache, targets, entering in by_cache(rows, prompts):
            sources = np.array([prompt.row for prompt in entering])
            for mine, theirs, table in zip(self.layers, cache.layers, self._table, strict=True):
                if not mine.is_initialized:
                    mine.lazy_initialization(theirs.keys, theirs.values)
                for column, held in ((KEYS, theirs.keys), (VALUES, theirs.values)):
                    starts = sources * held.stride(0) * held.itemsize
                    table[targets, column] = held.data_ptr() + starts
                table[targets, HEAD_BYTES] = theirs.keys.stride(1) * theirs.keys.itemsize
                table[targets, TOKENS] = [prompt.length for prompt in entering]
        for row, prompt in zip(rows, prompts, strict=True):
            self._prompts[row] = prompt

    def leave(self, rows: _Ints, *, broken: bool) -> None:  # noqa: ARG002 - nothing is masked
        """Free rows."""
        self._table[:, rows, TOKENS] = 0
        for row in rows.tolist():
            self._prompts[row] = None

    def move(self, sources: _Ints, positions: _Ints) -> None:
        """Make these rows, of which each has tokens up to its position, the first ones."""
        count = len(sources)
        own = int((positions - self._table[0, sources, TOKENS]).max())
        self.copy_rows(torch.arange(count), self, torch.from_numpy(sources), own)
        self._table[:, :count] = self._table[:, sources]
        prompts = [self._prompts[row] for row in sources.tolist()]
        self.leave(np.arange(count, self.rows), broken=False)
        self._prompts[:count] = prompts

    def decode(self, tokens: _Ints, positions: _Ints) -> Tensor:
        """Run the next token of the first rows; return the logits after it, (rows, vocab)."""
        count = len(tokens)
        table = self._table[:, :count]
        table[:, :, OWN_TOKENS] = positions - table[:, :, TOKENS]
        self._order = np.argsort(table[0, :, KEYS])
        with attention_of(self.model.config.get_text_config(), _NAME):
            logits: Tensor = self.model(
                input_ids=torch.from_numpy(tokens)[:, None],
                position_ids=torch.from_numpy(positions)[:, None],
                attention_mask=torch.zeros(count, 1, 1, 1, dtype=self.model.dtype),
                past_key_values=self._cache,
                use_cache=True,
                tilth_cache=self,
            ).logits
        return logits[:, -1]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Return the attention of one query per row, (rows, 1, heads, size)."""
        rows, heads, new, size = query.shape
        if new != 1:
            raise NotImplementedError("attention of several tokens")
        layer, table = self.layers[self.attending], self._table[self.attending]
        queries, keys, values = (codes(one.reshape(rows, -1, size)) for one in (query, key, value))
        own_keys, own_values = codes(layer.keys), codes(layer.values)
        out = torch.empty(rows, heads, size)
        chunks, found = np.empty((1,) * (size // LANES), np.uint8), out.numpy()
        tokens = rounded_up(int(table[:, TOKENS].max()) + own_keys.shape[2])

        def arguments(some: slice, _: int) -> tuple[Any, ...]:
            return (
                chunks, queries, keys, values, own_keys, own_values, table, self._order[some],
                scaling * math.log2(math.e), np.empty(tokens, np.float32), found,
            )  # fmt: skip

        in_parts(_attend_rows, arguments, rows)
        return out.to(query.dtype)[:, None]


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 - the cache knows what is read
    *,
    tilth_cache: SharedPrompts | SharedRows,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' attention functions do."""
    if any(kwargs.get(name) is not None for name in _UNKNOWN):
        raise NotImplementedError(f"attention of {type(module).__name__}")
    return tilth_cache.attend(query, key, value, scaling or query.shape[-1] ** -0.5), None


AttentionInterface.register(_NAME, _attend)


def by_cache(
    rows: Sequence[int], prompts: Sequence[CachedPrompt]
) -> Iterator[tuple[KVCache, list[int], list[CachedPrompt]]]:
    """Yield each cache that holds some of the prompts, with their rows."""
    caches = {id(prompt.cache): prompt.cache for prompt in prompts}
    for number, cache in caches.items():
        pairs = [pair for pair in zip(rows, prompts, strict=True) if id(pair[1].cache) == number]
        yield cache, [row for row, _ in pairs], [prompt for _, prompt in pairs]

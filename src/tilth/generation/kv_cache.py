"""A preallocated key/value cache whose rows each have their own length."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class _Layer(CacheLayerMixin):
    """One layer's keys and values, (rows, heads, width, head size)."""

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, owner: KVCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # No cycle of references: the memory is free as soon as its owner is.
        self.owner: KVCache = weakref.proxy(owner)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, width = self.owner.rows, self.owner.width
        heads = key_states.shape[1]
        self.keys = key_states.new_zeros(rows, heads, width, key_states.shape[-1])
        self.values = value_states.new_zeros(rows, heads, width, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values, owner = self.keys, self.values, self.owner
        rows, end = key_states.shape[0], owner.end
        if owner.positions is None:
            keys[:rows, :, owner.start : end] = key_states
            values[:rows, :, owner.start : end] = value_states
        else:
            every = owner.every[:rows]
            keys[every, :, owner.positions] = key_states[:, :, 0]  # (rows, heads, head size)
            values[every, :, owner.positions] = value_states[:, :, 0]
        return keys[:rows, :, :end], values[:rows, :, :end]

    def get_seq_length(self) -> int:
        return self.owner.start

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        return self.owner.end, 0

    def get_max_length(self) -> int:
        return self.owner.width

    get_max_cache_shape = get_max_length  # its name before transformers 5.20


class KVCache:
    """Keys and values of `rows` rows of at most `width` tokens, for every layer of a model.

    Column j of a row always holds position j, so rows of different lengths need no padding
    arithmetic: what lies beyond a row's length is masked, then overwritten.
    """

    def __init__(self, model: Any, rows: int, width: int) -> None:
        self.rows, self.width = rows, width
        self.start = self.end = 0
        self.positions: Tensor | None = None
        self.every = torch.arange(rows, device=model.device)
        self._model = model
        self._layers = [_Layer(self) for _ in range(_layer_count(model))]
        self._cache = Cache(layers=list(self._layers))

    def prefill(self, tokens: Sequence[Sequence[int]], start: int = 0) -> Tensor:
        """Run prompts of different lengths as the first rows; return the logits after each.

        The first `start` columns already hold the prompts' first tokens. # (prompts, vocab)
        """
        device, last = self.every.device, max(map(len, tokens)) - 1
        if last > start:
            ids = torch.zeros(len(tokens), last - start, dtype=torch.long)
            for row, known in enumerate(tokens):
                ids[row, : len(known) - 1 - start] = torch.tensor(known[start:-1])
            self.extend(ids.to(device), start)
        ends = torch.tensor([known[-1] for known in tokens], device=device)
        columns = torch.tensor([len(known) - 1 for known in tokens], device=device)
        return self.step(ends, columns, last + 1)

    def extend(self, ids: Tensor, start: int) -> None:
        """Run tokens (n, length) of the first n rows from column `start` on, without logits.

        Rows that end earlier may hold anything after their end.
        """
        self.positions, self.start, self.end = None, start, start + ids.shape[1]
        columns = torch.arange(self.end, device=ids.device)
        own = columns[start:]
        hidden = columns[None, :] > own[:, None]  # (length, end)
        mask = self._mask(hidden[None, None])  # (1, 1, length, end)
        positions = own[None, :].expand(ids.shape[0], -1)  # (n, length)
        self._forward(ids, positions, mask.expand(ids.shape[0], -1, -1, -1))

    def step(self, ids: Tensor, positions: Tensor, end: int) -> Tensor:
        """Run one token per row; return the next-token logits, (n, vocab).

        Args:
            ids: (n,), the tokens of the first n rows.
            positions: (n,), the column of each row's token.
            end: one more than the largest position.
        """
        self.positions, self.start, self.end = positions, end - 1, end
        columns = torch.arange(end, device=ids.device)
        hidden = columns[None, :] > positions[:, None]  # (n, end)
        mask = self._mask(hidden[:, None, None])  # (n, 1, 1, end)
        return self._forward(ids[:, None], positions[:, None], mask)[:, -1]

    def copy_rows(self, rows: Tensor, source: KVCache, source_rows: Tensor, length: int) -> None:
        """Copy the first `length` columns of another cache's rows into rows of this one."""
        for mine, theirs in zip(self._layers, source._layers, strict=True):
            if not mine.is_initialized:
                mine.lazy_initialization(theirs.keys, theirs.values)
            mine.keys[rows, :, :length] = theirs.keys[source_rows, :, :length]
            mine.values[rows, :, :length] = theirs.values[source_rows, :, :length]

    def clear_rows(self, rows: Tensor) -> None:
        """Set rows to zero: a masked NaN would still spread to every later text of the row."""
        for layer in self._layers:
            if layer.is_initialized:
                layer.keys[rows] = 0
                layer.values[rows] = 0

    def _mask(self, hidden: Tensor) -> Tensor:
        dtype = self._model.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)

    def _forward(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
            **({"logits_to_keep": 1} if accepts(self._model, "logits_to_keep") else {}),
        ).logits
        return logits


def accepts(model: Any, argument: str) -> bool:
    """Return whether the model's forward accepts an argument of this name."""
    return argument in inspect.signature(model.forward).parameters


def bytes_per_token(model: Any) -> int:
    """Return the bytes of one token's keys and values over all layers."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    shared = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * _layer_count(model) * shared * head_size * model.dtype.itemsize)


def _layer_count(model: Any) -> int:
    return int(model.config.get_text_config().num_hidden_layers)

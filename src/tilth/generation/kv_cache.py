"""Preallocated key/value caches whose rows each have their own length, and those of prompts."""

from __future__ import annotations

import inspect
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from tilth.models.lm import LM

_TOKENS_A_PASS = 4096


class CacheLayer(CacheLayerMixin):
    """One layer's keys and values, (rows, heads, width, head size)."""

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, owner: KVCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # No cycle of references: the memory is free as soon as its owner is.
        self.owner: KVCache = weakref.proxy(owner)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate memory for tensors of this kind, (rows, heads, tokens, head size)."""
        rows, width = self.owner.rows, self.owner.width
        heads = key_states.shape[1]
        self.keys = key_states.new_zeros(rows, heads, width, key_states.shape[-1])
        self.values = value_states.new_zeros(rows, heads, width, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values, (rows, heads, new tokens, head size); return all to attend to."""
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
        """Return how many tokens came before."""
        return self.owner.start

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        """Return how many tokens are attended to, and which is the first."""
        return self.owner.end, 0

    def get_max_length(self) -> int:
        """Return how many tokens a row may have."""
        return self.owner.width

    get_max_cache_shape = get_max_length  # its name before transformers 5.20


class KVCache:
    """Keys and values of `rows` rows of at most `width` tokens, for every layer of a model.

    Column j of a row always holds position j, so rows of different lengths need no padding
    arithmetic: what lies beyond a row's length is masked, then overwritten.
    """

    layer_type = CacheLayer

    def __init__(self, model: Any, rows: int, width: int) -> None:
        self.rows, self.width = rows, width
        self.start = self.end = 0
        self.positions: Tensor | None = None
        self.every = torch.arange(rows, device=model.device)
        self.model = model
        self.layers = [self.layer_type(self) for _ in range(_layer_count(model))]
        self._cache = Cache(layers=list(self.layers))

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

    def extend(self, ids: Tensor, start: int, *, logits: bool = False) -> Tensor:
        """Run tokens (n, length) of the first n rows from column `start` on; return logits.

        Rows that end earlier may hold anything after their end. The logits are (n, length, vocab);
        without `logits`, none are computed where the model can leave them out.
        """
        self.positions, self.start, self.end = None, start, start + ids.shape[1]
        columns = torch.arange(self.end, device=ids.device)
        own = columns[start:]
        hidden = columns[None, :] > own[:, None]  # (length, end)
        mask = self._mask(hidden[None, None])  # (1, 1, length, end)
        positions = own[None, :].expand(ids.shape[0], -1)  # (n, length)
        mask = mask.expand(ids.shape[0], -1, -1, -1)
        # Chosen by index: of a slice, torch may copy the output weights once for each row.
        keep = own if logits else own[:0]
        return self._forward(ids, positions, mask, keep - start)

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
        for mine, theirs in zip(self.layers, source.layers, strict=True):
            if not mine.is_initialized:
                mine.lazy_initialization(theirs.keys, theirs.values)
            mine.keys[rows, :, :length] = theirs.keys[source_rows, :, :length]
            mine.values[rows, :, :length] = theirs.values[source_rows, :, :length]

    def begin_with(self, prefix: KVCache) -> None:
        """Copy a full cache of one row into every row."""
        for mine, theirs in zip(self.layers, prefix.layers, strict=True):
            mine.lazy_initialization(theirs.keys, theirs.values)
            mine.keys[:, :, : prefix.width] = theirs.keys
            mine.values[:, :, : prefix.width] = theirs.values

    def _mask(self, hidden: Tensor) -> Tensor:
        dtype = self.model.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)

    def _forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, keep: int | Tensor = 0, **more: Any
    ) -> Tensor:
        logits: Tensor = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._cache,
            use_cache=True,
            **more,
            **({"logits_to_keep": keep} if accepts(self.model, "logits_to_keep") else {}),
        ).logits
        return logits


def accepts(model: Any, argument: str) -> bool:
    """Return whether the model's forward accepts an argument of this name."""
    return argument in inspect.signature(model.forward).parameters


def bytes_per_token(model: Any) -> int:
    """Return the bytes of one token's keys and values over all layers."""
    config = model.config.get_text_config()
    shared = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * _layer_count(model) * shared * head_size(model) * model.dtype.itemsize)


def head_size(model: Any) -> int:
    """Return the values of a key of one head."""
    config = model.config.get_text_config()
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def _layer_count(model: Any) -> int:
    return int(model.config.get_text_config().num_hidden_layers)


@dataclass(frozen=True, slots=True)
class CachedPrompt:
    """A prompt that has been run: row `row` of `cache`, and the logits (vocab,) that follow it."""

    cache: KVCache
    row: int
    length: int
    logits: Tensor


class PromptCache:
    """Tokenises prompts, runs each once and copies the keys and values of shared prefixes.

    Args:
        heads: texts that many prompts begin with: instructions up to their input.
        kind: of the prompts' keys and values.
        whole: whether prompts hold all special tokens, as those of a chat template do.
    """

    def __init__(
        self,
        lm: LM,
        heads: Sequence[str] = (),
        kind: type[KVCache] = KVCache,
        *,
        whole: bool = False,
    ) -> None:
        self._lm, self._kind, self._whole = lm, kind, whole
        self._heads = sorted(set(heads), key=len, reverse=True)
        self._prefixes: dict[tuple[int, ...], KVCache] = {}
        self._tokens: dict[str, list[int]] = {}
        self._ready: dict[str, CachedPrompt] = {}
        self._uses: dict[str, int] = defaultdict(int)

    def empty(self, lm: LM) -> PromptCache:
        """Return a cache without prompts, of another model with the same tokenizer."""
        return PromptCache(lm, self._heads, self._kind, whole=self._whole)

    def tokenise(self, texts: Iterable[str]) -> None:
        """Tokenise texts in one call; `length` needs it."""
        new = sorted({text for text in texts if text not in self._tokens})
        self._tokens.update(zip(new, self.encode(new), strict=True))

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of prompts, or of prompts followed by texts."""
        options = {"add_special_tokens": not self._whole, "verbose": False}
        return list(self._lm.tokenizer(texts, **options)["input_ids"]) if texts else []

    def length(self, text: str) -> int:
        """Return the number of tokens of a tokenised prompt."""
        return len(self._tokens[text])

    def acquire(self, texts: Iterable[str]) -> None:
        """Add one use of these prompts."""
        for text in texts:
            self._uses[text] += 1

    def release(self, texts: Iterable[str]) -> None:
        """Remove one use of these prompts; drop those without uses."""
        for text in texts:
            self._uses[text] -= 1
            if not self._uses[text]:
                del self._uses[text]
                self._ready.pop(text, None)
                self._tokens.pop(text, None)

    def drop_memory(self) -> None:
        """Free all keys and values after an out-of-memory error; prompts are run again."""
        self._ready.clear()
        self.drop_prefixes()

    def drop_prefixes(self) -> None:
        """Free the shared prefixes: other prompts share other tokens."""
        self._prefixes.clear()

    def __contains__(self, text: str) -> bool:
        return text in self._ready

    def __getitem__(self, text: str) -> CachedPrompt:
        return self._ready[text]

    def run(self, texts: Iterable[str]) -> None:
        """Run the prompts that have not been run, in batches of bounded size."""
        families: dict[str, list[str]] = defaultdict(list)
        for text in sorted({text for text in texts if text not in self._ready}):
            head = next((head for head in self._heads if text.startswith(head)), "")
            families[head].append(text)
        for head, members in families.items():
            shared = self._shared(members) if head else ()
            members.sort(key=self.length)
            while members:
                longest = self.length(members[-1]) - len(shared)
                size = max(1, min(len(members), _TOKENS_A_PASS // longest))
                self._run_block(shared, members[-size:])
                del members[-size:]

    def _shared(self, members: Sequence[str]) -> tuple[int, ...]:
        """Return the tokens all members begin with, leaving each at least one of its own."""
        if len(members) < 2:
            return ()
        rows = [self._tokens[text] for text in members]
        first, last = min(rows), max(rows)  # the common part of the extremes is common to all
        length = 0
        limit = min(map(len, rows)) - 1
        while length < limit and first[length] == last[length]:
            length += 1
        return tuple(first[:length])

    def _run_block(self, shared: tuple[int, ...], texts: Sequence[str]) -> None:
        """Run prompts that begin with the same tokens as one batch, padded on the right."""
        device, start = self._lm.device, len(shared)
        rows = [self._tokens[text] for text in texts]
        cache = self._kind(self._lm.model, len(rows), max(map(len, rows)))
        if shared:
            if shared not in self._prefixes:
                self._prefixes[shared] = KVCache(self._lm.model, 1, start)
                self._prefixes[shared].extend(torch.tensor([shared], device=device), 0)
            cache.begin_with(self._prefixes[shared])
        logits = cache.prefill(rows, start)  # (rows, vocab)
        for row, text in enumerate(texts):
            self._ready[text] = CachedPrompt(cache, row, len(rows[row]), logits[row])

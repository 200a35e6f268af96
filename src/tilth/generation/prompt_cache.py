"""Run each prompt once; cache keys, values and next-token logits while attempts need them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tilth.generation.kv_cache import KVCache
from tilth.models.lm import LM

_TOKENS_A_PASS = 4096


@dataclass(frozen=True, slots=True)
class CachedPrompt:
    """A prompt that has been run: row `row` of `cache`, and the logits (vocab,) that follow it."""

    cache: KVCache
    row: int
    length: int
    logits: Tensor


class PromptCache:
    """Tokenises prompts, runs each once and copies the keys and values of shared prefixes.

    `heads` are texts that many prompts begin with: instructions up to their input.
    """

    def __init__(self, lm: LM, heads: Sequence[str] = ()) -> None:
        self._lm = lm
        self._heads = sorted(set(heads), key=len, reverse=True)
        self._prefixes: dict[tuple[int, ...], KVCache] = {}
        self._tokens: dict[str, list[int]] = {}
        self._ready: dict[str, CachedPrompt] = {}
        self._uses: dict[str, int] = defaultdict(int)

    def tokenise(self, texts: Iterable[str]) -> None:
        """Tokenise texts in one call; `length` needs it."""
        new = sorted({text for text in texts if text not in self._tokens})
        if new:
            rows = self._lm.tokenizer(new, add_special_tokens=True, verbose=False)["input_ids"]
            self._tokens.update(zip(new, rows, strict=True))

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
        cache = KVCache(self._lm.model, len(rows), max(map(len, rows)))
        if shared:
            if shared not in self._prefixes:
                self._prefixes[shared] = KVCache(self._lm.model, 1, start)
                self._prefixes[shared].extend(torch.tensor([shared], device=device), 0)
            to = torch.arange(len(rows), device=device)
            cache.copy_rows(to, self._prefixes[shared], torch.zeros_like(to), start)
        logits = cache.prefill(rows, start)  # (rows, vocab)
        for row, text in enumerate(texts):
            self._ready[text] = CachedPrompt(cache, row, len(rows[row]), logits[row])

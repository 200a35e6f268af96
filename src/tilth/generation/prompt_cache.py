"""Prompts run once: their keys, values and next-token logits, kept while a try needs them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tilth.generation.kv_cache import KeyValues
from tilth.models.lm import LM

_TOKENS_A_PASS = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that has been run: `row` of `memory` holds it, `logits` (vocab,) follow it."""

    memory: KeyValues
    row: int
    length: int
    logits: Tensor


class PromptStore:
    """Tokenises prompts, runs each once, shares what instructions have in common.

    Args:
        lm: the model.
        heads: texts that many prompts begin with (an instruction up to its input); each is run
            once and its keys and values are copied.
    """

    def __init__(self, lm: LM, heads: Sequence[str] = ()) -> None:
        self._lm = lm
        self._heads = sorted(set(heads), key=len, reverse=True)
        self._prefixes: dict[tuple[int, ...], KeyValues] = {}
        self._tokens: dict[str, list[int]] = {}
        self._ready: dict[str, Prompt] = {}
        self._uses: dict[str, int] = defaultdict(int)

    def tokenise(self, texts: Iterable[str]) -> None:
        """Turn texts into tokens, all at once; `length` can then be asked for."""
        new = sorted({text for text in texts if text not in self._tokens})
        if new:
            rows = self._lm.tokenizer(new, add_special_tokens=True, verbose=False)["input_ids"]
            self._tokens.update(zip(new, rows, strict=True))

    def length(self, text: str) -> int:
        """Return the number of tokens of a tokenised prompt."""
        return len(self._tokens[text])

    def acquire(self, texts: Iterable[str]) -> None:
        """Say that a try needs these prompts: they stay until released as often."""
        for text in texts:
            self._uses[text] += 1

    def release(self, texts: Iterable[str]) -> None:
        """Say that a try no longer needs these prompts."""
        for text in texts:
            self._uses[text] -= 1
            if not self._uses[text]:
                del self._uses[text]
                self._ready.pop(text, None)
                self._tokens.pop(text, None)

    def drop_memory(self) -> None:
        """Forget all keys and values (after an out-of-memory); prompts are run again."""
        self._ready.clear()
        self.drop_prefixes()

    def drop_prefixes(self) -> None:
        """Forget what prompts have in common: other prompts share other tokens."""
        self._prefixes.clear()

    def __contains__(self, text: str) -> bool:
        return text in self._ready

    def __getitem__(self, text: str) -> Prompt:
        return self._ready[text]

    def run(self, texts: Iterable[str]) -> None:
        """Run the prompts that have not been run, in passes of bounded size."""
        families: dict[str, list[str]] = defaultdict(list)
        for text in sorted({text for text in texts if text not in self._ready}):
            families[self._head(text)].append(text)
        for head, members in families.items():
            shared = self._shared(head, members)
            members.sort(key=self.length)
            while members:
                longest = self.length(members[-1]) - len(shared)
                size = max(1, min(len(members), _TOKENS_A_PASS // longest))
                self._run_block(shared, members[-size:])
                del members[-size:]

    def _head(self, text: str) -> str:
        return next((head for head in self._heads if text.startswith(head)), "")

    def _shared(self, head: str, members: Sequence[str]) -> tuple[int, ...]:
        """Return the tokens all members begin with, leaving each at least one of its own."""
        if not head or len(members) < 2:
            return ()
        rows = [self._tokens[text] for text in members]
        first, last = min(rows), max(rows)  # the common part of the extremes is common to all
        length = 0
        limit = min(map(len, rows)) - 1
        while length < limit and first[length] == last[length]:
            length += 1
        return tuple(first[:length])

    def _run_block(self, shared: tuple[int, ...], texts: Sequence[str]) -> None:
        """Run prompts that begin with the same tokens as one batch, padded at the right."""
        device = self._lm.device
        rows = [self._tokens[text] for text in texts]
        width, start = max(map(len, rows)), len(shared)
        memory = KeyValues(self._lm.model, len(rows), width)
        if shared:
            to = torch.arange(len(rows), device=device)
            memory.copy_rows(to, self._prefix(shared), torch.zeros_like(to), start)
        if width - 1 > start:
            ids = torch.zeros(len(rows), width - 1 - start, dtype=torch.long)
            for number, row in enumerate(rows):
                ids[number, : len(row) - 1 - start] = torch.tensor(row[start:-1])
            memory.extend(ids.to(device), start)
        last = torch.tensor([row[-1] for row in rows], device=device)
        places = torch.tensor([len(row) - 1 for row in rows], device=device)
        logits = memory.step(last, places, width)  # (rows, vocab)
        for number, text in enumerate(texts):
            self._ready[text] = Prompt(memory, number, len(rows[number]), logits[number])

    def _prefix(self, shared: tuple[int, ...]) -> KeyValues:
        if shared not in self._prefixes:
            memory = KeyValues(self._lm.model, 1, len(shared))
            memory.extend(torch.tensor([shared], device=self._lm.device), 0)
            self._prefixes[shared] = memory
        return self._prefixes[shared]

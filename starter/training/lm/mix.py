"""A tokenised mix of examples on disk, and the batches a training step takes from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

FIRST_WEIGHT = 0.4  # weight of sentence 1's tokens in the loss; sentence 2's weigh 1
# A rewrite copies most tokens, so a model that always copies is hardly wrong, and sampling with
# top-p cuts off the rare departures it has learned. Tokens where sentence 2 leaves sentence 1
# weigh this much in tasks whose sentences mean the same.
DEPARTURE_WEIGHT = 5.0


class Batch(NamedTuple):
    """What one forward pass needs."""

    prefix: Tensor  # (1, prefix length), shared by the rows; may be empty
    inputs: Tensor  # (rows, length)
    used: Tensor  # (used,), flat positions in (rows, length) with a loss
    targets: Tensor  # (used,)
    weights: Tensor  # (used,)


class Mix:
    """The tokenised examples of one mix.

    `tokens` holds all examples end to end. Example i spans offsets[i]:offsets[i+1]; its loss
    covers first[i]:first_end[i] (sentence 1, may be empty) and second[i] to the end.
    """

    def __init__(self, path: Path, same_meaning: np.ndarray | None = None) -> None:
        """Load a mix; `same_meaning` is the instruction whose rows have weighted departures."""
        arrays = np.load(path)
        self.same_meaning = same_meaning
        self.tokens = arrays["tokens"]
        self.offsets = arrays["offsets"]
        self.first = arrays["first"]
        self.first_end = arrays["first_end"]
        self.second = arrays["second"]
        self.prefix, self.prefixes = self.shared_prefixes()

    def shared_prefixes(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return each example's prefix number and the prefixes: frequent instructions.

        The rows of a batch share their prefix, so it is computed once. Its last token stays with
        the rows, as it predicts their first one. Number 0 is the empty prefix.
        """
        ends = np.where(self.first_end > self.first, self.first, self.second) - 1
        keys = [
            self.tokens[start : start + end].tobytes()
            for start, end in zip(self.offsets[:-1], ends, strict=True)
        ]
        counts = Counter(keys)
        frequent = [key for key, n in sorted(counts.items()) if n >= 0.01 * len(keys)]
        number = {key: i + 1 for i, key in enumerate(frequent)}
        prefixes = [np.frombuffer(key, dtype=np.uint16) for key in (b"", *frequent)]
        return np.array([number.get(key, 0) for key in keys]), prefixes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @staticmethod
    def padded(length: int) -> int:
        """Return the width of a batch whose longest example has this many tokens."""
        return -(-(length - 1) // 4) * 4

    def batches(self, tokens_per_batch: int, seed: int) -> Iterator[np.ndarray]:
        """Yield index arrays of one pass: examples of like length, about equal token counts."""
        generator = np.random.default_rng(seed)
        lengths = self.lengths()
        order = generator.permutation(len(self))
        batches = []
        for start in range(0, len(order), 16384):
            chunk = order[start : start + 16384]
            for prefix in range(len(self.prefixes)):
                part = chunk[self.prefix[chunk] == prefix]
                part = part[np.argsort(lengths[part], kind="stable")]
                batches += self.cut(part, lengths, tokens_per_batch)
        generator.shuffle(batches)  # type: ignore[arg-type]
        yield from batches

    def lengths(self) -> np.ndarray:
        """Return each example's number of tokens without its shared prefix."""
        prefix = np.array([len(ids) for ids in self.prefixes])
        return np.diff(self.offsets) - prefix[self.prefix]

    def cut(
        self, chunk: np.ndarray, lengths: np.ndarray, tokens_per_batch: int
    ) -> list[np.ndarray]:
        """Cut examples in the order of their lengths into batches of about equal size."""
        batches = []
        position = 0
        while position < len(chunk):
            # The last row of a batch is its longest; a few fixed shapes keep oneDNN's
            # cache of compiled products small.
            rows = max(1, tokens_per_batch // self.padded(int(lengths[chunk[position]])))
            while rows > 1:
                last = chunk[min(position + rows, len(chunk)) - 1]
                fitting = max(1, tokens_per_batch // self.padded(int(lengths[last])))
                if fitting >= rows:
                    break
                rows = fitting
            batches.append(chunk[position : position + rows])
            position += rows
        return batches

    def collate(self, rows: np.ndarray) -> Batch:
        """Return the tensors of one batch; its rows share a prefix."""
        lengths, start = self.lengths_of(rows)
        skip = len(self.prefixes[self.prefix[rows[0]]])
        width = self.padded(int(lengths.max()))
        inputs = np.zeros((len(rows), width), dtype=np.int64)
        targets = np.zeros((len(rows), width), dtype=np.int64)
        weights = np.zeros((len(rows), width), dtype=np.float32)
        for i, row in enumerate(rows):
            ids = self.tokens[start[i] : start[i] + lengths[i]]
            inputs[i, : len(ids) - 1] = ids[:-1]
            targets[i, : len(ids) - 1] = ids[1:]
            first, first_end = self.first[row] - skip, self.first_end[row] - skip
            if first_end > first:
                weights[i, first - 1 : first_end - 1] = FIRST_WEIGHT
            second = self.second[row] - skip
            weights[i, second - 1 : len(ids) - 1] = 1.0
            if self.has_same_meaning(row):
                places = departures(ids[first:first_end], ids[second:])
                weights[i, second - 1 + places] = DEPARTURE_WEIGHT
        used = np.flatnonzero(weights)
        spare = -len(used) % 128  # positions of weight 0 fill up the shape
        used = np.concatenate([used, np.flatnonzero(weights.reshape(-1) == 0)[:spare]])
        return Batch(
            torch.from_numpy(self.prefixes[self.prefix[rows[0]]].astype(np.int64))[None],
            torch.from_numpy(inputs),
            torch.from_numpy(used),
            torch.from_numpy(targets.reshape(-1)[used]),
            torch.from_numpy(weights.reshape(-1)[used]),
        )

    def has_same_meaning(self, row: int) -> bool:
        """Tell whether an example's two sentences are asked to mean the same."""
        if self.same_meaning is None:
            return False
        start = self.offsets[row]
        head = self.tokens[start : start + len(self.same_meaning)]
        return np.array_equal(head, self.same_meaning)

    def lengths_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the lengths of examples without their prefix, and where they start."""
        skip = len(self.prefixes[self.prefix[rows[0]]])
        return self.offsets[rows + 1] - self.offsets[rows] - skip, self.offsets[rows] + skip


def departures(source: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Return the places in an output where copying the source would have gone on otherwise.

    A place counts when the token before it stands in the source (or is the beginning) and is
    followed there by other tokens only.
    """
    follows: dict[int, set[int]] = {}
    for before, after in zip([-1, *source.tolist()], source.tolist(), strict=False):
        follows.setdefault(before, set()).add(after)
    tokens = output.tolist()
    return np.array(
        [
            place
            for place, (before, token) in enumerate(zip([-1, *tokens], tokens, strict=False))
            if before in follows and token not in follows[before]
        ],
        dtype=np.int64,
    )

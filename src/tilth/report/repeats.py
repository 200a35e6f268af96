"""Outputs that come back: with another input, with the same input, or under another label.

Every kept row leaves three numbers (label, hash of the output, hash of its input), so a million
rows take about 24 MB. Python's own hash of a text serves: it differs between processes, but only
equality counts here, and two of a million different texts share 64 bits about once in 40 million
runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RepeatCounts:
    """Counts per label code.

    Attributes:
        repeated: rows whose output an earlier row of the label has for another input; without
            inputs, rows whose output any earlier row of the label has. # (labels,)
        duplicates: rows whose output an earlier row has for the same input. # (labels,)
        shared: rows of the first label that the second has too, for the same input; without
            inputs, for any. # (labels, labels)
    """

    repeated: NDArray[np.int64]
    duplicates: NDArray[np.int64]
    shared: NDArray[np.int64]


class Repeats:
    """Remembers the kept rows, as numbers."""

    def __init__(self) -> None:
        self._labels: list[NDArray[np.int32]] = []
        self._outputs: list[NDArray[np.int64]] = []
        self._sources: list[NDArray[np.int64]] = []

    def add(self, labels: NDArray[np.int64], outputs: pa.Array, sources: pa.Array) -> None:
        """Take in kept rows: label codes, outputs by `plain`, and what names their inputs."""
        self._labels.append(labels.astype(np.int32))
        self._outputs.append(_hashes(outputs))
        self._sources.append(_hashes(sources))

    def count(self, labels: int, *, paired: bool) -> RepeatCounts:
        """Return the counts for so many labels.

        Args:
            labels: number of label codes.
            paired: whether rows have inputs.
        """
        if not self._labels:
            none = np.zeros(labels, np.int64)
            return RepeatCounts(none, none, np.zeros((labels, labels), np.int64))
        label = np.concatenate(self._labels)  # (rows,)
        output = np.concatenate(self._outputs)  # (rows,)
        source = np.concatenate(self._sources) if paired else np.zeros_like(output)  # (rows,)
        duplicates = _duplicates(label, output, source, labels)
        if paired:
            repeated = _repeated(label, output, source, labels)
            return RepeatCounts(repeated, duplicates, _shared(label, output, source, labels))
        none = np.zeros(labels, np.int64)
        return RepeatCounts(duplicates, none, _shared(label, output, source, labels))


def _hashes(values: pa.Array) -> NDArray[np.int64]:
    return np.fromiter(map(hash, values.to_pylist()), np.int64, len(values))


def _new_group(*columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return where sorted rows begin a new group of equal columns."""
    start = np.ones(len(columns[0]), np.bool_)
    start[1:] = False
    for column in columns:
        start[1:] |= column[1:] != column[:-1]
    return start


def _duplicates(
    label: NDArray[np.int32], output: NDArray[np.int64], source: NDArray[np.int64], labels: int
) -> NDArray[np.int64]:
    order = np.lexsort((source, output, label))
    start = _new_group(label[order], output[order], source[order])
    return np.bincount(label[order][~start], minlength=labels)


def _repeated(
    label: NDArray[np.int32], output: NDArray[np.int64], source: NDArray[np.int64], labels: int
) -> NDArray[np.int64]:
    order = np.lexsort((output, label))  # stable: within a group, rows stay in their order
    start = _new_group(label[order], output[order])
    first = np.flatnonzero(start)[np.cumsum(start) - 1]  # place of the group's first row
    other = source[order] != source[order][first]
    before = np.cumsum(other) - other
    # A row with the input of the group's first row repeats once another input stands between.
    repeated = other | (before > before[first])
    return np.bincount(label[order][repeated], minlength=labels)


def _shared(
    label: NDArray[np.int32], output: NDArray[np.int64], source: NDArray[np.int64], labels: int
) -> NDArray[np.int64]:
    shared = np.zeros((labels, labels), np.int64)
    order = np.lexsort((label, source, output))
    start = np.flatnonzero(_new_group(output[order], source[order], label[order]))
    rows = np.diff(np.append(start, len(order)))
    label, output, source = label[order][start], output[order][start], source[order][start]
    # Labels of one (output, input) now stand side by side: compare at distance 1, 2, ...
    for step in range(1, labels):
        same = (output[:-step] == output[step:]) & (source[:-step] == source[step:])
        if not same.any():
            break
        one, two = label[:-step][same], label[step:][same]
        np.add.at(shared, (one, two), rows[:-step][same])
        np.add.at(shared, (two, one), rows[step:][same])
    return shared

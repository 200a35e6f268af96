"""The health of a run, label by label: what was tried, kept and dropped, and what looks sick.

One pass over the tries of a run, part by part. What stays in memory: counts per label, three
64-bit numbers per kept row (to find repeats), and a seeded draw of rows per label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.report.figures import Example, Health, LabelHealth, distinct, label_order
from tilth.report.row_samples import Draw, row_keys
from tilth.report.symptoms import LIMITS, Limits, symptoms
from tilth.report.text_similarity import plain, word_counts

# What helps where a model cannot write a task.


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


# A try that ended for one of these reasons never reached its closing quotation mark.
UNCLOSED = frozenset({"not-closed", "newline", "prompt-too-long", "not-a-number"})
# distinct-n falls as a text grows, so it is taken on the same number of outputs for each label.
DISTINCT_OUTPUTS = 1_000
BINS = 200  # of a cosine, from -1 to 1
LONGEST = 128  # words; the length histogram's last place holds all that is longer


def health(
    tables: Iterable[pa.Table],
    *,
    seed: int = 0,
    limits: Limits = LIMITS,
    unmeasured: Mapping[str, str] | None = None,
) -> Health:
    """Return the health of a run's labels.

    Args:
        tables: the tries, in the order of the parts, with the columns of a generate run.
        seed: of the draw that distinct-1 and distinct-2 are taken on.
        limits: where a figure becomes a warning.
        unmeasured: label -> why it is not measured whether its texts fit it.
    """
    tally = Tally(seed=seed, draw=DISTINCT_OUTPUTS)
    for table in tables:
        tally.add(table)
    return tally.health(limits, unmeasured)


class Tally:
    """Collects the figures over the tables of a run, and draws rows to look at."""

    def __init__(self, *, seed: int = 0, draw: int = DISTINCT_OUTPUTS, dropped_draw: int = 4):
        self.seed = seed
        self.inputs: set[int] = set()  # hashes of what names the different inputs
        self.paired = False  # whether rows have an input text
        self._codes: dict[str, int] = {}
        self._sums: dict[str, NDArray[Any]] = {}
        self._rows = 0
        self._repeats = Repeats()
        self._kept = Draw(max(draw, DISTINCT_OUTPUTS))
        self._dropped = Draw(dropped_draw)
        self._floor_known = False

    @property
    def labels(self) -> list[str]:
        """The labels seen, in their order."""
        return label_order(self._codes)

    def add(self, table: pa.Table) -> None:
        """Take in one table of tries."""
        table = table.combine_chunks()
        if not table.num_rows:
            return
        self.paired = self.paired or _has_inputs(table)
        if self.paired:
            self.inputs.update(map(hash, pc.unique(_sources(table)).to_pylist()))
        codes = self._label_codes(_column(table, "label"))
        reasons = _column(table, "drop_reason")
        kept = pc.is_null(reasons).to_numpy(zero_copy_only=False)
        tokens = pc.fill_null(_column(table, "tokens"), 0).to_numpy().astype(np.int64)
        keys = row_keys(self._rows, table.num_rows, self.seed)
        self._rows += table.num_rows
        self._count("tries", codes)
        self._count("kept", codes[kept])
        self._count("tokens", codes, tokens)
        self._count("kept_tokens", codes[kept], tokens[kept])
        self._add_floor(table, codes, tokens)
        self._add_dropped(table, codes, keys, reasons, kept)
        self._add_kept(table.filter(pa.array(kept)), codes[kept], keys[kept])

    def health(
        self, limits: Limits = LIMITS, unmeasured: Mapping[str, str] | None = None
    ) -> Health:
        """Return the figures of what was taken in."""
        repeats = self._repeats.count(len(self._codes), paired=self.paired)
        labels = [self._label(label, repeats) for label in self.labels]
        if self._sum("similar").any():
            labels = [
                self._compared(label, labels[place + 1].label if place + 1 < len(labels) else None)
                for place, label in enumerate(labels)
            ]
        return Health(labels, symptoms(labels, limits), dict(unmeasured or {}))

    def similarities(self) -> dict[str, NDArray[np.float64]]:
        """Return, for each label, a draw of its pairs' similarities as the run measured them."""
        grid = self._sum("similar").reshape(-1, BINS + 1)  # (labels, bins)
        cosines = np.linspace(-1, 1, BINS + 1)
        drawn = {}
        for label in self.labels:
            counts = grid[self._codes[label]]
            if counts.any():
                drawn[label] = np.repeat(cosines, -(-counts * BINS * 10 // max(counts.sum(), 1)))
        return drawn

    def lengths(self) -> dict[str, list[int]]:
        """Return, for each label, how many kept outputs have 0, 1, ... words."""
        grid = self._sum("lengths").reshape(-1, LONGEST + 1)  # (labels, words)
        return {label: grid[self._codes[label]].tolist() for label in self.labels}

    def kept_rows(self, label: str, most: int) -> list[Example]:
        """Return at most so many kept rows of a label, drawn by the seed."""
        return [example for example, _ in self._kept.rows(label)[:most]]

    def dropped_rows(self) -> list[Example]:
        """Return a few dropped rows for each label and reason, drawn by the seed."""
        order = {label: place for place, label in enumerate(self.labels)}
        groups = [group for group in self._dropped.groups() if isinstance(group, tuple)]
        groups.sort(key=lambda group: (order[group[0]], group[1]))
        return [row for group in groups for row in self._dropped.rows(group)]

    # -- taking in ------------------------------------------------------------------------------

    def _label_codes(self, labels: pa.Array) -> NDArray[np.int64]:
        encoded = pc.dictionary_encode(pc.fill_null(labels, ""))
        here = [
            self._codes.setdefault(name, len(self._codes))
            for name in encoded.dictionary.to_pylist()
        ]
        codes: NDArray[np.int64] = np.array(here, np.int64)[encoded.indices.to_numpy()]  # (rows,)
        return codes

    def _count(self, name: str, codes: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        """Add to a sum per label: 1 for each row, or its weight."""
        if weights is None:
            more = np.bincount(codes, minlength=len(self._codes))
        else:
            more = np.bincount(codes, weights=weights, minlength=len(self._codes))
        self._add(name, more)

    def _add(self, name: str, more: NDArray[Any]) -> None:
        old = self._sums.get(name)
        if old is not None:
            more[: len(old)] += old
        self._sums[name] = more

    def _add_floor(
        self, table: pa.Table, codes: NDArray[np.int64], tokens: NDArray[np.int64]
    ) -> None:
        if "floor_share" not in table.column_names:
            return
        column = _column(table, "floor_share")
        known = pc.is_valid(column).to_numpy(zero_copy_only=False)
        if not known.any():
            return
        self._floor_known = True
        shares = pc.fill_null(column, 0.0).to_numpy().astype(np.float64)
        self._count("floor_tokens", codes[known], (shares * tokens)[known])
        self._count("floor_of", codes[known], tokens[known])

    def _add_dropped(
        self,
        table: pa.Table,
        codes: NDArray[np.int64],
        keys: NDArray[np.uint64],
        reasons: pa.Array,
        kept: NDArray[np.bool_],
    ) -> None:
        if kept.all():
            return
        encoded = pc.dictionary_encode(reasons)
        names = [str(name) for name in encoded.dictionary.to_pylist()]
        places = np.flatnonzero(~kept)
        reason = pc.fill_null(encoded.indices, 0).to_numpy()[places]
        for number, name in enumerate(names):
            self._count(f"dropped {name}", codes[places[reason == number]])
        known = list(self._codes)
        pair = codes[places] * len(names) + reason
        pairs, dense = np.unique(pair, return_inverse=True)
        groups = [(known[one // len(names)], names[one % len(names)]) for one in pairs]
        wanted = places[self._dropped.wanted(groups, dense, keys[places])]
        for place, row in zip(wanted, examples(table.take(pa.array(wanted))), strict=True):
            self._dropped.add((row.label, row.reason), int(keys[place]), row)

    def _add_kept(
        self, table: pa.Table, codes: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> None:
        if not table.num_rows:
            return
        table = table.combine_chunks()
        outputs = plain(_text(table))
        words = word_counts(outputs).to_numpy().astype(np.int64)
        self._count("words", codes, words)
        cells = codes * (LONGEST + 1) + np.minimum(words, LONGEST)
        self._add("lengths", np.bincount(cells, minlength=len(self._codes) * (LONGEST + 1)))
        if _has_inputs(table):
            same = pc.equal(plain(_column(table, "text_a")), outputs)
            self._count("copies", codes[same.to_numpy(zero_copy_only=False)])
        self._add_fit(table, codes)
        self._repeats.add(codes, outputs, _sources(table))
        wanted = self._kept.wanted(list(self._codes), codes, keys)
        drawn = zip(
            wanted,
            examples(table.take(pa.array(wanted))),
            outputs.take(pa.array(wanted)).to_pylist(),
            strict=True,
        )
        for place, row, words_only in drawn:
            self._kept.add(row.label, int(keys[place]), (row, words_only))

    def _add_fit(self, table: pa.Table, codes: NDArray[np.int64]) -> None:
        """Count the texts that fit their label, and pairs by their similarity."""
        for name in ("label_fit", "similarity"):
            if name not in table.column_names:
                continue
            column = _column(table, name)
            known = pc.is_valid(column).to_numpy(zero_copy_only=False)
            values = pc.fill_null(column, 0.0).to_numpy().astype(np.float64)[known]
            here = codes[known]
            if name == "label_fit":
                self._count("fit of", here)
                self._count("fits", here[values > 0])
            else:
                cells = np.rint((values.clip(-1, 1) + 1) / 2 * BINS).astype(np.int64)
                cells += here * (BINS + 1)
                size = len(self._codes) * (BINS + 1)
                self._add("similar", np.bincount(cells, minlength=size))

    # -- giving out -----------------------------------------------------------------------------

    def _sum(self, name: str) -> NDArray[Any]:
        size = len(self._codes) * {"lengths": LONGEST + 1, "similar": BINS + 1}.get(name, 1)
        total = np.zeros(size)
        old = self._sums.get(name)
        if old is not None:
            total[: len(old)] += old
        return total.astype(np.int64) if name != "floor_tokens" else total

    def _label(self, label: str, repeats: RepeatCounts) -> LabelHealth:
        code = self._codes[label]

        def of(name: str) -> int:
            return int(self._sum(name)[code])

        dropped = {
            name.removeprefix("dropped "): of(name)
            for name in self._sums
            if name.startswith("dropped ") and of(name)
        }
        tries, kept, tokens = of("tries"), of("kept"), of("tokens")
        closed = tries - sum(count for reason, count in dropped.items() if reason in UNCLOSED)
        drawn = [text for _, text in self._kept.rows(label)[:DISTINCT_OUTPUTS]]
        measured = of("floor_of") if self._floor_known else 0
        names = list(self._codes)
        shared = {
            names[other]: int(count) for other, count in enumerate(repeats.shared[code]) if count
        }
        return LabelHealth(
            label=label,
            tries=tries,
            closed=closed,
            closed_share=closed / tries,
            kept=kept,
            dropped=dict(sorted(dropped.items(), key=lambda item: (-item[1], item[0]))),
            copies=of("copies"),
            copy_share=of("copies") / max(kept, 1) if self.paired else None,
            distinct_1=distinct(drawn, 1),
            distinct_2=distinct(drawn, 2),
            distinct_outputs=len(drawn),
            mean_tokens=of("kept_tokens") / kept if kept else None,
            mean_words=of("words") / kept if kept else None,
            all_tokens=tokens,
            floor_share=float(self._sum("floor_tokens")[code]) / measured if measured else None,
            repeated=int(repeats.repeated[code]),
            repeated_share=int(repeats.repeated[code]) / max(kept, 1),
            duplicates=int(repeats.duplicates[code]),
            duplicate_share=int(repeats.duplicates[code]) / max(kept, 1),
            shared=dict(sorted(shared.items(), key=lambda item: -item[1])),
            fit_share=of("fits") / of("fit of") if of("fit of") else None,
        )

    def _compared(self, label: LabelHealth, below: str | None) -> LabelHealth:
        """Add how similar a label's pairs are, beside the next lower label's."""
        grid = self._sum("similar").reshape(-1, BINS + 1)  # (labels, bins)
        own = grid[self._codes[label.label]]
        if not own.any():
            return label
        mean = float(own @ np.linspace(-1, 1, BINS + 1)) / int(own.sum())
        other = grid[self._codes[below]] if below is not None else np.zeros(BINS + 1, np.int64)
        if below is None or not other.any():
            return replace(label, similarity=mean)
        before = np.cumsum(other) - other / 2  # pairs of the lower label that are less similar
        separation = float(own @ before) / (int(own.sum()) * int(other.sum()))
        return replace(label, similarity=mean, below=below, separation=separation)


def _column(table: pa.Table, name: str) -> pa.Array:
    """Return a column as one array; one of nulls when the table lacks it."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.string() if name == "drop_reason" else pa.int64())
    column = table.column(name)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # pyarrow keeps chunks where one would be too large
        column = pa.concat_arrays(column.chunks)
    return column


def _has_inputs(table: pa.Table) -> bool:
    return "text_a" in table.column_names and table["text_a"].null_count < table.num_rows


def _text(table: pa.Table) -> pa.Array:
    return _column(table, "text_b" if "text_b" in table.column_names else "text")


def _sources(table: pa.Table) -> pa.Array:
    """Return what tells one input from another."""
    for name in ("source_id", "text_a", "item"):
        if name in table.column_names:
            return _column(table, name)
    return _text(table)


def examples(table: pa.Table) -> Iterable[Example]:
    """Yield the rows of a table of tries as examples."""
    inputs = (
        _column(table, "text_a").to_pylist()
        if "text_a" in table.column_names
        else [None] * table.num_rows
    )
    texts, reasons = _text(table).to_pylist(), _column(table, "drop_reason").to_pylist()
    labels = _column(table, "label").to_pylist()
    for label, text_a, text, reason in zip(labels, inputs, texts, reasons, strict=True):
        yield Example(label or "", text_a, text or "", reason)

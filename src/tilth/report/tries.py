"""Count and sample the tries of a `tilth generate` run in DuckDB, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.errors import InputError
from tilth.report.quality import LabelQuality, Quality, by_count, find_warnings
from tilth.report.run_reader import database, part_files, read_run, read_tables, row_keys, select
from tilth.report.text_similarity import plain, word_counts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# A try that ended for one of these reasons never reached its closing quotation mark.
UNCLOSED = frozenset({"not-closed", "newline", "prompt-too-long", "not-a-number", "filtered"})
# distinct-n falls as a text grows, so it is taken on the same number of outputs for each label.
DISTINCT_OUTPUTS = 1_000
BINS = 200  # of a cosine, from -1 to 1
LONGEST = 128  # words; the last place of a length histogram holds all that is longer
COLUMNS = (
    "source_id", "item", "text_a", "text_b", "text", "label", "tokens", "floor_share",
    "drop_reason", "label_fit", "similarity",
)  # fmt: skip
_SCHEMA = pa.schema(
    {
        "row": pa.int64(),
        "key": pa.uint64(),  # of samples: the smallest are taken
        "label": pa.string(),
        "source": pa.string(),  # what tells one input from another
        "text_a": pa.string(),
        "text": pa.string(),
        "output": pa.string(),  # the text without case and punctuation
        "words": pa.int64(),
        "is_copy": pa.bool_(),
        "tokens": pa.int64(),
        "floor_share": pa.float64(),
        "reason": pa.string(),
        "fit": pa.float64(),
        "similarity": pa.float64(),
    }
)


@dataclass(frozen=True, slots=True)
class SampledTry:
    """A sampled try; text_a is None in a task without inputs, reason None when kept."""

    label: str
    text_a: str | None
    text: str
    reason: str | None = None


def quality_of_run(run_folder: str | Path) -> Quality:
    """Return the quality of a run of `tilth generate`, finished or not.

    Raises:
        InputError: the folder holds no such run, or no tries.
    """
    run = read_run(Path(run_folder), "generate")
    with open_tries(Path(run_folder)) as tries:
        return tries.quality(unmeasured=unmeasured_labels(run))


def unmeasured_labels(run: Mapping[str, Any]) -> dict[str, str]:
    """Return label -> reason for the labels whose fit is not measured."""
    return dict((run["resolved"].get("label_fit") or {}).get("unmeasured", {}))


@contextmanager
def open_tries(folder: Path, *, notices: list[str] | None = None) -> Iterator[TryTable]:
    """Open the tries of a run; unreadable parts are skipped and named in `notices`."""
    tables = read_tables(part_files(folder), COLUMNS, [] if notices is None else notices)
    with load_tries(tables) as tries:
        if not tries.labels:
            raise InputError(f"{folder}: no tries to report in parts/; run `tilth generate` first")
        yield tries


@contextmanager
def load_tries(tables: Iterable[pa.Table]) -> Iterator[TryTable]:
    """Load tables of tries in the order of the parts."""
    with database(tries=(_SCHEMA, _prepared(tables))) as engine:
        yield TryTable(engine)


class TryTable:
    """The tries of a run: figures per label, and seeded samples."""

    def __init__(self, engine: DuckDBPyConnection) -> None:
        self._engine = engine
        engine.execute("CREATE VIEW kept AS SELECT * FROM tries WHERE reason IS NULL")
        self.labels = label_order([row["label"] for row in self._rows(_LABELS)])
        inputs = self._rows(
            "SELECT count(text_a) AS texts, count(DISTINCT source) AS inputs FROM tries"
        )[0]
        self.inputs: int | None = inputs["inputs"] if inputs["texts"] else None

    def quality(self, *, unmeasured: Mapping[str, str] | None = None) -> Quality:
        """Return the figures of all labels and the warnings."""
        counts = {row["label"]: row for row in self._rows(_COUNTS)}
        dropped = self._by_label(
            "SELECT label, reason AS name, count(*) AS value FROM tries "
            "WHERE reason IS NOT NULL GROUP BY ALL"
        )
        repeats = {row["label"]: row for row in self._rows(_REPEATS, self.inputs is not None)}
        shared = self._by_label(_SHARED, self.inputs is not None)
        samples = self._samples("SELECT label, output FROM kept", DISTINCT_OUTPUTS)
        outputs: dict[str, list[str]] = {label: [] for label in self.labels}
        for row in samples:
            outputs[row["label"]].append(row["output"])
        histograms = self.similarities()
        found = [
            _label_quality(
                counts[name],
                repeats.get(name, {}),
                dropped=by_count(dropped.get(name, {})),
                shared=by_count(shared.get(name, {})),
                outputs=outputs[name],
                paired=self.inputs is not None,
                similarity=_similarity_figures(histograms, name, below),
            )
            for name, below in zip(self.labels, [*self.labels[1:], None], strict=False)
        ]
        return Quality(found, find_warnings(found), dict(unmeasured or {}))

    def lengths(self) -> dict[str, NDArray[np.int64]]:
        """Return a histogram of kept outputs by number of words per label, (129,) each."""
        return self._histograms("words", f"least(words, {LONGEST})", LONGEST + 1)

    def similarities(self) -> dict[str, NDArray[np.int64]]:
        """Return a histogram of kept pairs by cosine, -1 to 1, per label, (201,) each."""
        place = f"round_even((greatest(least(similarity, 1), -1) + 1) / 2 * {BINS}, 0)"
        return self._histograms("similarity", place, BINS + 1)

    def sample_kept(self, per_label: int) -> list[SampledTry]:
        """Return up to `per_label` kept tries of each label."""
        rows = self._samples("SELECT label, text_a, text FROM kept", per_label)
        return self._ordered([SampledTry(**row) for row in rows])

    def sample_dropped(self, per_label: int) -> list[SampledTry]:
        """Return up to `per_label` dropped tries of each label, covering each reason first."""
        rows = self._rows(
            "SELECT label, text_a, text, reason FROM (SELECT *, row_number() OVER "
            "(PARTITION BY label, reason ORDER BY key) AS turn FROM tries WHERE reason IS NOT NULL)"
            " QUALIFY row_number() OVER (PARTITION BY label ORDER BY turn, reason) <= ?"
            " ORDER BY label, turn, reason",
            per_label,
        )
        return self._ordered([SampledTry(**row) for row in rows])

    def same_input(self, inputs: int) -> list[list[SampledTry]]:
        """Return all kept tries of a few inputs, grouped by input."""
        sample = self.sample_kept(50)
        texts = list(dict.fromkeys(one.text_a for one in sample if one.text_a))[:inputs]
        rows = self._rows(
            "SELECT label, text_a, text FROM kept WHERE list_contains(?, text_a) ORDER BY row",
            texts,
        )
        found: dict[str, list[SampledTry]] = {text: [] for text in texts}
        for one in self._ordered([SampledTry(**row) for row in rows]):
            found[one.text_a or ""].append(one)
        return [some[: 3 * len(self.labels)] for some in found.values()]

    def _rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        return select(self._engine, query, *values)

    def _samples(self, query: str, per_label: int) -> list[dict[str, Any]]:
        sample = "QUALIFY row_number() OVER (PARTITION BY label ORDER BY key) <= ?"
        return self._rows(f"{query} {sample} ORDER BY key", per_label)

    def _ordered(self, tries: list[SampledTry]) -> list[SampledTry]:
        order = {label: place for place, label in enumerate(self.labels)}
        return sorted(tries, key=lambda one: order[one.label])

    def _by_label(self, query: str, *values: object) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for row in self._rows(query, *values):
            found.setdefault(row["label"], {})[row["name"]] = row["value"]
        return found

    def _histograms(self, column: str, place: str, size: int) -> dict[str, NDArray[np.int64]]:
        found: dict[str, NDArray[np.int64]] = {}
        rows = self._rows(
            f"SELECT label, {place}::INTEGER AS place, count(*) AS n FROM kept"
            f" WHERE {column} IS NOT NULL GROUP BY ALL"
        )
        for row in rows:
            found.setdefault(row["label"], np.zeros(size, np.int64))[row["place"]] = row["n"]
        return {label: found[label] for label in self.labels if label in found}


_LABELS = "SELECT label FROM tries GROUP BY label ORDER BY min(row)"
_COUNTS = """
SELECT label, count(*) AS tries, count(*) FILTER (reason IS NULL) AS kept,
  sum(tokens) AS all_tokens, sum(tokens) FILTER (reason IS NULL) AS kept_tokens,
  sum(words) FILTER (reason IS NULL) AS words,
  count(*) FILTER (reason IS NULL AND is_copy) AS copies,
  sum(floor_share * tokens) / nullif(sum(tokens) FILTER (floor_share IS NOT NULL), 0)
    AS floor_share,
  count(*) FILTER (reason IS NULL AND fit >= 0) / nullif(count(fit) FILTER (reason IS NULL), 0)
    AS fit_share
FROM tries GROUP BY label
"""
# An output is repeated where an earlier row of its group has another input: its own differs from
# the first one's, or another input stands between.
_REPEATS = """
SELECT label, count(*) FILTER (other) AS repeated, count(*) FILTER (place > 1) AS duplicates
FROM (SELECT label,
    max(source <> first) OVER (PARTITION BY label, output ORDER BY row ROWS UNBOUNDED PRECEDING)
      AS other,
    row_number() OVER (PARTITION BY label, output, source ORDER BY row) AS place
  FROM (SELECT label, output, row, first_value(source) OVER by_output AS first, source
    FROM (SELECT label, hash(output) AS output, row, CASE WHEN ? THEN hash(source) ELSE 0 END
      AS source FROM kept)
    WINDOW by_output AS (PARTITION BY label, output ORDER BY row)))
GROUP BY label
"""
_SHARED = """
WITH outputs AS (SELECT label, hash(output) AS output,
    CASE WHEN ? THEN hash(source) ELSE 0 END AS source, count(*) AS n FROM kept GROUP BY ALL)
SELECT one.label, other.label AS name, sum(one.n)::BIGINT AS value
FROM outputs AS one JOIN outputs AS other USING (output, source)
WHERE one.label <> other.label GROUP BY ALL
"""


def _label_quality(
    counts: Mapping[str, Any],
    repeats: Mapping[str, int],
    *,
    dropped: dict[str, int],
    shared: dict[str, int],
    outputs: Sequence[str],
    paired: bool,
    similarity: Mapping[str, Any],
) -> LabelQuality:
    tries, kept = counts["tries"], counts["kept"]
    closed = tries - sum(count for reason, count in dropped.items() if reason in UNCLOSED)
    repeated, duplicates = repeats.get("repeated", 0), repeats.get("duplicates", 0)
    if not paired:  # any earlier row counts
        repeated, duplicates = duplicates, 0
    return LabelQuality(
        label=counts["label"],
        tries=tries,
        closed=closed,
        closed_share=closed / tries,
        kept=kept,
        dropped=dropped,
        copies=counts["copies"],
        copy_share=counts["copies"] / max(kept, 1) if paired else None,
        distinct_1=distinct(outputs, 1),
        distinct_2=distinct(outputs, 2),
        distinct_outputs=len(outputs),
        mean_tokens=int(counts["kept_tokens"]) / kept if kept else None,
        mean_words=int(counts["words"]) / kept if kept else None,
        all_tokens=int(counts["all_tokens"]),
        floor_share=counts["floor_share"],
        repeated=repeated,
        repeated_share=repeated / max(kept, 1),
        duplicates=duplicates,
        duplicate_share=duplicates / max(kept, 1),
        shared=shared,
        fit_share=counts["fit_share"],
        **similarity,
    )


def _similarity_figures(
    histograms: Mapping[str, NDArray[np.int64]], label: str, below: str | None
) -> dict[str, Any]:
    """Return a label's similarity figures, with the separation from the next lower label."""
    if label not in histograms:
        return {}
    own = histograms[label]
    found: dict[str, Any] = {
        "similarity": float(own @ np.linspace(-1, 1, BINS + 1)) / int(own.sum())
    }
    if below is not None and below in histograms:
        other = histograms[below]
        less = np.cumsum(other) - other / 2  # pairs of the lower label that are less similar
        found["below"] = below
        found["separation"] = float(own @ less) / (int(own.sum()) * int(other.sum()))
    return found


def _prepared(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables of tries with the columns of `_SCHEMA`."""
    first = 0
    for table in tables:
        rows = table.num_rows

        def column(*names: str, table: pa.Table = table, rows: int = rows) -> pa.Array:
            name = next((name for name in names if name in table.column_names), None)
            return pa.nulls(rows) if name is None else table[name]

        text, text_a = column("text_b", "text"), column("text_a")
        output = plain(text)
        columns = {
            "row": np.arange(first, first + rows),
            "key": row_keys(first, rows),
            "label": pc.fill_null(column("label"), ""),
            "source": column("source_id", "text_a", "item", "text").cast(pa.string()),
            "text_a": text_a,
            "text": pc.fill_null(text, ""),
            "output": output,
            "words": word_counts(output),
            "is_copy": pc.equal(plain(text_a), output)
            if text_a.null_count < rows
            else pa.nulls(rows),
            "tokens": pc.fill_null(column("tokens").cast(pa.int64()), 0),
            "floor_share": column("floor_share"),
            "reason": column("drop_reason"),
            "fit": column("label_fit"),
            "similarity": column("similarity"),
        }
        yield pa.table(columns)
        first += rows


def label_order(labels: list[str]) -> list[str]:
    """Return numeric labels in descending order, other labels unchanged."""
    try:
        return sorted(labels, key=float, reverse=True)
    except ValueError:
        return labels


def distinct(texts: Sequence[str], n: int) -> float | None:
    """Return distinct n-grams / all n-grams of the texts' words; None without n-grams.

    N-grams do not cross texts. Example: `distinct(["a b a"], 1)` is 2/3.
    """
    grams = [
        gram
        for words in map(str.split, texts)
        for gram in zip(*(words[start:] for start in range(n)), strict=False)
    ]
    return len(set(grams)) / len(grams) if grams else None

"""A labelled set in other words: its rows again, their texts rewritten, their labels kept."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tilth.data import Card, DatasetWriter, fingerprint, load_folder, text_id
from tilth.data.examples import LABEL, PAIRS, SINGLE, TOKENS, make_room, open_rows
from tilth.errors import InputError, TilthError
from tilth.models.names import describe_scorer
from tilth.paraphrase.settings import BEAMS, MIN_MEANING, Asked
from tilth.runs import Progress, Run, complete, refuse_inside

if TYPE_CHECKING:
    from datasets import Dataset, Features

    from tilth.data.examples import Source
    from tilth.paraphrase.rewriter import Rewrite, Rewriter

# Of contrastive training: a text, one of its meaning, one of another meaning.
TRIPLES = (
    ("anchor", "positive", "negative"), ("sent0", "sent1", "hard_neg"),
    ("query", "positive", "negative"),
)  # fmt: skip
_PAIRS = (*PAIRS, ("anchor", "positive"), ("sent0", "sent1"))


def text_columns(dataset: Dataset, where: str, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns to rewrite, those asked for or those that usual names tell.

    Args:
        dataset: the rows.
        where: the beginning of a message, the set's name or nothing.
        asked: names; None: of triples, of pairs, `text`, `sentence`, or the only column of texts.

    Raises:
        InputError: a column is missing or holds no texts, or none can be told.
    """
    names, schema = dataset.column_names, dataset.features.arrow_schema
    if asked:
        for column in asked:
            if column not in names:
                raise InputError(f"{where}no column {column!r}: there are {', '.join(names)}")
        if len(set(asked)) < len(asked):
            raise InputError(f"{where}a column is named twice: {', '.join(asked)}")
        chosen = tuple(asked)
    else:
        chosen = _usual(names, [name for name in names if _is_text(schema.field(name).type)])
        if not chosen:
            tagged = next((name for name in TOKENS if name in names), None)
            if tagged is not None:
                raise InputError(
                    f"{where}column {tagged!r} holds tokens, whose tags no rewrite keeps: "
                    "give texts"
                )
            raise InputError(
                f"{where}which column holds the texts: name it with --column; there are "
                f"{', '.join(names)}"
            )
    for column in chosen:
        kind = schema.field(column).type
        if not _is_text(kind):
            raise InputError(f"{where}column {column!r} holds {kind}: name one of texts")
    return chosen


def _usual(names: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    for group in (*TRIPLES, *_PAIRS):
        if set(group) <= set(texts):
            return group
    for name in SINGLE:
        if name in names:
            return (name,)
    others = [name for name in texts if name not in LABEL]
    return (others[0],) if len(others) == 1 else ()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


DROP_REASON = "drop_reason"
_NO_TEXT, _FEWER = "no text", "fewer rewrites than asked for"
# What every row says of itself, beside its texts: name -> type.
ORIGIN = {
    "source_row": pa.int64(), "source_id": pa.string(), "rewrite": pa.int32(),
    "asked_meaning": pa.float64(), "asked_wording": pa.float64(), "inside": pa.bool_(),
    "tries": pa.int32(), "flips": pa.int32(), "model": pa.string(), "seed": pa.int64(),
    DROP_REASON: pa.string(),
}  # fmt: skip


class Rows:
    """The rows of a part, built up."""

    def __init__(self, table: pa.Table, columns: tuple[str, ...], asked: Asked, model: str) -> None:
        self._table, self._columns, self._asked, self._model = table, columns, asked, model
        self._take: list[int] = []
        self._texts: dict[str, list[Any]] = {name: [] for name in columns}
        self._more: dict[str, list[Any]] = {
            name: [] for column in columns for name in measured(column, columns)
        } | {name: [] for name in ORIGIN}

    def add(
        self, row: int, source_row: int, sides: list[str | None], found: list[list[Rewrite] | None]
    ) -> None:
        """Add what became of a row."""
        problem = next(
            (f[0].problem if f else _NO_TEXT for f in found if not f or f[0].problem), None
        )
        if self._asked.originals and problem != _NO_TEXT:
            self._append(row, source_row, 0, sides, [None] * len(sides), None)
        if problem is not None:
            flips = sum(f[0].flips for f in found if f)
            self._append(row, source_row, 1, sides, [None] * len(sides), problem, flips)
            return
        rewrites: list[list[Rewrite]] = [f for f in found if f]
        for number in range(self._asked.n):
            some = [f[number] if number < len(f) else None for f in rewrites]
            if all(one is None for one in some):
                self._append(row, source_row, number + 1, sides, some, _FEWER)
                continue
            # A text with fewer rewrites than the other of its pair stays with its last.
            some = [one or f[-1] for one, f in zip(some, rewrites, strict=True)]
            self._append(row, source_row, number + 1, sides, some, None)

    def _append(
        self, row: int, source_row: int, number: int, sides: list[str | None],
        rewrites: Sequence[Rewrite | None], problem: str | None, flips: int | None = None,
    ) -> None:  # fmt: skip
        self._take.append(row)
        for name, side, rewrite in zip(self._columns, sides, rewrites, strict=True):
            self._texts[name].append(side if rewrite is None else rewrite.text)
            original, meaning, wording = measured(name, self._columns)
            self._more[original].append(side)
            self._more[meaning].append(rewrite and rewrite.meaning)
            self._more[wording].append(rewrite and rewrite.wording)
        made = [rewrite for rewrite in rewrites if rewrite is not None]
        for name, value in (
            ("source_row", source_row),
            ("source_id", text_id("\x1f".join(side or "" for side in sides))),
            ("rewrite", number),
            ("asked_meaning", self._asked.meaning if number else None),
            ("asked_wording", self._asked.wording if number else None),
            ("inside", all(rewrite.inside for rewrite in made) if made else None),
            ("tries", max((rewrite.tries for rewrite in made), default=None)),
            ("flips", sum(rewrite.flips for rewrite in made) if made else flips),
            ("model", self._model if number else None),
            ("seed", self._asked.seed),
            (DROP_REASON, problem),
        ):
            self._more[name].append(value)

    def table(self) -> pa.Table:
        """Return the rows."""
        table = self._table.take(pa.array(self._take, pa.int64()))
        for name, texts in self._texts.items():
            place = table.schema.get_field_index(name)
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.array(texts, field.type))
        for name, values in self._more.items():
            kind = ORIGIN.get(name) or (
                pa.string() if name.startswith("original") else pa.float64()
            )
            table = table.append_column(name, pa.array(values, kind))
        return table.replace_schema_metadata(None)


def measured(column: str, columns: Sequence[str]) -> tuple[str, str, str]:
    """Return the names of the columns that say what became of a text."""
    end = f"_{column}" if len(columns) > 1 else ""
    return f"original{end}", f"meaning{end}", f"wording{end}"


COMMAND = "paraphrase"
_POLARITY = {
    True: "What a model took for the opposite of its text was left out (`flips` counts it).",
    False: "Polarity was not checked: a rewrite may say the opposite of its text.",
}
_PART_SIZES = 32, 256  # least and most rows of a part


def paraphrase_set(
    source: Source,
    rewriter: Rewriter,
    *,
    columns: Sequence[str] | None = None,
    split: str = "train",
    meaning: float = 95.0,
    wording: float = 20.0,
    min_meaning: float = MIN_MEANING,
    n: int = 1,
    steer: bool = True,
    tries: int = 1,
    beams: int = BEAMS,
    originals: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    quiet: bool = True,
) -> Dataset:
    """Rewrite the texts of a set; every other column, its label above all, is copied.

    Args:
        source: a data set, a list of rows, or where a set lies: a file, a folder, a hub data set.
        rewriter: what `load_paraphraser` returns.
        columns: the texts to rewrite. Default: all of triples, of pairs, or the text.
        split: of a set that has several.
        meaning: 70 to 100.
        wording: 0 to 45.
        min_meaning: least measured meaning of a sentence's rewrite, 0 to 100.
        n: rewrites of each row, all different.
        steer: make copying cost, so that the wording comes near; off: the paper's plain search.
        tries: searches of a sentence at most: one whose rewrites lie outside the asked cell is
            searched for again until a search comes no nearer.
        beams: width of the search; the paper's figures are of 20.
        originals: put the rows as they were before their rewrites.
        seed: same rows, settings and seed, same rewrites.
        out: the run folder, where the work can go on after an interruption; without it the rows
            live in a temporary folder.
        overwrite: start the run folder anew.
        quiet: no progress bar.

    Returns:
        The set's columns, the chosen ones rewritten, and beside them, for each chosen column,
        `original`, `meaning` and `wording` (with `_COLUMN` after it where several are chosen), the
        asked values and where the row came from.

    Raises:
        InputError: a setting, a column or the set is wrong.
        TilthError: nothing could be rewritten; the reasons are counted.

    Reference:
        Ogasa, Kajiwara and Arase, sections 5.3 and 6.2: all texts of a triple, both of a pair.
    """
    asked = Asked(meaning, wording, min_meaning, n, steer, tries, beams, seed, originals)
    if out is not None:
        return run_paraphrase(
            source, rewriter, asked, Path(out), columns=columns, split=split, overwrite=overwrite,
            quiet=quiet,
        )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tilth-") as folder:
        return run_paraphrase(
            source, rewriter, asked, Path(folder) / "run", columns=columns, split=split,
            quiet=quiet,
        )  # fmt: skip


def run_paraphrase(
    source: Source,
    rewriter: Rewriter,
    asked: Asked,
    out: Path,
    *,
    columns: Sequence[str] | None = None,
    split: str = "train",
    overwrite: bool = False,
    quiet: bool = False,
) -> Dataset:
    """Do what `paraphrase_set` does in a run folder, or what is left of it, and load the set."""
    if isinstance(source, str | Path):
        refuse_inside(out, str(source))
    rows, where = open_rows(source, split)
    if not len(rows):
        raise InputError(f"{where}the set has no rows: give texts")
    chosen = text_columns(rows, where, columns)
    added = [name for column in chosen for name in measured(column, chosen)] + list(ORIGIN)
    rows = make_room(rows, added, chosen, where)  # sets that tilth made have some of these
    size = asked.part_size or min(_PART_SIZES[1], max(_PART_SIZES[0], len(rows) // 16))
    run = Run.open(
        out,
        command=COMMAND,
        settings={
            **asdict(asked), "part_size": size, "columns": list(chosen),
            "model": rewriter.seq2seq.name,
            "scorer": rewriter.scorer.name, "polarity": rewriter.polarity is not None,
            "precision": rewriter.seq2seq.precision,
        },
        fingerprints={
            "inputs": fingerprint(rows, rows.column_names),
            "model": rewriter.seq2seq.fingerprint,
            "scorer": rewriter.scorer.fingerprint,
            "polarity": rewriter.polarity.fingerprint if rewriter.polarity else "none",
        },
        parts=-(-len(rows) // size),
        outputs=("dataset",),
        overwrite=overwrite,
    )  # fmt: skip
    with run, Progress(len(rows), quiet=quiet, what="rows") as progress:
        if isinstance(source, str | Path):
            run.resolve("source", lambda: str(source))
        maker = _Maker(rows, chosen, rewriter, asked, size)
        progress.skip(sum(min(size, len(rows) - part * size) for part in run.done()))
        complete(run, maker.part, progress=progress)
        made, drops = _write(run, rows.features, chosen)
    if not made:
        reasons = ", ".join(f"{count} {reason}" for reason, count in drops.items())
        raise TilthError(
            f"{out}: 0 rows rewritten of {len(rows)} ({reasons}): `tilth report {out}` shows them; "
            "give texts in the rewriter's language"
        )
    return load_folder(out / "dataset")


class _Maker:
    """Makes parts: rewrites some rows."""

    def __init__(
        self, rows: Dataset, columns: tuple[str, ...], rewriter: Rewriter, asked: Asked, size: int
    ) -> None:
        self.rows, self.columns = rows.with_format("arrow"), columns
        self.rewriter, self.asked, self.size = rewriter, asked, size

    def part(self, index: int, progress: Progress) -> pa.Table:
        """Return the rows of a part, each with its rewrites or the reason why it has none."""
        start = index * self.size
        table: pa.Table = self.rows[start : start + self.size]
        texts = {name: [_clean(text) for text in table[name].to_pylist()] for name in self.columns}
        wanted = list(dict.fromkeys(text for side in texts.values() for text in side if text))
        seed = self.asked.seed * 1_000_003 + index
        rewrites = self.rewriter.rewrites(wanted, self.asked, seed=seed)
        found = dict(zip(wanted, rewrites, strict=True))
        out = Rows(table, self.columns, self.asked, self.rewriter.seq2seq.name)
        for row in range(len(table)):
            sides = [texts[name][row] for name in self.columns]
            raw = [table[name][row].as_py() for name in self.columns]
            out.add(row, start + row, raw, [found[side] if side else None for side in sides])
        made = out.table()
        dropped = len(made) - made[DROP_REASON].null_count
        progress.advance(done=len(table), kept=len(made) - dropped, dropped=dropped)
        return made


def _clean(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def _write(run: Run, features: Features, columns: tuple[str, ...]) -> tuple[int, Counter[str]]:
    """Write the finished set from the parts; return how many rewrites there are, and the drops."""
    from datasets import Features

    made = 0
    labels: Counter[str] = Counter()
    drops: Counter[str] = Counter()
    label = next((name for name in ("label", "labels") if name in features), None)
    first = run.read_part(0).schema
    full = Features.from_arrow_schema(first)
    full.update(features)  # what Arrow does not know, such as names of classes
    kept_features = Features({name: full[name] for name in first.names if name != DROP_REASON})
    with DatasetWriter(run.path / "dataset", {"default": kept_features}) as writer:
        for table in _tables(run):
            dropped = pc.is_valid(table[DROP_REASON])
            kept = table.filter(pc.invert(dropped)).drop_columns([DROP_REASON])
            made += pc.sum(pc.greater(kept["rewrite"], 0)).as_py() or 0
            names = kept[label].to_pylist() if label else [""] * len(kept)
            labels.update(_label_name(full[label] if label else None, name) for name in names)
            drops.update(table[DROP_REASON].drop_null().to_pylist())
            writer.write(kept)
            writer.write(table.filter(dropped), config="dropped")
        writer.write_card(_card(run, labels, drops, columns))
    return made, drops


def _tables(run: Run) -> Iterator[pa.Table]:
    for index in range(run.parts):
        yield run.read_part(index)


def _label_name(feature: Any, value: Any) -> str:
    named = getattr(feature, "int2str", None)
    return str(named(value) if named and isinstance(value, int) and value >= 0 else value)


def _card(run: Run, labels: Counter[str], drops: Counter[str], columns: tuple[str, ...]) -> Card:
    settings = run.settings
    counts = dict(labels) if len(labels) <= 200 else {"": sum(labels.values())}
    return Card(
        title=f"Rewrites by {settings['model']}",
        summary=(
            f"A set whose texts ({', '.join(columns)}) were rewritten by `{settings['model']}` at "
            f"an asked meaning of {settings['meaning']:g} and an asked wording of "
            f"{settings['wording']:g} (0-100; controlled paraphrase, Ogasa, Kajiwara and Arase), "
            "made with tilth. Other columns are copied. Every row says what was measured: meaning, "
            f"at least {settings['min_meaning']:g}, by {describe_scorer(settings['scorer'])}; "
            f"wording by sentence BLEU. {_POLARITY[settings['polarity']]} Nobody has checked that "
            "labels still hold; rows with the same `source_row` come from one row and belong in "
            "the same split."
        ),
        command=run.command,
        settings=settings,
        counts={"train": counts},
        drops=dict(drops),
        model=str(settings["model"]),
        seed=int(settings["seed"]),
    )

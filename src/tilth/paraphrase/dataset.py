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

from tilth.data import Card, DatasetWriter, fingerprint, load_folder
from tilth.data.examples import make_room, open_rows
from tilth.errors import InputError, TilthError
from tilth.models.names import describe_scorer
from tilth.paraphrase.columns import text_columns
from tilth.paraphrase.rows import DROP_REASON, ORIGIN, Rows, measured
from tilth.paraphrase.settings import BEAMS, MIN_MEANING, Asked
from tilth.runs import Progress, Run, complete, refuse_inside

if TYPE_CHECKING:
    from datasets import Dataset, Features

    from tilth.data.examples import Source
    from tilth.paraphrase.rewrite import Rewriter

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

"""Paraphrases a data set: rewrites its texts, copies its labels and other columns."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tilth.data import Card, DatasetWriter, fingerprint, load_folder, text_id
from tilth.data.examples import LABEL, PAIRS, TOKENS, make_room, open_rows
from tilth.data.formats import SINGLE, usual_name, usual_names
from tilth.data.labels import is_text
from tilth.data.sources import refuse_split
from tilth.data.writer import DROP_REASON
from tilth.errors import InputError, TilthError
from tilth.models.names import describe_scorer, loaded
from tilth.paraphrase.settings import BEAMS, FEWER, RewriteSettings
from tilth.runs import Progress, Run, part_sizes, refuse_inside, refuse_other_settings
from tilth.runs.backends import PartJob, PartWork, make_parts
from tilth.runs.cluster import Cluster
from tilth.storage import as_path

if TYPE_CHECKING:
    from datasets import Dataset, Features

    from tilth.data.examples import Source
    from tilth.paraphrase.rewriter import Rewrite, Rewriter
    from tilth.paraphrase.round_trip import RoundTripRewriter

# Triples of contrastive training: a text, one of the same meaning, one of another meaning.
TRIPLES = (
    ("anchor", "positive", "negative"), ("sent0", "sent1", "hard_neg"),
    ("query", "positive", "negative"),
)  # fmt: skip
_PAIRS = (*PAIRS, ("anchor", "positive"), ("sent0", "sent1"))

_OF_A_TEXT = ("label_fit", "similarity")  # columns of generated sets that a rewrite makes untrue
_EARLIER = "before_source_id"  # the name that a set's own column gets
_NO_TEXT = "no text"
# Columns of every row other than its texts and their measurements: name -> type.
ORIGIN = {
    "source_row": pa.int64(), "source_id": pa.string(), "rewrite": pa.int32(),
    "asked_meaning": pa.float64(), "asked_wording": pa.float64(), "inside": pa.bool_(),
    "tries": pa.int32(), "flips": pa.int32(), "model": pa.string(), "seed": pa.int64(),
    DROP_REASON: pa.string(),
}  # fmt: skip
_POLARITY = {
    True: "Outputs that a model took for the opposite of their text were left out (`flips`).",
    False: "Polarity was not checked: a rewrite may say the opposite of its text.",
}
_PART_SIZES = 32, 256  # least and most rows of a part


_LOAD = "tilth.paraphrase.rewriter:load_paraphraser"


def paraphrase_set(
    source: Source,
    rewriter: Rewriter | str | Path,
    *,
    columns: str | Sequence[str] | None = None,
    split: str = "train",
    meaning: float = 95.0,
    wording: float = 20.0,
    min_meaning: float | None = None,
    n: int = 1,
    steer: bool = True,
    tries: int = 1,
    beams: int = BEAMS,
    originals: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    cluster: Cluster | None = None,
    overwrite: bool = False,
    quiet: bool = True,
) -> Dataset:
    """Rewrite the texts of a set; all other columns, such as labels, are copied.

    The options from `meaning` to `seed` are those of `RewriteSettings`.

    Args:
        source: a data set, a list of rows, or where a set lies: a file, a folder, a hub data set.
        rewriter: what `load_paraphraser` returns, or its name.
        columns: the texts to rewrite. None: all of triples, of pairs, or the text.
        out: the run folder; the same call resumes. None: rows live in a temporary folder.
        cluster: where parts are made; None: in this process. Workers load the models by name.

    Returns:
        The set's columns, the chosen ones rewritten, and for each of these `original`, `meaning`
        and `wording` (with `_COLUMN` appended where several are chosen), the requested values and
        the row's origin.

    Raises:
        InputError: a setting, a column or the set is wrong.
        TilthError: nothing could be rewritten; the reasons are counted.

    Reference:
        Ogasa, Kajiwara and Arase, sections 5.3 and 6.2: all texts of a triple, both of a pair.
    """
    settings = RewriteSettings(
        meaning, wording, min_meaning, n, steer, tries, beams, seed, originals
    )
    with tempfile.TemporaryDirectory(prefix="tilth-") if out is None else nullcontext(out) as place:
        return run_paraphrase(
            source, lambda: loaded(rewriter, "rewriter", _LOAD, "seq2seq"), settings,
            as_path(place), columns=columns, split=split, cluster=cluster, overwrite=overwrite,
            quiet=quiet,
        )  # fmt: skip


def run_paraphrase(
    source: Source,
    load: Callable[[], Rewriter | RoundTripRewriter],
    settings: RewriteSettings,
    out: Path,
    *,
    columns: str | Sequence[str] | None = None,
    split: str = "train",
    cluster: Cluster | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Dataset:
    """Paraphrase a set in a run folder, as `paraphrase_set` does, or resume the run.

    Args:
        load: returns the rewriter; called once the set is known to be right.
    """
    if isinstance(source, str | Path):
        refuse_inside(out, str(source))
    refuse_split(source, split)
    rows, where = open_rows(source, split, tell=split == "train")
    if not len(rows):
        raise InputError(f"{where}the set has no rows: give texts")
    chosen = text_columns(rows, where, columns)
    # Sets that tilth made have some of the added columns.
    rows = make_room(rows, [*_added_columns(chosen), *_OF_A_TEXT], chosen, where)
    size = settings.part_size or min(_PART_SIZES[1], max(_PART_SIZES[0], len(rows) // 16))
    asked = asdict(settings) | {"min_meaning": settings.least_meaning, "columns": list(chosen)}
    if not overwrite:
        known = {name: value for name, value in asked.items() if name != "part_size"}
        refuse_other_settings(out, known, "paraphrase")
    rewriter = load()
    model, polarity = rewriter.seq2seq, rewriter.polarity
    run = Run.open(
        out,
        command="paraphrase",
        settings={
            **asked, "part_size": size, "model": model.name, "scorer": rewriter.scorer.name,
            "polarity": polarity is not None, "precision": model.precision,
        },
        fingerprints={
            "inputs": fingerprint(rows, rows.column_names), **rewriter.fingerprints(),
        },
        parts=-(-len(rows) // size),
        outputs=("dataset",),
        overwrite=overwrite,
    )  # fmt: skip
    arrow = rows.with_format("arrow")

    job = PartJob(
        partial(_start, rewriter, settings, chosen, size),
        lambda index: arrow[index * size : (index + 1) * size],
        part_sizes(len(rows), size),
        "rows",
    )
    with run:
        if isinstance(source, str | Path):
            run.resolve("source", lambda: str(source))
        make_parts(run, job, cluster, quiet=quiet)
        made, drops = _write(run, rows.features, chosen)
    if not made:
        reasons = ", ".join(f"{count} {reason}" for reason, count in drops.items())
        raise TilthError(
            f"{out}: 0 rows rewritten of {len(rows)} ({reasons}): `tilth report {out}` shows them; "
            "give texts in the rewriter's language"
        )
    return load_folder(out / "dataset")


def _start(
    rewriter: Rewriter | RoundTripRewriter,
    settings: RewriteSettings,
    columns: Sequence[str],
    size: int,
    _: Run,
) -> PartWork:
    """Return the work on the rows of a part."""

    def work(index: int, table: pa.Table, progress: Progress) -> pa.Table:
        """Return the rows, each with its rewrites or the reason why it has none."""
        texts = [_clean(text) for name in columns for text in table[name].to_pylist()]
        wanted = [text for text in dict.fromkeys(texts) if text]
        found = rewriter.rewrites(wanted, settings)
        rewrites = dict(zip(wanted, found, strict=True))
        model = rewriter.seq2seq.name
        made = _part_rows(table, index * size, columns, rewrites, settings, model)
        dropped = len(made) - made[DROP_REASON].null_count
        progress.advance(done=len(table), kept=len(made) - dropped, dropped=dropped)
        return made

    return work


def text_columns(
    dataset: Dataset, where: str, asked: str | Sequence[str] | None
) -> tuple[str, ...]:
    """Return the columns to rewrite; None asks for the usual names or the only column of texts.

    The usual names are those of triples, of pairs, `text` and `sentence`; `where` begins messages.
    """
    schema = dataset.features.arrow_schema
    names, listed = schema.names, ", ".join(schema.names)
    texts = [field.name for field in schema if is_text(field.type)]
    asked = [asked] if isinstance(asked, str) else asked
    chosen = tuple(asked or _usual_columns(names, texts))
    if not chosen:
        tagged = next((name for name in TOKENS if name in names), None)
        if tagged is not None:
            raise InputError(
                f"{where}column {tagged!r} holds tokens, whose tags no rewrite keeps: give texts"
            )
        raise InputError(
            f"{where}which column holds the texts: name it with --column; there are {listed}"
        )
    for column in chosen:
        if column not in names:
            several = "; give --column for each" if "," in column else ""
            raise InputError(f"{where}no column {column!r}: there are {listed}{several}")
        if column not in texts:
            kind = schema.field(column).type
            raise InputError(f"{where}column {column!r} holds {kind}: name one of texts")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{where}a column is named twice: {', '.join(chosen)}")
    return chosen


def _usual_columns(names: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    found = usual_names((*TRIPLES, *_PAIRS), texts)
    single = usual_name(SINGLE, texts) or usual_name(SINGLE, names)
    if found is None and single is not None:
        return (single,)
    others = [name for name in texts if name.lower() not in LABEL]
    return found or ((others[0],) if len(others) == 1 else ())


def _clean(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def measured_names(column: str, columns: Sequence[str]) -> tuple[str, str, str]:
    """Return the names of the columns for a column's original, meaning and wording."""
    end = f"_{column}" if len(columns) > 1 else ""
    return f"original{end}", f"meaning{end}", f"wording{end}"


def _added_columns(columns: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the columns that are added to rows, name -> type."""
    added: dict[str, pa.DataType] = {}
    for column in columns:
        types = (pa.string(), pa.float64(), pa.float64())
        added |= dict(zip(measured_names(column, columns), types, strict=True))
    return added | ORIGIN


def _part_rows(
    table: pa.Table,
    start: int,
    columns: Sequence[str],
    rewrites: Mapping[str, list[Rewrite]],
    settings: RewriteSettings,
    model: str,
) -> pa.Table:
    """Return the rows of a part: originals, rewrites, and rows without one with the reason."""
    taken: list[int] = []
    asked = not settings.round_trip
    values: dict[str, list[Any]] = defaultdict(list)
    originals = [table[name].to_pylist() for name in columns]
    known: list[str | None] = [None] * len(table)  # a set may say what its rows come from
    if _EARLIER in table.column_names:
        known = [None if one is None else str(one) for one in table[_EARLIER].to_pylist()]
    for row, sides in enumerate(zip(*originals, strict=True)):
        found = [rewrites.get(_clean(side)) for side in sides]
        for number, chosen, problem in _versions(found, settings):
            taken.append(row)
            made = [rewrite for rewrite in chosen if rewrite is not None]
            flips = sum(rewrite.flips for rewrite in made) if made else None
            if problem is not None and problem != FEWER:
                flips = sum(some[0].flips for some in found if some)
            cells = {
                "source_row": start + row,
                "source_id": known[row] or text_id("\x1f".join(side or "" for side in sides)),
                "rewrite": number,
                "asked_meaning": settings.meaning if number and asked else None,
                "asked_wording": settings.wording if number and asked else None,
                "inside": all(rewrite.inside for rewrite in made) if made and asked else None,
                "tries": max((rewrite.tries for rewrite in made), default=None),
                "flips": flips,
                "model": model if number else None,
                "seed": settings.seed,
                DROP_REASON: problem,
            }
            for name, side, rewrite in zip(columns, sides, chosen, strict=True):
                original, meaning, wording = measured_names(name, columns)
                cells[name] = side if rewrite is None else rewrite.text
                cells[original] = side
                cells[meaning] = rewrite and rewrite.meaning
                cells[wording] = rewrite and rewrite.wording
            for name, value in cells.items():
                values[name].append(value)
    made_rows = table.take(pa.array(taken, pa.int64()))
    for name in columns:
        index = made_rows.schema.get_field_index(name)
        field = made_rows.schema.field(index)
        made_rows = made_rows.set_column(index, field, pa.array(values[name], field.type))
    for name, kind in _added_columns(columns).items():
        made_rows = made_rows.append_column(name, pa.array(values[name], kind))
    return made_rows.replace_schema_metadata(None)


def _versions(
    found: Sequence[list[Rewrite] | None], settings: RewriteSettings
) -> Iterator[tuple[int, Sequence[Rewrite | None], str | None]]:
    """Yield the output rows of a source row: number (0: original), its rewrites, drop reason."""
    nothing, sides = [None] * len(found), [one or [] for one in found]
    problem = next((f[0].problem if f else _NO_TEXT for f in sides if not f or f[0].problem), None)
    if settings.originals and problem != _NO_TEXT:
        yield 0, nothing, None
    if problem is not None:
        yield 1, nothing, problem
        return
    for index in range(settings.n):
        if all(index >= len(f) for f in sides):
            yield index + 1, nothing, FEWER
            continue
        # A text with fewer rewrites than the other of its pair repeats its last.
        yield index + 1, [f[min(index, len(f) - 1)] for f in sides], None


def _write(run: Run, features: Features, columns: tuple[str, ...]) -> tuple[int, Counter[str]]:
    """Write the finished set from the parts; return the number of rewrites, and the drops."""
    from datasets import Features

    made = 0
    labels: Counter[str] = Counter()
    label = next((name for name in ("label", "labels") if name in features), None)
    first = run.read_part(0).schema
    full = Features.from_arrow_schema(first)
    full.update(features)  # keeps what Arrow lacks, such as class names
    kept_features = Features({name: full[name] for name in first.names if name != DROP_REASON})
    with DatasetWriter(run.path / "dataset", {"default": kept_features}) as writer:
        for index in range(run.parts):
            kept = writer.write_dropped(run.read_part(index))
            made += pc.sum(pc.greater(kept["rewrite"], 0)).as_py() or 0
            names = kept[label].to_pylist() if label else [""] * len(kept)
            labels.update(_label_name(full[label] if label else None, name) for name in names)
            writer.write(kept)
        writer.write_card(_card(run, labels, writer.drops, columns))
    return made, writer.drops


def _label_name(feature: Any, value: Any) -> str:
    named = getattr(feature, "int2str", None)
    return str(named(value) if named and isinstance(value, int) and value >= 0 else value)


def _card(run: Run, labels: Counter[str], drops: Counter[str], columns: tuple[str, ...]) -> Card:
    settings = run.settings
    how = (
        f"at an asked meaning of {settings['meaning']:g} and an asked wording of "
        f"{settings['wording']:g} (0-100; controlled paraphrase, Ogasa, Kajiwara and Arase)"
    )
    least = f"at least {settings['min_meaning']:g}, "
    if settings["round_trip"]:
        how, least = "whatever came out", ""
    counts = dict(labels) if len(labels) <= 200 else {"": sum(labels.values())}
    return Card(
        title=f"Rewrites by {settings['model']}",
        summary=(
            f"A set whose texts ({', '.join(columns)}) were rewritten by `{settings['model']}` "
            f"{how}, made with tilth. Other columns are copied. Every row has measured values: "
            f"meaning, {least}by {describe_scorer(settings['scorer'])}; "
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

"""Curate a data set on disk: read it, clean it, write it with a data card."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tilth.data import Card, Curated, DatasetWriter, curate_rows, read_rows
from tilth.data.card import CARD, SYNTHETIC
from tilth.data.curate import REASONS
from tilth.data.examples import Names, as_labelled
from tilth.data.negative_pairs import SAMPLED
from tilth.data.settings import CurateOptions
from tilth.data.sources import DatasetFolder, HubDataset, locate
from tilth.errors import InputError
from tilth.runs import refuse_inside
from tilth.storage import as_path, exists, pull, push
from tilth.urls import url_of
from tilth.view.rows import columns_read
from tilth.workflows.annotated import (
    CORRECTED,
    FLAGGED,
    NOT_EQUIVALENT,
    AnnotatedRows,
    apply_annotations,
    read_judged,
)

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

# A set with these words in its card may be replaced.
_MARK = "made with `tilth curate`"
_WRITE_ROWS = 20_000
_LABELS_SHOWN = 50


def curate_folder(
    source: str,
    out: Path | None,
    options: CurateOptions | None = None,
    *,
    overwrite: bool = False,
    annotations: Path | None = None,
    columns: Names = (None, None),
) -> tuple[Path, dict[str, int]]:
    """Curate rows on disk.

    Args:
        source: a generate run, a data set folder, a labelled file or a hub data set.
        out: default SOURCE/curated, for plain files NAME-curated beside them. An earlier curated
            set there is replaced. Under a URL it is put there at the end.
        overwrite: replace another data set in `out`, too.
        annotations: of `tilth view`: people's labels replace those of their rows, and rows that
            they flag or find not equivalent are dropped, first of all.
        columns: of texts (the two of pairs) and of labels; None: text_a and text_b, or text; label.

    Returns:
        The folder, and the counts: rows in, each drop reason, sampled pairs, train, validation.
    """
    found = locate(source)
    folder = _place(source, found) if out is None else out
    pull(folder, only=lambda path: path.name in (CARD, "run.json"), clean=True)
    _check_place(source, found, folder, overwrite=overwrite)
    pull(folder, clean=True)
    if _is_curated(as_path(source)):
        log.warning(
            "%s is a curated set: labels are smoothed and pairs sampled once more; curate what it "
            "was made from, or set smoothing and sampled-pairs to 0",
            source,
        )
    rows = read_rows(source)
    annotated: AnnotatedRows | None = None
    if annotations is not None:
        text = columns[0]
        named = [text] if isinstance(text, str) else list(text or ())
        read = named or columns_read(as_path(source))
        try:
            annotated = apply_annotations(rows, read_judged(annotations), read, columns[1])
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        rows = annotated.dataset
    try:
        rows = as_labelled(rows, *columns)
        curated = curate_rows(rows, options or CurateOptions())
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    if annotated is not None:
        counts = curated.counts
        given = counts["rows in"] + len(annotated.rejected)
        curated = replace(curated, counts={**counts, "rows in": given, **annotated.counts})
    counts, splits = curated.counts, {"train": curated.train, "validation": curated.validation}
    with DatasetWriter(folder) as writer:
        for split, dataset in splits.items():
            _write(writer, dataset, split, "default")
        _write(writer, curated.dropped, "train", "dropped")
        if annotated is not None:
            from datasets import Dataset

            rejected = as_labelled(Dataset(annotated.rejected), *columns).data.table
            schema = curated.dropped.features.arrow_schema
            writer.write(rejected.cast(schema), config="dropped")
        writer.write_card(_card(source, curated, annotated))
    push(folder)
    return folder, counts


def _place(source: str, found: list[Path] | DatasetFolder | HubDataset) -> Path:
    """Return the default output folder."""
    if isinstance(found, HubDataset):
        raise InputError(f"{source} is a data set of the hub: say with --out where the result goes")
    path = as_path(source)
    if isinstance(found, DatasetFolder):
        of_run = path.name == "dataset" and (path.parent / "run.json").is_file()
        return (path.parent if of_run else path) / "curated"
    # Beside plain files, not among them: the next run would read it as one of them.
    name = Path(os.path.realpath(path)).name
    if path.is_file():
        name = Path(name.removesuffix(".gz")).stem
    return path.parent / f"{name}-curated"


def _check_place(
    source: str, found: list[Path] | DatasetFolder | HubDataset, folder: Path, *, overwrite: bool
) -> None:
    """Refuse a folder that holds the source, or data other than a curated set."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose another --out")
    if isinstance(found, DatasetFolder):  # its own files alone are read
        refuse_inside(folder, named=(str(found.path / "data"), str(found.path), source))
    elif isinstance(found, list):
        refuse_inside(folder, source)
    if (folder / "run.json").exists():
        raise InputError(f"{folder} holds a run: choose another --out")
    holds = exists(folder) if url_of(folder) else folder.is_dir() and any(folder.iterdir())
    if overwrite or not holds or _is_curated(folder):
        return
    raise InputError(
        f"{folder} is not empty and holds no curated set: choose another --out, or --overwrite it"
    )


def _is_curated(folder: Path) -> bool:
    try:
        return _MARK in (folder / CARD).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _write(writer: DatasetWriter, dataset: Dataset, split: str, config: str) -> None:
    table = dataset.data.table
    for start in range(0, max(len(table), 1), _WRITE_ROWS):
        writer.write(table.slice(start, _WRITE_ROWS), split=split, config=config)


def _card(source: str, curated: Curated, annotated: AnnotatedRows | None) -> Card:
    people = {} if annotated is None else annotated.counts
    counts, splits = curated.counts, {"train": curated.train, "validation": curated.validation}
    return Card(
        title=f"{Path(source).name or source}, curated",
        summary=(
            f"{counts['train']:,} rows to train on and {counts['validation']:,} to validate with, "
            f"{_MARK} from {counts['rows in']:,} labelled rows. {counts['sampled pairs']:,} of "
            "them are sampled pairs: two texts of different inputs, with label 0."
            + (
                f" {people['annotated']:,} rows were checked by people, who corrected the label of "
                f"{people.get(CORRECTED, 0):,}."
                if people
                else ""
            )
        ),
        command="curate",
        settings={"source": source, **curated.settings},
        counts={name: _label_counts(split) for name, split in splits.items()},
        drops={
            name: count
            for name, count in {**people, **counts}.items()
            if name in (FLAGGED, NOT_EQUIVALENT, *REASONS) and count
        },
        model=(model := _model(curated.train)),
        texts=SYNTHETIC if model else "as they came",
        seed=int(curated.settings["seed"]),
    )


def _label_counts(split: Dataset) -> dict[str, int]:
    labels = split.data.table["label"]
    found = pc.value_counts(labels).to_pylist()
    if len(found) > _LABELS_SHOWN:
        return {f"{len(found):,} different labels": len(labels)}
    found.sort(key=lambda entry: entry["values"])
    return {str(entry["values"]): entry["counts"] for entry in found}


def _model(split: Dataset) -> str | None:
    """Return the models that wrote the texts, if the rows name them."""
    if "model" not in split.column_names:
        return None
    names = [name for name in split.unique("model") if name not in (None, SAMPLED)]
    return ", ".join(map(str, names[:5])) or None

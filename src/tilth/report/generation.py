"""Reads a run folder into what the page shows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.errors import InputError, TilthError
from tilth.report.figures import Example, Health, label_order
from tilth.report.quality import Tally
from tilth.report.row_choice import dropped_examples, kept_examples, same_input
from tilth.report.run_reader import no_tries, part_files, read_run_json, read_tries, unmeasured
from tilth.report.text_similarity import (
    Encoder,
    EncoderSimilarity,
    Similarity,
    word_overlap,
)


@dataclass(frozen=True, slots=True)
class Curated:
    """What curation made of the kept rows.

    Attributes:
        folder: where it lies.
        splits: split -> rows.
        labels: label, as written in the data -> rows, all splits together.
        dropped: reason -> rows.
    """

    folder: str
    splits: dict[str, int]
    labels: dict[str, int]
    dropped: dict[str, int]

    @property
    def rows(self) -> int:
        """Rows of all splits."""
        return sum(self.splits.values())


@dataclass(frozen=True, slots=True)
class Likeness:
    """The similarity of input and output, label by label, on a seeded draw of kept rows."""

    method: str
    values: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the page shows; `render` needs nothing else.

    Attributes:
        folder: the run folder as the user named it.
        task: the task's name.
        model: the model's name.
        health: the figures per label, and the warnings.
        lengths: label -> kept outputs with 0, 1, ... words.
        same_input: kept rows of a few inputs, all labels of an input together; empty for a task
            without inputs, with one label or with many.
        kept_examples: kept rows to read, where there is no `same_input`.
        dropped_examples: dropped rows to read.
        inputs: number of different inputs; None for a task without.
        seconds: time the run took; None when not known.
        time_note: what the time includes.
        likeness: None for a task without inputs, or when nothing was kept.
        curated: None when there is none.
        command: the command line.
        settings: name and value, in the order of run.json.
        versions: package -> version.
        instructions: label -> instruction, where the settings hold the task.
        created: when the run began, as text.
        notices: what is unfinished or could not be read.
        next_steps: what to do next, and the command for it.
    """

    folder: str
    task: str
    model: str
    health: Health
    lengths: dict[str, list[int]] = field(default_factory=dict)
    same_input: list[list[Example]] = field(default_factory=list)
    kept_examples: list[Example] = field(default_factory=list)
    dropped_examples: list[Example] = field(default_factory=list)
    inputs: int | None = None
    seconds: float | None = None
    time_note: str = ""
    likeness: Likeness | None = None
    curated: Curated | None = None
    command: str = ""
    settings: list[tuple[str, str]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    instructions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    notices: list[str] = field(default_factory=list)
    next_steps: list[tuple[str, str]] = field(default_factory=list)


PAIRS_PER_LABEL = 2_000  # enough for a distribution's shape
PAIRS_IN_ALL = 40_000  # with many labels each gets fewer, so that an encoder stays quick


def gather(
    run_folder: str | Path,
    *,
    curated: str | Path | None = None,
    encoder: str | Encoder | None = None,
    similarity: Similarity | None = None,
    method: str = "",
    seed: int = 0,
    seconds: float | None = None,
    command: str | None = None,
    next_steps: Sequence[tuple[str, str]] | None = None,
) -> Report:
    """Read a run folder, finished or not.

    Args:
        run_folder: a folder of `tilth generate`: run.json and parts/.
        curated: a folder that `tilth curate` made of it; RUN/curated, if there, when None.
        encoder: measures similarity by its cosine: a sentence-transformers model, or its name.
        similarity: any other measure, one figure per pair; word overlap when both are None.
        method: what the page says the measure is.
        seed: of the draw of examples and of the rows that similarity is computed on.
        seconds: time the run took; from the start to the last part written when None.
        command: the command line; "tilth" with the command and task of run.json when None.
        next_steps: what to do next, and the command for it; usual ones when None.

    Raises:
        InputError: the folder holds no run, or no tries; the encoder cannot be loaded.
        TilthError: run.json cannot be read.
    """
    folder = Path(run_folder)
    asked = read_run_json(folder)
    notices: list[str] = []
    parts = part_files(folder)
    tally = Tally(seed=seed, draw=PAIRS_PER_LABEL)
    for table in read_tries(parts, notices):
        tally.add(table)
    if not tally.labels:
        raise no_tries(folder)
    planned = asked.get("parts")
    if isinstance(planned, int) and len(parts) < planned:
        notices.insert(
            0,
            f"The run is not finished: {len(parts):,} of {planned:,} parts are there. "
            "The same command goes on where it stopped.",
        )
    note = ""
    if seconds is None:
        seconds, note = time_span(asked.get("created"), parts)
    settings = asked.get("settings") or {}
    task = _task_name(settings, asked, folder)
    if curated is None and next((folder / "curated").rglob("*.parquet"), None) is not None:
        curated = folder / "curated"
    figures = tally.health(unmeasured=unmeasured(asked))
    measured = tally.similarities() if encoder is None and similarity is None else {}
    if measured:
        likeness: Likeness | None = Likeness(
            "The cosine of the starter encoder (starter-encoder); 1 means the same meaning to it.",
            measured,
        )
    else:
        measure, says = _measure(encoder, similarity)
        likeness = _likeness(tally, measure, method or says)
    together = same_input(tally, read_tries(parts))
    return Report(
        folder=str(run_folder),
        task=task,
        model=str(settings.get("model", "unknown")),
        health=figures,
        lengths=tally.lengths(),
        same_input=together,
        kept_examples=[] if together else kept_examples(tally),
        dropped_examples=dropped_examples(tally),
        inputs=len(tally.inputs) if tally.paired else None,
        seconds=seconds,
        time_note=note,
        likeness=likeness,
        curated=read_curated(Path(curated)) if curated is not None else None,
        command=command or f"tilth {asked.get('command', 'generate')} {task}",
        settings=flat_settings(settings),
        versions={str(k): str(v) for k, v in (asked.get("versions") or {}).items()},
        instructions=_instructions(settings),
        created=str(asked.get("created", "")),
        notices=notices,
        next_steps=list(next_steps)
        if next_steps is not None
        else _usual(run_folder, task, figures.kept, curated),
    )


def read_curated(folder: Path) -> Curated:
    """Read how many rows a curated folder holds, by split, label and reason.

    Raises:
        InputError: the folder holds no rows.
    """
    splits: dict[str, int] = {}
    labels: dict[str, int] = {}
    dropped: dict[str, int] = {}
    for path in sorted(folder.rglob("*.parquet")):
        if path.parent.name == "parts":
            continue
        try:
            names = pq.read_schema(path).names
            column = "drop_reason" if "drop_reason" in names else "label"
            values = pq.read_table(path, columns=[column]).column(column)
        except (pa.ArrowException, OSError) as error:
            raise TilthError(f"{path}: cannot be read ({error}); curate again") from error
        into = dropped if column == "drop_reason" else labels
        for entry in values.value_counts().to_pylist():
            name = _label_text(entry["values"])
            into[name] = into.get(name, 0) + entry["counts"]
        if column == "label":
            splits[path.stem] = splits.get(path.stem, 0) + len(values)
    if not splits:
        raise InputError(f"{folder}: no curated rows (*.parquet) here; give the folder of --out")
    ordered = {name: labels[name] for name in label_order(labels)}
    return Curated(str(folder), splits, ordered, dropped)


def time_span(created: object, parts: Sequence[Path]) -> tuple[float | None, str]:
    """Return the seconds from the start to the last part, as far as the files tell."""
    try:
        began = datetime.fromisoformat(str(created).replace("Z", "+00:00"))
    except ValueError:
        return None, ""
    ended = max((part.stat().st_mtime for part in parts), default=0.0)
    seconds = ended - began.timestamp()
    if seconds <= 0:  # files copied from elsewhere, or another clock
        return None, ""
    return seconds, "from the start to the last part written, pauses included"


def _task_name(settings: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> str:
    task = settings.get("task", asked.get("task"))
    if isinstance(task, Mapping):
        task = task.get("task_name", task.get("name"))
    return Path(str(task)).stem if task else folder.resolve().name


def _instructions(settings: Mapping[str, Any]) -> dict[str, str]:
    for value in settings.values():
        labels = value.get("labels") if isinstance(value, Mapping) else None
        if isinstance(labels, Mapping):
            return {
                str(name): str(spec["instruction"])
                for name, spec in labels.items()
                if isinstance(spec, Mapping) and "instruction" in spec
            }
    return {}


def flat_settings(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Return name and value of what was asked for, as text."""
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and "labels" in value:
            continue  # the task: its instructions have a place of their own
        if value is None:
            continue  # left to tilth to choose
        if isinstance(value, Mapping):
            rows += flat_settings(value, f"{before}{name}.")
        elif isinstance(value, str):
            rows.append((before + str(name), value))
        else:
            rows.append((before + str(name), json.dumps(value, ensure_ascii=False)))
    return rows


def _label_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _likeness(tally: Tally, similarity: Similarity, method: str) -> Likeness | None:
    """Compute the similarity of drawn pairs of all labels at once, so that they share weights."""
    if not tally.paired:
        return None
    most = min(PAIRS_PER_LABEL, max(PAIRS_IN_ALL // len(tally.labels), 50))
    drawn = [(label, row) for label in tally.labels for row in tally.kept_rows(label, most)]
    if not drawn:
        return None
    values = similarity([row.text_a or "" for _, row in drawn], [row.text for _, row in drawn])
    names = np.array([label for label, _ in drawn])
    by_label = {
        label: np.asarray(values, np.float64)[names == label]
        for label in tally.labels
        if (names == label).any()
    }
    return Likeness(method, by_label)


def _measure(
    encoder: str | Encoder | None, similarity: Similarity | None
) -> tuple[Similarity, str]:
    """Return the measure of similarity and what the page says about it."""
    if similarity is not None:
        return similarity, ""
    if encoder is None:
        return word_overlap, (
            "Word overlap: the cosine of TF-IDF weighted word counts, case and punctuation aside. "
            "0 means no word in common, 1 the same words. It sees wording, not meaning."
        )
    from tilth.models import load_encoder  # loads torch

    loaded = load_encoder(encoder) if isinstance(encoder, str) else encoder
    which = f"the sentence encoder {encoder}" if isinstance(encoder, str) else "a sentence encoder"
    return EncoderSimilarity(loaded), f"The cosine of {which}; 1 means the same meaning to it."


def _usual(
    folder: str | Path, task: str, kept: int, curated: str | Path | None
) -> list[tuple[str, str]]:
    """Return the steps that follow a run: see what went wrong, clean up, load."""
    place = shlex.quote(str(folder))
    if not kept:
        again = f"tilth generate {shlex.quote(task)} --plan --out {place}"
        return [("Try other settings or another model on a few inputs first", again)]
    steps = []
    if curated is None:
        cleaned = "Clean the set up: duplicates, label smoothing, sampled pairs, a validation split"
        steps.append((cleaned, f"tilth curate {place}"))
    ready = Path(curated) if curated is not None else Path(folder) / "dataset"
    code = f"import datasets; print(datasets.load_dataset({str(ready)!r}))"
    steps.append(("Load it in Python", f"python -c {shlex.quote(code)}"))
    steps.append(
        (
            "Write more, from your own sentences, one a line",
            "tilth generate sts-x2 --inputs sentences.txt --out runs/mine",
        )
    )
    return steps

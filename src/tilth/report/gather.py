"""Reads a run folder into what the page shows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.errors import InputError, TilthError
from tilth.report.figures import Example, Health, label_order
from tilth.report.health import Tally, examples
from tilth.report.similarity import Similarity, word_overlap

log = logging.getLogger(__name__)

COLUMNS = (
    "source_id", "item", "text_a", "text_b", "text", "label", "tokens", "floor_share",
    "drop_reason",
)  # fmt: skip
INPUTS_TOGETHER = 8  # inputs shown with all that was written for them
LABELS_TOGETHER = 6  # with more labels, examples are shown label by label
PAIRS_PER_LABEL = 2_000  # enough for a distribution's shape
PAIRS_IN_ALL = 40_000  # with many labels each gets fewer, so that an encoder stays quick


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


def gather(
    run_folder: str | Path,
    *,
    curated: str | Path | None = None,
    similarity: Similarity = word_overlap,
    method: str = "",
    seed: int = 0,
    seconds: float | None = None,
    next_steps: Sequence[tuple[str, str]] | None = None,
) -> Report:
    """Read a run folder, finished or not.

    Args:
        run_folder: a folder of `tilth generate`: run.json and parts/.
        curated: a folder that `tilth curate` made of it.
        similarity: how alike input and output are, one figure per pair.
        method: what the page says the similarity is; needed when it is not the default.
        seed: of the draw of examples and of the rows that similarity is computed on.
        seconds: time the run took; from the start to the last part written when None.
        next_steps: what to do next, and the command for it; usual ones when None.

    Raises:
        InputError: the folder holds no run, or no tries.
        TilthError: run.json cannot be read.
    """
    folder = Path(run_folder)
    asked = _read_run_json(folder)
    notices: list[str] = []
    parts = sorted(folder.glob("parts/part-*.parquet"))
    tally = Tally(seed=seed, draw=PAIRS_PER_LABEL)
    for table in read_tries(parts, notices):
        tally.add(table)
    if not tally.labels:
        raise InputError(f"{folder}: no tries to report in parts/; run `tilth generate` first")
    planned = asked.get("parts")
    if isinstance(planned, int) and len(parts) < planned:
        notices.insert(
            0,
            f"The run is not finished: {len(parts):,} of {planned:,} parts are there. "
            "The same command goes on where it stopped.",
        )
    note = ""
    if seconds is None:
        seconds, note = _span(asked.get("created"), parts)
    settings = asked.get("settings") or {}
    found = read_curated(Path(curated)) if curated is not None else None
    together = _same_input(parts, tally)
    return Report(
        folder=str(run_folder),
        task=_task_name(settings, asked, folder),
        model=str(settings.get("model", "unknown")),
        health=tally.health(),
        lengths=tally.lengths(),
        same_input=together,
        kept_examples=[] if together else _kept_examples(tally),
        dropped_examples=_dropped_examples(tally),
        inputs=len(tally.inputs) if tally.paired else None,
        seconds=seconds,
        time_note=note,
        likeness=_likeness(tally, similarity, method),
        curated=found,
        command=str(asked.get("command", "")),
        settings=_flat(settings),
        versions={str(k): str(v) for k, v in (asked.get("versions") or {}).items()},
        instructions=_instructions(settings),
        created=str(asked.get("created", "")),
        notices=notices,
        next_steps=list(next_steps) if next_steps is not None else _usual(run_folder, curated),
    )


def read_tries(parts: Sequence[Path], notices: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the tries of part files, a bounded number of rows at a time.

    A part that cannot be read is left out; the log and `notices` say so.
    """
    for part in parts:
        try:
            yield from _batches(part)
        except (pa.ArrowException, OSError) as error:  # noqa: PERF203 - one part, not all
            log.warning("%s cannot be read and is left out of the report: %s", part, error)
            if notices is not None:
                notices.append(f"{part.name} could not be read and is left out.")


def _batches(part: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(part) as file:
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=65_536, columns=columns):
            yield pa.Table.from_batches([batch])


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


def _read_run_json(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        asked = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: no run.json here; give the folder of a run") from None
    except (OSError, ValueError) as error:
        raise TilthError(f"{path}: cannot be read ({error}); restore it or start anew") from error
    if not isinstance(asked, dict):
        raise TilthError(f"{path}: not a JSON object; restore it or start anew")
    return asked


def _span(created: object, parts: Sequence[Path]) -> tuple[float | None, str]:
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


def _flat(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and "labels" in value:
            continue  # the task: its instructions have a place of their own
        if isinstance(value, Mapping):
            rows += _flat(value, f"{before}{name}.")
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
    if similarity is word_overlap and not method:
        method = (
            "Word overlap: the cosine of TF-IDF weighted word counts, case and punctuation aside. "
            "0 means no word in common, 1 the same words. It sees wording, not meaning."
        )
    return Likeness(method, by_label)


def _same_input(parts: Sequence[Path], tally: Tally) -> list[list[Example]]:
    """Return what was written for a few inputs under every label; reads the parts once more."""
    if not tally.paired or not 2 <= len(tally.labels) <= LABELS_TOGETHER:
        return []
    drawn = (row.text_a for label in tally.labels for row in tally.kept_rows(label, 50))
    inputs = list(dict.fromkeys(text for text in drawn if text))[:INPUTS_TOGETHER]
    found: dict[str, list[Example]] = {text: [] for text in inputs}
    for table in read_tries(parts):
        here = table.filter(
            pc.and_(
                pc.is_in(table["text_a"], value_set=pa.array(inputs, pa.string())),
                pc.is_null(table["drop_reason"]),
            )
        )
        for row in examples(here):
            found[row.text_a or ""].append(row)
    order = {label: place for place, label in enumerate(tally.labels)}
    return [
        sorted(rows, key=lambda row: order[row.label])[: 3 * len(order)] for rows in found.values()
    ]


def _kept_examples(tally: Tally) -> list[Example]:
    each = max(2, min(6, 120 // len(tally.labels)))
    return [row for label in tally.labels for row in tally.kept_rows(label, each)]


def _dropped_examples(tally: Tally) -> list[Example]:
    """Return a few dropped rows per label: one of each reason first, then a second of each."""
    few = max(1, min(4, 60 // len(tally.labels)))
    shown: list[Example] = []
    by_label: dict[str, list[list[Example]]] = {}
    for row in tally.dropped_rows():
        reasons = by_label.setdefault(row.label, [])
        if not reasons or reasons[-1][0].reason != row.reason:
            reasons.append([])
        reasons[-1].append(row)
    for reasons in by_label.values():
        turns = [row for turn in zip_longest(*reasons) for row in turn if row is not None]
        shown += turns[:few]
    return shown


def _usual(run_folder: str | Path, curated: str | Path | None) -> list[tuple[str, str]]:
    ready = Path(curated) if curated is not None else Path(run_folder) / "dataset"
    steps = []
    if curated is None:
        steps.append(
            (
                "Clean the set up and split it: duplicates, label smoothing, sampled pairs",
                f"tilth curate {run_folder} --out {run_folder}-curated",
            )
        )
    load = f'datasets.load_dataset("{ready}")'
    steps.append(("Load it in Python", f"python -c 'import datasets; print({load})'"))
    steps.append(
        (
            "Write more, from your own sentences",
            "tilth generate sts-x2 --inputs sentences.txt --model starter --out runs/mine",
        )
    )
    return steps

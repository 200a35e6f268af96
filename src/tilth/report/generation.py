"""Write the report of any run; build the page of a `tilth generate` run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.errors import InputError, TilthError
from tilth.report.charts import ChartRow, count_rows, histogram, ridge
from tilth.report.html import count_of, duration, number, percent, write_page
from tilth.report.quality import Quality
from tilth.report.run_reader import (
    TIME_NOTE,
    part_files,
    read_run,
    seconds_taken,
    settings_facts,
    unfinished,
)
from tilth.report.text_similarity import encoder_similarity, word_overlap
from tilth.report.tries import (
    BINS,
    SampledTry,
    TryTable,
    label_order,
    open_tries,
    unmeasured_labels,
)
from tilth.runs import read_run_json

PAIRS_PER_LABEL = 2_000  # enough for the shape of a distribution
PAIRS_IN_ALL = 40_000  # with many labels each gets fewer, so that an encoder stays quick
INPUTS_TOGETHER = 8  # inputs shown with all that was written for them
LABELS_TOGETHER = 6  # with more labels, examples are shown label by label
DROP_REASONS = {
    "not-closed": "no closing quotation mark within the token limit",
    "newline": "a new line before the closing quotation mark",
    "empty": "nothing before the closing quotation mark",
    "prompt-too-long": "instruction and input are longer than the model's positions",
    "not-a-number": "the model answered with values that are no numbers",
    "filtered": "the server's content filter ended it or refused the prompt",
    "label-fit": "nearer to another label's description, or to none",
    "identical-pair": "both texts are the same",
    "duplicate": "the same row was there before",
    "near-duplicate": "almost the same row was there before",
    "over-per-label": "the input has enough rows for this label",
}
_MEASURED = "The cosine of the starter encoder (starter-encoder); 1 means the same meaning to it."
_WORDS = (
    "Word overlap: the cosine of TF-IDF weighted word counts, case and punctuation aside. 0 means "
    "no word in common, 1 the same words. It sees wording, not meaning."
)


@dataclass(frozen=True, slots=True)
class CuratedCounts:
    """Row counts of a curated folder: by split, by label, and by drop reason."""

    splits: dict[str, int]
    labels: dict[str, int]
    dropped: dict[str, int]


def write_report(run_folder: str | Path, *, encoder: str | None = None) -> Path:
    """Write RUN/report.html of a run and return its path.

    Args:
        run_folder: of `tilth generate` or `tilth paraphrase`, finished or not; or of a finished
            `augment`, `train classifier`, `train tagger` or `grow`.
        encoder: measures the similarity of inputs and outputs; None: as the run did, else word
            overlap.

    Raises:
        InputError: the folder holds no run, or no tries; the encoder cannot be loaded.
        TilthError: the file cannot be written.
    """
    from tilth.report.augment import write_augment_report
    from tilth.report.classifier import write_classifier_report
    from tilth.report.grow import write_grow_report
    from tilth.report.paraphrase import write_rewrite_report

    folder = Path(run_folder)
    others = {
        "paraphrase": write_rewrite_report,
        "augment": write_augment_report,
        "train classifier": write_classifier_report,
        "train tagger": write_classifier_report,
        "grow": write_grow_report,
    }
    command = read_run_json(folder)["command"]
    if command != "generate" and encoder is not None:
        raise InputError(f"{folder}: --encoder counts for generate runs only: leave it out")
    if command in others:
        return others[command](folder)
    if command != "generate":
        raise InputError(
            f"{folder}: holds a run of `tilth {command}`: only pages of generate, "
            f"{', '.join(others)} are written again"
        )
    return write_page(folder / "report.html", "generation", **generation_page(folder, encoder))


def generation_page(folder: Path, encoder: str | None = None) -> dict[str, Any]:
    """Return the template values of the page of a `tilth generate` run."""
    run = read_run(folder, "generate")
    parts, settings = part_files(folder), run["settings"]
    notices = unfinished(run, parts)
    curated: Path | None = folder / "curated"
    if next((folder / "curated").rglob("*.parquet"), None) is None:
        curated = None
    counts = None if curated is None else read_curated(curated)
    task, model = settings["task"]["task_name"], settings["model"]
    with open_tries(folder, notices=notices) as tries:
        quality = tries.quality(unmeasured=unmeasured_labels(run))
        measure, similarity = _similarity(tries, encoder)
        labels, is_paired = len(tries.labels), tries.inputs is not None
        together: list[list[SampledTry]] = []
        if is_paired and 2 <= labels <= LABELS_TOGETHER:
            together = tries.same_input(INPUTS_TOGETHER)
        kept = [] if together else tries.sample_kept(max(1, min(6, 90 // labels)))
        dropped = tries.sample_dropped(max(1, min(4, 60 // labels)))
        lengths, inputs = tries.lengths(), tries.inputs
    pairs = f"text pairs that the language model {model} wrote for {count_of(inputs or 0, 'input')}"
    texts = pairs if is_paired else f"texts that the language model {model} wrote"
    head, *lines = quality.table()
    shown = [place for place, name in enumerate(head) if _is_shown(name, quality, is_paired)]
    return {
        "title": task,
        "kind": "report of a generated data set",
        "claim": f"{quality.kept:,} labelled {texts} from instructions alone, without a labelled "
        "example.",
        "notices": notices,
        "figures": list(_figures(quality, inputs, counts, seconds_taken(run, parts))),
        "made": settings_facts(run),
        "quality": quality,
        "head": [head[place] for place in shown],
        "lines": [[line[place] for place in shown] for line in lines],
        "marks": {warning.label: "marked" for warning in quality.warnings},
        "drops": _drop_rows(quality.dropped, quality.tries),
        "curated_drops": _drop_rows(counts.dropped, quality.kept) if counts else [],
        "balance": count_rows({label.label: label.kept for label in quality.labels}),
        "curated_balance": count_rows(counts.labels) if counts else [],
        "lengths": _length_rows(lengths),
        "similarity": _similarity_rows(similarity),
        "measure": measure,
        "same_input": together,
        "examples": [
            _example_table("Kept, a few of each label", kept, is_paired),
            _example_table("Dropped, a few of each label and reason", dropped, is_paired),
        ],
        "command": f"tilth {run['command']} {task}",
        "instructions": {
            name: spec["instruction"] for name, spec in settings["task"]["labels"].items()
        },
        "next_steps": list(_next_steps(folder, quality.kept, curated, is_paired=is_paired)),
    }


def read_curated(folder: Path) -> CuratedCounts:
    """Count the rows of a curated folder."""
    found = CuratedCounts({}, {}, {})
    for path in sorted(folder.rglob("*.parquet")):
        if path.parent.name == "parts":
            continue
        try:
            names = pq.read_schema(path).names
            column = "drop_reason" if "drop_reason" in names else "label"
            values = pq.read_table(path, columns=[column]).column(column)
        except (pa.ArrowException, OSError) as error:
            raise TilthError(f"{path}: cannot be read ({error}); curate again") from error
        into = found.dropped if column == "drop_reason" else found.labels
        for entry in values.value_counts().to_pylist():
            value = entry["values"]
            name = f"{value:g}" if isinstance(value, float) else str(value)
            into[name] = into.get(name, 0) + entry["counts"]
        if column == "label":
            found.splits[path.stem] = found.splits.get(path.stem, 0) + len(values)
    if not found.splits:
        raise InputError(f"{folder}: no curated rows (*.parquet) here; give the folder of --out")
    labels = {name: found.labels[name] for name in label_order(list(found.labels))}
    return CuratedCounts(found.splits, labels, found.dropped)


def _similarity(tries: TryTable, encoder: str | None) -> tuple[str, dict[str, NDArray[np.float64]]]:
    """Return a measure and its values per label: the encoder's, the run's own, or word overlap."""
    if tries.inputs is None:
        if encoder is not None:
            raise InputError(
                "--encoder compares texts with their inputs, and the run has none: leave it out"
            )
        return "", {}
    if encoder is None and (histograms := tries.similarities()):
        cosines = np.linspace(-1, 1, BINS + 1)
        return _MEASURED, {
            label: np.repeat(cosines, _of_so_many(counts, PAIRS_PER_LABEL))
            for label, counts in histograms.items()
        }
    most = min(PAIRS_PER_LABEL, max(PAIRS_IN_ALL // len(tries.labels), 50))
    sample = tries.sample_kept(most)
    if not sample:
        return "", {}
    texts = [one.text_a or "" for one in sample], [one.text for one in sample]
    if encoder is None:
        measure, values = _WORDS, word_overlap(*texts)
    else:
        from tilth.models import load_encoder  # loads torch

        measure = f"The cosine of the sentence encoder {encoder}; 1 means the same meaning to it."
        values = encoder_similarity(load_encoder(encoder), *texts)
    names = np.array([one.label for one in sample])
    return measure, {label: values[names == label] for label in dict.fromkeys(names.tolist())}


def _of_so_many(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return counts that add up to `most` and follow the same distribution, (bins,)."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    drawn: NDArray[np.int64] = np.diff(np.rint(ends * (most / ends[-1])).astype(np.int64))
    return drawn


def _next_steps(
    folder: Path, kept: int, curated: Path | None, *, is_paired: bool
) -> Iterator[tuple[str, str]]:
    place = shlex.quote(str(folder))
    if not kept:
        many = "--inputs sentences.txt" if is_paired else "--count 5"
        again = f"tilth generate TASK {many} --plan --out runs/plan"
        yield "Try other settings or another model on a few inputs first", again
        return
    if curated is None:
        cleaned = "Clean the set up: duplicates, label smoothing, sampled pairs, a validation split"
        yield cleaned, f"tilth curate {place}"
    ready = curated or folder / "dataset"
    code = f"import datasets; print(datasets.load_dataset({str(ready)!r}))"
    yield "Load it in Python", f"python -c {shlex.quote(code)}"
    more = "tilth generate sts-x2 --inputs sentences.txt --out runs/mine"
    yield "Write more, from your own sentences, one a line", more


def _is_shown(name: str, quality: Quality, is_paired: bool) -> bool:
    """Return whether the page shows a column of the quality table."""
    if name in ("fits", "similarity"):
        figure = {"fits": "fit_share"}.get(name, name)
        return any(getattr(label, figure) is not None for label in quality.labels)
    return name not in ("same input", "other label") and (is_paired or name != "copies")


def _drop_rows(dropped: Mapping[str, int], total: int) -> list[ChartRow]:
    return count_rows(dropped, total, means=DROP_REASONS, kind="bar drop")


def _figures(
    quality: Quality, inputs: int | None, curated: CuratedCounts | None, seconds: float | None
) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and note of each headline figure."""
    if inputs is not None:
        yield "inputs", f"{inputs:,}", ""
    yield "tries", f"{quality.tries:,}", count_of(len(quality.labels), "label")
    yield "kept", f"{quality.kept:,}", f"{percent(quality.kept / quality.tries)} of the tries"
    if curated is not None:
        named = ", ".join(f"{name} {rows:,}" for name, rows in curated.splits.items())
        yield "after curation", f"{sum(curated.splits.values()):,}", named
    if seconds:
        yield "time", duration(seconds), TIME_NOTE
        tokens = sum(label.all_tokens for label in quality.labels) / seconds
        yield "kept per second", _rate(quality.kept / seconds), f"{_rate(tokens)} tokens per second"


def _rate(per_second: float) -> str:
    if per_second >= 0.1:
        return number(per_second, 0 if per_second >= 100 else 1)
    return f"{per_second:.2g}"


def _example_table(
    caption: str, tries: Sequence[SampledTry], is_paired: bool
) -> tuple[str, dict[str, str], list[list[str]]]:
    """Return caption, columns and rows of a table of example tries."""
    kinds = {"label": "chip", "input": "wide", "written": "wide", "dropped because": "side"}
    rows = [
        {"label": one.label, "input": one.text_a or "", "written": one.text,
         "dropped because": one.reason or ""}
        for one in tries
    ]  # fmt: skip
    hidden = {"input"} if not is_paired else set()
    if not any(one.reason for one in tries):
        hidden.add("dropped because")
    columns = {name: kind for name, kind in kinds.items() if name not in hidden}
    return caption, columns, [[row[name] for name in columns] for row in rows]


def _length_rows(lengths: Mapping[str, NDArray[np.int64]]) -> list[ChartRow]:
    """Return one length histogram per label, with shared bins and range."""
    if not lengths:
        return []
    total = np.sum(list(lengths.values()), axis=0)
    # The longest 0.5% would compress the axis, so they go into the last bin.
    last = int(np.searchsorted(np.cumsum(total), 0.995 * total.sum()))
    width = last // 30 + 1
    bins = last // width + 1
    more = "+" if total[last + 1 :].any() or width > 1 else ""
    rows = []
    for label, counts in lengths.items():
        starts = np.arange(bins) * width
        words = np.repeat(np.arange(len(counts)), counts)
        low, median, high = (int(x) for x in np.percentile(words, [10, 50, 90]))
        chart = histogram(
            np.add.reduceat(counts, starts).tolist(),
            ["0", f"{bins * width // 2}", f"{(bins - 1) * width}{more}"],
            text=f"Label {label}: lengths in words; median {median}, 80% between {low} and {high}.",
        )
        rows.append(ChartRow(label, f"{median} words", f"80% are {low} to {high}", chart))
    return rows


def _similarity_rows(similarity: Mapping[str, NDArray[np.float64]]) -> list[ChartRow]:
    """Return one similarity density per label, on a shared axis."""
    lowest = min((float(values.min()) for values in similarity.values()), default=0.0)
    ticks = np.linspace(0.0 if lowest >= 0 else np.floor(lowest * 5) / 5, 1.0, 5).tolist()
    rows = []
    for label, values in similarity.items():
        first, median, third = np.percentile(values, [25, 50, 75])
        text = (
            f"Label {label}: similarity of input and output; median {median:.2f}, half between "
            f"{first:.2f} and {third:.2f}, from {values.min():.2f} to {values.max():.2f}."
        )
        half = f"half {first:.2f} to {third:.2f}"
        rows.append(ChartRow(label, f"{median:.2f}", half, ridge(values, ticks, text=text)))
    return rows

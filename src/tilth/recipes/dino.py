"""The steps that the tables of the DINO paper share: generate, curate, train, measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.data.curate import CurateOptions
from tilth.data.hashing import random_keys, text_hashes
from tilth.encoders.bi_encoder import train_encoder
from tilth.encoders.graded_pairs import read_pairs
from tilth.errors import InputError
from tilth.evaluate.sts import Measured, check_sets, most_wrong, summarise_sts
from tilth.evaluate.sts_sets import StsSet, asked_sets, read_sets
from tilth.generation.generate import GenerateRequest, load_rows, run_generate
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task
from tilth.models import load_lm
from tilth.recipes.steps import Result, Steps
from tilth.report.encoders import Bar
from tilth.workflows.curate import curate_folder
from tilth.workflows.evaluate_sts import (
    WRONG_PAIRS,
    Scores,
    curve_of,
    measure,
    open_encoder,
    overlap_of,
)
from tilth.workflows.table import Cell, Row, Table, over_seeds
from tilth.workflows.train_encoder import drop_shared

if TYPE_CHECKING:
    from tilth.report.encoders import Curve

# Names of the sets in the paper's tables.
COLUMNS = {
    "sts12": "STS12", "sts13": "STS13", "sts14": "STS14", "sts15": "STS15", "sts16": "STS16",
    "stsb": "STSb", "sick": "SICK",
}  # fmt: skip
AVERAGE, MEASURED = "Avg.", "Avg. of measured"


def first_texts(steps: Steps) -> list[str]:
    """Return the distinct sentences of STSb's training part, or as many as the scale says."""
    found = read_sets(steps.data, ["stsb-train"])
    texts = sorted({text for sts in found for text in (*sts.texts_a, *sts.texts_b)})
    if steps.scale.inputs is None or steps.scale.inputs >= len(texts):
        return texts
    import pyarrow as pa

    keys = random_keys(0, "first texts", text_hashes(pa.array(texts, pa.large_string())))
    chosen = sorted(range(len(texts)), key=lambda place: int(keys[place]))
    return [texts[place] for place in chosen[: steps.scale.inputs]]


def generate_pairs(steps: Steps, name: str, *, decay: float = 100.0, given: bool = True) -> Path:
    """Generate second texts, for STSb's sentences or for generated first texts."""
    folder = steps.at(name)
    request = GenerateRequest(
        load_task("sts-x2"),
        load_lm(steps.scale.lm, device=steps.settings.device),
        GenerateSettings(decay=decay),
        inputs=first_texts(steps) if given else None,
        from_x1=None if given else steps.scale.first_texts,
    )
    run_generate(request, folder, quiet=steps.settings.quiet)
    return folder


def curate_pairs(steps: Steps, run: Path, name: str, **settings: Any) -> Path:
    """Curate a generate run; made anew each time, which takes seconds."""
    folder, _ = curate_folder(str(run), steps.at(name), CurateOptions(**settings))
    return folder


def train_seeds(steps: Steps, name: str, pairs: Path) -> list[Path]:
    """Train once for each seed; return the run folders."""
    parts = read_pairs(pairs)
    if steps.settings.drop_overlap:
        parts = drop_shared(parts, read_sets(steps.data))
    splits, folders = parts.splits(), []
    for seed in range(steps.settings.seeds):
        folder = steps.at_training(f"{name}-seed{seed}")
        train_encoder(
            splits, steps.scale.base, folder,
            device=steps.settings.device, quiet=steps.settings.quiet, seed=seed,
            **steps.scale.training,
        )  # fmt: skip
        folders.append(folder)
    return folders


def overlap_note(steps: Steps, name: str, pairs: Path) -> str:
    """Say how many training rows hold a sentence or a pair of each set."""
    rows = read_pairs(pairs).all_rows()
    counts = overlap_of(rows, read_sets(steps.data))
    shares = ", ".join(f"{key} {n['rows']} ({n['pairs']})" for key, n in counts.items())
    what = "were left out" if steps.settings.drop_overlap else "--drop-overlap leaves them out"
    return (
        f"Of the {len(rows):,} rows of {name} (training and validation), rows that hold a sentence "
        f"of a set (a pair of it): {shares}; {what}."
    )


class Board:
    """Collects what was measured and makes the result of it."""

    def __init__(self, steps: Steps, protocol: str = "all", sets: Sequence[str] | None = None):
        self.steps, self.protocol = steps, protocol
        self.found: list[StsSet] = read_sets(steps.data, sets)
        check_sets(self.found, protocol)
        # What steps measure, whichever table asks.
        self._all = self.found if sets is None else read_sets(steps.data)
        self.asked = asked_sets(steps.data, sets)
        self.scores: dict[str, list[Scores]] = {}
        self.wrong: dict[str, list[dict[str, Any]]] = {}
        self.curves: list[Curve] = []

    def baseline(self, name: str, encoder: str, step: str, pooling: str | None = None) -> None:
        """Measure an encoder that is not trained here."""
        loaded = open_encoder(
            encoder, self.found, pooling=pooling, device=self.steps.settings.device
        )
        self._add(name, measure(loaded, self._all, self.steps.at(step)))

    def trained(self, name: str, runs: Sequence[Path]) -> None:
        """Measure the encoders of some trainings, one for each seed."""
        for run in runs:
            loaded = open_encoder(str(run), device=self.steps.settings.device)
            step = self.steps.at(f"measure-{run.name}")
            self._add(name, measure(loaded, self._all, step))
            self.curves.append(curve_of(run, f"{name}, {run.name.rpartition('-')[2]}"))

    def _add(self, name: str, measured: list[Measured]) -> None:
        names = {sts.name for sts in self.found}
        measured = [one for one in measured if one.sts.name in names]
        scores = summarise_sts(measured, self.asked, protocol=self.protocol)
        self.scores.setdefault(name, []).append(scores)
        if name not in self.wrong:
            self.wrong[name] = most_wrong(measured, WRONG_PAIRS)

    def cell(self, name: str, sets: Sequence[str]) -> Cell:
        """Return a row's mean over sets, with its deviation over seeds."""
        runs = self.scores[name]
        values = [sum(run[key]["spearman"] for key in sets) / len(sets) for run in runs]
        if len(runs) > 1:
            return over_seeds(values)
        # One run: the interval over test pairs, where one set or all of them are meant.
        key = sets[0] if len(sets) == 1 else "mean"
        known = len(sets) == 1 or list(sets) == runs[0]["mean"]["sets"]
        low, high = (runs[0][key]["low"], runs[0][key]["high"]) if known else (None, None)
        return Cell(values[0], None, low, high)

    def rows(self) -> list[Row]:
        """Return our rows: each set, and the averages."""
        names = [sts.name for sts in self.found]
        rows = []
        for name in self.scores:
            cells = {COLUMNS[key]: self.cell(name, [key]) for key in names}
            cells[MEASURED] = self.cell(name, names)
            if set(names) == set(self.asked):
                cells[AVERAGE] = cells[MEASURED]
            rows.append(Row(name, cells))
        return rows

    def with_average(self, row: Row) -> Row:
        """Give a published row its average over the sets that were measured here."""
        values = [row.cells[COLUMNS[sts.name]].value for sts in self.found]
        mean = Cell(sum(values) / len(values))
        return Row(row.name, {**row.cells, MEASURED: mean}, published=True)

    def result(
        self, title: str, columns: Sequence[str], rows: Sequence[Row], notes: Sequence[str]
    ) -> Result:
        """Return table and bars."""
        missing = [COLUMNS[key] for key in self.asked if key not in {s.name for s in self.found}]
        foot = [f"Spearman x 100, protocol {self.protocol!r}, cosine. {self._spread()}"]
        if missing:
            foot.append(
                f"Not in {self.steps.data}: {', '.join(missing)}. {MEASURED!r} is over the others, "
                "for published rows too (averaged here from their figures)."
            )
        table = Table(title, columns, rows, [*foot, *notes])
        interval = "bootstrap 95% over test pairs"
        seeds = self.steps.settings.seeds
        if seeds > 1:
            interval = f"mean ± deviation over {seeds} seeds if trained, else {interval}"
        return Result(table, bars(table), "Spearman", interval, self.curves, self.wrong)

    def _spread(self) -> str:
        seeds = self.steps.settings.seeds
        if seeds > 1:
            return (
                f"Trained rows: mean ± deviation over {seeds} trainings on the same generated data."
            )
        return "One training: no deviation is known."


def train_on_both(board: Board) -> list[str]:
    """Generate x1x2 and x2, train on each and measure; return what to say of the overlap."""
    steps, notes = board.steps, []
    for name, given in (("x1x2", False), ("x2", True)):
        pairs = curate_pairs(steps, generate_pairs(steps, name, given=given), f"{name}-curated")
        board.trained(f"trained on {name}", train_seeds(steps, f"train-{name}", pairs))
        if not given:
            kept = len(
                {text.strip() for text in load_rows(steps.folder / "steps" / name / "x1")["text"]}
            )
            notes.append(
                f"{name}: of {steps.scale.first_texts:,} first texts asked for {kept:,} are kept."
            )
        notes.append(overlap_note(steps, name, pairs))
    return notes


def bars(table: Table) -> list[Bar]:
    """Return a table's figures as bars, column by column."""
    found = []
    for column in table.columns:
        for row in table.rows:
            cell = row.cells.get(column)
            if cell is None:
                continue
            low, high = cell.low, cell.high
            if cell.deviation is not None:
                low, high = cell.value - cell.deviation, cell.value + cell.deviation
            found.append(Bar(column, row.name, cell.value, low, high, row.published))
    return found


def word_files(data: Path) -> dict[str, Path]:
    """Return the files of word vectors in the data folder by their names without ending."""
    found = {
        file.name.removesuffix(".gz").removesuffix(".txt"): file
        for ending in ("*.txt", "*.txt.gz")
        for file in sorted((data / "words").glob(f"glove{ending}"))
    }
    if not found:
        raise InputError(f"{data}/words holds no glove*.txt or glove*.txt.gz: put GloVe's there")
    return found


def set_columns(board: Board) -> list[str]:
    """Return the columns of a table of all sets."""
    return [*(COLUMNS[key] for key in board.asked), AVERAGE, MEASURED]

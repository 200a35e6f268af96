"""STS scores of encoders, laid out as a paper's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.encoders.graded_pairs import TrainingPairs
from tilth.errors import InputError
from tilth.evaluate.overlap import find_overlap
from tilth.evaluate.sts import SetCosines, check_sets, most_wrong_pairs, summarise_sts
from tilth.evaluate.sts_files import find_sets
from tilth.evaluate.sts_sets import StsSet, asked_sets, read_sets
from tilth.recipes.recipe import Result, Steps
from tilth.recipes.table import (
    AVERAGE,
    MEASURED,
    SICK_DEV,
    STS_COLUMNS,
    WITH_SICK_DEV,
    Row,
    Table,
    TableCell,
    over_seeds,
)
from tilth.report.encoders import EncoderComparison, EncoderScore
from tilth.workflows.evaluate_sts import WRONG_PAIRS, curve_of, measure, open_encoder

if TYPE_CHECKING:
    from tilth.report.encoders import ValidationCurve

_SICK_DEV = "sick-dev"
_COLUMNS = {**STS_COLUMNS, _SICK_DEV: SICK_DEV}


def with_sick_dev(data: Path) -> dict[str, str]:
    """Return the usual sets, in place of a missing SICK its dev part -> the protocol `all`."""
    found = find_sets(data)
    more = [_SICK_DEV] if _SICK_DEV in found and "sick" not in found else []
    return dict.fromkeys([*asked_sets(data), *more], "all")


class StsBoard:
    """Measures encoders on STS sets, each as a step, and makes the table.

    Args:
        protocols: set -> protocol, `all` or `mean`; None: all the usual sets, `all`.
        metric: `spearman` or `pearson`.
        averaged: sets of the averages; None: all.
    """

    def __init__(
        self,
        steps: Steps[Any],
        protocols: Mapping[str, str] | None = None,
        metric: str = "spearman",
        averaged: Sequence[str] | None = None,
    ) -> None:
        self.steps, self.metric = steps, metric
        # Each step measures all, whichever table runs it.
        self._stored = read_sets(steps.data, list(with_sick_dev(steps.data)))
        protocols = protocols or dict.fromkeys(asked_sets(steps.data), "all")
        self.protocols = protocols
        self.found: list[StsSet] = [sts for sts in self._stored if sts.name in protocols]
        if not self.found:
            names = ", ".join(_COLUMNS[name] for name in protocols)
            raise InputError(f"{steps.data}: none of {names} is there: put sets in sts/")
        for sts in self.found:
            check_sets([sts], protocols[sts.name])
        self.averaged = tuple(protocols if averaged is None else averaged)
        self.scores: dict[str, list[dict[str, dict[str, Any]]]] = {}
        self.wrong: dict[str, list[dict[str, Any]]] = {}
        self.curves: list[ValidationCurve] = []

    def measure(self, name: str, encoder: str, step: str, pooling: str | None = None) -> None:
        """Measure an encoder as step `measure-STEP`; encoders of one name differ in their seeds."""
        device = self.steps.settings.device
        loaded = open_encoder(encoder, self.found, pooling=pooling, device=device)
        folder = self.steps.at(f"measure-{step}")
        measured = [
            one for one in measure(loaded, self._stored, folder) if one.sts.name in self.protocols
        ]
        self.scores.setdefault(name, []).append(self._summary(measured))
        self.wrong.setdefault(name, most_wrong_pairs(measured, WRONG_PAIRS))

    def measure_base(self, pooling: str) -> None:
        """Measure the scale's base, mean-pooled or by [CLS]."""
        base, pooled = self.steps.scale.base, "[CLS]" if pooling == "cls" else "mean-pooled"
        self.measure(f"{base} encoder, {pooled}", base, f"base-{pooling}", pooling)

    def measure_trained(self, name: str, runs: Sequence[Path]) -> None:
        """Measure the encoders of trainings, one per seed, and keep their curves."""
        for seed, run in enumerate(runs):
            self.measure(name, str(run), run.name)
            self.curves.append(curve_of(run, f"{name}, seed{seed}"))

    def _summary(self, measured: list[SetCosines]) -> dict[str, dict[str, Any]]:
        """Return the scores of each set, and their mean if all have one protocol."""
        if len(protocols := set(self.protocols.values())) == 1:
            return summarise_sts(measured, list(self.protocols), protocol=protocols.pop())
        scores: dict[str, dict[str, Any]] = {}
        for one in measured:
            name = one.sts.name
            scores |= summarise_sts([one], [name], protocol=self.protocols[name], bootstrap=0)
        del scores["mean"]
        return scores

    def names(self, among: Sequence[str] | None = None) -> list[str]:
        """Return the sets that were found, optionally only those in `among`."""
        names = [sts.name for sts in self.found]
        return [name for name in names if name in among] if among is not None else names

    def columns(self, among: Sequence[str] | None = None) -> list[str]:
        """Return the columns of `names`."""
        return [_COLUMNS[name] for name in self.names(among)]

    def cell(self, name: str, sets: Sequence[str]) -> TableCell:
        """Return an encoder's mean over sets, with its standard deviation over seeds."""
        runs = self.scores[name]
        values = [sum(run[key][self.metric] for key in sets) / len(sets) for run in runs]
        if len(runs) > 1 or self.metric != "spearman":
            return over_seeds(values)
        # One run: show the interval over test pairs, for one set or all of them.
        (run,) = runs
        key = sets[0] if len(sets) == 1 else "mean"
        known = len(sets) == 1 or list(sets) == run["mean"]["sets"]
        low, high = (run[key]["low"], run[key]["high"]) if known else (None, None)
        return TableCell(values[0], None, low, high)

    def rows(self) -> list[Row]:
        """Return our rows: each set, and the averages."""
        rows, averaged = [], self.names(self.averaged)
        for name in self.scores:
            cells = {_COLUMNS[key]: self.cell(name, [key]) for key in self.names()}
            if averaged:
                cells[MEASURED] = self.cell(name, averaged)
            if len(averaged) == len(self.averaged):
                cells[AVERAGE] = cells[MEASURED]
            if _SICK_DEV in self.names():
                cells[WITH_SICK_DEV] = self.cell(name, self.names())
            rows.append(Row(name, cells))
        return rows

    def with_average(self, row: Row) -> Row:
        """Add to a published row its average over the sets that were measured here."""
        columns = self.columns(self.averaged)
        values = [row.cells[column].value for column in columns if column in row.cells]
        if not values or len(values) < len(columns):
            return row
        mean = TableCell(sum(values) / len(values))
        return Row(row.name, {**row.cells, MEASURED: mean}, published=True)

    def compared(
        self, title: str, published: Sequence[Row], columns: Sequence[str], notes: Sequence[str]
    ) -> Result:
        """Return our rows and the published ones, with averages over what was measured."""
        rows = [*self.rows(), *(self.with_average(row) for row in published)]
        return self.result(title, columns, rows, notes)

    def missing_note(self) -> list[str]:
        """Return a note on the sets that the data folder lacks."""
        missing = [_COLUMNS[name] for name in self.protocols if name not in self.names()]
        if not missing:
            return []
        return [
            f"Not in {self.steps.data}: {', '.join(missing)}. {MEASURED!r} is over the others, for "
            "published rows too (averaged here from their figures)."
        ]

    def spread(self) -> str:
        """Return a sentence on the standard deviation over seeds."""
        if (seeds := self.steps.settings.seeds) == 1:
            return "One training: no deviation is known."
        return f"Trained rows: mean ± deviation over {seeds} trainings on the same data."

    def result(
        self, title: str, columns: Sequence[str], rows: Sequence[Row], notes: Sequence[str]
    ) -> Result:
        """Return the table and its bars."""
        table = Table(title, columns, rows, notes)
        whiskers = "the deviation over seeds, where there are several"
        if self.metric == "spearman":
            whiskers = "bootstrap 95% over test pairs"
            if (seeds := self.steps.settings.seeds) > 1:
                whiskers = f"mean ± deviation over {seeds} seeds if trained, else {whiskers}"
        compared = EncoderComparison(
            _bars(table), self.metric.capitalize(), whiskers, self.curves, self.wrong
        )
        return Result(table, compared)


def _bars(table: Table) -> list[EncoderScore]:
    """Return a table's figures as bars, column by column."""
    found = []
    for column in table.columns:
        for row in table.rows:
            if (cell := row.cells.get(column)) is None:
                continue
            low, high = cell.low, cell.high
            if cell.deviation is not None:
                low, high = cell.value - cell.deviation, cell.value + cell.deviation
            found.append(EncoderScore(column, row.name, cell.value, low, high, row.published))
    return found


def overlap_note(steps: Steps[Any], pairs: TrainingPairs, name: str) -> str:
    """Return a note on the training rows that share a sentence or a pair with each set."""
    rows = pairs.all_rows()
    counts = {
        key: overlap.counts() for key, overlap in find_overlap(rows, read_sets(steps.data)).items()
    }
    shares = ", ".join(f"{key} {n['rows']} ({n['pairs']})" for key, n in counts.items())
    what = "were left out" if steps.settings.drop_overlap else "--drop-overlap leaves them out"
    return (
        f"Of the {len(rows):,} rows of {name} (training and validation), rows that hold a sentence "
        f"of a set (a pair of it): {shares}; {what}."
    )


def word_files(data: Path) -> dict[str, Path]:
    """Return the word vector files of the data folder by stem."""
    found = {
        file.name.removesuffix(".gz").removesuffix(".txt"): file
        for ending in ("*.txt", "*.txt.gz")
        for file in sorted((data / "words").glob(f"glove{ending}"))
    }
    if not found:
        raise InputError(f"{data}/words holds no glove*.txt or glove*.txt.gz: put GloVe's there")
    return found

"""SentAugment, Table 10: STS of sentence encoders, of ours trained as SASE among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.data.formats import ending_of
from tilth.encoders.graded_pairs import Pairs
from tilth.encoders.parallel_pairs import read_parallel
from tilth.encoders.triplet import learned, train_triplet
from tilth.errors import InputError
from tilth.evaluate.sts import Measured, check_sets, most_wrong, summarise_sts
from tilth.evaluate.sts_sets import StsSet, read_sets
from tilth.recipes.dino import COLUMNS, MEASURED, bars, word_files
from tilth.recipes.steps import Result, Steps
from tilth.report.encoders import Curve
from tilth.workflows.evaluate_sts import WRONG_PAIRS, measure, open_encoder, overlap_of
from tilth.workflows.table import Cell, Row, Table, over_seeds, published
from tilth.workflows.train_encoder import drop_shared

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

YEARS, BENCHMARK = ("sts12", "sts13", "sts14", "sts15", "sts16"), "stsb"
AVERAGE = "Avg."
_HEAD = [*(COLUMNS[name] for name in YEARS), AVERAGE, COLUMNS[BENCHMARK]]
READY = "starter-static"  # made for similarity, with another encoder as teacher
# A base that knows one language is not trained on another: what shares a translation stands for it.
ENGLISH_ONLY, PIVOT = ("starter-mlm",), "de"
METRIC = "reciprocal rank"  # of the partners of held-out texts


def _published(name: str, *values: float | None) -> Row:
    known = {column: value for column, value in zip(_HEAD, values, strict=True) if value}
    return published(name, list(known), list(known.values()))


PUBLISHED = [
    _published("BERT (Mean)", 48.8, 46.5, 54.0, 59.2, 63.4, 54.4, None),
    _published("InferSent", 61.1, 51.4, 68.1, 70.9, 70.7, 64.4, 70.6),
    _published("GenSen", 60.7, 50.8, 64.1, 73.3, 66.0, 63.0, None),
    _published("USE", 61.4, 59.0, 70.6, 74.3, 73.9, 67.8, None),
    _published("Sentence-BERT", 66.9, 63.2, 74.2, 77.3, 72.8, 70.9, None),
    _published("uSIF", 68.3, 66.1, 78.4, 79.0, None, None, 79.5),
    _published("Word, trigram", 67.8, 62.7, 77.4, 80.3, 78.1, 73.3, 79.9),
    _published("BGT", 68.9, 62.2, 75.9, 79.4, 79.3, 73.1, None),
    _published("SASE", 69.7, 62.9, 77.3, 79.8, 78.1, 73.5, 80.8),
]


def run(steps: Steps) -> Result:
    """Measure the encoders that are there, train one, and put them beside the published ones."""
    board, words = _Board(steps), word_files(steps.data)
    pairs = _pairs(steps)  # what is missing is said before minutes of work
    for stem, file in words.items():
        board.named(f"avg. word vectors ({stem})", f"words:{file}", f"measure-{stem}")
        board.named(f"uSIF ({stem})", f"usif:{file}", f"measure-usif-{stem}")
    board.named(f"{READY} encoder", READY, f"measure-{Path(READY).name}")
    base = steps.scale.base
    board.named(f"{base} encoder, mean-pooled", base, "measure-base-mean", pooling="mean")
    curves = []
    for seed in range(steps.settings.seeds):
        folder = steps.at_training(f"train-triplet-seed{seed}")
        train_triplet(
            pairs, base, folder,
            pivot=_pivot(steps), device=steps.settings.device, quiet=steps.settings.quiet,
            seed=seed, **steps.scale.training,
        )  # fmt: skip
        trained = open_encoder(str(folder), device=steps.settings.device)
        board.add(f"{base} encoder, triplets", trained, f"measure-{folder.name}")
        found = learned(folder)
        curves.append(Curve(f"seed {seed}", found.step, found.reciprocal_rank, found.best, METRIC))
    table = Table(
        "SentAugment, Table 10",
        [*_HEAD[:-2], AVERAGE, MEASURED, _HEAD[-1]],
        [*board.rows(), *(board.with_average(row) for row in PUBLISHED)],
        [*board.notes(), *_pair_notes(steps, pairs)],
    )
    return Result(
        table, bars(table), "Pearson", "the deviation over seeds, where there are several", curves,
        board.wrong,
    )  # fmt: skip


class _Board:
    """Collects what was measured: Pearson's correlation of cosines with people's scores."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._all: list[StsSet] = read_sets(steps.data)  # other tables measure these too
        self._found = [sts for sts in self._all if sts.name in (*YEARS, BENCHMARK)]
        if not self._found:
            raise InputError(f"{steps.data}: none of {', '.join(_HEAD)} is there: put sets in sts/")
        for sts in self._found:
            check_sets([sts], _protocol(sts.name))
        self.wrong: dict[str, list[dict[str, Any]]] = {}
        self._pearson: dict[str, list[dict[str, float]]] = {}

    def named(self, name: str, encoder: str, step: str, pooling: str | None = None) -> None:
        """Measure an encoder that is not trained here."""
        opened = open_encoder(
            encoder, self._found, pooling=pooling, device=self._steps.settings.device
        )
        self.add(name, opened, step)

    def add(self, name: str, encoder: SentenceTransformer, step: str) -> None:
        """Measure an encoder; of one name, each is another seed's."""
        measured = [
            one
            for one in measure(encoder, self._all, self._steps.at(step))
            if one.sts in self._found
        ]
        self._pearson.setdefault(name, []).append({one.sts.name: _pearson(one) for one in measured})
        self.wrong.setdefault(name, most_wrong(measured, WRONG_PAIRS))

    def _years(self) -> list[str]:
        return [sts.name for sts in self._found if sts.name in YEARS]

    def rows(self) -> list[Row]:
        """Return our rows: each set, and the averages over the years."""
        rows = []
        for name, seeds in self._pearson.items():
            cells = {
                COLUMNS[sts.name]: over_seeds([seed[sts.name] for seed in seeds])
                for sts in self._found
            }
            years = self._years()
            if years:
                mean = over_seeds([sum(seed[y] for y in years) / len(years) for seed in seeds])
                cells[MEASURED] = mean
                if len(years) == len(YEARS):
                    cells[AVERAGE] = mean
            rows.append(Row(name, cells))
        return rows

    def with_average(self, row: Row) -> Row:
        """Give a published row its average over the years that were measured here."""
        values = [
            row.cells[COLUMNS[year]].value for year in self._years() if COLUMNS[year] in row.cells
        ]
        if not values or len(values) < len(self._years()):
            return row
        return Row(row.name, {**row.cells, MEASURED: Cell(sum(values) / len(values))}, True)

    def notes(self) -> list[str]:
        """Say what the figures are, and what is missing."""
        steps = self._steps
        foot = [
            "Pearson x 100 of cosines; STS12 to STS16 each the mean over its subsets, as published "
            f"figures of these years are; STSb all pairs. {_spread(steps.settings.seeds)}"
        ]
        there = {sts.name for sts in self._found}
        missing = [COLUMNS[name] for name in (*YEARS, BENCHMARK) if name not in there]
        if missing:
            foot.append(
                f"Not in {steps.data}: {', '.join(missing)}. {MEASURED!r} is over the other years, "
                "for published rows too (averaged here from their figures)."
            )
        return foot


def _spread(seeds: int) -> str:
    if seeds > 1:
        return f"The trained row: mean ± deviation over {seeds} trainings on the same pairs."
    return "One training: no deviation is known."


def _protocol(name: str) -> str:
    return "all" if name == BENCHMARK else "mean"


def _pearson(one: Measured) -> float:
    name = one.sts.name
    scores = summarise_sts([one], [name], protocol=_protocol(name), bootstrap=0)
    return float(scores[name]["pearson"])


def _pivot(steps: Steps) -> str | None:
    return PIVOT if steps.scale.base in ENGLISH_ONLY else None


def _pairs(steps: Steps) -> Pairs:
    """Return the pairs of all sets in parallel/ and paraphrase/."""
    sources = _sources(steps.data)
    if not sources:
        raise InputError(
            f"{steps.data}: neither parallel/NAME nor paraphrase/NAME holds a train file: put "
            "pairs that mean the same there"
        )
    pairs = read_parallel(sources, pivot=_pivot(steps))
    return drop_shared(pairs, read_sets(steps.data)) if steps.settings.drop_overlap else pairs


def _sources(data: Path) -> Sequence[Path]:
    return [
        file
        for kind in ("parallel", "paraphrase")
        for file in sorted((data / kind).glob("*/train.*"))
        if ending_of(file) is not None
    ]


def _pair_notes(steps: Steps, pairs: Pairs) -> list[str]:
    """Say what was trained on, and how much of the sets it holds."""
    names = ", ".join(file.parent.name for file in _sources(steps.data))
    rows = pairs.all_rows()
    counts = overlap_of(rows, read_sets(steps.data))
    shares = ", ".join(f"{key} {n['rows']} ({n['pairs']})" for key, n in counts.items())
    what = "were left out" if steps.settings.drop_overlap else "--drop-overlap leaves them out"
    return [
        f"Trained on {len(pairs.train):,} pairs of {names}; {len(pairs.validation):,} held out.",
        f"Rows of these that hold a sentence of a set (a pair of it): {shares}; {what}.",
    ]

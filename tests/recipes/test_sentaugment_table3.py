from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.running import measured, put_scale, write_bank_data
from tests.recipes.running import run as run_in
from tests.selftrain.labelled import classed, tagged
from tests.tiny import salads
from tilth.classifiers.settings import Finetuning
from tilth.recipes import sentaugment_steps
from tilth.recipes.catalog import run_recipe
from tilth.recipes.recipe import RecipeSettings
from tilth.recipes.sentaugment import SentAugmentScale
from tilth.recipes.sentaugment_scores import MEAN
from tilth.recipes.table import Table
from tilth.selftrain import few_shot
from tilth.selftrain.few_shot import FewShotResults, gain_over_draws, mean_over_draws
from tilth.selftrain.settings import FINE_TUNED, OURS, PAPERS, FewShot, SelfTraining

NAME = "sentaugment-table3"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a data folder with one set of classes, one of tags, and raw text."""
    makers = {"classify/trec": classed, "ner/ncbi-disease": tagged}
    return write_bank_data(tmp_path / "data", makers, (60, 30, 30), salads(300, seed=3))


TRAINING = {
    "draws": 2, "per_class": 2, "sentences": 4, "validation": 12, "seeds": 1, "best": 1,
    "epochs": 2, "student_epochs": 1, "labelled_per_row": 10, "learning_rate": 1e-3,
}  # fmt: skip


@pytest.fixture
def tiny(base: str, static: str, monkeypatch: pytest.MonkeyPatch) -> SentAugmentScale:
    """Put tiny models in place of the starters."""
    tasks = ("sst2", "trec", "insults", "ncbi-disease")
    scale = SentAugmentScale(
        base=base, encoder=static, tasks=tasks, training=TRAINING, departures=("tiny models",)
    )
    put_scale(monkeypatch, scale, NAME)
    return scale


def run(data: Path, out: Path, **more: Any) -> Table:
    table: Table = run_in(NAME, data, out, **more)[0]
    return table


@pytest.mark.usefixtures("tiny")
def test_all_ways_stand_beside_the_published_ones(data: Path, tmp_path: Path) -> None:
    said: list[str] = []
    table = run(data, tmp_path / "out", say=said.append)
    assert said == ["bank", "trec-few-shot", "ncbi-disease-few-shot"]
    assert table.columns[:3] == ["TREC", "ncbi-disease", MEAN]
    ours = measured(table)
    assert [row.name for row in ours] == [FINE_TUNED, PAPERS, OURS]
    for row in ours:
        assert set(row.cells) == {"TREC", "ncbi-disease", MEAN}
        for cell in row.cells.values():
            assert len(cell.runs) == 2
            assert 0 <= cell.value <= 100
    for row in table.rows:
        if row.published:
            assert MEAN not in row.cells  # theirs would be over other tasks
    assert [str(row.cells["NER"]) for row in table.rows if row.published] == [
        "49.0 ±1.7", "58.4 ±1.4"
    ]  # fmt: skip
    notes = "\n".join(table.notes)
    for words in (
        "2 draws of 2 rows of each class", "of tagged sets 4 sentences", "12 validation rows",
        "of 2 epochs", "Not in the data folder: sst2, insults.", "tiny models",
        "the 15 nearest sentences",
    ):  # fmt: skip
        assert words in notes
    # It goes on where it stopped, here at the end.
    assert run(data, tmp_path / "out") == table


class Outcomes:
    """Takes the place of the experiment: notes what was asked, gives figures in turn."""

    def __init__(self, patch: pytest.MonkeyPatch, each: Sequence[Mapping[str, Any]]) -> None:
        self.asked: list[FewShot] = []
        self._each = each
        patch.setattr(few_shot, "few_shot", self)
        patch.setattr(sentaugment_steps, "open_bank", lambda _: None)

    def __call__(self, *given: Any, **_: Any) -> FewShotResults:
        draws = self._each[len(self.asked) % len(self._each)]
        self.asked.append(given[-1])
        return FewShotResults(
            "accuracy",
            {name: mean_over_draws(draws[name]) for name in (FINE_TUNED, PAPERS, OURS)},
            {name: gain_over_draws(draws[FINE_TUNED], draws[name]) for name in (PAPERS, OURS)},
            {},
        )


def test_figures_are_of_draws_and_gains_are_paired(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = [
        {FINE_TUNED: [60.0, 80.0], PAPERS: [62.0, 80.0], OURS: [63.0, 85.0]},
        {FINE_TUNED: [40.0, 20.0], PAPERS: [38.0, 24.0], OURS: [43.0, 21.0]},
    ]
    Outcomes(monkeypatch, each)
    table = run(data, tmp_path / "out")
    lines = {row.name: row.cells for row in table.rows}
    assert lines[FINE_TUNED]["TREC"].value == 70.0
    assert lines[FINE_TUNED][MEAN].runs == (50.0, 50.0)
    assert lines[FINE_TUNED][MEAN].deviation == 0.0
    assert lines[OURS][MEAN].runs == (53.0, 53.0)
    note = next(note for note in table.notes if note.startswith(OURS.capitalize()))
    assert "trec +4.0 [-8.7, +16.7]" in note  # t of one degree of freedom: 12.7
    assert note.endswith("mean of the tasks +3.0.")  # equal in both draws: no interval


def test_the_scale_says_how_large(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = {name: [50.0] for name in (FINE_TUNED, PAPERS, OURS)}
    outcomes = Outcomes(monkeypatch, [draws])
    run(data, tmp_path / "out")
    asked = outcomes.asked[0]
    plain = replace(asked, training=FewShot().training, systems=FewShot().systems)
    assert plain == FewShot(tiny.base, 2, 2, 4, 12, 1, 1)
    assert (asked.training.epochs, asked.training.learning_rate) == (2, 1e-3)
    papers, ours = asked.systems[PAPERS], asked.systems[OURS]
    assert papers == SelfTraining(epochs=1, labelled_per_row=10)
    assert ours == SelfTraining(
        query="per-sentence", top=15, epochs=1, soft=True, teachers=3, weight=10.0
    )
    run(data, tmp_path / "more", seeds=4)
    assert outcomes.asked[-1].seeds == 4


def test_at_the_papers_scale_all_is_as_published(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = {name: [50.0] for name in (FINE_TUNED, PAPERS, OURS)}
    outcomes = Outcomes(monkeypatch, [draws])
    run_recipe(
        NAME, scale="paper", data=data, out=tmp_path / "out",
        settings=RecipeSettings(quiet=True, device="cpu"),
    )  # fmt: skip
    asked = outcomes.asked[0]
    assert asked == FewShot("FacebookAI/roberta-large")
    assert asked.training == Finetuning(epochs=50)
    assert asked.systems[PAPERS] == SelfTraining()

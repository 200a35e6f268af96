from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.selftrain.labelled import ANIMALS, WATERS, as_rows, classed, tagged
from tests.tiny import salads, save_encoder, tiny_bank
from tilth.bank import Bank
from tilth.data.examples import Examples, read_examples
from tilth.errors import InputError
from tilth.models.classifier import Classifier
from tilth.runs import Run, RunMismatch
from tilth.selftrain import fewshot_study
from tilth.selftrain.fewshot import few_shot
from tilth.selftrain.fewshot_plan import (
    FINE_TUNED,
    FewShot,
    Job,
    Outcome,
    SelfTraining,
    plan,
    summarise,
)
from tilth.selftrain.fewshot_study import Study
from tilth.selftrain.finetune import Curve
from tilth.selftrain.rows import Rows, rows_of
from tilth.selftrain.settings import Finetuning

SMALL = FewShot(draws=2, per_class=3, sentences=6, validation=12, seeds=2, best=1)
QUICK = Finetuning(epochs=3, learning_rate=3e-3, precision="float32", dropout=0.0)
OURS = SelfTraining(top=8, multiple=2)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_encoder(tmp_path_factory.mktemp("base") / "bert"))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """A bank that also holds the sentences of the test set, as a real one may."""
    tests = [f"{row['text'].capitalize()}." for row in classed(60, seed=8)]
    return tiny_bank(tmp_path_factory.mktemp("bank"), [*salads(300, seed=2), *tests])


Sets = tuple[Examples, Rows, Rows]


def sets(kind: str = "class") -> Sets:
    make = classed if kind == "class" else tagged
    examples = read_examples(make(120))
    labels = rows_of(examples).labels
    validation, test = (rows_of(read_examples(make(60, seed=seed)), labels) for seed in (7, 8))
    return examples, validation, test


def ran(base: str, bank: Bank, out: Path, kind: str = "class", **more: Any) -> Outcome:
    options = {
        "settings": SMALL, "training": QUICK, "systems": {"ours": OURS}, "device": "cpu",
        "quiet": True, **more,
    }  # fmt: skip
    return few_shot(*sets(kind), bank, out, base=base, **options)


def parts(out: Path) -> list[list[dict[str, Any]]]:
    """Return the rows of all parts, without the time that they took."""
    asked = json.loads((out / "run.json").read_text())
    run = Run(out, asked)
    found = [run.read_part(place).to_pylist() for place in range(run.parts)]
    return [[{k: v for k, v in row.items() if k != "seconds"} for row in part] for part in found]


class Trainings:
    """Takes the place of training: notes what is asked for, and gives scores in turn."""

    def __init__(self, patch: pytest.MonkeyPatch, scores: Sequence[float] = (50.0,)) -> None:
        self.rows: list[Rows] = []
        self.settings: list[Finetuning] = []
        self._scores = scores
        patch.setattr(fewshot_study, "fit", self)

    def __call__(
        self, classifier: Classifier, rows: Rows, validation: Rows, settings: Finetuning,
        *, quiet: bool,
    ) -> Curve:  # fmt: skip
        self.rows.append(rows)
        self.settings.append(settings)
        score = self._scores[(len(self.rows) - 1) % len(self._scores)]
        return Curve([1], [0.5], [score], [0.5], [True])


def test_a_plan_has_each_part_after_what_it_needs() -> None:
    jobs = plan(SMALL, {"one": OURS, "two": replace(OURS, rounds=2)})
    assert len(jobs) == len(set(jobs)) == 2 * (2 + 3 + 6)
    assert jobs[:5] == [
        Job(0, FINE_TUNED, 0, 0), Job(0, FINE_TUNED, 0, 1), Job(0, "one"), Job(0, "one", 0, 0),
        Job(0, "one", 0, 1),
    ]  # fmt: skip
    assert jobs[8:10] == [Job(0, "two", 1), Job(0, "two", 1, 0)]
    assert [job.draw for job in jobs] == [0] * 11 + [1] * 11


def test_a_summary_takes_the_best_by_validation_of_the_last_round() -> None:
    rows = []
    scores = {
        (FINE_TUNED, 0): [[(80, 60), (90, 70), (85, 64)], [(80, 50), (70, 90), (75, 54)]],
        ("ours", 0): [[(99, 1)] * 3, [(99, 2)] * 3],
        ("ours", 1): [[(80, 71), (90, 75), (10, 0)], [(50, 0), (60, 58), (70, 60)]],
    }
    for (system, turn), draws in scores.items():
        for number, seeds in enumerate(draws):
            for seed, (validation, test) in enumerate(seeds):
                rows.append({
                    "draw": number, "system": system, "round": turn, "seed": seed,
                    "choice": float(validation), "test": float(test), "rows": 10 + turn,
                })  # fmt: skip
    found = summarise(rows, "accuracy", {"ours": replace(OURS, rounds=2)}, best=2)
    assert found.scores[FINE_TUNED].draws == (67.0, 52.0)
    assert found.scores["ours"].draws == (73.0, 59.0)
    assert found.gains["ours"].draws == (6.0, 7.0)
    assert found.rows == {FINE_TUNED: 10.0, "ours": 11.0}
    assert found.measure == "accuracy"


def test_a_run_holds_every_training_and_what_was_labelled(
    base: str, bank: Bank, tmp_path: Path
) -> None:
    found = ran(base, bank, tmp_path / "out")
    assert set(found.scores) == {FINE_TUNED, "ours"}
    assert found.measure == "accuracy"
    assert len(found.scores["ours"].draws) == len(found.gains["ours"].draws) == 2
    done = parts(tmp_path / "out")
    jobs = plan(SMALL, {"ours": OURS})
    assert len(done) == len(jobs)
    _, validation, test = sets()
    barred = {text for rows in (test, validation) for (text,) in rows.texts}
    for job, part in zip(jobs, done, strict=True):
        if job.seed is not None:
            size = 9 if job.system == FINE_TUNED else found.rows["ours"]
            assert part[0]["rows"] <= 9 + 18
            assert size <= 27
            continue
        assert 0 < len(part) <= 18
        for row in part:
            assert row["text"].lower().rstrip(".") not in barred
            assert sum(row["probabilities"]) == pytest.approx(1, abs=1e-5)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["scores"]["ours"]["mean"] == pytest.approx(found.scores["ours"].mean)
    assert len(results["trainings"]) == 8
    assert not (tmp_path / "out" / "checkpoints").exists()
    # The same call changes nothing.
    assert ran(base, bank, tmp_path / "out") == found


def test_taggers_learn_from_sentences_cut_as_theirs(base: str, bank: Bank, tmp_path: Path) -> None:
    found = ran(base, bank, tmp_path / "out", "tags")
    assert found.measure == "span F1"
    labelled = parts(tmp_path / "out")[2]
    assert labelled
    for row in labelled:
        assert row["tokens"][-1] == "."
        assert len(row["tokens"]) == len(row["probabilities"])
        assert np.allclose(np.sum(row["probabilities"], axis=1), 1, atol=1e-5)


class StoppedError(Exception):
    pass


ROUNDS: dict[str, Any] = {
    "systems": {"ours": replace(OURS, rounds=2, teachers=2)}, "settings": replace(SMALL, draws=1),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(base: str, bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """A run that nothing stopped."""
    out = tmp_path_factory.mktemp("whole")
    return ran(base, bank, out, **ROUNDS), out


@pytest.mark.parametrize("after", [1, 4, 6])
def test_a_stopped_run_goes_on(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int,
    whole: tuple[Outcome, Path],
) -> None:  # fmt: skip
    done = 0
    do: Callable[..., Any] = Study.do

    def stop(self: Study, job: Job) -> Any:
        nonlocal done
        if done == after:
            raise StoppedError
        done += 1
        return do(self, job)

    with monkeypatch.context() as patch:
        patch.setattr(Study, "do", stop)
        with pytest.raises(StoppedError):
            ran(base, bank, tmp_path / "out", **ROUNDS)
    # Weights that someone removed are made again.
    shutil.rmtree(tmp_path / "out" / "checkpoints")
    assert ran(base, bank, tmp_path / "out", **ROUNDS) == whole[0]
    assert parts(tmp_path / "out") == parts(whole[1])


def test_only_weights_that_may_teach_are_kept(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = []
    tidy: Callable[..., None] = Study.tidy

    def look(self: Study, job: Job) -> None:
        tidy(self, job)
        there.append(sorted(item.name for item in (tmp_path / "checkpoints").iterdir()))

    monkeypatch.setattr(Study, "tidy", look)
    Trainings(monkeypatch, [60.0, 70.0, 65.0, 50.0])
    ran(base, bank, tmp_path, settings=replace(SMALL, seeds=3, draws=1))
    assert there[:4] == [
        ["draw-0-base-0-0"], ["draw-0-base-0-1"], ["draw-0-base-0-1"], ["draw-0-base-0-1"]
    ]  # fmt: skip
    assert there[-1] == []


def labelled_by(patch: pytest.MonkeyPatch) -> list[list[str]]:
    """Note the folders of the teachers, whenever some label."""
    found: list[list[str]] = []
    answers: Callable[..., Any] = fewshot_study._answers

    def note(classifiers: Sequence[Classifier], rows: Rows) -> Any:
        if isinstance(rows.targets, list):  # what a teacher is to label has none
            found.append([Path(one.name).name for one in classifiers])
        return answers(classifiers, rows)

    patch.setattr(fewshot_study, "_answers", note)
    return found


def test_the_best_teach_and_students_teach_the_next_round(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    #              teachers           students, round 0  students, round 1
    scores = [60.0, 70.0, 65.0, 50.0, 40.0, 55.0, 1.0, 2.0, 3.0]
    Trainings(monkeypatch, scores)
    teachers = labelled_by(monkeypatch)
    systems = {"ours": replace(OURS, teachers=2, rounds=2)}
    ran(base, bank, tmp_path, systems=systems, settings=replace(SMALL, seeds=3, draws=1))
    assert teachers == [
        ["draw-0-base-0-1", "draw-0-base-0-2"], ["draw-0-0-0-2", "draw-0-0-0-0"]
    ]  # fmt: skip


@pytest.fixture
def learned(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Rows, Finetuning]]:
    """Give what the first student of one draw learns from, and how."""

    def learn(name: str = "out", **more: Any) -> tuple[Rows, Finetuning]:
        trainings = Trainings(monkeypatch)
        settings = replace(SMALL, draws=1, seeds=1)
        ran(base, bank, tmp_path / name, settings=settings, systems={"x": replace(OURS, **more)})
        return trainings.rows[1], trainings.settings[1]

    return learn


def test_labelled_rows_stay_in_and_labels_are_hard_or_soft(
    learned: Callable[..., tuple[Rows, Finetuning]],
) -> None:
    hard, _ = learned("hard")
    assert isinstance(hard.targets, np.ndarray)
    assert hard.targets[:9].sum(axis=0).tolist() == [3, 3, 3]
    words = [set(text.split()) for (text,) in hard.texts[:9]]
    kinds = [bool(some & set(ANIMALS)) + 2 * bool(some & set(WATERS)) for some in words]
    assert sorted(kinds) == [0] * 3 + [1] * 3 + [2] * 3
    assert set(np.unique(hard.targets)) == {0.0, 1.0}
    soft, _ = learned("soft", soft=True)
    assert isinstance(soft.targets, np.ndarray)
    assert soft.texts == hard.texts
    assert ((soft.targets[9:] > 0) & (soft.targets[9:] < 1)).all()
    assert np.array_equal(soft.targets.argmax(axis=1), hard.targets.argmax(axis=1))
    assert hard.weights is None


def test_settings_of_self_training_are_heeded(
    learned: Callable[..., tuple[Rows, Finetuning]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    retrieve: Callable[..., Any] = fewshot_study.retrieve

    def note(bank: Bank, examples: Examples, **more: Any) -> Any:
        asked.append(more)
        return retrieve(bank, examples, **more)

    monkeypatch.setattr(fewshot_study, "retrieve", note)
    _, settings = learned("plain", select="all")
    assert (asked[0]["kind"], asked[0]["count"]) == ("label-average", 72)
    assert settings.epochs == QUICK.epochs
    everything, _ = learned("all", select="all", top=5)
    assert len(everything) == 9 + 45
    assert asked[1]["count"] == 45
    learned("query", query="per-sentence")
    assert asked[2]["kind"] == "per-sentence"
    some, _ = learned("labelled", select="all", labelled=3)
    assert len(some) == 9 + 27
    more, _ = learned("multiple", multiple=4)
    assert len(more) > len(learned("fewer", multiple=1)[0])
    best, _ = learned("best", select="confidence")
    assert set(best.texts) != set(learned("drawn", select="random")[0].texts)
    assert len(learned("floor", select="all", floor=0.999)[0]) == 9
    heavy, settings = learned("heavy", weight=5.0, epochs=7)
    assert heavy.weights is not None
    assert heavy.weights[:9].tolist() == [5.0] * 9
    assert set(heavy.weights[9:].tolist()) == {1.0}
    assert settings.epochs == 7


def test_trainings_have_seeds_of_their_own_and_are_measured_ten_times(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = Trainings(monkeypatch)
    training = replace(QUICK, seed=5, epochs=40)
    ran(base, bank, tmp_path, training=training, settings=replace(SMALL, seeds=3, draws=1))
    assert [one.seed for one in trainings.settings] == [5, 6, 7] * 2
    assert trainings.settings[0].evaluate_every == 4  # of 40 steps
    assert [len(rows) for rows in trainings.rows[:3]] == [9] * 3


def test_two_ways_with_the_same_queries_search_once(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Trainings(monkeypatch)
    counted: list[int] = []
    retrieve: Callable[..., Any] = fewshot_study.retrieve

    def note(*given: Any, **more: Any) -> Any:
        counted.append(more["count"])
        return retrieve(*given, **more)

    monkeypatch.setattr(fewshot_study, "retrieve", note)
    ran(base, bank, tmp_path, systems={"one": OURS, "two": replace(OURS, soft=True)})
    assert counted == [72, 72]  # one for each draw


@pytest.mark.parametrize("name", ["draws", "per_class", "sentences", "validation", "seeds", "best"])
def test_counts_are_checked(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 0"):
        replace(SMALL, **{name: 0})


@pytest.mark.parametrize("name", ["top", "labelled", "multiple", "teachers", "rounds"])
def test_counts_of_self_training_are_checked(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is 0"):
        replace(OURS, **{name: 0})


@pytest.mark.parametrize(
    "wrong",
    [{"query": "label"}, {"select": "best"}, {"floor": 1.0}, {"weight": 0.0}, {"epochs": 0}],
)
def test_ways_of_self_training_are_checked(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=f"^{name} "):
        replace(OURS, **wrong)


def test_wrong_sets_and_other_runs_are_refused(base: str, bank: Bank, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rename it"):
        ran(base, bank, tmp_path / "out", systems={FINE_TUNED: OURS})
    examples, validation, _ = sets()
    other = as_rows(tagged(30))
    with pytest.raises(InputError, match="test rows are for tags"):
        few_shot(examples, validation, other, bank, tmp_path / "out", base=base)
    pairs = read_examples([
        {"premise": row["text"], "hypothesis": "a dog", "label": row["label"]}
        for row in classed(30)
    ])  # fmt: skip
    with pytest.raises(InputError, match="pairs"):
        few_shot(pairs, validation, validation, bank, tmp_path / "out", base=base)
    ran(base, bank, tmp_path / "out", settings=replace(SMALL, draws=1, seeds=1))
    with pytest.raises(RunMismatch, match="seeds"):
        ran(base, bank, tmp_path / "out", settings=replace(SMALL, draws=1))

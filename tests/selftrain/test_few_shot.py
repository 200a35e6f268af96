from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from tests.selftrain.labelled import ANIMALS, WATERS, as_rows, classed, tagged
from tests.tiny import read_json, salads, tiny_bank
from tests.tiny.calls import stopped, watched
from tilth.bank import Bank
from tilth.classifiers.examples import LabeledExamples, labeled_examples
from tilth.classifiers.finetune import TrainingCurve
from tilth.classifiers.load import TaskData
from tilth.classifiers.settings import Finetuning
from tilth.data.examples import Examples, read_examples
from tilth.errors import InputError
from tilth.models.classifier import Classifier
from tilth.runs import Run, RunMismatch
from tilth.selftrain import few_shot as fewshot
from tilth.selftrain.few_shot import (
    FewShotResults,
    TrainingJob,
    few_shot,
    gain_over_draws,
    highest,
    mean_over_draws,
    plan,
    summarise,
)
from tilth.selftrain.settings import FINE_TUNED, FewShot, SelfTraining

QUICK = Finetuning(epochs=3, learning_rate=3e-3, precision="float32", dropout=0.0)
OURS = SelfTraining(top=8, multiple=2)
SMALL = FewShot(
    draws=2, per_class=3, sentences=6, validation=12, seeds=2, best=1, training=QUICK,
    systems={"ours": OURS},
)  # fmt: skip


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """A bank that also holds the sentences of the test set, as a real one may."""
    tests = [f"{row['text'].capitalize()}." for row in classed(60, seed=8)]
    return tiny_bank(tmp_path_factory.mktemp("bank"), [*salads(300, seed=2), *tests])


Sets = tuple[Examples, LabeledExamples, LabeledExamples]


def sets(kind: str = "class") -> Sets:
    make = classed if kind == "class" else tagged
    examples = read_examples(make(120))
    labels = labeled_examples(examples).labels
    validation, test = (
        labeled_examples(read_examples(make(60, seed=seed)), labels) for seed in (7, 8)
    )
    return examples, validation, test


def ran(base: str, bank: Bank, out: Path, kind: str = "class", **more: Any) -> FewShotResults:
    settings = replace(SMALL, base=base, **more)
    return few_shot(task_of(*sets(kind)), bank, out, settings, device="cpu", quiet=True)


def task_of(
    examples: Examples, validation: LabeledExamples | None, test: LabeledExamples | None
) -> TaskData:
    return TaskData(examples, labeled_examples(examples), validation, test)


def parts(out: Path) -> list[list[dict[str, Any]]]:
    """Return the rows of all parts, without the time that they took."""
    asked = read_json(out / "run.json")
    run = Run(out, asked)
    found = [run.read_part(place).to_pylist() for place in range(run.parts)]
    return [[{k: v for k, v in row.items() if k != "seconds"} for row in part] for part in found]


class Trainings:
    """Takes the place of training: notes what is asked for, and gives scores in turn."""

    def __init__(self, patch: pytest.MonkeyPatch, scores: Sequence[float] = (50.0,)) -> None:
        self.classifiers: list[Classifier] = []
        self.rows: list[LabeledExamples] = []
        self.settings: list[Finetuning] = []
        self._scores = scores
        patch.setattr(fewshot, "fine_tune", self)

    def __call__(
        self, classifier: Classifier, rows: LabeledExamples, validation: LabeledExamples,
        settings: Finetuning, *, quiet: bool,
    ) -> TrainingCurve:  # fmt: skip
        self.classifiers.append(classifier)
        self.rows.append(rows)
        self.settings.append(settings)
        score = self._scores[(len(self.rows) - 1) % len(self._scores)]
        return TrainingCurve([1], [0.5], [score], [0.5], [True])


def test_a_plan_has_each_part_after_what_it_needs() -> None:
    jobs = plan(replace(SMALL, systems={"one": OURS, "two": OURS}))
    assert len(jobs) == len(set(jobs)) == 2 * (2 + 3 + 3)
    assert jobs[:5] == [
        TrainingJob(0, FINE_TUNED, 0), TrainingJob(0, FINE_TUNED, 1), TrainingJob(0, "one"),
        TrainingJob(0, "one", 0), TrainingJob(0, "one", 1),
    ]  # fmt: skip
    assert [job.draw for job in jobs] == [0] * 8 + [1] * 8


def test_a_summary_takes_the_best_by_validation() -> None:
    rows = []
    scores = {
        FINE_TUNED: [[(80, 60), (90, 70), (85, 64)], [(80, 50), (70, 90), (75, 54)]],
        "ours": [[(80, 71), (90, 75), (10, 0)], [(50, 0), (60, 58), (70, 60)]],
    }
    for system, draws in scores.items():
        for number, seeds in enumerate(draws):
            for seed, (validation, test) in enumerate(seeds):
                rows.append({
                    "draw": number, "system": system, "seed": seed, "choice": float(validation),
                    "test": float(test), "rows": 10 + (system == "ours"),
                })  # fmt: skip
    found = summarise(rows, "accuracy", replace(SMALL, best=2))
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
    jobs = plan(SMALL)
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
    results = read_json(tmp_path / "out" / "results.json")
    assert results["scores"]["ours"]["mean"] == pytest.approx(found.scores["ours"].mean)
    assert len(results["trainings"]) == 8
    assert (results["validation set"], results["test set"]) == (12, 60)
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


TWO_WAYS: dict[str, Any] = {
    "systems": {"one": OURS, "two": replace(OURS, teachers=2)}, "draws": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(
    base: str, bank: Bank, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FewShotResults, Path]:
    """A run that nothing stopped."""
    out = tmp_path_factory.mktemp("whole")
    return ran(base, bank, out, **TWO_WAYS), out


@pytest.mark.parametrize("after", [1, 4, 6])
def test_a_stopped_run_goes_on(
    base: str, bank: Bank, tmp_path: Path, after: int, whole: tuple[FewShotResults, Path]
) -> None:
    with stopped(fewshot._Study, "do", after):
        ran(base, bank, tmp_path / "out", **TWO_WAYS)
    # The weights of teachers are made again.
    assert ran(base, bank, tmp_path / "out", **TWO_WAYS) == whole[0]
    assert parts(tmp_path / "out") == parts(whole[1])


def test_the_best_teach_and_no_others_are_kept(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = Trainings(monkeypatch, [60.0, 70.0, 65.0, 50.0])
    kept: list[set[int]] = []
    do: Callable[..., Any] = fewshot._Study.do

    def look(self: fewshot._Study, job: TrainingJob) -> Any:
        table = do(self, job)
        kept.append(set(self._best))
        return table

    monkeypatch.setattr(fewshot._Study, "do", look)
    labelled = watched(monkeypatch, fewshot, "label_sentences")
    systems = {"one": OURS, "two": replace(OURS, teachers=2)}
    ran(base, bank, tmp_path, systems=systems, seeds=3, draws=1)
    assert kept[:4] == [{0}, {0, 1}, {1, 2}, {1, 2}]
    second, third = (id(one) for one in trainings.classifiers[1:3])
    assert [list(map(id, given[1])) for given, _ in labelled] == [[second], [second, third]]
    assert len(trainings.classifiers) == 3 + 3 + 3  # none was trained twice


@pytest.fixture
def learned(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[LabeledExamples, Finetuning]]:
    """Give what the first student of one draw learns from, and how."""

    def learn(name: str = "out", **more: Any) -> tuple[LabeledExamples, Finetuning]:
        trainings = Trainings(monkeypatch)
        ran(base, bank, tmp_path / name, draws=1, seeds=1, systems={"x": replace(OURS, **more)})
        return trainings.rows[1], trainings.settings[1]

    return learn


def test_labelled_rows_stay_in_and_labels_are_hard_or_soft(
    learned: Callable[..., tuple[LabeledExamples, Finetuning]],
) -> None:
    hard, _ = learned("hard")
    assert hard.targets[:9].sum(axis=0).tolist() == [3, 3, 3]
    words = [set(text.split()) for (text,) in hard.texts[:9]]
    kinds = [bool(some & set(ANIMALS)) + 2 * bool(some & set(WATERS)) for some in words]
    assert sorted(kinds) == [0] * 3 + [1] * 3 + [2] * 3
    assert set(np.unique(hard.targets)) == {0.0, 1.0}
    soft, _ = learned("soft", soft=True)
    assert soft.texts == hard.texts
    assert ((soft.targets[9:] > 0) & (soft.targets[9:] < 1)).all()
    assert np.array_equal(soft.targets.argmax(axis=1), hard.targets.argmax(axis=1))
    assert hard.weights is None


def test_settings_of_self_training_are_heeded(
    learned: Callable[..., tuple[LabeledExamples, Finetuning]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = watched(monkeypatch, fewshot, "retrieve")
    plain, settings = learned("plain")
    assert settings.epochs == QUICK.epochs
    assert len(learned("near", top=5)[0]) <= 9 + 18
    learned("query", query="per-sentence")
    assert [(given[2], given[3].query) for given, _ in asked] == [
        (72, "label-average"), (45, "label-average"), (72, "per-sentence")
    ]  # fmt: skip
    some, _ = learned("labelled", labelled_per_row=3)
    assert set(some.texts) != set(plain.texts)
    more, _ = learned("multiple", multiple=4)
    assert len(more) > len(learned("fewer", multiple=1)[0])
    heavy, settings = learned("heavy", weight=5.0, epochs=7)
    assert heavy.weights[:9].tolist() == [5.0] * 9
    assert set(heavy.weights[9:].tolist()) == {1.0}
    assert settings.epochs == 7


def test_trainings_have_seeds_of_their_own_and_are_measured_ten_times(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = Trainings(monkeypatch)
    ran(base, bank, tmp_path, training=replace(QUICK, seed=5, epochs=40), seeds=3, draws=1)
    assert [one.seed for one in trainings.settings] == [5, 6, 7] * 2
    assert trainings.settings[0].evaluate_every == 4  # of 40 steps
    assert [len(rows) for rows in trainings.rows[:3]] == [9] * 3


def test_two_ways_with_the_same_queries_search_once(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Trainings(monkeypatch)
    asked = watched(monkeypatch, fewshot, "retrieve")
    ran(base, bank, tmp_path, systems={"one": OURS, "two": replace(OURS, soft=True)})
    assert [given[2] for given, _ in asked] == [72, 72]  # one for each draw


def test_seeds_share_no_draw(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    for seed in (0, 1):
        trainings = Trainings(monkeypatch)
        ran(base, bank, tmp_path / str(seed), seed=seed, draws=3, seeds=1)
        drawn += [frozenset(rows.texts) for rows in trainings.rows if len(rows) == 9]
    assert len(drawn) == len(set(drawn)) == 6


def test_all_rows_are_one_draw(
    base: str, bank: Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = Trainings(monkeypatch)
    ran(base, bank, tmp_path, draws=1, per_class=None, seeds=1)
    (examples, validation, test) = sets()
    barred = {*validation.texts, *test.texts}
    chosen = [texts for texts in trainings.rows[0].texts if texts in barred]
    assert set(trainings.rows[0].texts) == set(examples.texts) - barred
    assert not chosen
    with pytest.raises(InputError, match="draws is 2: all rows are one draw"):
        replace(SMALL, per_class=None)


def test_wrong_sets_and_other_runs_are_refused(base: str, bank: Bank, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rename it"):
        replace(SMALL, systems={FINE_TUNED: OURS})
    examples, validation, test = sets()
    settings = replace(SMALL, base=base)

    def refused(said: str, *given: Any) -> None:
        with pytest.raises(InputError, match=said):
            few_shot(task_of(*given), bank, tmp_path / "out", settings)

    refused("test rows are for tags", examples, validation, as_rows(tagged(30)))
    refused("the task has no validation rows", examples, None, test)
    refused("the task has no test rows", examples, validation, None)
    pairs = read_examples([
        {"premise": row["text"], "hypothesis": "a dog", "label": row["label"]}
        for row in classed(30)
    ])  # fmt: skip
    refused("pairs", pairs, validation, validation)
    ran(base, bank, tmp_path / "out", draws=1, seeds=1)
    with pytest.raises(RunMismatch, match="seeds"):
        ran(base, bank, tmp_path / "out", draws=1)


def test_the_best_by_validation_count() -> None:
    validation, test = [50.0, 80.0, 80.0, 70.0, 60.0], [99.0, 10.0, 20.0, 30.0, 98.0]
    assert highest(validation, 2) == [1, 2]
    trainings = [
        {"draw": 0, "system": FINE_TUNED, "rows": 5, "choice": one, "test": two}
        for one, two in zip(validation, test, strict=True)
    ]
    for best, expected in ((3, 20.0), (1, 10.0), (9, np.mean(test))):  # of equal ones the first
        settings = FewShot(draws=1, seeds=5, best=best, systems={})
        assert summarise(trainings, "accuracy", settings).scores[FINE_TUNED].mean == expected


def test_mean_deviation_and_interval() -> None:
    values = [70.0, 74.0, 71.0, 77.0, 73.0]
    found = mean_over_draws(values)
    assert found.mean == pytest.approx(73.0)
    assert found.deviation == pytest.approx(np.std(values, ddof=1))
    interval = ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(interval))
    assert found.draws == tuple(values)
    equal = mean_over_draws([70.0, 70.0])
    assert (equal.mean, equal.deviation, equal.low, equal.high) == (70.0, 0.0, None, None)
    assert mean_over_draws([100 * 251 / 500] * 3).low is None
    alone = mean_over_draws([70.0])
    assert (alone.mean, alone.deviation, alone.low, alone.high) == (70.0, None, None, None)


def test_a_gain_is_paired() -> None:
    found = gain_over_draws([60.0, 80.0, 70.0], [62.0, 81.0, 73.0])
    assert found.draws == (2.0, 1.0, 3.0)
    assert found.mean == pytest.approx(2.0)
    assert found.deviation == pytest.approx(1.0)
    with pytest.raises(ValueError, match="zip"):
        gain_over_draws([60.0], [61.0, 62.0])

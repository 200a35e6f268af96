"""`tilth grow`: its search with fakes, its inputs, and whole runs on tiny models."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets import Dataset

import tilth
from tests.conftest import use_quick_baselines
from tests.selftrain.labelled import as_rows, classed
from tests.tiny import read_json, salads, save_encoder, write_lines, write_rows
from tests.tiny.models import save_model, word_tokenizer
from tests.tiny.rows import SENTENCES
from tests.workflows.grown import check_resume, run_grow
from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.load import repeat_count
from tilth.classifiers.settings import LABELLED_SHARE
from tilth.data.sources import load_folder
from tilth.data.writer import DatasetWriter
from tilth.errors import InputError, TilthError
from tilth.generation.generate import GenerateRequest
from tilth.generation.label_fit import warn_of_likes
from tilth.models import load_encoder
from tilth.models.classifier import load_classifier
from tilth.models.trainer import is_whole, save_whole
from tilth.paraphrase.settings import RewriteSettings
from tilth.report.systems import AVERAGE, CONTRAST, ENCODER, MAJORITY, SETFIT, TFIDF
from tilth.runs import Run, RunMismatch
from tilth.storage import remove
from tilth.view.runs import FINISHED as DONE
from tilth.view.runs import STOPPED, _run_entry
from tilth.workflows.grow import grow as growing
from tilth.workflows.grow import notes
from tilth.workflows.grow.arms import (
    BY_DESCRIPTION,
    PLAIN,
    SELF_TRAINED,
    TRAINED,
    Arm,
    Bases,
    Grown,
    Teacher,
    Trainer,
    arms_of,
    encoders_of,
    temperature_of,
    tempered,
)
from tilth.workflows.grow.heads import Heads
from tilth.workflows.grow.pair_sources import PairSources
from tilth.workflows.grow.search import FINISHED, OVER, SURE, Search, rung_bounds
from tilth.workflows.grow.settings import GrowSources, Growth
from tilth.workflows.grow.sources import (
    DESCRIBED,
    DESCRIPTIONS,
    LABELLED,
    PARAPHRASED,
    RETRIEVED,
    REWRITES,
    RowsByOrigin,
    Sources,
)
from tilth.workflows.grow.speeds import Speeds
from tilth.workflows.grow.task import (
    ALIKE,
    DOMAIN,
    Fold,
    GrowTask,
    check_raw,
    domain_similarity,
    folds_of,
    is_bank,
    open_raw,
    read_grow_task,
    whole_fold,
)

LABELS = """
task_name: pond
labels:
  animal: a dog, a cat or a bird
  water: the sea, a river or a boat
  none: a market, a train or the sun
"""


def task_of(count: int = 60) -> GrowTask:
    rows = as_rows(classed(count))
    return GrowTask(rows.labels, None, rows, None, None, None)


def test_labelled_rows_that_another_set_holds_are_left_out(tmp_path: Path) -> None:
    rows = classed(60)
    test = [{**row, "text": row["text"].upper() + " !"} for row in rows[:9]]
    test += classed(3, seed=9)
    task = read_grow_task(
        GrowSources(
            str(write_rows(tmp_path / "train.jsonl", rows)),
            test=str(write_rows(tmp_path / "test.jsonl", test)),
        )
    )
    assert (len(task.rows), task.rows.texts[0]) == (51, (rows[9]["text"],))


def test_texts_that_differ_in_case_alone_are_one_row(caplog: pytest.LogCaptureFixture) -> None:
    rows = classed(60)
    again = [{**row, "text": f"{row['text'].upper()}!"} for row in rows[:20]]
    other = [{"text": rows[30]["text"].title(), "label": rows[31]["label"]}]
    task = read_grow_task(GrowSources([*rows, *again, *other]))
    assert [text for (text,) in task.rows.texts] == [
        row["text"] for row in rows if row is not rows[30]
    ]
    assert "1 texts have, but for case and punctuation, several labels" in caplog.text


def test_labels_in_memory_are_described_as_in_a_file(tmp_path: Path) -> None:
    described = {"animal": "about a dog", "water": "about the sea", "none": "another thing"}
    file = tmp_path / "labels.json"
    spec = {"task_name": "labels", "labels": described}
    file.write_text(json.dumps(spec))
    tasks = [
        read_grow_task(GrowSources(classed(30), labels=labels)).task
        for labels in (described, spec, str(file))
    ]
    assert tasks[0] == tasks[1] == tasks[2]
    assert tasks[0] is not None
    few = GrowSources(classed(30), labels={"animal": "about a dog", "water": "about the sea"})
    with pytest.raises(InputError, match="the labels given: label 'none' of the rows given is not"):
        read_grow_task(few)
    with pytest.raises(InputError, match="task 'labels' has one label"):
        read_grow_task(GrowSources(classed(30), labels={"animal": "about a dog"}))


def test_rows_in_memory_are_read_as_those_of_files(tmp_path: Path) -> None:
    rows = classed(60)
    train, test, validation = rows[:40], rows[40:50], rows[50:]
    files = read_grow_task(
        GrowSources(
            str(write_rows(tmp_path / "train.jsonl", train)),
            test=str(write_rows(tmp_path / "test.jsonl", test)),
            validation=str(write_rows(tmp_path / "validation.jsonl", validation)),
        )
    )
    given = GrowSources(
        Dataset.from_list(train), test=Dataset.from_list(test).to_pandas(), validation=validation
    )
    held = read_grow_task(given)
    for name in ("rows", "test", "validation"):
        assert getattr(held, name).fingerprint() == getattr(files, name).fingerprint()
    assert {given.named()[name] for name in ("train", "test", "validation")} == {"the rows given"}
    for few in (classed(3), [*classed(1), *classed(3)[1:2], *classed(3)[1:2]]):
        with pytest.raises(InputError, match=r"the rows given: label '.*' has 1 row"):
            read_grow_task(GrowSources(few))
    assert len(read_grow_task(GrowSources(classed(3), validation=validation)).rows) == 3
    graded = [{"text": row["text"], "label": n / 7} for n, row in enumerate(classed(9), 1)]
    with pytest.raises(InputError, match="holds fractions: grow takes single texts with one class"):
        read_grow_task(GrowSources(graded))
    with pytest.raises(InputError, match=r"is in the training set \(the rows given\)"):
        read_grow_task(GrowSources(train, test=train))
    twice = [{"text": "x", "label": label} for label in "ab"]
    with pytest.raises(InputError, match="no text has one label"):
        read_grow_task(GrowSources(twice))


def test_folds_divide_the_rows_of_each_label_alike() -> None:
    task = task_of(45)
    folds = folds_of(task, 5, 2, seed=0)
    assert [fold.number for fold in folds] == list(range(10))
    for repeat in (folds[:5], folds[5:]):
        assert sorted(np.concatenate([fold.held for fold in repeat])) == list(range(45))
        for fold in repeat:
            assert not set(fold.train) & set(fold.held)
            assert np.asarray(fold.rows.targets).sum(axis=0).tolist() == [3, 3, 3]
    assert folds[0].held.tolist() != folds[5].held.tolist()
    again = folds_of(task, 5, 2, seed=0)
    assert [fold.held.tolist() for fold in again] == [fold.held.tolist() for fold in folds]
    assert folds_of(task, 5, 1, seed=1)[0].held.tolist() != folds[0].held.tolist()


@pytest.mark.parametrize(("rows", "count"), [(6, 2), (9, 3), (12, 4), (18, 5)])
def test_each_label_lacks_as_many_rows_as_others_in_a_fold(rows: int, count: int) -> None:
    folds = folds_of(task_of(rows), 5, 2, seed=0)
    assert [fold.number for fold in folds] == list(range(2 * count))  # each is a part of the run
    assert [fold.repeat for fold in folds] == [0] * count + [1] * count
    for fold in folds:
        held = np.asarray(fold.rows.targets).sum(axis=0)  # (labels,)
        assert held.max() - held.min() <= (count == 5)  # 5 folds of 6 rows of a label


def test_the_only_row_of_a_label_is_learnt_from_and_not_measured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    few = [*classed(30), {"text": "a lone row", "label": "rare"}]
    task = read_grow_task(GrowSources(few))
    (line,) = caplog.messages
    assert line.startswith("the rows given: one row of 'rare': it is learnt from")
    lone = task.rows.texts.index(("a lone row",))
    folds = folds_of(task, 5, 2, seed=0)
    assert [fold.number for fold in folds] == list(range(10))
    assert all(lone in fold.train and lone not in fold.held for fold in folds)
    held = np.concatenate([fold.held for fold in folds])
    assert sorted(held.tolist()) == sorted([*(set(range(31)) - {lone})] * 2)


def test_validation_rows_take_the_place_of_folds() -> None:
    held = as_rows(classed(9, seed=3))
    folds = folds_of(replace(task_of(), validation=held), 5, 3, seed=0)
    assert [len(fold.train) for fold in folds] == [60] * 3
    assert all(fold.rows is held for fold in folds)


@pytest.mark.parametrize(
    ("rows", "repeats", "bounds"),
    [(60, 2, [2, 5, 10]), (60, 1, [2, 5]), (9, 2, [2, 3, 6]), (6, 1, [1, 2])],
)
def test_rungs_measure_each_row_once_before_again(
    rows: int, repeats: int, bounds: list[int]
) -> None:
    assert rung_bounds(folds_of(task_of(rows), 5, repeats, seed=0)) == bounds


def test_rungs_with_validation_rows_and_without_rows() -> None:
    task = replace(task_of(), validation=as_rows(classed(9, seed=3)))
    assert rung_bounds(folds_of(task, 5, 4, seed=0)) == [2, 4]
    assert rung_bounds([]) == []


@dataclass
class FakeTrainer:
    """Answers rightly with a chance that its arm has."""

    task: GrowTask
    chances: dict[str, float]
    sources: Any = field(default_factory=lambda: SimpleNamespace(settings=Growth()))
    teacher: Teacher = field(default_factory=Teacher)
    alone_is: str | None = PLAIN  # None: the teacher
    trained: list[tuple[str, int]] = field(default_factory=list)
    taught: dict[str, Teacher] = field(default_factory=dict)
    stop: int | None = None

    @property
    def alone(self) -> str:
        return self.alone_is or self.teacher.arm

    def answers(self, arm: Arm, fold: Fold) -> Any:
        if self.stop is not None and len(self.trained) == self.stop:
            raise KeyboardInterrupt
        self.trained.append((arm.name, fold.number))
        self.taught[arm.name] = self.teacher
        luck = np.random.default_rng((*arm.name.encode(), fold.number)).random(len(fold.rows))
        gold = np.asarray(fold.rows.targets)
        right = luck < self.chances.get(arm.name, 0.5)
        given = np.where(right[:, None], gold, np.roll(gold, 1, axis=1))
        return 0.8 * given + 0.1

    def forget(self) -> None:
        pass


ARMS = [
    Arm(MAJORITY), Arm(SETFIT), Arm(PLAIN), Arm("half", share=0.5), Arm("a", ("A",)),
    Arm("b", ("B",)), Arm("c", ("C",)), Arm("d", ("D",)), Arm("a + b", ("A", "B")),
    Arm("a + c", ("A", "C")), Arm("all", ("A", "B", "C", "D")),
]  # fmt: skip


def search_in(
    folder: Path, chances: dict[str, float], *, stop: int | None = None, **settings: Any
) -> tuple[Search, Run, list[str]]:
    task = task_of(200)
    settings = {"budget": "10h", "margin": 0.0, **settings}
    how = Growth(**settings)
    folds = folds_of(task, 5, 2, seed=0)
    run = Run.open(
        folder, command="grow", settings={}, fingerprints={}, parts=len(ARMS) * len(folds)
    )
    kept: list[str] = []
    speeds: Any = SimpleNamespace(seconds=lambda *_: 10.0)
    trainer: Any = FakeTrainer(task, chances, stop=stop)
    search = Search(
        run, ARMS, folds, rung_bounds(folds), trainer, speeds, how,
        lambda arm: kept.append(arm.name), quiet=True,
    )  # fmt: skip
    return search, run, kept


CHANCES = {
    MAJORITY: 0.3, PLAIN: 0.6, "half": 0.5, "a": 0.8, "b": 0.7, "c": 0.4, "d": 0.3, "a + b": 0.85,
}  # fmt: skip


def test_worse_half_is_dropped_and_the_best_are_mixed(tmp_path: Path) -> None:
    search, run, kept = search_in(tmp_path / "run", CHANCES)
    with run:
        assert search.go() == FINISHED
    counts = {arm.name: len(search.done(arm)) for arm in ARMS}
    assert counts == {
        MAJORITY: 10, SETFIT: 5, PLAIN: 10, "half": 5, "a": 10, "b": 10, "c": 2, "d": 2,
        "a + b": 10, "a + c": 0, "all": 5,
    }  # fmt: skip
    best = search.best()
    assert best is not None
    assert best.name == kept[-1] == "a + b"
    assert {one: arm.name for one, arm in search.without(best).items()} == {"A": "b", "B": "a"}
    gain = search.gain(best, search.reference)
    assert gain is not None
    assert gain.low is not None
    assert gain.low > 0
    assert gain.value == pytest.approx(
        search.score(best).value - search.score(search.reference).value
    )
    assert search.gain(ARMS[9], best) is None  # never tried


def test_what_a_source_costs_is_measured_on_all_folds_of_the_best(tmp_path: Path) -> None:
    chances = {**CHANCES, "a": 0.55, "b": 0.6, "c": 0.1, "d": 0.1, "all": 0.9}
    search, run, _ = search_in(tmp_path / "run", chances)
    named = {arm.name: arm for arm in ARMS}
    with run:
        search.go()
        trained: Any = search.trainer
        before = len(trained.trained)
        assert search.ablate(named["a + b"])
        new = trained.trained[before:]
        assert {name for name, _ in new} <= {"a", "b"}
        assert len(search.done(named["a"])) == len(search.done(named["a + b"]))
        assert not search.ablate(named["a + b"])  # nothing is tried twice
        assert search.without(named["b"]) == {"B": search.reference}
        assert not search.ablate(named[PLAIN])
        search.settings = Growth(budget="1s")
        assert not search.ablate(named["all"])


@pytest.mark.parametrize(("seconds", "why"), [(10.0, SURE), (1e9, OVER)])
def test_a_search_ends_when_nothing_can_gain_the_margin(
    tmp_path: Path, seconds: float, why: str
) -> None:
    search, run, kept = search_in(tmp_path / "run", {PLAIN: 1.0}, margin=5.0)
    search.speeds = SimpleNamespace(seconds=lambda arm, *_: seconds if arm.name == "d" else 10.0)
    with run:
        assert search.go() == why  # what is not tried for its cost might gain more
    assert {len(search.done(arm)) for arm in ARMS} == {0, 2}
    assert kept[-1] == PLAIN


def test_a_search_ends_with_the_budget_and_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    search, run, kept = search_in(tmp_path / "run", CHANCES, budget="15s")
    with run:  # a fake training takes no time once it is measured
        search.spent_before = 0.0
        assert search.go() == OVER
    assert kept == []
    search, run, _ = search_in(tmp_path / "run", CHANCES, budget="15s")
    with run:
        assert search.go() == OVER
    search, run, kept = search_in(tmp_path / "run", CHANCES)
    with run:
        assert search.go() == FINISHED
    assert kept[-1] == "a + b"


def test_a_trial_leaves_time_to_train_what_it_measures_on_all_rows(tmp_path: Path) -> None:
    search, run, _ = search_in(tmp_path / "run", CHANCES, budget="100s")
    search.speeds = SimpleNamespace(  # type: ignore[assignment]
        seconds=lambda arm, *_: 40.0 if arm.sources else 1.0
    )
    plain, dear = ARMS[2], ARMS[4]
    with run:
        search._try(plain, search.folds[0])
        search.spent_before = 10.0
        assert not search._is_over(dear, 1)
        search.spent_before = 20.0  # 40 to try it, 41 to keep it and what it is compared with
        assert search._is_over(dear, 1)


@pytest.mark.parametrize("is_quick", [False, True])
def test_the_first_round_keeps_what_is_surely_better_and_quick(
    tmp_path: Path, *, is_quick: bool
) -> None:
    chances = {**CHANCES, "a": 0.95}
    search, run, _ = search_in(tmp_path / "run", chances, budget="1h")
    search.reserve = lambda: 0.0  # type: ignore[method-assign]
    search._last = lambda _: 1.0 if is_quick else 300.0  # type: ignore[method-assign]
    kept: list[str] = []

    def keep(arm: Arm) -> None:
        kept.append(arm.name)
        save_whole(run.path / "unfinished", run.path / "model", Path.mkdir)
        run.write_results({"arm": arm.name})

    search.keep = keep
    with run:
        assert not search._rung(ARMS[:5], search.folds[:2], 0)
    assert kept == {False: [PLAIN, "a"], True: [PLAIN, "a", "a"]}[is_quick]


def test_the_reference_is_tried_first_and_the_learning_curve_last(tmp_path: Path) -> None:
    search, run, _ = search_in(tmp_path / "run", CHANCES)
    search.speeds = SimpleNamespace(seconds=lambda arm, *_: 10.0 * arm.share)
    with run:
        search.go()
    trained: Any = search.trainer
    names = list(dict.fromkeys(name for name, _ in trained.trained))
    assert names[:8] == [MAJORITY, PLAIN, SETFIT, "a", "b", "c", "d", "half"]


@pytest.mark.parametrize(
    ("contrast", "setfit", "average", "better"),
    [
        (0.35, 0.9, 0.4, SETFIT),
        (0.7, 0.35, 0.4, CONTRAST),
        (0.35, 0.4, 0.82, AVERAGE),
        (0.82, 0.83, 0.81, AVERAGE),
    ],
)
def test_the_best_encoder_teaches_and_a_resumed_search_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contrast: float, setfit: float,
    average: float, better: str,
) -> None:  # fmt: skip
    arms = [Arm(AVERAGE), Arm(CONTRAST), *ARMS]
    monkeypatch.setattr("tests.workflows.test_grow.ARMS", arms)
    chances = {**CHANCES, CONTRAST: contrast, SETFIT: setfit, AVERAGE: average}
    search, run, kept = search_in(tmp_path / "run", chances)
    trainer: Any = search.trainer
    trainer.alone_is = None
    with run:
        assert search.go() == FINISHED
    assert trainer.teacher.arm == better == search.reference.name == search.teacher.name
    assert trainer.teacher.temperature != 1.0
    assert trainer.taught["a"] == trainer.taught["half"] == trainer.teacher
    names = list(dict.fromkeys(name for name, _ in trainer.trained))
    assert names.index(CONTRAST) < names.index(SETFIT) < names.index(AVERAGE) < names.index("a")
    counts = {arm.name: len(search.done(arm)) for arm in search.arms}
    assert counts[better] == 10
    worse = {SETFIT: CONTRAST, CONTRAST: SETFIT, AVERAGE: MAJORITY}[better]
    assert (counts[worse] < 10) == (better != AVERAGE)
    assert kept[-1] == ("a + b" if better == CONTRAST else better)  # by a standard error
    again, run, _ = search_in(tmp_path / "run", chances)  # the kept model may be trained first
    with run:
        assert again.trainer.teacher == trainer.teacher


@pytest.mark.parametrize(("plain", "better"), [(0.95, PLAIN), (0.55, CONTRAST)])
def test_the_fine_tuned_base_teaches_if_it_is_surely_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: float, better: str
) -> None:
    monkeypatch.setattr("tests.workflows.test_grow.ARMS", [Arm(CONTRAST), *ARMS])
    chances = {**CHANCES, CONTRAST: 0.5, SETFIT: 0.1, PLAIN: plain}
    search, run, _ = search_in(tmp_path / "run", chances)
    trainer: Any = search.trainer
    trainer.alone_is = None
    with run:
        search.go()
    assert trainer.teacher.arm == better == search.reference.name


@pytest.mark.parametrize("teacher", [CONTRAST, PLAIN])
def test_mixtures_are_weighted_where_students_share_an_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, teacher: str
) -> None:
    weighted = [Arm(f"{name}, half", tuple(name.upper().split(" + ")), weight=0.5)
                for name in ("a + b", "a + c", "a")]  # fmt: skip
    monkeypatch.setattr("tests.workflows.test_grow.ARMS", [Arm(CONTRAST), *ARMS, *weighted])
    chances = {**CHANCES, PLAIN: 0.95 if teacher == PLAIN else 0.5, CONTRAST: 0.5, SETFIT: 0.1,
               "a + b, half": 0.96}  # fmt: skip
    search, run, kept = search_in(tmp_path / "run", chances)
    trainer: Any = search.trainer
    trainer.alone_is = None
    with run:
        search.go()
    counts = {arm.name: len(search.done(arm)) for arm in search.arms}
    assert counts["a + c, half"] == 0  # the best two sources are a and b
    assert (counts["a + b, half"] > 0) == (teacher == CONTRAST)
    assert kept[-1] == (PLAIN if teacher == PLAIN else "a + b, half")
    assert counts["a, half"] == 0  # tried where a mixture that is kept is ablated
    half = weighted[-1]
    assert search.without(weighted[0]) == {"B": half, "A": search.reference}
    named = {arm.name: arm for arm in search.arms}
    assert search.without(named["a + b"]) == {"B": named["a"], "A": named["b"]}


@pytest.mark.parametrize(("chance", "kept"), [(0.62, False), (0.75, True)])
def test_a_way_with_sources_is_kept_if_it_leads_by_a_standard_error(
    tmp_path: Path, chance: float, *, kept: bool
) -> None:
    chances = dict.fromkeys(CHANCES, 0.3) | {PLAIN: 0.6, "a": chance}
    search, run, _ = search_in(tmp_path / "run", chances)
    named = {arm.name: arm for arm in ARMS}
    with run:
        for fold in search.folds[:5]:
            for name in (PLAIN, "a"):
                search._try(named[name], fold)
    gain = search.gain(named["a"], named[PLAIN])
    assert gain is not None
    assert gain.low is not None
    error = (gain.value - gain.low) / 1.96
    assert kept == (gain.value > error)
    assert search.best() == named["a" if kept else PLAIN]
    said = notes.lucky_ways(search, named[PLAIN])
    assert said == ([] if kept else [
        "Ahead of what is kept by so little that it may be chance: a. Its gain: "
        f"{notes.shown(gain)}. More labelled rows would tell."
    ])  # fmt: skip


SECOND = SELF_TRAINED[1].name


@pytest.mark.parametrize(
    ("again", "mixture", "apart", "kept"),
    [
        (0.3, 0.3, 0.5, CONTRAST),  # the reference leads it
        (0.6, 0.6, 0.5, SECOND),
        (0.58, 0.62, 0.5, SECOND),
        (0.6, 0.9, 0.5, "a"),
        (0.6, 0.6, 0.9, CONTRAST),  # raw text is unlike the task's
    ],
)
def test_the_second_round_is_kept_unless_another_way_leads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: float, mixture: float,
    apart: float, kept: str,
) -> None:  # fmt: skip
    arms = [Arm(CONTRAST), *ARMS, SELF_TRAINED[1]]
    monkeypatch.setattr("tests.workflows.test_grow.ARMS", arms)
    chances = dict.fromkeys(CHANCES, 0.3) | {CONTRAST: 0.6, SECOND: again, "a": mixture}
    search, run, _ = search_in(tmp_path / "run", chances)
    trainer: Any = search.trainer
    trainer.alone_is = CONTRAST
    named = {arm.name: arm for arm in arms}
    with run:
        run.resolve(DOMAIN, lambda: {"apart": apart})
        assert search.best() is None
        for fold in search.folds[:5]:
            search._try(named[CONTRAST], fold)
        assert search.best() == search.default == named[CONTRAST]
        for fold in search.folds[:5]:
            for name in (SECOND, "a"):
                search._try(named[name], fold)
    assert search.best() == named[kept]
    assert search.default == named[CONTRAST if kept == CONTRAST else SECOND]
    said = notes.kept_by_default(search, named[kept])
    assert [SECOND in one for one in said] == [True] * (kept == SECOND)
    assert search.default.name in search._survivors(arms, 1)
    trainer.alone_is = PLAIN  # of a fine-tuned base it is another way
    assert search.default == named[PLAIN]


@pytest.mark.parametrize("right", [0.3, 0.9])
def test_no_second_round_is_the_default_behind_the_commonest_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: float
) -> None:
    arms = [Arm(MAJORITY), Arm(CONTRAST), *ARMS, SELF_TRAINED[1]]
    monkeypatch.setattr("tests.workflows.test_grow.ARMS", arms)
    chances = dict.fromkeys(CHANCES, 0.3) | {CONTRAST: 0.6, SECOND: 0.6, MAJORITY: right}
    search, run, _ = search_in(tmp_path / "run", chances)
    trainer: Any = search.trainer
    trainer.alone_is = CONTRAST
    named = {arm.name: arm for arm in arms}
    with run:
        run.resolve(DOMAIN, lambda: {"apart": 0.5})
        for fold in search.folds[:5]:
            for name in (MAJORITY, CONTRAST, SECOND):
                search._try(named[name], fold)
    assert search.default == named[CONTRAST if right == 0.9 else SECOND]


@pytest.mark.parametrize(("both", "kept"), [(0.6, 0), (0.3, 1)])
def test_a_second_round_with_descriptions_is_the_default_before_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: float, kept: int
) -> None:
    arms = [Arm(CONTRAST), *ARMS, *SELF_TRAINED]
    monkeypatch.setattr("tests.workflows.test_grow.ARMS", arms)
    names = [arm.name for arm in SELF_TRAINED]
    chances = dict.fromkeys(CHANCES, 0.3) | {CONTRAST: 0.6, names[0]: both, names[1]: 0.6}
    search, run, _ = search_in(tmp_path / "run", chances)
    trainer: Any = search.trainer
    trainer.alone_is = CONTRAST
    with run:
        run.resolve(DOMAIN, lambda: {"apart": 0.5})
        for arm in (arms[0], SELF_TRAINED[1]):
            for fold in search.folds[:5]:
                search._try(arm, fold)
        assert search.default == SELF_TRAINED[1]  # the other one is not measured yet
        for fold in search.folds[:5]:
            search._try(SELF_TRAINED[0], fold)
    assert search.default == SELF_TRAINED[kept]


def test_a_rung_that_the_budget_ends_does_not_drop_what_it_has_not_measured(tmp_path: Path) -> None:
    search, run, kept = search_in(tmp_path / "run", CHANCES, budget="1h")
    named = {arm.name: arm for arm in ARMS}
    search.speeds = SimpleNamespace(seconds=lambda *_: 0.0)
    real = search._is_over

    def over(arm: Arm, trials: int) -> bool:  # in the second rung all but the reference
        second = len(search.done(named["a + b"])) == 2 and arm.name != PLAIN
        return second or real(arm, trials)

    search._is_over = over  # type: ignore[method-assign]
    with run:
        assert search.go() == OVER
        counts = {arm.name: len(search.done(arm)) for arm in ARMS}
        assert (counts[PLAIN], counts["a"], counts["b"], counts["a + b"]) == (5, 2, 2, 2)
        best = search.best()
        assert best is not None
        assert best.name in {"a", "b", "a + b"}  # by gains on two folds
        assert kept[-1] == best.name


def test_without_the_reference_the_best_score_is_kept(tmp_path: Path) -> None:
    search, run, _ = search_in(tmp_path / "run", CHANCES)
    named = {arm.name: arm for arm in ARMS}
    with run:
        for name in (SETFIT, "b", "a", "c"):
            search._try(named[name], search.folds[0])
        assert search.best() == named["a"]


@pytest.mark.parametrize(("took", "pace"), [(10.0, 0.5), (100.0, 1.0), (150.0, 1.5), (900.0, 2.0)])
def test_an_estimate_follows_the_pace_of_the_trials(
    took: float, pace: float, tmp_path: Path
) -> None:
    search, run, _ = search_in(tmp_path / "run", CHANCES)
    search.speeds = SimpleNamespace(seconds=lambda arm, *_: 5.0 if arm.name == MAJORITY else 100.0)
    quick, trained, other = (arm for arm in ARMS if arm.name in (MAJORITY, PLAIN, "a"))
    with run:
        for arm in (quick, trained):
            assert search.cost(other) == 100.0
            search._try(arm, search.folds[0])
        search._seconds[search._index(trained, search.folds[0])] = took
        assert search.cost(trained) == took
        assert search.cost(other) == 100.0 * pace


def costs(dear: str) -> Any:
    """Return speeds at which one arm is beyond every budget of 10 hours."""
    return SimpleNamespace(seconds=lambda arm, *_: 1e5 if arm.name == dear else 10.0)


@pytest.fixture(scope="module", params=["", "d"])
def uninterrupted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Search]:
    """Return the arm that is beyond the budget, and a finished search."""
    dear = str(request.param)
    search, run, _ = search_in(tmp_path_factory.mktemp("whole") / "run", CHANCES)
    search.speeds = costs(dear)
    with run:
        assert search.go() == FINISHED
    return dear, search


@pytest.mark.parametrize("stop", [1, 9, 30, 34, 39])
def test_an_interrupted_search_ends_as_an_uninterrupted_one(
    tmp_path: Path, stop: int, uninterrupted: tuple[str, Search]
) -> None:
    dear, whole = uninterrupted
    search, run, _ = search_in(tmp_path / "run", CHANCES, stop=stop)
    search.speeds = costs(dear)
    with run, pytest.raises(KeyboardInterrupt):
        search.go()
    again, run, _ = search_in(tmp_path / "run", CHANCES)
    again.speeds = costs(dear)
    with run:
        assert again.go() == FINISHED
    assert bool(whole.done(ARMS[7])) == (not dear)
    for arm in ARMS:
        assert [fold.number for fold in again.done(arm)] == [
            fold.number for fold in whole.done(arm)
        ]
        if whole.done(arm):
            assert again.score(arm) == whole.score(arm)
    trained: Any = again.trainer
    assert len(trained.trained) == len(whole._answers) - stop  # nothing is trained twice


def test_a_larger_budget_decides_again_what_a_smaller_one_left_out(tmp_path: Path) -> None:
    chances = {**CHANCES, "c": 0.7}
    search, run, kept = search_in(tmp_path / "run", chances)
    search.speeds = costs("a")
    with run:
        search.go()
        assert "rung 0 at 10h" in run.resolved
    assert "a" not in kept[-1]
    search, run, kept = search_in(tmp_path / "run", chances, budget="720h")
    with run:
        search.go()
    assert kept[-1] == "a"


def test_a_rows_mean_counts_once(tmp_path: Path) -> None:
    search, run, _ = search_in(tmp_path / "run", CHANCES)
    with run:
        search.go()
    right = search._right(ARMS[2], search.done(ARMS[2]))
    assert len(right) == 200
    assert set(right.tolist()) == {0.0, 50.0, 100.0}  # each row was measured twice


LAWS = """The tenant shall indemnify the landlord against all claims under section nine.
Any creditor may file a petition pursuant to article four of this statute.
Damages shall not exceed the aggregate amount of fees paid hereunder.
The court dismissed the appeal for want of jurisdiction.
This agreement is governed by the law of the state of Delaware.
A trustee is liable for breach of fiduciary duty.
The licensor grants a non-exclusive and revocable licence to the licensee.
Notwithstanding the foregoing, either party may terminate upon written notice.
The plaintiff alleges infringement of the patent in suit.
No waiver of any provision shall be effective unless signed."""
GERMAN = """Der Hund schläft in der Sonne und die Katze sitzt auf dem Tisch.
Wir haben gestern mit dem Zug eine lange Reise nach Wien gemacht.
Das Wetter ist heute nicht so schön wie am letzten Sonntag.
Ich weiß nicht, ob der Laden noch geöffnet ist.
Die Kinder spielen mit einem Ball vor dem alten Haus.
Er hat seinen Schlüssel bei der Arbeit vergessen und kann nicht hinein.
Auf dem Markt gibt es frisches Obst und auch Käse aus den Bergen.
Sie liest jeden Abend ein Buch, bevor sie das Licht ausmacht.
Nach der Schule gehen wir in den Wald und sammeln Pilze.
Mein Bruder wohnt seit drei Jahren in einer kleinen Stadt am Meer."""


@pytest.mark.parametrize(
    ("raw", "far", "foreign"),
    [
        (SENTENCES[1::2], False, 0.0),
        (LAWS.splitlines(), True, 0.0),
        ([*GERMAN.splitlines(), LAWS.splitlines()[0]], True, 0.8),
    ],
)
def test_raw_text_of_another_language_or_domain_is_told(
    tmp_path: Path, raw: list[str], far: bool, foreign: float
) -> None:
    rows = [{"text": text, "label": str(n % 2)} for n, text in enumerate(SENTENCES[::2])]
    task = read_grow_task(GrowSources(str(write_rows(tmp_path / "rows.jsonl", rows))))
    file = write_lines(tmp_path / "raw.txt", raw)
    bank = open_raw((str(file),), tmp_path, device="cpu")
    found = domain_similarity(bank, task)
    assert found["far"] == far, found
    assert foreign <= found["foreign"] <= foreign + 0.2
    said = " ".join(notes.raw_warnings(found))
    assert (f"{found['raw']:.2f}" in said) == far
    assert ("of another language than" in said) == bool(foreign)


def test_the_order_of_labelled_rows_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.task._SAMPLE", 20)
    rows = [{"text": text, "label": str(n % 2)} for n, text in enumerate(SENTENCES[:50])]
    bank = open_raw(
        (str(write_lines(tmp_path / "raw.txt", SENTENCES[50:])),), tmp_path, device="cpu"
    )
    one, two = (
        domain_similarity(bank, read_grow_task(GrowSources(given))) for given in (rows, rows[::-1])
    )
    assert one == two


def test_labelled_texts_of_one_template_are_no_measure_of_raw_text(tmp_path: Path) -> None:
    places = SENTENCES[:20]
    rows = [
        {"text": f"Hello team, I have a question that is about this and thanks: {text}",
         "label": str(n % 2)}
        for n, text in enumerate(places) for _ in range(2)
    ]  # fmt: skip
    for number, row in enumerate(rows):
        row["text"] += f" My number is {number}."
    task = read_grow_task(GrowSources(str(write_rows(tmp_path / "rows.jsonl", rows))))
    file = write_lines(tmp_path / "raw.txt", SENTENCES)
    found = domain_similarity(open_raw((str(file),), tmp_path, device="cpu"), task)
    assert 0 < found["own"] < 0.99  # each has a near duplicate with another number
    assert not found["far"]


def test_raw_text_of_labelled_rows_alone_is_refused(tmp_path: Path) -> None:
    rows = [{"text": text, "label": str(n % 2)} for n, text in enumerate(SENTENCES)]
    task = read_grow_task(GrowSources(str(write_rows(tmp_path / "rows.jsonl", rows))))
    file = write_lines(tmp_path / "raw.txt", SENTENCES)
    bank = open_raw((str(file),), tmp_path, device="cpu")
    with pytest.raises(InputError, match="every raw sentence stands in the labelled rows"):
        domain_similarity(bank, task)


def combined(*words: str) -> list[str]:
    """Return a sentence of each combination of words, in an order without a pattern."""
    found = [" ".join(some) + "." for some in product(*(one.split(", ") for one in words))]
    return [found[place] for place in np.random.default_rng(0).permutation(len(found))]


@pytest.mark.parametrize("is_alike", [True, False])
def test_raw_text_like_the_task_is_not_told_from_it(tmp_path: Path, *, is_alike: bool) -> None:
    own = combined(
        "The baker, My sister, A tired dog, The old fisherman, Our neighbour, The nurse",
        "waits for, dreams of, walks to, looks at, paints",
        "the harbour, a red house, the snow, tea",
    )
    other = combined(
        "The tenant, Any creditor, The court, A trustee, The licensor, Each party",
        "shall indemnify, may sue, dismissed, is liable to, notifies",
        "the landlord, all claimants, the undersigned, the board",
    )
    rows = [{"text": text, "label": str(n % 2)} for n, text in enumerate(own[:60])]
    task = read_grow_task(GrowSources(str(write_rows(tmp_path / "rows.jsonl", rows))))
    raw = write_lines(tmp_path / "raw.txt", own[60:] if is_alike else other)
    bank = open_raw((str(raw),), tmp_path, device="cpu")
    for count in (60, 20):
        found = domain_similarity(bank, replace(task, rows=task.rows.select(np.arange(count))))
        assert (found["apart"] <= ALIKE) == is_alike, found
        assert found["far"] != is_alike
    found = domain_similarity(bank, replace(task, rows=task.rows.select(np.arange(19))))
    assert "apart" not in found
    assert not found["far"]  # too few to tell


def test_raw_text_of_a_column_needs_a_bank(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("a,b\nIt rains today.,x\n")
    for read in (check_raw, partial(open_raw, out=tmp_path / "out", device="cpu")):
        with pytest.raises(InputError, match=r"--column: of tilth bank build .*\.csv --out BANK"):
            read((str(raw),))


def test_labels_that_a_model_has_no_rows_of_are_named() -> None:
    assert notes.few_rows(None) == notes.few_rows({"a": 2, "b": 90}) == []
    (said,) = notes.few_rows({"a": 1, "b": 90, "c": 0})
    assert said.startswith("Few training rows of a label: 'a' 1, 'c' none.")


@pytest.mark.parametrize(
    ("done", "said"), [(0, []), (1, ["rests on 6 labelled rows alone"]), (5, []), (10, [])]
)
def test_a_choice_by_very_few_rows_is_told(done: int, said: list[str]) -> None:
    folds = folds_of(task_of(30), 5, 2, seed=0)
    search: Any = SimpleNamespace(folds=folds, done=lambda _: folds[:done])
    found = notes.few_measured(search, Arm(CONTRAST))
    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found, strict=True))


def test_descriptions_that_are_alike_are_told(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    same = place / "same.yaml"
    same.write_text("task_name: t\nlabels:\n  one: a sea\n  two: a sea\n")
    task = read_grow_task(GrowSources(labels=str(same)))
    with caplog.at_level("WARNING"):
        assert Sources(task, None, Growth(), place, "cpu")._encoder is not None
    assert "the descriptions of 'one' and 'two' (cosine 1.00) are alike:" in caplog.text


def test_the_labels_that_are_most_alike_are_named_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    described = {str(n): f"a {'cold ' * n}sea" for n in range(1, 6)} | {"fish": "a silver fish"}
    encoder = load_encoder("starter-static", device="cpu")
    with caplog.at_level("WARNING"):
        warn_of_likes(encoder, described)
    (said,) = caplog.messages
    cosines = [float(one) for one in re.findall(r"cosine (\d\.\d\d)", said)]
    assert len(cosines) == 3
    assert cosines == sorted(cosines, reverse=True)
    assert ", and of 7 more are alike:" in said
    assert "fish" not in said


def test_better_systems_on_the_test_set_are_named() -> None:
    def lead(value: float, low: float, high: float) -> dict[str, Any]:
        return {"accuracy": {"value": value, "low": low, "high": high}}

    tested = {"differences": {
        "worse": lead(4, 1, 7), "alike": lead(-1, -4, 2), SETFIT: lead(-25.2, -29.2, -20.8),
    }}  # fmt: skip
    assert notes.better_on_test(tested) == [
        "On the test set SetFit is better than what was kept, by 25.2 (20.8 to 29.2)."
    ]


def test_the_test_set_decides_whether_a_simpler_way_may_do(tmp_path: Path) -> None:
    search, run, _ = search_in(tmp_path / "run", CHANCES)
    with run:
        search.go()
    best = next(arm for arm in search.arms if arm.name == "a + b")
    tested = {"differences": {
        SETFIT: {"accuracy": {"value": 8.0, "low": -1.0, "high": 17.0}},
        MAJORITY: {"accuracy": {"value": 31.5, "low": 25.0, "high": 38.0}},
    }}  # fmt: skip
    assert notes.simpler_ways(search, best, tested) == [
        "A simpler way may do: SetFit (on the test set). The gain over it may be chance: "
        "+8.0 (-1.0 to +17.0)."
    ]
    tested["differences"][SETFIT]["accuracy"]["low"] = 1.0
    (said,) = notes.simpler_ways(search, best, tested)
    assert "SetFit (on the test set), is unlikely to be chance" in said
    (alone,) = notes.simpler_ways(search, best)
    assert "on the test set" not in alone
    for one in tested["differences"].values():  # without resamples
        one["accuracy"] |= {"low": None, "high": None}
    assert notes.simpler_ways(search, best, tested) == [alone]


def test_a_gain_of_rows_that_are_answered_alike_has_an_interval(tmp_path: Path) -> None:
    search, run, _ = search_in(tmp_path / "run", {arm.name: 1.0 for arm in ARMS})
    with run:
        search.go()
    gain = search.gain(ARMS[2], ARMS[0])
    assert gain is not None
    assert gain.value == 0
    assert gain.low == -gain.high  # type: ignore[operator]
    assert 0 < gain.high < 10  # type: ignore[operator]
    score = search.score(ARMS[2])
    assert score.high == score.value == 100
    assert 90 < score.low < 100  # type: ignore[operator]


def test_temperature_calibrates() -> None:
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(3), 4_000).astype(np.float32)
    gold = np.array([rng.choice(3, p=row / row.sum()) for row in true.astype(np.float64)])
    sharp = tempered(true, 0.5)
    assert temperature_of(gold, sharp) == pytest.approx(2.0, rel=0.1)
    assert temperature_of(gold, true) == pytest.approx(1.0, rel=0.1)
    assert tempered(sharp, 2.0) == pytest.approx(true, abs=1e-4)


def test_arms_follow_from_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "labels.yaml").write_text(LABELS)
    rows = write_rows(tmp_path / "rows.jsonl", classed(30))

    def names(raw: bool = False, model: str | None = None, **sources: Any) -> list[str]:
        settings = Growth(model=model, paraphrase=False)
        return [arm.name for arm in arms_of(read_grow_task(GrowSources(**sources)), settings,
                                            raw=raw)]  # fmt: skip

    simple = [MAJORITY, TFIDF, ENCODER, CONTRAST, SETFIT, AVERAGE, PLAIN]
    alone = names(train=str(rows))
    assert [name for name in alone if "of the labelled" not in name] == simple
    assert len(alone) == len(simple) + 2
    few = write_rows(tmp_path / "few.jsonl", classed(6))  # two of each label: no share is smaller
    assert names(train=str(few)) == simple
    some = names(raw=True, train=str(rows))
    assert set(some) - set(alone) == {
        RETRIEVED, "retrieved, by each row", "retrieved, fewer", "retrieved, 2 rounds",
    }  # fmt: skip
    both = names(raw=True, train=str(rows), labels=str(tmp_path / "labels.yaml"))
    assert {arm.name for arm in SELF_TRAINED} | {"described, 2 rounds"} < set(both)
    with_labels = names(train=str(rows), labels=str(tmp_path / "labels.yaml"))
    assert set(with_labels) - set(alone) == {BY_DESCRIPTION, DESCRIPTIONS}
    described = names(raw=True, model="starter", labels=str(tmp_path / "labels.yaml"))
    assert described == [
        BY_DESCRIPTION, "described", "described, 2 rounds", "generated", "described + generated"
    ]  # fmt: skip


def use_tiny_models(folder: Path, base: str, patch: pytest.MonkeyPatch) -> Path:
    """Write labelled rows, raw text and descriptions; make every training a short one."""
    encoder = load_encoder(base, device="cpu")
    patch.setattr("tilth.workflows.grow.sources.load_encoder", lambda *_, **__: encoder)
    patch.setattr("tilth.workflows.grow.sources._FEWEST", 20)
    patch.setattr("tilth.workflows.grow.sources._UNLABELLED", 40)
    patch.setattr("tilth.classifiers.settings._STEPS", 4)
    patch.setattr("tilth.encoders.label_contrast._STEPS", 2)
    write_rows(folder / "train.jsonl", classed(24))
    write_rows(folder / "test.jsonl", classed(12, seed=9))
    write_lines(folder / "raw.txt", salads(200))
    (folder / "labels.yaml").write_text(LABELS)
    return folder


@pytest.fixture
def place(
    tmp_path: Path, base: str, quick_baselines: None, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a folder with labelled rows, raw text and descriptions, and tiny models in use."""
    monkeypatch.setattr("tilth.workflows.grow.plan.measure_speed", lambda *_: (100.0, 1000.0))
    return use_tiny_models(tmp_path, base, monkeypatch)


@pytest.fixture(scope="module")
def grown(base: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a folder with a finished run in `out`, and its results; nothing is written there."""
    with pytest.MonkeyPatch.context() as patch:
        use_quick_baselines(base, patch)
        folder = use_tiny_models(tmp_path_factory.mktemp("grown"), base, patch)
        return folder, run_grow(folder, base)


def try_only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let runs try some ways alone."""

    def chosen(*given: Any, **more: Any) -> list[Arm]:
        return [arm for arm in arms_of(*given, **more) if arm.name in names]

    monkeypatch.setattr(growing, "arms_of", chosen)


def test_a_run_leaves_a_model_its_rows_and_a_page(
    grown: tuple[Path, dict[str, Any]], base: str
) -> None:
    place, found = grown
    out = place / "out"
    arms = {one["name"]: one for one in found["arms"]}
    assert {MAJORITY, TFIDF, ENCODER, SETFIT, PLAIN, RETRIEVED} <= arms.keys()
    assert found["reference"] in (CONTRAST, SETFIT, AVERAGE, PLAIN)
    assert arms[found["reference"]]["gain"] is None
    assert found == read_json(out / "results.json")
    model = load_classifier(str(out), device="cpu")
    assert model.labels == found["labels"] == ["animal", "none", "water"]
    assert [path.name for path in (out / "model").glob("*.safetensors")]
    rows = load_folder(out / "dataset")
    origins = rows["origin"][:]
    assert {name: origins.count(name) for name in set(origins)} == found["origins"]
    assert origins.count(LABELLED) == 24
    assert sum(one["share"] for one in found["shares"]) == pytest.approx(1.0)
    card = (out / "dataset" / "README.md").read_text()
    assert re.search(r"\| budget \| `\d+[smh]` \|", card)
    for one in found["shares"]:
        assert (one["cost"] is None) == (one["origin"] == LABELLED)
        assert f"- {one['origin']}: {one['share']:.0%}" in card
    asked = load_folder(out / "to_label")
    assert asked["text"][:] == [row["text"] for row in found["to_label"]]
    names = asked.features["label"].names
    assert [names[one] for one in asked["label"]] == [row["predicted"] for row in found["to_label"]]
    assert len({row["text"] for row in asked}) == len(asked) == 50
    systems = [one["name"] for one in found["tested"]["systems"]]
    assert systems[0] == found["arm"]
    assert len(set(systems)) == len(systems)
    assert {found["reference"], TFIDF, MAJORITY} <= set(systems)
    page = (out / "report.html").read_text()
    for words in ("Would more labels help?", "What to label next", found["arm"], "Calibration"):
        assert words in page
    assert any("simpler way" in note or "best simple way" in note for note in found["notes"])
    assert run_grow(place, base) == found  # a finished run is read


def test_a_base_that_gives_no_embedding_is_fine_tuned_on_all_rows(place: Path) -> None:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=len(word_tokenizer()), dim=32, n_layers=1, n_heads=4, hidden_dim=64,
        max_position_embeddings=32,
    )  # fmt: skip
    base = str(save_model(place / "distilled", DistilBertModel(config)))
    found = run_grow(place, base, folds=2, repeats=1)
    arms = {one["name"] for one in found["arms"]}
    assert {PLAIN, RETRIEVED, "25% of the labelled rows"} <= arms
    assert not {CONTRAST, SETFIT, AVERAGE, ENCODER} & arms
    assert (found["reference"], found["teacher"]["arm"]) == (PLAIN, PLAIN)
    model = load_classifier(str(place / "out"), device="cpu")
    assert model.model.config.model_type == "distilbert"


def test_sources_are_labelled_by_the_fine_tuned_base_where_it_teaches(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = read_grow_task(GrowSources(str(place / "train.jsonl"), (str(place / "raw.txt"),)))
    settings = Growth(paraphrase=False)
    bank = open_raw([str(place / "raw.txt")], place, device="cpu")
    trainer = Trainer(
        task, Sources(task, bank, settings, place, "cpu"), Bases(base, base), settings, "cpu"
    )
    trainer.teacher = Teacher(PLAIN)
    fold = folds_of(task, 2, 1, seed=0)[0]
    tuned: list[int] = []
    real = Trainer._tuned

    def count(self: Trainer, rows: LabeledExamples, fold: Fold) -> Any:
        tuned.append(len(rows))
        return real(self, rows, fold)

    monkeypatch.setattr(Trainer, "_tuned", count)
    alone = trainer.train(Arm(PLAIN), fold)
    student = trainer.train(Arm(RETRIEVED, (RETRIEVED,)), fold)
    assert student.rows is not None
    assert tuned == [
        len(fold.train),
        len(student.rows.rows) + (student.times - 1) * len(fold.train),
    ]
    places = [row for row, origin in enumerate(student.rows.origin) if origin == RETRIEVED]
    found = student.rows.rows.select(np.array(places))
    assert found.targets == pytest.approx(alone.answer(found.texts), abs=1e-3)


def test_without_a_base_students_are_regressions_on_the_contrastive_encoder(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(*given: Any, **more: Any) -> list[Arm]:
        tried = (RETRIEVED, "described")
        arms = arms_of(*given, **more)
        return [arm for arm in arms if arm.is_simple or arm.is_curve or arm.name in tried]

    monkeypatch.setattr(growing, "arms_of", some)
    found = run_grow(place, base=None, labels=str(place / "labels.yaml"))
    arms = {one["name"]: one for one in found["arms"]}
    assert found["reference"] == AVERAGE
    assert {CONTRAST, SETFIT, RETRIEVED, "described", PLAIN} <= arms.keys()
    assert any(one["curve"] for one in found["arms"])
    systems = {one["name"]: one for one in found["tested"]["systems"]}
    simple = {MAJORITY, TFIDF, ENCODER, CONTRAST, SETFIT, AVERAGE, PLAIN, BY_DESCRIPTION}
    assert set(systems) == simple | {found["arm"]}
    assert systems[AVERAGE]["base"] == base
    assert len(systems) == len(found["tested"]["systems"])
    if found["arm"] != PLAIN:
        assert found["base"] == base


@pytest.mark.parametrize("name", [CONTRAST, SETFIT, AVERAGE])
def test_a_student_is_the_teacher_with_another_regression(
    place: Path, base: str, name: str
) -> None:
    task = read_grow_task(GrowSources(str(place / "train.jsonl")))
    settings = Growth()
    makes = Sources(task, None, settings, place, "cpu")
    trainer = Trainer(task, makes, Bases(base, "other"), settings, "cpu")
    (fold, _) = folds_of(task, 2, 1, seed=0)
    trainer.teacher = Teacher(name)
    assert trainer.alone == name
    teacher = trainer.train(Arm(name), fold)
    own, others = (task.rows.select(np.arange(*ends)) for ends in ((0, 9), (9, 24)))
    student = trainer._fit(own, RowsByOrigin.of(others, "generated"), fold, 0.75)
    assert student.times == 5
    assert teacher.classifier is not None
    assert student.classifier is not None
    before, found = teacher.classifier(), student.classifier()
    weights = before.model.state_dict()
    for key, one in found.model.state_dict().items():
        assert bool((one == weights[key]).all()) == (not key.startswith("classifier."))
    for grown, model in ((teacher, before), (student, found)):
        assert grown.answer(task.rows.texts) == pytest.approx(
            model.probabilities(task.rows.texts, precision="float32"), abs=1e-4
        )


def weights_of(grown: Grown) -> dict[str, torch.Tensor]:
    assert grown.classifier is not None
    weights = grown.classifier().model.state_dict()
    return {name: one for name, one in weights.items() if not name.startswith("classifier.")}


@pytest.mark.parametrize(
    ("teacher", "given"),
    [
        (CONTRAST, (RETRIEVED,)),
        (AVERAGE, (RETRIEVED,)),
        (CONTRAST, (DESCRIBED,)),
        (CONTRAST, (RETRIEVED, DESCRIBED)),
    ],
)
def test_a_second_round_averages_the_teacher_with_an_encoder_of_the_surest_sentences(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch, teacher: str, given: tuple[str, ...]
) -> None:
    sources = GrowSources(
        str(place / "train.jsonl"), (str(place / "raw.txt"),), str(place / "labels.yaml")
    )
    task = read_grow_task(sources)
    settings = Growth(paraphrase=False)
    bank = open_raw([str(place / "raw.txt")], place, device="cpu")
    makes = Sources(task, bank, settings, place, "cpu")
    trainer = Trainer(task, makes, Bases(base, base), settings, "cpu")
    trainer.teacher = Teacher(teacher)
    fold = folds_of(task, 3, 1, seed=0)[0]
    models: list[Any] = []
    pseudo: list[dict[str, bool]] = []
    real = Trainer._headed

    def headed(self: Trainer, name: str, rows: LabeledExamples, fold: Fold, **how: bool) -> Any:
        models.append((rows.texts, real(self, name, rows, fold, **how)))
        pseudo.append(how)
        return models[-1][1]

    monkeypatch.setattr(Trainer, "_headed", headed)
    fitted: list[int] = []
    fit = Heads.fit
    monkeypatch.setattr(
        Heads, "fit", lambda self, rows, *rest: fitted.append(len(rows)) or fit(self, rows, *rest)
    )
    second = trainer.train(Arm("again", given, rounds=2), fold)
    found = weights_of(second)
    assert pseudo == [*({} for _ in encoders_of(teacher)), {"are_pseudo": True}]
    surest, _ = models[-1]
    labelled = task.rows.select(fold.train).texts
    assert all(texts == labelled for texts, _ in models[:-1])
    assert not set(surest) & set(labelled)
    for name, one in found.items():
        *teachers, other = [model.model.state_dict()[name].float() for _, model in models]
        taught = torch.stack(teachers).mean(dim=0)
        assert torch.allclose(one.float(), (taught + other) / 2, atol=1e-6)
    assert second.rows is not None
    assert second.rows.origin[: len(labelled)] == [LABELLED] * len(labelled)
    assert set(second.rows.origin[len(labelled) :]) <= set(given)
    near = {
        RETRIEVED: makes.candidates(fold, 10.0, "label-average"),
        DESCRIBED: makes.described_candidates(fold),
    }
    candidates = [(text,) for source in given for text in near[source]["text"].to_pylist()]
    assert set(surest) < set(candidates)
    assert len(second.rows.origin) == len(labelled) + len(surest)
    times = repeat_count(LABELLED_SHARE, len(surest), len(labelled), len(surest))
    by_rows = RETRIEVED in given
    assert second.times == (times if by_rows else 1)
    # What similarity to descriptions alone labels does not make up the regression.
    assert fitted[-1] == len(labelled) + by_rows * len(surest)
    first = weights_of(trainer.train(Arm("once", given), fold))
    assert any(not torch.equal(found[name], first[name]) for name in found)


def test_encoders_are_trained_once_for_each_fold_and_once_for_all_rows(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, int]] = []

    def counted(name: str, train: Callable[..., Any]) -> Callable[..., Any]:
        def run(texts: Sequence[str], *given: Any, **how: Any) -> Any:
            trained.append((name, len(texts)))
            return train(texts, *given, **how)

        return run

    for name, train in TRAINED.items():
        monkeypatch.setitem(TRAINED, name, counted(name, train))
    try_only(monkeypatch, MAJORITY, CONTRAST, SETFIT, AVERAGE, RETRIEVED)
    run_grow(place, base)
    assert sorted(trained) == sorted(product(TRAINED, (12, 12, 24)))


def test_an_encoder_that_was_forgotten_is_trained_for_new_texts_alone(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = read_grow_task(GrowSources(str(place / "train.jsonl")))
    settings = Growth()
    makes = Sources(task, None, settings, place, "cpu")
    trainer = Trainer(task, makes, Bases(base, "other"), settings, "cpu")
    (fold, _) = folds_of(task, 2, 1, seed=0)
    made: list[str] = []
    real = Trainer._headed

    def headed(self: Trainer, name: str, *rest: Any) -> Any:
        made.append(name)
        return real(self, name, *rest)

    monkeypatch.setattr(Trainer, "_headed", headed)
    first = trainer.answers(Arm(CONTRAST), fold)
    trainer.forget()
    assert trainer.answers(Arm(CONTRAST), fold).tolist() == first.tolist()
    assert made == [CONTRAST]
    heads = trainer._encoder(CONTRAST, fold)
    new = heads.vectors(["a text that was not read"])
    assert made == [CONTRAST, CONTRAST]
    assert heads.vectors(["a text that was not read"]).tolist() == new.tolist()


def test_the_function_returns_the_classifier(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_only(monkeypatch, MAJORITY, ENCODER, CONTRAST)
    found = tilth.grow(
        f"file://{place}/out", train=str(place / "train.jsonl"), base=base, paraphrase=False,
        labels={"animal": "about a dog", "water": "about the sea", "none": "about another thing"},
        folds=2, repeats=1, device="cpu", quiet=True,
    )  # fmt: skip
    assert found.labels == ["animal", "none", "water"]
    assert found.probabilities(["A dog."]).shape == (1, 3)
    with pytest.raises(InputError, match="no setting 'bases'"):
        tilth.grow(place / "out", train=str(place / "train.jsonl"), bases="x")


def test_no_measured_row_is_trained_on_or_retrieved(place: Path, base: str) -> None:
    rows = [row["text"] for row in classed(24)]
    write_lines(place / "raw.txt", [*salads(60), *(f"{text.capitalize()}." for text in rows)])
    sources = GrowSources(
        str(place / "train.jsonl"), (str(place / "raw.txt"),), str(place / "labels.yaml")
    )
    task, settings = read_grow_task(sources), Growth()
    bank = open_raw(sources.raw, place / "bank", device="cpu")
    makes = Sources(task, bank, settings, place, "cpu")
    trainer = Trainer(task, makes, Bases(base, base), settings, "cpu")
    for fold in folds_of(task, 2, 1, seed=0):
        held = {text.lower() for (text,) in fold.rows.texts}
        for sources_of_arm in ((RETRIEVED,), ("described",)):
            extra = trainer.extra(Arm("x", sources_of_arm), fold)
            found = {text.lower().rstrip(".") for (text,) in extra.rows.texts}
            assert found
            assert not found & held


def test_each_line_of_a_description_is_a_row_of_its_label(place: Path, base: str) -> None:
    sources = GrowSources(str(place / "train.jsonl"), labels=str(place / "labels.yaml"))
    task, settings = read_grow_task(sources), Growth(paraphrase=False)
    makes = Sources(task, None, settings, place, "cpu")
    fold = folds_of(task, 2, 1, seed=0)[0]
    lines = {
        "a dog, a cat or a bird": "animal", "animal": "animal", "the sea, a river or a boat":
        "water", "water": "water", "a market, a train or the sun": "none", "none": "none",
    }  # fmt: skip
    extra = makes.descriptions(fold)
    names = [task.labels[label] for label in np.asarray(extra.rows.targets).argmax(axis=1)]
    assert dict(zip([text for (text,) in extra.rows.texts], names, strict=True)) == lines
    measured = replace(fold.rows, texts=[("animal",), *fold.rows.texts[1:]])
    assert len(makes.descriptions(replace(fold, rows=measured)).rows) == 5
    trainer = Trainer(task, makes, Bases(base, "other"), settings, "cpu")
    grown = trainer.train(Arm(DESCRIPTIONS, (DESCRIPTIONS,)), fold)
    assert grown.rows is not None
    assert grown.rows.origin == [LABELLED] * len(fold.train) + [DESCRIPTIONS] * 6
    plain = trainer.train(Arm(CONTRAST), fold)
    assert not np.allclose(grown.answer(task.rows.texts), plain.answer(task.rows.texts))


def test_a_run_that_another_version_began_with_other_ways_is_refused(
    grown: tuple[Path, dict[str, Any]], base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "arms_of", lambda *a, **k: arms_of(*a, **k)[1:])
    with pytest.raises(RunMismatch, match="ways to try"):
        run_grow(grown[0], base)


def test_long_texts_are_told_once_and_not_by_each_training(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_rows(place / "train.jsonl", [{**row, "text": 99 * row["text"]} for row in classed(24)])
    try_only(monkeypatch, MAJORITY, PLAIN)
    found = run_grow(place, base, raw=(), test=None)
    assert any(one["trainings"] == 2 for one in found["arms"] if one["name"] == PLAIN)
    said = [line for line in caplog.messages if "texts of more than" in line]
    assert said == [f"texts of more than 32 tokens are cut, as {base} reads no more"]


def test_rows_that_cannot_be_paraphrased_are_grown_without(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise TilthError("nothing could be rewritten")

    monkeypatch.setattr("tilth.paraphrase.paraphrase_set.run_paraphrase", fail)
    monkeypatch.setattr(Sources, "_rewriter", None)
    monkeypatch.setattr(Sources, "measure_paraphrasing", lambda *_: 100.0)
    try_only(monkeypatch, MAJORITY, CONTRAST, PLAIN, *REWRITES)
    found = run_grow(place, base, raw=(), paraphrase=True)
    assert found["dropped"] == ["paraphrased"]
    assert {one["name"] for one in found["arms"]} == {MAJORITY, CONTRAST, PLAIN}
    assert "left out: paraphrased (nothing could be rewritten)" in caplog.text


def test_paraphrases_are_made_with_the_tags_of_each_setting(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, tuple[float, float]] = {}

    def rewrite(rows: Any, _: Any, how: Any, folder: Path, **__: Any) -> Dataset:
        made[folder.name] = how.meaning, how.wording
        texts = [f"{text} {folder.name}" for text in rows["text"]]
        return Dataset.from_dict({"text": texts, "source_row": list(range(len(texts)))})

    monkeypatch.setattr("tilth.paraphrase.paraphrase_set.run_paraphrase", rewrite)
    task, settings = read_grow_task(GrowSources(str(place / "train.jsonl"))), Growth()
    makes = Sources(task, None, settings, place, "cpu")
    trainer = Trainer(task, makes, Bases("one", "other"), settings, "cpu")
    fold = folds_of(task, 2, 1, seed=0)[0]
    arms = [arm for arm in arms_of(task, settings, raw=False) if arm.sources == (PARAPHRASED,)]
    for arm in arms:
        (folder,) = {text.split()[-1] for (text,) in trainer.extra(arm, fold).rows.texts}
        assert made[folder] == REWRITES[arm.name]
    assert len(made) == len(set(made.values())) == len(arms) == 3
    assert made["paraphrases"] == (RewriteSettings().meaning, RewriteSettings().wording)


def test_a_text_is_compared_with_descriptions_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def cosines(_: Any, texts: Sequence[str], descriptions: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[len(text), 1.0, 0.0] for text in texts], np.float32).reshape(-1, 3) / 99

    monkeypatch.setattr("tilth.workflows.grow.sources.similarity_to_descriptions", cosines)
    sources = GrowSources(str(place / "train.jsonl"), labels=str(place / "labels.yaml"))
    task = read_grow_task(sources)
    makes = Sources(task, None, Growth(), place, "cpu")
    one, two = folds_of(task, 2, 1, seed=0)
    first = makes.by_description(["a", "b", "a"], one)
    assert first[0].tolist() == first[2].tolist()
    assert first.sum(axis=1) == pytest.approx(1.0)
    makes.by_description(["b", "c"], two)
    assert len(asked) == len(set(asked)) == 3 + 24


def test_few_labelled_rows_do_not_spoil_what_descriptions_tell(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = GrowSources(str(place / "train.jsonl"), labels=str(place / "labels.yaml"))
    task = read_grow_task(sources)
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 3, 1000)
    of_text = {f"text {row}": 0.3 + 0.04 * np.eye(3)[label] for row, label in enumerate(gold)}
    of_text |= {
        text: 0.3 + 0.04 * target
        for (text,), target in zip(task.rows.texts, task.rows.targets, strict=True)
    }
    noisy = {text: one + rng.normal(0, 0.03, 3) for text, one in of_text.items()}

    def cosines(_: Any, texts: Sequence[str], descriptions: Sequence[str]) -> np.ndarray:
        return np.array([noisy[text] for text in texts], np.float32).reshape(-1, 3)

    monkeypatch.setattr("tilth.workflows.grow.sources.similarity_to_descriptions", cosines)
    texts = [f"text {row}" for row in range(1000)]

    def right(rows: int) -> float:
        some = replace(task, rows=task.rows.select(np.arange(rows)))
        makes = Sources(some, None, Growth(), place, "cpu")
        found = makes.by_description(texts, whole_fold(some.rows))
        return float((found.argmax(axis=1) == gold).mean())

    without = right(0)
    assert without > 0.7
    assert right(6) > without - 0.05
    assert right(24) > without - 0.03


def test_generated_and_paraphrased_rows_are_mixed_with_their_origins(
    place: Path, base: str
) -> None:
    sources = GrowSources(str(place / "train.jsonl"), labels=str(place / "labels.yaml"))
    task, settings = read_grow_task(sources), Growth()
    makes = Sources(task, None, settings, place, "cpu")
    one = np.eye(3, dtype=np.float32)
    written = ["A dog in the sun.", "A river.", task.rows.texts[0][0]]
    makes.texts = replace(  # type: ignore[misc]
        task.rows, texts=[(text,) for text in written], targets=one[[0, 2, 1]]
    )
    makes.paraphrases = lambda _: (  # type: ignore[method-assign]
        [f"{text} again" for (text,) in task.rows.texts],
        np.arange(len(task.rows)),
    )
    trainer = Trainer(task, makes, Bases(base, base), settings, "cpu")
    fold = folds_of(task, 3, 1, seed=0)[1]
    extra = trainer.extra(Arm("x", ("paraphrased", "generated")), fold)
    assert extra.origin == ["paraphrased"] * len(fold.train) + ["generated"] * 3
    assert len(extra.rows) == len(extra.origin)
    for place_of, (text,) in zip(fold.train.tolist(), extra.rows.texts, strict=False):
        assert text == f"{task.rows.texts[place_of][0]} again"
    grown = trainer.train(Arm("x", ("paraphrased", "generated")), fold)
    assert grown.rows is not None
    assert grown.rows.origin[: len(fold.train)] == ["labelled"] * len(fold.train)
    heavier = trainer.train(Arm("y", ("paraphrased", "generated"), weight=0.75), fold)
    others = len(extra.rows)
    assert grown.times * len(fold.train) >= others / 3 > (grown.times - 1) * len(fold.train)
    assert heavier.times * len(fold.train) >= 3 * others > (heavier.times - 1) * len(fold.train)
    own = written[2] in {task.rows.texts[row][0] for row in fold.train.tolist()}
    assert grown.rows.origin.count("generated") == 3 - own  # a text has one origin


def test_generated_texts_that_do_not_fit_or_are_labelled_are_left_out(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset

    sources = GrowSources(str(place / "train.jsonl"), labels=str(place / "labels.yaml"))
    task = read_grow_task(sources)
    known = task.rows.texts[0][0]
    made = Dataset.from_dict({
        "text": ["fits", "does not", "fits", known], "label": ["water", "none", "none", "animal"],
        "label_fit": [0.2, -0.1, 0.3, 0.4],
    })  # fmt: skip
    monkeypatch.setattr("tilth.generation.generate.run_generate", lambda *_, **__: made)
    makes = Sources(task, None, Growth(model="m"), place, "cpu")
    makes._request = None  # type: ignore[misc, assignment]
    assert makes.texts.texts == [("fits",)]
    assert makes.texts.targets.tolist() == [[0.0, 0.0, 1.0]]  # type: ignore[union-attr]


def test_labels_that_are_numbers_keep_their_names_in_generated_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset

    described = {name: {"description": what} for name, what in (("01", "good"), ("0", "bad"))}
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps({"task_name": "t", "labels": described}), encoding="utf-8")
    task = read_grow_task(GrowSources(labels=str(labels)))
    made = Dataset.from_dict({"text": ["a fine day", "rain"], "label": [1.0, 0.0]})
    monkeypatch.setattr("tilth.generation.generate.run_generate", lambda *_, **__: made)
    makes = Sources(task, None, Growth(model="m"), tmp_path, "cpu")
    makes._request = None  # type: ignore[misc, assignment]
    assert makes.texts.labels[int(np.asarray(makes.texts.targets)[0].argmax())] == "01"


@pytest.mark.parametrize(
    "after",
    [5, pytest.param(14, marks=pytest.mark.slow)],  # in the first round, and in the second
)
def test_an_interrupted_run_leaves_the_best_so_far_and_ends_alike(
    place: Path,
    base: str,
    grown: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    check_resume(place, base, after, grown[1], monkeypatch)


def test_descriptions_alone_grow_a_model(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run_grow(place, base, train=None, labels=str(place / "labels.yaml"))
    assert (found["rows"], found["arms"], found["origins"]) == (0, [], {"described": 40})
    headed: dict[str, Any] = {"base": None, "train": None, "labels": str(place / "labels.yaml")}
    assert run_grow(place, out="headed", **headed)["arm"] == "described, 2 rounds"
    monkeypatch.setattr(Search, "cost", lambda _, arm: 1e9 if arm.rounds > 1 else 1.0)
    assert run_grow(place, out="short", **headed)["arm"] == "described"
    assert "Nothing was measured" in found["notes"][-1]
    measured = run_grow(
        place, base, "measured", train=None, labels=str(place / "labels.yaml"),
        validation=str(write_rows(place / "dev.jsonl", classed(15, seed=4))),
    )  # fmt: skip
    assert {BY_DESCRIPTION, "described"} <= {one["name"] for one in measured["arms"]}
    assert measured["reference"] == BY_DESCRIPTION


def test_a_budget_that_is_spent_before_the_search_leaves_a_model_and_says_so(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.plan.measure_speed", lambda *_: (1e9, 1e9))
    monkeypatch.setattr(Speeds, "seconds", lambda *_: 0.001)
    found = run_grow(place, base, budget="0.01s")
    assert (found["ended"], found["arms"]) == (
        "the rest of the budget is too short for the next step",
        [],
    )
    notes = " ".join(found["notes"])
    assert "no labelled rows" not in notes
    assert "Not tried in the search, as the budget is too short: majority" in notes
    assert re.search(r"Nothing was measured: .* --budget \d+m is enough for a first round", notes)
    assert load_classifier(str(place / "out"), device="cpu").labels == found["labels"]


def test_gains_are_over_the_best_simple_way_where_the_contrastive_encoder_is_too_dear(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Speeds.seconds

    def seconds(self: Speeds, arm: Arm, *about: Any) -> float:
        return 1e9 if arm.name == CONTRAST else real(self, arm, *about)

    monkeypatch.setattr(Speeds, "seconds", seconds)
    found = run_grow(place, base, raw=())
    assert CONTRAST not in {one["name"] for one in found["arms"]}
    assert {CONTRAST, AVERAGE}.isdisjoint(one["name"] for one in found["tested"]["systems"])
    assert any(
        "Not measured on the test set" in note and CONTRAST in note for note in found["notes"]
    )
    assert found["reference"] in (ENCODER, PLAIN, SETFIT)
    for one in found["arms"]:
        assert (one["gain"] is None) == (one["name"] == found["reference"])


def test_a_run_that_is_stopped_in_the_trainings_for_the_test_set_goes_on_there(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_only(monkeypatch, MAJORITY, TFIDF, ENCODER, CONTRAST)
    whole: list[str] = []
    real = Trainer.answers

    def answers(self: Trainer, arm: Arm, fold: Fold) -> Any:
        if fold.number < 0:
            whole.append(arm.name)
            if len(whole) == 3:
                raise KeyboardInterrupt
        return real(self, arm, fold)

    monkeypatch.setattr(Trainer, "answers", answers)
    with pytest.raises(KeyboardInterrupt):
        run_grow(place, base, raw=())
    stopped = read_json(place / "out" / "results.json")
    assert "search: not finished" in "\n".join(notes.summary_lines(stopped))
    assert _run_entry("out", place / "out").state == STOPPED
    found = run_grow(place, base, raw=())
    assert len(whole) == len(set(whole)) + 1  # the one that was stopped
    assert {one["name"] for one in found["tested"]["systems"]} == {*whole, found["arm"]}
    assert found["spent"] == pytest.approx(stopped["spent"])
    assert _run_entry("out", place / "out").state == DONE


def test_settings_that_change_scores_are_refused_and_the_budget_may_grow(
    place: Path, grown: tuple[Path, dict[str, Any]], base: str
) -> None:
    inputs, _ = grown
    out = str(shutil.copytree(inputs / "out", place / "out"))
    with pytest.raises(RunMismatch, match="seed"):
        run_grow(inputs, base, out, seed=1)
    assert run_grow(inputs, base, out, budget="101h")["budget"] == 101 * 3600
    assert run_grow(inputs, base, out, budget="1h")["budget"] == 101 * 3600  # nothing is lost


def test_raw_text_that_is_refused_leaves_the_folder_free(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_only(monkeypatch, MAJORITY, CONTRAST)
    empty = write_lines(place / "empty.txt", [" "])
    with pytest.raises(InputError, match="holds no text"):
        run_grow(place, base, raw=(str(empty),))
    assert run_grow(place, base, raw=())["ended"]


def test_a_base_with_other_weights_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = save_encoder(place / "own")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_try", stop)
    with pytest.raises(KeyboardInterrupt):
        run_grow(place, str(own), raw=())
    save_encoder(own, seed=1)
    with pytest.raises(RunMismatch, match="base"):
        run_grow(place, str(own), raw=())


Change = Callable[[Path], dict[str, Any]]
BAD: list[tuple[Change, str]] = [
    (lambda _: {"budget": "1s"}, "is too short: the quickest way alone"),
    (lambda _: {"budget": "soon"}, "give a time such as"),
    (lambda _: {"budget": "0s"}, "give a time above 0"),
    (lambda _: {"train": None}, "neither labelled rows nor described labels"),
    (lambda at: {"train": None, "raw": (), "labels": str(at / "labels.yaml")}, "there is no text"),
    (lambda _: {"model": "starter"}, "describe them with --labels"),
    (lambda _: {"candidates": 3}, "are of a language model: name it with --model"),
    (lambda _: {"system": "Be brief."}, "are of a language model: name it with --model"),
    (lambda at: {"model": "starter", "labels": str(at / "labels.yaml")},
     "knows only the instructions"),
    (lambda at: {"labels": lacking(at, "none")}, "label 'none' of .* is not described"),
    (lambda at: {"labels": more(at)}, "no row has the described label 'fire'"),
    (lambda at: {"train": rows_of(at, [{"text": "a", "label": "x"}] * 3)}, "nothing to learn"),
    (lambda at: {"train": rows_of(at, classed(3))}, "label '.*' has 1 row"),
    (lambda at: {"test": rows_of(at, [{"text": "q", "label": "other"}])},
     "other.jsonl: row 0 .*: label 'other' is none of"),
    (lambda at: {"train": rows_of(at, [{"text_a": "a", "text_b": "b", "label": "x"}])},
     "single texts with one class each"),
    (lambda at: {"test": str(at / "train.jsonl")}, "every text of the test set"),
    (lambda at: {"raw": (str(at / "no-such"),)}, "no such file"),
]  # fmt: skip


def rows_of(at: Path, rows: Sequence[dict[str, Any]]) -> str:
    return str(write_rows(at / "other.jsonl", rows))


def lacking(at: Path, name: str) -> str:
    lines = [line for line in LABELS.splitlines() if f"  {name}:" not in line]
    (at / "less.yaml").write_text("\n".join(lines))
    return str(at / "less.yaml")


def more(at: Path) -> str:
    (at / "more.yaml").write_text(LABELS + "  fire: smoke\n")
    return str(at / "more.yaml")


@pytest.mark.parametrize(("change", "said"), BAD)
def test_wrong_inputs_are_refused(
    place: Path, base: str, change: Change, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.plan.measure_speed", lambda *_: (5.0, 50.0))
    with pytest.raises(InputError, match=said):
        run_grow(place, base, **change(place))


def test_the_plan_takes_the_quick_base_for_a_short_budget(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    speeds = [20.0]

    def speed(name: str, *_: Any) -> tuple[float, float]:
        asked.append(name)
        return (speeds[0], 5_000.0) if name == base else (9_000.0, 9_000.0)

    monkeypatch.setattr("tilth.workflows.grow.plan.measure_speed", speed)
    sources = GrowSources(str(place / "train.jsonl"), (str(place / "raw.txt"),))
    long, short = (
        growing.plan(sources, Growth(budget=budget, paraphrase=False), device="cpu")
        for budget in ("10h", "60s")
    )
    assert (long.base, short.base) == (base, "starter-small")
    assert base in short.why
    assert asked == [base, base, "starter-small"]
    assert long.seconds > short.seconds > short.least
    assert [name for name, *_ in long.rungs] == [f"search round {number}" for number in (1, 2, 3)]
    # The students are on the encoder: a base whose few trainings take little is fine-tuned.
    speeds[0] = 1_000.0
    usual = growing.plan(sources, Growth(budget="60s", paraphrase=False), device="cpu")
    assert (usual.base, usual.why) == (base, "fine-tuning it takes little of the budget")


@pytest.mark.parametrize(("budget", "bounds"), [("20m", [2, 5, 10]), ("3m", [1, 2, 5, 10])])
def test_a_first_round_that_is_too_long_on_two_folds_has_one(
    place: Path, budget: str, bounds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.plan.measure_speed", lambda *_: (40.0, 400.0))
    sources = GrowSources(str(place / "train.jsonl"), (str(place / "raw.txt"),))
    found = growing.plan(sources, Growth(budget=budget, paraphrase=False), device="cpu")
    assert found.bounds == bounds
    assert len(found.rungs) == len(bounds)
    (_, ways, trainings, _), *_ = found.rungs
    assert trainings == bounds[0] * ways


def test_dear_sources_are_left_out(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.workflows.grow.plan.measure_speed", lambda *_: (1e3, 1e4))
    monkeypatch.setattr(Sources, "measure_paraphrasing", lambda *_: 0.1)  # 240 s for 24 rows
    sources = GrowSources(str(place / "train.jsonl"))
    for budget, count in (("3h", 3), ("60m", 1), ("20m", 1), ("10m", 0)):
        found = growing.plan(sources, Growth(budget=budget), device="cpu")
        assert (list(found.sources), list(found.dropped)) == (
            list(REWRITES)[:count], list(REWRITES)[count:],
        )  # fmt: skip
        names = {name for name, _ in found.arms}
        assert names & {*REWRITES} == {*list(REWRITES)[:count]}
    # What measuring took is no longer there for them.
    clock = SimpleNamespace(monotonic=iter((0.0, 900.0)).__next__)
    monkeypatch.setattr("tilth.workflows.grow.plan.time", clock)
    found = growing.plan(sources, Growth(budget="20m"), device="cpu")
    assert list(found.dropped) == list(REWRITES)


@pytest.mark.parametrize("kind", [Sources, PairSources])
def test_what_writes_is_asked_as_the_settings_say(
    kind: type[Any], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GenerateRequest, "__post_init__", lambda _: None)
    monkeypatch.setattr(kind, "_lm", None)
    monkeypatch.setattr(PairSources, "sentences", lambda *_: ["a"])
    task = read_grow_task(GrowSources(labels=str(place / "labels.yaml")))
    settings = Growth(model="m", candidates=3, system="Be brief.", seed=4)
    sources = kind(task, None, settings, tmp_path, "cpu")
    asked = (sources._request(1) if kind is PairSources else sources._request).settings
    assert (asked.candidates, asked.system, asked.seed) == (3, "Be brief.", 4)
    assert asked.per_input == (2 if kind is PairSources else 1)


def test_the_language_model_is_loaded_as_the_settings_say(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("tilth.models.load_lm", lambda name, **how: asked.update(how, name=name))
    task = read_grow_task(GrowSources(labels=str(place / "labels.yaml")))
    settings = Growth(model="m", precision="float32")
    assert Sources(task, None, settings, tmp_path, "cpu")._lm is None
    assert asked == {"name": "m", "device": "cpu", "precision": "float32"}


def test_a_budget_that_leaves_nothing_to_train_on_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.plan.measure_speed", lambda *_: (1e3, 1e4))
    monkeypatch.setattr(Sources, "measure_generation", lambda _: 200.0)
    sources = GrowSources(labels=str(place / "labels.yaml"))
    settings = Growth(model="m", any_task=True, budget="5m")
    with pytest.raises(InputError, match=r"generated would take more than .* give --budget 10m"):
        growing.plan(sources, settings, device="cpu")
    assert growing.plan(sources, replace(settings, budget="11m"), device="cpu").sources


def test_examples_that_are_texts_of_a_set_are_left_out(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = [row["text"] for row in classed(24)][:2]
    spec = {"task_name": "pond", "labels": {name: {"description": f"about {name}", "examples": [
        *([f"  {known.pop().upper()}! "] if known else []), f"A new text about {name}."
    ]} for name in ("animal", "water", "none")}}  # fmt: skip
    (place / "labels.json").write_text(json.dumps(spec))
    sources = GrowSources(str(place / "train.jsonl"), labels=str(place / "labels.json"))
    assert [text.split("\n") for text in read_grow_task(sources).descriptions] == [
        [f"about {name}", name, f"A new text about {name}."] for name in ("animal", "none", "water")
    ]
    assert "labels.json: 2 examples are also texts of the sets: they are left out" in caplog.text


def test_texts_that_cannot_be_generated_end_a_run_only_if_it_has_nothing_else(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Sources) -> Any:
        raise InputError("no generated text fits its label")

    monkeypatch.setattr(Sources, "texts", property(fail))
    monkeypatch.setattr(Sources, "measure_generation", lambda _: 1.0)
    how = {"base": None, "model": "m", "any_task": True, "labels": str(place / "labels.yaml")}
    with pytest.raises(InputError, match="no generated text fits"):
        run_grow(place, out="alone", train=None, raw=(), test=None, **how)
    try_only(monkeypatch, MAJORITY, CONTRAST, PLAIN, "generated")
    found = run_grow(place, raw=(), test=None, folds=2, **how)
    assert found["dropped"] == ["generated"]
    assert "left out: generated (no generated text fits its label)" in caplog.text
    assert "Left out: generated (no generated text fits its label)." in found["notes"]


def test_what_was_written_is_read_without_the_language_model(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = GrowSources(str(place / "train.jsonl"), labels=str(place / "labels.yaml"))
    task = read_grow_task(sources)
    with DatasetWriter(place / "generated" / "dataset") as writer:
        writer.write(pa.table({"text": ["A pond."], "label": ["water"], "label_fit": [0.2]}))

    def fail(*_: Any, **__: Any) -> None:
        raise InputError("no connection")

    monkeypatch.setattr("tilth.models.load_lm", fail)
    assert Sources(task, None, Growth(model="m"), place, "cpu").texts.texts == [("A pond.",)]


def test_paraphrases_are_read_without_the_rewriter_each_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = read_grow_task(GrowSources(str(place / "train.jsonl")))
    fold = folds_of(task, 3, 1, seed=0)[1]
    one, other = fold.train[:2].tolist()
    rows = {"text": ["A pond.", "A pond.", "A boat."], "source_row": [one, other, other]}
    with DatasetWriter(place / "paraphrases" / "dataset") as writer:
        writer.write(pa.table(rows))
    monkeypatch.setattr(
        "tilth.paraphrase.rewriter.load_paraphraser", lambda **_: pytest.fail("loaded")
    )
    found = Sources(task, None, Growth(), place, "cpu").paraphrased(fold, PARAPHRASED).rows
    assert found.texts == [("A pond.",), ("A boat.",)]
    assert np.array_equal(found.targets, np.asarray(task.rows.targets)[[one, other]])


def test_a_finished_run_without_its_model_trains_it_again(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_only(monkeypatch, MAJORITY, CONTRAST)
    whole = run_grow(place, base)
    remove(place / "out" / "model")
    again = run_grow(place, base)
    assert is_whole(place / "out" / "model")
    assert (again["arms"], again["tested"]) == (whole["arms"], whole["tested"])


def test_a_bank_is_known_by_its_url(place: Path) -> None:
    open_raw([str(place / "raw.txt")], place, device="cpu")
    for name in (str(place / "bank"), f"file://{place}/bank"):
        assert is_bank([name])
        assert len(open_raw([name], place / "none", device="cpu") or []) > 0
    assert not is_bank([f"file://{place}"])


def test_a_process_that_is_killed_while_it_saves_a_model_keeps_the_seconds(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_only(monkeypatch, MAJORITY, CONTRAST)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    whole = run_grow(place, base, test=None)
    before = read_json(place / "out" / "kept.json")["seconds"]
    remove(place / "out" / "model")
    remove(place / "out" / "results.json")
    with monkeypatch.context() as patch:
        patch.setattr("tilth.workflows.grow.growing.save_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            run_grow(place, base, test=None)
    assert read_json(place / "out" / "kept.json")["seconds"] == before > 0
    again = run_grow(place, base, test=None)
    assert (again["arm"], again["arms"]) == (whole["arm"], whole["arms"])
    assert read_json(place / "out" / "kept.json")["seconds"] > before


def test_a_finished_run_is_read_without_its_sources(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_only(monkeypatch, MAJORITY, CONTRAST)
    whole = run_grow(place, base, test=None)
    assert whole["wrong"] == sorted(whole["wrong"], key=lambda row: -row["probability"])
    monkeypatch.setattr(growing._GrowingClassifier, "prepare", None)
    assert run_grow(place, base, test=None) == whole


def test_more_rows_take_longer() -> None:
    speeds = Speeds(10.0, 100.0, 5.0, 50.0)
    makes: Any = SimpleNamespace(
        settings=Growth(), count=lambda multiple: int(multiple * 60), most_compared=2_400
    )
    few, many = task_of(60), task_of(600)
    for name in (PLAIN, SETFIT, TFIDF):
        few_take, many_take = (
            speeds.seconds(Arm(name), rows, makes, Teacher(CONTRAST)) for rows in (few, many)
        )
        assert many_take >= few_take
    headed, tuned = (
        [
            speeds.seconds(Arm("x", (RETRIEVED,), rounds=rounds), few, makes, Teacher(arm))
            for rounds in (1, 2)
        ]
        for arm in (CONTRAST, PLAIN)
    )
    assert headed[0] < headed[1]
    assert headed[0] < tuned[0] < tuned[1]
    assert speeds.seconds(Arm("x", ("described",)), few, makes, Teacher(CONTRAST)) > 2_400 / 50

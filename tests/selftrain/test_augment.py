from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import tilth
from tests.selftrain.labelled import as_rows, classed, several, tagged
from tests.tiny import salads, save_encoder, tiny_bank, tiny_static
from tilth.bank import Bank
from tilth.classifiers.load import TaskSources
from tilth.data.sources import load_folder
from tilth.errors import InputError, TilthError
from tilth.models.classifier import Classifier, Kind, load_classifier, new_classifier
from tilth.runs import RunMismatch
from tilth.selftrain import pseudo_label as labelling
from tilth.selftrain.augment import AugmentRun, augment_in_run, row_counts
from tilth.selftrain.settings import Augmentation, TeacherSettings
from tilth.selftrain.tokenize import learn_tokenizer

MAKE: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "class": classed, "multi": several, "tags": tagged,
}  # fmt: skip
LABELS = {
    "class": ["animal", "none", "water"],
    "multi": ["animal", "water"],
    "tags": ["O", "B-ANIMAL", "I-ANIMAL", "B-WATER", "I-WATER"],
}
FAST: dict[str, Any] = {"epochs": 1, "learning_rate": 2e-3}
TEXTS = salads(300)
TEST = [{"text": text, "label": "none"} for text in TEXTS[:9]]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    folder = tmp_path_factory.mktemp("bank")
    tiny_static().save(str(folder / "encoder"))  # a name that the bank finds it by
    return tiny_bank(folder, TEXTS, near=False, encoder=str(folder / "encoder"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_encoder(tmp_path_factory.mktemp("base")))


@pytest.fixture(scope="module")
def teachers(base: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return folders of finished models that say something different of every text."""
    found = {}
    for kind in ("class", "multi", "tags"):
        made = new_classifier(base, kind=kind, labels=LABELS[kind], seed=3)  # type: ignore[arg-type]
        with torch.no_grad():
            head = made.model.get_submodule("classifier")
            head.weight.mul_(80)
        folder = tmp_path_factory.mktemp(kind)
        made.save(folder)
        found[kind] = str(folder)
    return found


def made(
    bank: Bank, teachers: dict[str, str], out: Path, kind: str = "class", **given: Any
) -> AugmentRun:
    def taken(kind: Any) -> dict[str, Any]:
        names = kind.__dataclass_fields__
        return {name: given.pop(name) for name in list(given) if name in names}

    settings = Augmentation(**{"count": 40, **taken(Augmentation)})
    sources = TaskSources(**{"train": MAKE[kind](60), **taken(TaskSources)})
    teacher = TeacherSettings(**{"model": teachers[kind], **taken(TeacherSettings)})
    return augment_in_run(sources, bank, out, settings, teacher, quiet=True, **given)


def rows_of(made: AugmentRun, config: str = "default") -> list[dict[str, Any]]:
    return list(load_folder(made.path, config=config))


@pytest.mark.parametrize("kind", ["class", "multi", "tags"])
def test_the_set_is_what_the_teacher_says_of_what_was_retrieved(
    bank: Bank, teachers: dict[str, str], tmp_path: Path, kind: str
) -> None:
    found = made(bank, teachers, tmp_path / "run", kind)
    teacher = load_classifier(teachers[kind])
    kept, dropped = rows_of(found), rows_of(found, "dropped")
    assert len(kept) + len(dropped) == found.results["retrieved"] == 300
    own = "tags" if kind == "tags" else "label"
    names = ["text", *(["tokens"] if kind == "tags" else []), own]
    assert list(kept[0]) == [
        *names, "probabilities", "confidence", "similarity", "query", "source", "document", "id",
    ]  # fmt: skip
    assert list(dropped[0]) == [*names, "confidence", "similarity", "query", "drop_reason"]
    assert [row["text"] for row in kept] == [bank[row["id"]] for row in kept]
    if kind == "tags":
        words = learn_tokenizer([row["tokens"] for row in tagged(60)])
        assert [row["tokens"] for row in kept] == [words.tokenize(row["text"]) for row in kept]
        expected: Any = teacher.tag_probabilities([row["tokens"] for row in kept])
        confidence = [each.max(axis=1).mean() for each in expected]
        said: Any = [each.argmax(axis=1).tolist() for each in expected]
    else:
        expected = teacher.probabilities([row["text"] for row in kept])
        sure = expected if kind == "class" else np.maximum(expected, 1 - expected)
        confidence = (sure.max(axis=1) if kind == "class" else sure.min(axis=1)).tolist()
        said = expected.argmax(axis=1).tolist()
        if kind == "multi":
            said = [np.flatnonzero(each > 0.5).tolist() for each in expected]
    for row, given in zip(kept, expected, strict=True):
        np.testing.assert_allclose(row["probabilities"], given, atol=1e-5)
    np.testing.assert_allclose([row["confidence"] for row in kept], confidence, atol=1e-5)
    assert [row[own] for row in kept] == said
    features = load_folder(found.path).features[own]
    assert getattr(features, "feature", features).names == LABELS[kind]
    truth = rows_of(found, "labelled") + rows_of(found, "validation")
    inputs = "tokens" if kind == "tags" else "text"
    given_rows = MAKE[kind](60)
    label = {"class": "label", "multi": "labels", "tags": "tags"}[kind]
    places = {name: place for place, name in enumerate(LABELS[kind])}

    def numbered(value: Any) -> Any:
        return sorted(map(places.get, value)) if kind == "multi" else (
            [places[one] for one in value] if kind == "tags" else places[value])  # fmt: skip

    assert {str(row[inputs]): row[own] for row in truth} == {
        str(row[inputs]): numbered(row[label]) for row in given_rows
    }


@pytest.mark.parametrize("kind", ["class", "multi", "tags"])
def test_labelled_rows_lie_half_way_between_label_and_teacher(
    bank: Bank, teachers: dict[str, str], tmp_path: Path, kind: str
) -> None:
    own = rows_of(made(bank, teachers, tmp_path / "run", kind, count=30), "labelled")
    teacher, size = load_classifier(teachers[kind]), len(LABELS[kind])
    label = "tags" if kind == "tags" else "label"
    said: Any = (
        teacher.tag_probabilities([row["tokens"] for row in own])
        if kind == "tags" else teacher.probabilities([row["text"] for row in own])
    )  # fmt: skip
    for row, given in zip(own, said, strict=True):
        labels = np.eye(size)[row[label]]
        labels = labels.sum(axis=0) if kind == "multi" else labels
        np.testing.assert_allclose(row["probabilities"], (labels + given) / 2, atol=1e-5)


def test_by_default_a_draw_of_each_class_is_kept(
    bank: Bank, teachers: dict[str, str], tmp_path: Path
) -> None:
    one, two = (
        made(bank, teachers, tmp_path / f"run-{seed}", count=30, seed=seed) for seed in (0, 1)
    )
    assert set(one.results["drops"]) == {"not drawn"}
    assert {row["id"] for row in rows_of(one)} != {row["id"] for row in rows_of(two)}
    for found in (one, two):
        for figures in found.results["classes"].values():
            assert figures["kept"] == min(figures["wanted"], figures["labelled"])


def test_of_each_class_the_surest_are_kept_and_all_is_counted(
    bank: Bank, teachers: dict[str, str], tmp_path: Path
) -> None:
    found = made(bank, teachers, tmp_path / "run", count=30, test=TEST, select="confidence")
    kept, dropped = rows_of(found), rows_of(found, "dropped")
    results = found.results
    assert results == json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["left_out"]["test set, exact"] == 9
    assert not {row["text"] for row in kept + dropped} & set(TEXTS[:9])
    assert results["drops"] == {"class is full": len(dropped)}
    assert results["kept"] == len(kept)
    truth = [LABELS["class"][row["label"]] for row in rows_of(found, "labelled")]
    for place, name in enumerate(LABELS["class"]):
        one = results["classes"][name]
        own = [row["confidence"] for row in kept if row["label"] == place]
        others = [row["confidence"] for row in dropped if row["label"] == place]
        assert one["kept"] == len(own) == min(one["wanted"], one["labelled"])
        assert one["labelled"] == len(own) + len(others)
        assert not others or min(own) >= max(others)
        assert one["training"] == truth.count(name)
    assert sum(one["retrieved"] for one in results["classes"].values()) == results["retrieved"]
    assert sum(one["wanted"] for one in results["classes"].values()) == 30
    assert sum(one["kept"] for one in results["sources"].values()) == len(kept)
    card = (tmp_path / "run" / "dataset" / "README.md").read_text()
    assert "Nobody has checked the labels" in card
    assert "raw.txt" in card
    assert "- test set, exact: 9" in card


def test_a_base_is_trained_and_measured_on(bank: Bank, base: str, tmp_path: Path) -> None:
    said = []

    def measure(classifier: Classifier, task: Any) -> dict[str, Any]:
        said.append((classifier.labels, len(task.test)))
        return {"test": {"n": 9}}

    found = augment_in_run(
        TaskSources(classed(60), test=TEST), bank, tmp_path / "run",
        Augmentation(count=20, seed=4), TeacherSettings(base, 2, FAST), quiet=True,
        measure=measure,
    )  # fmt: skip
    assert said == [(LABELS["class"], 9)]
    assert found.results["teacher"] == {"test": {"n": 9}}
    about = json.loads((tmp_path / "run" / "teacher" / "results.json").read_text())
    assert [one["seed"] for one in about["seeds"]] == [4, 5]
    assert found.teacher().labels == LABELS["class"]


def test_in_python_it_is_a_data_set(bank: Bank, teachers: dict[str, str], tmp_path: Path) -> None:
    how: dict[str, Any] = {"teacher": teachers["class"], "count": 30, "quiet": True}
    rows = tilth.augment(classed(60), bank, **how)
    again = tilth.augment(classed(60), bank.path, out=tmp_path / "run", **how)
    assert rows.features["label"].names == LABELS["class"]
    assert rows[:] == again[:]
    with pytest.raises(InputError, match="no setting 'counts'"):
        tilth.augment(classed(60), bank, teacher=teachers["class"], counts=3)


def test_a_loaded_teacher_and_one_with_more_labels(
    bank: Bank, teachers: dict[str, str], tmp_path: Path
) -> None:
    whole = made(bank, teachers, tmp_path / "whole")
    loaded = load_classifier(teachers["class"])
    assert rows_of(made(bank, teachers, tmp_path / "loaded", model=loaded)) == rows_of(whole)
    assert not (tmp_path / "whole" / "teacher").exists()
    some = [row for row in classed(60) if row["label"] != "none"]
    few = made(bank, teachers, tmp_path / "few", train=some)
    assert few.results["labels"] == LABELS["class"]
    assert few.results["classes"]["none"]["kept"] == 0
    others = [{**row, "label": f"new {row['label']}"} for row in classed(60)]
    with pytest.raises(InputError, match="label 'new animal' is none of the model's"):
        made(bank, teachers, tmp_path / "others", train=others)


@pytest.mark.parametrize("step", ["hits", "labels", "dataset"])
def test_a_stopped_run_goes_on(
    bank: Bank, teachers: dict[str, str], tmp_path: Path, step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(labelling, "PART", 64)
    whole = made(bank, teachers, tmp_path / "whole")
    with monkeypatch.context() as patch:
        _fail_in(step, patch)
        with pytest.raises(TilthError, match="stopped"):
            made(bank, teachers, tmp_path / "run")
    assert not (tmp_path / "run" / "results.json").exists()
    labels = sorted((tmp_path / "run" / "labels" / "parts").glob("*"))
    assert len(labels) == {"hits": 0, "labels": 2, "dataset": 5}[step]
    times = [path.stat().st_mtime_ns for path in labels]
    again = made(bank, teachers, tmp_path / "run")
    assert [path.stat().st_mtime_ns for path in labels] == times
    for config in ("default", "dropped"):
        assert rows_of(again, config) == rows_of(whole, config)
    assert again.results == whole.results
    assert pq.read_table(labels[0] if labels else tmp_path / "run/labels/parts/part-00000.parquet")


def _fail_in(step: str, patch: pytest.MonkeyPatch) -> None:
    from tilth.runs import Run
    from tilth.selftrain import augment

    def fail(*_: Any, **__: Any) -> Any:
        raise TilthError("stopped")

    if step == "dataset":
        patch.setattr(augment, "write_set", fail)
        return
    write = Run.write_part

    def some(run: Run, index: int, table: Any) -> None:
        if run.command == f"augment {step}" and index == 2:
            raise TilthError("stopped")
        write(run, index, table)

    patch.setattr(Run, "write_part", some)


def test_a_finished_run_is_read(
    bank: Bank, teachers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(bank, teachers, tmp_path / "run")
    monkeypatch.setattr(labelling, "label_sentences", None)
    monkeypatch.setattr(labelling, "retrieve", None)
    assert made(bank, teachers, tmp_path / "run").results == first.results
    with pytest.raises(RunMismatch, match=r"floor is 0\.0 in the folder, 0\.5 asked"):
        made(bank, teachers, tmp_path / "run", floor=0.5)
    with pytest.raises(RunMismatch, match="training set"):
        made(bank, teachers, tmp_path / "run", train=classed(63))


def test_what_was_removed_of_a_finished_run_is_made_anew(
    bank: Bank, teachers: dict[str, str], tmp_path: Path
) -> None:
    first = made(bank, teachers, tmp_path / "run")
    rows = rows_of(first)
    for damage in ("results.json", "dataset", "hits/results.json", "hits"):
        path = tmp_path / "run" / damage
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.write_text("[")
        if damage != "dataset":
            (tmp_path / "run" / "results.json").unlink(missing_ok=True)
        again = made(bank, teachers, tmp_path / "run")
        assert again.results == first.results
        assert rows_of(again) == rows


def test_a_refused_call_leaves_a_finished_run_as_it_was(
    bank: Bank, base: str, teachers: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    rows = rows_of(made(bank, teachers, out))
    wrong: list[dict[str, Any]] = [
        {"model": str(tmp_path / "nope")}, {"min_similarity": 1.0}, {"sources": ("nope",)},
        {"floor": 1.0}, {"train": [{"text": "a", "label": 0.5}]},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(InputError):
            made(bank, teachers, out, overwrite=True, **given)
        assert list(load_folder(out)) == rows
    assert made(bank, teachers, out).results["kept"] == len(rows)


def test_overwriting_begins_every_step_anew(
    bank: Bank, teachers: dict[str, str], tmp_path: Path
) -> None:
    first = made(bank, teachers, tmp_path / "run", count=10)
    again = made(bank, teachers, tmp_path / "run", count=25, overwrite=True)
    assert first.results["kept"] < again.results["kept"] <= 25


@pytest.mark.parametrize(
    "setting",
    [
        {"query": "all-average"}, {"query": "clusters"}, {"query": "clusters", "clusters": 2},
        {"query": "per-sentence"}, {"candidates": 50}, {"select": "confidence"},
        {"seed": 1}, {"select": "similarity"}, {"select": "margin"},
        {"min_similarity": 0.4}, {"count": None, "multiple": 0.2},
        {"count": None, "per_class": 9}, {"select": "all"},
    ],
)  # fmt: skip
def test_every_setting_changes_the_set(
    bank: Bank, teachers: dict[str, str], tmp_path: Path, setting: dict[str, Any]
) -> None:
    usual = made(bank, teachers, tmp_path / "usual")
    other = made(bank, teachers, tmp_path / "other", **setting)
    kept, dropped = ("id", "similarity", "query"), ("text", "drop_reason")

    def held(made: AugmentRun) -> list[list[Any]]:
        return [[row[n] for n in kept] for row in rows_of(made)] + [
            [row[n] for n in dropped] for row in rows_of(made, "dropped")
        ]

    assert held(usual) != held(other)
    if "per_class" in setting:
        assert {one["wanted"] for one in other.results["classes"].values()} == {9}
    if "candidates" in setting:
        assert other.results["retrieved"] == 50
    if "min_similarity" in setting:
        assert min(row["similarity"] for row in rows_of(other)) >= 0.4


def test_the_floor(bank: Bank, teachers: dict[str, str], tmp_path: Path) -> None:
    every = rows_of(made(bank, teachers, tmp_path / "usual", select="all"))
    floor = float(np.median([row["confidence"] for row in every]))
    found = made(bank, teachers, tmp_path / "other", select="all", floor=floor)
    assert {row["id"] for row in rows_of(found)} == {
        row["id"] for row in every if row["confidence"] >= floor
    }
    assert found.results["drops"] == {"below the confidence floor": 300 - found.results["kept"]}


def test_sources_and_near_duplicates(tmp_path: Path, teachers: dict[str, str]) -> None:
    for name, texts in (("a", TEXTS[:80]), ("b", TEXTS[80:160])):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts))
    bank = Bank.build(
        tmp_path / "bank", [tmp_path / "a.txt", tmp_path / "b.txt"], encoder=tiny_static(),
        workers=1, near=False, quiet=True,
    )  # fmt: skip
    found = made(bank, teachers, tmp_path / "run", sources=("*b.txt",))
    assert found.results["retrieved"] == 80
    near = [{"text": text.replace(".", " the."), "label": "none"} for text in TEXTS[:20]]
    left = made(bank, teachers, tmp_path / "near", test=near)
    assert left.results["left_out"]["test set, near"] > 0
    stay = made(bank, teachers, tmp_path / "stay", test=near, near=False)
    assert stay.results["retrieved"] > left.results["retrieved"]


def test_validation_rows_are_no_hits_either(
    bank: Bank, teachers: dict[str, str], tmp_path: Path
) -> None:
    rows = [{"text": text, "label": "none"} for text in TEXTS[20:30]]
    found = made(bank, teachers, tmp_path / "run", validation=rows)
    assert found.results["validation"] == 10
    assert found.results["training"] == 60
    texts = {row["text"] for row in rows_of(found) + rows_of(found, "dropped")}
    assert not texts & set(TEXTS[20:30])
    assert found.results["left_out"]["validation set, exact"] == 10


def test_nothing_kept_is_said(bank: Bank, teachers: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of 300 labelled sentences is kept .*lower --floor"):
        made(bank, teachers, tmp_path / "run", floor=1.0)
    with pytest.raises(InputError, match="near enough"):
        made(bank, teachers, tmp_path / "far", min_similarity=0.9999)


@pytest.mark.parametrize("kind", ["class", "tags"])
def test_labels_are_the_same_part_by_part(
    bank: Bank, teachers: dict[str, str], tmp_path: Path, kind: Kind,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    whole = made(bank, teachers, tmp_path / "whole", kind)
    monkeypatch.setattr(labelling, "PART", 37)
    parts = made(bank, teachers, tmp_path / "parts", kind)
    assert [row["id"] for row in rows_of(parts)] == [row["id"] for row in rows_of(whole)]


def test_a_teacher_of_other_labels_or_with_settings_of_its_training_is_refused(
    bank: Bank, teachers: dict[str, str], tmp_path: Path
) -> None:
    rows = [row for row in classed(60) if row["label"] != "none"]
    several_classes = {**teachers, "class": teachers["multi"]}
    with pytest.raises(InputError, match="gives any number of classes a text, the training set"):
        made(bank, several_classes, tmp_path / "run", train=rows)
    with pytest.raises(InputError, match="is finished, it is not trained: leave seeds"):
        made(bank, teachers, tmp_path / "run", seeds=2)


def test_seeds_are_checked_before_anything_is_searched(
    bank: Bank, base: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="seeds is 0"):
        made(bank, {"class": base}, tmp_path / "run", seeds=0)
    assert not (tmp_path / "run").exists()


def test_a_teacher_that_names_no_labels_means_them_by_number(
    bank: Bank, base: str, tmp_path: Path
) -> None:
    teacher = new_classifier(base, kind="class", labels=["LABEL_0", "LABEL_1", "LABEL_2"], seed=3)
    teacher.save(tmp_path / "teacher")
    numbers = {"animal": 0, "none": 1, "water": 2}
    rows = [{"text": row["text"], "label": numbers[row["label"]]} for row in classed(60)]
    found = made(bank, {"class": str(tmp_path / "teacher")}, tmp_path / "run", train=rows)
    assert found.results["labels"] == ["0", "1", "2"]


def test_a_class_that_the_teacher_never_gives_is_told(
    bank: Bank, base: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    teacher = new_classifier(base, kind="class", labels=LABELS["class"], seed=3)
    with torch.no_grad():
        teacher.model.get_submodule("classifier").bias[2] = -1e4
    teacher.save(tmp_path / "teacher")
    made(bank, {"class": str(tmp_path / "teacher")}, tmp_path / "run")
    assert "'water': the teacher labels none of those that were found so" in caplog.text


ROWS = as_rows(classed(60))
LARGE = 10_000_000


def wanted(bank: int = LARGE, **asked: Any) -> tuple[int, int]:
    count, _, candidates = row_counts(Augmentation(**asked), ROWS, bank)
    return count, candidates


def test_how_many_are_wanted() -> None:
    assert wanted() == (6_000, 12_000)  # the paper's hundred for each row of a small set
    assert wanted(multiple=2.5) == (150, 2_000)
    assert wanted(count=5_000) == (5_000, 10_000)
    assert wanted(per_class=1_000) == (3_000, 6_000)
    assert wanted(count=5_000, candidates=6_000) == (5_000, 6_000)
    assert wanted(candidates=900) == (450, 900)


def test_a_bank_gives_a_tenth_unless_more_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert wanted(90_000) == (4_500, 9_000)
    assert "4,500 rows are wanted, not 6,000 (100 for each row" in caplog.text
    assert wanted(300) == (150, 300)
    assert wanted(90_000, multiple=100) == (6_000, 12_000)
    with caplog.at_level(logging.WARNING):
        assert wanted(9_000, multiple=100) == (6_000, 9_000)
    assert "holds 9,000 sentences, 12,000 were to be retrieved" in caplog.text


def test_nothing_is_said_where_a_bank_is_large_enough(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        wanted(count=100)
        assert wanted(300, count=20) == (20, 300)
    assert not caplog.records


def test_the_ratio_is_the_training_sets_or_even() -> None:
    _, usual, _ = row_counts(Augmentation(), as_rows(classed(61)), LARGE)
    np.testing.assert_allclose(usual, np.array([21, 20, 20]) / 61)
    _, even, _ = row_counts(Augmentation(per_class=5), as_rows(classed(61)), LARGE)
    np.testing.assert_allclose(even, 1 / 3)
    assert len(row_counts(Augmentation(), as_rows(several(60)), LARGE)[1]) == 3
    assert len(row_counts(Augmentation(), as_rows(tagged(60)), LARGE)[1]) == 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"query": "label"}, "query 'label' is unknown: use all-average"),
        ({"select": "best"}, "select 'best' is unknown: use random, confidence"),
        ({"count": 3, "multiple": 2}, "multiple and count say both"),
        ({"count": 0}, "count is 0: give a whole number from 1"),
        ({"multiple": -1.0}, "multiple is -1.0"),
        ({"per_class": 0}, "per_class is 0"),
        ({"candidates": 0}, "candidates is 0"),
        ({"clusters": 0}, "clusters is 0"),
        ({"floor": 1.5}, "floor is 1.5: give a number from 0 to 1"),
        ({"min_similarity": 2.0}, "min_similarity is 2.0: give a number from -1 to 1"),
    ],
)
def test_wrong_values_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said.replace(".", r"\.")):
        Augmentation(**asked)

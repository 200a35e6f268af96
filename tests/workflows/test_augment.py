import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tilth
from tests.selftrain.labelled import classed, several, tagged
from tests.tiny import read_json, salads, tiny_bank, tiny_static, write_lines, write_rows
from tests.tiny.calls import taken
from tilth.bank import Bank
from tilth.classifiers.load import TaskSources
from tilth.data.sources import load_folder
from tilth.data.tokenize import learn_tokenizer
from tilth.errors import InputError, TilthError
from tilth.evaluate.classify import evaluate_classifier
from tilth.evaluate.tag import evaluate_tagger
from tilth.metrics.scores import iob2
from tilth.models.classifier import Classifier, load_classifier, new_classifier
from tilth.models.device import PRECISIONS
from tilth.runs import Run, RunMismatch
from tilth.selftrain import pseudo_label, retrieve
from tilth.selftrain.settings import Augmentation, TeacherSettings
from tilth.workflows import augment
from tilth.workflows.augment import augment_to_run, teacher_lines, teacher_warning

MAKE: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "class": classed, "multi": several, "tags": tagged,
}  # fmt: skip
LABELS = {
    "class": ["animal", "none", "water"],
    "multi": ["animal", "water"],
    "tags": ["O", "B-ANIMAL", "I-ANIMAL", "B-WATER", "I-WATER"],
}
KINDS = pytest.mark.parametrize("kind", ["class", "multi", "tags"])
FAST: dict[str, Any] = {"epochs": 1, "learning_rate": 2e-3}
TEXTS = salads(300)
TEST = [{"text": text, "label": "none"} for text in TEXTS[:9]]
NO_NONE = [row for row in classed(60) if row["label"] != "none"]
Made = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def bank(static: str, tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return tiny_bank(tmp_path_factory.mktemp("bank"), TEXTS, near=False, encoder=static)


def new_teacher(base: str, labels: list[str], kind: Any = "class") -> Classifier:
    """Return a model that says something different of every text."""
    made = new_classifier(base, kind=kind, labels=labels, seed=3)
    with torch.no_grad():
        made.model.get_submodule("classifier").weight.mul_(80)
    return made


@pytest.fixture(scope="module")
def teachers(base: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return folders of finished models."""
    found = {}
    for kind, labels in LABELS.items():
        found[kind] = str(tmp_path_factory.mktemp(kind))
        new_teacher(base, labels, kind).save(Path(found[kind]))
    return found


def making(bank: Bank, teachers: dict[str, str], folder: Path) -> Made:
    """Return a function that augments in a folder's folder of a name, and returns results.json."""

    def run(name: str = "run", kind: str = "class", **given: Any) -> dict[str, Any]:
        settings = Augmentation(**{"count": 40, **taken(given, Augmentation)})
        sources = TaskSources(**{"train": MAKE[kind](60), **taken(given, TaskSources)})
        teacher = TeacherSettings(**{"model": teachers[kind], **taken(given, TeacherSettings)})
        asked = {"bank": bank, "out": folder / name, "quiet": True, **given}
        return augment_to_run(sources, settings=settings, teacher=teacher, **asked)

    return run


@pytest.fixture
def made(bank: Bank, teachers: dict[str, str], tmp_path: Path) -> Made:
    return making(bank, teachers, tmp_path)


@pytest.fixture(scope="module")
def usual(
    bank: Bank, teachers: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """Return the run of the usual settings, and its results; nothing is written there."""
    folder = tmp_path_factory.mktemp("usual")
    return folder / "run", making(bank, teachers, folder)()


def test_a_teacher_that_was_trained_on_the_validation_rows_is_told(
    made: Made, teachers: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = classed(60)
    source = write_rows(tmp_path / "rows.jsonl", list(rows))
    write_training(tmp_path / "training", source, Path(teachers["class"]))
    made(train=rows, model=str(tmp_path / "training"))
    assert re.search(
        r"validation set: (\d+) of \1 rows are in the train set, held-out rows .*/training",
        caplog.text,
    )
    caplog.clear()
    made("other", train=rows)  # of this teacher nothing is known
    assert "scores on them are too high" not in caplog.text


def write_training(folder: Path, source: Path, model: Path) -> None:
    """Write the run of a training on a file."""
    run = Run.open(folder, command="train classifier", settings={}, fingerprints={}, parts=0)
    with run:
        run.resolve("sources", lambda: {"train": str(source)})
    shutil.copytree(model, folder / "model")


def rows_of(run: Path, config: str = "default") -> list[dict[str, Any]]:
    return list(load_folder(run, config=config))


@KINDS
def test_the_set_is_what_the_teacher_says_of_what_was_retrieved(
    made: Made, bank: Bank, teachers: dict[str, str], tmp_path: Path, kind: str
) -> None:
    results = made(kind=kind)
    teacher = load_classifier(teachers[kind])
    kept, dropped = rows_of(tmp_path / "run"), rows_of(tmp_path / "run", "dropped")
    assert len(kept) + len(dropped) == results["retrieved"] == 300
    # What `auto` means on this machine: another one does not go on with other figures.
    labels = read_json(tmp_path / "run" / "labels" / "run.json")
    assert labels["settings"]["precision"] in PRECISIONS
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
        tags = [[LABELS[kind][place] for place in each.argmax(axis=1)] for each in expected]
        said: Any = [[LABELS[kind].index(tag) for tag in iob2(row)] for row in tags]
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
    features = load_folder(tmp_path / "run").features[own]
    assert getattr(features, "feature", features).names == LABELS[kind]


@KINDS
def test_labelled_rows_keep_their_labels_and_lie_half_way_to_the_teacher(
    made: Made, teachers: dict[str, str], tmp_path: Path, kind: str
) -> None:
    made(kind=kind, count=30)
    own = rows_of(tmp_path / "run", "labelled")
    inputs, label = ("tokens", "tags") if kind == "tags" else ("text", "label")
    given = {str(row[inputs]): row.get(label, row.get("labels")) for row in MAKE[kind](60)}
    names = LABELS[kind]
    for row in own + rows_of(tmp_path / "run", "validation"):
        said = row[label]
        truth = names[said] if kind == "class" else [names[one] for one in said]
        assert given.pop(str(row[inputs])) == truth
    assert not given
    teacher = load_classifier(teachers[kind])
    answers: Any = (
        teacher.tag_probabilities([row["tokens"] for row in own])
        if kind == "tags" else teacher.probabilities([row["text"] for row in own])
    )  # fmt: skip
    for row, answer in zip(own, answers, strict=True):
        labels = np.eye(len(names))[row[label]]
        labels = labels.sum(axis=0) if kind == "multi" else labels
        np.testing.assert_allclose(row["probabilities"], (labels + answer) / 2, atol=1e-5)


def test_of_each_class_the_surest_are_kept_and_all_is_counted(made: Made, tmp_path: Path) -> None:
    results = made(count=30, test=TEST, select="confidence")
    kept, dropped = rows_of(tmp_path / "run"), rows_of(tmp_path / "run", "dropped")
    assert results == read_json(tmp_path / "run" / "results.json")
    assert results["left_out"]["test set, exact"] == 9
    assert not {row["text"] for row in kept + dropped} & set(TEXTS[:9])
    assert results["drops"] == {"class is full": len(dropped)}
    assert results["kept"] == len(kept)
    truth = [LABELS["class"][row["label"]] for row in rows_of(tmp_path / "run", "labelled")]
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
    for said in ("Nobody has checked the labels", "raw.txt", "- test set, exact: 9"):
        assert said in card


@KINDS
def test_a_base_is_trained_measured_and_reported(
    made: Made, base: str, tmp_path: Path, kind: str
) -> None:
    test = write_rows(tmp_path / "test.jsonl", MAKE[kind](20, seed=5))
    results = made(
        kind=kind, model=base, seeds=2, training=FAST, seed=4, test=str(test), bootstrap=50
    )
    run = tmp_path / "run"
    about = read_json(run / "teacher" / "results.json")
    assert [one["seed"] for one in about["seeds"]] == [4, 5]
    measure = evaluate_tagger if kind == "tags" else evaluate_classifier
    teacher = load_classifier(str(run / "teacher"))
    assert results["teacher"]["test"] == measure(teacher, test, bootstrap=50, seed=4)
    assert results["teacher"]["validation"]["n"] == results["validation"]
    assert f"{results['kept']:,} sentences added" in (run / "report.html").read_text()
    before = (run / "dataset").stat().st_mtime_ns
    again = made(
        kind=kind, model=base, seeds=2, training=FAST, seed=4, test=str(test), bootstrap=60
    )
    assert again["teacher"]["test"] == measure(teacher, test, bootstrap=60, seed=4)
    assert again["classes"] == results["classes"]
    assert (run / "dataset").stat().st_mtime_ns == before
    assert [line[::2][:2] for line in teacher_lines(results)] == [
        (name, figure)
        for name in ("test", "validation")
        for figure in {
            "class": ["accuracy", "macro F1"],
            "multi": ["macro F1", "micro F1", "all labels right"],
            "tags": ["span F1", "precision", "recall"],
        }[kind]
    ]


def test_in_python_it_is_a_data_set(bank: Bank, teachers: dict[str, str], tmp_path: Path) -> None:
    how: dict[str, Any] = {"teacher": teachers["class"], "count": 30, "quiet": True}
    rows = tilth.augment(classed(60), bank, **how)
    again = tilth.augment(classed(60), bank.path, out=tmp_path / "run", **how)
    assert rows.features["label"].names == LABELS["class"]
    assert rows[:] == again[:]
    with pytest.raises(InputError, match="no setting 'counts'"):
        tilth.augment(classed(60), bank, teacher=teachers["class"], counts=3)


def test_a_loaded_teacher_and_one_with_more_labels(
    made: Made, usual: tuple[Path, dict[str, Any]], teachers: dict[str, str], tmp_path: Path
) -> None:
    made("loaded", model=load_classifier(teachers["class"]))
    assert rows_of(tmp_path / "loaded") == rows_of(usual[0])
    assert not (usual[0] / "teacher").exists()
    few = made("few", train=NO_NONE)
    assert few["labels"] == LABELS["class"]
    assert few["classes"]["none"]["kept"] == 0


@pytest.mark.parametrize("step", ["hits", "labels", "dataset"])
def test_a_stopped_run_goes_on(
    made: Made, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieve, "PART", 64)
    whole = made("whole")
    write = Run.write_part

    def some(run: Run, index: int, table: Any) -> None:
        if run.command == f"augment {step}" and index == 2:
            raise TilthError("stopped")
        write(run, index, table)

    def fail(*_: Any, **__: Any) -> Any:
        raise TilthError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "write_part", some)
        if step == "dataset":
            patch.setattr(augment, "write_set", fail)
        with pytest.raises(TilthError, match="stopped"):
            made()
    assert not (tmp_path / "run" / "results.json").exists()
    labels = sorted((tmp_path / "run" / "labels" / "parts").glob("*"))
    assert len(labels) == {"hits": 0, "labels": 2, "dataset": 5}[step]
    times = [path.stat().st_mtime_ns for path in labels]
    assert made() == whole
    assert [path.stat().st_mtime_ns for path in labels] == times
    for config in ("default", "dropped"):
        assert rows_of(tmp_path / "run", config) == rows_of(tmp_path / "whole", config)


def test_a_finished_run_is_read(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made()
    monkeypatch.setattr(pseudo_label, "label_sentences", None)
    monkeypatch.setattr(retrieve, "retrieve", None)
    assert made() == first
    with pytest.raises(RunMismatch, match=r"min_confidence is 0\.0 in the folder, 0\.5 asked"):
        made(min_confidence=0.5)
    with pytest.raises(RunMismatch, match="training set"):
        made(train=classed(63))


def test_what_was_removed_of_a_finished_run_is_made_anew(made: Made, tmp_path: Path) -> None:
    first, rows = made(), rows_of(tmp_path / "run")
    for damage in ("results.json", "dataset", "hits/results.json", "hits"):
        path = tmp_path / "run" / damage
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.write_text("[")
        if damage != "dataset":
            (tmp_path / "run" / "results.json").unlink(missing_ok=True)
        assert made() == first
        assert rows_of(tmp_path / "run") == rows


def test_a_refused_call_leaves_a_finished_run_and_another_overwrites_it(
    made: Made, tmp_path: Path
) -> None:
    first, rows = made(count=10), rows_of(tmp_path / "run")
    wrong: list[dict[str, Any]] = [
        {"model": str(tmp_path / "nope")}, {"min_similarity": 1.0}, {"sources": ("nope",)},
        {"min_confidence": 1.0}, {"train": [{"text": "a", "label": 0.5}]},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(InputError):
            made(count=10, overwrite=True, **given)
        assert rows_of(tmp_path / "run") == rows
    assert first["kept"] < made(count=25, overwrite=True)["kept"] <= 25


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
    made: Made, usual: tuple[Path, dict[str, Any]], tmp_path: Path, setting: dict[str, Any]
) -> None:
    other = made("other", **setting)
    kept, dropped = ("id", "similarity", "query"), ("text", "drop_reason")
    held = [
        [[row[name] for name in kept] for row in rows_of(run)]
        + [[row[name] for name in dropped] for row in rows_of(run, "dropped")]
        for run in (usual[0], tmp_path / "other")
    ]
    assert held[0] != held[1]
    assert set(usual[1]["drops"]) == {"not drawn"}
    if "seed" in setting:  # a draw of each class
        for figures in other["classes"].values():
            assert figures["kept"] == min(figures["wanted"], figures["labelled"])
    if "per_class" in setting:
        assert {one["wanted"] for one in other["classes"].values()} == {9}
    if "candidates" in setting:
        assert other["retrieved"] == 50
    if "min_similarity" in setting:
        assert min(row["similarity"] for row in rows_of(tmp_path / "other")) >= 0.4


def test_the_floor(made: Made, tmp_path: Path) -> None:
    made("usual", select="all")
    every = rows_of(tmp_path / "usual")
    floor = float(np.median([row["confidence"] for row in every]))
    found = made(select="all", min_confidence=floor)
    assert {row["id"] for row in rows_of(tmp_path / "run")} == {
        row["id"] for row in every if row["confidence"] >= floor
    }
    assert found["drops"] == {"below the confidence floor": 300 - found["kept"]}


def test_sources_and_near_duplicates(made: Made, tmp_path: Path) -> None:
    files = [
        write_lines(tmp_path / f"{name}.txt", TEXTS[start : start + 80])
        for name, start in (("a", 0), ("b", 80))
    ]
    encoder = tiny_static()
    bank = Bank.build(tmp_path / "bank", files, encoder=encoder, workers=1, near=False, quiet=True)
    assert made(bank=bank, sources=("*b.txt",))["retrieved"] == 80
    near = [{"text": text.replace(".", " the."), "label": "none"} for text in TEXTS[:20]]
    left = made("near", bank=bank, test=near)
    assert left["left_out"]["test set, near"] > 0
    assert made("stay", bank=bank, test=near, near=False)["retrieved"] > left["retrieved"]


def test_validation_rows_are_no_hits_either(made: Made, tmp_path: Path) -> None:
    found = made(validation=[{"text": text, "label": "none"} for text in TEXTS[20:30]])
    assert (found["validation"], found["training"]) == (10, 60)
    rows = rows_of(tmp_path / "run") + rows_of(tmp_path / "run", "dropped")
    assert not {row["text"] for row in rows} & set(TEXTS[20:30])
    assert found["left_out"]["validation set, exact"] == 10


@pytest.mark.parametrize("kind", ["class", "tags"])
def test_labels_are_the_same_part_by_part(
    made: Made, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("whole", kind)
    monkeypatch.setattr(retrieve, "PART", 37)
    made("parts", kind)
    whole, parts = ([row["id"] for row in rows_of(tmp_path / name)] for name in ("whole", "parts"))
    assert parts == whole


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"min_confidence": 1.0}, r"none of 300 labelled .* is kept .*lower --min-confidence"),
        ({"min_similarity": 0.9999}, "near enough"),
        ({"kind": "multi", "train": NO_NONE}, "gives any number of classes a text, the train"),
        ({"seeds": 2}, "is finished, it is not trained: leave seeds"),
        ({"model": "BASE", "seeds": 0}, "seeds is 0"),
        ({"bootstrap": -1}, "bootstrap is -1"),
        ({"train": [{**row, "label": f"new {row['label']}"} for row in classed(60)]},
         "label 'new animal' is none of the model's"),
    ],
)  # fmt: skip
def test_wrong_calls_are_refused(
    made: Made, base: str, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    if "model" in given:
        given = {**given, "model": base}
    with pytest.raises(InputError, match=said):
        made(**given)
    if "seeds" in given:
        assert not (tmp_path / "run").exists()  # checked before anything is searched


def test_a_teacher_that_names_no_labels_means_them_by_number(made: Made, base: str) -> None:
    numbers = {"animal": 0, "none": 1, "water": 2}
    rows = [{"text": row["text"], "label": numbers[row["label"]]} for row in classed(60)]
    teacher = new_teacher(base, ["LABEL_0", "LABEL_1", "LABEL_2"])
    assert made(model=teacher, train=rows)["labels"] == ["0", "1", "2"]


def test_a_class_that_the_teacher_never_gives_is_told(
    made: Made, base: str, caplog: pytest.LogCaptureFixture
) -> None:
    teacher = new_classifier(base, kind="class", labels=LABELS["class"], seed=3)
    with torch.no_grad():
        teacher.model.get_submodule("classifier").bias[2] = -1e4
    made(model=teacher)
    assert "'water': the teacher gave this label to no retrieved sentence" in caplog.text


def test_a_class_below_the_floor_is_told(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = np.tile(np.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0.4, 0.6]], np.float32), (100, 1))
    monkeypatch.setattr(augment, "read_pseudo_labels", lambda _: answers)
    made(min_confidence=0.7)
    assert (
        "of 'water': the teacher is below --min-confidence for the 100 that it gave this label: "
        "lower it" in caplog.text
    )
    assert "of 'animal'" not in caplog.text


def told(*confusion: list[int]) -> dict[str, Any]:
    """Return scores of rows by label and answer."""
    table = np.array(confusion)
    classes = {
        name: {"n": int(table[place].sum()), "predicted": int(table[:, place].sum())}
        for place, name in enumerate("ab")
    }
    accuracy = {"value": float(100 * table.trace() / table.sum())}
    return {
        "n": int(table.sum()), "accuracy": accuracy, "classes": classes,
        "confusion": table.tolist(),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "warned"),
    [
        ({"test": {"n": 500, "accuracy": {"value": 52.4}}}, "accuracy on the test rows is 52"),
        ({"test": {"n": 500, "accuracy": {"value": 73.0}}}, None),
        ({"validation": {"n": 60, "f1": {"value": 40.0}}}, "F1 on the validation rows is 40"),
        ({"validation": {"n": 30, "accuracy": {"value": 40.0}}}, None),  # too few rows to tell
        ({"test": {"n": 500, "accuracy": {"value": None}}}, None),
        (
            {"validation": told([1, 13], [0, 16])},
            r"56.7: its answers do not surely go with the labels \(29 of 30 are 'b'\)",
        ),
        ({"test": told([0, 40], [0, 20])}, "on the test rows is 33.3: so many"),
        ({"test": told([0, 14], [0, 16])}, r"\(30 of 30 are 'b'\)"),
        ({"test": told([58, 0], [0, 2])}, None),  # rare, but told
        ({"test": told([12, 3], [4, 11])}, None),
        ({"test": told([5, 5], [4, 5])}, None),  # too few rows to tell
        ({"test": told([30, 0], [0, 0])}, None),
        ({}, None),
    ],
)
def test_a_poor_teacher_is_warned_of(scores: dict[str, Any], warned: str | None) -> None:
    said = teacher_warning({"teacher": scores})
    assert said is None if warned is None else re.search(warned, str(said))

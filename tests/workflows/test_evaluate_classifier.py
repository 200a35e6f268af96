"""Evaluate classifiers and taggers by name and compare systems, on models of fixed answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.tiny import read_json, salads, write_rows
from tests.tiny.classifiers import Fake
from tilth.data.examples import Examples, read_examples
from tilth.errors import InputError
from tilth.evaluate.classify import classify_scores, compare_classify_scores
from tilth.evaluate.tag import best_tags, compare_tag_scores, tag_scores
from tilth.report.systems import figures_of
from tilth.runs import Run, RunMismatch
from tilth.workflows import evaluate_classifier as evaluating
from tilth.workflows.evaluate_classifier import (
    SHOWN,
    Evaluated,
    System,
    evaluate_to_run,
    warn_of_training_rows,
)
from tilth.workflows.evaluate_classifier import compare_systems as compare_with
from tilth.workflows.predict import predict
from tilth.workflows.predictors import Described
from tilth.workflows.settings import EvaluateSettings


@dataclass
class Fixed:
    """A classifier or tagger whose answers are given: of each text a label, or labels, or tags."""

    labels: list[str]
    said: dict[str, Any]
    kind: str = "class"
    name: str = "fixed"
    texts_per_input: int | None = None

    def probabilities(self, texts: Sequence[Any]) -> Any:
        return np.stack([self._row(self.said[text]) for (text,) in texts])

    def answers(self, rows: Any, **_: Any) -> Any:
        if self.kind != "tags":
            return self.probabilities(rows.texts)
        return [
            np.stack([self._row(tag) for tag in self.said[" ".join(words)]])
            for words in rows.tokens
        ]

    def _row(self, answer: Any) -> Any:
        if self.kind == "multi":
            return np.array([0.8 if name in answer else 0.1 for name in self.labels], np.float32)
        rest = 0.2 / (len(self.labels) - 1)
        return np.array([0.8 if name == answer else rest for name in self.labels], np.float32)


def systems(*models: Any) -> list[System]:
    return [System(name, model) for name, model in zip("abc", models, strict=False)]


def compare_systems(systems: list[System], rows: Any, **settings: Any) -> dict[str, Any]:
    return compare_with(systems, rows, EvaluateSettings(**settings), quiet=True)


ROWS = [{"text": text, "label": label} for text, label in zip("wxyz", "nnyy", strict=True)]
TEXTS = list("wxyz")


def answering(words: str, labels: Sequence[str] = ("n", "y")) -> Fixed:
    return Fixed(list(labels), dict(zip(TEXTS, words, strict=True)))


def test_scores_and_differences_are_those_of_evaluate() -> None:
    one, two = answering("nnyn"), answering("ynyn")
    found = compare_systems(systems(one, two), ROWS, bootstrap=20, seed=3)
    gold = np.array([0, 0, 1, 1])
    said = [model.probabilities([(text,) for text in TEXTS]) for model in (one, two)]
    how: dict[str, Any] = {"bootstrap": 20, "seed": 3}
    assert found["n"] == 4
    assert [system["scores"] for system in found["systems"]] == [
        classify_scores(gold, one, ["n", "y"], **how) for one in said
    ]
    assert found["differences"] == {"b": compare_classify_scores(gold, *said, ["n", "y"], **how)}
    assert found["differences"]["b"]["accuracy"]["value"] == 25


def test_rows_to_read_are_where_the_first_two_differ() -> None:
    found = compare_systems(
        systems(answering("nyyn"), answering("ynyn"), answering("yyyy")), ROWS,
        bootstrap=0,
    )  # fmt: skip
    assert found["changed"] == {
        "mended": [{"text": "w", "right": "n", "before": "y", "now": "n"}],
        "spoilt": [{"text": "x", "right": "n", "before": "n", "now": "y"}],
    }
    assert {row["text"] for row in found["wrong"]} == {"x", "z"}
    assert [row["answered"] for row in found["wrong"]] == ["y", "n"]
    assert list(found["differences"]) == ["b", "c"]


def test_one_system_has_nothing_to_differ_from() -> None:
    found = compare_systems(systems(answering("nnyy")), ROWS, bootstrap=0)
    assert (found["differences"], found["wrong"]) == ({}, [])
    assert found["changed"] == {"mended": [], "spoilt": []}


def test_lists_are_bounded() -> None:
    rows = [{"text": f"t{place}", "label": "ny"[place % 2]} for place in range(100)]
    right = Fixed(["n", "y"], {row["text"]: row["label"] for row in rows})
    wrong = Fixed(["n", "y"], {row["text"]: "yn"["ny".index(row["label"])] for row in rows})
    found = compare_systems(systems(right, wrong), rows, bootstrap=0)
    assert len(found["changed"]["mended"]) == SHOWN
    found = compare_systems(systems(wrong, right), rows, bootstrap=0)
    assert (len(found["changed"]["spoilt"]), len(found["wrong"])) == (SHOWN, SHOWN)


def test_a_teacher_may_have_its_labels_in_another_order_and_more_of_them() -> None:
    teacher = answering("nnyy", labels=("m", "y", "n"))
    found = compare_systems(systems(answering("nnyy"), teacher), ROWS, bootstrap=0)
    assert [one["scores"]["accuracy"]["value"] for one in found["systems"]] == [100, 100]
    with pytest.raises(InputError, match="'y'"):
        compare_systems(systems(answering("nnnn", "nm")), ROWS, bootstrap=0)


def test_any_number_of_labels() -> None:
    rows = [
        {"text": text, "labels": list(label)}
        for text, label in zip("wxyz", ("n", "", "ny", "y"), strict=True)
    ]
    one, two = (
        Fixed(["n", "y"], dict(zip(TEXTS, said, strict=True)), "multi")
        for said in (("n", "", "y", "y"), ("n", "n", "ny", ""))
    )
    found = compare_systems(systems(one, two), rows, bootstrap=0)
    assert found["differences"]["b"]["accuracy"]["value"] == 25
    assert [row["before"] for row in found["changed"]["mended"]] == ["n", "none"]
    (spoilt,) = found["changed"]["spoilt"]
    assert (spoilt["right"], spoilt["now"]) == ("n, y", "y")
    assert found["wrong"][0]["right"] == "n, y"


def test_tags() -> None:
    rows = [
        {"tokens": ["a", "b"], "tags": ["B-X", "I-X"]},
        {"tokens": ["c", "d"], "tags": ["O", "B-X"]},
    ]
    labels = ["O", "B-X", "I-X"]
    one = Fixed(labels, {"a b": ["B-X", "I-X"], "c d": ["O", "O"]}, "tags")
    two = Fixed(labels, {"a b": ["B-X", "O"], "c d": ["O", "B-X"]}, "tags")
    found = compare_systems(systems(one, two), rows, bootstrap=0)
    assert found["systems"][0]["scores"]["precision"]["value"] == 100
    assert found["changed"]["mended"] == [
        {"text": "a b", "right": "X: a b", "before": "X: a", "now": "X: a b"}
    ]
    assert [row["now"] for row in found["changed"]["spoilt"]] == ["none"]
    assert [(row["right"], row["answered"]) for row in found["wrong"]] == [("X: d", "none")]


TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
SENTENCES = [
    f"The {word} is {n} winters old." for n in range(10) for word in ("barn", "well", "yew")
]
MODELS = {
    "one": Fake(["dry", "wet", "cold"], name="one"),
    "two": Fake(["cold", "warm", "wet", "dry"], name="two", seed=1),
    "unnamed": Fake(["LABEL_0", "LABEL_1"], name="unnamed"),
    "many": Fake(["dry", "wet"], kind="multi", name="many"),
    "others": Fake(["wet", "dry", "warm"], kind="multi", name="others", seed=1),
    "tags": Fake(TAGS, kind="tags", name="tags"),
    "again": Fake(TAGS[::-1], kind="tags", name="again", seed=1),
}


def run_test(measured: Any, name: str, data: str, **given: Any) -> Evaluated:
    folder = {key: given.pop(key) for key in ("out", "overwrite", "quiet") if key in given}
    return evaluate_to_run(measured, name, data, EvaluateSettings(**given), **folder)


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fake]:
    """Let models be found by name; return them."""
    for fake in MODELS.values():
        fake.asked.clear()
    monkeypatch.setattr(evaluating, "load_classifier", lambda name, device: MODELS[name])
    monkeypatch.setattr(evaluating, "fingerprint_classifier", lambda model: f"{model.seed}")
    return MODELS


@pytest.fixture
def classes(tmp_path: Path) -> str:
    rows = [{"text": t, "label": ["dry", "wet", "cold"][n % 3]} for n, t in enumerate(SENTENCES)]
    return str(write_rows(tmp_path / "classes.jsonl", rows))


@pytest.fixture
def several(tmp_path: Path) -> str:
    rows = [{"text": t, "labels": ["dry", "wet"][: n % 3]} for n, t in enumerate(SENTENCES)]
    return str(write_rows(tmp_path / "several.jsonl", rows))


@pytest.fixture
def tagged(tmp_path: Path) -> str:
    rows = [
        {"tokens": t.split(), "tags": ["O", "B-PER", "I-PER", "O", "B-LOC", "O"]} for t in SENTENCES
    ]
    return str(write_rows(tmp_path / "tags.jsonl", rows))


def test_classifiers_with_other_labels_are_compared(classes: str) -> None:
    tested = run_test("classify", "one", classes, against="two", bootstrap=100, seed=2, wrong=3)
    labels = ["dry", "wet", "cold", "warm"]
    gold = np.arange(30) % 3
    first, second = (
        MODELS[name].probabilities([(t,) for t in SENTENCES]) for name in ("one", "two")
    )
    own = classify_scores(gold, first, labels[:3], bootstrap=100, seed=2)
    against = tested.scores.pop("against")
    assert tested.scores == own
    assert list(figures_of(tested.scores)) == ["accuracy", "macro_f1"]
    assert against["name"] == "two"
    assert list(against["scores"]["classes"]) == MODELS["two"].labels
    padded = np.hstack([first, np.zeros((30, 1), np.float32)])
    turned = second[:, [3, 2, 0, 1]]
    assert against["difference"] == compare_classify_scores(
        gold, padded, turned, labels, bootstrap=100, seed=2
    )
    assert len(tested.wrong) == 3
    assert tested.wrong[0]["probability"] >= tested.wrong[1]["probability"]


def test_several_labels_are_compared(several: str) -> None:
    tested = run_test("classify", "many", several, against="others", bootstrap=50)
    gold = np.array([[n % 3 > 0, n % 3 > 1, False] for n in range(30)]).astype(int)
    first, second = (
        MODELS[name].probabilities([(t,) for t in SENTENCES]) for name in ("many", "others")
    )
    expected = compare_classify_scores(
        gold, np.hstack([first, np.zeros((30, 1), np.float32)]), second[:, [1, 0, 2]],
        ["dry", "wet", "warm"], kind="multi", bootstrap=50,
    )  # fmt: skip
    assert tested.scores["against"]["difference"] == expected
    assert list(figures_of(tested.scores)) == ["macro_f1", "micro_f1", "accuracy"]


def test_taggers_are_compared(tagged: str) -> None:
    tested = run_test("tag", "tags", tagged, against="again", bootstrap=50, seed=3, wrong=2)
    gold = [["O", "B-PER", "I-PER", "O", "B-LOC", "O"]] * 30
    tokens = [text.split() for text in SENTENCES]
    one, two = (
        best_tags(MODELS[name].tag_probabilities(tokens), MODELS[name].labels)
        for name in ("tags", "again")
    )
    against = tested.scores.pop("against")
    assert tested.scores == tag_scores(gold, one[0], sure=one[1], bootstrap=50, seed=3)
    assert against["scores"] == tag_scores(gold, two[0], sure=two[1], bootstrap=50, seed=3)
    assert against["difference"] == compare_tag_scores(gold, one[0], two[0], bootstrap=50, seed=3)
    assert len(tested.wrong) == 2


def test_labels_without_names_meet_named_ones(tmp_path: Path) -> None:
    rows = [{"text": t, "label": n % 2} for n, t in enumerate(SENTENCES)]
    data = str(write_rows(tmp_path / "n.jsonl", rows))
    MODELS["numbers"] = Fake(["1", "0"], name="numbers", seed=4)
    tested = run_test("classify", "unnamed", data, against="numbers", bootstrap=0)
    against = tested.scores["against"]
    gap = tested.scores["accuracy"]["value"] - against["scores"]["accuracy"]["value"]
    assert against["difference"]["accuracy"]["value"] == pytest.approx(gap)


@pytest.mark.parametrize(
    ("measured", "name", "against", "fixture"),
    [("classify", "one", "two", "classes"), ("classify", "many", None, "several"),
     ("tag", "tags", "again", "tagged")],
)  # fmt: skip
def test_a_run_keeps_answers_and_reads_them_again(
    measured: Any, name: str, against: str | None, fixture: str, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    data, out = request.getfixturevalue(fixture), tmp_path / "run"
    asked: dict[str, Any] = {"against": against, "bootstrap": 20, "quiet": True}
    plain = run_test(measured, name, data, **asked)
    kept = run_test(measured, name, data, out=out, **asked)
    assert kept == plain
    assert read_json(out / "results.json") == kept.scores
    rows = pq.read_table(out / "parts" / "part-00000.parquet").to_pylist()
    assert len(rows) == 30
    assert {"gold", "predicted", "probabilities"} < set(rows[0])
    before = len(MODELS[name].asked)
    assert run_test(measured, name, data, out=out, **asked) == kept
    assert len(MODELS[name].asked) == before
    (out / "parts" / "part-00000.parquet").unlink()
    assert run_test(measured, name, data, out=out, **asked) == kept
    assert len(MODELS[name].asked) == before + 1
    with pytest.raises(RunMismatch, match="seed is 0 in the folder, 1 asked"):
        run_test(measured, name, data, out=out, seed=1, **asked)
    run_test(measured, name, data, out=out, seed=1, overwrite=True, **asked)


def test_columns_split_and_precision_are_handed_on(tmp_path: Path) -> None:
    rows = [{"a": t, "b": "So.", "mood": "wet", "text": "x", "label": "dry"} for t in SENTENCES]
    data = str(write_rows(tmp_path / "rows.jsonl", rows))
    tested = run_test(
        "classify", "one", data, text=["a", "b"], label="mood", bootstrap=0, precision="float32"
    )
    assert MODELS["one"].asked[0]["precision"] == "float32"
    assert tested.scores["classes"]["wet"]["n"] == 30
    expected = MODELS["one"].probabilities([(t, "So.") for t in SENTENCES]).argmax(1) == 1
    assert tested.scores["accuracy"]["value"] == pytest.approx(100 * expected.mean())
    from datasets import Dataset, DatasetDict

    DatasetDict({"dev": Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(InputError, match="no split 'test': there are dev"):
        run_test("classify", "one", str(tmp_path / "set"))
    found = run_test("classify", "one", str(tmp_path / "set"), split="dev", bootstrap=0)
    assert found.scores["classes"]["dry"]["n"] == 30


@pytest.mark.parametrize(
    ("measured", "name", "options", "said"),
    [
        ("classify", "tags", {}, "measure it with tilth evaluate tag"),
        ("tag", "one", {}, "measure it with tilth evaluate classify"),
        ("classify", "one", {"against": "tags"}, "measure it with tilth evaluate tag"),
        ("classify", "one", {"against": "many"}, "'many' gives any number of labels"),
        ("classify", "one", {"bootstrap": -1}, "bootstrap is -1"),
    ],
)
def test_what_does_not_go_together(
    measured: Any, name: str, options: dict[str, Any], said: str, classes: str
) -> None:
    with pytest.raises(InputError) as caught:
        run_test(measured, name, classes, **options)
    assert said in str(caught.value)


def test_descriptions_are_measured_by_the_labels_that_predict_gives(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "ENCODER", base)
    task = tmp_path / "labels.yaml"
    task.write_text(
        "task_name: t\nlabels:\n  wet: {description: a boat on the sea}\n"
        "  dry: {description: a man on a road}\n"
    )
    texts = salads(30, seed=4)
    rows = [{"text": text, "label": ("wet", "dry")[n % 2]} for n, text in enumerate(texts)]
    data = str(write_rows(tmp_path / "rows.jsonl", rows))
    asked = ("classify", str(task), data, EvaluateSettings(bootstrap=0))
    found = evaluate_to_run(*asked, out=tmp_path / "run", device="cpu", quiet=True)
    said = predict(str(task), texts, encoder=base, device="cpu", quiet=True)["label"][:]
    right = [one == row["label"] for one, row in zip(said, rows, strict=True)]
    assert found.scores["accuracy"]["value"] == pytest.approx(100 * np.mean(right))
    assert 0 < sum(right) < 30
    monkeypatch.setattr(Described, "answers", lambda *_, **__: pytest.fail("measured again"))
    again = evaluate_to_run(*asked, out=tmp_path / "run", device="cpu", quiet=True)
    assert again.scores == found.scores
    task.write_text(task.read_text().replace("boat", "ship"))
    with pytest.raises(RunMismatch):
        evaluate_to_run(*asked, out=tmp_path / "run", device="cpu", quiet=True)


def warned(model: str, rows: Examples) -> None:
    warn_of_training_rows(model, "test.jsonl", rows.texts, rows.columns)


def test_rows_that_a_model_was_trained_on_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = write_rows(
        tmp_path / "train.jsonl", [{"text": f"Row {n}.", "label": "a"} for n in "12"]
    )
    test = [{"text": f"Row {n}.", "label": "a"} for n in "234"]
    run = Run.open(
        tmp_path / "run", command="train classifier", settings={}, fingerprints={}, parts=1
    )
    with run:
        run.resolve("sources", lambda: {"train": str(train), "validation": str(tmp_path / "gone")})
    warned(str(tmp_path / "run"), read_examples(test))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("test.jsonl: 1 of 3 rows are in the train set of")
    caplog.clear()
    warned(str(tmp_path / "run"), read_examples(test[1:]))
    warned("starter-encoder", read_examples(test))
    assert not caplog.records

    for name, one in (("train", "5"), ("dev", "6"), ("test", "7")):
        write_rows(tmp_path / "set" / f"{name}.jsonl", [{"text": f"Row {one}.", "label": "a"}])
    with Run.open(
        tmp_path / "other", command="train classifier", settings={}, fingerprints={}, parts=1
    ) as run:
        run.resolve("sources", lambda: {"train": str(tmp_path / "set")})
    known = read_examples([{"said": f"Row {n}.", "label": "a"} for n in "567"], text="said")
    warned(str(tmp_path / "other"), known)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" set of")[0] for line in lines] == [
        "test.jsonl: 1 of 3 rows are in the train", "test.jsonl: 1 of 3 rows are in the validation",
    ]  # fmt: skip
    caplog.clear()
    export = {"model": str(tmp_path / "other")}
    Run.open(tmp_path / "int8", command="export", settings=export, fingerprints={}, parts=1)
    warned(str(tmp_path / "int8"), known)
    assert [record.getMessage().partition(" set of")[0] for record in caplog.records] == [
        line.partition(" set of")[0] for line in lines
    ]
    caplog.clear()
    named = [{"id": "a", "said": f"Row {n}.", "label": "a"} for n in "123"]
    with Run.open(
        tmp_path / "named", command="train classifier", settings={}, fingerprints={}, parts=1
    ) as run:
        run.resolve("sources", lambda: {"train": str(write_rows(tmp_path / "named.jsonl", named))})
    warned(str(tmp_path / "named"), read_examples(named, text="said"))
    assert "3 of 3 rows are in the train set" in caplog.text
    caplog.clear()
    other = read_examples([{"body": row["said"], "label": "a"} for row in named], text="body")
    warned(str(tmp_path / "named"), other)
    assert "could not be compared with the train set" in caplog.text
    with Run.open(
        tmp_path / "told", command="train classifier", settings={}, fingerprints={}, parts=1
    ) as run:
        run.resolve("sources", lambda: {"train": str(tmp_path / "named.jsonl")})
        run.resolve("columns", lambda: {"text": "said", "label": "label"})
    caplog.clear()
    warned(str(tmp_path / "told"), other)
    assert "3 of 3 rows are in the train set" in caplog.text

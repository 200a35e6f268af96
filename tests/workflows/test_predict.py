"""Predictions on models that answer without weights, in runs that are stopped and go on."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value

import tilth
from tests.tiny import read_json, salads, write_rows
from tests.tiny.calls import stopped, watched
from tests.tiny.classifiers import Fake
from tilth.data import load_folder, read_rows
from tilth.data.examples import read_examples
from tilth.data.tokenize import learn_tokenizer
from tilth.errors import InputError
from tilth.models.encoder import load_encoder
from tilth.models.truncation import warn_of_cuts
from tilth.runs import RunMismatch
from tilth.workflows import predict as predicting
from tilth.workflows.predict import predict, predict_to_run
from tilth.workflows.settings import Prediction

LABELS = ["dry", "wet", "cold"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
TEXTS = salads(30)
MODELS = {
    "class": Fake(LABELS, name="class"),
    "multi": Fake(LABELS, kind="multi", name="multi"),
    "tags": Fake(TAGS, kind="tags", name="tags"),
}


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Fake]]:
    """Let models be found by name, and parts be small; return the models."""
    for fake in MODELS.values():
        fake.asked.clear()
    monkeypatch.setattr(
        "tilth.models.classifier.load_classifier", lambda name, device: MODELS[name]
    )
    monkeypatch.setattr(
        "tilth.models.classifier.fingerprint_classifier", lambda model: f"{model.seed}"
    )
    monkeypatch.setattr("tilth.models.encoder.is_sentence_encoder", lambda name: name not in MODELS)
    monkeypatch.setattr(predicting, "PART", 8)
    return MODELS


def test_every_row_and_column_is_kept_and_gets_the_likeliest_label(tmp_path: Path) -> None:
    rows = [{"id": n, "text": f" {text} ", "tags": ["a"]} for n, text in enumerate(TEXTS)]
    made = predict("class", write_rows(tmp_path / "a.jsonl", rows), tmp_path / "run", quiet=True)
    given = MODELS["class"].probabilities([(text,) for text in TEXTS])
    assert made.column_names == ["id", "text", "tags", "label", "confidence"]
    assert made["id"][:] == list(range(30))
    assert made["text"][0] == f" {TEXTS[0]} "
    assert made["label"][:] == [LABELS[place] for place in given.argmax(1)]
    np.testing.assert_array_equal(made["confidence"][:], given.max(1))
    results = read_json(tmp_path / "run" / "results.json")
    assert results["kind"] == "class"
    assert results["rows"] == 30
    assert {name: one["rows"] for name, one in results["labels"].items()} == {
        name: made["label"][:].count(name) for name in LABELS
    }
    sure = [c for c, label in zip(made["confidence"], made["label"], strict=True) if label == "wet"]
    assert results["labels"]["wet"]["confidence"] == pytest.approx(np.mean(sure), abs=1e-4)


def test_texts_may_be_a_list_an_array_or_a_series() -> None:
    some = TEXTS[:4]
    made = predict("class", some, quiet=True).to_list()
    for texts in (np.array(some), pd.Series(some, index=[7, 3, 1, 9]), tuple(some)):
        assert predict("class", texts, quiet=True).to_list() == made
    with pytest.raises(InputError, match="give a data set, a list of dicts"):
        predict("class", (text for text in some), quiet=True)


def test_probabilities_go_by_name_and_a_student_learns_from_them(tmp_path: Path) -> None:
    from tilth.classifiers.load import TaskSources, read_training_sets

    predict("class", TEXTS, tmp_path / "run", probabilities=True, quiet=True)
    made = load_folder(tmp_path / "run" / "dataset")
    given = MODELS["class"].probabilities([(text,) for text in TEXTS])
    assert list(made[3]["probabilities"]) == LABELS
    np.testing.assert_array_equal([list(row.values()) for row in made["probabilities"]], given)
    rows, validation = read_training_sets(TaskSources(tmp_path / "run"), tags=False)
    assert validation is not None
    assert rows.labels == LABELS
    place = [text for (text,) in rows.texts].index(TEXTS[3])
    np.testing.assert_allclose(rows.targets[place], given[3], rtol=1e-6)


def test_any_number_of_labels_are_a_list(tmp_path: Path) -> None:
    made = predict("multi", TEXTS, tmp_path / "run", probabilities=True, quiet=True)
    given = MODELS["multi"].probabilities([(text,) for text in TEXTS])
    for row, probabilities in zip(made, given, strict=True):
        assert row["label"] == [LABELS[n] for n in np.flatnonzero(probabilities > 0.5)]
        assert row["confidence"] == np.maximum(probabilities, 1 - probabilities).min()
    results = read_json(tmp_path / "run" / "results.json")
    assert results["labels"]["cold"]["rows"] == int((given[:, 2] > 0.5).sum())
    assert results["without_label"] == int((given <= 0.5).all(axis=1).sum())


def test_texts_are_cut_into_words_and_entities_stand_where_they_are(tmp_path: Path) -> None:
    texts = ["Ada's  boat didn't sink (near Oslo).", "Oh!"]
    made = predict("tags", texts, tmp_path / "run", probabilities=True, quiet=True)
    assert made["tokens"][0] == [
        "Ada", "'s", "boat", "did", "n't", "sink", "(", "near", "Oslo", ")", "."
    ]  # fmt: skip
    for text, row in zip(texts, made, strict=True):
        given = MODELS["tags"].tag_probabilities([row["tokens"]])[0]
        assert len(row["tags"]) == len(row["tokens"]) == len(row["probabilities"])
        assert [list(one.values()) for one in row["probabilities"]] == given.tolist()
        outside = [TAGS[place] == "O" for place in given.argmax(1)]
        assert [tag == "O" for tag in row["tags"]] == outside
        assert sum(tag[0] == "B" for tag in row["tags"]) == len(row["spans"])
        assert row["confidence"] == pytest.approx(given.max(1).mean())
        for span in row["spans"]:
            some = slice(span["start"], span["end"])
            assert row["tags"][some][0] == f"B-{span['type']}"
            assert set(row["tags"][some][1:]) <= {f"I-{span['type']}"}
            assert text[span["start_char"] : span["end_char"]] == span["text"]
            assert span["text"].replace(" ", "") == "".join(row["tokens"][some])
            assert span["confidence"] == pytest.approx(given[some].max(1).mean())
    read = read_examples(tmp_path / "run")
    assert read.tokens == made["tokens"][:]


def test_texts_are_cut_as_the_set_that_the_tagger_was_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = asdict(learn_tokenizer([["The", "U.S.", "is", "big", "."]]))
    monkeypatch.setattr(MODELS["tags"], "word_rules", rules)
    assert predict("tags", ["The U.S. is here."])["tokens"][0] == ["The", "U.S.", "is", "here", "."]


def test_tokens_stay_as_they_are_and_their_tags_step_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("Ada B-PER\nLee I-PER\n\nOslo B-LOC\n")
    made = predict("tags", path, tmp_path / "run", quiet=True)
    assert made["tokens"][:] == [["Ada", "Lee"], ["Oslo"]]
    assert made["before_tags"][:] == [["B-PER", "I-PER"], ["B-LOC"]]
    assert made.column_names[-3:] == ["tags", "spans", "confidence"]
    assert all("".join(span["text"]) in "Ada Lee Oslo" for span in made["spans"][0])


def test_vectors_are_those_of_the_encoder_in_units(tmp_path: Path, static: str) -> None:
    made = predict(static, [*TEXTS, ""], tmp_path / "run", quiet=True)
    vectors = load_encoder(static).encode(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(made["embedding"][:30], vectors, atol=1e-6)
    assert made["embedding"][30] is None
    assert made.features["embedding"].length == vectors.shape[1]
    with pytest.raises(InputError, match="gives vectors, which have no probabilities"):
        predict(static, TEXTS, probabilities=True)


def test_texts_that_an_encoder_cuts_are_told(caplog: pytest.LogCaptureFixture) -> None:
    made = predict("starter-encoder", ["barn " * 300, "a " * 254, "A dog sleeps."], quiet=True)
    assert len(made) == 3
    said = [line for line in caplog.messages if "cut" in line]
    assert said == ["texts of more than the 256 tokens that starter-encoder reads were cut: 1"]


def test_pairs_and_named_columns(tmp_path: Path) -> None:
    rows = [{"premise": a, "hypothesis": b} for a, b in zip(TEXTS, TEXTS[::-1], strict=True)]
    path = write_rows(tmp_path / "a.jsonl", rows)
    both = predict("class", path, quiet=True)
    given = MODELS["class"].probabilities(list(zip(TEXTS, TEXTS[::-1], strict=True)))
    np.testing.assert_array_equal(both["confidence"][:], given.max(1))
    one = predict("class", path, text="hypothesis", quiet=True)
    given = MODELS["class"].probabilities([(text,) for text in TEXTS[::-1]])
    np.testing.assert_array_equal(one["confidence"][:], given.max(1))


def test_a_model_of_pairs_reads_no_single_texts_and_the_reverse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [{"premise": a, "hypothesis": b} for a, b in zip(TEXTS, TEXTS[::-1], strict=True)]
    monkeypatch.setattr(MODELS["class"], "texts_per_input", 1)
    with pytest.raises(InputError, match="premise and hypothesis hold pairs, and 'class' reads si"):
        predict("class", pairs, quiet=True)
    assert len(predict("class", pairs, text="hypothesis", quiet=True)) == len(TEXTS)
    monkeypatch.setattr(MODELS["class"], "texts_per_input", 2)
    with pytest.raises(
        InputError, match=r"single texts, and 'class' reads pairs: name two .*--text"
    ):
        predict("class", TEXTS, quiet=True)
    assert len(predict("class", pairs, quiet=True)) == len(TEXTS)


def test_a_wrong_column_is_said_before_the_model_is_loaded() -> None:
    with pytest.raises(InputError, match="no column 'body': there are text"):
        predict("no-such-model", TEXTS, text="body", quiet=True)


def test_a_row_without_text_stays_and_has_no_prediction(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.\n\n   \nTwo.\n" + "\n" * 20)
    results = predict_to_run(
        "class", tmp_path / "a.txt", tmp_path / "run", Prediction(probabilities=True), quiet=True
    )
    made = load_folder(tmp_path / "run" / "dataset")
    assert len(made) == 24
    assert [label is not None for label in made["label"][:5]] == [True, False, False, True, False]
    assert made["confidence"][1] is None
    assert results["without_text"] == 22
    tagged = predict("tags", [{"tokens": ["A"]}, {"tokens": []}, {"tokens": [" "]}], quiet=True)
    assert [tags is None for tags in tagged["tags"]] == [False, True, True]


def test_types_of_the_input_are_kept(tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    rows = Dataset.from_dict({"text": TEXTS, "label": [n % 2 for n in range(30)]}, features)
    made = predict("class", rows, tmp_path / "run", quiet=True)
    assert made.features["before_label"] == features["label"]
    assert made["before_label"][:4] == [0, 1, 0, 1]


@pytest.mark.parametrize("kind", MODELS)
def test_a_stopped_run_goes_on_to_the_same_rows(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = predict(kind, TEXTS, tmp_path / "whole", quiet=True)
    method = "tag_probabilities" if kind == "tags" else "probabilities"
    with stopped(MODELS[kind], method, 2):
        predict(kind, TEXTS, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "dataset").exists()
    calls = watched(monkeypatch, MODELS[kind], method)
    made = predict(kind, TEXTS, tmp_path / "run", quiet=True)
    assert made[:] == whole[:]
    assert len(calls) == 2
    files = [path.relative_to(tmp_path / "run") for path in (tmp_path / "run").rglob("*.parquet")]
    for path in files:
        assert pq.read_table(tmp_path / "run" / path) == pq.read_table(tmp_path / "whole" / path)
    predict(kind, TEXTS, tmp_path / "run", quiet=True)
    assert len(calls) == 2


def test_a_set_that_was_not_written_whole_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(predicting, "_card", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            predict("class", TEXTS, tmp_path / "run", quiet=True)
    assert len(predict("class", TEXTS, tmp_path / "run", quiet=True)) == 30


def test_other_settings_or_rows_are_refused(tmp_path: Path, models: dict[str, Fake]) -> None:
    predict("class", TEXTS, tmp_path / "run", quiet=True)
    for words, given in (
        ("probabilities is false in the folder", {"probabilities": True}),
        ('precision is "auto" in the folder', {"precision": "float32"}),
    ):
        with pytest.raises(RunMismatch, match=words):
            predict("class", TEXTS, tmp_path / "run", quiet=True, **given)
    with pytest.raises(RunMismatch, match="the inputs are not the same"):
        predict("class", TEXTS[::-1], tmp_path / "run", quiet=True)
    predict("class", TEXTS[::-1], tmp_path / "run", overwrite=True, quiet=True)
    assert models["class"].asked[-1]["precision"] == "auto"


def test_precision_reaches_the_model(models: dict[str, Fake]) -> None:
    for kind in MODELS:
        predict(kind, TEXTS[:2], precision="float16", quiet=True)
        assert models[kind].asked[-1]["precision"] == "float16"


def test_a_split_and_a_folder_of_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_rows(folder / "a.jsonl", [{"text": TEXTS[0]}])
    (folder / "b.txt").write_text(f"{TEXTS[1]}\n")
    assert predict("class", folder, quiet=True)["text"][:] == TEXTS[:2]
    for name, text in (("train", TEXTS[2]), ("test", TEXTS[3])):
        write_rows(tmp_path / "splits" / f"{name}.jsonl", [{"text": text}])
    assert predict("class", tmp_path / "splits", quiet=True)["text"][:] == TEXTS[2:3]
    assert "of its splits test, train, train is read" in caplog.text
    both = tilth.curate(Dataset.from_dict({"text": TEXTS, "label": LABELS * 10}))
    made = predict("class", both, split="validation", quiet=True)
    assert len(made) == len(both["validation"])
    with pytest.raises(InputError, match="no split 'dev'"):
        predict("class", both, split="dev")
    file = write_rows(tmp_path / "all.jsonl", [{"text": TEXTS[0], "split": "test"}])
    with pytest.raises(InputError, match="no split 'test': leave --split out"):
        predict("class", file, split="test")
    write_rows(tmp_path / "mixed" / "dev.jsonl", [{"text": TEXTS[0]}])
    write_rows(tmp_path / "mixed" / "other.jsonl", [{"text": TEXTS[1]}])
    Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "saved")
    for name in ("mixed", "saved"):
        with pytest.raises(InputError, match="no split 'dev'"):
            predict("class", tmp_path / name, split="dev")
    (tmp_path / "all.jsonl").rename(tmp_path / "my-test.jsonl")
    assert len(predict("class", tmp_path / "my-test.jsonl", split="test", quiet=True)) == 1


@pytest.mark.parametrize(
    ("kind", "rows", "asked", "said"),
    [
        ("class", [{"text": 3}], {}, "column 'text' holds int64: name one of texts with --text"),
        ("class", [{"tokens": ["a"]}], {}, "which column holds the texts"),
        ("tags", [{"premise": "a", "hypothesis": "b"}], {}, "hold pairs, and 'tags' reads single"),
        ("tags", [{"a": ["x"]}], {"text": "b"}, "no column 'b': there are a"),
        ("class", [{"label": "a"}], {"text": "label"}, "'label' is in the way of a new one"),
        ("class", [], {}, "has no rows"),
        ("class", ["a"], {"text": ["a", "b", "c"]}, "text names 3 columns"),
        ("class", ["a"], {"precision": "int4"}, "precision 'int4' is unknown"),
        ("class", ["a"], {"colour": 1}, "no setting 'colour'"),
    ],
)
def test_what_is_wrong_is_one_line(
    kind: str, rows: list[Any], asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as error:
        predict(kind, rows, quiet=True, **asked)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_two_labels_of_one_name_have_no_probabilities_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MODELS, "twins", Fake(["a", "a"], name="twins"))
    assert set(predict("twins", TEXTS, quiet=True)["label"]) == {"a"}
    with pytest.raises(InputError, match="two labels of one name"):
        predict("twins", TEXTS, probabilities=True)


def test_cut_texts_are_counted_once_over_all_parts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = MODELS["class"].probabilities

    def cuts(texts: Any, **options: Any) -> Any:
        warn_of_cuts(2, len(texts), 16, "class")
        return right(texts, **options)

    monkeypatch.setattr(MODELS["class"], "probabilities", cuts)
    predict("class", TEXTS, quiet=True)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["texts of more than the 16 tokens that class reads were cut: 8"]


def test_the_card_says_who_labelled(tmp_path: Path) -> None:
    predict("class", TEXTS, tmp_path / "run", quiet=True)
    card = (tmp_path / "run" / "dataset" / "README.md").read_text()
    assert "Labels that `class` gave to 30 rows" in card
    assert "synthetic" not in card
    assert read_rows(tmp_path / "run").column_names == ["text", "label", "confidence"]


def spec(**labels: str) -> dict[str, Any]:
    """Return a task whose labels are described."""
    return {
        "task_name": "own",
        "labels": {
            name: {"instruction": 'Write a text.\nText: "', "description": described}
            for name, described in labels.items()
        },
    }


def test_a_task_labels_by_the_nearest_description(
    tmp_path: Path, static: str, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = load_encoder(static)
    task = tmp_path / "task.json"
    described = {"birds": TEXTS[0], "boats": TEXTS[1], "rain": TEXTS[2]}
    task.write_text(json.dumps(spec(**described)))
    asked = {"encoder": static, "probabilities": True, "quiet": True}
    made = predict(str(task), [*TEXTS, " "], tmp_path / "run", **asked)
    a, b, c = (
        encoder.encode(some, normalize_embeddings=True)
        for some in (TEXTS, [*described.values()], [*described])
    )
    cosines = np.maximum(a @ b.T, a @ c.T)  # a label's name describes it, too
    given = [
        cosines[row, [*described].index(label)] for row, label in enumerate(made["label"][:30])
    ]
    np.testing.assert_allclose(given, cosines.max(1), atol=1e-6)  # two can be the nearest
    assert made["label"][:4] == ["birds", "boats", "rain", made["label"][3]]
    ordered = np.sort(cosines, 1)
    np.testing.assert_allclose(made["similarity"][:30], ordered[:, 2], atol=1e-6)
    np.testing.assert_allclose(made["margin"][:30], ordered[:, 2] - ordered[:, 1], atol=1e-6)
    assert list(made[0]["similarities"]) == [*described]
    np.testing.assert_allclose(list(made[5]["similarities"].values()), cosines[5], atol=1e-6)
    assert made[30]["label"] is made[30]["margin"] is None
    results = read_json(tmp_path / "run" / "results.json")
    assert results["kind"] == "described"
    assert set(results["labels"]["birds"]) == {"rows", "similarity"}
    task.write_text(json.dumps(spec(**{**described, "rain": TEXTS[3]})))
    with pytest.raises(RunMismatch, match="the model is not the same"):
        predict(str(task), [*TEXTS, " "], tmp_path / "run", **asked)
    task.write_text(json.dumps(spec(**{**described, "rain": TEXTS[0]})))
    predict(str(task), TEXTS[:2], **asked)
    assert "descriptions of 'birds' and 'rain' (cosine 1.00) are alike:" in caplog.text


def test_a_precision_of_what_makes_embeddings_has_no_effect_and_a_warning(
    static: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = tmp_path / "task.json"
    task.write_text(json.dumps(spec(birds=TEXTS[0], boats=TEXTS[1])))
    for model, asked in ((static, {}), (str(task), {"encoder": static})):
        predict(model, TEXTS, precision="float32", quiet=True, **asked)
        assert "precision float32 is ignored: it is for classifiers" in caplog.text
        assert f"and {model!r} makes embeddings" in caplog.text


@pytest.mark.parametrize(
    ("task", "said"), [("nli", "task 'nli' is of pairs"), ("review-sentiment.yaml", "no task")]
)
def test_tasks_that_label_no_texts_are_refused(static: str, task: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        predict(task, TEXTS, encoder=static)


def test_the_starter_tells_tickets_by_their_descriptions(tmp_path: Path) -> None:
    texts = {
        "I was charged twice this month and want my money back.": "billing",
        "The app closes by itself whenever I open a photo.": "bug",
        "Please add a dark mode, the white screen hurts at night.": "feature request",
        "The geese flew over the lake at dawn.": None,
    }
    task = Path(__file__).parents[2] / "examples" / "support-tickets.yaml"
    results = predict_to_run(str(task), list(texts), tmp_path, Prediction(), quiet=True)
    made = load_folder(tmp_path / "dataset")
    assert made["label"][:3] == list(texts.values())[:3]
    assert results["unrelated"] == 1

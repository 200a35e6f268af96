import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from tests.tiny import write_rows
from tilth.data.curate import curate
from tilth.data.examples import open_rows, read_examples
from tilth.errors import InputError
from tilth.evaluate.expected_labels import refuse_unknown

SINGLE = [
    {"text": "Rain at noon.", "label": "weather"},
    {"text": " Two all. ", "label": "sport"},
    {"text": "Fog.", "label": "weather"},
]
TOKENS = [
    {"tokens": ["Ann", "saw", "Rome"], "tags": ["B-PER", "O", "B-LOC"]},
    {"tokens": ["It", "rained"], "tags": ["O", "O"]},
    {"tokens": ["New", "York"], "tags": ["B-LOC", "I-LOC"]},
]


def saved(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_single_texts_with_classes() -> None:
    examples = read_examples(SINGLE)
    assert examples.kind == "single"
    assert examples.texts == [("Rain at noon.",), ("Two all.",), ("Fog.",)]
    assert examples.labels.kind == "class"
    assert examples.labels.values == ["weather", "sport", "weather"]
    assert examples.labels.classes == ["sport", "weather"]
    assert examples.labels.class_ids == [(1,), (0,), (1,)]
    assert (examples.columns, examples.label_column, len(examples)) == (("text",), "label", 3)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "csv", "parquet", "folder", "splits"])
def test_every_source_gives_the_same(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"set.{ending}"
    if ending == "jsonl":
        saved(path, SINGLE)
    elif ending == "jsonl.gz":
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, SINGLE)).encode()))
    elif ending == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(SINGLE)
    elif ending == "parquet":
        Dataset.from_list(SINGLE).to_parquet(path)
    elif ending == "folder":
        Dataset.from_list(SINGLE).save_to_disk(path)
    source: Any = path
    if ending == "splits":
        source = DatasetDict(train=Dataset.from_list(SINGLE))
    assert read_examples(source) == read_examples(SINGLE)
    assert read_examples(Dataset.from_list(SINGLE).with_format("torch")) == read_examples(SINGLE)


def test_split_is_the_one_asked_for(tmp_path: Path) -> None:
    splits = DatasetDict(train=Dataset.from_list(SINGLE), test=Dataset.from_list(SINGLE[:1]))
    splits.save_to_disk(tmp_path / "set")
    for source in (splits, tmp_path / "set"):
        assert len(read_examples(source, split="test")) == 1
    with pytest.raises(InputError, match="no split 'dev': there are train, test"):
        read_examples(splits, split="dev")


def test_a_run_gives_its_curated_set(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    Dataset.from_list(SINGLE).save_to_disk(tmp_path / "dataset")
    assert len(read_examples(tmp_path)) == 3
    Dataset.from_list(SINGLE[:2]).save_to_disk(tmp_path / "curated")
    assert len(read_examples(str(tmp_path))) == 2


@pytest.mark.parametrize(
    "names", [("text_a", "text_b"), ("premise", "hypothesis"), ("question1", "question2")]
)
def test_pairs(names: tuple[str, str]) -> None:
    rows = [{names[0]: "A man.", names[1]: "A dog.", "label": 0, "text": "other"}]
    examples = read_examples(rows)
    assert (examples.kind, examples.columns) == ("pair", names)
    assert examples.texts == [("A man.", "A dog.")]
    assert read_examples(rows, text=names[::-1]).texts == [("A dog.", "A man.")]


def test_tokens_with_tags() -> None:
    examples = read_examples(TOKENS)
    assert examples.kind == "tokens"
    assert examples.texts == [("Ann saw Rome",), ("It rained",), ("New York",)]
    assert examples.tokens == [row["tokens"] for row in TOKENS]
    assert examples.labels.kind == "tags"
    assert examples.labels.values == [row["tags"] for row in TOKENS]
    assert examples.labels.classes == ["LOC", "PER"]
    assert examples.labels.class_ids == [(0, 1), (), (0,)]


def test_some_rows() -> None:
    some = read_examples(TOKENS).select([2, 1])
    assert some.texts == [("New York",), ("It rained",)]
    assert some.tokens == [["New", "York"], ["It", "rained"]]
    assert some.labels.values == [TOKENS[2]["tags"], TOKENS[1]["tags"]]
    assert (some.labels.classes, some.labels.class_ids) == (["LOC"], [(0,), ()])
    single = read_examples(SINGLE)
    again = single.select(range(len(single)))
    assert again == single


def test_tags_of_other_schemes_and_as_numbers_with_names() -> None:
    rows = [{"words": ["a", "b", "c"], "ner_tags": ["S-PER", "B-ORG", "E-ORG"]}]
    labels = read_examples(rows).labels
    assert labels.classes == ["ORG", "PER"]
    names = ["O", "B-PER", "I-PER", "B-LOC"]
    features = Features(tokens=List(Value("string")), ner_tags=List(ClassLabel(names=names)))
    given = Dataset.from_dict({"tokens": [["a", "b"]], "ner_tags": [[3, 1]]}, features)
    labels = read_examples(given).labels
    assert labels.values == [["B-LOC", "B-PER"]]
    assert labels.classes == ["PER", "LOC"]  # as the set names them
    spaced = Features(text=Value("string"), label=ClassLabel(names=["positive ", "negative"]))
    labels = read_examples(Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, spaced)).labels
    assert labels.values == ["positive", "negative"]
    labels = read_examples(named([2, 0])).labels
    assert (labels.values, labels.classes) == (["a", "z"], ["z", "a"])


@pytest.mark.parametrize(
    ("values", "kind", "classes"),
    [
        ([10, 9, 10], "class", [9, 10]),
        (["10", "9", "b"], "class", ["10", "9", "b"]),
        (["10", "9", "9"], "class", ["9", "10"]),
        ([True, False, True], "class", ["False", "True"]),
        ([1.0, 0.0, 1.0], "class", [0, 1]),
        ([3.2, 1.0, 5.0], "number", []),
        (["3.2", "1", "5"], "number", []),
        ([Decimal("3.2"), Decimal(1), Decimal(5)], "number", []),
        ([["b", "a"], [], ["a"]], "multi", ["a", "b"]),
        ([[], [], ["a"]], "multi", ["a"]),
        ([[2, 10], [1], []], "multi", [1, 2, 10]),
    ],
)
def test_labels_of_every_kind(values: list[Any], kind: str, classes: list[Any]) -> None:
    labels = read_examples(Dataset.from_dict({"text": ["x", "y", "z"], "label": values})).labels
    assert (labels.kind, labels.classes) == (kind, classes)
    for value, members in zip(labels.values, labels.class_ids, strict=True):
        given = value if kind == "multi" else [value] if classes else []
        assert {labels.classes[place] for place in members} == set(given)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["Text", "LABEL"], (("Text",), "LABEL")),
        (["Text", "text", "Label", "labels"], (("text",), "labels")),
        (["Premise", "Hypothesis", "score"], (("Premise", "Hypothesis"), "score")),
        (["Body", "Label"], (("Body",), "Label")),
    ],
)
def test_usual_names_in_capitals(names: list[str], found: tuple[tuple[str, ...], str]) -> None:
    examples = read_examples(Dataset.from_dict({name: ["a", "b"] for name in names}))
    assert (examples.columns, examples.label_column) == found


def test_data_frames_are_read_and_other_types_refused() -> None:
    rows = [{"text": "x", "label": "a"}, {"text": "y", "label": "b"}]
    examples = read_examples(pd.DataFrame(rows, index=[7, 8]))
    assert examples.texts == [("x",), ("y",)]
    assert len(curate(rows, validation_share=0)["train"]) == 2
    assert open_rows(["x", None, "y"], "train")[0]["text"][:] == ["x", None, "y"]
    with pytest.raises(InputError, match=r"row 1 .*: None is no row"):
        open_rows([{"sentence": "x"}, None], "train")
    named = read_examples(Dataset.from_dict({"Body": ["x"], "Mood": ["y"]}), label="Mood")
    assert named.columns == ("Body",)
    with pytest.raises(InputError, match=r"^A dog sleeps.: no such file .* into a list"):
        open_rows("A dog sleeps.", "train")
    with pytest.raises(InputError, match=r"row 1 .*: 3 is no row: give texts, or dicts"):
        open_rows(["x", 3], "train")
    frame = pd.DataFrame({"text": ["a", "b", "c"], "id": ["x", 1, None], "n": [1, None, 2]})
    assert open_rows(frame, "train")[0].to_list() == [
        {"text": "a", "id": "x", "n": 1.0}, {"text": "b", "id": "1", "n": None},
        {"text": "c", "id": None, "n": 2.0},
    ]  # fmt: skip
    with pytest.raises(InputError, match="two columns of one name"):
        open_rows(pd.DataFrame([["a", "x", 1], ["b", 1, 2]], columns=["text", "l", "l"]), "train")
    assert open_rows(pd.DataFrame([["a", 1], ["b", "y"]]), "train")[0].column_names == ["0", "1"]
    with pytest.raises(InputError, match=r"row 1 .*: column 'id' holds \{'k': 1\}, which does not"):
        open_rows(pd.DataFrame({"text": ["a", "b"], "id": ["x", {"k": 1}]}), "train")
    for given in (pd.Series(["x", None]), np.array(["x", None], object)):
        assert open_rows(given, "train")[0]["text"][:] == ["x", None]
    with pytest.raises(InputError, match="the rows are of type generator: give a data set"):
        read_examples(row for row in rows)  # type: ignore[arg-type]


def test_a_column_of_splits_divides_the_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"text": f"x{n}", "label": "a", "Split": ("train", "dev")[n > 2]} for n in range(4)]
    file = str(
        write_rows(tmp_path / "all.jsonl", [*rows, {"text": "", "label": "b", "Split": "Dev"}])
    )
    found = read_examples(file, text="text")
    assert found.texts == [("x0",), ("x1",), ("x2",)]
    assert "by its column 'Split', 3 of 5 rows are read: those of train" in caplog.text
    held = read_examples(rows, text="text", split="validation")
    assert (held.texts, held.place(0)) == ([("x3",)], 3)
    with pytest.raises(InputError, match=r"all.jsonl:5: text is empty"):
        read_examples(file, text="text", split="validation")
    with pytest.raises(InputError, match="no split 'test': column 'Split' has train, dev"):
        read_examples(rows, text="text", split="test")
    caplog.clear()
    assert len(read_examples([{**row, "Split": "a"} for row in rows], text="text")) == 4
    assert len(read_examples([{**row, "Split": "test"} for row in rows], text="text")) == 4
    assert not caplog.records


def test_columns_that_look_like_a_row_are_told() -> None:
    rows = [{"5.0": "4.2", "A man with a hat is dancing.": "x", "A man dances.": "y"}]
    with pytest.raises(InputError, match="the first line seems to be a row: write the columns"):
        read_examples(rows)


def test_text_and_label_name_the_columns() -> None:
    rows = [{"text": "a", "body": "b", "label": "x", "topic": "y", "words": ["c", "d"], "n": 1}]
    examples = read_examples(rows, text="body", label="topic")
    assert (examples.texts, examples.columns, examples.label_column) == (
        [("b",)],
        ("body",),
        "topic",
    )
    assert examples.labels.classes == ["y"]
    assert read_examples(rows, text=["body", "text"]).texts == [("b", "a")]
    assert read_examples([{"body": "b", "n": 1}], label="n").texts == [("b",)]
    tokens = [{"words": ["c"], "chunks": ["B-X"], "text": "t"}]
    assert read_examples(tokens, text="words", label="chunks").kind == "tokens"


def test_rows_without_text_and_label_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "a.csv"
    file.write_text('text,label,n\na,x,1\n,,\n" ",,2\nb,y,3\n')
    found = read_examples(file)
    assert (found.texts, found.labels.values) == ([("a",), ("b",)], ["x", "y"])  # type: ignore[union-attr]
    assert found.places is not None
    assert found.places.tolist() == [0, 3]
    assert found.select([1]).places.tolist() == [3]  # type: ignore[union-attr]
    with pytest.raises(InputError, match=r"a\.csv:5: label 'y' is none that m gives"):
        refuse_unknown(found, ["x"], str(file), "train", "m gives")
    assert "a.csv: 2 rows have neither text nor label and are left out" in caplog.text
    file.write_text("text,label\na,x\n,\n,y\nb,\nc,\n,z\n")
    with pytest.raises(InputError, match=r"a\.csv:4: text is empty: 1 more rows likewise: fill"):
        read_examples(file)
    file.write_text("text,label\na,x\n,\nb,\n")
    with pytest.raises(InputError, match=r"a\.csv:4: no label: fill it in or remove the row"):
        read_examples(file)
    file.write_text("text,label\n,\n")
    with pytest.raises(InputError, match="no row has a text or a label"):
        read_examples(file)


def test_labels_may_be_missing_where_they_are_not_needed(tmp_path: Path) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("One.\nTwo.\n")
    assert read_examples(path, need_label=False).labels is None
    with pytest.raises(InputError, match=r"which column holds the labels: .* there are text"):
        read_examples(path)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": " ", "label": "x"}, "text is empty: fill it in"),
        ({"label": "x"}, "text is empty"),
        ({"text": "a"}, "no label: fill it in"),
        ({"text": "a", "label": " "}, "no label: fill it in"),
    ],
)
def test_a_wrong_row_is_named_by_file_and_line(
    tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    path = saved(tmp_path / "set.jsonl", [*SINGLE, row])
    with pytest.raises(InputError, match=f"^{path}:7: {said}"):
        read_examples(path)
    more = tmp_path / "more"
    more.mkdir()
    saved(more / "1.jsonl", SINGLE)
    second = saved(more / "2.jsonl", [SINGLE[0], row])
    with pytest.raises(InputError, match=f"^{second}:3: {said}"):
        read_examples(more)
    with pytest.raises(InputError, match=rf"^row 3 \(rows count from 0\): {said}"):
        read_examples([*SINGLE, row])
    Dataset.from_list([*SINGLE, row]).save_to_disk(tmp_path / "stored")
    with pytest.raises(InputError, match=rf"stored: train row 3 \(rows count from 0\): {said}"):
        read_examples(tmp_path / "stored")


@pytest.mark.parametrize(
    ("tokens", "tags", "said"),
    [
        (["a", "b"], ["O"], "2 tokens, 1 tags: give each token one tag"),
        (["a", "b"], None, "2 tokens, 0 tags"),
        (["a", "b"], ["O", "NN"], r"holds 'NN' at token 2 \('b'\), no IOB tag"),
        (["a"], ["B-"], "holds 'B-' at token 1"),
        (["a"], ["X-PER"], "holds 'X-PER' at token 1"),
        (["a", "b"], ["O", None], "no tags: fill it in"),
        ([], [], "no sentence"),
        ([" ", ""], ["O", "O"], "no sentence"),
        (["a", None], ["O", "O"], "no sentence"),
        (None, ["O"], "no sentence"),
    ],
)
def test_wrong_tokens_and_tags(tmp_path: Path, tokens: Any, tags: Any, said: str) -> None:
    path = saved(tmp_path / "set.jsonl", [*TOKENS, {"tokens": tokens, "tags": tags}])
    with pytest.raises(InputError, match=f"^{path}:7: .*{said}"):
        read_examples(path)


def named(labels: list[int]) -> Dataset:
    features = Features(text=Value("string"), label=ClassLabel(names=["z", "none", "a"]))
    return Dataset.from_dict({"text": ["x"] * len(labels), "label": labels}, features)


def frame(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns)


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (frame(text=[], label=[]), {}, "the set has no rows"),
        ([], {}, "the list has no rows"),
        ([7], {}, "7 is no row: give texts, or dicts"),
        ([{"label": [[7, 10, "D"]]}], {}, r"row 0 .* holds .*, which mixes types: give the"),
        (frame(tokens=["a b"], tags=["O O"]), {}, "'tokens' holds no lists of tok"),
        (frame(a=["x"], b=["y"], label=[1]), {}, "which column holds the texts.*a, b, label"),
        (frame(text=["x"], mood=["y"]), {}, "which column holds the labels.*text, mood"),
        (frame(text=["x"], label=[1]), {"text": "body"}, "no column 'body': there are text, label"),
        (frame(text=["x"], label=[1]), {"label": "mood"}, "no column 'mood'"),
        (frame(text=["x"], label=[1]), {"text": ["text"] * 2}, "name one, or two different ones"),
        (frame(text=["x"], label=[1]), {"text": []}, "text names 0 columns"),
        (frame(text=[3], label=[1]), {}, "column 'text' holds int64: name one of texts"),
        (frame(a=[["x"]], b=[["x"]], label=[1]), {"text": ["a", "b"]}, "hold lists"),
        (frame(tokens=[[1]], tags=[["O"]]), {}, "column 'tokens' holds list<.*int64>: name one"),
        (frame(tokens=[["x"]], tags=["O"]), {}, "column 'tags' holds string: give a list"),
        (frame(tokens=[["x"]], tags=[[3]]), {}, "holds 3 at token 1"),
        (frame(text=["x"], label=[float("nan")]), {}, "label is nan"),
        (frame(text=["x"], label=[["a", "a"]]), {}, "a label twice"),
        (frame(text=["x"], label=[{"a": 1}]), {}, "give numbers or texts"),
        (
            frame(text=["x"], label=["y"]),
            {"label": "text"},
            "name that of the labels",
        ),
        (frame(text=["x", "y"], label=[[], []]), {}, "all lists of label are empty: add labels"),
        (frame(text=["x", "y"], label=[["a"], None]), {}, "row 1 .*no label: fill it in"),
        (named([0, -1]), {}, r"row 1 .*label is -1, no class: remove"),
    ],
)
def test_wrong_sets(given: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_examples(given, **options)
    assert "\n" not in str(caught.value)

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value

from tests.selftrain.labelled import as_rows, classed, several, tagged
from tests.tiny import write_rows
from tilth.classifiers.examples import (
    LabeledExamples,
    drop_duplicates,
    labeled_examples,
    strata,
    train_validation_split,
)
from tilth.classifiers.load import TaskSources, read_training_sets
from tilth.data.examples import Source, read_examples
from tilth.data.normalize import normalize_text
from tilth.errors import InputError


def read(
    train: Source, validation: Source | None = None, **more: Any
) -> tuple[LabeledExamples, LabeledExamples | None]:
    asked: dict[str, Any] = {"tags": False, **more}
    labelled = asked.pop("labelled", None)
    return read_training_sets(TaskSources(train, validation, None, labelled), **asked)


def test_labelled_rows_make_up_their_share() -> None:
    more = [{"text": f"retrieved {place}", "label": "xy"[place % 2]} for place in range(40)]
    own = [{"text": f"own {place}", "label": "xy"[place % 2]} for place in range(5)]
    chosen = [{"text": "chosen", "label": "x"}]
    for share, times in ((0, 1), (1 / 3, 4), (0.5, 8), (0.05, 1), (0.9, 16)):
        rows, _ = read(more, chosen, labelled=own, labelled_share=share)
        assert len(rows) == 40 + 5 * times
        assert rows.texts[40:] == [(row["text"],) for row in own] * times
    with pytest.raises(InputError, match=r"labelled_share is 1.0: give a number from 0 to below 1"):
        read(more, chosen, labelled=own, labelled_share=1.0)


def test_hard_labels_are_those_of_labelled_rows_too() -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["x", "y"]),
                         "probabilities": Sequence(Value("float32"))})  # fmt: skip
    own = Dataset.from_dict(
        {"text": ["own", "else"], "label": [0, 1], "probabilities": [[0.8, 0.2], [0.3, 0.7]]},
        features=features,
    )
    rows, _ = read([{"text": "more", "label": "x"}], own, labelled=own, hard=True)
    np.testing.assert_array_equal(rows.targets, [[1, 0], [1, 0], [0, 1]])


def test_labels_become_probabilities() -> None:
    rows = as_rows([{"text": "a", "label": 10}, {"text": "b", "label": 2}])
    assert (rows.kind, rows.labels) == ("class", ["2", "10"])
    np.testing.assert_array_equal(rows.targets, [[0, 1], [1, 0]])
    rows = as_rows([{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": []}])
    assert (rows.kind, rows.labels) == ("multi", ["x", "y"])
    np.testing.assert_array_equal(rows.targets, [[1, 1], [0, 0]])


def test_tags_have_every_valid_output() -> None:
    rows = as_rows([{"tokens": ["a", "man"], "tags": ["O", "B-PER"]}])
    assert rows.labels == ["O", "B-PER", "I-PER"]
    np.testing.assert_array_equal(rows.targets[0], [[1, 0, 0], [0, 1, 0]])
    assert rows.tokens == [["a", "man"]]


@pytest.mark.parametrize(
    ("tags", "read_as"),
    [
        (["O", "I-X", "O"], ["O", "B-X", "O"]),
        (["B-Y", "I-X", "O"], ["B-Y", "B-X", "O"]),
        (["I-X", "I-X", "B-X"], ["B-X", "I-X", "B-X"]),
        (["O", "S-X", "O"], ["O", "B-X", "O"]),
        (["B-X", "I-X", "E-X"], ["B-X", "I-X", "I-X"]),
    ],
)
def test_tags_of_other_schemes_become_iob2(tags: list[str], read_as: list[str]) -> None:
    rows = as_rows([{"tokens": ["a", "man", "runs"], "tags": tags}])
    assert [rows.labels[place] for place in rows.targets[0].argmax(axis=1)] == read_as


def test_lists_that_are_written_as_texts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('text,labels\na,"[""x"", ""y""]"\nb,[]\n')
    with pytest.raises(InputError, match=r"t.csv:2: labels is '\[\"x\", .*, a list written as a"):
        read(path)


def test_rows_that_repeat_others_are_told_and_count_as_spellings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [{"text": f"{n} {label}", "label": label} for n in range(9) for label in ("bill", "it")]
    read(rows + [{"text": "thanks", "label": "bills"}] * 5)
    assert "4 of 23 rows repeat others and are left out" in caplog.text
    assert "misspelt" not in caplog.text


def test_fractions_are_no_classes(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "t.jsonl", [{"text": "a", "label": 0.5}])
    with pytest.raises(InputError, match=r"t.jsonl:1: label is 0.5: numbers with fractions"):
        read(path)


def test_an_empty_validation_split_counts_as_none() -> None:
    made = Dataset.from_list(classed(60))
    splits = DatasetDict(train=made, validation=made.select([]))
    rows, validation = read_training_sets(TaskSources(splits), tags=False)
    assert validation is not None
    assert len(validation) == 60 - len(rows) > 0


def test_classes_that_are_written_as_fractions_are_classes() -> None:
    names = ClassLabel(names=["1.5", "2.0", "other"])
    made = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    labels = read_examples(made.cast_column("label", names)).labels
    assert labels is not None
    assert (labels.kind, labels.values) == ("class", ["1.5", "2.0"])


def test_a_label_that_training_lacks(tmp_path: Path) -> None:
    train = write_rows(tmp_path / "a.jsonl", classed(30))
    other = write_rows(tmp_path / "b.jsonl", [*classed(3, seed=1), {"text": "x", "label": "new"}])
    with pytest.raises(InputError, match=r"b.jsonl:4: label 'new' is none of the model's"):
        read(train, other)
    with pytest.raises(InputError, match=r"a.jsonl:3: label 'none' is none .*\(animal, water\)"):
        read(train, labels=["animal", "water"])


def test_the_same_row_counts_once_and_conflicts_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"text": "a", "label": 0}, {"text": "a", "label": 0}, {"text": "b", "label": 0},
        {"text": "b", "label": 1}, {"text": "b", "label": 1}, {"text": "c", "label": 1},
    ]  # fmt: skip
    left, conflicts = drop_duplicates(as_rows(rows))
    assert [text for (text,) in left.texts] == ["a", "b", "b", "c"]
    assert conflicts == 1
    with caplog.at_level(logging.WARNING):
        read(rows)
    assert "1 texts occur more than once with different labels" in caplog.text


@pytest.mark.parametrize("source", [classed(120), several(120), tagged(120)])
def test_a_tenth_of_each_label_is_kept_to_choose_with(source: list[dict[str, Any]]) -> None:
    rows, _ = drop_duplicates(as_rows(source))
    train, chosen = train_validation_split(rows, 0)
    assert len(train) + len(chosen) == len(rows)
    assert not {*map(str, train.texts)} & {*map(str, chosen.texts)}
    codes, places = strata(rows), [rows.texts.index(text) for text in chosen.texts]
    found = np.bincount(codes[places], minlength=codes.max() + 1) / np.bincount(codes)
    assert ((found > 0.05) & (found < 0.15)).all()
    again = train_validation_split(rows.select(np.arange(len(rows))[::-1].copy()), 0)[1]
    assert {*map(str, again.texts)} == {*map(str, chosen.texts)}
    assert {*map(str, train_validation_split(rows, 1)[1].texts)} != {*map(str, chosen.texts)}


def test_sets_of_labels_that_are_rare_share_a_tenth_of_their_rarest_label() -> None:
    chance = np.random.default_rng(0)
    rows = [
        {"text": f"text {n}", "labels": [f"l{m}" for m in range(12) if chance.random() < 0.3]}
        for n in range(600)
    ]
    train, chosen = train_validation_split(as_rows([row for row in rows if row["labels"]]), 0)
    assert 40 < len(chosen) < 80
    assert (chosen.targets.sum(axis=0) > 5).all()
    assert (train.targets.sum(axis=0) > 100).all()
    types = [f"T{n}" for n in range(8)]
    tagged = [
        {"tokens": [f"w{n}", *types], "tags": ["O", *(
            f"B-{one}" if chance.random() < 0.5 else "O" for one in types
        )]}
        for n in range(100)
    ]  # fmt: skip
    assert 5 < len(train_validation_split(as_rows(tagged), 0)[1]) < 20


def test_texts_that_differ_in_case_and_punctuation_stay_in_one_part() -> None:
    rows = as_rows([
        {**row, "text": form.format(row["text"])} for row in classed(60) for form in ("{}", "{}!")
    ])  # fmt: skip
    parts = [
        {normalize_text(text) for (text,) in part.texts} for part in train_validation_split(rows, 0)
    ]
    assert parts[1]
    assert not parts[0] & parts[1]


def test_two_texts_in_either_order_stay_in_one_part() -> None:
    texts = [row["text"] for row in classed(80)]
    rows = [
        {"text_a": a, "text_b": b, "label": n % 2}
        for n, pair in enumerate(pairwise(texts)) for a, b in (pair, (pair[1], pair[0].upper()))
    ][::3]  # fmt: skip
    parts = [
        {tuple(sorted(map(normalize_text, pair))) for pair in part.texts}
        for part in train_validation_split(as_rows(rows), 0)
    ]
    assert parts[1]
    assert not parts[0] & parts[1]


def test_validation_comes_from_what_is_given_from_a_split_or_from_labelled() -> None:
    train, other, more = classed(60), classed(12, seed=1), classed(60, seed=2)
    rows, chosen = read(train, other)
    assert (len(rows), chosen and len(chosen)) == (60, 12)
    splits = DatasetDict(train=Dataset.from_list(train), validation=Dataset.from_list(other))
    rows, chosen = read(splits)
    assert (len(rows), chosen and len(chosen)) == (60, 12)
    rows, chosen = read(train, labelled=more)
    assert chosen is not None
    texts = {row["text"] for row in more}
    assert len(chosen) == 6
    assert all(text in texts for (text,) in chosen.texts)
    assert len(rows) == 60 + 54
    rows, chosen = read(train)
    assert (len(rows), chosen and len(chosen)) == (54, 6)


def test_too_few_rows_to_choose_with(caplog: pytest.LogCaptureFixture) -> None:
    rows, chosen = read(classed(6))
    assert (len(rows), chosen) == (6, None)
    assert "the last weights are kept" in caplog.text


@pytest.mark.parametrize(
    ("rows", "tags", "said"),
    [
        ([{"text": t, "label": "x"} for t in "ab"], False, "every row has the label 'x'"),
        ([{"tokens": ["a"], "tags": ["O"]}], True, "no token has a tag but O"),
        ([{"tokens": ["a"], "tags": ["O"]}], False, "use train tagger"),
        ([{"text": "a", "label": "x"}], True, "use train classifier"),
    ],
)
def test_nothing_to_learn(rows: list[dict[str, Any]], tags: bool, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(rows, tags=tags)


def soft(rows: list[dict[str, Any]], names: list[str] | None = None) -> Dataset:
    made = Dataset.from_list(rows)
    return made if names is None else made.cast_column("label", ClassLabel(names=names))


def test_a_teachers_probabilities_are_the_targets() -> None:
    made = soft(
        [
            {"text": "a", "label": "yes", "probabilities": [0.3, 0.7]},
            {"text": "b", "label": "no", "probabilities": [0.9, 0.1]},
        ],
        ["no", "yes"],
    )
    rows, _ = read(made, made)
    assert rows.labels == ["no", "yes"]
    np.testing.assert_allclose(rows.targets, [[0.3, 0.7], [0.9, 0.1]], rtol=1e-6)
    rows, _ = read(made, made, hard=True)
    np.testing.assert_array_equal(rows.targets, [[0, 1], [1, 0]])
    rows, _ = read(made, made, labelled=[{"text": "c", "label": "yes"}])
    np.testing.assert_array_equal(rows.targets[-1], [0, 1])


def test_probabilities_of_tokens() -> None:
    features = Features(
        tokens=Sequence(Value("string")), tags=Sequence(ClassLabel(names=["O", "B-X", "I-X"])),
        probabilities=Sequence(Sequence(Value("float32"))),
    )  # fmt: skip
    one = {"tokens": ["a", "b"], "tags": ["O", "I-X"]}
    made = Dataset.from_list(
        [{**one, "probabilities": [[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]}], features=features
    )
    rows, _ = read(made, made, tags=True)
    assert rows.labels == ["O", "B-X", "I-X"]
    np.testing.assert_allclose(rows.targets[0], [[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]])
    # A span begins with B-, though the likeliest tag of its first token is I-.
    np.testing.assert_array_equal(rows.hard().targets[0], [[1, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize(
    ("probabilities", "said"),
    [
        ([0.5], "1 probabilities for 2 labels"),
        ([0.5, 0.4], "are none: give numbers from 0 to 1 that add up to 1"),
        ([1.5, -0.5], "are none"),
        ([None, 0.5], "are none"),
        (None, "0 probabilities for 2 labels"),
    ],
)
def test_wrong_probabilities(probabilities: list[float | None] | None, said: str) -> None:
    good = {"text": "a", "label": "no", "probabilities": [0.3, 0.7]}
    made = soft(
        [good, {"text": "b", "label": "yes", "probabilities": probabilities}], ["no", "yes"]
    )
    with pytest.raises(InputError, match=rf"row 1 .*: {said}|row 1 .*{said}"):
        read(made)


def test_probabilities_without_names() -> None:
    rows = [
        {"text": "a", "label": "a", "probabilities": [0.7, 0.3]},
        {"text": "b", "label": "b", "probabilities": [0.3, 0.7]},
    ]
    with pytest.raises(InputError, match="make label a ClassLabel that names them in their order"):
        read(rows)
    assert read(rows, rows, labels=["a", "b"])[0].labels == ["a", "b"]


def test_several_classes_need_not_add_up() -> None:
    made = [
        {"text": "a", "labels": ["x"], "probabilities": [0.9, 0.8]},
        {"text": "b", "labels": ["y"], "probabilities": [0.1, 0.6]},
    ]
    rows, _ = read(made, made, labels=["x", "y"])
    np.testing.assert_allclose(rows.targets, [[0.9, 0.8], [0.1, 0.6]], rtol=1e-6)
    np.testing.assert_array_equal(rows.hard().targets, [[1, 1], [0, 1]])


def test_fingerprints_follow_the_content() -> None:
    one = as_rows(classed(6))
    assert one.fingerprint() == as_rows(classed(6)).fingerprint()
    assert one.fingerprint() != as_rows(classed(6, seed=1)).fingerprint()
    assert (
        one.fingerprint()
        != labeled_examples(read_examples(classed(6)), [*one.labels, "more"]).fingerprint()
    )
    weighted = LabeledExamples(
        one.kind, one.labels, one.texts, None, one.targets, np.ones(6, np.float32)
    )
    assert one.fingerprint() != weighted.fingerprint()

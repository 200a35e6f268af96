from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilth
from tests.tiny import write_rows
from tests.tiny.classifiers import Fake
from tilth.errors import InputError, TilthError
from tilth.evaluate.tag import (
    best_tags,
    compare_tag_scores,
    evaluate_tagger,
    most_wrong_sentences,
    tag_scores,
)
from tilth.metrics.scores import iob2, spans

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = [*TAGS, "E-PER", "S-PER", "E-LOC", "S-LOC"]
rows_of = st.lists(st.lists(st.sampled_from(BIOES), min_size=1, max_size=8), min_size=1, max_size=6)


def conlleval(tags: list[str]) -> set[tuple[str, int, int]]:
    """Return entities as the script of the CoNLL shared tasks does, with its tables of ends."""
    found, begun = set(), None
    marks = [("O", "")] + [(tag[0], tag[2:]) for tag in tags] + [("O", "")]
    for place in range(1, len(marks)):
        (before, kind_before), (tag, kind) = marks[place - 1 : place + 1]
        ends = (before, tag) in {
            ("B", "B"), ("B", "O"), ("I", "B"), ("I", "O"), ("B", "S"), ("I", "S"),
        } or before in "ES" or (before != "O" and kind_before != kind)  # fmt: skip
        starts = tag in "BS" or (before, tag) in {
            ("E", "E"), ("E", "I"), ("S", "E"), ("S", "I"), ("O", "E"), ("O", "I"),
        } or (tag != "O" and kind_before != kind)  # fmt: skip
        if ends and begun is not None:
            found.add((kind_before, begun - 1, place - 1))
            begun = None
        if starts:
            begun = place
    return found


def slow_scores(gold: list[list[str]], said: list[list[str]]) -> tuple[float, float, float]:
    wanted = {(row, *one) for row, tags in enumerate(gold) for one in conlleval(tags)}
    answered = {(row, *one) for row, tags in enumerate(said) for one in conlleval(tags)}
    hits = len(wanted & answered)
    precision, recall = hits / max(len(answered), 1), hits / max(len(wanted), 1)
    return precision, recall, 2 * precision * recall / ((precision + recall) or 1)


@settings(deadline=None)
@given(rows_of, st.integers(0, 1000))
def test_figures_equal_conlleval(gold: list[list[str]], seed: int) -> None:
    random = np.random.default_rng(seed)
    said = [
        [tag if random.random() < 0.6 else str(random.choice(BIOES)) for tag in row] for row in gold
    ]
    for row in gold:
        assert set(spans(row)) == conlleval(row)
    precision, recall, f1 = slow_scores(gold, said)
    found = tag_scores(gold, said, bootstrap=0)
    assert found["n"] == len(gold)
    assert found["tokens"] == sum(map(len, gold))
    assert (found["precision"]["value"] or 0) == pytest.approx(100 * precision)
    assert (found["recall"]["value"] or 0) == pytest.approx(100 * recall)
    assert (found["f1"]["value"] or 0) == pytest.approx(100 * f1)
    tokens = [
        a == b for one, two in zip(gold, said, strict=True)
        for a, b in zip(iob2(one), iob2(two), strict=True)
    ]  # fmt: skip
    assert found["accuracy"]["value"] == pytest.approx(100 * np.mean(tokens))
    for kind, scores in found["classes"].items():
        only = [[[t if t[2:] == kind else "O" for t in r] for r in some] for some in (gold, said)]
        assert (scores["f1"] or 0) == pytest.approx(100 * slow_scores(*only)[2])
    assert sum(one["n"] for one in found["classes"].values()) == sum(map(len, map(spans, gold)))


def test_what_is_undefined_is_none() -> None:
    found = tag_scores([["O", "O"]], [["O", "O"]], bootstrap=20)
    assert found["f1"] == {"value": None, "low": None, "high": None}
    assert found["classes"] == {}
    assert found["accuracy"] == {"value": 100, "low": pytest.approx(20.65, abs=0.01), "high": 100}
    found = tag_scores([["B-PER"]], [["O"]], bootstrap=0)
    assert (found["f1"]["value"], found["precision"]["value"]) == (0, None)


def noisy(gold: list[list[str]], share: float, seed: int) -> list[list[str]]:
    random = np.random.default_rng(seed)
    return [[t if random.random() < share else str(random.choice(TAGS)) for t in r] for r in gold]


def test_intervals_are_over_sentences() -> None:
    gold = noisy([["O"] * 8] * 80, 0.4, 0)
    said = noisy(gold, 0.8, 1)
    found = tag_scores(gold, said, bootstrap=2000)["f1"]
    random = np.random.default_rng(2)
    slow = []
    for _ in range(500):
        places = random.integers(0, 80, 80)
        slow.append(100 * slow_scores([gold[n] for n in places], [said[n] for n in places])[2])
    assert found["low"] == pytest.approx(np.percentile(slow, 2.5), abs=1.0)
    assert found["high"] == pytest.approx(np.percentile(slow, 97.5), abs=1.0)
    assert tag_scores(gold, said, bootstrap=2000, seed=1)["f1"] != found
    assert tag_scores(gold[::-1], said[::-1], bootstrap=2000)["f1"] == found


def test_differences_of_two_taggers() -> None:
    gold = noisy([["O"] * 8] * 80, 0.4, 0)
    bad = noisy(gold, 0.5, 1)
    good = [a if n % 3 else b for n, (a, b) in enumerate(zip(gold, bad, strict=True))]
    found = compare_tag_scores(gold, good, bad, bootstrap=300)
    one, two = (tag_scores(gold, tags, bootstrap=0) for tags in (good, bad))
    for name in ("f1", "precision", "recall", "accuracy"):
        assert found[name]["value"] == pytest.approx(one[name]["value"] - two[name]["value"])
        assert 0 < found[name]["low"] < found[name]["value"] < found[name]["high"]
        assert found[name]["p"] == 1 / 301
    assert compare_tag_scores(gold, good, bad, bootstrap=300, seed=1) != found
    assert compare_tag_scores(gold, bad, bad, bootstrap=30)["f1"]["p"] == 1


def test_the_surest_wrong_sentences_come_first() -> None:
    tokens = [["Ada", "Hill", "sang"], ["in", "Wells"], ["Wells", "sang"]]
    gold = [["B-PER", "I-PER", "O"], ["O", "B-LOC"], ["B-LOC", "O"]]
    said = [["B-PER", "O", "O"], ["O", "B-PER"], ["I-LOC", "O"]]
    sure = [np.array([1.0, 0.6, 0.9]), np.array([0.99, 0.7]), np.array([0.9, 0.9])]
    found = most_wrong_sentences(tokens, gold, said, sure, count=9)
    assert found == [
        {"text": "in Wells", "missed": ["LOC: Wells"], "invented": ["PER: Wells"],
         "probability": 0.7},
        {"text": "Ada Hill sang", "missed": ["PER: Ada Hill"], "invented": ["PER: Ada"],
         "probability": 0.6},
    ]  # fmt: skip
    assert most_wrong_sentences(tokens, gold, said, sure, count=1) == found[:1]


def test_best_tags() -> None:
    tags, sure = best_tags([np.array([[0.2, 0.8], [0.9, 0.1]])], ["O", "B-X"])
    assert tags == [["B-X", "O"]]
    assert sure[0].tolist() == [0.8, 0.9]
    with pytest.raises(TilthError, match="NaN probabilities"):
        best_tags([np.array([[np.nan, 0.8]])], ["O", "B-X"])


@pytest.mark.parametrize(
    ("gold", "said", "message"),
    [
        ([["O"]], [], "1 sentences are right, 0 predicted"),
        ([], [], "no sentences"),
        ([["O"], ["O"]], [["O"], ["O", "O"]], "row 1: 1 tags are right, 2 predicted"),
    ],
)
def test_what_does_not_go_together(gold: Any, said: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tag_scores(gold, said)


ROWS = [
    {"tokens": ["Ada", "Hill", "sang", f"song{n}"], "tags": ["B-PER", "I-PER", "O", "O"]}
    for n in range(12)
]


def test_taggers_are_measured_on_data(tmp_path: Path) -> None:
    fake = Fake(TAGS, kind="tags")
    found = tilth.evaluate_tagger(fake, ROWS, seed=3, precision="float32")
    assert fake.asked == [{"precision": "float32"}]
    said, sure = best_tags(fake.tag_probabilities([row["tokens"] for row in ROWS]), TAGS)
    assert found == tag_scores([row["tags"] for row in ROWS], said, sure=sure, seed=3)
    assert sum(one["n"] for one in found["calibration"]["bins"]) == 48
    file = tmp_path / "rows.jsonl"
    write_rows(file, ROWS)
    assert evaluate_tagger(fake, file, seed=3) == found
    assert evaluate_tagger(fake, file, bootstrap=0)["f1"]["low"] is None
    named = [{"w": row["tokens"], "t": row["tags"]} for row in ROWS]
    assert evaluate_tagger(fake, named, text="w", label="t", seed=3) == found


@pytest.mark.parametrize(
    ("labels", "kind", "message"),
    [
        (["O", "B-LOC", "I-LOC"], "tags", r"rows.jsonl:1: label 'PER' is none that 'fake' gives"),
        (["LABEL_0", "LABEL_1"], "tags", "gives 'LABEL_0', no IOB tag"),
        (["sad", "glad"], "class", "measure it with tilth evaluate classify"),
    ],
)
def test_other_models_are_refused(
    tmp_path: Path, labels: list[str], kind: str, message: str
) -> None:
    file = tmp_path / "rows.jsonl"
    write_rows(file, ROWS)
    with pytest.raises(InputError, match=message):
        evaluate_tagger(Fake(labels, kind=kind), file)


def test_texts_with_classes_are_no_data_for_a_tagger() -> None:
    rows = [{"text": "Rain.", "label": "wet"}, {"text": "Sun.", "label": "dry"}]
    with pytest.raises(InputError, match="the data has one label a row, 'fake' gives a tag"):
        evaluate_tagger(Fake(TAGS, kind="tags"), rows)


@pytest.mark.parametrize(
    "gold", [["B-PER", "E-PER", "O", "S-LOC"], ["I-PER", "I-PER", "O", "I-LOC"]]
)
def test_other_schemes_of_tags_are_compared_by_what_they_mean(gold: list[str]) -> None:
    said = [["B-PER", "I-PER", "O", "B-LOC"]]
    found = tag_scores([gold], said, sure=[np.ones(4)], bootstrap=0)
    assert (found["f1"]["value"], found["accuracy"]["value"]) == (100.0, 100.0)
    assert found["calibration"]["error"] == 0.0
    said[0][3] = "O"
    (wrong,) = most_wrong_sentences(
        [["a", "b", "c", "d"]], [gold], said, [np.array([0.9, 0.8, 0.7, 0.6])], count=1
    )
    assert wrong["probability"] == 0.6

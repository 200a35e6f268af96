from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.selftrain.labelled import as_rows, classed, several
from tests.selftrain.labelled import tagged as tagged_rows
from tilth.classifiers.examples import LabeledExamples
from tilth.errors import InputError
from tilth.selftrain.select import (
    FULL,
    LOW,
    UNDRAWN,
    UNWANTED,
    PseudoLabels,
    class_ratio,
    classes_of,
    confidence_of,
    largest_remainder,
    margin_of,
    multiple_of,
    row_counts,
    select,
)
from tilth.selftrain.settings import Augmentation

LABELS = ["rain", "sun", "snow"]
TAGS = ["O", "B-city", "I-city", "B-name", "I-name"]


def drawn(rows: int, *, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.dirichlet((0.5, 0.3, 0.2), rows).astype(np.float32)


def like(kind: Any = "class", labels: Any = LABELS, targets: Any = ()) -> LabeledExamples:
    return LabeledExamples(kind, labels, [], None, targets)


def chosen(probabilities: Any, ratio: Any = (0.5, 0.3, 0.2), count: int = 20, **more: Any) -> Any:
    train = like(more.pop("kind", "class"), more.pop("labels", LABELS))
    keys = more.pop("keys", np.arange(len(probabilities), dtype=np.uint64))
    rows = PseudoLabels(probabilities, keys, more.pop("similarity", None))
    return select(rows, train, count, ratio=np.array(ratio), **more)


def tagged(*sentences: str) -> list[np.ndarray]:
    """Return sure probabilities of tags."""
    sure = 0.875 * np.eye(len(TAGS), dtype=np.float32) + 0.025
    return [sure[[TAGS.index(tag) for tag in row.split()]] for row in sentences]


def test_the_most_confident_of_each_class_are_kept_in_the_ratio() -> None:
    probabilities = drawn(400)
    found = chosen(probabilities)
    expected: list[int] = []
    for label, quota in enumerate((10, 6, 4)):
        rows = [n for n in range(400) if probabilities[n].argmax() == label]
        expected += sorted(rows, key=lambda n: -probabilities[n].max())[:quota]
    assert found.kept.tolist() == sorted(expected)
    assert found.got.tolist() == found.wanted.tolist() == [10, 6, 4]
    assert found.shortfall == {}
    assert found.counts() == {FULL: 380}


def test_a_class_with_too_few_rows_is_not_made_up_for_by_others() -> None:
    probabilities = drawn(400)
    probabilities = probabilities[(probabilities.argmax(axis=1) != 2) | (np.arange(400) < 8)]
    few = int((probabilities.argmax(axis=1) == 2).sum())
    assert few < 4
    found = chosen(probabilities)
    assert found.got.tolist() == [10, 6, few]
    assert found.shortfall == {"snow": 4 - few}


def test_the_remainders_of_shares_are_given_to_the_largest() -> None:
    found = chosen(drawn(400), (0.55, 0.25, 0.2), 7)  # 3.85, 1.75, 1.4
    assert found.wanted.tolist() == [4, 2, 1]


def test_rows_below_the_confidence_are_left_out() -> None:
    probabilities = drawn(100)
    sure = probabilities.max(axis=1)
    found = chosen(probabilities, min_confidence=0.6, by="all")
    assert found.kept.tolist() == np.flatnonzero(sure >= 0.6).tolist()
    assert found.counts() == {LOW: int((sure < 0.6).sum())}
    assert found.shortfall == {}


def test_the_nearest_or_the_clearest_can_be_the_best() -> None:
    probabilities = np.array([[0.5, 0.45, 0.05], [0.45, 0.2, 0.35], [0.4, 0.3, 0.3]], np.float32)
    near = np.array([0.1, 0.2, 0.9])
    ratio = (1, 0, 0)
    assert chosen(probabilities, ratio, 1).kept.tolist() == [0]
    assert chosen(probabilities, ratio, 1, by="margin").kept.tolist() == [1]
    assert chosen(probabilities, ratio, 1, by="similarity", similarity=near).kept.tolist() == [2]
    assert chosen(probabilities, ratio, 1, by="all").kept.tolist() == [0, 1, 2]


def test_a_draw_follows_seed_and_keys_alone() -> None:
    probabilities = drawn(300)
    keys = np.random.default_rng(1).integers(0, 2**63, 300).astype(np.uint64)
    one = chosen(probabilities, by="random", keys=keys)
    order = np.random.default_rng(2).permutation(300)
    moved = chosen(probabilities[order], by="random", keys=keys[order])
    assert sorted(order[moved.kept].tolist()) == one.kept.tolist()
    assert chosen(probabilities, by="random", keys=keys, seed=1).kept.tolist() != one.kept.tolist()
    assert one.got.tolist() == [10, 6, 4]
    assert one.counts() == {UNDRAWN: 280}
    assert one.confidence[one.kept].mean() < chosen(probabilities).confidence[
        chosen(probabilities).kept
    ].mean()  # fmt: skip


def test_ties_follow_the_keys() -> None:
    probabilities = np.full((4, 3), (0.8, 0.1, 0.1), np.float32)
    keys = np.array([3, 1, 2, 0], np.uint64)
    assert chosen(probabilities, (1, 0, 0), 2, keys=keys).kept.tolist() == [1, 3]
    assert chosen(probabilities, (1, 0, 0), 2).kept.tolist() == [0, 1]


def test_a_class_of_no_share_is_not_wanted() -> None:
    probabilities = np.eye(3, dtype=np.float32)
    found = chosen(probabilities, (0.5, 0.5, 0), 10)
    assert found.kept.tolist() == [0, 1]
    assert found.counts() == {UNWANTED: 1}


def test_rows_of_several_classes_count_for_each_and_none_is_a_class() -> None:
    targets = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]], np.float32)
    ratio = class_ratio(like("multi", LABELS, targets))
    assert ratio.tolist() == [0.75, 0.25, 0.0, 0.25]
    both, one, none = (0.9, 0.9, 0.1), (0.9, 0.1, 0.1), (0.1, 0.1, 0.1)
    rows = np.array([both] * 20 + [one] * 20 + [none] * 20, np.float32)
    found = chosen(rows, ratio, 8, kind="multi")
    assert found.wanted.tolist() == [6, 2, 0, 2]
    assert found.got.tolist() == [6, 2, 0, 2]
    assert len(found.kept) == 8


def test_never_more_rows_than_wanted_in_all() -> None:
    targets = np.ones((4, 3), np.float32)  # each row has all classes, but here each has one
    ratio = class_ratio(like("multi", LABELS, targets))
    rows = np.repeat(0.8 * np.eye(3, dtype=np.float32) + 0.1, 50, axis=0)
    found = chosen(rows, ratio, 30, kind="multi")
    assert 27 <= len(found.kept) <= 30
    assert np.ptp(found.got[:3]) == 0


def test_sentences_are_of_the_types_of_their_entities() -> None:
    assert classes_of("tags", TAGS) == ["city", "name", ""]
    targets = tagged("O B-city I-city", "B-name", "O B-city B-name", "O O")
    ratio = class_ratio(like("tags", TAGS, targets))
    assert ratio.tolist() == [0.5, 0.5, 0.25]
    pool = tagged(*["O B-city"] * 5, *["B-name I-name"] * 5, *["O"] * 5, "I-city")
    found = chosen(pool, ratio, 4, kind="tags", labels=TAGS)
    assert found.wanted.tolist() == [2, 2, 1]
    assert len(found.kept) == 4  # none has both types here: all get less
    assert sorted(found.got.tolist()) == [1, 1, 2]


def test_a_sentence_is_as_sure_as_its_tokens_in_the_mean() -> None:
    sentence = np.array([[0.9, 0.1], [0.6, 0.4]], np.float32)
    rows = [sentence, np.empty((0, 2), np.float32)]
    np.testing.assert_allclose(confidence_of(rows, kind="tags"), [0.75, 0])
    np.testing.assert_allclose(margin_of(rows, kind="tags"), [0.5, 0], atol=1e-6)


def test_several_classes_are_as_sure_as_the_least_sure_one() -> None:
    row = np.array([[0.9, 0.3, 0.05]], np.float32)
    np.testing.assert_allclose(confidence_of(row, kind="multi"), [0.7])
    np.testing.assert_allclose(margin_of(row, kind="multi"), [0.4], atol=1e-6)


def test_no_rows() -> None:
    found = chosen(np.empty((0, 3), np.float32))
    assert found.kept.tolist() == []
    assert found.shortfall == {"rain": 10, "sun": 6, "snow": 4}
    assert not len(chosen([], (0.5, 0.5, 0.1), kind="tags", labels=TAGS).kept)


@pytest.mark.parametrize(
    ("rows", "multiple"),
    [(40, 100), (3947, 100), (5000, 100), (10_000, 50), (50_000, 10), (67_349, 10), (0, 100)],
)
def test_small_sets_are_multiplied_more(rows: int, multiple: int) -> None:
    assert multiple_of(rows) == multiple


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": "best"}, "selection 'best' is unknown: use random, confidence"),
        ({"by": "similarity"}, "the rows have none"),
        ({"min_confidence": 1.5}, "min_confidence is 1.5"),
        ({"count": 0}, "count is 0"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        chosen(drawn(5), **options)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(0, 1000))
def test_shares_add_up(sizes: list[int], count: int) -> None:
    groups = np.array(sizes)
    found = largest_remainder(groups, count / sum(sizes))
    assert found.sum() == count
    exact = groups * (count / sum(sizes))
    assert (np.abs(found - exact) < 1).all()


ROWS = as_rows(classed(60))
LARGE = 10_000_000


@pytest.mark.parametrize(
    ("bank", "asked", "count", "candidates", "said"),
    [
        (LARGE, {}, 6_000, 12_000, None),  # the paper's hundred for each row of a small set
        (LARGE, {"multiple": 2.5}, 150, 2_000, None),
        (LARGE, {"count": 5_000}, 5_000, 10_000, None),
        (LARGE, {"per_class": 1_000}, 3_000, 6_000, None),
        (LARGE, {"count": 5_000, "candidates": 6_000}, 5_000, 6_000, None),
        (LARGE, {"candidates": 900}, 450, 900, "450 rows are wanted, not 6,000"),
        (300, {"count": 20}, 20, 300, None),
        (90_000, {}, 4_500, 9_000, "4,500 rows are wanted, not 6,000 (100 for each row"),
        (300, {}, 150, 300, "150 rows are wanted"),
        (90_000, {"multiple": 100}, 6_000, 12_000, None),
        (9_000, {"multiple": 100}, 6_000, 9_000, "holds 9,000 sentences, 12,000 were to be"),
    ],
)
def test_how_many_are_wanted(
    bank: int, asked: dict[str, Any], count: int, candidates: int, said: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    found, _, needed = row_counts(Augmentation(**asked), ROWS, bank)
    assert (found, needed) == (count, candidates)
    assert said in caplog.text if said else not caplog.records


def test_the_ratio_is_the_training_sets_or_even() -> None:
    rows = as_rows(classed(61))
    _, usual, _ = row_counts(Augmentation(), rows, LARGE)
    np.testing.assert_allclose(usual, np.array([21, 20, 20]) / 61)
    _, even, _ = row_counts(Augmentation(per_class=5), rows, LARGE)
    np.testing.assert_allclose(even, 1 / 3)
    for make in (several, tagged_rows):
        assert len(row_counts(Augmentation(), as_rows(make(60)), LARGE)[1]) == 3


def test_two_numbers_of_rows_are_refused() -> None:
    with pytest.raises(InputError, match="multiple and count say both"):
        Augmentation(count=3, multiple=2)

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from tests.selftrain.labelled import as_rows, classed, several, tagged
from tilth.classifiers.examples import Rows, strata
from tilth.errors import InputError
from tilth.selftrain.few_shot import (
    best_of,
    draw,
    draw_validation,
    gain,
    highest,
    over_draws,
    shares,
)


def texts(rows: Rows, places: np.ndarray) -> set[tuple[str, ...]]:
    return {rows.texts[place] for place in places}


def test_each_class_has_as_many_rows() -> None:
    rows = as_rows(classed(90))
    places = draw(rows, 7, seed=3)
    assert rows.targets[places].sum(axis=0).tolist() == [7, 7, 7]
    assert places.tolist() == sorted(set(places.tolist()))


def test_draws_follow_seed_and_content_not_order() -> None:
    many = classed(90)
    rows, turned = as_rows(many), as_rows(many[::-1])
    assert texts(rows, draw(rows, 5, seed=1)) == texts(turned, draw(turned, 5, seed=1))
    assert texts(rows, draw(rows, 5, seed=1)) != texts(rows, draw(rows, 5, seed=2))
    one, two = (draw_validation(some, 20, seed=1) for some in (rows, turned))
    assert texts(rows, one) == texts(turned, two)
    assert texts(rows, one) != texts(rows, draw_validation(rows, 20, seed=2))


def test_equal_texts_and_those_of_the_test_set_are_not_drawn() -> None:
    many = classed(30)
    rows = as_rows(many + many)
    assert len(texts(rows, draw(rows, 9))) == 27
    without = set(rows.texts[:15])
    for places in (draw(rows, 9, without=without), draw_validation(rows, 30, without=without)):
        assert not texts(rows, places) & without
        assert len(texts(rows, places)) == len(places) == 15
    with pytest.raises(InputError, match="'animal': no row of it can be drawn"):
        draw(rows, 9, without=set(rows.texts))
    with pytest.raises(InputError, match="200 validation rows of 0"):
        draw_validation(rows, without=set(rows.texts))


def test_rows_of_several_classes_count_for_each() -> None:
    rows = as_rows(several(200))
    places = draw(rows, 10, seed=1)
    assert (rows.targets[places].sum(axis=0) >= 10).all()
    assert len(places) <= 20


def test_sentences_are_drawn_in_the_shares_of_their_types() -> None:
    rows = as_rows(tagged(300))
    places = draw(rows, 3, sentences=60)
    assert len(places) == 60
    whole, drawn = (Counter(strata(rows)[some].tolist()) for some in (np.arange(300), places))
    assert all(abs(drawn[group] - whole[group] / 5) < 1 for group in whole)


def test_validation_rows_have_the_sets_shares_of_labels() -> None:
    many = classed(300)
    kept = [row for row in many if row["label"] == "animal"]
    kept += [row for row in many if row["label"] == "water"][:50]
    rows = as_rows(kept)
    places = draw_validation(rows, 30)
    assert rows.targets[places].sum(axis=0).tolist() == [20, 10]
    assert draw_validation(rows, 1000).tolist() == list(range(150))


@pytest.mark.parametrize(("per_class", "sentences"), [(0, 200), (20, 0)])
def test_nothing_cannot_be_drawn(per_class: int, sentences: int) -> None:
    with pytest.raises(InputError, match="at least one"):
        draw(as_rows(classed(30)), per_class, sentences=sentences)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(0, 1000))
def test_shares_add_up(sizes: list[int], count: int) -> None:
    groups = np.array(sizes)
    found = shares(groups, count)
    assert found.sum() == min(count, sum(sizes))
    assert ((found >= 0) & (found <= groups)).all()
    exact = groups * min(1, count / sum(sizes))
    assert (np.abs(found - exact) < 1).all()


def test_the_best_by_validation_count() -> None:
    validation, test = [50.0, 80.0, 80.0, 70.0, 60.0], [99.0, 10.0, 20.0, 30.0, 98.0]
    assert highest(validation, 2) == [1, 2]
    assert best_of(validation, test) == 20.0
    assert best_of(validation, test, best=1) == 10.0  # of equal ones the first
    assert best_of(validation, test, best=9) == np.mean(test)


def test_mean_deviation_and_interval() -> None:
    values = [70.0, 74.0, 71.0, 77.0, 73.0]
    found = over_draws(values)
    assert found.mean == pytest.approx(73.0)
    assert found.deviation == pytest.approx(np.std(values, ddof=1))
    interval = ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(interval))
    assert found.draws == tuple(values)
    alone = over_draws([70.0])
    assert (alone.mean, alone.deviation, alone.low, alone.high) == (70.0, None, None, None)


def test_a_gain_is_paired() -> None:
    found = gain([60.0, 80.0, 70.0], [62.0, 81.0, 73.0])
    assert found.draws == (2.0, 1.0, 3.0)
    assert found.mean == pytest.approx(2.0)
    assert found.deviation == pytest.approx(1.0)
    with pytest.raises(ValueError, match="zip"):
        gain([60.0], [61.0, 62.0])

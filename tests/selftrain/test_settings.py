from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from tests.selftrain.labelled import as_rows, classed, several, tagged
from tilth.errors import InputError
from tilth.selftrain.settings import Augmentation, wanted_of

ROWS = as_rows(classed(60))
LARGE = 10_000_000


def wanted(bank: int = LARGE, **asked: Any) -> tuple[int, int]:
    found = wanted_of(Augmentation(**asked), ROWS, bank)
    return found.rows, found.candidates


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
    usual = wanted_of(Augmentation(), as_rows(classed(61)), LARGE)
    np.testing.assert_allclose(usual.ratio, np.array([21, 20, 20]) / 61)
    even = wanted_of(Augmentation(per_class=5), as_rows(classed(61)), LARGE)
    np.testing.assert_allclose(even.ratio, 1 / 3)
    assert len(wanted_of(Augmentation(), as_rows(several(60)), LARGE).ratio) == 3
    assert len(wanted_of(Augmentation(), as_rows(tagged(60)), LARGE).ratio) == 3


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

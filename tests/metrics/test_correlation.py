import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tilth.metrics.correlation import (
    average_ranks,
    bootstrap_spearman,
    pearson,
    spearman,
)
from tilth.metrics.significance import percentile_interval

numbers = st.lists(st.integers(-4, 4), min_size=3, max_size=30)


@settings(deadline=None)
@given(numbers, st.integers(0, 10))
def test_ranks_and_correlations_equal_scipy_with_ties(values: list[int], seed: int) -> None:
    a = np.array(values, float)
    b = np.random.default_rng(seed).integers(0, 4, len(a)).astype(float)
    np.testing.assert_allclose(average_ranks(a), stats.rankdata(a))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert np.isnan(spearman(a, b))
        assert np.isnan(pearson(a, b))
    else:
        assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
        assert pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-12)


def test_direction() -> None:
    rising, falling = np.array([1.0, 2, 5]), np.array([3.0, 2, 1])
    assert spearman(rising, rising) == 1
    assert spearman(rising, falling) == -1
    assert pearson(rising, falling) < 0


def test_pearson_of_very_small_and_large_numbers() -> None:
    a = np.array([1.0, 2, 5, 3])
    assert pearson(a * 1e-200, a * 1e200) == pytest.approx(1)


def test_resamples_equal_a_slow_loop() -> None:
    random = np.random.default_rng(5)
    a, b = random.integers(0, 6, 40).astype(float), random.normal(size=40).round(1)
    ours = bootstrap_spearman(a, b, 50, np.random.default_rng(9))
    drawing = np.random.default_rng(9)
    theirs = []
    for _ in range(50):
        places = drawing.integers(0, 40, 40)
        theirs.append(stats.spearmanr(a[places], b[places]).statistic)
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert percentile_interval(ours) == pytest.approx(tuple(np.percentile(theirs, [2.5, 97.5])))


def test_resamples_without_a_correlation_are_drawn_again() -> None:
    a, b = np.array([0.0, 0, 1]), np.array([1.0, 0, 0])
    found = bootstrap_spearman(a, b, 200, np.random.default_rng(0))
    assert len(found) == 200
    assert np.isfinite(found).all()


def test_no_resamples_and_constant_lists() -> None:
    a, b = np.arange(4.0), np.ones(4)
    assert len(bootstrap_spearman(a, a, 0, np.random.default_rng(0))) == 0
    for one, two in ((a, b), (b, a)):
        with pytest.raises(ValueError, match="constant"):
            bootstrap_spearman(one, two, 5, np.random.default_rng(0))

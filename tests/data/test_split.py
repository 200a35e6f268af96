from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.data.split import group_rows, source_hashes, validation_rows, written_by_model


def hashes(*values: int) -> Any:
    return np.array(values, np.uint64)


def test_rows_equal_in_any_column_are_linked_and_zero_links_none() -> None:
    groups = group_rows(hashes(1, 2, 1, 3, 0, 0), hashes(0, 5, 6, 6, 0, 0))
    assert groups[0] == groups[2] == groups[3]
    assert len({groups[0], *groups[[1, 4, 5]]}) == 4
    # Equal numbers of different columns are different things.
    assert len(set(group_rows(hashes(7, 0), hashes(0, 7)))) == 2


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 4))
def test_groups_stay_whole_whatever_the_order(seed: int, count: int, labels: int) -> None:
    rng = np.random.default_rng(seed)
    names, given_labels = rng.integers(1, count + 1, 120), rng.integers(0, labels, 120)
    keys = rng.integers(0, 2**63, 120).astype(np.uint64)
    order = rng.permutation(120)
    one, two = (
        validation_rows(
            given_labels[at], keys[at], 0.2, numeric=False,
            groups=group_rows(names[at].astype(np.uint64)),
        )
        for at in (np.arange(120), order)
    )  # fmt: skip
    assert (one[order] == two).all()
    assert not set(names[one]) & set(names[~one])
    assert set(given_labels[~one]) == set(given_labels)  # no label is left without training rows


def test_shares_hold_with_small_groups_and_single_rows_are_as_without_groups() -> None:
    rng = np.random.default_rng(0)
    labels, keys = rng.integers(0, 3, 3000), rng.integers(0, 2**63, 3000).astype(np.uint64)
    groups = group_rows(rng.integers(1, 700, 3000).astype(np.uint64))
    held = validation_rows(labels, keys, 0.1, numeric=False, groups=groups)
    assert (np.abs(np.bincount(labels[held]) / np.bincount(labels) - 0.1) < 0.02).all()
    alone = validation_rows(labels, keys, 0.1, numeric=False, groups=np.arange(3000))
    assert (alone == validation_rows(labels, keys, 0.1, numeric=False)).all()


def test_origin_is_the_source_or_the_row_of_a_source() -> None:
    rows = {"source_row": [1, 1, None], "source": ["a", "b", "a"]}
    one, two, none = source_hashes(pa.table(rows))
    assert one != two
    assert none == 0
    named = source_hashes(pa.table({**rows, "source_id": ["x", "x", None]}))
    assert named[0] == named[1] != named[2] == 0
    assert not source_hashes(pa.table({"text": ["a"]})).any()
    assert not source_hashes(pa.table({"source_id": [["a"]]})).any()


@pytest.mark.parametrize(("columns", "expected"), [
    ({"source_id": ["1", "2"], "model": ["lm", None]}, [True, False]),
    ({"model": ["a car", "a boat"]}, [False, False]),
])  # fmt: skip
def test_rows_that_a_model_wrote(columns: dict[str, Any], expected: list[bool]) -> None:
    assert written_by_model(pa.table(columns)).tolist() == expected

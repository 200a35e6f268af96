import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.errors import InputError
from tilth.paraphrase.tags import CELLS, TAGS, UNITS, Cell, asked_cell, cell_of, cells_of


def test_tags_are_the_published_strings() -> None:
    meanings = "<SIM70> <SIM75> <SIM80> <SIM85> <SIM90> <SIM95>"
    wordings = "<BLEU0_5> <BLEU10> <BLEU15> <BLEU20> <BLEU25> <BLEU30> <BLEU35> <BLEU40>"
    assert list(TAGS) == f"{meanings} {wordings}".split()
    assert Cell(95, 0).tags == "<SIM95> <BLEU0_5>"
    assert Cell(70, 40).tags == "<SIM70> <BLEU40>"


def test_there_are_48_cells_of_54_units_in_order() -> None:
    assert len(CELLS) == len(set(CELLS)) == 48
    assert UNITS == 54
    assert list(CELLS) == sorted(CELLS)


@pytest.mark.parametrize(
    ("meaning", "wording", "cell"),
    [
        (70.0, 20.0, None),
        (70.001, 20.0, Cell(70, 20)),
        (74.999, 0.0, Cell(70, 0)),
        (75.0, 0.0, Cell(75, 0)),
        (95.0, 9.99, Cell(95, 0)),
        (95.0, 10.0, Cell(95, 10)),
        (100.0, 45.0, Cell(95, 40)),
        (100.00001, 20.0, Cell(95, 20)),
        (101.0, 20.0, None),
        (100.0, 45.001, None),
        (99.0, -0.1, None),
        (math.nan, 20.0, None),
        (90.0, math.nan, None),
    ],
)
def test_edges_of_cells(meaning: float, wording: float, cell: Cell | None) -> None:
    assert cell_of(meaning, wording) == cell


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=30))
def test_many_values_at_once_are_each_value_alone(values: list[tuple[float, float]]) -> None:
    places = cells_of(
        np.array([meaning for meaning, _ in values]), np.array([wording for _, wording in values])
    )
    for (meaning, wording), place in zip(values, places, strict=True):
        inside = [
            cell
            for cell in CELLS
            if (cell.meaning <= meaning < cell.meaning_end or meaning == cell.meaning_end == 100)
            and (cell.wording <= wording < cell.wording_end or wording == cell.wording_end == 45)
            and meaning > 70
        ]
        assert inside == ([] if place < 0 else [CELLS[place]])


def test_asked_values_name_their_cell() -> None:
    assert asked_cell(70, 0) == Cell(70, 0)
    assert asked_cell(95, 5) == Cell(95, 0)
    assert asked_cell(100, 45) == Cell(95, 40)
    assert asked_cell(np.float32(84.9), np.int64(12)) == Cell(80, 10)


@pytest.mark.parametrize("value", [69.9, 100.1, math.nan, math.inf, True, "95", None])
def test_a_meaning_or_wording_that_cannot_be_asked_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"meaning .*from 70 to 100"):
        asked_cell(value, 5)
    with pytest.raises(InputError, match=r"wording .*from 0 to 45"):
        asked_cell(95, value)


def test_distance_is_to_the_nearest_edge() -> None:
    cell = Cell(80, 20)
    assert cell.distance(82, 22) == 0.0
    assert cell.distance(77, 22) == 3.0
    assert cell.distance(89, 28) == 5.0  # 4 above, 3 above
    assert Cell(95, 0).distance(100, 9) == 0.0
    assert Cell(95, 0).distance(96, 13) == 3.0


@pytest.mark.parametrize(
    ("cell", "wordings", "expected"),
    [
        (Cell(95, 0), (0, 9.9, 14.9, 15, math.nan), [True, True, True, False, False]),
        (Cell(95, 15), (9.9, 10, 24.9, 25), [False, True, True, False]),
        (Cell(95, 40), (34.9, 35, 49.9, 50), [False, True, True, False]),
    ],
)
def test_near_is_the_own_bin_or_a_neighbour(
    cell: Cell, wordings: tuple[float, ...], expected: list[bool]
) -> None:
    assert [cell.is_near(wording) for wording in wordings] == expected

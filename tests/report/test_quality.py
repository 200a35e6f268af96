import random

import numpy as np
import pyarrow as pa
import pytest

from tilth.report.quality import Repeats

Row = tuple[int, str, str]  # label, output, input


def counted(rows: list[Row], labels: int, *, paired: bool = True, batch: int = 1000) -> Repeats:
    repeats = Repeats()
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        repeats.add(
            np.array([row[0] for row in part]),
            pa.array([row[1] for row in part]),
            pa.array([row[2] for row in part]),
        )
    return repeats.count(labels, paired=paired)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("paired", [True, False])
def test_counts_equal_a_slow_loop(seed: int, paired: bool) -> None:
    draw = random.Random(seed)
    rows = [
        (draw.randrange(4), draw.choice("abcdefgh"), draw.choice("xyz") if paired else "")
        for _ in range(120)
    ]
    repeated, duplicates = [0] * 4, [0] * 4
    for place, (label, output, source) in enumerate(rows):
        earlier = [row for row in rows[:place] if row[:2] == (label, output)]
        repeated[label] += any(row[2] != source for row in earlier)
        duplicates[label] += any(row[2] == source for row in earlier)
    shared = [
        [
            sum(
                (other, output, source) in set(rows) and other != label
                for mine, output, source in rows
                if mine == label
            )
            for other in range(4)
        ]
        for label in range(4)
    ]
    counts = counted(rows, 4, paired=paired, batch=7)
    assert counts.shared.tolist() == shared
    assert counts.repeated.tolist() == (repeated if paired else duplicates)
    assert counts.duplicates.tolist() == (duplicates if paired else [0] * 4)


def test_nothing_kept() -> None:
    counts = Repeats().count(2, paired=True)
    assert counts.repeated.tolist() == [0, 0]
    assert counts.shared.tolist() == [[0, 0], [0, 0]]


def test_first_input_again_after_another_repeats() -> None:
    rows: list[Row] = [(0, "a", "x"), (0, "a", "y"), (0, "a", "x")]
    counts = counted(rows, 1)
    assert counts.repeated.tolist() == [2]
    assert counts.duplicates.tolist() == [1]

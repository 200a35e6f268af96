import numpy as np

from tilth.report.row_samples import Draw, row_keys


def drawn(batches: list[int], *, size: int = 5, seed: int = 0, groups: int = 3) -> list[list[int]]:
    """Draw from rows 0, 1, ... that arrive in batches; row i belongs to group i % groups."""
    draw, first = Draw(size), 0
    for rows in batches:
        numbers = np.arange(first, first + rows)
        codes, keys = numbers % groups, row_keys(first, rows, seed)
        for place in draw.wanted(list(range(groups)), codes, keys):
            draw.add(int(codes[place]), int(keys[place]), int(numbers[place]))
        first += rows
    return [draw.rows(group) for group in range(groups)]


def test_draw_is_the_rows_with_the_smallest_keys() -> None:
    keys = row_keys(0, 900, 7)
    expected = [sorted(range(group, 900, 3), key=lambda i: int(keys[i]))[:5] for group in range(3)]
    assert drawn([900], seed=7) == expected


def test_draw_does_not_depend_on_the_batches() -> None:
    assert drawn([900]) == drawn([1] * 30 + [500, 370]) == drawn([450, 450])


def test_seed_changes_the_draw() -> None:
    assert drawn([900], seed=0) != drawn([900], seed=1)


def test_fewer_rows_than_asked_are_all_drawn() -> None:
    assert sorted(drawn([6])[0]) == [0, 3]


def test_keys_are_even_and_different() -> None:
    keys = row_keys(0, 50_000, 3)
    assert len(np.unique(keys)) == 50_000
    counts, _ = np.histogram(keys.astype(np.float64), bins=10, range=(0, 2.0**64))
    assert counts.min() > 4_700  # 5,000 expected, standard deviation 67


def test_keys_follow_the_row_number() -> None:
    assert row_keys(10, 5, 1).tolist() == row_keys(0, 15, 1)[10:].tolist()

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset

from tilth.errors import InputError
from tilth.evaluate.overlap import apart, find_overlap, normalize_text, untouched
from tilth.evaluate.sts_sets import StsSet


def sts(name: str, *pairs: tuple[str, str]) -> StsSet:
    return StsSet(
        name,
        [a for a, _ in pairs],
        [b for _, b in pairs],
        np.arange(len(pairs)),
        [name] * len(pairs),
    )


BIRDS = sts("birds", ("A wren sings.", "A bird sings."), ("Rooks gather.", "It rains."))
FARMS = sts("farms", ("It rains!", "The barn is dry."), ("Hay is cut.", "hay is cut"))
ROWS = [
    {"text_a": "a bird sings", "text_b": "A  WREN, sings", "label": 1.0},  # a pair, turned round
    {"text_a": "It rains", "text_b": "Nobody minds.", "label": 0.0},  # in both sets
    {"text_a": "Nothing of it.", "text_b": "At all.", "label": 0.0},
    {"text_a": "Hay is cut", "text_b": "Hay is cut.", "label": 1.0},
    {"text_a": "A wren sings.", "text_b": "Rooks gather.", "label": 0.0},  # no pair
]
COUNTS = {
    "birds": {"rows": 3, "pairs": 1, "sentences": 4},
    "farms": {"rows": 2, "pairs": 1, "sentences": 2},
}


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The ﬁrst  Wren;sings!", "the first wren sings"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("don\u2019t «go»\u00a0", "don t go"),
        ("...", "..."),
        ("नमस्ते", "नमस्ते"),
    ],
)
def test_plain_sentence(text: str, plain: str) -> None:
    assert normalize_text(text) == plain


def test_rows_of_any_kind_are_read() -> None:
    texts = [text for row in ROWS for text in row.values() if isinstance(text, str)]
    counts = [
        {name: overlap.counts() for name, overlap in find_overlap(rows, [BIRDS, FARMS]).items()}
        for rows in (texts, pd.DataFrame({"text": texts}), [{"text": text} for text in texts])
    ]
    assert counts[0] == counts[1] == counts[2]
    assert counts[0]["birds"]["rows"]


@pytest.mark.parametrize("as_dataset", [True, False])
def test_counts(as_dataset: bool) -> None:
    rows = Dataset.from_list(ROWS) if as_dataset else ROWS
    found = find_overlap(rows, [BIRDS, FARMS])
    assert {name: overlap.counts() for name, overlap in found.items()} == COUNTS
    assert untouched(FARMS, found["farms"]).tolist() == [False, False]
    assert untouched(BIRDS, find_overlap(ROWS[1:2], [BIRDS])["birds"]).tolist() == [True, False]


def test_training_rows_are_dropped() -> None:
    rows = Dataset.from_list(ROWS)
    assert apart(rows, [BIRDS, FARMS]) == [2]
    assert apart(rows, [FARMS]) == [0, 2, 4]


@pytest.mark.parametrize("as_dataset", [True, False])
@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"text": "It rains.", "label": "x"}, 1),
        ({"text": "x", "label": "It rains."}, 0),  # text decides when it is there
        ({"anchor": "It rains.", "positive": "Rooks gather", "negative": "x"}, 1),
        ({"text_a": "x", "text_b": "y", "source": "It rains."}, 0),
    ],
)
def test_which_columns_hold_texts(row: dict[str, str], found: int, as_dataset: bool) -> None:
    rows = Dataset.from_list([row]) if as_dataset else [row]
    assert find_overlap(rows, [BIRDS])["birds"].rows == found


def test_a_triplet_holds_its_pairs_once() -> None:
    row = {"anchor": "It rains.", "positive": "Rooks gather", "negative": "rooks gather"}
    assert find_overlap([row], [BIRDS])["birds"].counts() == {"rows": 1, "pairs": 1, "sentences": 2}


def test_a_row_without_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"training row 1 has no text among label"):
        find_overlap([{"text": "x"}, {"label": 1}], [BIRDS])

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.metrics.scores import iob2, spans


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O O", []),
        ("B-PER I-PER O", [("PER", 0, 2)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("I-PER I-PER", [("PER", 0, 2)]),  # IOB1, or a B that is missing
        ("O I-LOC B-LOC I-LOC", [("LOC", 1, 2), ("LOC", 2, 4)]),
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("B-PER I-LOC I-PER", [("PER", 0, 1), ("LOC", 1, 2), ("PER", 2, 3)]),
        ("S-PER S-PER B-LOC E-LOC", [("PER", 0, 1), ("PER", 1, 2), ("LOC", 2, 4)]),
        ("B-LOC E-LOC I-LOC", [("LOC", 0, 2), ("LOC", 2, 3)]),
        ("U-PER B-LOC L-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("B-top-part I-top-part", [("top-part", 0, 2)]),
    ],
)
def test_entities_by_hand(tags: str, found: list[tuple[str, int, int]]) -> None:
    assert spans(tags.split()) == found


@given(st.lists(st.sampled_from(["O", *(f"{p}-{t}" for p in "BIESLU" for t in "XY")])))
def test_iob2_keeps_the_spans_and_is_itself_iob2(tags: list[str]) -> None:
    written = iob2(tags)
    assert spans(written) == spans(tags)
    assert iob2(written) == written
    for before, tag in zip(["O", *written], written, strict=False):
        assert tag[0] != "I" or before[2:] == tag[2:]

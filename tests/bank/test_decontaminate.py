import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import salads
from tilth.bank.search.decontaminate import Exclusion
from tilth.data.near_duplicates import SIMILARITY, jaccard, near_keys
from tilth.data.normalize import exact_keys, normalize_texts
from tilth.errors import InputError

LONG = "The old mill by the river was sold to a family from the north last {} of the year"


def among(sought: list[str], texts: list[str], *, near: bool = True) -> list[str]:
    """Return exact, near or nothing of each text."""
    found = Exclusion("test", sought, near=near).match(pa.array(texts, pa.string()))
    assert set(found) == ({"test, exact", "test, near"} if near else {"test, exact"})
    exact = found["test, exact"]
    nearly = found.get("test, near", np.zeros_like(exact))
    assert not (exact & nearly).any()
    names = np.where(exact, "exact", np.where(nearly, "near", ""))
    return [str(name) for name in names]


def brute_force(sought: list[str], texts: list[str]) -> list[str]:
    found = []
    both = normalize_texts(pa.array(sought + texts, pa.large_string()))
    keys, exact = near_keys(both), exact_keys(both)
    for text in range(len(sought), len(both)):
        others = range(len(sought))
        if any(exact[other] == exact[text] for other in others):
            found.append("exact")
        elif any(
            (keys[other] == keys[text]).any()
            and jaccard(both, np.array([other]), np.array([text]))[0] >= SIMILARITY
            for other in others
        ):
            found.append("near")
        else:
            found.append("")
    return found


def test_equal_after_normalisation_and_nearly_equal() -> None:
    sought = [LONG.format("week"), "Book a table!", "Page 12 of the book."]
    texts = ["book a TABLE", LONG.format("month"), "Page 13 of the book", "Something else.", ""]
    assert among(sought, texts) == ["exact", "near", "near", "", ""]
    assert among(sought, texts, near=False) == ["exact", "", "", "", ""]
    assert among(sought, []) == []


def test_tokenised_and_uncleaned_texts_equal_the_banks_sentences() -> None:
    sought = ["It does n't cost $ 5 .", "`` Why not ? '' she said", "Fish &amp; chips\u200b"]
    texts = ["It doesn't cost $5.", '"Why not?" she said', "Fish & chips", "It costs $5."]
    assert among(sought, texts) == ["exact", "exact", "exact", ""]
    numbers = ["It costs $10.5.", "1 12 people came."]
    others = ["It costs $1.05.", "11 2 people came.", "112 people came.", "It costs $ 10.5 ."]
    assert among(numbers, others, near=False) == ["", "", "", "exact"]


def test_no_sentence_to_leave_out() -> None:
    with pytest.raises(InputError, match="test: holds no sentence"):
        Exclusion("test", [])


TEXTS = st.lists(
    st.lists(st.sampled_from(["old", "mill", "river", "sold", "1"]), min_size=3, max_size=20)
    .map(" ".join),
    min_size=1, max_size=20,
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(TEXTS, TEXTS)
def test_as_a_loop_finds_them(sought: list[str], texts: list[str]) -> None:
    assert among(sought, texts) == brute_force(sought, texts)


@pytest.mark.parametrize("pairs_at_once", [1, 1000, 1 << 20])
def test_many_with_one_key(pairs_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.bank.search.decontaminate._PAIRS_AT_ONCE", pairs_at_once)
    sought = [f"Page {number} of the very same old book" for number in range(300)]
    texts = [*salads(50), *(f"Page {number} of the very same old book" for number in range(900))]
    assert among(sought, texts)[50:] == ["exact"] * 300 + ["near"] * 600


def test_longer_texts_are_looked_for_by_sentence_too() -> None:
    review = "I went on Monday. The committee mended the wooden boat near the sea. It was nice."
    found = among(
        [review],
        [
            "The committee mended the wooden boat near the sea.",
            "It was nice.",  # says too little
            review.upper(),
            "The committee mended the wooden boat near the lake and left.",
        ],
    )
    assert found == ["exact", "", "exact", ""]


def test_texts_are_divided_by_the_rules_of_the_banks_language() -> None:
    text = "La Sra. L\u00f3pez no pudo venir porque estaba enferma. Luego se fue a su casa."
    first = pa.array(["La Sra. L\u00f3pez no pudo venir porque estaba enferma."])
    assert Exclusion("test", [text], language="es").match(first)["test, exact"].tolist() == [True]
    assert Exclusion("test", [text]).match(first)["test, exact"].tolist() == [False]

import pyarrow as pa
import pytest

from tilth.report.text_similarity import plain, word_counts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man, a plan.", "a man a plan"),
        ("Don't  \u201cstop\u201d me!", "dont stop me"),
        ("red-hot", "red hot"),
        ("  \u00c9t\u00e9 ", "\u00e9t\u00e9"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940.", "\u0939\u093f\u0928\u094d\u0926\u0940"),
        ("\u65e5\u672c\u8a9e\u3002", "\u65e5 \u672c \u8a9e"),
        ("costs $5", "costs $5"),
        ("...", "..."),
        ("", ""),
    ],
)  # fmt: skip
def test_plain(text: str, expected: str) -> None:
    assert plain(pa.array([text])).to_pylist() == [expected]


def test_plain_keeps_texts_of_punctuation_apart() -> None:
    one, two = plain(pa.array(["!!", "??"])).to_pylist()
    assert one != two


def test_plain_takes_null_as_empty() -> None:
    assert plain(pa.array([None, "A"], pa.string())).to_pylist() == ["", "a"]


def test_word_counts() -> None:
    texts = plain(pa.array(["One, two three.", "", "don't", "\u65e5\u672c"]))
    assert word_counts(texts).to_pylist() == [3, 0, 1, 2]

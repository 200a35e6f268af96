from collections.abc import Sequence

import numpy as np
import pytest
import sacrebleu
from numpy.typing import NDArray

from tilth.errors import InputError
from tilth.models.scorer import Scorer
from tilth.paraphrase.similarity import long_enough, meaning, without_symbols, wording

SOURCE = "The mayor, Ms. Ortiz, opened 2.5 miles of new path."


class Asked:
    """A scorer's function that remembers what it was asked: the shared words in percent."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def __call__(self, first: list[str], second: list[str]) -> NDArray[np.float32]:
        self.pairs += zip(first, second, strict=True)
        shared = [
            100 * len({*a.split()} & {*b.split()}) / len({*a.split()} | {*b.split()})
            for a, b in zip(first, second, strict=True)
        ]
        return np.array(shared, np.float32)


def scorer(asked: Asked) -> Scorer:
    return Scorer("shared words", "cross-encoder", "0", asked)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('He said: "Don\'t (ever) go!"', "He said Dont ever go"),
        ("3.5% of $1,000 in snake_case", "3.5 of 1,000 in snakecase"),
        ("a\ttab\nand a line", "a\ttab\nand a line"),
        ("Café, naïve: Łódź & Straße", "Café, naïve Łódź  Straße"),
        ("Cafe\u0301 au lait", "Cafe\u0301 au lait"),
        ("हिन्दी में लिखा!", "हिन्दी में लिखा"),
        ("مَرْحَبًا، يا صديقي", "مَرْحَبًا يا صديقي"),
        ("今日は「晴れ」です。", "今日は晴れです"),
        ("Да, конечно?", "Да, конечно"),
        ("nice \U0001f600\u2764\ufe0f day", "nice  day"),
        ("\U0001f469\u200d\U0001f680 1\ufe0f\u20e3", " 1"),
        ("\u0301 a lone mark", " a lone mark"),
        ("", ""),
    ],
)
def test_letters_digits_spaces_commas_and_full_stops_stay(text: str, kept: str) -> None:
    assert without_symbols(text) == kept


def bleu(source: str, rewrite: str) -> float:
    one, two = without_symbols(source), without_symbols(rewrite)
    return float(sacrebleu.sentence_bleu(two, [one], lowercase=True).score)


def chrf(source: str, rewrite: str) -> float:
    one, two = without_symbols(source).lower(), without_symbols(rewrite).lower()
    return float(sacrebleu.sentence_chrf(two, [one]).score)


REWRITES = [
    SOURCE,
    SOURCE.upper() + "!",
    "Ms. Ortiz, the mayor, opened a new path of 2.5 miles.",
    "opened, opened, opened the the the path path 2.5 2,5",
    "A path was opened.",
    "path",
    "Nothing alike here",
    "新しい道 が 開いた",
]


def test_wording_is_sacrebleus_sentence_bleu_with_the_source_as_reference() -> None:
    pairs = [(a, b) for a in REWRITES for b in REWRITES]
    first, second = zip(*pairs, strict=True)
    found = wording(first, second)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [bleu(*pair) for pair in pairs], rtol=1e-6)
    long, short = REWRITES[2], REWRITES[4]
    assert wording([long], [short])[0] != pytest.approx(wording([short], [long])[0])


def test_wording_by_chrf() -> None:
    pairs = [(a, b) for a in REWRITES for b in REWRITES]
    first, second = zip(*pairs, strict=True)
    found = wording(first, second, "chrf")
    np.testing.assert_allclose(found, [chrf(*pair) for pair in pairs], rtol=1e-6)
    with pytest.raises(InputError, match="metric 'ter' is unknown: use bleu or chrf"):
        wording(["a"], ["a"], "ter")


def test_nothing_left_is_like_nothing_alone() -> None:
    first = ["", "?!", "\U0001f600", "a dog", "", " "]
    second = ["", "\U0001f600", "a dog", "--", "a dog", "\t"]
    expected = [100, 100, 0, 0, 0, 100]
    asked = Asked()
    np.testing.assert_array_equal(meaning(first, second, scorer(asked)), expected)
    assert asked.pairs == []
    np.testing.assert_array_equal(wording(first, second), expected)
    np.testing.assert_array_equal(wording(first, second, "chrf"), expected)


def test_meaning_asks_the_scorer_once_for_each_pair_without_symbols() -> None:
    first = ["The dog's asleep!", "", "a b c d", "The dogs asleep", "a b c d"]
    second = ["a cat?", "", "a b x y", "a cat", "a b c d"]
    asked = Asked()
    found = meaning(first, second, scorer(asked))
    texts = ("The dogs asleep", "a cat"), ("a b c d", "a b x y"), ("a b c d", "a b c d")
    assert asked.pairs == list(texts)
    np.testing.assert_allclose(found, [0, 100, 100 / 3, 0, 100], rtol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("first", "second", "yes"),
    [
        ("one two three four", "one two three four", True),
        ("one two three four", "one two three", False),
        ("one two three", "one two three four", False),
        ("one - two & three !", "one two three four", False),
        ("one two, three .", "one two three four", False),
        ("well-known one's got, three.", "один два три четыре", True),
        ("", "", False),
    ],
)
def test_pairs_of_four_words_count(first: str, second: str, yes: bool) -> None:
    assert long_enough([first], [second]).tolist() == [yes]


def test_no_pairs() -> None:
    assert meaning([], [], scorer(Asked())).shape == (0,)
    assert wording([], []).shape == (0,)
    assert long_enough([], []).shape == (0,)


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (["a", "b"], ["a"], "2 first texts and 1 second ones"),
        (["a", None], ["a", "b"], "pair 1: None is not a text"),
        (["a", "b"], ["a", 3.5], "pair 1: 3.5 is not a text"),
    ],
)
def test_what_is_no_pair_of_texts_is_named(
    first: Sequence[str], second: Sequence[str], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        meaning(first, second, scorer(Asked()))
    with pytest.raises(InputError, match=says):
        wording(first, second)
    with pytest.raises(InputError, match=says):
        long_enough(first, second)

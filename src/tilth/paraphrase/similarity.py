"""How alike two texts are in meaning and in wording, 0 to 100, without their symbols."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilth.errors import InputError
from tilth.limits import METRIC

if TYPE_CHECKING:
    from tilth.models.scorer import Scorer
    from tilth.runs import Progress

FEWEST_WORDS = 4  # Ogasa et al., footnote 12
_ORDERS = 4  # BLEU's
_SYMBOLS = re.compile(r"[^\w\s,.]|_")
# Marks that belong to the letter or digit before them; emoji have variation selectors, too.
_MARKS = ("Mn", "Mc")
_SELECTORS = {chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))}

Measure = Callable[[str, str], float]


def without_symbols(text: str) -> str:
    """Return a text with its letters, digits, white space, commas and full stops alone.

    Letters are those of any script, with their combining marks.

    Reference:
        Ogasa, Kajiwara and Arase, section 3.1.

    Example:
        >>> without_symbols("Don't stop (yet), it's 5 o'clock!")
        'Dont stop yet, its 5 oclock'
    """
    if text.isascii():
        return _SYMBOLS.sub("", text)
    return "".join(_kept(text))


def _kept(text: str) -> Iterator[str]:
    marked = False  # the character before is a letter or digit, with or without marks
    for char in text:
        if char.isalnum():
            marked = True
            yield char
        elif marked and unicodedata.category(char) in _MARKS and char not in _SELECTORS:
            yield char
        else:
            marked = False
            if char.isspace() or char in ",.":
                yield char


def meaning(
    first: Sequence[str],
    second: Sequence[str],
    scorer: Scorer,
    *,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Return how alike the texts of each pair are in meaning, 0 to 100, (pairs,).

    The scorer reads the texts without their symbols, each different pair once. Where nothing is
    left it is not asked: two such texts have 100, one beside another text has 0.

    Args:
        first: the one text of each pair, such as a source.
        second: the other text of each pair, such as its rewrite.
        scorer: from `load_scorer`.
        progress: is told how many pairs were scored.

    Raises:
        InputError: there are not as many second texts, or one is not a string.
        TilthError: the scorer gives a score that is no number.

    Reference:
        Ogasa, Kajiwara and Arase, section 3.1.
    """
    one, two = _sides(first, second)
    asked: dict[tuple[str, str], list[int]] = {}
    found = np.empty(len(one), np.float32)
    for row, pair in enumerate(zip(one, two, strict=True)):
        if all(pair):
            asked.setdefault(pair, []).append(row)
        else:
            found[row] = _empty(*pair)
    scores = scorer.scores(
        [pair[0] for pair in asked], [pair[1] for pair in asked], progress=progress
    )
    for rows, score in zip(asked.values(), scores, strict=True):
        found[rows] = score
    return found


def wording(
    first: Sequence[str], second: Sequence[str], metric: str = "bleu"
) -> NDArray[np.float32]:
    """Return how alike the texts of each pair are in wording, 0 to 100, (pairs,).

    sacrebleu's score of the texts without their symbols, in lower case: the first text is the
    reference, the second the hypothesis. Where nothing is left of one text the score is 0, of
    both 100.

    Args:
        first: the sources.
        second: their rewrites.
        metric: `bleu`, of one sentence, smoothed exponentially, with the effective order; or
            `chrf`, of characters, which also suits scripts that put no spaces between words.

    Raises:
        InputError: there are not as many second texts, one is not a string, or the metric is
            unknown.

    Reference:
        Ogasa, Kajiwara and Arase, section 3.1.
    """
    METRIC.check("metric", metric)
    one, two = _sides(first, second)
    measure = _bleu() if metric == "bleu" else _chrf()
    known: dict[tuple[str, str], float] = {}
    found = np.empty(len(one), np.float32)
    for row, pair in enumerate(zip(one, two, strict=True)):
        lowered = pair[0].lower(), pair[1].lower()
        if not all(pair):
            found[row] = _empty(*pair)
        elif lowered[0] == lowered[1]:
            found[row] = 100
        else:
            score = known.get(lowered)
            if score is None:
                score = known[lowered] = measure(*lowered)
            found[row] = score
    return found


def counted(first: Sequence[str], second: Sequence[str]) -> NDArray[np.bool_]:
    """Tell of each pair whether both texts have four words or more, (pairs,).

    Words stand between white space, once symbols are gone; a lone comma or full stop is none.

    Reference:
        Ogasa, Kajiwara and Arase, footnote 12: shorter pairs are not counted.
    """
    one, two = _sides(first, second)
    enough = [_words(a) >= FEWEST_WORDS <= _words(b) for a, b in zip(one, two, strict=True)]
    return np.array(enough, bool)


def _words(text: str) -> int:
    return sum(bool(word.strip(",.")) for word in text.split())


def _sides(first: Sequence[str], second: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the texts without symbols and outer white space."""
    if len(first) != len(second):
        raise InputError(
            f"{len(first)} first texts and {len(second)} second ones: give both of each pair"
        )
    cleaned: dict[str, str] = {}  # a source often stands beside several rewrites
    sides: tuple[list[str], list[str]] = ([], [])
    for texts, side in zip((first, second), sides, strict=True):
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"pair {row}: {text!r:.80} is not a text: leave the pair out")
            if text not in cleaned:
                cleaned[text] = without_symbols(text).strip()
            side.append(cleaned[text])
    return sides


def _empty(first: str, second: str) -> float:
    return 0.0 if first or second else 100.0


def _bleu() -> Measure:
    """Return sacrebleu's sentence BLEU of lower-cased texts that are not empty.

    Its tokens and its formula; the n-grams of a source that comes again are counted once.
    """
    from sacrebleu.metrics.bleu import BLEU

    tokenizer = BLEU(effective_order=True).tokenizer
    source, wanted, length = "", Counter[tuple[str, ...]](), 0

    def measure(first: str, second: str) -> float:
        nonlocal source, wanted, length
        if first != source:
            tokens = tokenizer(first).split()
            source, wanted, length = first, Counter(_ngrams(tokens)), len(tokens)
        tokens = tokenizer(second).split()
        counts = Counter(_ngrams(tokens))
        correct = [0] * _ORDERS
        for ngram in counts.keys() & wanted.keys():
            correct[len(ngram) - 1] += min(counts[ngram], wanted[ngram])
        score = BLEU.compute_bleu(
            correct,
            [max(0, len(tokens) - order) for order in range(_ORDERS)],
            len(tokens),
            length,
            smooth_method="exp",
            effective_order=True,
        )
        return float(score.score)

    return measure


def _ngrams(tokens: list[str]) -> Iterator[tuple[str, ...]]:
    """Return the n-grams of one to four tokens."""
    for order in range(_ORDERS):
        yield from zip(*(tokens[start:] for start in range(order + 1)), strict=False)


def _chrf() -> Measure:
    """Return sacrebleu's chrF."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()

    def measure(first: str, second: str) -> float:
        return float(metric.sentence_score(second, [first]).score)

    return measure

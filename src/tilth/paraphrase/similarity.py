"""Similarity of two texts in meaning and in wording, 0 to 100, measured without their symbols."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilth.errors import InputError
from tilth.limits import METRIC

if TYPE_CHECKING:
    from tilth.models.scorer import Scorer

FEWEST_WORDS = 4  # Ogasa et al., footnote 12: shorter pairs are not counted
_SYMBOLS = re.compile(r"[^\w\s,.]|_")
# Combining marks belong to the letter or digit before them; emoji have variation selectors, too.
_MARKS = ("Mn", "Mc")
_SELECTORS = {chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))}


def without_symbols(text: str) -> str:
    """Return the letters, digits, white space, commas and full stops of a text.

    Letters of any script keep their combining marks (Ogasa et al., section 3.1).

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


def meaning(first: Sequence[str], second: Sequence[str], scorer: Scorer) -> NDArray[np.float32]:
    """Return the similarity in meaning of each pair, 0 to 100, (pairs,).

    The scorer reads the texts without symbols, each distinct pair once. Two texts of symbols alone
    score 100, one beside another text 0.

    Reference:
        Ogasa, Kajiwara and Arase, section 3.1.
    """
    rows_of: dict[tuple[str, str], list[int]] = {}
    found = np.empty(len(first), np.float32)
    for row, pair in enumerate(_pairs(first, second)):
        if all(pair):
            rows_of.setdefault(pair, []).append(row)
        else:
            found[row] = _score_of_empty(*pair)
    scores = scorer.scores([one for one, _ in rows_of], [two for _, two in rows_of])
    for rows, score in zip(rows_of.values(), scores, strict=True):
        found[rows] = score
    return found


def wording(
    first: Sequence[str], second: Sequence[str], metric: str = "bleu"
) -> NDArray[np.float32]:
    """Return the similarity in wording of each pair, 0 to 100, (pairs,).

    sacrebleu's score of the lower-cased texts without symbols. Two texts of symbols alone score
    100, one beside another text 0.

    Args:
        first: the sources, used as references.
        second: their rewrites, used as hypotheses.
        metric: `bleu` (of a sentence, exponential smoothing, effective order) or `chrf` (of
            characters; also for scripts without spaces between words).

    Reference:
        Ogasa, Kajiwara and Arase, section 3.1.
    """
    METRIC.check("metric", metric)
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    scorer: BLEU | CHRF = BLEU(effective_order=True) if metric == "bleu" else CHRF()

    @cache
    def measure(source: str, rewrite: str) -> float:
        return float(scorer.sentence_score(rewrite, [source]).score)

    found = np.empty(len(first), np.float32)
    for row, pair in enumerate(_pairs(first, second)):
        one, two = pair[0].lower(), pair[1].lower()
        if not all(pair):
            found[row] = _score_of_empty(*pair)
        else:
            found[row] = 100 if one == two else measure(one, two)
    return found


def long_enough(first: Sequence[str], second: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether both texts of each pair have four words or more, (pairs,).

    Words are separated by white space after symbols are removed; a lone comma is none.
    """
    enough = [min(map(_words, pair)) >= FEWEST_WORDS for pair in _pairs(first, second)]
    return np.array(enough, bool)


def _words(text: str) -> int:
    return sum(bool(word.strip(",.")) for word in text.split())


def _pairs(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs without symbols and outer white space."""
    if len(first) != len(second):
        raise InputError(
            f"{len(first)} first texts and {len(second)} second ones: give both of each pair"
        )
    cleaned: dict[str, str] = {}  # a source often stands beside several rewrites
    for texts in (first, second):
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"pair {row}: {text!r:.80} is not a text: leave the pair out")
            if text not in cleaned:
                cleaned[text] = without_symbols(text).strip()
    return [(cleaned[one], cleaned[two]) for one, two in zip(first, second, strict=True)]


def _score_of_empty(first: str, second: str) -> float:
    return 0.0 if first or second else 100.0

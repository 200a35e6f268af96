"""Tokenise raw sentences into words by rules learned from the tokens of a tagged set.

A sign is a punctuation mark or a symbol.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from typing import Any

# Signs that a set lacks are treated as their ASCII equivalents in it.
_EQUIVALENTS = {
    "\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"',
    "\u00ab": '"', "\u00bb": '"', "\u2010": "-", "\u2011": "-", "\u2212": "-", "\u2026": ".",
    "€": "$", "£": "$", "¥": "$",
}  # fmt: skip
_APOSTROPHES = "'\u2019"
# A sign between two tokens may have had spaces around it in the text, one inside a token had none:
# it stays inside if the second occurs more often than this share of the first.
_INSIDE = 0.2
# Signs that stay inside words and numbers where the set has none.
_USUAL_LETTERS, _USUAL_DIGITS = "'-", ".,"
_INITIALS = re.compile(r"(?:[^\W\d_]\.){2,}")
_MOST_KEPT = 5_000  # longer alternatives make the expression slow


@dataclass(frozen=True)
class WordTokenizer:
    """Split sentences into words by rules; made by `learn_tokenizer`.

    Attributes:
        letters: signs that stay inside a word between its characters.
        digits: signs that stay between two digits.
        begins: signs that stay at the beginning of a word.
        ends: signs that stay at the end of a word.
        runs: signs of which several in a row are one word.
        endings: clitics that are split off the end of words, such as `'s` and `n't`.
        kept: exceptions that stay whole, such as `Mr.` and `:)`.
        initials: whether `U.S.` is one word.
    """

    letters: str = _USUAL_LETTERS
    digits: str = _USUAL_DIGITS
    begins: str = ""
    ends: str = ""
    runs: str = "."
    endings: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    initials: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.expression())

    @classmethod
    def of(cls, rules: Mapping[str, Any]) -> WordTokenizer:
        """Return the tokenizer of rules, as `asdict` or JSON give them; of none, `ENGLISH`."""
        usual = asdict(ENGLISH)
        made: dict[str, Any] = {
            name: tuple(one) if isinstance(one, list) else one for name, one in rules.items()
        }
        is_whole = made.keys() == usual.keys() and all(
            type(made[name]) is type(one)
            and (not isinstance(one, tuple) or all(w and isinstance(w, str) for w in made[name]))
            for name, one in usual.items()
        )
        return cls(**made) if is_whole else ENGLISH

    def tokenize(self, sentence: str) -> list[str]:
        """Return the words of a sentence; nothing but white space is lost.

        Example:
            >>> WordTokenizer(endings=("'s",)).tokenize("It's 3.5 m (well-known).")
            ['It', "'s", '3.5', 'm', '(', 'well-known', ')', '.']
        """
        words: list[str] = []
        for piece in sentence.split():
            if piece.isalnum():  # most are, and the expression is slow
                words.append(piece)
            else:
                words += self._pattern.findall(piece)
        return words

    def expression(self) -> str:
        """Return the regular expression of a word."""
        word = _word()
        alternatives = []
        if self.kept:
            longest = sorted(self.kept, key=lambda one: (-len(one), one))
            named = [one for one in longest if not all(map(_is_sign, one))]
            if named:
                alternatives.append(f"(?<!{word})(?:{_either(named)})(?!{word})")
            alternatives += [re.escape(one) for one in longest if one not in named]
        if self.initials:
            alternatives.append(f"(?<!{word}){_INITIALS.pattern}(?!{word})")
        parts = [f"{word}+"]
        if self.endings:
            ending = f"(?:{_either(sorted(self.endings, key=len, reverse=True))})(?!{word})"
            alternatives.append(f"(?:^|(?<={word})){ending}")
            # Only where an ending may begin is it looked for.
            first = "".join(sorted({one[0] for one in self.endings if not _is_sign(one[0])}))
            parts = [f"{_word(first)}+"] + ([f"(?!{ending}){_any(first)}"] if first else [])
        stop = f"(?!{ending})" if self.endings else ""
        if self.letters:
            parts.append(f"(?<={word}){stop}{_any(self.letters)}(?={word})")
        if self.digits:
            parts.append(rf"(?<=\d){_any(self.digits)}(?=\d)")
        begin = f"{_any(self.begins)}*" if self.begins else ""
        end = f"(?:{stop}{_any(self.ends)})*" if self.ends else ""
        alternatives.append(f"{begin}{word}(?:{'|'.join(parts)})*{end}")
        alternatives += [f"{re.escape(sign)}{{2,}}" for sign in self.runs]
        return "|".join([*alternatives, r"\S"])


_ENDINGS = ("n't", "'s", "'re", "'ve", "'ll", "'d", "'m")
# As English tagged sets are cut: `'s` and `n't` are words of their own.
ENGLISH = WordTokenizer(
    endings=(*_ENDINGS, *(ending.replace("'", "\u2019") for ending in _ENDINGS))
)


def learn_tokenizer(sentences: Iterable[Sequence[str]]) -> WordTokenizer:
    """Learn from tokens how to tokenise raw text alike.

    For each sign it is counted whether tokens hold it inside, at an end or as a token of its own.
    Words that are cut otherwise than most (`Mr.` beside a separate full stop) are kept by name.

    Args:
        sentences: the tokens of each.

    Example:
        >>> tokens = ["The", "U.S.", "is", "n't", "well-known", ",", "Mr.", "X", "."]
        >>> rule = learn_tokenizer([tokens])
        >>> rule.tokenize("Isn't Mr. X, who is ill-fed, in the U.S. now?")
        ['Is', "n't", 'Mr.', 'X', ',', 'who', 'is', 'ill-fed', ',', 'in', 'the', 'U.S.', 'now', '?']
    """
    seen = _count(sentences)
    signs = sorted({sign for _, sign in seen.held} | set(_EQUIVALENTS) | set("'-.,"))
    letters = "".join(sign for sign in signs if seen.keeps("letters", sign, _USUAL_LETTERS))
    digits = "".join(sign for sign in signs if seen.keeps("digits", sign, _USUAL_DIGITS))
    begins = "".join(sign for sign in signs if seen.keeps("begins", sign))
    ends = "".join(sign for sign in signs if seen.keeps("ends", sign))
    runs = "".join(sign for sign in signs if seen.keeps("runs", sign, "."))
    endings = tuple(sorted(one for one in seen.tokens if _is_ending(one)))
    endings += tuple(one.replace(*_APOSTROPHES) for one in endings)
    initials = any(map(_INITIALS.fullmatch, seen.tokens))
    rule = WordTokenizer(
        letters, digits, begins, ends, runs, tuple(dict.fromkeys(endings)), (), initials
    )
    odd = [
        token for token, times in seen.tokens.most_common()
        if any(map(_is_sign, token)) and not _is_ending(token) and rule.tokenize(token) != [token]
        # One slip of the set's own cutting would else cut all signs so.
        and (times > 1 or not all(map(_is_sign, token)))
    ][:_MOST_KEPT]  # fmt: skip
    return replace(rule, kept=tuple(sorted(odd)))


class _Seen:
    """Counts by (place, sign): how often in a token, and how often a token of its own."""

    def __init__(self) -> None:
        self.held: Counter[tuple[str, str]] = Counter()
        self.apart: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[str] = Counter()

    def keeps(self, place: str, sign: str, usual: str = "") -> bool:
        """Tell whether a sign stays with its word at a place."""
        for one in (sign, _EQUIVALENTS.get(sign, sign)):
            held, apart = self.held[place, one], self.apart[place, one]
            if held or apart:
                return held > (_INSIDE if place in ("letters", "digits") else 1) * apart
        return _EQUIVALENTS.get(sign, sign) in usual


def _count(sentences: Iterable[Sequence[str]]) -> _Seen:
    seen = _Seen()
    for tokens in sentences:
        for place, token in enumerate(tokens):
            seen.tokens[token] += 1
            before = tokens[place - 1] if place else ""
            after = tokens[place + 1] if place + 1 < len(tokens) else ""
            if not any(map(_is_sign, token)):
                continue
            if all(map(_is_sign, token)):
                _count_apart(seen, token, before, after)
            elif not _is_ending(token) and not _INITIALS.fullmatch(token):
                _count_held(seen, token)
    return seen


def _count_held(seen: _Seen, token: str) -> None:
    """Count the signs of a token that also has word characters."""
    for place, sign in enumerate(token):
        if not _is_sign(sign):
            continue
        left, right = token[:place], token[place + 1 :]
        if not left or all(map(_is_sign, left)):
            seen.held["begins", sign] += 1
        elif not right or all(map(_is_sign, right)):
            seen.held["ends", sign] += 1
        else:
            digits = left[-1].isdigit() and right[0].isdigit()
            seen.held["digits" if digits else "letters", sign] += 1


def _count_apart(seen: _Seen, token: str, before: str, after: str) -> None:
    """Count a token that has signs only."""
    sign = token[0]
    if len(token) > 1:
        if token == sign * len(token):
            seen.held["runs", sign] += 1
        return
    if before == sign:
        seen.apart["runs", sign] += 1
    left, right = before[-1:], after[:1]
    is_left, is_right = (bool(one) and not _is_sign(one) for one in (left, right))
    if is_left and is_right:
        digits = left.isdigit() and right.isdigit()
        seen.apart["digits" if digits else "letters", sign] += 1
    if is_left:
        seen.apart["ends", sign] += 1
    if is_right:
        seen.apart["begins", sign] += 1


def _is_ending(token: str) -> bool:
    """Tell whether a token is a clitic, such as `'s` or `n't`."""
    one = _any(_APOSTROPHES)
    return re.fullmatch(rf"{one}[^\W\d_]{{1,3}}|[nN]{one}[tT]", token) is not None


@cache
def _is_sign(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS" and character != "_"


@cache
def _word(but: str = "") -> str:
    """Return an expression for a character that is no sign, no space and none of `but`."""
    ranges = []
    for is_sign, group in groupby(map(chr, range(0x20000)), _is_sign):  # signs lie in two planes
        if is_sign:
            signs = list(group)
            ranges.append(f"{re.escape(signs[0])}-{re.escape(signs[-1])}")
    return rf"[^\s{''.join(ranges)}{re.escape(but)}]"


def _any(signs: str) -> str:
    return f"[{re.escape(signs)}]"


def _either(words: Sequence[str]) -> str:
    return "|".join(map(re.escape, words))

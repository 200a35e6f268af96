"""Clean raw text and filter sentences; every dropped sentence has one named reason.

A bank wants "short spans of text that can be seen as short documents" (SentAugment, Du et al. 2020,
arXiv 2010.02194): whole sentences of natural language. The limits suit web text; each rule
tests a whole batch at once. The language is checked by the stop words of sixteen languages, in less
than a microsecond a sentence; only positive evidence of another one counts: short sentences without
any stop word stay.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.bank.settings import LANGUAGES, Rules
from tilth.data.near_duplicates import hash_words
from tilth.data.normalize import SPACELESS, bytes_of, normalize_texts
from tilth.object_code import Compiled

_odd_lines = Compiled("tilth.data.text_kernels", "odd_lines")
_count_kinds = Compiled("tilth.data.text_kernels", "count_kinds")

_ENTITY = re.compile("&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_SPACES = "\\t\\x0b\\x0c\\r\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
# Controls, soft hyphens, zero-width spaces, direction marks; joiners are part of words and stay.
_INVISIBLE = (
    "\\x00-\\x08\\x0e-\\x1f\\x7f-\\x84\\x86-\\x9f\\xad"
    "\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff"
)
_ODD = re.compile(f"([{_SPACES}])|[{_INVISIBLE}]")
_MANY_SPACES = re.compile("  +")
# All characters that NFC may change, with others: ASCII, Latin-1 and punctuation stay as they are.
_NFC_MAY_CHANGE = re.compile(
    "[\\u0300-\\u1fff\\u2000\\u2001\\u20d0-\\u20ff\\u2126\\u212a\\u212b\\u2329\\u232a\\u2adc"
    "\\u2c00-\\U0010ffff]"
)
# Looked for only where one of these characters stands.
_MARKUP_SIGNS = b"<>[]{}|=\\_"
_MARKUP = "|".join(
    (
        r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>|<!--",  # HTML
        r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|__[A-Z]+__|==+[^=]+==+|^\s*[|!]|\|\|",  # wiki
        r"\[/?(?:b|i|u|url|img|quote|code|size|color)\b[^\]]*\]|\]\(https?:",  # forums
        r"\"\s*:\s*[\"\[{]|[{\[]\s*\"[^\"]*\"\s*[:,]|[{}]\s*$|[)}]\s*;\s*$",  # JSON, code
        r"[!<>+*-]=|[a-z]\(\)|\\[a-z]+\{|\b[a-z]+_[a-z_]+\b.*[=(;]|[A-Za-z_]\w*\s*=\s*\S+;\s*$",
    )
)
LANGUAGE = "another language"  # the reason why such a sentence is dropped
_STOP_WORDS_FILE = Path(__file__).with_name("stop_words.txt")
# Bits of a hash that tell all the stop words apart; another list may need others.
_SHIFT, _MASK = np.uint64(14), np.uint64((1 << 17) - 1)
# A counter is a byte.
_WORDS_SEEN = 250


def clean_text(text: str) -> str:
    r"""Return a text in NFC with plain single spaces, without entities and invisible characters.

    Tabs, no-break and other spaces become one space; control characters, soft hyphens, zero-width
    spaces and direction marks are removed. Line ends stay.

    Example:
        >>> clean_text("Fish\u00a0&amp;  chips\u200b,\te\u0301t\xe9\n")
        'Fish & chips, été\n'
    """
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]).replace("\n", " "), text)
    text = _ODD.sub(lambda match: " " if match[1] else "", text)
    if not text.isascii() and _NFC_MAY_CHANGE.search(text):
        lines = text.split("\n")
        text = "\n".join(
            unicodedata.normalize("NFC", line) if _NFC_MAY_CHANGE.search(line) else line
            for line in lines
        )
    return _MANY_SPACES.sub(" ", text)


def clean_lines(text: str) -> list[str]:
    """Return the lines of `clean_text`, of which it goes through those that it may change."""
    lines = text.split("\n")
    try:
        data = np.frombuffer(text.encode(), np.uint8)
    except UnicodeEncodeError:  # half of a surrogate pair
        return clean_text(text).split("\n")
    odd = np.zeros(len(lines), np.uint8)
    _odd_lines(data, odd)
    places = np.flatnonzero(odd).tolist()
    if places:
        cleaned = clean_text("\n".join([lines[place] for place in places])).split("\n")
        for place, line in zip(places, cleaned, strict=True):
            lines[place] = line
    return lines


def filter_sentences(
    texts: pa.Array, rules: Rules
) -> tuple[NDArray[np.int64], pa.Array, dict[str, int]]:
    """Select the sentences to keep; the first rule that a sentence breaks is its drop reason.

    Texts must come from `clean_text`.

    Returns:
        Indices of the kept sentences; these normalized; reason -> number dropped.
    """
    drops: dict[str, int] = {}
    kept = np.arange(len(texts))

    def drop(reason: str, broken: NDArray[np.bool_]) -> NDArray[np.bool_]:
        nonlocal kept, texts
        if count := int(broken.sum()):
            drops[reason] = count
            kept, texts = kept[~broken], texts.filter(pa.array(~broken))
        return ~broken

    chars = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    short = chars < rules.min_chars
    chars = chars[drop("too short", short | _few_words(texts, rules.min_words))]
    drop("too long", chars > rules.max_chars)
    kinds = _kinds(texts)
    if rules.markup:
        kinds = kinds[drop("markup", _has_markup(texts, kinds))]
    kinds = kinds[drop("few letters", kinds[:, _LETTER] < rules.min_letters * kinds[:, _VISIBLE])]
    kinds = kinds[drop("many symbols", kinds[:, _SYMBOL] > rules.max_symbols * kinds[:, _VISIBLE])]
    normalized = normalize_texts(texts)
    if rules.language is not None:
        foreign = kinds[:, _FOREIGN] / np.maximum(kinds[:, _LETTER], 1)
        stay = drop(LANGUAGE, other_language(normalized, foreign, rules.language))
        normalized = normalized.filter(pa.array(stay))
    return kept, normalized, drops


def _few_words(texts: pa.Array, least: int) -> NDArray[np.bool_]:
    """Tell which texts have too few words; two letters of scripts without spaces are a word."""
    words = pc.count_substring(texts, " ").to_numpy(zero_copy_only=False) + 1
    suspects = np.flatnonzero(words < least)
    letters = pc.count_substring_regex(texts.take(pa.array(suspects)), SPACELESS)
    words[suspects] += letters.to_numpy(zero_copy_only=False) // 2
    few: NDArray[np.bool_] = words < least
    return few


_VISIBLE, _LETTER, _SYMBOL, _FOREIGN, _SIGN = range(5)
_LANE_BITS = 12


def _kinds(texts: pa.Array) -> NDArray[np.int64]:
    """Count visible characters, letters, symbols, foreign letters, markup signs, (texts, kinds).

    From the first bytes of characters alone: letters of the scripts from U+0370 on are foreign;
    U+2000 to U+2FFF and past U+FFFF are symbols, but for dashes, quotation marks and such.
    """
    counts = np.empty(len(texts), np.uint64)
    _count_kinds(*bytes_of(texts), _LANES, np.array([_lanes(_VISIBLE)], np.uint64), counts)
    return np.stack(
        [(counts >> np.uint64(_LANE_BITS * kind)) & np.uint64(0xFFF) for kind in range(5)], axis=1
    ).astype(np.int64)


def _lanes(*kinds: int) -> int:
    """Return a number that increments the counters of some kinds: five, of twelve bits each."""
    return sum(1 << (_LANE_BITS * kind) for kind in kinds)


def _byte_lanes() -> NDArray[np.uint64]:
    """Return the increments of each byte of a text."""
    found = np.zeros(256, np.uint64)
    for byte in range(ord("!"), 0x7F):
        char = chr(byte)
        kinds = [_VISIBLE]
        if char.isalpha():
            kinds.append(_LETTER)
        elif not char.isdigit() and char not in ".,;:'\"!?()[]-%$/&":
            kinds.append(_SYMBOL)
        if byte in _MARKUP_SIGNS:
            kinds.append(_SIGN)
        found[byte] = _lanes(*kinds)
    found[0xC2] = _lanes(_VISIBLE)  # Latin-1 signs
    found[0xC3:0xCD] = _lanes(_VISIBLE, _LETTER)
    found[0xCD:0xE2] = _lanes(_VISIBLE, _LETTER, _FOREIGN)
    found[0xE1] = _lanes(_VISIBLE, _LETTER)  # also Vietnamese
    found[0xE2] = _lanes(_VISIBLE, _SYMBOL)
    found[0xE3:0xEE] = _lanes(_VISIBLE, _LETTER, _FOREIGN)
    found[0xEE:0xF5] = _lanes(_VISIBLE, _SYMBOL)
    return found


_LANES = _byte_lanes()


def _has_markup(texts: pa.Array, kinds: NDArray[np.int64]) -> NDArray[np.bool_]:
    broken = np.zeros(len(texts), np.bool_)
    suspects = np.flatnonzero(kinds[:, _SIGN])
    found = pc.match_substring_regex(texts.take(pa.array(suspects)), _MARKUP)
    broken[suspects] = found.to_numpy(zero_copy_only=False)
    return broken


def other_language(
    normalized: pa.Array, foreign_letters: NDArray[np.float64], language: str
) -> NDArray[np.bool_]:
    """Return the mask of sentences in another language.

    Most letters are of another script, or another language has more stop words in the sentence.

    Args:
        normalized: from `tilth.data.normalize.normalize_texts`.
        foreign_letters: share of non-Latin letters per sentence. # (sentences,)
    """
    counts = _counts(*hash_words(normalized))
    own = counts[:, LANGUAGES.index(language)].copy()
    counts[:, LANGUAGES.index(language)] = 0
    other = counts.max(1, initial=0)
    found: NDArray[np.bool_] = (foreign_letters > 0.5) | (other > own)
    return found  # (sentences,)


def _counts(words: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Count the stop words of each language among the first words of each sentence."""
    keys, languages = _stop_words()
    slots = (words >> _SHIFT) & _MASK
    hits = np.flatnonzero(keys[slots] == words)
    begin = starts[:-1]
    end = np.minimum(starts[1:], begin + _WORDS_SEEN)
    bounds = np.searchsorted(hits, np.stack([begin, end], 1).ravel())  # (2 * sentences,)
    # reduceat sums from each bound to the next one: every second sum is a sentence's.
    lanes = np.append(languages[slots[hits]], np.zeros((1, 2), np.uint64), axis=0)
    sums = np.add.reduceat(lanes, bounds)[::2]  # (sentences, 2)
    sums[bounds[::2] == bounds[1::2]] = 0
    return sums.astype("<u8", copy=False).view(np.uint8)  # (sentences, languages)


@cache
def _stop_words() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the hashes of the stop words by slot, and the counters that each of them increments.

    A counter is a byte, eight of them are one number.
    """
    counters: dict[str, NDArray[np.uint8]] = {}
    for number, line in enumerate(_STOP_WORDS_FILE.read_text(encoding="utf-8").splitlines()):
        language, words = line.split(": ")
        assert language == LANGUAGES[number]
        for word in words.split():
            counters.setdefault(word, np.zeros(len(LANGUAGES), np.uint8))[number] = 1
    hashes, _ = hash_words(pa.array(counters))
    slots = (hashes >> _SHIFT) & _MASK
    assert len(np.unique(slots)) == len(hashes)
    keys = np.zeros(int(_MASK) + 1, np.uint64)
    languages = np.zeros((int(_MASK) + 1, len(LANGUAGES) // 8), np.uint64)
    keys[slots] = hashes
    languages[slots] = np.stack(list(counters.values())).view("<u8")
    return keys, languages

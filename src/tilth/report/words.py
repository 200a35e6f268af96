"""What counts as a word, and when two texts are equal but for case and punctuation."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

# Scripts written without spaces: every character stands as a word of its own.
_SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_BETWEEN = r"[\s\p{Z}\p{P}]+"


def plain(texts: pa.Array) -> pa.Array:
    """Return the texts in lower case, without punctuation, words separated by one space.

    Apostrophes vanish ("don't" is the word "dont"), other punctuation separates words, symbols
    such as `$` and emoji stay. A text of nothing but punctuation stays as it is, so that two
    different ones do not become equal.
    """
    lower = pc.utf8_lower(pc.fill_null(texts, ""))
    joined = pc.replace_substring(pc.replace_substring(lower, "'", ""), "\u2019", "")
    spaced = pc.replace_substring_regex(joined, _BETWEEN, " ")
    if pc.any(pc.match_substring_regex(spaced, _SPACELESS)).as_py():
        apart = pc.replace_substring_regex(spaced, f"({_SPACELESS})", r" \1 ")
        spaced = pc.replace_substring_regex(apart, r"\s+", " ")
    trimmed = pc.utf8_trim_whitespace(spaced)
    return pc.if_else(pc.equal(trimmed, ""), pc.utf8_trim_whitespace(lower), trimmed)


def word_counts(plain_texts: pa.Array) -> pa.Array:
    """Return how many words each text from `plain` has; 0 for an empty one."""
    spaces = pc.count_substring(plain_texts, " ")
    return pc.if_else(pc.equal(plain_texts, ""), 0, pc.add(spaces, 1))

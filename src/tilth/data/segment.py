"""Split paragraphs into sentences.

`sentencex` (Wikimedia) was the best and the fastest of the segmenters that
`benchmarks/segment.py` measures. It does not split inside quotation marks and brackets, and an
unpaired one can make a whole paragraph one sentence: these boundaries are found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sentencex
from numpy.typing import NDArray

_LINE_END = ord("\n")
_CLOSING, _OPENING = "[\"')\\]\u201d\u2019]*", "[\"'(\\[\u201c\u2018]?"
# A lower-case word, a full stop, a capital: no initial, no number, no "Mrs.".
_MAYBE_MISSED = rf"[ '-][a-z]{{2,}}[.!?]{_CLOSING} +{_OPENING}[A-Z]"
_MISSED = re.compile(
    r"([ '-](?!(?:vs|cf|al|ed|eds|ch|ca|ft|st|pp|op|vol|fig|esp|incl|approx)\.)"
    rf"[a-z]{{2,}}[.!?]{_CLOSING}) +(?={_OPENING}[A-Z])"
)


def split_paragraphs(
    paragraphs: Iterable[str], language: str = "en"
) -> tuple[pa.Array, NDArray[np.int64]]:
    """Split paragraphs, texts without line ends, into sentences.

    Args:
        paragraphs: the texts.
        language: whose abbreviations are known, as a two-letter code.

    Returns:
        The sentences without white space around them, none of them empty. # (sentences,)
        The paragraph of each, from 0. # (sentences,)

    Example:
        >>> sentences, paragraph = split_paragraphs(["Dr. Hill left. It rained.", "", "Why?"])
        >>> sentences.to_pylist(), paragraph.tolist()
        (['Dr. Hill left.', 'It rained.', 'Why?'], [0, 0, 2])
    """
    pieces: list[str] = []
    counts: list[int] = []
    segment = sentencex.segment
    for paragraph in paragraphs:
        found = segment(language, paragraph)
        pieces += found
        counts.append(len(found))
    paragraph_of = np.repeat(np.arange(len(counts)), counts)
    texts = _trimmed(pieces)
    missed = pc.match_substring_regex(texts, _MAYBE_MISSED)
    places = np.flatnonzero(missed.to_numpy(zero_copy_only=False))
    if len(places):
        more = np.ones(len(texts), np.int64)
        whole = texts.filter(missed).to_pylist()
        for place, text in zip(places.tolist(), whole, strict=True):
            parts = _MISSED.sub(r"\1\n", text)
            more[place] = parts.count("\n") + 1
            pieces[place] = parts
        texts = _trimmed(pieces)
        paragraph_of = np.repeat(paragraph_of, more)
    full = pc.greater(pc.binary_length(texts), 0)
    return texts.filter(full), paragraph_of[full.to_numpy(zero_copy_only=False)]


def _trimmed(pieces: list[str]) -> pa.Array:
    """Return the lines of pieces without white space around them.

    One buffer for all is made: Arrow takes four times as long for a list of texts.
    """
    if not pieces:
        return pa.array([], pa.large_string())
    data = ("\n".join(pieces) + "\n").encode()
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_END)
    offsets = np.append(0, ends + 1)
    lines = pa.LargeStringArray.from_buffers(
        len(ends), pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)
    )
    return pc.utf8_trim_whitespace(lines)

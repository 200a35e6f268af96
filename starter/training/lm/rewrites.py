"""Rule-made rewrites of a sentence: the same meaning in other words.

`rewrite` applies several small edits to one sentence (structure first, then words). The callers
check the outcome with a sentence encoder.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from starter.training.lm.edits import (
    contract,
    dates,
    drop_aside,
    drop_opener,
    drop_small,
    numbers,
    passive_to_active,
    polite,
    possessive,
    progressive,
    speech,
    swap_clauses,
    swap_names,
    there_is,
    time_to_end,
    time_to_front,
)  # fmt: skip
from starter.training.lm.inflect import mend_articles
from starter.training.lm.wordings import Fluency, reword

Edit = Callable[[str, random.Random], "str | None"]

CUT = r"(?:,| (?:in|on|at|for|with|by|during|after|and|but|which)) "
STRUCTURE: list[Edit] = [
    contract, numbers, dates, time_to_front, time_to_end, swap_clauses, drop_aside, drop_opener,
    drop_small, speech, passive_to_active, possessive, progressive, there_is, swap_names, polite,
]  # fmt: skip


def compress(text: str, rng: random.Random, words: int = 25) -> str:
    """Shorten a long sentence to about so many words, so that an output of 40 tokens holds it."""
    while len(text.split()) > words:
        shorter = drop_aside(text, rng) or drop_small(text, rng) or drop_opener(text, rng)
        if not shorter:
            cuts = [
                m.start()
                for m in re.finditer(CUT, text)
                if words * 0.6 <= len(text[: m.start()].split()) <= words
            ]
            if not cuts:
                break
            shorter = text[: cuts[-1]].rstrip(",;: ") + text[-1]
        text = shorter
    return text


def rewrite(
    text: str, rng: random.Random, rate: float | None = None, fluency: Fluency | None = None
) -> tuple[str, int]:
    """Rewrite a sentence with several edits; return it and the number of edits made."""
    edits = 0
    rate = rng.choice((0.5, 0.75, 1.0)) if rate is None else rate
    source, text = text, compress(text, rng)
    edits += text != source
    order = rng.sample(STRUCTURE, len(STRUCTURE))
    limit = rng.choice((1, 2, 2, 3))
    for edit in order:
        if edits - (len(source.split()) > 25) >= limit:
            break
        out = edit(text, rng)
        if out and out != text:
            text, edits = out, edits + 1
    text, replaced = reword(text, rng, rate, fluency)
    text = text.replace('"', "'") if '"' in source else text
    return mend_articles(re.sub(r"\s+", " ", text)).strip(), edits + replaced

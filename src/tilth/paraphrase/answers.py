"""What comes of rewriting a text: its sentences' rewrites, measured, and put together again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from tilth.data.segment import split_paragraphs
from tilth.paraphrase.similarity import wording as wordings_of
from tilth.paraphrase.tags import Cell, cell_of, near

_EDGE, _BEYOND = 1e-6, 200.0
EMPTY, TOO_LONG, NOTHING = "empty", "too long", "no rewrite found"
LOW, POLARITY = "low meaning", "polarity"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A text in other words.

    Attributes:
        text: the rewrite; empty where there is a problem.
        source: the text it rewrites.
        meaning: measured similarity of meaning, 0-100; of several sentences their mean.
        wording: measured similarity of wording, 0-100.
        asked_meaning: as asked.
        asked_wording: as asked.
        inside: whether both measured values lie in the cell that was asked for.
        tries: decodings made for it; of several sentences the most.
        problem: why there is no rewrite: `empty`, `too long` (a sentence longer than the model
            reads), `no rewrite found` (only the text itself came out), `low meaning` (none reached
            the least meaning), `polarity` (those that did say the opposite); else None.
        flips: outputs that were left out because they say the opposite.
    """

    text: str
    source: str
    meaning: float
    wording: float
    asked_meaning: float
    asked_wording: float
    inside: bool
    tries: int
    problem: str | None = None
    flips: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A rewrite of one sentence; `distance` is how far it lies outside the asked cell."""

    text: str
    meaning: float
    wording: float
    distance: float


@dataclass(slots=True)
class Answer:
    """The rewrites of one sentence so far, nearest to the asked cell first.

    `low` and `flips` count outputs left out for their meaning and for their polarity.
    """

    found: list[Found] = field(default_factory=list)
    tries: int = 0
    read: bool = True
    low: int = 0
    flips: int = 0

    def add(self, new: list[Found], most: int, *, read: bool) -> bool:
        """Take in what one search found; tell whether it was the first or came nearer."""
        self.tries += 1
        self.read = read
        before = [found.distance for found in self.found]
        known = {found.text for found in self.found}
        both = self.found + [found for found in new if found.text not in known]
        both.sort(key=lambda found: found.distance)  # stable: the earlier and likelier stays ahead
        self.found = both[:most]
        return self.tries == 1 or [found.distance for found in self.found] != before

    def is_open(self, most: int) -> bool:
        """Whether another try may find something nearer."""
        return self.read and (len(self.found) < most or any(f.distance for f in self.found))


def sentences_of(text: str) -> list[str]:
    """Split a text into its sentences; line ends are white space."""
    found: list[str] = split_paragraphs([" ".join(text.split())])[0].to_pylist()
    return found


def distance(cell: Cell, meaning: float, wording: float) -> float:
    """Return how far measured values lie outside a cell; an edge that is not its own is outside.

    Whatever the meaning, a wording beyond the neighbouring steps is farther than any within.
    """
    if cell_of(meaning, wording) == cell:
        return 0.0
    return max(_EDGE, cell.distance(meaning, wording)) + (0 if near(wording, cell) else _BEYOND)


def joined(text: str, sentences: list[str], answers: list[Answer], cell: Cell) -> list[Rewrite]:
    """Put the sentences' rewrites together: the first of each, the second of each, and so on.

    A sentence with fewer rewrites stays with its last; one with none, such as "Oh!", as it is.
    """
    start = Rewrite("", text, math.nan, math.nan, cell.meaning, cell.wording, inside=False, tries=0)
    if not sentences:
        return [replace(start, problem=EMPTY)]
    if not all(answer.read for answer in answers):
        return [replace(start, problem=TOO_LONG)]
    flips = sum(answer.flips for answer in answers)
    start = replace(start, tries=max(answer.tries for answer in answers), flips=flips)
    most = max(len(answer.found) for answer in answers)
    if not most:
        low = any(answer.low for answer in answers)
        return [replace(start, problem=POLARITY if flips else LOW if low else NOTHING)]
    made = []
    for number in range(most):
        chosen = [
            answer.found[min(number, len(answer.found) - 1)]
            if answer.found
            else Found(sentence, 100.0, 100.0, math.inf)
            for sentence, answer in zip(sentences, answers, strict=True)
        ]
        text = " ".join(found.text for found in chosen)
        meaning, wording = chosen[0].meaning, chosen[0].wording
        if len(chosen) > 1:
            meaning = float(np.mean([found.meaning for found in chosen]))
            wording = float(wordings_of([start.source], [text])[0])
        inside = cell_of(meaning, wording) == cell
        made.append(replace(start, text=text, meaning=meaning, wording=wording, inside=inside))
    return made

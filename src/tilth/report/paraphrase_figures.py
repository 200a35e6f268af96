"""What a run of `tilth paraphrase` obtained: its figures, as JSON and as a table, and examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.paraphrase.tags import Cell, asked_cell
from tilth.report.figures import number, percent

DROPPED = "dropped: "  # before a reason, in a table


@dataclass(frozen=True, slots=True)
class RewriteExample:
    """A text and its rewrite, to read.

    Attributes:
        source: the text.
        text: its rewrite.
        meaning: measured, 0-100.
        wording: measured, 0-100.
        distance: how far both lie outside the asked cell.
        label: of the row; empty where there is none.
        key: of the draw.
    """

    source: str
    text: str
    meaning: float
    wording: float
    distance: float
    label: str
    key: int


@dataclass(frozen=True, slots=True)
class RewriteSummary:
    """The figures of a run. A share is between 0 and 1; None where nothing was counted.

    Means and shares are of pairs of a text and its rewrite, several for a row with several texts,
    both with 4 words or more (Ogasa, Kajiwara and Arase, footnote 12).

    Attributes:
        asked_meaning: as asked, 70-100.
        asked_wording: as asked, 0-45.
        asked_tries: decodings of a sentence at most.
        rows: of the set.
        asked_rewrites: rows times rewrites of each.
        kept: rewritten rows.
        dropped: reason -> rows, the most frequent first.
        pairs: of a text and its rewrite.
        short: pairs that are not counted, a text under 4 words.
        meaning: mean measured meaning, 0-100.
        wording: mean measured wording, 0-100.
        inside: share with both in the asked cell.
        near: share with the wording in the asked step or one beside it.
        same: share equal to the source but for case, punctuation and white space.
        tries: decodings of a sentence, the mean of the rewritten rows.
        flips: outputs left out because they say the opposite; None: polarity was not checked.
        plane: counted pairs by meaning and wording, in bins of 5 points. # (20, 20)
    """

    asked_meaning: float
    asked_wording: float
    asked_tries: int
    rows: int
    asked_rewrites: int
    kept: int
    dropped: dict[str, int]
    pairs: int
    short: int
    meaning: float | None
    wording: float | None
    inside: float | None
    near: float | None
    same: float | None
    tries: float | None
    flips: int | None
    plane: NDArray[np.int64] = field(repr=False)

    @property
    def cell(self) -> Cell:
        """The asked cell."""
        return asked_cell(self.asked_meaning, self.asked_wording)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, numbers and strings; the plane is left to the page."""
        names = [name for name in self.__dataclass_fields__ if name != "plane"]
        return {name: getattr(self, name) for name in names}

    def lines(self) -> list[list[str]]:
        """Return a table to print: name, asked, obtained."""
        cell = self.cell
        meant, worded = (
            f"{asked:g} ({low} to {end})"
            for asked, low, end in (
                (self.asked_meaning, cell.meaning, cell.meaning_end),
                (self.asked_wording, cell.wording, cell.wording_end),
            )
        )
        return [
            ["rows rewritten", f"{self.asked_rewrites:,}", f"{self.kept:,}"],
            *([f"{DROPPED}{why}", "", f"{count:,}"] for why, count in self.dropped.items()),
            ["meaning, mean", meant, number(self.meaning, 1)],
            ["wording, mean", worded, number(self.wording, 1)],
            ["inside the asked cell", "", percent(self.inside)],
            ["wording in the asked step or beside it", "", percent(self.near)],
            ["same as the source", "", percent(self.same)],
            ["searches, mean", f"at most {self.asked_tries}", number(self.tries, 1)],
            ["outputs left out, they say the opposite", "", _flips(self.flips)],
            ["not counted, a text under 4 words", "", f"{self.short:,}"],
        ]


def _flips(count: int | None) -> str:
    return "not checked" if count is None else f"{count:,}"

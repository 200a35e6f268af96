"""The page of a recipe whose figures are heat maps of meaning and wording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tilth.files import atomic_write
from tilth.paraphrase.tags import Cell
from tilth.report.charts import heat_map
from tilth.report.html import template


@dataclass(frozen=True, slots=True)
class PlaneMap:
    """One heat map.

    Attributes:
        name: what it shows.
        plane: pairs by meaning and wording, in bins of 5 points. # (20, 20)
        text: what a reader who does not see it is told.
        cell: what was asked for, outlined; None: nothing.
    """

    name: str
    plane: NDArray[np.int64]
    text: str
    cell: Cell | None = None


class Tabled(Protocol):
    """A table with a title and notes."""

    @property
    def title(self) -> str:
        """What it shows."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences at its foot."""

    @property
    def head(self) -> list[str]:
        """What stands above the columns."""

    def lines(self) -> list[list[str]]:
        """Return the rows as texts, the name first."""


def write_map_report(
    file: Path,
    table: Tabled,
    facts: Sequence[tuple[str, str]],
    maps: Sequence[PlaneMap],
) -> None:
    """Write a page with heat maps and a table: one HTML file that loads nothing.

    Args:
        file: where it is written, whole or not at all.
        table: the figures; its title and notes are the page's.
        facts: name and value: the source, the command, the models.
        maps: in order.

    Raises:
        TilthError: the file cannot be written.
    """
    page = template("maps.html.jinja").render(
        table=table,
        facts=facts,
        maps=[heat_map(one.plane, title=one.name, text=one.text, outline=one.cell) for one in maps],
        label_width="auto",
    )
    data = page.lstrip().encode("utf-8", errors="replace")
    atomic_write(file, lambda out: out.write(data))

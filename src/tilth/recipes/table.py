"""A recipe's result: our figures beside the published ones, printed and saved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure.

    Attributes:
        value: such as Spearman's correlation x 100.
        deviation: over seeds (n - 1); None for one seed or a published figure.
        low: lower end of the 95% interval over test pairs, where known.
        high: upper end.
        runs: the figure of each seed, where there are several.
    """

    value: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    runs: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return the figure as it is printed."""
        return f"{self.value:.1f}" + (
            f" ±{self.deviation:.1f}" if self.deviation is not None else ""
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table.

    Attributes:
        name: what was measured.
        cells: column -> figure; a column left out was not measured.
        published: whether these are a paper's figures.
    """

    name: str
    cells: Mapping[str, Cell]
    published: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A recipe's result.

    Attributes:
        title: what it shows.
        columns: in order.
        rows: ours first, then the published ones.
        notes: what was smaller than in the paper, what is missing, what is shared.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=tuple)

    def lines(self) -> list[list[str]]:
        """Return the rows as texts, the name first; what is missing is a dash."""
        return [
            [f"{row.name}{' (published)' if row.published else ''}"]
            + [str(row.cells[name]) if name in row.cells else "-" for name in self.columns]
            for row in self.rows
        ]

    def to_markdown(self) -> str:
        """Return the table with its title and foot in Markdown."""
        head = ["", *self.columns]
        body = [head, ["---", *("---:" for _ in self.columns)], *self.lines()]
        rows = "\n".join("| " + " | ".join(cells) + " |" for cells in body)
        notes = "".join(f"- {note}\n" for note in self.notes)
        return f"# {self.title}\n\n{rows}\n\n{notes}"

    def to_json(self) -> str:
        """Return everything as JSON."""
        value: dict[str, Any] = asdict(self)
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def over_seeds(values: Sequence[float]) -> Cell:
    """Return mean and deviation (n - 1) of one figure over seeds."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return Cell(mean)
    squares = sum((value - mean) ** 2 for value in values)
    return Cell(mean, math.sqrt(squares / (len(values) - 1)), runs=tuple(values))


def published(name: str, columns: Sequence[str], values: Sequence[float]) -> Row:
    """Return a row of a paper's table."""
    cells = {column: Cell(value) for column, value in zip(columns, values, strict=True)}
    return Row(name, cells, published=True)

"""A recipe's result: our figures beside the published ones, printed and saved."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

# More of a sentence would hide what a listing shows; results.json has all.
_LISTED_CHARS = 200


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
        notes: what the figures are, what is missing, what differs from the paper.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def head(self) -> list[str]:
        """What stands above the columns of `lines`; the first holds texts, the others figures."""
        return ["", *self.columns]

    texts: ClassVar[int] = 1

    def lines(self) -> list[list[str]]:
        """Return the rows as texts, the name first; what is missing is a dash."""
        return [
            [f"{row.name}{' (published)' if row.published else ''}"]
            + [str(row.cells[name]) if name in row.cells else "-" for name in self.columns]
            for row in self.rows
        ]

    def to_markdown(self) -> str:
        """Return the table with its title and foot in Markdown."""
        return _markdown(self)

    def to_json(self) -> str:
        """Return everything as JSON."""
        value: dict[str, Any] = asdict(self)
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A sentence found for a query.

    Attributes:
        domain: of the query.
        query: a sentence, or what it averages.
        rank: from 1.
        text: of the sentence found.
        similarity: cosine; None where a paper does not say it.
        source: of the sentence found.
        published: whether it is a paper's example.
    """

    domain: str
    query: str
    rank: int
    text: str
    similarity: float | None = None
    source: str = ""
    published: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A recipe's result that is sentences to read.

    Attributes:
        title: what it shows.
        rows: the neighbours of each query, one after the other; ours first, then published ones.
        notes: as of a `Table`.
    """

    title: str
    rows: Sequence[Neighbour]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def head(self) -> list[str]:
        """What stands above the columns of `lines`."""
        return ["domain", "query", "nearest sentence", "cosine"]

    texts: ClassVar[int] = 3

    def lines(self) -> list[list[str]]:
        """Return the rows as texts, long ones shortened; a query stands at its nearest only."""
        return [
            [
                f"{row.domain}{' (published)' if row.published else ''}" if row.rank == 1 else "",
                row.query if row.rank == 1 else "",
                textwrap.shorten(row.text, _LISTED_CHARS, placeholder=" …"),
                "-" if row.similarity is None else f"{row.similarity:.2f}",
            ]
            for row in self.rows
        ]

    def to_markdown(self) -> str:
        """Return the listing with its title and foot in Markdown."""
        return _markdown(self)

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


def _markdown(table: Table | Listing) -> str:
    marks = ["---" if place < table.texts else "---:" for place in range(len(table.head))]
    lines = [[cell.replace("|", "\\|") for cell in line] for line in table.lines()]
    rows = "\n".join("| " + " | ".join(cells) + " |" for cells in (table.head, marks, *lines))
    notes = "".join(f"- {note}\n" for note in table.notes)
    return f"# {table.title}\n\n{rows}\n\n{notes}"


def over_seeds(values: Sequence[float]) -> Cell:
    """Return mean and deviation (n - 1) of one figure over seeds."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return Cell(mean)
    squares = sum((value - mean) ** 2 for value in values)
    return Cell(mean, math.sqrt(squares / (len(values) - 1)), runs=tuple(values))


def mean_of(cells: Sequence[Cell]) -> Cell:
    """Return the mean of figures; of each seed first, where all have the same number of them."""
    runs = {len(cell.runs) for cell in cells}
    if len(runs) == 1 and runs != {0}:
        return over_seeds(
            [sum(one) / len(one) for one in zip(*(c.runs for c in cells), strict=True)]
        )
    return Cell(sum(cell.value for cell in cells) / len(cells))


def published(name: str, columns: Sequence[str], values: Sequence[float]) -> Row:
    """Return a row of a paper's table."""
    cells = {column: Cell(value) for column, value in zip(columns, values, strict=True)}
    return Row(name, cells, published=True)

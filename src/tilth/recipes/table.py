"""Results of recipes: tables of figures and lists of sentences, as Markdown and JSON."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

# Names of the STS sets in the papers' tables, and of the means over them.
STS_COLUMNS = {
    "sts12": "STS12", "sts13": "STS13", "sts14": "STS14", "sts15": "STS15", "sts16": "STS16",
    "stsb": "STSb", "sick": "SICK",
}  # fmt: skip
YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
AVERAGE, MEASURED = "Avg.", "Avg. of measured"
SICK_DEV, WITH_SICK_DEV = "SICK dev", "Avg. with SICK dev"
# Length of a sentence in a printed list; results.json has the full text.
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class TableCell:
    """One figure.

    Attributes:
        value: such as Spearman's correlation x 100; an int is a count.
        deviation: standard deviation over seeds (n - 1); None: one seed, or a published figure.
        low: lower end of the 95% interval over test pairs, if known.
        runs: the figure of each seed, if there are several.
    """

    value: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    runs: tuple[float, ...] = ()

    def __str__(self) -> str:
        if isinstance(self.value, int):
            return f"{self.value:,}"
        spread = "" if self.deviation is None else f" ±{self.deviation:.1f}"
        return f"{self.value:.1f}{spread}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table.

    Attributes:
        cells: column -> figure; a missing column was not measured.
        published: whether these are a paper's figures.
    """

    name: str
    cells: Mapping[str, TableCell]
    published: bool = False


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A sentence found for a query.

    Attributes:
        query: a sentence, or a description of the averaged query.
        rank: from 1.
        similarity: cosine; None if a paper does not give it.
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
class Table:
    """Figures of a recipe.

    Attributes:
        rows: ours first, then the published ones.
        notes: how the figures were measured, what is missing, what differs from the paper.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    texts: ClassVar[int] = 1  # leading columns that hold texts

    @property
    def head(self) -> list[str]:
        """Column titles of `lines`."""
        return ["", *self.columns]

    def lines(self) -> list[list[str]]:
        """Return the rows as texts, the name first; a dash marks a missing figure."""
        return [
            [f"{row.name}{' (published)' if row.published else ''}"]
            + [str(row.cells[name]) if name in row.cells else "-" for name in self.columns]
            for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class Listing:
    """Sentences that a recipe found.

    Attributes:
        rows: the neighbours of each query in turn; ours first, then published ones.
    """

    title: str
    rows: Sequence[Neighbour]
    notes: Sequence[str] = ()
    head: ClassVar[list[str]] = ["domain", "query", "nearest sentence", "cosine"]
    texts: ClassVar[int] = 3

    def lines(self) -> list[list[str]]:
        """Return the rows as texts, long ones shortened; a query is printed once."""
        return [
            [
                f"{row.domain}{' (published)' if row.published else ''}" if row.rank == 1 else "",
                row.query if row.rank == 1 else "",
                textwrap.shorten(row.text, _SHOWN_CHARS, placeholder=" …"),
                "-" if row.similarity is None else f"{row.similarity:.2f}",
            ]
            for row in self.rows
        ]


def to_markdown(table: Table | Listing) -> str:
    """Return a result with its title and notes in Markdown."""
    marks = ["---" if place < table.texts else "---:" for place in range(len(table.head))]
    lines = [[cell.replace("|", "\\|") for cell in line] for line in table.lines()]
    rows = "\n".join("| " + " | ".join(cells) + " |" for cells in (table.head, marks, *lines))
    notes = "".join(f"- {note}\n" for note in table.notes)
    return f"# {table.title}\n\n{rows}\n\n{notes}"


def to_json(table: Table | Listing) -> str:
    """Return a result as JSON."""
    return json.dumps(asdict(table), indent=2, ensure_ascii=False) + "\n"


def over_seeds(values: Sequence[float]) -> TableCell:
    """Return mean and standard deviation (n - 1) of one figure over seeds."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return TableCell(mean)
    return TableCell(mean, statistics.stdev(values), runs=tuple(values))


def mean_of(cells: Sequence[TableCell]) -> TableCell:
    """Return the mean of figures; per seed first, if all have the same number of seeds."""
    runs = {len(cell.runs) for cell in cells}
    if len(runs) == 1 and runs != {0}:
        return over_seeds(
            [sum(one) / len(one) for one in zip(*(c.runs for c in cells), strict=True)]
        )
    return TableCell(sum(cell.value for cell in cells) / len(cells))


def published(name: str, columns: Sequence[str], values: Sequence[float | None]) -> Row:
    """Return a row of a paper's table; None: the paper has no figure."""
    figures = zip(columns, values, strict=True)
    cells = {column: TableCell(value) for column, value in figures if value is not None}
    return Row(name, cells, published=True)

"""Where the command line prints: results to standard output, all else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def errors_to() -> Console:
    """Return the console for messages (made anew, so that redirections are seen)."""
    return Console(stderr=True)


def note(line: str) -> None:
    """Print a message for the reader, not for a pipe."""
    errors_to().print(line, markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a result for a program."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1
) -> None:
    """Print a result for a reader: the first column, or columns, are texts, the others numbers."""
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place < texts else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # as they are: square brackets are no markup
    Console().print(table)

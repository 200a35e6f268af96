"""Where the command line prints: results to standard output, all else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


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


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a result for a reader: the first column is text, the others numbers."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)

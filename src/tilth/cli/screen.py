"""Print results to standard output and everything else to standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Escaped: control characters (terminal escape sequences included), line separators, surrogates and
# bidirectional controls.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    """Return a text on one line with terminal control characters escaped."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(line: str) -> None:
    """Print a message to standard error."""
    # Created per call, to follow redirections of stderr.
    Console(stderr=True).print(escaped(line), markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a result as JSON."""
    is_utf8 = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    json.dump(value, sys.stdout, indent=2, ensure_ascii=not is_utf8)
    sys.stdout.write("\n")


def print_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1
) -> None:
    """Print a table; the first `texts` columns are texts, the others numbers."""
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place < texts else "right", overflow="fold")
    for row in rows:
        cells = ("\n".join(map(escaped, cell.split("\n"))) for cell in row)
        table.add_row(*map(Text, cells))  # as they are: square brackets are no markup
    Console().print(table)

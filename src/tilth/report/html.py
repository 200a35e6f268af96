"""Render report pages: self-contained HTML with every text escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from tilth.files import write_file

LONGEST_TEXT = 600  # characters of a text that are shown; the rest is counted
SHOWN = 12  # rows of a chart or table; the rest unfolds
_UNREADABLE = {code: 0x2400 + code for code in range(32)} | dict.fromkeys(
    (*range(127, 160), *range(0xD800, 0xE000)), 0xFFFD
)
_UNREADABLE[ord("\n")] = "\u23ce\n"


def write_page(path: Path, template: str, **values: object) -> Path:
    """Render a template of this package into a file atomically and return its path."""
    data = render_page(template, **values).encode("utf-8", errors="replace")  # lone surrogates
    write_file(path, data)
    return path


def render_page(template: str, **values: object) -> str:
    """Render a body template of `templates/`, which extends the base page."""
    return _environment().get_template(f"{template}.html.jinja").render(**values)


@cache
def _environment() -> Environment:
    return environment_of()


def environment_of(*folders: Path) -> Environment:
    """Return an environment for the templates of folders, which may use those of this package."""
    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "shown_text": shown_text, "whole_text": whole_text, "options": _options, "digest": _digest,
    }  # fmt: skip
    environment.globals |= {"shown": SHOWN, "notices": (), "figures": ()}
    return environment


def shown_text(text: object) -> str | Markup:
    """Return a text of bounded length with control characters made visible."""
    if isinstance(text, Markup):
        return text
    full = str(text)
    seen = whole_text(full[:LONGEST_TEXT])
    return seen if len(full) <= LONGEST_TEXT else f"{seen} \u2026 ({len(full):,} characters)"


def whole_text(text: object) -> str:
    """Return a text with control characters made visible."""
    return str(text).translate(_UNREADABLE)


def _options(text: str) -> Markup:
    """Return escaped text whose command-line options do not wrap."""
    return Markup(
        re.sub(r"--[a-z][a-z-]+", r'<code class="option">\g<0></code>', str(escape(text)))
    )


def _digest(script: Markup) -> str:
    """Return a script's hash for the content security policy."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def percent(share: float | None) -> str:
    """Format a share, with one decimal near 0% and 100%, and a dash for None."""
    if share is None:
        return "\u2013"
    return f"{share:.1%}" if 0 < share < 0.0995 or 0.9 < share < 1 else f"{share:.0%}"


def number(value: float | None, places: int) -> str:
    """Format a number with `places` decimals; a dash for None."""
    return "\u2013" if value is None else f"{value:,.{places}f}"


def count_of(count: int, name: str) -> str:
    """Return a count with its noun, as in "3 labels"."""
    return f"{count:,} {name}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Format a time in its two largest units."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"

"""Map URLs of stores, such as `s3://bucket/run`, to the local folders that hold their copies.

The copy of `s3://bucket/run` lies in `urls/s3/bucket/run` of the cache folder, `TILTH_CACHE` or
`$XDG_CACHE_HOME/tilth` or `~/.cache/tilth`. The path says where a file belongs, so no other record
is kept.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)", re.DOTALL)
_COPIES = "urls"


def split_url(place: str | Path) -> tuple[str, str] | None:
    """Return scheme and rest of a URL; None for a path, and for a name such as `openai:http://`."""
    match = _URL.fullmatch(place) if isinstance(place, str) else None
    return (match[1], match[2]) if match else None


def cache_folder() -> Path:
    """Return the folder of the copies and of what is known of them."""
    if chosen := os.environ.get("TILTH_CACHE"):
        return Path(os.path.expanduser(chosen)).absolute()
    for folder in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(folder):
            return Path(folder, "tilth")
    # A user without a home, such as one of a container.
    return Path(tempfile.gettempdir(), f"tilth-{os.getuid()}").absolute()


def keep_copies_in(folder: Path) -> None:
    """Let this process have its cache folder where another one has it."""
    os.environ["TILTH_CACHE"] = str(folder)


def copies_folder() -> Path:
    """Return the folder of the copies."""
    return cache_folder() / _COPIES


def url_of(path: Path) -> str | None:
    """Return the URL whose copy a path is; None for any other path."""
    try:
        scheme, *rest = path.relative_to(copies_folder()).parts
    except ValueError:
        return None
    return f"{scheme}://{'/'.join(rest)}" if rest else None


def with_urls(text: str) -> str:
    """Return a text in which the paths of copies are their URLs."""
    root = str(copies_folder()) + os.sep
    if root not in text:
        return text
    return re.sub(re.escape(root) + r"([a-z][a-z0-9+.-]*)/", r"\1://", text)

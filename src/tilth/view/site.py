"""What all pages share: the runs, their indexed rows, templates, requests and replies."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from tilth.errors import InputError
from tilth.report.html import count_of, environment_of, number, percent
from tilth.report.paraphrase import DROP_REASONS
from tilth.view.runs import RunEntry, RunList, stamps
from tilth.view.settings import TryModels
from tilth.view.store import RowStore
from tilth.view.workbench import Workbench

_MOST_STORES = 3  # runs whose rows are indexed at once
_SECONDS_FOR_ROWS = 3.0  # that the first page of a run waits for its first rows
_HERE = Path(__file__).parent


class NotFoundError(InputError):
    """Raised for an address that leads to nothing."""


def number_of(fields: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of an address or a form, None without."""
    text = fields.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise InputError(f"{name} is {text[:40]!r}: give a whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: fields of the address, fields of a form, or the bytes of an uploaded file."""

    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def number(self, name: str) -> int | None:
        """Return a whole number of the address, None without."""
        return number_of(self.query, name)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer: a page, a file to keep, or another address to go to."""

    content: str | bytes = ""
    kind: str = "text/html; charset=utf-8"
    status: int = 200
    location: str | None = None
    filename: str | None = None
    policy: str | None = None  # content security policy, where it is not the usual one
    is_fixed: bool = False  # the address names the content: a browser may keep it


class Site:
    """The state of one server.

    Args:
        root: a run, a folder of runs, or a file of rows.
        annotations: folder of the annotations; None: beside each run.
        csrf: value that every form sends back.
        models: of the Try pages.
    """

    def __init__(
        self, root: Path, annotations: Path | None, *, csrf: str, models: TryModels
    ) -> None:
        self.root, self.annotations, self.csrf = root, annotations, csrf
        self.runs = RunList(root)
        self.bench = Workbench(models)
        self._stores: OrderedDict[str, tuple[str, RowStore]] = OrderedDict()
        self._lock = threading.Lock()

    def entry(self, asked: Asked) -> RunEntry:
        """Return the run that a request names."""
        name = asked.query.get("run") or asked.form.get("run") or "."
        entry = self.runs.entry(name)
        if entry is None:
            raise NotFoundError(f"there is no run {name[:200]!r} here")
        return entry

    def store(self, entry: RunEntry, *, is_whole: bool = False) -> RowStore:
        """Return the rows of a run; some may still be read, unless all are waited for."""
        with self._lock:
            # Of parts, more may come; a data set may be written again.
            files = [] if entry.is_in_parts else [path for _, path in entry.row_files]
            version = f"{entry.created}\n{stamps(files)}"
            stored, store = self._stores.get(entry.name, ("", None))
            if store is None or stored != version:  # its files go once nobody uses it
                store = RowStore()
                self._stores[entry.name] = version, store
                if len(self._stores) > _MOST_STORES:
                    self._stores.popitem(last=False)
            self._stores.move_to_end(entry.name)
        seconds = _SECONDS_FOR_ROWS if not store.rows else 0.2
        store.refresh(entry.row_files, seconds=None if is_whole else seconds)
        return store

    def close(self) -> None:
        """End what is being tried; remove the temporary databases."""
        self.bench.close()
        for _, store in self._stores.values():
            store.close()
        self._stores.clear()

    def page(self, template: str, **values: Any) -> HttpReply:
        """Render a page."""
        return HttpReply(self.part(template, **values).encode("utf-8", errors="replace"))

    def part(self, template: str, **values: Any) -> Markup:
        """Render a part of a page."""
        text = self._environment.get_template(f"{template}.html.jinja").render(
            csrf=self.csrf, root=self.root.name or str(self.root), **values
        )
        return Markup(text)

    @cached_property
    def files(self) -> dict[str, tuple[bytes, str]]:
        """Path -> content and type: the style sheet, that of the reports in it, script and icon."""
        here = _HERE / "static"
        style = self._environment.get_template("style.css.jinja").render().encode()
        return {
            "/view.css": (style + (here / "view.css").read_bytes(), "text/css; charset=utf-8"),
            "/view.js": ((here / "view.js").read_bytes(), "text/javascript; charset=utf-8"),
            "/icon.svg": ((here / "icon.svg").read_bytes(), "image/svg+xml"),
        }

    def file_url(self, path: str) -> str:
        """Return the address of a file, which names its content: a browser may keep it."""
        return url(path, v=blake2b(self.files[path][0], digest_size=8).hexdigest())

    @cached_property
    def _environment(self) -> Any:
        environment = environment_of(_HERE / "templates")
        environment.filters |= {"percent": percent, "json": json.dumps}
        environment.globals |= {"url": url, "number": number, "count_of": count_of}
        environment.globals |= {"drop_reasons": DROP_REASONS, "file_url": self.file_url}
        return environment


def url(path: str, **fields: Any) -> str:
    """Return an address on this server; fields that are None or empty are left out.

    Example:
        >>> url("/rows", run="a b", label=None)
        '/rows?run=a+b'
    """
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def go(path: str, **fields: Any) -> HttpReply:
    """Return a redirect, after a write."""
    return HttpReply(status=303, location=url(path, **fields))

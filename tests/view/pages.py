"""Runs made by hand, and a client that has entered with the token."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from starlette.testclient import TestClient

from tests.report.page import Page
from tilth.runs import Run
from tilth.view import site
from tilth.view.guard import Keys
from tilth.view.server import make_app
from tilth.view.settings import TryModels
from tilth.view.site import Site

site._SECONDS_FOR_ROWS = 60.0  # pages of tests have their rows, on a busy machine too
PORT = 8420
BASE = f"http://127.0.0.1:{PORT}"


def pairs(count: int, *, label: str = "", word: str = "") -> dict[str, list[Any]]:
    """Return rows of a generate run: three labels, each fifth row dropped."""
    rows = range(count)
    names = [label or ("1", "0.5", "0")[row % 3] for row in rows]
    return {
        "text_a": [f"The input {row // 3} lies near a river. {word}" for row in rows],
        "text_b": [f"Output {row} is dry, number{row}. {word}" for row in rows],
        "label": names,
        "source_id": [f"id-{row // 3}" for row in rows],
        "drop_reason": [("newline", "empty")[row % 2] if row % 5 == 4 else None for row in rows],
        "similarity": [None if row % 7 == 6 else (row % 11) / 10 for row in rows],
        "tokens": [row % 20 for row in rows],
    }


def write_run(
    folder: Path,
    rows: Mapping[str, Any] | None = None,
    *,
    command: str = "generate",
    parts: int = 2,
    done: int | None = None,
    **settings: Any,
) -> Path:
    """Write a run whose parts hold the rows; `done` of its parts are there."""
    task = {
        "task_name": "t",
        "labels": {"1": {"instruction": 'Say the same: "', "counter_labels": []}},
    }
    run = Run.open(
        folder, command=command, settings={"task": task, "seed": 0, **settings}, fingerprints={},
        parts=parts,
    )  # fmt: skip
    table = pa.table(dict(pairs(60) if rows is None else rows))
    size = -(-len(table) // parts)
    with run:
        for part in range(parts if done is None else done):
            run.write_part(part, table.slice(part * size, size))
    return folder


@contextmanager
def served(root: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve a folder by the command, in a process of its own; yield its URL."""
    command = [sys.executable, "-m", "tilth", "view", str(root), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        match = re.fullmatch(r"Open (http://127\.0\.0\.1:\d+/\?token=\S+)\n", said)
        assert match, said
        try:
            yield match[1], process
        finally:
            process.send_signal(signal.SIGINT)


class Visitor:
    """A client with the cookie of a server; each page is checked to be well formed."""

    def __init__(
        self, root: Path, annotations: Path | None = None, models: TryModels | None = None
    ) -> None:
        self.keys = Keys()
        self.site = Site(root, annotations, csrf=self.keys.csrf, models=models or TryModels())
        self.guard = make_app(self.site, self.keys, port=PORT)
        self.client = TestClient(self.guard, base_url=BASE, follow_redirects=False)
        entered = self.client.get(f"/?token={self.keys.token}")
        assert (entered.status_code, entered.headers["location"]) == (303, "/")

    def page(self, address: str, status: int = 200) -> Page:
        """Return a page."""
        answer = self.client.get(address)
        assert answer.status_code == status, answer.text
        return Page(answer.text)

    def rows(self, address: str) -> list[int]:
        """Return the numbers of the rows that a page shows."""
        links = [link["href"] for link in self.page(address).all("a")]
        return [int(link.rpartition("row=")[2]) for link in links if link.startswith("/row?")]

    def post(self, address: str, status: int = 303, **fields: Any) -> Any:
        """Send a form as a browser does."""
        answer = self.client.post(
            address, data={"csrf": self.keys.csrf, **fields}, headers={"Origin": BASE}
        )
        assert answer.status_code == status, answer.text
        return answer

    def close(self) -> None:
        """Remove the temporary databases."""
        self.site.close()

"""tilth view: read, annotate and take away what runs made, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tilth.cli.app import Fields
from tilth.cli.options import BANK, CLASSIFIER, LM, LOCAL, OTHER_FOLDER, SCORER, SEQ2SEQ
from tilth.cli.screen import say
from tilth.view.server import serve
from tilth.view.settings import ViewSettings

_READS = {
    "annotations": OTHER_FOLDER, "lm": LM, "rewriter": SEQ2SEQ, "scorer": SCORER,
    "classifier": CLASSIFIER, "bank": BANK,
}  # fmt: skip


def view(
    path: Annotated[Path, LOCAL, "A run, a data set, a folder of them, or a file of rows."],
    settings: Annotated[ViewSettings, Fields(reads=_READS)],
) -> None:
    """Open a page on this machine to browse runs, annotate rows and try models.

    [dim]tilth view runs/pairs[/dim]
    """

    def started(url: str) -> None:
        say(f"Open {url}")
        say("The URL holds the key to these pages. Ctrl-C ends the server.")

    serve(path, settings, on_start=started)

"""Show the progress of a run: a bar on a terminal, a line every 30 seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

NOTHING_MADE = "no part was finished, the same command begins anew"  # said after Ctrl-C
_SECONDS_BETWEEN_LINES = 30.0


def duration_words(seconds: float) -> str:
    """Return an estimated time in its largest unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Progress:
    """Count done items, kept and dropped rows, and show them.

    Args:
        total: items of the whole job.
        done: items that were done before.
        what: the unit, such as `rows`; more words may follow it.
    """

    def __init__(
        self, total: int, *, done: int = 0, quiet: bool = False, what: str = "inputs"
    ) -> None:
        self.total, self.done, self.kept, self.dropped = total, done, 0, 0
        self._quiet, self._what = quiet, what
        self.workers = ""  # how many there are, on a cluster
        self._before = done
        self._begun = self._said = time.monotonic()
        self._bar: Bar | None = None

    def advance(self, done: int = 0, kept: int = 0, dropped: int = 0) -> None:
        """Count finished items, kept and dropped rows."""
        self.done += done
        self.kept += kept
        self.dropped += dropped
        self._show()

    def skip(self, done: int) -> None:
        """Count items that were done in an earlier session; the rate leaves them out."""
        self.done += done
        self._before += done
        self._show()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo what was counted inside if it fails: its rows are not kept."""
        before = self.done, self.kept, self.dropped
        try:
            yield
        except BaseException:
            self.done, self.kept, self.dropped = before
            self._show()
            raise

    def line(self) -> str:
        """Return the state as one line."""
        seconds, here = time.monotonic() - self._begun, self.done - self._before
        self.total = max(self.total, self.done)  # it may be an estimate
        left = (self.total - self.done) * seconds / max(here, 1)
        ends = f", {duration_words(left)} left" if here else ""
        return f"{self.done}/{self.total} {self._what}, {self._rate()}{ends}"

    def _rate(self) -> str:
        seconds = max(time.monotonic() - self._begun, 1e-9)
        rows = self.kept + self.dropped
        workers = f", {self.workers}" if self.workers else ""
        if not rows:  # work that makes no rows, such as training steps
            rate = (self.done - self._before) / seconds
            slow = 0 < rate < 1
            said = f"{1 / rate:.1f} s each" if slow else f"{rate:.1f} {self._what.split()[0]}/s"
            return said + workers
        return f"{rows / seconds:.1f} rows/s, {self.kept} kept, {self.dropped} dropped{workers}"

    def __enter__(self) -> Progress:
        """Start the display."""
        if self._quiet or not sys.stderr.isatty():
            return self
        from rich import progress as rich  # not above: most commands show no bar
        from rich.console import Console

        self._bar = rich.Progress(
            rich.TextColumn(self._what),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("{task.fields[rate]}", markup=False),
            rich.TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._bar.start()
        self._bar.add_task(self._what, total=self.total, completed=self.done, rate=self._rate())
        return self

    def __exit__(self, *_: object) -> None:
        """Show the last state and stop the display."""
        if self._bar is not None:
            self._show()
            self._bar.stop()
            self._bar = None

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, rate=self._rate())
        elif not self._quiet and time.monotonic() - self._said > _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            sys.stderr.write(self.line() + "\n")

"""Show the progress of a run: a bar on a terminal, a line every 30 seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

_SECONDS_BETWEEN_LINES = 30.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        kept, dropped = task.fields["kept"], task.fields["dropped"]
        seconds = task.elapsed or 1e-9
        if not kept + dropped:  # work that makes no rows, such as training steps
            return Text(f"{task.speed or 0.0:.1f} {task.description.split()[0]}/s")
        return Text(f"{(kept + dropped) / seconds:.1f} rows/s · {kept} kept · {dropped} dropped")


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
        self._before = done
        self._begun = self._said = time.monotonic()
        self._bar: Bar | None = None
        self._task = TaskID(0)

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
        seconds = max(time.monotonic() - self._begun, 1e-9)
        here = self.done - self._before
        left = f", {(self.total - self.done) * seconds / here:.0f} s left" if here else ""
        rows = self.kept + self.dropped
        rate = f"{here / seconds:.1f} {self._what.split()[0]}/s"
        if rows:
            rate = f"{rows / seconds:.1f} rows/s, {self.kept} kept, {self.dropped} dropped"
        return f"{self.done}/{self.total} {self._what}, {rate}{left}"

    def __enter__(self) -> Progress:
        """Start the display."""
        console = Console(stderr=True)
        if not self._quiet and console.is_terminal:
            self._bar = Bar(
                TextColumn(self._what),
                BarColumn(),
                MofNCompleteColumn(),
                _Rate(),
                TimeRemainingColumn(compact=True),
                console=console,
            )
            self._bar.start()
            self._task = self._bar.add_task(
                self._what, total=self.total, completed=self.done, kept=0, dropped=0
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Show the last state and stop the display."""
        if self._bar is not None:
            self._show()
            self._bar.stop()
            self._bar = None

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, kept=self.kept, dropped=self.dropped)
        elif not self._quiet and time.monotonic() - self._said > _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            sys.stderr.write(self.line() + "\n")

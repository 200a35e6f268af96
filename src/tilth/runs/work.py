"""Where work runs: this process now, a cluster later; what calls `complete` does not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from tilth.runs.folder import Run
from tilth.runs.progress import Progress

Work = Callable[[int, Progress], pa.Table]
"""Computes one part as a closed unit: the same index gives the same rows, anywhere."""


class Executor(Protocol):
    """Makes parts somewhere.

    A part is written where it is computed, so rows never pass through the process that asked.
    """

    def run(self, run: Run, work: Work, parts: Sequence[int], progress: Progress) -> None:
        """Compute and write the parts."""


class ThisProcess:
    """Makes parts here, one after another."""

    def run(self, run: Run, work: Work, parts: Sequence[int], progress: Progress) -> None:
        """Compute and write the parts in order."""
        for index in parts:
            with progress.attempt():
                run.write_part(index, work(index, progress))


def complete(run: Run, work: Work, *, progress: Progress, executor: Executor | None = None) -> None:
    """Make the parts of a run that are missing.

    An error or Ctrl-C leaves whole parts only; calling it again goes on from them.

    Raises:
        KeyboardInterrupt: as it came; where no part is there it says so.
    """
    missing = run.missing()
    if missing:
        try:
            (executor or ThisProcess()).run(run, work, missing, progress)
        except KeyboardInterrupt:
            if run.done():
                raise
            raise KeyboardInterrupt("no part was finished, the same command begins anew") from None

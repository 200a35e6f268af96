"""The run folder of a long job, what is done in it, and how work on it goes on."""

from tilth.runs.progress import Progress
from tilth.runs.run import (
    Executor,
    Run,
    RunLocked,
    RunMismatch,
    ThisProcess,
    Work,
    check_place,
    complete,
    refuse_foreign,
    refuse_inside,
)

__all__ = [
    "Executor",
    "Progress",
    "Run",
    "RunLocked",
    "RunMismatch",
    "ThisProcess",
    "Work",
    "check_place",
    "complete",
    "refuse_foreign",
    "refuse_inside",
]

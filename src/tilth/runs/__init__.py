"""The run folder of a long job, what is done in it, and how work on it goes on."""

from tilth.runs.folder import (
    Run,
    RunLocked,
    RunMismatch,
    check_place,
    refuse_foreign,
    refuse_inside,
)
from tilth.runs.progress import Progress
from tilth.runs.work import Executor, ThisProcess, Work, complete

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

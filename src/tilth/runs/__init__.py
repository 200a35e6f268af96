"""Manage the run folder of a long job: settings, parts, resuming, progress."""

from tilth.runs.out_folder import (
    ASIDE,
    check_place,
    refuse_foreign,
    refuse_inside,
    refuse_other_command,
)
from tilth.runs.progress import Progress
from tilth.runs.run import Run, RunLocked, complete, lock_folder, part_sizes
from tilth.runs.run_json import (
    COMPARED,
    RESULTS,
    RunMismatch,
    read_results,
    read_run_json,
    versions,
)

__all__ = [
    "ASIDE",
    "COMPARED",
    "RESULTS",
    "Progress",
    "Run",
    "RunLocked",
    "RunMismatch",
    "check_place",
    "complete",
    "lock_folder",
    "part_sizes",
    "read_results",
    "read_run_json",
    "refuse_foreign",
    "refuse_inside",
    "refuse_other_command",
    "versions",
]

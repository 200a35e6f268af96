"""Manage the run folder of a long job: settings, parts, resuming, progress."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilth.runs.lock import RunLocked, lock_folder
from tilth.runs.out_folder import (
    ASIDE,
    check_place,
    refuse_foreign,
    refuse_inside,
    refuse_other_command,
    refuse_other_settings,
)
from tilth.runs.progress import NOTHING_MADE, Progress
from tilth.runs.run_json import (
    COMPARED,
    RESULTS,
    RunMismatch,
    command_of,
    finished_results,
    read_results,
    read_run_json,
    versions,
    write_results,
)

if TYPE_CHECKING:
    from tilth.runs.run import Run, complete, part_sizes

__all__ = [
    "ASIDE",
    "COMPARED",
    "NOTHING_MADE",
    "RESULTS",
    "Progress",
    "Run",
    "RunLocked",
    "RunMismatch",
    "check_place",
    "command_of",
    "complete",
    "finished_results",
    "lock_folder",
    "part_sizes",
    "read_results",
    "read_run_json",
    "refuse_foreign",
    "refuse_inside",
    "refuse_other_command",
    "refuse_other_settings",
    "versions",
    "write_results",
]


def __getattr__(name: str) -> Any:
    """Import a name of `run` on first use: folders are checked without pyarrow."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tilth.runs.run"), name)

"""HTML reports of runs, and the quality figures of generated data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilth.report.generation import write_report
    from tilth.report.run_reader import command_of
    from tilth.report.tries import quality_of_run

__all__ = ["command_of", "quality_of_run", "write_report"]
_HOMES = {"command_of": "run_reader", "quality_of_run": "tries", "write_report": "generation"}


def __getattr__(name: str) -> Any:
    """Import a name on first use: one kind of report needs no other."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tilth.report.{_HOMES[name]}"), name)

"""The report of a run: its figures, and one page to look at."""

from tilth.report.figures import Health, LabelHealth, health_table
from tilth.report.generation import Report, gather
from tilth.report.html import render, write_report
from tilth.report.quality import health
from tilth.report.run_reader import command_of, health_of_run

__all__ = [
    "Health",
    "LabelHealth",
    "Report",
    "command_of",
    "gather",
    "health",
    "health_of_run",
    "health_table",
    "render",
    "write_report",
]

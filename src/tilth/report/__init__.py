"""The report of a run: its figures, and one page to look at."""

from tilth.report.content import Report
from tilth.report.figures import Health, LabelHealth, health_table
from tilth.report.gather import gather
from tilth.report.health import health
from tilth.report.page import render, write_report
from tilth.report.parts import command_of, health_of_run

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

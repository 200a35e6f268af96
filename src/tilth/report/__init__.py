"""The report of a generated data set: health per label, and one page to look at."""

from tilth.report.content import Report
from tilth.report.figures import Health, LabelHealth, health_table
from tilth.report.gather import gather
from tilth.report.health import health
from tilth.report.page import render, write_report
from tilth.report.parts import health_of_run

__all__ = [
    "Health",
    "LabelHealth",
    "Report",
    "gather",
    "health",
    "health_of_run",
    "health_table",
    "render",
    "write_report",
]

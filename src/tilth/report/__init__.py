"""The report of a generated data set: health per label, and one page to look at."""

from tilth.report.figures import Health, LabelHealth, health_table
from tilth.report.gather import Report, gather
from tilth.report.health import health
from tilth.report.page import render, write_report

__all__ = [
    "Health",
    "LabelHealth",
    "Report",
    "gather",
    "health",
    "health_table",
    "render",
    "write_report",
]

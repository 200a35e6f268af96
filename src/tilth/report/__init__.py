"""The report of a generated data set: health per label, and one page to look at."""

from tilth.report.figures import Health, LabelHealth, health_table
from tilth.report.health import health


__all__ = ["Health", "LabelHealth", "health", "health_table"]

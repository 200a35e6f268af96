"""HTML reports of runs, and the quality figures of generated data."""

from tilth.report.generation import write_report
from tilth.report.quality import LabelQuality, Quality
from tilth.report.run_reader import command_of
from tilth.report.tries import quality_of_run

__all__ = ["LabelQuality", "Quality", "command_of", "quality_of_run", "write_report"]

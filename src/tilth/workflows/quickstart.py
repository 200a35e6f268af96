"""Quickstart: shipped sentences, starter model, generate, curate, report."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from tilth.data.settings import CurateOptions
from tilth.generation.generate import GenerateRequest, run_generate
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task
from tilth.models import load_lm
from tilth.report.generation import write_report
from tilth.workflows.curate import curate_folder


def quickstart_sentences() -> list[str]:
    """Return the shipped input sentences, written for this project."""
    text = files("tilth.workflows").joinpath("quickstart_sentences.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


def run_quickstart(out: Path, *, seed: int, overwrite: bool, quiet: bool) -> None:
    """Generate, curate and report in a run folder."""
    request = GenerateRequest(
        load_task("sts-x2"),
        load_lm("starter"),
        GenerateSettings(seed=seed),
        inputs=quickstart_sentences(),
    )
    run_generate(request, out, overwrite=overwrite, quiet=quiet)
    curate_folder(str(out), out / "curated", CurateOptions(seed=seed), overwrite=True)
    write_report(out)

"""Runs recipes at the scale `starter`, into which tests put tiny models; writes their data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import write_lines, write_rows
from tests.tiny.calls import stopped
from tilth.recipes import catalog
from tilth.recipes.catalog import RECIPES, run_recipe
from tilth.recipes.recipe import RecipeSettings
from tilth.runs import Run


def run(name: str, data: Path, out: Path, **more: Any) -> tuple[Any, Path]:
    """Run a recipe on the CPU; return its table and folder."""
    return run_recipe(
        name, scale="starter", data=data, out=out, say=more.pop("say", lambda _: None),
        settings=RecipeSettings(quiet=True, device="cpu", **more),
    )  # fmt: skip


def stopped_and_resumed(
    name: str, data: Path, folder: Path, parts: int, **more: Any
) -> tuple[Any, Any]:
    """Return a recipe's table, and that of another run that was stopped after so many parts."""
    whole, _ = run(name, data, folder / "whole", **more)
    with stopped(Run, "write_part", parts):
        run(name, data, folder / "cut", **more)
    again, _ = run(name, data, folder / "cut", **more)
    return whole, again


def put_scale(patch: pytest.MonkeyPatch, scale: Any, *names: str) -> None:
    """Let recipes have a scale in place of `starter`."""
    for name in names:
        patch.setitem(catalog.RECIPES, name, replace(RECIPES[name], scales={"starter": scale}))


def measured(table: Any) -> list[Any]:
    """Return the rows that are not published."""
    return [row for row in table.rows if not row.published]


def write_bank_data(folder: Path, makers: dict[str, Any], counts: Any, texts: list[str]) -> Path:
    """Write labelled sets with train, dev and test files, and raw text in bank/."""
    for name, make in makers.items():
        for seed, (part, count) in enumerate(
            zip(("train", "dev", "test"), counts, strict=True), 10
        ):
            write_rows(folder / name / f"{part}.jsonl", make(count, seed=seed))
    (folder / "bank").mkdir()
    write_lines(folder / "bank" / "raw.txt", texts)
    return folder

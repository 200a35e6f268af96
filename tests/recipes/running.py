"""Runs recipes at the scale `starter`, into which tests put tiny models; writes their data."""

import json
from pathlib import Path
from typing import Any

from tilth.recipes.catalog import run_recipe
from tilth.recipes.recipe import RecipeSettings


def run(name: str, data: Path, out: Path, **more: Any) -> tuple[Any, Path]:
    """Run a recipe on the CPU; return its table and folder."""
    return run_recipe(
        name, scale="starter", data=data, out=out, say=more.pop("say", lambda _: None),
        settings=RecipeSettings(quiet=True, device="cpu", **more),
    )  # fmt: skip


def write_bank_data(folder: Path, makers: dict[str, Any], counts: Any, texts: list[str]) -> Path:
    """Write labelled sets with train, dev and test files, and raw text in bank/."""
    for name, make in makers.items():
        (folder / name).mkdir(parents=True)
        parts = zip(("train", "dev", "test"), counts, strict=True)
        for seed, (part, count) in enumerate(parts, 10):
            lines = [
                row if isinstance(row, str) else json.dumps(row) for row in make(count, seed=seed)
            ]
            (folder / name / f"{part}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "bank").mkdir()
    (folder / "bank" / "raw.txt").write_text("".join(f"{text}\n" for text in texts))
    return folder

"""Runs recipes at the scale `starter`, into which tests put tiny models; writes their data."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.tiny import WORDS
from tilth.recipes.catalog import run_recipe
from tilth.recipes.recipe import RecipeSettings


def run(name: str, data: Path, out: Path, **more: Any) -> tuple[Any, Path]:
    """Run a recipe on the CPU; return its table and folder."""
    return run_recipe(
        name, scale="starter", data=data, out=out, say=more.pop("say", lambda _: None),
        settings=RecipeSettings(quiet=True, device="cpu", **more),
    )  # fmt: skip


def write_rows(path: Path, rows: dict[str, list[Any]]) -> Path:
    """Write columns as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_word_vectors(folder: Path) -> None:
    """Write random vectors of the tiny vocabulary as words/glove-tiny.txt."""
    (folder / "words").mkdir()
    rng = np.random.default_rng(0)
    lines = [f"{word} {' '.join(f'{x:.3f}' for x in rng.normal(size=6))}" for word in WORDS]
    (folder / "words" / "glove-tiny.txt").write_text("\n".join(lines) + "\n")


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

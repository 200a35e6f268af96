"""Steps shared by the DINO tables: generate, curate, train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tilth.data.hashing import random_keys, text_hashes
from tilth.data.settings import CurateOptions
from tilth.encoders.bi_encoder import train_encoder
from tilth.encoders.graded_pairs import read_pairs
from tilth.evaluate.sts_sets import read_sets
from tilth.generation.generate import GenerateRequest, load_rows, run_generate
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task
from tilth.models import load_lm
from tilth.recipes.recipe import Steps
from tilth.recipes.sts_board import StsBoard, overlap_note
from tilth.workflows.curate import curate_folder
from tilth.workflows.train_encoder import drop_shared

if TYPE_CHECKING:
    from tilth.recipes.dino_tables import DinoScale

DinoSteps: TypeAlias = "Steps[DinoScale]"


def first_texts(steps: DinoSteps) -> list[str]:
    """Return the distinct sentences of STSb's training part, up to the number of the scale."""
    found = read_sets(steps.data, ["stsb-train"])
    texts = sorted({text for sts in found for text in (*sts.texts_a, *sts.texts_b)})
    if steps.scale.inputs is None or steps.scale.inputs >= len(texts):
        return texts
    keys = random_keys(0, "first texts", text_hashes(pa.array(texts, pa.large_string())))
    chosen = sorted(range(len(texts)), key=lambda place: int(keys[place]))
    return [texts[place] for place in chosen[: steps.scale.inputs]]


def generate_pairs(
    steps: DinoSteps, name: str, *, decay: float = 100.0, given: bool = True
) -> Path:
    """Generate second texts, for STSb's sentences or for generated first texts."""
    folder = steps.at(name)
    request = GenerateRequest(
        load_task("sts-x2"),
        load_lm(steps.scale.lm, device=steps.settings.device),
        GenerateSettings(decay=decay),
        inputs=first_texts(steps) if given else None,
        from_x1=None if given else steps.scale.first_texts,
    )
    run_generate(request, folder, quiet=steps.settings.quiet)
    return folder


def curate_pairs(steps: DinoSteps, run: Path, name: str, **settings: Any) -> Path:
    """Curate a generate run; repeated on each call, which takes seconds."""
    folder, _ = curate_folder(str(run), steps.at(name), CurateOptions(**settings))
    return folder


def train_seeds(steps: DinoSteps, name: str, pairs: Path) -> list[Path]:
    """Train once per seed and return the run folders."""
    parts = read_pairs(pairs)
    if steps.settings.drop_overlap:
        parts = drop_shared(parts, read_sets(steps.data))
    splits, folders = parts.splits(), []
    for seed in range(steps.settings.seeds):
        folder = steps.at_training(f"{name}-seed{seed}")
        train_encoder(
            splits, steps.scale.base, folder,
            device=steps.settings.device, quiet=steps.settings.quiet, seed=seed,
            **steps.scale.training,
        )  # fmt: skip
        folders.append(folder)
    return folders


def train_on_both(board: StsBoard) -> list[str]:
    """Generate x1x2 and x2, train on each and measure; return notes."""
    steps, notes = board.steps, []
    for name, given in (("x1x2", False), ("x2", True)):
        pairs = curate_pairs(steps, generate_pairs(steps, name, given=given), f"{name}-curated")
        board.measure_trained(f"trained on {name}", train_seeds(steps, f"train-{name}", pairs))
        if not given:
            rows = load_rows(steps.folder / "steps" / name / "x1")
            kept = len({text.strip() for text in rows["text"]})
            notes.append(
                f"{name}: of {steps.scale.first_texts:,} first texts asked for {kept:,} are kept."
            )
        notes.append(overlap_note(steps, read_pairs(pairs), name))
    return notes


def figures_note(board: StsBoard, protocol: str = "all") -> list[str]:
    """Return notes on the metric and on missing sets."""
    about = f"Spearman x 100, protocol {protocol!r}, cosine. {board.spread()}"
    return [about, *board.missing_note()]

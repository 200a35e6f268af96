"""Steps shared by the tables of controlled paraphrase: NLI sets, rewrites, SimCSE trainings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.paraphrase.rewriter import Rewriter
    from tilth.paraphrase.round_trip import RoundTripRewriter
    from tilth.paraphrase.settings import RewriteSettings
    from tilth.recipes.recipe import Steps

MEANING = 95  # asked of all rewrites, as published
NEEDS = (
    "nli/NAME/train (premise, hypothesis, label, or triples); sts/ with the STS sets and stsb-dev"
)
BASE = {"base": ("BERT-base", "google-bert/bert-base-uncased")}
CHECKED = "rewrites are steered and checked for meaning and polarity; the paper takes the best beam"
_TEXTS = ("text", "text_a", "text_b", "negative")


def drawn_triples(steps: Steps[Any]) -> Dataset:
    """Return the scale's number of triples of the NLI sets, drawn by seed 0."""
    from datasets import concatenate_datasets

    from tilth.encoders.contrastive_sets import read_contrastive

    found = concatenate_datasets([read_contrastive(file) for file in nli_files(steps.data)])
    return found.shuffle(seed=0).select(range(min(len(found), steps.scale.triples)))


def nli_files(data: Path) -> list[Path]:
    """Return the training parts of the NLI sets."""
    found = sorted((data / "nli").glob("*/train.*"))
    if not found:
        raise InputError(f"{data}/nli: no NAME/train file: put NLI sets there")
    return found


def dev_file(data: Path) -> Path:
    """Return the development pairs of STS Benchmark, which choose the checkpoint."""
    found = sorted((data / "sts").glob("stsb-dev.*"))
    if not found:
        raise InputError(f"{data}/sts: no stsb-dev file: put STS Benchmark's dev part there")
    return found[0]


def load_rewriter(steps: Steps[Any], precision: str = "auto") -> Rewriter:
    """Load the scale's rewriter, which checks polarity where that is installed."""
    from tilth.paraphrase.rewriter import load_paraphraser

    scale = steps.scale
    return load_paraphraser(
        scale.rewriter, scorer=scale.scorer, device=steps.settings.device, precision=precision
    )


def rewritten(
    steps: Steps[Any],
    name: str,
    rows: Dataset,
    model: Rewriter | RoundTripRewriter,
    settings: RewriteSettings,
) -> Dataset:
    """Rewrite all texts of a line's rows, as a step."""
    from tilth.paraphrase.paraphrase_set import run_paraphrase

    columns = [column for column in _TEXTS if column in rows.column_names]
    folder = steps.at(step_name(name, "texts"))
    return run_paraphrase(
        rows, lambda: model, settings, folder, columns=columns, quiet=steps.settings.quiet
    )


def trained(
    steps: Steps[Any], name: str, rows: Dataset, dev: Path, training: Mapping[str, Any]
) -> list[Path]:
    """Train the base on a line's rows once for each seed; return the run folders."""
    from tilth.encoders.simcse import train_simcse

    runs = []
    for seed in range(steps.settings.seeds):
        folder = steps.at(step_name(name, f"seed{seed}"))
        train_simcse(
            rows, steps.scale.base, folder, validation=dev, device=steps.settings.device,
            quiet=steps.settings.quiet, seed=seed, pooling=steps.scale.pooling, **training,
        )  # fmt: skip
        runs.append(folder)
    return runs


def as_many_steps(
    steps: Steps[Any], training: Mapping[str, Any], *, triples: bool
) -> dict[str, Any]:
    """Return the settings that take as many steps as a set with as many rewrites added."""
    from tilth.encoders.settings import SimcseTraining

    epochs = SimcseTraining(**training).training(steps.scale.base, triples=triples).epochs
    return {**training, "epochs": 2 * epochs}


def step_name(name: str, what: str) -> str:
    """Return a step's name: the letters and digits of a line's name, 1 for a prime."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower().replace("'", "1"))
    return f"{plain}-{what}"

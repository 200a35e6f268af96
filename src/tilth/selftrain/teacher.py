"""Trains a classifier on rows in a run folder: several seeds, of which the best is kept."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.errors import InputError
from tilth.files import disk_errors
from tilth.limits import TRAININGS
from tilth.models.checkpoints import CHECKPOINTS, MODEL, is_whole, save_whole
from tilth.models.classifier import (
    Classifier,
    fingerprint_classifier,
    load_classifier,
    new_classifier,
)
from tilth.models.training import model_is_whole, refuse_several
from tilth.runs import Run
from tilth.runs.asked import RESULTS, read_results
from tilth.selftrain.finetune import MEASURES, Curve, fit

if TYPE_CHECKING:
    from tilth.selftrain.rows import Rows
    from tilth.selftrain.settings import Finetuning

COMMANDS = {"class": "train classifier", "multi": "train classifier", "tags": "train tagger"}


def train_teacher(
    train: Rows,
    validation: Rows | None,
    base: str,
    settings: Finetuning,
    *,
    seeds: int = 1,
    out: str | Path | None = None,
    asked: Mapping[str, Any] | None = None,
    sources: Mapping[str, str] | None = None,
    device: str = "auto",
    quiet: bool = False,
    overwrite: bool = False,
) -> Classifier:
    """Train a classifier or tagger on rows, once for each seed, and keep the best.

    Args:
        train: rows to learn from.
        validation: rows to choose the step and the seed with; None: the last weights are kept.
        base: see `new_classifier`.
        settings: how; its seed is the first.
        seeds: how many trainings, with seeds that follow one another.
        out: the run folder; the same call goes on where it stopped. The model lies in its
            `model`, the score of each seed in `results.json`. None: nothing is kept on disk.
        asked: more that was asked for, to be named in the run.
        sources: where the rows come from, to be named in the run.
        device: `auto`, `cpu`, `cuda` or `cuda:0`; one GPU.
        quiet: no progress.
        overwrite: begin the run anew.

    Returns:
        The best classifier, in evaluation mode.

    Raises:
        InputError: the rows, the base or a setting are wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.
    """
    settings = settings.for_base(base)
    refuse_several(device)
    check_seeds(seeds, validation)
    several = [replace(settings, seed=settings.seed + place) for place in range(seeds)]
    first = _new(train, base, settings, device)
    if out is None:
        return _best_in_memory(first, train, validation, base, several, device, quiet=quiet)
    run = Run.open(
        out,
        command=COMMANDS[train.kind],
        settings={
            "base": base, **(asked or {}), "kind": train.kind, "labels": train.labels,
            "seeds": seeds, **asdict(settings),
        },
        fingerprints={
            "train": train.fingerprint(),
            "validation": "none" if validation is None else validation.fingerprint(),
            "base": fingerprint_classifier(first),
        },
        parts=seeds,
        outputs=(MODEL, CHECKPOINTS, RESULTS),
        overwrite=overwrite,
    )  # fmt: skip
    del first
    with run:
        run.resolve("sources", lambda: dict(sources or {}))
        with disk_errors(run.path):
            if run.missing() or not model_is_whole(run):
                _complete(run, train, validation, base, several, device, quiet=quiet)
        shutil.rmtree(run.path / CHECKPOINTS, ignore_errors=True)
        results = _results(run, several, train.kind)
        if validation is not None:
            results["validation"] = {
                "rows": len(validation),
                "generated": 0 if validation.written is None else int(validation.written.sum()),
            }
        found = read_results(run.path) or {}
        if any(found.get(name) != value for name, value in results.items()):
            run.write_file(RESULTS, json.dumps(results, indent=2) + "\n")
    return load_classifier(str(run.path), device=device)


def check_seeds(seeds: int, validation: Rows | None) -> None:
    """Refuse a number of trainings that is none, or several without rows to choose with."""
    TRAININGS.check("seeds", seeds)
    if seeds > 1 and (validation is None or not len(validation)):
        raise InputError("several seeds need validation rows, to choose the best: give some")


def _new(rows: Rows, base: str, settings: Finetuning, device: str) -> Classifier:
    return new_classifier(
        base, kind=rows.kind, labels=rows.labels, seed=settings.seed, dropout=settings.dropout,
        max_length=settings.max_length, device=device,
    )  # fmt: skip


def _best_in_memory(
    first: Classifier,
    train: Rows,
    validation: Rows | None,
    base: str,
    several: list[Finetuning],
    device: str,
    *,
    quiet: bool,
) -> Classifier:
    best, highest = first, -math.inf
    for place, settings in enumerate(several):
        classifier = first if not place else _new(train, base, settings, device)
        choice = fit(classifier, train, validation, settings, quiet=quiet).choice
        if choice > highest:
            best, highest = classifier, choice
    return best


def _complete(
    run: Run,
    train: Rows,
    validation: Rows | None,
    base: str,
    several: list[Finetuning],
    device: str,
    *,
    quiet: bool,
) -> None:
    """Train what is missing of a run, and move the best model to its place.

    A seed's curve is written after its weights. Only weights that may still be the best are kept.
    """
    folder = run.path / CHECKPOINTS

    def train_seed(place: int) -> Curve:
        settings = several[place]
        classifier = _new(train, base, settings, device)
        curve = fit(
            classifier, train, validation, settings, folder / f"seed-{settings.seed}", quiet=quiet
        )
        save_whole(folder / "unfinished", weights(place), classifier.save)
        return curve

    def weights(place: int) -> Path:
        return folder / f"model-{several[place].seed}"

    for place in run.missing():
        run.write_part(place, train_seed(place).table())
        shutil.rmtree(folder / f"seed-{several[place].seed}", ignore_errors=True)
        best = _best(run)
        for other in run.done():
            if other != best:
                shutil.rmtree(weights(other), ignore_errors=True)
    best = _best(run)
    if not is_whole(weights(best)):  # the model of a finished run was removed
        train_seed(best)
    shutil.rmtree(run.path / MODEL, ignore_errors=True)
    weights(best).rename(run.path / MODEL)


def _curves(run: Run) -> dict[int, Curve]:
    return {place: Curve(**run.read_part(place).to_pydict()) for place in run.done()}


def _best(run: Run) -> int:
    """Return the seed, counted from 0, with the best weights.

    Few validation rows choose a seed as well, though no step: the last weights of all seeds are as
    good beforehand, so that a choice by chance loses nothing; early weights are worse than late.
    """
    curves = _curves(run)
    return max(curves, key=lambda place: (curves[place].choice, -place))


def _results(run: Run, several: list[Finetuning], kind: str) -> dict[str, Any]:
    """Return what results.json holds: measure, the best seed, every seed."""
    found = []
    for place, curve in _curves(run).items():
        step, score = curve.best
        found.append({"seed": several[place].seed, "step": step, "score": _plain(score)})
    return {"measure": MEASURES[kind], "best": found[_best(run)], "seeds": found}


def _plain(score: float) -> float | None:
    return score if math.isfinite(score) else None

"""Trains classifiers and taggers in run folders, with several seeds of which the best is kept."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.classifiers.finetune import MEASURES, TrainingCurve, fine_tune, new_for
from tilth.classifiers.load import TaskSources, read_training_sets
from tilth.classifiers.settings import ClassifierTraining, Finetuning
from tilth.errors import InputError
from tilth.files import disk_errors
from tilth.limits import later_seed
from tilth.models.classifier import (
    Classifier,
    fingerprint_classifier,
    load_classifier,
)
from tilth.models.trainer import (
    CHECKPOINTS,
    MODEL,
    check_processes,
    is_whole,
    model_is_whole,
    save_whole,
)
from tilth.runs import RESULTS, Run, read_results, refuse_inside, refuse_other_settings
from tilth.storage import as_path

if TYPE_CHECKING:
    from tilth.classifiers.examples import LabeledExamples

FIRST = "first"  # the nested run of a set that the base is trained on before
COMMANDS = {
    "class": "train classifier", "multi": "train classifier", "tags": "train tagger",
    "number": "train scorer",
}  # fmt: skip


def train_on_sources(
    sources: TaskSources,
    settings: ClassifierTraining,
    out: str | Path | None,
    *,
    tags: bool,
    labels: Sequence[str] | None = None,
) -> Classifier:
    """Train a classifier, or with `tags` a tagger, on sets that are read and checked first.

    Args:
        sources: all but `test` are read.
        out: as of `train_on_examples`.
        labels: in the order of the outputs; None: those of the label column.
    """
    given = {
        "train": sources.train, "validation": sources.validation, "labelled": sources.labelled
    }  # fmt: skip
    names = {key: _name(one) for key, one in given.items() if isinstance(one, str | Path)}
    if out is not None:
        nested = str(Path(out) / FIRST)
        refuse_inside(as_path(out), *names.values(), named=list({settings.base} - {nested}))
    rows, validation = read_training_sets(
        sources, tags=tags, hard=settings.loss == "hard", labels=labels,
        seed=settings.finetuning.seed, labelled_share=settings.labelled_share or 0.0,
    )  # fmt: skip
    recorded = {"loss": settings.loss, "labelled_share": settings.labelled_share or 0.0}
    facts = {"sources": names, "columns": {"text": sources.text, "label": sources.label}}
    return train_on_examples(rows, validation, settings, out, recorded=recorded, facts=facts)


def train_first(
    first: str,
    settings: ClassifierTraining,
    out: Path,
    validation: LabeledExamples | None,
    *,
    tags: bool = False,
) -> ClassifierTraining:
    """Train the base on another set, in the run OUT/first; return settings with that as base.

    Args:
        validation: rows of the training that follows, which is checked before.

    Reference:
        Phang, Févry and Bowman 2018, arXiv 1811.01088 (STILTs).
    """
    check_seeds(settings.seeds, validation)
    base = str(out / FIRST)
    if not settings.overwrite:
        refuse_other_settings(out, {"base": base})
    own = replace(settings, seeds=1, finetuning=replace(settings.finetuning, epochs=None))
    train_on_sources(TaskSources(first), own, out / FIRST, tags=tags)
    return replace(settings, base=base)


def _name(source: str | Path) -> str:
    """Return where a source lies, or its name, for run.json."""
    path = Path(source).expanduser()
    return os.path.realpath(path) if os.path.exists(path) else str(source)


def train_on_examples(
    train: LabeledExamples,
    validation: LabeledExamples | None,
    settings: ClassifierTraining,
    out: str | Path | None = None,
    *,
    recorded: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Classifier:
    """Train a classifier or tagger, once for each seed, and return the best in evaluation mode.

    With `keep` median, that of median score is returned, the lower one of an even number.

    Args:
        validation: selects step and seed; None: the last weights are kept.
        settings: loss and labelled_share are already applied to `train`.
        out: the run folder; the same call resumes. `results.json` has the score of each seed.
            None: nothing is kept on disk.
        recorded: more settings for run.json.
        facts: of the rows, for run.json: `sources`, name -> where they come from; `columns`.
    """
    base, device, quiet = settings.base, settings.device, settings.quiet
    finetuning = settings.finetuning.for_base(base)
    check_processes(device)
    check_seeds(settings.seeds, validation)
    several = [
        replace(finetuning, seed=later_seed(finetuning.seed, n)) for n in range(settings.seeds)
    ]
    first = new_for(train, base, finetuning, device)
    if out is None:
        trained, curves = {}, {}
        for number, one in enumerate(several):
            trained[number] = new_for(train, base, one, device) if number else first
            curves[number] = fine_tune(trained[number], train, validation, one, quiet=quiet)
            if settings.keep == "best":
                best = chosen_seed(curves, "best")
                trained = {best: trained[best]}
        return trained[chosen_seed(curves, settings.keep)]
    run = Run.open(
        out,
        command=COMMANDS[train.kind],
        settings={
            "base": base, **(recorded or {}), "kind": train.kind, "labels": train.labels,
            "seeds": settings.seeds, **asdict(finetuning),
            **({} if settings.keep == "best" else {"keep": settings.keep}),
        },
        fingerprints={
            "train": train.fingerprint(),
            "validation": "none" if validation is None else validation.fingerprint(),
            "base": fingerprint_classifier(first),
        },
        parts=settings.seeds,
        outputs=(MODEL, CHECKPOINTS, RESULTS),
        overwrite=settings.overwrite,
    )  # fmt: skip
    del first
    with run:
        for fact, value in {"sources": {}, **(facts or {})}.items():
            run.resolve(fact, partial(dict, value))
        with disk_errors(run.path):
            if run.missing() or not model_is_whole(run):
                _complete(run, train, validation, settings, several)
        shutil.rmtree(run.path / CHECKPOINTS, ignore_errors=True)
        results = _results(run, several, train.kind, settings.keep)
        if validation is not None:
            results["validation"] = {
                "rows": len(validation),
                "generated": 0 if validation.written is None else int(validation.written.sum()),
            }
        found_results = read_results(run.path) or {}
        if any(found_results.get(name) != value for name, value in results.items()):
            run.write_results(results)
    return load_classifier(str(run.path), device=device, numbers=train.kind == "number")


def check_seeds(seeds: int, validation: LabeledExamples | None) -> None:
    """Refuse several trainings without rows to choose the best with."""
    if seeds > 1 and (validation is None or not len(validation)):
        raise InputError("several seeds need validation rows, to choose the best: give some")


def _complete(
    run: Run,
    train: LabeledExamples,
    validation: LabeledExamples | None,
    settings: ClassifierTraining,
    several: list[Finetuning],
) -> None:
    """Train the missing seeds of a run, each curve after its weights; keep the chosen model.

    Only weights that may still be chosen are kept.
    """
    folder, keep = run.path / CHECKPOINTS, settings.keep

    def train_seed(number: int) -> TrainingCurve:
        one = several[number]
        classifier = new_for(train, settings.base, one, settings.device)
        checkpoints = folder / f"seed-{one.seed}"
        curve = fine_tune(classifier, train, validation, one, checkpoints, quiet=settings.quiet)
        save_whole(folder / "unfinished", weights(number), classifier.save)
        return curve

    def weights(number: int) -> Path:
        return folder / f"model-{several[number].seed}"

    for number in run.missing():
        run.write_part(number, train_seed(number).table())
        shutil.rmtree(folder / f"seed-{several[number].seed}", ignore_errors=True)
        for other in run.done() if keep == "best" else ():
            if other != chosen_seed(_curves(run), keep):
                shutil.rmtree(weights(other), ignore_errors=True)
    chosen = chosen_seed(_curves(run), keep)
    if not is_whole(weights(chosen)):  # the model of a finished run was removed
        train_seed(chosen)
    shutil.rmtree(run.path / MODEL, ignore_errors=True)
    weights(chosen).rename(run.path / MODEL)


def _curves(run: Run) -> dict[int, TrainingCurve]:
    return {number: TrainingCurve(**run.read_part(number).to_pydict()) for number in run.done()}


def chosen_seed(curves: Mapping[int, TrainingCurve], keep: str) -> int:
    """Return the number of the seed with the best weights, or with those of median score.

    Few validation rows select a seed too, though no step: the last weights of all seeds are equally
    good beforehand, so a choice by chance loses nothing; early weights are worse than late.
    """
    rising = sorted(curves, key=lambda number: (curves[number].selection_score, -number))
    return rising[-1 if keep == "best" else (len(rising) - 1) // 2]


def _results(run: Run, several: list[Finetuning], kind: str, keep: str) -> dict[str, Any]:
    """Return what results.json holds: measure, the kept seed (`best`), every seed."""
    curves, found = _curves(run), []
    for number, curve in curves.items():
        step, score = curve.best
        plain = score if math.isfinite(score) else None
        found.append({"seed": several[number].seed, "step": step, "score": plain})
    return {"measure": MEASURES[kind], "best": found[chosen_seed(curves, keep)], "seeds": found}

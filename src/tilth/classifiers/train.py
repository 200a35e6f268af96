"""Trains classifiers and taggers from labelled sets, or from what a teacher labelled."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.classifiers.finetune import MEASURES, Curve, fit
from tilth.classifiers.load import Columns, read_to_train
from tilth.classifiers.settings import Finetuning
from tilth.data.examples import Source
from tilth.errors import InputError
from tilth.files import disk_errors
from tilth.limits import LOSS, TRAININGS
from tilth.models.classifier import (
    Classifier,
    fingerprint_classifier,
    load_classifier,
    new_classifier,
)
from tilth.models.trainer import (
    CHECKPOINTS,
    MODEL,
    is_whole,
    model_is_whole,
    require_single_process,
    save_whole,
    settings_of,
)
from tilth.runs import RESULTS, Run, read_results, refuse_inside

if TYPE_CHECKING:
    from tilth.classifiers.examples import Rows

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
    require_single_process(device)
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


def train_classifier(
    train: Source,
    base: str = "starter-encoder",
    out: str | Path | None = None,
    *,
    validation: Source | None = None,
    labelled: Source | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    loss: str = "kl",
    labelled_share: float = 0.0,
    seeds: int = 1,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> Classifier:
    """Train a classifier of texts, or of pairs of texts.

    It learns from labels, or from the probabilities that a teacher gave. While it is trained it is
    measured on validation rows: accuracy, or macro F1 where a text has any number of classes.
    The best weights are kept.

    Args:
        train: what `read_examples` reads: a data set, rows, a file, a folder, a run, a hub data
            set. A column `probabilities` holds a teacher's, in the order of the label column's
            names.
        base: `starter-encoder`, `starter-mlm`, `starter-small` (two layers: several times as fast
            and less right), a folder or a hub id of an encoder.
        out: the run folder; the same call goes on where it stopped. The model lies in its
            `model`, which transformers loads. None: nothing is kept on disk.
        validation: a labelled set to choose the best weights with. None: the split of that name,
            or else a tenth of `labelled`, or of `train`, of each label as many.
        labelled: more labelled rows to train on, beside a teacher's.
        text: the column of texts, or the two of pairs; None: a usual name.
        label: the column of labels; None: a usual name.
        labels: the classes, in the order of the outputs; None: those of the label column.
        loss: of probabilities: `kl` takes them as they are, `hard` the likeliest label alone.
        labelled_share: the part of all rows that `labelled` is, 0 to below 1: its rows are
            repeated to make it up, 16 times at most. 0: they stand there once.
        seeds: how many trainings, of which the best by validation is kept.
        device: `auto`, `cpu`, `cuda` or `cuda:0`; one GPU.
        overwrite: begin the run anew.
        quiet: no progress.
        training: see `Finetuning`: epochs, batch, learning_rate, warmup, weight_decay, dropout,
            evaluate_every, label_smoothing, max_length, precision, seed.

    Returns:
        The best classifier: `.model` and `.tokenizer` are plain transformers.

    Raises:
        InputError: the sets, the base or a setting are wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2021, arXiv 2010.02194, sections 2.2 and 3. Batches are of like lengths, which
        is ours.
    """
    return _train(
        train, base, out, validation, labelled, Columns(text, label), labels, loss, labelled_share,
        seeds, device, training, tags=False, overwrite=overwrite, quiet=quiet,
    )  # fmt: skip


def train_tagger(
    train: Source,
    base: str = "starter-encoder",
    out: str | Path | None = None,
    *,
    validation: Source | None = None,
    labelled: Source | None = None,
    text: str | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    loss: str = "kl",
    labelled_share: float = 0.0,
    seeds: int = 1,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> Classifier:
    """Train a tagger of tokens, such as of names in sentences.

    As `train_classifier`, with rows of tokens and their IOB2 tags. A teacher's probabilities are a
    list for each token. The measure is F1 over spans.

    Args:
        train: rows with `tokens` and `tags`, as `read_examples` reads them.
        base: see `train_classifier`.
        out: see there.
        validation: see there; a tenth is taken of the rows with the same types of entity.
        labelled: see there.
        text: the column of tokens; None: `tokens` or `words`.
        label: the column of tags; None: `tags`, `ner_tags` or `labels`.
        labels: the tags, in the order of the outputs; None: O, then B- and I- of each type.
        loss: see `train_classifier`.
        labelled_share: see there.
        seeds: see there.
        device: see there.
        overwrite: see there.
        quiet: see there.
        training: see there.

    Raises:
        InputError: as there, or tags are not IOB2.
        TilthError: as there.
    """
    return _train(
        train, base, out, validation, labelled, Columns(text, label), labels, loss, labelled_share,
        seeds, device, training, tags=True, overwrite=overwrite, quiet=quiet,
    )  # fmt: skip


def _train(
    train: Source,
    base: str,
    out: str | Path | None,
    validation: Source | None,
    labelled: Source | None,
    columns: Columns,
    labels: Sequence[str] | None,
    loss: str,
    labelled_share: float,
    seeds: int,
    device: str,
    training: dict[str, Any],
    *,
    tags: bool,
    overwrite: bool,
    quiet: bool,
) -> Classifier:
    LOSS.check("loss", loss)
    settings = settings_of(Finetuning, training).for_base(base)
    sources = {"train": train, "validation": validation, "labelled": labelled}
    names = {key: _name(one) for key, one in sources.items() if isinstance(one, str | Path)}
    if out is not None:
        refuse_inside(Path(out), *names.values(), named=[base])
    rows, chosen = read_to_train(
        train, validation, labelled, columns, tags=tags, hard=loss == "hard", labels=labels,
        seed=settings.seed, labelled_share=labelled_share,
    )  # fmt: skip
    return train_teacher(
        rows, chosen, base, settings, seeds=seeds, out=out,
        asked={"loss": loss, "labelled_share": labelled_share}, sources=names, device=device,
        quiet=quiet, overwrite=overwrite,
    )  # fmt: skip


def _name(source: str | Path) -> str:
    """Return what a run says of a source: where it lies, or its name."""
    path = Path(source).expanduser()
    return os.path.realpath(path) if os.path.exists(path) else str(source)

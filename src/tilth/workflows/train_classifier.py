"""Train a classifier or tagger on sets, or on the run of `tilth augment`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilth.classifiers.load import TaskSources, check_disjoint
from tilth.classifiers.settings import LABELLED_SHARE, ClassifierTraining, Finetuning
from tilth.classifiers.train import train_on_sources
from tilth.data.examples import Source
from tilth.errors import InputError
from tilth.limits import settings_of
from tilth.models.classifier import Classifier
from tilth.models.names import name_of
from tilth.workflows.augmented_run import (
    is_augmented,
    open_augmented,
    sources_of,
    with_validation,
)


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
    labelled_share: float | None = None,
    seeds: int = 1,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> Classifier:
    """Train a classifier of texts, or of pairs of texts, on labels or a teacher's probabilities.

    The weights with the best validation score (accuracy; macro F1 for several classes a text) are
    kept.

    Args:
        train: what `read_examples` reads: a data set, rows, a file, a folder, a run, a hub data
            set; a run of `tilth augment`, whose labelled rows are trained on too. A column
            `probabilities` holds a teacher's, in the order of the label column's names.
        base: `starter-encoder`, `starter-mlm`, `starter-small` (two layers: several times faster
            and less accurate), a folder or a hub id of an encoder.
        out: the run folder; the same call resumes. Its `model` is a transformers model. None:
            nothing is kept on disk.
        validation: selects the best weights. None: the split of that name, or else a tenth of
            `labelled`, or of `train`, stratified by label.
        labelled: more labelled rows to train on, beside a teacher's.
        text: the column of texts, or the two of pairs; None: a usual name.
        label: None: a usual name.
        labels: in the order of the outputs; None: those of the label column.
        loss: of probabilities: `kl` learns them, `hard` their likeliest label.
        labelled_share: share of all rows that `labelled` makes up, 0 to below 1: its rows are
            repeated, at most 16 times. 0: they are not repeated. None: a quarter for a run of
            `tilth augment`, else 0.
        seeds: number of trainings, of which the best by validation is kept.
        device: `auto`, `cpu`, `cuda` or `cuda:0`; one GPU.
        overwrite: start the run folder anew.
        quiet: no progress bar.
        training: fields of `Finetuning`: epochs, batch, learning_rate, warmup, weight_decay,
            dropout, evaluate_every, label_smoothing, max_length, precision, seed.

    Returns:
        The best classifier: `.model` and `.tokenizer` are plain transformers.

    Raises:
        InputError: the sets, the base or a setting are wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2020, arXiv 2010.02194, sections 2.2 and 3. Batches of similar lengths are ours.
    """
    settings = ClassifierTraining(
        name_of(base, "base"), settings_of(Finetuning, training), loss, labelled_share, seeds,
        device=device, overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    sources = TaskSources(train, validation, None, labelled, text, label)
    return _train(sources, settings, out, labels, tags=False)


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
    labelled_share: float | None = None,
    seeds: int = 1,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> Classifier:
    """Train a tagger of tokens, such as for named entities, measured by span F1.

    The arguments are those of `train_classifier`, with rows of tokens and their IOB tags. A
    teacher's probabilities are a list for each token.

    Args:
        train: rows with `tokens` and `tags`, as `read_examples` reads them.
        validation: None: the split is stratified by the entity types of a row.
        text: the column of tokens; None: `tokens` or `words`.
        label: the column of tags; None: `tags`, `ner_tags` or `labels`.
        labels: in the order of the outputs; None: O, then B- and I- of each type.

    Raises:
        InputError: a set, the base or a setting is wrong, tags are no IOB tags, or `out`
            holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.
    """
    settings = ClassifierTraining(
        name_of(base, "base"), settings_of(Finetuning, training), loss, labelled_share, seeds,
        device=device, overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    sources = TaskSources(train, validation, None, labelled, text, label)
    return _train(sources, settings, out, labels, tags=True)


def _train(
    sources: TaskSources,
    settings: ClassifierTraining,
    out: str | Path | None,
    labels: Sequence[str] | None,
    *,
    tags: bool,
) -> Classifier:
    """Train on sets, or on an augment run's as the command does."""
    if isinstance(sources.train, str | Path) and is_augmented(str(sources.train)):
        if sources.labelled is not None:
            raise InputError(
                "labelled is for other sets: a run of tilth augment has its labelled rows"
            )
        if labels is not None:
            raise InputError("labels are for other sets: a run of tilth augment has its own")
        run, chosen, _ = with_validation(open_augmented(str(sources.train)), sources)
        if settings.labelled_share is None:
            settings = replace(settings, labelled_share=LABELLED_SHARE)
        sources, labels = sources_of(run, chosen, settings.loss), run.labels
    elif settings.labelled_share and sources.labelled is None:
        raise InputError("labelled_share is that of labelled rows: give labelled, or leave it out")
    elif sources.validation is not None:
        chosen = sources.read(sources.validation, "validation")
        check_disjoint("validation", sources.validation, chosen.texts, *(
            ("training", source, sources.read(source, "train").texts)
            for source in (sources.train, sources.labelled) if source is not None
        ))  # fmt: skip
    found = train_on_sources(sources, settings, out, tags=tags, labels=labels)
    return found if out is not None else replace(found, name=f"{found.name}, trained in memory")

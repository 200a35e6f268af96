"""Trains classifiers and taggers from labelled sets, or from what a teacher labelled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.data.examples import Source
from tilth.limits import LOSS
from tilth.models.training import settings_of
from tilth.runs import refuse_inside
from tilth.selftrain.reading import Columns, read_to_train
from tilth.selftrain.settings import Finetuning
from tilth.selftrain.teacher import train_teacher

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier


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

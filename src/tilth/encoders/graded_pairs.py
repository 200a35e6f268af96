"""Reads and checks graded pairs for training an encoder."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data import load_folder, read_rows
from tilth.data.examples import (
    LabelledTable,
    Names,
    Source,
    as_labelled,
    input_columns,
    open_rows,
    read_labelled_table,
)
from tilth.data.formats import as_number
from tilth.data.hashing import random_keys
from tilth.data.normalize import exact_keys
from tilth.data.sources import (
    chosen_split,
    fetched,
    folder_configs,
    named_split,
    split_names,
)
from tilth.data.split import group_texts, source_hashes, validation_rows, written_by_model
from tilth.errors import InputError
from tilth.files import check_input
from tilth.runs import command_of

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

log = logging.getLogger(__name__)

TEXT_A, TEXT_B, LABEL = "text_a", "text_b", "label"
NEGATIVE = "negative"  # of triples: a text of another meaning than text_a
_TRAIN, _VALIDATION = "train", "validation"
_SHARES = (0.1, 0.25, 0.5)  # of the validation part: the first that is enough
FEWEST = 3  # pairs for a meaningful rank correlation
STS = 5.0  # the highest label of STS sets
ANY = np.inf  # labels are any numbers
_CLASSES = 3  # the highest of whole numbers that are no grades of 0 to 5
_FEW_ABOVE = 0.1  # share of labels above 1 that may be mistakes in a set of 0 to 1


@dataclass(frozen=True, slots=True)
class TrainingPairs:
    """Checked pairs: columns text_a, text_b, label (0 to 1).

    Attributes:
        validation: pairs that choose the checkpoint.
        highest: what the labels were divided by.
        written: whether a model wrote each validation pair; None: none. # (pairs,)
    """

    train: Dataset
    validation: Dataset
    written: NDArray[np.bool_] | None = None
    highest: float = 1.0

    def all_rows(self) -> Dataset:
        """Return both parts, since the validation part also influenced the encoder."""
        from datasets import concatenate_datasets

        return concatenate_datasets([self.train, self.validation])

    def splits(self) -> DatasetDict:
        """Return the parts in the form that `read_pairs` reads."""
        from datasets import DatasetDict

        return DatasetDict({_TRAIN: self.train, _VALIDATION: self.validation})


def read_pairs(
    source: Source,
    *,
    seed: int = 0,
    split: bool = True,
    names: Names = (None, None),
) -> TrainingPairs:
    """Read and check graded pairs.

    Labels are 0 to 1, or 0 to 5 as in STS sets: where more than a tenth are above 1, all are
    divided by 5.

    A set without a validation part is split 90/10 by label, chosen by content; pairs of one first
    text or origin are in one part. Up to half of a small set goes to the validation part.

    Args:
        source: a data set, splits named train and validation, or where they lie: a curated set,
            a run that holds one, a labelled file, a hub data set. Columns text_a, text_b and
            label (or sentence1, sentence2 and score).
        split: hold pairs out of a set without a validation part.
        names: of the columns of texts and of labels; None: usual ones.
    """
    splits = _splits(source)
    where = f"{source}: " if isinstance(source, str | Path) else ""
    try:
        splits = {part: _renamed(rows, names) for part, rows in splits.items()}
        train, highest = _checked(splits[_TRAIN], _TRAIN)
        if highest > 1:
            log.warning("%slabels are taken as 0 to %g: divided by %g", where, highest, highest)
        held, written = _kept(train).select([]), None
        if len(splits.get(_VALIDATION, ())):
            found, _ = _checked(splits[_VALIDATION], _VALIDATION, highest)
            held, written = _kept(found), written_by_model(found.table)
        elif split:
            return replace(_split(train, seed), highest=highest)
        return TrainingPairs(_kept(train), held, written, highest)
    except InputError as error:
        raise InputError(f"{where}{error}") from error


def read_dev_pairs(
    source: Source,
    split: str = _VALIDATION,
    *,
    highest: float | None = None,
    names: Names = (None, None),
) -> Dataset:
    """Read graded pairs that choose a checkpoint.

    Args:
        split: of a source that has several.
        highest: labels are 0 to this, and divided by it; None: 1 or 5, as of `read_pairs`; `ANY`:
            they are any numbers.
        names: as of `read_pairs`.
    """
    rows, where = open_rows(source, chosen_split(source, split))
    try:
        return _kept(_checked(_renamed(rows, names), split, highest)[0])
    except InputError as error:
        raise InputError(f"{where}{error}") from error


def _renamed(rows: Dataset, names: Names) -> Dataset:
    """Return pairs with the named columns as text_a, text_b and label."""
    text, label = names
    if text is not None and len(chosen := input_columns(rows, "", text, tagged=False)) != 2:
        raise InputError(f"--text names one column, {chosen[0]!r}: name the two of pairs")
    return as_labelled(rows, text, label)


def _splits(source: Source) -> dict[str, Dataset]:
    from datasets import DatasetDict

    if isinstance(source, DatasetDict):
        if _TRAIN not in source:
            raise InputError(f"no split 'train' among {', '.join(source)}: name it so")
        found = {name: named_split(source, name) for name in (_TRAIN, _VALIDATION)}
        return {name: rows for name, rows in found.items() if rows is not None}
    if not isinstance(source, str | Path):
        return {_TRAIN: open_rows(source, _TRAIN)[0]}
    folder = fetched(source)
    check_input(folder)
    if (folder / "run.json").is_file():
        if (folder / "curated").is_dir():
            folder /= "curated"
            log.info("%s: its curated set is taken", source)
        elif command_of(folder) == "generate":
            log.warning(
                "%s is not curated: labels are not smoothed, no sampled pairs; run `tilth curate "
                "%s`", source, source,
            )  # fmt: skip
    stored = folder_configs(folder).get("default", {}) if folder.is_dir() else {}
    if _VALIDATION in stored:
        return {name: load_folder(folder, name) for name in (_TRAIN, _VALIDATION)}
    names = [_TRAIN, _VALIDATION]
    if set(names) - set(split_names(source)):
        names = [_TRAIN]
    return {name: read_rows(source, split=name) for name in names}


def _checked(
    rows: Dataset, split: str, highest: float | None = None
) -> tuple[LabelledTable, float]:
    """Check pairs; return them with labels divided by the highest that they may have, and this."""
    if not len(rows):
        raise InputError(f"the {split} part has no rows: give pairs to learn from")
    labelled = read_labelled_table(rows)
    if not labelled.is_pair:
        raise InputError("the set holds single texts: give graded pairs (text_a, text_b, label)")
    numbers = labelled.numbers
    if numbers is None:
        labels = labelled.table[LABEL].to_pylist()
        row = next(n for n, one in enumerate(labels) if as_number(str(one)) is None)
        said = labels[row]
        comma = isinstance(said, str) and as_number(said.replace(",", ".", 1)) is not None
        raise InputError(
            f"{split} row {row} (rows count from 0): label {said!r} is no number: an encoder "
            f"learns from labels 0 to 1, or 0 to 5{', decimals after a point' if comma else ''}"
        )
    if highest is None:
        highest = STS if np.mean(numbers > 1) > _FEW_ABOVE else 1.0
        if highest > 1 and max(numbers) <= _CLASSES and not (numbers % 1).any():
            raise InputError(
                f"the labels of the {split} part are whole numbers up to {max(numbers):g}, as "
                "classes are: give similarities of 0 to 1 or 0 to 5"
            )
    wrong = np.flatnonzero((numbers < 0) & (highest < ANY) | (numbers > highest))
    if len(wrong):
        row, value = int(wrong[0]), numbers[wrong[0]]
        mostly = "; most others are at most 1" if 1 < value <= STS and highest == 1 else ""
        raise InputError(
            f"{split} row {row} (rows count from 0) has label {value:g}{mostly}: labels are 0 to 1 "
            "or 0 to 5, scale them"
        )
    empty = np.array([not text for text in labelled.texts.to_pylist()])  # (texts,)
    for name, codes in zip(labelled.columns, labelled.codes, strict=True):
        if empty[codes].any():
            raise InputError(
                f"{split} row {np.argmax(empty[codes])} (rows count from 0) has an empty {name}: "
                "remove it (`tilth curate` does)"
            )
    if len(np.unique(numbers)) == 1:
        raise InputError(
            f"every label of the {split} part is {numbers[0]:g}: there is nothing to learn and "
            "Spearman's correlation is undefined; give pairs of different labels"
        )
    if len(numbers) < FEWEST:
        raise InputError(f"the {split} part has {len(numbers)} pairs: give at least {FEWEST}")
    if 1 < highest < ANY:
        numbers = numbers / highest
        place = labelled.table.column_names.index(LABEL)
        table = labelled.table.set_column(place, LABEL, pa.array(numbers))
        labelled = replace(labelled, table=table, numbers=numbers)
    return labelled, highest


def _split(labelled: LabelledTable, seed: int) -> TrainingPairs:
    """Hold out a tenth of each label, more when there are few pairs."""
    hashes = [labelled.hashes[codes] for codes in labelled.codes]
    keys = random_keys(seed, "validation", *hashes, labelled.label_hashes)
    plain = exact_keys(labelled.texts)
    sides = [plain[codes] for codes in labelled.codes]
    groups = group_texts(sides, source_hashes(labelled.table))
    assert labelled.numbers is not None  # checked by `_checked`
    for share in _SHARES:
        chosen = validation_rows(labelled.labels, keys, share, numeric=True, groups=groups)
        if chosen.sum() >= FEWEST and len(np.unique(labelled.numbers[chosen])) > 1:
            break
    else:
        raise InputError(
            f"{len(labelled)} pairs of {groups.max() + 1} first texts are too few to choose a "
            "checkpoint with: give more pairs, or splits named train and validation"
        )
    if share > _SHARES[0]:
        log.warning("few pairs: %d of %d choose the checkpoint", chosen.sum(), len(labelled))
    written = written_by_model(labelled.table)[chosen]
    return TrainingPairs(_kept(labelled, ~chosen), _kept(labelled, chosen), written)


def _kept(labelled: LabelledTable, rows: NDArray[np.bool_] | None = None) -> Dataset:
    from datasets import Dataset

    table = labelled.table.select([TEXT_A, TEXT_B, LABEL])
    return Dataset(table if rows is None else table.filter(rows))

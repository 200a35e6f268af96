"""Clean a labelled set, soften its labels, add sampled pairs, split it; every drop has a reason."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import group_ids, random_keys, rank_in_group
from tilth.data.label_indices import DROP_REASON, LABEL, Labelled, read_labelled
from tilth.data.near_duplicates import near_duplicates as find_near
from tilth.data.negative_pairs import draw_pairs, sampled_table
from tilth.data.split import group_rows, source_hashes, validation_rows
from tilth.errors import InputError
from tilth.limits import (
    MOST_SAMPLED_PAIRS,
    NEAR_DUPLICATES,
    PART_SHARE,
    PER_LABEL,
    SEED,
    SHARE,
    SIMILARITY,
)

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

EMPTY = "empty"
UNFIT = "label-fit"
IDENTICAL = "identical-pair"
DUPLICATE = "duplicate"
NEAR = "near-duplicate"
OVER = "over-per-label"
# In the order they are looked for; a row's code is its place here, 0 for kept rows.
REASONS = ("", EMPTY, UNFIT, IDENTICAL, DUPLICATE, NEAR, OVER)
FIT = "label_fit"  # a column of generated sets


def drop_reasons(
    rows: Labelled, per_label: int, near_duplicates: float | None, min_label_fit: float
) -> NDArray[np.int8]:
    """Return the code of each row's drop reason, 0 for kept rows."""
    reasons = np.zeros(len(rows), np.int8)
    if _has_fit(rows):
        below = pc.fill_null(pc.less(rows.table[FIT], min_label_fit), False)
        reasons[below.to_numpy()] = REASONS.index(UNFIT)
    blank = pc.index(rows.texts, "").as_py()
    for codes in rows.codes:
        reasons[codes == blank] = REASONS.index(EMPTY)
    if rows.is_pair:
        first, second = rows.codes
        reasons[(first == second) & (reasons == 0)] = REASONS.index(IDENTICAL)
    alive = np.flatnonzero(reasons == 0)
    places = rank_in_group(group_ids(*(codes[alive] for codes in (*rows.codes, rows.labels))))
    reasons[alive[places > 0]] = REASONS.index(DUPLICATE)
    if near_duplicates is not None:
        alive = np.flatnonzero(reasons == 0)
        columns = tuple(codes[alive] for codes in rows.codes)
        alike = find_near(rows.texts, columns, rows.labels[alive], near_duplicates)
        reasons[alive[alike]] = REASONS.index(NEAR)
    if rows.is_pair:
        alive = np.flatnonzero(reasons == 0)
        places = rank_in_group(group_ids(rows.codes[0][alive], rows.labels[alive]))
        reasons[alive[places >= per_label]] = REASONS.index(OVER)
    return reasons  # (rows,)


def _has_fit(rows: Labelled) -> bool:
    names = rows.table.column_names
    return FIT in names and pa.types.is_floating(rows.table.schema.field(FIT).type)


def count_drops(rows: Labelled, reasons: NDArray[np.int8], near: float | None) -> dict[str, int]:
    """Count the rows of each reason that can apply."""
    numbers = np.bincount(reasons, minlength=len(REASONS)).tolist()
    counts = dict(zip(REASONS[1:], numbers[1:], strict=True))
    if not rows.is_pair:
        del counts[IDENTICAL], counts[OVER]
    if not _has_fit(rows):
        del counts[UNFIT]
    if near is None:
        del counts[NEAR]
    return counts


log = logging.getLogger(__name__)

# DINO, Schick and Schütze 2021, section 4 and the released code.
SMOOTHING = 0.2
SAMPLED_PAIRS = 2


def check_settings(
    smoothing: float | None,
    sampled_pairs: int | None,
    per_label: int,
    validation: float,
    near_duplicates: float | None,
    min_label_fit: float,
    seed: int,
) -> None:
    """Check what can be checked of the settings without the rows."""
    for name, value, limit in (
        ("smoothing", smoothing, SHARE),
        ("sampled_pairs", sampled_pairs, MOST_SAMPLED_PAIRS),
        ("near_duplicates", near_duplicates, NEAR_DUPLICATES),
    ):
        if value is not None:
            limit.check(name, value)
    PER_LABEL.check("per_label", per_label)
    SIMILARITY.check("min_label_fit", min_label_fit)
    PART_SHARE.check("validation", validation)
    SEED.check("seed", seed)


def applied_smoothing(rows: Labelled, asked: float | None) -> float:
    """Return the smoothing that applies."""
    if rows.numbers is None:
        if asked:
            raise InputError(
                f"smoothing is {asked}, but labels are no numbers, such as "
                f"{rows.first_label!r}: leave it out"
            )
        if asked is None and rows.is_pair:
            log.info("labels are no numbers: no smoothing, no sampled pairs")
        return 0.0
    if asked is not None:
        return asked
    return SMOOTHING if rows.is_pair else 0.0


def applied_sampled_pairs(rows: Labelled, asked: int | None) -> int:
    """Return the number of sampled pairs for each first text that applies."""
    if not rows.is_pair:
        wrong = "rows are single texts"
    elif rows.numbers is None:
        wrong = f"their label is 0, and labels are no numbers, such as {rows.first_label!r}"
    elif rows.numbers.min() < 0:
        wrong = f"their label is 0, and the lowest label is {rows.numbers.min():g}"
        if asked is None:
            log.warning("no sampled pairs: %s", wrong)
    else:
        return SAMPLED_PAIRS if asked is None else asked
    if asked:
        raise InputError(f"sampled-pairs is {asked}, but {wrong}: leave it out")
    return 0


# Codes of the first and second texts of pairs.
Pairs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Curated:
    """A curated set.

    Attributes:
        train: rows to train on, in their order, then sampled pairs.
        validation: rows to choose a model with, likewise.
        dropped: all other rows, with the labels they came with and a column `drop_reason`.
        counts: rows in, each drop reason, sampled pairs, train, validation.
        settings: what was applied, defaults filled in.
    """

    train: Dataset
    validation: Dataset
    dropped: Dataset
    counts: dict[str, int]
    settings: dict[str, Any]


def curate(
    dataset: Dataset,
    *,
    smoothing: float | None = None,
    sampled_pairs: int | None = None,
    per_label: int = 2,
    validation: float = 0.1,
    near_duplicates: float | None = None,
    min_label_fit: float = 0.0,
    seed: int = 0,
) -> DatasetDict:
    """Clean a labelled set as the DINO paper does and split it.

    Drops, in this order: rows that do not fit their label, rows with a blank text, identical pairs,
    exact duplicates, near duplicates where asked, more than `per_label` second texts for one
    (first text, label). Then labels are smoothed, sampled pairs added, and rows split by label.
    Texts that differ in surrounding white space alone count as equal. Rows keep their order; what
    is random follows from seed and content. Rows of one first text, `source_id` or `source_row`
    are in one split; the paper splits row by row.

    Args:
        dataset: with columns text_a, text_b, label, or text, label; other columns are kept.
            Labels of pairs that are written as numbers ("0.5") count as numbers.
        smoothing: e in y * (1 - e) + e * mean of the distinct labels, 0 to 1. Default: the
            paper's 0.2 for pairs with numeric labels, else none.
        sampled_pairs: for each first text, so many second texts of other inputs that are no
            partner of it, with label 0. Default: the paper's 2 for pairs with numeric labels,
            none of them below 0, else none.
        per_label: second texts kept for each (first text, label), the first ones.
        validation: share of the validation split, 0 to below 1. Labels too rare stay in train.
        near_duplicates: drop rows this alike to an earlier one of their label, above 0 to 1:
            Jaccard similarity of word triples, for each text.
        min_label_fit: drop rows below it in the column `label_fit` of a generated set; -1 keeps
            all. Rows where it is not measured stay.
        seed: same rows and seed, same result.

    Returns:
        The splits train and validation.

    Raises:
        InputError: a setting is out of range or cannot apply, a column is missing or holds
            something else, or no row is left.

    Reference:
        Schick and Schütze 2021, "Generating Datasets with Pretrained Language Models",
        arXiv 2104.07540. Its code may sample a true partner; this does not.

    Example:
        >>> from datasets import Dataset
        >>> rows = {"text_a": ["x", "x"], "text_b": ["x", "y"], "label": [1.0, 0.0]}
        >>> curate(Dataset.from_dict(rows), sampled_pairs=0)["train"][0]
        {'text_a': 'x', 'text_b': 'y', 'label': 0.1}
    """
    from datasets import DatasetDict

    curated = curate_rows(
        dataset,
        smoothing=smoothing,
        sampled_pairs=sampled_pairs,
        per_label=per_label,
        validation=validation,
        near_duplicates=near_duplicates,
        min_label_fit=min_label_fit,
        seed=seed,
    )
    return DatasetDict({"train": curated.train, "validation": curated.validation})


def curate_rows(
    dataset: Dataset,
    *,
    smoothing: float | None = None,
    sampled_pairs: int | None = None,
    per_label: int = 2,
    validation: float = 0.1,
    near_duplicates: float | None = None,
    min_label_fit: float = 0.0,
    seed: int = 0,
) -> Curated:
    """Do what `curate` does; return the dropped rows and all counts too. Options as there."""
    check_settings(
        smoothing, sampled_pairs, per_label, validation, near_duplicates, min_label_fit, seed
    )
    rows = read_labelled(dataset)
    smoothing = applied_smoothing(rows, smoothing)
    sampled_pairs = applied_sampled_pairs(rows, sampled_pairs)
    reasons = drop_reasons(rows, per_label, near_duplicates, min_label_fit)
    counts = count_drops(rows, reasons, near_duplicates)
    kept = reasons == 0
    if not kept.any():
        why = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        raise InputError(f"no row is left of {len(rows)} ({why}): give a set with other rows")
    labels = None if rows.numbers is None else smooth(rows.numbers, kept, smoothing)
    table = rows.table if labels is None or not smoothing else rows.with_labels(labels)
    pairs = _sample(rows, kept, sampled_pairs, seed)
    added = _sampled_rows(rows, table, kept, pairs, seed)
    held_out = _split(rows, kept, pairs, labels, validation, seed)
    train, held = (_ready_rows(rows, table, kept, added, side) for side in (~held_out, held_out))
    if validation and not len(held):
        log.warning("no validation rows: every label is too rare for a share of %g", validation)
    return Curated(
        train,
        held,
        _dropped_rows(rows, reasons),
        {
            "rows in": len(rows),
            **counts,
            "sampled pairs": len(added),
            "train": len(train),
            "validation": len(held),
        },
        {
            "smoothing": smoothing,
            "sampled_pairs": sampled_pairs,
            "per_label": per_label,
            "validation": validation,
            "near_duplicates": near_duplicates,
            "min_label_fit": min_label_fit,
            "seed": seed,
        },
    )


def smooth(
    labels: NDArray[np.float64], kept: NDArray[np.bool_], smoothing: float
) -> NDArray[np.float64]:
    """Draw labels towards the mean of the distinct ones that are kept: y * (1 - e) + e * mean.

    Args:
        labels: # (rows,)
        kept: which rows are; the others' labels count for nothing. # (rows,)
        smoothing: e, 0 to 1.

    Raises:
        InputError: the mean is beyond the numbers of 64 bits.
    """
    if not smoothing:
        return labels
    with np.errstate(over="ignore"):
        mean = np.unique(labels[kept]).mean()
    if not np.isfinite(mean):
        raise InputError("labels are too large to be smoothed: scale them, or set smoothing to 0")
    smoothed: NDArray[np.float64] = labels * (1 - smoothing) + smoothing * mean
    return smoothed  # (rows,)


def _sample(rows: Labelled, kept: NDArray[np.bool_], count: int, seed: int) -> Pairs:
    """Draw the sampled pairs."""
    none = np.empty(0, np.int64)
    if not count:
        return none, none
    firsts, seconds = (_in_order(codes[kept]) for codes in rows.codes)
    if len(firsts) == 1:
        log.warning("no sampled pairs: all rows have the same first text")
        return none, none
    # Partners of dropped rows are partners too.
    first, second = rows.codes
    pairs = draw_pairs(firsts, seconds, (first, second), rows.hashes, count=count, seed=seed)
    wanted = count * len(firsts)
    if len(pairs[0]) < wanted:
        log.warning(
            "%d of %d sampled pairs: too few second texts of other inputs", len(pairs[0]), wanted
        )
    return pairs


def _in_order(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct codes in the order they first come."""
    return codes[np.sort(np.unique(codes, return_index=True)[1])]


def _split(
    rows: Labelled,
    kept: NDArray[np.bool_],
    pairs: Pairs,
    numbers: NDArray[np.float64] | None,
    share: float,
    seed: int,
) -> NDArray[np.bool_]:
    """Return which of the kept rows, then the sampled pairs, go to validation."""
    codes = [column[kept] for column in rows.codes]
    # Of the labels as they came, so that smoothing changes nobody's split; 0 is the hash of 0.0.
    hashes, labels = rows.label_hashes[kept], rows.labels[kept]
    if numbers is not None:
        zeros = np.zeros(len(pairs[0]))
        values = np.append(numbers[kept], zeros)
        labels = np.unique(values, return_inverse=True)[1].astype(np.int64)
        hashes = np.append(hashes, zeros.view(np.uint64))
    if rows.is_pair:
        codes = [np.append(column, sampled) for column, sampled in zip(codes, pairs, strict=True)]
    keys = random_keys(seed, "validation", *(rows.hashes[column] for column in codes), hashes)
    origins = np.zeros(len(codes[0]), np.uint64)  # of sampled pairs the first text says enough
    origins[: kept.sum()] = source_hashes(rows.table)[kept]
    groups = group_rows(rows.hashes[codes[0]], origins)
    return validation_rows(labels, keys, share, numeric=numbers is not None, groups=groups)


def _sampled_rows(
    rows: Labelled, table: pa.Table, kept: NDArray[np.bool_], pairs: Pairs, seed: int
) -> pa.Table:
    """Return the sampled pairs as rows of a table."""
    if not len(pairs[0]):
        return table.slice(0, 0)
    places = np.flatnonzero(kept)[::-1]
    row_of = np.empty(len(rows.texts), np.int64)
    chosen = []
    for codes, sampled in zip(rows.codes, pairs, strict=True):
        row_of[codes[places]] = places  # written last, the first row with a text stays
        chosen.append(row_of[sampled])
    return sampled_table(table, chosen[0], chosen[1], seed)


def _ready_rows(
    rows: Labelled,
    table: pa.Table,
    kept: NDArray[np.bool_],
    added: pa.Table,
    side: NDArray[np.bool_],
) -> Dataset:
    """Return one split: what of the kept rows, then of the sampled pairs, is on its side."""
    mask = kept.copy()
    mask[kept] = side[: len(side) - len(added)]
    more = added.filter(pa.array(side[len(side) - len(added) :]))
    return _dataset(pa.concat_tables([table.filter(pa.array(mask)), more]), rows)


def _dropped_rows(rows: Labelled, reasons: NDArray[np.int8]) -> Dataset:
    dropped = reasons > 0
    names = pa.array(REASONS).take(pa.array(reasons[dropped]))
    table = rows.table.filter(pa.array(dropped)).append_column(DROP_REASON, names)
    return _dataset(table, rows)


def _dataset(table: pa.Table, rows: Labelled) -> Dataset:
    from datasets import Dataset, DatasetInfo, Value

    features = rows.features.copy()
    if DROP_REASON in table.column_names:
        features[DROP_REASON] = Value("string")
    if pa.types.is_float64(table.schema.field(LABEL).type):
        features[LABEL] = Value("float64")
    return Dataset(table.cast(features.arrow_schema), info=DatasetInfo(features=features))

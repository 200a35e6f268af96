"""Clean a labelled set, smooth its labels, add sampled pairs and split it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.examples import (
    LABEL_COLUMN,
    LabelledTable,
    Source,
    as_labelled,
    open_rows,
    read_labelled_table,
)
from tilth.data.hashing import group_ids, random_keys, rank_in_group
from tilth.data.labels import as_numbers
from tilth.data.near_duplicates import near_duplicates as find_near_duplicates
from tilth.data.negative_pairs import ROWS_AT_ONCE, draw_pairs, sampled_tables
from tilth.data.normalize import exact_keys, normalize_texts
from tilth.data.settings import MIN_LABEL_FIT, CurateOptions
from tilth.data.split import group_texts, source_hashes, validation_rows
from tilth.data.temp_arrow import open_arrow, temporary_arrow
from tilth.data.writer import DROP_REASON
from tilth.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

log = logging.getLogger(__name__)

EMPTY = "empty"
LABEL_FIT = "label-fit"
IDENTICAL = "identical-pair"
DUPLICATE = "duplicate"
NEAR_DUPLICATE = "near-duplicate"
OVER_PER_LABEL = "over-per-label"
# A row's code is the place of its reason, 0 for kept rows.
REASONS = ("", EMPTY, LABEL_FIT, IDENTICAL, DUPLICATE, NEAR_DUPLICATE, OVER_PER_LABEL)
FIT = "label_fit"  # a column of generated sets

# DINO, Schick and Schütze 2021, section 4 and the released code.
SMOOTHING = 0.2
SAMPLED_PAIRS = 2
_CLASSES = "may be classes (three or more whole numbers from 0 on)"
_OF_ONE_ORIGIN = 64  # rows, at most: more have an origin that says little

# Codes of the first and second texts of pairs.
Pairs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Curated:
    """Hold the splits, the dropped rows and the counts of a curated set.

    Attributes:
        train: kept rows in their order, then sampled pairs.
        validation: likewise.
        dropped: all other rows, with their original labels and a column `drop_reason`.
        counts: rows in, each drop reason, sampled pairs, train, validation.
        settings: as applied, defaults filled in.
    """

    train: Dataset
    validation: Dataset
    dropped: Dataset
    counts: dict[str, int]
    settings: dict[str, Any]


def curate(
    dataset: Source,
    *,
    smoothing: float | None = None,
    sampled_pairs: int | None = None,
    per_label: int = 2,
    validation_share: float = 0.1,
    near_duplicates: float | None = None,
    min_label_fit: float = MIN_LABEL_FIT,
    seed: int = 0,
) -> DatasetDict:
    """Clean a labelled set as the DINO paper does and split it.

    Drops, in this order: rows that do not fit their label, rows with a blank text, identical pairs,
    exact duplicates, near duplicates (if requested), more than `per_label` second texts for one
    (first text, label). Then labels are smoothed, sampled pairs added, and rows split by label.

    Texts are compared without surrounding white space. Rows keep their order; random choices follow
    from seed and content. Rows of one first text, `source_id` or `source_row` are in one split; the
    paper splits row by row.

    Args:
        dataset: a data set, a list of rows, or what `read_rows` reads, with columns text_a,
            text_b, label, or text, label, or of other usual names; other columns are kept. Labels
            of pairs that are written as numbers ("0.5") count as numbers. Options: `CurateOptions`.

    Returns:
        The splits train and validation.

    Raises:
        InputError: a setting is out of range or cannot apply, a column is missing or has another
            type, or no row is left.

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

    options = CurateOptions(
        smoothing=smoothing,
        sampled_pairs=sampled_pairs,
        per_label=per_label,
        validation_share=validation_share,
        near_duplicates=near_duplicates,
        min_label_fit=min_label_fit,
        seed=seed,
    )
    curated = curate_rows(as_labelled(open_rows(dataset, "train")[0], None, None), options)
    return DatasetDict({"train": curated.train, "validation": curated.validation})


def curate_rows(dataset: Dataset, options: CurateOptions) -> Curated:
    """Curate a labelled set as `curate` does; return the dropped rows and all counts, too."""
    rows = read_labelled_table(dataset)
    options = replace(
        options,
        smoothing=_smoothing(rows, options.smoothing),
        sampled_pairs=_sampled_pairs(rows, options.sampled_pairs),
    )
    fit = _fit(rows)
    if options.min_label_fit > MIN_LABEL_FIT and fit is None:
        raise InputError(
            f"min-label-fit is {options.min_label_fit:g}, but there is no column {FIT!r} of "
            "numbers: leave it out"
        )
    reasons = _drop_reasons(rows, fit, options)
    counts = _count_drops(rows, reasons, options)
    if fit is None:
        del counts[LABEL_FIT]
    kept = reasons == 0
    if not kept.any():
        why = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        raise InputError(f"no row is left of {len(rows)} ({why}): give a set with other rows")
    _warn_of_lost_labels(rows, kept)
    _warn_of_conflicts(rows, kept)
    table, labels = rows.table, rows.numbers
    if labels is not None and options.smoothing:
        labels = _smooth(labels, kept, options.smoothing)
        table = table.set_column(
            table.column_names.index(LABEL_COLUMN), LABEL_COLUMN, pa.chunked_array([labels])
        )
    pairs = _sample(rows, kept, options)
    held_out = _split(rows, kept, pairs, options)
    firsts, seconds = _rows_of_pairs(rows, kept, pairs)

    def split(side: NDArray[np.bool_]) -> Dataset:
        """Make the rows of a split, of those that are kept, then sampled."""
        own, count = kept.copy(), len(side) - len(firsts)
        own[kept], drawn = side[:count], side[count:]
        sampled = sampled_tables(table, firsts[drawn], seconds[drawn], options.seed)
        return _dataset(chain(_filtered(table, own), sampled), rows, table.schema)

    train, held = split(~held_out), split(held_out)
    if options.validation_share and not len(held):
        log.warning(
            "no validation rows: for a share of %g every label is too rare, or too many of its "
            "rows have one source or first text",
            options.validation_share,
        )
    names = pa.array(REASONS).take(pa.array(reasons))
    dropped = rows.table.append_column(DROP_REASON, names)
    return Curated(
        train,
        held,
        _dataset(_filtered(dropped, ~kept), rows, dropped.schema),
        {
            "rows in": len(rows),
            **counts,
            "sampled pairs": len(firsts),
            "train": len(train),
            "validation": len(held),
        },
        asdict(options),
    )


def _smoothing(rows: LabelledTable, asked: float | None) -> float:
    """Return the label smoothing: the requested one, or the default."""
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
    if rows.is_pair and _may_be_classes(rows):
        log.warning("no smoothing: labels %s: ask for it where they are grades", _CLASSES)
        return 0.0
    return SMOOTHING if rows.is_pair else 0.0


def _may_be_classes(rows: LabelledTable) -> bool:
    """Return whether labels are three whole numbers or more, from 0 on, such as NLI's classes."""
    found = np.unique(rows.numbers if rows.numbers is not None else [])
    return len(found) > 2 and found[0] == 0 and bool((found == np.floor(found)).all())


def _sampled_pairs(rows: LabelledTable, asked: int | None) -> int:
    """Return the number of sampled pairs per first text: the requested one, or the default."""
    if not rows.is_pair:
        wrong = "rows are single texts"
    elif rows.numbers is None:
        wrong = f"their label is 0, and labels are no numbers, such as {rows.first_label!r}"
    elif rows.numbers.min() < 0:
        wrong = f"their label is 0, and the lowest label is {rows.numbers.min():g}"
        if asked is None:
            log.warning("no sampled pairs: %s", wrong)
    elif asked is None and _may_be_classes(rows):
        log.warning("no sampled pairs: labels %s: ask for some where 0 is unrelated", _CLASSES)
        return 0
    elif asked is None and 1 <= rows.numbers.min() < rows.numbers.max():
        log.warning(
            "no sampled pairs: their label is 0, and grades are %g to %g: where 0 is lower than "
            "all, ask for some", rows.numbers.min(), rows.numbers.max(),
        )  # fmt: skip
        return 0
    else:
        return SAMPLED_PAIRS if asked is None else asked
    if asked:
        raise InputError(f"sampled-pairs is {asked}, but {wrong}: leave it out")
    return 0


def _drop_reasons(
    rows: LabelledTable, fit: pa.ChunkedArray | None, options: CurateOptions
) -> NDArray[np.int8]:
    """Return the code of each row's drop reason, 0 for kept rows."""
    reasons = np.zeros(len(rows), np.int8)
    if fit is not None:
        below = pc.fill_null(pc.less(fit, options.min_label_fit), False)
        reasons[below.to_numpy()] = REASONS.index(LABEL_FIT)
    blank = pc.index(rows.texts, "").as_py()
    for codes in rows.codes:
        reasons[codes == blank] = REASONS.index(EMPTY)
    if rows.is_pair:
        first, second = rows.codes
        reasons[(first == second) & (reasons == 0)] = REASONS.index(IDENTICAL)
    alive = np.flatnonzero(reasons == 0)
    ranks = rank_in_group(group_ids(*(codes[alive] for codes in (*rows.codes, rows.labels))))
    reasons[alive[ranks > 0]] = REASONS.index(DUPLICATE)
    if options.near_duplicates is not None:
        alive = np.flatnonzero(reasons == 0)
        columns = tuple(codes[alive] for codes in rows.codes)
        near = find_near_duplicates(
            rows.texts, columns, rows.labels[alive], options.near_duplicates
        )
        reasons[alive[near]] = REASONS.index(NEAR_DUPLICATE)
    if rows.is_pair:
        alive = np.flatnonzero(reasons == 0)
        ranks = rank_in_group(group_ids(rows.codes[0][alive], rows.labels[alive]))
        reasons[alive[ranks >= options.per_label]] = REASONS.index(OVER_PER_LABEL)
    return reasons  # (rows,)


def _fit(rows: LabelledTable) -> pa.ChunkedArray | None:
    """Return how well each row fits its label, where a column of numbers says so."""
    if FIT not in rows.table.column_names:
        return None
    try:
        return as_numbers(rows.table[FIT], pa.float64())
    except pa.ArrowException:
        return None


def _count_drops(
    rows: LabelledTable, reasons: NDArray[np.int8], options: CurateOptions
) -> dict[str, int]:
    """Count the rows of each applicable drop reason."""
    numbers = np.bincount(reasons, minlength=len(REASONS)).tolist()
    counts = dict(zip(REASONS[1:], numbers[1:], strict=True))
    if not rows.is_pair:
        del counts[IDENTICAL], counts[OVER_PER_LABEL]
    if options.near_duplicates is None:
        del counts[NEAR_DUPLICATE]
    return counts


def _smooth(
    labels: NDArray[np.float64], kept: NDArray[np.bool_], smoothing: float
) -> NDArray[np.float64]:
    """Move labels towards the mean of the distinct labels of kept rows: y * (1 - e) + e * mean."""
    with np.errstate(over="ignore"):
        mean = np.unique(labels[kept]).mean()
    if not np.isfinite(mean):
        raise InputError("labels are too large to be smoothed: scale them, or set smoothing to 0")
    smoothed: NDArray[np.float64] = labels * (1 - smoothing) + smoothing * mean
    return smoothed  # (rows,)


def _sample(rows: LabelledTable, kept: NDArray[np.bool_], options: CurateOptions) -> Pairs:
    """Draw the sampled pairs."""
    count = options.sampled_pairs
    none = np.empty(0, np.int64)
    if not count:
        return none, none
    firsts, seconds = (_in_order(codes[kept]) for codes in rows.codes)
    if len(firsts) == 1:
        log.warning("no sampled pairs: all rows have the same first text")
        return none, none
    # Partners of dropped rows are partners too.
    spelt = pc.dictionary_encode(normalize_texts(rows.texts)).indices.to_numpy().astype(np.int64)
    pairs = draw_pairs(
        firsts, seconds, _partners(rows), rows.hashes, spelt, count=count, seed=options.seed
    )
    wanted = count * len(firsts)
    if len(pairs[0]) < wanted:
        log.warning(
            "%d of %d sampled pairs: too few second texts of other inputs", len(pairs[0]), wanted
        )
    return pairs


def _partners(rows: LabelledTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return codes of the texts that are no sampled pair: of all rows, and of one origin.

    Rewrites of a pair have its origin: any two of their texts may mean the same.
    """
    first, second = rows.codes
    sources = source_hashes(rows.table)
    order = np.argsort(sources, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(sources[order])) + 1)
    crossed = [
        np.meshgrid(first[group], second[group])
        for group in groups
        if sources[group[0]] and len(group) <= _OF_ONE_ORIGIN and len({*first[group].tolist()}) > 1
    ]
    return (
        np.concatenate([first, *(one.ravel() for one, _ in crossed)]),
        np.concatenate([second, *(two.ravel() for _, two in crossed)]),
    )


def _warn_of_lost_labels(rows: LabelledTable, kept: NDArray[np.bool_]) -> None:
    """Name the classes of which all rows are dropped: a model trained on the rest lacks them."""
    if _is_graded(rows):
        return
    lost = np.setdiff1d(rows.labels, rows.labels[kept])
    firsts = [int(np.argmax(rows.labels == label)) for label in lost]
    if firsts:
        names = ", ".join(repr(str(rows.table[LABEL_COLUMN][first])) for first in firsts)
        log.warning("no row is left of label %s: a model trained on the rest lacks it", names)


def _warn_of_conflicts(rows: LabelledTable, kept: NDArray[np.bool_]) -> None:
    """Warn of texts or pairs that are kept with several labels."""
    ranks = rank_in_group(group_ids(*(codes[kept] for codes in rows.codes)))
    if count := int((ranks == 1).sum()):
        what = "pairs" if rows.is_pair else "texts"
        log.warning("%d %s occur more than once with different labels; all are kept", count, what)


def _in_order(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct codes in order of first occurrence."""
    return codes[np.sort(np.unique(codes, return_index=True)[1])]


def _rows_of_pairs(rows: LabelledTable, kept: NDArray[np.bool_], pairs: Pairs) -> Pairs:
    """Return the first kept rows that hold the texts of sampled pairs."""
    if not len(pairs[0]):
        return pairs
    places = np.flatnonzero(kept)[::-1]
    row_of = np.empty(len(rows.texts), np.int64)
    chosen = []
    for codes, sampled in zip(rows.codes, pairs, strict=True):
        row_of[codes[places]] = places  # written last, the first row with a text stays
        chosen.append(row_of[sampled])
    return chosen[0], chosen[1]


def _split(
    rows: LabelledTable,
    kept: NDArray[np.bool_],
    pairs: Pairs,
    options: CurateOptions,
) -> NDArray[np.bool_]:
    """Return which of the kept rows, then of the sampled pairs, go to validation."""
    codes = [column[kept] for column in rows.codes]
    # Of the labels as they came, so that smoothing changes nobody's split; 0 is the hash of 0.0.
    hashes, labels = rows.label_hashes[kept], rows.labels[kept]
    if rows.numbers is not None:
        zeros = np.zeros(len(pairs[0]))
        values = np.append(rows.numbers[kept], zeros)
        labels = np.unique(values, return_inverse=True)[1].astype(np.int64)
        hashes = np.append(hashes, zeros.view(np.uint64))
    if rows.is_pair:
        codes = [np.append(column, sampled) for column, sampled in zip(codes, pairs, strict=True)]
    text_keys = [rows.hashes[column] for column in codes]
    keys = random_keys(options.seed, "validation", *text_keys, hashes)
    sources = np.zeros(len(codes[0]), np.uint64)  # sampled pairs are grouped by first text alone
    sources[: kept.sum()] = source_hashes(rows.table)[kept]
    plain = exact_keys(rows.texts)
    groups = group_texts([plain[column] for column in codes], sources)
    return validation_rows(
        labels, keys, options.validation_share, numeric=_is_graded(rows), groups=groups
    )


def _is_graded(rows: LabelledTable) -> bool:
    """Tell whether labels are grades: numbers, of single texts with fractions."""
    numbers = rows.numbers
    return numbers is not None and (rows.is_pair or bool((numbers % 1).any()))


def _filtered(table: pa.Table, chosen: NDArray[np.bool_]) -> Iterator[pa.Table]:
    """Yield the chosen rows of a table."""
    for start in range(0, len(table), ROWS_AT_ONCE):
        rows = chosen[start : start + ROWS_AT_ONCE]
        yield table.slice(start, ROWS_AT_ONCE).filter(pa.array(rows))


def _dataset(tables: Iterable[pa.Table], rows: LabelledTable, schema: pa.Schema) -> Dataset:
    """Return rows of a schema as a memory-mapped data set."""
    from datasets import Value

    features = rows.features.copy()
    if DROP_REASON in schema.names:
        features[DROP_REASON] = Value("string")
    if pa.types.is_float64(schema.field(LABEL_COLUMN).type):
        features[LABEL_COLUMN] = Value("float64")
    with temporary_arrow() as path:
        with pa.ipc.new_stream(str(path), features.arrow_schema) as writer:
            for table in tables:
                writer.write_table(table.cast(features.arrow_schema))
        return open_arrow(path)

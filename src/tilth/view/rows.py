"""Read the rows of any run as texts, label, drop reason, origin and numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.data.examples import PAIRS, TOKENS
from tilth.data.formats import SINGLE, usual_name, usual_names
from tilth.data.hashing import hash_of
from tilth.data.labels import is_list, is_number, is_text, label_text, plain_label
from tilth.data.parquet import parquet_tables, schema_class_names
from tilth.data.writer import DROP_REASON
from tilth.errors import TilthError
from tilth.metrics.scores import spans
from tilth.runs import read_run_json

# Numbers of rows that are shown, filtered by and sorted by, where a run has them.
NUMBERS = (
    "similarity", "confidence", "meaning", "wording", "label_fit", "margin", "floor_share",
    "tokens", "tries",
)  # fmt: skip
WHOLE = ("tokens", "tries")  # of these, numbers without decimals
_LABELS = ("label", "labels", "predicted", "score")
_TAGS = ("tags", "ner_tags")
_SOURCES = ("origin", "source")  # columns that name where a row came from
GROUPS = ("source_id", "source_row", "query", "item")  # rows that were made from one input
_AT_ONCE = 2_048  # rows that are decoded together to find one
_ORIGINAL = "original"  # begins the names of columns of texts before they were rewritten


def canonical_tables(path: Path) -> Iterator[pa.Table]:
    """Yield a file's rows with the columns that the pages share.

    Columns: first (a pair's first text, or the text before it was rewritten; null), text, label,
    kinds (its classes where a row has a list of them, of tags the entity types; else null), reason,
    source, group, and those of `NUMBERS` that are there.

    Raises:
        InputError, pyarrow.ArrowException, OSError: the file cannot be read.
    """
    names, read = label_names(path), columns_read(path)
    for table in parquet_tables(path):
        yield canonical_table(table, names, read)


def canonical_table(
    table: pa.Table, names: Sequence[str] = (), read: Sequence[str] = ()
) -> pa.Table:
    """Return rows with the columns of `canonical_tables`.

    Args:
        names: of label numbers.
        read: as `columns_read` returns them.
    """
    first, second = text_columns(table.schema, read)
    labels, kinds = _labels(table, names)
    columns: dict[str, Any] = {
        "first": _joined(table, first),
        "text": pc.fill_null(_joined(table, second), ""),
        "label": pc.replace_with_mask(labels, pc.equal(labels, ""), pa.scalar(None, pa.string())),
        "kinds": kinds,
        "reason": _texts(table, DROP_REASON),
        "source": _texts(table, *_SOURCES),
        "group": _texts(table, *GROUPS),
    }
    for name in NUMBERS:
        if name in table.column_names and is_number(table.schema.field(name).type):
            columns[name] = table[name].cast(pa.float32(), safe=False)
    return pa.table(columns)


def label_names(path: Path) -> list[str]:
    """Return the class names of a file's label column by number; empty if it has none.

    The parts of a run hold no names: those of its data set are taken.
    """
    if path.parent.name == "parts":
        sets = sorted((path.parent.parent / "dataset").glob("*/*.parquet"))
        path = sets[0] if sets else path
    try:
        schema = pq.read_schema(path)
        return schema_class_names(schema).get(label_column(schema) or "", [])
    except (OSError, pa.ArrowException):
        return []


def label_column(schema: pa.Schema) -> str | None:
    """Return the column of labels; of rows of tokens, that of tags."""
    found = [name for name in TOKENS if name in schema.names]
    of_tokens = any(is_list(schema.field(name).type) for name in found)
    names = (*_TAGS, *_LABELS) if of_tokens else (*_LABELS, *_TAGS)
    return usual_name(names, schema.names)


def listed_labels(path: Path) -> list[str]:
    """Return the classes or tags of a file's rows with lists of them, alphabetically."""
    column = label_column(pq.read_schema(path))
    found: set[str] = set()
    for table in parquet_tables(path) if column is not None else ():
        if not is_list(kind := table.schema.field(column).type) or pa.types.is_nested(
            kind.value_type
        ):
            break
        values = pc.unique(pc.list_flatten(table[column])).to_pylist()
        found |= {str(value) for value in values if value not in (None, "")}
    return sorted(found)


def columns_read(path: Path) -> list[str]:
    """Return the columns that a run read its texts from, where it keeps their names.

    Args:
        path: the run, or a file in it.
    """
    for folder in (path, *path.parents[:3]):  # RUN/dataset/data/FILE
        if (folder / "run.json").is_file():
            with suppress(TilthError):
                found = read_run_json(folder)
                if found["command"] == "predict":
                    return [str(name) for name in found["settings"]["text"]]
            break
    return []


def text_columns(schema: pa.Schema, read: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the columns of first texts and of second, or only, texts.

    Args:
        read: these, if there are any.
    """
    names = schema.names
    if read and all(name in names for name in read):
        return list(read[:-1]), list(read[-1:])
    before = [name for name in names if name == _ORIGINAL or name.startswith(f"{_ORIGINAL}_")]
    if before:
        after = [name.removeprefix(f"{_ORIGINAL}_") for name in before]
        if before == [_ORIGINAL]:
            others = [name for name in names if name != _ORIGINAL]
            after = [usual_name(SINGLE, others) or others[0]] if others else []
        if all(name in names for name in after):
            return before, after
    if (pair := usual_names(PAIRS, names)) is not None:
        return [pair[0]], [pair[1]]
    texts = [field.name for field in schema if is_text(field.type)]
    if (name := usual_name(SINGLE, texts) or usual_name(TOKENS, names)) is not None:
        return [], [name]
    return [], texts[:1]


def detail_of(
    path: Path, offset: int, texts: tuple[str | None, str] | None = None
) -> dict[str, Any]:
    """Return all columns of one row of a file; `offset` counts from 0.

    Args:
        texts: its first and second text, which take longest to read, where they are known.
    """
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        known: dict[str, Any] = {}
        own = text_columns(file.schema_arrow, columns_read(path))
        for columns, text in zip(own, texts or (), strict=False):
            if len(columns) == 1 and is_text(file.schema_arrow.field(columns[0]).type):
                known[columns[0]] = text
        others = [name for name in names if name not in known]
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if offset < rows:
                for batch in file.iter_batches(_AT_ONCE, [group], others, use_threads=False):
                    if offset < len(batch):
                        known |= batch.slice(offset, 1).to_pylist()[0]
                        return {name: known[name] for name in names}
                    offset -= len(batch)
            offset -= rows
    raise LookupError(f"{path} has no such row")


def details_of(path: Path, offsets: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of some rows of a file, those that it has.

    Args:
        offsets: of the rows in the file, ascending.
    """
    found: list[dict[str, Any]] = []
    with pq.ParquetFile(path) as file:
        names = [name for name in columns if name in file.schema_arrow.names]
        if not names:
            return [{} for _ in offsets]
        first = 0
        for batch in file.iter_batches(_AT_ONCE, columns=names, use_threads=False):
            begun = len(found)
            own = offsets[begun : bisect_left(offsets, first + len(batch), begun)]
            found += batch.take(pa.array([one - first for one in own], pa.int64())).to_pylist()
            first += len(batch)
    return found


def row_key(first: str | None, text: str, label: str | None) -> str:
    """Return the id of a row's content, the same in parts, data set and curated set.

    Labels that are numbers count as such: "1" in parts is 1.0 in the data set.
    """
    return hash_of(first, text, plain_label(label))


def _joined(table: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    """Return the texts of columns, one a line; null where all are."""
    if not columns:
        return pa.chunked_array([pa.nulls(len(table), pa.string())])
    found = [_as_text(table[name]) for name in columns]
    if len(found) == 1:
        return found[0]
    return pc.binary_join_element_wise(*found, "\n", null_handling="skip")


def _texts(table: pa.Table, *names: str) -> pa.ChunkedArray:
    name = next((name for name in names if name in table.column_names), None)
    if name is None:
        return pa.chunked_array([pa.nulls(len(table), pa.string())])
    return _as_text(table[name])


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if is_list(kind):
        rows = [None if row is None else " ".join(map(str, row)) for row in column.to_pylist()]
        return pa.chunked_array([pa.array(rows, pa.string())])
    if pa.types.is_nested(kind):
        rows = [None if row is None else str(row) for row in column.to_pylist()]
        return pa.chunked_array([pa.array(rows, pa.string())])
    return column.cast(pa.string())


def _labels(table: pa.Table, names: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Return labels as texts (classes joined, of tags the entities), and the lists of kinds."""
    column = label_column(table.schema)
    no_kinds = pa.nulls(len(table), pa.list_(pa.string()))
    if column is None:
        return pa.nulls(len(table), pa.string()), no_kinds
    values = table[column].combine_chunks()
    kind = values.type
    if is_text(kind) or (pa.types.is_nested(kind) and not is_list(kind)):
        return pc.utf8_trim_whitespace(_as_text(table[column]).combine_chunks()), no_kinds
    listed = (name for name in TOKENS if name in table.column_names)
    of_tokens = next((name for name in listed if is_list(table.schema.field(name).type)), None)
    tokens = None if of_tokens is None else [row or [] for row in table[of_tokens].to_pylist()]
    if not is_list(kind):
        distinct = pc.dictionary_encode(values)  # few distinct labels
        said = [
            None if one is None else label_text(one, names)
            for one in distinct.dictionary.to_pylist()
        ]
        return pa.array(said, pa.string()).take(distinct.indices), no_kinds
    rows: list[tuple[str | None, list[str] | None]] = []
    for place, value in enumerate(values.to_pylist()):
        if value is None:
            rows.append((None, None))
            continue
        if tokens:
            classes = ["O" if one is None else label_text(one, names) for one in value]
            found = spans(classes)
            entities = [f"{kind}: {' '.join(tokens[place][a:b])}" for kind, a, b in found]
            rows.append(
                (
                    "; ".join(entities) or "no entity",
                    list(dict.fromkeys(kind for kind, *_ in found)),
                )
            )
        else:
            classes = [label_text(one, names) for one in value if one is not None]
            rows.append((", ".join(classes) or "none", list(dict.fromkeys(classes))))
    texts, kinds = zip(*rows, strict=True) if rows else ((), ())
    return pa.array(texts, pa.string()), pa.array(kinds, pa.list_(pa.string()))

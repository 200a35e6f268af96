"""Read the labelled examples of a task (single texts, pairs or tagged tokens) from any source.

`read_examples` gives lists to train on, `read_labelled_table` a table with codes to curate.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.formats import (
    NUMBER,
    SINGLE,
    check_column,
    head_hint,
    rows_of_file,
    usual_name,
    usual_names,
)
from tilth.data.hashing import text_hashes
from tilth.data.labels import (
    HOLDS,
    Labels,
    Where,
    check_labels,
    decode_dictionary,
    first_true,
    is_list,
    is_text,
    read_labels,
    read_tags,
    refuse_missing,
)
from tilth.data.readers import read_rows, row_location
from tilth.data.sources import fetched, locate, named_split, source_name, usual_split
from tilth.data.temp_arrow import TempArrowWriter
from tilth.data.writer import DROP_REASON
from tilth.errors import InputError
from tilth.files import check_input

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, Features
    from pandas import DataFrame  # type: ignore[import-untyped]

Names: TypeAlias = "tuple[str | Sequence[str] | None, str | None]"  # of texts, of labels

log = logging.getLogger(__name__)

Source: TypeAlias = "str | Path | Dataset | DatasetDict | DataFrame | Sequence[Mapping[str, Any]]"

# Usual column names, by precedence.
TOKENS = ("tokens", "words")
PAIRS = (
    ("text_a", "text_b"), ("premise", "hypothesis"), ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"), ("sentence_A", "sentence_B"), ("question1", "question2"),
    ("question", "sentence"), ("text1", "text2"),
)  # fmt: skip
# Of graded pairs, any of one with any of the other.
FIRST_TEXT = (
    "text_a", "sentence1", "sentence_1", "sentence_a", "sentence_A", "text1", "sent1"
)  # fmt: skip
SECOND_TEXT = (
    "text_b", "sentence2", "sentence_2", "sentence_b", "sentence_B", "text2", "sent2"
)  # fmt: skip
LABEL = ("label", "labels", "score", "similarity_score")
TAGS = ("tags", "ner_tags", "labels")
PAIR_COLUMNS = ("text_a", "text_b")
SPLIT = "split"  # a column that divides the rows
_SPLITS_SHOWN = 5  # more values are no splits
TEXT_COLUMNS = ("text",)
LABEL_COLUMN = "label"


@dataclass(frozen=True, slots=True)
class Examples:
    """Hold the checked rows of a labelled set.

    Attributes:
        texts: one text, two of a pair, or tokens joined by spaces, stripped. # (rows,)
        tokens: None for other texts than tagged tokens. # (rows,)
        labels: None where the set has none and none was requested.
        columns: the text columns, one or two.
        places: rows of the set, if some of it were left out; None: all rows in order. # (rows,)
    """

    texts: list[tuple[str, ...]]
    tokens: list[list[str]] | None
    labels: Labels | None
    columns: tuple[str, ...]
    label_column: str | None
    places: NDArray[np.int64] | None = None

    @property
    def kind(self) -> Literal["single", "pair", "tokens"]:
        """Return the kind of a row's input."""
        if self.tokens is not None:
            return "tokens"
        return "pair" if len(self.columns) == 2 else "single"

    @property
    def sentences(self) -> list[str]:
        """Return the texts of all rows, row by row."""
        return [text for texts in self.texts for text in texts]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.texts)

    def place(self, row: int) -> int:
        """Return which row of the set a row is."""
        return row if self.places is None else int(self.places[row])

    def select(self, rows: Sequence[int]) -> Examples:
        """Return rows in the given order; classes are those that occur."""
        return replace(
            self,
            texts=[self.texts[row] for row in rows],
            tokens=None if self.tokens is None else [self.tokens[row] for row in rows],
            labels=None if self.labels is None else self.labels.select(rows),
            places=None if self.places is None else self.places[list(rows)],
        )


def read_examples(
    source: Source,
    *,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    split: str = "train",
    need_label: bool = True,
) -> Examples:
    """Read and check the labelled examples of a task.

    Args:
        source: a data set, its splits, a list of rows, or a path or name: a file, a folder, a run
            (its curated set if it has one), a hub data set.
        text: the column of texts, or the two of pairs, or that of tokens. Default: tokens beside
            tags, a usual pair of names (`text_a` and `text_b`, `premise` and `hypothesis`, ...),
            `text`, `sentence`, or else the only column of strings.
        label: the column of labels. Default: `label`, `labels` or `score`; for tokens `tags`,
            `ner_tags` or `labels`.
        need_label: refuse a set without labels. Labels present are read and checked in any case.
            Rows with neither text nor label are left out, with a warning.

    Raises:
        InputError: a column is missing or of another type, a text is empty, a label is missing,
            or tags do not match their tokens; the message names file and line.

    Example:
        >>> rows = [{"text": "Rain.", "label": "weather"}, {"text": "Two all.", "label": "sport"}]
        >>> examples = read_examples(rows)
        >>> examples.texts, examples.labels.classes
        ([('Rain.',), ('Two all.',)], ['sport', 'weather'])
    """
    source = prefer_curated(source)
    dataset, name = open_rows(source, split)
    if not len(dataset):
        raise InputError(f"{name}the set has no rows: give one with labelled texts")
    tagged = label is not None or any(column in dataset.column_names for column in TAGS)
    columns = input_columns(dataset, name, text, tagged=tagged, label=label)
    is_tokens = pa.types.is_nested(_type(dataset, columns[0]))
    if is_tokens and len(columns) == 2:
        raise InputError(f"{name}columns {' and '.join(columns)} hold lists: name one of tokens")
    usual = TAGS if is_tokens else LABEL
    label_column = _label_column(dataset, name, label, columns, usual, need_label)
    wanted = [*columns, *([label_column] if label_column else [])]
    table = dataset.select_columns(wanted).with_format("arrow")[:]
    if (places := rows_of_split(dataset, split, name)) is not None:
        table = table.take(places)
    if label_column is not None and (is_blank := _blank_rows(table)).any():
        filled = np.flatnonzero(~is_blank)
        if not len(filled):
            raise InputError(f"{name}no row has a text or a label: give a set with some")
        log.warning(
            "%s%s rows have neither text nor label and are left out", name, int(is_blank.sum())
        )
        places = filled if places is None else places[filled]
        table = table.take(filled)

    def where(row: int) -> str:
        return row_location(source, row if places is None else int(places[row]), split)

    tokens, labels = None, None
    texts: list[tuple[str, ...]]
    if is_tokens:
        tokens = _tokens(table[columns[0]], columns[0], where, name)
        texts = [(" ".join(row).strip(),) for row in tokens]
    else:
        sides = [trimmed_texts(table[side], side, where, name).to_pylist() for side in columns]
        texts = list(zip(*sides, strict=True))
    if label_column is not None:
        values, feature = table[label_column], dataset.features[label_column]
        labels = (
            read_labels(values, feature, label_column, where)
            if tokens is None
            else read_tags(values, feature, label_column, tokens, where)
        )
    return Examples(texts, tokens, labels, columns, label_column, places)


def may_be_divided(source: str | Path) -> bool:
    """Tell whether a file has a column `split`, by its first rows."""
    found = locate(source)
    if not isinstance(found, list) or len(found) > 1:
        return False
    _, row = next(rows_of_file(found[0]), (0, dict[str, Any]()))
    return any(name.lower() == SPLIT for name in row)


def rows_of_split(dataset: Dataset, split: str, name: str = "") -> NDArray[np.int64] | None:
    """Return the rows that a column `split` puts into a split; None: no column divides the rows.

    Args:
        name: begins the message.

    Raises:
        InputError: none is in the split.
    """
    column = next((one for one in dataset.column_names if one.lower() == SPLIT), None)
    if column is None or not is_text(_type(dataset, column)):
        return None
    values = dataset.select_columns([column]).with_format("arrow")[:][column]
    found = pc.unique(values).to_pylist()
    splits = {value: usual_split(value) for value in found[: _SPLITS_SHOWN + 1]}
    if not 1 < len(found) <= _SPLITS_SHOWN or None in splits.values():
        return None
    wanted = usual_split(split) or split
    rows = np.flatnonzero([splits[value] == wanted for value in values.to_pylist()])
    if not len(rows):
        raise InputError(f"{name}no split {split!r}: column {column!r} has {', '.join(found)}")
    log.warning(
        "%sby its column %r, %s of %s rows are read: those of %s", name, column, f"{len(rows):,}",
        f"{len(dataset):,}", split,
    )  # fmt: skip
    return rows


def _blank_rows(table: pa.Table) -> NDArray[np.bool_]:
    """Return which rows hold nothing, as those of `tilth predict` for rows without text."""
    blank = np.ones(len(table), bool)
    for column in map(decode_dictionary, table.columns):
        empty = pc.is_null(column)
        if is_text(column.type):
            empty = pc.or_(empty, pc.equal(pc.fill_null(pc.utf8_trim_whitespace(column), ""), ""))
        blank &= empty.to_numpy()
    return blank


def prefer_curated(source: Source) -> Source:
    """Return the folder of a run's curated set, or the source itself where there is none."""
    if isinstance(source, str | Path):
        folder = fetched(source)
        check_input(folder)
        if (folder / "run.json").is_file() and (folder / "curated").is_dir():
            return folder / "curated"
    return source


def open_rows(source: Source, split: str, *, tell: bool = False) -> tuple[Dataset, str]:
    """Return the rows of any source, and its name for messages; a string in a list is a text.

    `tell` warns that the files of other splits are not read.
    """
    from datasets import Dataset, DatasetDict

    if isinstance(source, Dataset):
        return source, ""
    if isinstance(source, DatasetDict):
        if (rows := named_split(source, split)) is None:
            raise InputError(f"no split {split!r}: there are {', '.join(source)}")
        return rows, ""
    if isinstance(source, str | Path):
        return read_rows(source, split=split, tell=tell), f"{source}: "
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        try:
            return Dataset.from_pandas(source, preserve_index=False), ""
        except (pa.ArrowException, ValueError, TypeError):  # a column of several types
            frame: Any = source.rename(columns=str)  # type: ignore[union-attr]
            if not frame.columns.is_unique:
                raise InputError("the data frame has two columns of one name: rename one") from None
            source = frame.astype(object).where(frame.notna(), None).to_dict("records")
    elif hasattr(source, "tolist"):  # an array, or a series of pandas
        column: Any = source
        if hasattr(column, "notna"):
            column = column.astype(object).where(column.notna(), None)
        source = column.tolist()
    if not isinstance(source, Sequence):
        raise InputError(
            f"the rows are of type {type(source).__name__}: give a data set, a list of dicts, a "
            "data frame of pandas, or the name of a file or folder"
        )
    if not len(source):
        raise InputError("the list has no rows: give some")
    is_texts = all(row is None or isinstance(row, str) for row in source)
    with TempArrowWriter("the list") as writer:
        for number, row in enumerate(source):
            location = row_location(source, number, split)
            if isinstance(row, str) or is_texts:
                row = {"text": row}
            if not isinstance(row, Mapping):
                raise InputError(
                    f"{location}: {row!r:.60} is no row: give texts, or dicts such as "
                    '{"text": ..., "label": ...}'
                )
            writer.add(dict(row), location)
        return writer.dataset(), ""


def listed_texts(given: Any, name: str, *, empty: bool = False) -> list[str]:
    """Return the texts of a list, or of the column `text` of a data set or data frame.

    Args:
        name: of the argument, for messages.
        empty: texts without a word are allowed.
    """
    if isinstance(given, str | Path):
        raise InputError(f"{name} is one text, {str(given)!r:.80}: give a list of texts")
    names = getattr(given, "column_names", getattr(given, "columns", None))
    unordered = isinstance(given, Mapping | Set)
    if names is None and (unordered or not hasattr(given, "__iter__")):
        raise InputError(f"{name} is of type {type(given).__name__}: give a list of texts")
    if names is not None and (count := list(names).count("text")) != 1:
        has, there = "two columns" if count else "no column", ", ".join(map(str, names))
        raise InputError(f"the {name} have {has} 'text': there are {there}")
    column = given if names is None else given["text"]
    texts = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    for number, text in enumerate(texts):
        where = f"{name}[{number}]" if names is None else f"{name}, column 'text', row {number},"
        if not isinstance(text, str) or not (empty or text.strip()):
            raise InputError(f"{where} is {text!r:.80}: every one is a text")
        if "\0" in text:
            raise InputError(f"{where} holds a NUL character: remove it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            bad = text[error.start]
            raise InputError(f"{where} holds half a character, {bad!r}: remove it") from None
    return texts


def make_room(rows: Dataset, added: Sequence[str], used: Sequence[str], name: str) -> Dataset:
    """Rename columns in the way of new ones to `before_NAME`, except those in `used`."""
    taken: dict[str, str] = {}
    for column in added:
        while column in rows.column_names:  # also an earlier `before_NAME`, of a set made so
            taken[column] = f"before_{column}"
            column = taken[column]
    if clash := set(taken) & set(used):
        column = min(clash)
        raise InputError(f"{name}column {column!r} is in the way of a new one: rename it")
    return rows.rename_columns(taken)


def input_columns(
    dataset: Dataset,
    name: str,
    text: str | Sequence[str] | None,
    *,
    tagged: bool,
    label: str | None = None,
) -> tuple[str, ...]:
    """Return the column of texts of a set, the two of pairs, or that of tokens.

    `name` begins messages; `tagged` prefers tokens to texts; `label` is never a text column.
    """
    names = dataset.column_names
    if text is not None:
        chosen = tuple(text) if isinstance(text, list | tuple) else (str(text),)
        if len(chosen) == 1 and chosen[0] not in names:  # two, as the command line takes them
            chosen = tuple(one.strip() for one in chosen[0].split(","))
        if len(chosen) not in (1, 2) or len(set(chosen)) < len(chosen):
            raise InputError(f"text names {len(chosen)} columns: name one, or two different ones")
        for column in chosen:
            check_column(column, names, name)
        return chosen
    for column in TOKENS:
        if tagged and column in names and pa.types.is_nested(_type(dataset, column)):
            return (column,)
    if (pair := usual_names(PAIRS, names)) is not None:
        return pair
    single = usual_name(SINGLE, names)
    if single is not None:
        return (single,)
    flat = usual_name(TOKENS, names) if tagged else None
    if flat is not None:
        raise InputError(f"{name}column {flat!r} holds no lists of tokens, which a tagger reads")
    others = {SPLIT, *(one.lower() for one in ([label] if label else LABEL))}
    strings = [n for n in names if n.lower() not in others and is_text(_type(dataset, n))]
    if len(strings) == 1:
        return (strings[0],)
    raise InputError(
        f"{name}which column holds the texts: name it with --text (in Python text), or the two of "
        f"pairs; there are {', '.join(names)}{head_hint(names)}"
    )


def with_usual_names(rows: Dataset, text: str | Sequence[str] | None, label: str | None) -> Dataset:
    """Return rows with the named columns as text, or text_a and text_b, and label.

    Other columns with these names are removed; None: a column has its usual name.
    """
    new: dict[str, str] = {}
    if text is not None:
        chosen = input_columns(rows, "", text, tagged=False)
        new = dict(zip(chosen, PAIR_COLUMNS if len(chosen) == 2 else TEXT_COLUMNS, strict=True))
    if label is not None:
        check_column(label, rows.column_names, "")
        if label in new:
            raise InputError(f"column {label!r} holds the texts: name that of the labels")
        new[label] = LABEL_COLUMN
    others = [name for name in new.values() if name in rows.column_names and name not in new]
    return rows.remove_columns(others).rename_columns(new)


def as_labelled(rows: Dataset, text: str | Sequence[str] | None, label: str | None) -> Dataset:
    """Return rows as `with_usual_names` does; None: columns of any usual name are found."""
    names = rows.column_names
    if label is None:
        label = usual_name(LABEL, names)
    if text is None:
        sides = (FIRST_TEXT, SECOND_TEXT)
        pair = [usual_name(side, names) for side in sides]
        if all(pair):
            text = list(map(str, pair))
        elif not {*TEXT_COLUMNS, *PAIR_COLUMNS} & set(names):
            text = input_columns(rows, "", None, tagged=False, label=label)
    return with_usual_names(rows, text, label)


def check_texts(model: str, texts: int | None, columns: Sequence[str], where: str) -> None:
    """Refuse pairs for a model of single texts, and the reverse.

    Args:
        texts: of an input of the model; None: it is not known.
        where: begins the message.
    """
    if texts == 1 and len(columns) == 2:
        raise InputError(
            f"{where}columns {' and '.join(columns)} hold pairs, and {model!r} reads single texts: "
            "name one column with --text"
        )
    if texts == 2 and len(columns) == 1:
        raise InputError(
            f"{where}column {columns[0]!r} holds single texts, and {model!r} reads pairs: name two "
            "columns with --text FIRST,SECOND"
        )


def refuse_other_form(
    examples: Examples, where: str, name: str, source: Source, *, kind: str, texts: int
) -> None:
    """Refuse a set whose rows have another form than those of the training set.

    Args:
        where: the first row.
        name: of the set.
        source: the training set.
        kind: of its labels.
        texts: of its inputs, 1 or 2.
    """
    assert examples.labels is not None
    begin, other = f"{where}: the {name} set has", source_name(source)
    if examples.labels.kind != kind:
        raise InputError(
            f"{begin} {HOLDS[examples.labels.kind]}, not {HOLDS[kind]} as {other}: name another "
            "column of labels, or another file"
        )
    if len(examples.columns) != texts:
        forms = {1: "single texts", 2: "pairs"}
        raise InputError(
            f"{begin} {forms[len(examples.columns)]} ({' and '.join(examples.columns)}), not "
            f"{forms[texts]} as {other}: name columns that both have, or another file"
        )


def _label_column(
    dataset: Dataset,
    name: str,
    label: str | None,
    texts: Sequence[str],
    usual: Sequence[str],
    need: bool,
) -> str | None:
    names = dataset.column_names
    if label is not None:
        check_column(label, names, name)
        if label in texts:
            raise InputError(f"{name}column {label!r} holds the texts: name that of the labels")
        return label
    found = usual_name(usual, [name for name in names if name not in texts])
    if found is None and need:
        raise InputError(
            f"{name}which column holds the labels: name it with --label (in Python label); there "
            f"are {', '.join(names)}"
        )
    return found


def _type(dataset: Dataset, column: str) -> pa.DataType:
    kind = dataset.data.schema.field(column).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def trimmed_texts(
    column: pa.ChunkedArray,
    name: str,
    where: Where,
    source: str = "",
    *,
    may_be_blank: bool = False,
) -> pa.ChunkedArray:
    """Check a column of texts; return them without surrounding white space."""
    column = decode_dictionary(column)
    if not (is_text(column.type) or pa.types.is_null(column.type)):
        raise InputError(f"{source}column {name!r} holds {column.type}: name one of texts")
    # Large: all texts of a set may be more than the 2 GB that an array of strings can hold.
    texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    is_empty = pc.is_null(texts) if may_be_blank else pc.equal(pc.fill_null(texts, ""), "")
    refuse_missing(is_empty, where, f"{name} is empty")
    return texts


def _tokens(column: pa.ChunkedArray, name: str, where: Where, source: str) -> list[list[str]]:
    kind = column.type
    if not (is_list(kind) and (is_text(kind.value_type) or pa.types.is_null(kind.value_type))):
        raise InputError(f"{source}column {name!r} holds {kind}: name one of texts or of tokens")
    rows: list[list[str]] = column.to_pylist()
    for row, tokens in enumerate(rows):
        if not tokens or None in tokens or not re.search(r"\S", "".join(tokens)):
            raise InputError(
                f"{where(row)}: {name} holds {tokens!r:.60}, no sentence: fill it in or remove "
                "the row"
            )
    return rows


@dataclass(frozen=True, slots=True)
class LabelledTable:
    """Hold checked rows of columns text_a, text_b, label, or text, label.

    Attributes:
        table: all original columns but drop_reason, labels of classes by name.
        columns: the text columns, ("text_a", "text_b") or ("text",).
        texts: the distinct texts, without surrounding white space. # (texts,)
        codes: for each text column, the index in `texts` of each row's text. # each (rows,)
        labels: codes of the labels, in numeric order where they are numbers. # (rows,)
        numbers: the labels, None where they are no numbers. # (rows,)
        hashes: of each of `texts`, the same on every machine. # (texts,)
        label_hashes: of each row's label. # (rows,)
    """

    table: pa.Table
    features: Features
    columns: tuple[str, ...]
    texts: pa.Array
    codes: tuple[NDArray[np.int64], ...]
    labels: NDArray[np.int64]
    numbers: NDArray[np.float64] | None
    hashes: NDArray[np.uint64]
    label_hashes: NDArray[np.uint64]

    @property
    def is_pair(self) -> bool:
        """Return whether rows are pairs of texts."""
        return self.columns == PAIR_COLUMNS

    @property
    def first_label(self) -> object:
        """Return the first row's label, for messages."""
        return self.table[LABEL_COLUMN][0].as_py()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)


def read_labelled_table(dataset: Dataset) -> LabelledTable:
    """Check and encode a labelled set; blank texts are left for `curate` to count and drop."""
    from datasets import Value

    names = dataset.column_names
    half_a_pair = bool(set(PAIR_COLUMNS) & set(names)) and TEXT_COLUMNS[0] not in names
    columns = PAIR_COLUMNS if half_a_pair or set(PAIR_COLUMNS) <= set(names) else TEXT_COLUMNS
    missing = [name for name in (*columns, LABEL_COLUMN) if name not in names]
    if missing:
        raise InputError(
            f"no column {missing[0]!r} among {', '.join(names) or 'none'}: a labelled set has "
            "text_a, text_b, label, or text, label: rename its columns, or name them with --text "
            "and --label where the command takes these"
        )
    if not len(dataset):
        raise InputError("the set has no rows: give one with labelled texts")
    table = dataset.with_format("arrow")[:].replace_schema_metadata(None)
    features = dataset.features.copy()
    if DROP_REASON in names:
        if (row := first_true(pc.is_valid(table[DROP_REASON]))) is not None:
            raise InputError(
                f"row {row} was dropped ({DROP_REASON} {table[DROP_REASON][row].as_py()!r}): give "
                "the kept rows of the set"
            )
        del features[DROP_REASON]
        table = table.drop_columns([DROP_REASON])

    def where(row: int) -> str:
        return row_location(dataset, row, "")

    texts, codes = _encode_texts(
        [trimmed_texts(table[name], name, where, may_be_blank=True) for name in columns]
    )
    label = check_labels(table[LABEL_COLUMN], features[LABEL_COLUMN], LABEL_COLUMN, where)
    if columns == PAIR_COLUMNS and is_text(label.type):  # such as "0.5", as keys of a task spec are
        are_numbers = pc.match_substring_regex(pc.unique(label), f"^{NUMBER}$")
        label = label.cast(pa.float64()) if pc.all(are_numbers).as_py() else label
        check_labels(label, None, LABEL_COLUMN, where)
    numbers = None
    if is_text(label.type) or pa.types.is_boolean(label.type):
        encoded = pc.dictionary_encode(label.cast(pa.large_string())).combine_chunks()
        labels = encoded.indices.to_numpy().astype(np.int64)
        label_hashes = text_hashes(encoded.dictionary)[labels]
    else:
        numbers = label.cast(pa.float64(), safe=False).to_numpy() + 0.0  # -0.0 is 0.0
        if columns == PAIR_COLUMNS:
            label = pa.chunked_array([numbers])
        labels = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        label_hashes = numbers.view(np.uint64)
    features[LABEL_COLUMN] = Value(
        "float64" if pa.types.is_float64(label.type) else str(label.type)
    )
    table = table.set_column(table.column_names.index(LABEL_COLUMN), LABEL_COLUMN, label)
    return LabelledTable(
        table, features, columns, texts, codes, labels, numbers, text_hashes(texts), label_hashes
    )


def _encode_texts(columns: list[pa.ChunkedArray]) -> tuple[pa.Array, tuple[NDArray[np.int64], ...]]:
    chunks = [chunk for column in columns for chunk in column.chunks]
    encoded = pc.dictionary_encode(pa.chunked_array(chunks, pa.large_string())).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    codes = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, tuple(np.split(codes, len(columns)))

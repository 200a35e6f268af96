"""Finds and parses files of STS sets: tilth's layout, SentEval's, SemEval's and the hub's."""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from tilth.data.examples import FIRST_TEXT, SECOND_TEXT, Source, open_rows
from tilth.data.formats import check_column, read_lines, rows_of_file
from tilth.data.sources import HubDataset, chosen_split, locate, source_name
from tilth.errors import InputError, TilthError
from tilth.files import check_input
from tilth.storage import as_path

# Usual names of each column: the first that exists is used, whatever its case.
_SCORE = ("score", "similarity_score", "relatedness_score", "similarity", "label")
_SUBSET = ("subset", "dataset")
_MAX_LINE_BYTES = 16_000_000
# In sts-test.csv: genre, filename, year, old_index, score, sentence1, sentence2, notes.
_BENCHMARK_FIELDS = 7

log = logging.getLogger(__name__)

DEFAULT_SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick")
KNOWN_SETS = (*DEFAULT_SETS, "stsb-dev", "stsb-train", "sick-dev", "sick-train")
LOOKED_FOR = (
    "sts12.jsonl and the like (also .json, .csv, .tsv, each also with .gz, and .parquet) in it or "
    "in its folder sts; STS.input.*.txt with STS.gs.*.txt below a folder such as STS12-en-test; "
    "sts-test.csv; SICK_test_annotated.txt"
)

_SYNONYMS = {"stsb-test": "stsb", "sick-test": "sick"}
_HUB_SETS = {
    **{name: (f"mteb/{name}-sts", "test") for name in DEFAULT_SETS[:5]},
    "stsb": ("mteb/stsbenchmark-sts", "test"),
    "stsb-dev": ("mteb/stsbenchmark-sts", "validation"),
    "stsb-train": ("mteb/stsbenchmark-sts", "train"),
    "sick": ("mteb/sickr-sts", "test"),
}
_ENDING = re.compile(r"\.(jsonl|json|csv|tsv)(\.gz)?$|\.parquet$", re.IGNORECASE)
_BENCHMARK = re.compile(r"sts-(train|dev|test)\.csv", re.IGNORECASE)
_SICK = re.compile(r"SICK_(train|trial|test_annotated)\.txt", re.IGNORECASE)
_SICK_SETS = {"train": "sick-train", "trial": "sick-dev", "test_annotated": "sick"}
_SEMEVAL = re.compile(r"STS(?:20\d\d)?\.(input|gs)\.(.+)\.txt", re.IGNORECASE)
_YEAR = re.compile(r"(?<!\d)20(1[2-6])(?!\d)|sts[-_ ]?(?:20)?(1[2-6])(?!\d)", re.IGNORECASE)
# Folders of SemEval's archives whose names have no year.
_FOLDER_YEARS = {"test-gold": "12", "test-gs": "13", "test_evaluation_task2a": "15"}
# Words in the names of folders that hold other data of the same years.
_SPANISH = {"es", "spanish"}
_TRAINING = {"train", "trial"}


PairNames: TypeAlias = "tuple[tuple[str, str] | None, str | None]"  # of texts, of scores


@dataclass(frozen=True, slots=True)
class RawPair:
    """An unchecked pair; `origin` is `file:line`, `subset` None in a set without subsets."""

    origin: str
    text_a: Any
    text_b: Any
    score: Any
    subset: str | None


_GIVEN = "pairs"  # the set of rows in memory


@dataclass(frozen=True, slots=True)
class SetFile:
    """One file of a set, or a pair of files.

    Attributes:
        place: names the file in messages.
        subset: SemEval's files are one subset each; None: the file is the whole set.
    """

    place: str
    read: Callable[[], Iterator[RawPair]]
    subset: str | None = None

    def pairs(self) -> list[RawPair]:
        """Return its scored pairs."""
        try:
            return list(self.read())
        except OSError as error:
            raise InputError(
                f"{self.place}: {error.strerror or error}: give a readable file"
            ) from error


def _rows(path: Path, columns: PairNames = (None, None)) -> Iterator[RawPair]:
    for number, row in rows_of_file(path):
        yield _pair(f"{path}:{number}", row, columns)


def _rows_given(data: Source) -> Iterator[RawPair]:
    for number, row in enumerate(open_rows(data, chosen_split(data, "test"))[0]):
        yield _pair(f"row {number} (rows count from 0)", row)


def _pair(origin: str, row: Mapping[str, Any], columns: PairNames = (None, None)) -> RawPair:
    names = {name.lower(): name for name in row}
    subset = next((row[names[name]] for name in _SUBSET if name in names), None)
    texts, label = columns
    for column in (*(texts or ()), *([label] if label else ())):
        check_column(column, list(row), f"{origin}: ")
    first, second = texts or (
        _column(origin, names, FIRST_TEXT), _column(origin, names, SECOND_TEXT)
    )  # fmt: skip
    score = label or _column(origin, names, _SCORE)
    return RawPair(
        origin, row[first], row[second], row[score], None if subset in (None, "") else str(subset)
    )


def _column(origin: str, names: Mapping[str, str], wanted: Sequence[str]) -> str:
    for name in wanted:
        if name in names:
            return names[name]
    raise InputError(
        f"{origin}: no column {wanted[0]!r} (nor {', '.join(wanted[1:])}): there are "
        f"{', '.join(names.values()) or 'none'}: name the columns text_a, text_b, score, or those "
        "of a file with --text and --label of tilth evaluate sts"
    )


def _benchmark(path: Path) -> Iterator[RawPair]:
    """Read sts-test.csv of STSBenchmark: tabs, no header, quotation marks are literal."""
    for number, line in read_lines(path, _MAX_LINE_BYTES):
        fields = line.split("\t")
        if len(fields) < _BENCHMARK_FIELDS:
            raise InputError(
                f"{path}:{number}: {len(fields)} fields between tabs, {_BENCHMARK_FIELDS} are "
                "needed (genre, filename, year, old_index, score, sentence1, sentence2): give "
                "STSBenchmark's own file"
            )
        yield RawPair(f"{path}:{number}", fields[5], fields[6], fields[4], fields[1])


def _sick(path: Path) -> Iterator[RawPair]:
    """Read SICK_test_annotated.txt: tabs, a header, quotation marks are literal."""
    header: list[str] = []
    for number, line in read_lines(path, _MAX_LINE_BYTES):
        fields = line.split("\t")
        if number == 1:
            header = fields
        elif len(fields) != len(header):
            raise InputError(
                f"{path}:{number}: {len(fields)} fields between tabs, the header has "
                f"{len(header)}: give SICK's own file"
            )
        else:
            yield _pair(f"{path}:{number}", dict(zip(header, fields, strict=True)))


def _semeval(path: Path, gold: Path | None, subset: str) -> Iterator[RawPair]:
    """Read STS.input.*.txt and STS.gs.*.txt; a pair with a blank score was not scored."""
    if gold is None:
        name = path.name.replace(".input.", ".gs.")
        raise InputError(f"{path}: no scores for these texts: put {name} beside it")
    texts = list(read_lines(path, _MAX_LINE_BYTES))
    scores = [score for _, score in read_lines(gold, _MAX_LINE_BYTES)]
    if len(texts) != len(scores):
        raise InputError(
            f"{path} has {len(texts)} lines, {gold} has {len(scores)}: give files of one version"
        )
    for (number, line), score in zip(texts, scores, strict=True):
        fields = line.split("\t")
        if len(fields) == 1:
            raise InputError(f"{path}:{number}: no tab: write the two texts with a tab between")
        if score.strip():
            origin = f"{path}:{number} ({gold.name}:{number})"
            yield RawPair(origin, fields[0], fields[1], score, subset)


def _hub(hub: HubDataset, split: str) -> Iterator[RawPair]:
    try:
        rows = hub.load(split)
    except TilthError as error:
        raise InputError(f"{error}; or give a folder with the set's files as data") from error
    for number, row in enumerate(rows, start=1):
        yield _pair(f"{hub.name}:{split}:{number}", row)


def set_name(name: str) -> str:
    """Return the canonical name of a set: `stsb-test` is `stsb`, other names stay."""
    return _SYNONYMS.get(name, name)


def default_names(data: Source) -> list[str]:
    """Return the default sets: the usual seven, or the one of a file."""
    if isinstance(data, str | Path) and (as_path(data).is_dir() or str(data) == "hub"):
        return list(DEFAULT_SETS)
    return list(find_sets(data))


def find_sets(data: Source, columns: PairNames = (None, None)) -> dict[str, list[SetFile]]:
    """Find the files of each set in a place, without reading them: set name -> files.

    Args:
        data: rows, a folder, a file of pairs, `hub`, or the name of one data set of the hub.
        columns: of the texts and of the scores of a file of pairs; None: usual names.
    """
    path = as_path(data) if isinstance(data, str | Path) else None
    if columns != (None, None) and (path is None or not path.is_file() or _special_file(path)):
        raise InputError(f"{source_name(data)}: only columns of a file of pairs can be named")
    if not isinstance(data, str | Path):
        return {_GIVEN: [SetFile(source_name(data), partial(_rows_given, data))]}
    path = as_path(data)
    check_input(path)
    if path.is_dir():
        return _find_in_folder(path)
    if path.exists():
        return _find_file(path, columns)
    if str(data) == "hub":
        return {
            name: [_hub_file(HubDataset(repository, None), split)]
            for name, (repository, split) in _HUB_SETS.items()
        }
    found = locate(data)
    if not isinstance(found, HubDataset):
        raise InputError(f"{data}: no such file or folder: check the path")
    return {found.name.split("/")[1]: [_hub_file(found, "test")]}


def known_columns(data: Source, text: str | Sequence[str] | None, label: str | None) -> PairNames:
    """Return the columns that a training was told to read, as far as a file of pairs has them."""
    path = as_path(data) if isinstance(data, str | Path) else None
    if (text, label) == (None, None) or path is None or not path.is_file() or _special_file(path):
        return None, None
    try:
        _, row = next(rows_of_file(path), (0, dict[str, Any]()))
    except (InputError, OSError):  # it is told where the file is read
        return None, None
    if text is None:
        return None, label if label in row else None
    if isinstance(text, str) or len(text) != 2 or not {*text} <= {*row}:
        return None, None  # the label of other texts may be another
    return (text[0], text[1]), label if label in row else None


def _hub_file(hub: HubDataset, split: str) -> SetFile:
    return SetFile(f"{hub.name}:{split}", partial(_hub, hub, split))


def _find_file(path: Path, columns: PairNames) -> dict[str, list[SetFile]]:
    special = _special_file(path)
    if special is not None:
        return {special[0]: [special[1]]}
    if not _ENDING.search(path.name):
        raise InputError(
            f"{path}: the ending is not known: give a .jsonl, .json, .csv or .tsv file of pairs "
            "(each also with .gz), .parquet, or a folder"
        )
    return {_stem(path): [SetFile(str(path), partial(_rows, path, columns))]}


def _find_in_folder(root: Path) -> dict[str, list[SetFile]]:
    found: defaultdict[str, list[SetFile]] = defaultdict(list)
    for folder in (root, root / "sts"):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            usual = _ENDING.search(path.name) and not _BENCHMARK.fullmatch(path.name)
            if path.is_file() and usual and not path.name.startswith("."):
                found[_stem(path)].append(SetFile(str(path), partial(_rows, path)))
    semeval: list[Path] = []
    for path in _walk(root):
        special = _special_file(path)
        if special is not None:
            found[special[0]].append(special[1])
        elif _SEMEVAL.fullmatch(path.name):
            semeval.append(path)
    for name, part in _pair_up(root, semeval):
        found[name].append(part)
    return dict(found)


def _stem(path: Path) -> str:
    return set_name(_ENDING.sub("", path.name))


def _walk(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, by name, without hidden files and archive leftovers."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


def _special_file(path: Path) -> tuple[str, SetFile] | None:
    """Return the set of a file named as in SentEval's layout, None for others."""
    if match := _BENCHMARK.fullmatch(path.name):
        return set_name(f"stsb-{match[1].lower()}"), SetFile(str(path), partial(_benchmark, path))
    if match := _SICK.fullmatch(path.name):
        return _SICK_SETS[match[1].lower()], SetFile(str(path), partial(_sick, path))
    return None


def _pair_up(root: Path, paths: list[Path]) -> Iterator[tuple[str, SetFile]]:
    """Yield the subsets of SemEval's files: text files paired with score files."""
    sides: dict[str, defaultdict[tuple[str, str], list[Path]]]
    sides = {"input": defaultdict(list), "gs": defaultdict(list)}
    for path in paths:
        match = _SEMEVAL.fullmatch(path.name)
        assert match is not None
        name = _year_set(root, path)
        # SentEval and later work call the subset surprise.OnWN of 2012 OnWN, too.
        subset = match[2].removeprefix("surprise.")
        reason = "no year, or no English test set" if name is None else "a concatenation"
        if name is None or subset.upper() == "ALL":
            log.info("%s: left out: %s", path, reason)
        elif (name, subset) == ("sts13", "SMT"):
            log.info("%s: left out: the usual STS13 is without SMT", path)
        else:
            sides[match[1].lower()][name, subset].append(path)
    for (name, subset), inputs in sides["input"].items():
        golds = sides["gs"][name, subset]
        beside: list[tuple[Path, Path | None]] = [
            (one, two) for one in inputs for two in golds if one.parent == two.parent
        ]
        if not beside:
            beside = [(inputs[0], golds[0])] if len(inputs) == len(golds) == 1 else []
        for path, gold in beside or [(inputs[0], None)]:
            yield name, SetFile(str(path), partial(_semeval, path, gold, subset), subset)
    for key in sides["gs"].keys() - sides["input"].keys():
        for gold in sides["gs"][key]:
            log.warning("%s: scores without their file of texts are left out", gold)


def _year_set(root: Path, path: Path) -> str | None:
    """Return the set of a SemEval file by the nearest name with a year; None: not a test set."""
    root = root.resolve()
    folders = [root.name, *path.resolve().parent.relative_to(root).parts]
    for folder in folders:
        words = set(re.split(r"[^a-z]+", folder.lower()))
        if words & _SPANISH or (words & _TRAINING and "test" not in words):
            return None
    for name in (path.name, *reversed(folders)):
        if match := _YEAR.search(name):
            return f"sts{match[1] or match[2]}"
        if name.lower() in _FOLDER_YEARS:
            return f"sts{_FOLDER_YEARS[name.lower()]}"
    for parent in root.parents:
        match = _YEAR.search(parent.name)
        if match and match[2]:
            return f"sts{match[2]}"
    return None

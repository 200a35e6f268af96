"""Reads a run of `tilth augment` into its figures and sentences, with bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.data.labels import class_names
from tilth.data.stored import folder_configs
from tilth.errors import InputError
from tilth.report.parts import part_files, read_run_json, read_tables
from tilth.report.retrieved import LABELS, SHOWN, TEXTS, Group, Tally
from tilth.runs.asked import read_results

COMMAND = "augment"
SHOWN_QUERIES = 12
_COLUMNS = ("confidence", "similarity", "query", "source", "drop_reason")


@dataclass(frozen=True, slots=True)
class Gathered:
    """A run as its folder tells it.

    Attributes:
        asked: its run.json.
        results: its results.json.
        groups: the classes or types of entity.
        labelled: rows of the training set.
        retrieved: distinct sentences.
        kept: those kept of them.
        drops: reason -> sentences, the most frequent first.
        sources: source -> kept sentences, the most frequent first.
        similarity: kept sentences and all by similarity. # (20,) each
        queries: a query, and the sentences nearest to it.
        queries_in_all: how many queries found something.
        tagged: whether tokens have tags.
        plain: whether a sentence is in one group, which says its label.
        students: name of the folder -> its results.json, of trainings on this very run.
        notices: what is wrong with the folder.
    """

    asked: dict[str, Any]
    results: dict[str, Any]
    groups: list[Group]
    labelled: int
    retrieved: int
    kept: int
    drops: dict[str, int]
    sources: dict[str, int]
    similarity: tuple[NDArray[np.int64], NDArray[np.int64]]
    queries: list[tuple[str, list[tuple[float, str]]]]
    queries_in_all: int
    tagged: bool
    plain: bool
    students: dict[str, dict[str, Any]]
    notices: list[str]


def gather_augmented(run_folder: str | Path) -> Gathered:
    """Read a finished run of `tilth augment`.

    Raises:
        InputError: the folder holds no such run, or it is not finished.
        TilthError: its run.json cannot be read.
    """
    folder = Path(run_folder)
    asked = read_run_json(folder, command=COMMAND)
    configs = folder_configs(folder / "dataset")
    if "default" not in configs:
        raise InputError(
            f"{folder}: the run is not finished: the same tilth augment command goes on where it "
            "stopped"
        )
    notices = list[str]()
    tally = Tally(int(asked["settings"].get("seed") or 0))
    labels = _names(next(chain.from_iterable(configs["default"].values())))
    tally.groups(labels)
    for config in ("labelled", "default", "dropped"):
        files = [file for some in configs.get(config, {}).values() for file in some]
        for table in read_tables(files, (*TEXTS, *LABELS, *_COLUMNS), notices):
            tally.add(table, config, _names(files[0]) or labels)
    queries, in_all = _queries(folder / "hits", tally, notices)
    tally.finish()
    return Gathered(
        asked, read_results(folder) or {}, list(tally.found.values()), tally.labelled,
        tally.retrieved, tally.kept, _ordered(tally.drops), _ordered(tally.sources),
        (tally.similar, tally.similar_all), queries, in_all, "O" in labels, tally.plain,
        _students(folder, asked), notices,
    )  # fmt: skip


def _names(file: Path) -> list[str]:
    """Return the names of the classes or tags that a file's label column holds by number."""
    from datasets import Features

    features = Features.from_arrow_schema(pq.read_schema(file))
    column = next((name for name in LABELS if name in features), None)
    names = class_names(features[column]) if column else None
    return [str(name) for name in names or ()]


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _queries(
    hits: Path, tally: Tally, notices: list[str]
) -> tuple[list[tuple[str, list[tuple[float, str]]]], int]:
    """Count hits by the class of their query; return some queries with their nearest hits."""
    parts = part_files(hits)
    found: dict[str, None] = {}
    by_label: Counter[str | None] = Counter()
    for table in read_tables(parts, ("query", "query_label"), notices):
        found.update(dict.fromkeys(map(str, pc.unique(table["query"]).to_pylist())))
        if "query_label" in table.column_names:
            for one in pc.value_counts(table["query_label"].combine_chunks()).to_pylist():
                by_label[one["values"]] += one["counts"]
    for name, count in by_label.items():
        if name is not None:
            group = tally.group(str(name))
            group.retrieved = (group.retrieved or 0) + count
    if any(name is not None for name in by_label):
        for group in tally.found.values():
            group.retrieved = group.retrieved or 0
    chosen = dict.fromkeys(_spread(list(found), SHOWN_QUERIES))
    nearest: dict[str, list[tuple[float, str]]] = {name: [] for name in chosen}
    for table in read_tables(parts, ("query", "similarity", "text"), []):
        here = table.filter(pc.is_in(table["query"], value_set=pa.array(list(chosen), pa.string())))
        for row in here.sort_by([("similarity", "descending")]).to_pylist():
            held = nearest[str(row["query"])]
            held.append((float(row["similarity"]), str(row["text"])))
            if len(held) > 4 * SHOWN:
                held[:] = _best(held)
    return [(name, _best(held)) for name, held in nearest.items()], len(found)


def _best(hits: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    return nsmallest(SHOWN, hits, key=lambda hit: (-hit[0], hit[1]))


def _spread(names: Sequence[str], count: int) -> list[str]:
    """Return some names, as far apart as can be."""
    if len(names) <= count:
        return list(names)
    return [names[place * len(names) // count] for place in range(count)]


def _students(folder: Path, asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the results of trainings inside the run's folder that learned from this very run."""
    found = {}
    for file in sorted(folder.glob("*/results.json")):
        results = read_results(file.parent) or {}
        if results.get("tested") and results.get("start") == asked.get("start", ""):
            found[file.parent.name] = results
    return found

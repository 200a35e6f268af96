"""GLUE: the nine tasks, their metrics, and the submission files of the benchmark's server.

Reference: Wang et al. 2019, arXiv 1804.07461, section 3 and table 1; gluebenchmark.com/faq.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.data.formats import read_lines
from tilth.errors import InputError
from tilth.files import write_file
from tilth.metrics.correlation import pearson, spearman

Metric: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], float]
HUB = "nyu-mll/glue"
_HEAD = ["index", "prediction"]
_NUMBER = re.compile(r"[0-4](\.\d+)?|5(\.0+)?")  # a score of STS-B
HIGHEST = 5.0  # of STS-B's scores
_LONGEST_LINE = 1000  # bytes
_DIAGNOSTIC = "AX"  # a file for the server that no task has


def accuracy(gold: NDArray[Any], said: NDArray[Any]) -> float:
    """Return the share of equal labels."""
    return float(np.mean(gold == said))


def f1(gold: NDArray[Any], said: NDArray[Any]) -> float:
    """Return F1 of label 1 among 0 and 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(gold, said, zero_division=0.0))


def matthews(gold: NDArray[Any], said: NDArray[Any]) -> float:
    """Return Matthews' correlation of labels; 0 where one side is constant."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(gold, said))


def _correlation(measure: Metric) -> Metric:
    def found(gold: NDArray[Any], said: NDArray[Any]) -> float:
        return float(np.nan_to_num(measure(gold.astype(np.float64), said.astype(np.float64))))

    return found


_BINARY = ("0", "1")
_ENTAILED = ("entailment", "not_entailment")


@dataclass(frozen=True, slots=True)
class GlueTask:
    """A task of GLUE.

    Attributes:
        title: as the benchmark writes it, and its submission file.
        texts: columns of the hub's data set.
        labels: as submissions spell them, in the hub's order; empty: scores from 0 to 5.
        metrics: name -> measure; the task's score is their mean.
        tests: file -> test rows of the server.
        names: other spellings of the labels.
        splits: file or hub split of the development rows -> suffix of the metrics.
    """

    title: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: Mapping[str, Metric]
    tests: Mapping[str, int]
    names: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("validation",)

    def label_of(self, name: str) -> int | None:
        """Return the index of a label in any spelling; None: it is none of the task's."""
        for known in (self.labels, self.names, tuple(map(str, range(len(self.labels))))):
            if name.lower() in known:
                return known.index(name.lower())
        return None


_PAIR = ("sentence1", "sentence2")
_BOTH = {"accuracy": accuracy, "F1": f1}
TASKS = {
    "cola": GlueTask(
        "CoLA", ("sentence",), _BINARY, {"Matthews": matthews}, {"CoLA": 1063},
        ("unacceptable", "acceptable"),
    ),
    "sst2": GlueTask(
        "SST-2", ("sentence",), _BINARY, {"accuracy": accuracy}, {"SST-2": 1821},
        ("negative", "positive"),
    ),
    "mrpc": GlueTask(
        "MRPC", _PAIR, _BINARY, _BOTH, {"MRPC": 1725}, ("not_equivalent", "equivalent")
    ),
    "qqp": GlueTask(
        "QQP", ("question1", "question2"), _BINARY, _BOTH, {"QQP": 390_965},
        ("not_duplicate", "duplicate"),
    ),
    "stsb": GlueTask(
        "STS-B", _PAIR, (),
        {"Pearson": _correlation(pearson), "Spearman": _correlation(spearman)}, {"STS-B": 1379},
    ),
    "mnli": GlueTask(
        "MNLI", ("premise", "hypothesis"), ("entailment", "neutral", "contradiction"),
        {"accuracy": accuracy}, {"MNLI-m": 9796, "MNLI-mm": 9847},
        splits=("validation_matched", "validation_mismatched"),
    ),
    "qnli": GlueTask(
        "QNLI", ("question", "sentence"), _ENTAILED, {"accuracy": accuracy}, {"QNLI": 5463}
    ),
    "rte": GlueTask("RTE", _PAIR, _ENTAILED, {"accuracy": accuracy}, {"RTE": 3000}),
    "wnli": GlueTask(
        "WNLI", _PAIR, _BINARY, {"accuracy": accuracy}, {"WNLI": 146},
        ("not_entailment", "entailment"),
    ),
}  # fmt: skip
FILES = {file: task for task in TASKS.values() for file in task.tests}


def glue_scores(task: GlueTask, gold: NDArray[Any], said: NDArray[Any]) -> dict[str, float]:
    """Return each metric of a task x 100, and `score`, their mean.

    Args:
        gold: label indices, or scores. # (rows,)
        said: predictions. # (rows,)

    Example:
        >>> import numpy as np
        >>> glue_scores(TASKS["rte"], np.array([0, 1]), np.array([0, 0]))
        {'accuracy': 50.0, 'score': 50.0}
    """
    found = {name: 100 * measure(gold, said) for name, measure in task.metrics.items()}
    return {**found, "score": float(np.mean(list(found.values())))}


def write_submission(folder: Path, file: str, said: NDArray[Any]) -> Path:
    """Write a submission file: a row for each test row, in their order, and return its path.

    Args:
        file: such as `MNLI-mm`, a key of `FILES`.
        said: label indices, or scores. # (rows,)
    """
    task = FILES[file]
    if task.labels:
        cells = [task.labels[int(label)] for label in said]
    else:
        cells = [f"{score:.3f}" for score in np.clip(said, 0.0, HIGHEST)]
    lines = ["\t".join(_HEAD), *(f"{row}\t{cell}" for row, cell in enumerate(cells))]
    path, text = folder / f"{file}.tsv", "\n".join(lines) + "\n"
    write_file(path, text)
    return path


def check_submission(folder: str | Path) -> list[str]:
    """Check the submission files in a folder; return which the server would miss.

    Raises:
        InputError: a file is wrong; the message names its line.
    """
    place = Path(folder)
    for path in sorted(place.glob("*.tsv")):
        if path.stem == _DIAGNOSTIC:
            continue
        if path.stem not in FILES:
            raise InputError(f"{path}: the server knows no such file: {', '.join(FILES)}")
        _check_rows(path, [line.split("\t") for _, line in read_lines(path, _LONGEST_LINE)])
    return [file for file in FILES if not (place / f"{file}.tsv").is_file()]


def _check_rows(path: Path, rows: Sequence[list[str]]) -> None:
    task, wanted = FILES[path.stem], FILES[path.stem].tests[path.stem]
    if not rows or rows[0] != _HEAD:
        raise InputError(f"{path}:1: the head is {rows[:1]}: write {_HEAD}")
    for number, row in enumerate(rows[1:]):
        if len(row) != 2 or row[0] != str(number):
            raise InputError(f"{path}:{number + 2}: {row} is no index {number} and a prediction")
        right = row[1] in task.labels if task.labels else _NUMBER.fullmatch(row[1])
        if not right:
            allowed = ", ".join(task.labels) or "a number from 0 to 5"
            raise InputError(f"{path}:{number + 2}: prediction {row[1]!r}: write {allowed}")
    if len(rows) - 1 != wanted:
        raise InputError(f"{path}: {len(rows) - 1:,} predictions, the test set has {wanted:,} rows")

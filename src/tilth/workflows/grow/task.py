"""Reads and checks what `tilth grow` is given, and divides the labelled rows into folds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.ingest.cleaning import LANGUAGE
from tilth.bank.ingest.documents import find_sources, holds_text, read_blocks
from tilth.bank.manifest import MANIFEST
from tilth.bank.settings import BankSettings
from tilth.classifiers.examples import LabeledExamples, labeled_examples
from tilth.classifiers.load import TaskSources, check_disjoint, warn_of_spellings
from tilth.data.hashing import random_keys, text_hashes
from tilth.data.labels import HOLDS
from tilth.data.near_duplicates import SIMILARITY, jaccard
from tilth.data.normalize import normalize_text, normalize_texts
from tilth.data.sources import source_name
from tilth.errors import InputError
from tilth.generation.label_fit import describe_labels
from tilth.generation.task import Task, load_classes
from tilth.storage import as_path, exists
from tilth.workflows.open_bank import build_named, open_named

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.data.examples import Examples, Source
    from tilth.workflows.grow.settings import GrowSources

log = logging.getLogger(__name__)

BANK = "bank"
DOMAIN = "domain"  # key in `run.resolved`: how similar raw text is to the task
_ENCODER = "starter-static"
_SAMPLE = 500  # labelled rows that are compared with raw text
# Area under the ROC curve of a regression that tells labelled texts from raw sentences, up to which
# these are like the task's. With 20 to 500 texts of sst2, trec, insults and clinc150 it was 0.37 to
# 0.66 for the other rows of train, 0.79 to 0.96 for a bank of encyclopedia, news, novels and films,
# and 0.92 to 1 for the rows of another of these sets.
ALIKE, _COMPARED = 0.75, 1_000  # raw sentences
# Raw sentences that are told from the texts are far from them if the texts' median cosine to the
# nearest one exceeds that to their nearest other text by less. With 300 texts it was -0.36 to 0.00
# for the rows of another set (with 20, where texts have few neighbours, -0.16 to 0.21), 0.19 to
# 0.31 for the bank (but 0.03 to 0.08 for clinc150, few of whose intents it holds).
_NEARER, _FEWEST = 0.05, 20


@dataclass(frozen=True, slots=True)
class GrowTask:
    """What is known of a task.

    Attributes:
        labels: in the order of the targets.
        examples: labelled rows, each text once; None: there are none.
        rows: the same rows.
        validation: rows that choose; None: cross-validation does.
        task: descriptions; None: there are none.
    """

    labels: list[str]
    examples: Examples | None
    rows: LabeledExamples
    validation: LabeledExamples | None
    test: LabeledExamples | None
    task: Task | None

    @property
    def descriptions(self) -> list[str]:
        """Return the descriptions of each label, one per line, in the order of the labels."""
        assert self.task is not None
        found = describe_labels(self.task)
        return [found[label] for label in self.labels]

    @property
    def held_out(self) -> dict[str, list[str]]:
        """Texts that nothing is trained on or retrieved, by name of their set."""
        sets = {"validation set": self.validation, "test set": self.test}
        return {
            name: [text for (text,) in rows.texts]
            for name, rows in sets.items()
            if rows is not None
        }


def read_grow_task(sources: GrowSources) -> GrowTask:
    """Read the sets and the descriptions of a task; refuse labels that do not agree."""
    task = None if sources.labels is None else load_classes(sources.labels)
    described = [] if task is None else [label.name for label in task.labels]
    named = TaskSources(
        "" if sources.train is None else sources.train, sources.validation, sources.test,
        text=sources.text, label=sources.label,
    )  # fmt: skip
    train = source_name(sources.train)
    examples, labels = None, described
    if sources.train is not None:
        examples = _distinct(_single(named, sources.train, "train"), train)
        assert examples.labels is not None
        labels = [str(name) for name in examples.labels.classes]
        if len(labels) < 2:
            has = f"every row has the label {labels[0]!r}" if labels else "no text has one label"
            raise InputError(
                f"{train}: {has}: there is nothing to learn; give rows of two labels at least"
            )
        warn_of_spellings(labels, f"{train}: ")
        _check_described(labels, described, sources)
    rows = _none(labels) if examples is None else labeled_examples(examples, labels)
    others: dict[str, LabeledExamples | None] = {"validation": None, "test": None}
    known = [("training", sources.train, rows)] if examples is not None else []
    for name in others:
        place = getattr(sources, name)
        if place is not None:
            where = partial("{}: row {} (rows count from 0)".format, source_name(place))
            found = labeled_examples(_single(named, place, name), labels, where=where)
            check_disjoint(name, place, found.texts, *(
                (other, place, rows.texts) for other, place, rows in known
            ), left_out_of="training")  # fmt: skip
            known.append((name, place, found))
            others[name] = found
    if examples is not None:
        examples, rows = _without(examples, rows, [one for _, _, one in known[1:]])
        _check_counts(rows, train, sources)
    if task is not None:
        sets = [one.texts for one in (rows, *others.values()) if one is not None]
        task = _without_known(
            task, str(sources.named()["labels"]), [text for texts in sets for (text,) in texts]
        )
    return GrowTask(labels, examples, rows, others["validation"], others["test"], task)


def _without_known(task: Task, place: str, texts: Sequence[str]) -> Task:
    """Leave out examples of labels that are texts of a set: each would be compared with itself."""
    known = set(map(normalize_text, texts))
    labels = tuple(
        replace(
            label,
            examples=tuple(one for one in label.examples if normalize_text(one) not in known),
        )
        for label in task.labels
    )
    left = sum(len(label.examples) for label in task.labels)
    if left := left - sum(len(label.examples) for label in labels):
        log.warning("%s: %d examples are also texts of the sets: they are left out", place, left)
    return replace(task, labels=labels)


def _single(sources: TaskSources, place: Source, split: str) -> Examples:
    found = sources.read(place, split)
    assert found.labels is not None
    if found.kind != "single" or found.labels.kind != "class":
        has = "pairs" if found.kind == "pair" else HOLDS[found.labels.kind]
        other = "" if found.labels.kind == "number" else "; for others use tilth train"
        raise InputError(
            f"{source_name(place)}: holds {has}: grow takes single texts with one class each{other}"
        )
    return found


def _distinct(examples: Examples, place: str) -> Examples:
    """Return each text once, whatever its case and punctuation; leave out those of several labels.

    Else one fold would learn what another measures.
    """
    assert examples.labels is not None
    seen: dict[str, set[str]] = {}
    first: dict[str, int] = {}
    for row, (text,) in enumerate(examples.texts):
        key = normalize_text(text)
        seen.setdefault(key, set()).add(str(examples.labels.values[row]))
        first.setdefault(key, row)
    kept = [row for key, row in first.items() if len(seen[key]) == 1]
    if len(kept) < len(first):
        log.warning(
            "%s: %d texts have, but for case and punctuation, several labels: they are left out",
            place, len(first) - len(kept),
        )  # fmt: skip
    return examples.select(kept)


def _check_described(labels: list[str], described: list[str], sources: GrowSources) -> None:
    if not described:
        return
    train, place = source_name(sources.train), sources.named()["labels"]
    for name in labels:
        if name not in described:
            raise InputError(
                f"{place}: label {name!r} of {train} is not described (there are "
                f"{', '.join(described)}): describe it, or leave its rows out"
            )
    for name in described:
        if name not in labels:
            raise InputError(
                f"{train}: no row has the described label {name!r} (there are "
                f"{', '.join(labels)}): give some, or leave its description out"
            )


def _check_counts(rows: LabeledExamples, place: str, sources: GrowSources) -> None:
    """Refuse labels without rows, and where rows are divided into folds, with one row each."""
    is_divided = sources.validation is None
    alone = "" if is_divided and sources.test is None else " that stands in no other set"
    counts = np.asarray(rows.targets).sum(axis=0)  # (labels,)
    by_label = dict(zip(rows.labels, counts.tolist(), strict=True))
    if none := [name for name, count in by_label.items() if not count]:
        raise InputError(f"{place}: label {none[0]!r} has no row{alone}: give some of each")
    once = [name for name, count in by_label.items() if count == 1]
    if is_divided and len(by_label) - len(once) < 2:
        raise InputError(
            f"{place}: label {once[0]!r} has 1 row{alone}: give two or more of two labels at "
            "least, to learn from one and measure on the other"
        )
    if is_divided and once:
        log.warning(
            "%s: one row of %s: it is learnt from, and nothing tells how well that label is "
            "answered; give more", place, ", ".join(map(repr, once)),
        )  # fmt: skip


def _none(labels: list[str]) -> LabeledExamples:
    return LabeledExamples("class", labels, [], None, np.zeros((0, len(labels)), np.float32))


def _without(
    examples: Examples, rows: LabeledExamples, others: Sequence[LabeledExamples]
) -> tuple[Examples, LabeledExamples]:
    """Leave out the labelled rows of another set's texts; case and punctuation do not count."""
    held = {normalize_text(text) for one in others for (text,) in one.texts}
    kept = [row for row, (text,) in enumerate(rows.texts) if normalize_text(text) not in held]
    if len(kept) == len(rows):
        return examples, rows
    return examples.select(kept), rows.select(np.array(kept, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Rows to train on and rows to measure on.

    Attributes:
        number: from 0, without gaps; -1 is the training of the result, on all rows.
        train: indices of labelled rows. # (training rows,)
        held: indices of the measured rows, in the labelled or the validation rows. # (rows,)
        rows: the measured rows.
        repeat: the cross-validation that it is of.
    """

    number: int
    train: NDArray[np.int64]
    held: NDArray[np.int64]
    rows: LabeledExamples
    repeat: int = 0


def whole_fold(rows: LabeledExamples) -> Fold:
    """Return the fold that trains on all rows and measures none."""
    none = np.zeros(0, np.int64)
    return Fold(-1, np.arange(len(rows)), none, rows.select(none))


def folds_of(task: GrowTask, folds: int, repeats: int, seed: int) -> list[Fold]:
    """Return stratified folds, repeat after repeat; or all rows and the validation rows each time.

    There are no more folds than rows of a label, in the median: labels of which a fold measures a
    row would have fewer to train on than others, and models would seldom answer them. Without
    labelled or validation rows there are none.
    """
    if task.validation is not None:
        return validation_folds(task.rows, task.validation, repeats)
    found: list[Fold] = []
    if len(task.rows):
        counts = np.asarray(task.rows.targets).sum(axis=0)  # (labels,)
        folds = max(2, min(folds, int(np.median(counts))))
    for repeat in range(repeats):
        part = _parts(task.rows, folds, seed, repeat)
        found += split_folds(task.rows, part, repeat, len(found))
    return found


def validation_folds(
    rows: LabeledExamples, validation: LabeledExamples, repeats: int
) -> list[Fold]:
    """Return folds that train on all rows and measure the validation rows."""
    train, held = np.arange(len(rows)), np.arange(len(validation))
    return [Fold(one, train, held, validation, one) for one in range(repeats)]


def split_folds(
    rows: LabeledExamples, part: NDArray[np.int64], repeat: int, first: int
) -> list[Fold]:
    """Return a fold for each part of the rows but -1, (rows,), with numbers from `first` on."""
    found = []
    for number, one in enumerate(np.unique(part[part >= 0]).tolist(), start=first):
        held = np.flatnonzero(part == one)
        train = np.flatnonzero(part != one)
        found.append(Fold(number, train, held, rows.select(held), repeat))
    return found


def _parts(rows: LabeledExamples, folds: int, seed: int, repeat: int) -> NDArray[np.int64]:
    """Return the part of each row, (rows,): by content, each label in all parts alike.

    The only row of a label is in none (-1): it is always learnt from.
    """
    texts = pa.array([text for (text,) in rows.texts], pa.large_string())
    keys = random_keys(seed, f"grow/{repeat}", text_hashes(texts))
    labels = np.asarray(rows.targets).argmax(axis=1)
    order = np.lexsort((keys, labels))
    part = np.empty(len(rows), np.int64)
    part[order] = np.arange(len(rows)) % folds
    part[np.bincount(labels)[labels] == 1] = -1
    return part


def is_bank(raw: Sequence[str]) -> bool:
    """Tell whether raw text is given as a bank."""
    return len(raw) == 1 and exists(as_path(raw[0]) / MANIFEST)


def check_raw(raw: Sequence[str]) -> None:
    """Refuse raw text that cannot be read, by the beginning of each file."""
    if is_bank(raw) or not raw:
        return
    if banks := [name for name in raw if is_bank([name])]:
        raise InputError(f"{banks[0]}: a bank is raw text alone: name one bank, or files")
    is_blank = True
    for source in find_sources(raw):
        with _column_remedy(source.name):
            blocks = list(islice(read_blocks(source), 2))
        is_blank = is_blank and len(blocks) < 2 and not any(map(holds_text, blocks))
    if is_blank:
        raise InputError(f"{raw[0]}: holds no text: give at least one")


@contextmanager
def _column_remedy(name: str) -> Iterator[None]:
    """Say where a column of raw text is named: `grow` itself takes none."""
    try:
        yield
    except InputError as error:
        if "--column" not in str(error):
            raise
        raise InputError(
            f"{error}: of tilth bank build {name} --out BANK; give the bank with --raw"
        ) from error


def open_raw(raw: Sequence[str], out: Path, *, device: str) -> Bank | None:
    """Open the bank that is given, or build one of raw text in the run folder."""
    if not raw:
        return None
    if is_bank(raw):
        return open_named(as_path(raw[0]), device=device)
    with _column_remedy(raw[0]):
        return build_named(out / BANK, raw, _ENCODER, BankSettings(quiet=True), device=device)


def domain_similarity(bank: Bank, task: GrowTask) -> dict[str, float | bool]:
    """Return how near raw text is to the task.

    Returns:
        `raw`: median cosine of the labelled texts (of the descriptions, without any) to their
        nearest raw sentence; `own`: to their nearest other labelled text that is no
        near duplicate, as banks hold none (absent without labelled texts, 0 without others);
        `apart`: how well a regression tells them from raw sentences, as the area under the ROC
        curve (absent with few of either); `far`: whether these differ and the former is hardly
        higher; `foreign`: share of raw sentences that the bank left out as of another language.
    """
    about: dict[str, float | bool] = {"far": False, "foreign": foreign_share(bank)}
    if not len(task.rows):
        lines = [line for text in task.descriptions for line in text.split("\n")]
        return about | {"raw": _nearest(bank, lines, task.held_out)}
    texts = [text for (text,) in task.rows.texts]
    keys = random_keys(0, "domain", text_hashes(pa.array(texts, pa.large_string())))
    texts = [texts[place] for place in np.argsort(keys, kind="stable")[:_SAMPLE]]
    vectors = bank.encode(texts)  # (texts, width)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, np.nan)
    one, two = np.triu_indices(len(texts), 1)  # (pairs,)
    near = jaccard(normalize_texts(pa.array(texts)), one, two) >= SIMILARITY
    cosines[one[near], two[near]] = cosines[two[near], one[near]] = np.nan
    others = cosines[~np.isnan(cosines).all(axis=1)]
    about["raw"] = raw = _nearest(bank, texts, task.held_out)
    about["own"] = own = float(np.median(np.nanmax(others, axis=1))) if len(others) else 0.0
    if min(len(texts), len(bank)) >= _FEWEST:
        about["apart"] = _apart(bank, vectors)
    about["far"] = len(texts) >= _FEWEST and raw - own < _NEARER and about.get("apart", 1.0) > ALIKE
    return about


def _apart(bank: Bank, vectors: NDArray[np.float32]) -> float:
    """Return how well texts, (texts, width), are told from raw ones, by cross-validation.

    Reference:
        Ben-David et al. 2007, "Analysis of Representations for Domain Adaptation", section 5.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict

    drawn = np.random.default_rng(0).permutation(len(bank))[:_COMPARED]
    others = bank.encode(bank.rows(np.sort(drawn))["text"].to_pylist())
    both = np.concatenate([vectors, others])
    is_own = np.arange(len(both)) < len(vectors)
    model = LogisticRegression(class_weight="balanced", max_iter=500)
    given = cross_val_predict(model, both, is_own, cv=5, method="predict_proba")  # (both, 2)
    return float(roc_auc_score(is_own, given[:, 1]))


def foreign_share(bank: Bank) -> float:
    """Return the share of raw sentences that a bank left out as of another language."""
    dropped = bank.manifest.dropped
    return dropped.get(LANGUAGE, 0) / (len(bank) + sum(dropped.values()))


def _nearest(bank: Bank, texts: Sequence[str], without: Mapping[str, Sequence[str]]) -> float:
    hits = bank.search(list(texts), 1, without=without, own=False)
    if np.isnan(hits.similarity).all():
        raise InputError(
            f"{bank.path}: every raw sentence stands in the labelled rows or another set: give raw "
            "text beside them"
        )
    return float(np.nanmedian(hits.similarity))

"""What a sample tells: accuracy by label, confusion, agreement, and how many rows are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import ceil, floor
from statistics import mean, median, pstdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.metrics.agreement import (
    cohen_kappa,
    krippendorff_alpha,
    more_rows,
    weighted_share,
    wilson,
)
from tilth.metrics.scores import micro_f1
from tilth.metrics.significance import RESAMPLES, UniqueRows, bootstrap_scores, unique_rows
from tilth.view.annotations import (
    CLASSES,
    GRADE,
    NO_LABEL,
    SAME,
    SPANS,
    YES,
    Annotation,
    Sample,
    SampleItem,
)


@dataclass(frozen=True, slots=True)
class LabelResult:
    """Of a generated label's rows: how many were judged, how many are right, the interval."""

    label: str
    rows: int
    right: int
    low: float
    high: float
    more: int

    @property
    def share(self) -> float | None:
        """Return the share of right rows."""
        return self.right / self.rows if self.rows else None


@dataclass(frozen=True, slots=True)
class PersonResult:
    """How much one person has answered, and how fast."""

    name: str
    answers: int
    skipped: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The figures of a sample.

    Attributes:
        labels: by generated label; empty for grades.
        whole: share of right rows (of spans, their F1), low, high of all rows that the sample was
            drawn from; None while it is unknown.
        more: rows that are missing for an interval of 3 points to either side.
        grades: generated label -> rows, mean grade, standard deviation.
        rank_correlation: Spearman's, of grades and generated labels that are numbers.
        confusion: generated label -> people's label -> rows.
        spans: right, made and marked spans.
        kappa: pair of people -> rows in common, Cohen's kappa.
        alpha: Krippendorff's.
        disputed: places where people disagree without a majority.
    """

    judged: int
    labels: list[LabelResult]
    whole: tuple[float, float, float] | None
    more: int
    grades: dict[str, tuple[int, float, float]]
    rank_correlation: float | None
    confusion: dict[str, dict[str, int]]
    spans: tuple[int, int, int] | None
    kappa: dict[tuple[str, str], tuple[int, float | None]]
    alpha: float | None
    shared: int
    people: list[PersonResult]
    disputed: list[int]
    verdicts: dict[int, Any] = field(repr=False)


def sample_result(
    sample: Sample, items: Sequence[SampleItem], answers: Sequence[Annotation]
) -> SampleResult:
    """Return the figures of a sample."""
    task = sample.about.task
    given: dict[int, dict[str, Any]] = {}
    for one in answers:
        if one.value is not None:
            given.setdefault(one.place, {})[one.person] = one.value
    verdicts, disputed = {}, []
    for place, by_person in given.items():
        found = verdict(task, list(by_person.values()))
        if found is None:
            disputed.append(place)
        else:
            verdicts[place] = found
    labels = [] if task in (GRADE, SPANS) else _by_label(task, items, verdicts)
    spans = _span_counts(items, verdicts) if task == SPANS else None
    rows, right = sum(one.rows for one in labels), sum(one.right for one in labels)
    whole: tuple[float, float, float] | None = None
    more = more_rows(right, rows)
    if labels and sample.about.shares:
        known = {one.label: one for one in labels}
        shares = dict(sample.about.shares)
        if task != SAME:
            shares.pop(NO_LABEL, None)
        strata = [known.get(label) for label in shares]
        weighted = weighted_share(
            [one.right if one else 0 for one in strata],
            [one.rows if one else 0 for one in strata],
            list(shares.values()),
        )
        if weighted is not None:
            *ends, effective = weighted
            whole = ends[0], ends[1], ends[2]
            more = ceil(more_rows(ends[0] * effective, effective) * rows / effective)
    elif rows:
        whole = right / rows, *wilson(right, rows)
    elif spans is not None:
        whole = _f1(spans)
    units = [_units(task, items[place], list(by_person.values()))
             for place, by_person in given.items() if len(by_person) > 1]  # fmt: skip
    grades = _grades(items, verdicts) if task == GRADE else {}
    return SampleResult(
        judged=len(verdicts),
        labels=labels,
        whole=None if sample.about.is_lowest else whole,
        more=more,
        grades=grades,
        rank_correlation=_rank_correlation(items, verdicts) if task == GRADE else None,
        confusion=_confusion(task, items, verdicts),
        spans=None if spans is None else tuple(spans.sum(axis=0).tolist()),
        kappa=_kappas(task, given, items),
        alpha=krippendorff_alpha(
            [unit for some in units for unit in some],
            (lambda a, b: float(a - b) ** 2) if task == GRADE else None,  # type: ignore[operator]
        ),
        shared=len(units),
        people=_people(answers),
        disputed=sorted(disputed),
        verdicts=verdicts,
    )


def verdict(task: str, values: Sequence[Any]) -> Any:
    """Return what people say together: the majority, or of grades the mean.

    Of several classes and of spans, each that more than half give. None: no majority.
    """
    if task == GRADE:
        return mean(values)
    if task in (CLASSES, SPANS):
        counts = Counter(_frozen(one) for value in values for one in value)
        order = [_frozen(one) for value in values for one in value]
        kept = [one for one in dict.fromkeys(order) if counts[one] > len(values) / 2]
        if not kept and 2 * sum(not value for value in values) <= len(values):
            return None  # most give something, and not the same
        return [list(one) if isinstance(one, tuple) else one for one in kept]
    (best, count), *others = Counter(values).most_common()
    return None if others and others[0][1] == count else best


def is_right(task: str, item: SampleItem, value: Any) -> bool:
    """Return whether people say what the run says."""
    if task == SAME:
        return bool(value == YES)
    if task in (CLASSES, SPANS):
        return {_frozen(one) for one in value} == {_frozen(one) for one in item.made or ()}
    return bool(value == item.label)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _by_label(
    task: str, items: Sequence[SampleItem], verdicts: Mapping[int, Any]
) -> list[LabelResult]:
    rows: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for place, value in verdicts.items():
        label = items[place].label or NO_LABEL
        if task != SAME and label == NO_LABEL:
            continue  # there is no label to be right
        rows[label] += 1
        right[label] += is_right(task, items[place], value)
    order = dict.fromkeys(item.label or NO_LABEL for item in items)
    if task != SAME:
        order.pop(NO_LABEL, None)
    return [
        LabelResult(label, rows[label], right[label], *wilson(right[label], rows[label]),
                    more_rows(right[label], rows[label]))
        for label in _sorted(order)
    ]  # fmt: skip


def _sorted(labels: Iterable[str]) -> list[str]:
    """Return labels by number where all are numbers, else by name."""
    try:
        return sorted(labels, key=float)
    except ValueError:
        return sorted(labels)


def _confusion(
    task: str, items: Sequence[SampleItem], verdicts: Mapping[int, Any]
) -> dict[str, dict[str, int]]:
    """Return generated label -> people's answer -> rows."""
    if task in (CLASSES, SPANS):
        return {}
    counts = Counter((items[place].label or NO_LABEL, _answer_name(value))
                     for place, value in verdicts.items())  # fmt: skip
    made = _sorted({label for label, _ in counts})
    said = _sorted({value for _, value in counts})
    return {label: {value: counts[label, value] for value in said} for label in made}


def _answer_name(value: Any) -> str:
    return f"{floor(value + 0.5)}" if isinstance(value, int | float) else str(value)


def _grades(
    items: Sequence[SampleItem], verdicts: Mapping[int, Any]
) -> dict[str, tuple[int, float, float]]:
    found: dict[str, list[float]] = {}
    for place, value in verdicts.items():
        found.setdefault(items[place].label or NO_LABEL, []).append(float(value))
    return {label: (len(found[label]), mean(found[label]), pstdev(found[label]))
            for label in _sorted(found)}  # fmt: skip


def _rank_correlation(items: Sequence[SampleItem], verdicts: Mapping[int, Any]) -> float | None:
    from tilth.metrics.correlation import spearman

    try:
        pairs = [(float(items[place].label or ""), float(value))
                 for place, value in verdicts.items()]  # fmt: skip
    except ValueError:
        return None
    if len({made for made, _ in pairs}) < 2 or len({said for _, said in pairs}) < 2:
        return None
    made, said = np.array(pairs).T
    return float(spearman(made, said))


def _span_counts(items: Sequence[SampleItem], verdicts: Mapping[int, Any]) -> NDArray[np.int64]:
    """Return each row's right, made and marked spans, (rows, 3)."""
    pairs = [({*map(_frozen, items[place].made or ())}, {*map(_frozen, value)})
             for place, value in verdicts.items()]  # fmt: skip
    counts = [(len(made & marked), len(made), len(marked)) for made, marked in pairs]
    return np.array(counts, np.int64).reshape(-1, 3)


def _f1(counts: NDArray[np.int64]) -> tuple[float, float, float] | None:
    """Return F1 with its bootstrap interval over rows, (rows, 3); None without spans."""
    rows = np.column_stack([counts, counts[:, 0], np.ones(len(counts), np.int64)])
    unique = UniqueRows(*unique_rows(rows))
    found = bootstrap_scores(unique, {"f1": micro_f1}, resamples=RESAMPLES, seed=0)["f1"]
    value, low, high = found["value"], found["low"], found["high"]
    if value is None or low is None or high is None:
        return None
    return value / 100, low / 100, high / 100


def _units(task: str, item: SampleItem, values: Sequence[Any]) -> list[list[Any]]:
    """Return what is compared among people: the row, or each of its words."""
    if task == SPANS:
        words = len(item.words)
        return [list(one) for one in zip(*(_tags(value, words) for value in values), strict=True)]
    return [[frozenset(value) if isinstance(value, list) else value for value in values]]


def _tags(spans: Sequence[Sequence[Any]], words: int) -> list[str]:
    tags = [""] * words
    for first, last, kind in spans:
        tags[first:last] = [kind] * (last - first)
    return tags


def _kappas(
    task: str, given: Mapping[int, Mapping[str, Any]], items: Sequence[SampleItem]
) -> dict[tuple[str, str], tuple[int, float | None]]:
    people = sorted({person for by_person in given.values() for person in by_person})
    found = {}
    for one, other in combinations(people, 2):
        units = [unit for place, by in given.items() if one in by and other in by
                 for unit in _units(task, items[place], [by[one], by[other]])]  # fmt: skip
        rows = sum(one in by and other in by for by in given.values())
        if units:
            first, second = zip(*units, strict=True)
            found[one, other] = rows, cohen_kappa(first, second)
    return found


def _people(answers: Sequence[Annotation]) -> list[PersonResult]:
    found = []
    for name in sorted({one.person for one in answers}):
        own = [one for one in answers if one.person == name]
        times = [one.seconds for one in own if one.seconds is not None]
        skipped = sum(one.value is None for one in own)
        found.append(PersonResult(name, len(own), skipped, median(times) if times else None))
    return found

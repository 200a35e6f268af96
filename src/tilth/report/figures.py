"""The figures of a run, label by label: what they are, and the same as JSON and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tilth.report.symptoms import Symptom


@dataclass(frozen=True, slots=True)
class LabelHealth:
    """The figures of one label. A share is between 0 and 1.

    Attributes:
        label: its name.
        tries: texts begun.
        closed: tries that reached their closing quotation mark, without a newline before it.
        closed_share: closed / tries.
        kept: tries not dropped.
        dropped: reason -> tries, the most frequent first.
        copies: kept outputs equal to their input but for case and punctuation.
        copy_share: copies / kept; None for a task without inputs.
        distinct_1: different words / all words, in a seeded draw of at most 1,000 kept outputs
            (case and punctuation aside); None when nothing was kept.
        distinct_2: the same for pairs of neighbouring words within one output (Li et al. 2016,
            arXiv 1510.03055, who take them over all outputs).
        distinct_outputs: how many outputs the two were taken on.
        mean_tokens: tokens decoded per kept output, the closing one included; None without any.
        mean_words: words per kept output.
        all_tokens: tokens decoded for all tries.
        floor_share: share of all decoded tokens that were at the debiasing floor; None where the
            run did not measure it (an endpoint gives no distributions).
        repeated: kept outputs that an earlier kept row of the label has for another input; in a
            task without inputs, that any earlier kept row has.
        repeated_share: repeated / kept.
        duplicates: kept outputs that an earlier kept row of the label has for the same input.
        duplicate_share: duplicates / kept.
        shared: other label -> kept outputs it has too for the same input (word for word in a
            task without inputs).
        fit_share: share of the kept texts that fit the label's description; None where that is
            not measured.
        similarity: mean cosine of the two texts of a graded pair; None where not measured.
        below: the next lower label of graded pairs.
        separation: probability that a pair of this label is more similar than one of `below`
            (area under the ROC curve).
    """

    label: str
    tries: int
    closed: int
    closed_share: float
    kept: int
    dropped: dict[str, int]
    copies: int
    copy_share: float | None
    distinct_1: float | None
    distinct_2: float | None
    distinct_outputs: int
    mean_tokens: float | None
    mean_words: float | None
    all_tokens: int
    floor_share: float | None
    repeated: int
    repeated_share: float
    duplicates: int
    duplicate_share: float
    shared: dict[str, int]
    fit_share: float | None = None
    similarity: float | None = None
    below: str | None = None
    separation: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """The figures of every label, what looks sick, and why the fit of a label is not measured."""

    labels: list[LabelHealth]
    warnings: list[Symptom] = field(default_factory=list)
    unmeasured: dict[str, str] = field(default_factory=dict)

    @property
    def tries(self) -> int:
        """All tries."""
        return sum(label.tries for label in self.labels)

    @property
    def kept(self) -> int:
        """All kept tries."""
        return sum(label.kept for label in self.labels)

    @property
    def summary(self) -> str:
        """One line where nothing looks sick: that, or what is not known."""
        if self.warnings:
            return ""
        reasons = dict.fromkeys(self.unmeasured.values())
        if reasons:
            return (
                f"Not measured: whether texts fit their labels ({'; '.join(reasons)}). Read some."
            )
        if any(label.fit_share is None and label.similarity is None for label in self.labels):
            return "Not measured: whether texts fit their labels. Read some."
        return "No label looks sick."

    @property
    def dropped(self) -> dict[str, int]:
        """Reason -> dropped tries of all labels, the most frequent first."""
        totals: dict[str, int] = {}
        for label in self.labels:
            for reason, count in label.dropped.items():
                totals[reason] = totals.get(reason, 0) + count
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, numbers and strings."""
        return {
            "tries": self.tries,
            "kept": self.kept,
            "dropped": self.dropped,
            "labels": [asdict(label) for label in self.labels],
            "warnings": [asdict(warning) for warning in self.warnings],
            "unmeasured": self.unmeasured,
        }


@dataclass(frozen=True, slots=True)
class Example:
    """One try to read; text_a is None in a task without inputs, reason None when kept."""

    label: str
    text_a: str | None
    text: str
    reason: str | None


def label_order(labels: Iterable[str]) -> list[str]:
    """Return numeric labels from the highest down; any other labels as they came."""
    names = list(labels)
    try:
        return sorted(names, key=float, reverse=True)
    except ValueError:
        return names


def distinct(texts: Sequence[str], n: int) -> float | None:
    """Return different n-grams / all n-grams of the texts' words; None when there are none.

    An n-gram does not reach from one text into the next. Example: `distinct(["a b a"], 1)` is 2/3.
    """
    grams: set[tuple[str, ...]] = set()
    total = 0
    for text in texts:
        words = text.split()
        grams.update(zip(*(words[start:] for start in range(n)), strict=False))
        total += max(len(words) - n + 1, 0)
    return len(grams) / total if total else None


def health_table(figures: Health) -> list[list[str]]:
    """Return a table to print: the headings, then one row per label."""
    headings = [
        "label", "tries", "closed", "kept", "copies", "distinct-1", "distinct-2",
        "tokens", "words", "at floor", "repeated", "same input", "other label", "fits",
        "similarity",
    ]  # fmt: skip
    return [headings, *(_table_row(label) for label in figures.labels)]


def _table_row(label: LabelHealth) -> list[str]:
    most_shared = max(label.shared.values(), default=0)
    return [
        label.label,
        f"{label.tries:,}",
        percent(label.closed_share),
        f"{label.kept:,}",
        percent(label.copy_share if label.kept else None),
        number(label.distinct_1, 2),
        number(label.distinct_2, 2),
        number(label.mean_tokens, 1),
        number(label.mean_words, 1),
        percent(label.floor_share),
        percent(label.repeated_share if label.kept else None),
        percent(label.duplicate_share if label.kept and label.copy_share is not None else None),
        percent(most_shared / label.kept if label.kept else None),
        percent(label.fit_share),
        number(label.similarity, 2),
    ]


def percent(share: float | None) -> str:
    """Return a share as text, with one place below 10% and a dash where there is none."""
    if share is None:
        return "\u2013"
    return f"{share:.1%}" if 0 < share < 0.0995 or 0.9 < share < 1 else f"{share:.0%}"


def number(value: float | None, places: int) -> str:
    """Return a figure as text, with a dash where there is none."""
    return "\u2013" if value is None else f"{value:,.{places}f}"

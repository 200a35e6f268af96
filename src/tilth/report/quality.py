"""Hold the quality figures of generated data per label, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tilth.report.html import number, percent
from tilth.report.quality_warnings import QualityWarning


@dataclass(frozen=True, slots=True)
class LabelQuality:
    """The figures of one label. A share is between 0 and 1.

    Attributes:
        tries: outputs begun.
        closed: tries that reached their closing quotation mark, without a newline before it.
        closed_share: closed / tries.
        kept: tries not dropped.
        dropped: reason -> tries, the most frequent first.
        copies: kept outputs equal to their input apart from case and punctuation.
        copy_share: copies / kept; None for a task without inputs.
        distinct_1: distinct words / all words, in a seeded sample of at most 1,000 kept outputs
            (case and punctuation aside); None when nothing was kept.
        distinct_2: the same for bigrams within one output (Li et al. 2016, arXiv 1510.03055, who
            take them over all outputs).
        distinct_outputs: sample size of distinct_1 and distinct_2.
        mean_tokens: tokens per kept output, including the closing one; None without any.
        mean_words: words per kept output.
        all_tokens: tokens decoded for all tries.
        floor_share: share of all decoded tokens at the debiasing floor; None where not measured
            (an endpoint gives no distributions).
        repeated: kept outputs that an earlier kept row of the label has for another input; in a
            task without inputs, that any earlier kept row has.
        repeated_share: repeated / kept.
        duplicates: kept outputs that an earlier kept row of the label has for the same input.
        duplicate_share: duplicates / kept.
        shared: other label -> kept outputs it also has for the same input (word for word in a
            task without inputs).
        fit_share: share of the kept texts that fit the label's description; None: not measured.
        similarity: mean cosine of the two texts of a graded pair; None: not measured.
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
class Quality:
    """The figures of every label, the warnings, and why a label's fit is not measured."""

    labels: list[LabelQuality]
    warnings: list[QualityWarning] = field(default_factory=list)
    unmeasured: dict[str, str] = field(default_factory=dict)

    @property
    def tries(self) -> int:
        """Return the number of tries."""
        return sum(label.tries for label in self.labels)

    @property
    def kept(self) -> int:
        """Return the number of kept tries."""
        return sum(label.kept for label in self.labels)

    @property
    def summary(self) -> str:
        """Return one line for a run without warnings."""
        if self.warnings:
            return ""
        reasons = "; ".join(dict.fromkeys(self.unmeasured.values()))
        if reasons or any(one.fit_share is None and one.similarity is None for one in self.labels):
            why = f" ({reasons})" if reasons else ""
            return f"Not measured: whether texts fit their labels{why}. Read some."
        return "No label has a warning."

    @property
    def dropped(self) -> dict[str, int]:
        """Return drop reason -> tries of all labels, the most frequent first."""
        totals: dict[str, int] = {}
        for label in self.labels:
            for reason, count in label.dropped.items():
                totals[reason] = totals.get(reason, 0) + count
        return by_count(totals)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable figures."""
        return {"tries": self.tries, "kept": self.kept, "dropped": self.dropped, **asdict(self)}

    def table(self) -> list[list[str]]:
        """Return the figures as texts: the head, then a row per label."""
        head = [
            "label", "tries", "closed", "kept", "copies", "distinct-1", "distinct-2",
            "tokens", "words", "at floor", "repeated", "same input", "other label", "fits",
            "similarity",
        ]  # fmt: skip
        return [head, *(_table_line(label) for label in self.labels)]


def by_count(counts: Mapping[str, int]) -> dict[str, int]:
    """Sort counts in descending order."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _table_line(label: LabelQuality) -> list[str]:
    kept = label.kept or None
    return [
        label.label,
        f"{label.tries:,}",
        percent(label.closed_share),
        f"{label.kept:,}",
        percent(kept and label.copy_share),
        number(label.distinct_1, 2),
        number(label.distinct_2, 2),
        number(label.mean_tokens, 1),
        number(label.mean_words, 1),
        percent(label.floor_share),
        percent(kept and label.repeated_share),
        percent(kept and label.duplicate_share if label.copy_share is not None else None),
        percent(kept and max(label.shared.values(), default=0) / kept),
        percent(label.fit_share),
        number(label.similarity, 2),
    ]

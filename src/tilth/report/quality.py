"""Quality of generated data: figures per label, as JSON and as a table, and warnings.

A warning has a measured threshold, and one sentence with a remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tilth.report.html import number, percent


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of the warnings.

    Attributes:
        enough: minimum tries, or kept outputs, for a share to be meaningful.
        closed: minimum share of closed tries. With 5 tries for 2 outputs (the paper) a share of
            0.5 still fills 97% of the first and 81% of the second places; below, inputs are lost.
        copies: maximum share of copies of the input; twice the limit of the shipped model (0.1).
        distinct_2: minimum distinct-2 of 1,000 outputs. Measured on 1,000 sentences each: news
            and captions of STS-B 0.80, Wikipedia 0.82, novels 0.73, dialogue 0.51; both sides of
            500 pairs: STS-B 0.67, the formulaic captions of SICK 0.34.
        floor_share: maximum share of tokens drawn at the floor. There the counter label gives the
            token a far higher probability than the label does; it is drawn only where all tokens
            are like that, and debiasing then adds noise (issue 9 of the original code).
        repeated: maximum share of kept outputs already written for another input.
        duplicates: maximum share of kept outputs already written for the same input.
        shared: maximum share of kept outputs that another label has for the same input: the
            training data then contradicts itself.
        fits: minimum share of kept texts that fit their label. Of real rows of ten CLINC150
            intents 0.90 do; with a wrong label none.
        writes: below this share of all kept texts, the model cannot write the task.
        separation: minimum probability that a pair is more similar than one of the next lower
            label; of STS-B's dev pairs with scores above 4.2, 2 to 3 and below 0.8 it is 0.95
            and 0.98.
        length_ratio: maximum ratio of two labels' mean lengths; above it a classifier learns the
            length.
    """

    enough: int = 30
    closed: float = 0.5
    copies: float = 0.2
    distinct_2: float = 0.3
    floor_share: float = 0.3
    repeated: float = 0.1
    duplicates: float = 0.25
    shared: float = 0.1
    fits: float = 0.7
    writes: float = 0.5
    separation: float = 0.75
    length_ratio: float = 2.5


_NAMED = 5  # labels in a sentence
# Remedy for a model that cannot write a task.
REMEDY = (
    "use a larger model (--model gpt2-xl on a GPU, or an endpoint: OpenAI, vLLM, Ollama), label "
    "texts of your own by description (tilth predict TASK FILE), or write some by hand"
)


@dataclass(frozen=True, slots=True)
class QualityWarning:
    """A warning: its label ("" for all), its figure, and a sentence with the remedy."""

    label: str
    figure: str
    text: str


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
        mean_tokens: tokens drawn for each kept output, including the closing one and those of
            candidates that were not chosen; None without any.
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
        kept = [one for one in self.labels if one.kept]
        if reasons or any(one.fit_share is None and one.similarity is None for one in kept):
            why = f" ({reasons})" if reasons else ""
            return f"Not measured: whether texts fit their labels{why}. Read some."
        enough = Thresholds().enough
        if few := [label.label for label in self.labels if label.kept < enough]:
            more = f" and {len(few) - _NAMED} more" if len(few) > _NAMED else ""
            named = ", ".join(few[:_NAMED]) + more
            return f"Too few kept texts to judge, fewer than {enough}: {named}."
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


def find_warnings(labels: Sequence[LabelQuality]) -> list[QualityWarning]:
    """Return the warnings of all labels together, then per label, the worst first."""
    limits = Thresholds()
    found = list(_task_warnings(labels, limits))
    # State the remedy once.
    remedy = "see the first warning" if any(w.figure == "fit_share" for w in found) else REMEDY
    for label in labels:
        found += [
            QualityWarning(label.label, figure, f"Label {label.label}: {text}")
            for figure, text in _label_warnings(label, limits, remedy)
        ]
    return found


def _task_warnings(labels: Sequence[LabelQuality], limits: Thresholds) -> Iterator[QualityWarning]:
    measured = [label for label in labels if label.fit_share is not None]
    kept = sum(label.kept for label in measured)
    fitting = sum(label.kept * (label.fit_share or 0.0) for label in measured)
    if kept >= limits.enough and fitting < limits.writes * kept:
        yield QualityWarning(
            "",
            "fit_share",
            f"THE MODEL CANNOT WRITE THIS TASK: {1 - fitting / kept:.0%} of {kept:,} texts do not "
            f"fit their label; {REMEDY}.",
        )
    lengths = {
        label.label: label.mean_words
        for label in labels
        if label.mean_words and label.kept >= limits.enough
    }
    if lengths:
        longest, shortest = (
            max(lengths, key=lengths.__getitem__),
            min(lengths, key=lengths.__getitem__),
        )
        if lengths[longest] > limits.length_ratio * lengths[shortest]:
            yield QualityWarning(
                longest,
                "mean_words",
                f"Label {longest}: its texts have {lengths[longest]:.1f} words, those of "
                f"{shortest} {lengths[shortest]:.1f}, so a classifier can go by length; ask for "
                "texts of the same length in the instructions.",
            )


def _label_warnings(
    label: LabelQuality, limits: Thresholds, remedy: str
) -> Iterator[tuple[str, str]]:
    """Yield the figure and the text of each warning of a label."""
    if label.tries >= limits.enough:
        if not label.kept:
            reasons = ", ".join(f"{reason} {n:,}" for reason, n in label.dropped.items())
            yield (
                "kept",
                f"none of its {label.tries:,} tries was kept ({reasons}); try the instruction on a "
                "few inputs with --plan before a long run.",
            )
        if label.closed_share < limits.closed:
            yield (
                "closed_share",
                f"only {label.closed_share:.0%} of {label.tries:,} tries closed their quotation "
                "mark; raise --max-new-tokens, or let the instruction ask for one sentence.",
            )
        if (label.floor_share or 0.0) > limits.floor_share:
            yield (
                "floor_share",
                f"{label.floor_share:.0%} of its tokens were drawn at the debiasing floor, which "
                "turns text into noise; lower --decay, or word the instruction further from those "
                "of its counter labels.",
            )
    if label.kept < limits.enough:
        return
    has_inputs = label.copy_share is not None
    if label.fit_share is not None and label.fit_share < limits.fits:
        yield (
            "fit_share",
            f"{label.fit_share:.0%} of its kept texts fit its description (real texts: about 90%); "
            f"tilth curate drops the others; {remedy}; where they read well, give the label a "
            "description and examples.",
        )
    if label.separation is not None and label.separation < limits.separation:
        yield (
            "separation",
            f"its pairs are more similar than those of label {label.below} in only "
            f"{label.separation:.0%} of comparisons (50% is chance), mean cosine "
            f"{label.similarity:.2f}; use a larger model (--model gpt2-xl on a GPU, or an "
            "endpoint), or an encoder that is trained already (starter-encoder).",
        )
    if (label.copy_share or 0.0) > limits.copies:
        yield (
            "copy_share",
            f"{label.copy_share:.0%} of its kept outputs copy the input; let the instruction ask "
            "for other words, or raise --temperature.",
        )
    if label.distinct_2 is not None and label.distinct_2 < limits.distinct_2:
        yield (
            "distinct_2",
            f"distinct-2 is {label.distinct_2:.2f}, so the same phrases come back; raise --top-k "
            "or --top-p, or "
            + ("give more varied inputs." if has_inputs else "ask for more variety."),
        )
    if label.repeated_share > limits.repeated:
        yield (
            "repeated_share",
            f"{label.repeated_share:.0%} of its kept outputs were seen before"
            f"{' with another input' if has_inputs else ''}; raise --top-k or --temperature, or "
            + ("make the instruction hold on to the input." if has_inputs else "lower --count."),
        )
    if label.duplicate_share > limits.duplicates:
        yield (
            "duplicate_share",
            f"{label.duplicate_share:.0%} of its kept outputs were written before for the same "
            "input; raise --top-k or --temperature, or lower --per-input.",
        )
    other, count = max(label.shared.items(), key=lambda item: item[1], default=("", 0))
    if count > limits.shared * label.kept:
        same = "for the same input" if has_inputs else "word for word"
        yield (
            "shared",
            f"{count / label.kept:.0%} of its kept outputs stand under label {other} too, {same}; "
            "word the two instructions further apart, raise --decay, or let the labels counter "
            "each other.",
        )

"""Warn about generated data: measured thresholds, and one sentence with a remedy each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilth.report.quality import LabelQuality


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


def find_warnings(
    labels: Sequence[LabelQuality], thresholds: Thresholds | None = None
) -> list[QualityWarning]:
    """Return the warnings of all labels together, then per label, the worst first."""
    limits = thresholds or Thresholds()
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
            "or --top-p, or give more varied inputs.",
        )
    if label.repeated_share > limits.repeated:
        yield (
            "repeated_share",
            f"{label.repeated_share:.0%} of its kept outputs were seen before with another input; "
            "raise --top-k or --temperature, or make the instruction hold on to the input.",
        )
    if label.duplicate_share > limits.duplicates:
        yield (
            "duplicate_share",
            f"{label.duplicate_share:.0%} of its kept outputs were written before for the same "
            "input; raise --top-k or --temperature, or lower --per-input.",
        )
    other, count = max(label.shared.items(), key=lambda item: item[1], default=("", 0))
    if count > limits.shared * label.kept:
        same = "for the same input" if label.copy_share is not None else "word for word"
        yield (
            "shared",
            f"{count / label.kept:.0%} of its kept outputs stand under label {other} too, {same}; "
            "word the two instructions further apart, raise --decay, or let the labels counter "
            "each other.",
        )

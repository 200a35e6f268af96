"""When a label looks sick: the limits, and one sentence for each symptom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilth.report.figures import LabelHealth


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a figure becomes a warning.

    Attributes:
        enough: fewer tries, or fewer kept outputs, say nothing about a share; no warning.
        closed: smallest healthy share of closed tries. With 5 tries for 2 outputs (the paper) a
            share of 0.5 still fills 97% of the first and 81% of the second places; below, inputs
            are lost.
        copies: largest healthy share of kept outputs that copy their input. The shipped model is
            held to 0.1; twice that is out of the ordinary.
        distinct_2: smallest healthy distinct-2 of a draw of 1,000 outputs. Measured on 1,000
            sentences each: news and captions of STS-B 0.80, Wikipedia 0.82, novels 0.73, dialogue
            0.51; both sides of 500 pairs: STS-B 0.67, the formulaic captions of SICK 0.34.
        floor_share: largest healthy share of tokens drawn at the floor. At the floor the counter
            label holds the token far more probable than the label does; it is drawn only where
            all tokens are like that, and then debiasing pushes towards noise (issue 9 of the
            original code).
        repeated: largest healthy share of kept outputs already written for another input.
        duplicates: largest healthy share of kept outputs already written for the same input.
        shared: largest healthy share of kept outputs that another label has for the same input:
            the training data then contradicts itself.
        fits: smallest healthy share of kept texts that fit their label. Of real rows of ten
            CLINC150 intents 0.90 do; with a wrong label none.
        writes: below this share of all kept texts, the model cannot write the task.
        separation: smallest healthy probability that a pair is more similar than one of the next
            lower label; of STS-B's dev pairs with scores above 4.2, 2 to 3 and below 0.8 it is
            0.95 and 0.98.
        length_ratio: largest healthy ratio of a label's mean length to another's: a classifier
            learns the length.
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


LIMITS = Limits()
# What helps where a model cannot write a task.
REMEDY = (
    "use a larger model (--model gpt2-xl on a GPU, or an endpoint: OpenAI, vLLM, Ollama), label "
    "texts of your own by description (tilth predict TASK FILE), or write some by hand"
)


@dataclass(frozen=True, slots=True)
class Symptom:
    """One warning: the label it is about, the figure's name, and a sentence with the mend."""

    label: str
    figure: str
    text: str

    def __str__(self) -> str:
        """Return the sentence."""
        return self.text


def symptoms(labels: Sequence[LabelHealth], limits: Limits = LIMITS) -> list[Symptom]:
    """Return what looks sick: of all labels together, then label by label, the worst first."""
    found = [*_task_symptoms(labels, limits)]
    # What helps is said once.
    remedy = "see the first warning" if any(s.figure == "fit_share" for s in found) else REMEDY
    for label in labels:
        found += _label_symptoms(label, limits, remedy)
    return found


def _task_symptoms(labels: Sequence[LabelHealth], limits: Limits) -> Iterator[Symptom]:
    measured = [label for label in labels if label.fit_share is not None]
    kept = sum(label.kept for label in measured)
    fitting = sum(label.kept * (label.fit_share or 0.0) for label in measured)
    if kept >= limits.enough and fitting < limits.writes * kept:
        yield Symptom(
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
    if len(lengths) > 1:
        longest, shortest = (pick(lengths, key=lambda name: lengths[name]) for pick in (max, min))
        if lengths[longest] > limits.length_ratio * lengths[shortest]:
            yield Symptom(
                longest,
                "mean_words",
                f"Label {longest}: its texts have {lengths[longest]:.1f} words, those of "
                f"{shortest} {lengths[shortest]:.1f}, so a classifier can go by length; ask for "
                "texts of the same length in the instructions.",
            )


def _label_symptoms(label: LabelHealth, limits: Limits, remedy: str) -> Iterator[Symptom]:
    """Yield what looks sick about a label, the worst first."""
    name = label.label
    if label.tries >= limits.enough and not label.kept:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in label.dropped.items())
        yield Symptom(
            name,
            "kept",
            f"Label {name}: none of its {label.tries:,} tries was kept ({reasons}); "
            "try the instruction on a few inputs with --plan before a long run.",
        )
    if label.tries >= limits.enough and label.closed_share < limits.closed:
        yield Symptom(
            name,
            "closed_share",
            f"Label {name}: only {label.closed_share:.0%} of {label.tries:,} tries closed their "
            "quotation mark; raise --max-new-tokens, or let the instruction ask for one sentence.",
        )
    floor_share = label.floor_share or 0.0
    if label.tries >= limits.enough and floor_share > limits.floor_share:
        yield Symptom(
            name,
            "floor_share",
            f"Label {name}: {floor_share:.0%} of its tokens were drawn at the debiasing floor, "
            "which turns text into noise; lower --decay, or word the instruction further from "
            "those of its counter labels.",
        )
    if label.kept >= limits.enough:
        yield from _kept_symptoms(label, limits, remedy)


def _kept_symptoms(label: LabelHealth, limits: Limits, remedy: str) -> Iterator[Symptom]:
    name = label.label
    if label.fit_share is not None and label.fit_share < limits.fits:
        yield Symptom(
            name,
            "fit_share",
            f"Label {name}: {label.fit_share:.0%} of its kept texts fit its description (real "
            f"texts: about 90%); tilth curate drops the others; {remedy}; where they read well, "
            "give the label a description and examples.",
        )
    if label.separation is not None and label.separation < limits.separation:
        yield Symptom(
            name,
            "separation",
            f"Label {name}: its pairs are more similar than those of label {label.below} in only "
            f"{label.separation:.0%} of comparisons (50% is chance), mean cosine "
            f"{label.similarity:.2f}; use a larger model (--model gpt2-xl on a GPU, or an "
            "endpoint), or an encoder that is trained already (starter-encoder).",
        )
    if label.copy_share is not None and label.copy_share > limits.copies:
        yield Symptom(
            name,
            "copy_share",
            f"Label {name}: {label.copy_share:.0%} of its kept outputs copy the input; let the "
            "instruction ask for other words, or raise --temperature.",
        )
    if label.distinct_2 is not None and label.distinct_2 < limits.distinct_2:
        yield Symptom(
            name,
            "distinct_2",
            f"Label {name}: distinct-2 is {label.distinct_2:.2f}, so the same phrases come back; "
            "raise --top-k or --top-p, or give more varied inputs.",
        )
    if label.repeated_share > limits.repeated:
        yield Symptom(
            name,
            "repeated_share",
            f"Label {name}: {label.repeated_share:.0%} of its kept outputs were seen before with "
            "another input; raise --top-k or --temperature, or make the instruction hold on to "
            "the input.",
        )
    if label.duplicate_share > limits.duplicates:
        yield Symptom(
            name,
            "duplicate_share",
            f"Label {name}: {label.duplicate_share:.0%} of its kept outputs were written before "
            "for the same input; raise --top-k or --temperature, or lower --per-input.",
        )
    other, count = max(label.shared.items(), key=lambda item: item[1], default=("", 0))
    if count > limits.shared * label.kept:
        same = "for the same input" if label.copy_share is not None else "word for word"
        yield Symptom(
            name,
            "shared",
            f"Label {name}: {count / label.kept:.0%} of its kept outputs stand under label "
            f"{other} too, {same}; word the two instructions further apart, raise --decay, or "
            "let the labels counter each other.",
        )

"""How large a few-shot experiment is, and the ways of self-training that it compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from tilth.classifiers.settings import Finetuning
from tilth.errors import InputError
from tilth.limits import EPOCHS, QUERY, ROWS, SEED, TRAININGS, Number, check_fields

FINE_TUNED = "fine-tuned"
PAPERS, OURS = "self-training, the paper's way", "self-training, our way"
# A tenth of the paper's trainings, for a small base without a GPU. The last three are of students,
# of what their teacher labels, and of all trainings.
QUICK: dict[str, Any] = {
    "seeds": 2, "best": 2, "epochs": 30.0, "student_epochs": 5.0, "labelled": 100, "max_length": 64,
}  # fmt: skip
_WEIGHT = Number(0, 1_000_000, above=True)


@dataclass(frozen=True, slots=True)
class SelfTraining:
    """How a draw is augmented with what its teacher labels; the defaults are the paper's.

    Attributes:
        query: what a bank is asked for, see `task_queries`.
        top: sentences that are retrieved for each labelled row, as far as the bank has them.
        labelled: of these, drawn at random, the teacher labels so many for each labelled row;
            None: all.
        multiple: of these so many for each labelled row are trained on, drawn at random in the
            draw's ratio of classes.
        soft: learn the teacher's probabilities; else its likeliest label.
        teachers: how many trainings, the best by validation, label together by their mean.
        epochs: of the students; None: as many as of the teachers.
        weight: of a labelled row among retrieved ones, which weigh 1.

    Reference:
        Du et al. 2021, section 3.3. Labelled rows keep their own labels, where the paper's get
        the teacher's.
    """

    query: Annotated[str, QUERY] = "label-average"
    top: Annotated[int, ROWS] = 1000
    labelled: Annotated[int | None, ROWS] = None
    multiple: Annotated[int, ROWS] = 10
    soft: bool = False
    teachers: Annotated[int, TRAININGS] = 1
    epochs: Annotated[float | None, EPOCHS] = None
    weight: Annotated[float, _WEIGHT] = 1.0

    def __post_init__(self) -> None:
        check_fields(self)


def both_ways(epochs: float | None = None, labelled: int | None = None) -> dict[str, SelfTraining]:
    """Return the paper's way of self-training and ours, by name.

    Ours was found on a draw of TREC, measured on rows of its training set: in a bank of millions
    the thousand nearest sentences for each row are far off, and labelled rows are lost among wrong
    labels.

    Args:
        epochs: of students; None: as many as of teachers.
        labelled: see `SelfTraining`; of the paper's way.
    """
    return {
        PAPERS: SelfTraining(epochs=epochs, labelled=labelled),
        OURS: SelfTraining(
            "per-sentence", top=15, soft=True, teachers=3, epochs=epochs, weight=10.0
        ),
    }


@dataclass(frozen=True, slots=True)
class FewShot:
    """A few-shot experiment; the defaults are the paper's."""

    base: Annotated[str, "Model to fine-tune: a starter, a folder or a hub id."] = "starter-encoder"
    draws: Annotated[int, TRAININGS, "Draws of TRAIN."] = 5
    per_class: Annotated[int | None, ROWS, "Rows of each class in a draw."] = 20
    sentences: Annotated[int, ROWS, "Sentences in a draw, where tokens have tags."] = 200
    validation: Annotated[int, ROWS, "Rows to choose weights and teachers with, at most."] = 200
    seeds: Annotated[int, TRAININGS, "Trainings of each draw; 10 in the paper."] = 10
    best: Annotated[
        int, TRAININGS, "Trainings, chosen by validation, that count; 3 in the paper."
    ] = 3
    seed: Annotated[int, SEED, "Same settings and seed, same draws."] = 0
    training: Finetuning = field(default_factory=lambda: Finetuning(epochs=50))
    systems: Mapping[str, SelfTraining] = field(default_factory=both_ways)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.per_class is None and self.draws > 1:
            raise InputError(f"draws is {self.draws}: all rows are one draw; give draws 1")
        if FINE_TUNED in self.systems:
            raise InputError(
                f"system {FINE_TUNED!r} is what others are measured against: rename it"
            )

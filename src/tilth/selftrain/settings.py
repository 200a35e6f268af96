"""Settings of augmentation and of few-shot experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from tilth.classifiers.settings import Finetuning
from tilth.errors import InputError
from tilth.limits import (
    CLUSTERS,
    EPOCHS,
    MULTIPLE,
    QUERY,
    ROWS,
    SEED,
    SELECT,
    SHARE,
    SIMILARITY,
    TRAININGS,
    Number,
    TrainingPrecision,
    check_fields,
)
from tilth.runs.cluster import Cluster

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier


FINE_TUNED = "fine-tuned"
PAPERS, OURS = "self-training, the paper's way", "self-training, our way"
# A tenth of the paper's training, for a small base without a GPU. `student_epochs` is `epochs` of
# `SelfTraining`.
QUICK: dict[str, Any] = {
    "seeds": 2, "best": 2, "epochs": 30.0, "student_epochs": 5.0,
    "labelled_per_row": 100, "max_length": 64,
}  # fmt: skip
_WEIGHT = Number(0, 1_000_000, above=True)


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Configure the augmentation of a training set.

    Reference:
        Du et al. 2020, arXiv:2010.02194, section 2.
    """

    query: Annotated[
        str, QUERY, "Queries: label-average (one per label), all-average, per-sentence or clusters."
    ] = "label-average"
    clusters: Annotated[int, CLUSTERS, "Clusters per label, of --query clusters."] = 8
    multiple: Annotated[
        float | None,
        MULTIPLE,
        "Rows wanted for each row of TRAIN; default: 100 for small sets, down to 10 for large"
        " ones, as far as the bank is large enough.",
    ] = None
    count: Annotated[int | None, ROWS, "Rows wanted."] = None
    per_class: Annotated[int | None, ROWS, "Rows wanted of each class."] = None
    candidates: Annotated[
        int | None,
        ROWS,
        "Sentences to retrieve and label; default: 2 for each wanted row, at least 2,000.",
    ] = None
    # The paper's most confident sentences of each class are the best of a bank of billions; of one
    # of millions they are the plain cases, all alike (docs/augment.md): a draw is the default.
    select: Annotated[
        str,
        SELECT,
        "Which rows of each class are kept: random (a draw), confidence (the paper's way), "
        "margin or similarity; or all.",
    ] = "random"
    min_confidence: Annotated[float, SHARE, "Least confidence of the teacher, 0 to 1."] = 0.0
    min_similarity: Annotated[float | None, SIMILARITY, "Least cosine with the query, -1 to 1."] = (
        None
    )
    sources: Annotated[
        tuple[str, ...] | None,
        "--source",
        "Only sentences of this source of the bank: its name, one with *, or a folder.",
    ] = None
    near: Annotated[
        bool, "--no-near", "Also leave out near duplicates of test and validation rows."
    ] = True
    index: Annotated[bool, "Ask the bank's index, for many queries."] = False
    precision: TrainingPrecision = "auto"
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        given = [
            name for name in ("multiple", "count", "per_class") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} say both how many rows are wanted: give one")


@dataclass(frozen=True, slots=True)
class TeacherSettings:
    """Configure the teacher of an augmentation.

    Attributes:
        model: a base to fine-tune, or a finished classifier or its name.
        seeds: number of trainings, of which the best is taken.
        training: fields of `Finetuning`.
        cluster: where the bank is scanned and sentences are labelled.
    """

    model: str | Classifier = "starter-encoder"
    seeds: Annotated[int, TRAININGS] = 1
    training: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"
    cluster: Cluster = field(default_factory=Cluster)


@dataclass(frozen=True, slots=True)
class SelfTraining:
    """Configure the self-training of a draw; the defaults are the paper's.

    Attributes:
        query: kind of queries, as of `task_queries`.
        top: sentences retrieved for each labelled row, as far as the bank has them.
        labelled_per_row: random ones of these that the teacher labels, for each labelled row; None:
            all.
        multiple: random ones of these that are trained on, for each labelled row, in the draw's
            class ratio.
        soft: learn the teacher's probabilities; else its likeliest label.
        teachers: number of trainings, the best by validation, whose mean labels the sentences.
        epochs: of the students; None: as of the teachers.
        weight: of a labelled row in the loss; retrieved ones have 1.

    Reference:
        Du et al. 2020, section 3.3. Labelled rows keep their own labels, where the paper's get
        the teacher's.
    """

    query: Annotated[str, QUERY] = "label-average"
    top: Annotated[int, ROWS] = 1000
    labelled_per_row: Annotated[int | None, ROWS] = None
    multiple: Annotated[int, ROWS] = 10
    soft: bool = False
    teachers: Annotated[int, TRAININGS] = 1
    epochs: Annotated[float | None, EPOCHS] = None
    weight: Annotated[float, _WEIGHT] = 1.0

    def __post_init__(self) -> None:
        check_fields(self)


def both_ways(
    epochs: float | None = None, labelled_per_row: int | None = None
) -> dict[str, SelfTraining]:
    """Return the paper's variant of self-training and ours, by name.

    Ours was found on a draw of TREC, measured on rows of its training set: in a bank of millions
    the thousand nearest sentences for each row are far off, and labelled rows are lost among wrong
    labels.

    Args:
        epochs: of students; None: as many as of teachers.
        labelled_per_row: as of `SelfTraining`, in the paper's variant.
    """
    return {
        PAPERS: SelfTraining(epochs=epochs, labelled_per_row=labelled_per_row),
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
    validation: Annotated[
        int, ROWS, "--validation-rows", "Rows to choose weights and teachers with, at most."
    ] = 200
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

"""What a few-shot experiment consists of, and what its trainings say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tilth.limits import (
    EPOCHS,
    PART_SHARE,
    QUERY,
    ROWS,
    SEED,
    SELECT,
    TRAININGS,
    Number,
    check_fields,
)
from tilth.selftrain.draws import OverDraws, best_of, gain, over_draws

FINE_TUNED = "fine-tuned"
_WEIGHT = Number(0, 1_000_000, above=True)


@dataclass(frozen=True, slots=True)
class FewShot:
    """How large a few-shot experiment is; the defaults are the paper's.

    Attributes:
        draws: of the training set.
        per_class: rows of each class in a draw.
        sentences: in a draw where tokens have tags.
        validation: rows to choose weights, trainings and teachers with.
        seeds: trainings of each draw and system.
        best: of these, by validation, whose mean test score counts.
        seed: of the draws.
    """

    draws: Annotated[int, TRAININGS] = 5
    per_class: Annotated[int, ROWS] = 20
    sentences: Annotated[int, ROWS] = 200
    validation: Annotated[int, ROWS] = 200
    seeds: Annotated[int, TRAININGS] = 10
    best: Annotated[int, TRAININGS] = 3
    seed: Annotated[int, SEED] = 0

    def __post_init__(self) -> None:
        """Check every value at the door."""
        check_fields(self)


@dataclass(frozen=True, slots=True)
class SelfTraining:
    """How a draw is augmented with what its teacher labels; the defaults are the paper's.

    Attributes:
        query: what a bank is asked for, see `task_queries`.
        top: sentences that are retrieved for each labelled row, as far as the bank has them.
        labelled: of these, drawn at random, the teacher labels so many for each labelled row;
            None: all.
        multiple: of these so many for each labelled row are trained on.
        select: which, see `tilth.selftrain.select.select`: of each class as many as its share in
            the draw.
        floor: least confidence of the teacher.
        soft: learn the teacher's probabilities; else its likeliest label.
        teachers: how many trainings, the best by validation, label together by their mean.
        rounds: how often: in each round after the first the students of the one before teach.
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
    select: Annotated[str, SELECT] = "random"
    floor: Annotated[float, PART_SHARE] = 0.0
    soft: bool = False
    teachers: Annotated[int, TRAININGS] = 1
    rounds: Annotated[int, TRAININGS] = 1
    epochs: Annotated[float | None, EPOCHS] = None
    weight: Annotated[float, _WEIGHT] = 1.0

    def __post_init__(self) -> None:
        """Check every value at the door."""
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Job:
    """One part of the run: a training, or the labelled sentences that students learn from.

    Attributes:
        draw: from 0.
        system: `FINE_TUNED`, or the name of a way of self-training.
        round: of the students, from 0; teachers are of round 0.
        seed: of the training, from 0; None: sentences are retrieved and labelled.
    """

    draw: int
    system: str
    round: int = 0
    seed: int | None = None


def plan(settings: FewShot, systems: Mapping[str, SelfTraining]) -> list[Job]:
    """Return all parts of a run, in an order in which each comes after what it needs.

    Args:
        settings: how many draws and seeds.
        systems: ways of self-training by name.
    """
    jobs = []
    for number in range(settings.draws):
        jobs += [Job(number, FINE_TUNED, 0, seed) for seed in range(settings.seeds)]
        for name, system in systems.items():
            for turn in range(system.rounds):
                jobs.append(Job(number, name, turn))
                jobs += [Job(number, name, turn, seed) for seed in range(settings.seeds)]
    return jobs


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a few-shot experiment found.

    Attributes:
        measure: what the scores are.
        scores: of fine-tuning and each way of self-training.
        gains: of each way of self-training over fine-tuning, draw by draw.
        rows: trained on in each system, the mean over the draws.
    """

    measure: str
    scores: Mapping[str, OverDraws]
    gains: Mapping[str, OverDraws]
    rows: Mapping[str, float]


def summarise(
    rows: Sequence[Mapping[str, Any]], measure: str, systems: Mapping[str, SelfTraining], best: int
) -> Outcome:
    """Return what trainings gave.

    Args:
        rows: draw, system, round, rows, choice (what the best by validation have most of) and test
            score of each training.
        measure: what the scores are.
        systems: ways of self-training by name; the last round of each counts.
        best: trainings of a draw that count, by validation.
    """
    last = {FINE_TUNED: 0, **{name: one.rounds - 1 for name, one in systems.items()}}
    draws = sorted({row["draw"] for row in rows})
    scores, sizes = {}, {}
    for system, turn in last.items():
        own = [row for row in rows if (row["system"], row["round"]) == (system, turn)]
        each = [[row for row in own if row["draw"] == number] for number in draws]
        scores[system] = over_draws([
            best_of([row["choice"] for row in some], [row["test"] for row in some], best)
            for some in each
        ])  # fmt: skip
        sizes[system] = float(np.mean([row["rows"] for row in own]))
    base = scores[FINE_TUNED].draws
    gains = {name: gain(base, scores[name].draws) for name in systems}
    return Outcome(measure, scores, gains, sizes)

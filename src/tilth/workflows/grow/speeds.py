"""Estimates how long the ways of `tilth grow` take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilth.classifiers.load import repeat_count
from tilth.classifiers.settings import Finetuning
from tilth.encoders.label_contrast import BATCH, step_count
from tilth.encoders.setfit import MOST_PAIRS
from tilth.report.systems import AVERAGE, CONTRAST, ENCODER, MAJORITY, SETFIT, TFIDF
from tilth.workflows.grow.arms import BY_DESCRIPTION, PLAIN, RETRIEVALS, Arm, Teacher
from tilth.workflows.grow.sources import (
    DESCRIBED,
    DESCRIPTIONS,
    GENERATED,
    MULTIPLE,
    PARAPHRASED,
    RETRIEVED,
    Sources,
)

if TYPE_CHECKING:
    from tilth.workflows.grow.task import GrowTask


@dataclass(frozen=True, slots=True)
class Speeds:
    """Rows a second of each kind of work on this machine.

    Attributes:
        train: texts in training steps of the base.
        label: texts that the base labels.
        encode: pairs in training steps of the encoder.
        compare: texts that the encoder reads.
    """

    train: float
    label: float
    encode: float
    compare: float

    def seconds(self, arm: Arm, task: GrowTask, sources: Sources, teacher: Teacher) -> float:
        """Return the estimated seconds of one training and measurement of an arm.

        An average is of encoders that other arms have trained.
        """
        rows = round(len(task.rows) * arm.share)
        headed = teacher.arm != PLAIN
        if arm.name in (MAJORITY, TFIDF, BY_DESCRIPTION, ENCODER, AVERAGE):
            return 1.0 + rows / self.compare
        if arm.name == SETFIT:
            return 2.0 + min(MOST_PAIRS, 40 * rows) / self.encode
        if arm.name == CONTRAST or (headed and arm.is_curve):
            return self._contrast(rows) + rows / self.compare
        if not arm.sources:
            return 1.0 + _trained(rows) / self.train
        extra = 0
        for source in arm.sources:
            own = {PARAPHRASED: rows, GENERATED: sources.settings.count * len(task.labels)}
            if source == DESCRIPTIONS:
                own[source] = sum(text.count("\n") + 1 for text in task.descriptions)
            multiple = RETRIEVALS[arm.setting or RETRIEVED][0] if source == RETRIEVED else MULTIPLE
            extra += own.get(source, sources.count(multiple))
        compared = sources.most_compared if DESCRIBED in arm.sources else 0
        if headed:  # heads are free: every text is encoded once
            read = extra + rows + (extra if RETRIEVED in arm.sources else 0)
            count = sources.count(MULTIPLE)
            # The student answers all candidates; the new encoder reads those that are chosen.
            a_round = self._contrast(count, are_pseudo=True) + (compared + count) / self.compare
            return 2.0 + (compared + read) / self.compare + (arm.rounds - 1) * a_round
        times = repeat_count(arm.weight, extra, rows) if rows else 0
        # The teacher labels twice as many sentences.
        a_round = 2 * extra / self.label + _trained(extra + times * rows) / self.train
        return 2.0 + compared / self.compare + arm.rounds * a_round

    def _contrast(self, rows: int, *, are_pseudo: bool = False) -> float:
        """Return the seconds of a contrastive training."""
        return 2.0 + step_count(rows, are_pseudo=are_pseudo) * BATCH / (2 * self.encode)


def _trained(rows: int) -> float:
    """Return the texts of all training steps on so many rows."""
    settings = Finetuning()
    return settings.steps(rows)[0] * settings.batch if rows else 0.0

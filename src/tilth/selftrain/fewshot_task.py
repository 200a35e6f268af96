"""The labelled sets of a few-shot experiment, and the draws of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilth.data.examples import Examples
from tilth.errors import InputError
from tilth.selftrain.draws import draw, draw_validation
from tilth.selftrain.rows import Rows, rows_of

if TYPE_CHECKING:
    from tilth.selftrain.fewshot_plan import FewShot


@dataclass(frozen=True, slots=True)
class Task:
    """A labelled set to draw from, and what is the same for all draws.

    Attributes:
        examples: of the large training set.
        train: the same as rows.
        validation: the rows that were drawn to choose with.
        test: what is measured on.
    """

    examples: Examples
    train: Rows
    validation: Rows
    test: Rows

    def fingerprints(self) -> dict[str, str]:
        """Return a hash of each set."""
        return {name: getattr(self, name).fingerprint() for name in ("train", "validation", "test")}

    def drawn(self, settings: FewShot, number: int) -> NDArray[np.int64]:
        """Return the places of a draw's rows in the large set."""
        return draw(
            self.train, settings.per_class, sentences=settings.sentences,
            seed=settings.seed + number, without={*self.validation.texts, *self.test.texts},
        )  # fmt: skip


def make_task(examples: Examples, validation: Rows, test: Rows, settings: FewShot) -> Task:
    """Draw the validation rows of an experiment.

    Raises:
        InputError: the examples are pairs, or other sets have other labels.
    """
    if examples.kind == "pair":
        raise InputError("the examples are pairs: a bank has single sentences; give single texts")
    rows = rows_of(examples)
    for name, other in (("validation", validation), ("test", test)):
        if (other.kind, other.labels) != (rows.kind, rows.labels):
            raise InputError(
                f"{name} rows are for {other.kind} {', '.join(other.labels)}, the examples for "
                f"{rows.kind} {', '.join(rows.labels)}: read them with the same labels"
            )
    without = set(test.texts)
    chosen = draw_validation(validation, settings.validation, seed=settings.seed, without=without)
    return Task(examples, rows, validation.select(chosen), test)

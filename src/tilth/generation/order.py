"""What is to be generated, checked: task, model, settings and where inputs come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilth.data import text_id
from tilth.errors import InputError
from tilth.generation.settings import Item, Settings, items_from_inputs, items_from_nothing
from tilth.generation.task import Task, first_text_task
from tilth.limits import TEXTS
from tilth.models import LM

if TYPE_CHECKING:
    from tilth.models import Endpoint

# The paper draws the x1 of a pair task with top-p alone (section 4).
FIRST_TEXT_TOP_K = 0
# A first text takes one row where an input of a pair task takes a dozen.
_FIRST_TEXTS_A_PART = 8


@dataclass(frozen=True, slots=True)
class Order:
    """An order that can be carried out."""

    task: Task
    lm: LM | Endpoint
    settings: Settings
    inputs: Sequence[str] | None = None
    count: int | None = None
    from_x1: int | None = None

    def __post_init__(self) -> None:
        """Check that the task and what it is given go together."""
        if not isinstance(self.lm, LM) and self.settings.sampling.decay:
            # An endpoint gives no distributions: the settings say what is really done.
            plain = replace(self.settings.sampling, decay=0.0)
            object.__setattr__(self, "settings", replace(self.settings, sampling=plain))
        if isinstance(self.lm, LM) and self.settings.sampling.multiline:
            raise InputError("multiline counts at endpoints only: a local model writes one line")
        name = self.task.name
        if self.task.is_pair:
            if self.count is not None:
                raise InputError(f"task {name!r} writes pairs: give inputs (or from-x1), no count")
            if (self.inputs is None) == (self.from_x1 is None):
                raise InputError(f"task {name!r} writes pairs: give either inputs or from-x1")
            if self.inputs is not None and not len(self.inputs):
                raise InputError("there are no inputs: give at least one text")
            if self.from_x1 is not None:
                first_text_task(self.task)
                TEXTS.check("from_x1", self.from_x1)
        else:
            if self.inputs is not None or self.from_x1 is not None:
                raise InputError(
                    f"task {name!r} writes single texts without an input: give a count instead"
                )
            if self.count is None:
                raise InputError(f"task {name!r} writes single texts: say how many, --count")
            TEXTS.check("count", self.count)
            if self.settings.per_input not in (1, Settings().per_input):
                raise InputError(
                    f"task {name!r} writes single texts without an input: leave per-input away, "
                    "count is the number of texts for each label"
                )

    def items(self) -> list[Item]:
        """Return what texts are written for."""
        if self.inputs is None:
            return items_from_nothing(self.task, self.count or 0, each_label=True)
        return items_from_inputs(self.task, self.inputs, [text_id(text) for text in self.inputs])

    def first_stage(self) -> Order:
        """Return the order for the first texts, where they are written from nothing."""
        sampling = replace(self.settings.sampling, top_k=FIRST_TEXT_TOP_K)
        size = self.settings.part_size * _FIRST_TEXTS_A_PART
        settings = replace(self.settings, per_input=1, sampling=sampling, part_size=size)
        return Order(first_text_task(self.task), self.lm, settings, count=self.from_x1)

    def with_inputs(self, texts: Sequence[str]) -> Order:
        """Return the order with its first texts given."""
        return replace(self, inputs=texts, from_x1=None)

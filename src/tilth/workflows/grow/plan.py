"""Measures how fast this machine trains, and says what a search will try and how long it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.finetune import fine_tune
from tilth.classifiers.settings import Finetuning
from tilth.errors import InputError
from tilth.models.classifier import new_classifier
from tilth.models.truncation import counted_cuts
from tilth.report.systems import SETFIT
from tilth.runs.progress import duration_words
from tilth.workflows import baselines
from tilth.workflows.grow.arms import PLAIN, Arm, Bases
from tilth.workflows.grow.search import first_pass, rung_bounds
from tilth.workflows.grow.sources import GENERATED, PARAPHRASED, REWRITES, Sources, fastest
from tilth.workflows.grow.speeds import Speeds

if TYPE_CHECKING:
    from tilth.workflows.grow.settings import Growth
    from tilth.workflows.grow.task import Fold, GrowTask

QUICK = "starter-small"
_ROWS, _BATCH, _EPOCHS = 48, 16, 3  # of the measured trainings
_SLOW = 2.0  # seconds of an epoch, above which longer trainings are measured once
TEXT = "the quick search for a word in some raw text of the usual length is over now"
_REWRITES = 3
_DEAREST = 1 / 3  # of the budget, that a source's texts may take to make
_LITTLE = 1 / 10  # that paraphrases of all settings, or fine-tuning the usual base, may take


@dataclass(frozen=True, slots=True)
class Plan:
    """What a search tries first, with seconds at the measured speed.

    Attributes:
        base: the model that is fine-tuned, and `why`.
        sources: seconds that each source's texts take to make.
        dropped: sources that would take too much of the budget.
        bounds: number of folds after each rung.
        rungs: name, arms, trainings and seconds of each rung, if the budget allows it.
        least: seconds of the shortest search that leaves a model.
        testing: seconds of the simple ways' trainings for the test set, after the budget.
    """

    base: str
    why: str
    speeds: Any  # `Speeds`, or `EncoderSpeeds`
    sources: Mapping[str, float]
    dropped: Sequence[str]
    arms: Sequence[tuple[str, float]]
    bounds: Sequence[int]
    rungs: Sequence[tuple[str, int, int, float]]
    least: float
    testing: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of everything, the last trainings included."""
        return sum(self.sources.values()) + sum(rung[-1] for rung in self.rungs) + self.least


def make_plan(
    task: GrowTask, sources: Sources, arms: Sequence[Arm], folds: Sequence[Fold],
    encoder: str | None,
) -> Plan:  # fmt: skip
    """Measure the speed of each base that may be taken, and plan a search with one of them.

    Where the budget is too short for all simple arms on the folds of the first rung, another one of
    a single fold comes before it.

    Args:
        folds: of the cross-validation.
        encoder: of the ways that put a regression on embeddings; None: the base is none.
    """
    settings, bounds, began = sources.settings, rung_bounds(folds), time.monotonic()
    usual = settings.base or baselines.STARTER
    speed = measure_speed(usual, task, sources.device)
    known = {usual: speed}
    made = _source_seconds(task, sources, arms)
    left = settings.seconds - (time.monotonic() - began)
    dropped = _too_dear(made, left)
    usable = [arm for arm in arms if not arm.needs & set(dropped)]
    kept = {name: one for name, one in made.items() if name not in dropped}

    def plan(base: str, why: str) -> Plan:
        if base not in known:
            known[base] = measure_speed(base, task, sources.device)
        train, label = known[base]
        speeds, teacher = Speeds(train, label, speed[0] / 2, speed[1]), Bases(encoder, base).teacher

        def cost(arm: Arm) -> float:
            return speeds.seconds(arm, task, sources, teacher)

        saved = [arm for arm in usable if arm.is_saved and arm.name != SETFIT]
        if not saved:
            raise InputError(_nothing_left(made, settings))
        least = sum(kept.values()) + min(map(cost, saved)) * (1 + bool(bounds))
        costs = [cost(arm) for arm in usable if arm.is_simple]
        simple = sum(costs)
        testing = (
            sum(one for one in costs if one <= settings.seconds) if task.test is not None else 0.0
        )
        first = bounds[0] if bounds else 1
        # Once more for the kept model, which may be the average of two of them.
        is_long = sum(kept.values()) + (first + 1) * simple > left
        used = [1, *bounds] if first > 1 and is_long else bounds
        return Plan(
            base, why, speeds, kept, dropped, [(arm.name, cost(arm)) for arm in usable], used,
            rungs_of(usable, used, cost), least, testing,
        )  # fmt: skip

    if settings.base is not None:
        return plan(usual, "as asked")
    slow = plan(usual, "the budget is long enough for it")
    once = sum(bound <= first_pass(folds) for bound in slow.bounds)  # rungs of the first pass
    seconds = sum(rung[-1] for rung in slow.rungs[:once]) + slow.least
    if seconds <= left:
        return slow
    # Students are on the encoder: the base counts for a few trainings on labelled rows alone.
    tuned = dict(slow.arms).get(PLAIN, 0.0) * ((bounds[0] if bounds else 1) + 1)
    if encoder is not None and tuned <= _LITTLE * left:
        return replace(slow, why="fine-tuning it takes little of the budget")
    return plan(
        QUICK,
        f"the budget is too short for {usual}, which takes about {duration_words(seconds)}",
    )


def rungs_of(
    arms: Sequence[Arm], rungs: Sequence[int], cost: Callable[[Arm], float]
) -> list[tuple[str, int, int, float]]:
    """Return what each rung tries; which arms stay is not known, so all count as the mean."""
    always = [arm for arm in arms if arm.is_simple and arm.name != SETFIT]
    curve = [arm for arm in arms if arm.is_curve]
    others = [arm for arm in arms if (arm.sources and arm.is_first) or arm.name == SETFIT]
    mixed = [arm for arm in arms if len(arm.sources) > 1]
    kinds = len({arm.sources for arm in mixed})  # each with as many weights
    mean = float(np.mean([cost(arm) for arm in others])) if others else 0.0
    found, start, count = [], 0, len(others)
    for number, bound in enumerate(rungs):
        folds = bound - start
        same = [*always, *(curve if number < 2 else [])]
        mixtures = min(2, kinds) * len(mixed) // max(kinds, 1) if number == 1 else 0
        seconds = folds * (sum(map(cost, same)) + count * mean)
        seconds += bound * mixtures * (cost(mixed[-1]) if mixed else 0.0)
        trained = folds * (len(same) + count) + bound * mixtures
        found.append((f"search round {number + 1}", len(same) + count + mixtures, trained, seconds))
        start, count = bound, -(-count // 2)
    return found


def measure_speed(base: str, task: GrowTask, device: str) -> tuple[float, float]:
    """Return the texts a second of training and of labelling with a base."""
    texts = [text for (text,) in task.rows.texts[:_ROWS]]
    rng = np.random.default_rng(0)
    words = TEXT.split()
    texts += [" ".join(rng.permutation(words)) for _ in range(_ROWS - len(texts))]
    targets = np.eye(len(task.labels), dtype=np.float32)[np.arange(_ROWS) % len(task.labels)]
    rows = LabeledExamples("class", task.labels, [(text,) for text in texts], None, targets)
    model = new_classifier(base, kind="class", labels=task.labels, device=device)

    def train(epochs: float) -> None:
        settings = Finetuning(epochs=epochs, batch=_BATCH).for_base(base)
        fine_tune(model, rows, None, settings, quiet=True)

    with counted_cuts():
        train(1)  # the first steps prepare
        few = fastest(lambda: train(1))
        count = 1 if few > _SLOW else 2
        # What every training takes, whatever its length, is left out.
        trained = max(fastest(lambda: train(_EPOCHS), count) - few, 0.1 * few)
        model.model.train(mode=False)
        labelled = fastest(lambda: model.probabilities(rows.texts), count)
    return (_EPOCHS - 1) * _ROWS / trained, _ROWS / labelled


def _source_seconds(task: GrowTask, sources: Sources, arms: Sequence[Arm]) -> dict[str, float]:
    """Return the seconds that the texts of each source take to make."""
    asked = {name for arm in arms for name in arm.needs}
    found: dict[str, float] = {}
    if PARAPHRASED in asked:
        rate = sources.measure_paraphrasing([text for (text,) in task.rows.texts[:_REWRITES]])
        found |= {name: len(task.rows) / rate for name in REWRITES}
    if GENERATED in asked:
        found[GENERATED] = sources.measure_generation()
    return found


def _too_dear(made: Mapping[str, float], budget: float) -> list[str]:
    """Return the sources that would take too much of a budget to make.

    More settings of paraphrases are made only where they take little.
    """
    found, rewriting = [], 0.0
    for name, seconds in made.items():
        rewriting += seconds if name in REWRITES else 0.0
        is_more = name in REWRITES and name != PARAPHRASED
        if (rewriting if is_more else seconds) > (_LITTLE if is_more else _DEAREST) * budget:
            found.append(name)
    return found


def too_short(plan: Plan, settings: Growth) -> str | None:
    """Return why a budget is too short for one arm, and what is enough; None: it is not."""
    if plan.least <= settings.seconds:
        return None
    minutes = math.ceil(1.2 * plan.least / 60)
    return (
        f"budget {settings.budget} is too short: the quickest way alone takes about "
        f"{duration_words(plan.least)} here: give --budget {minutes}m"
    )


def _nothing_left(made: Mapping[str, float], settings: Growth) -> str:
    """Return what budget the sources' texts need, where there is nothing else to train on."""
    minutes = math.ceil(min(made.values()) / _DEAREST / 60)
    return (
        f"budget {settings.budget} is too short: to make the texts of {', '.join(made)} would take "
        f"more than a third of it, and there is nothing else to train on: give --budget {minutes}m"
    )

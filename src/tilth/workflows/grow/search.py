"""Searches for the best way to train by successive halving, in the parts of a run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.settings import LABELLED_SHARE
from tilth.metrics.agreement import wilson
from tilth.metrics.significance import Interval, mean_interval
from tilth.models.trainer import MODEL, is_whole
from tilth.models.truncation import counted_cuts
from tilth.report.systems import AVERAGE, MAJORITY, SETFIT
from tilth.runs import Progress, Run, read_results
from tilth.selftrain.pseudo_label import PROBABILITIES, as_lists, from_lists
from tilth.workflows.grow.arms import (
    BY_DESCRIPTION,
    PLAIN,
    SELF_TRAINED,
    TRAINED,
    Arm,
    Teacher,
    encoders_of,
    temperature_of,
)
from tilth.workflows.grow.task import ALIKE, DOMAIN

if TYPE_CHECKING:
    from tilth.workflows.grow.settings import Growth
    from tilth.workflows.grow.task import Fold

log = logging.getLogger(__name__)

ROW, SECONDS = "row", "seconds"
_TEACHER = "teacher"  # key in `run.resolved`: the arm that labels sentences
_RUNG = "rung {} at {}"  # likewise: the arms kept after a rung, within a budget
ENDED = "ended at {}"  # likewise: why the search ended, within a budget
FINISHED, OVER, SURE = "finished", "budget", "margin"
_FIRST = 2  # folds of the first rung, where there are several rungs
_QUICK = 0.05  # of the budget: a training that may be kept within the first round
_TELLING = 15.0  # seconds of an estimate, from which on its trials tell the machine's pace
_PACE = 2.0  # factor between trials and estimates, up to which it is believed
_ERRORS = 1.96  # standard errors from an estimate to the end of its interval
_CURVE_RUNGS = 2  # in which the learning curve is measured


class Trains(Protocol):
    """Trains arms on folds, as `Trainer` does."""

    task: Any
    sources: Any
    teacher: Teacher

    @property
    def alone(self) -> str:
        """Return the name of the arm that all gains are over."""

    def answers(self, arm: Arm, fold: Fold) -> NDArray[Any]:
        """Train an arm on a fold; return what it says of the measured rows, (rows, numbers)."""

    def forget(self) -> None:
        """Free memory."""


class Costs(Protocol):
    """Estimates the seconds of an arm's training, as `Speeds` does."""

    def seconds(self, arm: Arm, task: Any, sources: Any, teacher: Teacher) -> float:
        """Return the seconds of one training and measurement."""


@dataclass
class Search:
    """Trains arms on folds, drops the worse half after each rung, and records every trial.

    A part holds the answers of one arm to one fold's measured rows, the last ones those to the test
    set's; the run's `resolved` facts hold what was decided after each rung, so that a resumed
    search takes the same turns.

    Attributes:
        bounds: number of folds after each rung.
        keep: called with the best arm after each rung.
        spent_before: seconds of what is no trial.
        dropped: sources that take too long to make.
    """

    run: Run
    arms: Sequence[Arm]
    folds: Sequence[Fold]
    bounds: Sequence[int]
    trainer: Trains
    speeds: Costs
    settings: Growth
    keep: Callable[[Arm], None]
    spent_before: float = 0.0
    dropped: Sequence[str] = ()
    quiet: bool = False
    _seconds: dict[int, float] = field(default_factory=dict)
    _answers: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    _cut: set[tuple[int, str]] = field(default_factory=set)
    _paces: dict[Any, float] = field(default_factory=dict)  # by trials and teacher, the last

    def __post_init__(self) -> None:
        for index in self.run.done():
            self._read(index)
        if _TEACHER in self.run.resolved:
            self._teach()

    @property
    def usable(self) -> list[Arm]:
        """Return the arms whose sources are there."""
        return [arm for arm in self.arms if not arm.needs & set(self.dropped)]

    def _index(self, arm: Arm, fold: Fold) -> int:
        """Return the part of an arm's answers to a fold's rows; all rows train for the test set."""
        place = list(self.arms).index(arm)
        if fold.number < 0:
            return len(self.arms) * len(self.folds) + place
        return place * len(self.folds) + fold.number

    def _read(self, index: int) -> None:
        part = self.run.read_part(index)
        given = from_lists(part[PROBABILITIES])
        assert not isinstance(given, list)
        self._answers[index] = given
        self._seconds[index] = float(part[SECONDS][0].as_py())

    @property
    def spent(self) -> float:
        """Return the seconds of all trials and of what came before them."""
        trials = len(self.arms) * len(self.folds)
        some = (took for index, took in self._seconds.items() if index < trials)
        return self.spent_before + sum(some)

    def done(self, arm: Arm) -> list[Fold]:
        """Return the folds that an arm was measured on."""
        return [fold for fold in self.folds if self._index(arm, fold) in self._answers]

    def cost(self, arm: Arm) -> float:
        """Return the mean seconds of an arm's trials; before the first an estimate.

        Where trials took longer or shorter than their estimates, so will others, within limits.
        """
        if self.done(arm):
            return self._mean_seconds(arm)
        key = len(self._answers), self.trainer.teacher
        if key not in self._paces:
            self._paces = {key: self._pace()}
        return self._estimate(arm) * self._paces[key]

    def _pace(self) -> float:
        """Return the seconds of trials over their estimates."""
        known = [arm for arm in self.usable if self.done(arm) and self._estimate(arm) > _TELLING]
        expected = sum(map(self._estimate, known))
        pace = sum(map(self._mean_seconds, known)) / expected if known else 1.0
        return min(max(pace, 1 / _PACE), _PACE)

    def _mean_seconds(self, arm: Arm) -> float:
        return float(np.mean([self._seconds[self._index(arm, fold)] for fold in self.done(arm)]))

    def _estimate(self, arm: Arm) -> float:
        trainer = self.trainer
        return self.speeds.seconds(arm, trainer.task, trainer.sources, trainer.teacher)

    def answers(
        self, arm: Arm, folds: Sequence[Fold] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the right labels of the rows that an arm was measured on, and its answers.

        Args:
            folds: of the rows; None: all that it was measured on.
        """
        some = self.done(arm) if folds is None else folds
        gold = [np.asarray(fold.rows.targets).argmax(axis=1) for fold in some]
        given = [self._answers[self._index(arm, fold)] for fold in some]
        return np.concatenate(gold), np.concatenate(given)

    def test(self, arm: Arm, fold: Fold) -> NDArray[np.float32]:
        """Train an arm on all rows, once; return its answers to the test set's rows.

        Args:
            fold: of all rows and the test set.
        """
        if self._index(arm, fold) not in self._answers:
            self._try(arm, fold)
        return self._answers[self._index(arm, fold)]

    def _right(self, arm: Arm, folds: Sequence[Fold]) -> NDArray[np.float64]:
        """Return how often each measured row is answered rightly, x 100, (rows,)."""
        gold, given = self.answers(arm, folds)
        rows = np.concatenate([fold.held for fold in folds])  # (measurements,)
        places = np.unique(rows, return_inverse=True)[1]
        rights = np.bincount(places, gold == given.argmax(axis=1))
        return 100 * rights / np.bincount(places)

    def score(self, arm: Arm) -> Interval:
        """Return an arm's accuracy x 100 with its interval over the measured rows."""
        return _over_rows(self._right(arm, self.done(arm)), least=0.0)

    def gain(self, arm: Arm, over: Arm) -> Interval | None:
        """Return an arm's paired gain over another one on the folds of both; None: there are none.

        A row that was measured several times counts once, with the mean.
        """
        gains = self._gains(arm, over)
        return None if gains is None else _over_rows(gains, least=-100.0)

    def _settling_gain(self, arm: Arm, over: Arm) -> Interval | None:
        """Return `gain`, without width where both answer all rows alike: they are equally good."""
        gains = self._gains(arm, over)
        return None if gains is None else mean_interval(gains.tolist())

    def _gains(self, arm: Arm, over: Arm) -> NDArray[np.float64] | None:
        shared = [fold for fold in self.done(arm) if fold in self.done(over)]
        return self._right(arm, shared) - self._right(over, shared) if shared else None

    @property
    def reference(self) -> Arm:
        """Return the arm that all gains are over: what students are, with labelled rows alone.

        Without labelled rows it is the similarity to descriptions, else the first arm.
        """
        named = {arm.name: arm for arm in self.arms}
        return named.get(self.trainer.alone) or named.get(BY_DESCRIPTION) or self.arms[0]

    @property
    def teacher(self) -> Arm:
        """Return the arm that labels sentences."""
        return next(
            (arm for arm in self.arms if arm.name == self.trainer.teacher.arm), self.reference
        )

    def best(self) -> Arm | None:
        """Return the saved arm with the largest gain among those that no rung has dropped.

        In a rung that the budget ends, some have more folds than others: gains are paired.
        """
        some = self._undropped()
        if not some:
            return None
        if not self.done(self.reference):  # the budget was too short for it
            return max(some, key=lambda arm: self.score(arm).value)
        default = self.default
        if default not in some:
            default = self.reference
        gains = {arm: self.gain(arm, default) for arm in some}
        known = {arm: one for arm, one in gains.items() if one is not None}
        if default.is_saved:
            known = {arm: one for arm, one in known.items() if self.may_be_kept(one, default)}
        if not known:
            return default
        return max(known, key=lambda arm: known[arm].value)  # the first, and so simplest, of equals

    @property
    def default(self) -> Arm:
        """Return the arm that is kept unless another one leads it by enough.

        It is a second round on raw sentences where these are like the task's, unless the reference
        surely leads that, or the commonest label is right more often, so that nothing is learnt:
        where labels are described, the one with both sources.
        """
        majority = next((arm for arm in self.arms if arm.name == MAJORITY), None)
        for arm in self._defaults:
            behind = None if majority is None else self.gain(majority, arm)
            if behind is not None and behind.value > 0:
                continue
            gain = self.gain(self.reference, arm)
            if gain is not None and not self.may_be_kept(gain, arm):
                return arm
        return self.reference

    @property
    def _defaults(self) -> list[Arm]:
        """Return the second rounds that may be kept by default, the best first.

        There are some where raw text is like the task's, and the teacher an encoder.
        """
        near = self.run.resolved.get(DOMAIN) or {}
        if near.get("apart", 1.0) > ALIKE or self.trainer.alone == PLAIN:
            return []
        return [arm for arm in SELF_TRAINED if arm in self.usable]

    def _undropped(self) -> list[Arm]:
        """Return the saved arms that are left after the last whole rung, measured on its folds."""
        saved = [arm for arm in self.arms if arm.is_saved and self.done(arm)]
        whole = [
            (set(self.run.resolved[self._rung_fact(number)]), bound)
            for number, bound in enumerate(self.bounds)
            if self._rung_fact(number) in self.run.resolved
        ]
        if whole:
            names, bound = whole[-1]
            return [arm for arm in saved if arm.name in names and len(self.done(arm)) >= bound]
        most = max((len(self.done(arm)) for arm in saved), default=0)
        bound = max([bound for bound in self.bounds if bound <= most], default=1)
        return [arm for arm in saved if len(self.done(arm)) >= bound]

    def without(self, arm: Arm) -> dict[str, Arm]:
        """Return the arm that each source of an arm is ablated by: the same without it."""
        found = {}
        for source in arm.sources:
            rest = set(arm.sources) - {source}
            same = [
                one for one in self.usable
                if set(one.sources) == rest and one.sources and one.rounds == arm.rounds
            ]  # fmt: skip
            same = [one for one in same if one.weight == arm.weight]
            found[source] = same[0] if same else self.reference
        return found

    def ablate(self, arm: Arm) -> bool:
        """Try an arm without each of its sources on its folds, while the budget allows it.

        Returns whether anything was tried.
        """
        tried = False
        for other in self.without(arm).values():
            done = self.done(other)
            missing = [fold for fold in self.done(arm) if fold not in done]
            if missing and not self._is_over(other, len(missing)):
                for fold in missing:
                    self._try(other, fold)
                tried = True
        self.trainer.forget()
        return tried

    def may_be_kept(self, gain: Interval, default: Arm) -> bool:
        """Tell whether an arm's gain over the default is enough for it to be kept instead.

        It must be above its standard error, as the best of many ways that are measured on few rows
        is otherwise the luckiest; over a second round, which is mostly better, above two: its
        interval must lie above 0.

        Reference:
            Breiman et al. 1984, "Classification and Regression Trees", section 3.4.3.
        """
        if gain.low is None:
            return False
        errors = gain.value - gain.low  # `_ERRORS` of them
        return gain.value > (errors if default in SELF_TRAINED else errors / _ERRORS)

    def go(self) -> str:
        """Run or resume all rungs; return why the search ended."""
        alive = [arm for arm in self.usable if arm.is_first]
        start = 0
        for number, bound in enumerate(self.bounds):
            if self._rung(alive, self.folds[start:bound], number):
                return self._end(OVER)
            rung = self._rung_fact(number)
            if rung not in self.run.resolved and self._is_settled(alive):
                untried = any(arm.is_saved and not self.done(arm) for arm in alive)
                return self._end(OVER if untried else SURE)
            kept = self.run.resolve(rung, partial(self._survivors, alive, number))
            alive = [arm for arm in self.usable if arm.name in kept]
            # Mixtures are first tried now: on the earlier folds too, so that all have the same.
            new = [arm for arm in alive if len(self.done(arm)) < bound]
            if self._rung(new, self.folds[:bound], number):
                return self._end(OVER)
            start = bound
        return self._end(FINISHED)

    def _rung_fact(self, number: int) -> str:
        return _RUNG.format(number, self.settings.budget)

    @property
    def _ended(self) -> str:
        return ENDED.format(self.settings.budget)

    def _end(self, why: str) -> str:
        return str(self.run.resolve(self._ended, lambda: why))

    def _rung(self, alive: Sequence[Arm], folds: Sequence[Fold], number: int) -> bool:
        """Run the missing trials of arms on folds; tell whether the budget ends the search here.

        It does where it allows no trial, or, after the first rung, not those of every arm that is
        left: more folds for some of them alone would decide nothing.

        Simple arms come first, then SetFit, the average with it and what may be the default, then
        the others with sources, and the learning curve last, each by cost. An arm that the budget
        is too short for is left out.
        """
        late = (SETFIT, AVERAGE, *(arm.name for arm in self._defaults[:1]))

        def place(arm: Arm) -> tuple[bool, int, float]:
            if arm.name in late:
                return False, late.index(arm.name), 0.0
            return arm.is_curve, -1 if arm.is_simple else len(late), self.cost(arm)

        order = sorted(alive, key=place)
        missing = {
            arm: [fold for fold in folds if self._index(arm, fold) not in self._answers]
            for arm in order
        }
        total, is_cut = sum(map(len, missing.values())), False
        what = f"trainings of search round {number + 1}"
        with Progress(total, quiet=self.quiet, what=what) as progress:
            for arm, some in missing.items():
                left_out = self._ended in self.run.resolved or self._is_over(arm, len(some))
                is_cut |= left_out and bool(some)
                for fold in [] if left_out else some:
                    self._try(arm, fold)
                    progress.advance(1)
                if arm.is_saved and self.done(arm) and (better := self._better()) is not None:
                    self.keep(better)  # so that Ctrl-C in the first round leaves a good model
        self.trainer.forget()
        if total and (best := self.best()) is not None:
            self.keep(best)
        measured = any(self._index(arm, fold) in self._answers for arm in order for fold in folds)
        return bool(total) and (not measured or (is_cut and number > 0))

    def _better(self) -> Arm | None:
        """Return the best arm so far if the run holds no model, or surely a worse one.

        One whose last training takes much of the budget waits for the end of the round.
        """
        best, found = self.best(), read_results(self.run.path)
        if found is None or best is None or not is_whole(self.run.path / MODEL):
            return best
        gains = [self.gain(best, arm) for arm in self._named(str(found["arm"]))]
        sure = any(gain is not None and gain.low is not None and gain.low > 0 for gain in gains)
        return best if sure and self._last(best) <= _QUICK * self.settings.seconds else None

    def _is_dear(self, arm: Arm) -> bool:
        """Tell whether an arm is left out of later rungs if it is worse than others."""
        teacher = self.trainer.teacher.arm
        rivals = {*TRAINED, AVERAGE, PLAIN} - {teacher, *encoders_of(teacher)}
        return bool(arm.sources) or arm.name in rivals

    def _has_teacher(self, arm: Arm) -> bool:
        """Tell whether an arm is trained like the teacher, or on what it labels."""
        return not arm.is_simple and len(self.trainer.task.rows) > 0

    def _is_over(self, arm: Arm, trials: int) -> bool:
        """Tell whether the budget is too short for so many trials and the last trainings."""
        if self._has_teacher(arm) and not self.done(self.teacher):
            return True
        if arm.name == AVERAGE and not all(self.done(one) for one in self._named(*TRAINED)):
            return True
        last = max(self.reserve(), self._last(arm) if arm.is_saved else 0.0)
        return self.spent + trials * self.cost(arm) + last > self.settings.seconds

    @property
    def cheapest(self) -> Arm:
        """Return the arm that is kept where the budget allows to measure none."""
        saved = [arm for arm in self.usable if arm.is_saved]
        return min(saved, key=self.cost)

    def reserve(self) -> float:
        """Return the seconds that the last trainings will take."""
        return self._last(self.best() or self.cheapest)

    def _last(self, arm: Arm) -> float:
        """Return the seconds of the last trainings where this arm is kept."""
        named = {arm.name} | ({self.reference.name} if arm.sources else set())
        named |= {one for name in named for one in encoders_of(name)}
        return sum(map(self.cost, self._named(*named)))

    def _named(self, *names: str) -> list[Arm]:
        return [arm for arm in self.arms if arm.name in names]

    def _teach(self) -> None:
        """Decide once what labels sentences: the average of contrastive encoder and SetFit.

        It is one of the two if that leads by a standard error, or if there is no average, and the
        fine-tuned base, whose students take much longer, if that is surely better.
        """

        def decide() -> dict[str, Any]:
            averages = [arm for arm in self._named(AVERAGE) if self.done(arm)]
            arm = averages[0] if averages else self.teacher
            gains = {one: self.gain(one, arm) for one in self._named(*TRAINED)}
            leads = {
                one: gain.value
                for one, gain in gains.items()
                if gain is not None and self.may_be_kept(gain, arm)
            }
            if leads:
                arm = max(leads, key=lambda one: leads[one])
            for plain in self._named(PLAIN):
                gain = self.gain(plain, arm)
                if gain is not None and gain.low is not None and gain.low > 0:
                    arm = plain
            return asdict(Teacher(arm.name, temperature_of(*self.answers(arm))))

        self.trainer.teacher = Teacher(**self.run.resolve(_TEACHER, decide))

    def _try(self, arm: Arm, fold: Fold) -> None:
        if self._has_teacher(arm) and self.done(self.teacher):
            self._teach()
        began = time.monotonic()
        with counted_cuts() as cuts:
            given = np.asarray(self.trainer.answers(arm, fold), np.float32)
        seconds = time.monotonic() - began
        index = self._index(arm, fold)
        self.run.write_part(index, pa.table({
            ROW: pa.array(fold.held), PROBABILITIES: as_lists(given),
            SECONDS: pa.array(np.full(len(given), seconds)),
        }))  # fmt: skip
        self._read(index)
        for longest, name in sorted(cuts.keys() - self._cut):
            log.warning("texts of more than %d tokens are cut, as %s reads no more", longest, name)
        self._cut |= cuts.keys()

    def _is_settled(self, alive: Sequence[Arm]) -> bool:
        """Tell whether no other arm is likely to be better than the best by the margin."""
        best = self.best()
        others = [arm for arm in alive if arm is not best and arm.is_saved]
        if best is None or not any(arm.sources for arm in self.arms):
            return False
        known = [one for arm in others if (one := self._settling_gain(arm, best)) is not None]
        highest = [float("inf") if one.high is None else one.high for one in known]
        return bool(highest) and max(highest) <= self.settings.margin

    def _survivors(self, alive: Sequence[Arm], number: int) -> list[str]:
        """Return the arms of the next rung: simple ones, the better half, mixtures of the best."""
        alive = [arm for arm in alive if len(self.done(arm)) >= self.bounds[number]]
        dear = [arm for arm in alive if self._is_dear(arm)]
        gains = {arm: self.gain(arm, self.reference) for arm in dear}
        known = {arm: -100.0 if one is None else one.value for arm, one in gains.items()}
        order = sorted(known, key=lambda arm: -known[arm])
        kept = [arm.name for arm in alive if arm.is_simple and arm not in known]
        if number + 1 < _CURVE_RUNGS:
            kept += [arm.name for arm in alive if arm.is_curve]
        kept += [arm.name for arm in order[: -(-len(order) // 2)]]
        if (default := self.default) != self.reference:
            kept.append(default.name)
        if AVERAGE in kept:
            kept += [name for name in TRAINED if name not in kept]
        if number == 0:
            kinds = list(dict.fromkeys(arm.sources[0] for arm in order if arm.sources))
            for size in {2, len(kinds)}:
                kept += [
                    arm.name for arm in self.usable
                    if len(arm.sources) == size > 1 and set(arm.sources) == set(kinds[:size])
                    and (arm.weight == LABELLED_SHARE or self.trainer.teacher.arm != PLAIN)
                ]  # fmt: skip
        return list(dict.fromkeys(kept))


def rung_bounds(folds: Sequence[Fold]) -> list[int]:
    """Return the number of folds after each rung: a few, each row once, all."""
    if not folds:
        return []
    few = _FIRST if len(folds) > _FIRST + 1 else 1
    return sorted({few, max(few, first_pass(folds)), len(folds)})


def first_pass(folds: Sequence[Fold]) -> int:
    """Return the number of folds that measure each row once."""
    return sum(fold.repeat == 0 for fold in folds)


def _over_rows(scores: NDArray[np.float64], least: float) -> Interval:
    """Return the mean of rows' scores, from `least` to 100, with its interval.

    Rows that are all alike vary as much as Wilson says.
    """
    found = mean_interval(scores.tolist())
    if found.low is None or found.high is None:
        return found
    more = 100 * wilson(0, len(scores))[1] if found.low == found.high else 0.0
    return replace(found, low=max(found.low - more, least), high=min(found.high + more, 100.0))

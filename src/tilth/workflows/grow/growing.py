"""A run of `tilth grow`: prepares, searches, keeps the best, and writes what it found."""

from __future__ import annotations

import json
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.bank.manifest import read_manifest
from tilth.data.hashing import hash_of
from tilth.errors import InputError, TilthError
from tilth.metrics.significance import Interval
from tilth.models.trainer import MODEL, is_whole, save_whole
from tilth.report.grow import write_grow_report
from tilth.runs import RESULTS, Run, read_results
from tilth.runs.progress import duration_words
from tilth.storage import as_path
from tilth.workflows.grow.arms import PLAIN, Arm
from tilth.workflows.grow.notes import asked_of_endpoint
from tilth.workflows.grow.outputs import DATASET, TO_LABEL, card_shares
from tilth.workflows.grow.plan import Plan, too_short
from tilth.workflows.grow.search import FINISHED, OVER, SURE, Search, Trains
from tilth.workflows.grow.sources import LABELLED, PARAPHRASES, TEXTS
from tilth.workflows.grow.task import BANK, Fold, is_bank, open_raw, whole_fold

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.classifiers.examples import LabeledExamples
    from tilth.workflows.grow.settings import GrowSources, Growth

log = logging.getLogger(__name__)

COMMAND, KEPT = "grow", "kept.json"
OUTPUTS = (MODEL, DATASET, KEPT, RESULTS, BANK, TO_LABEL, *PARAPHRASES.values(), TEXTS)
_WHY = {
    FINISHED: "every round is done",
    OVER: "the rest of the budget is too short for the next step",
    SURE: "no other way is likely to gain more than the margin",
}


@dataclass(frozen=True, slots=True)
class Kept:
    """The model that a run holds: its arm, its rows by origin, seconds of all such trainings.

    `labels`: its rows by label, of a classifier.
    """

    arm: str = ""
    origins: Mapping[str, int] | None = None
    times: int = 1
    seconds: float = 0.0
    labels: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """What a run is started with: its sources, its settings, and what follows from them.

    Attributes:
        hashes: of what scores depend on beside the sets and the bank, by name.
        encoder: of the ways that put a regression on embeddings; None: the base is none.
    """

    sources: GrowSources
    settings: Growth
    arms: Sequence[Arm]
    folds: Sequence[Fold]
    hashes: Mapping[str, str]
    device: str
    encoder: str | None = None


class Growing(ABC):
    """A run of `grow`; a subclass knows the task, and trains and saves its models.

    Attributes:
        search_class: class of the search.
        speeds_class: class of a plan's speeds.
        trainer: trains the arms.
        whole: all labelled rows, which the kept model is trained on.
    """

    search_class: type[Search]
    speeds_class: type[Any]
    trainer: Trains

    def __init__(self, run: Run, task: Any, given: Given) -> None:
        self.run, self.task, self.given, self.settings = run, task, given, given.settings
        self.arms, self.folds, self.device = given.arms, given.folds, given.device
        self.whole = whole_fold(task.rows)
        self.failed: dict[str, str] = {}  # sources that could not be made, and why

    @abstractmethod
    def prepare(self) -> None:
        """Make what all folds share."""

    @abstractmethod
    def _make_plan(self) -> Plan:
        """Measure the speed of this machine, and plan."""

    @abstractmethod
    def _train(self, arm: Arm) -> tuple[Callable[[Path], None], Kept]:
        """Train an arm on all rows; return what saves model and rows, and what is said of it."""

    @abstractmethod
    def _finish(self, results: dict[str, Any], bootstrap: int) -> None:
        """Measure the kept model on the test set, and add that to the results."""

    @abstractmethod
    def _about(self, best: Arm) -> dict[str, Any]:
        """Return what results.json says of the task and of its best arm."""

    @abstractmethod
    def _notes(self, best: Arm) -> list[str]:
        """Return what was found, in sentences."""

    @cached_property
    def bank(self) -> Bank | None:
        """The bank of raw sentences."""
        return open_raw(self.given.sources.raw, self.run.path, device=self.device)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the first start."""

        def make() -> dict[str, Any]:
            began = time.monotonic()
            made = self._make_plan()
            if too_short(made, self.settings) is not None:  # the machine may have been busy
                made = min(made, self._make_plan(), key=lambda plan: plan.least)
            if (short := too_short(made, self.settings)) is not None:
                raise InputError(short)
            return {**asdict(made), "took": time.monotonic() - began}

        found = dict(self.run.resolve("plan", make))
        found.pop("took")
        return Plan(**{**found, "speeds": self.speeds_class(**found["speeds"])})

    @cached_property
    def search(self) -> Search:
        """The search of this run."""
        return self.search_class(
            self.run, self.arms, self.folds, self.plan.bounds, self.trainer, self.plan.speeds,
            self.settings, self.keep, dropped=(*self.plan.dropped, *self.failed),
        )  # fmt: skip

    def _warn_dropped(self) -> None:
        if self.plan.dropped:
            log.warning(
                "left out, as it would take too much of the first budget: %s",
                "; ".join(self.plan.dropped),
            )

    def _try_to_make(self, source: str, make: Callable[[], object]) -> None:
        """Make the rows of a source; leave it out where there are none."""
        began = time.monotonic()
        try:
            self._timed(source, make)
        except TilthError as error:  # such as raw text in a language that the rewriter cannot read
            took, lost = time.monotonic() - began, f"seconds of {source}, left out"
            before = sum(name.startswith(lost) for name in self.run.resolved)
            self.run.resolve(f"{lost} {before + 1}", lambda: took)
            log.warning("left out: %s (%s)", source, error)
            self.failed[source] = str(error)

    def _timed(self, name: str, make: Callable[[], object]) -> None:
        began = time.monotonic()
        make()
        self.run.resolve(f"seconds of {name}", lambda: time.monotonic() - began)

    def spent(self) -> float:
        """Return the seconds of everything that is no trial."""
        found = self.run.resolved
        made = sum(value for name, value in found.items() if name.startswith("seconds of "))
        return float(made + found["plan"]["took"] + self.kept.seconds)

    @property
    def kept(self) -> Kept:
        """What the run says of its model."""
        file = self.run.path / KEPT
        return Kept(**json.loads(file.read_text())) if file.is_file() else Kept()

    def keep(self, arm: Arm) -> None:
        """Train an arm on all rows and keep its model and rows, unless they are there."""
        model = self.run.path / MODEL
        if self.kept.arm != arm.name or not is_whole(model):
            began, before = time.monotonic(), self.kept.seconds
            save, kept = self._train(arm)
            # A process that is killed now trains it again; the seconds stay.
            self.run.write_file(KEPT, json.dumps(asdict(Kept(seconds=before))) + "\n")
            save_whole(self.run.path / "unfinished", model, save)
            about = {**asdict(kept), "seconds": before + time.monotonic() - began}
            self.run.write_file(KEPT, json.dumps(about, ensure_ascii=False) + "\n")
        self.search.spent_before = self.spent()
        self._write(self._results(""))

    def finished(self, bootstrap: int) -> dict[str, Any] | None:
        """Return what a run of this budget or a larger one has found.

        None: it goes on, or lacks its model.
        """
        found = read_results(self.run.path)
        if found is None or not found["ended"] or not is_whole(self.run.path / MODEL):
            return None
        if self.settings.seconds > found["budget"] or bootstrap != found.get("bootstrap"):
            return None
        write_grow_report(self.run.path)
        return found

    def complete(self, bootstrap: int, *, quiet: bool) -> dict[str, Any]:
        """Prepare, search, keep the best, and measure it."""
        self.prepare()
        self.search.quiet, self.search.spent_before = quiet, self.spent()
        if self.folds:
            ended = _WHY[self.search.go()]
            if ended == _WHY[FINISHED] and self._untried_arms():
                ended += ", but for ways that would exceed the budget"
            best = self.search.best() or self.search.cheapest
            while best.sources and self.search.ablate(best):
                best = self.search.best() or best
        else:
            best = max(self.search.usable, key=self._preference)
            ended = "nothing can be measured without labelled rows"
        self.keep(best)
        results = self._results(ended)
        self._finish(results, bootstrap)
        card_shares(self.run, results["shares"])
        results |= {"spent": self.search.spent, "bootstrap": bootstrap}
        self._write(results)
        return results

    def stopped(self) -> str:
        """Return what is said after Ctrl-C: which model the run holds."""
        arm = ""
        if is_whole(self.run.path / MODEL):  # while another is saved, kept.json names none
            arm = self.kept.arm or (read_results(self.run.path) or {}).get("arm", "")
        held = f"{MODEL} holds the best so far ({arm})" if arm else "no model was kept yet"
        return f"{held}, the same command goes on from there"

    def _preference(self, arm: Arm) -> tuple[int, int]:
        """Return what an arm is chosen by where nothing can be measured: sources, then rounds.

        The second round helps where it trains the encoder, if the budget allows it.
        """
        left = self.settings.seconds - self.search.spent
        helps = self.trainer.teacher.arm != PLAIN and self.search.cost(arm) <= left
        return len(arm.sources), arm.rounds if helps else -arm.rounds

    def _write(self, results: Mapping[str, Any]) -> None:
        self.run.write_results(results)
        write_grow_report(self.run.path)

    def _results(self, ended: str) -> dict[str, Any]:
        """Return the content of results.json; `ended` is empty while the search goes on."""
        search, kept = self.search, self.kept
        best = next(arm for arm in self.arms if arm.name == kept.arm)
        measured = [arm for arm in self.arms if search.done(arm)]
        over = self._compared_with(measured)
        found: dict[str, Any] = {
            "ended": ended, "task": self.settings.task, "arm": best.name, "origins": kept.origins,
            "times": kept.times, "spent": search.spent, "budget": self.settings.seconds,
            "measuring": self.run.resolved["plan"]["took"],
            "shares": self._shares(best), "dropped": list(search.dropped),
            "reference": over.name,
            "arms": [self._line(arm, over) for arm in measured], **self._about(best),
            "notes": self._notes(best),
        }  # fmt: skip
        found["notes"] += [f"Left out: {name} ({why})." for name, why in self.failed.items()]
        found["notes"] += asked_of_endpoint(self.run.path / TEXTS)
        if ended and (dear := self.plan.dropped):
            found["notes"].append(
                f"Not tried, as the texts take too much of the budget to make: {'; '.join(dear)}. "
                "Another run with a larger --budget would try it."
            )
        if self.folds and ended and not measured:
            search_alone = self.plan.least - sum(self.plan.sources.values())
            enough = search.spent + 1.2 * (self.plan.rungs[0][-1] + search_alone)
            found["notes"].append(
                f"Nothing was measured: {duration_words(search.spent)} were spent before the "
                f"search; --budget {math.ceil(enough / 60)}m is enough for a first round."
            )
        if self.folds and ended and (untried := self._untried_arms()):
            found["notes"].append(
                f"Not tried in the search, as the budget is too short: {'; '.join(untried)}. A "
                "larger --budget goes on from here."
            )
        return found

    def _untried_arms(self) -> list[str]:
        """Return the arms but mixtures that were not measured."""
        return [
            arm.name for arm in self.search.usable if arm.is_first and not self.search.done(arm)
        ]

    def _shares(self, best: Arm) -> list[dict[str, Any]]:
        """Return each origin's share of the kept model's rows, and what leaving it out costs."""
        found, kept = [], self.kept
        rows = {
            origin: count * (kept.times if origin == LABELLED else 1)
            for origin, count in (kept.origins or {}).items()
        }
        without = self.search.without(best)
        for origin, count in rows.items():
            other = without.get(origin)
            cost = None if other is None else self.search.gain(best, other)
            found.append({
                "origin": origin, "share": count / sum(rows.values()),
                "without": None if other is None else other.name,
                "cost": None if cost is None else ends(cost),
            })  # fmt: skip
        return found

    def _compared_with(self, measured: Sequence[Arm]) -> Arm:
        """Return the arm that shown gains are over: where the reference is dear, a simple one."""
        search = self.search
        simple = [arm for arm in measured if arm.is_simple and arm.is_saved]
        if search.done(search.reference) or not simple:
            return search.reference
        return max(simple, key=lambda arm: search.score(arm).value)

    def _line(self, arm: Arm, over: Arm) -> dict[str, Any]:
        search = self.search
        gain = search.gain(arm, over)
        return {
            "name": arm.name, "sources": list(arm.sources), "curve": arm.is_curve,
            "share": arm.share, "simple": arm.is_simple, "trainings": len(search.done(arm)),
            "seconds": search.cost(arm), "score": ends(search.score(arm)),
            "gain": None if gain is None or arm == over else ends(gain),
        }  # fmt: skip


def open_run(out: Path, task: Any, given: Given, *, overwrite: bool) -> Run:
    """Open the run folder of a task; refuse one whose sets, bank or models were others."""
    sources = given.sources
    # Another version may know other ways, whose parts would be taken for one another.
    found = {**given.hashes, "ways to try": hash_of([arm.name for arm in given.arms])}
    how = asdict(given.settings)
    how.pop("precision")  # the nested run of the language model's texts has it
    for name in ("train", "validation", "test"):
        rows: LabeledExamples | None = getattr(task, "rows" if name == "train" else name)
        found[name] = "none" if rows is None else rows.fingerprint()
    if is_bank(sources.raw):
        found["bank"] = read_manifest(as_path(sources.raw[0])).fingerprint
    return Run.open(
        out,
        command=COMMAND,
        settings={**sources.named(), **how, "budget": None},  # it may grow
        fingerprints=found,
        parts=len(given.arms) * (len(given.folds) + 1),  # and the test set
        outputs=OUTPUTS,
        overwrite=overwrite,
    )


def ends(found: Interval) -> dict[str, float | None]:
    """Return an estimate and its interval, as results.json holds them."""
    return {"value": found.value, "low": found.low, "high": found.high}

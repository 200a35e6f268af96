"""Grows a small model in a run folder: plans, searches, keeps the best, measures it once."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.bank.manifest import MANIFEST, read_manifest
from tilth.data.hashing import hash_of
from tilth.errors import InputError, TilthError
from tilth.evaluate.classify import classify_scores
from tilth.metrics.significance import RESAMPLES, Interval, check_resamples
from tilth.models.classifier import Classifier, load_classifier, new_classifier
from tilth.models.trainer import MODEL, is_whole, save_whole, settings_of
from tilth.report.grow import write_grow_report
from tilth.runs import RESULTS, Run, read_results, refuse_inside
from tilth.workflows import baselines
from tilth.workflows.evaluate_classifier import System, compare_systems
from tilth.workflows.grow.arms import Arm, Grown, Speeds, Trainer, arms_of
from tilth.workflows.grow.notes import better_on_test, more_labels, raw_warnings, simpler_ways
from tilth.workflows.grow.outputs import DATASET, to_label, write_rows
from tilth.workflows.grow.plan import Plan, make_plan, too_short
from tilth.workflows.grow.search import FINISHED, OVER, SURE, Search, rung_bounds
from tilth.workflows.grow.settings import GrowSources, Growth, check_growth
from tilth.workflows.grow.sources import (
    GENERATED,
    PARAPHRASED,
    PARAPHRASES,
    TEXTS,
    Sources,
)
from tilth.workflows.grow.task import (
    BANK,
    Fold,
    GrowTask,
    domain_similarity,
    folds_of,
    open_raw,
    read_grow_task,
)
from tilth.workflows.settings import EvaluateSettings

if TYPE_CHECKING:
    from tilth.bank import Bank

log = logging.getLogger(__name__)

COMMAND, KEPT, TO_LABEL = "grow", "kept.json", "to_label.jsonl"
_WHY = {
    FINISHED: "every round is done",
    OVER: "the budget is used up",
    SURE: "no other way is likely to gain more than the margin",
}


@dataclass(frozen=True, slots=True)
class _Kept:
    """The model that a run holds: its arm, its rows by origin, seconds of all such trainings."""

    arm: str = ""
    origins: Mapping[str, int] | None = None
    times: int = 1
    seconds: float = 0.0


def grow(
    out: str | Path,
    *,
    train: str | None = None,
    raw: str | Sequence[str] = (),
    labels: str | None = None,
    validation: str | None = None,
    test: str | None = None,
    text: str | None = None,
    label: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Classifier:
    """Try what labelled rows, raw text, descriptions and a language model are worth; keep the best.

    Ways to train are compared by cross-validation, or on validation rows, under a time budget; the
    test set is measured once, at the end. The same call resumes. After each round the folder holds
    the best model so far.

    Args:
        out: the run folder: `model` (a transformers classifier), `dataset` (its training rows with
            their origins), `to_label.jsonl`, `results.json` and `report.html`.
        train: labelled texts: a file, a folder or a hub data set.
        raw: a bank, or files and folders of raw text.
        labels: a task file that describes the labels.
        validation: labelled rows to choose by; None: cross-validation.
        test: labelled rows to measure on.
        text: the column of texts; None: a usual name.
        label: the column of labels; None: a usual name.
        device: `auto`, `cpu` or `cuda`.
        overwrite: start the run folder anew.
        quiet: no progress bar.
        settings: fields of `Growth`: budget, base, model, count, margin, folds, repeats, seed, ...

    Returns:
        The kept classifier: `.model` and `.tokenizer` are plain transformers.

    Raises:
        InputError: the inputs or a setting are wrong, the budget is too short for one way, or `out`
            holds another run.

    Reference:
        Successive halving: Jamieson and Talwalkar 2016, arXiv 1502.07943.
    """
    several = (raw,) if isinstance(raw, str) else tuple(raw)
    sources = GrowSources(train, several, labels, validation, test, text, label)
    how = settings_of(Growth, settings)
    grow_to_run(sources, out, how, device=device, overwrite=overwrite, quiet=quiet)
    return load_classifier(str(out), device=device)


def grow_to_run(
    sources: GrowSources,
    out: str | Path,
    settings: Growth | None = None,
    *,
    bootstrap: int = RESAMPLES,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Grow a model as `grow` does; return its results.json.

    Args:
        bootstrap: resamples of the test set's intervals.
    """
    settings = settings or Growth()
    out = Path(out)
    check_resamples(bootstrap, settings.seed)
    task, arms, folds = _read(sources, settings, out, device)
    run = Run.open(
        out,
        command=COMMAND,
        settings={**asdict(sources), **asdict(settings), "budget": None},  # it may grow
        fingerprints=_fingerprints(task, sources),
        parts=len(arms) * len(folds),
        outputs=(MODEL, DATASET, KEPT, TO_LABEL, RESULTS, BANK, PARAPHRASES, TEXTS),
        overwrite=overwrite,
    )  # fmt: skip
    with run:
        growing = _Growing(run, task, arms, folds, sources, settings, device)
        growing.prepare()
        return growing.complete(bootstrap, quiet=quiet)


def plan(sources: GrowSources, settings: Growth | None = None, *, device: str = "auto") -> Plan:
    """Return what `grow` will try, with seconds at the speed that this machine has now."""
    settings = settings or Growth()
    with tempfile.TemporaryDirectory(prefix="tilth-") as folder:
        task, arms, folds = _read(sources, settings, Path(folder), device)
        makes = Sources(task, None, settings, Path(folder), device)
        return make_plan(task, makes, arms, rung_bounds(len(folds), settings.folds), settings)


def _read(
    sources: GrowSources, settings: Growth, out: Path, device: str
) -> tuple[GrowTask, list[Arm], list[Fold]]:
    check_growth(sources, settings)
    named = (sources.train, sources.labels, sources.validation, sources.test, *sources.raw)
    refuse_inside(out, *(one for one in named if one is not None))
    task = read_grow_task(sources)
    if settings.base is not None:  # one that cannot be trained is refused before anything is done
        new_classifier(settings.base, kind="class", labels=task.labels, device=device)
    arms = arms_of(task, settings, raw=bool(sources.raw))
    return task, arms, folds_of(task, settings.folds, settings.repeats, settings.seed)


def _fingerprints(task: GrowTask, sources: GrowSources) -> dict[str, str]:
    found = {
        name: "none" if rows is None else rows.fingerprint()
        for name, rows in (("train", task.rows), ("validation", task.validation),
                           ("test", task.test))
    }  # fmt: skip
    found["labels"] = "none" if task.task is None else hash_of(task.task.to_dict())
    if len(sources.raw) == 1 and (Path(sources.raw[0]) / MANIFEST).is_file():
        found["bank"] = read_manifest(Path(sources.raw[0])).fingerprint
    return found


class _Growing:
    """A run of `grow`: what it has, its search, and the model that it keeps."""

    def __init__(
        self,
        run: Run,
        task: GrowTask,
        arms: list[Arm],
        folds: list[Fold],
        given: GrowSources,
        settings: Growth,
        device: str,
    ) -> None:
        self.run, self.task, self.arms, self.folds = run, task, arms, folds
        self.given, self.settings, self.device = given, settings, device
        everything = np.arange(len(task.rows))
        none = task.rows.select(np.zeros(0, np.int64))
        self.dropped: Sequence[str] = ()  # sources that could not be made
        self.whole = Fold(-1, everything, np.zeros(0, np.int64), none)

    @cached_property
    def bank(self) -> Bank | None:
        """The bank of raw sentences."""
        return open_raw(self.given.raw, self.run.path, device=self.device)

    @cached_property
    def sources(self) -> Sources:
        """What makes rows."""
        return Sources(self.task, self.bank, self.settings, self.run.path, self.device)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the first start."""
        bounds = rung_bounds(len(self.folds), self.settings.folds)

        def make() -> dict[str, Any]:
            began = time.monotonic()
            made = make_plan(self.task, self.sources, self.arms, bounds, self.settings)
            if (short := too_short(made, self.settings)) is not None:
                raise InputError(short)
            return {**asdict(made), "took": time.monotonic() - began}

        found = dict(self.run.resolve("plan", make))
        found.pop("took")
        return Plan(**{**found, "speeds": Speeds(**found["speeds"])})

    @cached_property
    def trainer(self) -> Trainer:
        """What trains."""
        return Trainer(self.task, self.sources, self.plan.base, self.settings, self.device)

    def prepare(self) -> None:
        """Build the bank, plan, and make the texts that all folds share; record the seconds."""
        self._timed(BANK, lambda: self.bank)
        if self.plan.dropped:
            log.warning(
                "left out, as it takes more than a third of the budget: %s",
                ", ".join(self.plan.dropped),
            )
        if PARAPHRASED in self.plan.sources:
            try:
                self._timed(PARAPHRASED, lambda: self.sources.paraphrases)
            except TilthError as error:  # the rewriter cannot read them, as of another language
                log.warning("no paraphrases are tried: %s", error)
                self.dropped = (*self.plan.dropped, PARAPHRASED)
        if GENERATED in self.plan.sources:
            self._timed(GENERATED, lambda: self.sources.texts)
        if self.bank is not None:
            bank = self.bank
            near = self.run.resolve("domain", lambda: domain_similarity(bank, self.task))
            for line in raw_warnings(near):
                log.warning("%s", line)

    def _timed(self, name: str, make: Any) -> None:
        began = time.monotonic()
        make()
        self.run.resolve(f"seconds of {name}", lambda: time.monotonic() - began)

    @cached_property
    def search(self) -> Search:
        """The search of this run."""
        return Search(
            self.run, self.arms, self.folds, self.trainer, self.plan.speeds, self.settings,
            self.keep, dropped=self.dropped or self.plan.dropped,
        )  # fmt: skip

    def spent(self) -> float:
        """Return the seconds of everything that is no trial."""
        found = self.run.resolved
        made = sum(value for name, value in found.items() if name.startswith("seconds of "))
        return float(made + found["plan"]["took"] + self.kept.seconds)

    @property
    def kept(self) -> _Kept:
        """What the run says of its model."""
        file = self.run.path / KEPT
        return _Kept(**json.loads(file.read_text())) if file.is_file() else _Kept()

    def keep(self, arm: Arm) -> None:
        """Train an arm on all rows and keep its model and rows, unless they are there."""
        model = self.run.path / MODEL
        if self.kept.arm != arm.name or not is_whole(model):
            began = time.monotonic()
            grown = self.trainer.train(arm, self.whole)
            self.trainer.forget()
            before = self.kept.seconds
            self._save(arm, grown, before + time.monotonic() - began)
        self.search.spent_before = self.spent()
        self._write(self._results(""))

    def _save(self, arm: Arm, grown: Grown, seconds: float) -> None:
        assert grown.classifier is not None
        assert grown.rows is not None
        (self.run.path / KEPT).unlink(missing_ok=True)  # a killed process trains it again
        save_whole(self.run.path / "unfinished", self.run.path / MODEL, grown.classifier.save)
        origin = Counter(grown.rows.origin)
        write_rows(self.run, grown, arm, self.given)
        kept = _Kept(arm.name, dict(origin), grown.times, seconds)
        self.run.write_file(KEPT, json.dumps(asdict(kept), ensure_ascii=False) + "\n")

    def complete(self, bootstrap: int, *, quiet: bool) -> dict[str, Any]:
        """Search, keep the best, and measure it; or read what a finished run has found."""
        found = read_results(self.run.path)
        is_whole_run = found is not None and found["budget"] == self.settings.seconds
        if found is not None and is_whole_run and found.get("ended"):
            write_grow_report(self.run.path)
            return found
        self.search.quiet, self.search.spent_before = quiet, self.spent()
        if self.folds:
            ended = _WHY[self.search.go()]
            best = self.search.best() or self.search.first
        else:
            best = self._unmeasured()
            ended = "nothing can be measured without labelled rows"
        self.keep(best)
        results = self._results(ended)
        model = load_classifier(str(self.run.path), device=self.device)
        if self.task.test is not None:
            results["tested"] = self._test(model, best, bootstrap, quiet=quiet)
            results["notes"] += better_on_test(results["tested"])
        if self.bank is not None:
            rows = to_label(self.bank, model, self.task, self.sources, self.whole)
            lines = [json.dumps(row, ensure_ascii=False) for row in rows]
            self.run.write_file(TO_LABEL, "".join(f"{line}\n" for line in lines))
            results["to_label"] = rows
        results["spent"] = self.search.spent
        self._write(results)
        return results

    def _unmeasured(self) -> Arm:
        """Return the arm that takes all sources at once."""
        return max(self.search.usable, key=lambda arm: (len(arm.sources), -arm.rounds))

    def _write(self, results: Mapping[str, Any]) -> None:
        self.run.write_file(RESULTS, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        write_grow_report(self.run.path)

    def _test(self, model: Classifier, best: Arm, bootstrap: int, *, quiet: bool) -> dict[str, Any]:
        """Measure the model on the test set beside fine-tuning alone and the baselines."""
        assert self.given.test is not None
        systems = [System(best.name, model, self.trainer.base_of(best))]
        if len(self.task.rows):
            if best != (reference := self.search.reference):
                alone = self.trainer.train(reference, self.whole).classifier
                systems.append(System(reference.name, alone, self.trainer.base_of(reference)))
            systems += [one for one in baselines.baselines(self.task.rows, device=self.device)
                        if one.name != best.name]  # fmt: skip
        how = EvaluateSettings(
            bootstrap=bootstrap, seed=self.settings.seed, text=self.given.text,
            label=self.given.label,
        )  # fmt: skip
        return compare_systems(systems, self.given.test, how, quiet=quiet)

    def _results(self, ended: str) -> dict[str, Any]:
        """Return the content of results.json; `ended` is empty while the search goes on."""
        search, kept = self.search, self.kept
        named = {arm.name: arm for arm in self.arms}
        best, measured = named[kept.arm], [arm for arm in self.arms if search.done(arm)]
        found: dict[str, Any] = {
            "ended": ended, "arm": best.name,
            "base": self.trainer.base_of(best),
            "labels": self.task.labels, "rows": len(self.task.rows), "origins": kept.origins,
            "times": kept.times, "spent": search.spent, "budget": self.settings.seconds,
            "temperature": self.run.resolved.get("temperature"),
            "domain": self.run.resolved.get("domain"), "dropped": list(search.dropped),
            "reference": search.reference.name, "arms": [self._line(arm) for arm in measured],
            "notes": raw_warnings(self.run.resolved.get("domain")),
        }  # fmt: skip
        if not measured:
            found["notes"].append(
                "Nothing was measured: there are no labelled rows. Label the sentences of "
                f"{TO_LABEL} and give them with --train or --validation."
            )
            return found
        if search.done(best):
            gold, given = search.answers(best)
            found["measured"] = classify_scores(gold, given, self.task.labels, bootstrap=0)
        found["notes"] += [*simpler_ways(search, best), *more_labels(search)]
        untried = [
            arm.name for arm in search.usable if len(arm.sources) < 2 and arm not in measured
        ]
        if ended and untried:
            found["notes"].append(
                f"Not tried, as the budget is too short: {', '.join(untried)}. A larger --budget "
                "goes on from here."
            )
        return found

    def _line(self, arm: Arm) -> dict[str, Any]:
        search = self.search
        gain = search.gain(arm, search.reference)
        return {
            "name": arm.name, "sources": list(arm.sources), "curve": arm.is_curve,
            "share": arm.share, "simple": arm.is_simple, "trainings": len(search.done(arm)),
            "seconds": search.cost(arm), "score": _ends(search.score(arm)),
            "gain": None if gain is None or arm == search.reference else _ends(gain),
        }  # fmt: skip


def _ends(found: Interval) -> dict[str, float | None]:
    return {"value": found.value, "low": found.low, "high": found.high}

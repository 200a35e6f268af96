"""Grows a small model in a run folder: plans, searches, keeps the best, measures it once."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilth.data.hashing import hash_of
from tilth.errors import InputError
from tilth.evaluate.classify import classify_scores
from tilth.limits import settings_of
from tilth.metrics.significance import RESAMPLES, check_resamples
from tilth.models.classifier import (
    Classifier,
    fingerprint_classifier,
    load_classifier,
    new_classifier,
)
from tilth.models.encoder import load_encoder
from tilth.models.names import name_of
from tilth.models.trainer import check_processes
from tilth.runs import Progress
from tilth.storage import as_path
from tilth.workflows import baselines
from tilth.workflows.evaluate_classifier import SHOWN, System, compare_systems, wrong_rows
from tilth.workflows.grow.arms import Arm, Bases, Trainer, arms_of, encoders_of, headed
from tilth.workflows.grow.grow_encoder import (
    GrowingEncoder,
    plan_encoder,
    read_encoder_growth,
)
from tilth.workflows.grow.growing import Given, Growing, Kept, open_run
from tilth.workflows.grow.notes import (
    better_on_test,
    few_measured,
    few_rows,
    kept_by_default,
    lucky_ways,
    more_labels,
    raw_warnings,
    simpler_ways,
)
from tilth.workflows.grow.outputs import TO_LABEL, to_label, write_rows, write_to_label
from tilth.workflows.grow.plan import Plan, make_plan
from tilth.workflows.grow.search import Search
from tilth.workflows.grow.settings import SIMILARITY, GrowSources, Growth, check_growth
from tilth.workflows.grow.sources import GENERATED, PARAPHRASED, REWRITES, Sources
from tilth.workflows.grow.speeds import Speeds
from tilth.workflows.grow.task import (
    BANK,
    DOMAIN,
    GrowTask,
    check_raw,
    domain_similarity,
    folds_of,
    read_grow_task,
)
from tilth.workflows.settings import EvaluateSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.data.examples import Source

log = logging.getLogger(__name__)


def grow(
    out: str | Path,
    *,
    train: Source | None = None,
    raw: str | Path | Sequence[str | Path] = (),
    labels: str | Path | Mapping[str, Any] | None = None,
    validation: Source | None = None,
    test: Source | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Classifier | SentenceTransformer:
    """Try what labelled rows, raw text, descriptions and a language model are worth; keep the best.

    Ways to train are compared by cross-validation, or on validation rows, under a time budget; the
    test set is measured once, at the end. The same call resumes. After each round the folder holds
    the best model so far.

    Args:
        out: the run folder: `model` (a transformers classifier, or an encoder), `dataset` (its
            training rows with their origins), `to_label` (of a classifier), `results.json`
            and `report.html`.
        train: labelled texts, for similarity graded pairs: rows, a file, a folder or a hub data
            set.
        raw: a bank, or files and folders of raw text.
        labels: what describes the labels: a task file, its content as a dict, or label ->
            description.
        validation: labelled rows to choose by; None: cross-validation.
        test: labelled rows to measure on.
        text: the column of texts, for similarity the two; None: usual names.
        label: the column of labels; None: a usual name.
        device: `auto`, `cpu` or `cuda`.
        overwrite: start the run folder anew.
        quiet: no progress bar.
        settings: fields of `Growth`: task, budget, base, paraphrase, margin, folds, repeats, seed;
            of the language model: model, precision, count, candidates, system, any_task.

    Returns:
        The kept classifier, whose `.model` and `.tokenizer` are plain transformers; with the task
        `similarity` the kept encoder.

    Raises:
        InputError: the inputs or a setting are wrong, the budget is too short for one way, or `out`
            holds another run.

    Reference:
        Successive halving: Jamieson and Talwalkar 2016, arXiv 1502.07943.
    """
    several = [raw] if isinstance(raw, str | Path) else raw
    described = str(labels) if isinstance(labels, Path) else labels
    sources = GrowSources(train, tuple(map(str, several)), described, validation, test, text, label)
    named = {name: name_of(settings[name]) for name in ("base", "model") if settings.get(name)}
    how = settings_of(Growth, {**settings, **named})
    grow_to_run(sources, out, how, device=device, overwrite=overwrite, quiet=quiet)
    run = str(as_path(out))
    if how.task == SIMILARITY:
        return load_encoder(run, device=device)
    return load_classifier(run, device=device)


def grow_to_run(
    sources: GrowSources,
    out: str | Path,
    settings: Growth,
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
    out = as_path(out)
    check_resamples(bootstrap, settings.seed)
    is_encoder = settings.task == SIMILARITY
    read: Callable[..., tuple[Any, Given]] = read_encoder_growth if is_encoder else _read
    task, given = read(sources, settings, out, device)
    with open_run(out, task, given, overwrite=overwrite) as run:
        growing = (GrowingEncoder if is_encoder else _GrowingClassifier)(run, task, given)
        found = growing.finished(bootstrap)
        try:
            return growing.complete(bootstrap, quiet=quiet) if found is None else found
        except KeyboardInterrupt:
            raise KeyboardInterrupt(growing.stopped()) from None


def plan(sources: GrowSources, settings: Growth, *, device: str = "auto") -> Plan:
    """Return what `grow` will try, with seconds at the speed that this machine has now."""
    with tempfile.TemporaryDirectory(prefix="tilth-") as folder:
        out = Path(folder)
        if settings.task == SIMILARITY:
            return plan_encoder(sources, settings, out, device)
        task, given = _read(sources, settings, out, device)
        check_raw(sources.raw)
        makes = Sources(task, None, settings, out, device)
        return make_plan(task, makes, given.arms, given.folds, given.encoder)


def _read(sources: GrowSources, settings: Growth, out: Path, device: str) -> tuple[GrowTask, Given]:
    check_growth(sources, settings, out)
    check_processes(device)
    task = read_grow_task(sources)
    hashes = {"labels": "none" if task.task is None else hash_of(task.task.to_dict())}
    encoder: str | None = baselines.STARTER
    if settings.base is not None:  # one that cannot be trained is refused before anything is done
        base = new_classifier(settings.base, kind="class", labels=task.labels, device=device)
        hashes["base"] = fingerprint_classifier(base)
        encoder = settings.base if _embeds(settings.base, task.labels, device) else None
    arms = arms_of(task, settings, raw=bool(sources.raw), embeds=encoder is not None)
    folds = folds_of(task, settings.folds, settings.repeats, settings.seed)
    return task, Given(sources, settings, arms, folds, hashes, device, encoder)


def _embeds(base: str, labels: list[str], device: str) -> bool:
    """Tell whether a base can be an encoder under a regression of its embeddings."""
    try:
        encoder = load_encoder(base, device=device)
    except InputError:  # saved without pooling, or a starter that is no encoder
        return False
    return headed(encoder, labels, device).reads_embedding


def _look_up(
    answers: Mapping[tuple[str, ...], NDArray[np.float32]], texts: Sequence[tuple[str, ...]]
) -> NDArray[np.float32]:
    """Return the probabilities that were given to texts, (texts, labels)."""
    return np.stack([answers[text] for text in texts])


class _GrowingClassifier(Growing):
    """A run that grows a classifier: what it has, its search, and the model that it keeps."""

    search_class, speeds_class = Search, Speeds

    @cached_property
    def sources(self) -> Sources:
        """What makes rows."""
        return Sources(self.task, self.bank, self.settings, self.run.path, self.device)

    def _make_plan(self) -> Plan:
        return make_plan(self.task, self.sources, self.arms, self.folds, self.given.encoder)

    @cached_property
    def trainer(self) -> Trainer:  # type: ignore[override]
        """What trains."""
        bases = Bases(self.given.encoder, self.plan.base)
        return Trainer(self.task, self.sources, bases, self.settings, self.device)

    def prepare(self) -> None:
        """Build the bank, plan, and make what all folds share; record the seconds."""
        self._timed(BANK, lambda: self.bank)
        self._warn_dropped()
        for name in REWRITES:
            if name in self.plan.sources and PARAPHRASED not in self.failed:
                self._try_to_make(name, partial(self.sources.paraphrases, name))
        if GENERATED in self.plan.sources:
            is_all = self.bank is None and not len(self.task.rows)
            make = self._timed if is_all else self._try_to_make
            make(GENERATED, lambda: self.sources.texts)
        if self.bank is not None:
            bank = self.bank
            near = self.run.resolve(DOMAIN, lambda: domain_similarity(bank, self.task))
            for line in raw_warnings(near):
                log.warning("%s", line)

    def _train(self, arm: Arm) -> tuple[Callable[[Path], None], Kept]:
        grown = self.trainer.train(arm, self.whole)
        assert grown.rows is not None

        def save(folder: Path) -> None:
            assert grown.classifier is not None
            grown.classifier().save(folder)
            write_rows(self.run, grown, arm, self.given)

        origins = dict(Counter(grown.rows.origin))
        return save, Kept(arm.name, origins, grown.times, labels=grown.rows.counts())

    def _finish(self, results: dict[str, Any], bootstrap: int) -> None:
        model = load_classifier(str(self.run.path), device=self.device)
        if self.task.test is not None:
            best = next(arm for arm in self.arms if arm.name == results["arm"])
            results["tested"] = self._test(model, best, bootstrap)
            results["notes"] += better_on_test(results["tested"])
            if self.folds:
                results["notes"] += simpler_ways(self.search, best, results["tested"])
            results["notes"] += self._left_out()
        if self.bank is not None:
            rows = to_label(self.bank, model, self.task, self.sources, self.whole)
            write_to_label(self.run, rows, model.labels)
            results["to_label"] = rows

    def _test(self, model: Classifier, best: Arm, bootstrap: int) -> dict[str, Any]:
        """Measure the model on the test set beside the simple ways, the reference first."""
        sources, test, search = self.given.sources, self.task.test, self.search
        assert sources.test is not None
        assert test is not None
        fold = replace(self.whole, held=np.arange(len(test)), rows=test)
        others = [arm for arm in self._compared if arm != best]
        with Progress(
            len(others), quiet=search.quiet, what="trainings for the test set"
        ) as progress:
            for arm in others:
                search.test(arm, fold)
                progress.advance(1)
        systems = [System(best.name, model, self.trainer.base_of(best))]
        for arm in others:
            answers = dict(zip(test.texts, search.test(arm, fold), strict=True))
            said = baselines.Baseline(
                arm.name, "class", self.task.labels, partial(_look_up, answers)
            )
            systems.append(System(arm.name, said, self.trainer.base_of(arm)))
        if self.given.encoder is None and len(self.task.rows):  # baselines of the starter encoder
            names = {one.name for one in systems}
            more = baselines.baselines(self.task.rows, device=self.device, quiet=search.quiet)
            systems += [one for one in more if one.name not in names]
        how = EvaluateSettings(
            bootstrap=bootstrap, seed=self.settings.seed, text=sources.text, label=sources.label
        )
        return compare_systems(systems, sources.test, how, quiet=search.quiet)

    def _left_out(self) -> list[str]:
        """Return a note on the simple ways that are not measured on the test set."""
        dear = [arm.name for arm in self.arms if arm.is_simple and arm not in self._compared]
        if not dear:
            return []
        return [
            "Not measured on the test set, as one training takes longer than the budget: "
            f"{'; '.join(dear)}."
        ]

    @property
    def _compared(self) -> list[Arm]:
        """The simple ways whose training is not longer than the budget, the reference first."""
        search = self.search
        simple = {arm.name: arm for arm in self.arms if arm.is_simple}
        dear = {name for name, arm in simple.items() if search.cost(arm) > self.settings.seconds}
        short = [
            arm for name, arm in simple.items() if dear.isdisjoint({name, *encoders_of(name)})
        ]  # fmt: skip
        return sorted(short, key=lambda arm: arm != search.reference)

    def _about(self, best: Arm) -> dict[str, Any]:
        found: dict[str, Any] = {
            "base": self.trainer.base_of(best),
            "labels": self.task.labels, "rows": len(self.task.rows),
            "teacher": self.run.resolved.get("teacher"),
            "domain": self.run.resolved.get(DOMAIN),
        }  # fmt: skip
        if self.search.done(best):
            gold, given = self.search.answers(best)
            found["measured"] = classify_scores(gold, given, self.task.labels, bootstrap=0)
            found["wrong"] = self._wrong(best)
        return found

    def _wrong(self, best: Arm) -> list[dict[str, Any]]:
        """Return the measured rows that an arm is most confidently wrong on, each once."""
        once = [fold for fold in self.search.done(best) if not fold.repeat]
        texts = [text for fold in once for text in fold.rows.texts]
        return wrong_rows(texts, *self.search.answers(best, once), self.task.labels, count=SHOWN)

    def _notes(self, best: Arm) -> list[str]:
        said = raw_warnings(self.run.resolved.get(DOMAIN)) + few_rows(self.kept.labels)
        if not self.folds:
            return [
                *said,
                "Nothing was measured: there are no labelled rows. Label the sentences of "
                f"{TO_LABEL} and give them with --train or --validation.",
            ]
        said += few_measured(self.search, best)
        said += kept_by_default(self.search, best) + lucky_ways(self.search, best)
        if self.task.test is None:
            said += simpler_ways(self.search, best)
        return said + more_labels(self.search)

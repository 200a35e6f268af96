"""Train a classifier or tagger and compare it with its teacher and simple baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.classifiers.examples import LabeledExamples, labeled_examples
from tilth.classifiers.load import (
    NamedTexts,
    TaskSources,
    check_disjoint,
    read_training_sets,
    repeat_count,
    validation_split,
)
from tilth.classifiers.settings import ENOUGH, LABELLED_SHARE, ClassifierTraining, Finetuning
from tilth.data.examples import Source, open_rows, prefer_curated, read_examples
from tilth.data.normalize import normalize_text
from tilth.data.split import written_by_model
from tilth.errors import InputError
from tilth.metrics.scores import positive
from tilth.metrics.significance import RESAMPLES, check_resamples
from tilth.report.augment import write_augment_report
from tilth.report.classifier import training_results, write_classifier_report
from tilth.report.run_reader import refuse_edited
from tilth.report.systems import (
    ALONE,
    BOTH,
    STUDENT,
    TEACHER,
    TRAINED,
    WITHOUT_FIRST,
    generated_words,
    unsure_gains,
    warnings_of,
)
from tilth.runs import RESULTS, read_results, refuse_inside, write_results
from tilth.storage import as_path, pull
from tilth.workflows.augmented_run import (
    AugmentedSets,
    is_augmented,
    open_augmented,
    refuse_other_labels,
    shared,
    sources_of,
    texts_of,
    with_validation,
)
from tilth.workflows.settings import EvaluateSettings

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.models.classifier import Classifier
    from tilth.workflows.evaluate_classifier import System

BASELINE = "baseline"  # the nested run of the labelled rows alone, or without the first set
_MOST_EPOCHS = 50.0  # of the labelled rows alone; the paper's few-shot trainings
_FLATTERS = (
    "Measured on the validation rows, which also chose the weights: figures and gain flatter. "
    "Give --test FILE for fair ones."
)
_REAL = "give --test FILE with rows that people wrote."


@dataclass(frozen=True, slots=True)
class TrainedClassifier:
    """Results of a training: its run folder and the content of its results.json."""

    out: Path
    results: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Job:
    """What all trainings and measurements of one call share."""

    sources: TaskSources
    settings: ClassifierTraining
    tags: bool
    with_labelled: bool
    baseline: bool
    bootstrap: int
    first: str | None

    def flatters(self, rows: int) -> list[str]:
        """Return a note where so many validation rows, which are measured on, chose the weights."""
        return [_FLATTERS] if rows >= ENOUGH or self.settings.seeds > 1 else []

    def compare(
        self, systems: Sequence[System], rows: LabeledExamples, data: Source, **columns: Any
    ) -> dict[str, Any]:
        """Compare systems and the simple baselines, fitted on rows."""
        from tilth.workflows.baselines import baselines
        from tilth.workflows.evaluate_classifier import compare_systems

        device, quiet = self.settings.device, self.settings.quiet
        simple = baselines(rows, device=device, quiet=quiet) if self.baseline else []
        training = self.settings.finetuning
        settings = EvaluateSettings(
            bootstrap=self.bootstrap, seed=training.seed, precision=training.precision, **columns
        )
        return compare_systems([*systems, *simple], data, settings, quiet=quiet)

    def compare_on_test(
        self, systems: Sequence[System], rows: LabeledExamples, data: Source, **columns: Any
    ) -> dict[str, Any]:
        """Compare systems on a test set, of which rows that a model wrote are counted."""
        read, _ = open_rows(prefer_curated(data), "test")
        generated = int(written_by_model(read.with_format("arrow")[:]).sum())
        tested = {"on": "test", "data": str(data), "generated": generated}
        return tested | self.compare(systems, rows, data, **columns)


def train_and_test(
    sources: TaskSources,
    settings: ClassifierTraining,
    out: Path | None,
    *,
    tags: bool = False,
    with_labelled: bool = True,
    baseline: bool = True,
    bootstrap: int = RESAMPLES,
    first: str | None = None,
) -> TrainedClassifier:
    """Train in a run folder, measure on a test set, and write the report.

    An augment run trains on its retrieved sentences and labelled rows; the same base is trained
    on the labelled rows alone, and both are compared with the teacher.

    Args:
        sources: names of sets. `train`: a run of `tilth augment`, or a source that
            `train_classifier` takes. `test`: None: that of the augment run, or else validation
            rows. `labelled`: not for an augment run.
        out: the run folder; None: RUN/classifier.
        with_labelled: train on the labelled rows of an augment run too. The paper does so for few
            of them; for many it found no difference.
        baseline: measure the simple baselines of `tilth.workflows.baselines` too; for an augment
            run, also train on its labelled rows alone, unless its teacher has the same base.
        bootstrap: resamples of intervals and tests; 0: neither.
        first: a labelled set of another task that the base is trained on before, for as many epochs
            as its number of rows calls for; with `baseline`, the base is trained without it, too.
            Not for an augment run.

    Reference:
        The set trained on first: Phang, Févry and Bowman 2018, arXiv 1811.01088 (STILTs), as
        Ogasa, Kajiwara and Arase, section 6, use it.
    """
    check_resamples(bootstrap, settings.finetuning.seed)
    source = str(sources.train)
    run = is_augmented(source)
    if run and sources.labelled is not None:
        raise InputError("--labelled is for files: a run has its labelled rows")
    if not with_labelled and not run:
        raise InputError(f"--retrieved-only: {source} is no run of tilth augment: leave it out")
    if settings.labelled_share is None:
        settings = replace(
            settings, labelled_share=LABELLED_SHARE if run and with_labelled else 0.0
        )
    elif not (with_labelled if run else sources.labelled is not None):
        raise InputError("--labelled-share: there are no labelled rows beside others: leave it out")
    if out is None:
        if not run:
            raise InputError("--out is missing: say in which folder the run is to be made")
        out = as_path(source) / "classifier"
    if first is not None and run:
        raise InputError("--first is for files: a run of tilth augment has its own base")
    read = (sources.test, sources.validation, sources.labelled, first)
    refuse_inside(out, source, *(None if one is None else str(one) for one in read))
    job = _Job(sources, settings, tags, with_labelled, baseline, bootstrap, first)
    augmented = open_augmented(source) if run else None
    if sources.test is None and not settings.overwrite:
        _keep_test(out, None if augmented is None else augmented.test)
    if augmented is not None:
        return _train_on_run(augmented, out, job)
    return _train_on_file(source, out, job)


def _keep_test(out: Path, own: str | Path | None) -> None:
    """Refuse to replace figures of a test set by those of validation rows.

    Args:
        own: the test set that is measured without asking.
    """
    pull(out / RESULTS, clean=True)  # from a URL
    tested = (read_results(out, {"tested": dict}) or {}).get("tested", {})
    if tested.get("on") == "test" and own is None:
        raise InputError(
            f"{out}: its model was measured on {tested.get('data')}: give --test to measure it "
            "again, or --overwrite to train anew"
        )


def _train_on_file(source: str, out: Path, job: _Job) -> TrainedClassifier:
    sources, settings = job.sources, job.settings
    test, validation = sources.test, sources.validation
    columns: dict[str, Any] = {"text": sources.text, "label": sources.label}
    notes, learnt = [], []
    trained_on: list[NamedTexts] = []
    held_out = validation_split(source) if validation is None else validation
    if held_out is not None or test is not None:  # else there is nothing to compare them with
        read = [one for one in (source, sources.labelled) if one is not None]
        learnt = [read_examples(one, **columns) for one in read]
        trained_on = [
            ("training", where, one.texts) for where, one in zip(read, learnt, strict=True)
        ]
        if job.first is not None:
            trained_on.append(("first", job.first, read_examples(job.first).texts))
    if held_out is not None:
        where = source if validation is None else validation
        chosen = read_examples(held_out, split="validation", **columns)
        check_disjoint("validation", where, chosen.texts, *trained_on)
        trained_on.append(("validation", where, chosen.texts))
    if test is not None:
        examples = read_examples(test, split="test", **columns)
        check_disjoint("test", test, examples.texts, *trained_on)
        found_labels = [one.labels for one in learnt if one.labels is not None]
        names = [str(name) for one in found_labels for name in one.classes]
        form = {"kind": found_labels[0].kind, "texts": len(learnt[0].columns)}
        refuse_other_labels(names, source, str(test), examples, **form)
        known = (normalize_text(one) for given in learnt for one in given.sentences)
        notes += _shared_note(shared(examples, known), len(examples), "training rows")
    rows, held = read_training_sets(
        sources, tags=job.tags, hard=settings.loss == "hard", seed=settings.finetuning.seed
    )  # all sets are checked before torch is imported
    from tilth.classifiers.train import train_first, train_on_sources
    from tilth.workflows.evaluate_classifier import System

    plain = settings
    if job.first is not None:
        settings = train_first(job.first, settings, out, held, tags=job.tags)
    model = train_on_sources(sources, settings, out, tags=job.tags)
    systems, tested = [System(TRAINED, model, settings.base)], None
    if job.first is not None and job.baseline:
        alone = train_on_sources(sources, plain, out / BASELINE, tags=job.tags)
        systems.append(System(WITHOUT_FIRST, alone, plain.base))
    if test is not None:
        tested = job.compare_on_test(systems, rows, test, **columns)
    elif held is not None:
        written = 0 if held.written is None else int(held.written.sum())
        tested = {"on": "validation", "data": source, "generated": written}
        tested |= job.compare(systems, rows, _examples_of(held))
        notes += job.flatters(len(held))
    about = {"source": source, "base": settings.base, "loss": settings.loss}
    return _finish(out, about, tested, notes)


def _train_on_run(run: AugmentedSets, out: Path, job: _Job) -> TrainedClassifier:
    sources, settings, folder = job.sources, job.settings, str(run.folder)
    if job.tags != (run.kind == "tags"):
        holds, use = ("classes", "classifier") if job.tags else ("tags", "tagger")
        raise InputError(f"{folder}: its rows have {holds}: use tilth train {use}")
    data = sources.test if sources.test is not None else run.test
    notes, retrieved = [], len(run.rows)
    run, chosen, columns = with_validation(run, sources)
    if data is not None:
        examples = read_examples(data, split="test", **columns)
        names = [name[2:] if run.kind == "tags" else name for name in run.labels]
        refuse_other_labels(names, folder, str(data), examples, kind=run.kind, texts=1)
        own: dict[str, tuple[Source, Dataset]] = {"labelled": (folder, run.labelled)}
        if chosen is not None:
            own["validation"] = (sources.validation or folder, chosen)
        check_disjoint("test", data, examples.texts, *(
            (name, where, [(text,) for text in texts_of(rows, run.text)])
            for name, (where, rows) in own.items()
        ))  # fmt: skip
        known = map(normalize_text, texts_of(run.labelled, run.text))
        notes += _shared_note(shared(examples, known), len(examples), "labelled rows")
        run = run.without(examples.sentences)
    from tilth.classifiers.train import train_on_sources
    from tilth.workflows.evaluate_classifier import System

    teacher = _teacher_of(run, settings.device)
    sets, times = sources_of(run, chosen, settings.loss), 0
    if job.with_labelled:
        times = repeat_count(settings.labelled_share or 0.0, len(run.rows), len(run.labelled))
    else:
        sets = replace(sets, labelled=None)
    student = train_on_sources(sets, settings, out, tags=job.tags, labels=run.labels)
    systems = [System(BOTH if job.with_labelled else STUDENT, student, settings.base)]
    longer = None
    if job.baseline and run.teacher_base != settings.base:
        finetuning = settings.finetuning
        longer = _alone(
            finetuning.for_base(settings.base), len(run.rows) + times * len(run.labelled),
            len(run.labelled),
        )  # fmt: skip
        alone = train_on_sources(
            replace(sets, train=run.truth, labelled=None),
            replace(settings, finetuning=replace(finetuning, **longer), labelled_share=0.0),
            out / BASELINE, tags=job.tags, labels=run.labels,
        )  # fmt: skip
        systems.append(System(ALONE, alone, settings.base))
    truth = labeled_examples(read_examples(run.truth, text=run.text, label=run.label), run.labels)
    systems.append(System(TEACHER, teacher, str(run.settings["teacher"])))
    tested = None
    if data is not None:
        tested = job.compare_on_test(systems, truth, data, **columns)
    elif chosen is not None:
        tested = {"on": "validation", "data": folder}
        tested |= job.compare(systems, truth, chosen, text=run.text, label=run.label, split="train")
        notes += job.flatters(len(chosen))
    about = {
        "source": folder, "teacher": run.teacher, "start": run.start, "base": settings.base,
        "loss": settings.loss,
        "with_labelled": job.with_labelled, "baseline": longer,
        "rows": {
            "retrieved": len(run.rows), "left out": retrieved - len(run.rows),
            "labelled": len(run.labelled), "times": times,
            "validation": 0 if chosen is None else len(chosen),
        },
    }  # fmt: skip
    trained = _finish(out, about, tested, notes)
    with refuse_edited(run.folder):
        write_augment_report(run.folder)
    return trained


def _teacher_of(run: AugmentedSets, device: str) -> Classifier:
    from tilth.models.classifier import load_classifier

    try:
        return load_classifier(run.teacher, device=device)
    except InputError as error:
        raise InputError(
            f"{run.folder}: its teacher, which the new model is compared with, cannot be loaded: "
            f"{error}"
        ) from error


def _alone(settings: Finetuning, retrieved: int, labelled: int) -> dict[str, Any]:
    """Return settings for the labelled rows alone: as many steps, at most 50 epochs.

    With as few steps as their number gives, the base would hardly be trained, and the gain over it
    would be too large.
    """
    steps, every = settings.steps(retrieved)
    passes = steps / -(-labelled // settings.batch)
    epochs = round(max(settings.passes(labelled), min(passes, _MOST_EPOCHS)), 2)
    own, _ = replace(settings, epochs=epochs).steps(labelled)
    return {"epochs": epochs, "evaluate_every": min(every, own)}


def _shared_note(count: int, rows: int, where: str) -> list[str]:
    if not count:
        return []
    return [f"{count:,} of the {rows:,} test rows stand among the {where} too: the figures flatter"]


def _examples_of(rows: LabeledExamples) -> Dataset:
    """Return rows in the form that `read_examples` takes, with the names of all labels."""
    from datasets import ClassLabel, Dataset, Features, List, Value

    one = ClassLabel(names=rows.labels)
    if rows.tokens is not None:
        tags = [target.argmax(axis=1).tolist() for target in rows.targets]
        kinds = {"tokens": List(Value("string")), "tags": List(one)}
        return Dataset.from_dict({"tokens": rows.tokens, "tags": tags}, Features(kinds))
    targets, is_multi = np.asarray(rows.targets), rows.kind == "multi"
    labels = (
        [np.flatnonzero(some).tolist() for some in positive(targets)]
        if is_multi
        else targets.argmax(axis=1).tolist()
    )
    columns: Sequence[str] = ("text",) if len(rows.texts[0]) == 1 else ("text_a", "text_b")
    texts = dict(zip(columns, map(list, zip(*rows.texts, strict=True)), strict=True))
    features = {**dict.fromkeys(columns, Value("string")), "label": List(one) if is_multi else one}
    return Dataset.from_dict({**texts, "label": labels}, Features(features))


def _finish(
    out: Path, about: dict[str, Any], tested: dict[str, Any] | None, notes: list[str]
) -> TrainedClassifier:
    """Add the results to the training's results.json and write the report."""
    kept = training_results(out)
    words = generated_words(kept.get("validation"))
    if words:
        real = tested is not None and tested["on"] == "test" and not tested["generated"]
        remedy = "read the test figures." if real else _REAL
        notes = [*notes, f"Validation{words} does not measure real data: {remedy}"]
    results: dict[str, Any] = {
        **{name: kept[name] for name in ("measure", "best", "seeds", "validation") if name in kept},
        **about, "tested": tested, "notes": notes,
    }  # fmt: skip
    results["warnings"] = warnings_of(results)
    results["notes"] = [*unsure_gains(results), *notes]
    write_results(out, results)
    write_classifier_report(out)
    return TrainedClassifier(out, results)

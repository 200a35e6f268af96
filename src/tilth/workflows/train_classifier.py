"""Train a classifier or tagger and compare it with its teacher and simple baselines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import numpy as np

from tilth.classifiers.examples import LabeledExamples, labeled_examples
from tilth.classifiers.load import TaskSources, check_disjoint, read_training_sets, repeat_count
from tilth.classifiers.settings import Finetuning
from tilth.classifiers.train import train_classifier as fit_classifier
from tilth.classifiers.train import train_tagger as fit_tagger
from tilth.data.examples import Source, open_rows, read_examples
from tilth.data.normalize import normalize_text
from tilth.data.split import written_by_model
from tilth.errors import InputError
from tilth.files import atomic_write
from tilth.limits import LOSS, PART_SHARE, TRAININGS, check_fields
from tilth.metrics.scores import positive
from tilth.metrics.significance import RESAMPLES, check_resamples
from tilth.models.classifier import Classifier, load_classifier
from tilth.report.augment import write_augment_report
from tilth.report.classifier import training_results, write_classifier_report
from tilth.report.run_reader import refuse_edited
from tilth.report.systems import (
    ALONE,
    BASELINES,
    BOTH,
    STUDENT,
    TEACHER,
    TRAINED,
    figures_of,
    gain_lines,
    gains_of,
    generated_words,
    interval,
    systems_of,
)
from tilth.runs import RESULTS, refuse_inside
from tilth.workflows.augmented_run import (
    AugmentedSets,
    columns_of_run,
    is_augmented,
    open_augmented,
    plain_texts,
    refuse_other_labels,
    shared,
    texts_of,
)
from tilth.workflows.baselines import STARTER, baselines
from tilth.workflows.evaluate_classifier import EvaluateSettings, System, compare_systems

if TYPE_CHECKING:
    from datasets import Dataset

BASELINE = "baseline"  # the nested run of the labelled rows alone
_MOST_EPOCHS = 50.0  # of the labelled rows alone; the paper's few-shot trainings
_FLATTERS = (
    "Measured on the validation rows, which also chose the weights: figures and gain flatter. "
    "Give --test FILE for fair ones."
)
_REAL = "give --test FILE with rows that people wrote."
_CHANCE = "may be chance, as the interval holds 0: prefer the simpler model"
_SHARE = 0.25  # of the labelled rows; retrieved ones are less similar to the task


@dataclass(frozen=True, slots=True)
class ClassifierOptions:
    """Options of `tilth train classifier` and `tilth train tagger`.

    Attributes:
        test: a labelled file; None: that of the augment run, or else its validation rows.
        validation: None: that of the augment run.
        labelled: more labelled rows; not for an augment run.
        with_labelled: train on the labelled rows of an augment run too. The paper does so for few
            of them; for many it found no difference.
        labelled_share: None: a quarter for an augment run, else 0.
        baseline: measure the simple baselines of `tilth.workflows.baselines` too; for an augment
            run, also train on its labelled rows alone, unless its teacher has the same base.
        text: column of texts in every given file; None: as in the run, or a usual name.
        label: column of labels, likewise.
        seeds: number of trainings, of the baseline too.
        bootstrap: resamples of intervals and tests; 0: neither.
    """

    base: str = STARTER
    test: str | None = None
    validation: str | None = None
    labelled: str | None = None
    with_labelled: bool = True
    labelled_share: Annotated[float | None, PART_SHARE] = None
    baseline: bool = True
    text: str | Sequence[str] | None = None
    label: str | None = None
    loss: Annotated[str, LOSS] = "kl"
    seeds: Annotated[int, TRAININGS] = 1
    bootstrap: int = RESAMPLES
    training: Finetuning = field(default_factory=Finetuning)

    def __post_init__(self) -> None:
        check_fields(self)
        check_resamples(self.bootstrap, self.training.seed)


@dataclass(frozen=True, slots=True)
class TrainedClassifier:
    """Results of a training: its run folder and the content of its results.json."""

    out: Path
    results: dict[str, Any]

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and lines of a table to print; no lines if nothing was measured."""
        return gain_lines(self.results)

    @property
    def notes(self) -> list[str]:
        """Warnings if another available system is better, and notes on the figures."""
        return [*self.results["warnings"], *self.results["notes"]]


@dataclass(frozen=True, slots=True)
class _Job:
    """Settings shared by all trainings and measurements of one call."""

    options: ClassifierOptions
    tags: bool
    device: str
    overwrite: bool
    quiet: bool

    def train(self, source: Source, out: Path, **more: Any) -> Classifier:
        train = fit_tagger if self.tags else fit_classifier
        options = self.options
        training = {"loss": options.loss, **asdict(options.training), **more}
        return train(
            source, options.base, out, seeds=options.seeds, device=self.device,
            overwrite=self.overwrite, quiet=self.quiet, **training,
        )  # fmt: skip

    def compare(
        self, systems: Sequence[System], rows: LabeledExamples, data: Source, **columns: Any
    ) -> dict[str, Any]:
        """Compare systems and the simple baselines, fitted on rows."""
        simple = baselines(rows, device=self.device) if self.options.baseline else []
        training = self.options.training
        settings = EvaluateSettings(
            bootstrap=self.options.bootstrap, seed=training.seed, precision=training.precision,
            **columns,
        )  # fmt: skip
        return compare_systems([*systems, *simple], data, settings, quiet=self.quiet)


P = ParamSpec("P")


def _for_augment_runs(train_rows: Callable[P, Classifier]) -> Callable[P, Classifier]:
    """Let a Python training take the run of a `tilth augment` as the command does."""

    @wraps(train_rows)
    def train(*args: P.args, **kwargs: P.kwargs) -> Classifier:
        given = signature(train_rows).bind(*args, **kwargs).arguments
        source = given["train"]
        if isinstance(source, str | Path) and is_augmented(str(source)):
            training = given.pop("training", {})
            sets = _augmented_sets(open_augmented(str(source)), given)
            return train_rows(**{**given, **training, **sets})  # type: ignore[call-arg]
        return train_rows(*args, **kwargs)

    return train


def _augmented_sets(run: AugmentedSets, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a training on an augment run's retrieved and labelled rows."""
    if given.get("labelled") is not None:
        raise InputError("labelled is for other sets: a run of tilth augment has its labelled rows")
    validation = given.get("validation")
    chosen = run.validation
    if validation is not None:
        columns = {name: given.get(name) or run.settings.get(name) for name in ("text", "label")}
        run, chosen = _with_validation(run, validation, columns)
    return {
        "train": run.rows, "validation": chosen, "labels": run.labels,
        "labelled": run.truth if given.get("loss") == "hard" else run.labelled,
        "labelled_share": given.get("labelled_share", _SHARE),
        "text": run.text, "label": run.label,
    }  # fmt: skip


def _with_validation(
    run: AugmentedSets, validation: Source, columns: Mapping[str, Any]
) -> tuple[AugmentedSets, Dataset]:
    """Return a run without the sentences of another validation set, and that set."""
    rows = read_examples(validation, split="validation", **columns)
    labelled = [(text,) for text in texts_of(run.labelled, run.text)]
    check_disjoint("validation", validation, rows.texts, "labelled", str(run.folder), labelled)
    return run.without(rows.sentences), columns_of_run(run, rows)


train_classifier = _for_augment_runs(fit_classifier)
train_tagger = _for_augment_runs(fit_tagger)


def train_and_test(
    source: str,
    out: Path | None,
    options: ClassifierOptions,
    *,
    tags: bool = False,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> TrainedClassifier:
    """Train in a run folder, measure on a test set, and write the report.

    An augment run trains on its retrieved sentences and labelled rows; the same base is trained
    on the labelled rows alone, and both are compared with the teacher.

    Args:
        source: a run of `tilth augment`, or a source that `train_classifier` takes.
        out: the run folder; None: RUN/classifier.
    """
    run, with_labelled = is_augmented(source), options.with_labelled
    if run and options.labelled is not None:
        raise InputError("--labelled is for files: a run has its labelled rows")
    if not with_labelled and not run:
        raise InputError(f"--retrieved-only: {source} is no run of tilth augment: leave it out")
    if options.labelled_share is None:
        options = replace(options, labelled_share=_SHARE if run and with_labelled else 0.0)
    elif not (with_labelled if run else options.labelled is not None):
        raise InputError("--labelled-share: there are no labelled rows beside others: leave it out")
    if out is None:
        if not run:
            raise InputError("--out is missing: say in which folder the run is to be made")
        out = Path(source).expanduser() / "classifier"
    refuse_inside(out, source, options.test, options.validation, options.labelled)
    job = _Job(options, tags, device, overwrite, quiet)
    if run:
        return _train_on_run(open_augmented(source), out, job)
    return _train_on_file(source, out, job)


def _train_on_file(source: str, out: Path, job: _Job) -> TrainedClassifier:
    options = job.options
    test, validation, labelled = options.test, options.validation, options.labelled
    columns: dict[str, Any] = {"text": options.text, "label": options.label}
    notes, learnt = [], []
    if validation is not None or test is not None:  # else there is nothing to compare them with
        learnt = [read_examples(one, **columns) for one in (source, labelled) if one is not None]
    chosen = None
    if validation is not None:
        chosen = read_examples(validation, split="validation", **columns)
        check_disjoint("validation", validation, chosen.texts, "training", source, learnt[0].texts)
    if test is not None:
        examples = read_examples(test, split="test", **columns)
        check_disjoint("test", test, examples.texts, "training", source, learnt[0].texts)
        if chosen is not None:
            check_disjoint(
                "test", test, examples.texts, "validation", str(validation), chosen.texts
            )
        found_labels = [one.labels for one in learnt if one.labels is not None]
        names = [str(name) for one in found_labels for name in one.classes]
        refuse_other_labels(found_labels[0].kind, names, source, test, examples)
        known = (normalize_text(one) for given in learnt for one in given.sentences)
        notes += _shared_note(shared(examples, known), len(examples), "training rows")
    share = options.labelled_share
    model = job.train(
        source, out, validation=validation, labelled=labelled, labelled_share=share, **columns
    )
    rows, held = read_training_sets(
        TaskSources(source, validation, None, labelled, **columns), tags=job.tags,
        hard=options.loss == "hard", seed=options.training.seed,
    )  # fmt: skip
    systems, tested = [System(TRAINED, model, options.base)], None
    if test is not None:
        tested = {"on": "test", "data": test, "generated": _generated(test, "test")}
        tested |= job.compare(systems, rows, test, **columns)
    elif held is not None:
        written = 0 if held.written is None else int(held.written.sum())
        tested = {"on": "validation", "data": source, "generated": written}
        tested |= job.compare(systems, rows, _examples_of(held))
        notes.append(_FLATTERS)
    about = {"source": source, "base": options.base, "loss": options.loss}
    return _finish(out, about, tested, notes)


def _train_on_run(run: AugmentedSets, out: Path, job: _Job) -> TrainedClassifier:
    options, folder = job.options, str(run.folder)
    if job.tags != (run.kind == "tags"):
        holds, use = ("classes", "classifier") if job.tags else ("tags", "tagger")
        raise InputError(f"{folder}: its rows have {holds}: use tilth train {use}")
    columns: dict[str, Any] = {
        name: getattr(options, name)
        if getattr(options, name) is not None
        else run.settings.get(name)
        for name in ("text", "label")
    }
    data = options.test if options.test is not None else run.test
    notes, retrieved, chosen = [], len(run.rows), run.validation
    if options.validation is not None:
        run, chosen = _with_validation(run, options.validation, columns)
    if data is not None:
        examples = read_examples(data, split="test", **columns)
        names = [name[2:] if run.kind == "tags" else name for name in run.labels]
        refuse_other_labels(run.kind, names, folder, str(data), examples)
        own = {"labelled": (folder, run.labelled)}
        if chosen is not None:
            own["validation"] = (options.validation or folder, chosen)
        for name, (where, rows) in own.items():
            texts = [(text,) for text in texts_of(rows, run.text)]
            check_disjoint("test", data, examples.texts, name, where, texts)
        known = plain_texts(run.labelled, run.text)
        notes += _shared_note(shared(examples, known), len(examples), "labelled rows")
        run = run.without(examples.sentences)
    sets: dict[str, Any] = {
        "labels": run.labels, "validation": chosen, "text": run.text, "label": run.label
    }  # fmt: skip
    labelled, share, times = None, options.labelled_share or 0.0, 0
    if options.with_labelled:
        labelled = run.truth if options.loss == "hard" else run.labelled
        times = repeat_count(share, len(run.rows), len(labelled))
    student = job.train(run.rows, out, labelled=labelled, labelled_share=share, **sets)
    systems = [System(BOTH if options.with_labelled else STUDENT, student, options.base)]
    longer = None
    if options.baseline and run.teacher_base != options.base:
        settings = options.training.for_base(options.base)
        longer = _alone(settings, len(run.rows) + times * len(run.labelled), len(run.labelled))
        alone = job.train(run.truth, out / BASELINE, **sets, **longer)
        systems.append(System(ALONE, alone, options.base))
    truth = labeled_examples(read_examples(run.truth, text=run.text, label=run.label), run.labels)
    teacher = load_classifier(run.teacher, device=job.device)
    systems.append(System(TEACHER, teacher, str(run.settings["teacher"])))
    tested = None
    if data is not None:
        tested = {"on": "test", "data": str(data), "generated": _generated(data, "test")}
        tested |= job.compare(systems, truth, data, **columns)
    elif chosen is not None:
        tested = {"on": "validation", "data": folder}
        tested |= job.compare(systems, truth, chosen, text=run.text, label=run.label, split="train")
        notes.append(_FLATTERS)
    about = {
        "source": folder, "start": run.start, "base": options.base, "loss": options.loss,
        "with_labelled": options.with_labelled, "baseline": longer,
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


def _generated(data: Source, split: str) -> int:
    """Return how many rows of a set were written by a model."""
    rows, _ = open_rows(data, split)
    return int(written_by_model(rows.with_format("arrow")[:]).sum())


def _examples_of(rows: LabeledExamples) -> list[dict[str, Any]]:
    """Return rows in the form that `read_examples` takes."""
    names = np.array(rows.labels)
    if rows.tokens is not None:
        return [
            {"tokens": tokens, "tags": names[target.argmax(axis=1)].tolist()}
            for tokens, target in zip(rows.tokens, rows.targets, strict=True)
        ]
    targets = np.asarray(rows.targets)
    labels = (
        [names[one].tolist() for one in positive(targets)]
        if rows.kind == "multi"
        else names[targets.argmax(axis=1)].tolist()
    )
    columns: Sequence[str] = ("text",) if len(rows.texts[0]) == 1 else ("text_a", "text_b")
    return [
        {**dict(zip(columns, texts, strict=True)), "label": label}
        for texts, label in zip(rows.texts, labels, strict=True)
    ]


def _warnings(results: Mapping[str, Any]) -> list[str]:
    """Return which system is better than the model, and the remedy."""
    systems = systems_of(results)
    if not systems:
        return []
    key, figure = next(iter(figures_of(systems[0]["scores"]).items()))
    own = systems[0]["scores"][key]["value"]
    above = [
        one for one in systems[1:]
        if own is not None and (one["scores"][key]["value"] or 0.0) > own
    ]  # fmt: skip
    lines = []
    for group in (BASELINES, (TEACHER,), (ALONE,)):
        some = [one for one in above if one["name"] in group]
        if some:
            best = max(some, key=lambda one: one["scores"][key]["value"])
            ends = interval(results["tested"]["differences"][best["name"]][key], "+")
            lines.append(
                f"Warning: {best['name']} has {figure} {best['scores'][key]['value']:.1f}, this "
                f"model {own:.1f}{f' (difference 95%: {ends})' if ends else ''}: "
                f"{_remedy(best['name'], results)}"
            )
    return lines


def _unsure_gains(results: Mapping[str, Any]) -> list[str]:
    """Return a note on each gain that may be chance: its interval holds 0."""
    lines = []
    for name, figures in gains_of(results).items():
        found = next(iter(figures.values()))
        low = found.get("low")
        if name.startswith("gain") and low is not None and low <= 0:
            lines.append(f"The {name} ({interval(found, '+')}) {_CHANCE}.")
    return lines


def _remedy(name: str, results: Mapping[str, Any]) -> str:
    source, base = results["source"], results["base"]
    if name == TEACHER:
        return f"take the teacher, {source}/teacher, or train with its base (--base)"
    if name == ALONE:
        return (
            "take the labelled rows alone (baseline/model), or try tilth augment with --query "
            "per-sentence, a better --teacher, or a bank nearer to the task"
        )
    if base not in (STARTER, "starter"):
        return f"train with --base {STARTER}"
    return "train with more labelled rows, or a larger --base such as a hub id"


def _finish(
    out: Path, about: dict[str, Any], tested: dict[str, Any] | None, notes: list[str]
) -> TrainedClassifier:
    """Add the results to the training's results.json and write the report."""
    file = out / RESULTS
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
    results["warnings"] = _warnings(results)
    results["notes"] = [*_unsure_gains(results), *notes]
    text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    # An edited run may hold a lone surrogate: write it as JSON escapes it.
    data = text.encode(errors="backslashreplace")
    atomic_write(file, lambda file: file.write(data))
    write_classifier_report(out)
    return TrainedClassifier(out, results)

"""Train a classifier or tagger and compare it with its teacher and simple baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.classifiers.examples import LabeledExamples, labeled_examples
from tilth.classifiers.load import TaskSources, check_disjoint, read_training_sets, repeat_count
from tilth.classifiers.settings import ClassifierTraining, Finetuning
from tilth.classifiers.train import train_on_sources
from tilth.data.examples import Source, open_rows, read_examples
from tilth.data.normalize import normalize_text
from tilth.data.split import written_by_model
from tilth.errors import InputError
from tilth.files import atomic_write
from tilth.metrics.scores import positive
from tilth.metrics.significance import RESAMPLES, check_resamples
from tilth.models.classifier import Classifier, load_classifier
from tilth.models.trainer import settings_of
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


def train_classifier(
    train: Source,
    base: str = "starter-encoder",
    out: str | Path | None = None,
    *,
    validation: Source | None = None,
    labelled: Source | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    loss: str = "kl",
    labelled_share: float | None = None,
    seeds: int = 1,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> Classifier:
    """Train a classifier of texts, or of pairs of texts, on labels or a teacher's probabilities.

    The weights with the best validation score (accuracy; macro F1 for several classes a text) are
    kept.

    Args:
        train: what `read_examples` reads: a data set, rows, a file, a folder, a run, a hub data
            set; a run of `tilth augment`, whose labelled rows are trained on too. A column
            `probabilities` holds a teacher's, in the order of the label column's names.
        base: `starter-encoder`, `starter-mlm`, `starter-small` (two layers: several times faster
            and less accurate), a folder or a hub id of an encoder.
        out: the run folder; the same call resumes. Its `model` is a transformers model. None:
            nothing is kept on disk.
        validation: selects the best weights. None: the split of that name, or else a tenth of
            `labelled`, or of `train`, stratified by label.
        labelled: more labelled rows to train on, beside a teacher's.
        text: the column of texts, or the two of pairs; None: a usual name.
        label: None: a usual name.
        labels: in the order of the outputs; None: those of the label column.
        loss: of probabilities: `kl` learns them, `hard` their likeliest label.
        labelled_share: share of all rows that `labelled` makes up, 0 to below 1: its rows are
            repeated, at most 16 times. 0: they are not repeated. None: a quarter for a run of
            `tilth augment`, else 0.
        seeds: number of trainings, of which the best by validation is kept.
        device: `auto`, `cpu`, `cuda` or `cuda:0`; one GPU.
        overwrite: start the run folder anew.
        quiet: no progress bar.
        training: fields of `Finetuning`: epochs, batch, learning_rate, warmup, weight_decay,
            dropout, evaluate_every, label_smoothing, max_length, precision, seed.

    Returns:
        The best classifier: `.model` and `.tokenizer` are plain transformers.

    Raises:
        InputError: the sets, the base or a setting are wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2021, arXiv 2010.02194, sections 2.2 and 3. Batches of similar lengths are ours.
    """
    settings = ClassifierTraining(
        base, settings_of(Finetuning, training), loss, labelled_share, seeds, device, overwrite,
        quiet,
    )  # fmt: skip
    sources = TaskSources(train, validation, None, labelled, text, label)
    return _train(sources, settings, out, labels, tags=False)


def train_tagger(
    train: Source,
    base: str = "starter-encoder",
    out: str | Path | None = None,
    *,
    validation: Source | None = None,
    labelled: Source | None = None,
    text: str | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    loss: str = "kl",
    labelled_share: float | None = None,
    seeds: int = 1,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> Classifier:
    """Train a tagger of tokens, such as for named entities, measured by span F1.

    The arguments are those of `train_classifier`, with rows of tokens and their IOB2 tags. A
    teacher's probabilities are a list for each token.

    Args:
        train: rows with `tokens` and `tags`, as `read_examples` reads them.
        validation: None: the split is stratified by the entity types of a row.
        text: the column of tokens; None: `tokens` or `words`.
        label: the column of tags; None: `tags`, `ner_tags` or `labels`.
        labels: in the order of the outputs; None: O, then B- and I- of each type.

    Raises:
        InputError: a set, the base or a setting is wrong, tags are not IOB2, or `out` holds
            another run.
        TilthError: training gave no numbers, or the folder cannot be written.
    """
    settings = ClassifierTraining(
        base, settings_of(Finetuning, training), loss, labelled_share, seeds, device, overwrite,
        quiet,
    )  # fmt: skip
    sources = TaskSources(train, validation, None, labelled, text, label)
    return _train(sources, settings, out, labels, tags=True)


def _train(
    sources: TaskSources,
    settings: ClassifierTraining,
    out: str | Path | None,
    labels: Sequence[str] | None,
    *,
    tags: bool,
) -> Classifier:
    """Train on sets, or on an augment run's as the command does."""
    if isinstance(sources.train, str | Path) and is_augmented(str(sources.train)):
        if sources.labelled is not None:
            raise InputError(
                "labelled is for other sets: a run of tilth augment has its labelled rows"
            )
        run, chosen, _ = _with_validation(open_augmented(str(sources.train)), sources)
        if settings.labelled_share is None:
            settings = replace(settings, labelled_share=_SHARE)
        sources, labels = _sources_of(run, chosen, settings.loss), run.labels
    return train_on_sources(sources, settings, out, tags=tags, labels=labels)


def _with_validation(
    run: AugmentedSets, sources: TaskSources
) -> tuple[AugmentedSets, Dataset | None, dict[str, Any]]:
    """Return a run without the sentences of another validation set, that set, and the columns."""
    columns: dict[str, Any] = {
        name: run.settings.get(name) if (own := getattr(sources, name)) is None else own
        for name in ("text", "label")
    }
    if sources.validation is None:
        return run, run.validation, columns
    rows = read_examples(sources.validation, split="validation", **columns)
    labelled = [(text,) for text in texts_of(run.labelled, run.text)]
    check_disjoint("validation", sources.validation, rows.texts, "labelled", str(run.folder),
                   labelled)  # fmt: skip
    return run.without(rows.sentences), columns_of_run(run, rows), columns


def _sources_of(run: AugmentedSets, validation: Dataset | None, loss: str) -> TaskSources:
    """Return an augment run's retrieved and labelled rows as the sets of a training."""
    labelled = run.truth if loss == "hard" else run.labelled
    return TaskSources(run.rows, validation, None, labelled, run.text, run.label)


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

    def compare(
        self, systems: Sequence[System], rows: LabeledExamples, data: Source, **columns: Any
    ) -> dict[str, Any]:
        """Compare systems and the simple baselines, fitted on rows."""
        simple = baselines(rows, device=self.settings.device) if self.baseline else []
        training = self.settings.finetuning
        settings = EvaluateSettings(
            bootstrap=self.bootstrap, seed=training.seed, precision=training.precision, **columns
        )
        return compare_systems([*systems, *simple], data, settings, quiet=self.settings.quiet)

    def compare_on_test(
        self, systems: Sequence[System], rows: LabeledExamples, data: Source, **columns: Any
    ) -> dict[str, Any]:
        """Compare systems on a test set, of which rows that a model wrote are counted."""
        read, _ = open_rows(data, "test")
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
    """
    check_resamples(bootstrap, settings.finetuning.seed)
    source = str(sources.train)
    run = is_augmented(source)
    if run and sources.labelled is not None:
        raise InputError("--labelled is for files: a run has its labelled rows")
    if not with_labelled and not run:
        raise InputError(f"--retrieved-only: {source} is no run of tilth augment: leave it out")
    if settings.labelled_share is None:
        settings = replace(settings, labelled_share=_SHARE if run and with_labelled else 0.0)
    elif not (with_labelled if run else sources.labelled is not None):
        raise InputError("--labelled-share: there are no labelled rows beside others: leave it out")
    if out is None:
        if not run:
            raise InputError("--out is missing: say in which folder the run is to be made")
        out = Path(source).expanduser() / "classifier"
    read = (sources.test, sources.validation, sources.labelled)
    refuse_inside(out, source, *(None if one is None else str(one) for one in read))
    job = _Job(sources, settings, tags, with_labelled, baseline, bootstrap)
    if run:
        return _train_on_run(open_augmented(source), out, job)
    return _train_on_file(source, out, job)


def _train_on_file(source: str, out: Path, job: _Job) -> TrainedClassifier:
    sources, settings = job.sources, job.settings
    test, validation = sources.test, sources.validation
    columns: dict[str, Any] = {"text": sources.text, "label": sources.label}
    notes, learnt = [], []
    if validation is not None or test is not None:  # else there is nothing to compare them with
        read = [one for one in (source, sources.labelled) if one is not None]
        learnt = [read_examples(one, **columns) for one in read]
    chosen = None
    if validation is not None:
        chosen = read_examples(validation, split="validation", **columns)
        check_disjoint("validation", validation, chosen.texts, "training", source, learnt[0].texts)
    if test is not None:
        examples = read_examples(test, split="test", **columns)
        check_disjoint("test", test, examples.texts, "training", source, learnt[0].texts)
        if chosen is not None:
            check_disjoint("test", test, examples.texts, "validation", validation, chosen.texts)
        found_labels = [one.labels for one in learnt if one.labels is not None]
        names = [str(name) for one in found_labels for name in one.classes]
        refuse_other_labels(found_labels[0].kind, names, source, str(test), examples)
        known = (normalize_text(one) for given in learnt for one in given.sentences)
        notes += _shared_note(shared(examples, known), len(examples), "training rows")
    model = train_on_sources(sources, settings, out, tags=job.tags)
    rows, held = read_training_sets(
        sources, tags=job.tags, hard=settings.loss == "hard", seed=settings.finetuning.seed
    )
    systems, tested = [System(TRAINED, model, settings.base)], None
    if test is not None:
        tested = job.compare_on_test(systems, rows, test, **columns)
    elif held is not None:
        written = 0 if held.written is None else int(held.written.sum())
        tested = {"on": "validation", "data": source, "generated": written}
        tested |= job.compare(systems, rows, _examples_of(held))
        notes.append(_FLATTERS)
    about = {"source": source, "base": settings.base, "loss": settings.loss}
    return _finish(out, about, tested, notes)


def _train_on_run(run: AugmentedSets, out: Path, job: _Job) -> TrainedClassifier:
    sources, settings, folder = job.sources, job.settings, str(run.folder)
    if job.tags != (run.kind == "tags"):
        holds, use = ("classes", "classifier") if job.tags else ("tags", "tagger")
        raise InputError(f"{folder}: its rows have {holds}: use tilth train {use}")
    data = sources.test if sources.test is not None else run.test
    notes, retrieved = [], len(run.rows)
    run, chosen, columns = _with_validation(run, sources)
    if data is not None:
        examples = read_examples(data, split="test", **columns)
        names = [name[2:] if run.kind == "tags" else name for name in run.labels]
        refuse_other_labels(run.kind, names, folder, str(data), examples)
        own: dict[str, tuple[Source, Dataset]] = {"labelled": (folder, run.labelled)}
        if chosen is not None:
            own["validation"] = (sources.validation or folder, chosen)
        for name, (where, rows) in own.items():
            texts = [(text,) for text in texts_of(rows, run.text)]
            check_disjoint("test", data, examples.texts, name, where, texts)
        known = map(normalize_text, texts_of(run.labelled, run.text))
        notes += _shared_note(shared(examples, known), len(examples), "labelled rows")
        run = run.without(examples.sentences)
    sets, times = _sources_of(run, chosen, settings.loss), 0
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
    teacher = load_classifier(run.teacher, device=settings.device)
    systems.append(System(TEACHER, teacher, str(run.settings["teacher"])))
    tested = None
    if data is not None:
        tested = job.compare_on_test(systems, truth, data, **columns)
    elif chosen is not None:
        tested = {"on": "validation", "data": folder}
        tested |= job.compare(systems, truth, chosen, text=run.text, label=run.label, split="train")
        notes.append(_FLATTERS)
    about = {
        "source": folder, "start": run.start, "base": settings.base, "loss": settings.loss,
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

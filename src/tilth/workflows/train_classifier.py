"""Train a classifier or tagger and see how good it is beside its teacher and simple baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilth.classifiers.examples import Rows, rows_of
from tilth.classifiers.load import Columns, labelled_times, read_to_train, refuse_same
from tilth.classifiers.settings import Finetuning
from tilth.classifiers.train import train_classifier, train_tagger
from tilth.data.examples import Source, open_rows, read_examples
from tilth.data.normalize import normalize_text
from tilth.data.split import written_by_model
from tilth.errors import InputError
from tilth.files import atomic_write
from tilth.limits import LOSS, PART_SHARE, TRAININGS
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
    gain_lines,
    generated_words,
    interval,
    systems_of,
)
from tilth.runs import refuse_inside
from tilth.workflows.augmented_run import (
    Augmented,
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

RESULTS = "results.json"
BASELINE = "baseline"  # the nested run of the labelled rows alone
_MOST_EPOCHS = 50.0  # of the labelled rows alone; the paper's few-shot trainings
_FLATTERS = (
    "Measured on the validation rows, which also chose the weights: figures and gain flatter. "
    "Give --test FILE for fair ones."
)
_REAL = "give --test FILE with rows that people wrote."
_SHARE = 0.25  # of the labelled rows among retrieved ones, which are further from the task


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training gave.

    Attributes:
        out: its run folder.
        results: as in its results.json.
    """

    out: Path
    results: dict[str, Any]

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """The head and the lines of a table to print; no lines where nothing was measured."""
        return gain_lines(self.results)

    @property
    def notes(self) -> list[str]:
        """What must be said beside: where something at hand is better, and what flatters."""
        return [*self.results["warnings"], *self.results["notes"]]


@dataclass(frozen=True, slots=True)
class _How:
    """What all trainings and measurements of one call share."""

    tags: bool
    base: str
    loss: str
    labelled_share: float
    seeds: int
    device: str
    overwrite: bool
    quiet: bool
    bootstrap: int
    training: dict[str, Any]
    baseline: bool

    def train(self, source: Source, out: Path, **more: Any) -> Classifier:
        train = train_tagger if self.tags else train_classifier
        options = {"loss": self.loss} | self.training | more
        return train(
            source, self.base, out, seeds=self.seeds, device=self.device,
            overwrite=self.overwrite, quiet=self.quiet, **options,
        )  # fmt: skip

    def compare(
        self, systems: Sequence[System], rows: Rows, data: Source, **columns: Any
    ) -> dict[str, Any]:
        simple = baselines(rows, device=self.device) if self.baseline else []
        settings = EvaluateSettings(
            bootstrap=self.bootstrap, seed=self.settings.seed,
            precision=self.training.get("precision", "auto"), **columns,
        )  # fmt: skip
        return compare_systems([*systems, *simple], data, settings, quiet=self.quiet)

    @property
    def settings(self) -> Finetuning:
        return settings_of(Finetuning, self.training).for_base(self.base)


def train_and_test(
    source: str,
    out: Path | None = None,
    *,
    tags: bool = False,
    base: str = STARTER,
    test: str | None = None,
    validation: str | None = None,
    labelled: str | None = None,
    with_labelled: bool = True,
    labelled_share: float | None = None,
    baseline: bool = True,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    loss: str = "kl",
    seeds: int = 1,
    bootstrap: int = RESAMPLES,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    training: Mapping[str, Any] | None = None,
) -> Trained:
    """Train in a run folder, measure on a test set, and write the page.

    Of a run of `tilth augment` the retrieved sentences are trained on; the same base is trained
    on the labelled rows alone, and both are measured beside the teacher.

    Args:
        source: a run of `tilth augment`, or what `train_classifier` takes.
        out: the run folder; None: RUN/classifier.
        tags: train a tagger.
        base: see `train_classifier`.
        test: a labelled file; None: that of the run, or else its validation rows.
        validation: see `train_classifier`; None: that of the run.
        labelled: see there; not for a run.
        with_labelled: train on the labelled rows of a run too. For few of them the paper does,
            for many it found no difference.
        labelled_share: see `train_classifier`; None: a quarter for a run, else 0.
        baseline: measure simple baselines beside (see `tilth.workflows.baselines`); for a run,
            train on its labelled rows alone as well, unless its teacher is the same base.
        text: the column of texts of every file given; None: as in the run, or a usual name.
        label: that of labels, likewise.
        loss: see `train_classifier`.
        seeds: see there; both trainings have as many.
        bootstrap: resamples of intervals and tests; 0: neither.
        device: see `train_classifier`.
        overwrite: begin the run, and its baseline, anew.
        quiet: no progress.
        training: see `Finetuning`.

    Raises:
        InputError: something given is wrong.
        TilthError: training failed.
    """
    run = is_augmented(source)
    if run and labelled is not None:
        raise InputError("--labelled is for files: a run has its labelled rows")
    if not with_labelled and not run:
        raise InputError(f"--retrieved-only: {source} is no run of tilth augment: leave it out")
    if labelled_share is not None and not (with_labelled if run else labelled is not None):
        raise InputError("--labelled-share: there are no labelled rows beside others: leave it out")
    if labelled_share is None:
        labelled_share = _SHARE if run and with_labelled else 0.0
    PART_SHARE.check("labelled_share", labelled_share)
    TRAININGS.check("seeds", seeds)
    LOSS.check("loss", loss)
    if out is None:
        if not run:
            raise InputError("--out is missing: say in which folder the run is to be made")
        out = Path(source).expanduser() / "classifier"
    refuse_inside(out, source, test, validation, labelled)
    how = _How(
        tags, base, loss, labelled_share, seeds, device, overwrite, quiet, bootstrap,
        dict(training or {}), baseline,
    )  # fmt: skip
    check_resamples(bootstrap, how.settings.seed)  # before anything is read
    if run:
        return _train_on_run(
            open_augmented(source), out, how, test=test, validation=validation, text=text,
            label=label, with_labelled=with_labelled,
        )  # fmt: skip
    return _train_on_file(
        source, out, how, test=test, validation=validation, labelled=labelled, text=text,
        label=label,
    )  # fmt: skip


def _train_on_file(
    source: str,
    out: Path,
    how: _How,
    *,
    test: str | None,
    validation: str | None,
    labelled: str | None,
    text: str | Sequence[str] | None,
    label: str | None,
) -> Trained:
    columns: dict[str, Any] = {"text": text, "label": label}
    notes = []
    learnt = []
    if validation is not None or test is not None:  # else there is nothing to hold them against
        learnt = [read_examples(one, **columns) for one in (source, labelled) if one is not None]
    chosen = None
    if validation is not None:
        chosen = read_examples(validation, split="validation", **columns)
        refuse_same("validation", validation, chosen.texts, "training", source, learnt[0].texts)
    if test is not None:
        examples = read_examples(test, split="test", **columns)
        refuse_same("test", test, examples.texts, "training", source, learnt[0].texts)
        if chosen is not None:
            assert validation is not None  # it was read
            refuse_same("test", test, examples.texts, "validation", validation, chosen.texts)
        found_labels = [one.labels for one in learnt if one.labels is not None]
        names = [str(name) for one in found_labels for name in one.classes]
        refuse_other_labels(found_labels[0].kind, names, source, test, examples)
        known = (normalize_text(one) for given in learnt for one in given.sentences)
        notes += _shared_note(shared(examples, known), len(examples), "training rows")
    model = how.train(
        source, out, validation=validation, labelled=labelled, labelled_share=how.labelled_share,
        **columns,
    )  # fmt: skip
    rows, held = read_to_train(
        source, validation, labelled, Columns(text, label), tags=how.tags,
        hard=how.loss == "hard", labels=None, seed=how.settings.seed,
    )  # fmt: skip
    systems, tested = [System(TRAINED, model, how.base)], None
    if test is not None:
        tested = {"on": "test", "data": test, "generated": _generated(test, "test")}
        tested |= how.compare(systems, rows, test, **columns)
    elif held is not None:
        tested = {"on": "validation", "data": source, "generated": _written(held)}
        tested |= how.compare(systems, rows, _examples_of(held))
        notes.append(_FLATTERS)
    about = {"source": source, "base": how.base, "loss": how.loss}
    return _finish(out, about, tested, notes)


def _train_on_run(
    run: Augmented,
    out: Path,
    how: _How,
    *,
    test: str | None,
    validation: str | None,
    text: str | Sequence[str] | None,
    label: str | None,
    with_labelled: bool,
) -> Trained:
    if how.tags != (run.kind == "tags"):
        holds, use = ("classes", "classifier") if how.tags else ("tags", "tagger")
        raise InputError(f"{run.folder}: its rows have {holds}: use tilth train {use}")
    columns: dict[str, Any] = {
        "text": text if text is not None else run.settings.get("text"),
        "label": label if label is not None else run.settings.get("label"),
    }
    data = test if test is not None else run.test
    notes, retrieved = [], len(run.rows)
    own: list[tuple[str, str, list[tuple[str, ...]]]] = [
        (name, str(run.folder), [(one,) for one in texts_of(rows, run.text)])
        for name, rows in (("labelled", run.labelled), ("validation", run.validation))
        if rows is not None and (name == "labelled" or validation is None)
    ]
    chosen = run.validation
    if validation is not None:
        given_rows = read_examples(validation, split="validation", **columns)
        refuse_same("validation", validation, given_rows.texts, *own[0])
        own.append(("validation", validation, given_rows.texts))
        chosen = columns_of_run(run, given_rows)
        run = run.without(given_rows.sentences)
    if data is not None:
        examples = read_examples(data, split="test", **columns)
        names = [name[2:] if run.kind == "tags" else name for name in run.labels]
        refuse_other_labels(run.kind, names, str(run.folder), str(data), examples)
        for one in own:
            refuse_same("test", data, examples.texts, *one)
        known = plain_texts(run.labelled, run.text)
        notes += _shared_note(shared(examples, known), len(examples), "labelled rows")
        run = run.without(examples.sentences)
    given: dict[str, Any] = {"labels": run.labels, "validation": chosen}
    labelled, times = None, 0
    if with_labelled:
        labelled = run.truth if how.loss == "hard" else run.labelled
        times = labelled_times(how.labelled_share, len(run.rows), len(labelled))
    student = how.train(
        run.rows, out, labelled=labelled, labelled_share=how.labelled_share, text=run.text,
        label=run.label, **given,
    )  # fmt: skip
    systems = [System(BOTH if with_labelled else STUDENT, student, how.base)]
    longer = None
    if how.baseline and run.teacher_base != how.base:
        longer = _alone(how.settings, len(run.rows) + times * len(run.labelled), len(run.labelled))
        alone = how.train(
            run.truth, out / BASELINE, text=run.text, label=run.label, **given, **longer
        )
        systems.append(System(ALONE, alone, how.base))
    truth = rows_of(read_examples(run.truth, text=run.text, label=run.label), run.labels)
    teacher = load_classifier(run.teacher, device=how.device)
    systems.append(System(TEACHER, teacher, str(run.settings["teacher"])))
    tested = None
    if data is not None:
        tested = {"on": "test", "data": str(data), "generated": _generated(data, "test")}
        tested |= how.compare(systems, truth, data, **columns)
    elif chosen is not None:
        tested = {"on": "validation", "data": f"{run.folder}"}
        tested |= how.compare(systems, truth, chosen, text=run.text, label=run.label, split="train")
        notes.append(_FLATTERS)
    about = {
        "source": str(run.folder), "start": run.start, "base": how.base, "loss": how.loss,
        "with_labelled": with_labelled,
        "baseline": longer,
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
    """Return how the labelled rows alone are trained: about as many steps, at most 50 passes.

    As few rows would hardly move the base in as few passes, the gain would flatter.
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
    """Return how many rows of a set a model wrote."""
    rows, _ = open_rows(data, split)
    return int(written_by_model(rows.with_format("arrow")[:]).sum())


def _written(rows: Rows) -> int:
    return 0 if rows.written is None else int(rows.written.sum())


def _examples_of(rows: Rows) -> list[dict[str, Any]]:
    """Return rows as `read_examples` takes them."""
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
    """Say what at hand is better than the model, and what to do about it."""
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
) -> Trained:
    """Write what was found beside what training left in results.json, and the page."""
    file = out / RESULTS
    kept = training_results(out)
    words = generated_words(kept.get("validation"))
    if words:
        notes = [*notes, f"Validation{words} does not measure real data: {_REAL}"]
    results: dict[str, Any] = {
        **{name: kept[name] for name in ("measure", "best", "seeds", "validation") if name in kept},
        **about, "tested": tested, "notes": notes,
    }  # fmt: skip
    results["warnings"] = _warnings(results)
    text = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
    # Half a character, of an edited run, becomes what JSON writes for it.
    data = text.encode(errors="backslashreplace")
    atomic_write(file, lambda file: file.write(data))
    write_classifier_report(out)
    return Trained(out, results)

"""Measures classifiers and taggers by name, alone or against another, kept in a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from tilth.data.examples import Examples, Source
from tilth.evaluate import classify, tag
from tilth.evaluate.expected_labels import check_kind, names_in, read_gold
from tilth.metrics.entity_spans import spans
from tilth.metrics.significance import RESAMPLES, check_resamples
from tilth.models.classifier import Classifier, fingerprint_classifier, load_classifier
from tilth.runs import Progress, Run, refuse_inside
from tilth.selftrain.pseudo_label import as_lists

SHOWN = 12  # rows of each list to read


@dataclass(frozen=True, slots=True)
class System:
    """What is measured.

    Attributes:
        name: what people read.
        model: the classifier or tagger, or what answers as one does.
        base: what it was made from; empty: not to be said.
    """

    name: str
    model: Any
    base: str = ""


def compare_systems(
    systems: Sequence[System],
    data: Source,
    *,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    split: str = "test",
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    precision: str = "auto",
    quiet: bool = False,
) -> dict[str, Any]:
    """Measure systems on the same labelled rows.

    Args:
        systems: all classifiers or all taggers; the first must know every label of the rows.
        data: see `tilth.data.examples.read_examples`.
        text: see there.
        label: see there.
        split: of a set that has several.
        bootstrap: resamples of intervals and tests; 0: neither.
        seed: of the resamples.
        precision: see `tilth.models.predict.probabilities`.
        quiet: no progress bar.

    Returns:
        n (rows); systems: name and scores of each, as of `classify_scores` or `tag_scores`;
        differences: name of each other system -> how far the first is above it; wrong: rows of
        which the first is surest and wrong; changed: rows that the first gets right and the
        second wrong (`mended`), and the other way round (`spoilt`). All JSON values.

    Raises:
        InputError: the data is wrong or holds a label that the first system does not know.
        TilthError: a model gives no numbers.
    """
    first = systems[0].model
    examples, gold = read_gold(first, data, text=text, label=label, split=split)
    compare = _compare_tags if first.kind == "tags" else _compare_classes
    with Progress(len(examples) * len(systems), quiet=quiet, what="rows") as progress:
        return {
            "n": len(examples),
            **compare(
                systems, examples, gold, {"precision": precision, "progress": progress},
                {"bootstrap": bootstrap, "seed": seed},
            ),
        }  # fmt: skip


def _compare_classes(
    systems: Sequence[System],
    examples: Examples,
    gold: Any,
    forward: dict[str, Any],
    resampling: dict[str, Any],
) -> dict[str, Any]:
    names = [names_in(system.model, examples) for system in systems]
    # The first system's labels come first, so that places in them are places in all.
    labels = list(dict.fromkeys(name for some in names for name in some))
    kind = classify.kind_of(systems[0].model)
    gold = classify.aligned(gold, names[0], labels) if kind == "multi" else gold
    said = [
        classify.aligned(system.model.probabilities(examples.texts, **forward), some, labels)
        for system, some in zip(systems, names, strict=True)
    ]
    how: dict[str, Any] = {"kind": kind, **resampling}
    scores = [classify.classify_scores(gold, one, labels, **how) for one in said]
    differences = [
        classify.compare_classify_scores(gold, said[0], other, labels, **how) for other in said[1:]
    ]
    answers = [classify.answered(one, kind) for one in said]

    def words(answer: Any) -> str:
        named = classify.named(answer, labels)
        return named if isinstance(named, str) else ", ".join(named) or "none"

    def right(system: int, row: int) -> bool:
        return bool(np.all(answers[system][row] == gold[row]))

    worst = classify.most_wrong(examples.texts, gold, said[0], labels, kind=kind, count=SHOWN)
    return {
        "systems": _scored(systems, scores),
        "differences": _by_name(systems[1:], differences),
        "wrong": [
            {
                "text": "\n".join(row["texts"]),
                "right": _joined(row["gold"]),
                "answered": _joined(row["predicted"]),
                "probability": row["probability"],
            }
            for row in worst
        ],
        "changed": _changed(
            len(systems) > 1, len(examples), right, lambda row: "\n".join(examples.texts[row]),
            lambda row: words(gold[row]), lambda system, row: words(answers[system][row]),
        ),
    }  # fmt: skip


def _compare_tags(
    systems: Sequence[System],
    examples: Examples,
    gold: Any,
    forward: dict[str, Any],
    resampling: dict[str, Any],
) -> dict[str, Any]:
    tokens = examples.tokens or []
    said = [
        tag.best_tags(system.model.tag_probabilities(tokens, **forward), system.model.labels)
        for system in systems
    ]
    scores = [tag.tag_scores(gold, tags, sure=sure, **resampling) for tags, sure in said]
    differences = [
        tag.compare_tag_scores(gold, said[0][0], tags, **resampling) for tags, _ in said[1:]
    ]

    def words(row: int, tags: Sequence[str]) -> str:
        found = (f"{kind}: {' '.join(tokens[row][start:end])}" for kind, start, end in spans(tags))
        return "\n".join(found) or "none"

    def right(system: int, row: int) -> bool:
        return spans(said[system][0][row]) == spans(gold[row])

    worst = tag.most_wrong(tokens, gold, *said[0], count=SHOWN)
    return {
        "systems": _scored(systems, scores),
        "differences": _by_name(systems[1:], differences),
        "wrong": [
            {
                "text": row["text"],
                "right": "\n".join(row["missed"]) or "none",
                "answered": "\n".join(row["invented"]) or "none",
                "probability": row["probability"],
            }
            for row in worst
        ],
        "changed": _changed(
            len(systems) > 1, len(examples), right, lambda row: " ".join(tokens[row]),
            lambda row: words(row, gold[row]), lambda one, row: words(row, said[one][0][row]),
        ),
    }  # fmt: skip


def _scored(systems: Sequence[System], scores: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": system.name, "base": system.base, "scores": found}
        for system, found in zip(systems, scores, strict=True)
    ]


def _by_name(
    systems: Sequence[System], differences: Sequence[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    return {system.name: found for system, found in zip(systems, differences, strict=True)}


def _joined(answer: str | list[str]) -> str:
    return answer if isinstance(answer, str) else ", ".join(answer) or "none"


def _changed(
    several: bool,
    rows: int,
    right: Callable[[int, int], bool],
    text: Callable[[int], str],
    gold: Callable[[int], str],
    said: Callable[[int, int], str],
) -> dict[str, list[dict[str, str]]]:
    """Return the first rows that the second system gets wrong and the first right, and back."""
    found: dict[str, list[dict[str, str]]] = {"mended": [], "spoilt": []}
    for row in range(rows if several else 0):
        now, before = right(0, row), right(1, row)
        if now == before:
            continue
        some = found["mended" if now else "spoilt"]
        if len(some) < SHOWN:
            some.append(
                {"text": text(row), "right": gold(row), "before": said(1, row), "now": said(0, row)}
            )
    return found


Measured = Literal["classify", "tag"]

# What figures are called where people read them, in that order.
NAMES = {
    "f1": "F1", "precision": "precision", "recall": "recall", "accuracy": "accuracy",
    "macro_f1": "macro F1", "micro_f1": "micro F1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tested:
    """What `tilth evaluate classify` or `tag` found.

    Attributes:
        scores: as of `classify_scores` or `tag_scores`; with another model `against` holds its
            name, its scores, and how far the first is above it (difference).
        wrong: the rows of which the model is surest and wrong.
    """

    scores: dict[str, Any]
    wrong: list[dict[str, Any]]

    @property
    def figures(self) -> list[str]:
        """Which of the scores are figures with an interval."""
        return [name for name in NAMES if name in self.scores]


def run_test(
    measured: Measured,
    name: str,
    data: str,
    *,
    against: str | None = None,
    out: Path | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    split: str = "test",
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    wrong: int = 0,
    device: str = "auto",
    precision: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> Tested:
    """Measure a model by name; with `out`, keep answers and scores in a run folder.

    The folder has a part for each model, with its answer to every row; the same call reads them.

    Args:
        measured: `classify` or `tag`.
        name: of the model, as `load_classifier` takes it.
        data: a file, a folder or a hub data set, labelled.
        against: name of a second model, measured on the same rows.
        out: the run folder; None: nothing is kept.
        text: see `tilth.data.examples.read_examples`.
        label: see there.
        split: of a set that has several.
        bootstrap: resamples of intervals and tests; 0: neither.
        seed: of the resamples.
        wrong: how many of the most confidently wrong rows to return.
        device: see `load_classifier`.
        precision: see `tilth.models.predict.probabilities`.
        overwrite: start the run folder anew.
        quiet: no progress bar.

    Raises:
        InputError: an argument, a model or the data is wrong.
        TilthError: a model gives no numbers, or the folder cannot be written.
    """
    check_resamples(bootstrap, seed)
    names = [name] if against is None else [name, against]
    if out is not None:
        refuse_inside(out, data, named=names)
    models = [load_classifier(one, device=device) for one in names]
    gold = []
    for model in models:
        check_kind(model, measured)
        examples, right = read_gold(model, data, text=text, label=label, split=split)
        gold.append(right)
    run = None
    if out is not None:
        run = Run.open(
            out,
            command=f"evaluate {measured}",
            settings={
                "model": name, "against": against, "data": data, "text": text, "label": label,
                "split": split, "bootstrap": bootstrap, "seed": seed, "precision": precision,
            },
            fingerprints={
                "data": _content(examples),
                **{f"model {one}": fingerprint_classifier(m) for one, m in enumerate(models, 1)},
            },
            parts=len(models),
            outputs=("results.json",),
            overwrite=overwrite,
        )  # fmt: skip
    holding: AbstractContextManager[Any] = nullcontext() if run is None else run
    total = len(examples) * len(models)
    with holding, Progress(total, quiet=quiet, what="rows") as progress:
        answers = [
            _answers(model, examples, run, part, precision=precision, progress=progress)
            for part, model in enumerate(models)
        ]
        score = _score_classes if measured == "classify" else _score_tags
        tested = score(models, examples, gold, answers, bootstrap=bootstrap, seed=seed, wrong=wrong)
        if run is not None:
            run.write_file("results.json", json.dumps(tested.scores, indent=2) + "\n")
    return tested


def _content(examples: Examples) -> str:
    """Return a hash of the rows and their labels, in order."""
    assert examples.labels is not None  # read_gold has refused such a set
    inputs = examples.texts if examples.tokens is None else examples.tokens
    return blake2b(repr((inputs, examples.labels.values)).encode(), digest_size=8).hexdigest()


def _answers(
    model: Classifier,
    examples: Examples,
    run: Run | None,
    part: int,
    *,
    precision: str,
    progress: Progress,
) -> Any:
    """Return a model's probabilities for every row, from the run's part if it is there."""
    if run is not None and part not in run.missing():
        progress.skip(len(examples))
        kept = run.read_part(part)["probabilities"].to_pylist()
        rows = [np.array(row, np.float32) for row in kept]
        return rows if model.kind == "tags" else np.stack(rows)
    found = model.answers(examples, precision=precision, progress=progress)
    if run is not None:
        run.write_part(part, _table(model, examples, found))
    return found


def _table(model: Classifier, examples: Examples, found: Any) -> pa.Table:
    """Return each row with what is right, what was answered and how sure the model is."""
    assert examples.labels is not None
    inputs: Any
    if model.kind == "tags":
        inputs = examples.tokens
        said: list[Any] = [[model.labels[n] for n in row.argmax(1).tolist()] for row in found]
        gold = examples.labels.values
    else:
        inputs = [list(texts) for texts in examples.texts]
        kind, names = classify.kind_of(model), names_in(model, examples)
        said = [classify.named(row, names) for row in classify.answered(found, kind)]
        gold = [
            [str(value) for value in row] if kind == "multi" else str(row)
            for row in examples.labels.values
        ]
    return pa.table(
        {"texts" if model.kind != "tags" else "tokens": inputs, "gold": gold, "predicted": said,
         "probabilities": as_lists(found)}
    )  # fmt: skip


def _score_classes(
    models: Sequence[Classifier],
    examples: Examples,
    gold: Sequence[Any],
    answers: Sequence[Any],
    *,
    bootstrap: int,
    seed: int,
    wrong: int,
) -> Tested:
    kind = classify.kind_of(models[0])
    how: dict[str, Any] = {"kind": kind, "bootstrap": bootstrap, "seed": seed}
    names = [names_in(model, examples) for model in models]
    scores, *others = (
        classify.classify_scores(right, answer, labels, **how)
        for right, answer, labels in zip(gold, answers, names, strict=True)
    )
    if others:
        # The first model's labels come first, so its places are those of all labels.
        labels = list(dict.fromkeys(label for some in names for label in some))
        first, second = (
            classify.aligned(answer, some, labels)
            for answer, some in zip(answers, names, strict=True)
        )
        right = classify.aligned(gold[0], names[0], labels) if kind == "multi" else gold[0]
        difference = classify.compare_classify_scores(right, first, second, labels, **how)
        scores["against"] = _against(models[1], others[0], difference)
    worst = classify.most_wrong(
        examples.texts, gold[0], answers[0], names[0], kind=kind, count=wrong
    )
    return Tested(scores, worst)


def _score_tags(
    models: Sequence[Classifier],
    examples: Examples,
    gold: Sequence[Any],
    answers: Sequence[Any],
    *,
    bootstrap: int,
    seed: int,
    wrong: int,
) -> Tested:
    how: dict[str, Any] = {"bootstrap": bootstrap, "seed": seed}
    said = [
        tag.best_tags(answer, model.labels) for model, answer in zip(models, answers, strict=True)
    ]
    scores, *others = (tag.tag_scores(gold[0], tags, sure=sure, **how) for tags, sure in said)
    if others:
        difference = tag.compare_tag_scores(gold[0], said[0][0], said[1][0], **how)
        scores["against"] = _against(models[1], others[0], difference)
    worst = tag.most_wrong(examples.tokens or [], gold[0], *said[0], count=wrong)
    return Tested(scores, worst)


def _against(
    model: Classifier, scores: dict[str, Any], difference: dict[str, Any]
) -> dict[str, Any]:
    return {"name": model.name, "scores": scores, "difference": difference}

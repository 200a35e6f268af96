"""Measures several classifiers or taggers on the same rows: the first, and how far it is ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilth.data.examples import Examples, Source
from tilth.evaluate import classify, tag
from tilth.evaluate.gold import names_in, read_gold
from tilth.evaluate.resampling import RESAMPLES
from tilth.evaluate.spans import spans
from tilth.runs import Progress

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
        precision: see `tilth.models.labelling.probabilities`.
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

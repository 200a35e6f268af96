"""Evaluate classifiers and taggers by name, alone or against another; compare several systems."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from tilth.classifiers.load import validation_split
from tilth.data.examples import (
    Examples,
    Source,
    may_be_divided,
    open_rows,
    prefer_curated,
    read_examples,
)
from tilth.data.hashing import hash_of
from tilth.data.sources import chosen_split, refuse_split
from tilth.errors import TilthError
from tilth.evaluate import classify, tag
from tilth.evaluate.expected_labels import check_kind, gold_of, names_in, read_gold
from tilth.generation.label_fit import ENCODER
from tilth.generation.task import is_task
from tilth.metrics.scores import spans
from tilth.metrics.significance import check_resamples
from tilth.models.classifier import Classifier, fingerprint_classifier, load_classifier
from tilth.models.names import trained_columns
from tilth.runs import RESULTS, Progress, Run, read_run_json, refuse_inside
from tilth.selftrain.pseudo_label import as_lists
from tilth.workflows.predictors import Described, warn_of_precision
from tilth.workflows.settings import EvaluateSettings

log = logging.getLogger(__name__)

SHOWN = 12  # rows of each list in a report
Measured: TypeAlias = Literal["classify", "tag"]


@dataclass(frozen=True, slots=True)
class System:
    """A model to compare.

    Attributes:
        model: a classifier or tagger, or an object with its `kind`, `labels` and `answers`.
        base: model that it was trained from; empty: not shown.
    """

    name: str
    model: Any
    base: str = ""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Results of `tilth evaluate classify` or `tag`.

    Attributes:
        scores: of `classify_scores` or `tag_scores`; with a second model, `against` holds its
            name, its scores, and the first model's lead over it (difference).
        wrong: the most confidently wrong rows: text, right, answered, probability.
    """

    scores: dict[str, Any]
    wrong: list[dict[str, Any]]


def evaluate_to_run(
    measured: Measured,
    name: str,
    data: str,
    settings: EvaluateSettings,
    *,
    out: Path | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> Evaluated:
    """Evaluate a model by name; with `out`, keep answers and scores in a run folder.

    The folder has a part per model with its answers to all rows; the same call reads them.

    Args:
        measured: `classify` or `tag`.
        data: a labelled file, folder or hub data set.
        out: the run folder; None: nothing is kept.
    """
    check_resamples(settings.bootstrap, settings.seed)
    names = [name] if settings.against is None else [name, settings.against]
    if out is not None:
        refuse_inside(out, data, named=names)
    if not may_be_divided(data):
        refuse_split(data, settings.split, "test")
    columns: dict[str, Any] = {"text": settings.text, "label": settings.label}
    if None in columns.values() and trained_columns(name):
        rows, _ = open_rows(prefer_curated(data), settings.split)
        told = trained_columns(name, rows.column_names)
        columns = {key: asked or told.get(key) for key, asked in columns.items()}
    examples = read_examples(data, split=settings.split, **columns)
    models = [_load(one, device, settings.precision) for one in names]
    golds = []
    for model in models:
        check_kind(model, measured)
        golds.append(gold_of(model, examples, data, settings.split))
        warn_of_training_rows(model.name, data, examples.texts, examples.columns)
    run = None
    if out is not None:
        recorded = {"model": name, "data": data, **asdict(settings)}
        del recorded["wrong"]
        run = Run.open(
            out,
            command=f"evaluate {measured}",
            settings=recorded,
            fingerprints={
                "data": hash_of(
                    examples.tokens or examples.texts, examples.labels and examples.labels.values
                ),
                **{f"model {one}": _fingerprint(m) for one, m in enumerate(models, 1)},
            },
            parts=len(models),
            outputs=(RESULTS,),
            overwrite=overwrite,
        )
    holding: AbstractContextManager[Any] = nullcontext() if run is None else run
    total = len(examples) * len(models)
    with holding, Progress(total, quiet=quiet, what="rows") as progress:
        answers = [
            _answers(model, examples, run, part, settings.precision, progress)
            for part, model in enumerate(models)
        ]
        scoring = _scoring_of(models)(models, examples, golds, answers, settings)
        scores = scoring.own_scores(0)
        if settings.against is not None:
            scores["against"] = {
                "name": models[1].name,
                "scores": scoring.own_scores(1),
                "difference": scoring.difference(1),
            }
        if run is not None:
            run.write_results(scores)
    return Evaluated(scores, scoring.wrong(settings.wrong))


def _load(name: str, device: str, precision: str) -> Any:
    """Load a classifier or a tagger, or the descriptions of a task's labels."""
    if is_task(name):
        warn_of_precision(name, precision)
        return Described.load(name, ENCODER, device)
    return load_classifier(name, device=device)


def _fingerprint(model: Classifier | Described) -> str:
    return model.fingerprint if isinstance(model, Described) else fingerprint_classifier(model)


def warn_of_training_rows(
    name: str, data: str, texts: Sequence[tuple[str, ...]], text: str | Sequence[str] | None
) -> None:
    """Warn if rows stand in a set that the run of a training has learned or chosen from.

    Args:
        data: names the rows, in the message.
        text: the columns of their texts, which the sets of the run may have, too.
    """
    folder = Path(name).expanduser()
    if not (folder / "run.json").is_file():
        return
    run = read_run_json(folder)
    if run["command"] == "export":
        warn_of_training_rows(run["settings"]["model"], data, texts, text)
        return
    sources = run["resolved"].get("sources")
    if not isinstance(sources, dict):  # `grow` keeps the rows themselves
        sources = {"training": str(folder)} if (folder / "dataset").is_dir() else {}
    sets: dict[str, tuple[Source, str]] = {kind: (one, str(one)) for kind, one in sources.items()}
    if "train" in sources and "validation" not in sources:
        with suppress(TilthError):
            if (held := validation_split(sources["train"])) is not None:
                sets["validation"] = held, str(sources["train"])
    told = trained_columns(name).get("text")
    for kind, (rows, source) in sets.items():
        split, known = "validation" if kind == "validation" else "train", set[tuple[str, ...]]()
        for columns in (told, text, None):
            with suppress(TilthError):  # it is gone, or has other columns
                given = chosen_split(prefer_curated(rows), split)
                known |= {*read_examples(rows, text=columns, need_label=False, split=given).texts}
                break
        if not known and os.path.exists(source):
            log.warning(
                "%s: could not be compared with the %s set of %s (%s): it cannot be read as then",
                data, kind, name, source,
            )  # fmt: skip
        if shared := sum(map(known.__contains__, texts)):
            is_split = kind == "train" and "validation" not in sets
            log.warning(
                "%s: %s of %s rows are in the %s of %s (%s): scores on them %s too high",
                data, f"{shared:,}", f"{len(texts):,}",
                "train set, held-out rows included," if is_split else f"{kind} set", name, source,
                "may be" if is_split else "are",
            )  # fmt: skip


def compare_systems(
    systems: Sequence[System], data: Source, settings: EvaluateSettings, *, quiet: bool = False
) -> dict[str, Any]:
    """Evaluate systems on the same labelled rows; the first must know every label of the rows.

    Returns:
        n (rows); systems: name, base and scores of each, by `classify_scores` or `tag_scores`;
        differences: name of each other system -> lead of the first over it; wrong: the most
        confidently wrong rows of the first; changed: rows that the first gets right and the second
        wrong (`mended`), and the reverse (`spoilt`). All JSON values.
    """
    models = [system.model for system in systems]
    examples, gold = read_gold(
        models[0], data, text=settings.text, label=settings.label, split=settings.split
    )
    with Progress(len(examples) * len(systems), quiet=quiet, what="rows") as progress:
        answers = [
            model.answers(examples, precision=settings.precision, progress=progress)
            for model in models
        ]
    scoring = _scoring_of(models)(models, examples, [gold], answers, settings)
    return {
        "n": len(examples),
        "systems": [
            {"name": system.name, "base": system.base, "scores": scoring.scores(place)}
            for place, system in enumerate(systems)
        ],
        "differences": {
            system.name: scoring.difference(place) for place, system in enumerate(systems) if place
        },
        "wrong": scoring.wrong(SHOWN),
        "changed": _changed(scoring, len(examples) if len(systems) > 1 else 0),
    }


def _answers(
    model: Classifier,
    examples: Examples,
    run: Run | None,
    part: int,
    precision: str,
    progress: Progress,
) -> Any:
    """Return a model's probabilities for every row, from the run's part if it exists."""
    if run is not None and part not in run.missing():
        progress.skip(len(examples))
        kept = run.read_part(part)["probabilities"].to_pylist()
        rows = [np.array(row, np.float32) for row in kept]
        return rows if model.kind == "tags" else np.stack(rows)
    found = model.answers(examples, precision=precision, progress=progress)
    if run is not None:
        run.write_part(part, _answer_table(model, examples, found))
    return found


def _answer_table(model: Classifier, examples: Examples, found: Any) -> pa.Table:
    """Return each row with its label, the model's answer and its probabilities."""
    assert examples.labels is not None
    values = examples.labels.values
    if model.kind == "tags":
        said = [[model.labels[place] for place in row.argmax(1).tolist()] for row in found]
        columns = {"tokens": examples.tokens, "gold": values, "predicted": said}
    else:
        kind, names = classify.kind_of(model), names_in(model, examples)
        columns = {
            "texts": [list(texts) for texts in examples.texts],
            "gold": [[str(one) for one in row] if kind == "multi" else str(row) for row in values],
            "predicted": [classify.named(row, names) for row in classify.answered(found, kind)],
        }
    return pa.table({**columns, "probabilities": as_lists(found)})


def _scoring_of(models: Sequence[Any]) -> type[_ClassScoring | _TagScoring]:
    return _TagScoring if models[0].kind == "tags" else _ClassScoring


@dataclass
class _Answers:
    """Answers of models to the same rows.

    Attributes:
        golds: gold labels in the order of each model's labels; the first model's at least.
        answers: per model, probabilities (rows, labels), or for tokens (tokens, tags) per row.
    """

    models: Sequence[Any]
    examples: Examples
    golds: Sequence[Any]
    answers: Sequence[Any]
    settings: EvaluateSettings

    @property
    def how(self) -> dict[str, Any]:
        return {"bootstrap": self.settings.bootstrap, "seed": self.settings.seed}


def wrong_rows(*measured: Any, **how: Any) -> list[dict[str, Any]]:
    """Return what `classify.most_wrong_rows` finds as text, right, answered and probability."""
    return [
        {
            "text": "\n".join(row["texts"]),
            "right": _joined(row["gold"]),
            "answered": _joined(row["predicted"]),
            "probability": row["probability"],
        }
        for row in classify.most_wrong_rows(*measured, **how)
    ]


@dataclass
class _ClassScoring(_Answers):
    """Scores of classifiers over the first model's labels, then other models' labels."""

    def __post_init__(self) -> None:
        self.texts, self.kind = self.examples.texts, classify.kind_of(self.models[0])
        self.own_labels = [names_in(model, self.examples) for model in self.models]
        self.labels = list(dict.fromkeys(name for some in self.own_labels for name in some))
        self.gold = self.golds[0]
        if self.kind == "multi":
            self.gold = classify.aligned(self.gold, self.own_labels[0], self.labels)
        self.aligned = [
            classify.aligned(answer, some, self.labels)
            for answer, some in zip(self.answers, self.own_labels, strict=True)
        ]
        self.answered = [classify.answered(answer, self.kind) for answer in self.aligned]

    @property
    def how(self) -> dict[str, Any]:
        return {"kind": self.kind, **super().how}

    def scores(self, place: int) -> dict[str, Any]:
        return classify.classify_scores(self.gold, self.aligned[place], self.labels, **self.how)

    def own_scores(self, place: int) -> dict[str, Any]:
        """Return a model's scores with its own labels alone."""
        gold, answers = self.golds[place], self.answers[place]
        return classify.classify_scores(gold, answers, self.own_labels[place], **self.how)

    def difference(self, place: int) -> dict[str, Any]:
        first, other = self.aligned[0], self.aligned[place]
        return classify.compare_classify_scores(self.gold, first, other, self.labels, **self.how)

    def wrong(self, count: int) -> list[dict[str, Any]]:
        """Return the most confidently wrong rows: text, right, answered, probability."""
        return wrong_rows(
            self.texts, self.gold, self.aligned[0], self.labels, kind=self.kind, count=count
        )

    def is_right(self, place: int, row: int) -> bool:
        return bool(np.all(self.answered[place][row] == self.gold[row]))

    def words(self, row: int, place: int | None = None) -> str:
        """Return the gold label of a row, or a model's answer, as text."""
        answer = self.gold[row] if place is None else self.answered[place][row]
        return _joined(classify.named(answer, self.labels))

    def text(self, row: int) -> str:
        return "\n".join(self.texts[row])


@dataclass
class _TagScoring(_Answers):
    """Scores of taggers, with the methods of `_ClassScoring`; tags compare by name."""

    def __post_init__(self) -> None:
        self.tokens, self.gold = self.examples.tokens or [], self.golds[0]
        self.said = [
            tag.best_tags(answer, model.labels)
            for model, answer in zip(self.models, self.answers, strict=True)
        ]

    def scores(self, place: int) -> dict[str, Any]:
        tags, sure = self.said[place]
        return tag.tag_scores(self.gold, tags, sure=sure, **self.how)

    own_scores = scores

    def difference(self, place: int) -> dict[str, Any]:
        return tag.compare_tag_scores(self.gold, self.said[0][0], self.said[place][0], **self.how)

    def wrong(self, count: int) -> list[dict[str, Any]]:
        found = tag.most_wrong_sentences(self.tokens, self.gold, *self.said[0], count=count)
        return [
            {
                "text": row["text"],
                "right": "\n".join(row["missed"]) or "none",
                "answered": "\n".join(row["invented"]) or "none",
                "probability": row["probability"],
            }
            for row in found
        ]

    def is_right(self, place: int, row: int) -> bool:
        return spans(self.said[place][0][row]) == spans(self.gold[row])

    def words(self, row: int, place: int | None = None) -> str:
        """Return the gold or predicted entities of a row, one a line."""
        tags, tokens = self.gold[row] if place is None else self.said[place][0][row], self.tokens
        found = (f"{kind}: {' '.join(tokens[row][a:b])}" for kind, a, b in spans(tags))
        return "\n".join(found) or "none"

    def text(self, row: int) -> str:
        return " ".join(self.tokens[row])


def _joined(answer: str | list[str]) -> str:
    return answer if isinstance(answer, str) else ", ".join(answer) or "none"


def _changed(scoring: _ClassScoring | _TagScoring, rows: int) -> dict[str, list[dict[str, str]]]:
    """Return the first rows that only the first system gets right, and only the second."""
    found: dict[str, list[dict[str, str]]] = {"mended": [], "spoilt": []}
    for row in range(rows):
        now, before = scoring.is_right(0, row), scoring.is_right(1, row)
        some = found["mended" if now else "spoilt"]
        if now != before and len(some) < SHOWN:
            some.append({
                "text": scoring.text(row), "right": scoring.words(row),
                "before": scoring.words(row, 1), "now": scoring.words(row, 0),
            })  # fmt: skip
    return found

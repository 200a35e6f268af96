"""Settings and inputs of `tilth grow`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from tilth.errors import InputError
from tilth.generation.settings import CANDIDATES, GenerateSettings
from tilth.generation.task import load_classes, load_task, refuse_untrained
from tilth.limits import (
    PRECISION,
    SEED,
    TEXTS,
    Choice,
    LabelColumn,
    Number,
    check_fields,
    whole,
)
from tilth.models.names import CLASSIFIER, ENCODER, check_name, known_instructions
from tilth.runs import refuse_inside

if TYPE_CHECKING:
    from tilth.data.examples import Source

    _Rows: TypeAlias = Source | None
    _Labels: TypeAlias = str | Mapping[str, Any] | None
else:
    _Rows = _Labels = str | None  # of the command line

_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 30 * 24 * 3600.0
FOLDS, REPEATS = whole(2, 20), whole(1, 20)
MARGIN = Number(0, 100)
PAIR_TASK = "sts-x2"  # of generated pairs
CLASSIFICATION, SIMILARITY = "classification", "similarity"
GROWN = Choice((CLASSIFICATION, SIMILARITY))


@dataclass(frozen=True, slots=True)
class GrowSources:
    """What a search reads."""

    train: Annotated[
        _Rows,
        "Labelled texts (similarity: graded pairs): a file, a folder or a hub data set.",
    ] = None
    raw: Annotated[
        tuple[str, ...],
        "Raw text: a bank (tilth bank build), or a file or folder; may be repeated.",
    ] = ()
    labels: Annotated[_Labels, "A task file (yaml or json) that describes the labels."] = None
    validation: Annotated[
        _Rows, "Labelled rows that choose; default: cross-validation of --train."
    ] = None
    test: Annotated[_Rows, "Labelled rows that measure what is kept, once, at the end."] = None
    text: Annotated[
        str | Sequence[str] | None,
        "Column of texts, or (similarity) the two of pairs with a comma; default: usual names.",
    ] = None
    label: LabelColumn = None

    def named(self) -> dict[str, Any]:
        """Return each field, a line for rows and labels in memory."""
        from tilth.data.sources import source_name  # not above: yaml

        given = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("train", "validation", "test"):
            if given[name] is not None:
                given[name] = source_name(given[name])
        if isinstance(self.labels, Mapping):
            given["labels"] = "the labels given"
        if isinstance(self.text, list | tuple) and len(self.text) == 1:
            given["text"] = self.text[0]  # the same by either way of calling
        return given


@dataclass(frozen=True, slots=True)
class Growth:
    """How ways to train are searched."""

    task: Annotated[
        str,
        GROWN,
        "What is grown: classification, a classifier of single texts with one class each; "
        "similarity, a sentence encoder, by graded pairs.",
    ] = CLASSIFICATION
    budget: Annotated[str, "Time of the search, such as 10m, 60m or 2h."] = "60m"
    base: Annotated[
        str | None,
        "--base -b",
        "Model to train: a sentence encoder (classification: or another one), by a folder or a "
        "hub id; default: starter-encoder.",
    ] = None
    model: Annotated[
        str | None,
        "--model -m",
        "Language model that writes texts of the described labels (similarity: pairs about raw "
        "text): starter, a folder, a hub id or an endpoint; default: nothing is written.",
    ] = None
    precision: Annotated[
        str, PRECISION, "Of the language model: auto, float32, bfloat16 or float16."
    ] = "auto"
    count: Annotated[
        int, TEXTS, "Texts of each described label that the language model writes."
    ] = 100
    candidates: Annotated[
        int, CANDIDATES, "Texts drawn for each that is written; the one that fits best is kept."
    ] = 1
    system: Annotated[str, "System prompt of a chat model that writes."] = ""
    any_task: Annotated[bool, "Let the starter write for a task that it was not trained on."] = (
        False
    )
    paraphrase: Annotated[
        bool, "--no-paraphrase", "Try paraphrases of the labelled rows (similarity: of raw text)."
    ] = True
    margin: Annotated[
        float, MARGIN, "End when no other way is likely to gain more points than this."
    ] = 0.5
    folds: Annotated[int, FOLDS, "Folds of a cross-validation, no more than rows of a label."] = 5
    repeats: Annotated[
        int, REPEATS, "Cross-validations, or trainings of a way with --validation."
    ] = 2
    seed: Annotated[
        int, SEED, "The same inputs, settings and seed give every way the same score."
    ] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.seconds <= _LONGEST:
            raise InputError(f"budget is {self.budget!r}: give a time above 0, at most 720h")

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        found = _TIME.fullmatch(str(self.budget).strip())
        if found is None:
            raise InputError(f"budget is {self.budget!r:.40}: give a time such as 10m, 60m or 2h")
        return float(found[1]) * _UNITS[found[2]]

    def writing(self, **more: Any) -> GenerateSettings:
        """Return the settings of what the language model writes."""
        return GenerateSettings(
            candidates=self.candidates, system=self.system, seed=self.seed, **more
        )


def check_growth(sources: GrowSources, settings: Growth, out: Path) -> None:
    """Refuse inputs that no way can learn from, or that `out` holds, before anything is loaded."""
    named = sources.named()
    files = (named[name] for name in ("train", "labels", "validation", "test"))
    refuse_inside(out, *files, *sources.raw, named=[settings.base, settings.model])
    is_similarity = settings.task == SIMILARITY
    usual = Growth()
    given = [
        name for name in ("precision", "count", "candidates", "system", "any_task")
        if getattr(settings, name) != getattr(usual, name)
    ]  # fmt: skip
    if is_similarity and "count" in given:
        raise InputError(f"--count belongs to the task {CLASSIFICATION}: leave it out")
    if settings.model is None and given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{names} are of a language model: name it with --model")
    if settings.base is not None:
        check_name(settings.base, ENCODER if is_similarity else CLASSIFIER)
    if is_similarity:
        _check_similarity(sources, settings)
        return
    if sources.train is None and sources.labels is None:
        raise InputError(
            "there are neither labelled rows nor described labels: give --train, or --labels with "
            "--raw or --model"
        )
    if sources.train is None and not sources.raw and settings.model is None:
        raise InputError(
            "labels are described, and there is no text: give --train, --raw, or --model with a "
            "language model that writes some"
        )
    if settings.model is not None and sources.labels is None:
        raise InputError("--model writes texts of described labels: describe them with --labels")
    if settings.model is not None and sources.labels is not None and not settings.any_task:
        refuse_untrained(
            load_classes(sources.labels), settings.model, known_instructions(settings.model)
        )


def _check_similarity(sources: GrowSources, settings: Growth) -> None:
    if sources.train is None and sources.validation is None:
        raise InputError(
            "nothing can tell one encoder from another: give graded pairs (text_a, text_b, label) "
            "with --validation, or with --train"
        )
    if sources.train is None and not sources.raw:
        raise InputError("there is nothing to train on: give --raw, or graded pairs with --train")
    if sources.labels is not None:
        raise InputError(
            f"--labels belongs to the task {CLASSIFICATION}: the task {SIMILARITY} reads graded "
            "pairs (text_a, text_b and label, or columns that --text and --label name)"
        )
    if settings.model is not None:
        if not sources.raw:
            raise InputError("--model writes about raw sentences: give some with --raw")
        if not settings.any_task:
            refuse_untrained(
                load_task(PAIR_TASK), settings.model, known_instructions(settings.model)
            )

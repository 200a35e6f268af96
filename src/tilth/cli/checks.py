"""What every command checks before it begins, and before anything heavy is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
import typer.core
from typer.models import CommandFunctionType

from tilth import limits
from tilth.classifiers.settings import MASKED
from tilth.encoders.settings import DIMENSION, MARGIN, MIN_SCORE, TRIPLET_BATCH
from tilth.errors import InputError, TilthError
from tilth.generation.settings import (
    DECAY,
    MAX_TRIES,
    NEW_TOKENS,
    PER_INPUT,
    TEMPERATURE,
    TOP_K,
    TOP_P,
)
from tilth.limits import Limit
from tilth.paraphrase.settings import MAX_EPOCHS, REWRITER_TOKENS, SCHEDULE
from tilth.recipes.catalog import NAMES

# What the options of every command may be, by name; under a command's name, what only its own may.
LIMITS: dict[str, Limit] = {
    "batch": limits.BATCH, "beams": limits.BEAMS, "bootstrap": limits.BOOTSTRAP,
    "candidates": limits.ROWS, "centroids": limits.CELLS, "clusters": limits.CLUSTERS,
    "count": limits.ROWS, "decay": DECAY, "dimension": DIMENSION, "dropout": limits.PART_SHARE,
    "epochs": limits.EPOCHS, "evaluate_every": limits.STEPS, "floor": limits.SHARE,
    "format": limits.FORMAT, "from_x1": limits.TEXTS, "k": limits.ROWS, "kind": limits.QUERY,
    "label_smoothing": limits.PART_SHARE, "labelled_share": limits.PART_SHARE,
    "learning_rate": limits.LEARNING_RATE, "loss": limits.LOSS, "margin": MARGIN,
    "masked": MASKED, "max_chars": limits.CHARS, "max_epochs": MAX_EPOCHS,
    "max_length": limits.TOKENS, "max_new_tokens": NEW_TOKENS, "max_symbols": limits.SHARE,
    "max_tries": MAX_TRIES, "meaning": limits.MEANING, "metric": limits.METRIC,
    "min_chars": limits.CHARS, "min_label_fit": limits.SIMILARITY, "min_letters": limits.SHARE,
    "min_score": MIN_SCORE, "min_similarity": limits.SIMILARITY, "min_words": limits.WORDS,
    "multiple": limits.MULTIPLE,
    "near_duplicates": limits.NEAR_DUPLICATES, "nprobe": limits.CELLS, "number": limits.BEAMS,
    "oversample": limits.OVERSAMPLE, "part_size": limits.PARTS, "patience": MAX_EPOCHS,
    "pca": limits.DIMENSIONS, "per_centroid": limits.PER_CENTROID, "per_class": limits.ROWS,
    "per_input": PER_INPUT, "per_label": limits.PER_LABEL, "pooling": limits.POOLING,
    "precision": limits.TRAINING_PRECISION, "protocol": limits.PROTOCOL, "query": limits.QUERY,
    "rows": limits.BATCH, "sampled_pairs": limits.MOST_SAMPLED_PAIRS, "save_every": limits.STEPS,
    "scale": limits.SCALE, "schedule": SCHEDULE, "seed": limits.SEED, "seeds": limits.TRAININGS,
    "select": limits.SELECT, "shard_megabytes": limits.SHARD_MEGABYTES, "size": limits.ROWS,
    "smoothing": limits.SHARE, "temperature": TEMPERATURE, "threads": limits.CORES,
    "top_k": TOP_K, "top_p": TOP_P, "tries": limits.TRIES, "warmup": limits.PART_SHARE,
    "weight_decay": limits.WEIGHT_DECAY, "wording": limits.WORDING, "workers": limits.CORES,
    "wrong": limits.SHOWN,
}  # fmt: skip
OWN_LIMITS: dict[str, dict[str, Limit]] = {
    "generate": {"count": limits.TEXTS, "precision": limits.PRECISION},
    "curate": {"validation": limits.PART_SHARE},
    "paraphrase rewrite": {"precision": limits.PRECISION},
    "paraphrase candidates": {"precision": limits.PRECISION},
    "paraphrase corpus": {
        "validation": limits.HELD_OUT_ROWS, "test": limits.HELD_OUT_ROWS,
        "precision": limits.PRECISION,
    },
    "paraphrase train": {"max_length": REWRITER_TOKENS},
    "train triplet": {"batch": TRIPLET_BATCH},
    "evaluate classify": {"precision": limits.PRECISION},
    "evaluate tag": {"precision": limits.PRECISION},
    "predict": {"precision": limits.PRECISION},
    "fewshot": {
        "draws": limits.TRAININGS, "sentences": limits.ROWS, "validation_rows": limits.ROWS,
        "best": limits.TRAININGS, "student_epochs": limits.EPOCHS, "labelled": limits.ROWS,
    },
    "recipe show": {"name": NAMES},
    "recipe run": {"name": NAMES},
}  # fmt: skip


def _data(name: str) -> None:
    from tilth.data.sources import locate

    found = locate(name)
    for file in found if isinstance(found, list) else []:
        if not os.access(file, os.R_OK):
            raise InputError(f"{file}: no permission to read: change it")


def _path(name: str) -> None:
    if name != "hub" and not Path(name).exists() and _is_path(name):
        raise InputError(f"{name}: no such file or folder: check the path")


def _is_path(name: str) -> bool:
    from tilth.data.formats import ending_of

    return name.count("/") != 1 or name[0] in "./~" or ending_of(Path(name)) is not None


def _folder(name: str) -> None:
    if not Path(name).is_dir():
        raise InputError(f"{name}: no such folder: check the path")


def _bank(name: str) -> None:
    from tilth.bank.manifest import read_manifest

    read_manifest(Path(name))


def _run(name: str) -> None:
    from tilth.report.run_reader import command_of

    command_of(Path(name))


def _model(kind: str) -> Callable[[str], None]:
    def check(name: str) -> None:
        from tilth.models import names

        getattr(names, f"check_{kind}")(name)

    return check


_CLASSIFIER, _ENCODER = _model("classifier"), _model("encoder")
_SEQ2SEQ, _SCORER = _model("seq2seq"), _model("scorer")


def _predictor(name: str) -> None:
    from tilth.generation.task import is_task, load_task

    if is_task(name):
        load_task(name)
    else:
        _ENCODER(name)


_TRAINING = {
    "source": _data, "base": _CLASSIFIER, "test": _data, "labelled": _data, "validation": _data,
}  # fmt: skip
_MEASURING = {"model": _CLASSIFIER, "data": _data, "against": _CLASSIFIER}
# What a command reads, by parameter.
READ: dict[str, dict[str, Callable[[str], None]]] = {
    "generate": {"inputs": _data, "model": _model("lm")},
    "curate": {"source": _data},
    "report": {"run": _run, "encoder": _ENCODER},
    "paraphrase rewrite": {"source": _data, "model": _SEQ2SEQ, "scorer": _SCORER},
    "paraphrase candidates": {
        "sentences": _data, "forward": _SEQ2SEQ, "backward": _SEQ2SEQ, "scorer": _SCORER,
    },
    "paraphrase corpus": {"sources": _data, "scorer": _SCORER},
    "paraphrase train": {"corpus": _data, "base": _SEQ2SEQ},
    "bank build": {"sources": _data, "encoder": _ENCODER},
    "bank add": {"bank": _bank, "sources": _data, "encoder": _ENCODER},
    "bank search": {
        "bank": _bank, "queries": _data, "task": _data, "without": _data, "encoder": _ENCODER,
    },
    "bank info": {"bank": _bank},
    "bank check": {"bank": _bank},
    "bank index": {"bank": _bank},
    "augment": {
        "train": _data, "bank": _bank, "test": _data, "validation": _data,
        "teacher": _CLASSIFIER, "encoder": _ENCODER,
    },
    "fewshot": {
        "train": _data, "bank": _bank, "test": _data, "validation": _data, "base": _CLASSIFIER,
    },
    "train encoder": {"pairs": _data, "base": _ENCODER, "sts": _path},
    "train triplet": {"sources": _data, "base": _ENCODER},
    "train classifier": _TRAINING,
    "train tagger": _TRAINING,
    "train adapt": {"texts": _data, "base": _CLASSIFIER},
    "evaluate sts": {"encoder": _ENCODER, "data": _path, "train": _data},
    "evaluate classify": _MEASURING,
    "evaluate tag": _MEASURING,
    "predict": {"model": _predictor, "data": _data, "encoder": _ENCODER},
    "recipe run": {"data": _folder},
}  # fmt: skip
# Their --out is no run folder: they say themselves what it may hold.
_OTHER_OUT = ("curate", "recipe run")
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,3})?")


class Command(typer.core.TyperCommand):
    """A command that checks its arguments before it begins, and says in its help what they are."""

    def invoke(self, ctx: Any) -> Any:
        """Check, then run."""
        name = ctx.command_path.partition(" ")[2]
        _check(name, {parameter.name: parameter for parameter in self.params}, ctx.params)
        return super().invoke(ctx)

    def get_help(self, ctx: Any) -> Any:
        """Return the help, with the numbers that options may be."""
        for parameter in self.params:
            limit = limit_of(ctx.command_path.partition(" ")[2], str(parameter.name))
            written = getattr(parameter, "help", None) or ""
            if isinstance(limit, limits.Number) and f"({limit})" not in written:
                parameter.help = f"{written.rstrip('.')} ({limit}).".strip()  # type: ignore[attr-defined]
        return super().get_help(ctx)


class App(typer.Typer):
    """A group of such commands."""

    def command(  # type: ignore[override]
        self, name: str | None = None
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Add a command."""
        return super().command(name, cls=Command)


def limit_of(command: str, parameter: str) -> Limit | None:
    """Return what an option may be."""
    return OWN_LIMITS.get(command, {}).get(parameter, LIMITS.get(parameter))


def _check(name: str, parameters: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    read = READ.get(name, {})
    for key, value in given.items():
        if value is None or key in read:
            continue
        limit = limit_of(name, key)
        if limit is not None and not isinstance(value, bool):
            limit.check(_written(parameters[key]), value)
    if not _DEVICE.fullmatch(given.get("device", "auto")):
        raise InputError(f"--device {given['device']!r} is unknown: use auto, cpu, cuda or cuda:N")
    inputs = [(check, one) for key, check in read.items() for one in _each(given.get(key))]
    one = ""
    try:
        for check, one in inputs:
            check(one)
    except OSError as error:
        raise InputError(f"{one}: cannot be read ({error.strerror}): check the path") from error
    if given.get("out") is not None:
        sources = [one for check, one in inputs if check in (_data, _path, _folder)]
        named = [one for check, one in inputs if one not in sources]
        _check_out(name, given["out"], sources, named)


def _written(parameter: Any) -> str:
    return str(max(parameter.opts, key=len))


def _each(value: Any) -> Iterator[str]:
    if value is not None:
        yield from map(str, value if isinstance(value, list | tuple) else [value])


def _check_out(name: str, out: Path, sources: list[str], named: list[str]) -> None:
    from tilth.runs import check_place, refuse_inside

    try:
        check_place(out, is_run=name not in _OTHER_OUT)
    except InputError:
        raise
    except TilthError as error:
        raise InputError(str(error)) from error
    refuse_inside(out, *sources, named=named)

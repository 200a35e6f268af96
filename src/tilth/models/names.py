"""Define model roles and their shipped names; check names before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilth.errors import InputError
from tilth.models.source import find_source


@dataclass(frozen=True, slots=True)
class Role:
    """The use that a model is loaded for.

    Attributes:
        what: required content of its files, for messages.
        starters: the shipped names, and their folders in tilth-starter. `starter` is the role's
            default; every other name is the same model in every role.
        trained_by: the command whose run folders are accepted too.
    """

    what: str
    starters: dict[str, str]
    trained_by: str | None = None


_ENCODER = {"starter": "encoder", "starter-encoder": "encoder"}
_CLASSIFIER = {**_ENCODER, "starter-mlm": "mlm", "starter-small": "small"}
LM = Role("a causal language model", {"starter": "lm", "starter-lm": "lm"})
SEQ2SEQ = Role(
    "an encoder-decoder",
    {"starter": "seq2seq", "starter-seq2seq": "seq2seq"},
    "tilth paraphrase train",
)
SCORER = Role("a cross-encoder", _ENCODER)
ENCODER = Role(
    "a sentence encoder",
    {**_ENCODER, "starter-static": "static", "starter-mlm": "mlm"},
    "tilth train",
)
CLASSIFIER = Role("a classifier", _CLASSIFIER, "tilth train")
MASKED_LM = Role("a masked language model", _CLASSIFIER, "tilth train")

ENDPOINTS = ("openai:", "openai-chat:")
COSINE = "cosine:"
# Prefixes of a file of word vectors; those of FITTED need sentences too.
WORDS = ("words", "words-idf", "words-sif", "usif")
FITTED = ("words-idf", "usif")


def check_lm(name: str) -> None:
    """Check the name of a causal language model; all checks here raise `InputError`."""
    if not name.startswith(ENDPOINTS):
        find_source(name, starters=LM.starters)


def check_seq2seq(name: str) -> None:
    """Check the name of an encoder-decoder."""
    _check(name, SEQ2SEQ)


def check_scorer(name: str) -> None:
    """Check the name of a scorer of semantic similarity."""
    if name.startswith(COSINE):
        check_encoder(name.removeprefix(COSINE))
    else:
        find_source(name, starters=SCORER.starters)


def check_encoder(name: str) -> None:
    """Check the name of a sentence encoder, or of word vectors."""
    kind, colon, file = name.partition(":")
    if colon and kind in WORDS:
        if not Path(file).expanduser().is_file():
            raise InputError(f"{name}: no such file {file!r}: check the path")
        return
    saved = Path(name).expanduser() / "modules.json"
    _check(name, ENCODER, marker="modules.json" if saved.is_file() else "config.json")


def check_classifier(name: str) -> None:
    """Check the name of a classifier or tagger, or of its base."""
    _check(name, CLASSIFIER)


def is_cosine(scorer: str) -> bool:
    """Return whether a scorer's name stands for the cosine of an encoder's vectors."""
    return scorer in SCORER.starters or scorer.startswith(COSINE)


def describe_scorer(scorer: str) -> str:
    """Return a scorer's name and description, for cards."""
    if is_cosine(scorer):
        return (
            f"`{scorer}`, the cosine of an encoder's vectors, not the paper's cross-encoder: a "
            "negation may leave it above 70"
        )
    return f"`{scorer}`, a cross-encoder"


def _check(name: str, role: Role, marker: str = "config.json") -> None:
    run = Path(name).expanduser()
    if not (run / "run.json").is_file():
        find_source(name, starters=role.starters, marker=marker)
    elif not any((run / "model" / file).is_file() for file in ("modules.json", "config.json")):
        raise InputError(
            f"{name}: the run holds no trained model: name the run of a finished training"
        )

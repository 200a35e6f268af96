"""Names of models, checked before anything is loaded: whether such a folder or file is there."""

from __future__ import annotations

from pathlib import Path

from tilth.errors import InputError
from tilth.models.source import find_source

# Of each kind of model, the names of the shipped ones and their folders in tilth-starter.
# `starter` is the one a role begins with; every other name is one model in every role.
LMS = {"starter": "lm", "starter-lm": "lm"}
SEQ2SEQS = {"starter": "seq2seq", "starter-seq2seq": "seq2seq"}
SCORERS = {"starter": "encoder", "starter-encoder": "encoder"}
ENCODERS = {
    "starter": "encoder",
    "starter-encoder": "encoder",
    "starter-static": "static",
    "starter-mlm": "mlm",
}
CLASSIFIERS = {
    "starter": "encoder",
    "starter-encoder": "encoder",
    "starter-mlm": "mlm",
    "starter-small": "small",
}
ENDPOINTS = ("openai:", "openai-chat:")
COSINE = "cosine:"
# What stands before a colon and a file of word vectors; those of FITTED need sentences too.
WORDS = ("words", "words-idf", "words-sif", "usif")
FITTED = ("words-idf", "usif")


def check_lm(name: str) -> None:
    """Check the name of a language model that writes.

    Raises:
        InputError: there is no such model here, as of every function of this module.
    """
    if not name.startswith(ENDPOINTS):
        find_source(name, starters=LMS)


def check_seq2seq(name: str) -> None:
    """Check the name of an encoder-decoder."""
    _check(name, SEQ2SEQS)


def check_scorer(name: str) -> None:
    """Check the name of a scorer of meaning."""
    if name.startswith(COSINE):
        check_encoder(name.removeprefix(COSINE))
    else:
        find_source(name, starters=SCORERS)


def is_cosine(scorer: str) -> bool:
    """Tell whether a scorer of meaning is the cosine of an encoder's vectors, by its name."""
    return scorer in SCORERS or scorer.startswith(COSINE)


def describe_scorer(scorer: str) -> str:
    """Return a scorer's name and what it is, for cards."""
    if is_cosine(scorer):
        return (
            f"`{scorer}`, the cosine of an encoder's vectors, not the paper's cross-encoder: a "
            "negation may leave it above 70"
        )
    return f"`{scorer}`, a cross-encoder"


def check_encoder(name: str) -> None:
    """Check the name of a sentence encoder, or of word vectors."""
    kind, colon, file = name.partition(":")
    if colon and kind in WORDS:
        if not Path(file).expanduser().is_file():
            raise InputError(f"{name}: no such file {file!r}: check the path")
        return
    saved = Path(name).expanduser() / "modules.json"
    _check(name, ENCODERS, marker="modules.json" if saved.is_file() else "config.json")


def check_classifier(name: str) -> None:
    """Check the name of a classifier or tagger, or of a base of one."""
    _check(name, CLASSIFIERS)


def _check(name: str, starters: dict[str, str], marker: str = "config.json") -> None:
    run = Path(name).expanduser()
    if not (run / "run.json").is_file():
        find_source(name, starters=starters, marker=marker)
    elif not any((run / "model" / file).is_file() for file in ("modules.json", "config.json")):
        raise InputError(
            f"{name}: the run holds no trained model: name the run of a finished training"
        )

"""Every kind of training, on tiny models: small enough to be stopped at each moment."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.selftrain.labelled import classed, tagged
from tests.tiny import graded_pairs, salads, save_encoder
from tests.tiny.bart import corpus, save_bart

Training = Callable[[Path], object]
KINDS = ("encoder", "triplet", "rewriter", "classifier", "tagger", "adapt")
_QUICK: dict[str, Any] = {
    "learning_rate": 3e-2, "batch": 16, "precision": "float32", "device": "cpu", "quiet": True,
}  # fmt: skip


def training(kind: str, folder: Path) -> Training:
    """Return what trains one kind of model in a run folder.

    Args:
        kind: one of `KINDS`.
        folder: for the base.
    """
    base = folder / "base"
    if not base.exists():
        (save_bart if kind == "rewriter" else save_encoder)(base)
    return _MAKERS[kind](str(base))


def _encoder(base: str) -> Training:
    from datasets import Dataset

    from tilth.encoders.bi_encoder import train_encoder

    pairs = Dataset.from_dict(graded_pairs(100))
    return lambda out: train_encoder(pairs, base, out, evaluate_every=2, **_QUICK)


def _triplet(base: str) -> Training:
    from datasets import Dataset

    from tilth.encoders.triplet import train_triplet

    one, two = salads(80), salads(80, seed=1)
    pairs = Dataset.from_dict({"en": one, "de": two})
    return lambda out: train_triplet(pairs, base, out, evaluate_every=2, dimension=8, **_QUICK)


def _rewriter(base: str) -> Training:
    from tilth.paraphrase.train import train_rewriter

    pairs = corpus(48, 12)
    # Three steps an epoch: checkpoints within epochs, at their ends, and at both.
    return lambda out: train_rewriter(
        pairs, base, out, max_epochs=4, patience=1, save_every=2, rows=8, **_QUICK
    )


def _classifier(base: str) -> Training:
    from tilth.workflows.train_classifier import train_classifier

    rows, chosen = classed(60), classed(120, seed=9)
    return lambda out: train_classifier(
        rows, base, out, validation=chosen, seeds=2, epochs=1.5, evaluate_every=2, **_QUICK
    )


def _tagger(base: str) -> Training:
    from tilth.workflows.train_classifier import train_tagger

    rows, chosen = tagged(60), tagged(120, seed=9)
    return lambda out: train_tagger(
        rows, base, out, validation=chosen, epochs=1.5, evaluate_every=2, **_QUICK
    )


def _adapt(base: str) -> Training:
    from tilth.classifiers.mlm import adapt

    texts = salads(80)
    return lambda out: adapt(texts, base, out, save_every=2, **_QUICK)


_MAKERS: dict[str, Callable[[str], Training]] = {
    "encoder": _encoder, "triplet": _triplet, "rewriter": _rewriter, "classifier": _classifier,
    "tagger": _tagger, "adapt": _adapt,
}  # fmt: skip


# The dates of a run, what tells it from one begun in the same second, and how long searches took.
_TIMES = {"created", "start", "milliseconds"}
# Locks are empty or name a process; a page says when its run began.
_NOT_COMPARED = {".tilth-lock", ".lock", "report.html"}


def content(run: Path) -> dict[str, object]:
    """Return what the files of a folder hold, but for its times."""
    return {
        str(path.relative_to(run)): _READERS.get(path.suffix, Path.read_bytes)(path)
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in _NOT_COMPARED
    }


def _timeless(path: Path) -> object:
    def without(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
        return [(name, value) for name, value in pairs if name not in _TIMES]

    return json.loads(path.read_text(), object_pairs_hook=without)


def _table(path: Path) -> object:
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False)  # whoever reads may fork later


# A part names its run, and so its date, in its metadata.
_READERS: dict[str, Callable[[Path], object]] = {".json": _timeless, ".parquet": _table}

"""Predictions of a model as a table: classes, tags with their spans, or embeddings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.encoder import TextEncoder
from tilth.data.tokenize import WordTokenizer
from tilth.errors import InputError
from tilth.evaluate.classify import answered, kind_of, named
from tilth.evaluate.tag import best_tags
from tilth.generation.label_fit import (
    COSINE_UNIT,
    ENCODER,
    describe_labels,
    similarity_to_descriptions,
    warn_of_likes,
)
from tilth.generation.task import is_task, load_classes
from tilth.metrics.scores import iob2, spans
from tilth.models.static import read_static
from tilth.models.truncation import warn_of_cuts
from tilth.runs import Progress
from tilth.selftrain.select import confidence_of
from tilth.workflows.settings import Prediction

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier

log = logging.getLogger(__name__)

_TEXTS_AT_ONCE = 1024  # compared with descriptions
_SPAN = pa.struct(
    [("type", pa.string()), ("text", pa.string()), ("start", pa.int32()), ("end", pa.int32()),
     ("start_char", pa.int32()), ("end_char", pa.int32()), ("confidence", pa.float32())]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Predictor:
    """A loaded model and its function from inputs to columns.

    Attributes:
        kind: `class`, `multi`, `tags`, `vectors` or `described`.
        adds: names of the columns that it makes.
        texts_per_input: 1, or 2 of pairs; None: not known.
        predict: inputs of a part, which all hold text -> a table with a row for each.
    """

    kind: str
    name: str
    fingerprint: str
    adds: tuple[str, ...]
    texts_per_input: int | None
    predict: Callable[[list[Any], Progress], pa.Table]


@dataclass(frozen=True, slots=True)
class Described:
    """The labels of a task as a classifier without training: the most similar description counts.

    Attributes:
        descriptions: of each label, one or more lines.
    """

    name: str
    labels: list[str]
    descriptions: list[str]
    encoder: TextEncoder
    kind: str = "class"
    texts_per_input: int = 1

    @classmethod
    def load(cls, name: str, encoder: str, device: str) -> Described:
        """Load a task of two or more labels of single texts, and an encoder by name."""
        described = describe_labels(load_classes(name))
        loaded = TextEncoder.load(encoder, device=device)
        warn_of_likes(loaded.model, described)
        return cls(name, list(described), list(described.values()), loaded)

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the encoder, the labels and their descriptions."""
        pairs = list(zip(self.labels, self.descriptions, strict=True))
        about = repr((self.encoder.fingerprint, pairs))
        return blake2b(about.encode(), digest_size=8).hexdigest()

    def similarities(self, texts: Sequence[tuple[str]], progress: Progress) -> NDArray[np.float32]:
        """Return the cosine of each text to each label's nearest description, (texts, labels)."""
        parts = []
        for at in range(0, max(len(texts), 1), _TEXTS_AT_ONCE):
            some = [text for (text,) in texts[at : at + _TEXTS_AT_ONCE]]
            parts.append(similarity_to_descriptions(self.encoder.model, some, self.descriptions))
            progress.advance(len(some))
        return np.concatenate(parts)

    def answers(self, rows: Any, *, progress: Progress, **_: Any) -> NDArray[np.float32]:
        """Return probabilities of rows, (rows, labels); only the option `progress` is used."""
        from scipy.special import softmax  # not above: predictions need it not

        found: NDArray[np.float32] = softmax(
            self.similarities(rows.texts, progress) / COSINE_UNIT, axis=1
        )
        return found


def load_predictor(model: str | Classifier, asked: Prediction, device: str) -> Predictor:
    """Load the run of a training, a folder, a hub id, or a task; take a loaded classifier."""
    if not isinstance(model, str):
        return _labeller(model, asked)
    if is_task(model):
        warn_of_precision(model, asked.precision)
        return _described(model, device, asked)
    if asked.encoder is not None:
        raise InputError(f"encoder is for a task file, and {model!r} is a model: leave it out")
    if (encoder := _encoder(model, device)) is not None:
        warn_of_precision(model, asked.precision)
        if asked.probabilities:
            raise InputError(
                f"{model!r} gives vectors, which have no probabilities: leave them out"
            )

        def encode(texts: list[Any], progress: Progress) -> pa.Table:
            some = [text for (text,) in texts]
            vectors = encoder.encode(pa.array(some, pa.string()), progress)
            _warn_of_cuts(encoder, some)
            flat = pa.array(vectors.ravel(), pa.float32())
            return pa.table(
                {"embedding": pa.FixedSizeListArray.from_arrays(flat, encoder.dimension)}
            )

        return Predictor("vectors", model, encoder.fingerprint, ("embedding",), 1, encode)
    from tilth.models.classifier import load_classifier

    return _labeller(load_classifier(model, device=device), asked)


def _warn_of_cuts(encoder: TextEncoder, texts: Sequence[str]) -> None:
    if encoder.static is None:  # static encoders read texts of any length
        from tilth.models.embed import cut_texts  # imports torch

        cut, longest = cut_texts(encoder.model, texts)
        warn_of_cuts(cut, len(texts), longest, encoder.name)


def _labeller(classifier: Classifier, asked: Prediction) -> Predictor:
    """Return the predictions of a classifier or a tagger."""
    from tilth.models.classifier import fingerprint_classifier

    model = classifier.name
    if asked.encoder is not None:
        raise InputError(f"encoder is for a task file, and {model!r} is a model: leave it out")
    if asked.probabilities and len(set(classifier.labels)) < len(classifier.labels):
        raise InputError(f"{model!r} has two labels of one name: give each its own in config.json")
    adds = ("tokens", "tags", "spans") if classifier.kind == "tags" else ("label",)
    adds += ("confidence", *(("probabilities",) if asked.probabilities else ()))
    made = _tag if classifier.kind == "tags" else _classify

    def label(inputs: list[Any], progress: Progress) -> pa.Table:
        how = {"precision": asked.precision, "progress": progress}
        return made(classifier, inputs, how, probabilities=asked.probabilities)

    texts = 1 if classifier.kind == "tags" else classifier.texts_per_input
    return Predictor(classifier.kind, model, fingerprint_classifier(classifier), adds, texts, label)


def warn_of_precision(model: str, precision: str) -> None:
    """Warn that a precision is ignored where texts are compared as embeddings."""
    if precision != "auto":
        log.warning(
            "precision %s is ignored: it is for classifiers and taggers, and %r makes embeddings",
            precision, model,
        )  # fmt: skip


def _encoder(model: str, device: str) -> TextEncoder | None:
    """Load a sentence encoder, a static one without torch; None for another model."""
    if (static := read_static(model, device)) is not None:
        return TextEncoder(static, model)
    from tilth.models.encoder import is_sentence_encoder

    return TextEncoder.load(model, device=device) if is_sentence_encoder(model) else None


def _described(name: str, device: str, asked: Prediction) -> Predictor:
    """Return a predictor of the label whose description is most similar to the text."""
    described = Described.load(name, asked.encoder or ENCODER, device)
    labels = described.labels

    def label(texts: list[Any], progress: Progress) -> pa.Table:
        similarities = described.similarities(texts, progress)
        ordered = np.sort(similarities, axis=1)
        columns = {
            "label": pa.array([labels[one] for one in similarities.argmax(1)], pa.string()),
            "similarity": pa.array(ordered[:, -1]),
            "margin": pa.array(ordered[:, -1] - ordered[:, -2]),
        }
        if asked.probabilities:
            columns["similarities"] = _by_name(similarities, labels)
        return pa.table(columns)

    adds = ("label", "similarity", "margin", *(("similarities",) if asked.probabilities else ()))
    return Predictor("described", name, described.fingerprint, adds, 1, label)


def _classify(
    classifier: Classifier, texts: list[Any], how: dict[str, Any], *, probabilities: bool
) -> pa.Table:
    """Return label and confidence of texts, and optionally each label's probability."""
    given = classifier.probabilities(texts, **how)  # (texts, labels)
    kind = kind_of(classifier)
    labels = [named(answer, classifier.labels) for answer in answered(given, kind)]
    label_type = pa.list_(pa.string()) if kind == "multi" else pa.string()
    columns = {
        "label": pa.array(labels, label_type),
        "confidence": pa.array(confidence_of(given, kind=kind)),
    }
    if probabilities:
        columns["probabilities"] = _by_name(given, classifier.labels)
    return pa.table(columns)


def _tag(
    tagger: Classifier, inputs: list[Any], how: dict[str, Any], *, probabilities: bool
) -> pa.Table:
    """Return tokens, tags, spans and confidence of sentences, given as texts or tokens."""
    words = WordTokenizer.of(tagger.word_rules)
    tokens = [words.tokenize(one) if isinstance(one, str) else one for one in inputs]
    given = tagger.tag_probabilities(tokens, **how)  # of each sentence (tokens, tags)
    said, sure = best_tags(given, tagger.labels)
    tags = [iob2(row) for row in said]
    texts = [one if isinstance(one, str) else " ".join(one) for one in inputs]
    found = [_spans(*row) for row in zip(texts, tokens, tags, sure, strict=True)]
    columns = {
        "tokens": pa.array(tokens, pa.list_(pa.string())),
        "tags": pa.array(tags, pa.list_(pa.string())),
        "spans": pa.array(found, pa.list_(_SPAN)),
        "confidence": pa.array(confidence_of(given, kind="tags")),
    }
    if probabilities:
        flat = np.concatenate(given) if given else np.zeros((0, len(tagger.labels)), np.float32)
        ends = np.append(0, np.cumsum([len(row) for row in given])).astype(np.int32)
        columns["probabilities"] = pa.ListArray.from_arrays(ends, _by_name(flat, tagger.labels))
    return pa.table(columns)


def _spans(
    text: str, tokens: Sequence[str], tags: Sequence[str], sure: NDArray[Any]
) -> list[dict[str, Any]]:
    """Return a sentence's entities with their token range (`end` exclusive) and characters."""
    places, at = [], 0
    for token in tokens:
        at = text.index(token, at)
        places.append(at)
        at += len(token)
    found = []
    for kind, start, end in spans(tags):
        first, last = places[start], places[end - 1] + len(tokens[end - 1])
        found.append(
            {"type": kind, "text": text[first:last], "start": start, "end": end,
             "start_char": first, "end_char": last, "confidence": float(sure[start:end].mean())}
        )  # fmt: skip
    return found


def _by_name(probabilities: NDArray[np.float32], labels: Sequence[str]) -> pa.StructArray:
    columns = [pa.array(column) for column in np.ascontiguousarray(probabilities.T)]
    return pa.StructArray.from_arrays(columns, list(labels))

"""Simple baselines: class frequencies, logistic regression on words or embeddings, SetFit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.logistic import logistic, probabilities
from tilth.encoders.setfit import train_setfit
from tilth.errors import InputError
from tilth.models.classifier import ClassifierRows, Kind
from tilth.models.embed import embed, unit
from tilth.models.encoder import load_encoder
from tilth.report.systems import ENCODER, FREQUENT, MAJORITY, SETFIT, TFIDF, WORDS
from tilth.runs import Progress
from tilth.workflows.evaluate_classifier import System

STARTER = "starter-encoder"
_MAX_ROWS = 20_000  # that a baseline is fitted on
# Inverse regularisation, of embeddings for up to 20 labels and for more: chosen on held-out rows of
# train, see benchmarks/augment_defaults.py.
_C_WORDS, _C_FEW, _C_MANY, _FEW = 10.0, 3.0, 30.0, 20
_C_SETFIT = 1.0  # on embeddings that are not normalised, as published

Features = Callable[[Sequence[Any]], Any]
Answer = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A model that is compared with a `Classifier`.

    Attributes:
        answer: texts -> probabilities (rows, labels), or sentences -> one (tokens, tags) each.
    """

    name: str
    kind: Kind
    labels: list[str]
    answer: Answer

    def answers(self, rows: ClassifierRows, *, progress: Progress, **_: Any) -> Any:
        """Return each row's probabilities; only the option `progress` is used."""
        found = self.answer(rows.texts if rows.tokens is None else rows.tokens)
        progress.advance(len(rows.texts))
        return found


def baselines(rows: LabeledExamples, *, device: str = "auto", quiet: bool = True) -> list[System]:
    """Fit the baselines of a task on at most 20,000 labelled rows.

    For texts: logistic regression on the embeddings of an encoder and on TF-IDF of words and word
    pairs, and the share of each label; for single texts also SetFit. For tokens: logistic
    regression on the words around a token, and each word's most frequent tag. Soft labels count as
    hard ones. Where the encoder, starter-encoder, is not installed there are no baselines of it.
    """
    if rows.kind == "tags":
        names = [WORDS, FREQUENT]
    else:
        names = [ENCODER, TFIDF, MAJORITY]
        if len(rows.texts[0]) == 1 and len(rows) > 1:  # it learns from pairs of rows
            names.insert(0, SETFIT)
        if _starter(device) is None:
            names = [TFIDF, MAJORITY]
    found = {}
    with Progress(len(names), quiet=quiet, what=f"baselines ({', '.join(names)})") as progress:
        for name in reversed(names):  # those that take longest last
            base = STARTER if name in (SETFIT, ENCODER) else ""
            found[name] = System(name, fit_baseline(name, rows, device=device), base)
            progress.advance(1)
    return [found[name] for name in names]


def fit_baseline(name: str, rows: LabeledExamples, *, device: str = "auto") -> Baseline:
    """Fit one of the baselines by its name on at most 20,000 rows."""
    if len(rows) > _MAX_ROWS:
        rows = rows.select(np.sort(np.random.default_rng(0).permutation(len(rows))[:_MAX_ROWS]))
    rows = rows.hard()
    return Baseline(name, rows.kind, rows.labels, _FITS[name](rows, device))


def _fit_majority(rows: LabeledExamples, *_: str) -> Answer:
    share = np.asarray(rows.targets).mean(axis=0, dtype=np.float64).astype(np.float32)
    return lambda texts: np.tile(share, (len(texts), 1))


def _fit_tfidf(rows: LabeledExamples, *_: str) -> Answer:
    return _fitted(rows, _tfidf(rows.texts), _C_WORDS)


def _fit_encoder(rows: LabeledExamples, device: str) -> Answer:
    strength = _C_FEW if len(rows.labels) <= _FEW else _C_MANY
    return _fitted(rows, _embeddings(_starter(device)), strength)


def _fit_setfit(rows: LabeledExamples, device: str) -> Answer:
    """Return logistic regression on embeddings of an encoder that is trained on pairs of rows."""
    encoder = train_setfit(
        [text for (text,) in rows.texts], np.asarray(rows.targets), STARTER, device=device
    )
    return _fitted(rows, _embeddings(encoder, is_unit=False), _C_SETFIT)


def _fitted(rows: LabeledExamples, features: Features, strength: float) -> Answer:
    """Return logistic regression on features of texts."""
    fitted = logistic(features(rows.texts), np.asarray(rows.targets), rows.kind, strength)
    return lambda texts: probabilities(features(texts), fitted, rows.kind)


def _tfidf(texts: Sequence[tuple[str, ...]]) -> Features:
    from sklearn.feature_extraction.text import TfidfVectorizer

    def joined(rows: Sequence[tuple[str, ...]]) -> list[str]:
        return ["\n".join(row) for row in rows]

    # Unlike the default, keep words of one character: some sets of texts have no others.
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
    vectors.fit(joined(texts))
    return lambda rows: vectors.transform(joined(rows))


def _starter(device: str) -> Any:
    """Load the encoder of the baselines; None: it is not installed."""
    try:
        return load_encoder(STARTER, device=device)
    except InputError:
        return None


def _embeddings(encoder: Any, *, is_unit: bool = True) -> Features:
    """Return a function from texts to embeddings; for pairs also their difference and product."""

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        found = embed(encoder, texts, dtype=torch.float32)
        return unit(found) if is_unit else found

    def features(rows: Sequence[tuple[str, ...]]) -> NDArray[np.float32]:
        sides = [encode(texts) for texts in zip(*rows, strict=True)]
        if len(sides) == 1:
            return sides[0]
        one, two = sides
        return np.concatenate([one, two, np.abs(one - two), one * two], axis=1)

    return features


def _tagger(rows: LabeledExamples, *_: str) -> Answer:
    """Return logistic regression on each token, its neighbours, endings and shape."""
    from sklearn.feature_extraction.text import CountVectorizer

    # Features of the training rows only: most weights of a million hashed ones would stay 0.
    counter = CountVectorizer(analyzer=list)

    def around(sentences: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        return (_around(tokens, place) for tokens in sentences for place in range(len(tokens)))

    def features(sentences: Sequence[Sequence[str]]) -> Any:
        return counter.transform(around(sentences))

    targets = np.concatenate(list(rows.targets))
    fitted = logistic(
        counter.fit_transform(around(rows.tokens or [])), targets, rows.kind, _C_WORDS
    )

    def answer(sentences: Sequence[Sequence[str]]) -> list[NDArray[np.float32]]:
        ends = np.cumsum([len(tokens) for tokens in sentences])[:-1]
        return np.split(probabilities(features(sentences), fitted, rows.kind), ends)

    return answer


def _around(tokens: Sequence[str], place: int) -> list[str]:
    token = tokens[place]
    shape = "".join("X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c
                    for c in token)  # fmt: skip
    found = [f"word {token.lower()}", f"end {token[-3:].lower()}", f"shape {shape}"]
    for step in (-2, -1, 1, 2):
        beside = place + step
        word = tokens[beside].lower() if 0 <= beside < len(tokens) else ""
        found.append(f"{step} {word}")
    return found


def _frequent(rows: LabeledExamples, *_: str) -> Answer:
    """Return each word's most frequent tag; for unknown words the most frequent of all."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for tokens, target in zip(rows.tokens or [], rows.targets, strict=True):
        for token, place in zip(tokens, np.asarray(target).argmax(axis=1).tolist(), strict=True):
            counts[token][place] += 1
            counts[""][place] += 1
    commonest = {token: count.most_common(1)[0][0] for token, count in counts.items()}
    one = np.eye(len(rows.labels), dtype=np.float32)
    return lambda sentences: [
        one[[commonest.get(token, commonest[""]) for token in tokens]] for tokens in sentences
    ]


_FITS: dict[str, Callable[[LabeledExamples, str], Answer]] = {
    SETFIT: _fit_setfit, ENCODER: _fit_encoder, TFIDF: _fit_tfidf, MAJORITY: _fit_majority,
    WORDS: _tagger, FREQUENT: _frequent,
}  # fmt: skip

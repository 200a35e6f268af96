"""What the Try pages compute: rewrites, attempts with their factors, hits, labels and their words.

Each function takes loaded models and returns what its template shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.errors import InputError
from tilth.report.charts import ChartRow, bar

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.generation.generate import GenerateRequest
    from tilth.models.classifier import Classifier
    from tilth.paraphrase.rewriter import Rewriter
    from tilth.paraphrase.settings import RewriteSettings

STEPS = 5  # shades of a word's effect, and of a token's factor
_MOST_PIECES = 128  # of a text that are left out in turn; of a longer one, several words together
_LEAST_EFFECT = 0.05  # change of a probability that has the strongest shade, at least
# The part of the plane that is drawn; rewrites beyond it stand at its edge.
_MEANING_LOW, _WORDING_HIGH = 60.0, 60.0


@dataclass(frozen=True, slots=True)
class Shaded:
    """A piece of a text with its measure, and its shade from -`STEPS` to `STEPS`."""

    text: str
    value: float
    shade: int


def rewrites(rewriter: Rewriter, text: str, settings: RewriteSettings) -> dict[str, Any]:
    """Return the candidates of a text with their places on the plane of meaning and wording."""
    from tilth.paraphrase.tags import CELLS, MOST_MEANING, asked_cell

    (found,) = rewriter.rewrites([text], settings)
    cell = asked_cell(settings.meaning, settings.wording)
    height = MOST_MEANING - _MEANING_LOW

    def place(meaning: float, wording: float) -> tuple[float, float]:
        """Return the shares of the plane's width and height, from its upper left corner."""
        x, y = wording / _WORDING_HIGH, (MOST_MEANING - meaning) / height
        return min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0)

    return {
        "problem": found[0].problem,
        "flips": found[0].flips,
        "rewrites": [] if found[0].problem else found,
        "dots": [] if found[0].problem else [place(one.meaning, one.wording) for one in found],
        "cells": [
            (*place(one.meaning_end, one.wording), *place(one.meaning, one.wording_end),
             one == cell) for one in sorted(CELLS, key=cell.__eq__)  # the asked one on top
        ],
        "cell": cell,
    }  # fmt: skip


def attempts(request: GenerateRequest, say: Callable[[str], None]) -> dict[str, Any]:
    """Write the texts of a request; return each label's attempts, with the factor of each token.

    Tokens are (piece of the text, alpha); none at an endpoint, which shows no distributions.
    """
    from tilth.generation.attempts import Attempts
    from tilth.generation.generate import make_sampler
    from tilth.models import LM
    from tilth.runs import Progress

    items = request.items()
    sampler = make_sampler(request, items, None, None)
    say("Writing.")
    work = Attempts(request.prompted(), request.settings, items, Progress(len(items), quiet=True))
    sampler.run(work.first_jobs(), work.next_job)
    tokenizer = request.lm.tokenizer if isinstance(request.lm, LM) else None
    labels: dict[str, list[dict[str, Any]]] = {label.name: [] for label in request.task.labels}
    for item, one in work.outcomes():
        spans = []
        if one.drawn is not None and tokenizer is not None:
            ids, factors = one.drawn
            found = _pieces(tokenizer, ids.tolist(), factors.tolist())
            spans = [Shaded(piece, factor, _shade(1 - factor)) for piece, factor in found]
        labels[one.job.label].append(
            {"input": item.text, "text": one.text, "reason": one.reason, "spans": spans,
             "lowered": sum(span.value < 1 for span in spans)}
        )  # fmt: skip
    return {"labels": labels, "task": request.task, "decay": request.settings.decay}


def _pieces(tokenizer: Any, ids: list[int], factors: list[float]) -> list[tuple[str, float]]:
    """Return the text that each token adds and its factor; a character of several is one piece."""
    found: list[tuple[str, float]] = []
    said, least = "", 1.0
    for end, factor in enumerate(factors, 1):
        text = tokenizer.decode(ids[:end], clean_up_tokenization_spaces=False)
        least = min(least, factor)
        if text.endswith("\ufffd") and end < len(ids):
            continue
        found.append((text[len(said) :], least))
        said, least = text, 1.0
    return found


def hits(bank: Bank, query: str, count: int) -> dict[str, Any]:
    """Return the sentences of a bank that are nearest to a text."""
    found = bank.search([query], k=count)
    return {"hits": found.table(0).to_pylist(), "sentences": len(bank)}


def labelled(classifier: Classifier, texts: tuple[str, ...]) -> dict[str, Any]:
    """Label a text or a pair; measure what each word does for the answer.

    The effect of a word is what the probability of the likeliest label loses without it.

    Reference:
        Li, Monroe and Jurafsky 2016, "Understanding Neural Networks through Representation
        Erasure" (arXiv 1612.08220), who take the relative loss of log-likelihood.
    """
    pieces = [(place, at) for place, text in enumerate(texts) for at in _runs(text.split())]
    without = [
        tuple(_left_out(text, at) if number == place else text for number, text in enumerate(texts))
        for place, at in pieces
    ]
    own, *others = classifier.probabilities([texts, *without])  # each (labels,)
    best = int(np.argmax(own))
    effects = own[best] - np.array([one[best] for one in others], np.float32)  # (pieces,)
    most = max(float(np.abs(effects).max(initial=0.0)), _LEAST_EFFECT)
    spans: list[list[Shaded]] = [[] for _ in texts]
    for (place, at), effect in zip(pieces, effects.tolist(), strict=True):
        said = " ".join(texts[place].split()[at])
        spans[place].append(Shaded(said, effect, round(STEPS * effect / most)))
    shares = [(classifier.labels[place], float(own[place]))
              for place in np.argsort(-own, kind="stable").tolist()]  # fmt: skip
    rows = [ChartRow(label, f"{share:.3f}", "", bar(share, 1)) for label, share in shares]
    return {"best": shares[0][0], "texts": spans, "rows": rows}


def _runs(words: Sequence[str]) -> list[slice]:
    """Return the words that are left out together."""
    size = -(-len(words) // _MOST_PIECES)
    return [slice(at, at + size) for at in range(0, len(words), max(size, 1))]


def _left_out(text: str, at: slice) -> str:
    words = text.split()
    return " ".join(words[: at.start] + words[at.stop :])


def tagged(tagger: Classifier, text: str) -> dict[str, Any]:
    """Tag the words of a text; return its entities and the words between them."""
    from tilth.data.tokenize import WordTokenizer
    from tilth.evaluate.tag import best_tags
    from tilth.metrics.scores import spans

    words = WordTokenizer.of(tagger.word_rules).tokenize(text)
    if not words:
        raise InputError("the text holds no word: write one")
    said, sure = best_tags(tagger.tag_probabilities([words]), tagger.labels)
    begins = {start: (kind, end) for kind, start, end in spans(said[0])}
    found: list[dict[str, Any]] = []
    place = 0
    while place < len(words):
        kind, end = begins.get(place, ("", place + 1))
        share = float(np.mean(sure[0][place:end]))
        found.append({"text": " ".join(words[place:end]), "type": kind, "probability": share})
        place = end
    return {"words": found}


def _shade(share: float) -> int:
    """Return the shade of a share, 0 for none alone."""
    return math.ceil(STEPS * share - 1e-6)

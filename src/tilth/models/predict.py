"""Probabilities of classes and tags for many texts, as fast as the hardware allows.

Texts are sorted by length and labelled in batches of like ones, each different text once; their
token numbers are in memory for some thousands at a time.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.errors import InputError, TilthError
from tilth.models.device import choose_precision
from tilth.models.scorer import Steps
from tilth.models.token_batches import Encoded, batches, encode_texts, uses_token_type_ids
from tilth.models.word_windows import Window, encode_words

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier

__all__ = ["Window", "encode_texts", "encode_words", "probabilities", "tag_probabilities"]

log = logging.getLogger(__name__)

_TEXTS_AT_ONCE = 16_384
CUT = "%d of %d texts are longer than the %d tokens that %s reads: they were cut"

Row = TypeVar("Row", bound=Hashable)
Made = TypeVar("Made")


def probabilities(
    classifier: Classifier,
    texts: Sequence[tuple[str, ...]],
    *,
    precision: str = "auto",
    batch_tokens: int | None = None,
    progress: Steps | None = None,
) -> NDArray[np.float32]:
    """Return the probabilities of the classes for each text or pair, (texts, labels).

    A row sums to 1 where a text has one class. A text longer than the model reads is cut.

    Args:
        classifier: of classes, not of tags.
        texts: each row's texts, one or two.
        precision: of the products, `auto`, `float32`, `bfloat16` or `float16`.
        batch_tokens: of a batch, padding counted; default: what is fast.
        progress: is told how many rows were labelled.

    Raises:
        InputError: the model is a tagger, or a row is not one text or two.
        TilthError: the model gives a probability that is no number.
    """
    if classifier.kind == "tags":
        raise InputError(f"model {classifier.name!r} is a tagger: it labels tokens, not texts")
    for place, row in enumerate(texts):
        if len(row) not in (1, 2) or not all(isinstance(text, str) for text in row):
            raise InputError(f"text {place}: {row!r:.80} is neither a text nor a pair of texts")
    distinct, places = _distinct(texts)
    found = np.empty((len(distinct), len(classifier.labels)), np.float32)
    cut = 0
    with _running(classifier, precision) as model:
        with_types = uses_token_type_ids(model, classifier.tokenizer)

        def encode(numbers: list[int]) -> Encoded:
            rows = [distinct[n] for n in numbers]
            return encode_texts(
                classifier.tokenizer, rows, classifier.max_length, with_types=with_types
            )

        for numbers, encoded in _ahead(encode, _by_length(distinct)):
            found[numbers] = _label_texts(classifier, model, encoded, batch_tokens, progress)
            cut += encoded.cut
    if cut:
        log.warning(CUT, cut, len(distinct), classifier.max_length, classifier.name)
    finite = np.asarray(np.isfinite(found).all(axis=1))
    _check_finite(finite, distinct, classifier.name)
    if progress is not None:
        progress.advance(len(texts) - len(distinct))
    return found[places]  # (texts, labels)


def tag_probabilities(
    classifier: Classifier,
    tokens: Sequence[Sequence[str]],
    *,
    precision: str = "auto",
    batch_tokens: int | None = None,
    progress: Steps | None = None,
) -> list[NDArray[np.float32]]:
    """Return the probabilities of the tags for each sentence's tokens, each (tokens, tags).

    A token's are those of its first piece. A sentence longer than the model reads is read in
    windows; a token's are from the one that shows most around it.

    Args:
        classifier: a tagger.
        tokens: the tokens of each sentence.
        precision: of the products, `auto`, `float32`, `bfloat16` or `float16`.
        batch_tokens: of a batch, padding counted; default: what is fast.
        progress: is told how many sentences were labelled.

    Raises:
        InputError: the model is no tagger.
        TilthError: the model gives a probability that is no number.
    """
    if classifier.kind != "tags":
        raise InputError(f"model {classifier.name!r} is no tagger: it labels texts, not tokens")
    distinct, places = _distinct([tuple(sentence) for sentence in tokens])
    found = [np.zeros((len(row), len(classifier.labels)), np.float32) for row in distinct]

    def encode(numbers: list[int]) -> list[Window]:
        rows = [distinct[n] for n in numbers]
        return encode_words(classifier.tokenizer, rows, classifier.max_length)

    with _running(classifier, precision) as model:
        for numbers, windows in _ahead(encode, _by_length(distinct)):
            answers = _label_windows(classifier, model, windows, batch_tokens)
            for window, rows in zip(windows, answers, strict=True):
                found[numbers[window.row]][window.first : window.first + len(rows)] = rows
            if progress is not None:
                progress.advance(len(numbers))
    finite = np.array([bool(np.isfinite(rows).all()) for rows in found], bool)
    _check_finite(finite, distinct, classifier.name)
    if progress is not None:
        progress.advance(len(tokens) - len(distinct))
    return [found[place] for place in places]


def _distinct(rows: Sequence[Row]) -> tuple[list[Row], NDArray[np.int64]]:
    """Return the different rows, and for each row its number among them."""
    numbers: dict[Row, int] = {}
    places = (numbers.setdefault(row, len(numbers)) for row in rows)
    counted = np.fromiter(places, np.int64, len(rows))
    return list(numbers), counted


def _by_length(rows: Sequence[tuple[str, ...]]) -> list[int]:
    """Sort by length, then by text: batches, and so rounding, do not depend on the order given."""
    return sorted(range(len(rows)), key=lambda row: (sum(map(len, rows[row])), rows[row]))


@contextmanager
def _running(classifier: Classifier, precision: str) -> Iterator[Any]:
    """Give the model as it labels: without dropout and gradients, in a precision.

    The classifier keeps its own weights, in float32, and its mode.
    """
    model: Any = classifier.model
    dtype = choose_precision(precision, classifier.device)
    was_training = model.training
    with torch.inference_mode():
        if dtype is torch.float32:
            ours = model
        else:
            ours = copy.deepcopy(model).to(dtype)
            vars(ours).pop("forward", None)  # a trainer's, which leads to the model it trains
        try:
            yield ours.eval()
        finally:
            model.train(was_training)


def _ahead(
    encode: Callable[[list[int]], Made], order: list[int]
) -> Iterator[tuple[list[int], Made]]:
    """Yield some thousand rows and what is made of them, the next made while these are used."""
    parts = [order[at : at + _TEXTS_AT_ONCE] for at in range(0, len(order), _TEXTS_AT_ONCE)]
    with ThreadPoolExecutor(1) as pool:
        coming = [pool.submit(encode, part) for part in parts[:1]]
        for number, part in enumerate(parts):
            made = coming.pop().result()
            coming += [pool.submit(encode, after) for after in parts[number + 1 : number + 2]]
            yield part, made


def _label_texts(
    classifier: Classifier,
    model: Any,
    encoded: Encoded,
    batch_tokens: int | None,
    progress: Steps | None,
) -> NDArray[np.float32]:
    """Return the probabilities of some encoded texts, (texts, labels)."""
    rows: list[NDArray[np.int64]] = []
    found: list[Tensor] = []
    for some, inputs in _batches(classifier, encoded, batch_tokens):
        logits = model(**inputs).logits.float()  # (batch, labels)
        found.append(logits.sigmoid() if classifier.kind == "multi" else logits.softmax(dim=-1))
        rows.append(some)
        if progress is not None:
            progress.advance(len(some))
    result = np.empty((len(encoded.lengths), len(classifier.labels)), np.float32)
    result[np.concatenate(rows)] = torch.cat(found).cpu().numpy()
    return result


def _label_windows(
    classifier: Classifier, model: Any, windows: list[Window], batch_tokens: int | None
) -> list[NDArray[np.float32]]:
    """Return the probabilities of the tags of each window's words, each (words, tags)."""
    if not windows:
        return []
    lengths = np.array([len(window.token_ids) for window in windows], np.int64)
    encoded = Encoded(np.concatenate([window.token_ids for window in windows]), None, lengths)
    rows: list[NDArray[np.int64]] = []
    found: list[Tensor] = []
    for some, inputs in _batches(classifier, encoded, batch_tokens):
        logits = model(**inputs).logits  # (batch, width, tags)
        width = logits.shape[1]
        places = [number * width + windows[row].word_starts for number, row in enumerate(some)]
        asked = torch.from_numpy(np.concatenate(places)).to(logits.device)
        found.append(logits.flatten(0, 1)[asked].float().softmax(dim=-1))  # (words, tags)
        rows.append(some)
    order = np.concatenate(rows)
    ends = np.cumsum([len(windows[row].word_starts) for row in order])
    parts = np.split(torch.cat(found).cpu().numpy(), ends[:-1])
    return [parts[number] for number in np.argsort(order)]


def _batches(
    classifier: Classifier, encoded: Encoded, batch_tokens: int | None
) -> Iterator[tuple[NDArray[np.int64], dict[str, Tensor]]]:
    padding = classifier.tokenizer.pad_token_id
    return batches(
        encoded,
        longest=classifier.max_length,
        padding=int(padding or 0),
        device=classifier.device,
        batch_tokens=batch_tokens,
    )


def _check_finite(finite: NDArray[np.bool_], rows: Sequence[Any], name: str) -> None:
    if not finite.all():
        raise TilthError(
            f"model {name!r} gives no number for {rows[int(np.argmin(finite))]!r:.80}: its "
            "weights may be broken: load another, or use precision float32"
        )

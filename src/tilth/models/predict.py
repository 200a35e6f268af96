"""Predict probabilities of classes and tags for many texts.

Texts are sorted by length and batched with similar ones, each distinct text once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.errors import InputError, TilthError
from tilth.models.cores import share_weights, take_turns
from tilth.models.device import choose_precision
from tilth.models.onnx import OnnxModel
from tilth.models.packed_weights import with_packed_weights
from tilth.models.token_batches import (
    TEXTS_AT_ONCE,
    Encoded,
    Window,
    batches,
    encode_texts,
    encode_words,
    uses_token_type_ids,
)
from tilth.models.truncation import warn_of_cuts
from tilth.models.unpadded import is_unpadded, unpadded

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier
    from tilth.runs import Progress

# onnxruntime is faster on batches that stay in a core's cache.
_ONNX_TOKENS = 384

Row = TypeVar("Row", bound=Hashable)
Made = TypeVar("Made")


def probabilities(
    classifier: Classifier,
    texts: Sequence[tuple[str, ...]],
    *,
    precision: str = "auto",
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Return the class probabilities of each text or pair, (texts, labels).

    A row sums to 1 where a text has one class. A text longer than the model reads is cut.

    Args:
        texts: each row's texts, one or two.
        precision: of matrix products, `auto`, `float32`, `bfloat16` or `float16`.
    """
    if classifier.kind == "tags":
        raise InputError(f"model {classifier.name!r} is a tagger: it labels tokens, not texts")
    reads = classifier.texts_per_input
    for index, row in enumerate(texts):
        is_row = hasattr(row, "__len__") and not isinstance(row, str) and len(row) in (1, 2)
        if not is_row or not all(isinstance(text, str) for text in row):
            raise InputError(f"text {index}: {row!r:.80} is neither a text nor a pair of texts")
        if reads not in (None, len(row)):
            other = "pairs of texts" if reads == 2 else "single texts"
            raise InputError(f"text {index}: {row!r:.80}: model {classifier.name!r} reads {other}")
    unique, inverse = _unique_rows(texts)
    one_by_one = classifier.kind in ("multi", "number")
    activation = torch.sigmoid if one_by_one else partial(torch.softmax, dim=-1)
    with _running(classifier, precision) as model:
        found, cut = text_outputs(
            model, classifier.tokenizer, unique, classifier.max_length, activation,
            progress=progress,
        )  # fmt: skip
    warn_of_cuts(cut, len(unique), classifier.max_length, classifier.name)
    _check_finite(np.asarray(np.isfinite(found).all(axis=1)), unique, classifier.name)
    if progress is not None:
        progress.advance(len(texts) - len(unique))
    return found[inverse]  # (texts, labels)


def text_outputs(
    model: Any,
    tokenizer: Any,
    texts: Sequence[tuple[str, ...]],
    max_length: int,
    activation: Callable[[Tensor], Tensor],
    *,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
    seen: Callable[[Encoded], None] = lambda _: None,
) -> tuple[NDArray[np.float32], int]:
    """Return a model's outputs for texts or pairs, and how many of them were cut.

    Args:
        activation: of the logits of a batch.
        seen: called with the token ids of some thousand texts at a time.

    Returns:
        The outputs, (texts, labels), and the number of truncated texts.
    """
    with_types = uses_token_type_ids(model, tokenizer)
    found = np.empty((len(texts), model.config.num_labels), np.float32)
    cut, lock = 0, Lock()

    def encode(rows: list[int]) -> Encoded:
        some = [texts[row] for row in rows]
        return encode_texts(tokenizer, some, max_length, with_types=with_types)

    def label(ours: Any, some: NDArray[np.int64], inputs: dict[str, Tensor]) -> Tensor:
        given = activation(ours(**inputs).logits.float())  # (batch, labels)
        if progress is not None:
            with lock:
                progress.advance(len(some))
        return given

    for rows, encoded in _encode_ahead(encode, texts):
        with unpadded(model, first_only=True):
            done, given = _each_batch(
                model, label, encoded, longest=max_length, padding=int(tokenizer.pad_token_id or 0),
                batch_tokens=batch_tokens,
            )  # fmt: skip
        # Read from the GPU once for all batches.
        found[np.array(rows)[np.concatenate(done)]] = torch.cat(given).cpu().numpy()
        cut += encoded.cut
        seen(encoded)
    return found, cut


def _each_batch(
    model: Any,
    work: Callable[[Any, NDArray[np.int64], dict[str, Tensor]], Tensor],
    encoded: Encoded,
    **how: Any,
) -> tuple[list[NDArray[np.int64]], list[Tensor]]:
    """Return the rows of each batch, and what `work` makes of model, rows and inputs.

    On a processor each core takes the next batch, the widest first: the threads of torch and of
    onnxruntime divide the products of one batch, which are too small for them.
    """
    if isinstance(model, OnnxModel):
        how["batch_tokens"] = how.get("batch_tokens") or _ONNX_TOKENS
    some = batches(
        encoded, device=model.device, is_float32=_is_float32(model), is_unpadded=is_unpadded(model),
        **how,
    )  # fmt: skip
    cores = torch.get_num_threads() if model.device.type == "cpu" else 1
    if cores > 1:
        every = list(some)
        cores, some = min(cores, len(every)), iter(every)
    if cores == 1:
        rows, found = zip(*((one, work(model, one, inputs)) for one, inputs in some), strict=True)
        return list(rows), list(found)
    made: list[Any] = [None] * len(every)

    @torch.inference_mode()
    def run(ours: Any, place: int) -> None:
        made[place] = work(ours, *every[place])

    own = [model if isinstance(model, OnnxModel) else share_weights(model) for _ in range(cores)]
    take_turns(own, len(every), run)
    return [one for one, _ in every], made


def tag_probabilities(
    classifier: Classifier,
    tokens: Sequence[Sequence[str]],
    *,
    precision: str = "auto",
    progress: Progress | None = None,
) -> list[NDArray[np.float32]]:
    """Return the tag probabilities of each sentence's words, each (words, tags).

    A word takes those of its first token. A sentence longer than the model reads is split into
    windows; a word's probabilities are from the window with most context around it.

    Args:
        precision: of matrix products, `auto`, `float32`, `bfloat16` or `float16`.
    """
    if classifier.kind != "tags":
        raise InputError(f"model {classifier.name!r} is no tagger: it labels texts, not tokens")
    unique, inverse = _unique_rows([tuple(sentence) for sentence in tokens])
    found = [np.zeros((len(row), len(classifier.labels)), np.float32) for row in unique]

    def encode(rows: list[int]) -> list[Window]:
        some = [unique[row] for row in rows]
        return encode_words(classifier.tokenizer, some, classifier.max_length)

    with _running(classifier, precision) as model:
        for rows, windows in _encode_ahead(encode, unique):
            labelled = _label_windows(classifier, model, windows)
            for window, words in zip(windows, labelled, strict=True):
                found[rows[window.row]][window.first : window.first + len(words)] = words
            if progress is not None:
                progress.advance(len(rows))
    finite = np.array([bool(np.isfinite(rows).all()) for rows in found], bool)
    _check_finite(finite, unique, classifier.name)
    if progress is not None:
        progress.advance(len(tokens) - len(unique))
    return [found[index] for index in inverse]


def _unique_rows(rows: Sequence[Row]) -> tuple[list[Row], NDArray[np.int64]]:
    """Return the distinct rows, and each row's index among them."""
    numbers: dict[Row, int] = {}
    inverse = (numbers.setdefault(row, len(numbers)) for row in rows)
    indices = np.fromiter(inverse, np.int64, len(rows))
    return list(numbers), indices


@contextmanager
def _running(classifier: Classifier, precision: str) -> Iterator[Any]:
    """Yield the model in a precision, without dropout and gradients; restore the classifier."""
    model: Any = classifier.model
    dtype = choose_precision(precision, classifier.device)
    was_training = model.training
    with torch.inference_mode():
        if dtype is torch.float32 or isinstance(model, OnnxModel):
            ours = model
        else:
            ours = copy.deepcopy(model).to(dtype)
            vars(ours).pop("forward", None)  # a trainer's, which leads to the model it trains
            ours = with_packed_weights(ours)
        try:
            yield ours.eval()
        finally:
            model.train(was_training)


def _encode_ahead(
    encode: Callable[[list[int]], Made], rows: Sequence[tuple[str, ...]]
) -> Iterator[tuple[list[int], Made]]:
    """Yield some thousand rows and their encoding; encode the next ones in the meantime.

    Sorted by length, then text: batches, and so rounding, do not depend on the order given.
    """
    order = sorted(range(len(rows)), key=lambda row: (sum(map(len, rows[row])), rows[row]))
    parts = [order[at : at + TEXTS_AT_ONCE] for at in range(0, len(order), TEXTS_AT_ONCE)]
    with ThreadPoolExecutor(1) as pool:
        coming = [pool.submit(encode, part) for part in parts[:1]]
        for number, part in enumerate(parts):
            made = coming.pop().result()
            coming += [pool.submit(encode, after) for after in parts[number + 1 : number + 2]]
            yield part, made


def _label_windows(
    classifier: Classifier, model: Any, windows: list[Window]
) -> list[NDArray[np.float32]]:
    """Return the tag probabilities of each window's words, each (words, tags)."""
    if not windows:
        return []
    lengths = np.array([len(window.token_ids) for window in windows], np.int64)
    encoded = Encoded(np.concatenate([window.token_ids for window in windows]), None, lengths)

    def label(ours: Any, some: NDArray[np.int64], inputs: dict[str, Tensor]) -> Tensor:
        logits = ours(**inputs).logits  # (batch, width, tags)
        width = logits.shape[1]
        starts = [number * width + windows[row].word_starts for number, row in enumerate(some)]
        asked = torch.from_numpy(np.concatenate(starts)).to(logits.device)
        found: Tensor = logits.flatten(0, 1)[asked].float().softmax(dim=-1)  # (words, tags)
        return found

    with unpadded(model):
        rows, found = _each_batch(
            model, label, encoded, longest=classifier.max_length,
            padding=int(classifier.tokenizer.pad_token_id or 0),
        )  # fmt: skip
    order = np.concatenate(rows)
    ends = np.cumsum([len(windows[row].word_starts) for row in order])
    parts = np.split(torch.cat(found).cpu().numpy(), ends[:-1])
    return [parts[number] for number in np.argsort(order)]


def _is_float32(model: Any) -> bool:
    """Return whether a model computes in float32; an exported one has no kernels for one length."""
    return isinstance(model, OnnxModel) or model.dtype == torch.float32


def _check_finite(finite: NDArray[np.bool_], rows: Sequence[Any], name: str) -> None:
    if not finite.all():
        raise TilthError(
            f"model {name!r} returned NaN for {rows[int(np.argmin(finite))]!r:.80}: its "
            "weights may be broken: load another, or use precision float32"
        )

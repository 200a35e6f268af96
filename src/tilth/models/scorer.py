"""Load a scorer by name: the semantic similarity of two texts, 0 to 100."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tilth.errors import InputError, TilthError
from tilth.models import names
from tilth.models.device import choose_device, choose_precision
from tilth.models.embed import embed, unit
from tilth.models.encoder import fingerprint_encoder, load_encoder
from tilth.models.predict import text_outputs
from tilth.models.pretrained import fingerprint_model, load_pretrained, max_input_tokens
from tilth.models.token_batches import Encoded

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

_TOKENS = {"cpu": 4096, "cuda": 65_536}  # of a batch, padding included
_CUT = "%d of %d pairs are longer than the %d tokens that the scorer reads: both texts were cut"
_UNKNOWN = (
    "%d of %d pairs are mostly of characters that the scorer does not know: their meaning says "
    "little"
)


@dataclass(frozen=True, slots=True)
class Scorer:
    """A loaded scorer of semantic similarity.

    Attributes:
        kind: `cross-encoder`, which reads both texts at once, or `cosine`, of two vectors.
        fingerprint: changes when a weight, the vocabulary or the precision changes.
        score: a function of lists of texts; use `scores`.
    """

    name: str
    kind: str
    fingerprint: str
    score: Callable[[list[str], list[str]], NDArray[np.float32]]

    def scores(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float32]:
        """Return the semantic similarity of each pair, 0 to 100, (pairs,).

        A pair's score depends on no other pair, but for rounding. A text longer than the model
        reads is cut; a cross-encoder logs how many pairs were.

        Raises:
            InputError: there are not as many second texts, or one is not a string.
            TilthError: the model returned NaN.
        """
        if len(first) != len(second):
            raise InputError(
                f"{len(first)} first texts and {len(second)} second ones: give both of each pair"
            )
        for index, pair in enumerate(zip(first, second, strict=True)):
            if not all(isinstance(text, str) for text in pair):
                raise InputError(f"pair {index}: {pair!r:.80} are not two texts: leave it out")
        if not len(first):
            return np.empty(0, np.float32)
        found = self.score(list(first), list(second))
        finite = np.isfinite(found)
        if not finite.all():
            raise TilthError(
                f"scorer {self.name!r} returned NaN for {first[int(np.argmin(finite))]!r:.80}: "
                "its weights may be broken: load another, or use precision float32"
            )
        return found


def load_scorer(name: str = "starter", *, device: str = "auto", precision: str = "auto") -> Scorer:
    """Load a scorer of semantic similarity by name.

    Args:
        name: a folder or a hub id of a cross-encoder with one output, such as
            `cross-encoder/stsb-roberta-base`; or `cosine:NAME`, 100 times the cosine of the
            vectors of an encoder that `load_encoder` knows, 0 where negative; or `starter`, the
            cosine of `starter-encoder`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: of matrix products, `auto`, `float32`, `bfloat16` or `float16`; the weights
            stay in float32.

    Raises:
        InputError: there is no such model, or it does not give one similarity for two texts.
    """
    place, name = choose_device(device), names.name_of(name, "scorer")
    dtype = choose_precision(precision, place)
    if names.is_cosine(name):
        encoder = load_encoder(name.removeprefix(names.COSINE), device=device)
        print_of = ("cosine", fingerprint_encoder(encoder), dtype)
        return Scorer(name, "cosine", _digest(print_of), partial(_cosine_scores, encoder, dtype))
    from transformers import AutoModelForSequenceClassification

    model, tokenizer, drawn = load_pretrained(
        name, names.SCORER, AutoModelForSequenceClassification, device=place, new_head=True
    )
    _check_head(model, drawn, name)
    print_of = ("cross-encoder", fingerprint_model(model, tokenizer), dtype)
    scores = CrossEncoder(model, tokenizer, dtype).scores
    return Scorer(name, "cross-encoder", _digest(print_of), scores)


def _digest(parts: tuple[object, ...]) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _check_head(model: Any, drawn: list[str], name: str) -> None:
    """Refuse an untrained head, several outputs, or an output that is not made for a sigmoid.

    A config without an activation means a sigmoid, as in sentence-transformers.
    """
    if drawn:
        raise InputError(
            f"scorer {name!r} has no trained head ({drawn[0]} is not in its weights): give a "
            f"cross-encoder of similarity, or {names.COSINE}{name} for an encoder"
        )
    config = model.config
    if config.num_labels != 1:
        raise InputError(
            f"scorer {name!r} has {config.num_labels} outputs: give one that has a single "
            "output, the similarity, such as cross-encoder/stsb-roberta-base"
        )
    saved = getattr(config, "sentence_transformers", None) or {}
    older = getattr(config, "sbert_ce_default_activation_function", None)
    named = saved.get("activation_fn") or older
    if named is None and getattr(config, "problem_type", None) == "regression":
        named = "regression"
    if named is not None and not str(named).endswith(".Sigmoid"):
        raise InputError(
            f"scorer {name!r} gives raw values ({named}), not a similarity from 0 to 1: give a "
            "cross-encoder whose output is a sigmoid's, such as cross-encoder/stsb-roberta-base"
        )


def _autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[Any]:
    return nullcontext() if dtype is torch.float32 else torch.autocast(device.type, dtype)


class CrossEncoder:
    """Scores pairs with a model that reads both texts together."""

    def __init__(self, model: Any, tokenizer: Any, dtype: torch.dtype) -> None:
        self.model, self.tokenizer, self.dtype = model, tokenizer, dtype
        self.device = torch.device(model.device)
        self.max_length = max_input_tokens(model.config, tokenizer)

    @torch.inference_mode()
    def scores(self, first: list[str], second: list[str]) -> NDArray[np.float32]:
        """Return 0 to 100 for each pair, (pairs,)."""
        unknown = 0

        def count(encoded: Encoded) -> None:
            nonlocal unknown
            unknown += self._mostly_unknown(encoded)

        pairs = list(zip(first, second, strict=True))
        with _autocast(self.device, self.dtype):
            found, cut = text_outputs(
                self.model, self.tokenizer, pairs, self.max_length, torch.sigmoid,
                batch_tokens=_TOKENS[self.device.type], seen=count,
            )  # fmt: skip
        if cut:
            log.warning(_CUT, cut, len(first), self.max_length)
        if unknown:
            log.warning(_UNKNOWN, unknown, len(first))
        return 100 * found[:, 0]

    def _mostly_unknown(self, encoded: Encoded) -> int:
        """Count the pairs with at least half of their tokens unknown."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None:
            return 0
        special = self.tokenizer.num_special_tokens_to_add(pair=True)
        pairs = np.repeat(np.arange(len(encoded.lengths)), encoded.lengths)  # (tokens,)
        count = np.bincount(pairs[encoded.ids == unknown], minlength=len(encoded.lengths))
        return int((2 * count >= np.maximum(encoded.lengths - special, 1)).sum())


def _cosine_scores(
    encoder: SentenceTransformer, dtype: torch.dtype, first: list[str], second: list[str]
) -> NDArray[np.float32]:
    """Return 0 to 100 for each pair, (pairs,); each distinct text is encoded once."""
    texts = sorted({*first, *second}, key=lambda text: (len(text), text))
    vectors = unit(embed(encoder, texts, dtype=dtype))  # (texts, width)
    index = {text: number for number, text in enumerate(texts)}
    one, two = (vectors[[index[text] for text in side]] for side in (first, second))
    cosines = np.einsum("pw,pw->p", one, two, dtype=np.float32)  # (pairs,)
    found: NDArray[np.float32] = np.clip(100 * cosines, 0, 100)
    return found

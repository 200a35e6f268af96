"""Check polarity: whether one text of a pair negates the other."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tilth.errors import InputError
from tilth.models.device import choose_device, choose_precision
from tilth.models.names import SCORER, starter_path
from tilth.models.pretrained import open_model, weight_bytes
from tilth.models.scorer import CrossEncoder

# Words with a negating prefix, which a small vocabulary splits, are compared by rule.
_PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non")
_OTHER_WORDS = {"discover", "display", "inform", "income", "indeed", "input", "inside", "intend"}
_SHORTEST = 4  # letters of a word that may be negated by a prefix
_NEGATION = re.compile(
    r"\b(?:not|never|no|nobody|none|nothing|neither|nor|without|hardly|barely|cannot)\b|n't\b"
)
DOWN, UP = ".update_down", ".update_up"  # of each updated matrix: (rank, in) and (out, rank)


@dataclass(frozen=True, slots=True)
class Polarity:
    """A loaded polarity check, a cross-encoder and a rule.

    Attributes:
        fingerprint: changes when a weight or the threshold changes.
        threshold: probability above which a pair counts as a flip.
    """

    fingerprint: str
    threshold: float
    model: CrossEncoder

    def probabilities(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float32]:
        """Return the probability that each pair's texts contradict each other, (pairs,)."""
        if not len(first):
            return np.empty(0, np.float32)
        return (self.model.scores(list(first), list(second)) / 100).astype(np.float32)

    def flips(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.bool_]:
        """Return whether each pair counts as a flip, (pairs,)."""
        found: NDArray[np.bool_] = self.probabilities(first, second) > self.threshold
        prefixed = [has_prefixed(*pair) for pair in zip(first, second, strict=True)]
        return found | np.array(prefixed, np.bool_)


def has_prefixed(first: str, second: str) -> bool:
    """Return whether texts differ by a negating prefix of a word, with other negations balanced.

    Example:
        >>> has_prefixed("The answer is correct.", "The answer is incorrect.")
        True
        >>> has_prefixed("He is unfriendly.", "He isn't friendly.")
        False
    """
    texts = [text.lower().replace("\u2019", "'") for text in (first, second)]
    if len({len(_NEGATION.findall(text)) % 2 for text in texts}) > 1:
        return False
    one, two = (set(re.findall(r"[a-z]+", text)) for text in texts)
    return any(
        word.removeprefix(prefix) in other and len(word) >= len(prefix) + _SHORTEST
        for mine, other in ((one - two, two - one), (two - one, one - two))
        for word in mine - _OTHER_WORDS
        for prefix in _PREFIXES
        if word.startswith(prefix)
    )


def has_polarity() -> bool:
    """Return whether the check's weights, part of tilth-starter, are installed."""
    try:
        starter_path("polarity")
    except InputError:
        return False
    return True


def load_polarity(*, device: str = "auto", precision: str = "auto") -> Polarity:
    """Load the polarity check of tilth-starter, for English texts.

    It is `starter-encoder` with a low-rank update, used as a cross-encoder with one output; a rule
    also compares words with a negating prefix. `precision` is that of matrix products.
    """
    from safetensors.torch import load_file

    place = choose_device(device)
    folder = starter_path("polarity")
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    update = load_file(folder / "model.safetensors")
    model, tokenizer = new_polarity_model()
    model.load_state_dict(add_low_rank_update(model, update))
    digest = hashlib.blake2b(repr(settings).encode(), digest_size=8)
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + weight_bytes(value.float()))
    pairs = CrossEncoder(model.to(place), tokenizer, choose_precision(precision, place))
    return Polarity(digest.hexdigest(), float(settings["threshold"]), pairs)


def new_polarity_model() -> tuple[Any, Any]:
    """Return starter-encoder with an untrained head of one output, and its tokenizer."""
    from transformers import AutoModelForSequenceClassification

    files = open_model("starter-encoder", SCORER)
    tokenizer, config = files.tokenizer(), files.config()
    config.num_labels = 1
    kind = AutoModelForSequenceClassification
    model, _ = files.model(kind, tokenizer, config=config, new_head=True)
    return model, tokenizer


def add_low_rank_update(model: Any, update: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a model's weights with an update added: matrices by their products, others replaced.

    `update` maps names to values; a matrix's two factors are under its module's name and DOWN, UP.
    """
    weights = dict(model.state_dict())
    for name, value in update.items():
        if name.endswith(DOWN):
            module = name.removesuffix(DOWN)
            weights[f"{module}.weight"] = weights[f"{module}.weight"] + (
                update[module + UP].float() @ value.float()
            )  # (out, in)
        elif not name.endswith(UP):
            weights[name] = value.float()
    return weights

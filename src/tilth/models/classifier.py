"""Load a finished classifier or tagger by name, or give an encoder a new head to train."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from tilth.errors import InputError
from tilth.models import names
from tilth.models.device import choose_device
from tilth.models.encoder import pooling_of
from tilth.models.onnx import OnnxModel
from tilth.models.pretrained import (
    DROPOUTS,
    ModelFiles,
    add_weight,
    architectures_of,
    is_generative,
    max_input_tokens,
    open_model,
    save_transformer,
    weights_drawn,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Kind: TypeAlias = Literal["class", "multi", "tags", "number"]
_PROBLEMS = {"class": "single_label_classification", "multi": "multi_label_classification"}
# What `load_scorer` and sentence-transformers read of a model with one output.
_SIGMOID = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
# How much the mean outweighs the first token that it is added to, before it is normalised.
_GAIN = 30.0
_SLOPE = 0.5  # of the layer between, whose tanh is nearly linear then


class ClassifierRows(Protocol):
    """Rows that a classifier or a tagger reads."""

    @property
    def texts(self) -> Sequence[tuple[str, ...]]:
        """Each row's texts, one or two."""

    @property
    def tokens(self) -> Sequence[Sequence[str]] | None:
        """Each row's tokens, for a tagger."""


@dataclass(frozen=True, slots=True, repr=False)
class Classifier:
    """A loaded classifier or tagger; the model is float32, in evaluation mode on its device.

    Attributes:
        kind: `class`: each text has one class; `multi`: any number of them; `tags`: each token
            has a tag; `number`: each pair has a similarity, 0 to 1 (see `load_scorer`).
        labels: the classes or tags, in the order of the outputs.
        max_length: maximum tokens of a text.
        fresh: names of the untrained weights.
        reads_embedding: whether a new head reads a sentence encoder's embedding.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    kind: Kind
    labels: list[str]
    name: str
    max_length: int
    fresh: frozenset[str] = frozenset()
    reads_embedding: bool = False

    def __repr__(self) -> str:
        """Return one line, without the network."""
        some = ", ".join(self.labels[:8]) + ", ..." * (len(self.labels) > 8)
        millions = self.model.num_parameters() / 1e6
        return (
            f"Classifier({self.name!r}, {self.kind} of {len(self.labels)} labels: {some}; "
            f"{self.model.config.model_type}, {millions:.1f} million parameters)"
        )

    @property
    def texts_per_input(self) -> int | None:
        """Texts in each input that it was trained on: 1, or 2 of pairs; None: not known."""
        found: int | None = getattr(self.model.config, "texts_per_input", None)
        return found if found in (1, 2) else None

    def note_texts(self, per_input: int) -> None:
        """Note what it is trained on, in config.json once it is saved."""
        self.model.config.texts_per_input = per_input

    @property
    def word_rules(self) -> dict[str, Any]:
        """Rules that cut a text into words as in the set it was trained on; empty: not known."""
        found = getattr(self.model.config, "word_rules", None)
        return found if isinstance(found, dict) else {}

    def note_words(self, rules: dict[str, Any]) -> None:
        """Note such rules, in config.json once it is saved."""
        self.model.config.word_rules = rules

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return torch.device(self.model.device)

    def save(self, folder: Path) -> None:
        """Save as a transformers folder with safetensors weights."""
        save_transformer(self.model, self.tokenizer, folder)

    def probabilities(
        self, texts: Sequence[str | tuple[str, ...]], **options: Any
    ) -> NDArray[np.float32]:
        """Return class probabilities, (texts, labels); options as in `predict.probabilities`."""
        from tilth.models.predict import probabilities

        if isinstance(texts, str):
            raise InputError(f"texts is one text, {texts!r:.80}: give a list of texts")
        rows = [(text,) if isinstance(text, str) else text for text in texts]
        return probabilities(self, rows, **options)

    def tag_probabilities(
        self, tokens: Sequence[Sequence[str]], **options: Any
    ) -> list[NDArray[np.float32]]:
        """Return tag probabilities, each (tokens, tags); options: `predict.tag_probabilities`."""
        from tilth.models.predict import tag_probabilities

        return tag_probabilities(self, tokens, **options)

    def answers(self, rows: ClassifierRows, **options: Any) -> Any:
        """Return `tag_probabilities` for a tagger, else `probabilities`."""
        if self.kind == "tags":
            return self.tag_probabilities(rows.tokens or [], **options)
        return self.probabilities(rows.texts, **options)


def load_classifier(name: str, *, device: str = "auto", numbers: bool = False) -> Classifier:
    """Load a finished classifier or tagger by name, in float32.

    Args:
        name: a training run, a folder, also of `tilth export`, or a hub id.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; an exported model runs on the processor.
        numbers: load a model that gives a number; else it is refused.

    Raises:
        InputError: there is no such model, or its weights hold no classification head.
    """
    place, name = choose_device(device), names.name_of(name)
    files, config, tokenizer = _open(name)
    kinds = [str(kind) for kind in getattr(config, "architectures", None) or []]
    is_tagger = any(kind.endswith("ForTokenClassification") for kind in kinds)
    remedy = f"train one, tilth train classifier --base {name}"
    if not is_tagger and not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        raise InputError(
            f"model {name!r} has no classifying head ({architectures_of(config)}): {remedy}"
        )
    exported = Path(files.source.name) / names.ONNX
    drawn: list[str] = []
    model: Any
    if exported.is_file():
        model = OnnxModel(exported, config)
        place = choose_device("cpu")
    else:
        auto_class = _auto_class(is_tagger=is_tagger)
        model, drawn = files.model(auto_class, tokenizer, config=config, new_head=True)
    if drawn:
        raise InputError(
            f"model {name!r} has no trained head ({drawn[0]} is not in its weights): {remedy}"
        )
    multi = config.problem_type == _PROBLEMS["multi"]
    labels = [str(config.id2label[index]) for index in range(config.num_labels)]
    number = config.problem_type == "regression" or (len(labels) == 1 and not multi)
    if number and not numbers:
        raise InputError(
            f"model {name!r} gives a number, not a class: give a classifier with classes"
        )
    kind: Kind = "tags" if is_tagger else "multi" if multi else "number" if number else "class"
    longest = max_input_tokens(config, tokenizer)
    return Classifier(model.to(place), tokenizer, kind, labels, name, longest)


def new_classifier(
    base: str,
    *,
    kind: Kind,
    labels: Sequence[str],
    seed: int = 0,
    dropout: float | None = None,
    max_length: int | None = None,
    device: str = "auto",
) -> Classifier:
    """Give an encoder a new head to train.

    The head reads what its architecture reads: starter-mlm the mean of the tokens, BERT its
    pooled first token; but that of a BERT or RoBERTa saved as a sentence encoder reads what this
    pools: the mean of the tokens or the first one.

    Args:
        base: `starter-mlm`, `starter-small`, `starter-encoder`, a folder, a training run, or the
            hub id of an encoder.
        dropout: for every part of the model, 0 to 1; None: as saved.
        max_length: tokens of a text; None: as many as the model reads.
    """
    _check_labels(kind, labels)
    if dropout is not None and not 0 <= dropout < 1:
        raise InputError(f"dropout is {dropout}: give a fraction from 0 to below 1, such as 0.1")
    place = choose_device(device)
    files, config, tokenizer = _open(base)
    if is_generative(config):
        raise InputError(
            f"base {base!r} is a generative language model ({architectures_of(config)}): give an "
            "encoder, such as a masked language model"
        )
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: index for index, label in enumerate(labels)}
    config.problem_type = _PROBLEMS.get(kind)
    if kind == "number":
        config.sentence_transformers = _SIGMOID
    if dropout is not None:
        _set_dropout(config, dropout)
    limit = max_input_tokens(config, tokenizer)
    if max_length is not None and not 4 <= max_length <= limit:
        raise InputError(f"max_length is {max_length}: base {base!r} reads 4 to {limit} tokens")
    tokenizer.model_max_length = max_length or limit  # saved with the tokenizer
    with weights_drawn(seed):
        auto_class = _auto_class(is_tagger=kind == "tags")
        model, drawn = files.model(auto_class, tokenizer, config=config, new_head=True)
        fresh = frozenset(drawn) | _reinit_head(model)
    reads_embedding = kind != "tags" and _read_embedding(model, files)
    return Classifier(
        model.to(place).eval(), tokenizer, kind, list(labels), base, max_length or limit, fresh,
        reads_embedding,
    )  # fmt: skip


def fingerprint_classifier(classifier: Classifier) -> str:
    """Return 16 hex digits over kind, labels, vocabulary and every weight but new ones.

    A classifier to be trained thus has its base's fingerprint, whatever the device and precision.
    """
    digest = hashlib.blake2b(digest_size=8)
    about = (classifier.kind, classifier.labels, classifier.max_length)
    digest.update(repr((type(classifier.model).__name__, *about)).encode())
    digest.update(repr(sorted(classifier.tokenizer.get_vocab().items())).encode())
    for key, tensor in sorted(classifier.model.state_dict().items()):
        if key not in classifier.fresh:
            add_weight(digest, key, tensor)
    return digest.hexdigest()


def _open(name: str) -> tuple[ModelFiles, Any, Any]:
    """Return a model's files, its config and its tokenizer."""
    files = open_model(name, names.CLASSIFIER)
    return files, files.config(), files.tokenizer(has_padding=True)


def _auto_class(*, is_tagger: bool) -> Any:
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    return AutoModelForTokenClassification if is_tagger else AutoModelForSequenceClassification


def _check_labels(kind: Kind, labels: Sequence[str]) -> None:
    if kind not in ("class", "multi", "tags", "number"):
        raise InputError(f"kind {kind!r} is unknown: use class, multi, tags or number")
    least = 1 if kind in ("multi", "number") else 2
    if len(labels) < least:
        raise InputError(f"labels are {list(labels)}: give at least {least}")
    wrong = next((label for label in labels if not isinstance(label, str) or not label), None)
    if wrong is not None:
        raise InputError(f"label {wrong!r} is no text: give names")
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if list(labels).count(label) > 1)
        raise InputError(f"label {twice!r} is given twice: give each once")


def _set_dropout(config: Any, dropout: float) -> None:
    """Set every dropout in the config of a model that is not yet built."""
    for name in DROPOUTS:
        if hasattr(config, name):
            setattr(config, name, dropout)


def output_layer(model: Any) -> tuple[str, torch.nn.Linear]:
    """Return the name of a classifier's output layer, and the layer."""
    return [
        (name, module) for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ][-1]  # fmt: skip


def _reinit_head(model: Any) -> set[str]:
    """Reinitialise the output layer; return the names of its weights."""
    name, output = output_layer(model)
    torch.nn.init.normal_(output.weight, std=getattr(model.config, "initializer_range", 0.02))
    if output.bias is None:
        return {f"{name}.weight"}
    torch.nn.init.zeros_(output.bias)
    return {f"{name}.weight", f"{name}.bias"}


def _read_embedding(model: Any, files: ModelFiles) -> bool:
    """Make the head of a BERT or RoBERTa read what it pools as a sentence encoder, in place.

    The head reads the first token, which a mean-pooling sentence encoder does not train: logistic
    regression on embeddings of `starter-encoder` is about 75% accurate on sst2, on its first token
    66%. The layer between them is trained with neither.

    Returns:
        Whether it does: the architecture is one of these, saved as a sentence encoder.
    """
    body, between = getattr(model, "bert", None), None
    if body is not None and body.pooler is not None:
        between = body.pooler.dense
    elif (body := getattr(model, "roberta", None)) is not None:
        between = model.classifier.dense
    if between is None:
        return False
    with files.reading():
        pooling = pooling_of(files)
    if pooling == "mean":
        _add_mean_pooling(body)
        model.config.num_hidden_layers += 1
    elif pooling != "cls":
        return False
    _set_diagonal(between, _SLOPE)
    return True


def _add_mean_pooling(body: Any) -> None:
    """Add an attention layer that gives each token the mean of all: a plain transformers model."""
    # Its configuration is the model's, not a copy.
    layer = copy.deepcopy(body.encoder.layer[-1], {id(body.config): body.config})
    attention = layer.attention
    for linear, diagonal in (
        (attention.self.query, 0.0),  # all attention scores are 0
        (attention.self.key, 0.0),
        (attention.self.value, 1.0),
        (attention.output.dense, _GAIN),
        (layer.output.dense, 0.0),
    ):
        _set_diagonal(linear, diagonal)
    for norm in (attention.output.LayerNorm, layer.output.LayerNorm):
        torch.nn.init.ones_(norm.weight)
        torch.nn.init.zeros_(norm.bias)
    body.encoder.layer.append(layer)


@torch.no_grad()
def _set_diagonal(linear: torch.nn.Linear, value: float) -> None:
    linear.weight.zero_()
    linear.weight.fill_diagonal_(value)
    linear.bias.zero_()

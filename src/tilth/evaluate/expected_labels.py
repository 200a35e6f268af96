"""Reads the expected labels of a data set, as indices into a classifier's labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilth.data.examples import Examples, Source, check_texts, read_examples
from tilth.data.formats import TAG
from tilth.data.labels import HOLDS, match_label_names
from tilth.data.readers import row_location
from tilth.errors import InputError

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier

_SHOWN = 8
# Kinds of labels, as a classifier gives them.
_GIVES = {"class": "one label", "multi": "any number of labels", "tags": "a tag for each token"}


def read_gold(
    classifier: Classifier,
    data: Source,
    *,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    split: str = "test",
) -> tuple[Examples, Any]:
    """Read a labelled set; return its rows, and their expected labels as of `gold_of`."""
    examples = read_examples(data, text=text, label=label, split=split)
    return examples, gold_of(classifier, examples, data, split)


def gold_of(classifier: Classifier, examples: Examples, data: Source, split: str) -> Any:
    """Return the expected labels of rows; labels compare as texts.

    Returns:
        Class indices, (rows,); for any number of labels 0 or 1, (rows, labels); for tagged tokens
        the tags of each row.
    """
    labels = examples.labels
    assert labels is not None  # `read_examples` refuses such a set
    where = f"{data}: " if isinstance(data, str | Path) else ""
    check_texts(classifier.name, classifier.texts_per_input, examples.columns, where)
    if labels.kind != classifier.kind:
        raise InputError(
            f"{row_location(data, 0, split)}: the data has {HOLDS[labels.kind]}, "
            f"{classifier.name!r} gives {_GIVES[classifier.kind]}: name another column of labels, "
            "or another model"
        )
    if labels.kind == "tags":
        wrong = next((name for name in classifier.labels if not TAG.fullmatch(name)), None)
        if wrong is not None:
            raise InputError(
                f"{classifier.name!r} gives {wrong!r:.40}, no IOB tag: name its labels O, B-TYPE "
                "or I-TYPE in its config.json"
            )
        types = sorted({name[2:] for name in classifier.labels if name != "O"})
        refuse_unknown(examples, types, data, split, f"{classifier.name!r} gives")
        return labels.values
    names = names_in(classifier, examples)
    refuse_unknown(examples, names, data, split, f"{classifier.name!r} gives")
    classes = [str(value) for value in labels.classes]
    index = [names.index(name) if name in names else -1 for name in classes]
    if labels.kind == "class":
        return np.array([index[ids[0]] for ids in labels.class_ids])  # (rows,)
    gold: NDArray[np.int8] = np.zeros((len(examples), len(classifier.labels)), np.int8)
    for row, ids in enumerate(labels.class_ids):
        gold[row, [index[class_id] for class_id in ids]] = 1
    return gold  # (rows, labels)


def refuse_unknown(
    examples: Examples, known: Sequence[str], data: Source, split: str, whose: str
) -> None:
    """Refuse rows with a label, or a type of entity, that is not known.

    Args:
        data: source of the rows, for messages.
        whose: who knows the labels, and a verb, as in `'model' gives`.
    """
    assert examples.labels is not None
    classes, names = list(map(str, examples.labels.classes)), set(known)
    for row, members in enumerate(examples.labels.class_ids):
        for name in (classes[member] for member in members):
            if name not in names:
                some = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
                where = row_location(data, examples.place(row), split)
                raise InputError(
                    f"{where}: label {name!r:.60} is none that {whose} "
                    f"({some}): rename or remove it, or name another column of labels"
                )


def names_in(classifier: Classifier, examples: Examples) -> list[str]:
    """Return a classifier's labels as the rows spell them."""
    assert examples.labels is not None
    return match_label_names(classifier.labels, examples.labels.classes)


def check_kind(classifier: Classifier, measured: Literal["classify", "tag"]) -> None:
    """Check that a model is a tagger for `tag`, and a classifier of texts for `classify`."""
    is_tagger = classifier.kind == "tags"
    if is_tagger and measured == "classify":
        raise InputError(f"{classifier.name!r} tags tokens: measure it with tilth evaluate tag")
    if not is_tagger and measured == "tag":
        raise InputError(
            f"{classifier.name!r} classifies texts: measure it with tilth evaluate classify"
        )

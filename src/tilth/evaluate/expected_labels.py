"""The right answers of a labelled set, in the labels that a classifier has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilth.data.examples import Examples, Source, read_examples
from tilth.data.labels import TAG, match_label_names
from tilth.data.readers import row_location
from tilth.errors import InputError

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier

_SHOWN = 8


def read_gold(
    classifier: Classifier,
    data: Source,
    *,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    split: str = "test",
) -> tuple[Examples, Any]:
    """Read a labelled set and check that a classifier can be right on it.

    Args:
        classifier: whose labels are meant; they compare as texts.
        data: as in `tilth.data.examples.read_examples`.
        text: see there.
        label: see there.
        split: of a set that has several.

    Returns:
        The rows, and their right answers: places of classes, (rows,); where a row has any number
        of labels 1 for each it has, (rows, labels); of tagged tokens the tags of each row.

    Raises:
        InputError: the data is wrong, of another kind than the classifier, or holds a label that
            the classifier does not have; the message names file and line.
    """
    examples = read_examples(data, text=text, label=label, split=split)

    def where(row: int) -> str:
        return row_location(data, row, split)

    return examples, gold_of(classifier, examples, where)


def gold_of(classifier: Classifier, examples: Examples, where: Callable[[int], str]) -> Any:
    """Return the right answers of rows, as `read_gold` does.

    Args:
        classifier: whose labels are meant.
        examples: labelled.
        where: names the place of a row, for messages.

    Raises:
        InputError: see there.
    """
    labels = examples.labels
    assert labels is not None  # read_examples has refused such a set
    if labels.kind != classifier.kind:
        raise InputError(_other_kind(classifier, labels.kind, where))
    if labels.kind == "tags":
        _check_tags(classifier)
        types = {name[2:] for name in classifier.labels if name != "O"}
        for row, tags in enumerate(labels.values):
            for tag in tags:
                if tag != "O" and tag[2:] not in types:
                    raise _unknown(classifier, tag[2:], sorted(types), where(row))
        return labels.values
    places = {name: place for place, name in enumerate(names_in(classifier, examples))}
    for row, members in enumerate(labels.class_ids):
        for member in members:
            if str(labels.classes[member]) not in places:
                raise _unknown(
                    classifier, str(labels.classes[member]), classifier.labels, where(row)
                )
    own = [places[str(value)] for value in labels.classes]
    if labels.kind == "class":
        return np.array([own[members[0]] for members in labels.class_ids])  # (rows,)
    gold: NDArray[np.int8] = np.zeros((len(examples), len(classifier.labels)), np.int8)
    for row, members in enumerate(labels.class_ids):
        gold[row, [own[member] for member in members]] = 1
    return gold  # (rows, labels)


def names_in(classifier: Classifier, examples: Examples) -> list[str]:
    """Return a classifier's labels as the rows call them; see `match_label_names`."""
    assert examples.labels is not None
    return match_label_names(classifier.labels, examples.labels.classes)


def check_kind(classifier: Classifier, measured: Literal["classify", "tag"]) -> None:
    """Check that a model gives what is to be measured.

    Raises:
        InputError: it is a tagger where texts are classified, or the other way round.
    """
    is_tagger = classifier.kind == "tags"
    if is_tagger and measured == "classify":
        raise InputError(f"{classifier.name!r} tags tokens: measure it with tilth evaluate tag")
    if not is_tagger and measured == "tag":
        raise InputError(
            f"{classifier.name!r} classifies texts: measure it with tilth evaluate classify"
        )


def _check_tags(tagger: Classifier) -> None:
    wrong = next((name for name in tagger.labels if not TAG.fullmatch(name)), None)
    if wrong is not None:
        raise InputError(
            f"{tagger.name!r} gives {wrong!r:.40}, no IOB tag: name its labels O, B-TYPE or I-TYPE "
            "in its config.json"
        )


def _other_kind(classifier: Classifier, kind: str, where: Callable[[int], str]) -> str:
    holds = {
        "class": "one label a row",
        "multi": "a list of labels a row",
        "number": "fractions",
        "tags": "a tag for each token",
    }
    gives = {"class": "one label", "multi": "any number of labels", "tags": "a tag for each token"}
    return (
        f"{where(0)}: the data has {holds[kind]}, {classifier.name!r} gives "
        f"{gives[classifier.kind]}: name another column of labels, or another model"
    )


def _unknown(classifier: Classifier, label: str, known: Sequence[str], where: str) -> InputError:
    some = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
    return InputError(
        f"{where}: label {label!r:.60} is none that {classifier.name!r} gives ({some}): rename or "
        "remove it, or name another column of labels"
    )

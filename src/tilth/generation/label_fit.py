"""Measure how well a text fits its label by its cosine to the label's description."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.formats import as_number
from tilth.errors import InputError
from tilth.generation.task import Task

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

ENCODER = "starter-encoder"
# A text is unrelated to a description below this cosine. Chosen on dev rows with the starter
# encoder: of ten intents of CLINC150, 90% of the rows are nearer to their own label's description
# than this and than to all others, 95% with three examples beside the description; of 400 news
# sentences 1% and 3% are taken for a row of a label.
UNRELATED = 0.2
# The encoder cannot tell labels apart whose descriptions are nearer than this: sentiments are at
# 0.65 to 0.86, the intents of CLINC150 below 0.4 in 99 of 100 pairs.
TOO_ALIKE = 0.6
# A cosine this much larger makes a label e times as likely, as long as no labelled row tells more:
# docs/grow-results.md, "Similarity to descriptions".
COSINE_UNIT = 0.05
_NAMED = 3  # pairs of labels that a warning names
_DECIMALS = 3  # beyond them the cosines of another batch or machine differ
FIT, SIMILARITY = "label_fit", "similarity"


def describe_labels(task: Task) -> dict[str, str]:
    r"""Return each label's descriptions, one per line.

    The first is the task's description of the label, else its instruction without its last line and
    the first words that all instructions share. Its name, unless a number, and its examples follow.

    Example:
        >>> from tilth.generation.task import load_task
        >>> describe_labels(load_task("intents"))["order_status"]
        'check the status of an order.\norder status'
    """
    frames = [label.instruction.rpartition("\n")[0] for label in task.labels]
    if not all(frames):  # one line: all but the opening quotation mark
        frames = [label.instruction.rstrip(' ":') for label in task.labels]
    words = [frame.split() for frame in frames]
    alike = takewhile(lambda heads: len(set(heads)) == 1, zip(*words, strict=False))
    shared = len(list(alike)) if len(words) > 1 else 0
    described = {}
    for label, each in zip(task.labels, words, strict=True):
        name = label.name if as_number(label.name) is None else ""
        lines = [
            label.description or " ".join(each[shared:]),
            name.replace("_", " ").strip(),
            *label.examples,
        ]
        described[label.name] = "\n".join(filter(None, lines)) or label.name
    return described


def similarity_to_descriptions(
    encoder: SentenceTransformer, texts: Sequence[str], descriptions: Sequence[str]
) -> NDArray[np.float32]:
    """Return the cosine of every text to every label's nearest description, (texts, labels).

    Each of `descriptions` holds one label's, one or more lines.
    """
    if not len(texts):
        return np.zeros((0, len(descriptions)), np.float32)
    lines = [description.split("\n") for description in descriptions]
    cosines = (
        _encode(encoder, texts) @ _encode(encoder, [line for each in lines for line in each]).T
    )  # (texts, lines)
    starts = np.cumsum([0, *map(len, lines[:-1])])
    return np.maximum.reduceat(cosines, starts, axis=1)  # (texts, labels)


def _encode(encoder: SentenceTransformer, texts: Sequence[str]) -> NDArray[np.float32]:
    import torch

    from tilth.models.embed import embed, unit

    # In bfloat16 a cosine would differ by the batch, in what a resumed run keeps.
    return unit(embed(encoder, texts, dtype=torch.float32))  # (texts, width)


def fit_column(task: Task) -> str | None:
    """Return the column that holds the fit of a task's texts; None if it is not measured."""
    if task.is_numeric:
        return SIMILARITY if task.is_pair else None
    return None if task.is_pair else FIT


def choose_encoder(task: Task) -> dict[str, Any]:
    """Return the `encoder` that measures the fit, or None, and reasons by unmeasured label.

    Labels that the encoder cannot tell apart are not measured: it would drop good rows.
    """
    column = fit_column(task)
    labels = [label.name for label in task.labels]
    why = "a description says nothing of how two texts belong together"
    if column is None:
        return {"encoder": None, "unmeasured": dict.fromkeys(labels, why)}
    try:
        encoder = fit_encoder()
    except InputError as error:
        log.warning("label-fit is not measured: %s", error)
        why = "the starter encoder is not installed: pip install tilth-starter"
        return {"encoder": None, "unmeasured": dict.fromkeys(labels, why)}
    return {"encoder": ENCODER, "unmeasured": _too_alike(task, encoder) if column == FIT else {}}


@cache
def fit_encoder() -> SentenceTransformer:
    """Load the encoder that measures label fit, once in a process."""
    from tilth.models import load_encoder

    return load_encoder(ENCODER)


def _too_alike(task: Task, encoder: SentenceTransformer) -> dict[str, str]:
    """Return the labels that the encoder cannot tell from another one, and why."""
    cosines = _likeness(encoder, describe_labels(task))
    np.fill_diagonal(cosines, -1)
    return {
        label.name: f"its description is too near to that of {task.labels[nearest].name} "
        f"({cosines[row, nearest]:.2f}) for the encoder"
        for row, (label, nearest) in enumerate(zip(task.labels, cosines.argmax(1), strict=True))
        if cosines[row, nearest] >= TOO_ALIKE
    }


def with_fit(table: pa.Table, task: Task, chosen: dict[str, Any]) -> pa.Table:
    """Append the fit of a part's texts to their labels; `chosen` is from `choose_encoder`.

    `label_fit` is the cosine to the own description minus the larger of the cosine to the nearest
    other label's and `UNRELATED`: above 0, the text fits. For graded pairs, `similarity` is the
    cosine of the two texts. Null where unmeasured and in dropped rows.
    """
    column = fit_column(task)
    if column is None:
        return table
    measured = np.array(
        [
            chosen["encoder"] is not None and reason is None and label not in chosen["unmeasured"]
            for label, reason in zip(
                table["label"].to_pylist(), table["drop_reason"].to_pylist(), strict=True
            )
        ],
        dtype=bool,
    )
    values = np.zeros(len(table), np.float32)
    rows = table.filter(pa.array(measured))
    if len(rows):
        cosines = _fits(rows, task) if column == FIT else _similarities(rows)
        values[measured] = cosines.round(_DECIMALS)
    return table.append_column(column, pa.array(values, mask=~measured))


def _fits(rows: pa.Table, task: Task) -> NDArray[np.float32]:
    cosines = similarity_to_descriptions(
        fit_encoder(), rows["text"].to_pylist(), list(describe_labels(task).values())
    )  # (rows, labels)
    indices = {label.name: index for index, label in enumerate(task.labels)}
    own = np.array([indices[label] for label in rows["label"].to_pylist()])
    fits = np.take_along_axis(cosines, own[:, None], axis=1)[:, 0]
    np.put_along_axis(cosines, own[:, None], -1, axis=1)
    margins: NDArray[np.float32] = fits - cosines.max(axis=1, initial=UNRELATED)
    return margins  # (rows,)


def _similarities(rows: pa.Table) -> NDArray[np.float32]:
    one, two = (rows[name].to_pylist() for name in ("text_a", "text_b"))
    indices = {text: index for index, text in enumerate(dict.fromkeys([*one, *two]))}
    vectors = _encode(fit_encoder(), list(indices))
    first, second = ([indices[text] for text in texts] for texts in (one, two))
    cosines: NDArray[np.float32] = (vectors[first] * vectors[second]).sum(axis=1)
    return cosines  # (rows,)


def _likeness(encoder: Any, described: Mapping[str, str]) -> NDArray[np.float32]:
    """Return the cosines of the first lines of descriptions, (labels, labels)."""
    firsts = [text.partition("\n")[0] for text in described.values()]
    return similarity_to_descriptions(encoder, firsts, firsts)


def warn_of_likes(encoder: Any, described: Mapping[str, str]) -> None:
    """Warn once of labels whose descriptions an encoder hardly tells apart, the most alike first.

    Args:
        described: by label; the first lines are compared.
    """
    cosines = _likeness(encoder, described)
    alike = {
        (label, other): cosines[one, two]
        for (one, label), (two, other) in combinations(enumerate(described), 2)
        if cosines[one, two] > TOO_ALIKE
    }
    if not alike:
        return
    worst = sorted(alike, key=lambda pair: -alike[pair])[:_NAMED]
    named = ", of ".join(
        f"{one!r} and {two!r} (cosine {alike[one, two]:.2f})" for one, two in worst
    )
    more = f", and of {len(alike) - len(worst)} more" if len(alike) > len(worst) else ""
    log.warning(
        "the descriptions of %s%s are alike: the encoder hardly tells their texts apart; describe "
        "what differs, or train a classifier on labelled rows", named, more,
    )  # fmt: skip

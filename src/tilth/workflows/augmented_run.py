"""Training and validation sets of a run of `tilth augment`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tilth.bank.search.decontaminate import Exclusion
from tilth.classifiers.load import TaskSources, check_disjoint
from tilth.data.examples import TAGS, TOKENS, Examples, read_examples, refuse_other_form
from tilth.data.formats import ending_of
from tilth.data.labels import class_names
from tilth.data.normalize import normalize_text
from tilth.data.readers import row_location
from tilth.data.sources import folder_configs, load_folder
from tilth.errors import InputError
from tilth.evaluate.expected_labels import refuse_unknown
from tilth.runs import read_run_json
from tilth.storage import as_path, exists, pull

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.models.classifier import Kind

COMMAND = "augment"
_LABELS = ("label", "labels")
_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class AugmentedSets:
    """Sets and settings of a run of `tilth augment`.

    Attributes:
        start: identifies this run; a restarted run has another.
        rows: retrieved and labelled by the teacher.
        labelled: the teacher's training rows, with the mean of label and teacher as probabilities.
        validation: the rows that chose the teacher's weights, if any.
        labels: classes or tags, in the order of the probabilities.
    """

    folder: Path
    settings: dict[str, Any]
    start: str
    rows: Dataset
    labelled: Dataset
    validation: Dataset | None
    text: str
    label: str
    labels: list[str]

    @property
    def truth(self) -> Dataset:
        """The labelled rows without the teacher's probabilities."""
        return self.labelled.select_columns([self.text, self.label])

    @property
    def kind(self) -> Kind:
        """Kind of the labels."""
        from datasets import ClassLabel

        if self.text in TOKENS:
            return "tags"
        return "class" if isinstance(self.rows.features[self.label], ClassLabel) else "multi"

    @property
    def teacher(self) -> str:
        """Folder or name of the finished teacher."""
        return str(self.folder / "teacher" if self._trained_teacher else self.settings["teacher"])

    @property
    def teacher_base(self) -> str | None:
        """Base that the run trained its teacher from; None: the teacher was given."""
        return str(self.settings["teacher"]) if self._trained_teacher else None

    @property
    def _trained_teacher(self) -> bool:
        return (self.folder / "teacher" / "run.json").is_file()

    @property
    def test(self) -> str | None:
        """Test set that was given to the run; raises `InputError` if the file is gone."""
        given = self.settings.get("test")
        if given is None:
            return None
        # A name with the ending of a format is a file, not a data set of the hub.
        path = as_path(given)
        if ending_of(path) is not None and not exists(path):
            raise InputError(
                f"{given}: the test set of {self.folder} is not there (a path counts from where "
                "tilth augment was called): say with --test where it lies"
            )
        return str(given)

    def without(self, texts: Iterable[str]) -> AugmentedSets:
        """Return the sets without retrieved sentences that are among `texts`.

        Case and punctuation are ignored; near duplicates are left out as well.
        """
        own = pa.array(texts_of(self.rows, self.text), pa.large_string())
        among = Exclusion("texts", list(texts)).match(own)
        left = np.flatnonzero(~np.any([*among.values()], axis=0))
        return self if len(left) == len(self.rows) else replace(self, rows=self.rows.select(left))


def is_augmented(source: str) -> bool:
    """Return whether a source is the folder of a `tilth augment` run."""
    folder = as_path(source)
    pull(folder / "run.json", clean=True)
    return (folder / "run.json").is_file() and read_run_json(folder)["command"] == COMMAND


def open_augmented(source: str) -> AugmentedSets:
    """Open a finished run of `tilth augment`; an incomplete one raises `InputError`."""
    folder = as_path(source)
    pull(folder)
    asked = read_run_json(folder)
    configs = folder_configs(folder / "dataset")
    if "default" not in configs or "labelled" not in configs:
        raise InputError(
            f"{folder}: the run is not finished: the same tilth augment command goes on where it "
            "stopped"
        )

    def load(config: str) -> Dataset:
        return load_folder(folder / "dataset", next(iter(configs[config])), config)

    rows, validation = load("default"), load("validation") if "validation" in configs else None
    text = _named(folder, rows, (*TOKENS, "text"))
    label = _named(folder, rows, TAGS if text in TOKENS else _LABELS)
    names = class_names(rows.features[label])
    if names is None:
        raise InputError(
            f"{folder / 'dataset'}: column {label!r} does not name its classes: run tilth augment "
            "anew"
        )
    if not len(rows):
        raise InputError(
            f"{folder}: no sentence was kept, there is nothing to train on: run tilth augment with "
            "a lower --min-confidence or a larger bank"
        )
    labelled = load("labelled")
    for one in (labelled, validation):
        if one is not None:
            _named(folder, one, [text])
            _named(folder, one, [label])
    if validation is not None and not len(validation):
        validation = None
    return AugmentedSets(
        folder, asked["settings"], str(asked.get("start", "")), rows, labelled, validation, text,
        label, names,
    )  # fmt: skip


def refuse_other_labels(
    labels: Sequence[str], source: str, data: str, examples: Examples, **form: Any
) -> None:
    """Refuse a test set of another form or with labels not in `labels`, before any training.

    Args:
        form: as of `refuse_other_form`.
    """
    refuse_other_form(examples, row_location(data, 0, "test"), "test", source, **form)
    refuse_unknown(examples, list(dict.fromkeys(labels)), data, "test", f"{source} knows")


def columns_of_run(run: AugmentedSets, found: Examples) -> Dataset:
    """Return a labelled set with the columns of a run's sets."""
    from datasets import Dataset

    assert found.labels is not None  # they are asked for
    texts: list[Any] = [one for (one,) in found.texts] if found.tokens is None else found.tokens
    return Dataset.from_dict({run.text: texts, run.label: found.labels.values})


def shared(examples: Examples, texts: Iterable[str]) -> int:
    """Return the number of rows whose texts are all among some normalized ones."""
    known = set(texts)
    return sum(all(normalize_text(text) in known for text in row) for row in examples.texts)


def texts_of(rows: Dataset, column: str) -> Iterable[str]:
    """Yield the text of each row, or its joined tokens."""
    for batch in rows.select_columns([column]).with_format(None).iter(batch_size=_BATCH_ROWS):
        for text in batch[column]:
            yield text if isinstance(text, str) else " ".join(text)


def _named(folder: Path, rows: Dataset, usual: Iterable[str]) -> str:
    found = next((name for name in usual if name in rows.column_names), None)
    if found is None:
        raise InputError(
            f"{folder / 'dataset'}: no column {' or '.join(usual)}: there are "
            f"{', '.join(rows.column_names)}; run tilth augment anew"
        )
    return found


def with_validation(
    run: AugmentedSets, sources: TaskSources
) -> tuple[AugmentedSets, Dataset | None, dict[str, Any]]:
    """Return a run without the sentences of another validation set, that set, and the columns."""
    columns: dict[str, Any] = {
        name: run.settings.get(name) if (own := getattr(sources, name)) is None else own
        for name in ("text", "label")
    }
    if sources.validation is None:
        return run, run.validation, columns
    rows = read_examples(sources.validation, split="validation", **columns)
    labelled = [(text,) for text in texts_of(run.labelled, run.text)]
    check_disjoint(
        "validation", sources.validation, rows.texts, ("labelled", str(run.folder), labelled)
    )
    return run.without(rows.sentences), columns_of_run(run, rows), columns


def sources_of(run: AugmentedSets, validation: Dataset | None, loss: str) -> TaskSources:
    """Return an augment run's retrieved and labelled rows as the sets of a training."""
    labelled = run.truth if loss == "hard" else run.labelled
    return TaskSources(run.rows, validation, None, labelled, run.text, run.label)

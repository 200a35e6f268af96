"""Predict labels, tags or embeddings of new texts with a trained model, in a run folder."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.data import Card, DatasetWriter, fingerprint, load_folder
from tilth.data.examples import Source, check_texts, input_columns, make_room, open_rows
from tilth.data.labels import is_list, is_text
from tilth.data.sources import folder_configs, refuse_split
from tilth.errors import InputError
from tilth.generation.label_fit import UNRELATED
from tilth.limits import settings_of
from tilth.models.names import name_of, trained_columns
from tilth.models.truncation import one_warning_on_cuts
from tilth.runs import (
    RESULTS,
    Progress,
    Run,
    part_sizes,
    read_results,
    refuse_inside,
    refuse_other_settings,
)
from tilth.runs.backends import PartJob, PartWork, make_parts
from tilth.runs.cluster import Cluster, check_fingerprints
from tilth.selftrain.retrieve import PART
from tilth.storage import as_path
from tilth.workflows.predictors import Predictor, load_predictor
from tilth.workflows.settings import Prediction

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.models.classifier import Classifier

COMMAND = "predict"
_DATASET = "dataset"
_RESULT_TYPES = {"kind": str, "rows": int, "without_text": int, "labels": dict}
_LABELS_SHOWN = 200


def predict(
    model: str | Path | Classifier,
    data: Source | Sequence[str],
    out: str | Path | None = None,
    *,
    device: str = "auto",
    cluster: Cluster | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    **asked: Any,
) -> Dataset:
    """Label, tag or encode new texts with a trained model.

    Every row of the input is a row of the output, in its order and with its columns; a column with
    the name of a new one is renamed `before_NAME`. A row without text has no prediction.

    Args:
        model: the run of a training, a folder or a hub id: of a classifier, a tagger or a sentence
            encoder; a loaded classifier or tagger; or a task (a shipped name or a file), whose
            labels' descriptions are compared with the texts.
        data: texts, a data set, a list of rows, a file, a folder or a hub data set.
        out: the run folder; the same call resumes. None: a temporary folder.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; a loaded model stays where it is.
        cluster: where rows are predicted, with the model by its name; None: in this process.
        asked: fields of `Prediction`: text, split, probabilities, encoder, precision.

    Returns:
        The rows with new columns. Classifier: `label` (a list for any number of labels) and
        `confidence`. Tagger: `tokens` if texts were given, `tags` (IOB2), `spans` and
        `confidence` (mean over tokens). Encoder: `embedding`, of unit length. Task: `label`,
        `similarity` (cosine with its description) and `margin` to the next label. `probabilities`
        (for a task `similarities`) holds those of all labels by name, for a tagger per token.

    Raises:
        InputError: an argument, the model or the rows are wrong, or `out` holds another run.
        TilthError: the model returns NaN, or the folder cannot be written.
    """
    settings = settings_of(Prediction, asked)
    with ExitStack() as held:
        if out is None:
            folder = held.enter_context(tempfile.TemporaryDirectory(prefix="tilth-"))
            out = Path(folder) / "run"
        out = as_path(out)
        predict_to_run(
            model, data, out, settings, device=device, cluster=cluster, overwrite=overwrite,
            quiet=quiet,
        )  # fmt: skip
        return load_folder(out / _DATASET)


def predict_to_run(
    model: str | Path | Classifier,
    data: Source | Sequence[str],
    out: Path,
    settings: Prediction,
    *,
    device: str = "auto",
    cluster: Cluster | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Predict as `predict` does in a run folder, or complete it; return its results.json.

    It holds kind, rows, rows without text, and per label or entity type its count and mean
    confidence.
    """
    named = _name_of(model)
    if isinstance(data, str | Path):
        refuse_inside(out, str(data), named=[named])
    refuse_split(data, settings.split)
    rows, where = open_rows(data, settings.split, tell=settings.split == "train")
    if not len(rows):
        raise InputError(f"{where}the set has no rows: give texts")
    text = settings.text or trained_columns(model, rows.column_names).get("text")
    if text is not None:
        input_columns(rows, where, text, tagged=False)  # before a model is loaded
    asked = {"model": named, **asdict(settings), "part": PART}
    if not overwrite:
        refuse_other_settings(out, {name: asked[name] for name in asked if name != "text"}, COMMAND)
    predictor = load_predictor(named if isinstance(model, str | Path) else model, settings, device)
    columns = input_columns(rows, where, text, tagged=predictor.kind == "tags")
    holds_tokens = _check_columns(rows, columns, where, predictor)
    adds = [name for name in predictor.adds if not (holds_tokens and name == "tokens")]
    rows = make_room(rows, adds, columns, where)
    run = Run.open(
        out,
        command=COMMAND,
        settings={**asked, "text": list(columns)},
        fingerprints={
            "inputs": fingerprint(rows, rows.column_names), "model": predictor.fingerprint
        },
        parts=-(-len(rows) // PART),
        outputs=(_DATASET, RESULTS),
        overwrite=overwrite,
    )  # fmt: skip
    with run, one_warning_on_cuts():
        if isinstance(data, str | Path):
            run.resolve("source", lambda: str(data))
        table = rows.with_format("arrow")

        def given(index: int) -> pa.Table:
            part: pa.Table = table[index * PART : (index + 1) * PART]
            return part.select(list(columns))

        again = partial(_load_again, named, settings, predictor.fingerprint)
        load = again if cluster is not None and cluster.on is not None else lambda: predictor
        job = PartJob(
            partial(_start, load, columns, adds), given, part_sizes(len(rows), PART), "rows"
        )
        make_parts(run, job, cluster, quiet=quiet)
        results = read_results(run.path, _RESULT_TYPES)
        if results is None or not folder_configs(run.path / _DATASET):
            results = _write_dataset(run, rows, predictor, adds)
            run.write_results(results)
    return results


def _name_of(model: str | Path | Classifier) -> str:
    if isinstance(model, str | Path):
        return str(model)
    from tilth.models import classifier  # not above: torch

    return model.name if isinstance(model, classifier.Classifier) else name_of(model)


def _load_again(model: str, settings: Prediction, fingerprint: str) -> Predictor:
    """Load a predictor by its name; runs in a worker."""
    predictor = load_predictor(model, settings, "auto")
    check_fingerprints({f"model {model}": predictor.fingerprint}, {f"model {model}": fingerprint})
    return predictor


def _start(
    load: Callable[[], Predictor], columns: Sequence[str], adds: Sequence[str], _: Run
) -> PartWork:
    """Return the work on the inputs of a part."""
    predictor = load()

    def work(_: int, given: pa.Table, progress: Progress) -> pa.Table:
        return _predict_part(given, columns, predictor, progress).select(list(adds))

    return work


def _check_columns(rows: Dataset, columns: Sequence[str], where: str, predictor: Predictor) -> bool:
    """Check that a model can read the columns; return whether they hold tokens."""
    check_texts(predictor.name, predictor.texts_per_input, columns, where)
    schema = rows.data.schema
    kinds = [schema.field(name).type for name in columns]
    if predictor.kind == "tags" and is_list(kinds[0]) and is_text(kinds[0].value_type):
        return True
    for name, kind in zip(columns, kinds, strict=True):
        if not is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
            tokens = " or of tokens" if predictor.kind == "tags" else ""
            raise InputError(
                f"{where}column {name!r} holds {kind}: name one of texts{tokens} with --text"
            )
    return False


def _predict_part(
    table: pa.Table, columns: Sequence[str], predictor: Predictor, progress: Progress
) -> pa.Table:
    """Return the predictions of a part's rows; null for rows without text."""
    inputs: list[Any] = []
    for row in zip(*(table[name].to_pylist() for name in columns), strict=True):
        tagged = predictor.kind == "tags"
        inputs.append(row[0] if tagged else tuple((text or "").strip() for text in row))
    full = [place for place, one in enumerate(inputs) if _has_text(one)]
    made = predictor.predict([inputs[place] for place in full], progress)
    progress.advance(len(inputs) - len(full))
    if len(full) == len(inputs):
        return made
    places = np.full(len(inputs), -1)
    places[full] = np.arange(len(full))
    return made.take(pa.array(places, mask=places < 0))


def _has_text(one: Any) -> bool:
    """Return whether a text, all of a row's texts, or tokens hold more than white space."""
    if one is None or isinstance(one, str):
        return bool(one and one.strip())
    if isinstance(one, tuple):
        return all(one)
    return None not in one and bool("".join(one).strip())


def _write_dataset(
    run: Run, rows: Dataset, predictor: Predictor, adds: Sequence[str]
) -> dict[str, Any]:
    """Write the input's columns and the new ones with a card; return the results."""
    from datasets import Features

    table, without, unrelated, unlabelled = rows.with_format("arrow"), 0, 0, 0
    described = predictor.kind == "described"
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    made_features = Features.from_arrow_schema(run.read_part(0).schema)
    features = Features({**rows.features, **{name: made_features[name] for name in adds}})
    with DatasetWriter(run.path / _DATASET, {"default": features}) as writer:
        for index in range(run.parts):
            made, part = run.read_part(index), table[index * PART : (index + 1) * PART]
            for name in adds:
                part = part.append_column(name, made[name])
            writer.write(part)
            without += made[adds[-1]].null_count
            if described:
                unrelated += pc.sum(pc.less(made["similarity"], UNRELATED)).as_py() or 0
            if predictor.kind == "multi":
                unlabelled += pc.sum(pc.equal(pc.list_value_length(made["label"]), 0)).as_py() or 0
            for label, many, total in zip(*_label_counts(made), strict=True):
                counts[label] += many
                sums[label] += total
        measure = "similarity" if described else "confidence"
        labels = {
            label: {"rows": many, measure: round(sums[label] / many, 4)}
            for label, many in counts.most_common()
        }
        results = {
            "kind": predictor.kind, "rows": len(rows), "without_text": without, "labels": labels
        } | ({"unrelated": unrelated} if described else {})  # fmt: skip
        if predictor.kind == "multi":
            results["without_label"] = unlabelled
        writer.write_card(_card(run, results))
    return results


def _label_counts(made: pa.Table) -> list[list[Any]]:
    """Return a part's labels or entity types, their counts, and the sums of their confidences."""
    if "embedding" in made.column_names:
        return [[], [], []]
    if "spans" in made.column_names:
        flat = pc.list_flatten(made["spans"])
        labels, sure = (pc.struct_field(flat, name) for name in ("type", "confidence"))
    elif pa.types.is_list(made["label"].type):
        labels = pc.list_flatten(made["label"])
        sure = made["confidence"].take(pc.list_parent_indices(made["label"]))
    else:
        labels, sure = made["label"], made[made.column_names[1]]  # confidence, or similarity
    found = pa.table({"label": labels, "sure": sure}).drop_null().group_by("label")
    counted = found.aggregate([("sure", "count"), ("sure", "sum")])
    return [counted[name].to_pylist() for name in ("label", "sure_count", "sure_sum")]


def _card(run: Run, results: Mapping[str, Any]) -> Card:
    settings, kind = run.settings, results["kind"]
    counts = {label: found["rows"] for label, found in results["labels"].items()}
    if kind in ("tags", "vectors") or len(counts) > _LABELS_SHOWN:
        counts = {"": results["rows"]}
    made = {"tags": "Tags", "vectors": "Sentence vectors"}.get(kind, "Labels")
    return Card(
        title=f"{made} by {settings['model']}",
        summary=f"{made} that `{settings['model']}` gave to {results['rows']:,} rows, made with "
        "tilth. Nobody has checked them. The columns of the input are as they came.",
        command=run.command,
        settings=settings,
        counts={"train": counts},
        model=str(settings["model"]),
        texts=f"as they came; {made.lower()} by a model",
        extra=[("Columns", _COLUMNS[kind])],
    )


_CONFIDENCE = "`confidence` is the model's probability"
_COLUMNS = {
    "class": f"`label` is the likeliest label, {_CONFIDENCE} of it.",
    "multi": "`label` holds the labels that are likelier than not, `confidence` is the model's "
    "probability of its least sure yes or no.",
    "tags": "`tags` are IOB2, one for each of the `tokens`; `spans` the entities in them: tokens "
    "from `start` to before `end`, characters likewise; `confidence` is the mean probability of "
    "tags, over a span's tokens or a row's.",
    "described": "`label` is the one whose description is the most similar to the text, "
    "`similarity` the cosine, `margin` how far it is above the next label's. No probabilities.",
    "vectors": "`embedding` is the vector of the text, of unit length.",
}

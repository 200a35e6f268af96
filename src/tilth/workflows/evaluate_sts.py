"""Evaluate encoders by name on STS sets, in a run folder with a report."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from tilth.data.examples import Names, open_rows, prefer_curated
from tilth.data.hashing import hash_of
from tilth.encoders.contrastive_sets import read_contrastive
from tilth.encoders.graded_pairs import TEXT_A, TEXT_B, read_pairs
from tilth.encoders.parallel_pairs import read_parallel
from tilth.errors import InputError
from tilth.evaluate.overlap import find_overlap
from tilth.evaluate.sts import (
    SetCosines,
    check_options,
    check_sets,
    measure_sets,
    most_wrong_pairs,
    summarise_sts,
)
from tilth.evaluate.sts_files import known_columns
from tilth.evaluate.sts_sets import StsSet, asked_sets, read_sets
from tilth.models.names import trained_columns
from tilth.models.static import StaticEncoder, read_static
from tilth.report.encoders import (
    EncoderComparison,
    EncoderScore,
    ValidationCurve,
    write_encoder_report,
)
from tilth.runs import RESULTS, Progress, Run, RunMismatch, command_of, read_run_json, refuse_inside
from tilth.workflows.open_bank import is_words, open_words
from tilth.workflows.settings import StsSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

AnyEncoder: TypeAlias = "SentenceTransformer | StaticEncoder"
Scores = dict[str, dict[str, Any]]

WRONG_PAIRS = 20


def open_encoder(
    name: str, sets: Sequence[StsSet] = (), *, pooling: str | None = None, device: str = "auto"
) -> AnyEncoder:
    """Load an encoder by any name of the command line; a static one without torch.

    Args:
        name: an encoder, or word vectors: `words:FILE` (plain average), `words-idf:FILE`,
            `words-sif:FILE`, `usif:FILE`.
        sets: idf and uSIF are fitted on their sentences, as in the original, without scores.
    """
    if not is_words(name):
        if pooling is None and (static := read_static(name, device)) is not None:
            return static
        from tilth.models.encoder import load_encoder

        place = Path(name).expanduser()
        kinds = {"train classifier": "labels", "train tagger": "labels", "train scorer": "scores"}
        command = command_of(place) or command_of(place.parent) or ""
        if command in kinds:
            log.warning(
                "%s is a run of %s: the cosines are of its encoder, which learnt %s", name, command,
                kinds[command],
            )  # fmt: skip
        return load_encoder(name, pooling=pooling, device=device)
    if pooling is not None:
        raise InputError(f"encoder {name!r} averages word vectors: leave pooling out")
    texts = dict.fromkeys(text for sts in sets for text in (*sts.texts_a, *sts.texts_b))
    return open_words(name, list(texts))


def _fingerprint(encoder: AnyEncoder) -> str:
    if isinstance(encoder, StaticEncoder):
        return encoder.fingerprint
    from tilth.models.encoder import fingerprint_encoder

    return fingerprint_encoder(encoder)


def measure(
    encoder: AnyEncoder,
    found: Sequence[StsSet],
    out: Path,
    *,
    training: Dataset | None = None,
    progress: Progress | None = None,
) -> list[SetCosines]:
    """Measure an encoder in a run folder; the same call reads the measured cosines.

    The folder's one part holds each pair's cosine, from which every figure follows. For another
    encoder or other sets it is overwritten: measuring takes seconds. The overlap with the rows of
    `training` is counted each time.
    """
    overlaps = {} if training is None else find_overlap(training, found)
    fingerprints = {
        "encoder": _fingerprint(encoder),
        **{  # unlike a set's identity, it depends on the order of the pairs
            sts.name: hash_of(sts.subsets, sts.texts_a, sts.texts_b, sts.gold.tolist())
            for sts in found
        },
    }
    settings = {"sets": [sts.name for sts in found]}
    asked = functools.partial(
        Run.open, out, command="evaluate sts", settings=settings, fingerprints=fingerprints, parts=1
    )
    try:
        run = asked()
    except RunMismatch:
        run = asked(overwrite=True)
    with run:
        if run.missing():
            run.write_part(0, _table(measure_sets(encoder, found, progress=progress)))
        elif progress is not None:
            progress.skip(sum(map(len, found)))
        rows = run.read_part(0)
    cosines = rows["cosine"].to_numpy()  # (pairs of all sets,)
    names = np.array(rows["set"].to_pylist())
    return [
        SetCosines(
            sts, cosines[names == sts.name], overlaps[sts.name].counts() if overlaps else None
        )
        for sts in found
    ]


def _table(measured: Sequence[SetCosines]) -> pa.Table:
    return pa.table(
        {
            "set": [one.sts.name for one in measured for _ in one.cosine],
            "subset": [name for one in measured for name in one.sts.subsets],
            TEXT_A: [text for one in measured for text in one.sts.texts_a],
            TEXT_B: [text for one in measured for text in one.sts.texts_b],
            "gold": np.concatenate([one.sts.gold for one in measured]),
            "cosine": np.concatenate([one.cosine for one in measured]),
        }
    )


def evaluate_sts_to_run(
    name: str,
    data: str,
    settings: StsSettings,
    *,
    out: Path | None,
    wrong: int = WRONG_PAIRS,
    device: str = "auto",
    overwrite: bool = False,
) -> tuple[Scores, list[dict[str, Any]]]:
    """Evaluate an encoder by name; with `out`, keep scores and a report in a run folder.

    Args:
        out: a run folder for results.json and report.html, or None.
        wrong: number of the pairs with the largest error; 20 at least.

    Returns:
        The scores, as `evaluate_sts` returns them, and these pairs.
    """
    protocol, training = settings.protocol, settings.training
    resampling = {"bootstrap": settings.bootstrap, "seed": settings.seed}
    read = training_reader(name)
    if training is not None:
        read = functools.partial(_read_training, training, (None, None))
    check_options(protocol, settings.drop_overlap, read, **resampling)
    if out is not None:
        refuse_inside(out, training, named=(name, data))
    known = trained_columns(name)
    columns = settings.columns
    if columns == (None, None):
        columns = known_columns(data, known.get("text"), known.get("label"))
    found = read_sets(data, settings.sets, columns)
    check_sets(found, protocol)
    encoder = open_encoder(name, found, pooling=settings.pooling, device=device)
    rows = None
    try:
        rows = None if read is None else read()
    except InputError as error:
        if training is not None or settings.drop_overlap:
            raise
        log.warning("the overlap with the training rows is not known: %s", error)
    run = None
    if out is not None:
        recorded = asdict(settings) | {"sets": [sts.name for sts in found]}
        for key in ("text", "label"):  # the pairs have fingerprints
            del recorded[key]
        run = Run.open(
            out,
            command="evaluate sts",
            settings={"encoder": name, **recorded},
            fingerprints={
                "encoder": _fingerprint(encoder),
                **{sts.name: sts.identity for sts in found},
            },
            parts=0,
            outputs=(RESULTS,),
            overwrite=overwrite,
        )
    measured = measure_sets(
        encoder, found, protocol=protocol, training=rows, drop_overlap=settings.drop_overlap
    )
    asked = asked_sets(data, settings.sets)
    scores = summarise_sts(measured, asked, protocol=protocol, **resampling)
    pairs = most_wrong_pairs(measured, max(wrong, WRONG_PAIRS))
    if run is not None:
        with run:
            run.write_results(scores)
            write_encoder_report(
                run.path / "report.html",
                EncoderComparison(bars_of(name, scores), wrong={name: pairs}),
                title=f"{name} on STS",
                facts=[("encoder", name), ("data", data), ("protocol", protocol)],
                notes=remarks(scores),
            )
    return scores, pairs


def _read_training(source: str, names: Names) -> Dataset:
    """Return the rows of a training set: graded pairs, or any texts."""
    try:
        return read_pairs(source, names=names).all_rows()
    except InputError:  # pairs without grades, single texts, triples
        return open_rows(prefer_curated(source), "train")[0]


def training_reader(name: str) -> Callable[[], Dataset] | None:
    """Return what reads the rows that a run was trained on; None: its sources are not there."""
    folder = Path(name).expanduser()
    if not (folder / "run.json").is_file():
        return None
    run, known = read_run_json(folder), trained_columns(name)
    text, label = known.get("text"), known.get("label")
    places = run["resolved"].get("sources", [run["resolved"].get("pairs")])
    if isinstance(places, dict):  # of a classifier or a scorer
        places = [places.get("train")]
    if not places or not all(isinstance(place, str) and Path(place).exists() for place in places):
        return None
    if run["command"] == "train simcse":
        return lambda: read_contrastive(places, run["settings"].get("variant"), text)
    if run["command"] == "train triplet":
        how = {name: run["settings"].get(name) for name in ("pivot", "min_score", "seed")}
        return lambda: read_parallel(places, **how, names=(text, label)).all_rows()
    return lambda: _read_training(places[0], (text, label))


def bars_of(name: str, scores: Scores) -> list[EncoderScore]:
    """Return an encoder's bars, one for each set and the mean."""
    return [
        EncoderScore(key, name, score["spearman"], score["low"], score["high"])
        for key, score in scores.items()
    ]


def remarks(scores: Scores) -> list[str]:
    """Return notes on scores: the metric, missing sets, overlap with the training rows."""
    lines = ["Spearman's correlation x 100 of cosines with people's scores."]
    missing = scores["mean"]["missing"]
    if missing:
        lines.append(f"Not measured, and not in the mean: {', '.join(missing)}.")
    for key, score in scores.items():
        overlap = score.get("overlap")
        if overlap and overlap["rows"]:
            dropped = (
                f"; {score['dropped']} of its pairs were left out" if "dropped" in score else ""
            )
            lines.append(
                f"{key}: {overlap['rows']} training rows hold one of its sentences, "
                f"{overlap['pairs']} one of its pairs{dropped}."
            )
    return lines


def curve_of(run: Path, name: str) -> ValidationCurve:
    """Return the learning curve of a finished training."""
    from tilth.encoders.train import read_curve  # not above: torch

    found = read_curve(run)
    (key,) = set(found) - {"best", "step", "loss"}
    metric = "Spearman" if key == "spearman" else key.replace("_", " ")
    return ValidationCurve(name, found["step"], found[key], found["best"], metric)

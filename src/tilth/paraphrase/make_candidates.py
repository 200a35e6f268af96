"""Makes candidates from raw sentences: round trips with measured meaning and wording."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data import Card, DatasetWriter, fingerprint, load_folder, read_texts, text_id
from tilth.data.sources import refuse_split
from tilth.errors import InputError, TilthError
from tilth.models import Seq2Seq, load_scorer
from tilth.models.names import describe_scorer
from tilth.paraphrase.candidates import MEANING, SCORES, TEXT_A, TEXT_B, WORDING
from tilth.paraphrase.round_trip import (
    Candidate,
    RoundTripRewriter,
    load_translators,
    round_trip,
)
from tilth.paraphrase.search import is_too_long
from tilth.paraphrase.settings import CandidateSettings
from tilth.paraphrase.similarity import meaning, wording
from tilth.paraphrase.tags import cells_of
from tilth.runs import Progress, Run, part_sizes, refuse_inside
from tilth.runs.backends import PartJob, PartWork, make_parts
from tilth.runs.cluster import Cluster
from tilth.storage import as_path

if TYPE_CHECKING:
    from datasets import Dataset

TOO_LONG, NOTHING, DUPLICATE = "too long", "nothing came out", "duplicate"
_SCHEMA = pa.schema(
    [
        (TEXT_A, pa.string()), (TEXT_B, pa.string()), (MEANING, pa.float32()),
        (WORDING, pa.float32()), ("pivot", pa.string()), ("setting", pa.string()),
        ("source_id", pa.string()), ("origin", pa.string()), ("forward", pa.string()),
        ("backward", pa.string()), ("seed", pa.int64()), ("drop_reason", pa.string()),
    ]
)  # fmt: skip
_TEXTS_AT_ONCE = 10_000


def make_candidates(
    source: str | Path | Dataset,
    out: str | Path,
    settings: CandidateSettings,
    *,
    column: str | None = None,
    split: str = "train",
    device: str = "auto",
    cluster: Cluster | None = None,
    overwrite: bool = False,
    quiet: bool = True,
) -> Dataset:
    """Translate sentences and back, and measure the meaning and wording of the candidates.

    Texts should be single sentences, which translators are trained on; those longer than the model
    reads are dropped. Equal texts count once. A candidate equal to its source is kept, the second
    of two equal ones is dropped.

    Args:
        source: a place that `read_texts` reads, or a data set with a column `text`.
        out: the run folder; the same call resumes.
        cluster: where parts are made; None: in this process. Workers load the models by name.

    Returns:
        The kept rows: text_a, text_b (the candidate), meaning, wording, and their origin.
    """
    out, size, precision = as_path(out), settings.part_size, settings.precision
    if isinstance(source, (str, Path)):
        refuse_inside(out, str(source))
        refuse_split(source, split)
        source = read_texts(source, column=column, split=split)
    rows = _first_rows(source)
    forward, backward = load_translators(
        settings.forward, settings.backward, forward_prefix=settings.forward_prefix,
        backward_prefix=settings.backward_prefix, device=device, precision=precision,
    )  # fmt: skip
    scorer = load_scorer(settings.scorer, device=device, precision=precision)
    copied = [name for name in ("text", "origin") if name in source.column_names]
    run = Run.open(
        out,
        command="paraphrase candidates",
        settings={
            "forward": settings.forward, "backward": settings.backward,
            "forward_prefix": forward.prefix, "backward_prefix": backward.prefix,
            "scorer": settings.scorer, "greedy": settings.greedy, "beams": settings.beams,
            "settings": [] if settings.greedy else [list(pair) for pair in settings.sampling],
            "precision": forward.precision, "seed": settings.seed, "part_size": size,
        },
        fingerprints={
            "inputs": fingerprint(source, copied), "forward": forward.fingerprint,
            "backward": backward.fingerprint, "scorer": scorer.fingerprint,
        },
        parts=-(-len(rows) // size),
        outputs=("dataset", "results.json"),
        overwrite=overwrite,
    )  # fmt: skip

    sentences = source

    def given(index: int) -> dict[str, list[Any]]:
        return dict(sentences[rows[index * size : (index + 1) * size]])

    trips = RoundTripRewriter(forward, backward, scorer)
    job = PartJob(partial(_start, trips, settings), given, part_sizes(len(rows), size), "sentences")
    with run:
        make_parts(run, job, cluster, quiet=quiet)
        results = _write(run)
    if not results["rows"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in results["drops"].items())
        raise TilthError(
            f"{out}: 0 candidates kept ({reasons}): they stand in its parts; give single sentences "
            "in the translator's language"
        )
    return load_folder(out / "dataset")


def _start(trips: RoundTripRewriter, settings: CandidateSettings, _: Run) -> PartWork:
    """Return the work on the sentences of a part."""
    forward, backward = trips.seq2seq, trips.backward

    def work(_index: int, batch: dict[str, list[Any]], progress: Progress) -> pa.Table:
        """Return a row for each candidate, kept or not, and for each sentence without any."""
        texts: list[str] = batch["text"]
        found = round_trip(
            texts, forward, backward, greedy=settings.greedy, beams=settings.beams,
            settings=settings.sampling, seed=settings.seed,
        )  # fmt: skip
        origins = batch.get("origin") or [None] * len(texts)
        common = {"forward": forward.name, "backward": backward.name, "seed": settings.seed}
        made = [
            {TEXT_A: text, "source_id": text_id(text), "origin": origin, **common, **row}
            for text, origin, candidates in zip(texts, origins, found, strict=True)
            for row in _rows(text, candidates, forward)
        ]
        kept = [row for row in made if row["drop_reason"] is None]
        first, second = [row[TEXT_A] for row in kept], [row[TEXT_B] for row in kept]
        meanings, wordings = meaning(first, second, trips.scorer), wording(first, second)
        for place, row in enumerate(kept):
            row[MEANING], row[WORDING] = float(meanings[place]), float(wordings[place])
        progress.advance(done=len(texts), kept=len(kept), dropped=len(made) - len(kept))
        return pa.Table.from_pylist(made, schema=_SCHEMA)

    return work


def _first_rows(texts: Dataset) -> NDArray[np.int64]:
    """Return the first row of each distinct text."""
    if "text" not in texts.column_names:
        raise InputError(f"the sentences have no column 'text': {', '.join(texts.column_names)}")
    ids = [
        int(text_id(text), 16)
        for batch in texts.select_columns(["text"]).iter(batch_size=_TEXTS_AT_ONCE)
        for text in batch["text"]
    ]
    if not ids:
        raise InputError("the source holds no sentences: give at least one")
    first: NDArray[np.int64] = np.unique(np.array(ids, np.uint64), return_index=True)[1]
    return np.sort(first)


def _rows(text: str, candidates: list[Candidate], forward: Seq2Seq) -> Iterator[dict[str, Any]]:
    if not candidates:
        yield {TEXT_B: None, "drop_reason": TOO_LONG if is_too_long(forward, text) else NOTHING}
    known: set[str] = set()
    for one in candidates:
        yield {
            TEXT_B: one.text, "pivot": one.pivot, "setting": one.setting,
            "drop_reason": DUPLICATE if one.text in known else None,
        }  # fmt: skip
        known.add(one.text)


def _write(run: Run) -> dict[str, Any]:
    """Write the finished set, its card and results.json; return the content of results.json.

    rows (kept), good (of them, meaning above 70 and wording at most 45), same (of them, equal to
    their source), meaning and wording (means, None without rows), drops (reason -> rows).
    """
    rows = good = same = 0
    sums = np.zeros(2)
    with DatasetWriter(run.path / "dataset") as writer:
        for index in range(run.parts):
            kept = writer.write_dropped(run.read_part(index))
            measured = [kept[name].to_numpy().astype(np.float64) for name in SCORES]
            rows += len(kept)
            good += int((cells_of(*measured) >= 0).sum())
            same += pc.sum(pc.equal(kept[TEXT_A], kept[TEXT_B])).as_py() or 0
            sums += [values.sum() for values in measured]
            writer.write(kept)
        means = [float(value) / rows if rows else None for value in sums]
        results = {
            "rows": rows, "good": good, "same": same, "meaning": means[0], "wording": means[1],
            "drops": dict(writer.drops),
        }  # fmt: skip
        writer.write_card(_card(run, results))
    run.write_results(results)
    return results


def _card(run: Run, results: dict[str, Any]) -> Card:
    settings = run.settings
    way = "by greedy search"
    if not settings["greedy"]:
        pairs = ", ".join(f"({top_k}, {heat})" for top_k, heat in settings["settings"])
        way = f"by beam search with sampling at (k, T) = {pairs}, each there and each back"
    models = " and back with ".join(f"`{settings[name]}`" for name in ("forward", "backward"))
    return Card(
        title="Round trips",
        summary=(
            "Sentences (text_a) and their translations into another language and back (text_b): "
            f"{results['rows']} pairs, translated with {models}, {way} (controlled paraphrase, "
            "Ogasa, Kajiwara and Arase), made with tilth. Meaning is measured by "
            f"{describe_scorer(settings['scorer'])}; wording by sentence BLEU, 0 to 100; "
            f"{results['good']} pairs have a meaning above 70 and a wording of at most 45, "
            f"{results['same']} are equal to their source. Nobody has checked them."
        ),
        command=run.command,
        settings=settings,
        counts={"train": {"": results["rows"]}},
        drops=results["drops"],
        model=" and ".join(dict.fromkeys((settings["forward"], settings["backward"]))),
        seed=int(settings["seed"]),
    )

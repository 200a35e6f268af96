"""Makes the training corpus of a rewriter: candidates filtered, balanced over cells, split."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.data import Card, DatasetWriter, fingerprint, load_folder
from tilth.errors import TilthError
from tilth.models.names import describe_scorer
from tilth.paraphrase.balance import TENTH, DrawnSplits, PairPool, draw_splits
from tilth.paraphrase.candidates import (
    MEANING,
    MEANING_LOW,
    SCORES,
    TAG_COLUMN,
    TEXT_A,
    TEXT_B,
    WORDING,
    Candidates,
    CandidateSource,
    Chunk,
    FilteredPairs,
    filter_candidates,
    has_scores,
    plane_counts,
)
from tilth.paraphrase.settings import CorpusSettings
from tilth.paraphrase.tags import CELLS, UNITS
from tilth.runs import Progress, Run, complete, read_results, refuse_inside
from tilth.storage import as_path

if TYPE_CHECKING:
    from datasets import DatasetDict

    from tilth.models.scorer import Scorer

log = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
_WRITE_ROWS = 10_000
_RESULTS = {"candidates": int, "left_out": dict, "kept": int, "drawn": dict}


def make_corpus(
    source: CandidateSource | Sequence[CandidateSource],
    out: str | Path,
    settings: CorpusSettings,
    *,
    device: str = "auto",
    precision: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> DatasetDict:
    """Make the training corpus of a rewriter: train, validation and test.

    Pairs with a meaning above 70 and a wording up to 45, both texts of 4 words or more, are kept.
    Each of the 48 cells gives equally many, twice as many if its wording is below 10, or all it
    has. Splits share no text, ignoring case and punctuation; the order of distinct
    candidates has no effect.

    Args:
        source: candidates: a run of `tilth paraphrase candidates`, or any data set with text_a
            (the source), text_b (the rewrite) and, where known, meaning and wording; or several.
        out: the run folder; the set lies in its `dataset`.
        device: of the scorer.
        precision: of the scorer.

    Reference:
        Ogasa, Kajiwara and Arase, sections 3.3 and 4.1. That rewrites, too, stay in one split is
        ours.
    """
    candidates = Candidates(source, part_size=settings.part_size)
    refuse_inside(as_path(out), *candidates.names)
    recorded: dict[str, Any] = {
        name: getattr(settings, name) for name in ("size", "validation", "test", "seed")
    }
    fingerprints = {}
    for number, rows in enumerate(candidates.sets, start=1):
        columns = (TEXT_A, TEXT_B, *SCORES) if has_scores(rows) else (TEXT_A, TEXT_B)
        name = "candidates" if len(candidates.sets) == 1 else f"candidates {number}"
        fingerprints[name] = fingerprint(rows, columns)
    scorer: Scorer | None = None
    if candidates.parts:
        from tilth.models.scorer import load_scorer

        scorer = load_scorer(settings.scorer, device=device, precision=precision)
        recorded |= {name: getattr(settings, name) for name in ("scorer", "metric", "part_size")}
        fingerprints["scorer"] = scorer.fingerprint
    run = Run.open(
        out,
        command="paraphrase corpus",
        settings=recorded,
        fingerprints=fingerprints,
        parts=len(candidates.parts),
        outputs=("dataset", "results.json"),
        overwrite=overwrite,
    )
    with run:
        if scorer is not None:
            _measure(run, candidates.parts, candidates, scorer, settings.metric, quiet=quiet)
        card = run.path / "dataset" / "README.md"
        if read_results(run.path, _RESULTS) is None or not card.is_file():
            _draw_and_write(run, candidates, settings, quiet=quiet)
    from datasets import DatasetDict

    return DatasetDict({name: load_folder(run.path, name) for name in SPLITS})


def _measure(
    run: Run,
    chunks: Sequence[Chunk],
    candidates: Candidates,
    scorer: Scorer,
    metric: str,
    *,
    quiet: bool,
) -> None:
    """Measure the pairs of sets without scores, one chunk per part."""
    from tilth.paraphrase.similarity import meaning, wording

    def make_part(index: int, progress: Progress) -> pa.Table:
        first, second = candidates.texts(chunks[index])
        meanings, wordings = meaning(first, second, scorer), wording(first, second, metric)
        progress.advance(done=len(first))
        return pa.table({MEANING: meanings, WORDING: wordings})

    complete(run, make_part, list(map(len, chunks)), quiet=quiet, what="pairs")


def _draw_and_write(
    run: Run, candidates: Candidates, settings: CorpusSettings, *, quiet: bool
) -> None:
    """Filter, draw and write the splits, results.json last."""

    def scores(chunk: Chunk) -> pa.Table:
        return candidates.known_scores(chunk) if chunk.part is None else run.read_part(chunk.part)

    with Progress(len(candidates), quiet=quiet, what="candidates") as progress:
        kept = filter_candidates(candidates, scores, seed=settings.seed, progress=progress.advance)
    names = ", ".join(candidates.names)
    if not len(kept.pool):
        reasons = ", ".join(f"{rows:,} {reason}" for reason, rows in kept.left_out.items() if rows)
        hint = "give more or other candidates"
        if 0 < kept.highest <= 1 and kept.left_out[MEANING_LOW]:
            hint = "scores are 0 to 100: these seem to be 0 to 1"
        raise TilthError(f"{names}: none of {len(candidates):,} pairs is kept ({reasons}): {hint}")
    drawn = draw_splits(kept.pool, settings)
    if not len(drawn.train):
        raise TilthError(
            f"{names}: no pair is left to train on: all {len(kept.pool):,} share a text with "
            "validation or test; make these smaller, or give candidates of more sources"
        )
    results = _results(len(candidates), kept, drawn, settings)
    for note in results["notes"]:
        log.warning("%s", note)
    with DatasetWriter(run.path / "dataset") as writer:
        for name, pool in drawn.splits().items():
            for start in range(0, max(len(pool), 1), _WRITE_ROWS):
                some = pool.select(np.arange(start, min(start + _WRITE_ROWS, len(pool))))
                writer.write(_table(candidates, some), split=name)
        writer.write_card(_card(run, candidates, results, drawn))
    run.write_results(results)


def _results(
    candidates: int, kept: FilteredPairs, drawn: DrawnSplits, settings: CorpusSettings
) -> dict[str, Any]:
    """Return the content of results.json: counts of all candidates and of the splits, by cell."""
    splits = drawn.splits()
    counts = {name: pool.per_cell().tolist() for name, pool in splits.items()}
    had = kept.pool.per_cell()
    cells = [
        {
            "tags": cell.tags, "meaning": cell.meaning, "wording": cell.wording,
            "units": cell.units, "had": int(had[index]), "wanted": int(drawn.wanted[index]),
            **{name: count[index] for name, count in counts.items()},
        }
        for index, cell in enumerate(CELLS)
    ]  # fmt: skip
    return {
        "candidates": candidates,
        "kept": len(kept.pool),
        "left_out": {reason: rows for reason, rows in kept.left_out.items() if rows},
        "size": int(drawn.wanted.sum()),
        "drawn": {name: len(pool) for name, pool in splits.items()},
        "cells": cells,
        "plane": kept.plane.tolist(),
        "plane_drawn": plane_counts(drawn.train.meaning, drawn.train.wording).tolist(),
        "notes": _notes(drawn, settings),
    }


def _notes(drawn: DrawnSplits, settings: CorpusSettings) -> list[str]:
    notes = []
    size, had = int(drawn.wanted.sum()), len(drawn.train)
    if settings.size is None:
        notes.append(
            f"size was not given: {size:,} pairs are wanted, {size // UNITS:,} a unit, the most "
            "that leave at most a quarter of the cells that hold pairs short"
        )
    short = np.flatnonzero(drawn.available < drawn.wanted)
    if len(short):
        lack = drawn.available[short] / drawn.wanted[short]
        worst = int(short[np.argmin(lack)])
        notes.append(
            f"{len(short)} of {len(CELLS)} cells hold fewer pairs than they should give and were "
            f"taken whole, so {had:,} of {size:,} pairs are drawn; the worst is "
            f"{CELLS[worst].tags} with {drawn.available[worst]:,} of {drawn.wanted[worst]:,}: give "
            "more candidates"
        )
    for name, pool, wanted in (
        ("validation", drawn.validation, settings.validation),
        ("test", drawn.test, settings.test),
    ):
        if len(pool) < wanted:
            notes.append(
                f"{name} has {len(pool):,} of {wanted:,} pairs: at most 1 in {TENTH} of the pairs "
                "kept, and of those of a cell, goes there"
            )
    if settings.validation and not len(drawn.validation):
        notes.append(
            "no pair is left to validate with, so `tilth paraphrase train` refuses the corpus: "
            "give candidates of more sentences"
        )
    return notes


def _table(candidates: Candidates, pool: PairPool) -> pa.Table:
    """Return the rows of some pairs: texts, scores, tags, then their origin."""
    texts = candidates.take(pool.row)
    tags = pa.array([cell.tags for cell in CELLS]).take(pa.array(pool.cell))
    columns = {name: texts[name] for name in (TEXT_A, TEXT_B)}
    columns |= {MEANING: pool.meaning, WORDING: pool.wording, TAG_COLUMN: tags}
    return pa.table(columns | {name: texts[name] for name in texts.column_names[2:]})


def _card(run: Run, candidates: Candidates, results: dict[str, Any], drawn: DrawnSplits) -> Card:
    rows = [
        f"| `{cell['tags']}` | {cell['had']:,} | {cell['train']:,} |" for cell in results["cells"]
    ]
    extra = [("Cells", "\n".join(["| cell | kept | train |", "| --- | ---: | ---: |", *rows]))]
    if results["notes"]:
        extra.append(("Notes", "\n".join(f"- {note}" for note in results["notes"])))
    measured = "Meaning and wording came with the candidates; their cards say what measured them."
    if "scorer" in run.settings:
        measured = f"Meaning is measured by {describe_scorer(run.settings['scorer'])}."
    return Card(
        title="Pairs to train a rewriter with",
        summary=(
            f"{len(drawn.train):,} pairs of a sentence (`text_a`) and its rewrite (`text_b`) with "
            "their measured similarity in meaning and wording, drawn evenly from 48 cells. A "
            "rewriter reads `tags` and `text_a`, and writes `text_b`. Left out are pairs with a "
            "meaning of 70 or less or a wording above 45, as in the paper, pairs with a text under "
            "4 words, pairs that differ only in case and punctuation, and repeated pairs. "
            f"{measured}"
        ),
        command="paraphrase corpus",
        settings={"source": candidates.names, **run.settings},
        counts={name: {"pairs": len(pool)} for name, pool in drawn.splits().items()},
        drops=results["left_out"],
        model=_translators(candidates, drawn.train),
        seed=int(run.settings["seed"]),
        task_categories=("text2text-generation",),
        tags=("paraphrase",),
        extra=extra,
    )


def _translators(candidates: Candidates, pool: PairPool) -> str | None:
    """Return the translators that wrote the rewrites, if the rows name them."""
    some = candidates.take(pool.row[:_WRITE_ROWS])
    names = [
        str(name)
        for column in ("forward", "backward")
        if column in some.column_names
        for name in pc.unique(some[column]).to_pylist()
        if name is not None
    ]
    return ", ".join(dict.fromkeys(names)) or None

"""From scored candidates to the corpus of a rewriter: filtered, balanced over cells, split."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.data import Card, DatasetWriter, fingerprint, load_folder
from tilth.errors import TilthError
from tilth.limits import HELD_OUT_ROWS, METRIC, PARTS, ROWS, SEED
from tilth.models.names import describe_scorer
from tilth.paraphrase.balance import TENTH, Draw, Pool, draw
from tilth.paraphrase.candidate_reader import (
    MEANING,
    SCORES,
    TAGS,
    TEXT_A,
    TEXT_B,
    WORDING,
    Candidates,
    Chunk,
    Source,
    has_scores,
)
from tilth.paraphrase.filter import MEANING_LOW, Kept, keep, planed
from tilth.paraphrase.tags import CELLS, UNITS
from tilth.runs import Progress, Run, complete, read_results, refuse_inside

if TYPE_CHECKING:
    from datasets import DatasetDict

    from tilth.models.scorer import Scorer


def results_of(
    candidates: int, kept: Kept, drawn: Draw, *, chosen: bool, asked: tuple[int, int]
) -> dict[str, Any]:
    """Return what there was and what was drawn, as JSON values.

    Args:
        candidates: rows that were read.
        kept: what the filter left.
        drawn: the splits.
        chosen: whether the size was chosen here.
        asked: pairs asked for validation and for test.
    """
    splits = drawn.splits()
    counts = {name: pool.per_cell().tolist() for name, pool in splits.items()}
    had = kept.pool.per_cell()
    cells = [
        {
            "tags": cell.tags, "meaning": cell.meaning, "wording": cell.wording,
            "units": cell.units, "had": int(had[place]), "wanted": int(drawn.wanted[place]),
            **{name: count[place] for name, count in counts.items()},
        }
        for place, cell in enumerate(CELLS)
    ]  # fmt: skip
    return {
        "candidates": candidates,
        "kept": len(kept.pool),
        "left_out": {reason: rows for reason, rows in kept.left_out.items() if rows},
        "size": int(drawn.wanted.sum()),
        "drawn": {name: len(pool) for name, pool in splits.items()},
        "cells": cells,
        "plane": kept.plane.tolist(),
        "plane_drawn": planed(drawn.train.meaning, drawn.train.wording).tolist(),
        "notes": _notes(drawn, chosen=chosen, asked=asked),
    }


def _notes(drawn: Draw, *, chosen: bool, asked: tuple[int, int]) -> list[str]:
    """Return what a reader must know of the draw."""
    notes = []
    size, had = int(drawn.wanted.sum()), len(drawn.train)
    if chosen:
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
    for name, pool, wanted in zip(
        ("validation", "test"), (drawn.validation, drawn.test), asked, strict=True
    ):
        if len(pool) < wanted:
            notes.append(
                f"{name} has {len(pool):,} of {wanted:,} pairs: at most 1 in {TENTH} of the pairs "
                "kept, and of those of a cell, goes there"
            )
    return notes


log = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
HELD_OUT = 2_700  # 50 pairs a unit, as published
_WRITE_ROWS = 10_000
_RESULTS = {"candidates": int, "left_out": dict, "kept": int, "drawn": dict}


def make_corpus(
    source: Source | Sequence[Source],
    out: str | Path,
    *,
    size: int | None = None,
    validation: int = HELD_OUT,
    test: int = HELD_OUT,
    scorer: str = "starter",
    metric: str = "bleu",
    device: str = "auto",
    precision: str = "auto",
    seed: int = 0,
    part_size: int = 4096,
    overwrite: bool = False,
    quiet: bool = False,
) -> DatasetDict:
    """Make the corpus that a rewriter learns from.

    Kept are pairs with a meaning above 70 and a wording up to 45, both texts of 4 words or more.
    Of each of the 48 cells as many are drawn, of those with a wording below 10 twice as many;
    a cell that holds fewer is taken whole. No text of one split, source or rewrite, stands in
    another, whatever its case and punctuation. The same candidates in another order give the
    same rows.

    Args:
        source: candidates: a run of `tilth paraphrase candidates`, or any data set with text_a
            (the source), text_b (the rewrite) and, where known, meaning and wording; or several.
        out: the run folder; the set lies in its `dataset`.
        size: pairs to train on, shared out over 54 units; None: as many as leave at most a
            quarter of the cells short.
        validation: pairs to stop training with; at most a tenth of what is kept, and of a cell.
        test: likewise, to measure with.
        scorer: where meaning is not known: see `load_scorer`.
        metric: where wording is not known: `bleu` or `chrf`.
        device: of the scorer.
        precision: of the scorer.
        seed: of the draw and of the splits.
        part_size: pairs that are scored and written as one part.
        overwrite: begin the run anew.
        quiet: no progress.

    Returns:
        train, validation and test: text_a, text_b, meaning, wording, tags, and the columns that
        say where a pair came from.

    Raises:
        InputError: a setting or a source is wrong, or `out` holds another run.
        TilthError: no pair is kept, or none is left to train on.

    Reference:
        Ogasa, Kajiwara and Arase, sections 3.3 and 4.1. That rewrites, too, stay in one split is
        ours.
    """
    if size is not None:
        ROWS.check("size", size)
    for name, pairs in (("validation", validation), ("test", test)):
        HELD_OUT_ROWS.check(name, pairs)
    PARTS.check("part_size", part_size)
    SEED.check("seed", seed)
    METRIC.check("metric", metric)
    candidates = Candidates(source, part_size=part_size)
    refuse_inside(Path(out), *candidates.names)
    settings: dict[str, Any] = {
        "size": size, "validation": validation, "test": test, "seed": seed,
    }  # fmt: skip
    fingerprints = _fingerprints(candidates)
    rater: Scorer | None = None
    if candidates.parts:
        from tilth.models.scorer import load_scorer

        rater = load_scorer(scorer, device=device, precision=precision)
        settings |= {"scorer": scorer, "metric": metric, "part_size": part_size}
        fingerprints["scorer"] = rater.fingerprint
    run = Run.open(
        out,
        command="paraphrase corpus",
        settings=settings,
        fingerprints=fingerprints,
        parts=len(candidates.parts),
        outputs=("dataset", "results.json"),
        overwrite=overwrite,
    )
    with run:
        if rater is not None:
            _score(run, candidates, rater, metric, quiet=quiet)
        card = run.path / "dataset" / "README.md"
        if read_results(run.path, _RESULTS) is None or not card.is_file():
            _make(run, candidates, size, validation, test, seed, quiet=quiet)
    from datasets import DatasetDict

    return DatasetDict({name: load_folder(run.path, name) for name in SPLITS})


def _fingerprints(candidates: Candidates) -> dict[str, str]:
    found = {}
    for place, rows in enumerate(candidates.sets, start=1):
        columns = (TEXT_A, TEXT_B, *SCORES) if has_scores(rows) else (TEXT_A, TEXT_B)
        name = "candidates" if len(candidates.sets) == 1 else f"candidates {place}"
        found[name] = fingerprint(rows, columns)
    return found


def _score(run: Run, candidates: Candidates, scorer: Scorer, metric: str, *, quiet: bool) -> None:
    """Measure the pairs that come without scores, a part at a time."""
    from tilth.paraphrase import similarity

    chunks = candidates.parts

    def work(index: int, progress: Progress) -> pa.Table:
        first, second = candidates.texts(chunks[index])
        meaning = similarity.meaning(first, second, scorer)
        wording = similarity.wording(first, second, metric)
        progress.advance(done=len(first))
        return pa.table({MEANING: meaning, WORDING: wording})

    total = sum(chunk.end - chunk.start for chunk in chunks)
    with Progress(total, quiet=quiet, what="pairs") as progress:
        progress.skip(sum(chunks[part].end - chunks[part].start for part in run.done()))
        complete(run, work, progress=progress)


def _make(
    run: Run,
    candidates: Candidates,
    size: int | None,
    validation: int,
    test: int,
    seed: int,
    *,
    quiet: bool,
) -> None:
    """Filter, draw and write; what was found goes to results.json, last."""

    def scores(chunk: Chunk) -> pa.Table:
        return candidates.known_scores(chunk) if chunk.part is None else run.read_part(chunk.part)

    with Progress(len(candidates), quiet=quiet, what="candidates") as progress:
        kept = keep(candidates, scores, seed=seed, seen=progress.advance)
    if not len(kept.pool):
        raise TilthError(_nothing_kept(candidates, kept))
    drawn = draw(kept.pool, size, validation, test, seed=seed)
    if not len(drawn.train):
        raise TilthError(
            f"{', '.join(candidates.names)}: no pair is left to train on: all "
            f"{len(kept.pool):,} share a text with validation or test; make these smaller, or "
            "give candidates of more sources"
        )
    results = results_of(
        len(candidates), kept, drawn, chosen=size is None, asked=(validation, test)
    )
    for note in results["notes"]:
        log.warning("%s", note)
    with DatasetWriter(run.path / "dataset") as writer:
        for name, pool in drawn.splits().items():
            for start in range(0, max(len(pool), 1), _WRITE_ROWS):
                some = pool.at(np.arange(start, min(start + _WRITE_ROWS, len(pool))))
                writer.write(_table(candidates, some), split=name)
        writer.write_card(_card(run, candidates, results, drawn))
    run.write_file("results.json", json.dumps(results, indent=2) + "\n")


def _nothing_kept(candidates: Candidates, kept: Kept) -> str:
    reasons = [f"{rows:,} {reason}" for reason, rows in kept.left_out.items() if rows]
    hint = "give more or other candidates"
    if 0 < kept.highest <= 1 and kept.left_out[MEANING_LOW]:
        hint = "scores are 0 to 100: these seem to be 0 to 1"
    return (
        f"{', '.join(candidates.names)}: none of {len(candidates):,} pairs is kept "
        f"({', '.join(reasons)}): {hint}"
    )


def _table(candidates: Candidates, pool: Pool) -> pa.Table:
    """Return the rows of some pairs: texts, scores, tags, then their origin."""
    texts = candidates.take(pool.row)
    tags = pa.array([cell.tags for cell in CELLS]).take(pa.array(pool.cell))
    columns = {name: texts[name] for name in (TEXT_A, TEXT_B)}
    columns |= {MEANING: pool.meaning, WORDING: pool.wording, TAGS: tags}
    return pa.table(columns | {name: texts[name] for name in texts.column_names[2:]})


def _card(run: Run, candidates: Candidates, results: dict[str, Any], drawn: Draw) -> Card:
    rows = [
        f"| `{cell['tags']}` | {cell['had']:,} | {cell['train']:,} |" for cell in results["cells"]
    ]
    table = "\n".join(["| cell | there were | to train on |", "| --- | ---: | ---: |", *rows])
    return Card(
        title="Pairs to train a rewriter with",
        summary=(
            f"{len(drawn.train):,} pairs of a sentence (`text_a`) and its rewrite (`text_b`) with "
            "their measured similarity of meaning and of wording, drawn evenly over 48 cells. A "
            "rewriter reads `tags` and `text_a`, and writes `text_b`. Left out are pairs with a "
            "meaning of 70 or less or a wording above 45, as in the paper, and those that have a "
            "text under 4 words, are the same but for case and punctuation, or were there before. "
            f"{_measured_by(run.settings.get('scorer'))}"
        ),
        command="paraphrase corpus",
        settings={"source": candidates.names, **run.settings},
        counts={name: {"pairs": len(pool)} for name, pool in drawn.splits().items()},
        drops=results["left_out"],
        model=_writers(candidates, drawn.train),
        seed=int(run.settings["seed"]),
        task_categories=("text2text-generation",),
        tags=("paraphrase",),
        extra=[
            ("Cells", table),
            *(
                [("Notes", "\n".join(f"- {note}" for note in results["notes"]))]
                * bool(results["notes"])
            ),
        ],
    )


def _measured_by(scorer: Any) -> str:
    if scorer is None:
        return "Meaning and wording came with the candidates; their cards say what measured them."
    return f"Meaning is measured by {describe_scorer(scorer)}."


def _writers(candidates: Candidates, pool: Pool) -> str | None:
    """Return the translators that wrote the rewrites, as far as the rows say so."""
    some = candidates.take(pool.row[:_WRITE_ROWS])
    names = [
        str(name)
        for column in ("forward", "backward")
        if column in some.column_names
        for name in pc.unique(some[column]).to_pylist()
        if name is not None
    ]
    return ", ".join(dict.fromkeys(names)) or None

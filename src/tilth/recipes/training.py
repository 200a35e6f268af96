"""Train an encoder and see what it gained: base and result on STS sets, with a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilth.encoders.bi_encoder import train_encoder
from tilth.encoders.fitting import SCORES
from tilth.encoders.pairs import Pairs, read_pairs
from tilth.errors import InputError
from tilth.evaluate.overlap import without_overlap
from tilth.evaluate.sets import StsSet, asked_sets, read_sets
from tilth.evaluate.sts import check_sets, most_wrong, summarise_sts
from tilth.models.encoder import load_encoder
from tilth.recipes.measuring import (
    WRONG_PAIRS,
    Scores,
    bars_of,
    curve_of,
    measure,
    remarks,
)
from tilth.recipes.table import Cell, Row, Table
from tilth.report.encoders import Bar, Curve, write_encoder_report
from tilth.runs import refuse_inside

BEFORE, AFTER = "before training", "after training"


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training gave.

    Attributes:
        best: the step whose weights were kept.
        validation: Spearman's correlation x 100 there, on the validation part.
        scores: before and after training, as of `evaluate_sts`; empty without sets.
        table: the same as a table.
        notes: what must be said beside.
    """

    best: int
    validation: float
    scores: Mapping[str, Scores] = field(default_factory=dict)
    table: Table | None = None
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        found = asdict(self)
        del found["table"]
        return found


def train_and_measure(
    source: str,
    out: Path,
    *,
    base: str,
    sts: str | None,
    drop_overlap: bool,
    device: str,
    overwrite: bool,
    quiet: bool,
    training: Mapping[str, Any],
) -> Trained:
    """Train in a run folder, measure on STS sets where given, and write the page.

    Args:
        source: see `read_pairs`.
        out: the run folder.
        base: see `train_encoder`.
        sts: where STS sets lie, see `evaluate_sts`; None: the result is not measured.
        drop_overlap: leave out pairs that hold a sentence of these sets.
        device: see `train_encoder`.
        overwrite: see there.
        quiet: see there.
        training: its settings.

    Raises:
        InputError: something given is wrong.
        TilthError: training failed.
    """
    if drop_overlap and sts is None:
        raise InputError("drop-overlap needs the sets: say with --sts where they lie")
    refuse_inside(out, source, named=(base, sts))
    found = read_sets(sts) if sts is not None else []
    check_sets(found, "all")
    parts = read_pairs(source, seed=training.get("seed", 0))
    notes = []
    if drop_overlap:
        parts, dropped = _without(parts, found)
        notes.append(f"{dropped:,} pairs hold a sentence of the sets and were left out.")
    given = parts.splits() if drop_overlap else source
    encoder = train_encoder(
        given, base, out, device=device, overwrite=overwrite, quiet=quiet, **training
    )
    curve = curve_of(out, "validation")
    scores: dict[str, Scores] = {}
    wrong = []
    bars: list[Bar] = []
    if sts is not None:
        before = load_encoder(
            base,
            pooling=training.get("pooling"),
            max_length=training.get("max_length"),
            device=device,
        )
        rows = parts.all_rows()
        for name, model in ((BEFORE, before), (AFTER, encoder)):
            measured = measure(model, found, out / SCORES / name, training=rows)
            scores[name] = summarise_sts(measured, asked_sets(sts))
            bars += bars_of(name, scores[name])
            wrong = most_wrong(measured, WRONG_PAIRS)
        notes += remarks(scores[AFTER])
    result = Trained(curve.best, max(curve.values), scores, _table(scores), notes)
    _write_page(out, result, curve, base, source, len(parts.train), bars, wrong)
    return result


def drop_shared(parts: Pairs, found: Sequence[StsSet]) -> Pairs:
    """Leave out the pairs that hold a sentence of a set.

    Raises:
        InputError: none is left to train on or to choose the checkpoint with.
    """
    left = Pairs(
        without_overlap(parts.train, found)[0], without_overlap(parts.validation, found)[0]
    )
    for name, rows in (("training", left.train), ("validation", left.validation)):
        if not len(rows):
            raise InputError(
                f"every {name} pair holds a sentence of the sets: drop-overlap leaves none; give "
                "other pairs"
            )
    return left


def _without(parts: Pairs, found: Sequence[StsSet]) -> tuple[Pairs, int]:
    left = drop_shared(parts, found)
    before = len(parts.train) + len(parts.validation)
    return left, before - len(left.train) - len(left.validation)


def _table(scores: Mapping[str, Scores]) -> Table | None:
    if not scores:
        return None
    columns = list(scores[AFTER])
    rows = [
        Row(name, {key: Cell(score["spearman"]) for key, score in found.items()})
        for name, found in scores.items()
    ]
    gain = {
        key: Cell(scores[AFTER][key]["spearman"] - scores[BEFORE][key]["spearman"])
        for key in columns
    }
    return Table("Spearman x 100 on STS", columns, [*rows, Row("gain", gain)])


def _write_page(
    out: Path,
    result: Trained,
    curve: Curve,
    base: str,
    source: str,
    pairs: int,
    bars: Sequence[Bar],
    wrong: Sequence[Mapping[str, Any]],
) -> None:
    write_encoder_report(
        out / "report.html",
        title=f"Encoder trained on {source}",
        facts=[
            ("base", base),
            ("pairs", f"{pairs:,} to train on"),
            ("kept", f"step {result.best}, validation Spearman {result.validation:.1f}"),
        ],
        bars=bars,
        metric="Spearman",
        interval="bootstrap 95%",
        curves=[curve],
        wrong={AFTER: wrong} if wrong else {},
        notes=result.notes,
    )

"""Train an encoder and see how good it is beside its base and the shipped encoders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.encoders.bi_encoder import train_encoder
from tilth.encoders.graded_pairs import Pairs, read_pairs
from tilth.encoders.train import SCORES
from tilth.errors import InputError
from tilth.evaluate.overlap import without_overlap
from tilth.evaluate.sts import check_sets, most_wrong, summarise_sts
from tilth.evaluate.sts_sets import StsSet, asked_sets, read_sets
from tilth.files import atomic_write
from tilth.models.encoder import load_encoder
from tilth.models.names import ENCODERS
from tilth.report.encoders import Bar, Curve, write_encoder_report
from tilth.report.systems import generated_words
from tilth.runs import RESULTS, Progress, refuse_inside
from tilth.workflows.evaluate_sts import (
    WRONG_PAIRS,
    Scores,
    bars_of,
    curve_of,
    measure,
    remarks,
)
from tilth.workflows.table import Cell, Row, Table

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BEFORE, AFTER = "before training", "after training"
SHIPPED = ("starter-static", "starter-encoder")  # measured beside, untrained; the better one last


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training gave.

    Attributes:
        best: the step whose weights were kept.
        validation: Spearman's correlation x 100 there, on the validation part.
        validated: how many rows that part has, and how many of these a model wrote.
        scores: of each encoder, as of `evaluate_sts`; empty without sets.
        table: the same as a table.
        warnings: what at hand is better, and what to do.
        notes: what else must be said beside.
    """

    best: int
    validation: float
    validated: Mapping[str, int]
    scores: Mapping[str, Scores] = field(default_factory=dict)
    table: Table | None = None
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def validation_words(self) -> str:
        """What the validation figure is called."""
        return f"validation{generated_words(self.validated)}"

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
    """Train in a run folder, measure on STS sets where given, and write results and page.

    On the sets, the base and the shipped encoders are measured too.

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
    validated = {"rows": len(parts.validation), "generated": parts.written}
    curve = curve_of(out, f"validation{generated_words(validated)}")
    scores: dict[str, Scores] = {}
    wrong = []
    bars: list[Bar] = []
    if sts is not None:
        how = {"pooling": training.get("pooling"), "max_length": training.get("max_length")}
        encoders = {BEFORE: load_encoder(base, device=device, **how), AFTER: encoder}
        shipped = _shipped(base, device)
        rows = parts.all_rows()
        total = sum(map(len, found)) * (len(encoders) + len(shipped))
        with Progress(total, quiet=quiet, what="STS pairs") as progress:
            for name, model in (encoders | shipped).items():
                measured = measure(
                    model, found, out / SCORES / name,
                    training=rows if name in encoders else None, progress=progress,
                )  # fmt: skip
                scores[name] = summarise_sts(measured, asked_sets(sts))
                bars += bars_of(name, scores[name])
                if name == AFTER:
                    wrong = most_wrong(measured, WRONG_PAIRS)
        notes += remarks(scores[AFTER])
    if generated_words(validated):
        notes.append(
            f"Validation{generated_words(validated)} does not measure real data: give --sts with "
            "pairs that people scored."
        )
    result = Trained(
        curve.best, max(curve.values), validated, scores, _table(scores), _warnings(scores), notes
    )
    text = json.dumps(result.to_dict(), indent=2) + "\n"
    atomic_write(out / RESULTS, lambda file: file.write(text.encode()))
    _write_page(out, result, curve, base, source, len(parts.train), bars, wrong)
    return result


def _shipped(base: str, device: str) -> dict[str, SentenceTransformer]:
    """Return the shipped encoders that the base is not, where they are installed."""
    found = {}
    for name in SHIPPED:
        if ENCODERS.get(base) != ENCODERS[name]:
            try:
                found[name] = load_encoder(name, device=device)
            except InputError:
                return {}
    return found


def _warnings(scores: Mapping[str, Scores]) -> list[str]:
    """Say which encoder at hand has a higher mean than the trained one, and what to do."""
    if not scores:
        return []
    means = {name: found["mean"]["spearman"] for name, found in scores.items()}
    best = max(means, key=lambda name: means[name])
    if means[best] <= means[AFTER]:
        return []
    remedy = (
        "training made it worse: take the base as it is, or give pairs nearer to what it is for"
        if best == BEFORE
        else f"take {best} as it is, or train it: --base {best}"
    )
    return [
        f"Warning: {best} has {means[best]:.1f} in the mean, the trained encoder "
        f"{means[AFTER]:.1f}: {remedy}"
    ]


def drop_shared(parts: Pairs, found: Sequence[StsSet]) -> Pairs:
    """Leave out the pairs that hold a sentence of a set.

    Raises:
        InputError: none is left to train on or to choose the checkpoint with.
    """
    validation = without_overlap(parts.validation, found)[0]
    left = Pairs(
        without_overlap(parts.train, found)[0], validation, min(parts.written, len(validation))
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
    return Table("Spearman x 100 on STS", columns, [*rows, Row("after less before", gain)])


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
            (
                "kept",
                f"step {result.best}, {result.validation_words} Spearman {result.validation:.1f}",
            ),
        ],
        bars=bars,
        metric="Spearman",
        interval="bootstrap 95%",
        curves=[curve],
        wrong={AFTER: wrong} if wrong else {},
        notes=[*result.warnings, *result.notes],
    )

"""Train an encoder and compare it with its base and the shipped encoders on STS sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.encoders.graded_pairs import FEWEST, LABEL, TrainingPairs, read_pairs
from tilth.errors import InputError
from tilth.evaluate.overlap import apart
from tilth.evaluate.sts import check_sets, most_wrong_pairs, summarise_sts
from tilth.evaluate.sts_files import known_columns
from tilth.evaluate.sts_sets import StsSet, asked_sets, read_sets
from tilth.models.names import ENCODER
from tilth.report.encoders import EncoderComparison, write_encoder_report
from tilth.report.systems import generated_words
from tilth.runs import Progress, refuse_inside, write_results
from tilth.runs.out_folder import refuse_without
from tilth.workflows.evaluate_sts import WRONG_PAIRS, Scores, bars_of, curve_of, measure, remarks
from tilth.workflows.settings import EncoderOptions

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BEFORE, AFTER = "before training", "after training"
SHIPPED = ("starter-static", "starter-encoder")  # measured untrained; the better one last


@dataclass(frozen=True, slots=True)
class TrainedEncoder:
    """Results of a training, as results.json holds them.

    Attributes:
        best: step of the kept checkpoint.
        validation: Spearman's correlation x 100 of that step on the validation part.
        validated: rows of the validation part, and how many of them a model wrote.
        scores: per encoder; empty without sets.
        warnings: which available encoder is better, and the remedy.
    """

    best: int
    validation: float
    validated: Mapping[str, int]
    scores: Mapping[str, Scores] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def validation_words(self) -> str:
        """Name of the validation figure."""
        return f"validation{generated_words(self.validated)}"

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and lines of a table of Spearman x 100; no lines if nothing was measured."""
        if not self.scores:
            return [], []
        sets = list(self.scores[AFTER])
        values = {
            name: [found[key]["spearman"] for key in sets] for name, found in self.scores.items()
        }
        gains = zip(values[AFTER], values[BEFORE], strict=True)
        values["gain"] = [after - before for after, before in gains]
        lines = [[name, *(f"{one:.1f}" for one in row)] for name, row in values.items()]
        return ["", *sets], lines


def train_and_measure(
    source: str,
    out: Path,
    options: EncoderOptions,
    *,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> TrainedEncoder:
    """Train in a run folder, measure on STS sets if given, and write results and report.

    On the sets, the base and the shipped encoders are measured too.
    """
    base, sts, training = options.base, options.sts, options.training
    if options.drop_overlap and sts is None:
        raise InputError("drop-overlap needs the sets: say with --sts where they lie")
    refuse_inside(out, source, named=(base, sts))
    if sts is None and not overwrite:
        refuse_without(out, "scores", "--sts")
    found = [] if sts is None else read_sets(sts, columns=known_columns(sts, *training.names))
    check_sets(found, "all")
    parts = read_pairs(source, seed=training.seed, names=training.names)
    notes = []
    if options.drop_overlap:
        before = len(parts.all_rows())
        parts = drop_shared(parts, found)
        _check_left(parts)
        dropped = before - len(parts.all_rows())
        notes.append(f"{dropped:,} pairs hold a sentence of the sets and were left out.")
    from tilth.encoders.bi_encoder import cosine_training  # imports torch
    from tilth.encoders.train import SCORES
    from tilth.models.encoder import load_encoder

    job = cosine_training(source, base, training)
    encoder = job.train(job.load_base(device), parts, out, overwrite=overwrite, quiet=quiet)
    written = 0 if parts.written is None else int(parts.written.sum())
    validated = {"rows": len(parts.validation), "generated": written}
    curve = curve_of(out, f"validation{generated_words(validated)}")
    scores: dict[str, Scores] = {}
    wrong: list[dict[str, Any]] = []
    if sts is not None:
        how = {"pooling": training.pooling, "max_length": training.max_length}
        before_training = load_encoder(base, device=device, **how)  # type: ignore[arg-type]
        encoders = {BEFORE: before_training, AFTER: encoder, **_shipped(base, device)}
        rows = parts.all_rows()
        with Progress(sum(map(len, found)) * len(encoders), quiet=quiet, what="STS pairs") as bar:
            for name, model in encoders.items():
                measured = measure(
                    model, found, out / SCORES / name,
                    training=rows if name in (BEFORE, AFTER) else None, progress=bar,
                )  # fmt: skip
                scores[name] = summarise_sts(measured, asked_sets(sts))
                if name == AFTER:
                    wrong = most_wrong_pairs(measured, WRONG_PAIRS)
        notes += remarks(scores[AFTER])
    if generated_words(validated):
        remedy = "read the STS figures" if scores else "give --sts with pairs that people scored"
        notes.append(
            f"Validation{generated_words(validated)} does not measure real data: {remedy}."
        )
    result = TrainedEncoder(
        curve.best, max(curve.values), validated, scores, _warnings(scores), notes
    )
    write_results(out, asdict(result))
    kept = f"step {result.best}, {result.validation_words} Spearman {result.validation:.1f}"
    bars = [bar for name, one in scores.items() for bar in bars_of(name, one)]
    write_encoder_report(
        out / "report.html",
        EncoderComparison(bars, curves=[curve], wrong={AFTER: wrong} if wrong else {}),
        title=f"Encoder trained on {source}",
        facts=[("base", base), ("pairs", f"{len(parts.train):,} to train on"), ("kept", kept)],
        notes=[*result.warnings, *result.notes],
    )
    return result


def _shipped(base: str, device: str) -> dict[str, SentenceTransformer]:
    """Return the shipped encoders other than the base that are installed."""
    from tilth.models.encoder import load_encoder

    found = {}
    for name in SHIPPED:
        if ENCODER.starters.get(base) != ENCODER.starters[name]:
            try:
                found[name] = load_encoder(name, device=device)
            except InputError:
                return {}
    return found


def _warnings(scores: Mapping[str, Scores]) -> list[str]:
    """Return which available encoder has a higher mean than the trained one, and the remedy."""
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


def drop_shared(parts: TrainingPairs, found: Sequence[StsSet]) -> TrainingPairs:
    """Leave out the pairs that hold a sentence of a set; refuse sets that leave a part empty."""
    kept = apart(parts.validation, found)
    left = TrainingPairs(
        parts.train.select(apart(parts.train, found)), parts.validation.select(kept),
        None if parts.written is None else parts.written[kept],
    )  # fmt: skip
    for name, rows in (("training", left.train), ("validation", left.validation)):
        if not len(rows):
            raise InputError(
                f"every {name} pair holds a sentence of the sets: drop-overlap leaves none; give "
                "other pairs"
            )
    return left


def _check_left(parts: TrainingPairs) -> None:
    """Refuse graded pairs of which too few are left to train and to choose with."""
    for name, rows in (("training", parts.train), ("validation", parts.validation)):
        if len(rows) < FEWEST or len(set(rows[LABEL][:])) < 2:
            raise InputError(
                f"drop-overlap leaves {len(rows):,} {name} pairs, the others hold a sentence of "
                f"the sets: give pairs of which {FEWEST} of two labels or more are left"
            )

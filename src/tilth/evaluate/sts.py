"""Evaluates encoders on STS: correlation of their cosines with people's similarity scores."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilth.errors import InputError, TilthError
from tilth.evaluate.overlap import Rows, find_overlap, untouched
from tilth.evaluate.sts_sets import StsSet, asked_sets, read_sets
from tilth.limits import PROTOCOL
from tilth.metrics.correlation import (
    Numbers,
    average_ranks,
    bootstrap_spearman,
    pearson,
    spearman,
)
from tilth.metrics.scores import times_100
from tilth.metrics.significance import check_resamples, percentile_interval
from tilth.models.names import loaded

if TYPE_CHECKING:
    from tilth.data.examples import Source
    from tilth.runs import Progress

log = logging.getLogger(__name__)

_FEWEST_PAIRS = 3
# SemEval's sets, made of subsets; copies on the hub do not say which pair is of which.
_DIVIDED = ("sts12", "sts13", "sts14", "sts15", "sts16")
BATCH = 64
_BATCHES_AT_ONCE = 16  # given to a SentenceTransformer between two updates of the progress
# Cosines are rounded to this: identical texts tie at 1 instead of differing in the 16th digit.
DECIMALS = 12


class Encoder(Protocol):
    """A sentence encoder, such as a SentenceTransformer."""

    def encode(self, sentences: list[str], /) -> Any:
        """Return one vector per sentence, (sentences, width)."""


def pair_cosines(
    encoder: Encoder, sets: Sequence[StsSet], progress: Progress | None = None
) -> list[NDArray[np.float64]]:
    """Return the cosines of each set's pairs, (pairs,); each distinct sentence is encoded once.

    The cosine with a zero vector is 0.
    """
    texts = list(dict.fromkeys(text for sts in sets for text in (*sts.texts_a, *sts.texts_b)))
    index = {text: row for row, text in enumerate(texts)}
    pairs = sum(map(len, sets))
    vectors = _encode(encoder, texts, pairs, progress)  # (texts, width)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise TilthError(
            f"the encoder gives no finite vector for {texts[int(np.argmin(finite))]!r:.200}: "
            "its weights may be broken: train it again with a smaller learning rate, or load "
            "another"
        )
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(norms == 0, 1.0, norms)
    found = []
    for sts in sets:
        one = vectors[[index[text] for text in sts.texts_a]]  # (pairs, width)
        two = vectors[[index[text] for text in sts.texts_b]]  # (pairs, width)
        found.append(np.round(np.einsum("pw,pw->p", one, two), DECIMALS))  # (pairs,)
    return found


def _encode(
    encoder: Encoder, texts: list[str], pairs: int, progress: Progress | None
) -> NDArray[np.float64]:
    """Return vectors in float64, (texts, width)."""
    encode: Any = encoder.encode
    options = inspect.signature(encode).parameters
    given: dict[str, Any] = {}
    size = BATCH
    if "batch_size" in options:  # a SentenceTransformer sorts by length and batches itself
        given = {"batch_size": BATCH}
        given |= {"show_progress_bar": False} if "show_progress_bar" in options else {}
        size = BATCH * _BATCHES_AT_ONCE
    order = np.argsort([-len(text) for text in texts], kind="stable")
    blocks, done = [], 0
    for start in range(0, len(order), size):
        blocks.append(encode([texts[place] for place in order[start : start + size]], **given))
        if progress is not None:
            before, done = done, min(start + size, len(order)) * pairs // len(order)
            progress.advance(done - before)
    found = np.concatenate([np.asarray(block, np.float64) for block in blocks])
    if found.ndim != 2 or len(found) != len(texts):
        raise TilthError(
            f"the encoder gives an array {found.shape} for {len(texts)} texts: encode must return "
            "one vector per text, (texts, width)"
        )
    vectors = np.empty_like(found)
    vectors[order] = found
    return vectors  # (texts, width)


@dataclass(frozen=True, slots=True, eq=False)
class SetCosines:
    """A set with the encoder's cosines.

    Attributes:
        cosine: -1 to 1; 0 where a vector is zero. # (pairs,)
        overlap: counts of rows, pairs and sentences; None: no training rows were given.
        dropped: pairs left out for their overlap; None: overlap was not to be dropped.
    """

    sts: StsSet
    cosine: Numbers
    overlap: dict[str, int] | None = None
    dropped: int | None = None


def evaluate_sts(
    encoder: Encoder | str | Path,
    data: Source,
    *,
    protocol: str = "all",
    sets: Sequence[str] | None = None,
    training: Rows | None = None,
    drop_overlap: bool = False,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Evaluate an encoder on STS sets: correlation x 100 of its cosines with human scores.

    Args:
        encoder: a SentenceTransformer, or anything with `encode(list of texts) -> array`, or a
            name that `load_encoder` knows.
        data: scored pairs: rows with text_a, text_b and score, a file of them, a folder of STS
            sets, `hub`, or one data set of the hub.
        protocol: `all`: one correlation over all pairs of a set; `mean`: the unweighted mean of
            its subsets' correlations.
        sets: None: sts12 to sts16, stsb, sick, or a file's own.
        training: rows the encoder was trained on, for the overlap with the sets.
        drop_overlap: leave out pairs with a text that occurs in the training rows.
        bootstrap: resamples for the 95% interval of Spearman; 0: no interval.

    Returns:
        Set name -> spearman, pearson, n (pairs), low, high (None without bootstrap), data (12 hex
        digits over the pairs), subsets (name -> spearman, pearson, n; None where undefined),
        overlap (with training), dropped (with drop_overlap). "mean" -> spearman, pearson, low,
        high over the sets, sets (their names), missing (asked for, not in the mean).

    Raises:
        InputError: an argument or the data is wrong.
        TilthError: the encoder returns NaN, or the same vector for every text.

    Reference:
        Protocols: Schick and Schütze 2021, arXiv:2104.07540, section 4 (`all`) and Table 5
        (`mean`). Cosine alone, where the original's evaluator took the best of four similarities.
    """
    check_options(protocol, drop_overlap, training, bootstrap, seed)
    model: Encoder = loaded(encoder, "encoder", "tilth.models.encoder:load_encoder", "encode")
    measured = measure_sets(
        model, read_sets(data, sets), protocol=protocol, training=training,
        drop_overlap=drop_overlap,
    )  # fmt: skip
    return summarise_sts(
        measured, asked_sets(data, sets), protocol=protocol, bootstrap=bootstrap, seed=seed
    )


def measure_sets(
    encoder: Encoder,
    found: Sequence[StsSet],
    *,
    protocol: str = "all",
    training: Rows | None = None,
    drop_overlap: bool = False,
    progress: Progress | None = None,
) -> list[SetCosines]:
    """Return the cosines of the sets' pairs; each distinct sentence is encoded once.

    `protocol` decides only which correlations must be defined.
    """
    if isinstance(training, (str, Path)):
        raise InputError(f"training {str(training)!r} is a name: give rows, read by read_rows")
    check_sets(found, protocol)
    overlaps = {} if training is None else find_overlap(training, found)
    kept: list[tuple[StsSet, int]] = []
    for sts in found:
        left = sts.keep(untouched(sts, overlaps[sts.name])) if drop_overlap else sts
        wrong, dropped = _undefined(left, protocol, sts.subsets), len(sts) - len(left)
        if wrong:
            log.warning("%s: left out, after %d pairs were dropped: %s", sts.name, dropped, wrong)
        else:
            kept.append((left, dropped))
    if not kept:
        raise InputError(
            "dropping the overlap leaves no set with enough pairs: train on other rows"
        )
    cosines = pair_cosines(encoder, [sts for sts, _ in kept], progress)
    measured = [
        SetCosines(
            sts,
            cosine,
            overlaps[sts.name].counts() if overlaps else None,
            dropped if drop_overlap else None,
        )
        for (sts, dropped), cosine in zip(kept, cosines, strict=True)
    ]
    for one in measured:
        _check_cosines(one, protocol)
    return measured


def check_sets(found: Sequence[StsSet], protocol: str) -> None:
    """Check that every set, or for `mean` every subset, has enough pairs and unequal scores."""
    for sts in found:
        if protocol == "mean" and sts.name in _DIVIDED and set(sts.subsets) == {sts.name}:
            log.warning("%s: its files name no subsets: mean is the same as all here", sts.name)
        wrong = _undefined(sts, protocol, sts.subsets)
        if wrong:
            raise InputError(f"{wrong}: give other pairs, or leave {sts.name} out of sets")


def summarise_sts(
    measured: Sequence[SetCosines],
    asked: Sequence[str],
    *,
    protocol: str = "all",
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Return the correlations of sets from `measure_sets`, as `evaluate_sts` does.

    Each set is resampled with its own generator of (seed, name).
    """
    scores: dict[str, dict[str, Any]] = {}
    replicates = []
    for one in measured:
        drawn = _replicates(one, protocol, bootstrap, seed)  # (resamples,)
        replicates.append(drawn)
        scores[one.sts.name] = _summary(one, protocol, drawn)
    names = list(scores)
    low, high = _interval(np.mean(replicates, axis=0))
    scores["mean"] = {
        "spearman": float(np.mean([scores[name]["spearman"] for name in names])),
        "pearson": float(np.mean([scores[name]["pearson"] for name in names])),
        "low": low,
        "high": high,
        "sets": names,
        "missing": [name for name in asked if name not in names],
    }
    return scores


def most_wrong_pairs(measured: Sequence[SetCosines], count: int) -> list[dict[str, Any]]:
    """Return the pairs whose ranks by cosine and by human scores differ most.

    At most `count`: half are rated too high by the encoder, half too low, an odd one too high.

    Returns:
        Dicts of set, text_a, text_b, gold, cosine, gold_rank and cosine_rank (percentile in the
        set, 0 to 1): first those rated too high, each half by falling difference.
    """
    rows: list[dict[str, Any]] = []
    for one in measured:
        gold_rank, cosine_rank = _percentiles(one.sts.gold), _percentiles(one.cosine)  # (pairs,)
        rows += [
            {
                "set": one.sts.name,
                "text_a": one.sts.texts_a[row],
                "text_b": one.sts.texts_b[row],
                "gold": float(one.sts.gold[row]),
                "cosine": float(one.cosine[row]),
                "gold_rank": float(gold_rank[row]),
                "cosine_rank": float(cosine_rank[row]),
            }
            for row in range(len(one.cosine))
        ]
    rows.sort(key=lambda row: row["gold_rank"] - row["cosine_rank"])  # stable
    high = [row for row in rows if row["cosine_rank"] > row["gold_rank"]]
    low = [row for row in reversed(rows) if row["cosine_rank"] < row["gold_rank"]]
    return high[: (count + 1) // 2] + low[: count // 2]


def check_options(
    protocol: str, drop_overlap: bool, training: object, bootstrap: int = 0, seed: int = 0
) -> None:
    """Check the options that need neither encoder nor data."""
    PROTOCOL.check("protocol", protocol)
    if drop_overlap and training is None:
        raise InputError("drop_overlap needs the training rows: name them with --train")
    check_resamples(bootstrap, seed)


def _is_mean(sts: StsSet, protocol: str) -> bool:
    """Return whether subsets count: the genres and files of STSb are one set (Cer et al. 2017)."""
    return protocol == "mean" and sts.name.partition("-")[0] != "stsb"


def _groups(sts: StsSet, protocol: str) -> dict[str, NDArray[np.intp]]:
    """Return the groups with their own correlation: name for messages -> rows."""
    if not _is_mean(sts, protocol):
        return {f"set {sts.name}": np.arange(len(sts))}
    return {f"subset {key} of {sts.name}": at for key, at in sts.subset_places().items()}


def _undefined(sts: StsSet, protocol: str, subsets: Sequence[str]) -> str | None:
    """Return why a set has no correlation, None if it has; a lost subset would change the mean."""
    if not len(sts):
        return f"set {sts.name} has 0 pairs"
    lost = sorted(set(subsets) - set(sts.subsets))
    if _is_mean(sts, protocol) and lost:
        return f"subset {lost[0]} of {sts.name} has 0 pairs"
    for name, places in _groups(sts, protocol).items():
        if len(places) < _FEWEST_PAIRS:
            return f"{name} has {len(places)} pairs: Spearman needs {_FEWEST_PAIRS} or more"
        if np.ptp(sts.gold[places]) == 0:
            return f"{name}: Spearman is undefined: every score is {sts.gold[places[0]]:g}"
    return None


def _check_cosines(one: SetCosines, protocol: str) -> None:
    for name, places in _groups(one.sts, protocol).items():
        cosine = one.cosine[places]
        if np.ptp(cosine) <= 2 * 10.0**-DECIMALS:
            raise TilthError(
                f"{name}: correlation is undefined: all {len(places)} pairs have cosine "
                f"{cosine[0]:.3f}: the encoder gives every text the same vector: train it longer, "
                "or load another"
            )


def _replicates(one: SetCosines, protocol: str, resamples: int, seed: int) -> Numbers:
    """Return Spearman of resamples, drawn within subsets for `mean`, (resamples,)."""
    key = blake2b(f"{seed}/{one.sts.name}".encode(), digest_size=16).digest()
    generator = np.random.default_rng(int.from_bytes(key, "big"))
    drawn = [
        bootstrap_spearman(one.sts.gold[places], one.cosine[places], resamples, generator)
        for places in _groups(one.sts, protocol).values()
    ]
    return np.asarray(np.mean(drawn, axis=0))  # (resamples,)


def _summary(one: SetCosines, protocol: str, replicates: Numbers) -> dict[str, Any]:
    gold, cosine = one.sts.gold, one.cosine
    groups = list(_groups(one.sts, protocol).values())
    low, high = _interval(replicates)
    summary: dict[str, Any] = {
        "spearman": 100 * float(np.mean([spearman(gold[at], cosine[at]) for at in groups])),
        "pearson": 100 * float(np.mean([pearson(gold[at], cosine[at]) for at in groups])),
        "n": len(gold),
        "low": low,
        "high": high,
        "data": one.sts.identity,
        "subsets": {
            name: {
                "spearman": times_100(spearman(gold[at], cosine[at])),
                "pearson": times_100(pearson(gold[at], cosine[at])),
                "n": len(at),
            }
            for name, at in one.sts.subset_places().items()
        },
    }
    if one.overlap is not None:
        summary["overlap"] = one.overlap
    if one.dropped is not None:
        summary["dropped"] = one.dropped
    return summary


def _interval(replicates: Numbers) -> tuple[float | None, float | None]:
    if not len(replicates):
        return None, None
    low, high = percentile_interval(replicates)
    return (None, None) if low == high else (100 * low, 100 * high)  # of very few pairs


def _percentiles(values: Numbers) -> Numbers:
    """Return ranks from 0 to 1, equal for equal values, (pairs,)."""
    return (average_ranks(values) - 1) / (len(values) - 1)

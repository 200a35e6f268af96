"""Reads graded pairs for `tilth grow --task similarity`, and compares encoders by Spearman."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.load import check_disjoint
from tilth.data.hashing import random_keys, text_hashes
from tilth.data.normalize import normalize_rows
from tilth.data.sources import source_name
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, read_dev_pairs
from tilth.errors import InputError
from tilth.metrics.correlation import pearson, spearman, spearman_of_counts
from tilth.metrics.significance import Interval, percentile_interval
from tilth.models.names import ENCODER
from tilth.workflows.grow.arms import Arm
from tilth.workflows.grow.search import Search
from tilth.workflows.grow.task import Fold, split_folds, validation_folds

if TYPE_CHECKING:
    from tilth.data.examples import Names, Source
    from tilth.workflows.grow.settings import GrowSources, Growth

log = logging.getLogger(__name__)

STARTER, STATIC = "starter-encoder", "starter-static"
AS_IT_IS = "{}, as it is"
SIMCSE, DENOISED, NEAR = "SimCSE", "denoising", "near duplicates"
REWRITTEN, GENERATED_PAIRS, DISTILLED = "rewrites", "generated pairs", f"{STARTER}'s cosines"
PAIRS = "labelled pairs"
# Sources in the order in which a mixture is trained on them: raw text first, people's labels last.
STAGES = (DENOISED, SIMCSE, REWRITTEN, NEAR, DISTILLED, GENERATED_PAIRS, PAIRS)
_FEW = 100  # pairs to choose by
_FEWEST = 10
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class SimilarityTask:
    """Graded pairs: their targets, (pairs, 1), are similarities from 0 to 1.

    Attributes:
        rows: pairs that may be trained on.
        validation: pairs that choose; None: cross-validation of the rows does.
        test: pairs that nothing is chosen by.
    """

    rows: LabeledExamples
    validation: LabeledExamples | None
    test: LabeledExamples | None

    @property
    def held_out(self) -> dict[str, list[str]]:
        """Texts of all pairs, which are not drawn from raw text, by name of their set."""
        sets = {"labelled pairs": self.rows, "validation set": self.validation,
                "test set": self.test}  # fmt: skip
        return {
            name: list(dict.fromkeys(text for pair in rows.texts for text in pair))
            for name, rows in sets.items() if rows is not None and len(rows)
        }  # fmt: skip


def read_similarity(sources: GrowSources) -> SimilarityTask:
    """Read the sets of graded pairs; refuse sets that cannot choose an encoder."""
    found: dict[str, LabeledExamples] = {}
    for name in ("train", "validation", "test"):
        place = getattr(sources, name)
        if place is not None:
            found[name] = _read(place, name, (sources.text, sources.label))
            check_disjoint(name, place, _either_way(found[name].texts), *(
                (other, getattr(sources, other), _either_way(found[other].texts))
                for other in found if other != name
            ), left_out_of="train")  # fmt: skip
    rows = found.get("train", LabeledExamples("class", [LABEL], [], None, _targets([])))
    others = (found[name].texts for name in ("validation", "test") if name in found)
    held = {pair for texts in others for pair in _either_way(texts)}
    kept = [row for row, pair in enumerate(_either_way(rows.texts)) if pair not in held]
    rows = rows.select(np.array(kept, np.int64))
    task = SimilarityTask(rows, found.get("validation"), found.get("test"))
    choosing = rows if task.validation is None else task.validation
    chosen_by = sources.train if task.validation is None else sources.validation
    if len(choosing) < _FEWEST:
        raise InputError(
            f"{source_name(chosen_by)}: {len(choosing)} pairs cannot tell one "
            f"encoder from another: give {_FEWEST} at least, better {_FEW} or more, that no other "
            "set has"
        )
    if len(choosing) < _FEW:
        log.warning(
            "%d pairs choose the encoder: only large gains show; %d or more are better",
            len(choosing), _FEW,
        )  # fmt: skip
    return task


def _read(place: Source, split: str, names: Names) -> LabeledExamples:
    pairs = read_dev_pairs(place, split, names=names)
    grades = np.array(pairs[LABEL][:], np.float64)  # (pairs,)
    texts: list[tuple[str, ...]] = [*zip(pairs[TEXT_A][:], pairs[TEXT_B][:], strict=True)]
    first: dict[tuple[str, ...], int] = {}
    for row, pair in enumerate(texts):
        first.setdefault(tuple(sorted(pair)), row)
    found = LabeledExamples("class", [LABEL], texts, None, _targets(grades))
    return found.select(np.array([*first.values()], np.int64))


def _either_way(texts: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return normalized pairs in the order of their texts: a cosine is the same either way."""
    return [tuple(sorted(pair)) for pair in normalize_rows(texts)]


def _targets(grades: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(grades, np.float32).reshape(-1, 1)  # (pairs, 1)


def grades_of(rows: LabeledExamples) -> NDArray[np.float64]:
    """Return the similarities that people gave, (pairs,)."""
    return np.asarray(rows.targets, np.float64)[:, 0]


def encoder_arms(
    task: SimilarityTask, settings: Growth, *, raw: bool, without: Collection[str]
) -> list[Arm]:
    """Return all ways to an encoder: those as they are, one source each, mixtures of two.

    Args:
        without: sources that the base cannot learn from.
    """
    base = settings.base or STARTER
    is_starter = ENCODER.starters.get(base) == ENCODER.starters[STARTER]
    others = [name for name in (STATIC, STARTER)
              if ENCODER.starters.get(base) != ENCODER.starters[name]]  # fmt: skip
    there = {
        SIMCSE: raw, DENOISED: raw, NEAR: raw,
        REWRITTEN: raw and settings.paraphrase, DISTILLED: raw and not is_starter,
        GENERATED_PAIRS: raw and settings.model is not None, PAIRS: len(task.rows) > 0,
    }  # fmt: skip
    sources = [name for name in STAGES if there[name] and name not in without]
    found = [Arm(AS_IT_IS.format(name)) for name in (base, *others)]
    found += [Arm(name, (name,)) for name in sorted(sources, key=lambda one: one != PAIRS)]
    return found + [Arm(" + ".join(some), some) for some in combinations(sources, 2)]


def pair_folds(task: SimilarityTask, folds: int, repeats: int, seed: int) -> list[Fold]:
    """Return folds of the labelled pairs, repeat after repeat, or the validation pairs each time.

    Pairs of one first text are in one fold.
    """
    if task.validation is not None:
        return validation_folds(task.rows, task.validation, repeats)
    first, second = (
        text_hashes(pa.array([pair[side] for pair in task.rows.texts], pa.large_string()))
        for side in (0, 1)
    )
    group = np.unique(first, return_inverse=True)[1].astype(np.int64)  # (pairs,)
    if not group.any():
        raise InputError(
            "all labelled pairs have one first text: none can be held out; give --validation"
        )
    found: list[Fold] = []
    for repeat in range(repeats):
        keys = random_keys(seed, f"grow/{repeat}", first, second)
        least = np.full(group.max() + 1, np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(least, group, keys)
        found += split_folds(task.rows, _even_parts(group, least, folds), repeat, len(found))
    return found


def _even_parts(
    group: NDArray[np.int64], keys: NDArray[np.uint64], folds: int
) -> NDArray[np.int64]:
    """Return the part of each pair, (pairs,): groups by their keys, each to the smallest part."""
    sizes, counts = np.bincount(group), np.zeros(folds, np.int64)
    part = np.empty(len(sizes), np.int64)
    for one in np.argsort(keys, kind="stable").tolist():
        part[one] = counts.argmin()
        counts[part[one]] += sizes[one]
    return part[group]


@dataclass
class SimilaritySearch(Search):
    """A search that compares encoders by Spearman's correlation of cosines with people's grades.

    The folds of a repeat are joined before the correlation is taken; intervals are percentiles of
    a paired bootstrap over pairs. An arm takes the place of the encoder as it is only if its gain's
    interval lies above 0.
    """

    _known: dict[tuple[str, tuple[int, ...]], tuple[float, NDArray[np.float64]]] = field(
        default_factory=dict
    )

    def _has_teacher(self, arm: Arm) -> bool:  # noqa: ARG002
        return False

    def may_be_kept(self, gain: Interval, default: Arm) -> bool:  # noqa: ARG002
        """Tell whether an encoder's gain is sure."""
        return gain.low is not None and gain.low > 0

    def score(self, arm: Arm) -> Interval:
        """Return an arm's correlation x 100 with its interval over the measured pairs."""
        return _interval(*self._drawn(arm, self.done(arm)))

    def gain(self, arm: Arm, over: Arm) -> Interval | None:
        """Return an arm's paired gain over another one on the folds of both; None: there are none.

        Both are drawn on the same resamples.
        """
        shared = [fold for fold in self.done(arm) if fold in self.done(over)]
        if not shared:
            return None
        (one, ones), (two, twos) = self._drawn(arm, shared), self._drawn(over, shared)
        return _interval(one - two, ones - twos)

    _settling_gain = gain

    def _pace(self) -> float:
        """Return 1: the trials of a repeat share a training, whose seconds the first one has."""
        return 1.0

    def _last(self, arm: Arm) -> float:
        """Return the seconds of the last training: a repeat's first trial holds all of it."""
        speeds: Any = self.speeds
        shared = 1 if PAIRS in arm.sources else speeds.shared
        seconds = [self._seconds[self._index(arm, fold)] for fold in self.done(arm)]
        return max(seconds) if seconds else self.cost(arm) * shared

    def _drawn(self, arm: Arm, folds: Sequence[Fold]) -> tuple[float, NDArray[np.float64]]:
        """Return Spearman x 100 and its replicates, (resamples,): means over repeats."""
        key = (arm.name, tuple(fold.number for fold in folds))
        if key not in self._known:
            repeats = self._repeats(arm, folds)
            pairs = 1 + max(int(ids.max()) for ids, _, _ in repeats)
            counts = resample_counts(pairs, _RESAMPLES, self.settings.seed)
            values = [spearman(gold, cosines) for _, gold, cosines in repeats]
            replicates = [
                spearman_of_counts(gold, cosines, counts[:, ids]) for ids, gold, cosines in repeats
            ]
            self._known[key] = (
                100 * float(np.nan_to_num(values).mean()),
                100 * np.nan_to_num(np.stack(replicates)).mean(axis=0),
            )
        return self._known[key]

    def _repeats(
        self, arm: Arm, folds: Sequence[Fold]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]:
        """Return the pairs of each repeat, and their grades and cosines, each (pairs,)."""
        joined = []
        for repeat in dict.fromkeys(fold.repeat for fold in folds):
            some = [fold for fold in folds if fold.repeat == repeat]
            ids = np.concatenate([fold.held for fold in some])
            order = np.argsort(ids, kind="stable")
            gold = np.concatenate([grades_of(fold.rows) for fold in some])
            cosines = np.concatenate(
                [self._answers[self._index(arm, fold)][:, 0] for fold in some]
            ).astype(np.float64)
            joined.append((ids[order], gold[order], cosines[order]))
        return joined


def compare_cosines(
    rows: LabeledExamples, cosines: Mapping[str, NDArray[np.float64]], resamples: int, seed: int
) -> dict[str, Any]:
    """Return the correlations x 100 of encoders on the same pairs, and what the first one gains.

    Args:
        cosines: encoder -> (pairs,); the first is compared with the others.
        resamples: 0: no intervals.

    Returns:
        n, systems (name, scores) and differences (name -> scores), with value, low and high.
    """
    gold = grades_of(rows)
    counts = resample_counts(len(gold), resamples, seed)
    values, drawn = {}, {}
    for name, given in cosines.items():
        linear = [pearson(np.repeat(gold, one), np.repeat(given, one)) for one in counts]
        values[name] = {"spearman": spearman(gold, given), "pearson": pearson(gold, given)}
        drawn[name] = {
            "spearman": spearman_of_counts(gold, given, counts), "pearson": np.array(linear)
        }  # fmt: skip
    first, *others = cosines

    def scores(name: str, less: str | None = None) -> dict[str, Any]:
        found = {}
        for key in values[name]:
            value = values[name][key] - (values[less][key] if less else 0.0)
            replicates = drawn[name][key] - (drawn[less][key] if less else 0.0)
            one = _interval(100 * value, 100 * replicates)
            found[key] = {"value": one.value, "low": one.low, "high": one.high}
        return found

    return {
        "n": len(gold),
        "systems": [{"name": name, "scores": scores(name)} for name in cosines],
        "differences": {name: scores(first, name) for name in others},
    }


def resample_counts(pairs: int, resamples: int, seed: int) -> NDArray[np.intp]:
    """Return how often each pair is drawn in resamples, (resamples, pairs)."""
    drawn = np.random.default_rng([seed, pairs]).integers(0, pairs, (resamples, pairs))
    counts = np.zeros((resamples, pairs), np.intp)
    for row, one in zip(counts, drawn, strict=True):
        row[:] = np.bincount(one, minlength=pairs)
    return counts


def _interval(value: float, replicates: NDArray[np.float64]) -> Interval:
    known = replicates[~np.isnan(replicates)]
    return Interval(value, *(percentile_interval(known) if len(known) else (None, None)))

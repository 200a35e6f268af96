"""Reads and checks STS sets: pairs of texts with human similarity scores."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilth.data.sources import source_name
from tilth.errors import InputError
from tilth.evaluate.sts_files import (
    KNOWN_SETS,
    LOOKED_FOR,
    PairNames,
    RawPair,
    SetFile,
    default_names,
    find_sets,
    set_name,
)

if TYPE_CHECKING:
    from tilth.data.examples import Source

log = logging.getLogger(__name__)

_RESERVED = "mean"
# The usual number of pairs: with another one, results do not compare with published ones.
_USUAL_PAIRS = {
    "sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186, "stsb": 1379,
    "sick": 4927,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class StsSet:
    """Pairs of texts, without outer white space, with human scores; all are (pairs,).

    Attributes:
        gold: higher is more alike.
        subsets: subset name of each pair.
    """

    name: str
    texts_a: list[str]
    texts_b: list[str]
    gold: NDArray[np.float64]
    subsets: list[str]

    @property
    def identity(self) -> str:
        """Return 12 hex digits of a sha256 over the pairs, whatever their order and white space."""
        scores = (f"{score:.6g}" for score in self.gold.tolist())
        lines = (
            "\t".join((" ".join(one.split()), " ".join(two.split()), score))
            for one, two, score in zip(self.texts_a, self.texts_b, scores, strict=True)
        )
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]

    def subset_places(self) -> dict[str, NDArray[np.intp]]:
        """Return subset -> indices of its pairs, in order of first occurrence."""
        places: dict[str, list[int]] = {}
        for place, name in enumerate(self.subsets):
            places.setdefault(name, []).append(place)
        return {name: np.array(found, np.intp) for name, found in places.items()}

    def keep(self, wanted: NDArray[np.bool_]) -> StsSet:
        """Return the set with the wanted pairs only; wanted: (pairs,)."""
        places = np.flatnonzero(wanted)
        return replace(
            self,
            texts_a=[self.texts_a[place] for place in places],
            texts_b=[self.texts_b[place] for place in places],
            gold=self.gold[places],
            subsets=[self.subsets[place] for place in places],
        )

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.gold)


def asked_sets(data: Source, sets: Sequence[str] | None = None) -> list[str]:
    """Return the names of the sets to measure, each once; None: the usual ones."""
    if sets is None:
        return default_names(data)
    names = [sets] if isinstance(sets, str) else list(sets)
    if not names:
        raise InputError(f"sets is empty: name some of {', '.join(KNOWN_SETS)}, or leave it out")
    return list(dict.fromkeys(map(set_name, names)))


def read_sets(
    data: Source, sets: Sequence[str] | None = None, columns: PairNames = (None, None)
) -> list[StsSet]:
    r"""Read STS sets, in the order asked; missing ones are left out with a warning.

    Args:
        data: a folder (files such as sts12.jsonl.gz in it or in its folder `sts`, SentEval's
            layout, or SemEval's own archives), one file of pairs (its name is the set's), `hub`
            for the usual sets of the hub, one data set of the hub (`owner/name`), or rows (the set
            `pairs`).
        sets: names: sts12 to sts16, stsb, sick (these seven are the default), stsb-dev,
            stsb-train, sick-dev, sick-train, or an own file's name without ending.
        columns: as of `find_sets`.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "birds.csv"
        >>> _ = path.write_text("text_a,text_b,score\nA wren sings.,A bird sings.,4\n")
        >>> read_sets(path)[0].gold.tolist()
        [4.0]
    """
    asked, found = asked_sets(data, sets), find_sets(data, columns)
    place = source_name(data)
    if _RESERVED in asked:
        raise InputError(
            f"{place}: a set cannot be named {_RESERVED!r}: give the file another name"
        )
    for name in asked:
        if name not in found and name not in KNOWN_SETS:
            raise InputError(
                f"no set {name!r}: known are {', '.join(KNOWN_SETS)}; found in {place}: "
                f"{', '.join(sorted(found)) or 'none'}"
            )
    there = [name for name in asked if name in found]
    if not there:
        others = f"; found others: {', '.join(sorted(found))}: name them in sets" if found else ""
        raise InputError(
            f"{place}: none of the STS sets {', '.join(asked)}: looked for {LOOKED_FOR}{others}"
        )
    missing = [name for name in asked if name not in found]
    if missing:
        log.warning("%s: no %s: left out of the mean", place, ", ".join(missing))
    return [_read_set(name, found[name]) for name in there]


def _read_set(name: str, parts: Sequence[SetFile]) -> StsSet:
    _refuse_twice(name, parts)
    raw = [pair for part in parts for pair in part.pairs()]
    if not raw:
        raise InputError(f"{parts[0].place}: set {name} holds no scored pairs: give some")
    texts_a = [_text(pair, pair.text_a) for pair in raw]
    texts_b = [_text(pair, pair.text_b) for pair in raw]
    gold = np.array([_score(pair) for pair in raw])  # (pairs,)
    _check_scale(name, raw, gold)
    usual = _USUAL_PAIRS.get(name, len(raw))
    if len(raw) != usual:
        log.warning(
            "%s: %d pairs, the usual set has %d: published numbers are of another set",
            name, len(raw), usual,
        )  # fmt: skip
    return StsSet(name, texts_a, texts_b, gold, [pair.subset or name for pair in raw])


def _refuse_twice(name: str, parts: Sequence[SetFile]) -> None:
    """Refuse a set found in two places."""
    places: dict[str | None, SetFile] = {}
    for part in parts:
        key = part.subset if all(one.subset for one in parts) else None
        if key in places:
            what = f"subset {key} of {name}" if key else f"set {name}"
            raise InputError(
                f"{what} lies in {places[key].place} and in {part.place}: keep one of them"
            )
        places[key] = part


def _text(pair: RawPair, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(
            f"{pair.origin}: {value!r:.60} is no text: write a text in quotation marks"
        )
    text = value.strip()
    if not text:
        raise InputError(f"{pair.origin}: an empty text: write one or remove the pair")
    return text


def _score(pair: RawPair) -> float:
    try:
        score = math.nan if isinstance(pair.score, bool) else float(pair.score)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise InputError(f"{pair.origin}: score {pair.score!r:.60} is no finite number: mend it")
    return score


def _check_scale(name: str, raw: Sequence[RawPair], gold: NDArray[np.float64]) -> None:
    """Refuse scores outside the set's scale; scores scaled to 0-1 are accepted for any set."""
    if name not in KNOWN_SETS or (gold.min() >= 0 and gold.max() <= 1):
        return
    low, high = (1, 5) if name.startswith("sick") else (0, 5)
    wrong = np.flatnonzero((gold < low) | (gold > high))
    if len(wrong):
        pair = raw[wrong[0]]
        raise InputError(
            f"{pair.origin}: score {pair.score} is outside {low} to {high}, the scale of {name}: "
            "mend it, or give all scores from 0 to 1"
        )

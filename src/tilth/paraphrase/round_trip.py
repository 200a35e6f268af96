"""Round trips: a translation of sentences into another language and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilth.errors import InputError
from tilth.models import Seq2Seq, load_scorer, load_seq2seq
from tilth.paraphrase.rewriter import EMPTY, NOTHING, TOO_LONG, Rewrite, sentences_of
from tilth.paraphrase.search import BeamSearch, decode, is_too_long
from tilth.paraphrase.settings import SAMPLING
from tilth.paraphrase.similarity import meaning as meanings_of
from tilth.paraphrase.similarity import wording as wordings_of
from tilth.runs.cluster import check_fingerprints

if TYPE_CHECKING:
    from tilth.models.scorer import Scorer
    from tilth.paraphrase.settings import RewriteSettings

GREEDY = "greedy"
_STARTER_PREFIXES = (">>de<< ", ">>en<< ")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A round trip of a sentence.

    Attributes:
        text: translated back into the first language.
        pivot: in the other language.
        setting: of both searches, such as `20/3.0 30/2.0`, or `greedy`.
    """

    text: str
    pivot: str
    setting: str


def round_trip(
    texts: Sequence[str],
    forward: Seq2Seq,
    backward: Seq2Seq,
    *,
    greedy: bool = False,
    beams: int = 5,
    settings: Sequence[tuple[int, float]] = SAMPLING,
    seed: int = 0,
) -> list[list[Candidate]]:
    """Translate sentences and translate them back.

    Each setting translates forward once, and each output is translated back with each setting: two
    settings give four candidates.

    Args:
        texts: single sentences; translators are trained on them.
        greedy: one candidate by greedy search, the paper's baseline.
        beams: of the searches, unless greedy.
        settings: (top-k, temperature) of sampling.

    Returns:
        For each text its candidates in the order of settings, the backward one changing faster;
        fewer where an output is empty, none for a text that is empty or longer than a model reads.

    Reference:
        Ogasa, Kajiwara and Arase, sections 3.2 and 4.1.
    """
    check_direction(forward, backward)
    if not greedy and not settings:
        raise InputError("no settings are given: name at least one (top-k, temperature)")
    searches = {
        f"{top_k}/{float(temperature)}": BeamSearch(beams, top_k, temperature)
        for top_k, temperature in settings
    }
    if greedy:
        searches = {GREEDY: BeamSearch(beams=1)}
    draws = len(searches) * (len(searches) + 1)

    def translate(seq2seq: Seq2Seq, some: Sequence[str], first: int) -> list[list[str]]:
        """Return the best output of each search for each text, empty where there is none."""
        return [
            [found[0] if found else "" for found in decode(seq2seq, some, search, seed=number)]
            for number, search in enumerate(searches.values(), start=seed * draws + first)
        ]

    pivots = translate(forward, texts, 0)  # (settings, texts)
    unique = list(dict.fromkeys(pivot for row in pivots for pivot in row if pivot))
    backs = [
        dict(zip(unique, row, strict=True)) for row in translate(backward, unique, len(searches))
    ]
    return [
        [
            Candidate(text, row[index], GREEDY if greedy else f"{there} {back}")
            for there, row in zip(searches, pivots, strict=True)
            for back, translated in zip(searches, backs, strict=True)
            if (text := translated.get(row[index]))
        ]
        for index in range(len(texts))
    ]


class RoundTripRewriter:
    """Rewrites texts by greedy round trips of their sentences, whatever comes out.

    Reference:
        Ogasa, Kajiwara and Arase, section 4.4: the baseline of the controlled rewriter.
    """

    polarity = None  # nothing is left out

    def __init__(self, forward: Seq2Seq, backward: Seq2Seq, scorer: Scorer) -> None:
        self.seq2seq, self.backward, self.scorer = forward, backward, scorer

    def fingerprints(self) -> dict[str, str]:
        """Return what a run records of the models."""
        return {
            "model": self.seq2seq.fingerprint, "backward": self.backward.fingerprint,
            "scorer": self.scorer.fingerprint, "polarity": "none",
        }  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the models' names: a worker of a cluster loads them."""
        there, back = self.seq2seq, self.backward
        names = there.name, back.name, there.prefix, back.prefix, self.scorer.name, there.precision
        return _load_again, (*names, self.fingerprints())

    def rewrites(
        self,
        texts: Sequence[str],
        settings: RewriteSettings,  # noqa: ARG002 - nothing is asked for
    ) -> list[list[Rewrite]]:
        """Return one rewrite of each text, measured, or the reason why there is none."""
        split = [sentences_of(text) for text in texts]
        unique = list(dict.fromkeys(one for found in split for one in found))
        trips = round_trip(unique, self.seq2seq, self.backward, greedy=True)
        found = {one: trip[0].text if trip else "" for one, trip in zip(unique, trips, strict=True)}
        problems = [self._problem(some, found) for some in split]
        made = [
            "" if problem else " ".join(found[one] for one in some)
            for some, problem in zip(split, problems, strict=True)
        ]
        meanings = meanings_of(texts, made, self.scorer).tolist()
        wordings = wordings_of(texts, made).tolist()
        return [
            [
                Rewrite(
                    new, text, meaning, wording, math.nan, math.nan, inside=False, tries=1,
                    problem=problem,
                )
            ]
            for new, text, meaning, wording, problem in zip(
                made, texts, meanings, wordings, problems, strict=True
            )
        ]  # fmt: skip

    def _problem(self, sentences: Sequence[str], found: Mapping[str, str]) -> str | None:
        """Return why a text has no rewrite, or None."""
        missing = [one for one in sentences if not found[one]]
        if not missing:
            return None if sentences else EMPTY
        too_long = any(is_too_long(self.seq2seq, one) for one in missing)
        return TOO_LONG if too_long else NOTHING


def load_round_trip(
    forward: str = "starter",
    backward: str = "starter",
    *,
    scorer: str = "starter",
    device: str = "auto",
    precision: str = "auto",
) -> RoundTripRewriter:
    """Load translators and a scorer by name."""
    translators = load_translators(forward, backward, device=device, precision=precision)
    return RoundTripRewriter(*translators, load_scorer(scorer, device=device, precision=precision))


def _load_again(
    forward: str,
    backward: str,
    forward_prefix: str,
    backward_prefix: str,
    scorer: str,
    precision: str,
    fingerprints: dict[str, str],
) -> RoundTripRewriter:
    """Load a pickled round trip."""
    translators = load_translators(
        forward, backward, forward_prefix=forward_prefix, backward_prefix=backward_prefix,
        precision=precision,
    )  # fmt: skip
    found = RoundTripRewriter(*translators, load_scorer(scorer, precision=precision))
    check_fingerprints(found.fingerprints(), fingerprints)
    return found


def check_direction(forward: Seq2Seq, backward: Seq2Seq) -> None:
    """Check that two translators are not one model with one prefix."""
    if forward.prefix != backward.prefix:
        return
    if forward.model is backward.model or forward.fingerprint == backward.fingerprint:
        raise InputError(
            f"forward and backward are both {forward.name!r}, which goes one way: give another "
            "translator back, or prefixes for a model of several languages"
        )


def load_translators(
    forward: str = "starter",
    backward: str = "starter",
    *,
    forward_prefix: str | None = None,
    backward_prefix: str | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> tuple[Seq2Seq, Seq2Seq]:
    """Load the translators of a round trip; one name is loaded once.

    A prefix of None is the starter's own, and empty for other models.
    """
    there, back = (
        prefix if prefix is not None else own if name == "starter" else ""
        for name, prefix, own in zip(
            (forward, backward), (forward_prefix, backward_prefix), _STARTER_PREFIXES, strict=True
        )
    )
    first = load_seq2seq(forward, device=device, precision=precision, prefix=there)
    second = (
        replace(first, prefix=back)
        if backward == forward
        else load_seq2seq(backward, device=device, precision=precision, prefix=back)
    )
    check_direction(first, second)
    return first, second

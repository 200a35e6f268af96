"""Round trips: translation of a sentence into another language and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilth.errors import InputError
from tilth.models import Seq2Seq, load_seq2seq
from tilth.paraphrase.search import BeamSearch, decode

# (top-k, temperature) of sampling, as published (section 4.1), each forward and each backward.
SETTINGS = ((20, 3.0), (30, 2.0))
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
    settings: Sequence[tuple[int, float]] = SETTINGS,
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

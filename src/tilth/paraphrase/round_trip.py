"""Round trips: a sentence into another language and back, which is a sentence in other words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilth.errors import InputError
from tilth.models import Seq2Seq, load_seq2seq
from tilth.paraphrase.search import Search, decode

# (top-k, temperature) of sampling, as published (section 4.1), each forward and each backward.
SETTINGS = ((20, 3.0), (30, 2.0))
GREEDY = "greedy"
_STARTER_PREFIXES = (">>de<< ", ">>en<< ")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way a sentence came back.

    Attributes:
        text: in the first language again.
        pivot: between, in the other language.
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

    Each setting translates forward once, and what it gives goes back with each setting: two
    settings give four candidates. The same texts and seed give the same candidates.

    Args:
        texts: single sentences; translators are trained on them.
        forward: into the other language.
        backward: out of it.
        greedy: the likeliest word at every step, one candidate: the paper's baseline.
        beams: of the searches, unless greedy.
        settings: (top-k, temperature) of sampling.
        seed: of sampling.

    Returns:
        For each text its candidates in the order of settings, the backward one changing faster;
        fewer where nothing was written, none where the text is empty or longer than a model reads.

    Raises:
        InputError: both translators are the same.

    Reference:
        Ogasa, Kajiwara and Arase, sections 3.2 and 4.1.
    """
    check_direction(forward, backward)
    searches = _searches(greedy, beams, settings)
    draws = len(searches) * (len(searches) + 1)
    found: list[list[Candidate]] = [[] for _ in texts]
    pivots = [
        _best(forward, texts, search, seed * draws + number)
        for number, (_, search) in enumerate(searches)
    ]  # (settings, texts)
    unique = list(dict.fromkeys(pivot for row in pivots for pivot in row if pivot))
    backs = [
        dict(zip(unique, _best(backward, unique, search, seed * draws + number), strict=True))
        for number, (_, search) in enumerate(searches, start=len(searches))
    ]
    for place, candidates in enumerate(found):
        for (there, _), row in zip(searches, pivots, strict=True):
            for (back, _), known in zip(searches, backs, strict=True):
                setting = GREEDY if greedy else f"{there} {back}"
                text = known.get(row[place], "")
                if text:
                    candidates.append(Candidate(text, row[place], setting))
    return found


def _searches(
    greedy: bool, beams: int, settings: Sequence[tuple[int, float]]
) -> list[tuple[str, Search]]:
    if greedy:
        return [(GREEDY, Search(beams=1))]
    if not settings:
        raise InputError("no settings are given: name at least one (top-k, temperature)")
    return [
        (f"{top_k}/{float(temperature)}", Search(beams, top_k, temperature))
        for top_k, temperature in settings
    ]


def _best(seq2seq: Seq2Seq, texts: Sequence[str], search: Search, seed: int) -> list[str]:
    """Return the best output for each text; an empty one where there is none."""
    return [outputs[0] if outputs else "" for outputs in decode(seq2seq, texts, search, seed=seed)]


def check_direction(forward: Seq2Seq, backward: Seq2Seq) -> None:
    """Check that two translators do not both go the same way.

    Raises:
        InputError: they are one model with one prefix.
    """
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

    Args:
        forward: as in `load_seq2seq`; the starter goes from English to German and back.
        backward: likewise.
        forward_prefix: written before every text there, such as `>>de<< `; None: what the starter
            needs, nothing for others.
        backward_prefix: likewise, on the way back.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `float32`, `bfloat16` or `float16`.

    Raises:
        InputError: a translator does not load, is no encoder-decoder, or both go the same way.
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

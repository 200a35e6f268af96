"""Rewrites texts at a requested meaning and wording, and measures the outputs.

Reference: Ogasa, Kajiwara and Arase, sections 3.3 and 4.2.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from tilth import limits
from tilth.data.examples import listed_texts
from tilth.data.normalize import normalize_text
from tilth.data.segment import split_paragraphs
from tilth.errors import InputError
from tilth.models import load_scorer, load_seq2seq
from tilth.models.polarity import has_polarity, load_polarity
from tilth.models.special_tokens import break_strings, special_strings
from tilth.paraphrase.search import BeamSearch, decode
from tilth.paraphrase.settings import BEAMS, RewriteSettings
from tilth.paraphrase.similarity import meaning as meanings_of
from tilth.paraphrase.similarity import wording as wordings_of
from tilth.paraphrase.tags import TAGS, Cell, asked_cell, cell_of
from tilth.runs.cluster import check_fingerprints

if TYPE_CHECKING:
    from tilth.models.lm import Seq2Seq
    from tilth.models.polarity import Polarity
    from tilth.models.scorer import Scorer

log = logging.getLogger(__name__)

# Why there is no rewrite of a text.
EMPTY, TOO_LONG, NOTHING = "empty", "too long", "no rewrite found"
LOW, POLARITY, LITERAL = "low meaning", "polarity", "literal changed"
# Costs of copying that one search tries side by side, each with some of the beams.
COPY_COSTS = (0.0, 0.6, 1.2, 2.4, 4.8)
SHORTEST, LONGEST = 0.75, 1.5  # times the input's tokens, section 4.2
MOST_TRIES = int(limits.TRIES.high)
_BROKEN = re.compile("[\x00-\x08\x0e-\x1f\ufffd]")  # incomplete characters
# What a rewrite has to hold as it is: URLs, e-mail addresses, paths, words of code.
_LITERAL = re.compile(
    r"""(?<!\w)[a-z][\w+.-]{1,20}://[^\s<>"')]+|(?<!\w)www\.[^\s<>"')]+
    |(?<![^\s"'(<,])[^\s@"'(<,]{1,64}@[^\s@]{1,200}\.\w+
    |(?<![^\s"'(])(?:[a-z]:|~|\.{1,2})?[/\\][\w.~-]+(?:[/\\][\w.~-]*)+
    |(?<![\w/\\-])[\w-]+(?:[/\\][\w-]+)+\.(?:py|ipynb|js|ts|jsonl?|csv|tsv|txt|md|html?|xml|ya?ml|pdf
    |docx?|xlsx?|png|jpe?g|svg|sh|c|h|cpp|java|log|zip|gz|sql)\b
    |`[^\s`]+`|(?<!\w)(?:\w+[_.]\w+\([^\s()]*\)|\w+\(\)|[a-z]\([^\s()]*\))
    |(?<![^\s()"'<>])[^\s()"'<>]{0,200}?(?:[{}]|\\(?!['"])|[^\W_][_=][^\W_])[^\s()"'<>]*""",
    re.IGNORECASE | re.VERBOSE,
)
# Sampling of further tries: the temperature rises each time, so that they differ.
_TOP_K, _TEMPERATURE, _WARMER = 20, 1.0, 0.2
# The least distance of a rewrite outside the cell, even if on its edge; what is added where the
# wording is beyond the neighbouring steps: such a rewrite is farther than any other.
_EDGE, _BEYOND = 1e-6, 200.0


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite of a text.

    Attributes:
        text: the rewrite; empty where there is a problem.
        meaning: measured similarity in meaning, 0-100; of several sentences their mean.
        wording: measured similarity in wording, 0-100.
        inside: whether both measured values lie in the requested cell.
        tries: searches made for it; of several sentences the maximum.
        problem: why there is no rewrite: `empty`, `too long` (a sentence longer than the model
            reads), `no rewrite found` (only the text itself came out), `low meaning` (no output
            reached the least meaning), `polarity` (those that did say the opposite), `literal
            changed` (a URL, an address, a path or code came out otherwise each time); else None.
        flips: outputs that were left out because they say the opposite.
    """

    text: str
    source: str
    meaning: float
    wording: float
    asked_meaning: float
    asked_wording: float
    inside: bool
    tries: int
    problem: str | None = None
    flips: int = 0


@dataclass(frozen=True, slots=True)
class _Output:
    """A measured output for one sentence, and its distance from the requested cell."""

    text: str
    meaning: float
    wording: float
    distance: float


@dataclass(slots=True)
class _Sentence:
    """A sentence, its outputs with the nearest to the cell first, and rejection counts."""

    text: str
    found: list[_Output] = field(default_factory=list)
    tries: int = 0
    is_read: bool = True  # by the model: not too long
    low: int = 0
    flips: int = 0
    changed: int = 0  # outputs without a literal of the sentence

    def add(self, new: list[_Output], most: int) -> bool:
        """Add the outputs of a search; tell whether it was the first or came nearer."""
        self.tries += 1
        before = [output.distance for output in self.found]
        # Stable: of equals the likelier is first. Case and punctuation make no other rewrite.
        both = sorted([*self.found, *new], key=lambda output: output.distance)
        distinct: dict[str, _Output] = {}
        for output in both:
            distinct.setdefault(normalize_text(output.text), output)
        self.found = list(distinct.values())[:most]
        return self.tries == 1 or [output.distance for output in self.found] != before

    def is_open(self, most: int) -> bool:
        """Tell whether another try may come nearer."""
        return self.is_read and (
            len(self.found) < most or any(output.distance for output in self.found)
        )


class Rewriter:
    """Rewrites texts at a requested meaning and wording.

    Args:
        seq2seq: a model trained with the control tags.
        polarity: finds outputs that say the opposite of their sentence, which are left out; None:
            no check.
    """

    def __init__(self, seq2seq: Seq2Seq, scorer: Scorer, polarity: Polarity | None = None) -> None:
        self.seq2seq, self.scorer, self.polarity = seq2seq, scorer, polarity
        lacking = sorted(set(TAGS) - set(seq2seq.tokenizer.get_vocab()))
        if lacking:
            raise InputError(
                f"model {seq2seq.name!r} has no tag {lacking[0]}: train it with "
                "`tilth paraphrase train`, or name a rewriter"
            )

    def __repr__(self) -> str:
        """Name the model and what measures its rewrites."""
        return f"Rewriter({self.seq2seq.name!r}, scorer={self.scorer.name!r})"

    def fingerprints(self) -> dict[str, str]:
        """Return what a run records of the models."""
        polarity = self.polarity.fingerprint if self.polarity else "none"
        return {
            "model": self.seq2seq.fingerprint, "scorer": self.scorer.fingerprint,
            "polarity": polarity,
        }  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the models' names: a worker of a cluster loads them."""
        seq2seq, checked = self.seq2seq, self.polarity is not None
        names = seq2seq.name, self.scorer.name, checked, seq2seq.precision
        return _load_again, (*names, self.fingerprints())

    @overload
    def rewrite(  # type: ignore[overload-overlap]
        self, texts: Sequence[str], *, meaning: float = ..., wording: float = ...,
        min_meaning: float | None = ..., n: Literal[1] = ..., steer: bool = ..., tries: int = ...,
        beams: int = ..., seed: int = ...,
    ) -> list[Rewrite]: ...  # fmt: skip

    @overload
    def rewrite(
        self, texts: Sequence[str], *, n: int, meaning: float = ..., wording: float = ...,
        min_meaning: float | None = ..., steer: bool = ..., tries: int = ..., beams: int = ...,
        seed: int = ...,
    ) -> list[list[Rewrite]]: ...  # fmt: skip

    def rewrite(
        self,
        texts: Sequence[str],
        *,
        meaning: float = 95.0,
        wording: float = 20.0,
        min_meaning: float | None = None,
        n: int = 1,
        steer: bool = True,
        tries: int = 1,
        beams: int = BEAMS,
        seed: int = 0,
    ) -> list[Rewrite] | list[list[Rewrite]]:
        """Rewrite texts, sentence by sentence; the options are those of `RewriteSettings`.

        All outputs of a sentence's search are measured, and the nearest is its rewrite: nearest in
        wording to within a step of 5, then in both. Without `steer` it is the best output that is
        not the sentence itself; with a least meaning of 0 the best, whatever it is, as in the
        paper. Outputs below the least meaning or of the opposite polarity are left out.

        Returns:
            For each text its rewrite; for n above 1 a list of them, best first, never empty: it
            holds the problem where there is one.

        Raises:
            InputError: a setting is out of range.

        Example:
            >>> rewriter = load_paraphraser("starter")  # doctest: +SKIP
            >>> rewriter.rewrite(["The kite hangs in the oak."], meaning=95, wording=20)[0].text
            'The kite is hanging in the oak tree.'
        """
        texts = listed_texts(texts, "texts", empty=True)
        settings = RewriteSettings(
            meaning, wording, min_meaning, n, steer=steer, tries=tries, beams=beams, seed=seed
        )
        found = self.rewrites(texts, settings)
        return [rewrites[0] for rewrites in found] if n == 1 else found

    def rewrites(self, texts: Sequence[str], settings: RewriteSettings) -> list[list[Rewrite]]:
        """Return a list of rewrites for each text."""
        cell = asked_cell(settings.meaning, settings.wording)
        split = [sentences_of(text) for text in texts]
        sentences = {one: _Sentence(one) for found in split for one in found}
        self._search(list(sentences.values()), cell, settings)
        return [
            _joined(text, [sentences[one] for one in found], cell, settings)
            for text, found in zip(texts, split, strict=True)
        ]

    def _search(self, sentences: list[_Sentence], cell: Cell, settings: RewriteSettings) -> None:
        """Find the best rewrites of each sentence, at most n."""
        model = replace(self.seq2seq, prefix=f"{cell.tags} ")
        tokenizer = self.seq2seq.tokenizer
        marks = sorted({*special_strings(tokenizer), *TAGS})
        beams = max(settings.beams, settings.n + 1)  # the sentence itself may be an output
        if settings.steer:
            beams = max(1, -(-2 * beams // len(COPY_COSTS)))
        nearest = settings.steer or settings.tries > 1  # else the search's own order counts
        copies = not nearest and not settings.least_meaning  # as in the paper: a copy counts
        for number in range(settings.tries):
            if not sentences:
                return
            search = BeamSearch(
                beams=beams,
                returned=beams,
                shortest=SHORTEST,
                longest=LONGEST,
                top_k=_TOP_K if number else None,
                temperature=_TEMPERATURE + _WARMER * (number - 1) if number else None,
                copy_costs=COPY_COSTS if settings.steer else (),
            )
            read = [break_strings(sentence.text, marks) for sentence in sentences]
            outputs = decode(model, read, search, seed=settings.seed * MOST_TRIES + number)
            for sentence, found in zip(sentences, outputs, strict=True):
                sentence.is_read = bool(found)
            measured = self._measured(sentences, outputs, cell, copies=copies)
            if nearest:
                measured = [sorted(some, key=lambda one: one.distance) for some in measured]
            accepted = self._accepted(sentences, measured, settings)
            nearer = [
                sentence.add(new, settings.n)
                for sentence, new in zip(sentences, accepted, strict=True)
            ]
            sentences = [
                sentence for sentence, gain in zip(sentences, nearer, strict=True)
                if gain and sentence.is_open(settings.n)
            ]  # fmt: skip

    def _measured(
        self, sentences: list[_Sentence], outputs: list[list[str]], cell: Cell, *, copies: bool
    ) -> list[list[_Output]]:
        """Measure the outputs that are whole; the sentence itself counts only with `copies`."""
        usable = []
        for sentence, texts in zip(sentences, outputs, strict=True):
            itself = normalize_text(sentence.text)
            literals = literals_of(sentence.text) if texts else []
            whole = [
                text for text in dict.fromkeys(texts)
                if text.strip() and not _BROKEN.search(text)
                and (copies or normalize_text(text) != itself)
            ]  # fmt: skip
            kept = [text for text in whole if all(literal in text for literal in literals)]
            sentence.changed += len(whole) - len(kept)
            usable.append(kept)
        first = [one.text for one, texts in zip(sentences, usable, strict=True) for _ in texts]
        second = [text for texts in usable for text in texts]
        meanings = meanings_of(first, second, self.scorer).tolist()
        wordings = wordings_of(first, second).tolist()
        measured = iter(
            _Output(text, meaning, wording, _distance(cell, meaning, wording))
            for text, meaning, wording in zip(second, meanings, wordings, strict=True)
        )
        return [[next(measured) for _ in texts] for texts in usable]

    def _accepted(
        self, sentences: list[_Sentence], found: list[list[_Output]], settings: RewriteSettings
    ) -> list[list[_Output]]:
        """Return each sentence's first n outputs that keep meaning and polarity; count the rest."""
        n = settings.n
        waiting = []
        for sentence, some in zip(sentences, found, strict=True):
            least = settings.least_meaning
            high = [one for one in some if not least or one.meaning >= least]
            sentence.low += len(some) - len(high)
            waiting.append(high)
        if self.polarity is None:
            return [some[:n] for some in waiting]
        accepted: list[list[_Output]] = [[] for _ in sentences]
        while checked := [
            (index, one)
            for index, some in enumerate(waiting)
            for one in some[: n - len(accepted[index])]
        ]:
            flips = self.polarity.flips(
                [sentences[index].text for index, _ in checked], [one.text for _, one in checked]
            )
            for (index, one), is_flip in zip(checked, flips.tolist(), strict=True):
                waiting[index].remove(one)
                sentences[index].flips += is_flip
                if not is_flip:
                    accepted[index].append(one)
        return accepted


def sentences_of(text: str) -> list[str]:
    """Split a text into its sentences; line ends are white space."""
    found: list[str] = split_paragraphs([" ".join(text.split())])[0].to_pylist()
    return found


def literals_of(text: str) -> list[str]:
    """Return the URLs, e-mail addresses, paths and words of code in a text.

    Example:
        >>> literals_of("Open https://a.example/x?id=7, or write to me@a.example: x = f(y).")
        ['https://a.example/x?id=7', 'me@a.example', 'f(y)']
    """
    return [found.rstrip(".,;:!?'\"") for found in _LITERAL.findall(text)]


def _distance(cell: Cell, meaning: float, wording: float) -> float:
    if cell_of(meaning, wording) == cell:
        return 0.0
    beyond = 0 if cell.is_near(wording) else _BEYOND
    return max(_EDGE, cell.distance(meaning, wording)) + beyond


def _joined(
    text: str, sentences: list[_Sentence], cell: Cell, settings: RewriteSettings
) -> list[Rewrite]:
    """Join the sentences' rewrites: the first of each, the second of each, and so on.

    A sentence with fewer rewrites repeats its last; one with none, such as "Oh!", stays unchanged.
    """
    flips = sum(sentence.flips for sentence in sentences)
    start = Rewrite(
        "", text, math.nan, math.nan, settings.meaning, settings.wording, inside=False,
        tries=max((sentence.tries for sentence in sentences), default=0), flips=flips,
    )  # fmt: skip
    if not sentences:
        return [replace(start, problem=EMPTY)]
    if not all(sentence.is_read for sentence in sentences):
        return [replace(start, problem=TOO_LONG, tries=0, flips=0)]
    most = max(len(sentence.found) for sentence in sentences)
    if not most:
        low = any(sentence.low for sentence in sentences)
        changed = any(sentence.changed for sentence in sentences)
        problem = POLARITY if flips else LOW if low else LITERAL if changed else NOTHING
        return [replace(start, problem=problem)]
    made = []
    for number in range(most):
        chosen = [
            sentence.found[min(number, len(sentence.found) - 1)]
            if sentence.found
            else _Output(sentence.text, 100.0, 100.0, math.inf)
            for sentence in sentences
        ]
        rewrite = " ".join(output.text for output in chosen)
        meaning, wording = chosen[0].meaning, chosen[0].wording
        if len(chosen) > 1:
            meaning = float(np.mean([output.meaning for output in chosen]))
            wording = float(wordings_of([text], [rewrite])[0])
        inside = cell_of(meaning, wording) == cell
        made.append(replace(start, text=rewrite, meaning=meaning, wording=wording, inside=inside))
    return made


def load_paraphraser(
    name: str = "starter",
    *,
    scorer: str = "starter",
    polarity: bool | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> Rewriter:
    """Load a rewriter by name, with the scorer and the polarity check of its outputs.

    Args:
        name: `starter`, the run of `tilth paraphrase train`, a model folder or a hub id; the
            published checkpoint too.
        polarity: leave out outputs that say the opposite of their sentence; the check is in
            tilth-starter and reads English. None: where tilth-starter is installed.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `float32`, `bfloat16` or `float16`.

    Raises:
        InputError: there is no such model, or it is no rewriter.
    """
    if polarity is None and not has_polarity():
        log.warning("polarity is not checked: tilth-starter, which holds the check, is missing")
        polarity = False
    seq2seq = load_seq2seq(name, device=device, precision=precision)
    return Rewriter(
        seq2seq,
        load_scorer(scorer, device=device, precision=precision),
        None if polarity is False else load_polarity(device=device, precision=precision),
    )


def _load_again(
    name: str, scorer: str, polarity: bool, precision: str, fingerprints: dict[str, str]
) -> Rewriter:
    """Load a pickled rewriter."""
    found = load_paraphraser(name, scorer=scorer, polarity=polarity, precision=precision)
    check_fingerprints(found.fingerprints(), fingerprints)
    return found

"""The rewriter: texts in other words, at an asked meaning and wording, and measured.

Reference: Ogasa, Kajiwara and Arase, sections 3.3 and 4.2.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from tilth import limits
from tilth.data.normalize import normalize_text
from tilth.data.segment import split_paragraphs
from tilth.errors import InputError
from tilth.models import load_scorer, load_seq2seq
from tilth.models.polarity import has_polarity, load_polarity
from tilth.paraphrase.search import Search, decode
from tilth.paraphrase.settings import BEAMS, MIN_MEANING, Asked
from tilth.paraphrase.similarity import meaning as meanings_of
from tilth.paraphrase.similarity import wording as wordings_of
from tilth.paraphrase.tags import TAGS, Cell, asked_cell, cell_of, near

if TYPE_CHECKING:
    from tilth.models.polarity import Polarity
    from tilth.models.scorer import Scorer
    from tilth.models.seq2seq import Seq2Seq

_EDGE, _BEYOND = 1e-6, 200.0
EMPTY, TOO_LONG, NOTHING = "empty", "too long", "no rewrite found"
LOW, POLARITY = "low meaning", "polarity"


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A text in other words.

    Attributes:
        text: the rewrite; empty where there is a problem.
        source: the text it rewrites.
        meaning: measured similarity of meaning, 0-100; of several sentences their mean.
        wording: measured similarity of wording, 0-100.
        asked_meaning: as asked.
        asked_wording: as asked.
        inside: whether both measured values lie in the cell that was asked for.
        tries: decodings made for it; of several sentences the most.
        problem: why there is no rewrite: `empty`, `too long` (a sentence longer than the model
            reads), `no rewrite found` (only the text itself came out), `low meaning` (none reached
            the least meaning), `polarity` (those that did say the opposite); else None.
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
class Found:
    """A rewrite of one sentence; `distance` is how far it lies outside the asked cell."""

    text: str
    meaning: float
    wording: float
    distance: float


@dataclass(slots=True)
class Answer:
    """The rewrites of one sentence so far, nearest to the asked cell first.

    `low` and `flips` count outputs left out for their meaning and for their polarity.
    """

    found: list[Found] = field(default_factory=list)
    tries: int = 0
    read: bool = True
    low: int = 0
    flips: int = 0

    def add(self, new: list[Found], most: int, *, read: bool) -> bool:
        """Take in what one search found; tell whether it was the first or came nearer."""
        self.tries += 1
        self.read = read
        before = [found.distance for found in self.found]
        known = {found.text for found in self.found}
        both = self.found + [found for found in new if found.text not in known]
        both.sort(key=lambda found: found.distance)  # stable: the earlier and likelier stays ahead
        self.found = both[:most]
        return self.tries == 1 or [found.distance for found in self.found] != before

    def is_open(self, most: int) -> bool:
        """Whether another try may find something nearer."""
        return self.read and (len(self.found) < most or any(f.distance for f in self.found))


def sentences_of(text: str) -> list[str]:
    """Split a text into its sentences; line ends are white space."""
    found: list[str] = split_paragraphs([" ".join(text.split())])[0].to_pylist()
    return found


def distance(cell: Cell, meaning: float, wording: float) -> float:
    """Return how far measured values lie outside a cell; an edge that is not its own is outside.

    Whatever the meaning, a wording beyond the neighbouring steps is farther than any within.
    """
    if cell_of(meaning, wording) == cell:
        return 0.0
    return max(_EDGE, cell.distance(meaning, wording)) + (0 if near(wording, cell) else _BEYOND)


def joined(text: str, sentences: list[str], answers: list[Answer], cell: Cell) -> list[Rewrite]:
    """Put the sentences' rewrites together: the first of each, the second of each, and so on.

    A sentence with fewer rewrites stays with its last; one with none, such as "Oh!", as it is.
    """
    start = Rewrite("", text, math.nan, math.nan, cell.meaning, cell.wording, inside=False, tries=0)
    if not sentences:
        return [replace(start, problem=EMPTY)]
    if not all(answer.read for answer in answers):
        return [replace(start, problem=TOO_LONG)]
    flips = sum(answer.flips for answer in answers)
    start = replace(start, tries=max(answer.tries for answer in answers), flips=flips)
    most = max(len(answer.found) for answer in answers)
    if not most:
        low = any(answer.low for answer in answers)
        return [replace(start, problem=POLARITY if flips else LOW if low else NOTHING)]
    made = []
    for number in range(most):
        chosen = [
            answer.found[min(number, len(answer.found) - 1)]
            if answer.found
            else Found(sentence, 100.0, 100.0, math.inf)
            for sentence, answer in zip(sentences, answers, strict=True)
        ]
        text = " ".join(found.text for found in chosen)
        meaning, wording = chosen[0].meaning, chosen[0].wording
        if len(chosen) > 1:
            meaning = float(np.mean([found.meaning for found in chosen]))
            wording = float(wordings_of([start.source], [text])[0])
        inside = cell_of(meaning, wording) == cell
        made.append(replace(start, text=text, meaning=meaning, wording=wording, inside=inside))
    return made


log = logging.getLogger(__name__)

# Costs of copying that one search tries side by side, each with some of the beams.
COPYING = (0.0, 0.6, 1.2, 2.4, 4.8)
SHORTEST, LONGEST = 0.75, 1.5  # times the input's tokens, section 4.2
MOST_TRIES = int(limits.TRIES.high)
_BROKEN = re.compile("[\x00-\x08\x0e-\x1f\ufffd]")  # characters of which a part is missing
# Tries after the first draw; a little warmer each time, so that they differ.
_TOP_K, _TEMPERATURE, _WARMER = 20, 1.0, 0.2


class Rewriter:
    """Rewrites texts at an asked meaning and wording.

    Args:
        seq2seq: a model that was trained with the tags.
        scorer: measures the meaning of what comes out.
        polarity: finds what says the opposite of its sentence, which is then no rewrite of it;
            None: nothing does.

    Raises:
        InputError: the model's vocabulary lacks the tags.
    """

    def __init__(self, seq2seq: Seq2Seq, scorer: Scorer, polarity: Polarity | None = None) -> None:
        self.seq2seq, self.scorer, self.polarity = seq2seq, scorer, polarity
        lacking = sorted(set(TAGS) - set(seq2seq.tokenizer.get_vocab()))
        if lacking:
            raise InputError(
                f"model {seq2seq.name!r} has no tag {lacking[0]}: train it with "
                "`tilth paraphrase train`, or name a rewriter"
            )

    @overload
    def rewrite(  # type: ignore[overload-overlap]
        self, texts: Sequence[str], *, meaning: float = ..., wording: float = ...,
        min_meaning: float = ..., n: Literal[1] = ..., steer: bool = ..., tries: int = ...,
        beams: int = ..., seed: int = ...,
    ) -> list[Rewrite]: ...  # fmt: skip

    @overload
    def rewrite(
        self, texts: Sequence[str], *, n: int, meaning: float = ..., wording: float = ...,
        min_meaning: float = ..., steer: bool = ..., tries: int = ..., beams: int = ...,
        seed: int = ...,
    ) -> list[list[Rewrite]]: ...  # fmt: skip

    def rewrite(
        self,
        texts: Sequence[str],
        *,
        meaning: float = 95.0,
        wording: float = 20.0,
        min_meaning: float = MIN_MEANING,
        n: int = 1,
        steer: bool = True,
        tries: int = 1,
        beams: int = BEAMS,
        seed: int = 0,
    ) -> list[Rewrite] | list[list[Rewrite]]:
        """Rewrite texts, sentence by sentence.

        A sentence is searched for side by side at several costs of taking words from it; all that
        was found is measured, and the nearest is its rewrite: nearest in wording to within a step
        of 5, then in both. Without `steer` it is the best of one beam search that is not the
        sentence itself; with a least meaning of 0 the best, whatever it is, as in the paper. With
        several `tries` sentences of which nothing lies in the asked cell are searched for again,
        with sampling. What is below the least meaning or says the opposite is left out.

        Args:
            texts: of one or several sentences, in the language of the model.
            meaning: 70 to 100, mapped to the tag of its step of 5.
            wording: 0 to 45, likewise; 0 to 10 is one step.
            min_meaning: least measured meaning of a sentence's rewrite, 0 to 100.
            n: different rewrites of each text; fewer where the search finds fewer.
            steer: whether copying is made to cost.
            tries: searches of a sentence at most; a search that comes no nearer is the last.
            beams: width of the search; the paper's figures are of 20.
            seed: of what is sampled; same texts, settings and seed, same rewrites.

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
        check_texts(texts)
        asked = Asked(
            meaning, wording, min_meaning, n, steer=steer, tries=tries, beams=beams, seed=seed
        )
        answers = self.rewrites(texts, asked, seed=seed)
        return [answer[0] for answer in answers] if n == 1 else answers

    def rewrites(self, texts: Sequence[str], asked: Asked, *, seed: int) -> list[list[Rewrite]]:
        """Return the rewrites of each text, a list even when n is 1.

        Args:
            texts: as in `rewrite`.
            asked: what is asked for.
            seed: of what is sampled, in place of that of `asked`.
        """
        cell = asked_cell(asked.meaning, asked.wording)
        pieces = [sentences_of(text) for text in texts]
        unique = list(dict.fromkeys(piece for found in pieces for piece in found))
        found_of = dict(zip(unique, self._search(unique, cell, asked, seed), strict=True))
        joint = [
            joined(text, found, [found_of[piece] for piece in found], cell)
            for text, found in zip(texts, pieces, strict=True)
        ]
        return [
            [
                replace(one, asked_meaning=asked.meaning, asked_wording=asked.wording)
                for one in rewrites
            ]
            for rewrites in joint
        ]

    def _search(self, sentences: list[str], cell: Cell, asked: Asked, seed: int) -> list[Answer]:
        """Return the best rewrites of each sentence, at most n."""
        answers = [Answer() for _ in sentences]
        places = list(range(len(sentences)))
        model = replace(self.seq2seq, prefix=f"{cell.tags} ")
        tokenizer = self.seq2seq.tokenizer
        marks = [mark for mark in sorted({*tokenizer.all_special_tokens, *TAGS}) if len(mark) > 1]
        beams = max(asked.beams, asked.n + 1)  # the sentence itself may be among what is found
        if asked.steer:
            beams = max(1, -(-2 * beams // len(COPYING)))
        nearest = asked.steer or asked.tries > 1  # else the search's own order counts
        plain = not nearest and not asked.min_meaning  # the paper's: a copy counts, too
        for number in range(asked.tries):
            if not places:
                break
            search = Search(
                beams=beams,
                returned=beams,
                shortest=SHORTEST,
                longest=LONGEST,
                top_k=_TOP_K if number else None,
                temperature=_TEMPERATURE + _WARMER * (number - 1) if number else None,
                copying=COPYING if asked.steer else (),
            )
            chosen = [sentences[place] for place in places]
            read = [_without_marks(sentence, marks) for sentence in chosen]
            outputs = decode(model, read, search, seed=seed * MOST_TRIES + number)
            kept = [
                _usable(sentence, found, copies=plain)
                for sentence, found in zip(chosen, outputs, strict=True)
            ]
            measured = self._measured(chosen, kept, cell)
            if nearest:
                measured = [sorted(found, key=lambda one: one.distance) for found in measured]
            some = [answers[place] for place in places]
            accepted = self._accepted(chosen, measured, some, asked)
            nearer = [
                answer.add(new, asked.n, read=bool(written))
                for answer, new, written in zip(some, accepted, outputs, strict=True)
            ]
            places = [
                place for place, gain in zip(places, nearer, strict=True)
                if gain and answers[place].is_open(asked.n)
            ]  # fmt: skip
        return answers

    def _accepted(
        self, sentences: list[str], found: list[list[Found]], answers: list[Answer], asked: Asked
    ) -> list[list[Found]]:
        """Return the first n of each sentence's that keep its meaning and polarity.

        What is left out is counted in the answers. Only as many as it takes are checked.
        """
        waiting = []
        for some, answer in zip(found, answers, strict=True):
            high = [one for one in some if one.meaning >= asked.min_meaning]
            answer.low += len(some) - len(high)
            waiting.append(high)
        if self.polarity is None:
            return [some[: asked.n] for some in waiting]
        accepted: list[list[Found]] = [[] for _ in sentences]
        while asking := [
            (place, one)
            for place, some in enumerate(waiting)
            for one in some[: asked.n - len(accepted[place])]
        ]:
            flips = self.polarity.flips(
                [sentences[place] for place, _ in asking], [one.text for _, one in asking]
            )
            for (place, one), is_flip in zip(asking, flips.tolist(), strict=True):
                waiting[place].remove(one)
                answers[place].flips += is_flip
                if not is_flip:
                    accepted[place].append(one)
        return accepted

    def _measured(
        self, sentences: list[str], texts: list[list[str]], cell: Cell
    ) -> list[list[Found]]:
        first = [s for s, found in zip(sentences, texts, strict=True) for _ in found]
        second = [text for found in texts for text in found]
        meanings = meanings_of(first, second, self.scorer).tolist()
        wordings = wordings_of(first, second).tolist()
        measured = iter(
            Found(text, m, w, distance(cell, m, w))
            for text, m, w in zip(second, meanings, wordings, strict=True)
        )
        return [[next(measured) for _ in found] for found in texts]


def _usable(sentence: str, outputs: list[str], *, copies: bool) -> list[str]:
    """Return the outputs that are whole and, unless copies count, in other words, each once."""
    itself = normalize_text(sentence)
    some = [text for text in dict.fromkeys(outputs) if text.strip() and not _BROKEN.search(text)]
    return [text for text in some if copies or normalize_text(text) != itself]


def _without_marks(sentence: str, marks: Sequence[str]) -> str:
    """Return a sentence in which nothing is read as a tag or as an end."""
    for mark in marks:
        if mark in sentence:
            sentence = sentence.replace(mark, f"{mark[0]} {mark[1:]}")
    return sentence


def load_paraphraser(
    name: str = "starter",
    *,
    scorer: str = "starter",
    polarity: bool | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> Rewriter:
    """Load a rewriter by name, with the scorer and the check of polarity that judge its rewrites.

    Args:
        name: `starter`, the run of `tilth paraphrase train`, a model folder or a hub id; the
            published checkpoint too.
        scorer: as in `load_scorer`.
        polarity: leave out what says the opposite of its sentence; the check is in tilth-starter
            and reads English. None: where tilth-starter is installed.
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


def check_texts(texts: Sequence[str]) -> None:
    """Check that texts are texts; what they hold is no error.

    Raises:
        InputError: one is none, or there is but one text instead of a list.
    """
    if isinstance(texts, str):
        raise InputError(f"texts is one text, {texts!r:.80}: give a list of texts")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{number}] is {text!r:.80}: every one is a text")

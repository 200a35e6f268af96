"""The rewriter: texts in other words, at an asked meaning and wording, and measured.

Reference: Ogasa, Kajiwara and Arase, sections 3.3 and 4.2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, overload

from tilth import limits
from tilth.data.plain import plain_sentence
from tilth.errors import InputError
from tilth.models import load_scorer, load_seq2seq
from tilth.paraphrase.answers import (
    Answer,
    Found,
    Rewrite,
    distance,
    joined,
    sentences_of,
)
from tilth.paraphrase.decoding import Search, decode
from tilth.paraphrase.settings import BEAMS, TRIES
from tilth.paraphrase.similarity import meaning as meanings_of
from tilth.paraphrase.similarity import wording as wordings_of
from tilth.paraphrase.tags import TAGS, Cell, asked_cell

if TYPE_CHECKING:
    from tilth.models.scorer import Scorer
    from tilth.models.seq2seq import Seq2Seq

# Costs of copying that one search tries side by side, each with some of the beams.
COPYING = (0.0, 0.6, 1.2, 2.4, 4.8)
SHORTEST, LONGEST = 0.75, 1.5  # times the input's tokens, section 4.2
MOST_TRIES = int(limits.TRIES.high)
LEAST_MEANING = 50.0  # below it an output is no rewrite of its sentence
_BROKEN = re.compile("[\x00-\x08\x0e-\x1f\ufffd]")  # characters of which a part is missing
# Tries after the first draw; a little warmer each time, so that they differ.
_TOP_K, _TEMPERATURE, _WARMER = 20, 1.0, 0.2


class Rewriter:
    """Rewrites texts at an asked meaning and wording.

    Args:
        seq2seq: a model that was trained with the tags.
        scorer: measures the meaning of what comes out.

    Raises:
        InputError: the model's vocabulary lacks the tags.
    """

    def __init__(self, seq2seq: Seq2Seq, scorer: Scorer) -> None:
        self.seq2seq, self.scorer = seq2seq, scorer
        lacking = sorted(set(TAGS) - set(seq2seq.tokenizer.get_vocab()))
        if lacking:
            raise InputError(
                f"model {seq2seq.name!r} has no tag {lacking[0]}: train it with "
                "`tilth paraphrase train`, or name a rewriter"
            )

    @overload
    def rewrite(  # type: ignore[overload-overlap]
        self, texts: Sequence[str], *, meaning: float = ..., wording: float = ...,
        n: Literal[1] = ..., steer: bool = ..., check: bool = ..., tries: int = ...,
        beams: int = ..., seed: int = ...,
    ) -> list[Rewrite]: ...  # fmt: skip

    @overload
    def rewrite(
        self, texts: Sequence[str], *, n: int, meaning: float = ..., wording: float = ...,
        steer: bool = ..., check: bool = ..., tries: int = ..., beams: int = ..., seed: int = ...,
    ) -> list[list[Rewrite]]: ...  # fmt: skip

    def rewrite(
        self,
        texts: Sequence[str],
        *,
        meaning: float = 95.0,
        wording: float = 5.0,
        n: int = 1,
        steer: bool = True,
        check: bool = False,
        tries: int = TRIES,
        beams: int = BEAMS,
        seed: int = 0,
    ) -> list[Rewrite] | list[list[Rewrite]]:
        """Rewrite texts, sentence by sentence.

        A sentence is searched for side by side at several costs of taking words from it; all that
        was found is measured, and the nearest is its rewrite: nearest in wording to within a step
        of 5, then in both. Without `steer` it is the best of one beam search that is not the
        sentence itself, as in the paper. With `check` sentences of which nothing lies in the asked
        cell are decoded again, with sampling.

        Args:
            texts: of one or several sentences, in the language of the model.
            meaning: 70 to 100, mapped to the tag of its step of 5.
            wording: 0 to 45, likewise; 0 to 10 is one step.
            n: different rewrites of each text; fewer where the search finds fewer.
            steer: whether copying is made to cost.
            check: whether to look for what lies in the asked cell.
            tries: decodings of a sentence at most, with `check`.
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
        check_settings(n, tries, beams)
        check_texts(texts)
        answers = self.rewrites(
            texts,
            asked_cell(meaning, wording),
            n=n,
            steer=steer,
            check=check,
            tries=tries,
            beams=beams,
            seed=seed,
        )
        asked = [
            [replace(one, asked_meaning=meaning, asked_wording=wording) for one in answer]
            for answer in answers
        ]
        return [answer[0] for answer in asked] if n == 1 else asked

    def rewrites(
        self, texts: Sequence[str], cell: Cell, *, n: int, steer: bool, check: bool, tries: int,
        beams: int, seed: int,
    ) -> list[list[Rewrite]]:  # fmt: skip
        """Return the rewrites of each text, a list even when n is 1; options as in `rewrite`."""
        pieces = [sentences_of(text) for text in texts]
        unique = list(dict.fromkeys(piece for found in pieces for piece in found))
        beams = max(beams, n + 1)  # the sentence itself may be among what is found
        answers = self._search(unique, cell, n, steer, tries if check else 0, beams, seed)
        found_of = dict(zip(unique, answers, strict=True))
        return [
            joined(text, found, [found_of[piece] for piece in found], cell)
            for text, found in zip(texts, pieces, strict=True)
        ]

    def _search(
        self, sentences: list[str], cell: Cell, n: int, steer: bool, tries: int, beams: int,
        seed: int,
    ) -> list[Answer]:  # fmt: skip
        """Return the best rewrites of each sentence, at most n; 0 tries: unchecked."""
        answers = [Answer() for _ in sentences]
        places = list(range(len(sentences)))
        model = replace(self.seq2seq, prefix=f"{cell.tags} ")
        tokenizer = self.seq2seq.tokenizer
        marks = [mark for mark in sorted({*tokenizer.all_special_tokens, *TAGS}) if len(mark) > 1]
        if steer:
            beams = max(1, -(-2 * beams // len(COPYING)))
        for number in range(tries or 1):
            search = Search(
                beams=beams,
                returned=beams,
                shortest=SHORTEST,
                longest=LONGEST,
                top_k=_TOP_K if number else None,
                temperature=_TEMPERATURE + _WARMER * (number - 1) if number else None,
                copying=COPYING if steer else (),
            )
            chosen = [sentences[place] for place in places]
            asked = [_without_marks(sentence, marks) for sentence in chosen]
            outputs = decode(model, asked, search, seed=seed * MOST_TRIES + number)
            kept = [_others(s, found) for s, found in zip(chosen, outputs, strict=True)]
            measured = self._measured(chosen, kept, cell)
            if not (steer or tries):  # the search's own order counts, not the nearest
                measured = [found[:n] for found in measured]
            for place, written, new in zip(places, outputs, measured, strict=True):
                answers[place].add(new, n, read=bool(written))
            places = [place for place in places if answers[place].is_open(n)]
        return answers

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
        return [
            [one for one in [next(measured) for _ in found] if one.meaning >= LEAST_MEANING]
            for found in texts
        ]


def _others(sentence: str, outputs: list[str]) -> list[str]:
    """Return the outputs that are whole and in other words, each once."""
    itself = plain_sentence(sentence)
    some = [text for text in dict.fromkeys(outputs) if text.strip() and not _BROKEN.search(text)]
    return [text for text in some if plain_sentence(text) != itself]


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
    device: str = "auto",
    precision: str = "auto",
) -> Rewriter:
    """Load a rewriter by name, with the scorer that measures its rewrites.

    Args:
        name: `starter`, the run of `tilth paraphrase train`, a model folder or a hub id; the
            published checkpoint too.
        scorer: as in `load_scorer`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `float32`, `bfloat16` or `float16`.

    Raises:
        InputError: there is no such model, or it is no rewriter.
    """
    seq2seq = load_seq2seq(name, device=device, precision=precision)
    return Rewriter(seq2seq, load_scorer(scorer, device=device, precision=precision))


def check_settings(n: int, tries: int, beams: int) -> None:
    """Check the numbers a search takes.

    Raises:
        InputError: one is out of range.
    """
    limits.BEAMS.check("n", n)
    limits.TRIES.check("tries", tries)
    limits.BEAMS.check("beams", beams)


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

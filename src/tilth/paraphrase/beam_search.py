"""One loop for greedy search, beam search and beam search with sampling.

The rules are those of `transformers.generate` with a length penalty of 1 and without early
stopping. A text leaves as soon as it is finished, and the next one takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tilth.data.hashing import random_keys
from tilth.models.best_tokens import best_tokens
from tilth.paraphrase.decoders import Decoder, Ints

Floats = NDArray[np.float32]
_NONE = np.float32(-1e9)  # score of a beam that does not exist
# Shares of the cost: for any word of the source, then more for each equal word before it.
_SHARES = (0.15, 0.35, 0.25, 0.25)


@dataclass(frozen=True, slots=True)
class Source:
    """A text to decode.

    Attributes:
        text, number: which text it is, and which of its copy costs.
        ids: its token ids.
        least, most: tokens of an output, without the closing one.
        copy_cost: of copying the last of four equal words, in logits.
        key: of its random numbers.
    """

    text: int
    number: int
    ids: list[int]
    least: int
    most: int
    copy_cost: float
    key: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """What outputs begin with, end with and must not hold.

    Attributes:
        start: before an output.
        forced: the first of an output; None: any.
        ends: close an output; the first of them where it is at its limit.
        forbidden: never sampled.
        forbidden_first: never sampled as the first.
        begins: whether each entry of the vocabulary begins a word; None: nothing is penalized.
    """

    start: int
    forced: int | None
    ends: list[int]
    forbidden: list[int]
    forbidden_first: list[int]
    begins: NDArray[np.bool_] | None = None


class BeamLoop:
    """Decodes texts in `slots` places.

    Args:
        width: of tables of output tokens: most of any text, and those around them.
        top_k: tokens that sampling draws from; None: no sampling.
        temperature: of sampling.
    """

    def __init__(
        self, decoder: Decoder, tokens: Tokens, slots: int, beams: int, width: int,
        *, top_k: int | None, temperature: float,
    ) -> None:  # fmt: skip
        self.decoder, self.tokens, self.beams = decoder, tokens, beams
        self.top_k, self.temperature = top_k, np.float32(temperature)
        # A beam may end, so that as many again are needed to go on.
        self.kept = beams * max(2, 1 + len(tokens.ends)) if beams > 1 else 1
        self.sources: dict[int, Source] = {}
        self.slots = slots
        self.limits = np.zeros((slots, 2), np.int64)
        self.keys = np.zeros(slots, np.uint64)
        self.written = np.zeros(slots, np.int64)  # a forced first token included
        self.parents = np.zeros((slots, beams), np.int64)
        self.output = np.zeros((slots, beams, width), np.int64)
        self.scores = np.zeros((slots, beams), np.float32)
        self.finished = np.zeros((slots, beams, width), np.int64)
        self.final = np.zeros((slots, beams), np.float32)
        self.is_final = np.zeros((slots, beams), np.bool_)
        self.before = int(tokens.forced is not None)

    def run(
        self, sources: Iterator[tuple[Source, Tensor]]
    ) -> Iterator[tuple[Source, list[list[int]]]]:
        """Yield texts and their outputs, best first, as they are finished.

        Args:
            sources: with the encoder's states, (tokens, dimension).
        """
        active: Ints = np.empty(0, np.int64)
        while True:
            if self.decoder.joins or not len(active):
                active = np.sort(np.append(active, self._enter(active, sources)))
            if not len(active):
                return
            ended = self._step(active)
            for slot in active[ended].tolist():
                yield self.sources.pop(slot), [self._text(row) for row in self.finished[slot]]
            active = active[~ended]

    def _text(self, output: Ints) -> list[int]:
        """Return the tokens of a finished output, without those that start and end it."""
        ends = np.flatnonzero(np.isin(output[1 + self.before :], self.tokens.ends))
        text: list[int] = output[1 : 1 + self.before + ends[0]].tolist()
        return text

    def _enter(self, active: Ints, sources: Iterator[tuple[Source, Tensor]]) -> Ints:
        """Let texts take free slots; return these."""
        free = np.setdiff1d(np.arange(self.slots), active)
        coming = list(zip(free.tolist(), sources, strict=False))
        if not coming:
            return free[:0]
        slots = free[: len(coming)]
        self.decoder.enter(slots, [states for _, (_, states) in coming])
        for slot, (source, _) in coming:
            self.sources[slot] = source
            self.limits[slot], self.keys[slot] = (source.least, source.most), source.key
        self.written[slots], self.output[slots] = 0, self.tokens.ends[0]
        self.output[slots, :, 0] = self.tokens.start
        self.scores[slots], self.final[slots] = _NONE, _NONE
        self.scores[slots, 0], self.is_final[slots] = 0, False
        self.finished[slots] = self.tokens.ends[0]
        return slots

    def _step(self, active: Ints) -> NDArray[np.bool_]:
        """Decode one token of these slots' beams; return which slots are finished."""
        beams, written = self.beams, self.written[active]
        # Beams are equal before the first token: one of them is run.
        is_run = (np.arange(beams) == 0) | (written > 0)[:, None]  # (texts, beams)
        text, beam = np.nonzero(is_run)
        slots = active[text]
        rows, parents = slots * beams + beam, self.parents[slots, beam] + slots * beams
        parents[written[text] < 2] = rows[written[text] < 2] - beam[written[text] < 2]
        positions = written[text]
        logits = self.decoder.step(rows, parents, self.output[slots, beam, positions], positions)
        columns, costs = self._costs(slots, beam)
        count = max(self.kept, self.top_k or 0)
        some, ids = best_tokens(logits, columns, costs, count)  # (rows, count)
        self._force(slots, some, ids)
        run = np.cumsum(is_run.ravel()).reshape(is_run.shape) - 1
        run[written == 0] = run[written == 0][:, :1]
        log_probs, ids = some[run], ids[run]  # (texts, beams, count)
        parent, token, score = self._continue(active, log_probs, ids)
        return self._update(active, parent, token, score)

    def _force(self, slots: Ints, log_probs: Floats, ids: Ints) -> None:
        """Leave only the token that some rows must write, in place."""
        written = self.written[slots] - self.before
        for rows, token in (
            (written < 0, self.tokens.forced),
            (written >= self.limits[slots, 1], self.tokens.ends[0]),
        ):
            if token is not None and rows.any():
                log_probs[rows], ids[rows] = -np.inf, token
                log_probs[rows, 0] = 0

    def _continue(self, active: Ints, log_probs: Floats, ids: Ints) -> tuple[Ints, Ints, Floats]:
        """Choose continuations; return the beam, token and score of each, (texts, kept)."""
        texts, _, count = ids.shape
        if self.top_k is not None:  # beams draw from more than there are closing tokens
            log_probs = log_probs / self.temperature
            log_probs[:, :, max(self.top_k, self.kept // self.beams) :] = -np.inf
        scores = (self.scores[active][:, :, None] + log_probs).reshape(texts, -1)
        order = scores
        if self.top_k is not None:
            order = scores + self._noise(active, ids)
        best = np.argsort(-order, axis=1, kind="stable")[:, : self.kept]
        token = np.take_along_axis(ids.reshape(texts, -1), best, axis=1)
        return best // count, token, np.take_along_axis(scores, best, axis=1)

    def _noise(self, active: Ints, ids: Ints) -> Floats:
        """Return Gumbel noise: the largest sums with it are draws without replacement.

        It depends on the text, the step, the beam and the token.
        """
        texts, beams, count = ids.shape
        every = np.broadcast_to(np.arange(beams)[:, None], ids.shape)
        columns = (
            self.keys[active][:, None, None],
            self.written[active][:, None, None],
            every,
            ids,
        )
        given = (np.broadcast_to(one, ids.shape).ravel().astype(np.uint64) for one in columns)
        drawn = random_keys(0, "sampling", *given)
        uniform = ((drawn >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        noise: Floats = -np.log(-np.log(uniform)).reshape(texts, beams * count).astype(np.float32)
        return noise

    def _update(self, active: Ints, parent: Ints, token: Ints, score: Floats) -> NDArray[np.bool_]:
        """Go on with the best continuations that do not end; return which texts are finished."""
        beams, written = self.beams, self.written[active] + 1
        texts = np.arange(len(active))[:, None]
        ends = np.isin(token, self.tokens.ends)  # (texts, kept)
        output = self.output[active][texts, parent]  # (texts, kept, width)
        output[np.arange(len(active)), :, written] = token
        # Only the best `beams` may end; the others are there to go on.
        closed = ends & (np.arange(token.shape[1]) < beams)
        final = score / written[:, None].astype(np.float32) + ~closed * _NONE
        both = np.concatenate([self.final[active], final], axis=1)
        best = np.argsort(-both, axis=1, kind="stable")[:, :beams]
        self.final[active] = np.take_along_axis(both, best, axis=1)
        self.finished[active] = np.concatenate([self.finished[active], output], axis=1)[texts, best]
        both_final = np.concatenate([self.is_final[active], closed], axis=1)
        is_final = np.take_along_axis(both_final, best, axis=1)
        self.is_final[active] = is_final
        score = score + ends * _NONE
        going = np.argsort(-score, axis=1, kind="stable")[:, :beams]
        self.scores[active] = np.take_along_axis(score, going, axis=1)
        self.parents[active] = np.take_along_axis(parent, going, axis=1)
        self.output[active], self.written[active] = output[texts, going], written
        # The best that goes on, were it to end now, against the worst that ended.
        reach = self.scores[active, 0] / written.astype(np.float32)
        over = is_final.all(axis=1) & (reach <= self.final[active].min(axis=1))
        done: NDArray[np.bool_] = over | (written - self.before > self.limits[active, 1])
        return done

    def _costs(self, slots: Ints, beam: Ints) -> tuple[Ints, Floats]:
        """Return tokens that cost something in each row, and their costs, (rows, costs) each."""
        tokens, written = self.tokens, self.written[slots] - self.before
        short = written < self.limits[slots, 0]
        banned = [(tokens.forbidden, written < np.inf), (tokens.forbidden_first, written == 0),
                  (tokens.ends, short)]  # fmt: skip
        columns = [
            np.where(rows[:, None], np.array(ids, np.int64), -1) for ids, rows in banned if ids
        ]
        costs = [np.full(one.shape, np.inf, np.float32) for one in columns]
        sources = [self.sources[slot] for slot in slots]
        if tokens.begins is not None and any(source.copy_cost for source in sources):
            ids = np.full((len(sources), max(len(one.ids) for one in sources)), -1)
            for row, source in enumerate(sources):
                ids[row, : len(source.ids)] = source.ids
            begins = tokens.begins[ids] & (ids >= 0)
            cost = begins * np.array([[source.copy_cost] for source in sources], np.float32)
            places = self.written[slots][:, None] - np.arange(len(_SHARES) - 1)
            last = self.output[slots[:, None], beam[:, None], np.maximum(places, 0)]
            shares = copy_shares(ids, np.where(places > self.before, last, -2))
            columns, costs = [*columns, np.where(cost > 0, ids, -1)], [*costs, cost * shares]
        return np.concatenate(columns, axis=1), np.concatenate(costs, axis=1).astype(np.float32)


def copy_shares(sources: Ints, last: Ints) -> Floats:
    """Return which share of its cost each source token has as the next one, (rows, tokens).

    BLEU counts n-grams of up to 4 words; the cost grows likewise and is whole for the fourth word
    in a row.

    Args:
        sources: # (rows, tokens)
        last: the tokens written last, the latest first; -2: none. # (rows, 3)
    """
    shares = np.full(sources.shape, _SHARES[0], np.float32)
    same = np.ones(sources.shape, np.bool_)
    for back, share in enumerate(_SHARES[1:], start=1):
        same[:, :back] = False
        same[:, back:] &= sources[:, :-back] == last[:, back - 1, None]
        shares += same * np.float32(share)
    return shares

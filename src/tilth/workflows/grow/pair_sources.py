"""Makes pairs to train encoders on: of raw text, rewritten, and written by a language model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, read_pairs
from tilth.errors import InputError
from tilth.evaluate.sts import pair_cosines
from tilth.evaluate.sts_sets import StsSet
from tilth.models.encoder import load_encoder
from tilth.selftrain.retrieve import random_sentences
from tilth.workflows.curate import curate_folder
from tilth.workflows.grow.settings import PAIR_TASK
from tilth.workflows.grow.similarity import (
    DENOISED,
    DISTILLED,
    GENERATED_PAIRS,
    NEAR,
    REWRITTEN,
    SIMCSE,
    STARTER,
    SimilarityTask,
)
from tilth.workflows.grow.sources import TEXTS, RowSources

if TYPE_CHECKING:
    from tilth.generation.generate import GenerateRequest

_LONGEST = 300  # characters of a raw sentence
_DELETED = 0.6  # of the words that a decoder restores, as TSDAE
_NEIGHBOURS = 8
_POSITIVE = (0.75, 0.97)  # cosines of near duplicates, by the bank's encoder; nearer ones are same
_DISTILLED = (1, 3, 8)  # ranks of the neighbours that are graded
MOST_MADE = {REWRITTEN: 1_000, GENERATED_PAIRS: 500}  # raw sentences that a model writes about
FEWEST_MADE = 50
_TRIED = 4  # of them, to measure its speed


def cosines_of(encoder: Any, pairs: Sequence[tuple[str, ...]]) -> NDArray[np.float64]:
    """Return the cosine of each pair, (pairs,)."""
    one, two = ([pair[side] for pair in pairs] for side in (0, 1))
    none = np.zeros(len(pairs))
    (found,) = pair_cosines(encoder, [StsSet("pairs", one, two, none, [""] * len(pairs))])
    return found


class PairSources(RowSources):
    """Makes the rows of each source but the labelled pairs."""

    task: SimilarityTask

    def sentences(self, count: int) -> list[str]:
        """Return random raw sentences, none of them of a labelled pair."""
        assert self.bank is not None
        drawn, found, is_all = max(count, 1), list[str](), False
        while len(found) < max(count, 2) and not is_all:
            drawn, is_all = 2 * drawn, 2 * drawn >= len(self.bank)
            table = random_sentences(self.bank, drawn, self.task.held_out, self.settings.seed)
            found = [text for text in table["text"].to_pylist() if len(text) <= _LONGEST]
        if len(found) < 2:
            raise InputError(
                f"{self.bank.path}: {len(found)} raw sentences are left of up to {_LONGEST} "
                "characters that no labelled pair holds: give more raw text"
            )
        return found[:count]

    def rows(self, source: str, count: int) -> Dataset:
        """Return the rows of a source, made once of so many raw sentences."""
        make: dict[str, Callable[[int], Dataset]] = {
            SIMCSE: self._same, DENOISED: self._damaged, NEAR: self._near,
            DISTILLED: self._distilled, REWRITTEN: self._rewrites,
            GENERATED_PAIRS: self._generated,
        }  # fmt: skip
        return self._once((source, count), partial(make[source], count))

    def _same(self, count: int) -> Dataset:
        texts = self.sentences(count)
        return training_rows(texts, texts)

    def _damaged(self, count: int) -> Dataset:
        """Return texts without most of their words, beside the whole texts."""
        texts, draw = self.sentences(count), random.Random(self.settings.seed)
        damaged = []
        for text in texts:
            words = text.split()
            kept = [word for word in words if draw.random() > _DELETED]
            damaged.append(" ".join(kept or words[:1]))
        return training_rows(damaged, texts)

    def _neighbours(self, count: int) -> tuple[list[str], list[list[str]], NDArray[np.float32]]:
        """Return raw sentences, the raw sentences nearest to each, and their cosines."""
        assert self.bank is not None
        texts = self.sentences(count)
        hits = self.bank.search(
            texts, min(_NEIGHBOURS, len(self.bank)), without=self.task.held_out, own=False
        )
        return texts, [hits.texts(row) for row in range(len(texts))], hits.similarity

    def _near(self, count: int) -> Dataset:
        """Return sentences, each with its nearest neighbour that does not say the very same."""
        pairs = []
        for text, near, cosines in zip(*self._neighbours(count), strict=True):
            inside = [
                other for other, one in zip(near, cosines, strict=False)
                if _POSITIVE[0] <= one <= _POSITIVE[1]
            ]  # fmt: skip
            if inside:
                pairs.append((text, inside[0]))
        return training_rows(*_sides(pairs, f"of {count:,} raw sentences have a near duplicate"))

    def _distilled(self, count: int) -> Dataset:
        """Return sentences and neighbours near and far, graded by the starter encoder."""
        pairs = [
            (text, near[rank - 1])
            for text, near, _ in zip(*self._neighbours(count), strict=True)
            for rank in _DISTILLED if rank <= len(near)
        ][:count]  # fmt: skip
        first, second = _sides(pairs, "pairs of raw sentences near one another were found")
        grades = np.clip(cosines_of(load_encoder(STARTER, device=self.device), pairs), 0, 1)
        return training_rows(first, second, grades.tolist())

    def measure_rewriting(self) -> float:
        """Return the seconds that the rewrites of a sentence take."""
        return 1 / self.measure_paraphrasing(self.sentences(_TRIED))

    def _rewrites(self, count: int) -> Dataset:
        made = self._paraphrase(self.sentences(count))
        return training_rows(made["original"][:], made["text"][:])

    def _request(self, count: int) -> GenerateRequest:
        from tilth.generation.generate import GenerateRequest
        from tilth.generation.task import load_task

        return GenerateRequest(
            load_task(PAIR_TASK), self._lm, self.settings.writing(),
            self.sentences(count), any_task=self.settings.any_task,
        )  # fmt: skip

    def measure_generation(self) -> float:
        """Return the seconds that the language model takes for a sentence."""
        from tilth.generation.estimate import estimate_run

        request = self._request(MOST_MADE[GENERATED_PAIRS])
        return estimate_run(request).seconds / len(request.items())

    def _generated(self, count: int) -> Dataset:
        self._written(partial(self._request, count))
        folder, _ = curate_folder(str(self.out / TEXTS), None)
        return read_pairs(folder, seed=self.settings.seed).all_rows()


def _sides(pairs: Sequence[tuple[str, str]], found: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return first and second texts of pairs; refuse fewer than two pairs."""
    if len(pairs) < 2:
        raise InputError(f"{len(pairs)} {found}: give more raw text")
    first, second = zip(*pairs, strict=True)
    return first, second


def training_rows(
    first: Sequence[str], second: Sequence[str], labels: Sequence[float] | None = None
) -> Dataset:
    """Return pairs to train on, graded ones if there are labels."""
    graded = {} if labels is None else {LABEL: list(labels)}
    return Dataset.from_dict({TEXT_A: list(first), TEXT_B: list(second), **graded})

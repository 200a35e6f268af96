"""Contrastive selection: several candidates for each text, of which the one fits its label best.

The margin of a candidate is its log-probability given the label's prompt, minus the largest one
given the prompt of a counter label. Like self-debiasing, it keeps labels apart, but it needs no
hand in the decoding: a server that gives the log-probabilities of a prompt is enough.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from tilth.generation.attempts import Job, NextJob, Outcome

_MOST_TOKENS = 32_767  # the column's type


class ScoringSampler(Protocol):
    """A sampler that also measures how likely a text is."""

    def run(self, jobs: Iterable[Job], next_job: NextJob) -> None:
        """Run all jobs, as `Sampler` does."""

    def log_likelihoods(self, texts: Sequence[tuple[str, str]]) -> list[float]:
        """Return the log-probability of each (prompt, text): of the text given the prompt."""


class ContrastiveSampler:
    """Runs each job as several candidates; its outcome is the candidate of the widest margin.

    The first candidate has the job's own random numbers: with one candidate, nothing changes. Jobs
    without counter labels have one.

    Args:
        decay: of self-debiasing; at 0, candidates are decoded without the counter prompts.
        window: jobs whose candidates are drawn and scored together.
    """

    def __init__(
        self, sampler: ScoringSampler, candidates: int, *, decay: float, window: int
    ) -> None:
        self._sampler, self._candidates = sampler, candidates
        self._decay, self._window = decay, window

    def run(self, jobs: Iterable[Job], next_job: NextJob) -> None:
        """Run all jobs; further attempts are drawn with the next window."""
        stream, again = iter(jobs), deque[Job]()
        while True:
            first = [again.popleft() for _ in range(min(len(again), self._window))]
            window = [*first, *islice(stream, self._window - len(first))]
            if not window:
                return
            for outcome in self._choose(window):
                following = next_job(outcome)
                if following is not None:
                    again.append(following)

    def _choose(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Return the chosen outcome of each job, in order."""
        drawn = [self._candidates_of(job) for job in jobs]
        outcomes: dict[Job, Outcome] = {}

        def collect(outcome: Outcome) -> None:
            outcomes[outcome.job] = outcome

        self._sampler.run([one for each in drawn for one in each], collect)
        found = [[outcomes[one] for one in each] for each in drawn]
        kept = [
            list(dict.fromkeys(one.text for one in each if one.reason is None)) for each in found
        ]
        asked = [
            (prompt, text)
            for job, texts in zip(jobs, kept, strict=True)
            for text in texts
            for prompt in job.prompts
            if len(job.prompts) > 1
        ]
        scores = dict(zip(asked, self._sampler.log_likelihoods(asked), strict=True))
        return [
            _widest(job, each, {text: _margin(scores, job, text) for text in texts})
            for job, each, texts in zip(jobs, found, kept, strict=True)
        ]

    def _candidates_of(self, job: Job) -> list[Job]:
        """Return the job's candidates, each with random numbers of its own."""
        count = self._candidates if len(job.prompts) > 1 else 1
        first = job if self._decay else replace(job, prompts=job.prompts[:1])
        keys = [hashlib.blake2b(job.key + bytes([n]), digest_size=16) for n in range(1, count)]
        return [first, *(replace(first, key=key.digest()) for key in keys)]


def _margin(scores: dict[tuple[str, str], float], job: Job, text: str) -> float | None:
    own, *counters = (scores.get((prompt, text), math.nan) for prompt in job.prompts)
    if not counters:
        return None
    return math.nan if any(map(math.isnan, counters)) else own - max(counters)


def _widest(job: Job, found: Sequence[Outcome], margins: dict[str, float | None]) -> Outcome:
    """Return the kept candidate of the widest margin as the job's outcome, else the first."""

    def rank(outcome: Outcome) -> float:
        margin = margins.get(outcome.text) if outcome.reason is None else None
        return -math.inf if margin is None or math.isnan(margin) else margin

    kept = [outcome for outcome in found if outcome.reason is None] or list(found)
    best = max(kept, key=rank)  # the first of equal ones
    tokens = min(sum(outcome.tokens for outcome in found), _MOST_TOKENS)
    margin = margins.get(best.text) if best.reason is None else None
    return replace(best, job=job, tokens=tokens, margin=margin)

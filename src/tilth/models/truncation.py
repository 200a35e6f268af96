"""Warn of texts that are longer than a model reads; jobs of many parts or trainings do so once.

Nothing here imports torch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

_counting: list[Counter[tuple[int, str]]] = []


def warn_of_cuts(cut: int, texts: int, longest: int, name: str) -> None:
    """Log a warning if texts were truncated, or add to the counts of a job.

    Args:
        cut: how many of `texts` are longer than `longest` tokens.
        name: of the model.
    """
    if cut and _counting:
        _counting[-1][longest, name] += cut
    elif cut:
        log.warning(
            "%d of %d texts are longer than the %d tokens that %s reads: they were cut", cut, texts,
            longest, name,
        )  # fmt: skip


@contextmanager
def counted_cuts() -> Iterator[Counter[tuple[int, str]]]:
    """Yield the number of truncated texts by limit and model, of which nothing is logged."""
    counts: Counter[tuple[int, str]] = Counter()
    _counting.append(counts)
    try:
        yield counts
    finally:  # jobs in other threads may have begun or ended meanwhile
        _counting[:] = [one for one in _counting if one is not counts]


@contextmanager
def one_warning_on_cuts() -> Iterator[None]:
    """Log one warning on truncated texts at the end, instead of one per part."""
    with counted_cuts() as counts:
        try:
            yield
        finally:
            for (longest, name), cut in counts.items():
                log.warning(
                    "texts of more than the %d tokens that %s reads were cut: %d",
                    longest,
                    name,
                    cut,
                )

"""Make the parts of a run in this process, or by the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from tilth.runs.cluster import Cluster
from tilth.runs.progress import Progress
from tilth.runs.run import Run, complete

PartWork: TypeAlias = Callable[[int, Any, Progress], pa.Table]
"""Computes a part from its number and input as a closed unit: the same rows, anywhere."""


@dataclass(frozen=True, slots=True)
class PartJob:
    """How the parts of a run are made.

    Attributes:
        start: loads what is heavy, once in each process, and returns the work on a part. Facts
            that all parts share are `run.resolve`d there. Pickled for a cluster.
        given: part -> its input, read in the process that was asked.
        sizes: items of each part, which the work counts.
        what: the items' name.
    """

    start: Callable[[Run], PartWork]
    given: Callable[[int], Any]
    sizes: Sequence[int]
    what: str = "inputs"


def make_parts(
    run: Run, job: PartJob, cluster: Cluster | None = None, *, quiet: bool = False
) -> None:
    """Make the missing parts of a run in this process or on a cluster; the rows are the same."""
    if cluster is not None and cluster.on is not None:
        from tilth.runs.ray_parts import complete_on_ray

        complete_on_ray(run, job, cluster, quiet=quiet)
        return
    work: PartWork | None = None

    def make(index: int, progress: Progress) -> pa.Table:
        nonlocal work
        if work is None:  # a finished run is not worth loading a model for
            work = job.start(run)
        return work(index, job.given(index), progress)

    complete(run, make, job.sizes, quiet=quiet, what=job.what)

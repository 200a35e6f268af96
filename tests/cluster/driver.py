"""A command that makes a run of numbers on a cluster: OUT PARTS SECONDS-A-PART CLUSTER."""

import sys
from functools import partial
from pathlib import Path

from tests.cluster import jobs
from tilth.errors import TilthError
from tilth.runs.backends import make_parts
from tilth.runs.cluster import Cluster


def main(out: Path, parts: int, seconds: float, on: str) -> None:
    folder = out.with_name("began")
    folder.mkdir(exist_ok=True)
    job = jobs.numbers_job(parts, partial(jobs.nap, folder, seconds))
    with jobs.numbers_run(out, parts) as run:
        make_parts(run, job, Cluster(on, workers=3), quiet=True)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
    except TilthError as error:
        sys.exit(f"error: {error}")

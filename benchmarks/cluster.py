"""What a Ray cluster costs: the driver for each part, and two workers beside one process.

    python benchmarks/cluster.py empty                      # 100,000 parts without work or files
    python benchmarks/cluster.py files                      # 5,000 parts of one row, written
    python benchmarks/cluster.py generate --inputs texts.txt
    python benchmarks/cluster.py bank --inputs corpus/

`generate` and `bank` run the command line on this machine, in turn with two workers of one core
and without Ray. The rate of `generate` counts from the second part on, when both workers have
loaded the model; that of `bank` is of the whole command.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from inputs import script_parser
from tilth.runs import Progress, Run
from tilth.runs.backends import PartJob, PartWork, make_parts
from tilth.runs.cluster import Cluster

WORKERS = 2
ON_RAY = ["--on", "ray", "--workers", str(WORKERS)]


def nothing(_: int) -> None:
    """Do no work."""


def empty(arguments: argparse.Namespace, folder: Path) -> None:
    """Hand out parts without work; print the driver's time and memory."""
    from tilth.runs.ray_parts import TaskWorkers

    def tasks() -> Iterator[int]:
        for number in range(arguments.parts):
            if number % (arguments.parts // 5) == 0:
                print(f"{number:,} parts: {_memory():.0f} MB in the driver", flush=True)
            yield number

    run = _run(folder, 1)
    with run:
        began, spent = time.perf_counter(), time.process_time()
        first = 0.0
        with TaskWorkers(Cluster("ray", workers=WORKERS), run.as_worker()) as workers:
            for _ in workers.do(nothing, tasks()):
                first = first or time.perf_counter()
    _print_parts(arguments.parts, began, first, spent)


def files(arguments: argparse.Namespace, folder: Path) -> None:
    """Make parts of one row, which workers write; print the driver's time."""
    parts = arguments.parts // 20
    run = _run(folder, parts)
    job = PartJob(_start, lambda index: index, [1] * parts, "parts")
    with run:
        began, spent = time.perf_counter(), time.process_time()
        make_parts(run, job, Cluster("ray", workers=WORKERS), quiet=True)
    first = min(path.stat().st_mtime for path in (folder / "run" / "parts").iterdir())
    _print_parts(parts, began, first - time.time() + time.perf_counter(), spent)


def _start(_: Run) -> PartWork:
    def work(index: int, _: Any, progress: Progress) -> pa.Table:
        progress.advance(kept=1)
        return pa.table({"part": [index]})

    return work


def _run(folder: Path, parts: int) -> Run:
    return Run.open(folder / "run", command="benchmark", settings={}, fingerprints={}, parts=parts)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _print_parts(parts: int, began: float, first: float, spent: float) -> None:
    seconds, own = time.perf_counter() - first, time.process_time() - spent
    print(
        f"{parts:,} parts in {seconds:.1f} s after {first - began:.1f} s until the first: "
        f"{1000 * seconds / parts:.3f} ms a part, of which the driver's own "
        f"{1000 * own / parts:.3f} ms; at most {_memory():.0f} MB in the driver"
    )


def generate(arguments: argparse.Namespace, folder: Path) -> None:
    """Print the rate of each round of `tilth generate` with and without Ray, and the ratios."""

    def rate(name: str, words: list[str]) -> float:
        out = folder / name
        _tilth(
            "generate", "sts-x2", "--inputs", arguments.inputs, "--part-size", "64", "--quiet",
            "--rows", "384", "--out", out, *words,
        )  # fmt: skip
        times = sorted(path.stat().st_mtime for path in (out / "parts").iterdir())
        skipped = WORKERS - 1
        found = 64 * (len(times) - skipped - 1) / (times[-1] - times[skipped])
        shutil.rmtree(out)
        return found

    _compare(arguments.rounds, rate, "inputs/s")


def bank(arguments: argparse.Namespace, folder: Path) -> None:
    """Print the rate of each round of `tilth bank build` with and without Ray, and the ratios."""

    def rate(name: str, words: list[str]) -> float:
        out = folder / name
        words = words or ["--workers", str(WORKERS)]
        said = _tilth("bank", "build", arguments.inputs, "--out", out, "--quiet", "--json", *words)
        found = json.loads(said)
        shutil.rmtree(out)
        return float(found["sentences_a_second"])

    _compare(arguments.rounds, rate, "sentences/s")


def _tilth(*words: object) -> str:
    command = [sys.executable, "-m", "tilth", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _compare(rounds: int, rate: Any, unit: str) -> None:
    print(f"{os.cpu_count()} cores", flush=True)
    ratios = []
    for number in range(rounds):
        here, there = rate(f"here-{number}", []), rate(f"ray-{number}", ON_RAY)
        ratios.append(there / here)
        print(f"here {here:,.1f} {unit}, Ray {there:,.1f} {unit}: {ratios[-1]:.2f}", flush=True)
    print(f"median of {rounds}: {statistics.median(ratios):.2f}")


def main() -> None:
    """Run one measurement."""
    parser = script_parser(__doc__)
    kinds = {one.__name__: one for one in (empty, files, generate, bank)}
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--parts", type=int, default=100_000)
    parser.add_argument("--inputs", type=Path, help="of generate and bank")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kinds[arguments.kind](arguments, Path(folder))


if __name__ == "__main__":
    main()

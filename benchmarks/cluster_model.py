"""Predict the time of large jobs on 10 to 1,000 workers, and check the prediction by simulation.

    pip install simpy
    python benchmarks/cluster_model.py predict             # the table of docs/cluster.md
    python benchmarks/cluster_model.py measure-bank --inputs corpus/    # its constants, of one core
    python benchmarks/cluster_model.py measure-generate --inputs texts.txt

A job is a sequence of stages. In each, workers make parts, and the asking process spends its own
time on each part and, after the last, some alone. The closed form takes the slowest of workers,
asking process and storage, and adds the last parts. The discrete-event simulation draws the time
of every part, has slow hosts, and workers that die and lose their part.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inputs import script_parser

HOUR = 3600.0


@dataclass(frozen=True)
class Stage:
    """Parts that workers make.

    Attributes:
        part_seconds: of a worker, at the usual speed.
        driver_seconds: of the asking process for each part.
        alone_seconds: of the asking process after all parts.
        part_bytes: of a part, through the shared storage.
        sent_bytes: of a part's input, from the asking process.
    """

    name: str
    parts: int
    part_seconds: float
    driver_seconds: float
    alone_seconds: float = 0.0
    part_bytes: float = 0.0
    sent_bytes: float = 0.0

    def driver_seconds_on(self, hosts: Hosts) -> float:
        """Return the asking process's seconds for a part, with sending its input."""
        return self.driver_seconds + self.sent_bytes / hosts.network


@dataclass(frozen=True)
class Hosts:
    """What a cluster is like. Nothing here was measured, except where docs/cluster.md says so.

    Attributes:
        start_seconds: until a worker has its model.
        round_trip_seconds: of the storage, for each part.
        bandwidth, stream: of the storage, bytes a second, of all workers together and of one.
        network: of the asking process, bytes a second.
        spread: standard deviation of the logarithm of a part's time.
        slow_share, slowness: workers that take so many times as long.
        hours_to_death: mean life of a worker.
        restart_seconds: until a dead worker works again.
    """

    start_seconds: float = 15.0
    round_trip_seconds: float = 0.05
    bandwidth: float = 2e9
    stream: float = 1e8
    network: float = 1.25e9
    spread: float = 0.15
    slow_share: float = 0.02
    slowness: float = 3.0
    hours_to_death: float = 24.0
    restart_seconds: float = 60.0


def closed_form(stages: list[Stage], workers: int, hosts: Hosts) -> tuple[float, str]:
    """Return the seconds of a job and what takes most of them."""
    parts_of = {"start": hosts.start_seconds}  # workers stay from stage to stage
    for stage in stages:
        seconds = stage.part_seconds + hosts.round_trip_seconds
        seconds += stage.part_bytes / hosts.stream
        deaths = (seconds / 2 + hosts.restart_seconds) / (hosts.hours_to_death * HOUR)
        seconds *= 1 + deaths
        slow = workers * hosts.slow_share
        speed = (workers - slow + slow / hosts.slowness) / seconds  # parts a second
        limits = {
            "workers": stage.parts / speed,
            "asking process": stage.parts * stage.driver_seconds_on(hosts),
            "storage": stage.parts * stage.part_bytes / hosts.bandwidth,
        }
        limit = max(limits, key=lambda name: limits[name])
        # The last part of a slow worker is begun up to its whole duration before the end.
        slowest = seconds * (hosts.slowness if slow >= 1 else 1)
        ends = 0.5 * slowest if stage.parts > workers else slowest - limits["workers"]
        ends = max(0.0, ends)
        rest = {limit: limits[limit], "last parts": ends, "asking process, alone":
                stage.alone_seconds}  # fmt: skip
        for name, value in rest.items():
            key = name if name == "last parts" else f"{name} ({stage.name})"
            parts_of[key] = parts_of.get(key, 0) + value
    return sum(parts_of.values()), max(parts_of, key=lambda name: parts_of[name])


def simulate(stages: list[Stage], workers: int, hosts: Hosts, seed: int) -> float:
    """Return the seconds of a job in a discrete-event simulation."""
    import simpy

    draw = random.Random(seed)
    world = simpy.Environment()
    asking = simpy.Resource(world, 1)
    channels = max(1, round(hosts.bandwidth / hosts.stream))
    storage = simpy.Resource(world, channels)
    slow = [draw.random() < hosts.slow_share for _ in range(workers)]

    def worker(number: int, stage: Stage, todo: deque[int], left: list[int]) -> Iterator[Any]:
        life = draw.expovariate(1 / (hosts.hours_to_death * HOUR))
        while left[0]:
            if not todo:  # another's part may come back
                yield world.timeout(1.0)
                continue
            part = todo.popleft()
            with asking.request() as turn:
                yield turn
                yield world.timeout(stage.driver_seconds_on(hosts))
            spread = draw.lognormvariate(-(hosts.spread**2) / 2, hosts.spread)
            seconds = stage.part_seconds * spread * (hosts.slowness if slow[number] else 1)
            seconds += hosts.round_trip_seconds
            if life < seconds:
                yield world.timeout(life)
                todo.append(part)
                yield world.timeout(hosts.restart_seconds)
                life = draw.expovariate(1 / (hosts.hours_to_death * HOUR))
                continue
            life -= seconds
            yield world.timeout(seconds)
            if stage.part_bytes:
                with storage.request() as turn:
                    yield turn
                    yield world.timeout(stage.part_bytes / hosts.stream)
            left[0] -= 1
            if not left[0]:
                ends.append(world.now)

    world.run(until=hosts.start_seconds)
    for stage in stages:
        todo, left, ends = deque(range(stage.parts)), [stage.parts], list[float]()
        for number in range(min(workers, stage.parts)):
            world.process(worker(number, stage, todo, left))
        while not ends:
            world.step()
        world.run(until=world.timeout(stage.alone_seconds))
    return float(world.now)


# Constants of one core (AMD Zen 3), as `measure-bank`, `measure-generate` and benchmarks/cluster.py
# gave them: docs/cluster.md.
READ, CLEAN, ENCODE = 0.19e-6, 21.8e-6, 19.4e-6
ROW = 69.6e-3
DRIVER = 0.70e-3
BYTES_READ, BYTES_WRITTEN = 130.0, 518.0
# Steps that find duplicates: seconds and bytes, read and written, of a sentence.
KEYS, EXACT, SHARED, TEXTS, NEAR, REASONS = (
    (0.61e-6, 140.0), (0.15e-6, 12.0), (0.90e-6, 75.0), (1.07e-6, 130.0), (0.46e-6, 3.0),
    (0.02e-6, 1.0),
)  # fmt: skip


def bank(sentences: float, per_part: int) -> list[Stage]:
    """Return the stages of `tilth bank build`: parts, steps that find duplicates, and shards."""
    parts = math.ceil(sentences / per_part)
    text = BYTES_READ * per_part
    groups, ranges = math.ceil(sentences / 2**20), math.ceil(math.sqrt(sentences / 2**17))

    def step(cost: tuple[float, float], tasks: int) -> Stage:
        seconds, size = (one * sentences / tasks for one in cost)
        return Stage("duplicates", tasks, seconds, DRIVER, 0.0, size)

    return [
        Stage("parts", parts, CLEAN * per_part, DRIVER + READ * per_part, 0.0, text, text),
        step(KEYS, groups), step(EXACT, ranges), step(SHARED, 6 * ranges), step(TEXTS, groups),
        *(step(NEAR, ranges) for _ in range(6)), step(REASONS, groups),
        Stage("shards", parts, ENCODE * per_part, DRIVER, 0.0, text + BYTES_WRITTEN * per_part),
    ]  # fmt: skip


def generation(rows: float, per_part: int) -> list[Stage]:
    """Return the stage of `tilth generate`."""
    return [
        Stage("parts", math.ceil(rows / per_part), ROW * per_part, DRIVER, 0.0, 60.0 * per_part)
    ]


JOBS: dict[str, Callable[[], list[Stage]]] = {
    "bank build, 1 billion sentences": lambda: bank(1e9, 130_000),
    "generate, 100 million rows": lambda: generation(1e8, 1536),
}


def predict(_: argparse.Namespace) -> None:
    """Print the table."""
    hosts = Hosts()
    print("| job | workers | closed form | simulated (3 seeds) | what limits |")
    print("| --- | --- | --- | --- | --- |")
    for name, stages in JOBS.items():
        for workers in (1, 10, 100, 1000):
            told, limit = closed_form(stages(), workers, hosts)
            found = [simulate(stages(), workers, hosts, seed) for seed in range(3)]
            mean = statistics.mean(found)
            print(
                f"| {name} | {workers:,} | {told / HOUR:,.2f} h | {mean / HOUR:,.2f} h "
                f"({100 * (mean / told - 1):+.1f}%) | {limit} |",
                flush=True,
            )


def measure_bank(arguments: argparse.Namespace) -> None:
    """Print the processor time of each step of a build for a raw sentence, on one core."""
    from tilth.bank import Bank
    from tilth.bank import build as building
    from tilth.bank.ingest import deduplicate, duplicate_steps
    from tilth.bank.ingest import parts as ingest

    spent: dict[str, float] = {}

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return call(*given, **options)
            finally:
                spent[name] = spent.get(name, 0) + time.process_time() - began

        return run

    def timed_items(name: str, call: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def run(*given: Any, **options: Any) -> Iterator[Any]:
            items = call(*given, **options)
            step = timed(name, lambda: next(items, None))
            while (item := step()) is not None:
                yield item

        return run

    def timed_step(task: Any, plan: Any) -> None:
        kind = f"duplicates, {task.step}" + (f" {task.key[:5]}" if task.step == "dropped" else "")
        timed(kind, do_task)(task, plan)

    do_task = duplicate_steps.do_task
    deduplicate.do_task = timed_step  # type: ignore[attr-defined]
    ingest._groups = timed_items("read", ingest._groups)
    for name in ("make_parts", "find_duplicates", "make_shards"):
        setattr(building, name, timed(name, getattr(building, name)))
    with tempfile.TemporaryDirectory() as folder:
        made = Bank.build(
            Path(folder) / "bank", [arguments.inputs], workers=1, quiet=True, device="cpu"
        )
        sentences = len(made) + sum(made.manifest.dropped.values())
    spent["make_parts"] -= spent["read"]
    print(f"{sentences:,} raw sentences, {len(made):,} kept")
    for name, seconds in spent.items():
        print(f"{name}: {1e6 * seconds / sentences:.2f} microseconds of processor time a sentence")


def measure_generate(arguments: argparse.Namespace) -> None:
    """Print the processor time of a generated row, without loading the model."""
    import torch

    import tilth

    torch.set_num_threads(1)
    texts = arguments.inputs.read_text(encoding="utf-8").splitlines()[:32]
    lm = tilth.load_lm("starter", device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        made = tilth.generate("sts-x2", lm, texts, out=Path(folder) / "run", quiet=True)
        spent = time.process_time() - began
    print(f"{len(made):,} rows: {1000 * spent / len(made):.1f} ms of processor time a row")


def main() -> None:
    """Measure constants, or predict."""
    parser = script_parser(__doc__)
    kinds = {"predict": predict, "measure-bank": measure_bank, "measure-generate": measure_generate}
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--inputs", type=Path, help="of a measurement")
    arguments = parser.parse_args()
    kinds[arguments.kind](arguments)


if __name__ == "__main__":
    main()

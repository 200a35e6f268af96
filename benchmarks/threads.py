"""Threads beside other work: the same job under several settings, alone and beside competitors.

    python benchmarks/threads.py                             # all jobs, alone and beside one
    python benchmarks/threads.py --jobs train --competitors 0 1 2 --rounds 5

Each round runs every setting once, in turn, so that whatever else the machine does meets all of
them; the ratio to the libraries' own defaults is taken within a round, and the median is printed.
A competitor is a process that computes without a pause. Only the job itself is timed, not the
imports. `tilth` is what the command line sets (`tilth.cli.main.set_environment`).
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from inputs import script_parser

# The environment without settings of threads.
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "MKL_"))}
ONE = {"OMP_NUM_THREADS": "1"}
SETTINGS: dict[str, dict[str, str]] = {
    "libraries": {},
    "tilth": {"TILTH_THREADS_BENCHMARK": "1"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "spin 10,000": {"GOMP_SPINCOUNT": "10000"},
    "one thread": ONE,
}
WORDS = ["rain", "river", "barn", "slow", "red", "cat", "sings", "two", "near", "sleeps", "the"]


def texts(count: int) -> list[str]:
    """Return sentences of usual lengths."""
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=rng.randrange(6, 24))) for _ in range(count)]


def encode() -> Callable[[], object]:
    """Encode sentences, as `tilth evaluate sts` and `tilth predict` do."""
    import pyarrow as pa

    from tilth.bank.encoder import TextEncoder

    encoder, some = TextEncoder.load("starter-encoder"), pa.array(texts(600))
    encoder.encode(some[:64])
    return lambda: encoder.encode(some)


def train() -> Callable[[], object]:
    """Train an encoder for some steps."""
    from datasets import Dataset

    from tilth.encoders.bi_encoder import train_encoder

    a, b = texts(700)[:350], texts(700)[350:]
    pairs = Dataset.from_dict({"text_a": a, "text_b": b, "label": [n % 3 / 2 for n in range(350)]})
    return lambda: train_encoder(pairs, "starter-encoder", quiet=True)


def generate() -> Callable[[], object]:
    """Write pairs with the starter language model."""
    import tilth

    lm = tilth.load_lm("starter")
    return lambda: tilth.generate("sts-x2", lm, inputs=texts(12), per_input=1)


JOBS = {"encode": encode, "train": train, "generate": generate}


@contextmanager
def competing(processes: int) -> Iterator[None]:
    """Let processes compute beside."""
    loop = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(loop) for _ in range(processes)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def seconds_of(job: str, setting: dict[str, str]) -> float:
    """Run a job in a process of its own; return how long the work took."""
    done = subprocess.run(
        [sys.executable, __file__, "--work", job],
        env={**PLAIN, **setting}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.split()[-1])


def work(job: str) -> None:
    """Do a job and print its seconds."""
    if os.environ.get("TILTH_THREADS_BENCHMARK"):
        from tilth.cli.main import set_environment

        set_environment()
    todo = JOBS[job]()
    with tempfile.TemporaryDirectory() as folder, suppress(FileNotFoundError):
        os.chdir(folder)
        begun = time.perf_counter()
        todo()
        print(time.perf_counter() - begun)


def main() -> None:
    """Run every setting in turn and print the ratios."""
    parser = script_parser(__doc__)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--competitors", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", choices=list(JOBS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work)
        return
    asked = dict.fromkeys(["libraries", *args.settings])
    for job in args.jobs:
        for count in args.competitors:
            seconds: dict[str, list[float]] = {name: [] for name in asked}
            with competing(count):
                for number in range(args.rounds):
                    for name in random.Random(number).sample(list(asked), len(asked)):
                        seconds[name].append(seconds_of(job, SETTINGS[name]))
            print(f"{job} beside {count}, load {os.getloadavg()[0]:.1f}:", flush=True)
            for name, taken in seconds.items():
                pairs = zip(taken, seconds["libraries"], strict=True)
                ratio = statistics.median(one / other for one, other in pairs)
                print(
                    f"  {name}: {ratio:.2f} of the libraries' time, seconds "
                    + " ".join(f"{one:.1f}" for one in taken), flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()

"""Jobs for the cluster's tests: parts of numbers, and workers that meet with accidents."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tilth.errors import InputError
from tilth.runs import Progress, Run
from tilth.runs.backends import PartJob, PartWork

SIZE = 3
Accident = Callable[[int], None]


def numbers_run(path: Path, parts: int = 8, **options: Any) -> Run:
    settings = {"seed": 0, "parts": parts}
    return Run.open(
        path, command="test", settings=settings, fingerprints={}, parts=parts, **options
    )


def numbers_job(parts: int = 8, accident: Accident | None = None, **options: Any) -> PartJob:
    return PartJob(
        partial(begin, accident, **options), partial(given, SIZE), [SIZE] * parts, "numbers"
    )


def part_files(path: Path) -> dict[str, bytes]:
    """Return what the parts of a run hold."""
    return {item.name: item.read_bytes() for item in (path / "parts").iterdir()}


def given(size: int, index: int) -> list[int]:
    return list(range(index * size, (index + 1) * size))


def begin(accident: Accident | None, run: Run, *, facts: Path | None = None) -> PartWork:
    """Start a worker: `factor` is a fact that the first worker chooses, here by its process."""
    factor = run.resolve("factor", os.getpid)
    if facts is not None:
        (facts / f"{os.getpid()}").write_text(str(factor))

    def work(index: int, numbers: list[int], progress: Progress) -> pa.Table:
        if accident is not None:
            accident(index)
        progress.advance(done=len(numbers), kept=2, dropped=1)
        return pa.table({"number": numbers, "square": [number**2 for number in numbers]})

    return work


def once(path: Path) -> bool:
    """Return whether a file was not there, and make it."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die_once(folder: Path, index: int) -> None:
    if index % 3 == 1 and once(folder / f"died-{index}"):
        os.kill(os.getpid(), signal.SIGKILL)


def die(part: int, index: int) -> None:
    if index == part:
        os.kill(os.getpid(), signal.SIGKILL)


def refuse(index: int) -> None:
    if index == 5:
        raise InputError("talk.txt:7: is wrong: mend it")


def nap(folder: Path, seconds: float, index: int) -> None:
    (folder / f"began-{index}").touch()
    time.sleep(seconds)


def die_at_start(run: Run) -> PartWork:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(run)


def refuse_at_start(run: Run) -> PartWork:
    raise InputError("model 'x' is not there")

"""Watches the calls of a function, stops the work at one of them, runs code in a new process."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Stop(Exception):  # noqa: N818
    """Stands for a kill."""


@contextmanager
def stopped(home: Any, name: str, call: int, *, after: bool = False) -> Iterator[None]:
    """Raise at some call of a function, counted from 0, before or after its work."""
    real, calls = getattr(home, name), 0

    def stopping(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call + 1 and not after:
            raise Stop
        answer = real(*given, **options)
        if calls == call + 1:
            raise Stop
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, name, stopping)
        with pytest.raises(Stop):
            yield


def watched(
    patch: pytest.MonkeyPatch, home: Any, name: str
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return a list that will hold what each call of a function is given."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    real = getattr(home, name)

    def call(*given: Any, **options: Any) -> Any:
        calls.append((given, options))
        return real(*given, **options)

    patch.setattr(home, name, call)
    return calls


def taken(options: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Take those options that are fields of a dataclass away from others."""
    names = kind.__dataclass_fields__
    return {name: options.pop(name) for name in list(options) if name in names}


def wait_until(holds: Callable[[], object], *, seconds: float = 60) -> None:
    """Wait until something holds."""
    stop = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < stop
        time.sleep(0.05)


def python(
    code: str, *words: object, check: bool = True, given: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with arguments and more variables of the environment."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], env={**os.environ, **environment},
        capture_output=True, text=True, check=check, input=given,
    )  # fmt: skip

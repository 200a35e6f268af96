"""How long to go on asking a server that fails, and how long to wait between two attempts."""

from __future__ import annotations

import email.utils
import math
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
# Knocking at a closed door costs a server nothing, and a restarted one is found sooner.
LONGEST_KNOCK = 4.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server is waited for, in seconds.

    Attributes:
        failing: a request that failed for so long is given up. A server that is killed and
            started again within it is survived.
        first: the same for a server that has not answered yet and that nobody reaches: most
            likely the address is wrong.
        answer: a request without a whole answer for so long counts as failed.
    """

    failing: float = 300.0
    first: float = 3.0
    answer: float = 300.0


def wait_before(
    attempt: int, asked: float | None, rng: random.Random, *, longest: float = LONGEST_WAIT
) -> float:
    """Return the seconds to wait before the next attempt.

    Args:
        attempt: attempts made, from 1.
        asked: what the server asked for (Retry-After), if it did.
        rng: spreads the attempts of several workers, so that they do not come all at once.
        longest: the waits double up to here.
    """
    if asked is not None:
        return asked + rng.uniform(0, 0.1 * asked + 0.05)
    return rng.uniform(0.5, 1.0) * min(longest, FIRST_WAIT * 2.0 ** min(attempt - 1, 30))


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a server asks to wait: Retry-After as a number or a date."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / divisor
        except ValueError:
            date = email.utils.parsedate_tz(value)
            if date is None:
                continue
            seconds = email.utils.mktime_tz(date) - time.time()
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


class Stopped(Exception):  # noqa: N818 (no error: the run ended while this request waited)
    """The run is over: whoever waits need not go on."""


def sleep(seconds: float, stopped: threading.Event | None) -> None:
    """Wait, or raise `Stopped` as soon as the run is over."""
    if (stopped or threading.Event()).wait(seconds):
        raise Stopped

"""Whether what a process left behind may go."""

from __future__ import annotations

import os


def is_alive(process: int) -> bool:
    """Say whether another process of this machine has this number."""
    if process == os.getpid():  # what this number left, an earlier process left
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True

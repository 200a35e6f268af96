"""Settings of the cluster that a command works on, checked before anything heavy is imported."""

from __future__ import annotations

import importlib.util
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from tilth.errors import InputError
from tilth.limits import CPUS, GPUS, WORKERS, check_fields

_HEAD = re.compile(r"ray://(\[[^\]]+\]|[^:/\s]+):(\d{1,5})")
_SECONDS_TO_REACH_HEAD = 10.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where parts are made, and by how many workers of which size."""

    on: Annotated[
        str | None,
        "Where parts are made: ray (a cluster that this machine is part of, or else all its "
        "cores), or ray://host:port; default: this process.",
    ] = None
    workers: Annotated[
        int | None, WORKERS, "Workers on the cluster; default: as many as fit on it at the start."
    ] = None
    cpus_per_worker: Annotated[float, CPUS, "Cores of a worker on the cluster."] = 1.0
    gpus_per_worker: Annotated[
        float, GPUS, "GPUs of a worker on the cluster; workers share one at a fraction."
    ] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.on is None:
            if (self.workers, self.cpus_per_worker, self.gpus_per_worker) != (None, 1.0, 0.0):
                raise InputError("workers of a cluster are asked for, and no cluster: add --on ray")
            return
        if self.on != "ray" and not _HEAD.fullmatch(self.on):
            raise InputError(f"--on {self.on!r:.80} is unknown: use ray or ray://host:port")
        if self.gpus_per_worker > 1 and self.gpus_per_worker % 1:
            raise InputError(
                f"gpus_per_worker is {self.gpus_per_worker:g}: above 1, give a whole number"
            )
        if importlib.util.find_spec("ray") is None:
            raise InputError("--on ray needs the package ray: pip install 'tilth[cluster]'")

    def check_head(self) -> None:
        """Raise InputError if nothing answers at the cluster's address; Ray waits for minutes."""
        found = _HEAD.fullmatch(self.on or "")
        if found is None:
            return
        try:
            place = found[1].strip("[]"), int(found[2])
            socket.create_connection(place, _SECONDS_TO_REACH_HEAD).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise InputError(
                f"--on {self.on}: no cluster answers there ({error}): check the address, and that "
                "`ray start --head` runs on that host with its client port"
            ) from None


def check_fingerprints(found: Mapping[str, str], asked: Mapping[str, str]) -> None:
    """Refuse models that a worker loaded by name and that are not those of the process that asked.

    Args:
        found: model -> its fingerprint in the worker.
        asked: the same where the run was begun.
    """
    for name, fingerprint in asked.items():
        if found[name] != fingerprint:
            raise InputError(
                f"{name}: the weights on host {socket.gethostname()} are not those of the process "
                "that asked: give every host the same files"
            )

"""Lock a folder that a job writes, on this machine and, under a URL, for all machines.

Two writers on one machine are kept apart by a file lock. Under a URL each writer puts an object of
its own, its lease, renews it while it works, and lists those of the others: of two writers, at
least one sees the other's. A lease that was not renewed for a minute, by the store's clock, belongs
to a writer that died. The store must list what was just put, as S3, GCS and Azure do.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from tilth.errors import TilthError
from tilth.files import disk_errors, try_lock
from tilth.runs.out_folder import LEASES, LOCK
from tilth.storage import pull, store_errors, store_of, with_retries
from tilth.urls import cache_folder, url_of

log = logging.getLogger(__name__)

SECONDS_HELD, SECONDS_BETWEEN = 60.0, 15.0
_TRIES, _LONGEST_WAIT = 3, 2.0  # of writers that start together
_BUSY = "is writing here: wait for it, or choose another folder"


class RunLocked(TilthError):  # noqa: N818 - named for what it is
    """Raised when another process writes in the run folder."""


class Lease:
    """The right to write under a URL, as an object of this process."""

    def __init__(self, folder: Path) -> None:
        self.url = str(url_of(folder))
        self._store, place = store_of(f"{self.url}/{LEASES}")
        self._place, self._own = place, f"{place}/{secrets.token_hex(8)}"
        self._holder = f"process {os.getpid()} on {socket.gethostname()}"
        self._is_lost = False
        self._renewed = time.time()  # which goes on while a machine is suspended
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)

    def take(self) -> None:
        """Take the right to write.

        Raises:
            RunLocked: another writer has it; the message names that one.
        """
        with store_errors(self.url):
            for left in reversed(range(_TRIES)):
                with_retries(self.url, partial(self._put, writes=False))
                try:
                    other = self._living()
                    if other is None:
                        self._put(writes=True)
                        self._renewed = time.time()
                        break
                except BaseException:
                    self._remove(self._own)
                    raise
                self._remove(self._own)
                if not left:
                    raise RunLocked(f"{self.url}: {other}")
                time.sleep(random.uniform(0, _LONGEST_WAIT))
        self._renewing.start()

    def check(self) -> None:
        """Raise `TilthError` if another process has taken the right, since this one stood still."""
        if time.time() - self._renewed > SECONDS_HELD:
            self._renew_once()
        if self._is_lost:
            raise TilthError(
                f"{self.url}: this process did not reach the store for {SECONDS_HELD:.0f} s, and "
                "another one may write here: run the same command again"
            )

    def release(self) -> None:
        """Give the right back."""
        self._ended.set()
        self._renewing.join(SECONDS_BETWEEN)  # else it may put the lease once more
        with suppress(Exception):  # it ends by itself
            self._remove(self._own)

    def _put(self, *, writes: bool) -> None:
        about = {"holder": self._holder, "copies": _name_of_copies(), "writes": writes}
        self._store.pipe_file(self._own, json.dumps(about).encode())

    def _remove(self, place: str) -> None:
        with suppress(FileNotFoundError):
            self._store.rm_file(place)

    def _living(self, *, writing: bool = False) -> str | None:
        """Return who else holds a lease; remove those of dead writers.

        Args:
            writing: pass over, and leave, all but those that were taken.
        """
        now = self._store.modified(self._own)
        for place in self._store.ls(self._place, detail=False):
            if place.rpartition("/")[2] == self._own.rpartition("/")[2]:
                continue
            with suppress(FileNotFoundError):  # it was given back
                about = json.loads(self._store.cat_file(place))
                age = (now - self._store.modified(place)).total_seconds()
                # The copies of this folder are locked by this process: who had them is dead.
                lives = age <= SECONDS_HELD and about["copies"] != _name_of_copies()
                if writing and not (lives and about["writes"]):
                    continue
                if lives:
                    return (
                        f"{about['holder']} {_BUSY}; if it has died, its lease ends in "
                        f"{SECONDS_HELD - max(age, 0):.0f} s"
                    )
                log.warning("%s: %s has died: going on", self.url, about["holder"])
                self._remove(place)
        return None

    def _renew(self) -> None:
        while not self._is_lost and not self._ended.wait(SECONDS_BETWEEN):
            self._renew_once()

    def _renew_once(self) -> None:
        try:
            self._store.info(self._own)
            self._put(writes=True)
            if self._living(writing=True) is not None:
                raise FileNotFoundError(self._own)  # it was taken between the two
            self._renewed = time.time()
        except FileNotFoundError:
            self._is_lost = not self._ended.is_set()
        except Exception as error:  # the next time may succeed
            log.info("%s: the lease was not renewed: %s", self.url, error)


def _name_of_copies() -> str:
    """Return a name of this machine's copies, which no other machine has."""
    with open(cache_folder() / "name", "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        name = file.read()
        if not name:
            name = secrets.token_hex(8)
            file.write(name)
    return f"{name} {socket.gethostname()}"  # machines are cloned with their caches


@contextmanager
def lock_folder(folder: Path) -> Iterator[Lease | None]:
    """Lock a folder that a job writes; the lock file, or under a URL the lease, names the holder.

    What lies under a URL is copied to the folder first.
    """
    with ExitStack() as stack:
        with disk_errors(folder):
            file = stack.enter_context(open(folder / LOCK, "a+b"))
            if not try_lock(file):
                file.seek(0)
                holder = file.read().decode(errors="replace").strip() or "another process"
                raise RunLocked(f"{folder}: {holder} {_BUSY}")
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
            file.flush()
        stack.callback(file.truncate, 0)
        lease = None
        if url_of(folder) is not None:
            lease = Lease(folder)
            lease.take()
            stack.callback(lease.release)
            pull(folder, clean=True)
        yield lease

"""Run what the Try pages ask for in one thread, and load each model when it is first needed.

Which models and banks may be used is said on the command line and by the folder that is viewed:
a page names one of them, never a path.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tilth.errors import InputError, TilthError
from tilth.view.runs import RunList, stamps
from tilth.view.settings import TryModels

log = logging.getLogger(__name__)

REWRITE, GENERATE, SEARCH, LABEL = "rewrite", "generate", "search", "label"
KINDS = (REWRITE, GENERATE, SEARCH, LABEL)
_MOST_WAITING = 8
_JOBS_KEPT = 64
_MOST_LOADED = 6
_SECONDS_TO_END = 2.0
Loaded = TypeVar("Loaded")
Say = Callable[[str], None]


@dataclass(slots=True)
class TryJob:
    """One request of a Try page.

    Attributes:
        kind: one of `KINDS`.
        fields: of its form, which is shown again.
        page: the page view it comes from; a later request of it replaces one that still waits.
        said: what is being done.
        result: what the page shows, once it is done.
        problem: why there is no result.
    """

    kind: str
    fields: Mapping[str, str]
    page: str = ""
    said: str = "Waiting for the work before it."
    result: Any = None
    problem: str | None = None
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    done: threading.Event = field(default_factory=threading.Event)

    def run(self, work: Callable[[Say], Any]) -> None:
        """Do the work; keep its result, or what went wrong in one line."""

        def say(text: str) -> None:
            self.said = text

        try:
            self.result = work(say)
        except TilthError as error:
            self.problem = str(error)
        except Exception as error:
            log.exception("%s failed", self.kind)
            self.problem = f"{type(error).__name__}: see the terminal for it"
        finally:
            self.done.set()


class Workbench:
    """Jobs, of which one runs at a time, and the models that they have loaded."""

    def __init__(self, models: TryModels) -> None:
        self.models = models
        self._jobs: OrderedDict[str, TryJob] = OrderedDict()
        self._waiting: queue.Queue[tuple[TryJob, Callable[[Say], Any]] | None] = queue.Queue()
        self._loaded: OrderedDict[tuple[str, str], tuple[str, Any]] = OrderedDict()
        self._lock = threading.Lock()
        self.searching = threading.Lock()  # of a search: an encoder's cache is of one thread
        self._thread: threading.Thread | None = None
        self._working: TryJob | None = None

    def job(self, number: str) -> TryJob | None:
        """Return a job by its id; None where it is not kept any more."""
        return self._jobs.get(number)

    def submit(self, job: TryJob, work: Callable[[Say], Any]) -> None:
        """Let the thread do a job's work after what waits already."""
        with self._lock:
            others = [one for one in self._jobs.values() if not one.done.is_set()]
            for one in others:
                if job.page and one.page == job.page and one is not self._working:
                    one.problem = "Another request of the same page came after it."
                    one.done.set()
            if sum(not one.done.is_set() for one in others) >= _MOST_WAITING:
                job.problem = f"{_MOST_WAITING} requests wait already: ask again later"
                job.done.set()
            self._keep(job)
            if job.done.is_set():
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
        self._waiting.put((job, work))

    def run(self, job: TryJob, work: Callable[[Say], Any], *, keep: bool) -> None:
        """Do a job's work now, in the thread of the page; what one types is not kept."""
        job.run(work)
        if keep:
            with self._lock:
                self._keep(job)

    def load(self, what: str, name: str, make: Callable[[], Loaded], say: Say) -> Loaded:
        """Return a loaded model; `make` loads it if it is not there yet, or made anew since."""
        key, version = (what, name), _version(name)
        with self._lock:
            stored, kept = self._loaded.get(key, (None, None))
            if stored == version:
                self._loaded.move_to_end(key)
                found: Loaded = kept  # type: ignore[assignment]
                return found
        say(f"Loading the {what} {name}: the first time, this takes some seconds.")
        made = make()
        with self._lock:
            self._loaded[key] = version, made
            self._loaded.move_to_end(key)
            if len(self._loaded) > _MOST_LOADED:
                self._loaded.popitem(last=False)
        return made

    def loaded(self, what: str, name: str) -> Any:
        """Return a model if it is loaded, as it lies on disk now."""
        version, made = self._loaded.get((what, name), ("", None))
        return made if version == _version(name) else None

    def close(self) -> None:
        """End the thread; what it does at the moment is waited for, for two seconds at most."""
        with self._lock:
            for job in self._jobs.values():
                if job is not self._working:
                    job.done.set()  # what waits is not begun any more
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(_SECONDS_TO_END)

    def _keep(self, job: TryJob) -> None:
        self._jobs[job.id] = job
        if len(self._jobs) > _JOBS_KEPT:
            self._jobs.popitem(last=False)

    def _work(self) -> None:
        while (one := self._waiting.get()) is not None:
            job, work = one
            with self._lock:  # a later request of the page may have taken its place
                self._working = None if job.done.is_set() else job
            if self._working is not None:
                job.run(work)


def _version(name: str) -> str:
    """Return the times of the files in a folder: a training or `bank add` changes them."""
    return stamps(sorted(Path(name).expanduser().glob("[!.]*")))


def classifiers_of(runs: RunList, models: TryModels) -> dict[str, str]:
    """Return shown name -> name to load, of the classifiers that a page may use."""
    found = {one.name: str(one.classifier) for one in runs.entries() if one.classifier is not None}
    return {name: name for name in models.classifier} | found


def banks_of(runs: RunList, models: TryModels) -> dict[str, str]:
    """Return shown name -> folder, of the banks that a page may search."""
    found = {one.name: str(one.folder) for one in runs.entries() if one.is_bank}
    return {name: name for name in models.bank} | found


def chosen(among: Mapping[str, str], name: str, what: str) -> str:
    """Return what a page's choice stands for.

    Raises:
        InputError: there is nothing to choose from, or no such name.
    """
    if not among:
        raise InputError(f"there is no {what} in this folder: give one with --{what}")
    if name not in among:
        raise InputError(f"there is no {what} {name[:80]!r} here: choose one of the list")
    return among[name]

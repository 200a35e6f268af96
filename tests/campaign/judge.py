"""Runs a command on bad input in this process, and says what is wrong with how it ended."""

import faulthandler
import logging
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

from typer.testing import CliRunner

from tilth.cli import main, screen
from tilth.runs import ASIDE

log = logging.getLogger("campaign")
SECONDS = float(os.environ.get("CAMPAIGN_SECONDS", "60"))
MEMORY = 6 << 30  # bytes a case may take beyond what is in use at its start
MARK = "code-was-run"  # a file of this name: code of a folder ran
_ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Hang(BaseException):
    """A case took too long."""


def _raise_hang(*_: object) -> None:
    raise Hang


@contextmanager
def bounded(stacks: TextIO) -> Iterator[None]:
    """End what takes too long or too much memory; a signal also ends a wait for a pipe.

    What no signal ends takes the process down; where it stood is written to `stacks`.
    """
    signal.signal(signal.SIGUSR1, _raise_hang)
    main = threading.main_thread().ident or 0
    timer = threading.Timer(SECONDS, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.daemon = True
    faulthandler.dump_traceback_later(10 * SECONDS, exit=True, file=stacks)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (room, limits[1]))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the timer may ring a moment late


def contents(folder: Path, *, read: bool = False) -> dict[str, tuple[Any, ...]]:
    """Return what lies in a folder, but locks: sizes and times of change, or what files hold."""
    found: dict[str, tuple[Any, ...]] = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            about = os.lstat(path)
            held: tuple[Any, ...] = (about.st_size, about.st_mtime_ns, about.st_ino)
            if name in folders or not stat.S_ISREG(about.st_mode):
                held = (about.st_mode,)
            elif read:
                held = (Path(path).read_bytes(),)
            if name not in (".tilth-lock", ".lock"):
                found[os.path.relpath(path, folder)] = held
    return found


def lost(before: dict[str, Any], now: dict[str, Any], code: int | None) -> str:
    """Say what a command that failed has changed: what it refuses stays as it is in every detail,
    what failed later may have begun anew beside what was there.
    """
    if code == 2:
        return _differences(before, now)
    places = ("", f"{ASIDE}/")
    gone = [name for name in before if before[name] not in [now.get(p + name) for p in places]]
    return ", ".join(gone[:5])


class Campaign:
    """Counts cases and keeps what went wrong.

    Args:
        world: the folder that nothing may change.
        folder: an own folder for the outputs of cases, and the working directory.
    """

    def __init__(self, world: Path, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.before = contents(world)
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._number = 0
        (folder / "cwd").mkdir(parents=True)
        self.stacks = (folder / "stacks.txt").open("w")

    def fresh(self, name: str = "out") -> Path:
        """Return a path in a new folder."""
        self._number += 1
        folder = self.folder / f"{self._number}"
        folder.mkdir()
        return folder / name

    def copy(self, what: Path) -> Path:
        """Return a copy of a folder of the world."""
        place = self.fresh(what.name)
        shutil.copytree(what, place, symlinks=True)
        return place

    def run(
        self,
        words: Sequence[str],
        *,
        names: Sequence[str] = (),
        kept: Path | None = None,
        may_work: bool = True,
        what: str = "",
    ) -> int | None:
        """Run a command; note what is wrong with how it ends, and return its exit code.

        Args:
            words: the command line.
            names: the error line holds one of these; empty: any line.
            kept: a folder that stays as it is where the command fails.
            may_work: whether exit code 0 is right.
            what: said of the case where its line does not say it.
        """
        was = contents(kept, read=True) if kept is not None else {}
        began = time.monotonic()
        result, trace = self._invoke(words)
        code = None if trace else result.exit_code
        wrong: list[tuple[str, str]] = []
        if trace:
            wrong.append(("hang" if "Hang" in trace else "traceback", trace))
        elif code not in (0, 1, 2):
            wrong.append(("exit code", str(code)))
        elif code == 0 and not may_work:
            wrong.append(("wrongly accepted", ""))
        elif code != 0 and (said := _wrong_line(result.stderr, names)):
            wrong.append(said)
        # Work that failed after its first part has replaced what it was to replace.
        begun = code == 1 and kept is not None and any(kept.glob("parts/part-*"))
        if code != 0 and kept is not None and not begun:
            changed = lost(was, contents(kept, read=True), code)
            wrong += [("data lost", changed)] if changed else []
        wrong += self._outside()
        self.counts["cases"] += 1
        self.counts["refused" if code in (1, 2) else "worked" if code == 0 else "broken"] += 1
        line = shlex.join(words).replace(str(self.world), "WORLD")
        seconds = time.monotonic() - began
        for kind, how in wrong:
            self.fail(kind, f"tilth {ascii(line)[1:-1][:400]} {what}: {how} ({seconds:.0f} s)")
        return code

    def fail(self, kind: str, how: str) -> None:
        """Note what went wrong; `--log-file` shows it at once."""
        self.counts[kind] += 1
        self.failures.append(f"{kind}: {how}")
        log.error(self.failures[-1])

    def _invoke(self, words: Sequence[str]) -> tuple[Any, str]:
        root = logging.getLogger()
        handlers = {handler: list(handler.filters) for handler in root.handlers}
        here = Path.cwd()
        os.chdir(self.folder / "cwd")
        trace, result = "", None
        ended: list[BaseException] = []

        def end(error: BaseException, *, debug: bool) -> int:
            ended.append(error)
            return screen.end(error, debug=debug)

        try:
            with (
                warnings.catch_warnings(),
                bounded(self.stacks),
                mock.patch.object(main, "end", end),
            ):
                warnings.simplefilter("ignore")
                result = CliRunner().invoke(main.app, list(words), input="y\n" * 20)
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                trace = _where(result.exception)
            elif "internal error" in result.stderr or any(isinstance(e, Hang) for e in ended):
                trace = _where(ended[-1])
        except BaseException as error:
            trace = _where(error)
        finally:
            os.chdir(here)
            for handler in set(root.handlers) - set(handlers):
                if type(handler) is logging.StreamHandler:
                    root.removeHandler(handler)
            for handler, filters in handlers.items():
                handler.filters[:] = filters
        return result, trace

    def _outside(self) -> Iterator[tuple[str, str]]:
        """Yield what was written where nothing may be written, and whether code was run."""
        now = contents(self.world)
        if now != self.before:
            yield "written outside --out", _differences(self.before, now)
            self.before = now
        strays = list((self.folder / "cwd").iterdir())
        for stray in strays:
            yield "written outside --out", stray.name
            shutil.rmtree(stray) if stray.is_dir() else stray.unlink()
        mark = self.folder / MARK
        if mark.exists():
            yield "code run", ""
            mark.unlink()


def _where(error: BaseException) -> str:
    """Return an error's name and the last line of tilth that it passed."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "tilth/" in one.filename]
    place = f"{frames[-1].filename.split('tilth/')[-1]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {str(error)[:160]!r} at {place}"


def _wrong_line(stderr: str, names: Sequence[str]) -> tuple[str, str] | None:
    """Say what is wrong with what a failed command prints: one line that names the place."""
    if "error: not enough memory" in stderr:
        return "memory", ""
    if "Traceback (most recent" in stderr:
        return "traceback", stderr.strip()[-300:]
    lines = stderr.rstrip("\n").split("\n")
    at = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    usage = any(line.startswith("Usage:") for line in lines)
    if not usage and (len(at) != 1 or at[0] != len(lines) - 1):
        return "not one line", repr(stderr[-300:])
    said = " ".join(lines) if usage else lines[-1]
    if _ESCAPES.search(said) or len(said) > 20_000:
        return "raw characters", repr(said[:300])
    flat = re.sub(r"[\s│]+", "", said).lower()
    if names and not any(re.sub(r"\s+", "", name).lower() in flat for name in names):
        return "names nothing", repr(said[:300])
    return None


def _differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(changed[:5])

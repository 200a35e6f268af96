"""A training that is stopped, or finds the disk full, at any moment ends as one left in peace."""

import errno
import os
import re
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.invariants.trainings import KINDS, Training, content, training
from tilth.errors import TilthError
from tilth.runs import Progress

_WRITES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")
_watch: Callable[[str], None] | None = None
_hooked = False


def _hook(event: str, given: tuple[Any, ...]) -> None:
    """Tell who watches what is about to be written; a hook stays for the whole process."""
    if _watch is None or event not in _WRITES:
        return
    if event == "open" and not (isinstance(given[1], str) and set(given[1]) & set("wax+")):
        return
    path = given[0]
    if isinstance(path, str | bytes | os.PathLike):
        _watch(f"{event} {os.fsdecode(path)}")


@contextmanager
def watching(watch: Callable[[str], None]) -> Iterator[None]:
    """Call a function before each step and before what Python writes; it may raise."""
    global _watch, _hooked
    advance = Progress.advance

    def count(progress: Progress, done: int = 0, **more: int) -> None:
        advance(progress, done, **more)
        watch(f"step {progress.done}")

    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    with pytest.MonkeyPatch().context() as patch:
        patch.setattr(Progress, "advance", count)
        _watch = watch
        try:
            yield
        finally:
            _watch = None


def interrupted(train: Training, out: Path, *, full: bool, alike: str) -> list[str]:
    """Train again and again, stopped at the first moment not met before; return what was said.

    Args:
        train: the training.
        out: its run folder.
        full: the disk is full from that moment on; else the process is gone.
        alike: what is not looked at where moments are compared, as a pattern.
    """
    met: set[str] = set()
    said = []
    stopped = True
    while stopped:
        stopped = False

        def watch(moment: str) -> None:
            nonlocal stopped
            what, _, path = moment.partition(" ")
            if what == "step":
                if full:
                    return
            elif not Path(path).resolve().is_relative_to(out):
                return
            else:
                moment = re.sub(alike, "#", moment)
            if stopped or moment not in met:
                met.add(moment)
                stopped = True
                raise OSError(errno.ENOSPC, "No space left", path) if full else KeyboardInterrupt

        with watching(watch):
            try:
                train(out)
            except (KeyboardInterrupt, TilthError) as error:
                said.append(str(error))
    return said


@pytest.fixture(scope="module", params=KINDS)
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Training, Path]:
    """Return a training and its run that was left in peace."""
    folder = tmp_path_factory.mktemp(request.param)
    train = training(request.param, folder)
    train(folder / "whole")
    return train, folder / "whole"


# Quick: each step, and one of all the files of a folder; slow: each file of each checkpoint.
_TEMPORARY = r"\.tmp-[0-9a-f]{8}"
_QUICK = rf"{_TEMPORARY}|(checkpoint|seed|model|part)-\d+|(unfinished|checkpoints/model)/.*"
HOW = [
    pytest.param(False, _QUICK, id="stopped"),
    pytest.param(True, _QUICK, id="full"),
    pytest.param(False, _TEMPORARY, id="stopped-everywhere", marks=pytest.mark.slow),
    pytest.param(True, _TEMPORARY, id="full-everywhere", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("full", "alike"), HOW)
def test_stopped_at_each_moment(
    whole: tuple[Training, Path], tmp_path: Path, full: bool, alike: str
) -> None:
    train, run = whole
    said = interrupted(train, tmp_path / "run", full=full, alike=alike)
    assert len(said) > 8
    if full:
        assert all("the disk is full" in line and "\n" not in line for line in said)
    assert content(tmp_path / "run") == content(run)


@pytest.mark.parametrize("share", [0.5, 1.2], ids=["weights", "optimizer"])
def test_a_file_that_other_libraries_cannot_finish(
    whole: tuple[Training, Path], tmp_path: Path, share: float
) -> None:
    train, run = whole
    size = (run / "model" / "model.safetensors").stat().st_size
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * size), most))
    try:
        with pytest.raises(TilthError) as error:
            train(tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    (line,) = str(error.value).splitlines()
    assert "the disk is full" in line or "the file would be larger than allowed" in line
    train(tmp_path / "run")
    assert content(tmp_path / "run") == content(run)


@pytest.mark.parametrize("damage", ["none", "cut", "gone"])
def test_a_finished_run_is_opened_and_a_damaged_or_lost_model_made_again(
    whole: tuple[Training, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    train, run = whole
    shutil.copytree(run, tmp_path / "run")
    model = tmp_path / "run" / "model"
    if damage == "gone":
        shutil.rmtree(model)
    elif damage == "cut":
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
    met: list[str] = []
    with watching(met.append):
        train(tmp_path / "run")
    assert any(moment.startswith("step") for moment in met) == (damage != "none")
    if damage == "cut":
        assert "model: files are missing or damaged: moved to model.damaged" in caplog.text
        shutil.rmtree(tmp_path / "run" / "model.damaged")
    assert content(tmp_path / "run") == content(run)

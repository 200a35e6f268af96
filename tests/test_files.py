"""Atomic writes and locks."""

import errno
import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.runs.runs import open_run
from tilth.data import DatasetWriter
from tilth.data.sources import HubDataset, locate
from tilth.errors import InputError
from tilth.files import TEMPORARY, atomic_write, suggestion
from tilth.models.names import ENCODER, check_name
from tilth.runs.out_folder import check_place


def test_two_threads_write_one_file(tmp_path: Path) -> None:
    path, together = tmp_path / "file", threading.Barrier(2, timeout=20)

    def write(content: bytes) -> None:
        def halves(file: Any) -> None:
            file.write(content)
            file.flush()
            together.wait()
            file.write(content)

        atomic_write(path, halves)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, (b"aaaa", b"bbbb")))
    assert path.read_bytes() in (b"a" * 8, b"b" * 8)
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    atomic_write(tmp_path / "whole", lambda file: file.write(b"x"))
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_error_while_writing_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(file: Any) -> None:
        file.write(b"half of the new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(path, fail)
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_leftovers_of_a_killed_writer_go(tmp_path: Path) -> None:
    open_run(tmp_path)
    stale = [folder / f"{TEMPORARY}0123abcd" for folder in (tmp_path, tmp_path / "parts")]
    mine = [tmp_path / "sub" / ".tmp-1-x", tmp_path / ".tmp-notes", tmp_path / "parts" / ".tmp-x"]
    mine[0].parent.mkdir()
    for path in (*stale, *mine):
        path.write_text("mine")
    with open_run(tmp_path):
        assert not any(path.exists() for path in stale)
    assert [path.read_text() for path in mine] == ["mine"] * 3


def test_a_file_that_is_being_written_is_no_leftover(tmp_path: Path) -> None:
    """A report is written without the run's lock, maybe on another host."""
    open_run(tmp_path)

    def write(file: Any) -> None:
        with open_run(tmp_path):
            file.write(b"whole")

    atomic_write(tmp_path / "report.html", write)
    assert (tmp_path / "report.html").read_bytes() == b"whole"


def test_locks_of_file_systems_that_lock_files_open_for_writing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS 4 does (flock(2))."""
    real = fcntl.flock

    def flock(file: Any, how: int) -> None:
        number = file if isinstance(file, int) else file.fileno()
        is_read_only = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        if how & fcntl.LOCK_EX and is_read_only:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    run = tmp_path / "run"
    open_run(run)
    (run / f"{TEMPORARY}0123abcd").touch()
    with open_run(run):
        assert not (run / f"{TEMPORARY}0123abcd").exists()
    check_place(run)
    left = tmp_path / f"{TEMPORARY}0123abcd-set"  # of a killed writer of a data set
    left.mkdir()
    (left / "README.md").touch()
    with DatasetWriter(tmp_path / "set") as writer:
        writer.write(pa.table({"text": ["A dog."]}))
    assert not left.exists()


def test_a_name_in_a_folder_here_is_no_hub_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "pairs").mkdir(parents=True)
    (tmp_path / "runs" / "pairs" / "rows.jsonl").write_text('{"text": "a"}\n')
    for missing in (lambda: locate("runs/pears"), lambda: check_name("runs/pears", ENCODER)):
        with pytest.raises(InputError, match=r"is it runs/pairs\?"):
            missing()
    assert isinstance(locate("nyu/glue"), HubDataset)
    assert suggestion(Path("runs/xyz")) == suggestion(Path("nowhere/pairs")) == ""

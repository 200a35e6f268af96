"""Parts, locks and resuming of a run."""

import errno
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.runs.runs import open_run, table
from tests.tiny.calls import python
from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY
from tilth.runs import Progress, Run, RunLocked, RunMismatch, complete


def test_parts_are_read_back_and_the_rest_is_missing(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run")
    with run:
        run.write_part(2, table(2))
    assert run.done() == [2]
    assert run.missing() == [0, 1, 3]
    assert run.rows_of_part(2) == 3
    assert open_run(tmp_path / "run").read_part(2) == table(2)


@pytest.mark.parametrize("made", ["nothing", "a part", "a fact"])
def test_inputs_that_are_refused_before_anything_was_made_leave_no_run(
    tmp_path: Path, made: str
) -> None:
    run = open_run(tmp_path / "run")

    def refuse() -> None:
        with run:
            if made == "a part":
                run.write_part(0, table(1))
            if made == "a fact":
                run.resolve("rows", lambda: 1)
            raise InputError("no text")

    with pytest.raises(InputError):
        refuse()
    assert (tmp_path / "run" / "run.json").exists() == (made != "nothing")
    if made == "nothing":
        Run.open(tmp_path / "run", command="other", settings={}, fingerprints={}, parts=1)


def test_writing_without_the_lock_is_refused(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run")
    with pytest.raises(RuntimeError, match="inside its `with`"):
        run.write_part(0, table(0))


def test_a_second_writer_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    with run:
        code = (
            "import sys; from pathlib import Path; from tests.runs.runs import open_run\n"
            "from tilth.runs import RunLocked\n"
            "try: open_run(Path(sys.argv[1]))\n"
            "except RunLocked as error: print(error)\n"
        )
        said = python(code, tmp_path).stdout
        assert f"process {os.getpid()} on " in said
        assert "is writing here: wait for it" in said
        with pytest.raises(RunLocked):
            open_run(tmp_path)
    open_run(tmp_path)


@pytest.mark.parametrize("settings", [{"decay": 100, "seed": 0}, {"decay": 1}])
def test_a_run_overwritten_between_open_and_with_is_not_written(
    tmp_path: Path, settings: dict[str, int]
) -> None:
    """Parts of two runs must not mix, not even of two with the same settings."""
    first = open_run(tmp_path)
    with open_run(tmp_path, settings=settings, overwrite=True) as second:
        second.write_part(0, table(0))
    with pytest.raises(RunMismatch, match="has begun another run here meanwhile: wait"):
        first.__enter__()
    with second:  # the refused one has let go of the lock
        assert second.done() == [0]
    (tmp_path / "run.json").unlink()
    with pytest.raises(RunMismatch, match="has begun another run here meanwhile"):
        second.__enter__()


def test_what_another_process_chose_between_open_and_with_holds(tmp_path: Path) -> None:
    first = open_run(tmp_path)
    with open_run(tmp_path) as second:
        second.resolve("rows", lambda: 256)
    with first:
        assert first.resolve("rows", lambda: 8) == 256


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(TilthError, match="the file system has no file locks: choose a folder"):
        open_run(tmp_path)


def test_a_start_that_was_killed_is_done_again(tmp_path: Path) -> None:
    (tmp_path / ".tilth-lock").touch()
    (tmp_path / f"{TEMPORARY}0123abcd").write_bytes(b"{")
    with open_run(tmp_path):
        assert sorted(p.name for p in tmp_path.iterdir()) == [".tilth-lock", "parts", "run.json"]
    (tmp_path / "parts").rmdir()  # run.json is there before anything else
    with open_run(tmp_path) as run:
        run.write_part(0, table(0))


def test_a_part_with_damaged_pages_is_moved_aside_and_made_again(tmp_path: Path) -> None:
    """Its footer is whole, so that only reading the rows finds the damage."""

    def read_all() -> list[pa.Table]:
        with open_run(tmp_path) as run:
            complete(run, lambda index, _: table(index, 500), [1] * 4, quiet=True)
            return [run.read_part(index) for index in range(run.parts)]

    expected = read_all()
    path = open_run(tmp_path).part_path(1)
    whole = path.read_bytes()
    for place in (30, len(whole) // 4):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(TilthError) as error:
            read_all()
        assert str(error.value) == (
            f"{path}: is damaged, moved to part-00001.damaged: run the same command again"
        )
        assert path.with_suffix(".damaged").read_bytes() == damaged
        assert read_all() == expected
        assert path.read_bytes() == whole


def test_values_changed_without_breaking_the_format_are_found(tmp_path: Path) -> None:
    """Bytes that are stored as they are decompress after any damage: the checksum tells."""
    with open_run(tmp_path) as run:
        noise = os.urandom(10_000)
        run.write_part(0, pa.table({"noise": [noise]}))
        path = run.part_path(0)
        content = path.read_bytes()
        assert noise[:100] in content
        place = content.index(noise[:100]) + 5_000
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(TilthError, match="is damaged"):
            run.read_part(0)
        assert run.missing() == [0, 1, 2, 3]


def swap(run: Run) -> None:
    first, second = run.part_path(0), run.part_path(1)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def rewrite(change: Callable[[pa.Table], pa.Table]) -> Callable[[Run], None]:
    """Write a part again, all its metadata kept."""

    def alter(run: Run) -> None:
        pq.write_table(change(pq.read_table(run.part_path(1))), run.part_path(1))

    return alter


def replace(run: Run) -> None:
    """Put the part of a run with other settings in the place."""
    with open_run(run.path / "other", settings={"decay": 1}) as other:
        other.write_part(1, table(1))
    shutil.copy(other.part_path(1), run.part_path(1))


def cut(run: Run) -> None:
    path = run.part_path(1)
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("alter", "altered"),
    [
        (swap, [0, 1]),
        (replace, [1]),
        (cut, [1]),
        (rewrite(lambda part: part.slice(0, 0)), [1]),
        (rewrite(lambda part: part.slice(1)), [1]),
        (rewrite(lambda part: part.drop_columns(["text"])), [1]),
        (rewrite(lambda part: part.replace_schema_metadata(None)), [1]),
    ],
)
def test_an_altered_part_is_moved_aside_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, alter: Callable[[Run], None],
    altered: list[int],
) -> None:  # fmt: skip
    with open_run(tmp_path) as run:
        complete(run, lambda index, _: table(index), [1] * 4, quiet=True)
        alter(run)
        assert run.missing() == altered
        reason = "footer" if alter is cut else "it is not what this run wrote there"
        assert re.search(rf"{reason}.*\): moved to part-00001\.damaged", caplog.text)
        shutil.copy(run.part_path(1).with_suffix(".damaged"), run.part_path(1))
        with pytest.raises(TilthError, match=r"is damaged, moved to part-00001\.damaged"):
            run.read_part(1)
        complete(run, lambda index, _: table(index), [1] * 4, quiet=True)
        assert [run.read_part(index) for index in range(4)] == [table(index) for index in range(4)]


def test_a_part_of_any_columns_is_known_again(tmp_path: Path) -> None:
    part = pa.table(
        {
            "lists": pa.array([["a"], None], pa.list_(pa.string())),
            "structs": pa.array([{"x": 1}, None]),
            "nothing": pa.nulls(2),
            "class": pa.array(["a", "b"]).dictionary_encode(),
            "large": pa.array(["a", "b"], pa.large_string()),
            "half": pa.array([1.0, 2.0], pa.float32()),
        }
    ).replace_schema_metadata({"huggingface": "{}"})
    with open_run(tmp_path) as run:
        run.write_part(0, part)
        assert run.done() == [0]
        assert run.read_part(0).to_pylist() == part.to_pylist()
        assert run.read_part(0).schema.metadata == {b"huggingface": b"{}"}


def test_what_is_no_damage_moves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_run(tmp_path) as run:
        run.write_part(0, table(0))

        def fail(*_: Any, **__: Any) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr("pyarrow.parquet.read_metadata", fail)
        monkeypatch.setattr("pyarrow.parquet.read_table", fail)
        with pytest.raises(TilthError, match="Too many open files"):
            run.read_part(0)
        with pytest.raises(TilthError, match="Too many open files"):
            run.done()
        assert run.part_path(0).is_file()


def test_a_full_disk_is_one_line_and_leaves_whole_parts(tmp_path: Path) -> None:
    """The limit on file sizes makes the system refuse a write in the middle of a part."""
    code = f"""
import os, resource, signal, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from tests.runs.runs import open_run, table
from tilth.errors import TilthError
from tilth.runs import complete
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, {resource.RLIM_INFINITY}))
def work(index, progress):
    progress.advance(done=1, kept=1)
    return pa.table({{"noise": [os.urandom(40000 if index == 2 else 100)]}})
try:
    with open_run(Path(sys.argv[1])) as run:
        complete(run, work, [1] * 4, quiet=True)
except TilthError as error:
    print(error)
"""
    said = python(code, tmp_path).stdout
    assert "the file would be larger than allowed" in said
    run = open_run(tmp_path)
    assert run.done() == [0, 1]
    assert not list(tmp_path.rglob(f"{TEMPORARY}*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], check=False
    )
    if mount.returncode:
        pytest.skip("this machine mounts no tmpfs")
    try:
        with open_run(tmp_path / "run") as run:
            run.write_part(0, table(0))
            with pytest.raises(TilthError, match=r"part-00001.parquet: the disk is full"):
                run.write_part(1, pa.table({"noise": [os.urandom(400_000)]}))
            assert run.done() == [0]
            run.write_part(1, table(1))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_progress_takes_back_a_failed_part(tmp_path: Path) -> None:
    shown = []

    def work(index: int, progress: Progress) -> pa.Table:
        shown.append(progress)
        progress.advance(done=5, kept=4, dropped=1)
        if index == 2:
            raise KeyboardInterrupt
        return table(index)

    with pytest.raises(KeyboardInterrupt), open_run(tmp_path) as run:
        complete(run, work, [10] * 4, quiet=True)
    (progress, *_) = shown
    assert (progress.done, progress.kept, progress.dropped) == (10, 8, 2)
    assert run.done() == [0, 1]


@pytest.mark.parametrize(
    ("after", "nested", "said"),
    [(0, False, "no part was finished"), (1, False, ""), (0, True, "")],
)
def test_an_interruption_says_when_no_part_is_kept(
    tmp_path: Path, after: int, nested: bool, said: str
) -> None:
    def work(index: int, _: Progress) -> pa.Table:
        if index == after:
            raise KeyboardInterrupt
        return table(index)

    if nested:
        (tmp_path / "run.json").write_text("{}")
    place = tmp_path / "step" if nested else tmp_path
    with pytest.raises(KeyboardInterrupt) as stopped, open_run(place) as run:
        complete(run, work, [10] * 4, quiet=True)
    assert str(stopped.value).startswith(said)
    assert bool(str(stopped.value)) is bool(said)

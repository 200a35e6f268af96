from __future__ import annotations

import errno
import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY, atomic_write
from tilth.runs import (
    Progress,
    Run,
    RunLocked,
    RunMismatch,
    complete,
    read_results,
    read_run_json,
    refuse_inside,
    versions,
)


def table(index: int, rows: int = 3) -> pa.Table:
    return pa.table({"part": [index] * rows, "row": range(rows), "text": ["a text"] * rows})


def open_run(path: Path, **changes: Any) -> Run:
    asked: dict[str, Any] = {
        "command": "generate",
        "settings": {"decay": 100, "seed": 0},
        "fingerprints": {"inputs": "abc", "model": "def"},
        "parts": 4,
    }
    return Run.open(path, **{**asked, **changes})


def test_parts_are_read_back_and_the_rest_is_missing(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run")
    with run:
        run.write_part(2, table(2))
    assert run.done() == [2]
    assert run.missing() == [0, 1, 3]
    assert run.rows_done() == 3
    assert open_run(tmp_path / "run").read_part(2) == table(2)


def test_writing_without_the_lock_is_refused(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run")
    with pytest.raises(RuntimeError, match="inside its `with`"):
        run.write_part(0, table(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"decay": 50, "seed": 0}}, "decay is 100 in the folder, 50 asked"),
        ({"settings": {"decay": 100}}, "seed is 0 in the folder, null asked"),
        ({"settings": {"decay": 100, "seed": 0, "top": 1}}, "top is null in the folder, 1 asked"),
        ({"command": "curate"}, "command is generate in the folder, curate asked"),
        ({"fingerprints": {"inputs": "x", "model": "def"}}, "the inputs are not the same"),
        ({"fingerprints": {"inputs": "abc", "model": "x"}}, "the model is not the same"),
        ({"parts": 5}, "it has 4 parts, 5 asked"),
    ],
)
def test_other_settings_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    open_run(tmp_path)
    with pytest.raises(RunMismatch) as error:
        open_run(tmp_path, **changes)
    assert message in str(error.value)
    assert "--overwrite starts anew" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_model_of_a_run_of_an_earlier_version_may_be_the_same(tmp_path: Path) -> None:
    other = {"fingerprints": {"inputs": "abc", "model": "x"}}
    said = "begun by an earlier version, whose fingerprints of models were others"
    open_run(tmp_path)
    with pytest.raises(RunMismatch) as error:
        open_run(tmp_path, **other)
    assert said not in str(error.value)
    file = tmp_path / "run.json"
    run = json.loads(file.read_text())
    del run["whole_models"]
    file.write_text(json.dumps(run))
    with pytest.raises(RunMismatch, match=f"the model is not the same, or it is: .*{said}"):
        open_run(tmp_path, **other)
    with pytest.raises(RunMismatch, match="the inputs are not the same: --overwrite"):
        open_run(tmp_path, fingerprints={"inputs": "x", "model": "def"})


def test_every_difference_is_named(tmp_path: Path) -> None:
    open_run(tmp_path)
    with pytest.raises(RunMismatch, match=r"decay is 100 .*; seed is 0 .*; the model is not"):
        open_run(
            tmp_path,
            settings={"decay": 1, "seed": 1},
            fingerprints={"inputs": "abc", "model": "x"},
        )


def test_a_folder_of_other_things_is_refused_even_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"holds 'thesis.tex' and is no run"):
            open_run(tmp_path, overwrite=overwrite)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_run_may_neither_hold_what_is_read_nor_lie_in_it(tmp_path: Path) -> None:
    texts, model, file = tmp_path / "texts", tmp_path / "model", tmp_path / "texts" / "a.txt"
    for folder in (texts, model):
        folder.mkdir()
    file.touch()
    for out, source in ((texts, texts), (tmp_path, file), (texts, file)):
        for how in ({"named": [str(source)]}, {"named": [str(tmp_path / "x"), None, str(source)]}):
            with pytest.raises(InputError, match=f"{out} holds {source} itself"):
                refuse_inside(out, **how)
        with pytest.raises(InputError, match=f"{out} holds {source} itself"):
            refuse_inside(out, None, str(source))
    with pytest.raises(InputError, match=r"out lies in .*texts, which is read: choose another"):
        refuse_inside(texts / "a" / "out", str(texts))
    refuse_inside(model / "out", str(texts), named=[str(model)])
    (texts / "run.json").touch()  # of a run the data set alone is read
    refuse_inside(texts / "out", str(texts))


def test_a_link_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "link")
    refuse_inside(tmp_path / "link", str(tmp_path / "link"))
    with pytest.raises(TilthError, match=r"a file stands where a folder is needed|in a circle"):
        open_run(tmp_path / "link")


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    refuse_inside(tmp_path / ("x" * 300), "y" * 300)
    with pytest.raises(TilthError, match="the name is too long: choose a shorter --out"):
        open_run(tmp_path / ("x" * 300))


def test_a_fact_is_chosen_once(tmp_path: Path) -> None:
    with open_run(tmp_path) as run:
        assert run.resolve("rows", lambda: 256) == 256
    with open_run(tmp_path) as run:
        assert run.resolve("rows", lambda: 8) == 256


def test_a_second_writer_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    with run:
        code = (
            "import sys; from pathlib import Path; from tests.runs.test_run import open_run\n"
            "from tilth.runs import RunLocked\n"
            "try: open_run(Path(sys.argv[1]))\n"
            "except RunLocked as error: print(error)\n"
        )
        said = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout
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


def test_a_run_removed_between_open_and_with_is_not_written(tmp_path: Path) -> None:
    run = open_run(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(RunMismatch, match="has begun another run here meanwhile"):
        run.__enter__()


def test_what_another_process_chose_between_open_and_with_holds(tmp_path: Path) -> None:
    first = open_run(tmp_path)
    with open_run(tmp_path) as second:
        second.resolve("rows", lambda: 256)
    with first:
        assert first.resolve("rows", lambda: 8) == 256


def test_a_refused_folder_keeps_its_nested_run(tmp_path: Path) -> None:
    open_run(tmp_path / "x1")
    (tmp_path / "notes.txt").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(InputError, match="is no run"):
        open_run(tmp_path, overwrite=True)
    assert content(tmp_path) == before


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


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(TilthError, match="the file system has no file locks: choose another"):
        open_run(tmp_path)


def test_a_start_that_was_killed_is_done_again(tmp_path: Path) -> None:
    (tmp_path / ".tilth-lock").touch()
    (tmp_path / f"{TEMPORARY}0123abcd").write_bytes(b"{")
    with open_run(tmp_path):
        assert sorted(p.name for p in tmp_path.iterdir()) == [".tilth-lock", "parts", "run.json"]


def content(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("foreign", [".lock", "sub/.tmp-notes", ".tmp-1-x", "x1.txt", "parts/a"])
def test_a_refused_folder_is_left_as_it_was(tmp_path: Path, foreign: str, overwrite: bool) -> None:
    for name in (foreign, "x1/.tmp-1-x", "x1/.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    before, changed = content(tmp_path), tmp_path.stat().st_mtime_ns
    with pytest.raises(InputError, match=r"and is no run: choose another --out"):
        open_run(tmp_path, overwrite=overwrite)
    assert content(tmp_path) == before
    assert tmp_path.stat().st_mtime_ns == changed


def test_a_run_json_of_another_tool_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"id": 3}')
    (tmp_path / ".tmp-1-x").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(TilthError, match="is not what tilth wrote"):
        open_run(tmp_path)
    assert content(tmp_path) == before


def test_a_writer_killed_while_it_makes_the_folder_does_no_harm(tmp_path: Path) -> None:
    """run.json is there before anything else."""
    open_run(tmp_path)
    (tmp_path / "parts").rmdir()
    with open_run(tmp_path) as run:
        run.write_part(0, table(0))


def test_a_damaged_part_is_moved_aside_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_run(tmp_path) as run:
        for index in range(4):
            run.write_part(index, table(index))
    path = run.part_path(1)
    path.write_bytes(path.read_bytes()[:-20])
    with open_run(tmp_path) as run, caplog.at_level(logging.WARNING):
        assert run.missing() == [1]
        complete(run, lambda index, _: table(index), progress=Progress(4, quiet=True))
        assert run.missing() == []
    assert "part-00001.damaged" in caplog.text
    assert run.read_part(1) == table(1)


def test_a_part_with_damaged_pages_is_moved_aside_and_made_again(tmp_path: Path) -> None:
    """Its footer is whole, so that only reading the rows finds the damage."""

    def read_all() -> list[pa.Table]:
        with open_run(tmp_path) as run:
            complete(run, lambda index, _: table(index, 500), progress=Progress(4, quiet=True))
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


@pytest.mark.parametrize(
    ("alter", "altered"),
    [
        (swap, [0, 1]),
        (replace, [1]),
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
        complete(run, lambda index, _: table(index), progress=Progress(4, quiet=True))
        alter(run)
        assert run.missing() == altered
        assert "it is not what this run wrote there): moved to part-00001.damaged" in caplog.text
        shutil.copy(run.part_path(1).with_suffix(".damaged"), run.part_path(1))
        with pytest.raises(TilthError, match=r"is damaged, moved to part-00001\.damaged"):
            run.read_part(1)
        complete(run, lambda index, _: table(index), progress=Progress(4, quiet=True))
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


def test_a_run_of_an_earlier_version_opens_and_goes_on(tmp_path: Path) -> None:
    """It lists no outputs, and its parts do not say whose they are."""
    asked = {
        "command": "generate", "settings": {"decay": 100, "seed": 0},
        "fingerprints": {"inputs": "abc", "model": "def"}, "parts": 4,
        "versions": versions(), "created": "2026-01-01T00:00:00+00:00", "start": "0123456789abcdef",
        "resolved": {"rows": 8},
    }  # fmt: skip
    (tmp_path / "parts").mkdir()
    (tmp_path / "run.json").write_text(json.dumps(asked))
    pq.write_table(table(2), tmp_path / "parts" / "part-00002.parquet")
    with open_run(tmp_path) as run:
        assert run.missing() == [0, 1, 3]
        assert run.resolve("rows", lambda: 256) == 8
        complete(run, lambda index, _: table(index), progress=Progress(4, quiet=True))
        assert [run.read_part(index) for index in range(4)] == [table(index) for index in range(4)]
    assert open_run(tmp_path).missing() == []


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


def test_a_damaged_run_json_is_named(tmp_path: Path) -> None:
    open_run(tmp_path)
    for content in ("{", "[]", '{"command": "generate"}'):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(TilthError, match=r"run\.json: .*--overwrite starts anew"):
            open_run(tmp_path)
    open_run(tmp_path, overwrite=True)


@pytest.mark.parametrize(
    "change",
    [
        {"command": None}, {"command": 3}, {"settings": None}, {"settings": []},
        {"fingerprints": None}, {"parts": None}, {"parts": "4"}, {"parts": True}, {"parts": -1},
        {"parts": 1.5}, {"versions": None}, {"versions": []}, {"resolved": None},
        {"outputs": None}, {"outputs": "parts"},
    ],
)  # fmt: skip
def test_an_edited_run_json_is_one_line(tmp_path: Path, change: dict[str, Any]) -> None:
    open_run(tmp_path)
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(
        TilthError, match=r"is not what tilth wrote \(.*\): --overwrite starts"
    ) as error:
        open_run(tmp_path)
    assert "\n" not in str(error.value)
    with open_run(tmp_path, overwrite=True) as run:
        run.write_part(0, table(0))


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pipe_in_place_of_run_json_is_not_waited_for(tmp_path: Path, overwrite: bool) -> None:
    os.mkfifo(tmp_path / "run.json")
    for read in (lambda: open_run(tmp_path, overwrite=overwrite), lambda: read_run_json(tmp_path)):
        with pytest.raises(InputError, match=r"run\.json: is a pipe"):
            read()


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_a_run_json_that_is_nested_deep_is_one_line(tmp_path: Path, depth: int) -> None:
    open_run(tmp_path)
    file = tmp_path / "run.json"
    deep = "[" * depth + "]" * depth
    file.write_text(file.read_text().replace('"decay": 100', f'"decay": {deep}'))
    with pytest.raises(TilthError, match=r"cannot be read \(nested too deep\)"):
        open_run(tmp_path)


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the name is not UTF-8: choose another --out"):
        open_run(tmp_path / "\udcff")
    name = {"source": "\udcff"}
    open_run(tmp_path / "run", settings=name)
    with open_run(tmp_path / "run", settings=name) as run:
        assert run.settings == name


def test_other_versions_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_run(tmp_path)
    asked = json.loads((tmp_path / "run.json").read_text())
    asked["versions"]["torch"] = "0.0.1"
    (tmp_path / "run.json").write_text(json.dumps(asked))
    open_run(tmp_path)
    assert "was begun with torch 0.0.1" in caplog.text


def test_a_file_as_folder_and_a_file_above_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(TilthError, match="a file stands where a folder is needed"):
        open_run(tmp_path / "file")
    with pytest.raises(TilthError, match="a part of the path is a file"):
        open_run(tmp_path / "file" / "run")


def test_a_full_disk_is_one_line_and_leaves_whole_parts(tmp_path: Path) -> None:
    """The limit on file sizes makes the system refuse a write in the middle of a part."""
    code = f"""
import os, resource, signal, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
from tests.runs.test_run import open_run, table
from tilth.errors import TilthError
from tilth.runs import Progress, complete
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, {resource.RLIM_INFINITY}))
def work(index, progress):
    progress.advance(done=1, kept=1)
    return pa.table({{"noise": [os.urandom(40000 if index == 2 else 100)]}})
progress = Progress(4, quiet=True)
try:
    with open_run(Path(sys.argv[1])) as run:
        complete(run, work, progress=progress)
except TilthError as error:
    print(error, progress.done)
"""
    said = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert "the file would be larger than allowed" in said
    assert said.strip().endswith(" 2")
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


def test_an_unwritable_folder_is_named() -> None:
    with pytest.raises(TilthError, match=r"/proc/.*: (no permission|the file system|No such)"):
        open_run(Path("/proc/run"))


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


def test_progress_takes_back_a_failed_part(tmp_path: Path) -> None:
    progress = Progress(40, quiet=True)

    def work(index: int, progress: Progress) -> pa.Table:
        progress.advance(done=5, kept=4, dropped=1)
        if index == 2:
            raise KeyboardInterrupt
        return table(index)

    with pytest.raises(KeyboardInterrupt), open_run(tmp_path) as run:
        complete(run, work, progress=progress)
    assert (progress.done, progress.kept, progress.dropped) == (10, 8, 2)
    assert run.done() == [0, 1]


def test_a_pipe_in_place_of_results_json_is_no_result(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "results.json")
    assert read_results(tmp_path) is None


@pytest.mark.parametrize(("after", "said"), [(0, "no part was finished"), (1, "")])
def test_an_interruption_says_when_no_part_is_kept(tmp_path: Path, after: int, said: str) -> None:
    def work(index: int, _: Progress) -> pa.Table:
        if index == after:
            raise KeyboardInterrupt
        return table(index)

    with pytest.raises(KeyboardInterrupt) as stopped, open_run(tmp_path) as run:
        complete(run, work, progress=Progress(40, quiet=True))
    assert str(stopped.value).startswith(said)
    assert bool(str(stopped.value)) is bool(said)

"""Copies of what lies under a URL: what is copied, put, refused and left alone."""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.runs.runs import open_run, table
from tests.tiny import write_lines
from tilth import object_code, storage
from tilth.data.readers import read_rows, read_texts
from tilth.data.settings import CurateOptions
from tilth.data.sources import load_folder
from tilth.data.writer import DatasetWriter
from tilth.errors import InputError, TilthError
from tilth.runs import Run, RunLocked, RunMismatch, lock, refuse_inside
from tilth.storage import as_path, pull, push, remove
from tilth.urls import url_of, with_urls
from tilth.workflows.curate import curate_folder

URL = "memory://bucket/run"
PAIRS = "".join(
    json.dumps({"text_a": f"Cup {n} is full.", "text_b": f"A cup, the {n}th.", "label": n % 2})
    + "\n"
    for n in range(20)
).encode()
Machine = Callable[[str], None]


def objects(memory: Any, prefix: str = "/bucket/run") -> list[str]:
    return sorted(name.removeprefix(f"{prefix}/") for name in memory.find(prefix))


def make(url: str = URL, *parts: int, **changes: Any) -> None:
    with open_run(url, **changes) as run:
        for part in parts:
            run.write_part(part, table(part))


def test_a_url_names_its_copy_and_back(tmp_path: Path) -> None:
    path = as_path("s3://bucket/run/parts/")
    assert path == tmp_path / "cache-a/urls/s3/bucket/run/parts"
    assert url_of(path) == "s3://bucket/run/parts"
    assert with_urls(f"see {path}: damaged") == "see s3://bucket/run/parts: damaged"
    assert str(TilthError(f"{path} is gone")) == "s3://bucket/run/parts is gone"


@pytest.mark.parametrize("name", ["runs/s3", "openai:http://host/v1#model", "owner/name:config"])
def test_other_names_are_paths(name: str) -> None:
    assert as_path(name) == Path(name)
    assert url_of(Path(name)) is None


def test_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_path("~/runs/a") == tmp_path / "runs/a"
    assert as_path("~nobody-of-this-name/a") == Path("~nobody-of-this-name/a")


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert as_path(f"file://{tmp_path}/x") == tmp_path / "x"


@pytest.mark.parametrize(
    "url",
    ["s3://bucket/../x", "s3://bucket/./x", "s3://..", "s3://b/.x", "s3://b//x", "local:///x"],
)
def test_a_url_that_leads_out_of_the_copies_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="empty or begin with a dot"):
        as_path(url)


def test_a_run_lies_under_its_url_part_by_part(memory: Any) -> None:
    with open_run(URL) as run:
        run.write_part(2, table(2))
        made = [name for name in objects(memory) if not name.startswith(".")]
        assert made == ["parts/part-00002.parquet", "run.json"]
        run.write_file("report.html", "<p>")
    assert objects(memory) == ["parts/part-00002.parquet", "report.html", "run.json"]


def test_another_machine_goes_on(memory: Any, machine: Machine) -> None:
    make(URL, 0, 1)
    machine("b")
    with open_run(URL) as run:
        assert run.missing() == [2, 3]
        assert run.read_part(1).equals(table(1))
        run.write_part(3, table(3))
    machine("a")
    with open_run(URL) as run:
        assert run.done() == [0, 1, 3]


def test_other_settings_are_refused_by_the_url(memory: Any, machine: Machine) -> None:
    make()
    machine("b")
    with pytest.raises(RunMismatch, match=r"^memory://bucket/run: holds another run: seed is 0"):
        open_run(URL, settings={"decay": 100, "seed": 1})


def test_overwrite_removes_the_earlier_run(memory: Any) -> None:
    make(URL, 0, 1)
    with open_run(URL, overwrite=True) as run:
        assert run.done() == []
        assert [n for n in objects(memory) if not n.startswith(".")] == ["run.json"]


def test_removing_takes_what_is_named_and_no_pattern(memory: Any) -> None:
    for name in ("run1", "run[1]", "run*"):
        make(f"memory://bucket/{name}", 0, 1)
    names = {"run1", "run[1]", "run*"}
    for name in ("run[1]", "run*"):
        remove(as_path(f"memory://bucket/{name}"))
        names.remove(name)
        assert {one.split("/")[2] for one in memory.find("/bucket")} == names


def test_what_another_machine_removed_first_stops_no_removal(memory: Any) -> None:
    make(URL, 0, 1, 2)
    gone = sorted(one for one in memory.find("/bucket/run") if "part-" in one)[0]
    paths = [as_path(f"memory://{one.lstrip('/')}") for one in memory.find("/bucket/run")]
    memory.rm(gone)
    storage._delete(paths)
    assert not memory.find("/bucket/run")


def test_a_user_without_a_home_has_copies_in_the_temporary_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TILTH_CACHE")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert f"{tempfile.gettempdir()}/tilth-" in str(as_path(URL))
    assert len(object_code._folders("tilth.models.gelu_kernels")) == 1


def test_a_removed_run_leaves_nothing_of_it_here(memory: Any) -> None:
    with open_run(URL) as run:
        run.write_part(0, table(0))
    (as_path(URL) / "checkpoint").write_text("of the earlier run")
    memory.rm("/bucket/run", recursive=True)
    with open_run(URL) as run:
        assert run.done() == []
    assert objects(memory) == ["run.json"]


def test_a_damaged_part_is_set_aside_there(memory: Any, machine: Machine) -> None:
    make(URL, 0, 1)
    memory.pipe("/bucket/run/parts/part-00001.parquet", b"torn")
    machine("b")
    with open_run(URL) as run:
        assert run.done() == [0]
    assert objects(memory) == [
        "parts/part-00000.parquet", "parts/part-00001.damaged", "run.json"
    ]  # fmt: skip


def test_what_is_no_run_is_refused_and_not_copied(memory: Any) -> None:
    memory.pipe("/bucket/run/photo.jpg", b"")
    with pytest.raises(InputError, match=r"holds 'photo.jpg' and is no run"):
        open_run(URL)
    assert not as_path(f"{URL}/photo.jpg").exists()


def test_an_object_is_no_folder(memory: Any) -> None:
    memory.pipe("/bucket/run", b"x")
    with pytest.raises(InputError, match=r"memory://bucket/run is a file"):
        open_run(URL)


def test_names_that_begin_alike_are_told_apart(memory: Any) -> None:
    memory.pipe("/bucket/run-2/x.txt", b"x")
    make(URL, 0)
    assert objects(memory, "/bucket/run-2") == ["x.txt"]


def test_two_machines_are_kept_apart(
    memory: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_LONGEST_WAIT", 0.01)
    with open_run(URL) as run:
        machine("b")
        with pytest.raises(RunLocked, match=r"^memory://bucket/run: process \d+ on .* is writing"):
            open_run(URL)
        machine("a")
        run.write_part(0, table(0))
    machine("b")
    make(URL, 1)


def test_a_dead_writer_is_followed_at_once_here_and_after_its_lease_elsewhere(
    memory: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = as_path(URL)
    folder.mkdir(parents=True)
    monkeypatch.setattr(lock, "_LONGEST_WAIT", 0.01)
    monkeypatch.setattr(lock.Lease, "_renew", lambda _: None)
    lock.Lease(folder).take()  # and nothing gives it back
    machine("b")
    with pytest.raises(RunLocked, match=r"its lease ends in \d+ s"):
        open_run(URL)
    machine("a")
    open_run(URL)
    assert "has died: going on" in caplog.text
    lock.Lease(folder).take()
    machine("b")
    monkeypatch.setattr(lock, "SECONDS_HELD", -1.0)
    open_run(URL)


@pytest.mark.parametrize("is_taken", [False, True])
def test_who_lost_its_lease_writes_no_more(
    is_taken: bool, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "SECONDS_BETWEEN", 0.01)
    run = open_run(URL)
    with pytest.raises(TilthError, match="another one may write here"), run:  # noqa: PT012
        run.write_part(1, table(1))
        lose(run, memory, is_taken=is_taken)
        run.write_part(0, table(0))
    kept = [name for name in objects(memory) if not name.startswith(".")]
    assert kept == ["parts/part-00001.parquet", "run.json"]


def lose(run: Run, memory: Any, *, is_taken: bool) -> None:
    """Let another machine think that the writer is dead: remove its lease, or take its own."""
    other = {"holder": "process 1 on another", "copies": "its own", "writes": False}
    place = "/bucket/run/.tilth-writers/other"
    memory.pipe(place, json.dumps(other).encode())  # it asks, and will be refused
    time.sleep(0.1)
    assert run._lease is not None
    assert not run._lease._is_lost
    if is_taken:
        memory.pipe(place, json.dumps({**other, "writes": True}).encode())
    else:
        memory.rm("/bucket/run/.tilth-writers", recursive=True)
    stop = time.monotonic() + 60
    while not run._lease._is_lost:
        assert time.monotonic() < stop
        time.sleep(0.01)


def test_push_puts_what_changed_and_leaves_what_others_made(memory: Any) -> None:
    folder = as_path("memory://bucket/set")
    (folder / "data").mkdir(parents=True)
    (folder / "data/a.txt").write_text("one")
    (folder / "data/b.txt").write_text("two")
    (folder / ".hidden").write_text("three")
    push(folder)
    memory.pipe("/bucket/set/data/theirs.txt", b"four")
    first = memory.info("/bucket/set/data/a.txt")["created"]
    (folder / "data/b.txt").unlink()
    push(folder)
    assert objects(memory, "/bucket/set") == ["data/a.txt", "data/theirs.txt"]
    assert memory.info("/bucket/set/data/a.txt")["created"] == first


def test_pull_copies_what_changed(memory: Any) -> None:
    memory.pipe("/bucket/set/a.txt", b"one")
    folder = as_path("memory://bucket/set")
    pull(folder)
    before = (folder / "a.txt").stat()
    pull(folder)
    assert (folder / "a.txt").stat().st_ino == before.st_ino
    memory.pipe("/bucket/set/a.txt", b"two")
    pull(folder)
    assert (folder / "a.txt").read_text() == "two"
    (folder / "a.txt").write_text("mine")
    pull(folder)
    assert (folder / "a.txt").read_text() == "two"


@pytest.mark.parametrize("name", ["../x.txt", "a//x.txt", ".x/y.txt"])
def test_objects_with_odd_names_are_not_copied(
    name: str, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = {"type": "file", "size": 1}
    monkeypatch.setattr(type(memory), "find", lambda *_, **__: {f"/bucket/set/{name}": info})
    memory.pipe("/bucket/set/x.txt", b"x")
    assert storage._versions(as_path("memory://bucket/set")) == {}


def test_inputs_are_named_by_their_url(memory: Any) -> None:
    memory.pipe("/bucket/in/x.txt", b"A man plays.\nA dog barks.\n")
    memory.pipe("/bucket/in/y.jsonl", b'{"text": "Hi."}\n')
    assert read_texts("memory://bucket/in/x.txt")["origin"][:] == [
        "memory://bucket/in/x.txt:1", "memory://bucket/in/x.txt:2"
    ]  # fmt: skip
    assert read_texts("memory://bucket/in")["text"][:] == ["A man plays.", "A dog barks.", "Hi."]
    memory.pipe("/bucket/in/y.jsonl", b"no json\n")
    with pytest.raises(InputError, match=r"^memory://bucket/in/y.jsonl:1: no JSON"):
        read_rows("memory://bucket/in/y.jsonl")
    memory.rm("/bucket/in/y.jsonl")
    assert len(read_texts("memory://bucket/in")) == 2
    with pytest.raises(InputError, match=r"^memory://bucket/in/z.txt: no such file"):
        read_texts("memory://bucket/in/z.txt")


def test_the_data_set_of_a_run_is_read_by_its_url(memory: Any, machine: Machine) -> None:
    with open_run(URL, outputs=["dataset"]) as run:
        run.write_part(0, table(0))
        with DatasetWriter(run.path / "dataset") as writer:
            writer.write(table(0).select(["text"]))
    machine("b")
    for rows in (read_rows(URL), load_folder(URL), load_folder(f"{URL}/dataset")):
        assert rows["text"][:] == ["a text"] * 3
    assert not (as_path(URL) / "parts").exists()


def test_a_run_is_not_made_in_what_it_reads(memory: Any) -> None:
    for source, message in (("memory://bucket", "lies in"), ("memory://bucket/run/x", "holds")):
        with pytest.raises(InputError, match=message):
            refuse_inside(as_path(URL), source)


def test_a_missing_backend_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(InputError, match=r"needs the package s3fs: pip install 'tilth\[storage\]'"):
        open_run("s3://bucket/run")


def test_an_unknown_store_is_named() -> None:
    with pytest.raises(InputError, match="no store is known by abc://"):
        open_run("abc://bucket/run")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError("Access Denied"), r"the store refuses \(Access Denied\)"),
        (FileNotFoundError("The specified bucket does not exist"), "make the bucket"),
        (OSError("Could not connect"), "does not answer as it should"),
        (NotImplementedError(), "this store is only read"),
    ],
)
def test_errors_of_a_store_are_one_line(
    error: Exception, message: str, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(type(memory), "ls", fail)
    with pytest.raises(TilthError, match=f"^memory://bucket/run: .*{message}"):
        open_run(URL)


def test_a_store_that_does_not_answer_is_asked_again(
    memory: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, left = type(memory).put_file, [OSError("gone"), TimeoutError()]

    def fail(*given: Any, **options: Any) -> None:
        if left:
            raise left.pop()
        real(*given, **options)

    with open_run(URL) as run:
        monkeypatch.setattr(type(memory), "put_file", fail)
        monkeypatch.setattr(storage, "_SECONDS_BETWEEN", 0.01)
        run.write_part(0, table(0))
        assert caplog.text.count("trying again") == 2
        left.append(OSError("gone"))
        monkeypatch.setattr(storage, "_SECONDS_RETRYING", -1.0)
        with pytest.raises(TilthError, match="does not answer as it should"):
            run.write_part(1, table(1))
        assert run.done() == [0]


def test_nothing_changes_for_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec.core, "url_to_fs", None)
    source = write_lines(tmp_path / "x.txt", ["A man plays."])
    assert read_texts(source)["origin"][:] == [f"{source}:1"]
    with open_run(tmp_path / "run") as run:
        run.write_part(0, table(0))
    assert not (tmp_path / "cache-a").exists()


def test_a_curated_set_is_put_beside_its_source(memory: Any, machine: Machine) -> None:
    memory.pipe("/raw/pairs.jsonl", PAIRS)
    curate_folder("memory://raw/pairs.jsonl", None)
    place, data = "/raw/pairs-curated", "data/train.parquet"
    assert {"README.md", data} <= set(objects(memory, place))
    before = memory.cat(f"{place}/{data}")
    machine("b")
    folder = as_path("memory://raw/pairs-curated")
    curate_folder("memory://raw/pairs.jsonl", folder, CurateOptions(smoothing=0))
    assert memory.cat(f"{place}/{data}") != before


def test_what_is_no_curated_set_is_left_in_the_store(memory: Any) -> None:
    memory.pipe({"/raw/pairs.jsonl": PAIRS, "/raw/photos/photo.jpg": b""})
    with pytest.raises(InputError, match=r"^memory://raw/photos is not empty"):
        curate_folder("memory://raw/pairs.jsonl", as_path("memory://raw/photos"))
    assert objects(memory, "/raw/photos") == ["photo.jpg"]

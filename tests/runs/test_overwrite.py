"""What `overwrite` removes, when, and what is left where a process is killed meanwhile."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.tiny import read_json
from tests.tiny.calls import python
from tilth.errors import InputError, TilthError
from tilth.runs import Run, RunLocked, RunMismatch

OLD, NEW = {"seed": 0}, {"seed": 1}


def open_run(path: Path, settings: dict[str, int], **changes: Any) -> Run:
    asked: dict[str, Any] = {
        "command": "generate", "settings": settings, "fingerprints": {}, "parts": 2,
        "outputs": ("dataset", "results.json"),
    }  # fmt: skip
    return Run.open(path, **{**asked, **changes})


def finish(run: Run) -> None:
    text = json.dumps(run.settings)
    with run:
        for index in range(run.parts):
            run.write_part(index, pa.table({"of": [text]}))
        (run.path / "dataset").mkdir(exist_ok=True)
        (run.path / "dataset" / "rows").write_text(text)
        run.write_file("results.json", text)
        run.write_file("report.html", text)


def is_whole(path: Path, settings: dict[str, int]) -> bool:
    """Say whether the folder holds the finished run of some settings, and nothing half."""
    run = open_run(path, settings)
    files = [path / name for name in ("dataset/rows", "results.json", "report.html")]
    return (
        run.missing() == []
        and all(json.loads(run.read_part(part)["of"][0].as_py()) == settings for part in (0, 1))
        and all(read_json(file) == settings for file in files)
    )


def break_off(path: Path, error: BaseException, made: str | None = None) -> None:
    with open_run(path, NEW, overwrite=True) as run:
        if made == "part":
            run.write_part(0, pa.table({"of": [1]}))
        elif made is not None:
            run.write_file(made, "half")
        raise error


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    finish(open_run(path, OLD))
    return path


def test_it_removes_what_the_run_made_and_nothing_else(old: Path) -> None:
    finish(open_run(old / "encoder", OLD, command="train encoder"))
    mine = [old / name for name in ("notes.txt", "model/notes.txt", "index/notes.txt")]
    for file in mine:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine")
    with open_run(old, NEW, overwrite=True) as run:
        assert run.missing() == [0, 1]
        assert not (old / "dataset").exists()
        assert not (old / "report.html").exists()
    assert [file.read_text() for file in mine] == ["mine"] * 3
    assert open_run(old / "encoder", OLD, command="train encoder").missing() == []
    assert sorted(path.name for path in old.iterdir()) == [
        ".tilth-lock", "encoder", "index", "model", "notes.txt", "parts", "run.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "made"),
    [
        (InputError("wrong"), None), (InputError("wrong"), "results.json"),
        (KeyboardInterrupt(), None),
    ],
)  # fmt: skip
def test_what_is_refused_or_fails_early_puts_the_earlier_run_back(
    old: Path, error: BaseException, made: str | None
) -> None:
    open_run(old, NEW, overwrite=True)  # opening removes nothing
    assert is_whole(old, OLD)
    with pytest.raises(type(error)):
        break_off(old, error, made)
    assert is_whole(old, OLD)
    assert not (old / ".tilth-old").exists()


def test_work_that_is_interrupted_goes_on_and_the_earlier_run_is_kept_meanwhile(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt() -> None:
        with pytest.raises(KeyboardInterrupt):
            break_off(old, KeyboardInterrupt(), "results.json")

    interrupt()
    assert "the earlier run is kept in .tilth-old" in caplog.text
    with open_run(old, NEW) as run:
        assert (run.path / "results.json").read_text() == "half"
    assert not (old / ".tilth-old").exists()
    finish(open_run(old, OLD, overwrite=True))
    interrupt()
    with pytest.raises(RunMismatch, match="seed is 1 in the folder, 2 asked"):
        open_run(old, {"seed": 2})
    assert is_whole(old, OLD)
    interrupt()
    finish(open_run(old, {"seed": 2}, overwrite=True))
    assert is_whole(old, {"seed": 2})


def test_the_first_part_settles_it(old: Path) -> None:
    with pytest.raises(InputError):
        break_off(old, InputError("too late"), "part")
    assert open_run(old, NEW).done() == [0]
    with pytest.raises(RunMismatch):
        open_run(old, OLD)


def test_a_run_in_it_that_is_written_meanwhile_is_not_moved(old: Path) -> None:
    shutil.rmtree(old / "dataset")
    inner = open_run(old / "dataset", OLD)
    with inner, pytest.raises(RunLocked), open_run(old, NEW, overwrite=True):
        pass
    assert (old / "dataset" / "run.json").is_file()
    assert (old / "results.json").is_file()


@pytest.mark.parametrize("name", ["../notes", "/etc", "..", ".", "", ".git", "a/b", 3, None])
def test_names_that_lead_out_of_the_folder_are_never_removed(old: Path, name: Any) -> None:
    (old.parent / "notes").write_text("mine")
    asked = read_json(old / "run.json")
    (old / "run.json").write_text(json.dumps({**asked, "outputs": [name]}))
    with pytest.raises(TilthError, match=r"run\.json: is not what tilth wrote \(outputs holds"):
        open_run(old, OLD)
    finish(open_run(old, NEW, overwrite=True))
    assert (old.parent / "notes").read_text() == "mine"
    assert is_whole(old, NEW)


def overwrite(path: Path) -> None:
    with open_run(path, NEW, overwrite=True) as run:
        run.write_part(0, pa.table({"of": ["{}"]}))


def overwrite_and_refuse(path: Path) -> None:
    with suppress(InputError):
        break_off(path, InputError("wrong"), "results.json")


STEPS = ("rename", "replace", "mkdir", "rmdir", "unlink")


def die_at(step: int, act: Callable[[Path], None], path: Path) -> bool:
    """Do something in a forked process that is killed before a file operation; False: it ended."""
    child = os.fork()
    if child == 0:
        left = [step]

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1
                return real(*given, **named)

            return call

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        act(path)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def drive(folder: Path) -> None:
    """Kill each of both at each file operation; what is there afterwards is the old run or new."""
    os.fsync = lambda _: None  # a process is killed here, not the machine
    source = folder / "source"
    finish(open_run(source, OLD))
    found = []
    for act in (overwrite, overwrite_and_refuse):
        for step in range(100):
            path = folder / f"{act.__name__}-{step}"
            shutil.copytree(source, path)
            killed = die_at(step, act, path)
            again = folder / f"{path.name}-again"
            shutil.copytree(path, again)
            try:
                state = "old" if is_whole(path, OLD) else "half"
            except RunMismatch:
                state = "new" if open_run(path, NEW).done() == [0] else "half"
            finish(open_run(again, NEW, overwrite=True))
            state += "" if is_whole(again, NEW) else ", not done again"
            found.append((act.__name__, step, state))
            if not killed:
                break
    json.dump(found, sys.stdout)


def test_a_kill_between_any_two_steps_leaves_the_old_run_or_the_new(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from tests.runs.test_overwrite import drive\n"
    done = python(f"{code}drive(Path(sys.argv[1]))", tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) > 20
    states = {name: [state for of, _, state in found if of == name] for name, _, _ in found}
    assert set(states["overwrite"]) == {"old", "new"}
    assert set(states["overwrite_and_refuse"]) == {"old"}

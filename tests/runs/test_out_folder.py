"""Where a run may write."""

import os
from pathlib import Path

import pytest

from tests.runs.runs import content, open_run
from tilth.errors import InputError, TilthError
from tilth.runs import ASIDE, RunMismatch, refuse_inside, refuse_other_settings, write_results
from tilth.runs.out_folder import refuse_without


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "foreign", [".lock", "sub/.tmp-notes", ".tmp-1-x", "x1.txt", "thesis.tex", "parts/a"]
)
def test_a_refused_folder_is_left_as_it_was(tmp_path: Path, foreign: str, overwrite: bool) -> None:
    for name in (foreign, "x1/.tmp-1-x", "x1/.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    before, changed = content(tmp_path), tmp_path.stat().st_mtime_ns
    with pytest.raises(
        InputError, match=rf"holds {foreign.split('/')[0]!r} and is no run: choose another --out"
    ):
        open_run(tmp_path, overwrite=overwrite)
    assert content(tmp_path) == before
    assert tmp_path.stat().st_mtime_ns == changed


def test_a_refused_folder_keeps_its_nested_run(tmp_path: Path) -> None:
    open_run(tmp_path / "x1")
    (tmp_path / "notes.txt").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(InputError, match="is no run"):
        open_run(tmp_path, overwrite=True)
    assert content(tmp_path) == before


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


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the name is not UTF-8: choose another --out"):
        open_run(tmp_path / "\udcff")
    name = {"source": "\udcff"}
    open_run(tmp_path / "run", settings=name)
    with open_run(tmp_path / "run", settings=name) as run:
        assert run.settings == name


def test_paths_where_no_folder_can_be_made_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "link")
    for path, message in (
        (tmp_path / "link", "a file stands where a folder is needed|in a circle"),
        (tmp_path / ("x" * 300), "the name is too long: choose a shorter one"),
        (tmp_path / "file", "a file stands where a folder is needed"),
        (tmp_path / "file" / "run", "a part of the path is a file"),
        (Path("/proc/run"), "/proc/.*: (no permission|the file system|No such)"),
    ):
        if not os.path.exists(path):
            refuse_inside(path, str(path))
        with pytest.raises(TilthError, match=message):
            open_run(path)


def test_other_settings_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    refuse_other_settings(tmp_path / "none", {"seed": 1})
    with open_run(tmp_path / "run", settings={"seed": 0, "shape": [1, 2], "decay": 100}):
        pass
    refuse_other_settings(tmp_path / "run", {"seed": 0, "shape": (1, 2), "new": 3}, "generate")
    for settings, command, said in (
        ({"seed": 3}, "generate", "holds another run: seed is 0 in the folder, 3 asked: --overwr"),
        ({"seed": 0}, "predict", "holds another run: command is generate in the folder, predict"),
    ):
        with pytest.raises(RunMismatch, match=said):
            refuse_other_settings(tmp_path / "run", settings, command)
    # A killed `overwrite` has set the run aside that may be the one that is asked for.
    (tmp_path / "run" / ASIDE).mkdir()
    refuse_other_settings(tmp_path / "run", {"seed": 3}, "generate")


def test_results_keep_the_figures_that_nothing_measures_again(tmp_path: Path) -> None:
    refuse_without(tmp_path, "scores", "--sts")
    write_results(tmp_path, {"scores": {}})
    refuse_without(tmp_path, "scores", "--sts")
    write_results(tmp_path, {"scores": {"sts12": {"spearman": 50.0}}})
    with pytest.raises(InputError, match="hold figures of --sts: give it again, or --overwrite"):
        refuse_without(tmp_path, "scores", "--sts")

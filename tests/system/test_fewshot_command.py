"""`tilth fewshot` as a user meets it: what is printed, refused, and gone on with."""

import json
from pathlib import Path

import pytest

from tests.selftrain.labelled import classed, tagged
from tests.system.commands import error_of, tilth
from tests.tiny import read_json, salads, save_encoder, tiny_bank, write_rows
from tilth.selftrain import few_shot as fewshot
from tilth.selftrain.settings import FINE_TUNED, OURS, PAPERS

SMALL: list[object] = [
    "--draws", 2, "--per-class", 3, "--sentences", 6, "--seeds", 1, "--best", 1, "--epochs", 2,
    "--student-epochs", 1, "--labelled-per-row", 5, "--validation-rows", 12, "--device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(static: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bank, a base and two tasks."""
    folder = tmp_path_factory.mktemp("few")
    tiny_bank(folder, salads(300), encoder=static)
    save_encoder(folder / "base")
    for name, make in (("", classed), ("tags-", tagged)):
        for seed, (part, count) in enumerate((("train", 120), ("dev", 30), ("test", 30))):
            write_rows(folder / f"{name}{part}.jsonl", make(count, seed=seed))
    return folder


def asked(folder: Path, out: Path, *more: object, task: str = "") -> list[object]:
    return [
        "fewshot", folder / f"{task}train.jsonl", "--test", folder / f"{task}test.jsonl",
        "--validation", folder / f"{task}dev.jsonl", "--bank", folder / "bank", "--base",
        folder / "base", "--out", out, *SMALL, *more,
    ]  # fmt: skip


def test_all_ways_are_measured_and_a_finished_run_is_shown_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.loads(tilth(*asked(folder, tmp_path / "whole"), "--json").stdout)
    assert list(whole["scores"]) == [FINE_TUNED, PAPERS, OURS]
    assert list(whole["gains"]) == [PAPERS, OURS]
    for score in whole["scores"].values():
        assert len(score["draws"]) == 2
        if len(set(score["draws"])) == 1:
            assert (score["low"], score["high"]) == (None, None)
        else:
            assert score["low"] <= score["mean"] <= score["high"]
    assert whole["rows"][FINE_TUNED] == 9
    monkeypatch.setattr(fewshot, "fine_tune", None)  # nothing is left to train
    again = tilth(*asked(folder, tmp_path / "whole"))
    for words in (FINE_TUNED, PAPERS, OURS, "accuracy on the test set x 100, 2 draws", "95%"):
        assert words in again.stdout
    figures = [*whole["scores"].values(), *whole["gains"].values()]
    assert ("[" in again.stdout) == any(one["low"] is not None for one in figures)


def test_tags_and_given_rows(folder: Path, tmp_path: Path) -> None:
    found = json.loads(
        tilth(*asked(folder, tmp_path / "tags", "--draws", 1, "--json", task="tags-")).stdout
    )
    assert found["measure"] == "span F1"
    assert found["rows"][FINE_TUNED] == 6
    assert found["scores"][FINE_TUNED]["low"] is None
    every = asked(folder, tmp_path / "all", "--all-rows", "--epochs", 1)
    refused = tilth(*every, code=2)
    assert "--all-rows is one draw: leave --draws and --per-class out" in refused.stderr
    begin = every.index("--draws")
    done = tilth(*every[:begin], *every[begin + 4 :])
    assert "one draw: no interval is known" in done.stderr
    settings = read_json(tmp_path / "all" / "run.json")["settings"]
    assert (settings["draws"], settings["per_class"]) == (1, None)
    rows = read_json(tmp_path / "all" / "results.json")["rows"]
    assert rows[FINE_TUNED] > 100


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--text", "said"], "no column 'said'"),
        (["--test", "TRAIN"], "every text of the test set is in the training set"),
        (["--bank", "TRAIN"], "holds no bank.json"),
        (["--out", "TRAIN"], "choose a"),
    ],
)
def test_wrong_arguments(folder: Path, tmp_path: Path, more: list[object], said: str) -> None:
    words = [folder / "train.jsonl" if word == "TRAIN" else word for word in more]
    assert said in error_of(*asked(folder, tmp_path / "out", *words))
    assert not (tmp_path / "out").exists()

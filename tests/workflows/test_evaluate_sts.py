import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import read_json, save_encoder, write_rows
from tests.tiny.rows import write_run
from tilth.errors import InputError
from tilth.runs import Run
from tilth.workflows.evaluate_sts import open_encoder, training_reader
from tilth.workflows.settings import EncoderOptions
from tilth.workflows.train_encoder import train_and_measure

DOGS, CATS, MEANINGS = (
    [f"{animal} {n}" for n in range(30)] for animal in ("a dog", "a cat", "an animal")
)


@pytest.mark.parametrize("pairs", [None, 3, ["x"], "nothing-here"])
def test_pairs_of_a_training_that_are_not_there(pairs: object, tmp_path: Path) -> None:
    write_run(tmp_path, [])
    asked = read_json(tmp_path / "run.json")
    (tmp_path / "run.json").write_text(json.dumps({**asked, "resolved": {"pairs": pairs}}))
    assert training_reader(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("command", "columns", "settings"),
    [
        ("simcse", {"sentence": DOGS + CATS}, {}),
        ("simcse", {"one": DOGS, "two": CATS}, {"text": ["one", "two"]}),
        ("triplet", {"en": DOGS, "de": CATS, "score": [4] * 30}, {"min_score": 3}),
        ("triplet", {"captions": [*zip(DOGS, CATS, strict=True)]}, {}),
        ("triplet", {"en": MEANINGS * 2, "de": DOGS + CATS}, {"pivot": "en"}),
    ],
)
def test_rows_that_an_encoder_was_trained_on(
    command: str, columns: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    source = write_rows(tmp_path / "pairs.jsonl", columns)
    write_run(tmp_path / "run", [], settings=settings)
    asked = read_json(tmp_path / "run" / "run.json") | {
        "command": f"train {command}", "resolved": {"sources": [str(source)]},
    }  # fmt: skip
    (tmp_path / "run" / "run.json").write_text(json.dumps(asked))
    read = training_reader(str(tmp_path / "run"))
    assert read is not None
    rows = read()
    assert {*rows["text_a"], *rows["text_b"]} == {*DOGS, *CATS}
    assert len(rows) >= len(DOGS) - 2
    source.unlink()
    assert training_reader(str(tmp_path / "run")) is None


def test_rows_that_a_scorer_was_trained_on(tmp_path: Path) -> None:
    pairs = {"text_a": DOGS, "text_b": CATS, "label": [n % 2 for n in range(30)]}
    source = write_rows(tmp_path / "pairs.jsonl", pairs)
    write_run(tmp_path / "run", [])
    asked = read_json(tmp_path / "run" / "run.json") | {
        "command": "train scorer", "resolved": {"sources": {"train": str(source)}},
    }  # fmt: skip
    (tmp_path / "run" / "run.json").write_text(json.dumps(asked))
    read = training_reader(str(tmp_path / "run"))
    assert read is not None
    assert sorted(read()["text_a"]) == sorted(DOGS)


def test_the_encoder_of_a_classifier_is_said_to_be_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for command in ("train classifier", "train scorer"):
        run = tmp_path / command
        Run.open(run, command=command, settings={}, fingerprints={}, parts=0)
        save_encoder(run / "model")
        for name in (str(run / "model"), str(run)):
            caplog.clear()
            open_encoder(name, device="cpu")
            assert f"{name} is a run of {command}: the cosines are of its encoder" in caplog.text


def test_pairs_of_one_label_are_not_trained_on_without_those_of_the_sets(tmp_path: Path) -> None:
    shared = [{"text_a": f"a {n}", "text_b": f"b {n}", "label": n / 20} for n in range(20)]
    others = [{"text_a": f"c {n}", "text_b": f"d {n}", "label": 0.4} for n in range(40)]
    sets = write_rows(tmp_path / "sts.jsonl", shared)
    pairs = write_rows(tmp_path / "pairs.jsonl", shared + others)
    options = EncoderOptions(base="none", sts=str(sets), drop_overlap=True)
    with pytest.raises(InputError, match=r"drop-overlap leaves \d+ training pairs, the others"):
        train_and_measure(str(pairs), tmp_path / "run", options)

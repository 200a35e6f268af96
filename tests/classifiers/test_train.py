from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.selftrain.labelled import as_rows, classed
from tests.tiny.classifiers import are_same
from tilth.classifiers.settings import ClassifierTraining, Finetuning
from tilth.classifiers.train import train_on_examples
from tilth.errors import InputError
from tilth.models.classifier import Classifier
from tilth.runs import RunMismatch

ROWS, CHOSEN = as_rows(classed(96)), as_rows(classed(30, seed=9))
SETTINGS = Finetuning(
    learning_rate=3e-3, epochs=2, evaluate_every=4, precision="float32", dropout=0.1, seed=3
)


def train(base: str, out: Path | None, **more: Any) -> Classifier:
    asked: dict[str, Any] = {"seeds": 3, "device": "cpu", "quiet": True, **more}
    settings, chosen = asked.pop("settings", SETTINGS), asked.pop("chosen", CHOSEN)
    recorded = asked.pop("recorded", None)
    how = ClassifierTraining(base, settings, **asked)
    return train_on_examples(ROWS, chosen, how, out, recorded=recorded)


def test_the_best_of_several_seeds_is_kept(base: str, tmp_path: Path) -> None:
    best = train(base, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [one["seed"] for one in results["seeds"]] == [3, 4, 5]
    assert results["measure"] == "accuracy"
    assert results["best"]["score"] == max(one["score"] for one in results["seeds"])
    curve = pq.read_table(tmp_path / "parts" / "part-00002.parquet").to_pydict()
    assert curve["step"] == [4, 8, 12]
    assert max(curve["score"]) == results["seeds"][2]["score"]
    assert not (tmp_path / "checkpoints").exists()
    assert best.texts_per_input == 1
    assert are_same(train(base, None), best)
    alone = Finetuning(**{**{f: getattr(SETTINGS, f) for f in SETTINGS.__slots__},
                          "seed": results["best"]["seed"]})  # fmt: skip
    assert are_same(train(base, None, seeds=1, settings=alone), best)
    asked = json.loads((tmp_path / "run.json").read_text())
    assert asked["command"] == "train classifier"
    assert asked["settings"]["labels"] == ROWS.labels


def test_another_training_is_refused_or_overwrites(base: str, tmp_path: Path) -> None:
    trained = train(base, tmp_path, seeds=1)
    for more, said in (
        ({}, "seeds"), ({"seeds": 1, "chosen": ROWS}, "the validation rows are not the same"),
        ({"seeds": 1, "recorded": {"loss": "hard"}}, "loss"),
    ):  # fmt: skip
        with pytest.raises(RunMismatch, match=said):
            train(base, tmp_path, **more)
    assert not are_same(
        train(base, tmp_path, seeds=1, overwrite=True, settings=Finetuning(epochs=0.2)), trained
    )


def test_results_that_went_missing_are_written_again(base: str, tmp_path: Path) -> None:
    train(base, tmp_path, seeds=2)
    written = (tmp_path / "results.json").read_text()
    for damaged in ("[", None):
        (tmp_path / "results.json").unlink()
        if damaged:
            (tmp_path / "results.json").write_text(damaged)
        train(base, tmp_path, seeds=2)
        assert (tmp_path / "results.json").read_text() == written


def test_without_validation(base: str, tmp_path: Path) -> None:
    kept = train(base, tmp_path, seeds=1, chosen=None)
    assert json.loads((tmp_path / "results.json").read_text())["best"]["score"] is None
    other = train(base, None, seeds=1, chosen=None)
    assert are_same(kept, other)
    with pytest.raises(InputError, match="several seeds need validation rows"):
        train(base, None, chosen=None)

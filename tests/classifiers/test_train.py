from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from tests.selftrain.labelled import as_rows, classed
from tests.tiny import save_encoder
from tilth.classifiers.finetune import fit
from tilth.classifiers.settings import Finetuning
from tilth.classifiers.train import train_teacher
from tilth.errors import InputError
from tilth.models.classifier import Classifier
from tilth.runs import RunMismatch

ROWS, CHOSEN = as_rows(classed(96)), as_rows(classed(30, seed=9))
SETTINGS = Finetuning(
    learning_rate=3e-3, epochs=2, evaluate_every=4, precision="float32", dropout=0.1, seed=3
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_encoder(tmp_path_factory.mktemp("base") / "bert"))


def train(base: str, out: Path | None, **more: Any) -> Classifier:
    asked: dict[str, Any] = {"seeds": 3, "device": "cpu", "quiet": True, **more}
    settings, chosen = asked.pop("settings", SETTINGS), asked.pop("chosen", CHOSEN)
    return train_teacher(ROWS, chosen, base, settings, out=out, **asked)


def are_same(one: Classifier, two: Classifier) -> bool:
    other = two.model.state_dict()
    return all(torch.equal(value, other[name]) for name, value in one.model.state_dict().items())


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
    assert are_same(train(base, None), best)
    alone = Finetuning(**{**{f: getattr(SETTINGS, f) for f in SETTINGS.__slots__},
                          "seed": results["best"]["seed"]})  # fmt: skip
    assert are_same(train(base, None, seeds=1, settings=alone), best)
    asked = json.loads((tmp_path / "run.json").read_text())
    assert asked["command"] == "train classifier"
    assert asked["settings"]["labels"] == ROWS.labels


def test_a_finished_run_is_not_trained_again_and_not_mixed_up(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = train(base, tmp_path, seeds=1)
    with monkeypatch.context() as patch:
        patch.setattr("tilth.classifiers.train.fit", lambda *_, **__: pytest.fail("trained"))
        assert are_same(train(base, tmp_path, seeds=1), trained)
        with pytest.raises(RunMismatch, match="seeds"):
            train(base, tmp_path)
        with pytest.raises(RunMismatch, match="the validation is not the same"):
            train(base, tmp_path, seeds=1, chosen=ROWS)
        with pytest.raises(RunMismatch, match="loss"):
            train(base, tmp_path, seeds=1, asked={"loss": "hard"})
    assert not are_same(
        train(base, tmp_path, seeds=1, overwrite=True, settings=Finetuning(epochs=0.2)), trained
    )


def test_a_model_that_went_missing_is_made_again(base: str, tmp_path: Path) -> None:
    trained = train(base, tmp_path, seeds=2)
    shutil.rmtree(tmp_path / "model")
    assert are_same(train(base, tmp_path, seeds=2), trained)


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


@pytest.mark.parametrize(
    ("more", "said"),
    [({"seeds": 0}, "seeds is 0"), ({"device": "cuda:1"}, "set CUDA_VISIBLE_DEVICES=1")],
)
def test_wrong_settings(base: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        train(base, None, **more)


def test_the_best_is_trained_on_by_its_own_rows(base: str) -> None:
    classifier = train(base, None, seeds=1)
    curve = fit(classifier, ROWS, CHOSEN, SETTINGS, quiet=True)
    assert curve.best[1] >= 30

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from tests.tiny import graded_pairs
from tests.tiny.trained import read_curve, same_weights
from tilth.encoders.bi_encoder import (
    METRIC,
    CorrelationEvaluator,
    cosine_objective,
    train_encoder,
)
from tilth.encoders.graded_pairs import TrainingPairs, read_pairs
from tilth.encoders.settings import Training, TripletTraining
from tilth.encoders.train import make_encoder_trainer
from tilth.encoders.word_vectors import word_vectors
from tilth.errors import InputError, TilthError
from tilth.models import load_encoder
from tilth.runs import Progress, RunMismatch

QUICK: dict[str, Any] = {
    "learning_rate": 1e-3, "batch": 16, "evaluate_every": 10, "precision": "float32",
    "device": "cpu", "quiet": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    return Dataset.from_dict(graded_pairs(600))


def cosines(encoder: SentenceTransformer, pairs: Dataset) -> np.ndarray:
    one, two = (encoder.encode(pairs[name][:]) for name in ("text_a", "text_b"))
    return np.sum(one * two, 1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)


def test_training_moves_cosines_cosine_objective(base: str, pairs: Dataset, tmp_path: Path) -> None:
    held_out = Dataset.from_dict(graded_pairs(150, seed=9))
    trained = train_encoder(pairs, base, tmp_path / "run", **QUICK)
    labels = np.array(held_out["label"])
    errors = [
        np.square(cosines(encoder, held_out) - labels).mean()
        for encoder in (load_encoder(base), trained)
    ]
    assert errors[1] < 0.5 * errors[0]
    assert spearmanr(cosines(trained, held_out), labels)[0] > 0.75
    assert not trained.training


def test_the_best_checkpoint_is_kept(base: str, pairs: Dataset, tmp_path: Path) -> None:
    # A high learning rate overshoots: the last step is not the best one.
    settings = {**QUICK, "learning_rate": 0.03, "warmup": 0.5, "evaluate_every": 5}
    trained = train_encoder(pairs, base, tmp_path / "run", **settings)
    found = read_curve(tmp_path / "run")
    validation = read_pairs(pairs).validation
    kept = 100 * spearmanr(cosines(trained, validation), validation["label"])[0]
    assert kept == pytest.approx(max(found["spearman"]), abs=0.01)
    assert max(found["spearman"]) > found["spearman"][-1] + 0.1
    assert found["step"] == [5, 10, 15, 20, 25, 30, 34]
    assert all(np.isfinite(found["loss"]))


def test_the_same_seed_gives_the_same_weights_and_another_others(base: str, pairs: Dataset) -> None:
    one, again, other = (train_encoder(pairs, base, seed=seed, **QUICK) for seed in (0, 0, 1))
    assert same_weights(one, again)
    assert not same_weights(one, other)


def test_weights_that_a_base_lacks_are_drawn_by_the_seed(
    base: str, pairs: Dataset, tmp_path: Path
) -> None:
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path)
    AutoModel.from_pretrained(base, add_pooling_layer=False).save_pretrained(tmp_path)
    few = pairs.select(range(100))
    one, again = (train_encoder(few, str(tmp_path), **QUICK) for _ in range(2))
    assert any("pooler" in name for name in one.state_dict())
    assert same_weights(one, again)


@pytest.fixture(scope="module")
def plain(base: str, pairs: Dataset) -> SentenceTransformer:
    """Return an encoder of the usual settings."""
    return train_encoder(pairs.select(range(200)), base, **QUICK)


@pytest.mark.parametrize(
    "changed",
    [
        {"epochs": 0.5}, {"batch": 8}, {"learning_rate": 2e-3}, {"warmup": 0.5},
        {"weight_decay": 0.5}, {"pooling": "cls"}, {"max_length": 5}, {"precision": "bfloat16"},
    ],
)  # fmt: skip
def test_every_setting_counts(
    base: str, pairs: Dataset, plain: SentenceTransformer, changed: dict[str, Any]
) -> None:
    other = train_encoder(pairs.select(range(200)), base, **{**QUICK, **changed})
    assert not same_weights(plain, other)


def test_another_training_is_refused_or_overwrites(
    base: str, pairs: Dataset, tmp_path: Path
) -> None:
    trained = train_encoder(pairs, base, tmp_path, **QUICK)
    for more in ({"learning_rate": 5e-4}, {"seed": 2}):
        with pytest.raises(RunMismatch, match=next(iter(more))):
            train_encoder(pairs, base, tmp_path, **{**QUICK, **more})
    with pytest.raises(RunMismatch, match="train"):
        train_encoder(pairs.select(range(300)), base, tmp_path, **QUICK)
    other = train_encoder(
        pairs.select(range(300)), base, tmp_path, overwrite=True, **{**QUICK, "epochs": 0.5}
    )
    assert not same_weights(trained, other)


def test_lengths_that_are_no_multiple_of_eight(base: str, pairs: Dataset) -> None:
    few = pairs.select(range(60))
    cut = train_encoder(few, base, **QUICK, max_length=20)
    assert cut.max_seq_length == 20


def test_one_process_is_asked_for(
    base: str, pairs: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="without torchrun or accelerate launch"):
        train_encoder(pairs, base, **QUICK)


def test_fewer_steps_than_between_checkpoints(base: str, tmp_path: Path) -> None:
    few = Dataset.from_dict(graded_pairs(60))
    train_encoder(few, base, tmp_path, **{**QUICK, "evaluate_every": 100})
    assert read_curve(tmp_path)["step"] == [4]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"warmup": 1.0}, "warmup is 1.0: give a number from 0 to below 1"),
        ({"evaluate_every": 0}, "evaluate_every is 0"),
        ({"rate": 1}, "no setting 'rate': there are epochs, batch"),
        ({"precision": "float16"}, "precision 'float16' is unknown: use auto, float32 or bfloat16"),
        ({"device": "cuda:1"}, "set CUDA_VISIBLE_DEVICES=1"),
    ],
)
def test_wrong_settings(base: str, pairs: Dataset, setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        train_encoder(pairs, base, **setting)


def test_the_starter_encoder_has_a_learning_rate_of_its_own() -> None:
    assert Training().for_base("roberta-base").learning_rate == 2e-5
    assert Training().for_base("starter-mlm").learning_rate == 5e-4
    assert Training().for_base("starter-static").learning_rate == 1e-3
    assert TripletTraining().for_base("starter-mlm") == TripletTraining(learning_rate=5e-4)
    assert Training(learning_rate=1e-4).for_base("starter-mlm").learning_rate == 1e-4


def test_a_base_without_weights_to_train(pairs: Dataset, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("a 1 0\nman 0 4\n")
    frozen = word_vectors(tmp_path / "v.txt")
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    (tmp_path / "words").mkdir()
    frozen.save(str(tmp_path / "words"))
    with pytest.raises(InputError, match="no token vectors"):
        train_encoder(pairs, str(tmp_path / "words"), pooling="mean")


def test_weights_that_become_nan_are_reported(
    base: str, pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.encoders.train.all_finite", lambda _: False)
    with pytest.raises(TilthError, match="lower --learning-rate"):
        train_encoder(pairs, base, tmp_path, **{**QUICK, "epochs": 0.1})
    assert not (tmp_path / "model").exists()


def test_the_trainers_loss_is_the_squared_difference(base: str, pairs: Dataset) -> None:
    encoder = load_encoder(base, device="cpu")
    parts = read_pairs(pairs)
    batch = parts.train.select(range(8))
    with torch.no_grad():
        trainer = make_encoder_trainer(
            encoder, TrainingPairs(batch, parts.validation), cosine_objective(),
            Training(batch=8, precision="float32").for_base(base), Path("unused"),
            Progress(1, quiet=True),
        )  # fmt: skip
        inputs = trainer.data_collator([batch[row] for row in range(8)])
        loss = float(trainer.compute_loss(encoder, inputs))
    expected = np.square(cosines(encoder, batch) - np.array(batch["label"])).mean()
    assert loss == pytest.approx(expected, rel=1e-4)


def test_validation_is_spearman_of_cosines(base: str, pairs: Dataset) -> None:
    encoder = load_encoder(base, device="cpu")
    some = pairs.select(range(90))
    found = CorrelationEvaluator(some, bfloat16=False)(encoder)
    expected = spearmanr(cosines(encoder, some), some["label"])[0]
    assert found == {METRIC: pytest.approx(100 * expected, abs=1e-3)}


def test_an_encoder_that_tells_nothing_apart_has_zero(pairs: Dataset) -> None:
    class Constant(torch.nn.Module):
        device = torch.device("cpu")

        def encode(self, texts: list[str], **_: object) -> torch.Tensor:
            return torch.ones(len(texts), 4)

        def get_embedding_dimension(self) -> int:
            return 4

    assert CorrelationEvaluator(pairs, bfloat16=False)(Constant()) == {METRIC: 0.0}

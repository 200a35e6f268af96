from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict

from tests.tiny import read_json
from tests.tiny.bart import bart_tokenizer, corpus, save_bart
from tests.tiny.trained import read_curve, same_weights
from tilth.errors import InputError, TilthError
from tilth.models.lm import Seq2Seq, load_seq2seq
from tilth.models.trainer import LengthSampler
from tilth.paraphrase.settings import RewriterTraining
from tilth.paraphrase.tags import TAGS
from tilth.paraphrase.train import (
    LOSS,
    Collator,
    add_tags,
    learning_curve,
    read_corpus,
    rows_that_fit,
    train_rewriter,
    without_long,
)
from tilth.runs import RunMismatch

QUICK: dict[str, Any] = {
    "learning_rate": 3e-3, "batch": 16, "max_epochs": 3, "precision": "float32",
    "device": "cpu", "quiet": True, "rows": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_bart(tmp_path_factory.mktemp("base") / "bart"))


@pytest.fixture(scope="module")
def pairs() -> DatasetDict:
    return corpus()


def weights(model: Seq2Seq) -> dict[str, torch.Tensor]:
    return dict(model.model.state_dict())


def test_the_loss_falls_and_the_best_is_kept(base: str, pairs: DatasetDict, tmp_path: Path) -> None:
    trained = train_rewriter(pairs, base, tmp_path, **{**QUICK, "max_epochs": 6})
    found = read_curve(tmp_path)
    assert found["epoch"] == [1, 2, 3, 4, 5, 6]
    assert found["step"] == [6, 12, 18, 24, 30, 36]
    assert found["validation_loss"][-1] < found["validation_loss"][0] - 0.3
    assert found["loss"][-1] < found["loss"][0] - 0.3
    batch = Collator(trained.tokenizer, 32)(pairs["validation"].to_list())
    with torch.no_grad():
        loss = float(trained.model(**batch).loss)
    assert loss == pytest.approx(min(found["validation_loss"]), abs=0.02)
    results = read_json(tmp_path / "results.json")
    assert results["best"]["validation_loss"] == min(found["validation_loss"])
    assert not (tmp_path / "checkpoints").exists()
    assert not trained.model.training


def test_training_stops_when_the_loss_no_longer_falls(
    base: str, pairs: DatasetDict, tmp_path: Path
) -> None:
    settings = {**QUICK, "learning_rate": 0.3, "max_epochs": 30, "patience": 2}
    train_rewriter(pairs, base, tmp_path, **settings)
    losses = read_curve(tmp_path)["validation_loss"]
    assert len(losses) < 30
    assert len(losses) - 1 - int(np.argmin(losses)) == 2


def test_a_finished_run_is_not_trained_again_and_not_mixed_up(
    base: str, pairs: DatasetDict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**QUICK, "max_epochs": 1}
    trained = train_rewriter(pairs, base, tmp_path, **settings)
    monkeypatch.setattr("tilth.paraphrase.train._fit", lambda *_, **__: pytest.fail("trained"))
    assert same_weights(train_rewriter(pairs, base, tmp_path, **settings).model, trained.model)
    with pytest.raises(RunMismatch, match="patience is 5 in the folder, 2 asked"):
        train_rewriter(pairs, base, tmp_path, **settings, patience=2)
    fewer = DatasetDict({**pairs, "train": pairs["train"].select(range(50))})
    with pytest.raises(RunMismatch, match="train"):
        train_rewriter(fewer, base, tmp_path, **settings)


def test_tags_are_added_once(base: str, pairs: DatasetDict, tmp_path: Path) -> None:
    trained = train_rewriter(pairs, base, tmp_path, **{**QUICK, "max_epochs": 1})
    tokenizer = trained.tokenizer
    ids = tokenizer.convert_tokens_to_ids(list(TAGS))
    assert ids == list(range(len(bart_tokenizer()), len(bart_tokenizer()) + 14))
    assert trained.model.get_input_embeddings().num_embeddings == len(tokenizer)
    assert tokenizer("<SIM95> <BLEU0_5> the man")["input_ids"][1:3] == [ids[5], ids[6]]
    text = tokenizer.decode(tokenizer("<SIM95> the man")["input_ids"], skip_special_tokens=True)
    assert text.split() == ["the", "man"]
    assert add_tags(trained, 0) == 0


def test_new_rows_follow_the_seed(base: str) -> None:
    rows = []
    for seed in (0, 0, 1):
        model = load_seq2seq(base, device="cpu")
        before = torch.get_rng_state()
        assert add_tags(model, seed) == 14
        assert torch.equal(torch.get_rng_state(), before)
        rows.append(model.model.get_input_embeddings().weight[-14:].detach())
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2])


def test_the_published_layout_is_left_alone(pairs: DatasetDict, tmp_path: Path) -> None:
    folder = save_bart(tmp_path / "published", *TAGS)
    model = load_seq2seq(str(folder), device="cpu")
    before = model.tokenizer.get_vocab()
    rows = model.model.get_input_embeddings().num_embeddings
    settings = {**QUICK, "max_epochs": 1, "rows": None}  # as many as fit into memory
    trained = train_rewriter(pairs, str(folder), tmp_path / "run", **settings)
    assert read_json(tmp_path / "run" / "run.json")["resolved"]["rows"] == 16
    assert trained.tokenizer.get_vocab() == before
    assert trained.model.get_input_embeddings().num_embeddings == rows


def test_batches_are_tags_source_and_rewrite() -> None:
    tokenizer = bart_tokenizer(*TAGS)
    rows = [
        {"tags": "<SIM95> <BLEU0_5>", "text_a": "the man runs", "text_b": "a man runs fast"},
        {"tags": "<SIM70> <BLEU40>", "text_a": "the dog", "text_b": "a dog and a cat sleeps on"},
    ]
    batch = Collator(tokenizer, 32)(rows)
    assert batch["input_ids"].shape == (2, 8)
    assert batch["labels"].shape == (2, 16)
    read = tokenizer.decode(batch["input_ids"][0][batch["attention_mask"][0] == 1])
    assert read.split() == ["<s>", "<SIM95>", "<BLEU0_5>", "the", "man", "runs", "</s>"]
    assert batch["attention_mask"].sum(1).tolist() == [7, 6]
    labels = [row[row != -100] for row in batch["labels"]]
    assert tokenizer.decode(labels[0]).split() == ["<s>", "a", "man", "runs", "fast", "</s>"]
    assert [len(row) for row in labels] == [6, 9]


def test_batches_hold_every_pair_once_and_like_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 1_030)
    sampler = LengthSampler(lengths, 16, seed=0)
    first = list(sampler)
    assert sorted(first) == list(range(1_030))
    assert first == list(sampler)
    batches = [first[start : start + 16] for start in range(0, 1_024, 16)]
    spread = np.mean([np.ptp(lengths[batch]) for batch in batches])
    assert spread < 10
    sampler.set_epoch(1)
    assert list(sampler) != first


def test_long_pairs_are_left_out_and_said(
    base: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = corpus(30, 12)
    long = {"text_a": "the man", "text_b": " ".join(["dog"] * 31), "tags": "<SIM95> <BLEU0_5>"}
    exact = {**long, "text_b": " ".join(["dog"] * 30)}
    train = Dataset.from_list([*short["train"].to_list(), long, exact])
    collator = Collator(bart_tokenizer(*TAGS), 32)
    kept, lengths = without_long(train, collator, 32, "training")
    assert kept["text_b"][-1] == exact["text_b"]
    assert len(kept) == len(lengths) == 31
    both = DatasetDict({**short, "train": train})
    train_rewriter(both, base, tmp_path, **{**QUICK, "max_epochs": 1})
    assert "1 of 32 training pairs have a text of more than 32 tokens" in caplog.text
    wordy = {**long, "text_a": exact["text_b"]}
    with pytest.raises(InputError, match="every training pair has a text of more than 8 tokens"):
        train_rewriter(
            DatasetDict({**short, "train": Dataset.from_list([wordy])}), base, tmp_path / "none",
            **QUICK, max_length=8,
        )  # fmt: skip


def test_passes_change_little_but_rounding(pairs: DatasetDict, tmp_path: Path) -> None:
    plain = str(save_bart(tmp_path / "plain", dropout=0.0))
    train = pairs["train"].select(range(32))
    few = DatasetDict({"train": train, "validation": pairs["validation"]})
    made, losses = [], []
    for rows in (16, 4, 1):
        folder = tmp_path / str(rows)
        settings = {**QUICK, "batch": 16, "rows": rows, "max_epochs": 2}
        made.append(weights(train_rewriter(few, plain, folder, **settings)))
        losses.append(read_curve(folder)["loss"])
    for other, loss in zip(made[1:], losses[1:], strict=True):
        assert loss == pytest.approx(losses[0], rel=1e-4)
        for name, value in made[0].items():
            torch.testing.assert_close(value, other[name], rtol=1e-3, atol=1e-3, msg=name)


def test_rows_that_fit_divide_the_batch(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_seq2seq(base, device="cpu")
    assert rows_that_fit(model, 32, 96) == 96
    monkeypatch.setattr("tilth.paraphrase.train.free_memory", lambda _: 36_000_000)
    few = rows_that_fit(model, 32, 96)
    assert 1 <= few < 96
    assert 96 % few == 0
    monkeypatch.setattr("tilth.paraphrase.train.free_memory", lambda _: 1)
    assert rows_that_fit(model, 32, 96) == 1


def test_weights_that_become_nan_are_reported(
    base: str, pairs: DatasetDict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.paraphrase.train.all_finite", lambda _: False)
    with pytest.raises(TilthError, match="lower --learning-rate"):
        train_rewriter(pairs, base, tmp_path, **{**QUICK, "max_epochs": 1})
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"rows": 5}, "rows is 5: a batch of 16 does not divide"),
        ({"rate": 1}, "no setting 'rate': there are max_epochs"),
        ({"device": "cuda:1"}, "set CUDA_VISIBLE_DEVICES=1"),
    ],
)
def test_wrong_settings(
    base: str, pairs: DatasetDict, tmp_path: Path, setting: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        train_rewriter(pairs, base, tmp_path, **{**QUICK, **setting})


def test_the_starter_has_a_learning_rate_of_its_own() -> None:
    assert RewriterTraining().for_base("facebook/bart-base").learning_rate == 1e-5
    assert RewriterTraining().for_base("starter").learning_rate == 3e-4
    assert RewriterTraining(learning_rate=1e-4).for_base("starter").learning_rate == 1e-4


def test_wrong_corpora(base: str, pairs: DatasetDict, tmp_path: Path) -> None:
    def told(**splits: Dataset) -> str:
        with pytest.raises(InputError) as error:
            read_corpus(DatasetDict(splits))
        return str(error.value)

    train, validation = pairs["train"], pairs["validation"]
    assert "no split 'validation' among train; its loss says when to stop" in told(train=train)
    empty = validation.select([])
    assert "validation holds no pairs; its loss" in told(train=train, validation=empty)
    untagged = train.remove_columns("tags")
    assert "train: no column 'tags' among" in told(train=untagged, validation=validation)
    odd = Dataset.from_list([{"text_a": "a", "text_b": "b", "tags": "<SIM95> <BLEU5>"}])
    assert "tags '<SIM95> <BLEU5>' are unknown" in told(train=odd, validation=validation)
    blank = Dataset.from_list([{"text_a": " ", "text_b": "b", "tags": "<SIM95> <BLEU40>"}])
    assert "every pair has an empty text" in told(train=blank, validation=validation)
    with pytest.raises(InputError, match="no such file or folder"):
        train_rewriter(str(tmp_path / "absent"), base, tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match="no run folder is given"):
        train_rewriter(pairs, base, **QUICK)


def test_losses_of_an_epoch_are_weighed_by_steps() -> None:
    history = [
        {"step": 4, "loss": 2.0}, {"step": 6, "loss": 5.0}, {"step": 6, LOSS: 3.0},
        {"step": 8, "loss": 1.0}, {"step": 12, "loss": 4.0}, {"step": 12, LOSS: 2.0},
        {"step": 12, "train_loss": 9.0},
    ]  # fmt: skip
    assert learning_curve(history).to_pydict() == {
        "epoch": [1, 2], "step": [6, 12], "validation_loss": [3.0, 2.0], "loss": [3.0, 3.0],
    }  # fmt: skip

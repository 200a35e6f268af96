from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.selftrain.labelled import as_rows, classed, several, tagged
from tests.tiny.classifiers import are_same
from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.finetune import TrainingCurve, fine_tune, score
from tilth.classifiers.settings import Finetuning
from tilth.errors import InputError, TilthError
from tilth.models.classifier import Classifier, new_classifier

QUICK: dict[str, Any] = {
    "learning_rate": 3e-3, "batch": 16, "epochs": 4, "precision": "float32", "dropout": 0.0,
}  # fmt: skip
SETS = {"class": classed, "multi": several, "tags": tagged}


def made(base: str, rows: LabeledExamples, **more: Any) -> Classifier:
    settings = Finetuning(**{**QUICK, **more})
    return new_classifier(
        base, kind=rows.kind, labels=rows.labels, seed=settings.seed, dropout=settings.dropout,
        device="cpu",
    )  # fmt: skip


def trained(
    base: str,
    rows: LabeledExamples,
    validation: LabeledExamples | None,
    folder: Path | None = None,
    **more: Any,
) -> tuple[Classifier, TrainingCurve]:
    classifier = made(base, rows, **more)
    curve = fine_tune(
        classifier, rows, validation, Finetuning(**{**QUICK, **more}), folder, quiet=True
    )
    return classifier, curve


@pytest.mark.parametrize(
    ("kind", "count", "more", "high"),
    [
        ("class", 300, {"epochs": 6}, 90),
        ("multi", 400, {"epochs": 3}, 70),
        ("tags", 300, {}, 95),
    ],
)
def test_what_can_be_learned_is_learned(
    base: str, kind: str, count: int, more: dict[str, Any], high: float
) -> None:
    rows, held_out = as_rows(SETS[kind](count)), as_rows(SETS[kind](90, seed=9))
    classifier, curve = trained(base, rows, held_out, **more)
    assert curve.score[0] < 60
    assert curve.best[1] > high
    assert curve.loss[-1] < 0.7 * curve.loss[0]
    assert not classifier.model.training


def test_the_best_weights_are_kept_in_memory_and_on_disk(base: str, tmp_path: Path) -> None:
    rows, held_out = as_rows(classed(160)), as_rows(classed(120, seed=9))
    # A high learning rate overshoots: the last step is not the best one.
    more = {"learning_rate": 0.05, "evaluate_every": 3}
    one, curve = trained(base, rows, held_out, **more)
    two, again = trained(base, rows, held_out, tmp_path, **more)
    assert are_same(one, two)
    assert curve == again
    assert curve.best[0] < curve.step[-1]
    batch = one.tokenizer([text for (text,) in held_out.texts], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = one.model(**{k: batch[k] for k in ("input_ids", "attention_mask")}).logits.numpy()
    assert score(held_out, logits) == pytest.approx(curve.best[1])


def test_few_validation_rows_are_shown_but_choose_nothing(base: str, tmp_path: Path) -> None:
    rows, held_out = as_rows(classed(160)), as_rows(classed(120, seed=9))
    few = held_out.select(np.arange(99))
    more = {"learning_rate": 0.05, "evaluate_every": 3}
    _, chosen = trained(base, rows, held_out, **more)
    one, curve = trained(base, rows, few, **more)
    two, again = trained(base, rows, few, tmp_path, **more)
    assert are_same(one, two)
    assert curve == again
    assert chosen.best[0] < curve.step[-1] == curve.best[0]
    assert len(curve.score) == len(chosen.score)
    assert np.isfinite(curve.score).all()
    last, _ = trained(base, rows, None, **more)
    assert are_same(one, last)


def test_without_validation_the_last_weights_are_kept(base: str, tmp_path: Path) -> None:
    rows = as_rows(classed(48))
    one, curve = trained(base, rows, None, epochs=1)
    assert (curve.best[0], np.isnan(curve.best[1])) == (3, True)
    two, _ = trained(base, rows, None, tmp_path, epochs=1)
    assert are_same(one, two)
    three, _ = trained(base, rows, None, tmp_path, epochs=1)  # goes on from its end
    assert are_same(one, three)


@pytest.mark.parametrize("kind", SETS)
def test_the_same_seed_gives_the_same_weights_and_another_others(base: str, kind: str) -> None:
    rows = as_rows(SETS[kind](48))
    one, again, other = (
        trained(base, rows, None, epochs=1, dropout=0.1, seed=seed)[0] for seed in (0, 0, 1)
    )
    assert are_same(one, again)
    assert not are_same(one, other)


def test_the_process_keeps_its_random_numbers(base: str) -> None:
    rows = as_rows(classed(48))
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    trained(base, rows, None, epochs=1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())


@pytest.fixture(scope="module")
def plain(base: str) -> Classifier:
    """Return a classifier of the usual settings."""
    return trained(base, as_rows(classed(64)), None, epochs=1)[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"epochs": 0.5}, {"batch": 8}, {"learning_rate": 2e-3}, {"warmup": 0.5},
        {"weight_decay": 0.5}, {"dropout": 0.3}, {"label_smoothing": 0.2},
        {"precision": "bfloat16"},
    ],
)  # fmt: skip
def test_every_setting_counts(base: str, plain: Classifier, changed: dict[str, Any]) -> None:
    other, _ = trained(base, as_rows(classed(64)), None, **{"epochs": 1, **changed})
    assert not are_same(plain, other)


def test_weights_of_rows_count(base: str) -> None:
    rows = as_rows(classed(64))
    ones = LabeledExamples(
        rows.kind, rows.labels, rows.texts, None, rows.targets, np.full(64, 3, np.float32)
    )
    some = np.where(np.arange(64) % 3 == 0, 1, 0.01).astype(np.float32)
    other = LabeledExamples(rows.kind, rows.labels, rows.texts, None, rows.targets, some)
    plain, same, weighted = (trained(base, one, None, epochs=1)[0] for one in (rows, ones, other))
    assert are_same(plain, same)
    assert not are_same(plain, weighted)


def test_soft_targets_teach_their_probabilities(base: str) -> None:
    rows = as_rows(classed(300))
    targets = np.asarray(rows.targets) * 0.6 + 0.4 / 3
    soft = LabeledExamples(rows.kind, rows.labels, rows.texts, None, targets.astype(np.float32))
    classifier, _ = trained(base, soft, None, epochs=8)
    batch = classifier.tokenizer([t for (t,) in rows.texts], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = classifier.model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).logits
    found = logits.softmax(-1).numpy().max(axis=1)
    assert np.abs(found - (0.6 + 0.4 / 3)).mean() < 0.1


def test_nothing_is_written_without_a_folder(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "save", lambda *_, **__: pytest.fail("written"))
    monkeypatch.chdir(tmp_path)
    trained(base, as_rows(classed(48)), as_rows(classed(9, seed=3)), epochs=1)
    assert not list(tmp_path.iterdir())


def test_rows_of_other_labels(base: str) -> None:
    classifier = made(base, as_rows(classed(9)))
    with pytest.raises(InputError, match="give it rows of its labels"):
        fine_tune(classifier, as_rows(several(9)), None, Finetuning(**QUICK), quiet=True)


def test_weights_that_become_nan_are_reported(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.classifiers.trainer.all_finite", lambda _: False)
    with pytest.raises(TilthError, match="lower --learning-rate"):
        trained(base, as_rows(classed(48)), as_rows(classed(9)), epochs=1)

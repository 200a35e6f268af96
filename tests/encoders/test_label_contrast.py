from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.selftrain.labelled import classed
from tests.tiny import save_encoder
from tests.tiny.trained import same_weights
from tilth.encoders.label_contrast import _even_rows, contrast, step_count, train_label_contrast
from tilth.models import load_encoder


def test_the_loss_is_that_of_its_definition() -> None:
    vectors = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 0, 2, 1, 0, 3])  # 2 and 3 have no positive
    unit = (vectors / vectors.norm(dim=1, keepdim=True)).numpy()
    each = []
    for one in range(7):
        others = [row for row in range(7) if row != one]
        shares = {row: np.exp(unit[one] @ unit[row] / 0.1) for row in others}
        same = [row for row in others if labels[row] == labels[one]]
        if same:
            each.append(np.mean([-np.log(shares[row] / sum(shares.values())) for row in same]))
    assert float(contrast(vectors, labels)) == pytest.approx(float(np.mean(each)), rel=1e-4)
    assert float(contrast(vectors[:3], torch.tensor([0, 1, 2]))) == 0.0


def test_the_loss_is_lower_where_texts_of_one_label_are_near() -> None:
    near = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    right, wrong = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    assert contrast(near, right) < contrast(near, wrong)


@pytest.mark.parametrize("count", [12, 40, 41])
def test_each_label_and_each_row_of_it_is_drawn_alike(count: int) -> None:
    labels = np.array([0] * 20 + [1] * 3 + [4] * 2)
    drawn = _even_rows(labels, count, seed=1)
    assert len(drawn) == count
    of_label = np.unique(labels[drawn], return_counts=True)[1]
    assert of_label.max() - of_label.min() <= 1
    for label in (0, 1, 4):
        times = np.bincount(drawn, minlength=25)[labels == label]
        assert times.max() - times.min() <= 1
    assert drawn.tolist() == _even_rows(labels, count, seed=1).tolist()
    assert drawn.tolist() != _even_rows(labels, count, seed=2).tolist()


def test_texts_of_one_label_come_nearer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.encoders.label_contrast._STEPS", 20)
    base = str(save_encoder(tmp_path / "base"))
    some = classed(30)
    texts, names = [row["text"] for row in some], ["animal", "none", "water"]
    targets = np.eye(3, dtype=np.float32)[[names.index(row["label"]) for row in some]]

    def loss(encoder: object) -> float:
        vectors = encoder.encode(texts, convert_to_tensor=True)  # type: ignore[attr-defined]
        return float(contrast(vectors, torch.tensor(targets.argmax(axis=1))))

    trained = train_label_contrast(texts, targets, base, device="cpu")
    assert loss(trained) < loss(load_encoder(base, device="cpu"))
    assert same_weights(trained, train_label_contrast(texts, targets, base, device="cpu"))
    assert not same_weights(
        trained, train_label_contrast(texts, targets, base, seed=1, device="cpu")
    )


@pytest.mark.parametrize(
    ("rows", "steps"), [(2, 40), (50, 62), (100, 120), (768, 120), (1000, 156)]
)
def test_few_rows_take_fewer_steps_and_many_five_passes(rows: int, steps: int) -> None:
    assert step_count(rows) == steps
    assert step_count(rows, are_pseudo=True) == steps


def test_many_pseudo_labels_take_no_more_steps() -> None:
    assert step_count(3000) == 468
    assert step_count(3000, are_pseudo=True) == step_count(1100, are_pseudo=True) == 160

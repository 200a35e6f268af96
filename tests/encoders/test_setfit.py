from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.selftrain.labelled import classed
from tests.tiny import save_encoder
from tests.tiny.trained import same_weights
from tilth.encoders.setfit import contrastive_pairs, train_setfit
from tilth.models import load_encoder

ONE = np.eye(3, dtype=np.float32)


def targets(rows: list[dict[str, str]]) -> np.ndarray:
    names = ["animal", "none", "water"]
    return ONE[[names.index(row["label"]) for row in rows]]


@pytest.mark.parametrize(("rows", "most", "pairs"), [(9, 4_000, 360), (9, 100, 100), (90, 90, 90)])
def test_pairs_are_balanced_and_bounded(rows: int, most: int, pairs: int) -> None:
    some = classed(rows)
    texts, has = [row["text"] for row in some], targets(some)
    made = contrastive_pairs(texts, has, 3, most)
    assert len(made) == pairs
    assert sum(made["label"]) == pairs / 2
    label_of = dict(zip(texts, has.argmax(1).tolist(), strict=True))
    for row in made:
        assert row["text_a"] != row["text_b"]
        assert (label_of[row["text_a"]] == label_of[row["text_b"]]) == row["label"]
    if most < 4_000:  # every text comes as often as any other, but for one
        _, counts = np.unique(made["text_a"][:], return_counts=True)
        assert counts.max() - counts.min() <= 2
    assert made[:] == contrastive_pairs(texts, has, 3, most)[:]
    assert made[:] != contrastive_pairs(texts, has, 4, most)[:]


def test_labels_alone_in_their_kind_give_what_pairs_there_are() -> None:
    several = np.array([[1, 1], [1, 0], [0, 1]], np.float32)  # the first shares with both
    made = contrastive_pairs(["a", "b", "c"], several, 0, 60)
    seen = set(zip(made["text_a"], made["text_b"], made["label"], strict=True))
    assert {("a", "b", 1.0), ("a", "c", 1.0), ("b", "c", 0.0)} <= seen
    assert not any(one == "a" and not label for one, _, label in seen)


def test_texts_of_one_label_come_nearer_without_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.models.trainer.move_whole", lambda *_: pytest.fail("a checkpoint"))
    base = save_encoder(tmp_path / "base")
    some = classed(30)
    texts, has = [row["text"] for row in some], targets(some)

    def gap(encoder: object) -> float:
        vectors = encoder.encode(texts, normalize_embeddings=True)  # type: ignore[attr-defined]
        cosines, same = vectors @ vectors.T, has @ has.T == 1
        np.fill_diagonal(same, False)
        return float(cosines[same].mean() - cosines[has @ has.T == 0].mean())

    trained = train_setfit(texts, has, str(base), device="cpu")
    assert gap(trained) > gap(load_encoder(str(base), device="cpu"))
    assert same_weights(trained, train_setfit(texts, has, str(base), device="cpu"))
    assert not same_weights(trained, train_setfit(texts, has, str(base), seed=1, device="cpu"))

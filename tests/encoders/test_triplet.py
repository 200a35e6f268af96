from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from torch.nn.functional import cosine_similarity

from tests.tiny import WORDS, paraphrases, tiny_bank, tiny_static
from tests.tiny.trained import read_curve, same_weights
from tilth.bank import Bank
from tilth.encoders.parallel_pairs import read_parallel
from tilth.encoders.triplet import (
    METRIC,
    RankEvaluator,
    TripletLoss,
    reciprocal_rank,
    same_text_mask,
    same_text_mask_with_negatives,
    train_triplet,
    triplet_loss,
)
from tilth.models import load_encoder
from tilth.runs import RunMismatch

QUICK: dict[str, Any] = {
    "learning_rate": 2e-3, "batch": 16, "evaluate_every": 10, "dimension": 12,
    "precision": "float32", "device": "cpu", "quiet": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    return paraphrases(400)


def rank_of(encoder: SentenceTransformer, rows: Dataset) -> float:
    x, y = (
        torch.from_numpy(encoder.encode(rows[name][:], normalize_embeddings=True))
        for name in ("en", "de")
    )
    return reciprocal_rank(x, y, torch.eye(len(rows), dtype=torch.bool))


def test_partners_come_near_and_the_run_is_an_encoder(
    base: str, pairs: Dataset, tmp_path: Path
) -> None:
    held_out = paraphrases(150, seed=9)
    trained = train_triplet(pairs, base, tmp_path / "run", **{**QUICK, "epochs": 3})
    assert rank_of(load_encoder(base), held_out) < 0.2 < 0.6 < rank_of(trained, held_out)
    assert not trained.training
    loaded = load_encoder(str(tmp_path / "run"))
    assert loaded.get_embedding_dimension() == 12
    assert same_weights(loaded, trained)
    found = read_curve(tmp_path / "run")
    assert found["step"] == [10, 20, 30, 40, 50, 60, 69]
    assert found["loss"][-1] < found["loss"][0]
    bank = tiny_bank(tmp_path, held_out["en"][:], encoder=str(tmp_path / "run"))
    found_texts = Bank.open(bank.path).search(held_out["de"][:1], 5).texts(0)
    assert held_out["en"][0] in found_texts


def repeated() -> Dataset:
    """Return pairs in which each German text stands twice."""
    few = paraphrases(60)
    rows = {"en": few["en"][:] + few["de"][:], "de": [f"satz {n}" for n in range(60)] * 2}
    return Dataset.from_dict(rows)


@pytest.fixture(scope="module")
def plain(base: str) -> SentenceTransformer:
    """Return an encoder of the usual settings."""
    return train_triplet(repeated(), base, **QUICK)


@pytest.mark.parametrize(
    "changed",
    [
        {"margin": 0.001}, {"dimension": 8}, {"batch": 8}, {"epochs": 0.5}, {"learning_rate": 1e-3},
        {"seed": 1}, {"pooling": "cls"}, {"max_length": 5}, {"pivot": "de"},
    ],
)  # fmt: skip
def test_every_setting_counts(
    base: str, plain: SentenceTransformer, changed: dict[str, Any]
) -> None:
    other = train_triplet(repeated(), base, **{**QUICK, **changed})
    assert plain.get_embedding_dimension() != other.get_embedding_dimension() or not same_weights(
        plain, other
    )


def test_negatives_in_other_words_are_another_training(base: str, tmp_path: Path) -> None:
    pairs = paraphrases(60).rename_columns({"en": "anchor", "de": "positive"})
    negatives = [f"{text}?" for text in pairs["positive"][::-1]]
    train_triplet(pairs.add_column("negative", negatives), base, tmp_path, **QUICK)
    other = pairs.add_column("negative", [text.upper() for text in negatives])
    with pytest.raises(RunMismatch, match="train"):
        train_triplet(other, base, tmp_path, **QUICK)


def test_pairs_that_are_read_are_taken_and_another_training_is_refused(
    base: str, tmp_path: Path
) -> None:
    few = paraphrases(60)
    trained = train_triplet(few, base, tmp_path, **QUICK)
    assert same_weights(train_triplet(read_parallel(few), base, tmp_path, **QUICK), trained)
    for name, value in (("margin", 0.2), ("dimension", 8), ("seed", 3)):
        with pytest.raises(RunMismatch, match=name):
            train_triplet(few, base, tmp_path, **{**QUICK, name: value})
    with pytest.raises(RunMismatch, match="train"):
        train_triplet(paraphrases(60, seed=2), base, tmp_path, **QUICK)


def test_the_linear_map_keeps_cosines_as_the_base_has_them(
    base: str, pairs: Dataset, tmp_path: Path
) -> None:
    rows = pairs.select(range(40))
    settings = {**QUICK, "learning_rate": 1e-12, "dimension": 40}
    trained = train_triplet(rows, base, **settings)
    texts = rows["en"][:10]
    one, two = (
        encoder.encode(texts, normalize_embeddings=True)
        for encoder in (load_encoder(base), trained)
    )
    np.testing.assert_allclose(two @ two.T, one @ one.T, atol=1e-4)


def test_the_rank_is_that_of_a_loop() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = (
        torch.nn.functional.normalize(torch.randn(30, 3, generator=rng), dim=1) for _ in range(2)
    )
    shared = same_text_mask(torch.randint(0, 60, (30, 2), generator=rng))
    ranks = []
    for i in range(30):
        own = x[i] @ y[i]
        nearer = [j for j in range(30) if not shared[i, j] and x[i] @ y[j] >= own]
        ranks.append(1 + len(nearer))
    assert reciprocal_rank(x, y, shared) == pytest.approx(np.mean(1 / np.array(ranks)))


def test_an_encoder_that_tells_nothing_apart_is_at_the_bottom() -> None:
    same = torch.ones(10, 1)
    assert reciprocal_rank(same, same, torch.eye(10, dtype=torch.bool)) == pytest.approx(0.1)


def test_negatives_of_triples_are_pushed_away(tmp_path: Path) -> None:
    """Partner and negative hold the same words of the text: only the column tells them apart."""
    tiny_static().save(str(tmp_path / "static"))
    rng, half = random.Random(1), len(WORDS) // 2
    rows: dict[str, list[str]] = {"anchor": [], "positive": [], "negative": []}
    for _ in range(400):
        words = [WORDS[place] for place in rng.sample(range(half), 5)]
        rows["anchor"].append(" ".join(words))
        rows["positive"].append(" ".join([WORDS[half], *words[:3]]))
        rows["negative"].append(" ".join([WORDS[half + 1], *words[:3]]))
    source = Dataset.from_dict(rows)

    def lead(triples: Dataset) -> float:
        encoder = train_triplet(triples, str(tmp_path / "static"), **{**QUICK, "epochs": 3})
        a, b, c = (encoder.encode(rows[name], normalize_embeddings=True) for name in rows)
        return float(((a * b).sum(1) - (a * c).sum(1)).mean())

    assert lead(source) > 0.06
    assert abs(lead(source.remove_columns("negative"))) < 0.02


def test_hard_negatives_count_in_the_rank() -> None:
    encoder = tiny_static()
    pairs = read_parallel(paraphrases(60)).validation
    triples = pairs.add_column("negative", pairs["text_a"][:])
    keys = [[*row[:3], 77 + place] for place, row in enumerate(pairs["label"])]
    triples = triples.remove_columns("label").add_column("label", keys)
    plain, harder = (
        RankEvaluator(rows, bfloat16=False)(encoder)[METRIC] for rows in (pairs, triples)
    )
    assert harder <= 50  # the text itself is nearer than its partner
    assert harder < plain


def test_graded_pairs_are_trained_on_from_a_score(base: str, tmp_path: Path) -> None:
    few = paraphrases(80)
    graded = few.add_column("score", [n % 2 for n in range(80)])
    right = few.select(range(1, 80, 2))
    trained = train_triplet(graded, base, tmp_path, min_score=1, **QUICK)
    assert same_weights(trained, train_triplet(right, base, **QUICK))


ALONE = torch.eye(3, dtype=torch.bool)


def at(*degrees: float) -> torch.Tensor:
    """Return unit vectors of the plane at some angles."""
    angles = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([angles.cos(), angles.sin()], 1)


def loss(x: torch.Tensor, y: torch.Tensor, margin: float = 0.4) -> float:
    return float(triplet_loss(x, y, ALONE, margin))


def test_a_nearer_partner_lowers_the_loss_and_a_nearer_negative_raises_it() -> None:
    x = at(0, 120, 240)
    plain = loss(x, at(60, 120, 240), 1.5)
    assert loss(x, at(40, 120, 240), 1.5) < plain < loss(x, at(80, 120, 240), 1.5)
    # A stranger to the third pair comes nearer to its x, and nothing else changes for the others.
    others = torch.tensor([[1, 1, 1], [1, 1, 1], [0, 1, 1]], dtype=torch.bool)
    far, near = (float(triplet_loss(x, at(angle, 120, 240), others, 1.5)) for angle in (60, -60))
    assert near > far


@given(st.integers(2, 7), st.integers(0, 999))
def test_it_is_the_loop(pairs: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(pairs, 4, generator=rng, dtype=torch.float64) for _ in range(2))
    names = torch.randint(0, 2 * pairs, (pairs, 2), generator=rng)
    hinges = []
    for i in range(pairs):
        others = [
            float(cosine_similarity(x[i], y[j], dim=0))
            for j in range(pairs)
            if not set(names[i].tolist()) & set(names[j].tolist())
        ]
        own = float(cosine_similarity(x[i], y[i], dim=0))
        hinges.append(max(0.0, 0.3 - own + max(others)) if others else 0.0)
    found = float(triplet_loss(x, y, same_text_mask(names), 0.3))
    assert found == pytest.approx(sum(hinges) / pairs, abs=1e-9)


def test_pairs_that_share_a_text_or_group_are_no_negatives() -> None:
    names = torch.tensor([[1, 2, 100], [3, 2, 101], [4, 1, 102], [5, 6, 103], [7, 8, 103]])
    expected = [
        [1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1],
    ]  # fmt: skip
    assert same_text_mask(names).int().tolist() == expected


def test_pairs_without_a_negative_have_no_loss_and_finite_gradients() -> None:
    x, y = at(0, 90).requires_grad_(), at(40, 50).requires_grad_()
    value = triplet_loss(x, y, torch.ones(2, 2, dtype=torch.bool), 0.4)
    value.backward()
    assert float(value.detach()) == 0
    for vectors in (x, y):
        assert vectors.grad is not None
        assert not vectors.grad.any()


def test_the_module_encodes_both_columns() -> None:
    encoder = tiny_static()
    texts = (["the man", "a red boat", "two birds"], ["a man", "the boat", "three"])
    features = [encoder.preprocess(column) for column in texts]
    names = torch.tensor([[1, 2], [3, 4], [5, 6]])
    found = TripletLoss(encoder, 0.4)(features, names)
    x, y = (torch.from_numpy(encoder.encode(column)) for column in texts)
    assert float(found.detach()) == pytest.approx(loss(x, y), abs=1e-6)
    assert float(TripletLoss(encoder, 0.1)(features, names).detach()) < float(found.detach())


def test_a_hard_negative_is_one_of_every_pair_that_does_not_hold_it() -> None:
    names = torch.tensor([[1, 2, 100, 7], [3, 4, 101, 2], [5, 6, 102, 0], [7, 8, 103, 9]])
    expected = [
        [1, 0, 0, 0, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1, 0, 1, 0],
    ]  # fmt: skip
    assert same_text_mask_with_negatives(names).int().tolist() == expected


def test_the_module_encodes_hard_negatives_too() -> None:
    encoder = tiny_static()
    texts = (["the man", "a red boat"], ["a man", "the boat"], ["the men", "two birds"])
    features = [encoder.preprocess(column) for column in texts]
    names = torch.tensor([[1, 2, 1, 7], [3, 4, 3, 0]])
    found = TripletLoss(encoder, 1.9)(features, names)
    x, y, z = (torch.from_numpy(encoder.encode(column)) for column in texts)
    shared = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 1]], dtype=torch.bool)
    expected = triplet_loss(x, torch.cat([y, z]), shared, 1.9)
    assert float(found.detach()) == pytest.approx(float(expected), abs=1e-6)
    without = TripletLoss(encoder, 1.9)(features[:2], names[:, :3])
    assert float(found.detach()) > float(without.detach())

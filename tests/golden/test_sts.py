"""STS scores against scipy and a slow loop over pairs, subsets and resamples."""

from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.tiny.sts import HashEncoder, Pair, jsonl, pairs_of, semeval
from tilth.evaluate.sts import evaluate_sts

SUBSETS = {"MSRpar": pairs_of(14), "OnWN": pairs_of(25, begin=50), "SMTnews": pairs_of(9, begin=99)}


def lists(pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    cosine = [HashEncoder().cosine(one, two) for one, two, _ in pairs]
    return np.array([score for _, _, score in pairs]), np.array(cosine)


def generator(seed: int, name: str) -> np.random.Generator:
    key = blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(key, "big"))


def resampled(gold: np.ndarray, cosine: np.ndarray, times: int, seed: np.random.Generator) -> list:
    found = []
    for _ in range(times):
        places = seed.integers(0, len(gold), len(gold))
        found.append(stats.spearmanr(gold[places], cosine[places]).statistic)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, pairs in SUBSETS.items():
        semeval(tmp_path / "STS12-en-test", name, pairs)
    jsonl(tmp_path / "stsb-test.jsonl", pairs_of(30, begin=30))
    return tmp_path


def test_protocol_all(folder: Path) -> None:
    scores = evaluate_sts(HashEncoder(), folder, bootstrap=40, seed=3)
    replicates = []
    stsb = lists(pairs_of(30, begin=30))
    for name, (gold, cosine) in {
        "sts12": lists([pair for pairs in SUBSETS.values() for pair in pairs]),
        "stsb": stsb,
    }.items():
        assert scores[name]["spearman"] == pytest.approx(
            100 * stats.spearmanr(gold, cosine).statistic
        )
        assert scores[name]["pearson"] == pytest.approx(
            100 * stats.pearsonr(gold, cosine).statistic
        )
        replicates.append(resampled(gold, cosine, 40, generator(3, name)))
        ends = 100 * np.percentile(replicates[-1], [2.5, 97.5])
        assert [scores[name]["low"], scores[name]["high"]] == pytest.approx(ends)
    ends = 100 * np.percentile(np.mean(replicates, axis=0), [2.5, 97.5])
    assert [scores["mean"]["low"], scores["mean"]["high"]] == pytest.approx(ends)


def test_protocol_mean(folder: Path) -> None:
    scores = evaluate_sts(HashEncoder(), folder, protocol="mean", bootstrap=40)["sts12"]
    drawing, replicates, found = generator(0, "sts12"), [], []
    for name, pairs in SUBSETS.items():
        gold, cosine = lists(pairs)
        found.append(
            [stats.spearmanr(gold, cosine).statistic, stats.pearsonr(gold, cosine).statistic]
        )
        ours = scores["subsets"][name]
        assert [ours["spearman"], ours["pearson"]] == pytest.approx([100 * x for x in found[-1]])
        replicates.append(resampled(gold, cosine, 40, drawing))
    assert [scores["spearman"], scores["pearson"]] == pytest.approx(100 * np.mean(found, axis=0))
    ends = 100 * np.percentile(np.mean(replicates, axis=0), [2.5, 97.5])
    assert [scores["low"], scores["high"]] == pytest.approx(ends)
    assert scores["spearman"] != evaluate_sts(HashEncoder(), folder)["sts12"]["spearman"]

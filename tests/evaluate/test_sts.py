from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from scipy import stats

from tests.tiny.sts import HashEncoder, jsonl, pairs_of
from tilth.errors import InputError, TilthError
from tilth.evaluate import sts
from tilth.evaluate.sts import evaluate_sts, measure_sets, most_wrong_pairs
from tilth.evaluate.sts_sets import read_sets

SUBSETS = ["x"] * 12 + ["y"] * 8 + ["z"] * 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    jsonl(tmp_path / "sts12.jsonl", pairs_of(30), SUBSETS)
    jsonl(tmp_path / "stsb-test.jsonl", pairs_of(20, begin=20))
    jsonl(tmp_path / "own.jsonl", pairs_of(9, begin=100, high=50.0))
    return tmp_path


class Constant(HashEncoder):
    """Answers with given numbers for every text."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = values

    def vector(self, text: str) -> np.ndarray:
        return np.array(self.values)


def refused(kind: type[TilthError], encoder: object, data: Path, **options: object) -> str:
    with pytest.raises(kind) as error:
        evaluate_sts(encoder, data, **options)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_answered(folder: Path) -> None:
    scores = evaluate_sts(HashEncoder(), folder)
    assert list(scores) == ["sts12", "stsb", "mean"]
    keys = ["spearman", "pearson", "n", "low", "high", "data", "subsets"]
    assert list(scores["sts12"]) == keys
    assert scores["sts12"]["n"] == 30
    assert [found["n"] for found in scores["sts12"]["subsets"].values()] == [12, 8, 10]
    assert scores["mean"]["sets"] == ["sts12", "stsb"]
    assert scores["mean"]["missing"] == ["sts13", "sts14", "sts15", "sts16", "sick"]
    for name in ("spearman", "pearson"):
        assert scores["mean"][name] == (scores["sts12"][name] + scores["stsb"][name]) / 2
    for found in scores.values():
        assert found["low"] < found["spearman"] < found["high"]


def test_sets_are_chosen(folder: Path) -> None:
    scores = evaluate_sts(HashEncoder(), folder, sets=["own", "sick"])
    assert list(scores) == ["own", "mean"]
    assert scores["mean"]["missing"] == ["sick"]
    alone = evaluate_sts(HashEncoder(), folder / "own.jsonl")
    assert alone["own"] == scores["own"]
    assert alone["mean"]["missing"] == []


def test_each_sentence_is_encoded_once_and_by_length(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sts, "BATCH", 7)
    encoder = HashEncoder()
    evaluate_sts(encoder, folder)
    asked = [text for call in encoder.calls for text in call]
    assert len(asked) == len(set(asked)) == 80  # 30 + 20 pairs, 10 of them in both sets
    assert [len(text) for text in asked] == sorted(map(len, asked), reverse=True)
    assert max(map(len, encoder.calls)) == 7


def test_batch_and_options_of_a_sentence_transformer(folder: Path) -> None:
    class Batching(HashEncoder):
        def encode(  # type: ignore[override]
            self, inputs: list[str], batch_size: int = 32, show_progress_bar: bool | None = None
        ) -> np.ndarray:
            self.asked = (batch_size, show_progress_bar)
            return super().encode(inputs)

    encoder = Batching()
    scores = evaluate_sts(encoder, folder)
    assert (encoder.asked, len(encoder.calls)) == ((sts.BATCH, False), 1)
    assert scores == evaluate_sts(HashEncoder(), folder)


def test_seed_and_bootstrap(folder: Path) -> None:
    once = evaluate_sts(HashEncoder(), folder)
    assert evaluate_sts(HashEncoder(), folder) == once
    other = evaluate_sts(HashEncoder(), folder, seed=1)
    fewer = evaluate_sts(HashEncoder(), folder, bootstrap=50)
    none = evaluate_sts(HashEncoder(), folder, bootstrap=0)
    for name in ("sts12", "mean"):
        assert other[name]["spearman"] == once[name]["spearman"] == none[name]["spearman"]
        assert other[name]["low"] != once[name]["low"] != fewer[name]["low"]
        assert none[name]["low"] is none[name]["high"] is None
    # A set's interval does not depend on what else is measured.
    assert evaluate_sts(HashEncoder(), folder, sets=["sts12"])["sts12"] == once["sts12"]


def test_zero_vectors_have_cosine_zero(folder: Path) -> None:
    class SomeZero(HashEncoder):
        def vector(self, text: str) -> np.ndarray:
            return super().vector(text) * (text[-2] != "3")

    measured = measure_sets(SomeZero(), read_sets(folder, ["sts12"]))[0]
    zero = [text[-2] == "3" for text in measured.sts.texts_a]
    assert any(zero)
    assert (measured.cosine[np.array(zero)] == 0).all()
    assert np.isfinite(evaluate_sts(SomeZero(), folder)["mean"]["spearman"])


def test_identical_texts_tie(tmp_path: Path) -> None:
    pairs = [(a, a, score) for a, _, score in pairs_of(20)] + pairs_of(10)
    measured = measure_sets(HashEncoder(50), read_sets(jsonl(tmp_path / "own.jsonl", pairs)))[0]
    assert (measured.cosine[:20] == 1).all()


@pytest.mark.parametrize("values", [(1.0, 2.0), (0.0, 0.0)])
def test_an_encoder_that_collapsed(folder: Path, values: tuple[float, ...]) -> None:
    message = refused(TilthError, Constant(*values), folder)
    assert message.startswith("set sts12: correlation is undefined: all 30 pairs have cosine")
    assert "the encoder gives every text the same vector" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_encoder_without_numbers(folder: Path, value: float) -> None:
    class Broken(HashEncoder):
        def vector(self, text: str) -> np.ndarray:
            return super().vector(text) * (value if "wren" in text else 1)

    message = refused(TilthError, Broken(), folder)
    assert message.startswith("the encoder gives no finite vector for 'The wren waits, number 0.'")


def test_an_encoder_of_another_shape(folder: Path) -> None:
    class Flat(HashEncoder):
        def encode(self, sentences: list[str], /) -> np.ndarray:
            return np.ones(len(sentences))

    assert "gives an array (80,) for 80 texts" in refused(TilthError, Flat(), folder)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"protocol": "both"}, "protocol 'both' is unknown: use all or mean"),
        ({"bootstrap": -1}, "bootstrap is -1"),
        ({"drop_overlap": True}, "drop_overlap needs the training rows"),
        ({"training": "rows.jsonl"}, "training 'rows.jsonl' is a name"),
        ({"sets": ["sts18"]}, "no set 'sts18'"),
    ],
)
def test_wrong_options(folder: Path, options: dict[str, object], told: str) -> None:
    encoder = HashEncoder()
    assert told in refused(InputError, encoder, folder, **options)
    assert not encoder.calls


def test_sets_without_a_correlation(tmp_path: Path) -> None:
    same = jsonl(tmp_path / "same.jsonl", [(a, b, 2.5) for a, b, _ in pairs_of(5)])
    told = "set same: Spearman is undefined: every score is 2.5"
    assert told in refused(InputError, HashEncoder(), same)
    few = jsonl(tmp_path / "few.jsonl", pairs_of(2))
    assert "set few has 2 pairs: Spearman needs 3" in refused(InputError, HashEncoder(), few)


def test_subsets_without_a_correlation(tmp_path: Path) -> None:
    pairs = [*pairs_of(5), *((a, b, 2.5) for a, b, _ in pairs_of(4, begin=9)), *pairs_of(2)]
    path = jsonl(tmp_path / "own.jsonl", pairs, ["x"] * 5 + ["same"] * 4 + ["few"] * 2)
    found = evaluate_sts(HashEncoder(), path)["own"]["subsets"]
    assert found["same"] == {"spearman": None, "pearson": None, "n": 4}
    told = "subset same of own: Spearman is undefined: every score is 2.5"
    assert told in refused(InputError, HashEncoder(), path, protocol="mean")
    path = jsonl(tmp_path / "own.jsonl", pairs_of(7), ["x"] * 5 + ["few"] * 2)
    told = "subset few of own has 2 pairs"
    assert told in refused(InputError, HashEncoder(), path, protocol="mean")


def test_the_mean_of_a_set_without_subsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jsonl(tmp_path / "sts13.jsonl", pairs_of(9))
    whole = evaluate_sts(HashEncoder(), tmp_path)
    told = "sts13: its files name no subsets: mean is the same as all here"
    assert told not in caplog.text
    assert evaluate_sts(HashEncoder(), tmp_path, protocol="mean") == whole
    assert told in caplog.text


def test_a_subset_of_equal_cosines(tmp_path: Path) -> None:
    pairs = [*pairs_of(5), *((a, a, score) for a, _, score in pairs_of(4))]
    path = jsonl(tmp_path / "own.jsonl", pairs, ["x"] * 5 + ["same"] * 4)
    evaluate_sts(HashEncoder(), path)
    message = refused(TilthError, HashEncoder(), path, protocol="mean")
    assert message.startswith("subset same of own: correlation is undefined")


@pytest.mark.parametrize("as_dataset", [True, False])
def test_overlap_is_counted_and_dropped(folder: Path, as_dataset: bool) -> None:
    one, other = pairs_of(30)[3], pairs_of(30)[25]
    rows = [
        {"text_a": one[1].upper(), "text_b": one[0].rstrip("."), "label": 1.0},
        {"text_a": other[0], "text_b": "Unheard of.", "label": 0.0},
    ]
    training = Dataset.from_list(rows) if as_dataset else rows
    plain = evaluate_sts(HashEncoder(), folder)
    counted = evaluate_sts(HashEncoder(), folder, training=training)
    assert "overlap" not in plain["sts12"]
    assert counted["sts12"].pop("overlap") == {"rows": 2, "pairs": 1, "sentences": 3}
    assert counted["stsb"].pop("overlap") == {"rows": 1, "pairs": 0, "sentences": 1}
    assert counted == plain
    dropped = evaluate_sts(HashEncoder(), folder, training=training, drop_overlap=True)
    assert (dropped["sts12"]["n"], dropped["sts12"]["dropped"]) == (28, 2)
    assert (dropped["stsb"]["n"], dropped["stsb"]["dropped"]) == (19, 1)
    assert dropped["sts12"]["data"] != plain["sts12"]["data"]
    assert dropped["sts12"]["spearman"] != plain["sts12"]["spearman"]


def test_what_dropping_empties_is_missing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": one} for one, _, _ in pairs_of(30)]  # all of sts12, half of stsb
    options: dict[str, object] = {"training": rows, "drop_overlap": True}
    scores = evaluate_sts(HashEncoder(), folder, sets=["sts12", "stsb"], **options)  # type: ignore
    assert scores["mean"]["sets"] == ["stsb"]
    assert scores["mean"]["missing"] == ["sts12"]
    assert "sts12: left out, after 30 pairs were dropped: set sts12 has 0 pairs" in caplog.text
    message = refused(InputError, HashEncoder(), folder, sets=["sts12"], **options)
    assert "leaves no set with enough pairs" in message


def test_a_subset_that_dropping_empties(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": one} for one, _, _ in pairs_of(12)]  # subset x
    options: dict[str, object] = {"training": rows, "drop_overlap": True}
    scores = evaluate_sts(HashEncoder(), folder, protocol="mean", **options)  # type: ignore
    assert "sts12" in scores["mean"]["missing"]
    assert "subset x of sts12 has 0 pairs" in caplog.text
    assert evaluate_sts(HashEncoder(), folder, **options)["sts12"]["n"] == 18  # type: ignore


def test_most_wrong(folder: Path) -> None:
    measured = measure_sets(HashEncoder(), read_sets(folder))
    worst = most_wrong_pairs(measured, 5)
    differences = [row["cosine_rank"] - row["gold_rank"] for row in worst]
    assert [np.sign(value) for value in differences] == [1, 1, 1, -1, -1]
    assert differences[:3] == sorted(differences[:3], reverse=True)
    assert differences[3:] == sorted(differences[3:])
    every = []
    for one in measured:
        ranks = [(stats.rankdata(v) - 1) / (len(v) - 1) for v in (one.sts.gold, one.cosine)]
        every += list(ranks[1] - ranks[0])
    assert differences[0] == pytest.approx(max(every))
    assert differences[3] == pytest.approx(min(every))
    row = worst[0]
    assert list(row) == [
        "set", "text_a", "text_b", "gold", "cosine", "gold_rank", "cosine_rank",
    ]  # fmt: skip
    assert row["cosine"] == pytest.approx(HashEncoder().cosine(row["text_a"], row["text_b"]))
    assert (row["text_a"], row["text_b"], row["gold"]) in pairs_of(40)
    assert len(most_wrong_pairs(measured, 1000)) <= 50
    assert most_wrong_pairs(measured, 0) == []


def test_the_files_of_stsb_are_one_set_whatever_the_protocol(tmp_path: Path) -> None:
    pairs = [(f"text {n}", f"text {n * n % 7} more", float(n % 6)) for n in range(24)]
    lines = [
        f"main-news\t{('MSRpar', 'headlines')[n % 2]}\t2012test\t{n}\t{score}\t{one}\t{two}\n"
        for n, (one, two, score) in enumerate(pairs)
    ]
    (tmp_path / "sts-test.csv").write_text("".join(lines))
    found = {
        protocol: evaluate_sts(HashEncoder(), tmp_path, sets=["stsb"], protocol=protocol)
        for protocol in ("all", "mean")
    }
    assert found["all"] == found["mean"]
    assert set(found["all"]["stsb"]["subsets"]) == {"MSRpar", "headlines"}

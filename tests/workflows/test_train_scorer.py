from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.tiny import WORDS, write_rows
from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.settings import Finetuning
from tilth.errors import InputError
from tilth.models import load_scorer
from tilth.runs import RunMismatch, write_results
from tilth.workflows.settings import ScorerOptions
from tilth.workflows.train_scorer import train_scorer


def rows(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return pairs graded 0 or 5: texts of other words, and a text beside itself."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        first = " ".join(rng.choices(WORDS[:20], k=5))
        other = first if number % 2 else " ".join(rng.choices(WORDS[20:], k=5))
        found.append({"text_a": first, "text_b": other, "label": 5.0 * (number % 2)})
    return found


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    return str(write_rows(tmp_path / "pairs.jsonl", rows(240)))


@pytest.fixture
def options(base: str) -> ScorerOptions:
    training = Finetuning(epochs=6, learning_rate=2e-3, precision="float32")
    return ScorerOptions(base, seeds=1, training=training)


def train(pairs: str, out: Path, options: ScorerOptions) -> dict[str, Any]:
    return train_scorer(pairs, out, options, device="cpu", quiet=True)


def test_it_learns_scores_and_is_a_scorer(
    pairs: str, tmp_path: Path, options: ScorerOptions
) -> None:
    test = str(write_rows(tmp_path / "test.jsonl", rows(60, seed=5)))
    out = tmp_path / "run"
    trained = train(pairs, out, replace(options, test=test))
    assert trained["measure"] == "Pearson correlation"
    assert trained["best"]["score"] > 80
    assert trained["tested"]["trained"]["pearson"] > 80
    assert trained["tested"]["trained"]["pairs"] == 60
    assert set(trained["tested"]) == {"trained", "shipped"}
    written = json.loads((out / "results.json").read_text())
    assert written["tested"] == trained["tested"]
    scorer = load_scorer(str(out), device="cpu")
    assert scorer.kind == "cross-encoder"
    same, other = scorer.scores(["w1 w2 w3", WORDS[1]], ["w1 w2 w3", WORDS[30]])
    assert 0 <= other < same <= 100
    config = json.loads((out / "model/config.json").read_text())
    assert config["sentence_transformers"]["activation_fn"].endswith(".Sigmoid")


def test_the_best_seed_on_dev_is_kept_and_a_finished_run_is_read(
    pairs: str, tmp_path: Path, options: ScorerOptions
) -> None:
    dev = str(write_rows(tmp_path / "dev.jsonl", rows(120, seed=3)))
    several = replace(
        options, validation=dev, seeds=2, training=replace(options.training, epochs=2.0)
    )
    first = train(pairs, tmp_path / "run", several)
    assert first["best"] in first["seeds"]
    assert first["best"]["score"] == max(seed["score"] for seed in first["seeds"])
    weights = load_file(tmp_path / "run/model/model.safetensors")
    assert train(pairs, tmp_path / "run", several) == first
    again = load_file(tmp_path / "run/model/model.safetensors")
    assert all(bool((weights[name] == again[name]).all()) for name in weights)
    with pytest.raises(RunMismatch, match="symbols"):
        train(pairs, tmp_path / "run", replace(several, symbols=True))
    write_results(tmp_path / "run", {**first, "tested": {"run": {"n": 3}}})
    with pytest.raises(InputError, match="hold figures of --test: give it again"):
        train(pairs, tmp_path / "run", several)


def test_symbols_are_removed_unless_they_are_kept(
    tmp_path: Path, options: ScorerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = {row["text_a"] for row in rows(40)}
    with_symbols = [{**row, "text_a": f"({row['text_a']})!"} for row in rows(40)]
    pairs = str(write_rows(tmp_path / "symbols.jsonl", with_symbols))
    seen: set[str] = set()

    def keep(train: LabeledExamples, held: LabeledExamples, *_: Any, **__: Any) -> None:
        seen.update(texts[0] for texts in (*train.texts, *held.texts))
        raise KeyboardInterrupt

    monkeypatch.setattr("tilth.classifiers.train.train_on_examples", keep)
    for symbols in (False, True):
        seen.clear()
        with pytest.raises(KeyboardInterrupt):
            train(pairs, tmp_path / "run", replace(options, symbols=symbols))
        assert seen == ({f"({text})!" for text in plain} if symbols else plain)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test": "large.jsonl"}, "large.jsonl: test row 0 .* label 9"),
        ({"test": "pairs.jsonl"}, "every text of the test set is in the training set"),
        ({"validation": "pairs.jsonl"}, "every text of the validation set is in the training set"),
        (
            {"validation": "other.jsonl", "test": "other.jsonl"},
            "every text of the test set is in the validation set",
        ),
        (
            {"first": "other.jsonl", "test": "other.jsonl"},
            "every text of the test set is in the first set",
        ),
        ({"validation": "texts.jsonl"}, r"texts.jsonl: no column 'text_a'|holds single texts"),
    ],
)
def test_wrong_sets_are_refused(
    pairs: str, tmp_path: Path, options: ScorerOptions, changed: dict[str, Any], message: str
) -> None:
    write_rows(tmp_path / "texts.jsonl", [{"text": "one", "label": 1.0}] * 3)
    write_rows(tmp_path / "other.jsonl", [
        {"text_a": f"one {n}", "text_b": "two", "label": 1.0 + n} for n in range(4)
    ])  # fmt: skip
    large = [{"text_a": "a", "text_b": f"b {n}", "label": 9.0 - n} for n in range(4)]
    write_rows(tmp_path / "large.jsonl", large)
    given = {
        name: str(tmp_path / value) if isinstance(value, str) else value
        for name, value in changed.items()
    }
    with pytest.raises(InputError, match=message):
        train(pairs, tmp_path / "run", replace(options, **given))
    assert not (tmp_path / "run").exists()


def test_pairs_that_cannot_be_split_are_trained_on_with_a_set_that_chooses(
    pairs: str, tmp_path: Path, options: ScorerOptions
) -> None:
    one = [{**row, "text_a": "the same"} for row in rows(12)]
    for n, row in enumerate(one):
        row["text_b"] = f"{row['text_b']} {n}"
    file = str(write_rows(tmp_path / "one.jsonl", one))
    with pytest.raises(InputError, match="12 pairs of 1 first texts are too few"):
        train(file, tmp_path / "run", options)
    assert train(file, tmp_path / "run", replace(options, validation=pairs))["seeds"]


def test_with_a_set_that_chooses_the_own_validation_split_is_not_trained_on(
    pairs: str, tmp_path: Path, options: ScorerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt: list[int] = []

    def spy(train: Any, *_: Any, **__: Any) -> None:
        learnt.append(len(train))
        raise InputError("seen")

    monkeypatch.setattr("tilth.classifiers.train.train_on_examples", spy)
    for name, count in (("train", 30), ("validation", 9)):
        write_rows(tmp_path / "set" / f"{name}.jsonl", rows(count, seed=count))
    with pytest.raises(InputError, match="seen"):
        train(str(tmp_path / "set"), tmp_path / "run", replace(options, validation=pairs))
    assert learnt == [30]


def test_a_set_of_another_task_is_trained_on_first(
    pairs: str, tmp_path: Path, options: ScorerOptions
) -> None:
    names = ("entailment", "neutral", "contradiction")
    nli = [{**row, "label": names[n % 3]} for n, row in enumerate(rows(60, seed=3))]
    first = str(write_rows(tmp_path / "nli.jsonl", nli))
    out = tmp_path / "run"
    trained = train(pairs, out, replace(options, first=first))
    assert trained["best"]["score"] > 80
    found = {
        name: json.loads((out / name / "run.json").read_text())["settings"]
        for name in ("first", ".")
    }
    assert found["first"]["labels"] == sorted(names)
    assert found["."]["base"] == str(out / "first")
    assert train(pairs, out, replace(options, first=first)) == trained


def test_a_run_of_another_base_is_refused_before_the_first_set(
    pairs: str, tmp_path: Path, options: ScorerOptions
) -> None:
    out, first = tmp_path / "run", str(write_rows(tmp_path / "nli.jsonl", rows(60, seed=3)))
    train(pairs, out, options)
    with pytest.raises(RunMismatch, match="holds another run: base is"):
        train(pairs, out, replace(options, first=first))
    assert not (out / "first").exists()


def test_validation_pairs_that_a_model_wrote_are_said(
    tmp_path: Path, options: ScorerOptions
) -> None:
    made = [{**row, "source_id": str(n), "model": "m"} for n, row in enumerate(rows(60))]
    found = train(str(write_rows(tmp_path / "made.jsonl", made)), tmp_path / "run", options)
    held = found["validation"]
    assert held["generated"] == held["rows"] > 0
    assert "Validation (generated rows) does not measure real data" in found["warnings"][0]

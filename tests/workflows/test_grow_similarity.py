"""`tilth grow --task similarity`: its folds, its search with fakes, inputs, and whole runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import MPNetConfig, MPNetModel

import tilth
from tests.tiny import graded_pairs, read_json, salads, word_tokenizer, write_lines, write_rows
from tests.tiny.trained import same_weights
from tests.workflows import grown
from tilth.data.sources import load_folder
from tilth.errors import InputError
from tilth.metrics.correlation import spearman
from tilth.models.encoder import load_encoder
from tilth.runs import Run, RunMismatch
from tilth.workflows.grow import grow as growing
from tilth.workflows.grow import grow_encoder
from tilth.workflows.grow.arms import Arm, Teacher
from tilth.workflows.grow.encoder_trainer import EncoderSpeeds, EncoderTrainer, fit
from tilth.workflows.grow.pair_sources import PairSources, cosines_of, training_rows
from tilth.workflows.grow.search import SURE, Search, rung_bounds
from tilth.workflows.grow.settings import SIMILARITY, GrowSources, Growth
from tilth.workflows.grow.similarity import (
    AS_IT_IS,
    DENOISED,
    DISTILLED,
    GENERATED_PAIRS,
    NEAR,
    PAIRS,
    REWRITTEN,
    SIMCSE,
    STAGES,
    SimilaritySearch,
    SimilarityTask,
    compare_cosines,
    encoder_arms,
    grades_of,
    pair_folds,
    read_similarity,
)
from tilth.workflows.grow.task import Fold, open_raw


def task_in(folder: Path, count: int = 60, **sources: Any) -> SimilarityTask:
    file = write_rows(folder / "train.jsonl", graded_pairs(count))
    return read_similarity(GrowSources(str(file), **sources))


def test_grades_are_read_from_0_to_1_and_from_0_to_5(tmp_path: Path) -> None:
    rows = graded_pairs(30)
    ones = read_similarity(GrowSources(str(write_rows(tmp_path / "a.jsonl", rows))))
    fives = {
        "sentence1": rows["text_a"], "sentence2": rows["text_b"],
        "score": [5 * label for label in rows["label"]],
    }  # fmt: skip
    same = read_similarity(GrowSources(str(write_rows(tmp_path / "b.jsonl", fives))))
    assert grades_of(ones.rows) == pytest.approx(rows["label"])
    assert grades_of(same.rows) == pytest.approx(rows["label"])
    named = {"x": ["a"] * 30, "one": rows["text_a"], "two": rows["text_b"], "how": rows["label"]}
    place = str(write_rows(tmp_path / "n.jsonl", named))
    other = read_similarity(GrowSources(place, text=("one", "two"), label="how"))
    assert grades_of(other.rows) == pytest.approx(rows["label"])
    twice = {name: [*values, *values[:9]] for name, values in rows.items()}
    once = read_similarity(GrowSources(str(write_rows(tmp_path / "c.jsonl", twice))))
    assert once.rows.texts == ones.rows.texts


def test_pairs_of_the_other_sets_are_not_trained_on(tmp_path: Path) -> None:
    rows = graded_pairs(60)
    others = graded_pairs(9, seed=5)
    held = {name: [*values[:12], *others[name]] for name, values in rows.items()}
    task = task_in(tmp_path, validation=str(write_rows(tmp_path / "dev.jsonl", held)))
    assert task.validation is not None
    assert len(task.rows) == 48
    assert not set(task.rows.texts) & set(task.validation.texts)


def test_folds_keep_the_pairs_of_a_first_text_together(tmp_path: Path) -> None:
    rows = graded_pairs(60)
    rows["text_a"] = [rows["text_a"][number // 3] for number in range(60)]
    task = read_similarity(GrowSources(str(write_rows(tmp_path / "rows.jsonl", rows))))
    folds = pair_folds(task, 5, 2, seed=0)
    assert [fold.number for fold in folds] == list(range(10))
    for repeat in (folds[:5], folds[5:]):
        assert sorted(np.concatenate([fold.held for fold in repeat])) == list(range(60))
    for fold in folds:
        assert len(fold.held) == 12
        firsts = [{task.rows.texts[row][0] for row in some.tolist()}
                  for some in (fold.train, fold.held)]  # fmt: skip
        assert not firsts[0] & firsts[1]
    assert folds[0].held.tolist() != folds[5].held.tolist()
    rows["text_a"] = [rows["text_a"][number // 20 * 20] for number in range(60)]
    few = read_similarity(GrowSources(str(write_rows(tmp_path / "rows.jsonl", rows))))
    threes = pair_folds(few, 5, 2, seed=0)
    assert [(fold.number, fold.repeat) for fold in threes] == [
        (0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1),
    ]  # fmt: skip
    rows["text_a"] = ["one"] * 60
    alone = read_similarity(GrowSources(str(write_rows(tmp_path / "rows.jsonl", rows))))
    with pytest.raises(InputError, match="one first text"):
        pair_folds(alone, 5, 2, seed=0)


class FakeTrainer:
    """Answers with the grades and noise, as much as its arm has."""

    teacher, alone = Teacher(), "base"

    def __init__(self, task: SimilarityTask, noise: dict[str, float]) -> None:
        self.task, self.noise, self.sources = task, noise, None
        self.trained: list[str] = []

    def answers(self, arm: Arm, fold: Fold) -> Any:
        self.trained.append(arm.name)
        drawn = np.random.default_rng((*arm.name.encode(), fold.number)).normal(size=len(fold.rows))
        return (grades_of(fold.rows) + self.noise.get(arm.name, 2.0) * drawn)[:, None]

    def forget(self) -> None:
        pass


ARMS = [Arm("base"), Arm("static"), Arm("a", ("A",)), Arm("b", ("B",)), Arm("a + b", ("A", "B"))]


def search_in(
    folder: Path, noise: dict[str, float], **settings: Any
) -> tuple[SimilaritySearch, Run, list[str]]:
    task = task_in(folder, 120)
    how = Growth(**{"task": SIMILARITY, "budget": "10h", "margin": 0.0, **settings})
    folds = pair_folds(task, 5, 2, seed=0)
    run = Run.open(
        folder / "run", command="grow", settings={}, fingerprints={}, parts=len(ARMS) * 10
    )
    kept: list[str] = []
    speeds: Any = SimpleNamespace(seconds=lambda *_: 10.0, shared=2)
    search = SimilaritySearch(
        run, ARMS, folds, rung_bounds(folds), FakeTrainer(task, noise), speeds,
        how, lambda arm: kept.append(arm.name), quiet=True,
    )  # fmt: skip
    return search, run, kept


def test_an_encoder_that_surely_gains_is_kept(tmp_path: Path) -> None:
    noise = {"base": 0.5, "static": 0.8, "a": 0.2, "b": 0.2, "a + b": 0.02}
    search, run, kept = search_in(tmp_path, noise)
    with run:
        assert search.go() == SURE  # nothing comes near the mixture
    assert kept[-1] == "a + b"
    best = search.best()
    assert best == ARMS[4]
    gain = search.gain(best, search.reference)
    assert gain is not None
    assert gain.low is not None
    assert gain.low > 0
    assert gain.value == pytest.approx(search.score(best).value - search.score(ARMS[0]).value)
    fold = search.done(ARMS[2])
    gold = np.concatenate([grades_of(one.rows) for one in fold])
    joined = np.concatenate([search._answers[search._index(ARMS[2], one)][:, 0] for one in fold])
    assert search._drawn(ARMS[2], fold)[0] == pytest.approx(
        100 * spearman(gold, joined.astype(np.float64))
    )


def test_a_gain_that_may_be_chance_leaves_the_encoder_as_it_is(tmp_path: Path) -> None:
    noise = dict.fromkeys(("base", "static", "a", "b", "a + b"), 0.3)
    search, run, kept = search_in(tmp_path, noise, margin=100.0)
    with run:
        assert search.go() == SURE
    assert kept[-1] == "base"
    gains = [search.gain(arm, ARMS[0]) for arm in ARMS[1:4]]
    assert any(gain is not None and gain.value != 0 for gain in gains)


def test_an_encoder_that_was_measured_oftener_does_not_take_the_place_of_the_base(
    tmp_path: Path,
) -> None:
    search, run, _ = search_in(tmp_path, dict.fromkeys(("base", "static"), 0.3))
    with run:
        for arm, count in ((ARMS[0], 1), (ARMS[1], 2)):
            for fold in search.folds[:count]:
                search._try(arm, fold)
    assert search.best() == ARMS[0]


def test_the_last_training_takes_as_long_as_the_trials_that_share_one(tmp_path: Path) -> None:
    search, run, _ = search_in(tmp_path / "run", {})
    arm = next(arm for arm in ARMS if arm.sources and PAIRS not in arm.sources)
    assert search._last(arm) == 20.0
    with run:
        for fold, seconds in zip(search.folds, (21.0, 0.5), strict=False):
            search._try(arm, fold)
            search._seconds[search._index(arm, fold)] = seconds
    assert search._last(arm) == 21.0


def test_intervals_are_paired(tmp_path: Path) -> None:
    task = task_in(tmp_path, 300)
    gold = grades_of(task.rows)
    draw = np.random.default_rng(0)
    one = gold + 0.3 * draw.normal(size=len(gold))
    two = one + 0.02 * draw.normal(size=len(gold))
    found = compare_cosines(task.rows, {"one": one, "two": two}, 400, 0)
    assert found["n"] == len(gold)
    difference = found["differences"]["two"]["spearman"]
    alone = found["systems"][0]["scores"]["spearman"]
    assert alone["value"] == pytest.approx(100 * spearman(gold, one))
    assert difference["low"] < difference["value"] < difference["high"]
    assert difference["high"] - difference["low"] < 0.3 * (alone["high"] - alone["low"])
    bare = compare_cosines(task.rows, {"one": one}, 0, 0)
    assert bare["systems"][0]["scores"]["spearman"]["low"] is None


def test_arms_follow_from_what_there_is(tmp_path: Path) -> None:
    task = task_in(tmp_path)

    def names(raw: bool, without: tuple[str, ...] = (), **settings: Any) -> list[str]:
        how = Growth(task=SIMILARITY, **settings)
        return [arm.name for arm in encoder_arms(task, how, raw=raw, without=without)]

    as_they_are = [AS_IT_IS.format(name) for name in ("starter-encoder", "starter-static")]
    assert names(False) == [*as_they_are, PAIRS]
    some = names(True, paraphrase=False)
    assert some[2:6] == [PAIRS, DENOISED, SIMCSE, NEAR]
    assert f"{DENOISED} + {PAIRS}" in some
    assert len(some) == 6 + 6
    assert {REWRITTEN, GENERATED_PAIRS} < set(names(True, model="m"))
    static = names(True, (SIMCSE, DENOISED), base="starter-static")
    assert static[:2] == [AS_IT_IS.format(name) for name in ("starter-static", "starter-encoder")]
    assert {DISTILLED, NEAR} < set(static)
    assert not {SIMCSE, DENOISED} & set(static)


def test_a_base_without_a_decoder_is_not_denoised(tmp_path: Path) -> None:
    config = MPNetConfig(
        vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=40,
    )  # fmt: skip
    MPNetModel(config).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    assert grow_encoder._lacks(load_encoder(str(tmp_path))) == {
        DENOISED: "a decoder that reads embeddings"
    }


def test_no_training_depends_on_what_was_drawn_before(base: str) -> None:
    texts = salads(16)
    rows = training_rows(texts, texts)
    vectors = []
    for drawn in (1, 500):
        encoder = load_encoder(base, device="cpu")
        torch.rand(drawn)
        fit(encoder, DENOISED, rows, base, 0)
        vectors.append(encoder.eval().encode(texts))
    np.testing.assert_array_equal(*vectors)


def train_shortly(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Write graded pairs and raw text; make every training a short one."""
    patch.setattr("tilth.workflows.grow.grow_encoder._FEWEST", 40)
    patch.setattr("tilth.workflows.grow.grow_encoder._MOST", 40)
    patch.setattr("tilth.workflows.grow.pair_sources._POSITIVE", (0.0, 1.0))
    patch.setattr("tilth.workflows.grow.encoder_trainer._FEWEST_STEPS", 2)
    write_rows(folder / "train.jsonl", graded_pairs(48))
    write_rows(folder / "test.jsonl", graded_pairs(30, seed=9))
    write_lines(folder / "raw.txt", salads(200))
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with graded pairs and raw text; trainings are short."""
    monkeypatch.setattr("tilth.workflows.grow.grow_encoder._measure", lambda *_: (100.0, 1000.0))
    return train_shortly(tmp_path, monkeypatch)


run_grow = partial(grown.run_grow, task=SIMILARITY)


@pytest.fixture(scope="module")
def finished(base: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a folder with a finished run in `out`, and its results; nothing is written there."""
    with pytest.MonkeyPatch.context() as patch:
        folder = train_shortly(tmp_path_factory.mktemp("finished"), patch)
        return folder, run_grow(folder, base)


def test_a_run_leaves_an_encoder_its_pairs_and_a_page(
    finished: tuple[Path, dict[str, Any]], base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, found = finished
    out = place / "out"
    arms = {one["name"]: one for one in found["arms"]}
    assert {AS_IT_IS.format(base), SIMCSE, DENOISED, NEAR, DISTILLED, PAIRS} <= arms.keys()
    assert found["reference"] == AS_IT_IS.format(base)
    assert found == read_json(out / "results.json")
    loaded = tilth.load_encoder(str(out), device="cpu")
    plain = SentenceTransformer(str(out / "model"), device="cpu")
    assert loaded.encode(["A dog."]) == pytest.approx(plain.encode(["A dog."]), abs=1e-6)
    names = [one["name"] for one in found["tested"]["systems"]]
    assert names[0] == found["arm"]
    assert len(set(names)) == len(names)
    assert {AS_IT_IS.format(name) for name in (base, "starter-static")} <= set(names)
    page = (out / "report.html").read_text()
    assert "Spearman x 100 on rows that were held out" in page
    assert found["arm"] in page
    with pytest.raises(RunMismatch, match="seed"):
        run_grow(place, base, seed=1)

    def fail(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(Search, "_try", fail)
    assert run_grow(place, base) == found


@pytest.mark.parametrize(
    "after",
    [3, pytest.param(9, marks=pytest.mark.slow)],  # in the first round, and in the second
)
def test_an_interrupted_run_leaves_the_best_so_far_and_ends_alike(
    place: Path,
    base: str,
    finished: tuple[Path, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    grown.check_resume(place, base, after, finished[1], monkeypatch, task=SIMILARITY)


@pytest.mark.parametrize("source", [REWRITTEN, PAIRS])
def test_few_pairs_change_the_encoder(base: str, source: str) -> None:
    encoder = load_encoder(base, device="cpu")
    texts = salads(3)
    fit(encoder, source, training_rows(texts, texts[::-1], [0.1, 0.5, 0.9]), base, seed=0)
    assert not same_weights(encoder, load_encoder(base, device="cpu"))


def test_nothing_surely_better_leaves_the_base_and_says_so(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimilaritySearch, "may_be_kept", lambda *_: False)
    found = run_grow(
        place, base, train=None, validation=str(place / "train.jsonl"), margin=100.0, repeats=2
    )
    assert found["ended"] == "no other way is likely to gain more than the margin"
    assert (found["arm"], found["origins"]) == (AS_IT_IS.format(base), {})
    assert "it is kept as it is. The largest gain" in found["notes"][0]
    assert not (place / "out" / "dataset").exists()
    kept = load_encoder(str(place / "out"), device="cpu")
    assert same_weights(kept, load_encoder(base, device="cpu"))


def test_a_trained_encoder_leaves_its_pairs_with_their_origins(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = f"{NEAR} + {PAIRS}"
    monkeypatch.setattr(
        SimilaritySearch, "best", lambda self: next(one for one in self.arms if one.name == both)
    )
    found = run_grow(place, base, margin=100.0)
    assert found["arm"] == both
    rows = load_folder(place / "out" / "dataset")
    origins = rows["origin"][:]
    assert {name: origins.count(name) for name in set(origins)} == found["origins"]
    assert found["origins"][PAIRS] == 48
    for origin, label in zip(origins, rows["label"][:], strict=True):
        assert (label is None) == (origin == NEAR)
    card = (place / "out" / "dataset" / "README.md").read_text()
    assert f"- {PAIRS}: 48" in card
    assert f"licences of their sources: `{place / 'raw.txt'}`" in card
    kept = load_encoder(str(place / "out"), device="cpu")
    assert not same_weights(kept, load_encoder(base, device="cpu"))


def test_a_budget_that_is_spent_before_the_search_leaves_the_base(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.grow_encoder._measure", lambda *_: (1e9, 1e9))
    found = run_grow(place, base, budget="0.01s")
    assert (found["ended"], found["arm"]) == (
        "the rest of the budget is too short for the next step",
        AS_IT_IS.format(base),
    )
    assert found["arms"] == []
    assert found == read_json(place / "out" / "results.json")


def sources_in(place: Path, **settings: Any) -> tuple[SimilarityTask, PairSources]:
    task = read_similarity(GrowSources(str(place / "train.jsonl")))
    bank = open_raw((str(place / "raw.txt"),), place / "bank", device="cpu")
    how = Growth(task=SIMILARITY, folds=2, **settings)
    return task, PairSources(task, bank, how, place, "cpu")


def test_no_raw_sentence_of_a_labelled_pair_is_drawn(place: Path) -> None:
    rows = graded_pairs(48)
    write_lines(place / "raw.txt", [*salads(60), *(f"{text}." for text in rows["text_a"])])
    _, makes = sources_in(place)
    drawn = makes.sentences(500)
    assert 30 < len(drawn) <= 60
    known = {text.lower().rstrip(".") for text in rows["text_a"]}
    assert not known & {text.lower().rstrip(".") for text in drawn}
    damaged = makes.rows(DENOISED, 30)
    for broken, text in zip(damaged["text_a"][:], damaged["text_b"][:], strict=True):
        assert set(broken.split()) <= set(text.split())
    near = makes.rows(NEAR, 30)
    assert all(a != b for a, b in zip(near["text_a"][:], near["text_b"][:], strict=True))
    graded = makes.rows(DISTILLED, 30)
    assert len(graded) == 30
    assert 0 <= min(graded["label"][:]) < max(graded["label"][:]) <= 1


def test_as_many_short_sentences_are_drawn_as_there_are(place: Path) -> None:
    plain = [text.rstrip(".") for text in salads(60, seed=3)]
    long = [" and ".join([text] * (1 + 300 // len(text))) + "." for text in plain]
    write_lines(place / "raw.txt", [*salads(40), *long])
    _, makes = sources_in(place)
    assert [len(makes.sentences(count)) for count in (1, 30, 500)] == [1, 30, 40]


def test_too_few_sentences_for_pairs_are_refused(place: Path) -> None:
    write_lines(place / "raw.txt", ["A man sleeps in a small boat.", "Nobody knows the long way."])
    _, makes = sources_in(place)
    for source in (NEAR, DISTILLED):
        with pytest.raises(InputError, match="give more raw text"):
            makes.rows(source, 30)


def test_rewrites_and_generated_pairs_are_runs_of_the_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset

    _, makes = sources_in(place, model="m")
    texts = makes.sentences(10)
    rewritten = Dataset.from_dict({"original": texts, "text": [f"{text} So." for text in texts]})
    monkeypatch.setattr(
        "tilth.paraphrase.paraphrase_set.run_paraphrase", lambda *_, **__: rewritten
    )
    makes._rewriter = None  # type: ignore[misc, assignment]
    assert makes.rows(REWRITTEN, 10)["text_a"][:] == texts
    pairs = graded_pairs(40)
    monkeypatch.setattr(PairSources, "_request", lambda *_: None)
    monkeypatch.setattr(
        "tilth.generation.generate.run_generate",
        lambda _, out, **__: write_rows(_made(out) / "pairs.jsonl", pairs),
    )
    found = makes.rows(GENERATED_PAIRS, 10)
    assert set(found["text_a"][:]) == set(pairs["text_a"])


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def test_an_arm_without_labelled_pairs_is_trained_once_for_a_repeat(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, makes = sources_in(place)
    trainer = EncoderTrainer(task, makes, base, dict.fromkeys(STAGES, 20))
    fits: list[str] = []
    monkeypatch.setattr(
        "tilth.workflows.grow.encoder_trainer.fit", lambda _, source, *__: fits.append(source)
    )
    first, second, third, _ = pair_folds(task, 2, 2, seed=0)
    for fold in (first, second, third):
        answers = trainer.answers(Arm(SIMCSE, (SIMCSE,)), fold)
        expected = cosines_of(load_encoder(base, device="cpu"), fold.rows.texts)
        assert answers[:, 0] == pytest.approx(expected)
    assert fits == [SIMCSE, SIMCSE]
    for fold in (first, second):
        trainer.answers(Arm("both", (SIMCSE, PAIRS)), fold)
    assert fits[2:] == [SIMCSE, PAIRS, SIMCSE, PAIRS]


def test_labelled_pairs_teach(place: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.workflows.grow.encoder_trainer._FEWEST_STEPS", 8)
    task, makes = sources_in(place)
    trainer = EncoderTrainer(task, makes, base, dict.fromkeys(STAGES, 20))
    whole = Fold(-1, np.arange(len(task.rows)), np.zeros(0, np.int64), task.rows)
    gold = grades_of(task.rows)

    def score(arm: Arm) -> float:
        encoder, _ = trainer.train(arm, whole, seed=0)
        return spearman(gold, cosines_of(encoder, task.rows.texts))

    assert score(Arm(PAIRS, (PAIRS,))) > score(Arm(AS_IT_IS.format(base)))


def test_more_text_takes_longer(tmp_path: Path) -> None:
    task = task_in(tmp_path)
    few, many = (
        EncoderSpeeds(10.0, 100.0, dict.fromkeys(STAGES, count), 2) for count in (100, 1_000)
    )
    for source in (SIMCSE, DENOISED, NEAR):
        arm = Arm(source, (source,))
        assert many.seconds(arm, task, None) > few.seconds(arm, task, None)
    whole = Arm(SIMCSE, (SIMCSE,))
    assert few.seconds(whole, task, None) == pytest.approx(
        replace(few, shared=1).seconds(whole, task, None) / 2
    )


def test_the_plan_divides_the_budget(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.grow_encoder._MOST", 10_000)
    monkeypatch.setattr("tilth.workflows.grow.grow_encoder._measure", lambda *_: (50.0, 500.0))
    sources = GrowSources(str(place / "train.jsonl"), (str(place / "raw.txt"),))
    plans = [
        growing.plan(
            sources,
            Growth(task=SIMILARITY, base=base, budget=budget, paraphrase=False, folds=2),
            device="cpu",
        )
        for budget in ("5m", "20h")
    ]
    counts = [plan.speeds.counts[SIMCSE] for plan in plans]
    assert 40 <= counts[0] < counts[1] == 10_000
    assert plans[0].seconds <= 300
    assert plans[0].base == base
    assert list(plans[0].speeds.counts) == [DENOISED, SIMCSE, NEAR, DISTILLED]


def test_a_model_writes_as_much_as_a_sixth_of_the_budget_allows(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.grow_encoder._measure", lambda *_: (50.0, 500.0))
    monkeypatch.setattr(PairSources, "measure_rewriting", lambda *_: 1.0)
    sources = GrowSources(str(place / "train.jsonl"), (str(place / "raw.txt"),))
    for budget, count, dropped in (("10h", 1_000, []), ("10m", 100, []), ("4m", 40, [REWRITTEN])):
        settings = Growth(task=SIMILARITY, base=base, budget=budget, folds=2)
        plan = growing.plan(sources, settings, device="cpu")
        assert (plan.speeds.counts[REWRITTEN], plan.dropped) == (count, dropped)
        assert plan.sources == ({} if dropped else {REWRITTEN: float(count)})


def test_a_pair_is_the_same_either_way_round(tmp_path: Path) -> None:
    pairs = graded_pairs(40)
    swapped = {**pairs, "text_a": pairs["text_b"], "text_b": pairs["text_a"]}
    more = graded_pairs(5, seed=3)
    half = {name: [*values[:20], *more[name]] for name, values in swapped.items()}
    test = str(write_rows(tmp_path / "test.jsonl", half))
    train = {name: [*values, *swapped[name]] for name, values in pairs.items()}
    file = str(write_rows(tmp_path / "train.jsonl", train))
    task = read_similarity(GrowSources(file, test=test))
    assert task.test is not None
    assert (len(task.rows), len(task.test)) == (20, 25)
    assert {frozenset(pair) for pair in task.rows.texts}.isdisjoint(
        frozenset(pair) for pair in task.test.texts
    )


Change = Callable[[Path], dict[str, Any]]
BAD: list[tuple[Change, str]] = [
    (lambda _: {"train": None}, "nothing can tell one encoder from another"),
    (lambda at: {"train": None, "raw": (), "validation": str(at / "train.jsonl")},
     "there is nothing to train on"),
    (lambda at: {"labels": str(at / "labels.yaml")}, "--labels belongs to the task class"),
    (lambda _: {"text": "a"}, "no column 'a'"),
    (lambda _: {"count": 7}, "--count belongs to the task class"),
    (lambda _: {"model": "starter", "raw": ()}, "--model writes about raw sentences"),
    (lambda at: {"train": rows_of(at, {"text": ["a"] * 12, "label": [0.1] * 12})},
     "the set holds single texts"),
    (lambda at: {"train": rows_of(at, {"one": ["a"], "two": ["b"]})},
     "which column holds the texts: .*; there are one, two"),
    (lambda at: {"train": rows_of(at, scaled(7.0))}, "labels are 0 to 1 or 0 to 5"),
    (lambda at: {"train": rows_of(at, scaled(-1.0))}, "has label -0.9"),
    (lambda at: {"train": rows_of(at, graded_pairs(6))}, "6 pairs cannot tell one encoder"),
    (lambda at: {"train": rows_of(at, {**graded_pairs(30), "label": [0.5] * 30})},
     "every label of the train part is 0.5"),
    (lambda at: {"test": rows_of(at, graded_pairs(1, seed=3))}, "every label of the test part"),
    (lambda at: {"test": str(at / "train.jsonl")}, "every text of the test set"),
    (lambda at: {"raw": (str(write_lines(at / "one.txt", salads(1))),)}, "raw sentences are left"),
    (lambda at: {"raw": (str(at / "no-such"),)}, "no such file"),
    (lambda _: {"budget": "1s"}, "is too short: the quickest way alone"),
]  # fmt: skip


def rows_of(at: Path, rows: dict[str, Any]) -> str:
    return str(write_rows(at / "other.jsonl", rows))


def scaled(factor: float) -> dict[str, Any]:
    rows = graded_pairs(30)
    return {**rows, "label": [factor * label for label in rows["label"]]}


@pytest.mark.parametrize(("change", "said"), BAD)
def test_wrong_inputs_are_refused(
    place: Path, base: str, change: Change, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.grow_encoder._measure", lambda *_: (5.0, 50.0))
    with pytest.raises(InputError, match=said):
        run_grow(place, base, **change(place))


def test_a_static_base_is_trained_on_pairs_alone(
    place: Path, static: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = run_grow(place, static)
    names = {one["name"] for one in found["arms"]}
    assert {NEAR, PAIRS} <= names
    assert not {SIMCSE, DENOISED} & names
    assert "SimCSE needs dropout" in caplog.text


def test_a_source_that_has_no_pairs_is_left_out(
    place: Path, base: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tilth.workflows.grow.pair_sources._POSITIVE", (0.999, 1.0))
    found = run_grow(place, base)
    assert found["dropped"] == [NEAR]
    assert NEAR not in {one["name"] for one in found["arms"]}
    assert "left out: near duplicates (0 of 40 raw sentences" in caplog.text

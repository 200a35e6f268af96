import pickle
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from tests.tiny import read_json, salads, save_encoder, save_model, write_lines
from tests.tiny.rewriter import fake_scorer
from tests.tiny.writers import writer
from tilth.data import load_folder
from tilth.errors import InputError, TilthError
from tilth.models.lm import Seq2Seq
from tilth.models.scorer import load_scorer
from tilth.paraphrase import make_candidates as trips
from tilth.paraphrase import round_trip as roundtrip
from tilth.paraphrase.paraphrase_set import run_paraphrase
from tilth.paraphrase.round_trip import RoundTripRewriter, round_trip
from tilth.paraphrase.search import BeamSearch, decode
from tilth.paraphrase.settings import CandidateSettings, RewriteSettings
from tilth.runs import RunMismatch

SETTINGS = ["20/3.0 20/3.0", "20/3.0 30/2.0", "30/2.0 20/3.0", "30/2.0 30/2.0"]


def both() -> tuple[Seq2Seq, Seq2Seq]:
    return writer(seed=1, prefix=">>de<< "), writer(seed=2, prefix=">>en<< ")


def test_two_settings_each_way_give_four_candidates_of_two_pivots() -> None:
    found = round_trip(salads(6), *both(), seed=3)
    assert [[one.setting for one in candidates] for candidates in found] == [SETTINGS] * 6
    for first, second, third, fourth in found:
        assert first.pivot == second.pivot
        assert third.pivot == fourth.pivot
    assert found == round_trip(salads(6), *both(), seed=3)
    assert found != round_trip(salads(6), *both(), seed=4)


def test_greedy_is_one_candidate_through_the_likeliest_pivot() -> None:
    texts, (forward, backward) = salads(4), both()
    pivots = [pivot for (pivot,) in decode(forward, texts, BeamSearch(beams=1))]
    backs = [text for (text,) in decode(backward, pivots, BeamSearch(beams=1))]
    found = round_trip(texts, forward, backward, greedy=True)
    assert [[(one.pivot, one.text, one.setting) for one in row] for row in found] == [
        [(pivot, text, "greedy")] for pivot, text in zip(pivots, backs, strict=True)
    ]


def test_equal_pivots_are_translated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def same(seq2seq: Seq2Seq, texts: list[str], _: BeamSearch, **__: Any) -> list[list[str]]:
        asked.append(list(texts))
        return [["pivot"] if seq2seq.prefix == ">>de<< " else ["back"] for _ in texts]

    monkeypatch.setattr(roundtrip, "decode", same)
    round_trip(["a dog", "a cat"], *both())
    assert asked == [["a dog", "a cat"]] * 2 + [["pivot"]] * 2


def test_one_translator_both_ways_is_refused() -> None:
    with pytest.raises(InputError, match="goes one way"):
        round_trip(["a dog"], writer(), writer())


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what `make_candidates` takes, of tiny models on the disk and a scorer in code."""
    for name, seed in (("there", 1), ("back", 2)):
        save_model(tmp_path / name, writer(seed=seed))
    monkeypatch.setattr(trips, "load_scorer", lambda *_, **__: fake_scorer(lambda *_: 80.0))
    return {
        "source": write_lines(tmp_path / "in.txt", [*salads(9), "dog " * 100, salads(1)[0]]),
        "out": tmp_path / "run", "forward": str(tmp_path / "there"),
        "backward": str(tmp_path / "back"), "part_size": 4, "precision": "float32",
    }  # fmt: skip


def made_candidates(
    source: Path, out: Path, *, overwrite: bool = False, **settings: Any
) -> Dataset:
    return trips.make_candidates(source, out, CandidateSettings(**settings), overwrite=overwrite)


def test_rows_say_what_was_measured_and_where_they_come_from(made: dict[str, Any]) -> None:
    rows = made_candidates(**made, seed=5)
    assert set(rows["text_a"]) == set(salads(9))
    assert set(rows["setting"]) <= set(SETTINGS)
    assert set(rows["meaning"]) == {80.0}
    assert rows[0]["origin"].endswith("in.txt:1")
    assert (rows[0]["forward"], rows[0]["seed"]) == (made["forward"], 5)
    pairs = list(zip(rows["text_a"], rows["text_b"], strict=True))
    assert len(set(pairs)) == len(pairs)
    dropped = load_folder(made["out"], config="dropped")
    assert dropped["drop_reason"][:].count("too long") == 1
    results = read_json(made["out"] / "results.json")
    assert results["rows"] == len(rows)
    assert results["good"] == sum(value <= 45 for value in rows["wording"])
    assert results["drops"]["too long"] == 1
    assert "Round trips" in (made["out"] / "dataset" / "README.md").read_text()


def test_sampling_gives_the_top_k_and_temperature(made: dict[str, Any], tmp_path: Path) -> None:
    rows = made_candidates(**made, sampling=((7, 1.5),))
    assert set(rows["setting"]) == {"7/1.5 7/1.5"}
    with pytest.raises(RunMismatch):
        made_candidates(**made)
    with pytest.raises(InputError, match="no settings are given"):
        made_candidates(**{**made, "out": tmp_path / "none"}, sampling=())


def test_parts_that_are_lost_are_made_again_the_same(made: dict[str, Any]) -> None:
    before = made_candidates(**made, beams=3).to_list()
    (made["out"] / "parts" / "part-00001.parquet").unlink()
    assert made_candidates(**made, beams=3).to_list() == before


def test_what_is_sampled_does_not_depend_on_the_parts(made: dict[str, Any], tmp_path: Path) -> None:
    whole = made_candidates(**{**made, "out": tmp_path / "whole", "part_size": 100}).to_list()
    parts = made_candidates(**{**made, "part_size": 2}).to_list()
    # A product of two rows is rounded otherwise than one of many: a draw in a thousand may differ.
    assert sum(row in whole for row in parts) >= 0.8 * max(len(whole), len(parts))


def test_other_settings_on_the_folder_are_refused(made: dict[str, Any]) -> None:
    made_candidates(**made, greedy=True)
    for other in ({"seed": 1}, {"beams": 3}, {"greedy": False}, {"forward_prefix": ">>de<< "}):
        with pytest.raises(RunMismatch):
            made_candidates(**{**made, "greedy": True, **other})
    moved = write_lines(
        made["source"].with_name("moved.txt"), made["source"].read_text().split("\n")
    )
    with pytest.raises(RunMismatch):  # rows name the files of their texts
        made_candidates(**{**made, "source": moved}, greedy=True)
    assert len(made_candidates(**made, greedy=True, seed=1, overwrite=True))


def test_nothing_kept_is_an_error_with_the_reasons(made: dict[str, Any], tmp_path: Path) -> None:
    made["source"] = write_lines(tmp_path / "long.txt", ["dog " * 100])
    with pytest.raises(TilthError, match="0 candidates kept \\(1 too long\\)"):
        made_candidates(**made)


def test_a_set_goes_there_and_back_with_its_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mark(seq2seq: Seq2Seq, texts: list[str], *_: Any, **__: Any) -> list[list[str]]:
        end = "de" if seq2seq.prefix == ">>de<< " else "en"
        return [[f"{text} {end}"] if "unread" not in text else [] for text in texts]

    monkeypatch.setattr(roundtrip, "decode", mark)
    rewriter = RoundTripRewriter(*both(), fake_scorer(lambda one, two: 30.0))
    rows = [
        {"text": "A dog ran. It barked.", "label": "dog"}, {"text": "unread", "label": "none"},
        {"text": "", "label": "empty"},
    ]  # fmt: skip
    with pytest.raises(InputError, match="writes one text for each: leave --number out"):
        RewriteSettings(round_trip=True, n=3)
    with pytest.raises(InputError, match="nothing is asked for or left out: leave --meaning, --ch"):
        RewriteSettings(round_trip=True, meaning=80, tries=3)
    with pytest.raises(InputError, match="translate with --round-trip: give it, too"):
        RewriteSettings(forward="translator")
    settings = RewriteSettings(round_trip=True, originals=True)
    found = run_paraphrase(rows, lambda: rewriter, settings, tmp_path, quiet=True).to_list()  # type: ignore[arg-type]
    assert [(row["rewrite"], row["text"], row["label"]) for row in found] == [
        (0, "A dog ran. It barked.", "dog"),
        (1, "A dog ran. de en It barked. de en", "dog"),
        (0, "unread", "none"),
    ]
    assert found[1]["meaning"] == 30.0  # far below --min-meaning: nothing is left out
    assert (found[1]["asked_meaning"], found[1]["asked_wording"], found[1]["inside"]) == (None,) * 3
    recorded = read_json(tmp_path / "run.json")
    assert recorded["settings"]["round_trip"]
    assert "backward" in recorded["fingerprints"]
    card = (tmp_path / "dataset/README.md").read_text()
    assert "whatever came out" in card


def test_a_text_of_which_a_sentence_is_lost_has_no_rewrite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def some(_: Seq2Seq, texts: list[str], *__: Any, **___: Any) -> list[list[str]]:
        return [[text] if len(text) < 20 and "unread" not in text else [] for text in texts]

    monkeypatch.setattr(roundtrip, "decode", some)
    rewriter = RoundTripRewriter(*both(), fake_scorer(lambda one, two: 30.0))
    texts = ["A dog ran. unread.", f"A dog ran. A{' dog' * 100}.", "A dog ran."]
    found = [one for (one,) in rewriter.rewrites(texts, RewriteSettings(round_trip=True))]
    assert [(one.text, one.problem) for one in found] == [
        ("", "no rewrite found"), ("", "too long"), ("A dog ran.", None),
    ]  # fmt: skip


def test_a_pickled_round_trip_loads_the_models_of_its_names(tmp_path: Path) -> None:
    for name, seed in (("there", 1), ("back", 2)):
        save_model(tmp_path / name, writer(seed=seed))
    there, back = trips.load_translators(
        str(tmp_path / "there"), str(tmp_path / "back"), forward_prefix="a ", backward_prefix="b ",
        device="cpu", precision="float32",
    )  # fmt: skip
    scorer = load_scorer(f"cosine:{save_encoder(tmp_path / 'bert')}", precision="float32")
    made = RoundTripRewriter(there, back, scorer)
    data = pickle.dumps(made)
    found = pickle.loads(data)
    assert found.fingerprints() == made.fingerprints()
    assert (found.seq2seq.prefix, found.backward.prefix) == ("a ", "b ")
    save_model(tmp_path / "back", writer(seed=3))
    with pytest.raises(InputError, match=r"^backward: the weights on host .* are not those of"):
        pickle.loads(data)

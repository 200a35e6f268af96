import random
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import WORDS, read_json
from tests.tiny.calls import stopped
from tilth.data import normalize as plain
from tilth.errors import InputError, TilthError
from tilth.models import scorer as scorers
from tilth.paraphrase.balance import PairPool, distinct, draw_splits, largest_size, quotas
from tilth.paraphrase.candidates import plane_counts
from tilth.paraphrase.corpus import make_corpus
from tilth.paraphrase.settings import CorpusSettings
from tilth.paraphrase.tags import CELLS, UNITS, cell_of
from tilth.paraphrase.train import read_corpus
from tilth.runs import Run, RunMismatch

UNIT = np.array([cell.units for cell in CELLS])


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(6, 10))).capitalize() + "."


def candidates(sources: int, *, each: int = 4, seed: int = 0, **more: Any) -> Dataset:
    """Return pairs whose scores lie anywhere from a little outside the kept region on."""
    rng = random.Random(seed)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("text_a", "text_b", "meaning", "wording", "text_id", "setting")
    }
    for number in range(sources):
        source = sentence(rng)
        for _ in range(each):
            row = (source, sentence(rng), rng.uniform(66, 100), rng.uniform(0, 48))
            for name, value in zip(rows, (*row, f"s{number}", "20/3.0"), strict=True):
                rows[name].append(value)
    return Dataset.from_dict({**rows, **more})


def made(source: Any, out: Path, **options: Any) -> DatasetDict:
    overwrite = options.pop("overwrite", False)
    settings = CorpusSettings(**{"validation": 54, "test": 54, **options})
    return make_corpus(source, out, settings, overwrite=overwrite, quiet=True)


def results(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(run / "results.json")
    return found


def per_tags(rows: Dataset) -> Counter[str]:
    return Counter(rows["tags"])


def texts(rows: Dataset) -> set[str]:
    return {plain.normalize_text(text) for name in ("text_a", "text_b") for text in rows[name]}


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    return candidates(4_000)


def test_cells_are_even_and_low_wording_is_doubled(pairs: Dataset, tmp_path: Path) -> None:
    corpus = made(pairs, tmp_path, size=54 * 20)
    counts = {split: per_tags(rows) for split, rows in corpus.items()}
    for cell in CELLS:
        doubled = 2 if cell.wording == 0 else 1
        assert counts["train"][cell.tags] == 20 * doubled
        assert counts["validation"][cell.tags] == doubled
        assert counts["test"][cell.tags] == doubled
    assert [len(rows) for rows in corpus.values()] == [54 * 20, 54, 54]


def test_tags_are_those_of_the_measured_values(pairs: Dataset, tmp_path: Path) -> None:
    rows = made(pairs, tmp_path, size=540)["train"]
    given = {(row["text_a"], row["text_b"]): row for row in pairs}
    for row in rows:
        cell = cell_of(row["meaning"], row["wording"])
        assert row["tags"] == cell.tags
        source = given[row["text_a"], row["text_b"]]
        assert row["meaning"] == pytest.approx(source["meaning"], abs=1e-4)
        assert row["wording"] == pytest.approx(source["wording"], abs=1e-4)
        assert (row["text_id"], row["setting"]) == (source["text_id"], "20/3.0")
    assert rows.column_names[:5] == ["text_a", "text_b", "meaning", "wording", "tags"]


def test_other_orders_of_rows_give_the_same_corpus(pairs: Dataset, tmp_path: Path) -> None:
    one = made(pairs, tmp_path / "one", size=540)
    two = made(pairs.shuffle(seed=3), tmp_path / "two", size=540)
    other = made(pairs, tmp_path / "other", size=540, seed=1)
    for split, rows in one.items():
        assert rows[:] == two[split][:]
        assert set(rows["text_b"]) != set(other[split]["text_b"])


@settings(max_examples=60, deadline=None)
@given(
    sources=st.integers(1, 60), rewrites=st.integers(1, 60), seed=st.integers(0, 2**20),
    held=st.integers(0, 120), size=st.none() | st.integers(1, 400), rows=st.integers(1, 600),
)  # fmt: skip
def test_no_text_of_one_split_stands_in_another(
    sources: int, rewrites: int, seed: int, held: int, size: int | None, rows: int
) -> None:
    rng = np.random.default_rng(seed)
    pool = distinct(
        PairPool(
            row=np.arange(rows),
            cell=rng.integers(0, rng.integers(1, len(CELLS) + 1), rows).astype(np.int16),
            source=rng.integers(0, sources, rows).astype(np.uint64),
            rewrite=rng.integers(sources // 2, sources // 2 + rewrites, rows).astype(np.uint64),
            order=rng.integers(0, 2**63, rows).astype(np.uint64),
            meaning=np.zeros(rows, np.float32),
            wording=np.zeros(rows, np.float32),
        )
    )
    drawn = draw_splits(pool, CorpusSettings(size=size, validation=held, test=held, seed=seed))
    splits = drawn.splits()
    for name, one in splits.items():
        for other_name, other in splits.items():
            if name != other_name:
                assert not set(one.texts().tolist()) & set(other.texts().tolist())
        assert len(set(one.row.tolist())) == len(one)
    for name in ("validation", "test"):
        assert len(splits[name]) <= min(held, len(pool) / 10)
        assert (splits[name].per_cell() <= pool.per_cell() / 10).all()
    if size is not None:
        assert (drawn.train.per_cell() == np.minimum(quotas(size), drawn.available)).all()


def test_splits_share_no_text_however_it_is_written(tmp_path: Path) -> None:
    rows = candidates(600, seed=5).to_dict()
    rng = random.Random(1)
    for place in range(0, len(rows["text_a"]), 3):  # rewrites that are sources elsewhere
        rows["text_b"][place] = rows["text_a"][rng.randrange(len(rows["text_a"]))].upper() + " "
    corpus = made(Dataset.from_dict(rows), tmp_path)
    found = {split: texts(part) for split, part in corpus.items()}
    assert all(found.values())
    assert not found["train"] & found["validation"]
    assert not found["train"] & found["test"]
    assert not found["validation"] & found["test"]


@given(st.integers(0, 100_000))
def test_quotas_sum_to_the_size_and_are_even(size: int) -> None:
    found = quotas(size)
    assert found.sum() == size
    for units in (1, 2):
        shares = found[units == UNIT]
        assert shares.max() - shares.min() <= 1
        assert abs(shares / units - size / UNITS).max() <= 1
    assert (quotas(2_700) == 50 * UNIT).all()  # as published


def test_the_chosen_size_leaves_a_quarter_of_the_cells_short() -> None:
    available = UNIT * np.arange(10, 10 + len(CELLS))
    assert largest_size(available) == UNITS * 21  # 11 of 48 cells hold fewer than 21 a unit
    assert (available < UNIT * 21).sum() == 11
    assert largest_size(np.where(np.arange(48) < 20, 0, available)) == UNITS * (30 + 6)
    assert largest_size(np.eye(1, 48, dtype=np.int64)[0]) == UNITS
    assert largest_size(np.zeros(48, np.int64)) == 0


def test_the_size_is_chosen_and_said(
    pairs: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made(pairs, tmp_path)
    found = results(tmp_path)
    had = np.array([cell["train"] for cell in found["cells"]])
    wanted = np.array([cell["wanted"] for cell in found["cells"]])
    short = int((had < wanted).sum())
    assert 0 < short <= len(CELLS) // 4
    assert found["size"] % UNITS == 0
    assert f"size was not given: {found['size']:,} pairs" in caplog.text


def test_short_cells_are_taken_whole_and_said_once(
    pairs: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scarce = [n for n, row in enumerate(pairs) if row["meaning"] < 95 or row["wording"] >= 10]
    few = [n for n, row in enumerate(pairs) if row["meaning"] >= 95 and row["wording"] < 10][:7]
    corpus = made(pairs.select([*scarce, *few]), tmp_path, size=54 * 20, validation=0, test=0)
    assert per_tags(corpus["train"])["<SIM95> <BLEU0_5>"] == 7
    assert per_tags(corpus["train"])["<SIM95> <BLEU10>"] == 20
    assert len(corpus["train"]) == 54 * 20 - 33
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("1 of 48 cells hold fewer pairs")
    assert "the worst is <SIM95> <BLEU0_5> with 7 of 40" in said[0]


def test_validation_shrinks_to_a_tenth_and_says_so(
    pairs: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = make_corpus(pairs, tmp_path, CorpusSettings(size=540), quiet=True)
    kept = results(tmp_path)["kept"]
    counts = per_tags(corpus["validation"])
    assert 0.07 * kept < len(corpus["validation"]) <= 0.1 * kept
    assert f"validation has {len(corpus['validation']):,} of 2,700 pairs" in caplog.text
    even = [counts[cell.tags] for cell in CELLS if cell.wording]
    assert max(even) - min(even) <= max(even) // 2


def test_a_corpus_that_cannot_be_trained_on_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_corpus(candidates(9, seed=2), tmp_path, CorpusSettings(size=540), quiet=True)
    assert "no pair is left to validate with" in caplog.text
    with pytest.raises(InputError, match="its loss says when to stop: make the corpus of more"):
        read_corpus(tmp_path)


def test_why_pairs_are_left_out_is_counted(tmp_path: Path) -> None:
    good = candidates(300, seed=2)
    text = good[0]["text_a"]
    more = [
        ("The dog sees the sea", "The dog sees the sea", 99.0, 10.0),  # the same
        ("The dog sees the sea", "the dog, sees the SEA!", 99.0, 10.0),  # but for a comma
        ("The dog sees a sea", "THE DOG SEES A - SEA!", 99.0, 10.0),  # the same without symbols
        ("Only three words", "The dog sees the sea", 99.0, 10.0),
        ("The dog sees the sea", "", 99.0, 10.0),
        (text, "A bird flies on the river", 70.0, 10.0),
        (text, "A bird flies on the river", 90.0, 45.1),
        (text, "A bird flies on the river", float("nan"), 10.0),
        (text, "A bird flies on the river", None, 10.0),
        (text, None, 90.0, 10.0),
        (text, "A bird flies on the river", 90.0, 10.0),
        (text.upper(), "A bird flies on the river", 91.0, 20.0),  # the same pair again
    ]
    rows = {
        name: [row[place] for row in more]
        for place, name in enumerate(("text_a", "text_b", "meaning", "wording"))
    }
    before = tmp_path / "before"
    made(good, before, size=54)
    made([good, Dataset.from_dict(rows)], tmp_path / "run", size=54)
    change = Counter(results(tmp_path / "run")["left_out"])
    change.subtract(results(before)["left_out"])
    assert change == {
        "rewrite same as source": 3, "a text under 4 words": 3, "meaning 70 or less": 1,
        "wording above 45": 1, "no score from 0 to 100": 2, "pair there twice": 1,
    }  # fmt: skip
    assert results(tmp_path / "run")["kept"] == results(before)["kept"] + 1


def test_plane_and_card_count_every_measured_pair(
    pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorers, "load_scorer", lambda *_, **__: pytest.fail("loaded"))
    made(pairs, tmp_path, size=540)
    found = results(tmp_path)
    plane, drawn = np.array(found["plane"]), np.array(found["plane_drawn"])
    assert plane.shape == (20, 20)
    assert plane.sum() == len(pairs)
    expected, _, _ = np.histogram2d(pairs["meaning"], pairs["wording"], 20, [[0, 100]] * 2)
    assert (plane == expected).all()
    assert drawn.sum() == 540
    assert drawn[:14].sum() == 0
    edges = plane_counts(np.array([0, 100, -3], np.float32), np.array([100, 0, 4.9], np.float32))
    assert (edges[0, 19], edges[19, 0], edges[0, 0]) == (1, 1, 1)
    card = (tmp_path / "dataset" / "README.md").read_text()
    assert "`<SIM70> <BLEU0_5>`" in card
    assert "tilth paraphrase corpus" in card
    assert "meaning 70 or less" in card


def test_several_sets_are_one(pairs: Dataset, tmp_path: Path) -> None:
    one = pairs.select(range(8_000)).add_column("pivot", ["x"] * 8_000)
    two = pairs.select(range(8_000, len(pairs)))
    whole = made(pairs, tmp_path / "whole", size=540)
    parts = made([two, one], tmp_path / "parts", size=540)
    for split, rows in whole.items():
        assert rows[:] == parts[split][:]


def test_a_run_is_read_again_and_not_mixed_up(
    pairs: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(pairs, tmp_path, size=540)
    monkeypatch.setattr(
        "tilth.paraphrase.corpus.filter_candidates", lambda *_, **__: pytest.fail("made")
    )
    assert made(pairs, tmp_path, size=540)["train"][:] == first["train"][:]
    with pytest.raises(RunMismatch, match="size is 540 in the folder, 270 asked"):
        made(pairs, tmp_path, size=270)
    with pytest.raises(RunMismatch, match="candidates"):
        made(pairs.select(range(500)), tmp_path, size=540)


@pytest.mark.parametrize("damage", ["results", "empty results", "dataset"])
def test_what_is_damaged_of_a_finished_run_is_made_again(
    pairs: Dataset, tmp_path: Path, damage: str
) -> None:
    first = made(pairs, tmp_path / "run", size=540)["train"][:]
    if damage == "dataset":
        shutil.rmtree(tmp_path / "run" / "dataset")
    else:
        (tmp_path / "run" / "results.json").write_text("{" if damage == "results" else "{}")
    assert made(pairs, tmp_path / "run", size=540)["train"][:] == first
    assert read_json(tmp_path / "run" / "results.json")["kept"]


class LengthScorer:
    """Scores by letters in common; counts what it was asked."""

    name, kind, fingerprint = "letters", "cross-encoder", "f" * 16

    def __init__(self) -> None:
        self.asked = 0

    def scores(self, first: list[str], second: list[str]) -> Any:
        self.asked += len(first)
        alike = [
            len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in zip(first, second, strict=True)
        ]
        return np.float32([60 + 40 * value for value in alike])


@pytest.fixture
def scorer(monkeypatch: pytest.MonkeyPatch) -> LengthScorer:
    found = LengthScorer()
    monkeypatch.setattr(scorers, "load_scorer", lambda *_, **__: found)
    return found


def test_missing_scores_are_measured_and_kept_for_a_resume(
    pairs: Dataset, tmp_path: Path, scorer: LengthScorer
) -> None:
    bare = pairs.select(range(3_000)).select_columns(["text_a", "text_b"])
    whole = made(bare, tmp_path / "whole", part_size=1_000)
    assert scorer.asked >= 2_990  # each different pair once
    for row in whole["train"].select(range(20)):
        alike = [set(row[name].replace(".", "")) for name in ("text_a", "text_b")]
        meaning = 60 + 40 * len(alike[0] & alike[1]) / len(alike[0] | alike[1])
        assert row["meaning"] == pytest.approx(meaning, abs=3)  # full stops count there

    with stopped(Run, "write_part", 2):
        made(bare, tmp_path / "cut", part_size=1_000)
    scorer.asked = 0
    resumed = made(bare, tmp_path / "cut", part_size=1_000)
    assert 0 < scorer.asked <= 1_000
    for split, rows in whole.items():
        assert rows[:] == resumed[split][:]


def test_wording_by_another_metric(pairs: Dataset, tmp_path: Path, scorer: LengthScorer) -> None:
    bare = pairs.select(range(1_000)).select_columns(["text_a", "text_b"])
    found = defaultdict(dict)
    for metric in ("bleu", "chrf"):
        rows = made(bare, tmp_path / metric, metric=metric)["train"]
        for row in rows:
            found[row["text_a"], row["text_b"]][metric] = row["wording"]
    both = [scores for scores in found.values() if len(scores) == 2]
    assert both
    assert all(scores["chrf"] != scores["bleu"] for scores in both)


def test_wrong_sources(pairs: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(InputError, match=r"set 1: no column 'text_b' among text_a, rewrite"):
        made(Dataset.from_dict({"text_a": ["a"], "rewrite": ["b"]}), out)
    with pytest.raises(InputError, match="column 'text_b' holds int64, no text"):
        made(Dataset.from_dict({"text_a": ["a"], "text_b": [3]}), out)
    words = Dataset.from_dict(
        {"text_a": ["a"], "text_b": ["b"], "meaning": ["high"], "wording": ["low"]}
    )
    with pytest.raises(InputError, match="meaning and wording must be numbers from 0 to 100"):
        made(words, out)
    with pytest.raises(InputError, match="give a data set, not its splits"):
        made(DatasetDict({"train": pairs}), out)
    with pytest.raises(InputError, match="no candidates are given"):
        made([], out)
    with pytest.raises(InputError, match="set 1: there are no rows"):
        made(pairs.select([]), out)
    with pytest.raises(InputError, match="no such file or folder"):
        made(str(tmp_path / "absent.jsonl"), out)


def test_nothing_kept_says_which_filter(pairs: Dataset, tmp_path: Path) -> None:
    low = pairs.map(lambda row: {"meaning": row["meaning"] / 100})
    with pytest.raises(TilthError, match=r"none of 16,000 pairs is kept \(16,000 meaning 70 or"):
        made(low, tmp_path / "run")
    with pytest.raises(TilthError, match="these seem to be 0 to 1"):
        made(low, tmp_path / "run")


def test_one_source_alone_cannot_be_split(tmp_path: Path) -> None:
    one = candidates(1, each=400)
    with pytest.raises(TilthError, match="no pair is left to train on"):
        made(one, tmp_path / "run")
    alone = made(one, tmp_path / "all", validation=0, test=0)
    assert len(alone["train"]) > 100


def test_the_source_is_not_overwritten(pairs: Dataset, tmp_path: Path) -> None:
    made(pairs, tmp_path, size=540)
    with pytest.raises(InputError, match="itself: choose another --out"):
        made(str(tmp_path), tmp_path, overwrite=True)

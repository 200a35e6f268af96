"""Whole sets in other words: labels copied, shapes kept, bad rows set aside, runs resumed."""

from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value, load_dataset

from tests.tiny.rewriter import Fake
from tilth.data import text_id
from tilth.errors import InputError, TilthError
from tilth.paraphrase.paraphrase_set import paraphrase_set, run_paraphrase
from tilth.paraphrase.settings import RewriteSettings
from tilth.runs import RunMismatch


def write(text: str, number: int) -> list[str]:
    """Return two rewrites that tell what they are of."""
    return [f"so to say {text.lower()}", f"{number} in other words, {text.lower()}"]


ROWS = [
    {"text": "The soup was cold.", "label": "bad", "id": 7},
    {"text": "  ", "label": "bad", "id": 8},
    {"text": "We loved the view 🌅.", "label": "good", "id": 9},
    {"text": "word " * 5000, "label": "good", "id": 10},
    {"text": None, "label": "good", "id": 11},
]


def unread(text: str, number: int) -> list[str]:
    """Return rewrites of texts that a model can read."""
    return [] if len(text) > 1000 else write(text, number)


def test_labels_and_other_columns_are_copied(fake: Fake) -> None:
    rewriter, _ = fake(unread)
    rows = paraphrase_set(ROWS, rewriter, meaning=95, wording=20, steer=False).to_list()
    assert [(row["label"], row["id"], row["source_row"]) for row in rows] == [
        ("bad", 7, 0),
        ("good", 9, 2),
    ]
    assert rows[0]["text"] == "so to say the soup was cold."
    assert rows[0]["original"] == "The soup was cold."
    assert rows[0]["meaning"] == 96.0
    assert 0 < rows[0]["wording"] < 100
    assert (rows[0]["asked_meaning"], rows[0]["asked_wording"]) == (95.0, 20.0)
    assert (rows[0]["model"], rows[0]["tries"], rows[0]["seed"]) == ("fake", 1, 0)


def test_rows_that_cannot_be_rewritten_stand_in_dropped_with_their_reason(
    fake: Fake, tmp_path: Path
) -> None:
    rewriter, _ = fake(unread)
    run_paraphrase(
        ROWS,
        lambda: rewriter,
        RewriteSettings(wording=5, part_size=2),
        tmp_path / "run",
        quiet=True,
    )
    folder = str(tmp_path / "run" / "dataset")
    dropped = load_dataset(folder, "dropped", split="train")
    assert dict(zip(dropped["id"], dropped["drop_reason"], strict=True)) == {
        8: "no text",
        10: "too long",
        11: "no text",
    }
    kept = load_dataset(folder, split="train")
    assert kept["id"] == [7, 9]
    card = (tmp_path / "run" / "dataset" / "README.md").read_text()
    assert "too long" in card
    assert "asked meaning of 95" in card


def test_pairs_and_triples_are_rewritten_whole_or_in_part(fake: Fake) -> None:
    rewriter, _ = fake(write)
    pairs = [{"premise": "A dog runs.", "hypothesis": "An animal moves.", "label": 0}]
    row = paraphrase_set(pairs, rewriter, steer=False)[0]
    assert row["premise"] == "so to say a dog runs."
    assert row["hypothesis"] == "so to say an animal moves."
    assert row["original_premise"] == "A dog runs."
    assert row["wording_hypothesis"] > 0
    row = paraphrase_set(pairs, rewriter, columns=["premise"], steer=False)[0]
    assert (row["premise"], row["hypothesis"]) == ("so to say a dog runs.", "An animal moves.")
    assert row["original"] == "A dog runs."
    triples = [{"anchor": "A dog runs.", "positive": "Dogs run.", "negative": "It snows."}]
    row = paraphrase_set(triples, rewriter, steer=False)[0]
    assert row["negative"] == "so to say it snows."


def test_several_rewrites_and_the_originals(fake: Fake) -> None:
    rewriter, _ = fake(write)
    rows = paraphrase_set(ROWS[:1], rewriter, n=2, originals=True).to_list()
    assert [row["rewrite"] for row in rows] == [0, 1, 2]
    assert rows[0]["text"] == "The soup was cold."
    assert rows[0]["meaning"] is None
    assert len({row["text"] for row in rows}) == 3
    assert {row["label"] for row in rows} == {"bad"}


def test_fewer_rewrites_than_asked_for_are_said(fake: Fake, tmp_path: Path) -> None:
    rewriter, _ = fake(write)
    rows = paraphrase_set(ROWS[:1], rewriter, n=4, out=tmp_path / "run")
    assert len(rows) == 2
    dropped = load_dataset(str(tmp_path / "run" / "dataset"), "dropped", split="train")
    assert dropped["drop_reason"] == ["fewer rewrites than asked for"] * 2


def test_class_labels_keep_their_names(fake: Fake, tmp_path: Path) -> None:
    rewriter, _ = fake(write)
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    source = Dataset.from_dict({"text": ["It is so."], "label": [1]}, features=features)
    rows = paraphrase_set(source, rewriter, out=tmp_path / "run")
    loaded = load_dataset(str(tmp_path / "run" / "dataset"), split="train")
    assert loaded.features["label"].names == ["no", "yes"]
    assert rows["label"] == [1]
    assert "| train | yes | 1 |" in (tmp_path / "run" / "dataset" / "README.md").read_text()


def test_what_was_rewritten_can_be_rewritten_again(fake: Fake) -> None:
    rewriter, _ = fake(write)
    once = paraphrase_set([{"text": "It is so.", "model": "gpt2"}], rewriter)
    twice = paraphrase_set(once, rewriter)
    assert once["model"] == ["fake"]
    assert once["before_model"] == ["gpt2"]
    assert twice["before_original"] == ["It is so."]
    thrice = paraphrase_set(twice, rewriter)
    assert thrice["before_before_original"] == ["It is so."]
    assert thrice["before_original"] == twice["original"]
    assert twice["original"] == once["text"]


def test_rewrites_of_rewrites_keep_the_source_of_the_first(fake: Fake) -> None:
    rewriter, _ = fake(write)
    once = paraphrase_set([{"text": "It is so."}, {"text": "It rains."}], rewriter, originals=True)
    twice = paraphrase_set(once, rewriter, originals=True)
    sources = dict(zip(once["text"], once["source_id"], strict=True))
    assert len(set(sources.values())) == 2
    assert twice["source_id"] == [sources[text] for text in twice["original"]]
    given = [{"text": "It is so.", "source_id": "a"}, {"text": "It rains.", "source_id": None}]
    assert paraphrase_set(given, rewriter)["source_id"][:] == ["a", text_id("It rains.")]
    given = [{"text": "It is so.", "source_id": 7}, {"text": "It rains.", "source_id": 7}]
    assert paraphrase_set(given, rewriter)["source_id"][:] == ["7", "7"]


def test_originals_stay_as_they_were(fake: Fake, tmp_path: Path) -> None:
    rewriter, _ = fake(write)
    rows = paraphrase_set([{"text": "It is\r\n so. "}], rewriter, originals=True)
    assert rows["original"][:] == ["It is\r\n so. "] * 2
    assert rows["text"][0] == "It is\r\n so. "
    rewriter, _ = fake(lambda _, __: [])
    with pytest.raises(TilthError, match="0 rows rewritten"):
        paraphrase_set(ROWS[:1], rewriter, originals=True, out=tmp_path / "run")


def test_an_interrupted_run_goes_on_and_gives_the_same_rows(fake: Fake, tmp_path: Path) -> None:
    rows = [{"text": f"Number {n} is odd.", "label": n % 2} for n in range(7)]
    rewriter, outputs = fake(write)
    asked = RewriteSettings(part_size=3)
    whole = run_paraphrase(rows, lambda: rewriter, asked, tmp_path / "whole", quiet=True)

    def stop(text: str, number: int) -> list[str]:
        if "5" in text:
            raise KeyboardInterrupt
        return write(text, number)

    outputs.write = stop
    with pytest.raises(KeyboardInterrupt):
        run_paraphrase(rows, lambda: rewriter, asked, tmp_path / "run", quiet=True)
    outputs.write = write
    outputs.calls.clear()
    again = run_paraphrase(rows, lambda: rewriter, asked, tmp_path / "run", quiet=True)
    assert again.to_list() == whole.to_list()
    assert "Number 1 is odd." not in [text for call in outputs.calls for text in call[1]]


def test_other_settings_on_the_same_folder_are_refused(fake: Fake, tmp_path: Path) -> None:
    rewriter, _ = fake(write)
    paraphrase_set(ROWS[:1], rewriter, out=tmp_path / "run")
    with pytest.raises(RunMismatch, match="wording"):
        run_paraphrase(
            ROWS[:1], lambda: pytest.fail("loaded"), RewriteSettings(wording=40), tmp_path / "run"
        )
    rows = paraphrase_set(ROWS[:1], rewriter, out=tmp_path / "run", wording=40, overwrite=True)
    assert rows[0]["asked_wording"] == 40.0


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"text": "Hi."}], {"columns": ["txt"]}, "no column 'txt': there are text"),
        ([{"a": "Hi.", "b": "Ho."}], {}, "which column holds the texts"),
        ([{"text": 4}], {}, "holds int64"),
        ([{"original": "Hi."}], {"columns": ["original"]}, "'original' is in the way"),
        ([{"tokens": ["Hi"], "tags": ["O"]}], {}, "holds tokens"),
        ([{"text": "Hi."}], {"columns": ["text", "text"]}, "named twice"),
        ([{"text": "Hi."}], {"min_meaning": -1}, "min_meaning is -1"),
        ([{"text": "Hi."}], {"wording": 70}, "wording is 70"),
    ],
)
def test_what_is_wrong_is_said_before_work_begins(
    fake: Fake,
    tmp_path: Path,
    rows: list[dict[str, Any]],
    options: dict[str, Any],
    message: str,
) -> None:
    rewriter, outputs = fake(write)
    with pytest.raises(InputError, match=message):
        paraphrase_set(rows, rewriter, out=tmp_path / "run", **options)
    assert not outputs.calls
    assert not (tmp_path / "run").exists()


def test_nothing_rewritten_is_an_error_that_counts_the_reasons(fake: Fake, tmp_path: Path) -> None:
    rewriter, _ = fake(lambda _, __: [])
    with pytest.raises(TilthError, match="0 rows rewritten of 1 \\(1 too long\\)"):
        paraphrase_set(ROWS[:1], rewriter, out=tmp_path / "run")


def test_how_an_original_fits_its_label_is_not_said_of_its_rewrite(
    fake: Fake, tmp_path: Path
) -> None:
    rewriter, _ = fake(write)
    rows = [{**row, "label_fit": 0.5, "similarity": 0.25} for row in ROWS[:1]]
    made = paraphrase_set(rows, rewriter, out=tmp_path / "run")
    assert not {"label_fit", "similarity"} & set(made.column_names)
    assert (made[0]["before_label_fit"], made[0]["before_similarity"]) == (0.5, 0.25)

import shutil
from pathlib import Path

import pytest

from tests.recipes.running import measured, put_scale, run
from tests.tiny import read_json, salads, write_lines, write_rows
from tilth.bank import build
from tilth.data.normalize import normalize_text
from tilth.errors import InputError
from tilth.recipes import sentaugment_table9
from tilth.recipes.catalog import RECIPES
from tilth.recipes.sentaugment import SentAugmentScale
from tilth.recipes.table import Listing, Neighbour, to_markdown

NAME = "sentaugment-table9"
TEXTS = salads(160, seed=4)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a data folder of the expected layout; its test sets lie in the bank as well."""
    folder = tmp_path / "data"
    for name in ("bank", "classify/notes"):
        (folder / name).mkdir(parents=True)
    write_lines(folder / "bank" / "a.txt", TEXTS[:80])
    write_lines(folder / "bank" / "b.txt", TEXTS[80:])
    labels = "abcdefgh"
    for split, texts in (("train", TEXTS[:40]), ("test", TEXTS[40:60])):
        rows = [{"text": text, "label": labels[n % 8]} for n, text in enumerate(texts)]
        write_rows(folder / f"classify/moods/{split}.jsonl", rows)
    (folder / "classify/notes/README.txt").write_text("Not a set.\n")
    rows = [
        {"tokens": text.split(), "tags": ["B-ONE"] + ["O"] * (len(text.split()) - 1)}
        for text in TEXTS[60:80]
    ]
    write_rows(folder / "ner/names/train.jsonl", rows)
    return folder


@pytest.fixture
def tiny(static: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a tiny encoder, and queries that it knows, in place of the starter's."""
    scale = SentAugmentScale(encoder=static, departures=("a tiny encoder",))
    put_scale(monkeypatch, scale, NAME)
    queries = {"animals": "The dog sees a bird.", "own": TEXTS[0]}
    monkeypatch.setattr(sentaugment_table9, "SENTENCES", queries)


@pytest.mark.usefixtures("tiny")
def test_neighbours_stand_beside_the_published_ones(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    table, folder = run(NAME, data, tmp_path / "out", say=said.append)
    assert said == ["bank", "search"]
    ours = measured(table)
    found: dict[str, list[Neighbour]] = {}
    for row in ours:
        found.setdefault(row.query, []).append(row)
    assert list(found) == [
        "The dog sees a bird.",
        TEXTS[0],
        *(f"average of label '{label}' of moods" for label in "abcdef"),
        "average of entity type 'ONE' of names",
    ]
    for rows in found.values():
        assert [row.rank for row in rows] == [1, 2, 3]
        similarity = [row.similarity or 0 for row in rows]
        assert similarity == sorted(similarity, reverse=True)
    assert TEXTS[0] not in [row.text for row in found[TEXTS[0]]]
    of_moods = {row.text for row in ours if row.domain == "moods"}
    assert of_moods
    assert not {normalize_text(text) for text in of_moods} & {normalize_text(t) for t in TEXTS[:60]}
    assert not {row.text for row in ours if row.domain == "names"} & set(TEXTS[60:80])
    assert [row.domain for row in table.rows if row.published] == [
        "BioNLP", "financial", "movie review", "product review", "question type"
    ]  # fmt: skip
    notes = "\n".join(table.notes)
    for words in (
        "160 sentences of 2 sources",
        "moods: its 6 largest of 8 labels",
        "Left out for names: no test set",
        "a tiny encoder",
    ):
        assert words in notes

    results = read_json(folder / "results.json")
    assert results["rows"][0]["query"] == "The dog sees a bird."
    assert "financial (published)" in (folder / "results.md").read_text()
    assert not (folder / "report.html").exists()
    with monkeypatch.context() as patch:
        patch.setattr(build, "_extend", lambda *_, **__: pytest.fail("built again"))
        again, _ = run(NAME, data, tmp_path / "out")
    assert again == table


@pytest.mark.usefixtures("tiny")
def test_a_bank_is_needed_and_labelled_sets_are_not(data: Path, tmp_path: Path) -> None:
    shutil.rmtree(data / "classify")
    shutil.rmtree(data / "ner")
    table, _ = run(NAME, data, tmp_path / "out")
    assert len(measured(table)) == 6
    assert "has neither classify/ nor ner/" in "\n".join(table.notes)
    shutil.rmtree(data / "bank")
    with pytest.raises(InputError, match="put raw text there"):
        run(NAME, data, tmp_path / "out")


def test_pipes_do_not_break_the_markdown() -> None:
    rows = [Neighbour("d", "q | r", 1, "a|b", 0.5), Neighbour("d", "q | r", 2, "c", 0.25)]
    text = to_markdown(Listing("T", rows, ["n"]))
    assert "| d | q \\| r | a\\|b | 0.50 |" in text
    assert "|  |  | c | 0.25 |" in text


def test_facts_leave_out_what_a_recipe_does_not_use() -> None:
    facts = dict(RECIPES[NAME].scales["starter"].facts())
    assert facts == {"encoder of the bank": "starter-static"}
    assert "encoder of the bank" not in dict(RECIPES["dino-table1"].scales["starter"].facts())

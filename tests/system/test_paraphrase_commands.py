"""`tilth paraphrase` from raw sentences to a rewriter, on the starter models."""

import json
from pathlib import Path

import pytest
from datasets import load_dataset

from tests.system.commands import error_of, tilth
from tests.tiny import save_encoder, write_rows
from tilth.data import load_folder
from tilth.models.names import starter_path

SENTENCES = [
    "The old bridge over the river is closed until Monday.",
    "Our neighbours bought a small boat last summer.",
    "She could not find her keys this morning.",
    "The museum opens at nine and closes at five.",
    "He forgot to tell us about the meeting.",
    "Two children were playing with a red ball in the garden.",
    "The soup was cold, and nobody came to take it back.",
    "I have never seen so many birds in one place.",
]
WORDS = (
    "today", "again", "somewhere", "once more", "of course", "by chance", "at last", "right now",
    "for once", "it seems",
)  # fmt: skip


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reviews.jsonl"
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(SENTENCES)]
    rows += [{"text": "", "label": 0}, {"text": "word " * 5000, "label": 1}]
    rows += [{"text": "🎉🎉 ¡Qué día! 今日は", "label": 1}]
    write_rows(path, rows)
    return path


def test_a_labelled_file_is_rewritten_and_measured(reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = tilth(
        "paraphrase", reviews, "--column", "text", "--min-meaning", 50, "--polarity", "-o", out
    )
    assert "meaning" in said.stdout
    assert str(out / "dataset") in said.stderr + said.stdout
    rows = load_dataset(str(out / "dataset"), split="train")
    assert len(rows) >= len(SENTENCES)
    for row in rows:
        if row["source_row"] >= len(SENTENCES):
            continue
        assert row["original"] == SENTENCES[row["source_row"]]
        assert row["label"] == row["source_row"] % 2
        assert row["text"] != row["original"]
        assert 0 <= row["meaning"] <= 100
        assert 0 <= row["wording"] < 100
    assert sum(rows["meaning"][: len(SENTENCES)]) / len(SENTENCES) > 60
    dropped = load_dataset(str(out / "dataset"), "dropped", split="train")
    assert {8, 9} <= set(dropped["source_row"])
    assert "asked" in (out / "report.html").read_text().lower()
    again = tilth(
        "paraphrase", reviews, "--column", "text", "--min-meaning", 50, "-o", out, "--json"
    )  # the same settings, nothing left to do
    assert json.loads(again.stdout)


def test_from_sentences_to_a_rewriter(tmp_path: Path) -> None:
    source = tmp_path / "sentences.txt"
    source.write_text("\n".join(SENTENCES) + "\n")
    candidates, corpus, model = (tmp_path / name for name in ("candidates", "corpus", "model"))
    said = tilth("paraphrase", "candidates", source, "-o", candidates, "--json")
    counts = json.loads(said.stdout)
    assert counts["rows"] > 2 * len(SENTENCES)
    greedy = tilth("paraphrase", "candidates", source, "-o", tmp_path / "plain", "--greedy")
    assert "mean wording" in greedy.stdout

    # Too few to learn from, so the pairs come again with an added word.
    pairs = [
        {**row, "text_a": f"{row['text_a'][:-1]} {word}.", "meaning": 71 + number, "wording": 9.0}
        for row in load_folder(candidates).select_columns(["text_a", "text_b"]).to_list()
        for number, word in enumerate(WORDS)
        if len(row["text_b"].split()) > 3
    ]
    more = tmp_path / "pairs.jsonl"
    write_rows(more, pairs)
    made = tilth("paraphrase", "corpus", candidates, more, "-o", corpus)
    assert "hold fewer pairs" in made.stdout + made.stderr
    assert (corpus / "report.html").exists()
    results = corpus / "results.json"
    kept = results.read_text()
    results.write_text(json.dumps({**json.loads(kept), "notes": None}))
    refused = error_of("paraphrase", "corpus", candidates, more, "-o", corpus, code=1)
    assert "results.json or a part holds what tilth did not write" in refused
    results.write_text(kept)
    train = ["paraphrase", "train", corpus, "-o", model, "--max-epochs", 1, "--batch", 8]
    told = tilth(*train, "--json")
    (model / "results.json").write_text(json.dumps({**json.loads(told.stdout), "best": {}}))
    assert tilth(*train, "--json").stdout == told.stdout
    tilth("paraphrase", source, "-m", model, "-o", tmp_path / "rewritten", "--min-meaning", 0)
    assert load_folder(tmp_path / "rewritten").num_rows


def test_what_is_wrong_is_one_line(reviews: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    encoder = save_encoder(tmp_path / "bert")
    for arguments, message in (
        (["--column", "txt"], "no column 'txt'"),
        (["--tries", 3], "--tries counts with --check only"),
        (["--model", starter_path("lm")], "no encoder-decoder"),
        (["--model", encoder], "no encoder-decoder"),
        (["--scorer", encoder], "scorer"),
    ):
        said = tilth("paraphrase", reviews, *arguments, "-o", out, code=2)
        assert message in said.stderr
        assert len(said.stderr.strip().splitlines()) == 1, said.stderr
    assert not out.exists()


def test_help_names_the_commands_and_a_file_has_its_own() -> None:
    shown = tilth("paraphrase", "--help").stdout
    assert all(name in shown for name in ("rewrite", "candidates", "corpus", "train"))
    assert "--meaning" in tilth("paraphrase", "data.jsonl", "--help").stdout

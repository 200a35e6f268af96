"""`tilth bank`, what it prints, what it refuses, what its options do."""

import inspect
import json
import re
import shutil
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict, load_dataset

from tests.system.commands import error_of, imported_by, tilth
from tests.tiny import WORDS, read_json, salads, write_lines, write_rows, write_vectors
from tilth.bank import Bank
from tilth.bank.settings import BankSettings, IndexSettings
from tilth.cli import bank_search
from tilth.cli.options import Common
from tilth.errors import InputError
from tilth.runs import Run
from tilth.runs.cluster import Cluster
from tilth.workflows.open_bank import build_named
from tilth.workflows.settings import QuerySource, SearchSettings

TEXTS = salads(200)
TRAIN = [
    {"text": "the dog runs and the cat sleeps", "label": "animals"},
    {"text": "a bird flies near the dog", "label": "animals"},
    {"text": "the boat on the river in the rain", "label": "water"},
    {"text": TEXTS[3], "label": "water"},
]


@pytest.fixture(scope="module")
def bank(static: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a bank of two sources in one folder."""
    raw = tmp_path_factory.mktemp("raw")
    write_lines(raw / "one.txt", TEXTS[:150])
    write_lines(raw / "two.txt", [*TEXTS[150:], "On a.", TEXTS[0], "<b>The dog</b> runs fast."])
    out = tmp_path_factory.mktemp("bank") / "bank"
    Bank.build(out, raw, encoder=static, workers=1, quiet=True)
    return out


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("task") / "train.jsonl", TRAIN)


def test_a_search_with_a_static_encoder_imports_no_torch(bank: Path) -> None:
    tilth("bank", "search", bank, TEXTS[5])  # may have to compile
    imported = imported_by("bank", "search", bank, TEXTS[5])
    assert "tilth.bank.search.exact" in imported
    assert not imported & {
        "numba", "scipy", "torch", "transformers", "sentence_transformers", "sklearn", "datasets",
        "pandas",
    }  # fmt: skip


def hits(*arguments: object) -> list[dict[str, Any]]:
    """Return the hits of the only query."""
    (query,) = json.loads(tilth("bank", "search", *arguments, "--json").stdout)["queries"]
    found: list[dict[str, Any]] = query["hits"]
    return found


def test_defaults_are_those_of_the_functions() -> None:
    names = ("format", "split", "seed", "shard_megabytes", "workers", "near")
    searched = ("min_similarity", "oversample", "near", "own")
    for function, settings, some in (
        (Bank.build, BankSettings(), names), (Bank.search, SearchSettings(), searched),
        (Bank.make_index, IndexSettings(), [one.name for one in fields(IndexSettings)]),
    ):  # fmt: skip
        defaults = inspect.signature(function).parameters
        for name in some:
            assert getattr(settings, name) == defaults[name].default


def test_build_says_what_was_kept_and_dropped(static: str, tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.txt", [*TEXTS[:30], "On a.", TEXTS[0], "Der Hund und ich."])
    asked = ["bank", "build", raw, "-o", tmp_path / "bank", "-e", static, "--workers", 1, "-q"]
    said = tilth(*asked)
    assert "this run" in said.stdout  # too short to say a rate
    for reason in ("too short", "exact duplicate", "another language"):
        assert f"dropped: {reason}" in said.stdout
    assert "next: tilth bank search" in said.stderr
    again = tilth(*asked, "--json")
    assert "nothing to do" in again.stderr
    found = json.loads(again.stdout)
    assert found["sentences"] == 30
    assert found["dropped"] == {"another language": 1, "exact duplicate": 1, "too short": 1}
    assert found["sources"] == {str(raw): 30}
    assert "seconds" not in found
    line = error_of(*asked, "--min-words", 4)
    assert "rules is" in line
    assert "--overwrite" in line
    tilth(*asked, "--min-words", 4, "--overwrite")


def test_build_says_which_sources_and_languages_are_left_out(static: str, tmp_path: Path) -> None:
    english = write_lines(tmp_path / "en.txt", TEXTS[:30])
    german = write_lines(tmp_path / "de.txt", ["Der Hund und ich."] * 4)
    asked = ["bank", "build", "-o", tmp_path / "bank", "-e", static, "--workers", 1, "-q"]
    said = tilth(*asked, english, german).stderr
    assert f"no sentence is kept of {german}" in said
    assert f"no sentence is kept of {english}" not in said
    assert "4 sentences are of another language than en: --language" in said
    assert "another language than" not in tilth(*asked, english, "--overwrite").stderr


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([], 4),
        (["--min-chars", "20"], 3),
        (["--max-chars", "50"], 3),
        (["--min-words", "6"], 3),
        (["--keep-markup"], 5),
        (["--language", "none"], 6),
        (["--min-letters", "1"], 2),
        (["--max-symbols", "0"], 3),
        (["--no-near"], 5),
    ],
)
def test_every_rule_is_an_option(
    static: str, tmp_path: Path, options: list[str], kept: int
) -> None:
    long = "The old man sees a big red boat on the river and the small dog sees a bird near the sea"
    raw = write_lines(
        tmp_path / "raw.txt",
        [
            "A dog sleeps",
            "The woman reads in the boat near the river @ ^",
            f"{long}.",
            f"{long} now.",
            "The small bird sings and flies near the sun",
            "Der Hund und die Katze schlafen nicht am River",
            "Die Frau liest ein Buch und der Mann sings",
            "The <b>dog</b> runs fast under the green sun",
        ],
    )
    out = tmp_path / "bank"
    asked = ["bank", "build", raw, "-o", out, "-e", static, "--workers", 1, "-q", "--json"]
    found = json.loads(tilth(*asked, *options).stdout)
    assert found["sentences"] == kept, found["dropped"]


def test_format_column_split_seed_and_shards_reach_the_bank(static: str, tmp_path: Path) -> None:
    rows = [{"id": str(n), "body": text} for n, text in enumerate(TEXTS)]
    raw = write_rows(tmp_path / "raw.jsonl", rows)
    out = tmp_path / "bank"
    asked = ["bank", "build", raw, "-o", out, "-e", static, "--workers", 1, "-q"]
    assert "which column" in error_of(*asked)
    assert "format 'int4' is unknown" in error_of(*asked, "--column", "body", "--format", "int4")
    tilth(
        *asked, "--column", "body", "--format", "compact", "--seed", 3, "--shard-megabytes", 1,
        "--overwrite",
    )  # fmt: skip
    settings = read_json(out / "run.json")["settings"]
    assert settings["seed"] == 3
    assert settings["shard_megabytes"] == 1
    assert Bank.open(out).manifest.format == "compact"


def test_add_keeps_what_is_new(static: str, tmp_path: Path) -> None:
    out = tmp_path / "bank"
    Bank.build(
        out, write_lines(tmp_path / "a.txt", TEXTS[:50]), encoder=static, workers=1,
        quiet=True,
    )  # fmt: skip
    more = write_rows(tmp_path / "b.jsonl", [{"n": "1", "body": text} for text in TEXTS[40:70]])
    said = tilth("bank", "add", out, more, "--column", "body", "--workers", 1, "-q", "--json")
    assert json.loads(said.stdout)["sentences"] == 70
    assert "20 sentences were added" in said.stderr
    info = json.loads(tilth("bank", "info", out, "--json").stdout)
    assert info["additions"] == 1
    assert list(info["sources"].values()) == [50, 20]
    other = ["--column", "body", "--encoder", tmp_path / "none", "-q"]
    assert "no model folder" in error_of("bank", "add", out, more, *other)


def test_info_is_read_by_people_and_programs(bank: Path, static: str) -> None:
    found = json.loads(tilth("bank", "info", bank, "--json").stdout)
    assert found["sentences"] == 200
    assert sum(found["sources"].values()) == 200
    assert found["encoder"] == static
    kinds = dict(found["bytes"])
    assert kinds.pop("all") == sum(kinds.values())
    assert found["dropped"] == {"exact duplicate": 1, "markup": 1, "too short": 1}
    shown = tilth("bank", "info", bank).stdout
    for word in ("200", "int8", "codes.npy", "two.txt", "min_chars", "pyarrow"):
        assert word in shown


def test_check_names_every_damaged_file(bank: Path, tmp_path: Path) -> None:
    assert "all as they were written" in tilth("bank", "check", bank).stdout
    copy = tmp_path / "copy"
    shutil.copytree(bank, copy)
    codes, text = (next(copy.rglob(name)) for name in ("codes.npy", "text.arrow"))
    data = bytearray(codes.read_bytes())
    data[-1] ^= 1
    codes.write_bytes(bytes(data))
    text.unlink()
    said = tilth("bank", "check", copy, code=1)
    assert {line.split(":")[0] for line in said.stdout.splitlines()} == {str(codes), str(text)}
    assert "2 of" in error_of("bank", "check", copy, code=1)
    damaged = json.loads(tilth("bank", "check", copy, "--json", code=1).stdout)["damaged"]
    assert len(damaged) == 2
    assert str(text) in error_of("bank", "search", copy, "the dog", code=1)


def test_hits_go_through_pipes_line_by_line(bank: Path) -> None:
    done = tilth("bank", "search", bank, TEXTS[7], "a\tbig dog", "-k", 3)
    assert done.stderr == ""
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0] == ["query", "rank", "similarity", "id", "text", "source"]
    assert len(rows) == 7
    assert [row[1] for row in rows[1:]] == ["1", "2", "3"] * 2
    assert rows[1][4] == TEXTS[7]
    assert rows[1][5].endswith("one.txt")
    assert rows[4][0] == "a big dog"


def test_hits_are_shown_on_a_terminal(
    bank: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    monkeypatch.setattr(bank_search, "_SHOWN_QUERIES", 1)
    monkeypatch.setattr(bank_search.sys.stdout, "isatty", lambda: True)

    def search(bank: Path, *texts: str, **given: Any) -> None:
        asked = QuerySource(texts), SearchSettings(**given)
        bank_search.search(bank, *asked, common=Common(), cluster=Cluster())

    search(bank, "[dog]", "cat", k=15)
    said = capsys.readouterr()
    assert "[dog]" in said.out
    shown = re.sub(r"\x1b\[[0-9;]*m", "", said.out)
    assert [line for line in shown.splitlines() if len(line) > 90] == []
    assert "5 more: a pipe" in said.err
    assert "1 more queries" in said.err
    search(bank, "dog", min_similarity=1.0)
    assert "no sentence is near enough" in capsys.readouterr().out


def test_queries_come_from_files_too(bank: Path, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "q.jsonl", [{"id": "1", "body": TEXTS[5]}])
    (hit,) = hits(bank, "--queries", rows, "--column", "body", "-k", 1)
    assert hit["text"] == TEXTS[5]
    assert "which column" in error_of("bank", "search", bank, "--queries", rows)
    empty = write_lines(tmp_path / "empty.txt", [])
    assert "holds no text" in error_of("bank", "search", bank, "--queries", empty)


def test_a_task_asks_in_four_ways(bank: Path, train: Path, tmp_path: Path) -> None:
    def names(*options: object) -> list[str]:
        said = tilth("bank", "search", bank, "--task", train, *options, "-k", 2, "--json")
        found = json.loads(said.stdout)["queries"]
        return [query["query"] for query in found]

    assert names() == ["animals", "water"]
    assert names("--kind", "all-average") == ["all"]
    assert len(names("--kind", "per-sentence")) == 4
    assert len(names("--kind", "clusters", "--clusters", 2)) == 4
    assert len(names("--kind", "clusters", "--clusters", 1)) == 2
    other = [{"a": row["text"], "b": "the sun", "c": row["label"]} for row in TRAIN]
    pairs = write_rows(tmp_path / "pairs.jsonl", other)
    asked = ["bank", "search", bank, "--task", pairs, "--text", "a,b", "--label", "c", "--json"]
    assert len(json.loads(tilth(*asked).stdout)["queries"]) == 2


def test_filters_leave_hits_out_and_say_so(bank: Path, train: Path, tmp_path: Path) -> None:
    text = TEXTS[9]
    assert hits(bank, text, "-k", 1)[0]["text"] == text
    assert text not in [hit["text"] for hit in hits(bank, text, "--no-own")]
    least = hits(bank, text)[4]["similarity"]
    near = hits(bank, text, "--min-similarity", least - 1e-4)
    assert len(near) == 5
    two = hits(bank, text, "--source", "*two.txt")
    assert {Path(hit["source"]).name for hit in two} == {"two.txt"}
    nearly = f"{TEXTS[10]} {TEXTS[11]}".lower()
    test = write_rows(
        tmp_path / "test.jsonl", [{"text_a": text.upper(), "text_b": nearly, "label": "x"}]
    )
    said = tilth("bank", "search", bank, text, "--without", test, "--json")
    found = json.loads(said.stdout)
    assert found["removed"] == {f"{test}, exact": 1, f"{test}, near": 0}
    assert f"left out, {test}, exact: 1" in said.stderr
    said = tilth("bank", "search", bank, text, "--without", test, "--no-near", "--json")
    assert list(json.loads(said.stdout)["removed"]) == [f"{test}, exact"]
    tokens = write_rows(
        tmp_path / "ner.jsonl", [{"tokens": text.split(), "tags": ["O"] * len(text.split())}]
    )
    both = hits(bank, text, "--without", tokens, "--without", test)
    assert text not in [hit["text"] for hit in both]
    splits = {"train": TEXTS[50:52], "test": [text]}
    DatasetDict({
        name: Dataset.from_dict({"text": some}) for name, some in splits.items()
    }).save_to_disk(tmp_path / "splits")  # fmt: skip
    left = hits(bank, text, "--without", tmp_path / "splits")
    assert text not in [hit["text"] for hit in left]
    rows = [{"title": "A", "body": one, "queue": "x"} for one in (text, TEXTS[51])]
    named = write_rows(tmp_path / "named.jsonl", rows[1:]), "--text", "body", "--label", "queue"
    held = write_rows(tmp_path / "held.jsonl", rows[:1])
    for without in (held, test):  # the latter has no such column
        left = hits(bank, "--task", *named, "--without", without)
        assert text not in [hit["text"] for hit in left]


def test_default_k_fits_a_small_bank(static: str, tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.txt", TEXTS[:4])
    Bank.build(tmp_path / "bank", raw, encoder=static, workers=1, quiet=True)
    assert len(hits(tmp_path / "bank", "the dog")) == 4


def test_a_run_holds_all_hits_and_is_made_once(
    bank: Path, train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    test = write_rows(tmp_path / "test.jsonl", [{"text": TEXTS[0], "label": "x"}])
    asked = [
        "bank", "search", bank, "--task", train, "--without", test, "-k", 150, "--no-own", "-o", out
    ]  # fmt: skip
    said = tilth(*asked)
    assert "animals" in said.stdout
    assert f"left out, {test}, exact: 1" in said.stderr
    rows = load_dataset(str(out / "dataset"), split="train")
    assert rows.column_names == [
        "query", "label", "rank", "similarity", "id", "text", "source", "document"
    ]  # fmt: skip
    assert len(rows) == 300
    for label in ("animals", "water"):
        some = rows.filter(lambda row, label=label: row["label"] == label)
        assert some["rank"][:] == list(range(1, 151))
        assert np.all(np.diff(some["similarity"][:]) <= 0)
    assert TEXTS[0] not in rows["text"][:]
    assert TEXTS[3] not in rows["text"][:]
    card = (out / "dataset" / "README.md").read_text()
    assert "synthetic" not in card
    assert "Texts: found in a bank" in card
    assert "the queries' own texts, exact" in card
    with monkeypatch.context() as patch:
        patch.setattr(Bank, "search", lambda *_, **__: pytest.fail("searched again"))
        again = tilth(*asked, "--json")
    assert [query["hits"] for query in json.loads(again.stdout)["queries"]] == [150, 150]
    with monkeypatch.context() as patch:
        patch.chdir(bank.parent)
        tilth("bank", "search", bank.name, *asked[3:])  # the same bank by another path
    (results,) = out.glob("results.json")
    kept = results.read_bytes()
    for gone in ("dataset", "results.json"):
        shutil.rmtree(out / gone) if (out / gone).is_dir() else (out / gone).write_text("{}")
        tilth(*asked)
        assert results.read_bytes() == kept
        assert len(load_dataset(str(out / "dataset"), split="train")) == 300
    results.write_text(json.dumps({**json.loads(kept), "removed": []}))
    tilth(*asked)
    assert results.read_bytes() == kept
    assert "--nprobe goes with --index" in error_of(*asked, "--nprobe", 99999, "--overwrite")
    assert "has no index" in error_of(*asked, "--index", "--nprobe", 99999, "--overwrite")
    assert results.read_bytes() == kept
    refused = error_of(*asked, "--no-near")
    assert "near is true in the folder" in refused
    write_rows(train.parent / "train.jsonl", [*TRAIN, {"text": "a cat", "label": "animals"}])
    assert "the queries are not the same" in error_of(*asked)
    write_rows(train.parent / "train.jsonl", TRAIN)
    assert "choose another --out" in error_of(*asked[:-1], bank, "--overwrite")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no query is given"),
        (["the dog", "--task", "TRAIN"], "in several ways"),
        (["xyzzy"], "zero vector"),
        (["the dog", "--source", "three.txt"], "no source 'three.txt'"),
        (["the dog", "--without", "none.jsonl"], "none.jsonl"),
        (["the dog", "--kind", "clusters"], "go with --task"),
        (["the dog", "--column", "x"], "--column goes with --queries"),
        (["--task", "TRAIN", "--text", "body"], "no column 'body'"),
        (["--task", "none.jsonl"], "none.jsonl"),
    ],
)
def test_wrong_searches_are_one_line(
    bank: Path, train: Path, arguments: list[str], said: str
) -> None:
    words = [train if word == "TRAIN" else word for word in arguments]
    assert said in error_of("bank", "search", bank, *words)


def test_what_is_no_bank_is_said(tmp_path: Path, static: str) -> None:
    for name in ("search", "info", "check", "add"):
        rest = {"search": ["x"], "add": ["x.txt"]}.get(name, [])
        assert "bank.json" in error_of("bank", name, tmp_path / "none", *rest)
    begun = tmp_path / "begun"
    with Run.open(begun, command="bank build", settings={}, fingerprints={}, parts=0):
        pass
    assert "not finished" in error_of("bank", "search", begun, "x")
    raw = write_lines(tmp_path / "raw.txt", TEXTS[:5])
    inside = ["bank", "build", raw, "-o", tmp_path, "-e", static, "--overwrite"]
    assert "choose another --out" in error_of(*inside)
    assert "none.txt" in error_of("bank", "build", tmp_path / "none.txt", "-o", tmp_path / "b")


def test_an_index_is_made_asked_and_checked(static: str, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    out = tmp_path / "bank"
    raw = write_lines(tmp_path / "raw.txt", salads(2_000, seed=5))
    Bank.build(out, raw, encoder=static, workers=1, quiet=True)
    text = Bank.open(out)[11]
    assert "has no index" in error_of("bank", "search", out, text, "--index")
    assert json.loads(tilth("bank", "info", out, "--json").stdout)["index"] is None
    asked = ["--centroids", 16, "--codes", "SQ4", "--pca", 8, "--nprobe", 4, "--seed", 1, "-q"]
    made = json.loads(tilth("bank", "index", out, *asked, "--json").stdout)
    assert made["nprobe"] == 4
    assert "recall of 100" in tilth("bank", "index", out, "--centroids", 16, "-q").stdout
    info = tilth("bank", "info", out, "--json").stdout
    assert json.loads(info)["index"]["sentences"] == 2_000
    assert "IVF16" in tilth("bank", "info", out).stdout
    found = hits(out, text, "--index", "--nprobe", 16, "-k", 20)
    scanned = hits(out, text, "-k", 20)
    assert [hit["id"] for hit in found] == [hit["id"] for hit in scanned]
    assert found != hits(out, text, "--index", "--nprobe", 1, "-k", 20)
    assert "--nprobe goes with --index" in error_of("bank", "search", out, text, "--nprobe", 2)
    kept = ["bank", "search", out, text, "-k", 5, "-o", tmp_path / "run"]
    tilth(*kept)
    assert "index is false in the folder" in error_of(*kept, "--index")
    before = (tmp_path / "run" / "results.json").read_bytes()
    refused = error_of(*kept, "--overwrite", "--index", "--nprobe", 99999)
    assert "nprobe is 99,999: give 1 to 16" in refused
    assert (tmp_path / "run" / "results.json").read_bytes() == before
    assert len(load_dataset(str(tmp_path / "run" / "dataset"), split="train")) == 5
    tilth(*kept)  # still the run that stands there
    (file,) = (out / "index").glob("*.faiss")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert str(file) in tilth("bank", "check", out, code=1).stdout


@pytest.mark.parametrize("kind", ["words", "words-sif", "words-idf", "usif"])
def test_word_vectors_build_and_search(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{kind}:{write_vectors(tmp_path / 'vectors.txt')}"
    # uSIF needs a word that stands in most sentences.
    often = [f"The the the the {one} the the {two}." for one, two in pairwise(WORDS)]
    raw = write_lines(tmp_path / "raw.txt", [*TEXTS[:60], *often, *(t.upper() for t in often)])
    out = tmp_path / "bank"
    asked = ["bank", "build", raw, "-o", out, "-e", name, "--workers", 1, "-q"]
    tilth(*asked)
    tilth(*asked)
    monkeypatch.setattr(Cluster, "__post_init__", lambda _: None)  # Ray may not be installed
    with pytest.raises(InputError, match="word vectors are read in this process alone"):
        build_named(tmp_path / "on", [str(raw)], name, BankSettings(cluster=Cluster("ray")))
    monkeypatch.undo()
    assert Bank.open(out).manifest.encoder == name
    assert hits(out, TEXTS[4], "-k", 1)[0]["text"] == TEXTS[4]
    tilth("bank", "add", out, write_lines(tmp_path / "b.txt", TEXTS[60:70]), "-q", "--workers", 1)
    assert hits(out, TEXTS[65], "-k", 1)[0]["text"] == TEXTS[65]
    fitted = kind in ("words-idf", "usif")
    assert (out / "encoder").is_dir() == fitted
    if fitted:
        assert Bank.open(out).search([TEXTS[4]], k=1).texts(0) == [TEXTS[4]]
        shutil.rmtree(out / "encoder")
        assert "its encoder" in tilth("bank", "check", out, code=1).stdout
        assert "is missing" in error_of("bank", "search", out, "the dog", code=1)
        tilth(*asked)
        assert hits(out, TEXTS[4], "-k", 1)[0]["text"] == TEXTS[4]

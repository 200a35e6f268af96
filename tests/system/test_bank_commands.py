"""`tilth bank` as a user meets it: builds that are stopped, answers that go through pipes."""

import json
import signal
from pathlib import Path

import pytest

from tests.system.commands import stopped, tilth
from tests.tiny import salads, small_parts, tiny_static, write_lines
from tilth.bank import Bank
from tilth.bank.ingest.workers import in_processes


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / "static"
    tiny_static().save(str(folder))
    return folder


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    for number in range(8):
        texts = salads(6_000, seed=number)
        write_lines(folder / f"{number}.txt", [f"{text} {text}" for text in texts])
    return folder


def test_an_interrupted_build_goes_on_with_the_same_command(
    raw: Path, encoder: Path, tmp_path: Path
) -> None:
    """`tests/invariants/test_kill.py` kills it."""
    asked = ["bank", "build", raw, "-e", encoder, "--workers", 1, "--shard-megabytes", 1, "-q"]
    out = tmp_path / "cut"
    said = stopped(
        *asked, "-o", out, stop=signal.SIGINT, code=130,
        when=lambda: bool(list((out / "adding" / "parts").glob("part-*.parquet"))),
    )  # fmt: skip
    assert "the same command goes on" in said
    assert "not finished" in tilth("bank", "search", out, "the dog", code=2).stderr
    assert list((out / "adding" / "parts").glob("part-*.parquet"))
    tilth(*asked, "-o", out)
    found = Bank.open(out)
    whole = Bank.build(
        tmp_path / "whole", [raw], encoder=str(encoder), workers=1, shard_megabytes=1, quiet=True
    )
    assert found.manifest.shards == whole.manifest.shards
    assert found.manifest.dropped == whole.manifest.dropped


def test_workers_that_were_started_elsewhere_find_the_bank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(in_processes(2, abs, iter([-1, -2]))) == [1, 2]
    monkeypatch.chdir(tmp_path)
    small_parts(monkeypatch, 1_000)
    write_lines(Path("raw.txt"), salads(100))
    bank = Bank.build("bank", ["raw.txt"], encoder=tiny_static(), workers=2, quiet=True)
    assert len(bank) == 100


def test_from_raw_text_to_a_data_set(encoder: Path, tmp_path: Path) -> None:
    texts = salads(300)
    raw = write_lines(tmp_path / "raw.txt", texts)
    bank = tmp_path / "bank"
    tilth("bank", "build", raw, "-o", bank, "-e", encoder, "--format", "compact", "--workers", 2)
    piped = tilth("bank", "search", bank, texts[8], "-k", 1)
    assert piped.stdout.splitlines()[1].split("\t")[4] == texts[8]
    assert piped.stderr == ""
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(texts[:20])]
    train = write_lines(tmp_path / "train.jsonl", list(map(json.dumps, rows)))
    out = tmp_path / "hits"
    tilth("bank", "search", bank, "--task", train, "--no-own", "-k", 50, "-o", out)
    found = json.loads((out / "results.json").read_text())
    assert [query["hits"] for query in found["queries"]] == [50, 50]
    shown = tilth("bank", "check", bank, "--json")
    assert json.loads(shown.stdout)["damaged"] == []

"""Commands on URLs: what they print names URLs, never copies."""

import json
from typing import Any

from tests.system.commands import error_of, tilth
from tests.tiny import salads
from tests.tiny.calls import stopped
from tilth.bank import Bank
from tilth.bank.ingest import shards
from tilth.storage import as_path
from tilth.urls import copies_folder


def test_a_bank_is_built_extended_described_and_searched(memory: Any, static: str) -> None:
    texts = salads(120, seed=2)
    memory.pipe("/raw/one.txt", "\n".join(texts[:60]).encode())
    memory.pipe("/raw/two.txt", "\n".join(texts[50:]).encode())
    bank, how = "memory://made/bank", ("--workers", 1, "--quiet")
    said = [tilth("bank", "build", "memory://raw/one.txt", "-o", bank, "-e", static, *how)]
    said.append(tilth("bank", "add", bank, "memory://raw", *how))
    said.append(tilth("bank", "info", bank, "--json"))
    info = json.loads(said[-1].stdout)
    assert info["bank"] == bank
    assert list(info["sources"]) == ["memory://raw/one.txt", "memory://raw/two.txt"]
    said.append(tilth("bank", "check", bank))
    said.append(tilth("bank", "search", bank, texts[3], "-k", 1, "--json"))
    (query,) = json.loads(said[-1].stdout)["queries"]
    assert query["hits"][0]["text"] == texts[3]
    said.append(tilth("bank", "search", bank, texts[3], "-k", 1, "-o", "memory://made/hits"))
    assert "data set: memory://made/hits/dataset" in said[-1].stderr
    assert json.loads(memory.cat("/made/hits/run.json"))["settings"]["bank"] == bank
    assert memory.exists("/made/hits/dataset/README.md")
    assert memory.find("/made/bank/adding") == []
    assert str(copies_folder()) not in "".join(one.stdout + one.stderr for one in said)
    other = error_of("bank", "build", "memory://raw/two.txt", "-o", bank, "-e", static, *how)
    assert other.startswith(f"error: {bank}: this bank was built from memory://raw/one.txt")
    inside = error_of("bank", "build", "memory://raw", "-o", "memory://raw/bank", "-e", static)
    assert (
        inside
        == "error: memory://raw/bank lies in memory://raw, which is read: choose another --out"
    )


def test_an_addition_that_another_machine_began_is_not_dropped(
    memory: Any, machine: Any, static: str
) -> None:
    texts = salads(120, seed=2)
    for name, some in (("one", texts[:40]), ("two", texts[40:80]), ("three", texts[80:])):
        memory.pipe(f"/raw/{name}.txt", "\n".join(some).encode())
    bank, how = "memory://made/bank", ("--workers", 1, "--quiet")
    tilth("bank", "build", "memory://raw/one.txt", "-o", bank, "-e", static, *how)
    with stopped(shards, "_make_shard", 0):
        Bank.open(as_path(bank)).add("memory://raw/two.txt", workers=1, quiet=True)
    assert memory.glob("/made/bank/adding/parts/*.parquet")
    machine("b")
    other = error_of("bank", "add", bank, "memory://raw/three.txt", *how)
    assert "an addition of other sources or settings is unfinished there" in other
    assert memory.glob("/made/bank/adding/parts/*.parquet")

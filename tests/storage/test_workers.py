"""Workers on hosts that share no folder: each task finds what it needs under the URL."""

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.invariants.trainings import content
from tests.runs.runs import open_run, table
from tests.tiny import salads, small_parts, tiny_static, write_lines
from tilth.bank import Bank
from tilth.bank import build as build_module
from tilth.bank.search.cluster_scan import _SharedBank
from tilth.errors import InputError, TilthError
from tilth.storage import as_path
from tilth.urls import cache_folder

URL = "memory://bucket/run"


@contextmanager
def another_host(*, is_kept: bool = False) -> Iterator[None]:
    """Let the cache folder be another host's for a while: one without any copy, or the last."""
    cache = cache_folder()
    cache.rename(cache.with_name("asking"))
    last = cache.with_name("last")
    if last.exists():
        last.rename(cache)
    try:
        yield
    finally:
        if is_kept:
            cache.rename(last)
        shutil.rmtree(cache, ignore_errors=True)
        cache.with_name("asking").rename(cache)


def spread_over_hosts(
    work: Callable[..., Any], tasks: Iterator[Any], *common: Any
) -> Iterator[Any]:
    for task in tasks:
        with another_host():
            made = work(task, *common)
        yield made


def test_a_part_of_another_host_is_read(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_run(URL) as run:
        worker = pickle.loads(pickle.dumps(run.as_worker()))
        with another_host():
            monkeypatch.setenv("TILTH_CACHE", os.environ["TILTH_CACHE"])
            worker.check_shared()
            worker.write_part(2, table(2))
        assert run.has_part(2)
        assert not run.part_path(2).exists()
        assert run.read_part(2).equals(table(2))


def test_a_copy_of_an_earlier_run_is_not_read(memory: Any) -> None:
    for name, overwrite in (("a", False), ("b", True)):
        rows = pa.table({"name": [name]})
        with open_run(URL, settings={"name": name}, overwrite=overwrite) as run:
            run.write_part(0, rows)
            with another_host(is_kept=True):
                worker = run.as_worker()
                worker.check_shared()
                assert worker.read_part(0).equals(rows)
    with another_host(is_kept=True):
        memory.rm("/bucket/run/parts/part-00000.parquet")
        with pytest.raises(TilthError):
            worker.read_part(0)
        assert not worker.part_path(0).exists()


def test_a_worker_names_its_host_when_it_sees_no_run(memory: Any) -> None:
    with open_run(URL) as run:
        worker = run.as_worker()
        memory.rm("/bucket/run/run.json")
        with another_host(), pytest.raises(InputError, match=r"host .* does not see this run"):
            worker.check_shared()


def test_a_bank_is_found_by_hosts_that_keep_copies_elsewhere(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = write_lines(tmp_path / "texts.txt", salads(60))
    bank = Bank.build("memory://bucket/bank", [texts], encoder=tiny_static(), device="cpu",
                      workers=1, quiet=True)  # fmt: skip
    shared = pickle.dumps(_SharedBank(bank.path, bank.manifest))
    asking = os.environ["TILTH_CACHE"]
    monkeypatch.setenv("TILTH_CACHE", str(tmp_path / "of-another-user"))
    with pytest.raises(InputError, match="does not see this bank"):
        _SharedBank(tmp_path / "nothing", bank.manifest).check_shared()
    shutil.rmtree(asking)
    pickle.loads(shared).check_shared()
    assert os.environ["TILTH_CACHE"] == asking
    assert (bank.path / "bank.json").is_file()


def test_a_bank_of_such_hosts_is_that_of_one_process(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    texts = salads(400, seed=2)
    one = write_lines(tmp_path / "one.txt", texts[:250])
    two = write_lines(tmp_path / "two.txt", texts[200:])

    def build(out: str | Path) -> None:
        how = {"workers": 1, "quiet": True}
        Bank.build(out, [one], encoder=tiny_static(), device="cpu", **how).add([two], **how)

    build(tmp_path / "local")
    monkeypatch.setattr(build_module, "job_workers", lambda *_: nullcontext(spread_over_hosts))
    build("memory://bucket/bank")
    first, second = content(tmp_path / "local"), content(as_path("memory://bucket/bank"))
    assert [name for name in {**first, **second} if first.get(name) != second.get(name)] == []

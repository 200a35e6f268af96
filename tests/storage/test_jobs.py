"""Every job on a URL makes the files that it makes in a folder, on a machine without copies too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import test_same_rows as jobs
from tests.invariants.trainings import content
from tests.storage.server import Server
from tests.tiny import small_parts
from tilth.runs.cluster import Cluster
from tilth.storage import as_path, pull

Make = Callable[[Path], jobs.Job]


@pytest.mark.parametrize("job", [jobs.generate, jobs.bank])
def test_files_under_a_url_are_those_of_a_folder(
    job: Make,
    memory: Any,
    machine: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_parts(monkeypatch)
    make = job(tmp_path)
    make(tmp_path / "local", Cluster())
    check_equal(make, "memory://bucket/run", tmp_path / "local", machine)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "job",
    [
        jobs.generate, jobs.bank, jobs.paraphrase, jobs.candidates, jobs.augment,
        jobs.bank_of_transformer,
    ],
)  # fmt: skip
def test_files_on_a_server_are_those_of_a_folder(
    job: Make,
    s3: Server,
    machine: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_parts(monkeypatch)
    make = job(tmp_path)
    make(tmp_path / "local", Cluster())
    check_equal(make, f"s3://bucket/{tmp_path.name}", tmp_path / "local", machine)
    # The server keeps an object as a file.
    compare(tmp_path / "local", s3.objects(tmp_path.name))


def check_equal(make: jobs.Job, url: str, local: Path, machine: Callable[[str], None]) -> None:
    """Make a run on one machine, again on another, and read it on a third."""
    assert any(name.endswith((".parquet", ".arrow")) for name in content(local))
    for name in ("a", "b"):
        machine(name)
        make(as_path(url), Cluster())
        compare(local, as_path(url))
    machine("c")
    pull(as_path(url))
    compare(local, as_path(url))


def compare(expected: Path, found: Path) -> None:
    first, second = content(expected), content(found)
    assert [name for name in {**first, **second} if first.get(name) != second.get(name)] == []

"""What happens to a run on a real S3 server when something dies or is refused."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.storage import driver
from tests.storage.server import Server
from tests.system.commands import error_of
from tests.tiny import write_lines
from tests.tiny.calls import wait_until
from tilth.runs import RunLocked

PARTS = 12


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return tmp_path.name


@contextmanager
def writing(url: str, seconds: float = 0.2, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run the driver in a process of its own, that is killed if it is not ended."""
    command = [sys.executable, "-m", "tests.storage.driver", url, str(PARTS), str(seconds), *words]
    with subprocess.Popen(command, text=True, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def parts(s3: Server, prefix: str) -> list[str]:
    return sorted(path.name for path in s3.objects(prefix).glob("parts/part-*.parquet"))


def wait_for(count: int, s3: Server, prefix: str) -> None:
    wait_until(lambda: len(parts(s3, prefix)) >= count, seconds=120)


def check_whole(s3: Server, prefix: str) -> None:
    found = sorted(s3.objects(prefix).glob("parts/*"))
    assert [path.name for path in found] == [f"part-{n:05d}.parquet" for n in range(PARTS)]
    numbers = [pq.ParquetFile(path).read()["number"].to_pylist() for path in found]
    assert numbers == [[number] * 3 for number in range(PARTS)]
    assert not [*s3.objects(prefix).glob(".tilth-writers/*")]


@pytest.mark.slow
def test_a_killed_run_goes_on_here_and_elsewhere_when_its_lease_ended(
    s3: Server, prefix: str, machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://bucket/{prefix}"
    with writing(url) as process:
        wait_for(3, s3, prefix)
        process.kill()
    assert 3 <= len(parts(s3, prefix)) < PARTS
    machine("b")
    with pytest.raises(RunLocked, match=r"process \d+ on .* its lease ends in \d+ s"):
        driver.main(url, PARTS, 0)
    machine("a")
    with writing(url) as process:  # the copies' lock says that the first one is dead
        wait_for(6, s3, prefix)
        process.kill()
    machine("b")
    monkeypatch.setattr("tilth.runs.lock.SECONDS_HELD", 0.0)
    time.sleep(1)  # the server counts seconds
    driver.main(url, PARTS, 0)
    check_whole(s3, prefix)


@pytest.mark.slow
def test_the_second_writer_is_refused_by_name(
    s3: Server, prefix: str, machine: Callable[[str], None]
) -> None:
    url = f"s3://bucket/{prefix}"
    with writing(url) as process:
        wait_for(2, s3, prefix)
        for name in ("a", "b"):  # on the same machine, and on another
            machine(name)
            with pytest.raises(RunLocked, match=rf"^{url}: process {process.pid} on .* is writing"):
                driver.main(url, PARTS, 0)
        assert process.wait(300) == 0
    check_whole(s3, prefix)


@pytest.mark.slow
def test_a_run_waits_for_a_server_that_is_restarted(s3: Server, prefix: str) -> None:
    with writing(f"s3://bucket/{prefix}") as process:
        wait_for(3, s3, prefix)
        s3.kill()
        time.sleep(15)  # the client itself tries again for ten seconds
        assert process.poll() is None
        s3.start()
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    assert "the store does not answer" in said
    check_whole(s3, prefix)


def test_what_the_store_refuses_is_one_line(
    s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = write_lines(tmp_path / "in.txt", ["A man plays."])
    make = ["generate", "sts-x2", "--inputs", texts, "--out"]
    assert error_of(*make, "s3://nowhere/run") == (
        "error: s3://nowhere/run: The specified bucket does not exist: make the bucket, or check "
        "its name"
    )
    assert "no such file or folder" in error_of(
        "generate", "sts-x2", "--inputs", "s3://bucket/none.txt", "--out", tmp_path / "run"
    )
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    fresh_sessions()
    wrong = error_of(*make, "s3://bucket/wrong")
    assert wrong.startswith("error: s3://bucket/wrong: the store refuses (The request signature")
    assert "check the credentials" in wrong
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    fresh_sessions()
    assert "Unable to locate credentials" in error_of(*make, "s3://bucket/none")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    fresh_sessions()
    away = error_of(*make, "s3://bucket/away")
    assert "Could not connect to the endpoint URL" in away
    assert "check the endpoint" in away
    fresh_sessions()


def fresh_sessions() -> None:
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()

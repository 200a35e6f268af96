"""The command as a process, the address it listens on, and its extra."""

import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.view.pages import served, write_run
from tilth.cli.main import app
from tilth.errors import InputError, TilthError
from tilth.view.server import _listen, serve
from tilth.view.settings import ViewSettings


def test_the_command_serves_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "pairs")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with served(tmp_path) as (url, process):
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(url) as answer:
            assert "pairs" in answer.read().decode()
        shown = "The first rows are being read"
        while "The first rows are being read" in shown:
            with opener.open(f"{url.partition('?')[0]}rows?run=pairs") as answer:
                shown = answer.read().decode()
        assert "Output 0 is dry" in shown
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        rest = process.stderr.read()
    assert rest == "The URL holds the key to these pages. Ctrl-C ends the server.\n"
    assert not list(tmp_path.glob("tilth-*"))


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(app, ["view", str(tmp_path)])
    assert done.exit_code == 2
    line = "error: tilth view needs Starlette and uvicorn: pip install 'tilth[view]'\n"
    assert done.stderr == line


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.jsonl", '{"text": "one"}\n{"text": ', "rows.jsonl:2: "),
        ("rows.txt", "", "rows.txt: holds no rows: give at least one"),
        ("rows.pdf", "one", "rows.pdf: "),
        ("rows.txt/", None, "no such file or folder: check the path"),
    ],
)
def test_a_wrong_file_is_one_line(
    tmp_path: Path, name: str, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    done = CliRunner().invoke(app, ["view", str(tmp_path / name)])
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_next_free_port_is_taken() -> None:
    with _listen(ViewSettings()) as one, _listen(ViewSettings()) as two:
        assert one.getsockname()[1] != two.getsockname()[1]
        assert one.getsockname()[0] == "127.0.0.1"
        assert one.proto == socket.IPPROTO_TCP  # asyncio then sends answers at once


def test_a_port_that_is_taken_ends_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TilthError, match=rf"port {port}: cannot be listened on"):
            serve(tmp_path, ViewSettings(port=port))


@pytest.mark.parametrize("host", ["localhost", "evil.example", "127.0.0.1:80"])
def test_hosts_are_addresses(host: str) -> None:
    with pytest.raises(InputError, match="give an IP address"):
        ViewSettings(host=host)

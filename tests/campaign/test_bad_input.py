"""Command lines, task files, labelled rows and servers, drawn at random or misbehaving."""

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.campaign.commands import LINES, NO_RUN, Command, commands
from tests.campaign.inputs import TASKS, nested
from tests.campaign.judge import Campaign
from tests.campaign.test_bad_folders import RUNS, edited, paths_in
from tests.campaign.test_bad_options import NUMBERS, TEXTS
from tests.tiny import read_json, write_rows
from tilth.models import endpoint
from tilth.models.endpoint import RetryPolicy

# What a stopped case leaves open is no finding.
pytestmark = pytest.mark.filterwarnings("ignore")

drawn = settings(
    derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow,
                           HealthCheck.data_too_large],
)  # fmt: skip
EACH = [pytest.param(command, id=command.slug) for command in commands()]
COLUMNS = ["text", "label", "text_a", "text_b", "labels", "tokens", "tags", "probabilities"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(max_size=8), one, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("command", EACH)
def test_wrong_line(small_campaign: Campaign, command: Command) -> None:
    """Nothing, an unknown option, a missing file: refused before any model is read."""
    campaign = small_campaign
    name = command.name.split()
    needs = any(option.required for option in command.options)
    campaign.run([*name, "--no-such-option"], names=["--no-such-option"], may_work=False)
    if needs:
        campaign.run(name, may_work=False)
        missing = str(campaign.world / "bad" / "missing.jsonl")
        words = command.line(campaign.world, out=campaign.fresh())
        first = [missing, *words[len(name) + 1 :]]
        campaign.run([*name, *first], names=["missing.jsonl", str(campaign.world)],
                     may_work=False)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", [one for one in EACH if one.values[0].name not in NO_RUN])
@settings(drawn, max_examples=8)
@given(data=st.data())
def test_drawn_options(campaign: Campaign, command: Command, data: st.DataObject) -> None:
    """Several options at once, some of them right, on the files of the right line."""
    options = [one for one in command.options if one.written not in (None, "--out")]
    words = command.line(campaign.world, out=campaign.fresh())
    known = [str(path) for path in sorted(campaign.world.iterdir())]
    known += [str(path) for path in sorted((campaign.world / "bad").iterdir())]
    for option in data.draw(st.lists(st.sampled_from(options), max_size=4, unique=True)):
        words.append(option.written or "")
        if option.kind is int:
            words.append(str(data.draw(st.integers() | st.sampled_from(NUMBERS))))
        elif option.kind is float:
            words.append(str(data.draw(st.floats() | st.sampled_from(NUMBERS))))
        elif option.kind is not bool:
            usual = option.help.replace(",", " ").replace(":", " ").split() or [""]
            values = [*TEXTS, *usual, *(known if option.is_path else ())]
            words.append(data.draw(st.sampled_from(values)))
    campaign.run(words)


@pytest.mark.slow
def test_task_files(campaign: Campaign) -> None:
    for path in sorted((campaign.world / "bad").glob("task-*")):
        for ending in (".yaml", ".json"):
            task = campaign.fresh().with_name(f"task{ending}")
            shutil.copy2(path, task)
            words = ["generate", str(task), "-m", str(campaign.world / "lm"), "--count", "1",
                     "--max-new-tokens", "4", "--out", str(campaign.fresh())]  # fmt: skip
            # Some tasks are right: of them nothing is kept.
            campaign.run(words, names=[task.name, "0 rows kept"], may_work=ending == ".json",
                         what=path.stem)  # fmt: skip
    assert len(TASKS) > 30


@pytest.mark.slow
@settings(drawn, max_examples=40)
@given(labels=st.dictionaries(st.text(max_size=6), JSON, max_size=3), name=JSON, more=JSON)
def test_drawn_task(campaign: Campaign, labels: Any, name: Any, more: Any) -> None:
    for label in list(labels)[:1]:
        labels[label] = {"instruction": 'Write "', "counter_labels": more}
    _run_task(campaign, json.dumps({"task_name": name, "labels": labels}))
    _run_task(campaign, json.dumps({"task_name": "t", "labels": labels}))


def _run_task(campaign: Campaign, text: str) -> None:
    task = campaign.fresh("task.json")
    task.write_text(text)
    campaign.run(
        ["generate", str(task), "-m", str(campaign.world / "lm"), "--count", "1", "--per-input",
         "1", "--max-tries", "2", "--max-new-tokens", "4", "-o", str(task.with_name("out"))],
        names=["task.json", "texts"],
    )  # fmt: skip


@pytest.mark.slow
@settings(drawn, max_examples=8)
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(COLUMNS, JSON),
        ) | JSON,
        min_size=1, max_size=5,
    )
)  # fmt: skip
def test_drawn_rows(campaign: Campaign, rows: list[Any]) -> None:
    source = campaign.fresh("rows.jsonl")
    write_rows(source, rows)
    w = campaign.world
    for number, line in enumerate((
        f"curate {source}", f"train classifier {source} -b {w}/encoder --epochs 1 --device cpu",
        f"train encoder {source} -b {w}/encoder --device cpu",
        f"augment {source} --bank {w}/bank --teacher {w}/encoder --epochs 1 --count 3",
        f"evaluate classify {w}/runs/train-classifier -d {source} --bootstrap 5",
        f"evaluate tag {w}/runs/train-tagger -d {source} --bootstrap 5",
        f"evaluate sts {w}/static -d {source} --bootstrap 5",
        f"bank search {w}/bank --task {source}", f"bank build {source} -e {w}/static --workers 1",
        f"paraphrase corpus {source} --size 2 --validation 1 --test 1",
        f"paraphrase train {source} -b {w}/rewriter --max-epochs 1 --device cpu",
        f"train triplet {source} -b {w}/encoder --dimension 4 --device cpu",
    )):  # fmt: skip
        campaign.run([*line.split(), "-o", str(source.with_name(f"out{number}"))],
                     what=repr(rows)[:300])  # fmt: skip
    shutil.rmtree(source.parent)


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
@settings(drawn, max_examples=5)
@given(data=st.data())
def test_drawn_run_json(campaign: Campaign, command: Command, data: st.DataObject) -> None:
    """Several values of run.json changed at once; the command goes on, or begins anew."""
    copy = campaign.copy(campaign.world / "runs" / command.slug)
    file = copy / "run.json"
    if not file.exists():
        return
    for path in data.draw(st.lists(st.sampled_from(list(paths_in(read_json(file)))),
                                   min_size=1, max_size=3)):  # fmt: skip
        with suppress(KeyError, TypeError, IndexError, ValueError):
            file.write_text(edited(file.read_text(), path, data.draw(st.integers(0, 20))))
    line = command.line(campaign.world, out=copy)
    campaign.run(line, what=file.read_text()[:300])
    campaign.run(["report", str(copy)], what=file.read_text()[:300])
    shutil.rmtree(copy.parent)


def _head(status: str, header: str = "X: y", body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\n{header}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _text(body: str) -> bytes:
    data = body.encode("utf-8", "surrogatepass")
    return (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(data)) + data  # fmt: skip


def _reply(choice: str, usage: str = "{}") -> bytes:
    return _text(f'{{"choices": [{choice}], "usage": {usage}}}')


def _used(usage: str) -> bytes:
    return _reply('{"index": 0, "text": "a"}', usage)


def _drip(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        sock.sendall(b" ")
        time.sleep(0.1)


def _endless(head: bytes, chunk: bytes) -> Callable[[socket.socket], None]:
    def answer(sock: socket.socket) -> None:
        sock.sendall(head)
        while True:
            sock.sendall(chunk)

    return answer


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ANSWERS: dict[str, bytes | Callable[[socket.socket], None]] = {
    "slow drip": _drip,
    "endless body": _endless(_HEAD + b"\r\n", b" " * 65536),
    "endless chunks": _endless(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\n     \r\n"),
    "endless header": _endless(_HEAD, b"X-A: " + b"a" * 1000 + b"\r\n"),
    "endless continue": _endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "nothing": lambda sock: time.sleep(30),
    "closed": b"",
    "no HTTP": b"\x00\xff" * 50,
    "half": _text('{"choices": ')[:-4],
    "wrong length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    "gzip that is none": _HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "redirect to itself": _head("307 T", "Location: /v1/completions"),
    "redirect to a file": _head("302 F", "Location: file:///etc/hostname"),
    "not UTF-8": _HEAD + b"Content-Length: 2\r\n\r\n\xff\xfe",
    "escape": _head("400 B", body=b'{"error":{"message":"\x1b[31mred\\n\\n"}}'),
    "error that is a list": _head("400 B", body=b'{"error":[1]}'),
    "later for ever": _head("429 T", "Retry-After: 1e308"),
    "later in vain": _head("503 T", "Retry-After: Thu, 99 Foo 99999 00:00:00"),
    "deep": _text(nested(20_000)),
    "list": _text("[]"), "null": _text("null"), "number": _text("1e999"),
    "no choices": _text('{"choices": []}'), "null choice": _reply("null"),
    "null text": _reply('{"index": 0, "text": null}'),
    "number text": _reply('{"index": 0, "text": 3}'),
    "infinite index": _reply('{"index": Infinity, "text": "a"}'),
    "huge index": _reply('{"index": 1e400, "text": "a"}'),
    "surrogate": _reply('{"index": 0, "text": "\\ud800", "finish_reason": "stop"}'),
    "huge text": _reply('{"index": 0, "finish_reason": "stop", "text": "%s"}' % ("a " * 400_000)),
    "long number": _reply('{"index": %s, "text": "a"}' % ("9" * 5000)),
    "infinite usage": _used('{"prompt_tokens": Infinity}'),
    "negative usage": _used('{"prompt_tokens": -5, "completion_tokens": -1}'),
    "huge usage": _used('{"prompt_tokens": 1180591620717411303424}'),
    "odd usage": _used('{"prompt_tokens": "x", "completion_tokens": []}'),
}  # fmt: skip


class Server:
    """Answers every request on loopback with the same bytes."""

    def __init__(self, answer: bytes | Callable[[socket.socket], None]) -> None:
        self.answer = answer
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self.socket.accept()
                threading.Thread(target=self._talk, args=(one,), daemon=True).start()

    def _talk(self, sock: socket.socket) -> None:
        with suppress(OSError), sock:
            sock.recv(65536)
            if isinstance(self.answer, bytes):
                sock.sendall(self.answer)
                sock.shutdown(socket.SHUT_WR)
                sock.settimeout(1)
                sock.recv(65536)
            else:
                self.answer(sock)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["openai", "openai-chat"])
def test_bad_server(campaign: Campaign, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        endpoint, "RetryPolicy", lambda: RetryPolicy(failing=2.0, first=1.0, answer=2.0)
    )
    for what, answer in ANSWERS.items():
        server = Server(answer)
        model = f"{scheme}:http://127.0.0.1:{server.port}/v1#m"
        words = ["generate", str(campaign.world / "task.json"), "--count", "1", "-m", model]
        campaign.run([*words, "--out", str(campaign.fresh())], what=what)
        server.socket.close()
    for address in ("http://", "http:///v1#m", "ftp://x/v1#m", "http://[::1/v1#m", "#", "",
                    "http://x:99999/v1#m", "http://127.0.0.1:1/v1#m", "http://127.0.0.1:1/v1",
                    "http://a b/v1#m"):  # fmt: skip
        words = ["generate", str(campaign.world / "task.json"), "--count", "1", "-m"]
        campaign.run([*words, f"{scheme}:{address}", "--out", str(campaign.fresh())],
                     names=[scheme, "endpoint"], may_work=False)  # fmt: skip


def test_the_lines_name_every_command() -> None:
    """A command added later has a right line too: only then its options are looked at."""
    assert {command.name for command in commands()} == set(LINES)
    assert all(Path(word).name for words in LINES.values() for word in words.split())

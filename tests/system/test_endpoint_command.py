"""`tilth generate` at an endpoint: the command is killed, the rows are those of a calm run."""

import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.models.openai_server import OpenAIServer, written
from tests.system.commands import stopped, tilth
from tests.tiny import read_json
from tilth.generation.estimate import estimate_run
from tilth.generation.generate import GenerateRequest
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task
from tilth.models.endpoint import load_endpoint
from tilth.workflows.grow.notes import asked_of_endpoint

TEXTS = [f"the dog number {n} runs on the red sea" for n in range(16)]
SECRET = "sk-very-secret-0123456789"


def answer(prompt: str, seed: int, index: int) -> str:
    """Write a text that follows from what is asked; one in three is to be dropped."""
    text = written(prompt, seed, index)
    return {0: "", 1: text.replace(" ", "\n")}.get(len(text) % 6, text)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(answer=answer) as running:
        yield running


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "*")


def command(name: str, inputs: Path, out: Path) -> list[object]:
    return ["generate", "sts-x2", "-i", inputs, "-m", name, "-o", out, "--part-size", 4]


def asked_of(server: OpenAIServer) -> int:
    """Return how often the server was asked for texts, the two first contacts left out."""
    return sum("dog number" in body["prompt"] for body in server.requests)


def rows(out: Path, config: str = "data") -> list[dict[str, Any]]:
    return pq.read_table(out / "dataset" / config / "train.parquet").to_pylist()


def test_killed_and_taken_up_again(server: OpenAIServer, inputs: Path, tmp_path: Path) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    done = tilth(*command(server.name(), inputs, calm))
    assert done.stderr.count("self-debiasing is off") == 1
    asked = asked_of(server)
    assert asked >= len(TEXTS) * 3

    # The kill comes while the server answers, in the middle of the third part.
    parts, half, dead = killed / "parts", threading.Event(), threading.Event()

    def wait_when_half(prompt: str, seed: int, index: int) -> str:
        if len(list(parts.glob("part-*"))) >= 2:
            half.set()
            dead.wait(60)
        return answer(prompt, seed, index)

    server.answer = wait_when_half
    stopped(
        *command(server.name(), inputs, killed), when=half.is_set, stop=signal.SIGKILL,
        code=-signal.SIGKILL,
    )  # fmt: skip
    dead.set()
    server.answer = answer
    standing = {part.name: part.stat().st_mtime_ns for part in parts.glob("part-*.parquet")}
    assert 2 <= len(standing) < 4

    tilth(*command(server.name(), inputs, killed))
    assert {name: (parts / name).stat().st_mtime_ns for name in standing} == standing
    assert rows(killed) == rows(calm)
    assert rows(killed, "dropped") == rows(calm, "dropped")
    assert {row["drop_reason"] for row in rows(calm, "dropped")} == {"empty", "newline"}

    # The card counts what the parts took, whichever session made them.
    said = f"took {asked:,} requests"
    for out in (calm, killed):
        assert f"was asked {asked:,} times" in asked_of_endpoint(out)[0]
        card = (out / "dataset" / "README.md").read_text()
        assert said in card
        assert "self-debiasing is off" in card
        assert read_json(out / "run.json")["settings"]["decay"] == 0
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


def test_control_c_ends_promptly(server: OpenAIServer, inputs: Path, tmp_path: Path) -> None:
    asked = threading.Event()

    def never(prompt: str, seed: int, index: int) -> str:
        if TEXTS[3] in prompt:
            asked.set()
            done.wait(60)
        return answer(prompt, seed, index)

    done = threading.Event()
    server.answer = never
    arrived = 0.0

    def met() -> bool:
        nonlocal arrived
        arrived = time.monotonic()
        return asked.is_set()

    try:
        said = stopped(
            *command(server.name(), inputs, tmp_path / "run"), when=met, stop=signal.SIGINT,
            code=130,
        )  # fmt: skip
        assert time.monotonic() - arrived < 15
    finally:
        done.set()
    assert "no part was finished, the same command begins anew" in said


def test_plan_counts_requests(server: OpenAIServer) -> None:
    request = GenerateRequest(
        load_task("sts-x2"), load_endpoint(server.name()), GenerateSettings(), inputs=TEXTS
    )
    plan = estimate_run(request)
    assert plan.requests == asked_of(server)  # all sixteen inputs are tried
    assert plan.endpoint_tokens > plan.tokens > 0


def test_plan_counts_the_requests_for_first_texts(server: OpenAIServer) -> None:
    lm = load_endpoint(server.name())
    plan = estimate_run(GenerateRequest(load_task("sts-x2"), lm, GenerateSettings(), from_x1=5))
    assert plan.requests == lm.usage.requests  # all are tried, those for first texts included


ROOT = Path(__file__).parents[2]
DOCUMENTED = re.findall(
    r"^(tilth generate .*--model openai.*)$", (ROOT / "docs" / "generate.md").read_text(), re.M
)


@pytest.mark.parametrize("line", DOCUMENTED)
def test_documented_commands_write_with_a_server(line: str, tmp_path: Path) -> None:
    """The commands of the docs, at another address and with fewer texts."""

    def polite(prompt: str, seed: int, index: int) -> str:
        return f'Sure! Here is a ticket:\n\n"{written(prompt, seed, index)}"'

    words = shlex.split(line)[1:]
    out = tmp_path / "run"
    with OpenAIServer(answer=polite) as server:
        server.model = words[words.index("--model") + 1].partition("#")[2]
        values = {"--count": 2, "--model": server.name(chat=True), "--out": out}
        values |= {"examples/support-tickets.yaml": ROOT / "examples" / "support-tickets.yaml"}
        for place, word in enumerate(words):
            if word.startswith("--") and word in values:
                words[place + 1] = str(values[word])
            elif word in values:
                words[place] = str(values[word])
        said = tilth(*words)
    if "--plan" in words:
        assert "tokens the endpoint counts" in said.stdout
        return
    assert len(rows(out)) == 6
    assert all(row["label_fit"] is not None for row in rows(out))
    assert not any("Sure" in row["text"] for row in rows(out))


def test_there_is_a_documented_command_for_each_server() -> None:
    for address in ("api.openai.com", "localhost:8000", "localhost:11434"):
        assert any(address in line for line in DOCUMENTED)

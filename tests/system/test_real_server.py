"""Endpoints against a real server process, killed and started again during a run."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from datasets import Dataset

from tests.system.real_server import RealServer, why_not, write_model
from tilth.generation.attempts import Job, Outcome, job_key
from tilth.generation.endpoint_sampler import EndpointSampler
from tilth.generation.generate import generate
from tilth.generation.settings import Sampling
from tilth.models.endpoint import RetryPolicy, load_endpoint
from tilth.models.endpoint_protocol import Request

pytestmark = pytest.mark.slow

PATIENCE = RetryPolicy(failing=60.0, answer=60.0)
TEXTS = [
    f"the {kind} sees a {other}" for kind in ("dog", "cat", "man") for other in ("tree", "house")
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("server")
    write_model(folder / "tiny.gguf")
    running = RealServer(folder / "tiny.gguf", folder / "server.log")
    running.start()
    yield running
    running.kill()


def rows_of(rows: Dataset) -> list[tuple[str, float, str]]:
    return list(zip(rows["text_a"], rows["label"], rows["text_b"], strict=True))


def test_completion(server: RealServer) -> None:
    endpoint = load_endpoint(server.name(), policy=PATIENCE)
    assert not endpoint.is_chat
    replies = [
        endpoint.ask(Request('the dog "', seed=seed, max_tokens=60, stop=('"',)))
        for seed in range(4)
    ]
    assert len({reply.choices[0].text for reply in replies}) == 4
    assert all('"' not in reply.choices[0].text for reply in replies)
    assert {reply.choices[0].finish_reason for reply in replies} <= {"stop", "length"}
    assert endpoint.usage.requests == 4
    assert endpoint.usage.prompt_tokens > 8
    assert endpoint.usage.completion_tokens > 8
    assert endpoint.left_out == set()


def test_chat(server: RealServer) -> None:
    endpoint = load_endpoint(server.name(chat=True), policy=PATIENCE)
    reply = endpoint.ask(Request("the dog", system="answer", max_tokens=9))
    assert reply.choices[0].text
    assert endpoint.is_chat


def test_prompt_that_is_too_long(server: RealServer) -> None:
    endpoint = load_endpoint(server.name(), policy=PATIENCE)
    found: list[Outcome] = []
    prompts = ['the dog "', "the dog " * 400]
    jobs = [
        Job(item, str(item), "1", 0, (prompt,), job_key(0, str(item), "1", 0))
        for item, prompt in enumerate(prompts)
    ]
    EndpointSampler(endpoint, Sampling()).run(jobs, found.append)
    reasons = {outcome.job.item: outcome.reason for outcome in found}
    assert reasons[1] == "prompt-too-long"
    assert reasons[0] != "prompt-too-long"


def test_killed_and_restarted_during_a_run(server: RealServer, tmp_path: Path) -> None:
    endpoint = load_endpoint(server.name(), policy=PATIENCE)
    started = time.monotonic()
    whole = generate("sts-x2", endpoint, TEXTS, out=tmp_path / "whole", part_size=2)
    seconds = time.monotonic() - started
    kills = 0
    done = threading.Event()

    def trouble() -> None:
        nonlocal kills
        while not done.wait(seconds / 4) and kills < 3:
            server.kill()
            kills += 1
            time.sleep(0.5)
            server.start()

    thread = threading.Thread(target=trouble)
    thread.start()
    endpoint = load_endpoint(server.name(), policy=PATIENCE)
    broken = generate("sts-x2", endpoint, TEXTS, out=tmp_path / "broken", part_size=2)
    done.set()
    thread.join()
    assert kills > 0
    assert endpoint.usage.retries > 0
    assert len(whole) > len(TEXTS) * 3
    # The server reuses what it has read of earlier prompts, which may round otherwise: rarely, a
    # token differs. Nothing may be lost or come twice.
    tries = list(zip(broken["source_id"], broken["label"], broken["try"], strict=True))
    assert len(set(tries)) == len(tries)
    assert len(set(rows_of(broken)) & set(rows_of(whole))) >= 0.95 * len(set(rows_of(whole)))
    assert abs(len(broken) - len(whole)) <= 0.05 * len(whole)

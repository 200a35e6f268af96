import logging
import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.models.openai_server import OpenAIServer, written
from tests.tiny import read_json
from tilth.errors import InputError, TilthError
from tilth.generation.attempts import Job, Outcome, job_key
from tilth.generation.endpoint_sampler import CONCURRENCY, EndpointSampler, share_tokens, unquote
from tilth.generation.generate import generate
from tilth.generation.settings import Sampling
from tilth.models.endpoint import Endpoint, RetryPolicy, load_endpoint
from tilth.models.endpoint_protocol import Reply, ReplyChoice
from tilth.runs import RunMismatch

QUICK = RetryPolicy(failing=6.0, first=0.3, answer=3.0)
PROMPT = 'Task: Write two sentences that mean the same thing.\nSentence 1: "A."\nSentence 2: "'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, no_proxy: None) -> None:
    monkeypatch.setattr("tilth.models.endpoint.FIRST_PAUSE", 0.02)


def load(server: OpenAIServer, *, chat: bool = False) -> Endpoint:
    """Make the first contact and forget its requests."""
    endpoint = load_endpoint(server.name(chat=chat), policy=QUICK)
    server.requests.clear()
    server.most_under_way = 0
    return endpoint


def jobs_for(prompts: Iterable[str], tries: int = 2) -> list[Job]:
    return [
        Job(item, f"s{item}", "1", attempt, (prompt,), job_key(0, f"s{item}", "1", attempt))
        for item, prompt in enumerate(prompts)
        for attempt in range(tries)
    ]


def outcomes_of(
    endpoint: Endpoint,
    jobs: Iterable[Job],
    sampling: Sampling = Sampling(),  # noqa: B008
    concurrency: int = 4,
) -> dict[Job, Outcome]:
    found: dict[Job, Outcome] = {}

    def then(outcome: Outcome) -> None:
        assert outcome.job not in found
        assert threading.current_thread() is threading.main_thread()
        found[outcome.job] = outcome

    EndpointSampler(endpoint, sampling, concurrency=concurrency).run(jobs, then)
    return found


def texts_of(found: dict[Job, Outcome]) -> dict[tuple[int, int], str]:
    return {(job.item, job.attempt): outcome.text for job, outcome in found.items()}


def test_every_setting_is_sent() -> None:
    sampling = Sampling(temperature=0.7, top_k=3, top_p=0.8, max_new_tokens=17)
    with OpenAIServer() as server:
        outcomes_of(load(server), jobs_for([PROMPT], tries=1), sampling)
        (body,) = server.requests
    seed = int.from_bytes(job_key(0, "s0", "1", 0)[:4], "big") >> 1
    assert body == {
        "model": "small", "prompt": PROMPT, "seed": seed, "temperature": 0.7, "top_k": 3,
        "top_p": 0.8, "max_tokens": 17, "stop": ['"'],
    }  # fmt: skip
    assert 0 <= seed < 2**31


def test_a_system_prompt_comes_before_the_request_for_the_text_alone() -> None:
    with OpenAIServer() as server:
        endpoint = load(server, chat=True)
        outcomes_of(endpoint, jobs_for([PROMPT], tries=1), Sampling(system="Write as a poet."))
        (body,) = server.requests
    system, user = body["messages"]
    assert system["content"].startswith("Write as a poet. You complete a text.")
    assert user == {"role": "user", "content": PROMPT}


def test_completions_take_no_system_prompt() -> None:
    with OpenAIServer() as server, pytest.raises(InputError, match="leave out --system"):
        generate("sts-x2", load(server), ["a dog"], system="Write as a poet.")


def test_tries_of_a_prompt_share_a_request() -> None:
    jobs = jobs_for([PROMPT, PROMPT + "b", PROMPT])
    with OpenAIServer() as server:
        found = outcomes_of(load(server), jobs)
        sizes = sorted(body.get("n", 1) for body in server.requests)
    assert sizes == [2, 4]
    seed = int.from_bytes(jobs[0].key[:4], "big") >> 1
    same = [jobs[0], jobs[1], jobs[4], jobs[5]]
    assert [found[job].text for job in same] == [written(PROMPT, seed, i) for i in range(4)]
    assert all(outcome.reason is None for outcome in found.values())


def test_single_requests_when_n_is_ignored_or_refused() -> None:
    jobs = jobs_for([PROMPT, PROMPT + "b"])
    with OpenAIServer(honours_n=False) as server:
        ignored = outcomes_of(load(server), jobs)
        seeds = {body["seed"] for body in server.requests}
    with OpenAIServer(refused=("n",)) as server:
        refused = outcomes_of(load(server), jobs)
    assert len(seeds) == len(jobs)
    assert texts_of(ignored) == texts_of(refused)


def test_one_text_repeated_n_times_counts_once() -> None:
    with OpenAIServer(answer=lambda prompt, seed, index: f"Text {seed}.") as server:
        found = outcomes_of(load(server), jobs_for([PROMPT], tries=3))
        assert [body.get("n", 1) for body in server.requests] == [3, 1, 1]
    assert len({outcome.text for outcome in found.values()}) == 3


@pytest.mark.parametrize("several", [True, False])
def test_rows_do_not_depend_on_concurrency_or_order(several: bool) -> None:
    rng = random.Random(0)
    jobs = jobs_for([f"{PROMPT}{number}" for number in range(16)])
    found = []
    for concurrency in (1, 8):
        with OpenAIServer(honours_n=several) as server:
            server.trouble += [None] * 2
            server.trouble += [rng.choice([0.05, 500, "cut", None, 0.02]) for _ in range(16)]
            found.append(texts_of(outcomes_of(load(server), jobs, concurrency=concurrency)))
    assert found[0] == found[1]
    assert len(found[0]) == 32


def test_concurrency_is_used_and_bounded() -> None:
    with OpenAIServer(delay=0.05, honours_n=False) as server:
        started = time.monotonic()
        outcomes_of(load(server), jobs_for([f"{n}" for n in range(15)]), concurrency=5)
        seconds, most = time.monotonic() - started, server.most_under_way
        with pytest.raises(InputError, match="concurrency is 0"):
            EndpointSampler(load(server), Sampling(), concurrency=0)
    assert most == 5
    assert seconds < 0.05 * 33


def test_jobs_are_taken_as_they_are_needed() -> None:
    taken = 0

    def endless() -> Iterable[Job]:
        nonlocal taken
        for job in jobs_for([f"{PROMPT}{number}" for number in range(5000)], tries=1):
            taken += 1
            yield job

    def then(outcome: Outcome) -> None:
        raise KeyboardInterrupt

    with OpenAIServer() as server, pytest.raises(KeyboardInterrupt):
        EndpointSampler(load(server), Sampling()).run(endless(), then)
    assert taken <= 128


def test_next_tries_run_alone() -> None:
    with OpenAIServer(ended="length") as server:
        asked = []

        def then(outcome: Outcome) -> Job | None:
            job = outcome.job
            asked.append(job.attempt)
            assert outcome.reason == "not-closed"
            if job.attempt >= 4:
                return None
            return Job(0, "s", "1", job.attempt + 2, (PROMPT,), job_key(0, "s", "1", 2))

        EndpointSampler(load(server), Sampling()).run(jobs_for([PROMPT]), then)
        assert [body.get("n", 1) for body in server.requests] == [2, 1, 1, 1, 1]
    assert sorted(asked) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "ended", "expected"),
    [
        ("A dog.", "stop", ("A dog.", None)),
        (" A dog. ", "stop", (" A dog. ", None)),
        ("A dog", "length", ("A dog", "not-closed")),
        ('A dog." And', "length", ("A dog.", None)),
        ("A\ndog", "stop", ("A\ndog", "newline")),
        (" ", "stop", (" ", "empty")),
        ("A dog.", "content_filter", ("A dog.", "filtered")),
    ],
)
def test_reasons(text: str, ended: str, expected: tuple[str, str | None]) -> None:
    with OpenAIServer(ended=ended, answer=lambda prompt, seed, index: text) as server:
        (outcome,) = outcomes_of(load(server), jobs_for([PROMPT], tries=1)).values()
    assert (outcome.text, outcome.reason) == expected
    assert outcome.tokens == len(text.split())
    assert outcome.floor_share is None  # not measured


def test_long_prompts_are_dropped_one_by_one() -> None:
    with OpenAIServer(longest=150) as server:
        found = outcomes_of(load(server), jobs_for([PROMPT, "long " * 99]))
    assert [found[job].reason for job in found if job.item == 1] == ["prompt-too-long"] * 2
    assert [found[job].reason for job in found if job.item == 0] == [None] * 2


def test_filtered_prompts_are_dropped() -> None:
    refusal = {"error": {"message": "no", "code": "content_filter"}}
    with OpenAIServer() as server:
        endpoint = load(server)
        server.trouble.append((400, {}, refusal))
        found = outcomes_of(endpoint, jobs_for([PROMPT]), concurrency=1)
    assert sorted(str(outcome.reason) for outcome in found.values()) == ["filtered"] * 2


def test_an_error_ends_the_run() -> None:
    with OpenAIServer() as server:
        endpoint = load(server)
        server.key = "changed"
        before = threading.active_count()
        with pytest.raises(InputError, match="401"):
            outcomes_of(endpoint, jobs_for([f"{n}" for n in range(50)]))
        time.sleep(0.1)  # what was under way
        asked = len(server.requests)
        time.sleep(0.2)
        assert len(server.requests) == asked <= 8
    patience = time.monotonic() + 10  # a busy machine takes its time to end threads
    while threading.active_count() > before + 1 and time.monotonic() < patience:
        time.sleep(0.05)
    assert threading.active_count() <= before + 1


def test_self_debiasing_off_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer() as server:
        endpoint = load(server)
        assert not caplog.records
        for _ in range(2):
            EndpointSampler(endpoint, Sampling())
        (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == endpoint.statement
    assert "self-debiasing is off" in endpoint.statement


@pytest.mark.parametrize(
    ("answer", "is_whole", "expected"),
    [
        ("A dog runs.", True, 'A dog runs."'),
        ("A dog runs.", False, "A dog runs."),
        ('A dog runs."', False, 'A dog runs."'),
        ('  "A dog runs."\n\nI hope this helps.', True, 'A dog runs."'),
        ('"A dog runs', False, "A dog runs"),
        ("\u201cA dog runs.\u201d", True, 'A dog runs."'),
        ('Sentence 2: "A dog runs."', True, 'A dog runs."'),
        ('He said "go" twice.', True, "He said 'go' twice.\""),
        ('"He said \\"go\\" twice."', True, "He said 'go' twice.\""),
        ("", True, '"'),
        ('""', True, '"'),
        ('"', False, ""),
        ("Sure! Here is a sentence:\n\nA dog runs.", True, 'A dog runs."'),
        ('Certainly! Here\u2019s one: "A dog runs."', True, 'A dog runs."'),
        ("**Another sentence:**\n**A dog runs.**", True, 'A dog runs."'),
        ('Of course:\n**Sentence 2:** "A dog runs."', True, 'A dog runs."'),
        ("<think>\nA dog, or a cat?\n</think>\n\nA dog runs.", True, 'A dog runs."'),
        ("<think>\nA dog, or", False, ""),
        ("A dog, or a cat?\n</think>\n\nA dog runs.", True, 'A dog runs."'),
        ("Okay, the meeting is at 10:30.", True, 'Okay, the meeting is at 10:30."'),
        ('My 15" monitor flickers.', True, "My 15' monitor flickers.\""),
        ('It is 15" I hope this helps.', True, 'It is 15"'),
        ("Here is the sentence you asked for: A dog runs.", True, 'A dog runs."'),
        ("Sure, here is another review: Dogs run.", True, 'Dogs run."'),
        ('Okay, as you like: "A dog runs."', True, 'A dog runs."'),
        ("Here is the dog: it runs", True, 'Here is the dog: it runs"'),
        ("Sure, the plot is thin: nobody cares.", True, 'Sure, the plot is thin: nobody cares."'),
        ("Sure, here is a premise: A man walks.", True, 'A man walks."'),
        ("Absolutely love this one: it is great.", True, 'Absolutely love this one: it is great."'),
        ("Of course the answer is no: he left.", True, 'Of course the answer is no: he left."'),
        ("Here's what I loved: all.", True, "Here's what I loved: all.\""),
        ("The dog: it runs.", True, 'The dog: it runs."'),
        ('She said "hello and then she wal', False, "She said 'hello and then she wal"),
        ('She said "hello.', True, "She said 'hello.\""),
        ('She said "hello" and "bye', False, "She said 'hello' and 'bye"),
        ('Sure! "A dog runs."', True, 'A dog runs."'),
        ('Sure! Here is a ticket:\n\n"**A dog runs.**"', True, 'A dog runs."'),
        ('"**A dog** runs in **a park**"', True, '**A dog** runs in **a park**"'),
        ('Okay "A dog" runs.', True, "Okay 'A dog' runs.\""),
        ("My text:\nA dog\nruns.", True, 'A dog\nruns."'),
        ("Dear team:\nA dog\nruns.", True, 'Dear team:\nA dog\nruns."'),
        ("Hello, here is a text:\nA dog runs.", True, 'A dog runs."'),
        ("Here is my question: who runs?", True, 'Here is my question: who runs?"'),
        ('"I said "no" to him."', True, "I said 'no' to him.\""),
        ('"I said "no" to him."\n\nI hope this helps.', True, "I said 'no' to him.\""),
        ('"I said "no" to hi', False, "I said 'no' to hi"),
        ("\u201cI said \u201cno\u201d to him.\u201d", True, 'I said \u201cno\u201d to him."'),
        ("\u201cI said \u201cno\u201d to hi", False, "I said \u201cno\u201d to hi"),
        ('"A dog runs." Or: "A cat runs."', True, 'A dog runs."'),
        ("Hello there:\nA dog runs.", True, 'Hello there:\nA dog runs."'),
        ("Here is my review: I loved it.", True, 'I loved it."'),
        ('"The dog ran off" would be a good text.', True, 'The dog ran off"'),
        ('"It is 5" long."', True, "It is 5' long.\""),
        ('"Good" is what I call it.', True, "'Good' is what I call it.\""),
        ('"A dog runs" is my sentence', False, 'A dog runs"'),
        ('"Great," he said. "Buy it."', True, "'Great,' he said. 'Buy it.'\""),
        ('Absolutely the best: "wow" they said.', True, "Absolutely the best: 'wow' they said.\""),
        ("Problem:\nthe app crashes", True, 'Problem:\nthe app crashes"'),
        ("Review:\nA fine film.", True, 'A fine film."'),
        ('Okay: "A dog runs."', True, 'A dog runs."'),
    ],
)
def test_unquote(answer: str, is_whole: bool, expected: str) -> None:
    assert unquote(answer, PROMPT, is_whole=is_whole) == expected


def test_chat() -> None:
    with OpenAIServer(answer=lambda p, seed, i: f'"Text {seed} {i}."') as server:
        found = outcomes_of(load(server, chat=True), jobs_for([PROMPT], tries=2))
        (body,) = server.requests
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert "close it with a quotation mark" in body["messages"][0]["content"]
    assert body["messages"][1]["content"] == PROMPT
    assert "stop" not in body
    seed = body["seed"]
    assert texts_of(found) == {(0, 0): f"Text {seed} 0.", (0, 1): f"Text {seed} 1."}


def test_tokens_are_shared_by_length() -> None:
    choices = (ReplyChoice("a" * 9, "stop"), ReplyChoice("a" * 29, "stop"))
    assert share_tokens(Reply(choices, 0, 40)) == [10, 30]
    assert sum(share_tokens(Reply(choices, 0, 41))) == 41
    assert share_tokens(Reply(choices, 0, 0)) == [0, 0]


def settings(folder: Path) -> dict[str, object]:
    return {"inputs": [f"Text {n}." for n in range(24)], "out": folder, "part_size": 4, "seed": 3}


def test_run_goes_on_after_the_server_was_gone_for_long(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        whole = generate("sts-x2", load(server), **settings(tmp_path / "a"))
        impatient = load_endpoint(server.name(), policy=RetryPolicy(failing=0.3, answer=1.0))
        server.trouble += [None] * 40
        server.trouble += [503] * 1000
        with pytest.raises(TilthError, match="the server fails"):
            generate("sts-x2", impatient, **settings(tmp_path / "b"))
        parts = sorted((tmp_path / "b" / "parts").iterdir())
        assert 0 < len(parts) < 6
        written_at = [part.stat().st_mtime_ns for part in parts]
        server.trouble.clear()
        again = generate("sts-x2", load(server), **settings(tmp_path / "b"))
        assert [part.stat().st_mtime_ns for part in parts] == written_at
    assert again.to_dict() == whole.to_dict()


def test_parts_of_an_endpoint_are_small_and_another_count_is_named(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        generate("review-sentiment", load(server), count=5, out=tmp_path)
        assert read_json(tmp_path / "run.json")["settings"]["part_size"] == 32
        with pytest.raises(RunMismatch, match="count is 5 in the folder, 6 asked"):
            generate("review-sentiment", load(server), count=6, out=tmp_path)


def test_rows_are_requests_at_once(tmp_path: Path) -> None:
    for rows, most in ((3, 3), (None, CONCURRENCY)):
        with OpenAIServer(delay=0.25) as server:  # long enough for all to arrive on a busy machine
            out = tmp_path / str(rows)
            generate("sts-x2", load(server), [f"T {n}" for n in range(9)], out=out, rows=rows)
            assert server.most_under_way == most


def test_counts_of_all_sessions_are_in_the_card(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        endpoint = load(server)
        before = len(server.requests)
        generate("sts-x2", endpoint, **settings(tmp_path))
        asked = len(server.requests) - before
        (tmp_path / "parts" / "part-00001.parquet").unlink()
        generate("sts-x2", load(server), **settings(tmp_path))
    usage = endpoint.usage
    card = (tmp_path / "dataset" / "README.md").read_text()
    assert f"took {asked} requests, {usage.prompt_tokens:,} prompt tokens" in card
    assert f"{usage.completion_tokens:,} completion tokens" in card
    assert endpoint.statement in card
    assert read_json(tmp_path / "run.json")["settings"]["decay"] == 0


@pytest.mark.parametrize("chat", [False, True])
def test_several_lines_are_kept_where_allowed(chat: bool) -> None:
    with OpenAIServer(answer=lambda prompt, seed, index: "A dog.\nIt runs.") as server:
        endpoint = load(server, chat=chat)
        one = outcomes_of(endpoint, jobs_for([PROMPT]))
        asked = len(server.requests)
        more = outcomes_of(endpoint, jobs_for([PROMPT]), Sampling(multiline=True))
    assert {outcome.reason for outcome in one.values()} == {"newline"}
    assert {(o.text, o.reason) for o in more.values()} == {("A dog.\nIt runs.", None)}
    if chat:
        first, later = (
            next(body["messages"][0]["content"] for body in bodies)
            for bodies in (server.requests[:asked], server.requests[asked:])
        )
        assert "on one line" in first
        assert "on one line" not in later


@pytest.mark.parametrize(
    ("answer", "reason", "remedy"),
    [("A dog.\nIt runs.", "newline", "--multiline"), ("", "empty", "thinks")],
)
def test_a_session_ends_where_all_first_tries_fail(answer: str, reason: str, remedy: str) -> None:
    prompts = [f"{PROMPT}{n}" for n in range(100)]
    with OpenAIServer(answer=lambda prompt, seed, index: answer) as server:
        with pytest.raises(
            TilthError, match=rf"first 30 attempts .*\({reason}\).*{remedy}"
        ) as error:
            outcomes_of(load(server, chat=True), jobs_for(prompts))
        assert repr(" ".join(answer.split())) in str(error.value)
        assert len(server.requests) < 50


def test_a_session_does_not_end_for_inputs_that_are_too_long() -> None:
    prompts = [*(f"{n} {'x' * 3000}{PROMPT}" for n in range(40)), PROMPT]
    with OpenAIServer(longest=3000, answer=lambda prompt, seed, index: "A dog.") as server:
        found = outcomes_of(load(server, chat=True), jobs_for(prompts)).values()
    assert [outcome.reason for outcome in found].count("prompt-too-long") == len(found) - 2
    assert [outcome.text for outcome in found if outcome.reason is None] == ["A dog."] * 2


def test_a_run_that_goes_on_is_not_judged_by_its_next_tries(tmp_path: Path) -> None:
    said = ["A dog."]
    with OpenAIServer(answer=lambda prompt, seed, index: said[0]) as server:
        given: dict[str, Any] = {
            "task": "sts-x2", "lm": load(server, chat=True), "out": tmp_path, "part_size": 20,
            "inputs": [f"Text {n}." for n in range(40)],
        }  # fmt: skip
        whole = len(generate(**given))
        for name in ("parts/part-00001.parquet", "run.json"):
            assert (tmp_path / name).is_file()
        (tmp_path / "parts/part-00001.parquet").unlink()
        said[0] = "A dog.\nIt runs."
        assert len(generate(**given)) == whole // 2


def test_a_session_goes_on_where_one_of_the_first_tries_is_kept() -> None:
    def answer(prompt: str, seed: int, index: int) -> str:
        return "A dog." if prompt.endswith("x") else "A dog.\nIt runs."

    prompts = [f"{PROMPT}{n}" for n in range(20)]
    with OpenAIServer(answer=answer) as server:
        found = outcomes_of(load(server), jobs_for([PROMPT + "x", *prompts]), concurrency=1)
    assert len(found) == 42

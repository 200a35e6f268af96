import gzip
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest

from tests.models.openai_server import OpenAIServer, written
from tilth.errors import InputError, TilthError
from tilth.models import load_lm
from tilth.models.endpoint import (
    Endpoint,
    RetryPolicy,
    Stopped,
    _seconds,
    load_endpoint,
    parse_name,
)
from tilth.models.endpoint_protocol import (
    FilteredError,
    PromptTooLongError,
    Request,
    StrangeReplyError,
    hidden,
    read_reply,
    refusal,
    refused_field,
)

QUICK = RetryPolicy(failing=5.0, first=0.03, answer=2.0)
SECRET = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, no_proxy: None) -> None:
    monkeypatch.setattr("tilth.models.endpoint.FIRST_PAUSE", 0.02)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def endpoint(server: OpenAIServer) -> Endpoint:
    return load_endpoint(server.name(), policy=QUICK)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai:http://host:8000/v1#org/m-1:q4", ("http://host:8000/v1", "org/m-1:q4", False)),
        ("openai-chat:https://[::1]:1/v1/#m", ("https://[::1]:1/v1", "m", True)),
    ],
)
def test_name_is_split(name: str, expected: tuple[str, str, bool]) -> None:
    assert parse_name(name) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("openai:", "does not start with openai:http"),
        ("openai:ftp://localhost/v1#m", "does not start with openai:http"),
        ("openai-images:http://localhost:8000/v1#m", "does not start with openai:http"),
        ("openai:http://#m", "no valid host"),
        ("openai:http://localhost:eighty/v1#m", "no valid host"),
        ("openai:http://local host/v1#m", "no valid host"),
        ("openai:http://localhost:8000/v1#", "no model after #"),
        ("openai:http://localhost:8000/v1?key=x#m", "or a query: put the key in OPENAI_API_KEY"),
        (f"openai:http://me:{SECRET}@localhost/v1#m", "put the key in OPENAI_API_KEY"),
        (f"openai:http://me:{SECRET}@host:eighty/v1#m", "put the key in OPENAI_API_KEY"),
    ],
)
def test_malformed_names_are_refused_and_no_secret_is_repeated(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        load_endpoint(name)
    assert "openai:http://host:port/v1#model" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_load_lm_knows_endpoints(server: OpenAIServer) -> None:
    endpoint, again = load_lm(server.name()), load_lm(server.name())
    chat = load_lm(server.name(chat=True))
    server.model = "other"
    other = load_lm(server.name())
    assert (endpoint.is_chat, chat.is_chat) == (False, True)
    assert endpoint.fingerprint == again.fingerprint != other.fingerprint


def test_missing_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InputError, match=r"pip install .tilth\[endpoint\]"):
        load_endpoint("openai:http://localhost:1/v1#m")


def test_completion_and_counts(server: OpenAIServer, endpoint: Endpoint) -> None:
    assert endpoint.usage.requests == 0  # the first contact does not count
    reply = endpoint.ask(Request("Two words", n=3, seed=7, max_tokens=9, top_p=0.5, top_k=4))
    texts = [written("Two words", 7, index) for index in range(3)]
    assert [choice.text for choice in reply.choices] == texts
    assert reply.completion_tokens == sum(len(text.split()) for text in texts)
    asked = {"n": 3, "seed": 7, "max_tokens": 9, "top_p": 0.5, "top_k": 4, "temperature": 1.0}
    assert server.requests[-1] == {"model": "small", "prompt": "Two words", **asked}
    server.usage = False
    endpoint.ask(Request("One two three"))
    usage = endpoint.usage
    assert (usage.requests, usage.retries, usage.prompt_tokens) == (2, 0, 2)
    assert usage.completion_tokens == reply.completion_tokens


def test_chat_is_found_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer(styles=("chat",)) as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        endpoint.ask(Request("Hello", system="Be short", stop=("x",)))
        assert endpoint.is_chat
        assert server.requests[-1]["messages"] == [
            {"role": "system", "content": "Be short"},
            {"role": "user", "content": "Hello"},
        ]
    assert "asked by chat" in caplog.text


def test_chat_is_found_by_what_the_server_says(server: OpenAIServer) -> None:
    said = "This is a chat model and not supported in the v1/completions endpoint. Did you mean "
    said += "to use v1/chat/completions?"
    server.trouble.append((404, {}, {"error": {"message": said}}))
    assert load_endpoint(server.name(), policy=QUICK).is_chat


@pytest.mark.parametrize("field", ["top_k", "seed", "n", "stop"])
def test_refused_fields_are_left_out(field: str, caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer(refused=(field,)) as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        for _ in range(2):
            endpoint.ask(Request("Hello", n=2, seed=3, top_k=5, stop=('"',)))
        assert field not in server.requests[-1]
    assert caplog.text.count(f"refuses '{field}'") == 1
    assert endpoint.left_out == {field}


def test_a_field_stays_where_the_request_is_refused_without_it_too(
    server: OpenAIServer, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    server.trouble += [(400, {}, {"error": {"message": "the text 'seed' is not allowed"}})] * 2
    with pytest.raises(TilthError, match="refuses the request"):
        endpoint.ask(Request("Hello", seed=3))
    assert not endpoint.left_out
    assert "asked without" not in caplog.text
    endpoint.ask(Request("Hello", seed=3))
    assert server.requests[-1]["seed"] == 3


@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
def test_a_filtered_prompt_is_told_from_a_refused_request(
    code: str, server: OpenAIServer, endpoint: Endpoint
) -> None:
    said = {"message": "the seed of this prompt was flagged", "code": code, "param": "prompt"}
    server.trouble.append((400, {}, {"error": said}))
    with pytest.raises(FilteredError, match="a filter refuses the prompt: the seed"):
        endpoint.ask(Request("Hello", seed=3))


def test_patience_with_a_server_that_scores_nothing_is_that_of_the_question_alone(
    server: OpenAIServer,
) -> None:
    endpoint = load_endpoint(server.name(), policy=RetryPolicy(failing=60.0, first=0.3))
    server.trouble += [500] * 1000
    with pytest.raises(InputError, match="no log-probabilities of prompts"):
        endpoint.find_scoring()
    assert endpoint.policy.failing == 60.0


def test_newer_name_of_the_limit(server: OpenAIServer) -> None:
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server.trouble.append((400, {}, {"error": {"message": said, "param": "max_tokens"}}))
    load_endpoint(server.name(chat=True), policy=QUICK).ask(Request("Hello", max_tokens=33))
    assert server.requests[-1]["max_completion_tokens"] == 33
    assert "max_tokens" not in server.requests[-1]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"error": {"message": "Invalid 'temperature'", "param": "temperature"}}, None),
        ({"error": {"message": "not supported", "param": "temperature"}}, "temperature"),
        ({"detail": [{"loc": ["body", "top_k"], "msg": "extra"}]}, "top_k"),
        ({"detail": "n and seed"}, None),
        ("unknown argument seed", "seed"),
    ],
)
def test_a_field_whose_value_is_refused_stays(body: Any, field: str | None) -> None:
    fields = {"temperature": 9.0, "n": 2, "seed": 1, "extra_body": {"top_k": 5}}
    text = body if isinstance(body, str) else json.dumps(body)
    assert refused_field(text, fields) == field


def test_retry_after_is_a_number_or_a_date() -> None:
    later = datetime.now(timezone.utc) + timedelta(seconds=60)
    assert 57 < _seconds(format_datetime(later, usegmt=True)) <= 60
    past = format_datetime(later - timedelta(days=1), usegmt=True)
    assert [_seconds(one) for one in ("1.5", "7", past, "soon", "")] == [1.5, 7.0, 0.0, 0.0, 0.0]


def test_a_failing_server_that_asks_for_longer_than_is_waited_is_asked_again(
    server: OpenAIServer, endpoint: Endpoint
) -> None:
    server.trouble.append((503, {"Retry-After": "3600"}))
    assert endpoint.ask(Request("Hello")).choices
    assert endpoint.usage.retries == 1


@pytest.mark.parametrize("trouble", [(429, {"Retry-After": "1"}), (503, {"Retry-After": "1.0"})])
def test_retry_after_is_honoured(trouble: object, server: OpenAIServer, endpoint: Endpoint) -> None:
    server.trouble.append(trouble)
    endpoint.ask(Request("Hello"))
    assert 1.0 <= server.times[-1] - server.times[-2] < 1.5
    assert endpoint.usage.retries == 1


@pytest.mark.parametrize("trouble", [500, 502, 503, 408, "cut", "half", "gzip"])
def test_passing_troubles_are_survived(
    trouble: object, server: OpenAIServer, endpoint: Endpoint
) -> None:
    server.trouble += [trouble, trouble]
    assert endpoint.ask(Request("Hello", seed=1)).choices[0].text == written("Hello", 1, 0)
    assert endpoint.usage.retries == 2


@pytest.mark.parametrize("trouble", [1.0, "drip", "endless", "refusing", "continue"])
def test_slow_and_endless_answers_are_asked_for_again(trouble: Any, server: OpenAIServer) -> None:
    policy = RetryPolicy(failing=5.0, first=0.3, answer=0.4)
    endpoint = load_endpoint(server.name(), policy=policy)
    server.trouble.append(trouble)
    start = time.monotonic()
    assert endpoint.ask(Request("Hello")).choices
    assert time.monotonic() - start < 3
    assert endpoint.usage.retries == 1


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (500, r"the server fails \(500\), given up after"),
        ((429, {"Retry-After": "0"}), r"too many requests \(429\), given up after"),
        ((429, {"Retry-After": "3600"}), "it asks for 3600 s"),
        ((503, {}, {"error": {"message": "no memory left"}}), "own log .it says 'no memory left'"),
        ("cut", r"no connection \(.*\), given up after"),
    ],
)
def test_a_request_is_given_up_at_the_deadline(
    trouble: object, says: str, server: OpenAIServer
) -> None:
    endpoint = load_endpoint(server.name(), policy=RetryPolicy(failing=0.6, answer=1.0))
    server.trouble += [trouble] * 1000
    started = time.monotonic()
    with pytest.raises(TilthError, match=says) as caught:
        endpoint.ask(Request("Hello"))
    assert time.monotonic() - started < 2.0
    assert "\n" not in str(caught.value)


def test_waiting_ends_when_the_run_does(
    server: OpenAIServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.models.endpoint.FIRST_PAUSE", 4.0)
    server.trouble += [500] * 20
    stopped = threading.Event()
    threading.Timer(0.2, stopped.set).start()
    started = time.monotonic()
    with pytest.raises(Stopped):
        endpoint.ask(Request("Hello"), stopped)
    assert time.monotonic() - started < 2.0


def test_killed_and_restarted_server_is_survived(
    server: OpenAIServer, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    threading.Timer(1.0, server.start).start()
    reply = endpoint.ask(Request("Hello", seed=5))
    assert reply.choices[0].text == written("Hello", 5, 0)
    assert caplog.text.count("asked again") == 1
    assert endpoint.usage.retries >= 3


def test_nobody_listens() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(TilthError, match=r"refused.*check the address") as caught:
        load_endpoint(f"openai:http://127.0.0.1:{port}/v1#m", policy=QUICK)
    assert time.monotonic() - started < 2.0
    assert caught.value.exit_code == 1


def test_wrong_key_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", f" {SECRET}\n")
    with OpenAIServer(key=SECRET) as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        assert server.headers[-1]["authorization"] == f"Bearer {SECRET}"
        server.trouble.append((400, {}, {"error": {"message": f"bad thing with {SECRET}"}}))
        with pytest.raises(TilthError, match=r"bad thing with \*\*\*"):
            endpoint.ask(Request("Hello"))
        server.trouble += [(200, {}, {"seen": f"Bearer {SECRET}"})] * 9
        with pytest.raises(TilthError, match=r"no completion but .*Bearer \*\*\*") as strange:
            endpoint.ask(Request("Hello"))
        assert SECRET not in str(strange.value)
        server.trouble.clear()
        server.key = "another"
        with pytest.raises(InputError, match="OPENAI_API_KEY is refused") as caught:
            endpoint.ask(Request("Hello"))
    assert SECRET not in f"{caught.value}{endpoint!r}{endpoint}{caplog.text}"


def test_broken_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}\nsecond")
    with pytest.raises(InputError, match="OPENAI_API_KEY") as caught:
        load_endpoint("openai:http://localhost:1/v1#m")
    assert SECRET not in str(caught.value)


GZIP = {"Content-Encoding": "gzip"}
NO_MODEL = gzip.compress(b'{"error": {"message": "none such model"}}')
CODE = {"error": {"message": "not found", "code": "model_not_found"}}
QUOTA = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}


@pytest.mark.parametrize(
    ("server", "trouble", "chat", "said", "requests"),
    [
        (OpenAIServer(key="another"), [], False, "set OPENAI_API_KEY", 1),
        (OpenAIServer(model="small"), [], False, "does not know model 'large'", 1),
        (OpenAIServer(model="large", styles=("completions",)), [], True, "ends in /v1", 1),
        (OpenAIServer(model="large", styles=()), [], False, "has no completions", 2),
        (OpenAIServer(styles=()), [(501, {}, {})] * 2, False, "has no completions", 2),
        (OpenAIServer(), [(404, {}, CODE)], False, "does not know model 'large': not found", 1),
        (OpenAIServer(), [(404, GZIP, NO_MODEL)], False, "does not know model 'large': none", 1),
        (OpenAIServer(styles=()), [(404, {}, "<p>a model page</p>")], False, "no completions", 2),
        (OpenAIServer(styles=()), [(404, GZIP, "none")], False, "has no completions", 2),
        (OpenAIServer(), [(403, {})], False, "does not let this key use model 'large'", 1),
        (OpenAIServer(), ["garbage"] * 9, False, r"Welcome to the router.*ends in /v1", 3),
        (OpenAIServer(), ["endless"] * 9, False, "answers more than 16 MB: check that the add", 3),
        (OpenAIServer(), [(429, {}, QUOTA)], False, "quota of this key is used up", 1),
    ],
)
def test_what_cannot_be_used_is_said_at_the_first_contact(
    server: OpenAIServer, trouble: list[object], chat: bool, said: str, requests: int
) -> None:
    with server:
        server.trouble += trouble
        name = f"openai{'-chat' if chat else ''}:{server.base}#large"
        with pytest.raises(TilthError, match=said):
            load_endpoint(name, policy=RetryPolicy(failing=9.0, answer=9.0))
        assert len(server.requests) == requests


def test_long_prompt(server: OpenAIServer, endpoint: Endpoint) -> None:
    server.longest = 60
    with pytest.raises(PromptTooLongError):
        endpoint.ask(Request("word " * 60))


TEXT = '"choices": [{"text": "A dog."}]'


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"choices": []}',
        '{"choices": [{}]}',
        '{"choices": null}',
        '{"choices": [{"text": 3}]}',
        "[" * 100_000,
        '{"choices": [{"index": Infinity, "text": "a"}]}',
        '{"choices": [{"index": NaN, "text": "a"}]}',
        '{"choices": [{"index": ' + "9" * 5000 + ', "text": "a"}]}',
        "{" + TEXT + ', "usage": {"prompt_tokens": Infinity}}',
        "{" + TEXT + ', "prompt_logprobs": [null, {"5": {"logprob": NaN}}]}',
    ],
)
def test_what_is_no_completion_is_strange(body: str) -> None:
    with pytest.raises(StrangeReplyError):
        read_reply(body)
    refusal(400, body, where="x", model="m", key_set=False)
    assert refused_field(body, {"n": 2}) is None


@pytest.mark.parametrize("said", ['sk-a/b"c', r"sk-a/b\"c", r"sk-a\/b\"c"])
def test_a_key_is_hidden_in_each_way_of_writing_it(said: str) -> None:
    assert hidden(f"Bearer {said}!", 'sk-a/b"c') == "Bearer ***!"
    assert hidden("none of it", "") == "none of it"


@pytest.mark.parametrize("count", [-5, 1e300, 2**40])
def test_counts_of_tokens_that_cannot_be_are_not_counted(count: float) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count}
    reply = read_reply(json.dumps({"choices": [{"text": "A dog."}], "usage": usage}))
    assert (reply.prompt_tokens, reply.completion_tokens) == (0, 0)


def test_what_a_server_says_moves_no_terminal() -> None:
    said = str(refusal(400, "\x1b[31mred\x07\u202e\r\nline", where="x", model="m", key_set=False))
    assert said.isprintable()
    assert "[31mred" in said

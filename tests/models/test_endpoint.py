from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from itertools import pairwise

import pytest

from tests.models.openai_server import OpenAIServer, _Handler, written
from tilth.errors import InputError, TilthError
from tilth.models import load_lm
from tilth.models.endpoint import Endpoint, load_endpoint, parse_name
from tilth.models.endpoint_client import (
    Request,
    RetryPolicy,
    Stopped,
)
from tilth.models.endpoint_replies import (
    PromptTooLongError,
    StrangeReplyError,
    read_reply,
    refusal,
    refused_field,
)

QUICK = RetryPolicy(failing=5.0, first=0.3, answer=2.0)
SECRET = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.02)
    monkeypatch.setattr("tilth.models.endpoint_client.PAUSE", 0.05)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_name_is_split() -> None:
    base, model, styles = parse_name("openai:http://localhost:8000/v1#org/model-1:q4")
    assert (base, model) == ("http://localhost:8000/v1", "org/model-1:q4")
    assert styles == ("completions", "chat")
    chat = parse_name("openai-chat:https://[::1]:1/v1/#m")
    assert chat == ("https://[::1]:1/v1", "m", ("chat",))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("openai:", "does not start with openai:http"),
        ("openai:localhost:8000/v1#m", "does not start with openai:http"),
        ("openai:ftp://localhost/v1#m", "does not start with openai:http"),
        ("openai:http://#m", "no valid host"),
        ("openai:http://localhost:eighty/v1#m", "no valid host"),
        ("openai:http://localhost:99999/v1#m", "no valid host"),
        ("openai:http://local host/v1#m", "no valid host"),
        ("openai:http://localhost:8000/v1", "no model after #"),
        ("openai:http://localhost:8000/v1#", "no model after #"),
        ("openai:http://localhost:8000/v1?key=x#m", "or a query: put the key in OPENAI_API_KEY"),
        ("openai-images:http://localhost:8000/v1#m", "does not start with openai:http"),
    ],
)
def test_malformed_names(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        load_endpoint(name)
    assert "openai:http://host:port/v1#model" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", [f"me:{SECRET}@localhost", f"me:{SECRET}@host:eighty"])
def test_password_in_the_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InputError, match="OPENAI_API_KEY") as caught:
        load_endpoint(f"openai:http://{address}/v1#m")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("chat", [False, True])
def test_load_lm_knows_endpoints(chat: bool) -> None:
    with OpenAIServer() as server:
        endpoint = load_lm(server.name(chat=chat))
        assert isinstance(endpoint, Endpoint)
        assert endpoint.is_chat == chat
        again = load_lm(server.name(chat=chat))
        server.model = "other"
        other = load_lm(server.name(chat=chat))
    assert endpoint.fingerprint == again.fingerprint != other.fingerprint


def test_missing_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(InputError, match=r"pip install .tilth\[endpoint\]"):
        load_endpoint("openai:http://localhost:1/v1#m")


def test_completion_and_counts() -> None:
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        assert endpoint.usage.requests == 0  # the first contact does not count
        reply = endpoint.ask(Request("Two words", n=3, seed=7, max_tokens=9, top_p=0.5, top_k=4))
        texts = [written("Two words", 7, index) for index in range(3)]
        assert [choice.text for choice in reply.choices] == texts
        assert reply.prompt_tokens == 2
        assert reply.completion_tokens == sum(len(text.split()) for text in texts)
        assert endpoint.usage.requests == 1
        body = server.requests[-1]
    asked = {"n": 3, "seed": 7, "max_tokens": 9, "top_p": 0.5, "top_k": 4, "temperature": 1.0}
    assert body == {"model": "small", "prompt": "Two words", **asked}


def test_counts_add_up() -> None:
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        replies = [endpoint.ask(Request("One two three", seed=seed)) for seed in range(3)]
        server.usage = False
        endpoint.ask(Request("One two three"))
    assert endpoint.usage.requests == 4
    assert endpoint.usage.prompt_tokens == 9
    assert endpoint.usage.completion_tokens == sum(r.completion_tokens for r in replies) > 9
    assert endpoint.usage.retries == 0


def test_chat_is_found_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer(styles=("chat",)) as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        endpoint.ask(Request("Hello", system="Be short", stop=("x",)))
        assert endpoint.is_chat
        messages = server.requests[-1]["messages"]
    assert messages == [
        {"role": "system", "content": "Be short"},
        {"role": "user", "content": "Hello"},
    ]
    assert "asked by chat" in caplog.text


def test_chat_is_found_by_what_the_server_says() -> None:
    said = "This is a chat model and not supported in the v1/completions endpoint. Did you mean "
    trouble = (404, {}, {"error": {"message": said + "to use v1/chat/completions?"}})
    with OpenAIServer() as server:
        server.trouble.append(trouble)
        assert load_endpoint(server.name(), policy=QUICK).is_chat


@pytest.mark.parametrize("field", ["top_k", "seed", "n", "stop"])
def test_refused_fields_are_left_out(field: str, caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer(refused=(field,)) as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        for _ in range(2):
            endpoint.ask(Request("Hello", n=2, seed=3, top_k=5, stop=('"',)))
        assert field not in server.requests[-1]
    assert caplog.text.count(f"refuses '{field}'") == 1
    assert endpoint.client.left_out == {field}


def test_newer_name_of_the_limit() -> None:
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with OpenAIServer() as server:
        server.trouble.append((400, {}, {"error": {"message": said, "param": "max_tokens"}}))
        endpoint = load_endpoint(server.name(chat=True), policy=QUICK)
        endpoint.ask(Request("Hello", max_tokens=33))
        assert server.requests[-1]["max_completion_tokens"] == 33
        assert "max_tokens" not in server.requests[-1]


def test_a_refused_value_is_an_error() -> None:
    said = "Invalid 'temperature': expected at most 2"
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        server.trouble.append((400, {}, {"error": {"message": said, "param": "temperature"}}))
        with pytest.raises(TilthError, match="at most 2"):
            endpoint.ask(Request("Hello", temperature=9.0))


def test_retry_after_is_honoured() -> None:
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        server.trouble += [(429, {"Retry-After": "0.6"}), (429, {"retry-after-ms": "300"})]
        endpoint.ask(Request("Hello"))
        waits = [b - a for a, b in pairwise(server.times[-3:])]
    assert 0.6 <= waits[0] < 1.0
    assert 0.3 <= waits[1] < 0.6
    assert endpoint.usage.retries == 2


def test_a_wait_longer_than_the_clients_own_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.MAX_RETRY_AFTER_DELAY", 0.1)
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        server.trouble.append((429, {"Retry-After": "1"}))
        endpoint.ask(Request("Hello"))
        assert server.times[-1] - server.times[-2] >= 1.0
        assert endpoint.usage.retries == 1


@pytest.mark.parametrize("trouble", [500, 502, 503, 408, "cut", "half"])
def test_passing_troubles_are_survived(trouble: object) -> None:
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        server.trouble += [trouble, trouble]
        reply = endpoint.ask(Request("Hello", seed=1))
        assert reply.choices[0].text == written("Hello", 1, 0)
        assert endpoint.usage.retries == 2


def test_slow_answers_are_asked_for_again() -> None:
    patience = RetryPolicy(failing=5.0, first=0.3, answer=0.3)
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=patience)
        server.trouble.append(1.0)
        endpoint.ask(Request("Hello"))
        assert endpoint.usage.retries == 1


@pytest.mark.parametrize("trouble", [500, (429, {"Retry-After": "0"}), "cut"])
def test_patience_ends(trouble: object) -> None:
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=RetryPolicy(failing=0.6, answer=1.0))
        server.trouble += [trouble] * 1000
        started = time.monotonic()
        with pytest.raises(TilthError, match="given up after") as caught:
            endpoint.ask(Request("Hello"))
        assert time.monotonic() - started < 2.0
    assert "\n" not in str(caught.value)


def test_a_wait_longer_than_patience_is_not_waited() -> None:
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        server.trouble.append((429, {"Retry-After": "3600"}))
        started = time.monotonic()
        with pytest.raises(TilthError, match="429"):
            endpoint.ask(Request("Hello"))
    assert time.monotonic() - started < 1.0


def test_waiting_ends_when_the_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.models.endpoint_client.PAUSE", 4.0)
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        server.trouble += [500] * 20
        stopped = threading.Event()
        threading.Timer(0.2, stopped.set).start()
        started = time.monotonic()
        with pytest.raises(Stopped):
            endpoint.ask(Request("Hello"), stopped)
    assert time.monotonic() - started < 2.0


def test_killed_and_restarted_server_is_survived(caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        server.kill()
        threading.Timer(1.0, server.start).start()
        reply = endpoint.ask(Request("Hello", seed=5))
        assert reply.choices[0].text == written("Hello", 5, 0)
        time.sleep(0.1)
    assert "asked again" in caplog.text
    assert endpoint.usage.retries >= 2


def test_nobody_listens() -> None:
    started = time.monotonic()
    with pytest.raises(TilthError, match="nobody listens there") as caught:
        load_endpoint(f"openai:http://127.0.0.1:{free_port()}/v1#m", policy=QUICK)
    assert time.monotonic() - started < 2.0
    assert "check host and port" in str(caught.value)
    assert caught.value.exit_code == 1


def test_wrong_key_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with OpenAIServer(key=SECRET) as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        assert server.headers[-1]["authorization"] == f"Bearer {SECRET}"
        server.key = "another"
        with pytest.raises(InputError, match="OPENAI_API_KEY is refused") as caught:
            endpoint.ask(Request("Hello"))
    assert SECRET not in f"{caught.value}{endpoint!r}{endpoint}{caplog.text}"


QUOTA = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}


@pytest.mark.parametrize(
    ("server", "trouble", "chat", "said", "requests"),
    [
        (OpenAIServer(key="another"), [], False, "set OPENAI_API_KEY", 1),
        (OpenAIServer(model="small"), [], False, "does not know model 'large'", 1),
        (OpenAIServer(model="large", styles=("completions",)), [], True, "ends in /v1", 1),
        (OpenAIServer(model="large", styles=()), [], False, "has no completions", 2),
        (OpenAIServer(), ["garbage"] * 9, False, r"Welcome to the router.*ends in /v1", 3),
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
            load_endpoint(name, policy=QUICK)
        assert len(server.requests) == requests


def test_chat_can_be_asked_for() -> None:
    with OpenAIServer() as server:
        assert not load_endpoint(server.name(), policy=QUICK).is_chat
        assert load_endpoint(server.name(chat=True), policy=QUICK).is_chat
        assert "messages" in server.requests[-1]


def test_a_key_the_server_repeats_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f" {SECRET}\n")
    with OpenAIServer() as server:
        server.trouble.append((400, {}, {"error": {"message": f"bad thing with {SECRET}"}}))
        with pytest.raises(TilthError, match=r"bad thing with \*\*\*"):
            load_endpoint(server.name(), policy=QUICK)


def test_broken_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}\nsecond")
    with pytest.raises(InputError, match="OPENAI_API_KEY") as caught:
        load_endpoint("openai:http://localhost:1/v1#m")
    assert SECRET not in str(caught.value)


def test_model_that_is_not_listed_warns(caplog: pytest.LogCaptureFixture) -> None:
    with OpenAIServer(listed=("tiny", "big")) as server:
        load_endpoint(server.name(), policy=QUICK)
    assert "lists 'big', 'tiny'" in caplog.text
    caplog.clear()
    with OpenAIServer(listed=("small",)) as server:
        load_endpoint(server.name(), policy=QUICK)
    assert not caplog.records


def test_long_prompt() -> None:
    with OpenAIServer(longest=60) as server:
        endpoint = load_endpoint(server.name(), policy=QUICK)
        with pytest.raises(PromptTooLongError):
            endpoint.ask(Request("word " * 60))


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
    ],
)
def test_strange_replies(body: str) -> None:
    with pytest.raises(TilthError):
        read_reply(body)


def test_an_answer_without_end_ends(trouble_without_end: str) -> None:
    patience = RetryPolicy(failing=5.0, first=0.3, answer=0.4)
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=patience)
        server.trouble.append(trouble_without_end)
        start = time.monotonic()
        assert endpoint.ask(Request("A dog", seed=1)).choices
        assert time.monotonic() - start < 3
        assert endpoint.usage.retries == 1


@pytest.fixture(params=["drip", "endless", "gzip"])
def trouble_without_end(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_headers_without_end_are_given_up() -> None:
    with OpenAIServer() as server:
        endpoint = load_endpoint(server.name(), policy=RetryPolicy(failing=0.4, answer=0.4))
        server.trouble.append("continue")
        with pytest.raises(TilthError, match=r"no answer within 0.4 s, given up"):
            endpoint.ask(Request("A dog"))


def test_an_answer_that_is_too_large_says_so() -> None:
    with OpenAIServer() as server:
        server.trouble.extend(["endless"] * 3)
        with pytest.raises(TilthError, match="answers more than 16 MB: check that the address"):
            load_endpoint(server.name(), policy=RetryPolicy(failing=9.0, first=0.3, answer=9.0))


def test_a_list_of_models_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Handler, "do_GET", lambda handler: handler._go_on("drip"))
    with OpenAIServer() as server:
        start = time.monotonic()
        load_endpoint(server.name(), policy=RetryPolicy(failing=5.0, first=0.3, answer=0.4))
        assert time.monotonic() - start < 3


TEXT = '"choices": [{"text": "A dog."}]'


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"choices": ' + "[" * 100_000,
        '{"choices": [{"index": Infinity, "text": "a"}]}',
        '{"choices": [{"index": NaN, "text": "a"}]}',
        '{"choices": [{"index": 1e999, "text": "a"}]}',
        '{"choices": [{"index": ' + "9" * 5000 + ', "text": "a"}]}',
        "{" + TEXT + ', "usage": {"prompt_tokens": Infinity}}',
        "{" + TEXT + ', "usage": {"completion_tokens": NaN}}',
    ],
)
def test_numbers_and_depths_that_no_completion_has_are_strange(body: str) -> None:
    with pytest.raises(StrangeReplyError):
        read_reply(body)
    refusal(400, body, where="x", model="m", key_set=False)
    assert refused_field(body, {"n"}) is None


@pytest.mark.parametrize("count", [-5, -1e300, 1e300, 2**40])
def test_counts_of_tokens_that_cannot_be_are_not_counted(count: float) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count}
    reply = read_reply(json.dumps({"choices": [{"text": "A dog."}], "usage": usage}))
    assert (reply.prompt_tokens, reply.completion_tokens) == (0, 0)


def test_what_a_server_says_moves_no_terminal() -> None:
    said = str(refusal(400, "\x1b[31mred\x07\u202e\r\nline", where="x", model="m", key_set=False))
    assert said.isprintable()
    assert "[31mred" in said

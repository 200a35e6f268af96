"""Send requests to an OpenAI-compatible server through the official client, within a deadline.

The client retries, waits as the server asks and spreads its attempts. Calls it gives up are
repeated until the deadline of the retry policy.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tilth.errors import TilthError
from tilth.models.endpoint_replies import (
    OPTIONAL,
    Reply,
    StrangeReplyError,
    is_passing,
    read_reply,
    refusal,
    refused_field,
)

if TYPE_CHECKING:
    import openai

PAUSE = 5.0  # seconds between calls of the client, each of which retries by itself
_RETRIES, _FIRST_RETRIES = 4, 2  # of one call; while the server has never answered
# A server going down may send half a reply; three in a row have another cause.
_STRANGE_ATTEMPTS = 3
_LARGEST_ANSWER = 16 << 20  # bytes
# The client's key without OPENAI_API_KEY: self-hosted servers need none.
NO_KEY = "none"

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait for a server, in seconds.

    Attributes:
        failing: a request is given up after failing for so long; a restart of the server within
            it is survived.
        first: the same for a server that never answered: most likely the address is wrong.
        answer: a request without a complete answer after so long counts as failed.
    """

    failing: float = 300.0
    first: float = 3.0
    answer: float = 300.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request for completions; fields are named as in the protocol."""

    prompt: str  # for chat, the user's message
    system: str = ""  # for chat, the system message
    n: int = 1
    seed: int = 0
    max_tokens: int = 40
    temperature: float = 1.0
    top_p: float = 1.0  # 1 keeps all tokens
    top_k: int = 0  # 0 keeps all tokens
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Usage:
    """Answered requests, repeated failed attempts, and tokens as the server counts them."""

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Stopped(Exception):  # noqa: N818 (no error: the run ended while this request waited)
    """The run ended: the answer is no longer wanted."""


class _Failure(Exception):  # noqa: N818 (the request may still succeed)
    """A failed call that may be repeated: `limit` (429), `strange`, `unreached` or another."""

    def __init__(self, problem: str, remedy: str = "", kind: str = "", wait: float = 0.0) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.kind, self.wait = problem, remedy, kind, wait


@dataclass
class EndpointClient:
    """Sends requests for one model to one server; threads may share it."""

    base_url: str
    model: str
    key: str = field(repr=False)
    policy: RetryPolicy
    usage: Usage = field(default_factory=Usage)
    left_out: set[str] = field(default_factory=set)  # fields that the server refused
    client: openai.OpenAI = field(init=False, repr=False)
    _said: set[str] = field(default_factory=set, repr=False)
    _answered: float = field(default=-1.0, repr=False)  # time of the last good reply
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def __post_init__(self) -> None:
        import openai

        seconds = self.policy.answer
        client = weakref.proxy(self)
        hooks: dict[str, list[Callable[[Any], None]]] = {
            "request": [lambda request: client._count_retry(request)],
            "response": [lambda response: _limit_answer(response, seconds)],
        }
        connections = openai.DefaultHttpxClient(event_hooks=hooks)
        self.client = openai.OpenAI(
            base_url=self.base_url,
            api_key=self.key,
            timeout=openai.Timeout(seconds, connect=min(10.0, seconds)),
            default_headers={"Accept-Encoding": "identity"},
            http_client=connections,
        )
        weakref.finalize(self.client, connections.close)

    def ask(self, request: Request, style: str, stopped: threading.Event | None = None) -> Reply:
        """Ask until there is an answer or the policy ends; `style` is `completions` or `chat`.

        Waiting ends with `Stopped` when `stopped` is set. Raises `PromptTooLongError`, `InputError`
        for a wrong key or model, `TilthError` if the server fails for too long or refuses.
        """
        begun, strange = time.monotonic(), 0
        while True:
            retries = _RETRIES if self._answered >= 0 else _FIRST_RETRIES
            try:
                reply = self._call(request, style, retries, begun)
            except _Failure as failure:
                strange += failure.kind == "strange"
                self._check_deadline(failure, begun, strange)
                with self._lock:
                    self.usage.retries += 1
                if (stopped or threading.Event()).wait(max(PAUSE, failure.wait)):
                    raise Stopped from None
                continue
            with self._lock:
                self._answered = time.monotonic()
                self.usage.requests += 1
                self.usage.prompt_tokens += reply.prompt_tokens
                self.usage.completion_tokens += reply.completion_tokens
            return reply

    def used(self) -> Usage:
        """Return a copy of the counts so far."""
        with self._lock:
            return replace(self.usage)

    def warn_once(self, message: str) -> None:
        """Log each distinct warning once."""
        with self._lock:
            is_new = message not in self._said
            self._said.add(message)
        if is_new:
            log.warning("%s", message)

    def listed_models(self) -> list[str]:
        """Return the models that the server lists; none if it does not list them or is slow."""
        seconds = min(10.0, self.policy.answer)
        client = self.client.with_options(max_retries=0, timeout=seconds)
        try:
            return sorted(model.id for model in _within(seconds, client.models.list).data)
        except Exception:  # many servers list nothing, or list it in their own form
            return []

    def _count_retry(self, request: Any) -> None:
        if request.headers.get("x-stainless-retry-count", "0") != "0":
            with self._lock:
                self.usage.retries += 1

    def _check_deadline(self, failure: _Failure, begun: float, strange: int) -> None:
        """Raise if another call would come too late, else warn that it will be made."""
        if strange >= _STRANGE_ATTEMPTS:
            raise StrangeReplyError(
                f"endpoint {self.base_url} answers {failure.problem}: check that the address is "
                "that of an OpenAI-compatible server (it usually ends in /v1)"
            )
        limit = self.policy.failing
        if failure.kind == "unreached" and self._answered < 0:
            limit = min(limit, self.policy.first)
        if failure.kind == "limit":  # other requests succeed: this one only has to queue
            begun = max(begun, self._answered)
        now = time.monotonic()
        if now + max(PAUSE, failure.wait) - begun > limit:
            raise TilthError(
                f"endpoint {self.base_url}: {failure.problem}, given up after "
                f"{now - begun:.0f} s: {failure.remedy}"
            )
        self.warn_once(
            f"endpoint {self.base_url}: {failure.problem}; asked again, for up to {limit:.0f} s"
        )

    def _call(self, request: Request, style: str, retries: int, begun: float) -> Reply:
        """Call the client once, without fields that the server refuses."""
        import openai

        client = self.client.with_options(max_retries=retries)
        completions = client.chat.completions if style == "chat" else client.completions
        create: Any = completions.with_raw_response.create
        left = begun + self.policy.failing + self.policy.answer - time.monotonic()
        while True:
            fields = self._fields(request, style)
            try:
                answer = _within(left, lambda: create(**fields))  # noqa: B023 (called at once)
                return read_reply(answer.text)
            except StrangeReplyError as error:
                raise _Failure(str(error), kind="strange") from None
            except openai.APIStatusError as error:
                self._handle_refusal(error, fields)
            except (openai.APITimeoutError, TimeoutError):
                problem = f"no answer within {self.policy.answer:g} s"
                remedy = "the server may be overloaded, ask it for fewer texts at once"
                raise _Failure(problem, remedy) from None
            except openai.APIConnectionError as error:
                raise _Failure(*_connection_problem(error), kind="unreached") from None
            except openai.APIError as error:  # of _limit_answer
                raise _Failure(error.message, kind="strange") from None

    def _handle_refusal(self, error: openai.APIStatusError, fields: dict[str, Any]) -> None:
        """Return if the request should be repeated without the refused field, else raise."""
        status, body = error.status_code, error.response.text
        if self.key != NO_KEY:  # some servers answer with the key they were sent
            body = body.replace(self.key, "***")
        if is_passing(status, body):
            if status != 429:
                problem = f"the server fails ({status})"
                raise _Failure(problem, "look at the server's own log") from None
            asked = error.response.headers.get("retry-after", "")
            wait = float(asked) if asked.isdecimal() else 0.0
            remedy = "try again later" + (f" (it asks for {wait:.0f} s)" if wait else "")
            raise _Failure("too many requests (429)", remedy, "limit", wait) from None
        if status in (400, 422):
            if "messages" in fields and "max_tokens" in fields and "max_completion_tokens" in body:
                with self._lock:  # newer chat models accept the limit under another name only
                    self.left_out.add("max_tokens")
                return
            sent = {name for name in OPTIONAL if name in fields or name in fields["extra_body"]}
            refused = refused_field(body, sent)
            if refused is not None:
                with self._lock:
                    self.left_out.add(refused)
                self.warn_once(f"endpoint {self.base_url} refuses {refused!r}: asked without it")
                return
        key_set = self.key != NO_KEY
        raise refusal(
            status, body, where=self.base_url, model=self.model, key_set=key_set
        ) from None

    def _fields(self, request: Request, style: str) -> dict[str, Any]:
        """Return the fields to send: no refused ones, none without effect."""
        with self._lock:
            left_out = set(self.left_out)
        limit = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        fields: dict[str, Any] = {
            "n": request.n if request.n > 1 else None,
            "seed": request.seed,
            "temperature": request.temperature,
            "top_p": request.top_p if request.top_p < 1 else None,
            "stop": list(request.stop) or None,
            limit: request.max_tokens,
        }
        if style == "chat":
            system = [{"role": "system", "content": request.system}] if request.system else []
            fields["messages"] = [*system, {"role": "user", "content": request.prompt}]
        else:
            fields["prompt"] = request.prompt
        extra = {"top_k": request.top_k} if request.top_k and "top_k" not in left_out else {}
        sent = {
            name: value
            for name, value in fields.items()
            if value is not None and name not in left_out
        }
        return {"model": self.model, **sent, "extra_body": extra}


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Return a call's result, or raise `TimeoutError` and leave the call to its daemon thread."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # raised in the waiting thread
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name="tilth-request").start()
    try:
        return future.result(timeout=max(0.0, seconds))
    except FutureTimeoutError:
        raise TimeoutError from None


def _limit_answer(response: Any, seconds: float) -> None:
    """Raise on reading a reply that is larger or slower than any completion, or compressed.

    `seconds` limits the whole body; the client's own timeout applies to each read.
    """
    import openai

    request = response.request
    if response.headers.get("content-encoding", "identity") != "identity":
        raise openai.APIError("in a compressed form that was not asked for", request, body=None)
    stream, deadline = response.stream, time.monotonic() + seconds

    class Limited(type(stream)):  # type: ignore[misc]  # the library accepts its own class only
        def __init__(self) -> None:
            pass

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for chunk in stream:
                size += len(chunk)
                if size > _LARGEST_ANSWER:
                    problem = f"more than {_LARGEST_ANSWER >> 20} MB"
                    raise openai.APIError(problem, request, body=None)
                if time.monotonic() > deadline:
                    raise openai.APITimeoutError(request)
                yield chunk

        def close(self) -> None:
            stream.close()

    response.stream = Limited()
    if response.status_code == 429 and b"insufficient_quota" in response.read():
        response.headers["x-should-retry"] = "false"  # the client obeys it


def _connection_problem(error: BaseException) -> tuple[str, str]:
    """Return why there is no connection, and the remedy."""
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    said = " ".join(map(str, causes))
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes) or "refused" in said:
        return "nobody listens there", "start the server, or check host and port"
    if "Name or service" in said or "name resolution" in said or "nodename" in said:
        return "the host is unknown", "check the host"
    if "CERTIFICATE" in said or "SSL" in said:
        return "no secure connection", "check whether it is http or https"
    return "the connection broke", "look at the server's own log"

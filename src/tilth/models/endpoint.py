"""A language model behind an OpenAI-compatible server, asked until a deadline.

`openai:http://host:port/v1#model` uses completions, or chat where the server has no completions
for the model; `openai-chat:http://host:port/v1#model` uses chat.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
import weakref
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tilth.errors import InputError, TilthError
from tilth.models.endpoint_protocol import (
    SCORINGS,
    NoSuchPathError,
    Reply,
    Request,
    StrangeReplyError,
    hidden,
    is_passing,
    read_reply,
    refusal,
    refused_field,
    said_by,
)

if TYPE_CHECKING:
    import openai

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0  # seconds before a request is repeated
# A server going down may send half a reply; three have another cause.
_STRANGE_ATTEMPTS = 3
_WARNED_ATTEMPTS = 3  # fewer failures are not worth a warning
_LARGEST_ANSWER, _LARGEST_REFUSAL = 16 << 20, 1 << 16  # bytes
_ANY_ZLIB = zlib.MAX_WBITS | 32  # with the head of gzip or of zlib
_NO_KEY = "none"  # the client's without OPENAI_API_KEY: self-hosted servers need none
_FORM = "openai:http://host:port/v1#model, or openai-chat: for chat"
_SCHEMES = ("openai", "openai-chat")
_PROBE = Request('Task: Write a sentence.\nSentence: "', seed=1, max_tokens=16, top_p=0.9, top_k=5)
_SCORED = Request('A cat sleeps. "', answer='A dog."', max_tokens=1)

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
class Endpoint:
    """A model behind an OpenAI-compatible server, made by `load_endpoint`; threads may share it.

    `usage` counts the requests and tokens so far, without the first contact.
    """

    name: str
    base_url: str
    model: str
    is_chat: bool
    policy: RetryPolicy
    key: str = field(repr=False)
    usage: Usage = field(default_factory=Usage)
    left_out: set[str] = field(default_factory=set)  # fields that the server refused
    _client: openai.OpenAI = field(init=False, repr=False)
    _said: set[str] = field(default_factory=set, repr=False)
    _answered: float = field(default=-1.0, repr=False)  # time of the last good reply
    _scoring: str | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        import openai

        connections = openai.DefaultHttpxClient(event_hooks={"response": [_cut_refusal]})
        # The client's own retries have no deadline, and tell nothing until they end.
        self._client = openai.OpenAI(
            base_url=self.base_url,
            api_key=self.key,
            max_retries=0,
            timeout=openai.Timeout(self.policy.answer, connect=min(10.0, self.policy.answer)),
            http_client=connections,
        )
        weakref.finalize(self._client, connections.close)

    @property
    def fingerprint(self) -> str:
        """16 hex digits of address and model: the server's weights cannot be read."""
        return hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()

    @property
    def statement(self) -> str:
        """Statement about texts from an endpoint, for cards."""
        return (
            f"self-debiasing is off: endpoint {self.base_url} gives texts, no distributions, so "
            "texts of different labels lie closer together"
        )

    @property
    def _secret(self) -> str:
        return "" if self.key == _NO_KEY else self.key

    def ask(
        self,
        request: Request,
        stopped: threading.Event | None = None,
        *,
        failing: float | None = None,
    ) -> Reply:
        """Ask until there is an answer or the retry policy ends.

        Waiting ends with `Stopped` when `stopped` is set. Raises `PromptTooLongError`,
        `FilteredError`, `InputError` for a wrong key or model, `TilthError` if the server fails for
        too long or refuses.

        Args:
            failing: replaces that of the policy.
        """
        failing = self.policy.failing if failing is None else failing
        begun, strange, attempts = time.monotonic(), 0, 0
        while True:
            try:
                reply = self._call(request)
            except _Failure as failure:
                pause = max(failure.wait, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(attempts, 20)))
                strange += failure.kind == "strange"
                attempts += 1
                limit = self._check_deadline(failure, begun, pause, strange, failing)
                if attempts == _WARNED_ATTEMPTS:
                    self.warn_once(
                        f"endpoint {self.base_url}: {failure.problem}; asked again, for up to "
                        f"{limit:.0f} s"
                    )
                with self._lock:
                    self.usage.retries += 1
                if (stopped or threading.Event()).wait(pause):
                    raise Stopped from None
                continue
            with self._lock:
                self._answered = time.monotonic()
                self.usage.requests += 1
                self.usage.prompt_tokens += reply.prompt_tokens
                self.usage.completion_tokens += reply.completion_tokens
            return reply

    def find_scoring(self) -> str:
        """Return how this server gives the log-probabilities of a prompt, one of `SCORINGS`.

        Raises `InputError` if it does not.
        """
        if self._scoring is None:
            self._scoring = self._try_scorings()
        return self._scoring

    def _try_scorings(self) -> str:
        why = "the reply has none"
        for scoring in SCORINGS[self.is_chat :]:  # chat repeats no prompt
            request = replace(_SCORED, scoring=scoring)
            try:  # some servers fail at what they lack
                reply = self.ask(request, failing=self.policy.first)
            except TilthError as error:
                why = str(error)
                continue
            if reply.prompt_likelihood is not None:
                return scoring
        raise InputError(
            f"endpoint {self.base_url} gives no log-probabilities of prompts ({why}): leave out "
            "--candidates, or ask a server that does, such as vLLM, for completions (openai:)"
        )

    def warn_once(self, message: str) -> None:
        """Log each distinct warning once."""
        with self._lock:
            is_new = message not in self._said
            self._said.add(message)
        if is_new:
            log.warning("%s", message)

    def _check_deadline(
        self, failure: _Failure, begun: float, pause: float, strange: int, failing: float
    ) -> float:
        """Return for how many seconds a request may fail; raise if the next call is too late."""
        if strange >= _STRANGE_ATTEMPTS:
            raise StrangeReplyError(
                f"endpoint {self.base_url} answers {failure.problem}: check that the address is "
                "that of an OpenAI-compatible server (it usually ends in /v1)"
            )
        limit = failing
        if failure.kind == "unreached" and self._answered < 0:
            limit = min(limit, self.policy.first)
        if failure.kind == "limit":  # other requests succeed: this one only has to queue
            begun = max(begun, self._answered)
        now = time.monotonic()
        if now + pause - begun > limit:
            raise TilthError(
                f"endpoint {self.base_url}: {failure.problem}, given up after "
                f"{now - begun:.0f} s: {failure.remedy}"
            )
        return limit

    def _call(self, request: Request) -> Reply:
        """Send a request, again without a field that the server refuses, until it refuses none."""
        import openai

        style = self._client.chat.completions if self.is_chat else self._client.completions
        create: Any = style.with_streaming_response.create
        refused = set[str]()
        while True:
            fields = request.fields(is_chat=self.is_chat, left_out=self.left_out | refused)
            try:
                body = _answer(create, {"model": self.model, **fields}, self.policy.answer)
                reply = read_reply(body, self._secret)
            except StrangeReplyError as error:
                raise _Failure(str(error), kind="strange") from None
            except openai.APIStatusError as error:
                refused.add(self._refused(error, fields))
            except (openai.APITimeoutError, TimeoutError):
                problem = f"no answer within {self.policy.answer:g} s"
                remedy = "the server may be overloaded, ask it for fewer texts at once"
                raise _Failure(problem, remedy) from None
            except openai.APIConnectionError as error:
                problem = f"no connection ({error.__cause__ or error})"
                remedy = "start the server, or check the address"
                raise _Failure(problem, remedy, "unreached") from None
            else:
                self._leave_out(refused)
                return reply

    def _leave_out(self, refused: set[str]) -> None:
        """Send some fields no more: without them a refused request was answered."""
        self.left_out |= refused
        for name in sorted(refused - {"max_tokens"}):  # which goes by another name
            self.warn_once(f"endpoint {self.base_url} refuses {name!r}: asked without it")

    def _refused(self, error: openai.APIStatusError, fields: dict[str, Any]) -> str:
        """Return the refused field without which the request should be repeated, else raise."""
        status, body = error.status_code, hidden(error.response.text, self._secret)
        if is_passing(status, body):
            wait = _seconds(error.response.headers.get("retry-after", ""))
            if status != 429:
                said = said_by(body)
                remedy = "look at the server's own log" + (f" (it says {said!r})" if said else "")
                wait = wait if wait < self.policy.failing else 0.0  # it may be back before
                raise _Failure(f"the server fails ({status})", remedy, wait=wait) from None
            remedy = "try again later" + (f" (it asks for {wait:.0f} s)" if wait else "")
            raise _Failure("too many requests (429)", remedy, "limit", wait) from None
        refused = refused_field(body, fields) if status in (400, 422) else None
        if refused is None:
            raise refusal(
                status, body, where=self.base_url, model=self.model, key_set=bool(self._secret)
            ) from None
        return refused


def _seconds(asked: str) -> float:
    """Return the seconds of a header `Retry-After`, which may be a date."""
    if re.fullmatch(r"\d+(\.\d+)?", asked):
        return float(asked)
    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except ValueError:
        return 0.0


def _answer(create: Any, fields: dict[str, Any], seconds: float) -> str:
    """Return the body of a reply, or raise `TimeoutError`.

    The client's timeout applies to each read, and headers may come without end: so the request
    has a thread of its own, which is left behind when the time is over.
    """
    future: Future[str] = Future()

    def send() -> None:
        try:
            with create(**fields) as response:
                future.set_result(_body(response, seconds))
        except BaseException as error:  # raised in the thread that waits
            future.set_exception(error)

    threading.Thread(target=send, daemon=True, name="tilth-request").start()
    try:
        return future.result(timeout=seconds)
    except FutureTimeoutError:
        raise TimeoutError from None


def _body(response: Any, seconds: float) -> str:
    """Read a reply; raise if it is larger or slower than any completion."""
    body, deadline = bytearray(), time.monotonic() + seconds
    try:
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _LARGEST_ANSWER:
                raise StrangeReplyError(f"more than {_LARGEST_ANSWER >> 20} MB")
            if time.monotonic() > deadline:
                raise TimeoutError
    except (StrangeReplyError, TimeoutError):
        raise
    except Exception as error:  # of whichever http library the client uses
        raise _Failure(f"the connection broke ({error})", "look at the server's own log") from None
    return body.decode(errors="replace")


def _cut_refusal(response: Any) -> None:
    """Keep the beginning of a refusal's body: a server may send it without end, or compressed."""
    if response.status_code < 400:
        return
    stream, body = response.stream, bytearray()
    for chunk in stream:
        body += chunk
        if len(body) > _LARGEST_REFUSAL:
            break
    stream.close()

    class Beginning(type(stream)):  # type: ignore[misc]  # the library accepts its own class only
        def __init__(self) -> None:
            pass

        def __iter__(self) -> Iterator[bytes]:
            yield bytes(body)

        def close(self) -> None:
            pass

    if response.headers.pop("content-encoding", "") in ("gzip", "deflate"):
        with suppress(zlib.error):
            body[:] = zlib.decompressobj(_ANY_ZLIB).decompress(body, _LARGEST_REFUSAL)
    response.stream = Beginning()


def load_endpoint(name: str, *, policy: RetryPolicy | None = None) -> Endpoint:
    """Make an endpoint from its name; ask once, to find a wrong address, key or model.

    Raises `InputError` for a bad name, key or model or a missing client, `TilthError` if nobody
    answers or the server is not OpenAI-compatible.
    """
    base_url, model, is_chat = parse_name(name)
    try:
        import openai  # noqa: F401
    except ImportError:
        raise InputError(
            'endpoints need the openai client: pip install "tilth[endpoint]"'
        ) from None
    endpoint = Endpoint(name, base_url, model, is_chat, policy or RetryPolicy(), _key())
    try:
        endpoint.ask(_PROBE)
    except NoSuchPathError as problem:
        if is_chat:
            raise
        endpoint.is_chat = True
        try:
            endpoint.ask(_PROBE)
        except NoSuchPathError:
            raise problem from None
        endpoint.warn_once(f"endpoint {base_url} has no completions: it is asked by chat")
    endpoint.usage = Usage()
    return endpoint


def parse_name(name: str) -> tuple[str, str, bool]:
    """Split a name into base address, model, and whether chat is asked for."""
    scheme, _, address = name.partition(":")
    address, _, model = address.partition("#")
    if "@" in address or "?" in address:  # it may be secret: it is not repeated
        raise InputError(
            "the endpoint's address holds a user name, a password or a query: put the key in "
            f"OPENAI_API_KEY; the form is {_FORM}"
        )
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        raise InputError(f"endpoint {name!r} has no valid host and port: {_FORM}") from None
    problem = ""
    if scheme not in _SCHEMES or url.scheme not in ("http", "https"):
        problem = "does not start with openai:http:// or openai:https://"
    elif not url.hostname or port == 0 or any(character.isspace() for character in address):
        problem = "names no valid host and port"
    elif not model.strip():
        problem = "names no model after #"
    if problem:
        raise InputError(f"endpoint {name!r} {problem}: the form is {_FORM}")
    base = f"{url.scheme}://{url.netloc}{url.path}".rstrip("/")
    return base, model.strip(), scheme == "openai-chat"


def _key() -> str:
    """Return the key of the environment, or a dummy: self-hosted servers need none."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError("OPENAI_API_KEY holds characters no key has: set it again")
    return key or _NO_KEY

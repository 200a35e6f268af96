"""Asks an OpenAI-compatible server through the official client, again and again while it fails.

The client's own retries are off: ours are counted, bounded by a time without any success, and
end at once when the run ends.
"""

from __future__ import annotations

import email.utils
import logging
import math
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

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

FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
# Knocking at a closed door costs a server nothing, and a restarted one is found sooner.
LONGEST_KNOCK = 4.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server is waited for, in seconds.

    Attributes:
        failing: a request that failed for so long is given up. A server that is killed and
            started again within it is survived.
        first: the same for a server that has not answered yet and that nobody reaches: most
            likely the address is wrong.
        answer: a request without a whole answer for so long counts as failed.
    """

    failing: float = 300.0
    first: float = 3.0
    answer: float = 300.0


def wait_before(
    attempt: int, asked: float | None, rng: random.Random, *, longest: float = LONGEST_WAIT
) -> float:
    """Return the seconds to wait before the next attempt.

    Args:
        attempt: attempts made, from 1.
        asked: what the server asked for (Retry-After), if it did.
        rng: spreads the attempts of several workers, so that they do not come all at once.
        longest: the waits double up to here.
    """
    if asked is not None:
        return asked + rng.uniform(0, 0.1 * asked + 0.05)
    return rng.uniform(0.5, 1.0) * min(longest, FIRST_WAIT * 2.0 ** min(attempt - 1, 30))


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a server asks to wait: Retry-After as a number or a date."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / divisor
        except ValueError:
            date = email.utils.parsedate_tz(value)
            if date is None:
                continue
            seconds = email.utils.mktime_tz(date) - time.time()
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


class Stopped(Exception):  # noqa: N818 (no error: the run ended while this request waited)
    """The run is over: whoever waits need not go on."""


def sleep(seconds: float, stopped: threading.Event | None) -> None:
    """Wait, or raise `Stopped` as soon as the run is over."""
    if (stopped or threading.Event()).wait(seconds):
        raise Stopped


# Half an answer may come from a server that is going down; three in a row do not.
STRANGE_ATTEMPTS = 3
LARGEST_ANSWER = 16 << 20  # bytes
# What the client is given without OPENAI_API_KEY: servers of one's own need no key.
NO_KEY = "none"

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model.

    Attributes:
        prompt: the text to go on with; for chat, what the user says.
        system: for chat, how to answer.
        n: texts wanted.
        seed: of the server's random numbers.
        max_tokens: longest text.
        temperature: of sampling.
        top_p: 1 keeps all tokens.
        top_k: 0 keeps all tokens.
        stop: sequences that end a text and are left out of it.
    """

    prompt: str
    system: str = ""
    n: int = 1
    seed: int = 0
    max_tokens: int = 40
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Usage:
    """What was asked of a server.

    Attributes:
        requests: answered requests.
        retries: attempts that failed and were made again.
        prompt_tokens: tokens read, as the server counts.
        completion_tokens: tokens written, as the server counts.
    """

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(slots=True)
class Asker:
    """Asks one model at one server; threads may share it.

    Attributes:
        client: the official client; the key is in there alone, neither shown nor written.
        base_url: the address, for messages.
        model: the name of the model there.
        patience: how long a failing server is waited for.
        usage: requests and tokens so far.
        left_out: fields the server refused, which are therefore not sent.
    """

    client: openai.OpenAI = field(repr=False)
    base_url: str
    model: str
    patience: Patience
    usage: Usage = field(default_factory=Usage)
    left_out: set[str] = field(default_factory=set)
    _said: set[str] = field(default_factory=set, repr=False)
    _answered: float = field(default=-1.0, repr=False)  # when the last good answer came
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _random: random.Random = field(default_factory=random.Random, repr=False)

    def ask(self, request: Request, style: str, stopped: threading.Event | None = None) -> Reply:
        """Ask until there is an answer, or patience ends.

        Args:
            request: what to ask.
            style: `completions` or `chat`.
            stopped: set when the answer is no longer wanted; waiting ends then with `Stopped`.

        Raises:
            PromptTooLongError: the prompt does not fit.
            InputError: the key or the model is wrong.
            TilthError: the server failed for too long or refuses the request.
        """
        failing_since: float | None = None
        attempt = strange = 0
        while True:
            attempt += 1
            try:
                reply = self._attempt(request, style)
            except _Failure as failure:
                now = time.monotonic()
                failing_since = now if failing_since is None else failing_since
                strange += failure.is_strange
                longest = LONGEST_KNOCK if failure.is_unreached else LONGEST_WAIT
                wait = wait_before(attempt, failure.wait, self._random, longest=longest)
                self._give_up_or_go_on(failure, failing_since, now + wait, strange)
                sleep(wait, stopped)
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

    def say_once(self, message: str, key: str | None = None) -> None:
        """Warn through logging, the same thing (or `key`) once."""
        with self._lock:
            new = (key or message) not in self._said
            self._said.add(key or message)
        if new:
            logger.warning("%s", message)

    def _give_up_or_go_on(self, failure: _Failure, since: float, then: float, strange: int) -> None:
        """Raise when the next attempt would come too late, else say (once) that it will come."""
        with self._lock:
            answered = self._answered
        if strange >= STRANGE_ATTEMPTS:
            raise StrangeReplyError(
                f"endpoint {self.base_url} answers {failure.what}: check that the address is that "
                "of an OpenAI-compatible server (it usually ends in /v1)"
            )
        limit = self.patience.failing
        if failure.is_unreached and answered < 0:
            limit = min(limit, self.patience.first)
        if failure.is_limit:  # others get answers meanwhile: this one only has to queue
            since = max(since, answered)
        if then - since > limit:
            raise TilthError(
                f"endpoint {self.base_url}: {failure.what}, given up after "
                f"{time.monotonic() - since:.0f} s: {failure.mend}"
            )
        with self._lock:
            self.usage.retries += 1
        self.say_once(
            f"endpoint {self.base_url}: {failure.what}; asked again, for up to {limit:.0f} s",
            key=f"{failure.what} after {answered}",
        )

    def _attempt(self, request: Request, style: str) -> Reply:
        """Ask once; leave out what the server refuses."""
        import openai

        fields = self._fields(request, style)
        create: Any = self.client.completions.with_raw_response.create
        if style == "chat":
            create = self.client.chat.completions.with_raw_response.create
        try:
            return read_reply(in_time(lambda: create(**fields).text, self.patience.answer))
        except StrangeReplyError as error:
            raise _Failure(str(error), is_strange=True) from None
        except openai.APIStatusError as error:
            self._take_refusal(error, fields)
            return self._attempt(request, style)
        except (openai.APITimeoutError, TimeoutError):
            what = f"no answer within {self.patience.answer:g} s"
            raise _Failure(
                what, "the server may be overloaded, ask it for fewer texts at once"
            ) from None
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, StrangeReplyError):  # of limit_size
                raise _Failure(str(error.__cause__), is_strange=True) from None
            raise _Failure(*_unreached(error), is_unreached=True) from None

    def _take_refusal(self, error: openai.APIStatusError, fields: dict[str, Any]) -> None:
        """Return when the request should be made without what was refused, else raise."""
        status, body = error.status_code, self._without_key(error.response.text)
        if is_passing(status, body):
            wait = asked_wait(error.response.headers)
            what = "too many requests (429)" if status == 429 else f"the server fails ({status})"
            mend = "look at the server's own log"
            if status == 429:
                mend = "try again later" + (f" (it asks for {wait:.0f} s)" if wait else "")
            raise _Failure(what, mend, wait=wait, is_limit=status == 429) from None
        if status in (400, 422):
            sent = {name for name in OPTIONAL if name in fields or name in fields["extra_body"]}
            if "messages" in fields and "max_tokens" in fields and "max_completion_tokens" in body:
                with self._lock:  # newer chat models know the limit by another name only
                    self.left_out.add("max_tokens")
                return
            refused = refused_field(body, sent)
            if refused is not None:
                with self._lock:
                    self.left_out.add(refused)
                self.say_once(f"endpoint {self.base_url} refuses {refused!r}: asked without it")
                return
        key_set = self.client.api_key != NO_KEY
        where, model = self.base_url, self.model
        raise refusal(status, body, where=where, model=model, key_set=key_set) from None

    def _fields(self, request: Request, style: str) -> dict[str, Any]:
        """Return what is sent: nothing the server refused, nothing that changes nothing."""
        fields: dict[str, Any] = {
            "n": request.n if request.n > 1 else None,
            "seed": request.seed,
            "temperature": request.temperature,
            "top_p": request.top_p if request.top_p < 1 else None,
            "stop": list(request.stop) or None,
        }
        if style == "chat":
            system = [{"role": "system", "content": request.system}] if request.system else []
            fields["messages"] = [*system, {"role": "user", "content": request.prompt}]
        else:
            fields["prompt"] = request.prompt
        with self._lock:
            left_out = set(self.left_out)
        limit = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        fields[limit] = request.max_tokens
        known = {
            name: value
            for name, value in fields.items()
            if value is not None and name not in left_out
        }
        extra = {"top_k": request.top_k} if request.top_k and "top_k" not in left_out else {}
        return {"model": self.model, **known, "extra_body": extra}

    def _without_key(self, text: str) -> str:
        """Some servers answer with the key they were sent."""
        key = str(self.client.api_key)
        return text if key == NO_KEY else text.replace(key, "***")


def in_time(call: Callable[[], T], seconds: float) -> T:
    """Return what a call returns, or raise `TimeoutError`.

    The client's own timeout is of each read: an answer that drips has none. A call that takes too
    long is left to its thread.
    """
    made: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            made.put((call(), None))
        except BaseException as error:  # it is raised where the answer is waited for
            made.put((None, error))

    threading.Thread(target=work, daemon=True, name="tilth-request").start()
    try:
        value, error = made.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return cast("T", value)


def limit_size(response: Any) -> None:
    """Let an answer end with an error where it is larger than any completion.

    Args:
        response: of the client's HTTP library, its body not yet read.

    Raises:
        StrangeReplyError: it is compressed, which was not asked for.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise StrangeReplyError("in a compressed form that was not asked for")
    stream = response.stream

    class Limited(type(stream)):  # type: ignore[misc]  # the library accepts its own class only
        def __init__(self) -> None:
            pass

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for chunk in stream:
                size += len(chunk)
                if size > LARGEST_ANSWER:
                    raise StrangeReplyError(f"more than {LARGEST_ANSWER >> 20} MB")
                yield chunk

        def close(self) -> None:
            stream.close()

    response.stream = Limited()


class _Failure(Exception):  # noqa: N818 (an attempt failed, the request may still succeed)
    """An attempt that may be made again."""

    def __init__(
        self,
        what: str,
        mend: str = "",
        *,
        wait: float | None = None,
        is_limit: bool = False,
        is_strange: bool = False,
        is_unreached: bool = False,
    ) -> None:
        super().__init__(what)
        self.what, self.mend, self.wait = what, mend, wait
        self.is_limit, self.is_strange, self.is_unreached = is_limit, is_strange, is_unreached


def _unreached(error: BaseException) -> tuple[str, str]:
    """Return what stands in the way of a connection, and the mend."""
    causes = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    said = " ".join(str(cause) for cause in causes)
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes) or "refused" in said:
        return "nobody listens there", "start the server, or check host and port"
    if "Name or service" in said or "name resolution" in said or "nodename" in said:
        return "the host is unknown", "check the host"
    if "CERTIFICATE" in said or "SSL" in said:
        return "no secure connection", "check whether it is http or https"
    return "the connection broke", "look at the server's own log"

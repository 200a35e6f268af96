"""A language model behind an OpenAI-compatible server: asked over HTTP, patiently.

Name: `openai:http://host:port/v1#model`. The model is asked for completions; a server that has
none is asked for chat completions. `?chat` or `?completions` before the `#` decides it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tilth.errors import InputError, TilthError
from tilth.models.patience import Patience, Stopped, asked_wait, sleep, wait_before
from tilth.models.replies import (
    OPTIONAL,
    NoSuchPathError,
    Reply,
    StrangeReplyError,
    is_passing,
    read_reply,
    refusal,
    refused_field,
    shorten,
)

if TYPE_CHECKING:
    import openai

FORM = "openai:http://host:port/v1#model (?chat or ?completions may stand before the #)"
STYLES = ("completions", "chat")
# Half an answer may come from a server that is going down; three in a row do not.
STRANGE_ATTEMPTS = 3
_PROBE_PROMPT = 'Task: Write a sentence.\nSentence: "'

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
    """What was asked of an endpoint since it was loaded.

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


@dataclass(frozen=True, slots=True)
class Traits:
    """What a first contact showed of a server.

    Attributes:
        style: `completions` or `chat`.
        several: it writes n different texts for one request.
        repeats: it writes the same texts when asked again with the same seed.
    """

    style: str
    several: bool
    repeats: bool


@dataclass(slots=True)
class Endpoint:
    """A model behind an OpenAI-compatible server; `load_endpoint` makes it from a name.

    Threads may share it. The key is in the client alone: it is neither shown nor written.

    Attributes:
        name: what the user asked for.
        base_url: the address of the server, up to and with `/v1`.
        model: the name of the model there.
        client: the official client.
        style: `completions`, `chat`, or `auto`, which the first contact decides.
        patience: how long a failing server is waited for.
        usage: requests and tokens so far.
    """

    name: str
    base_url: str
    model: str
    client: openai.OpenAI = field(repr=False)
    style: str = "auto"
    patience: Patience = field(default_factory=Patience)
    usage: Usage = field(default_factory=Usage)
    _traits: Traits | None = field(default=None, repr=False)
    _left_out: set[str] = field(default_factory=set, repr=False)
    _said: set[str] = field(default_factory=set, repr=False)
    _answered: float = field(default=-1.0, repr=False)  # when the last good answer came
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _random: random.Random = field(default_factory=random.Random, repr=False)

    @property
    def fingerprint(self) -> str:
        """16 hex digits of name and model: the weights behind a server cannot be seen."""
        text = f"{self.name}\x1f{self.model}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def statement(self) -> str:
        """What must be said of texts from an endpoint."""
        return (
            f"self-debiasing is off: endpoint {self.base_url} gives texts, no distributions, so "
            "decay and floor have no effect and texts of different labels lie closer together"
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """Fields the server refused, which are therefore not sent."""
        return tuple(sorted(self._left_out))

    @property
    def is_chat(self) -> bool:
        """Whether the model is asked by chat; known after the first contact."""
        return self._traits is not None and self._traits.style == "chat"

    def contact(self, like: Request = Request(_PROBE_PROMPT)) -> Traits:
        """Ask for the first time, alone: finds wrong addresses, keys and models, and the traits.

        Args:
            like: the sampling to try; what it asks for does not matter.

        Raises:
            InputError: the key or the model is wrong.
            TilthError: nobody answers, or something that is no OpenAI-compatible server.
        """
        with self._lock:
            if self._traits is None:
                probe = replace(
                    like, prompt=_PROBE_PROMPT, system="", n=2, seed=1, max_tokens=16, stop=()
                )
                style, texts = self._first_answer(probe)
                again = [choice.text for choice in self._ask(probe, style, None).choices]
                self._traits = Traits(
                    style, several=len(texts) == 2 and texts[0] != texts[1], repeats=texts == again
                )
                self._check_listed()
            return self._traits

    def _first_answer(self, probe: Request) -> tuple[str, list[str]]:
        styles = STYLES if self.style == "auto" else (self.style,)
        problem: TilthError | None = None
        for style in styles:
            try:
                reply = self._ask(probe, style, None)
            except NoSuchPathError as error:
                problem = problem or error
                continue
            if style != styles[0]:
                self.say_once(f"endpoint {self.base_url} has no completions: it is asked by chat")
            return style, [choice.text for choice in reply.choices]
        if problem is None:
            raise TypeError("there is at least one style")
        raise problem

    def _check_listed(self) -> None:
        """Warn when the server does not list the model: some answer with whatever they have."""
        try:
            listed = sorted(model.id for model in self.client.models.list().data)
        except Exception:  # a courtesy: many servers list nothing, or list it in their own form
            return
        if listed and self.model not in listed:
            known = shorten(", ".join(map(repr, listed)))
            self.say_once(
                f"endpoint {self.base_url} answers for model {self.model!r} but lists {known}: "
                "the texts may come from another model"
            )

    def ask(self, request: Request, stopped: threading.Event | None = None) -> Reply:
        """Ask, and ask again while the server fails, until patience ends.

        Args:
            request: what to ask.
            stopped: set when the answer is no longer wanted; waiting ends then.

        Raises:
            PromptTooLongError: the prompt does not fit.
            InputError: the key or the model is wrong.
            TilthError: the server failed for too long or refuses the request.
        """
        return self._ask(request, self.contact(request).style, stopped)

    def _ask(self, request: Request, style: str, stopped: threading.Event | None) -> Reply:
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
                wait = wait_before(attempt, failure.wait, self._random)
                self._give_up_or_go_on(failure, failing_since, now + wait, strange)
                sleep(wait, stopped)
                continue
            with self._lock:
                self._answered = time.monotonic()
                self.usage.requests += 1
                self.usage.prompt_tokens += reply.prompt_tokens
                self.usage.completion_tokens += reply.completion_tokens
            return reply

    def _give_up_or_go_on(self, failure: _Failure, since: float, then: float, strange: int) -> None:
        """Raise when the next attempt would come too late, else say (once) that it will come."""
        with self._lock:
            self.usage.retries += 1
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
            return read_reply(create(**fields).text)
        except StrangeReplyError as error:
            raise _Failure(str(error), is_strange=True) from None
        except openai.APIStatusError as error:
            self._status(error, fields)
            return self._attempt(request, style)
        except openai.APITimeoutError:
            what = f"no answer within {self.patience.answer:g} s"
            raise _Failure(what, mend="the server may be overloaded") from None
        except openai.APIConnectionError as error:
            raise _Failure(*_unreached(error), is_unreached=True) from None

    def _status(self, error: openai.APIStatusError, fields: dict[str, Any]) -> None:
        """Take a refusal: return when the request should be made without what was refused."""
        status, body = error.status_code, self._without_key(error.response.text)
        if is_passing(status, body):
            what = "too many requests (429)" if status == 429 else f"the server fails ({status})"
            wait = asked_wait(error.response.headers)
            raise _Failure(what, "try again later", wait=wait, is_limit=status == 429) from None
        if status in (400, 422):
            sent = {name for name in OPTIONAL if name in fields or name in fields["extra_body"]}
            if "max_tokens" in fields and "max_completion_tokens" in body:
                with self._lock:  # newer chat models know the limit by another name only
                    self._left_out.add("max_tokens")
                return
            refused = refused_field(body, sent)
            if refused is not None:
                with self._lock:
                    self._left_out.add(refused)
                self.say_once(f"endpoint {self.base_url} refuses {refused!r}: asked without it")
                return
        raise refusal(
            status,
            body,
            where=self.base_url,
            model=self.model,
            key_set=self.client.api_key != NO_KEY,
        ) from None

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
            left_out = set(self._left_out)
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
        return text.replace(str(self.client.api_key), "***")

    def say_once(self, message: str, key: str | None = None) -> None:
        """Warn through logging, the same thing (or `key`) once."""
        with self._lock:
            new = (key or message) not in self._said
            self._said.add(key or message)
        if new:
            logger.warning("%s", message)


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


NO_KEY = "none"


def load_endpoint(name: str, *, patience: Patience | None = None) -> Endpoint:
    """Make an endpoint from its name; nothing is asked yet.

    Args:
        name: `openai:http://host:port/v1#model`; `?chat` or `?completions` before the `#` decides
            how it is asked.
        patience: how long a failing server is waited for.

    Raises:
        InputError: the name is malformed, or the client is not installed.
    """
    base_url, model, style = parse_name(name)
    patience = patience or Patience()
    try:
        import openai
    except ImportError:
        raise InputError("endpoints need the openai client: pip install tilth[endpoint]") from None
    client = openai.OpenAI(
        base_url=base_url,
        api_key=_key(),
        timeout=openai.Timeout(patience.answer, connect=min(10.0, patience.answer)),
        max_retries=0,  # retries are counted and bounded here
    )
    return Endpoint(name, base_url, model, client, style, patience)


def parse_name(name: str) -> tuple[str, str, str]:
    """Split a name into base address, model and style.

    Raises:
        InputError: the name is malformed.
    """
    scheme, _, address = name.partition(":")
    address, _, model = address.partition("#")
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        raise InputError(f"endpoint {name!r} has no valid host and port: {FORM}") from None
    if url.username is not None or url.password is not None:
        raise InputError(  # the name is written into the run folder: it is not repeated here
            "the endpoint's address holds a user name or password: put the key in OPENAI_API_KEY"
        )
    problem = ""
    if scheme != "openai" or url.scheme not in ("http", "https"):
        problem = "does not start with openai:http:// or openai:https://"
    elif not url.hostname or port == 0 or any(character.isspace() for character in address):
        problem = "names no valid host and port"
    elif not model.strip():
        problem = "names no model after #"
    elif model.endswith(("?chat", "?completions")):
        problem = "has its style after the model"
    elif url.query and url.query not in STYLES:
        problem = f"asks for {url.query!r}"
    if problem:
        raise InputError(f"endpoint {name!r} {problem}: the form is {FORM}")
    base = f"{url.scheme}://{url.netloc}{url.path}".rstrip("/")
    return base, model.strip(), url.query or "auto"


def _key() -> str:
    """Return the key of the environment, or a dummy: servers of one's own need none."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.replace("-", "").isprintable()):
        raise InputError("OPENAI_API_KEY holds characters no key has: set it again")
    return key or NO_KEY


__all__ = ["Endpoint", "Patience", "Request", "Stopped", "Traits", "Usage", "load_endpoint"]

"""A language model behind an OpenAI-compatible server: its name, and what it showed at first.

`openai:http://host:port/v1#model` is asked for completions, or by chat where the server has no
completions for the model; `openai-chat:http://host:port/v1#model` is asked by chat.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from dataclasses import dataclass
from urllib.parse import urlsplit

from tilth.errors import InputError, TilthError
from tilth.models.endpoint_client import (
    NO_KEY,
    Asker,
    Patience,
    Request,
    Usage,
    in_time,
    limit_size,
)
from tilth.models.endpoint_replies import NoSuchPathError, Reply, shorten

FORM = "openai:http://host:port/v1#model, or openai-chat: for chat"
SCHEMES = {"openai": ("completions", "chat"), "openai-chat": ("chat",)}
_PROBE = Request(
    'Task: Write a sentence.\nSentence: "', n=2, seed=1, max_tokens=16, top_p=0.9, top_k=5
)


@dataclass(frozen=True, slots=True)
class Traits:
    """What the first contact showed of a server.

    Attributes:
        style: `completions` or `chat`.
        several: it writes n different texts for one request.
        repeats: it writes the same texts when asked again with the same seed.
    """

    style: str
    several: bool
    repeats: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model behind an OpenAI-compatible server; `load_endpoint` makes it from a name.

    Threads may share it.

    Attributes:
        name: what the user asked for.
        asker: asks, counts and remembers what the server refuses.
        traits: what the first contact showed.
    """

    name: str
    asker: Asker
    traits: Traits

    @property
    def fingerprint(self) -> str:
        """16 hex digits of address and model: the weights behind a server cannot be seen."""
        return hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()

    @property
    def is_chat(self) -> bool:
        """Whether the model is asked by chat."""
        return self.traits.style == "chat"

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far, those of the first contact left out."""
        return self.asker.used()

    @property
    def statement(self) -> str:
        """What must be said of texts from an endpoint."""
        return (
            f"self-debiasing is off: endpoint {self.asker.base_url} gives texts, no "
            "distributions, so texts of different labels lie closer together"
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
        return self.asker.ask(request, self.traits.style, stopped)

    def say_once(self, message: str) -> None:
        """Warn through logging, the same thing once."""
        self.asker.say_once(message)


def load_endpoint(name: str, *, patience: Patience | None = None) -> Endpoint:
    """Make an endpoint from its name and ask it for the first time.

    Args:
        name: `openai:http://host:port/v1#model` or `openai-chat:http://host:port/v1#model`.
        patience: how long a failing server is waited for.

    Raises:
        InputError: the name is malformed, the client is not installed, the key or the model is
            wrong.
        TilthError: nobody answers, or something that is no OpenAI-compatible server.
    """
    base_url, model, styles = parse_name(name)
    patience = patience or Patience()
    try:
        import openai
    except ImportError:
        raise InputError(
            'endpoints need the openai client: pip install "tilth[endpoint]"'
        ) from None
    connections = openai.DefaultHttpxClient(event_hooks={"response": [limit_size]})
    client = openai.OpenAI(
        base_url=base_url,
        api_key=_key(),
        timeout=openai.Timeout(patience.answer, connect=min(10.0, patience.answer)),
        max_retries=0,  # retries are counted and bounded by the asker
        default_headers={"Accept-Encoding": "identity"},
        http_client=connections,
    )
    weakref.finalize(client, connections.close)
    asker = Asker(client, base_url, model, patience)
    traits = _contact(asker, styles)
    _check_listed(asker)
    asker.usage = Usage()
    return Endpoint(name, asker, traits)


def _contact(asker: Asker, styles: tuple[str, ...]) -> Traits:
    """Ask twice for the same: finds wrong addresses, keys and models, and the traits."""
    problem: TilthError | None = None
    for style in styles:
        try:
            first = asker.ask(_PROBE, style)
        except NoSuchPathError as error:
            problem = problem or error
            continue
        if problem is not None:
            asker.say_once(f"endpoint {asker.base_url} has no completions: it is asked by chat")
        texts = [choice.text for choice in first.choices]
        again = [choice.text for choice in asker.ask(_PROBE, style).choices]
        return Traits(style, len(texts) == 2 and texts[0] != texts[1], texts == again)
    raise problem or ValueError("no style to ask in")


def _check_listed(asker: Asker) -> None:
    """Warn when the server does not list the model: some answer with whatever they have."""
    try:
        wait = min(10.0, asker.patience.answer)
        found = in_time(lambda: asker.client.models.list(timeout=wait), wait)
        listed = sorted(model.id for model in found.data)
    except Exception:  # a courtesy: many servers list nothing, or list it in their own form
        return
    if listed and asker.model not in listed:
        known = shorten(", ".join(map(repr, listed)))
        asker.say_once(
            f"endpoint {asker.base_url} answers for model {asker.model!r} but lists {known}: "
            "the texts may come from another model"
        )


def parse_name(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Split a name into base address, model and the styles to try.

    Raises:
        InputError: the name is malformed.
    """
    scheme, _, address = name.partition(":")
    address, _, model = address.partition("#")
    if "@" in address or "?" in address:  # what stands there may be secret: it is not repeated
        raise InputError(
            "the endpoint's address holds a user name, a password or a query: put the key in "
            f"OPENAI_API_KEY; the form is {FORM}"
        )
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        raise InputError(f"endpoint {name!r} has no valid host and port: {FORM}") from None
    problem = ""
    if scheme not in SCHEMES or url.scheme not in ("http", "https"):
        problem = "does not start with openai:http:// or openai:https://"
    elif not url.hostname or port == 0 or any(character.isspace() for character in address):
        problem = "names no valid host and port"
    elif not model.strip():
        problem = "names no model after #"
    if problem:
        raise InputError(f"endpoint {name!r} {problem}: the form is {FORM}")
    base = f"{url.scheme}://{url.netloc}{url.path}".rstrip("/")
    return base, model.strip(), SCHEMES[scheme]


def _key() -> str:
    """Return the key of the environment, or a dummy: servers of one's own need none."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError("OPENAI_API_KEY holds characters no key has: set it again")
    return key or NO_KEY

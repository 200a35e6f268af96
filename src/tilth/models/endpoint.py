"""Connect to a language model behind an OpenAI-compatible server.

`openai:http://host:port/v1#model` uses completions, or chat where the server has no completions
for the model; `openai-chat:http://host:port/v1#model` uses chat.
"""

from __future__ import annotations

import hashlib
import os
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

from tilth.errors import InputError, TilthError
from tilth.models.endpoint_client import NO_KEY, EndpointClient, Request, RetryPolicy, Usage
from tilth.models.endpoint_replies import NoSuchPathError, Reply, shorten

_FORM = "openai:http://host:port/v1#model, or openai-chat: for chat"
_STYLES = {"openai": ("completions", "chat"), "openai-chat": ("chat",)}
_PROBE = Request('Task: Write a sentence.\nSentence: "', seed=1, max_tokens=16, top_p=0.9, top_k=5)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model behind an OpenAI-compatible server, made by `load_endpoint`; threads may share it."""

    name: str
    client: EndpointClient
    is_chat: bool

    @property
    def fingerprint(self) -> str:
        """16 hex digits of address and model: the server's weights cannot be read."""
        return hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far, without the first contact."""
        return self.client.used()

    @property
    def statement(self) -> str:
        """Statement about texts from an endpoint, for cards."""
        return (
            f"self-debiasing is off: endpoint {self.client.base_url} gives texts, no "
            "distributions, so texts of different labels lie closer together"
        )

    def ask(self, request: Request, stopped: threading.Event | None = None) -> Reply:
        """Ask within the retry policy."""
        return self.client.ask(request, "chat" if self.is_chat else "completions", stopped)


def load_endpoint(name: str, *, policy: RetryPolicy | None = None) -> Endpoint:
    """Make an endpoint from its name; ask once, to find a wrong address, key or model.

    Raises `InputError` for a bad name, key or model or a missing client, `TilthError` if nobody
    answers or the server is not OpenAI-compatible.
    """
    base_url, model, styles = parse_name(name)
    try:
        import openai  # noqa: F401
    except ImportError:
        raise InputError(
            'endpoints need the openai client: pip install "tilth[endpoint]"'
        ) from None
    client = EndpointClient(base_url, model, _key(), policy or RetryPolicy())
    style = _first_contact(client, styles)
    listed = client.listed_models()
    if listed and model not in listed:
        known = shorten(", ".join(map(repr, listed)))
        client.warn_once(
            f"endpoint {base_url} answers for model {model!r} but lists {known}: "
            "the texts may come from another model"
        )
    client.usage = Usage()
    return Endpoint(name, client, style == "chat")


def _first_contact(client: EndpointClient, styles: tuple[str, ...]) -> str:
    """Return the first style that the server supports."""
    problem: TilthError | None = None
    for style in styles:
        try:
            client.ask(_PROBE, style)
        except NoSuchPathError as error:
            problem = problem or error
            continue
        if problem is not None:
            client.warn_once(f"endpoint {client.base_url} has no completions: it is asked by chat")
        return style
    raise problem or ValueError("no style to ask in")


def parse_name(name: str) -> tuple[str, str, tuple[str, ...]]:
    """Split a name into base address, model and the styles to try."""
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
    if scheme not in _STYLES or url.scheme not in ("http", "https"):
        problem = "does not start with openai:http:// or openai:https://"
    elif not url.hostname or port == 0 or any(character.isspace() for character in address):
        problem = "names no valid host and port"
    elif not model.strip():
        problem = "names no model after #"
    if problem:
        raise InputError(f"endpoint {name!r} {problem}: the form is {_FORM}")
    base = f"{url.scheme}://{url.netloc}{url.path}".rstrip("/")
    return base, model.strip(), _STYLES[scheme]


def _key() -> str:
    """Return the key of the environment, or a dummy: self-hosted servers need none."""
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError("OPENAI_API_KEY holds characters no key has: set it again")
    return key or NO_KEY

"""Check every request before a page sees it: host, origin, token, size, and CSRF of writes."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

FORM_BYTES = 1 << 20
FILE_BYTES = 64 << 20  # of imported annotations
UPLOADS = ("/import",)  # paths that take a file
CSRF_FIELD, CSRF_HEADER = "csrf", b"x-csrf"
_READS = ("GET", "HEAD")
_LONGEST_PATH = 8_000  # characters of a path with its query
# Under the policy "no-referrer" a browser sends forms with the Origin "null".
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of one server: in the URL that is printed, in the cookie, in forms."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def csrf(self) -> str:
        """Return the value that every form sends back."""
        return hmac.new(self.cookie.encode(), b"csrf", hashlib.sha256).hexdigest()


class Guard:
    """An ASGI application that answers what another one may not see.

    A request passes if its Host is this server's (else: DNS rebinding), its Origin, if any, is the
    same, and it brings the cookie, which a visit with the token sets. Writes need an Origin and the
    CSRF value, too.

    Args:
        host: address that the server listens on.
    """

    def __init__(self, app: App, keys: Keys, host: str, port: int) -> None:
        self._app, self._keys = app, keys
        self._port = port
        self._is_local = ipaddress.ip_address(host).is_loopback
        # Cookies do not tell ports apart: two servers need two names.
        self._cookie = f"tilth-view-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return
        headers = {}
        for name, value in scope["headers"]:
            if name in headers and name in (b"host", b"origin", CSRF_HEADER):
                await _answer(send, 400, f"two {name.decode()} headers")
                return
            headers[name] = value
        host = headers.get(b"host", b"").decode("latin-1")
        refused = self._refused(scope, headers, host)
        if refused is not None:
            await _answer(send, *refused)
            return
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if given is not None and scope["method"] in _READS:
            if not _same(given, self._keys.token):
                await _answer(send, 403, "the token is not this server's: use the URL it printed")
                return
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            await self._enter(send, scope["path"], rest)
            return
        if not self._has_cookie(headers):
            await _answer(send, 403, "open the URL that tilth view printed, with its token")
            return
        if scope["method"] not in _READS:
            read = await self._body(scope, headers, receive)
            if isinstance(read, tuple):
                await _answer(send, *read)
                return
            receive = _replay(read)
        await self._app(scope, receive, _with_headers(send))

    def _refused(
        self, scope: Scope, headers: dict[bytes, bytes], host: str
    ) -> tuple[int, str] | None:
        if not self._is_own(host):
            return 421, "the Host header does not name this server"
        if scope["method"] not in (*_READS, "POST"):
            return 405, "only GET and POST are answered"
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _LONGEST_PATH:
            return 414, "the address is too long"
        origin = headers.get(b"origin")
        is_write = scope["method"] == "POST"
        if (origin is not None or is_write) and not self._is_same_origin(origin, host):
            return 403, "the request comes from another page"
        is_other = headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")
        if is_other and (is_write or headers.get(b"sec-fetch-mode") != b"navigate"):
            return 403, "the request comes from another page"
        return None

    def _is_own(self, host: str) -> bool:
        """Return whether a Host header names this server.

        Names of others may lead here by DNS; addresses cannot be made to.
        """
        parts = _parts(f"//{host}")
        if parts is None or (parts[1] or 80) != self._port:
            return False
        name = parts[0]
        if name == "localhost" or (not self._is_local and name == socket.gethostname().lower()):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._is_local

    def _is_same_origin(self, origin: bytes | None, host: str) -> bool:
        if origin is None:
            return False
        text = origin.decode("latin-1")
        return text.startswith("http://") and _parts(text) == _parts(f"//{host}")

    def _has_cookie(self, headers: dict[bytes, bytes]) -> bool:
        # Cookies of other servers on this machine come along, some of them in no known syntax.
        pairs = headers.get(b"cookie", b"").decode("latin-1").split(";")
        held = [value for name, _, value in (pair.strip().partition("=") for pair in pairs)
                if name == self._cookie]  # fmt: skip
        return any(_same(value, self._keys.cookie) for value in held)

    async def _enter(self, send: Send, path: str, rest: str) -> None:
        """Set the cookie and lead to the address without the token."""
        place = "/" + path.lstrip("/\\")  # "//name" would lead elsewhere
        if not (place.isascii() and place.isprintable()):  # no header
            place = "/"
        target = f"{place}?{rest}" if rest else place
        cookie = f"{self._cookie}={self._keys.cookie}; Path=/; HttpOnly; SameSite=Strict"
        headers = [("location", target), ("set-cookie", cookie)]
        await _answer(send, 303, "", *headers)

    async def _body(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive
    ) -> bytes | tuple[int, str]:
        """Read the body of a write, bounded, and check its CSRF value."""
        is_upload = scope["path"] in UPLOADS
        most = FILE_BYTES if is_upload else FORM_BYTES
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > most:
            return 413, f"the request is too large: at most {most:,} bytes"
        given = headers.get(CSRF_HEADER, b"").decode("latin-1")
        if is_upload and not _same(given, self._keys.csrf):
            return 403, "the form has expired: load the page again"
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return 400, "the request ended too early"
            body += message.get("body", b"")
            if len(body) > most:
                return 413, f"the request is too large: at most {most:,} bytes"
            if not message.get("more_body"):
                break
        if not is_upload and not _same(form_of(bytes(body)).get(CSRF_FIELD, ""), self._keys.csrf):
            return 403, "the form has expired: load the page again"
        return bytes(body)


def form_of(body: bytes) -> dict[str, str]:
    """Return the fields of a form; of several with one name, the values are joined by newlines."""
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=10_000)
    except ValueError:
        return {}
    for name, value in pairs:
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def _parts(url: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.path or parts.query or not parts.hostname:
            return None
        return parts.hostname, parts.port
    except ValueError:
        return None


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())


def _replay(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((name.encode(), value.encode()) for name, value in HEADERS.items()
                  if name.encode() not in own),
            ]  # fmt: skip
        await send(message)

    return guarded


async def _answer(send: Send, status: int, text: str, *headers: tuple[str, str]) -> None:
    """Send a plain answer."""
    body = f"{text}\n".encode() if text else b""
    named = [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-length", str(len(body))),
        *headers,
    ]
    send = _with_headers(send)
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in named]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})

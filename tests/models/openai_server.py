"""A small server on loopback that answers the OpenAI protocol, and misbehaves when asked to."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = "the a red old dog man tree house runs sings falls near under today never".split()  # noqa: SIM905 (one line)


def written(prompt: str, seed: int, index: int) -> str:
    """Return what the server writes: a function of what it is asked."""
    digest = hashlib.sha256(f"{prompt}|{seed}|{index}".encode()).digest()
    return " ".join(WORDS[byte % len(WORDS)] for byte in digest[: 4 + digest[0] % 5]) + "."


def likelihoods(text: str) -> list[float]:
    """Return the log-probability of each character but the first, given those before it."""
    digests = (hashlib.sha256(text[: n + 1].encode()).digest() for n in range(1, len(text)))
    return [-digest[0] / 64 for digest in digests]


def rendered(messages: list[dict[str, Any]]) -> str:
    """Return a chat as the server's model reads it, the last answer open."""
    texts = [f"{message['role']}: {message['content']}" for message in messages]
    opened = messages[-1]["role"] == "assistant"
    return "|".join([*texts, *([] if opened else ["assistant: "])])


_WITHOUT_END = {
    "drip": (b"HTTP/1.1 200 OK\r\n\r\n{", b" ", 0.05),
    "endless": (b"HTTP/1.1 200 OK\r\n\r\n{", b" " * (1 << 20), 0.0),
    "refusing": (b"HTTP/1.1 503 Busy\r\n\r\n{", b" " * (1 << 20), 0.0),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01),
}


@dataclass
class OpenAIServer:
    """Answers on 127.0.0.1; `trouble` holds what happens to the next requests instead.

    A trouble is a status, (status, headers), (status, headers, body), `cut` (the connection ends),
    `garbage` (no JSON), `half` (a cut body), `gzip`, `drip`, `endless`, `refusing` or `continue`
    (without end), a number of seconds as float (slow), or None (well).

    `scorings` holds the ways in which it gives the log-probabilities of a prompt: `echo`,
    `prompt_logprobs`. Another way is ignored, or answered with status `unscored`.
    """

    model: str = "small"
    key: str | None = None
    styles: tuple[str, ...] = ("completions", "chat")
    honours_n: bool = True
    refused: tuple[str, ...] = ()
    delay: float = 0.0
    ended: str = "stop"
    usage: bool = True
    answer: Any = written
    longest: int = 10**6
    scorings: tuple[str, ...] = ()
    unscored: int = 200
    trouble: deque[Any] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.server: ThreadingHTTPServer | None = None
        self.sockets: set[socket.socket] = set()

    def __enter__(self) -> OpenAIServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def name(self, *, chat: bool = False) -> str:
        return f"openai{'-chat' if chat else ''}:{self.base}#{self.model}"

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"owner": self})
        self.server = _Server(("127.0.0.1", self.port), handler)
        self.port = self.server.server_address[1]
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def kill(self) -> None:
        """End at once: open connections are cut in the middle of an answer."""
        if self.server is None:
            return
        self.server.shutdown()
        self.server.server_close()
        self.server = None
        with self.lock:
            cut, self.sockets = self.sockets, set()
        for one in cut:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Cut connections are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    owner: OpenAIServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        with self.owner.lock:
            self.owner.sockets.add(self.connection)

    def finish(self) -> None:
        with self.owner.lock:
            self.owner.sockets.discard(self.connection)
        super().finish()

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        owner = self.owner
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with owner.lock:
            owner.requests.append(body)
            owner.headers.append({k.lower(): v for k, v in self.headers.items()})
            owner.times.append(time.monotonic())
            owner.under_way += 1
            owner.most_under_way = max(owner.most_under_way, owner.under_way)
            trouble = owner.trouble.popleft() if owner.trouble else None
        try:
            time.sleep(owner.delay)
            self._answer(body, trouble)
        finally:
            with owner.lock:
                owner.under_way -= 1

    def _answer(self, body: dict[str, Any], trouble: Any) -> None:
        if isinstance(trouble, float):
            time.sleep(trouble)
            trouble = None
        if trouble == "cut":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif isinstance(trouble, str) and trouble in _WITHOUT_END:
            self._go_on(trouble)
        elif trouble == "gzip":
            self._send(200, "{}", {"Content-Encoding": "gzip"})
        elif trouble == "garbage":
            self._send(200, "<html><body>Welcome to the router</body></html>")
        elif trouble == "half":
            self._send(200, '{"choices": [{"text": "The ')
        elif trouble is not None:
            status, *rest = trouble if isinstance(trouble, tuple) else (trouble,)
            headers = rest[0] if rest else {}
            self._send(status, rest[1] if len(rest) > 1 else _error("trouble"), headers)
        else:
            self._send(*self._reply(body))

    def _go_on(self, trouble: str) -> None:
        """Answer without end."""
        start, piece, wait = _WITHOUT_END[trouble]
        self.close_connection = True
        with suppress(OSError):
            self.wfile.write(start)
            while self.owner.server is not None:
                self.wfile.write(piece)
                time.sleep(wait)

    def _reply(self, body: dict[str, Any]) -> tuple[int, Any]:
        owner = self.owner
        style = {"/v1/completions": "completions", "/v1/chat/completions": "chat"}.get(self.path)
        if style not in owner.styles:
            return 404, {"detail": "Not Found"}
        sent = self.headers.get("Authorization", "")
        if owner.key is not None and sent != f"Bearer {owner.key}":
            return 401, _error(f"Incorrect API key provided: {sent}", "invalid_api_key")
        if body["model"] != owner.model:
            return 404, _error(f"The model `{body['model']}` does not exist.", "model_not_found")
        for name in owner.refused:
            if name in body:
                return 400, _error(f"Unrecognized request argument supplied: {name}")
        asked = {"echo", "prompt_logprobs"} & set(body)
        if asked:
            if not asked & set(owner.scorings) and owner.unscored != 200:
                return owner.unscored, _error("no log-probabilities of prompts")
            return 200, self._scored(style, body, next(iter(asked)))
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        if len(prompt) > owner.longest:
            return 400, _error("too many tokens", "context_length_exceeded")
        texts = [
            owner.answer(prompt, body.get("seed", 0), index)
            for index in range(body.get("n", 1) if owner.honours_n else 1)
        ]
        return 200, self._completion(style, prompt, texts)

    def _scored(self, style: str | None, body: dict[str, Any], scoring: str) -> dict[str, Any]:
        """Answer with the log-probabilities of the prompt and of one character written."""
        owner = self.owner
        text = rendered(body["messages"]) if style == "chat" else body["prompt"]
        each = [None, *likelihoods(text)]
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        choice |= {"message": {"content": "!"}} if style == "chat" else {"text": f"{text}!"}
        found: dict[str, Any] = {"choices": [choice]}
        if scoring not in owner.scorings:
            choice["logprobs"] = None if style == "chat" else {"token_logprobs": [-0.5]}
        elif scoring == "echo":
            choice["logprobs"] = {"token_logprobs": [*each, -0.5]}
        else:
            entries = [one and {"17": {"logprob": one}, "4": {"logprob": 0.0}} for one in each]
            (found if style == "chat" else choice)["prompt_logprobs"] = entries
        usage = {"prompt_tokens": len(text), "completion_tokens": 1}
        return {**found, **({"usage": usage} if owner.usage else {})}

    def _completion(self, style: str | None, prompt: str, texts: list[str]) -> dict[str, Any]:
        choices = []
        for index, text in enumerate(texts):
            value = {"message": {"content": text}} if style == "chat" else {"text": text}
            choices.append({"index": index, "finish_reason": self.owner.ended, **value})
        words = len(prompt.split()), sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": words[0], "completion_tokens": words[1]}
        # The numbering counts, not the order.
        return {"choices": choices[::-1], **({"usage": usage} if self.owner.usage else {})}

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        data = text.encode() if isinstance(text, str) else text
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)


def _error(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "type": "invalid_request_error"}}

"""Parse the replies of an endpoint into checked completions or one-line errors.

Refusals differ between servers; the words matched here are those of OpenAI, vLLM, llama.cpp,
llama-cpp-python and Ollama.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tilth.errors import InputError, TilthError

# Fields of a request that a server may refuse and that can be left out.
OPTIONAL = ("top_k", "seed", "n", "stop", "top_p", "temperature")
_FREELY = frozenset({"top_k", "seed", "n"})
_TOO_LONG = ("context_length", "context length", "context window", "context size", "too long")
_MOST_TOKENS = 2**31  # of one answer
_RETRIED = frozenset({408, 409, 429})


class PromptTooLongError(TilthError):
    """The prompt does not fit into the model's positions."""


class StrangeReplyError(TilthError):
    """The reply is not a complete completion."""


class NoSuchPathError(TilthError):
    """The server has no such path: no completions, or no chat."""


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """One text, without its stop sequence, and its finish reason, such as `stop` or `length`."""

    text: str
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request; token counts are 0 where the server does not say."""

    choices: tuple[ReplyChoice, ...]
    prompt_tokens: int
    completion_tokens: int


def read_reply(body: str) -> Reply:
    """Parse the body of a completion or chat completion; raise `StrangeReplyError` for others."""
    try:
        answer = _parse(body)
        choices = sorted(answer["choices"], key=lambda choice: int(choice.get("index") or 0))
        usage = answer.get("usage") or {}
        reply = Reply(
            tuple(_choice(choice) for choice in choices),
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
        )
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError):
        raise StrangeReplyError(f"no completion but {shorten(body)!r}") from None
    if not reply.choices:
        raise StrangeReplyError("a completion without choices")
    return reply


def _choice(choice: dict[str, Any]) -> ReplyChoice:
    # A refusal or an empty answer of a chat model comes as null.
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    if text is not None and not isinstance(text, str):
        raise TypeError("a text is a string")
    # JSON can carry half a surrogate pair, which no file can.
    whole = (text or "").encode("utf-8", "replace").decode()
    return ReplyChoice(whole, str(choice.get("finish_reason")))


def _parse(body: str) -> Any:
    """Parse JSON; raise ValueError for anything unreadable."""
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _count(value: Any) -> int:
    """Return a token count, 0 if the value is not one."""
    count = int(value or 0)
    return count if 0 <= count <= _MOST_TOKENS else 0


def is_passing(status: int, body: str) -> bool:
    """Return whether a refusal is temporary; a used-up quota is not."""
    return (status in _RETRIED or status >= 500) and "insufficient_quota" not in body


def refused_field(body: str, sent: set[str]) -> str | None:
    """Return the optional field that a refusal (400, 422) names, if it can be left out.

    A field is kept if only its value is refused: the user should change a temperature that the
    server finds too high.
    """
    named = _named(body) & sent
    if len(named) != 1:
        return None
    field = named.pop()
    unsupported = re.search(r"not support|unsupported|not permitted|unrecognized", body, re.I)
    return field if field in _FREELY or unsupported else None


def _named(body: str) -> set[str]:
    """Return the field that a refusal names, or every word of its message."""
    try:
        answer = _parse(body)
        error = answer.get("error") if isinstance(answer.get("error"), dict) else answer
        if isinstance(error.get("param"), str):
            return {error["param"]}
        details = error.get("detail")
        if isinstance(details, list):  # FastAPI: [{"loc": ["body", "top_k"], "msg": ...}]
            return {str(detail["loc"][-1]) for detail in details}
    except (ValueError, AttributeError, TypeError, KeyError, IndexError):
        pass
    return set(re.findall(r"[a-z_]+", _said(body)))


def refusal(status: int, body: str, *, where: str, model: str, key_set: bool) -> TilthError:
    """Return the error for a permanent status of 400 or more."""
    said, low = _said(body), body.lower()
    if status == 401:
        remedy = "OPENAI_API_KEY is refused" if key_set else "set OPENAI_API_KEY"
        return InputError(f"endpoint {where} asks for another key (401): {remedy}")
    if status == 403:
        return InputError(f"endpoint {where} does not let this key use model {model!r} (403)")
    if "insufficient_quota" in body:
        return TilthError(f"endpoint {where}: the quota of this key is used up: {said}")
    if status in (400, 413, 422) and any(words in low for words in _TOO_LONG):
        return PromptTooLongError(f"endpoint {where}: the prompt is too long: {said}")
    if "not a chat model" in low or "chat/completions" in low:
        return NoSuchPathError(f"endpoint {where}: {said}")
    if status in (400, 404) and "model" in low:
        return InputError(f"endpoint {where} does not know model {model!r}: {said}")
    if status in (404, 405, 501):
        return NoSuchPathError(
            f"endpoint {where} has no completions ({status}): check the address, "
            "it usually ends in /v1"
        )
    return TilthError(f"endpoint {where} refuses the request ({status}): {said}")


def _said(body: str) -> str:
    """Return the server's error message."""
    try:
        answer = _parse(body)
        error = answer.get("error", answer)
        said = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        said = body
    return shorten(str(said))


def shorten(text: str) -> str:
    """Return a text on one line, at most 200 characters, without terminal control characters."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= 200 else line[:197] + "..."

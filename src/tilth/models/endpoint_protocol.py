"""The OpenAI protocol: fields of a request, checked completions, refusals as one-line errors.

Refusals differ between servers; the words matched here are those of OpenAI, vLLM, llama.cpp,
llama-cpp-python and Ollama.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tilth.errors import InputError, TilthError

# Fields of a request that a server may refuse and that can be left out.
_OPTIONAL = ("top_k", "seed", "n", "stop", "top_p", "temperature")
_FREELY = frozenset({"top_k", "seed", "n"})
_TOO_LONG = ("context_length", "context length", "context window", "context size", "too long")
_FILTERED = ("content_filter", "content_policy_violation")
_MOST_TOKENS = 2**31  # of one answer
_RETRIED = frozenset({408, 409, 429})


# Completions that repeat the prompt (OpenAI's protocol), and vLLM's own field, also for chat.
SCORINGS = ("echo", "prompt_logprobs")


class PromptTooLongError(TilthError):
    """The prompt does not fit into the model's positions."""


class FilteredError(TilthError):
    """The server's filter refuses the prompt."""


class StrangeReplyError(TilthError):
    """The reply is not a complete completion."""


class NoSuchPathError(TilthError):
    """The server has no such path: no completions, or no chat."""


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
    # Ways to ask for the log-probabilities of the prompt (for chat, with `answer` as its end).
    scoring: str = ""  # one of `SCORINGS`
    answer: str = ""

    def fields(self, *, is_chat: bool, left_out: Collection[str]) -> dict[str, Any]:
        """Return the fields to send: none of `left_out`, none without effect."""
        limit = "max_completion_tokens" if "max_tokens" in left_out else "max_tokens"
        fields: dict[str, Any] = {
            "n": self.n if self.n > 1 else None,
            "seed": self.seed,
            "temperature": self.temperature,
            "top_p": self.top_p if self.top_p < 1 else None,
            "stop": list(self.stop) or None,
            limit: self.max_tokens,
        }
        if is_chat:
            system = [{"role": "system", "content": self.system}] if self.system else []
            fields["messages"] = [*system, {"role": "user", "content": self.prompt}]
        else:
            fields["prompt"] = self.prompt + self.answer
        extra: dict[str, Any] = {}
        if is_chat and self.answer:
            fields["messages"].append({"role": "assistant", "content": self.answer})
            extra |= {"continue_final_message": True, "add_generation_prompt": False}
        if self.scoring == "echo":
            fields |= {"echo": True, "logprobs": 1}
        elif self.scoring:
            extra["prompt_logprobs"] = 0  # those of the prompt's own tokens
        if self.top_k and "top_k" not in left_out:
            extra["top_k"] = self.top_k
        if extra:
            fields["extra_body"] = extra
        return {
            name: value
            for name, value in fields.items()
            if value is not None and name not in left_out
        }


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """One text, without its stop sequence, and its finish reason, such as `stop` or `length`."""

    text: str
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request; token counts are 0 where the server does not say.

    `prompt_likelihood` is the log-probability of the whole prompt, None where the reply lacks it.
    """

    choices: tuple[ReplyChoice, ...]
    prompt_tokens: int
    completion_tokens: int
    prompt_likelihood: float | None = None


def hidden(body: str, secret: str) -> str:
    """Return a body without a key: some servers answer with the one that they were sent."""
    quoted = json.dumps(secret)[1:-1]
    for form in (secret, quoted, quoted.replace("/", "\\/")) if secret else ():
        body = body.replace(form, "***")
    return body


def read_reply(body: str, secret: str = "") -> Reply:
    """Parse the body of a completion or chat completion; raise `StrangeReplyError` for others.

    Args:
        secret: the key, which no message may hold.
    """
    try:
        answer = json.loads(body)
        choices = sorted(answer["choices"], key=lambda choice: int(choice.get("index") or 0))
        usage = answer.get("usage") or {}
        reply = Reply(
            tuple(_choice(choice) for choice in choices),
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            _prompt_likelihood(answer, usage),
        )
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError):
        said = shorten(hidden(body, secret))
        raise StrangeReplyError(f"no completion but {said!r}") from None
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


def _prompt_likelihood(answer: dict[str, Any], usage: dict[str, Any]) -> float | None:
    """Return the sum of the log-probabilities of the prompt's tokens but the first."""
    choice = answer["choices"][0]
    entries = choice.get("prompt_logprobs") or answer.get("prompt_logprobs")
    if entries:  # token id -> its values; the prompt's own token comes first
        values = [next(iter(entry.values()))["logprob"] for entry in entries if entry]
    else:
        values = (choice.get("logprobs") or {}).get("token_logprobs") or []
        written = usage.get("completion_tokens")
        values = values[: len(values) - (1 if written is None else _count(written))]
        if len(values) < _count(usage.get("prompt_tokens")) - 1:
            return None  # of the text written alone
    total = sum(float(value) for value in values if value is not None)
    if math.isnan(total):  # which JSON may hold
        raise ValueError("a log-probability is a number")
    return total if values else None


def _count(value: Any) -> int:
    """Return a token count, 0 if the value is not one."""
    count = int(value or 0)
    return count if 0 <= count <= _MOST_TOKENS else 0


def is_passing(status: int, body: str) -> bool:
    """Return whether a refusal is temporary; a used-up quota is not."""
    is_known = status in _RETRIED or (status >= 500 and status != 501)  # 501: not implemented
    return is_known and "insufficient_quota" not in body


def refused_field(body: str, fields: dict[str, Any]) -> str | None:
    """Return the optional field that a refusal (400, 422) names, if it can be left out.

    A field is kept if only its value is refused: the user should change a temperature that the
    server finds too high.
    """
    if _is_filtered(body):
        return None
    if "messages" in fields and "max_tokens" in fields and "max_completion_tokens" in body:
        return "max_tokens"  # newer chat models accept the limit under another name only
    sent = {name for name in _OPTIONAL if name in fields or name in fields.get("extra_body", ())}
    named = _named(body) & sent
    if len(named) != 1:
        return None
    field = named.pop()
    unsupported = re.search(r"not support|unsupported|not permitted|unrecognized", body, re.I)
    return field if field in _FREELY or unsupported else None


def _named(body: str) -> set[str]:
    """Return the field that a refusal names, or every word of its message."""
    error = _error_of(body)
    try:
        if isinstance(error["param"], str):
            return {error["param"]}
    except (LookupError, TypeError):
        pass
    try:  # FastAPI: [{"loc": ["body", "top_k"], "msg": ...}]
        return {str(detail["loc"][-1]) for detail in error["detail"]}
    except (LookupError, TypeError):
        return set(re.findall(r"[a-z_]+", said_by(body)))


def refusal(status: int, body: str, *, where: str, model: str, key_set: bool) -> TilthError:
    """Return the error for a permanent status of 400 or more."""
    said, low = said_by(body), body.lower()
    if status == 401:
        remedy = "OPENAI_API_KEY is refused" if key_set else "set OPENAI_API_KEY"
        return InputError(f"endpoint {where} asks for another key (401): {remedy}")
    if status == 403:
        return InputError(f"endpoint {where} does not let this key use model {model!r} (403)")
    if "insufficient_quota" in body:
        return TilthError(f"endpoint {where}: the quota of this key is used up: {said}")
    if _is_filtered(body):
        return FilteredError(f"endpoint {where}: a filter refuses the prompt: {said}")
    if status in (400, 413, 422) and any(words in low for words in _TOO_LONG):
        return PromptTooLongError(f"endpoint {where}: the prompt is too long: {said}")
    if "not a chat model" in low or "chat/completions" in low:
        return NoSuchPathError(f"endpoint {where}: {said}")
    is_page = low.lstrip().startswith("<")  # of a web server
    if status in (400, 404) and not is_page and "model" in low:
        return InputError(f"endpoint {where} does not know model {model!r}: {said}")
    if status in (404, 405, 501):
        return NoSuchPathError(
            f"endpoint {where} has no completions ({status}): check the address, "
            "it usually ends in /v1"
        )
    return TilthError(f"endpoint {where} refuses the request ({status}): {said}")


def _is_filtered(body: str) -> bool:
    error = _error_of(body)
    return isinstance(error, dict) and error.get("code") in _FILTERED


def _error_of(body: str) -> Any:
    """Return the error object of a refusal, or what the body is instead."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body
    return answer.get("error", answer) if isinstance(answer, dict) else body


def said_by(body: str) -> str:
    """Return the server's error message."""
    error = _error_of(body)
    return shorten(str(error.get("message", error) if isinstance(error, dict) else error))


def shorten(text: str) -> str:
    """Return a text on one line, at most 200 characters, without terminal control characters."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= 200 else line[:197] + "..."

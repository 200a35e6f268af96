"""Sample texts from an OpenAI-compatible endpoint with concurrent requests.

A server returns no distributions, so there is no self-debiasing. Each job has its own seed; the
requests depend on the jobs and their outcomes, never on the order of the replies.
"""

from __future__ import annotations

import math
import queue
import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from tilth.errors import InputError, TilthError
from tilth.generation.attempts import (
    DROP_REASONS,
    FINAL_REASONS,
    Job,
    NextJob,
    Outcome,
    split_output,
)
from tilth.generation.settings import Sampling
from tilth.models.endpoint import Endpoint
from tilth.models.endpoint_protocol import (
    FilteredError,
    PromptTooLongError,
    Reply,
    Request,
    shorten,
)

CONCURRENCY = 8
# Attempts with the same prompt within this many jobs share a request.
_WINDOW, _LARGEST_GROUP = 64, 8
_CHAT_SYSTEM = (
    "You complete a text. The message ends with an opening quotation mark: answer only with the "
    "text that follows it{}, and close it with a quotation mark."
)
# For a reply with both quotation marks and a lead-in sentence.
_CHAT_EXTRA_TOKENS = 48
# A run ends when this many first attempts all fail for one reason.
_FIRST_ATTEMPTS = 30
# A template may open the block itself, so that the answer holds its end alone.
_THOUGHT = re.compile(r"\A.*</think>|<think>.*\Z", re.DOTALL)
_NAMES = (  # of what a model is asked to write
    "(?:text|sentence|review|question|answer|message|reply|response|example|version|continuation"
    "|completion|paraphrase|rewrite|rephrasing|translation|tweet|comment|title|headline|caption"
    "|query|premise|hypothesis|passage|phrase|article|claim|utterance|request|dialogue|summary|post"
    "|e?mail|paragraph|statement|description)(?:s|es)?"
)
# A chat model's preamble: on a line of its own, before a quotation, or announcing what it wrote.
_PREAMBLE = re.compile(
    r"""(?!(?:dear|hi|hello|hey)\b(?:(?!\bhere\b)[^\n.!])*:)
    (?=[^\n]*\b(?:here|sure|certainly|of[ ]course|absolutely|okay|ok|"""
    + _NAMES
    + r""")\b)
    [^\n"\u201c]{1,200}:[*_]*[ \t]*\n\s*
    |(?:(?:sure|certainly|of[ ]course|absolutely|okay|ok)[,!.]?\s+)?
    here(?:['\u2019]s|[ ]is|[ ]are)\b(?![ ]my[ ](?:question|message|request)\b)[^\n":\u201c]{0,100}
    \b"""
    + _NAMES
    + r"""\b[^\n":\u201c]{0,100}:(?!\d)[*_]*\s*
    |(?:(?:sure|certainly|of[ ]course|absolutely|okay|ok)(?![ ](?!here\b|thing\b)\w)
    |here(?:['\u2019]s|[ ]is|[ ]are))\b
    (?:[^\n":\u201c]{0,200}:[*_]*[ ]*(?=["\u201c])|[!.]?[ ](?=["\u201c][^"\u201d]*["\u201d]\Z))""",
    re.IGNORECASE | re.VERBOSE,
)
_OPENING = re.compile(r'(?:\A|\s)"(?=\w)[^"]*\Z')  # the last quotation mark opens
_INCHES = re.compile(r'(?<=\d)"(?=[ ][a-z])')  # no end of the text
_WORD = 3  # words of a quotation that begins a text, and does not enclose it
_CURLY = {"\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb"}

_Group = tuple[Job, ...]
_Query = TypeVar("_Query")
_Answer = TypeVar("_Answer")


class EndpointSampler:
    """Runs jobs on an endpoint; `decay` and `floor` of `sampling` have no effect."""

    def __init__(
        self,
        endpoint: Endpoint,
        sampling: Sampling,
        *,
        concurrency: int = CONCURRENCY,
        begun: bool = False,
    ) -> None:
        if concurrency < 1:
            raise InputError(f"concurrency is {concurrency}: it is 1 or more")
        self._endpoint, self._sampling, self._concurrency = endpoint, sampling, concurrency
        # First attempts; None once one of them is kept, and in a run that goes on.
        self._failed: list[Outcome] | None = None if begun else []
        endpoint.warn_once(endpoint.statement)

    def run(self, jobs: Iterable[Job], next_job: NextJob) -> None:
        """Run all jobs; `next_job` is called in this thread, one outcome at a time.

        Raises `TilthError` when the endpoint fails for good; no further requests are started.
        """
        groups, again = _groups(jobs), deque[_Group]()

        def take() -> _Group | None:
            # A further attempt is requested alone: grouping would depend on timing.
            return again.popleft() if again else next(groups, None)

        with closing(self._in_parallel(take, self._answer)) as answers:
            for _, outcomes in answers:
                for outcome in outcomes:
                    self._check_first(outcome)
                    job = next_job(outcome)
                    if job is not None:
                        again.append((job,))

    def log_likelihoods(self, texts: Sequence[tuple[str, str]]) -> list[float]:
        """Return the log-probability of each (prompt, text); NaN where it is too long."""
        # What a prompt has without its text, which the server counts, too.
        wanted = dict.fromkeys([*((prompt, "") for prompt, _ in texts), *texts])
        queries = iter(wanted)
        found: dict[tuple[str, str], float] = {}
        with closing(self._in_parallel(lambda: next(queries, None), self._score)) as scores:
            found.update(scores)
        return [found[prompt, text] - found[prompt, ""] for prompt, text in texts]

    def _score(self, query: tuple[str, str], stopped: threading.Event) -> float:
        """Return the log-probability of a prompt and a text together."""
        (prompt, text), endpoint = query, self._endpoint
        end = "" if endpoint.is_chat or not text else '"'
        request = Request(
            prompt,
            system=self._system() if endpoint.is_chat else "",
            answer=text + end,
            max_tokens=1,
            scoring=endpoint.find_scoring(),
        )
        try:
            likelihood = endpoint.ask(request, stopped).prompt_likelihood
        except (PromptTooLongError, FilteredError):
            return math.nan
        return math.nan if likelihood is None else likelihood

    def _in_parallel(
        self, take: Callable[[], _Query | None], work: Callable[[_Query, threading.Event], _Answer]
    ) -> Generator[tuple[_Query, _Answer]]:
        """Do work in threads, as many as are allowed; yield each query and its answer."""
        stopped, running = threading.Event(), 0
        done: queue.SimpleQueue[tuple[_Query, _Answer] | BaseException] = queue.SimpleQueue()

        def answer(query: _Query) -> None:
            try:
                done.put((query, work(query, stopped)))
            except BaseException as error:  # raised in the waiting thread
                done.put(error)

        try:
            while True:
                while running < self._concurrency:
                    query = take()
                    if query is None:
                        break
                    running += 1
                    # A daemon: Ctrl-C does not wait for answers.
                    threading.Thread(target=answer, args=(query,), daemon=True).start()
                if not running:
                    return
                found = done.get()
                running -= 1
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            stopped.set()

    def _system(self) -> str:
        form = _CHAT_SYSTEM.format("" if self._sampling.multiline else ", on one line")
        return f"{self._sampling.system} {form}".strip()

    def _check_first(self, outcome: Outcome) -> None:
        """Raise if all first attempts failed for the same reason: later ones would, too.

        Reasons that lie in the input say nothing of others.
        """
        if self._failed is None or outcome.reason in FINAL_REASONS:
            return
        self._failed.append(outcome)
        reasons = {failed.reason for failed in self._failed}
        if len(reasons) > 1 or None in reasons:
            self._failed = None
        elif len(self._failed) == _FIRST_ATTEMPTS:
            reason = str(outcome.reason)
            raise TilthError(
                f"endpoint {self._endpoint.name}: the first {_FIRST_ATTEMPTS} attempts were all "
                f"dropped ({reason}); {DROP_REASONS[reason]}; an answer began "
                f"{shorten(outcome.text)[:80]!r}"
            )

    def _answer(self, group: _Group, stopped: threading.Event) -> list[Outcome]:
        """Request a group's texts; request singly those the server leaves out or repeats."""
        sampling, endpoint = self._sampling, self._endpoint
        outcomes: list[Outcome] = []
        while len(outcomes) < len(group):
            # After the first reply, the server is known to return single texts only.
            left = group[len(outcomes) :][: 1 if outcomes else None]
            request = Request(
                left[0].prompts[0],
                system=self._system() if endpoint.is_chat else "",
                n=len(left),
                seed=int.from_bytes(left[0].key[:4], "big") >> 1,  # 31 bits: every server takes it
                max_tokens=sampling.max_new_tokens + _CHAT_EXTRA_TOKENS * endpoint.is_chat,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                # A chat model often opens with a quotation mark: stopping there gives nothing.
                stop=() if endpoint.is_chat else ('"',),
            )
            try:
                reply = endpoint.ask(request, stopped)
            except (PromptTooLongError, FilteredError) as error:
                reason = "filtered" if isinstance(error, FilteredError) else "prompt-too-long"
                return outcomes + [Outcome(job, "", reason, 0, None) for job in left]
            if len({choice.text for choice in reply.choices}) == 1:  # one text, n times
                reply = replace(reply, choices=reply.choices[:1])
            outcomes += self._outcomes(left, reply)
        return outcomes

    def _outcomes(self, jobs: _Group, reply: Reply) -> Iterator[Outcome]:
        tokens = share_tokens(reply)
        for job, choice, count in zip(jobs, reply.choices, tokens, strict=False):
            if choice.finish_reason == "content_filter":
                yield Outcome(job, choice.text, "filtered", count, None)
                continue
            decoded = choice.text
            if self._endpoint.is_chat:
                decoded = unquote(
                    choice.text, job.prompts[0], is_whole=choice.finish_reason == "stop"
                )
            elif '"' not in decoded and choice.finish_reason == "stop":
                # Servers leave the stop sequence out; a model that ended by itself looks the same.
                decoded += '"'
            text, reason = split_output(decoded, multiline=self._sampling.multiline)
            yield Outcome(job, text, reason, count, None)


def _groups(jobs: Iterable[Job]) -> Iterator[_Group]:
    """Yield jobs in order of appearance; group those with the same prompt within a window."""
    stream = iter(jobs)
    while window := list(islice(stream, _WINDOW)):
        by_prompt: dict[str, list[Job]] = {}
        for job in window:
            by_prompt.setdefault(job.prompts[0], []).append(job)
        for same in by_prompt.values():
            for start in range(0, len(same), _LARGEST_GROUP):
                yield tuple(same[start : start + _LARGEST_GROUP])


def share_tokens(reply: Reply) -> list[int]:
    """Divide a reply's tokens among its texts by length: servers report only their sum."""
    lengths = [len(choice.text) + 1 for choice in reply.choices]
    shares = [reply.completion_tokens * length // sum(lengths) for length in lengths]
    shares[0] += reply.completion_tokens - sum(shares)
    return [min(share, 32767) for share in shares]


def _without_bold(text: str) -> str:
    is_bold = len(text) > 4 and text.startswith("**") and text.endswith("**")
    return text[2:-2] if is_bold and "**" not in text[2:-2] else text


def _enclosed(text: str) -> tuple[str, bool, str] | None:
    """Return the text after an opening quotation mark, whether it is closed, and what follows."""
    opening = text[:1]
    closing = {'"': '"', **_CURLY}.get(opening)
    if closing is None:
        return None
    if closing == opening and text.count(opening) % 2:
        text = opening + _INCHES.sub("'", text[1:])
    inside, mark, after = text[1:].partition(closing)
    opens = inside[-1:].isspace() and after[:1].isalnum() if mark == opening else opening in inside
    if opens:  # a quotation within the text
        rest = text[1:]
        is_closed = (
            rest.count('"') % 2 if mark == opening else rest.count(closing) > rest.count(opening)
        )
        inside, mark, after = rest.rpartition(closing) if is_closed else (rest, "", "")
    return inside, bool(mark), after


def unquote(answer: str, prompt: str, *, is_whole: bool) -> str:
    """Convert a chat reply to the form of a completion: text, then a quotation mark if closed.

    Reasoning, an announcing sentence and a lead-in before the text are removed, as are enclosing
    quotation marks; inner ones become single, as in prompts. Without quotation marks, a text is
    closed if the model ended by itself.
    """
    text = _THOUGHT.sub("", answer).strip()
    text = _PREAMBLE.sub("", text, count=1) if _PREAMBLE.match(text) else text
    lead = prompt.rpartition("\n")[2].rstrip('"').strip()
    bare = text.lstrip("*_ ")
    if lead and bare.startswith(lead):
        text = bare[len(lead) :].lstrip("*_ \n")
    text = _without_bold(text).replace('\\"', "'")
    if (enclosed := _enclosed(text)) is not None:
        inside, is_closed, after = enclosed
        begins_with_one = (
            is_closed and len(inside.split()) <= _WORD and re.match(r" [a-z]", after)
            and (inside[-1:].isalnum() or (inside[-1:] in ",!?" and '"' in after))
        )  # fmt: skip
        if not (is_whole and begins_with_one):
            return _without_bold(inside).replace('"', "'") + ('"' if is_closed else "")
    if is_whole and text.count('"') == 1:
        text = _INCHES.sub("'", text)
    if text.count('"') % 2 and not _OPENING.search(text):
        inside = text.rpartition('"')[0]
        return inside.replace('"', "'") + '"'
    return text.replace('"', "'") + ('"' if is_whole else "")

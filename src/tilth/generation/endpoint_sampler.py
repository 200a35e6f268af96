"""The sampler for an OpenAI-compatible endpoint: plain sampling, many requests at once.

A server sends texts, no distributions, so self-debiasing cannot be done there. A job has its own
seed; which requests are made follows from the jobs and their outcomes alone, never from the order
answers come in.
"""

from __future__ import annotations

import queue
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from tilth.errors import InputError, TilthError
from tilth.generation.jobs import DROP_REASONS, Job, NextJob, Outcome, split_output
from tilth.generation.settings import Sampling
from tilth.models.endpoint import Endpoint
from tilth.models.endpoint_client import Request
from tilth.models.endpoint_replies import PromptTooLongError, Reply, shorten

CONCURRENCY = 8
# Attempts with the same prompt are looked for among so many jobs, and asked for together.
_WINDOW, _LARGEST_GROUP = 64, 8
_CHAT_SYSTEM = (
    "You complete a text. The message ends with an opening quotation mark: answer only with the "
    "text that follows it{}, and close it with a quotation mark."
)
# An answer may come with both quotation marks, and with a sentence that leads up to them.
_CHAT_EXTRA_TOKENS = 48
# A session ends where so many tries fail at first, all for one reason.
_FIRST_TRIES = 30
_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
# What a chat model says before its text: on a line of its own, or in words that announce it.
_PREAMBLE = re.compile(
    r"""[^\n"\u201c]{1,200}:[*_]*[ \t]*\n\s*
    |(sure|certainly|of[ ]course|absolutely|okay|ok|here(['\u2019]s|[ ]is|[ ]are))\b
    [^\n":\u201c]{0,200}:[*_]*\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_CURLY = {"\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb"}

Group = tuple[Job, ...]


class EndpointSampler:
    """Runs jobs on an endpoint.

    Args:
        endpoint: the model.
        sampling: how tokens are drawn; `decay` and `floor` have no effect here.
        concurrency: requests under way at the same time.
    """

    def __init__(
        self, endpoint: Endpoint, sampling: Sampling, *, concurrency: int = CONCURRENCY
    ) -> None:
        if concurrency < 1:
            raise InputError(f"concurrency is {concurrency}: it is 1 or more")
        self._endpoint, self._sampling, self._concurrency = endpoint, sampling, concurrency
        self._failed: list[Outcome] | None = []  # the first tries; None once one of them is kept
        endpoint.say_once(endpoint.statement)

    def run(self, jobs: Iterable[Job], next_job: NextJob) -> None:
        """Run all jobs; `next_job` is called in this thread, an outcome at a time.

        Raises:
            TilthError: the endpoint failed for good; nothing goes on in the background.
        """
        groups = _groups(jobs, _LARGEST_GROUP if self._endpoint.traits.several else 1)
        again: deque[Group] = deque()
        with _Workers(self._answer, self._concurrency) as workers:
            while True:
                while workers.free:
                    # A next try is alone in its request: with whom it would meet is chance.
                    group = again.popleft() if again else next(groups, None)
                    if group is None:
                        break
                    workers.put(group)
                if workers.idle:
                    return
                for outcome in workers.get():
                    self._check_first(outcome)
                    job = next_job(outcome)
                    if job is not None:
                        again.append((job,))

    def _check_first(self, outcome: Outcome) -> None:
        """Raise where all first tries failed for one reason: those that follow would, too."""
        if self._failed is None:
            return
        self._failed.append(outcome)
        reasons = {failed.reason for failed in self._failed}
        if len(reasons) > 1 or None in reasons:
            self._failed = None
        elif len(self._failed) == _FIRST_TRIES:
            reason = str(outcome.reason)
            raise TilthError(
                f"endpoint {self._endpoint.name}: the first {_FIRST_TRIES} attempts were all "
                f"dropped ({reason}); {DROP_REASONS[reason]}; an answer began "
                f"{shorten(outcome.text)[:80]!r}"
            )

    def _answer(self, group: Group, stopped: threading.Event) -> list[Outcome]:
        """Ask for a group's texts; what the server leaves out is asked for singly."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(group):
            # After the first answer the server has shown that it does not write several.
            left = group[len(outcomes) :][: 1 if outcomes else None]
            request = self._request(left[0].prompts[0], _seed(left[0]), len(left))
            try:
                reply = self._endpoint.ask(request, stopped)
            except PromptTooLongError:
                return outcomes + [Outcome(j, "", "prompt-too-long", 0, None) for j in left]
            outcomes += self._outcomes(left, reply)
        return outcomes

    def _request(self, prompt: str, seed: int, n: int) -> Request:
        sampling = self._sampling
        is_chat = self._endpoint.is_chat
        return Request(
            prompt,
            system=_CHAT_SYSTEM.format("" if sampling.multiline else ", on one line")
            if is_chat
            else "",
            n=n,
            seed=seed,
            max_tokens=sampling.max_new_tokens + (_CHAT_EXTRA_TOKENS if is_chat else 0),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            # A chat model often opens with a quotation mark itself: stopping there gives nothing.
            stop=() if is_chat else ('"',),
        )

    def _outcomes(self, jobs: Group, reply: Reply) -> Iterator[Outcome]:
        tokens = share_tokens(reply)
        for job, choice, count in zip(jobs, reply.choices, tokens, strict=False):
            if choice.ended == "content_filter":
                yield Outcome(job, choice.text, "filtered", count, None)
                continue
            decoded = choice.text
            if self._endpoint.is_chat:
                decoded = unquote(choice.text, job.prompts[0], is_whole=choice.ended == "stop")
            elif '"' not in decoded and choice.ended == "stop":
                # Servers leave the stop sequence out; a model that ended by itself looks the same.
                decoded += '"'
            text, reason = split_output(decoded, multiline=self._sampling.multiline)
            yield Outcome(job, text, reason, count, None)


def _seed(job: Job) -> int:
    """Return a seed every server takes: 31 bits of the job's key."""
    return int.from_bytes(job.key[:4], "big") >> 1


def _groups(jobs: Iterable[Job], largest: int) -> Iterator[Group]:
    """Yield jobs in order of appearance, those with the same prompt within a window together."""
    stream = iter(jobs)
    if largest == 1:
        yield from ((job,) for job in stream)
        return
    while window := list(islice(stream, _WINDOW)):
        by_prompt: dict[str, list[Job]] = {}
        for job in window:
            by_prompt.setdefault(job.prompts[0], []).append(job)
        for same in by_prompt.values():
            for start in range(0, len(same), largest):
                yield tuple(same[start : start + largest])


def share_tokens(reply: Reply) -> list[int]:
    """Share the tokens of a reply among its texts by their length: servers count them together."""
    lengths = [len(choice.text) + 1 for choice in reply.choices]
    shares = [reply.completion_tokens * length // sum(lengths) for length in lengths]
    shares[0] += reply.completion_tokens - sum(shares)
    return [min(share, 32767) for share in shares]


def unquote(answer: str, prompt: str, *, is_whole: bool) -> str:
    """Bring a chat answer into the form of a completion: text, then a quotation mark if closed.

    The answer may stand between quotation marks or only end with one; a thought, a sentence that
    announces the text and the words that lead up to it may stand before. Quotation marks inside
    become single ones, as in prompts. Without any, it is closed when the model ended by itself.
    """
    text = _THOUGHT.sub("", answer).strip()
    text = _PREAMBLE.sub("", text, count=1) if _PREAMBLE.match(text) else text
    lead = prompt.rpartition("\n")[2].rstrip('"').strip()
    bare = text.lstrip("*_ ")
    if lead and bare.startswith(lead):
        text = bare[len(lead) :].lstrip("*_ \n")
    if len(text) > 4 and text.startswith("**") and text.endswith("**"):
        text = text[2:-2]
    text = text.replace('\\"', "'")
    closing = '"' if text.startswith('"') else _CURLY.get(text[:1])
    if closing is not None:
        inside, mark, _ = text[1:].partition(closing)
        return inside.replace('"', "'") + ('"' if mark else "")
    if text.count('"') % 2:
        inside = text.rpartition('"')[0]
        return inside.replace('"', "'") + '"'
    return text.replace('"', "'") + ('"' if is_whole else "")


class _Workers:
    """Threads that answer groups; they are daemons, so that Ctrl-C does not wait for answers."""

    def __init__(
        self, answer: Callable[[Group, threading.Event], list[Outcome]], number: int
    ) -> None:
        self._answer, self._number, self._running = answer, number, 0
        self._stopped = threading.Event()
        self._asked: queue.SimpleQueue[Group | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[list[Outcome] | BaseException] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        for _ in self._threads:
            self._asked.put(None)

    @property
    def free(self) -> bool:
        """Whether another request may be made now."""
        return self._running < self._number

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return not self._running

    def put(self, group: Group) -> None:
        """Start a request."""
        self._running += 1
        self._asked.put(group)
        if len(self._threads) < self._running:
            thread = threading.Thread(target=self._work, daemon=True, name="tilth-endpoint")
            self._threads.append(thread)
            thread.start()

    def get(self) -> list[Outcome]:
        """Wait for the next answered request."""
        answer = self._done.get()
        self._running -= 1
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _work(self) -> None:
        while (group := self._asked.get()) is not None and not self._stopped.is_set():
            self._done.put(self._answered(group))

    def _answered(self, group: Group) -> list[Outcome] | BaseException:
        try:
            return self._answer(group, self._stopped)
        except BaseException as error:  # whatever it is, the run must hear of it
            return error

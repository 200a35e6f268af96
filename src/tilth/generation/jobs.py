"""What a sampler is asked for and what it answers: one job is one try at one text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Protocol

from tilth.limits import SHARE, Number, check_fields, whole

DECAY = Number(0, 1e9)
TEMPERATURE = Number(1e-3, 1e3)
TOP_K = whole(0, 1_000_000_000)
TOP_P = Number(1e-9, 1)
NEW_TOKENS = whole(1, 32_767)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn (defaults: DINO, Schick and Schütze 2021, section 4)."""

    decay: Annotated[float, DECAY, "Lambda of self-debiasing; 0 turns it off."] = 100.0
    floor: Annotated[float, SHARE, "Smallest factor of self-debiasing."] = 0.01
    temperature: Annotated[float, TEMPERATURE, "Divides the log-probabilities after debiasing."] = (
        1.0
    )
    top_k: Annotated[int, TOP_K, "Keep the k likeliest tokens; 0: all."] = 5
    top_p: Annotated[float, TOP_P, "Then the likeliest with this probability."] = 0.9
    max_new_tokens: Annotated[int, NEW_TOKENS, "A text not closed by then is dropped."] = 40
    multiline: Annotated[bool, "At an endpoint: keep texts of several lines."] = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Job:
    """One try.

    Attributes:
        item: number of the input within the part.
        source_id: id of the input text.
        label: name of the label to write for.
        attempt: number of the try, from 0.
        prompts: the label's own prompt, then one for each counter label.
        key: 16 bytes, the root of this try's random numbers.
    """

    item: int
    source_id: str
    label: str
    attempt: int
    prompts: tuple[str, ...]
    key: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a try gave.

    Attributes:
        job: the try.
        text: what stands before the closing quotation mark, or all there is.
        reason: None when kept, else why the try is dropped.
        tokens: tokens decoded.
        floor_share: share of these whose factor was at the floor, 0 to 1; None where the model
            shows no distributions.
    """

    job: Job
    text: str
    reason: str | None
    tokens: int
    floor_share: float | None


# What helps where tries are dropped, by reason.
REMEDIES = {
    "newline": "let the instruction ask for one sentence, name an instruction-tuned model, or, at "
    "an endpoint, allow several lines with --multiline",
    "not-closed": "raise --max-new-tokens, or let the instruction ask for one short sentence",
    "empty": "the model closes at once or answers nothing: word the instruction otherwise, name "
    "another model, or raise --max-new-tokens for one that thinks before it answers",
    "prompt-too-long": "give shorter inputs, or a model with more positions",
    "not-a-number": "the model's weights are broken in this precision: --precision float32",
    "filtered": "the server filters its answers: word the instruction otherwise",
}


class Sampler(Protocol):
    """Runs jobs: the local engine (decode.py) or an endpoint (remote.py)."""

    def run(self, jobs: Iterable[Job], then: Callable[[Outcome], Job | None]) -> None:
        """Run all jobs; hand each outcome to `then`.

        It may answer with the next try: a job with the same prompts.
        """


def job_key(seed: int, source_id: str, label: str, attempt: int) -> bytes:
    """Return the 16-byte root of a try's random numbers: never a matter of batch or order."""
    parts = f"{seed}\x1f{source_id}\x1f{label}\x1f{attempt}".encode()
    return hashlib.blake2b(parts, digest_size=16).digest()


def split_output(decoded: str, *, multiline: bool = False) -> tuple[str, str | None]:
    """Return the text before the first quotation mark and why it is dropped, if it is.

    Spec: no quotation mark, or a newline before it, and the try is discarded; an empty text too.
    White space around the text is kept, as in the original code.
    """
    text, mark, _ = decoded.partition('"')
    if "\n" in text and not multiline:
        return text, "newline"
    if not mark:
        return text, "not-closed"
    if not text.strip():
        return text, "empty"
    return text, None

"""The engine: decodes many (input, label, try) groups at once under self-debiasing.

A group is one row for the label and one for each counter label; all rows of a group continue with
the same sampled token. Rows whose text is finished leave and new groups enter at once. What is
drawn depends on the group alone: its random numbers are keyed by its job, never by its batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.errors import InputError, TilthError
from tilth.generation.debias import draw, law
from tilth.generation.jobs import Job, Outcome, Sampling, split_output
from tilth.generation.kv_cache import KeyValues, bytes_per_token, takes
from tilth.generation.prompt_cache import Prompt, PromptStore
from tilth.models.device import free_memory
from tilth.models.lm import LM

Then = Callable[[Outcome], "Job | None"]
Numbers = NDArray[np.int64]

_MOST_ROWS = {"cpu": 384, "cuda": 2048}
_FREE = -1
# Within its window, local attention (Mistral, GPT-Neo, Llama 4) is plain causal attention.
_LIMITS = ("max_position_embeddings", "sliding_window", "window_size", "attention_chunk_size")
_CHECKED_TOKENS = 64


class Engine:
    """Runs jobs on a local model.

    Args:
        lm: any transformers causal language model with attention.
        sampling: how tokens are drawn.
        heads: instructions up to their input, shared by many prompts.
        rows: sequences decoded side by side; fewer take less memory. The texts do not depend on
            it but for rounding.

    Raises:
        InputError: the model cannot be run row by row (no attention cache, no positions).
    """

    def __init__(
        self, lm: LM, sampling: Sampling, *, heads: Sequence[str] = (), rows: int = 256
    ) -> None:
        self.lm, self.sampling, self.rows = lm, sampling, rows
        self._store = PromptStore(lm, heads)
        self._marks = TokenMarks(lm)
        self._positions = max_positions(lm)
        self.row_tokens = 0  # run so far, prompts not counted: what benchmarks ask for
        check_model(lm)

    @torch.inference_mode()
    def run(self, jobs: Iterable[Job], then: Then) -> None:
        """Run all jobs; hand each outcome to `then`, which may answer with a next try."""
        self._store.drop_prefixes()  # they hang on the texts of a call
        queue = self._queue(jobs, then)
        while queue:
            batch = _Batch(self.lm, self.sampling, self._marks, self._store, self.rows, queue)
            try:
                batch.run(then)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if not _out_of_memory(error):
                    raise
                # What was being decoded starts anew, nothing else is lost.
                queue.extendleft(reversed(batch.unfinished()))
            else:
                self.row_tokens += batch.row_tokens
                continue
            del batch  # here nothing refers to its memory any more, the error's traceback neither
            self._halve(queue)

    def _queue(self, jobs: Iterable[Job], then: Then) -> deque[Job]:
        """Order jobs by length, longest first, an input's jobs together; refuse the too long."""
        todo = list(jobs)
        self._store.tokenise(chain.from_iterable(job.prompts for job in todo))
        length = {job: max(map(self._store.length, job.prompts)) for job in todo}
        longest: dict[int, int] = {}
        for job in todo:
            longest[job.item] = max(longest.get(job.item, 0), length[job])
        fitting = []
        for job in todo:
            self._store.acquire(job.prompts)
            if length[job] + self.sampling.max_new_tokens > self._positions:
                then(Outcome(job, "", "prompt-too-long", 0, 0.0))
                self._store.release(job.prompts)
            else:
                fitting.append(job)
        return deque(sorted(fitting, key=lambda job: (-longest[job.item], job.item)))

    def _halve(self, queue: deque[Job]) -> None:
        """Go on with half the rows."""
        self._store.drop_memory()
        if self.lm.device.type == "cuda":
            torch.cuda.empty_cache()
        most = max(len(job.prompts) for job in queue)
        if self.rows <= most:
            raise TilthError(
                f"out of memory with {self.rows} rows on {self.lm.device}: use a smaller model, "
                "--precision bfloat16, or shorter inputs"
            )
        self.rows = max(self.rows // 2, most)


@dataclass(frozen=True, slots=True)
class _Logits:
    """What may follow in some rows: row r's logits are `values[place[r]]`, (rows, vocab)."""

    values: Tensor
    place: Numbers


class _Batch:
    """The rows being decoded and their memory.

    A group is known by its main row, where its own label's text is continued.
    """

    def __init__(
        self,
        lm: LM,
        sampling: Sampling,
        marks: TokenMarks,
        store: PromptStore,
        rows: int,
        queue: deque[Job],
    ) -> None:
        self.lm, self.sampling, self.marks, self.store, self.queue = (
            lm,
            sampling,
            marks,
            store,
            queue,
        )
        most = max(len(job.prompts) for job in queue)
        self.rows = max(min(rows, sum(len(job.prompts) for job in queue)), most)
        longest = max(store.length(prompt) for job in queue for prompt in job.prompts)
        new = sampling.max_new_tokens
        self.memory = KeyValues(lm.model, self.rows, longest + new)
        self.owner: Numbers = np.full(self.rows, _FREE)  # the row's main row
        self.position: Numbers = np.zeros(self.rows, np.int64)  # where its next token goes
        self.token: Numbers = np.zeros(self.rows, np.int64)
        self.members: Numbers = np.zeros((self.rows, most), np.int64)  # of a main row's group
        self.job: list[Job | None] = [None] * self.rows
        self.done: Numbers = np.zeros(self.rows, np.int64)  # tokens drawn
        self.text: Numbers = np.zeros((self.rows, new), np.int64)
        self.uniform = np.zeros((self.rows, new), np.float32)
        self.floored: Numbers = np.zeros(self.rows, np.int64)
        self.row_tokens = 0

    def run(self, then: Then) -> None:
        """Decode until the queue is empty and every row is free."""
        while True:
            entered, logits = self._enter()
            if logits is not None:
                self._draw(entered, logits, then)
                continue  # a text may have ended with its first token: its rows are free again
            if not len(self._mains()):
                return
            self._close_gaps()
            self._draw(self._mains(), self._forward(), then)

    def unfinished(self) -> list[Job]:
        """Return the jobs in the rows, which have no outcome yet."""
        return [job for job in self.job if job is not None]

    def _mains(self) -> Numbers:
        return np.flatnonzero(self.owner == np.arange(self.rows))

    def _enter(self) -> tuple[Numbers, _Logits | None]:
        """Fill free rows with the next groups; return their main rows and their logits."""
        free = deque(np.flatnonzero(self.owner == _FREE).tolist())
        entered: list[int] = []
        copies: list[tuple[int, str]] = []
        while self.queue and len(self.queue[0].prompts) <= len(free):
            job = self.queue[0]
            if any(prompt not in self.store for prompt in job.prompts):
                self._run_prompts()
            self.queue.popleft()
            rows = [free.popleft() for _ in job.prompts]
            main = rows[0]
            entered.append(main)
            copies.extend(zip(rows, job.prompts, strict=True))
            self.owner[rows] = main
            self.members[main] = main  # padding: a row that is its own counter changes nothing
            self.members[main, : len(rows)] = rows
            self.job[main] = job
            self.done[main] = self.floored[main] = 0
            self.uniform[main] = uniforms(job.key, self.uniform.shape[1])
        return np.array(entered, np.int64), self._copy(copies) if copies else None

    def _run_prompts(self) -> None:
        """Run the prompts of the next jobs, enough to refill half the rows."""
        wanted: set[str] = set()
        for job in self.queue:
            wanted.update(prompt for prompt in job.prompts if prompt not in self.store)
            if len(wanted) >= max(16, self.rows // 2):
                break
        self.store.run(wanted)

    def _copy(self, copies: list[tuple[int, str]]) -> _Logits:
        """Copy prompts' keys and values into rows; return the logits that follow them."""
        by_memory: dict[int, list[tuple[int, Prompt]]] = {}
        place = np.zeros(self.rows, np.int64)
        for number, (row, text) in enumerate(copies):
            prompt = self.store[text]
            by_memory.setdefault(id(prompt.memory), []).append((row, prompt))
            self.position[row] = prompt.length
            place[row] = number
        for group in by_memory.values():
            rows = self._tensor(np.array([row for row, _ in group]))
            sources = self._tensor(np.array([prompt.row for _, prompt in group]))
            length = max(prompt.length for _, prompt in group)
            self.memory.copy_rows(rows, group[0][1].memory, sources, length)
        return _Logits(torch.stack([self.store[text].logits for _, text in copies]), place)

    def _forward(self) -> _Logits:
        """Run every row's last token through the model."""
        span = int(np.flatnonzero(self.owner != _FREE)[-1]) + 1
        positions = self.position[:span]
        logits = self.memory.step(
            self._tensor(self.token[:span]), self._tensor(positions), int(positions.max()) + 1
        )
        self.row_tokens += span
        self.position[:span] += self.owner[:span] != _FREE
        return _Logits(logits, np.arange(span))

    def _draw(self, mains: Numbers, logits: _Logits, then: Then) -> None:
        """Draw the next token of each group; finish the groups whose text has ended."""
        sampling, step = self.sampling, self.done[mains]
        tokens, floored, broken = self._next_tokens(mains, logits, self.uniform[mains, step])
        self.text[mains, step] = tokens
        self.floored[mains] += floored
        self.done[mains] += 1
        busy = np.flatnonzero(self.owner != _FREE)
        latest = np.zeros(self.rows, np.int64)
        latest[mains] = tokens
        touched = busy[np.isin(self.owner[busy], mains)]
        self.token[touched] = latest[self.owner[touched]]
        ended = self.marks.ends[tokens] | (self.done[mains] == sampling.max_new_tokens) | broken
        for main, bad in zip(mains[ended].tolist(), broken[ended].tolist(), strict=True):
            self._finish(main, bad, then)

    def _next_tokens(
        self, mains: Numbers, logits: _Logits, uniform: NDArray[np.float32]
    ) -> tuple[Numbers, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return tokens, whether each token's factor was at the floor, whether logits were NaN."""
        sampling = self.sampling
        logits.values[:, self.marks.banned] = -torch.inf
        ids, kept, factors = law(
            logits.values,
            self._tensor(logits.place[self.members[mains]]),
            decay=sampling.decay,
            floor=sampling.floor,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
        )
        place = draw(kept, torch.from_numpy(uniform).to(kept.device))  # (groups, 1)
        tokens = ids.gather(-1, place)[:, 0]
        alpha = factors.gather(-1, place)[:, 0]
        floored = ((alpha <= sampling.floor) & (alpha < 1)).long()
        answer = torch.stack((tokens, floored, kept[:, 0].isnan().long())).cpu().numpy()
        return answer[0], answer[1].astype(bool), answer[2].astype(bool)

    def _finish(self, main: int, broken: bool, then: Then) -> None:
        """Free a group's rows, report its outcome, put its next try first in the queue."""
        job = self.job[main]
        if job is None:
            raise RuntimeError("a free row was finished")
        count = int(self.done[main])
        text, reason = split_output(self.marks.decode(self.text[main, :count].tolist()))
        outcome = Outcome(
            job,
            text,
            "not-a-number" if broken else reason,
            count,
            float(self.floored[main]) / count,
        )
        if broken:
            self.memory.clear_rows(self._tensor(self.members[main]))
        self.owner[self.members[main]] = _FREE
        self.position[self.members[main]] = 0
        self.job[main] = None
        following = then(outcome)
        if following is not None:
            self.store.acquire(following.prompts)
            self.queue.appendleft(following)
        self.store.release(job.prompts)

    def _close_gaps(self) -> None:
        """Move busy rows together once a third of the span stands empty: the work is ending."""
        busy = np.flatnonzero(self.owner != _FREE)
        if self.queue or len(busy) > 2 * (int(busy[-1]) + 1) / 3:
            return
        place = np.full(self.rows, _FREE)
        place[busy] = np.arange(len(busy))
        here, there = self._tensor(np.arange(len(busy))), self._tensor(busy)
        self.memory.copy_rows(here, self.memory, there, int(self.position.max()))
        count = len(busy)
        self.members[:count] = place[self.members[busy]]
        for name in ("position", "token", "done", "text", "uniform", "floored"):
            values = getattr(self, name)
            values[:count] = values[busy]
        self.job = [self.job[row] for row in busy] + [None] * (self.rows - count)
        self.owner[:count] = place[self.owner[busy]]
        self.owner[count:] = _FREE
        self.position[count:] = 0

    def _tensor(self, numbers: Numbers) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(self.lm.device)


class TokenMarks:
    """What the tokens of a vocabulary mean to the decoder.

    Attributes:
        ends: (vocab,), True for tokens that hold a quotation mark or a newline.
        banned: ids never drawn: end of sequence and other special tokens (the original forbids
            the end of sequence; the text ends at its quotation mark), and ids without a token.
    """

    def __init__(self, lm: LM) -> None:
        self._tokenizer = lm.tokenizer
        size = int(lm.model.config.get_text_config().vocab_size)
        known = min(len(lm.tokenizer), size)
        texts = lm.tokenizer.batch_decode([[number] for number in range(known)])
        self.ends: NDArray[np.bool_] = np.zeros(size, bool)
        self.ends[:known] = ['"' in text or "\n" in text for text in texts]
        banned = {number for number in lm.tokenizer.all_special_ids if number < size}
        banned.update((number for number in _end_ids(lm) if 0 <= number < size), range(known, size))
        self.banned = torch.tensor(sorted(banned), device=lm.device, dtype=torch.long)

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens as they stand, white space kept."""
        return str(self._tokenizer.decode(tokens, clean_up_tokenization_spaces=False))


def _end_ids(lm: LM) -> set[int]:
    """Return the end-of-sequence ids of model and generation settings: one, several or none."""
    found: set[int] = set()
    for config in (lm.model.config, lm.model.generation_config):
        ids = getattr(config, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or [])
    return found


def uniforms(key: bytes, count: int) -> NDArray[np.float32]:
    """Return the uniform numbers of a try: number i is drawn for its i-th token."""
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
    return generator.random(count, dtype=np.float32)


def max_positions(lm: LM) -> int:
    """Return how many tokens the model can read, prompt and output together."""
    config = lm.model.config.get_text_config()
    limits = [getattr(config, name, None) for name in _LIMITS]
    return min((most for most in limits if isinstance(most, int) and most > 0), default=2**31)


def choose_rows(lm: LM, *, prompt_tokens: int, max_new_tokens: int) -> int:
    """Return how many rows fit into half of the free memory, at most what still gains speed."""
    per_row = (prompt_tokens + max_new_tokens) * bytes_per_token(lm.model)
    per_row += 16 * int(lm.model.config.get_text_config().vocab_size)  # logits and their softmax
    # prompts waiting for their groups take about as much again
    rows = free_memory(lm.device) // 2 // (2 * per_row)
    return max(8, min(rows, _MOST_ROWS[lm.device.type]) // 8 * 8)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


@torch.inference_mode()
def check_model(lm: LM) -> None:
    """Compare a batch of uneven rows with the model's plain forward on each row alone.

    Models that keep another state than keys and values, or take positions another way, would
    give wrong texts in silence.

    Raises:
        InputError: they differ.
    """
    kind = lm.model.config.model_type
    refused = InputError(
        f"model {lm.name!r} ({kind}) cannot be decoded in rows of different lengths: use a causal "
        "language model with attention and position ids, such as GPT-2, OPT, Llama or Qwen"
    )
    if not takes(lm.model, "position_ids") or not takes(lm.model, "past_key_values"):
        raise refused
    size = int(lm.model.config.get_text_config().vocab_size)
    width = min(_CHECKED_TOKENS, max_positions(lm))  # long enough to leave a small window
    tokens = [(7 * number + 3) % size for number in range(width + 2)]
    lengths = [width, max(2, width // 2), max(2, width // 3)]
    rows = [tokens[start : start + length] for start, length in enumerate(lengths)]
    ids = torch.zeros(len(rows), width - 1, dtype=torch.long, device=lm.device)
    for number, row in enumerate(rows):
        ids[number, : len(row) - 1] = torch.tensor(row[:-1])
    memory = KeyValues(lm.model, len(rows), width)
    try:
        memory.extend(ids, 0)
        last = torch.tensor([row[-1] for row in rows], device=lm.device)
        places = torch.tensor([len(row) - 1 for row in rows], device=lm.device)
        ours = memory.step(last, places, width)  # (rows, vocab)
        for row, mine in zip(rows, ours, strict=True):
            alone = torch.tensor([row], device=lm.device)
            plain = lm.model(input_ids=alone, attention_mask=torch.ones_like(alone)).logits
            if not _agree(mine, plain[0, -1]):
                raise refused
    except (TypeError, AttributeError, IndexError, RuntimeError, NotImplementedError) as error:
        raise refused from error


def _agree(mine: Tensor, plain: Tensor) -> bool:
    """Return whether two rows of logits, (vocab,), are equal but for rounding.

    Their difference is measured by the spread of the log-probabilities, so that a flat
    distribution is no excuse. Rounding alone stays below 1e-4 of it in float32 and 0.02 in
    bfloat16; a wrong mask or position gives more than 0.15 on random weights.
    """
    tolerance = 0.01 if plain.dtype == torch.float32 else 0.1
    ours, theirs = mine.float().log_softmax(-1), plain.float().log_softmax(-1)
    if theirs.isnan().any():
        return True  # a broken model: its tries are dropped as not-a-number
    real = theirs.isfinite()
    difference, spread = (ours - theirs)[real].std(), theirs[real].std()
    return bool(difference <= tolerance * spread)

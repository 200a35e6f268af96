"""Decode many (input, label, attempt) groups at once under self-debiasing.

A group has one row for the label and one for each counter label; all continue with the same
sampled token. Finished rows leave and new groups enter at once. The tokens drawn depend on the
group alone: its job seeds its random numbers, never its batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby, takewhile
from threading import Event, Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.errors import InputError, TilthError
from tilth.generation.attempts import Job, NextJob, Outcome, split_output
from tilth.generation.debias import debiased_distribution, sample_indices
from tilth.generation.kv_cache import CachedPrompt, KVCache, PromptCache, accepts, bytes_per_token
from tilth.generation.rows import CopiedRows, SharedRows
from tilth.generation.settings import Sampling
from tilth.models.chat import end_of_turn_ids, has_chat_template
from tilth.models.cores import CoreStoppedError, on_cores, share_weights
from tilth.models.device import free_memory
from tilth.models.lm import LM
from tilth.models.packed_weights import with_packed_weights

_Ints = NDArray[np.int64]
_FREE = -1
_MOST_ROWS = {"cpu": 384, "cuda": 2048}  # of a core, or of a GPU
_FEWEST_ROWS = 64  # of a core: with fewer, all cores decode the same rows
# Within its window, local attention (Mistral, GPT-Neo, Llama 4) is plain causal attention.
_LIMITS = ("max_position_embeddings", "sliding_window", "window_size", "attention_chunk_size")
_CHECKED_TOKENS, _CHECKED_STEPS = 64, 3
# Errors of models that do not support our cache, positions as an argument, or our attention.
_UNSUITABLE = (
    TypeError,
    AttributeError,
    IndexError,
    RuntimeError,
    NotImplementedError,
    ValueError,
    KeyError,
)
# Of one pass that scores texts: tokens, and values of logits.
_SCORED_TOKENS, _SCORED_LOGITS = 4096, 1 << 27


class Engine:
    """Runs jobs on a local causal language model with attention.

    Args:
        sampling: with `chat`, prompts are those of the model's chat template, if it has one.
        heads: instructions up to their input, shared by many prompts.
        rows: sequences decoded in parallel; fewer take less memory and change the texts only by
            rounding.
    """

    def __init__(
        self, lm: LM, sampling: Sampling, *, heads: Sequence[str] = (), rows: int = 256
    ) -> None:
        self.lm = lm = replace(lm, model=with_packed_weights(lm.model))
        self.sampling, self.rows = sampling, rows
        chat = sampling.chat and has_chat_template(lm.tokenizer)
        self._vocabulary = Vocabulary(lm, chat=chat)
        self._positions = max_positions(lm)
        self._rows_type = check_model(lm)
        self._prompts = PromptCache(lm, heads, self._rows_type.prompts_type, whole=chat)
        self._core_count = max(1, min(_core_count(lm), rows // _FEWEST_ROWS))

    def run(self, jobs: Iterable[Job], next_job: NextJob) -> None:
        """Run all jobs; pass each outcome to `next_job`, which may return a further attempt.

        Where there are enough, each core decodes the jobs of some items, and `next_job` is called
        in its thread, by one thread at a time.
        """
        todo, count = list(jobs), self._core_count
        if count == 1 or sum(len(job.prompts) for job in todo) < count * _FEWEST_ROWS:
            self._decode(todo, next_job)
            return
        lengths = {job.item: sum(map(len, job.prompts)) for job in todo}
        order = sorted(lengths, key=lengths.__getitem__, reverse=True)
        core_of = {item: place % count for place, item in enumerate(order)}
        cores, lock = self._cores, Lock()  # made here, once, not by each thread

        def decode(core: int, is_stopped: Event) -> None:
            def answer(outcome: Outcome) -> Job | None:
                with lock:
                    if is_stopped.is_set():
                        raise CoreStoppedError
                    try:
                        return next_job(outcome)
                    except BaseException:
                        is_stopped.set()  # before another core may take the lock
                        raise

            own = [job for job in todo if core_of[job.item] == core]
            cores[core]._decode(own, answer)

        on_cores([partial(decode, core) for core in range(min(count, len(order)))])

    @cached_property
    def _cores(self) -> list[Engine]:
        """Engines that share the weights and the vocabulary, one for each core."""
        found = []
        for _ in range(self._core_count):
            core = copy(self)
            core.lm = replace(self.lm, model=share_weights(self.lm.model))
            core.rows, core._prompts = self.rows // self._core_count, self._prompts.empty(core.lm)
            found.append(core)
        return found

    @torch.inference_mode()
    def _decode(self, jobs: Iterable[Job], next_job: NextJob) -> None:
        """Run all jobs in this thread."""
        self._prompts.drop_prefixes()  # they depend on the texts of a call
        queue = self._queue(jobs, next_job)
        while queue:
            batch = _Batch(self, queue)
            try:
                batch.run(next_job)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                known = isinstance(error, torch.OutOfMemoryError)
                if not known and "can't allocate memory" not in str(error):
                    raise
                # Groups in progress restart; nothing else is lost.
                queue.extendleft(job for job in reversed(batch.job) if job is not None)
            else:
                continue
            del batch  # here nothing refers to its memory any more, the error's traceback neither
            self._halve(queue)

    @torch.inference_mode()
    def log_likelihoods(self, texts: Sequence[tuple[str, str]]) -> list[float]:
        """Return the log-probability of each (prompt, text), closed by a quotation mark.

        It is nan where both are longer than the model reads.
        """
        prompts = list(dict.fromkeys(prompt for prompt, _ in texts))
        wholes = [f'{prompt}{text}"' for prompt, text in texts]
        encoded = self._prompts.encode([*prompts, *wholes])
        alone = dict(zip(prompts, encoded, strict=False))
        rows = [ids[: self._positions] for ids in encoded[len(prompts) :]]
        starts = [
            _shared_length(alone[prompt], row) for (prompt, _), row in zip(texts, rows, strict=True)
        ]
        found = np.zeros(len(rows))
        # Prompts of one length are run once each, and shared by their texts.
        order = sorted(range(len(rows)), key=lambda place: (starts[place], rows[place]))
        for start, same in groupby(order, starts.__getitem__):
            places = list(same)
            while places:
                width = max(len(rows[place]) for place in places)
                most = _SCORED_LOGITS // ((width - start + 1) * self._vocabulary.size)
                size = max(1, min(_SCORED_TOKENS // width, most))
                found[places[:size]] = self._score([rows[n] for n in places[:size]], start)
                del places[:size]
        found[[len(ids) > self._positions for ids in encoded[len(prompts) :]]] = np.nan
        return [float(one) for one in found]

    def _score(self, rows: list[list[int]], start: int) -> NDArray[np.float64]:
        """Return the sum of the log-probabilities of each row's tokens from `start` on."""
        model, device, width = self.lm.model, self.lm.device, max(map(len, rows))
        known = start - 1  # the prompt's last token is run with the text, which it predicts
        heads = list(dict.fromkeys(tuple(row[:known]) for row in rows))
        cache = KVCache(model, len(rows), width)
        if known:
            prompts = KVCache(model, len(heads), known)
            prompts.extend(torch.tensor(heads, device=device), 0)
            own = {head: row for row, head in enumerate(heads)}
            sources = torch.tensor([own[tuple(row[:known])] for row in rows], device=device)
            cache.copy_rows(torch.arange(len(rows), device=device), prompts, sources, known)
        ids = torch.zeros(len(rows), width - known, dtype=torch.long)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens) - known] = torch.tensor(tokens[known:])
        ids = ids.to(device)
        lengths = torch.tensor([len(tokens) - start for tokens in rows], device=device)
        scored = torch.arange(width - start, device=device) < lengths[:, None]  # (rows, tokens)
        logits = cache.extend(ids[:, :-1], known, logits=True).float()  # (rows, tokens, vocab)
        drawn = logits.gather(-1, ids[:, 1:, None])[..., 0]  # (rows, tokens)
        sums = (drawn - logits.logsumexp(-1)).where(scored, 0.0).sum(-1)  # (rows,)
        found: NDArray[np.float64] = sums.double().cpu().numpy()
        return found

    def _queue(self, jobs: Iterable[Job], next_job: NextJob) -> deque[Job]:
        """Order jobs by length, longest first, an input's jobs together; refuse too long ones."""
        todo = list(jobs)
        prompts = self._prompts
        prompts.tokenise(chain.from_iterable(job.prompts for job in todo))
        length = {job: max(map(prompts.length, job.prompts)) for job in todo}
        longest: dict[int, int] = {}
        for job in todo:
            longest[job.item] = max(longest.get(job.item, 0), length[job])
        for job in todo:  # before any is released: jobs share prompts
            prompts.acquire(job.prompts)
        fitting = []
        for job in todo:
            if length[job] + self.sampling.max_new_tokens > self._positions:
                next_job(Outcome(job, "", "prompt-too-long", 0, 0.0))
                prompts.release(job.prompts)
            else:
                fitting.append(job)
        return deque(sorted(fitting, key=lambda job: (-longest[job.item], job.item)))

    def _halve(self, queue: deque[Job]) -> None:
        """Continue with half the rows."""
        self._prompts.drop_memory()
        if self.lm.device.type == "cuda":
            torch.cuda.empty_cache()
        most = max(len(job.prompts) for job in queue)
        if self.rows <= most:
            raise TilthError(
                f"out of memory with {self.rows} rows on {self.lm.device}: use a smaller model, "
                "--precision bfloat16, or shorter inputs"
            )
        self.rows = max(self.rows // 2, most)


def _shared_length(prompt: Sequence[int], whole: Sequence[int]) -> int:
    """Return how many tokens a text shares with its prompt: at least 1, and not all of its own."""
    pairs = zip(prompt, whole, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return max(1, min(shared, len(whole) - 1))


@dataclass(frozen=True, slots=True)
class _Logits:
    """Next-token logits of some rows: row r's are `values[index[r]]`, (rows, vocab)."""

    values: Tensor
    index: _Ints


class _Batch:
    """The rows being decoded and their cache; a group is identified by its own label's main row."""

    def __init__(self, engine: Engine, queue: deque[Job]) -> None:
        self.lm, self.sampling, self.queue = engine.lm, engine.sampling, queue
        self.vocabulary, self.prompts = engine._vocabulary, engine._prompts
        most = max(len(job.prompts) for job in queue)
        self.rows = max(min(engine.rows, sum(len(job.prompts) for job in queue)), most)
        longest = max(self.prompts.length(prompt) for job in queue for prompt in job.prompts)
        new = self.sampling.max_new_tokens
        self.cache = engine._rows_type(self.lm.model, self.rows, longest, new)
        self.owner: _Ints = np.full(self.rows, _FREE)  # the row's main row
        self.position: _Ints = np.zeros(self.rows, np.int64)  # where its next token goes
        self.token: _Ints = np.zeros(self.rows, np.int64)
        self.members: _Ints = np.zeros((self.rows, most), np.int64)  # of a main row's group
        self.job: list[Job | None] = [None] * self.rows
        self.done: _Ints = np.zeros(self.rows, np.int64)  # tokens drawn
        self.text: _Ints = np.zeros((self.rows, new), np.int64)
        self.uniform = np.zeros((self.rows, new), np.float32)
        self.floored: _Ints = np.zeros(self.rows, np.int64)
        self.factor = np.ones((self.rows, new), np.float32)  # alpha of each token drawn

    def run(self, next_job: NextJob) -> None:
        """Decode until the queue is empty and every row is free."""
        while True:
            entered, logits = self._enter()
            if logits is not None:
                self._draw(entered, logits, next_job)
                continue  # a text may have ended with its first token: its rows are free again
            if not len(self._mains()):
                return
            self._close_gaps()
            self._draw(self._mains(), self._forward(), next_job)

    def _mains(self) -> _Ints:
        return np.flatnonzero(self.owner == np.arange(self.rows))

    def _enter(self) -> tuple[_Ints, _Logits | None]:
        """Fill free rows with the next groups; return their main rows and their logits."""
        free = deque(np.flatnonzero(self.owner == _FREE).tolist())
        entered: list[int] = []
        filled: list[int] = []
        prompts: list[CachedPrompt] = []
        while self.queue and len(self.queue[0].prompts) <= len(free):
            job = self.queue[0]
            if any(prompt not in self.prompts for prompt in job.prompts):
                self._run_prompts()
            self.queue.popleft()
            rows = [free.popleft() for _ in job.prompts]
            main = rows[0]
            entered.append(main)
            filled.extend(rows)
            prompts.extend(map(self.prompts.__getitem__, job.prompts))
            self.owner[rows] = main
            self.members[main] = main  # padding: a row that is its own counter changes nothing
            self.members[main, : len(rows)] = rows
            self.job[main] = job
            self.done[main] = self.floored[main] = 0
            self.uniform[main] = uniforms(job.key, self.uniform.shape[1])
        if not filled:
            return np.array(entered, np.int64), None
        self.cache.enter(filled, prompts)
        self.position[filled] = [prompt.length for prompt in prompts]
        index = np.zeros(self.rows, np.int64)
        index[filled] = np.arange(len(filled))
        return np.array(entered), _Logits(torch.stack([one.logits for one in prompts]), index)

    def _run_prompts(self) -> None:
        """Run the prompts of the next jobs, enough to refill half the rows."""
        wanted: set[str] = set()
        for job in self.queue:
            wanted.update(prompt for prompt in job.prompts if prompt not in self.prompts)
            if len(wanted) >= max(16, self.rows // 2):
                break
        self.prompts.run(wanted)

    def _forward(self) -> _Logits:
        """Run every row's last token through the model."""
        span = int(np.flatnonzero(self.owner != _FREE)[-1]) + 1
        positions = self.position[:span]
        logits = self.cache.decode(self.token[:span], positions)
        self.position[:span] += self.owner[:span] != _FREE
        return _Logits(logits, np.arange(span))

    def _draw(self, mains: _Ints, logits: _Logits, next_job: NextJob) -> None:
        """Draw the next token of each group; finish the groups whose text has ended."""
        step = self.done[mains]
        tokens, floored, broken = self._next_tokens(mains, logits, step)
        self.text[mains, step] = tokens
        self.floored[mains] += floored
        self.done[mains] += 1
        busy = np.flatnonzero(self.owner != _FREE)
        latest = np.zeros(self.rows, np.int64)
        latest[mains] = tokens
        touched = busy[np.isin(self.owner[busy], mains)]
        self.token[touched] = latest[self.owner[touched]]
        is_full = self.done[mains] == self.sampling.max_new_tokens
        ended = self.vocabulary.ends[tokens] | is_full | broken
        for main, is_broken in zip(mains[ended].tolist(), broken[ended].tolist(), strict=True):
            self._finish(main, is_broken, next_job)

    def _next_tokens(
        self, mains: _Ints, logits: _Logits, step: _Ints
    ) -> tuple[_Ints, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return tokens, whether each one's factor was at the floor, whether logits were NaN."""
        uniform = self.uniform[mains, step]
        logits.values[:, self.vocabulary.banned] = -torch.inf
        members = self._tensor(logits.index[self.members[mains]])  # (groups, members)
        ids, kept, factors = debiased_distribution(logits.values, members, self.sampling)
        index = sample_indices(kept, torch.from_numpy(uniform).to(kept.device))  # (groups, 1)
        tokens = ids.gather(-1, index)[:, 0]
        alpha = factors.gather(-1, index)[:, 0]
        floored = ((alpha <= self.sampling.floor) & (alpha < 1)).long()
        rows = (tokens, floored, kept[:, 0].isnan(), alpha)
        found = torch.stack([row.double() for row in rows]).cpu().numpy()  # read together
        self.factor[mains, step] = found[3]
        return found[0].astype(np.int64), found[1].astype(bool), found[2].astype(bool)

    def _finish(self, main: int, is_broken: bool, next_job: NextJob) -> None:
        """Free a group's rows, report its outcome, put its next attempt first in the queue."""
        job = self.job[main]
        assert job is not None
        count, members = int(self.done[main]), self.members[main]
        text, reason = split_output(self.vocabulary.decode(self.text[main, :count].tolist()))
        if is_broken:
            reason = "not-a-number"
        self.cache.leave(members, broken=is_broken)
        self.owner[members] = _FREE
        self.position[members] = 0
        self.job[main] = None
        share = float(self.floored[main]) / count
        drawn = self.text[main, :count].copy(), self.factor[main, :count].copy()
        following = next_job(Outcome(job, text, reason, count, share, drawn=drawn))
        if following is not None:
            self.prompts.acquire(following.prompts)
            self.queue.appendleft(following)
        self.prompts.release(job.prompts)

    def _close_gaps(self) -> None:
        """Compact busy rows once a third of the span is empty: the work is ending."""
        busy = np.flatnonzero(self.owner != _FREE)
        count = len(busy)
        if self.queue or count > 2 * (int(busy[-1]) + 1) / 3:
            return
        moved = np.full(self.rows, _FREE)
        moved[busy] = np.arange(count)
        self.cache.move(busy, self.position[busy])
        self.members[:count] = moved[self.members[busy]]
        for values in (
            self.position, self.token, self.done, self.text, self.uniform, self.floored,
            self.factor,
        ):  # fmt: skip
            values[:count] = values[busy]
        self.job = [self.job[row] for row in busy] + [None] * (self.rows - count)
        self.owner[:count] = moved[self.owner[busy]]
        self.owner[count:] = _FREE
        self.position[count:] = 0

    def _tensor(self, values: _Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.lm.device)


class Vocabulary:
    """The tokens that end a text or are never drawn.

    Attributes:
        size: of the vocabulary.
        ends: (vocab,), True for tokens that end a text: those with a quotation mark or a newline;
            in a chat, the ends of a turn, too.
        banned: ids never drawn: special tokens and ids without a token. The original forbids the
            end of sequence, since the text ends at its quotation mark; in a chat, an end of the
            turn or sequence closes the text.
    """

    def __init__(self, lm: LM, *, chat: bool = False) -> None:
        self._tokenizer = lm.tokenizer
        self.size = size = int(lm.model.config.get_text_config().vocab_size)
        known = min(len(lm.tokenizer), size)
        texts = lm.tokenizer.batch_decode([[number] for number in range(known)])
        self.ends: NDArray[np.bool_] = np.zeros(size, bool)
        self.ends[:known] = ['"' in text or "\n" in text for text in texts]
        closing = set[int]()
        for config in (lm.model.config, lm.model.generation_config, lm.tokenizer):
            ids = getattr(config, "eos_token_id", None)  # one, several or none
            closing.update([ids] if isinstance(ids, int) else ids or [])
        banned = {*lm.tokenizer.all_special_ids, *range(known, size), *closing}
        self._closing = closing | end_of_turn_ids(lm.tokenizer) if chat else set[int]()
        banned_ids = sorted(one for one in banned - self._closing if 0 <= one < size)
        self.ends[[one for one in self._closing if 0 <= one < size]] = True
        self.banned = torch.tensor(banned_ids, device=lm.device, dtype=torch.long)

    def decode(self, tokens: list[int]) -> str:
        """Decode tokens to text, white space kept; an end of the turn is a quotation mark."""
        closed = tokens[-1] in self._closing
        text = self._tokenizer.decode(
            tokens[: len(tokens) - closed], clean_up_tokenization_spaces=False
        )
        return f'{text}"' if closed else str(text)


def uniforms(key: bytes, count: int) -> NDArray[np.float32]:
    """Return the uniform random numbers of an attempt: number i is for its i-th token."""
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
    return generator.random(count, dtype=np.float32)


def max_positions(lm: LM) -> int:
    """Return the model's maximum number of tokens, prompt and output together."""
    config = lm.model.config.get_text_config()
    limits = [getattr(config, name, None) for name in _LIMITS]
    return min((most for most in limits if isinstance(most, int) and most > 0), default=2**31)


def choose_rows(lm: LM, *, prompt_tokens: int, max_new_tokens: int) -> int:
    """Return how many rows fit into half of the free memory, up to where speed stops growing."""
    per_row = (prompt_tokens + max_new_tokens) * bytes_per_token(lm.model)
    per_row += 16 * int(lm.model.config.get_text_config().vocab_size)  # logits and their softmax
    # prompts waiting for their groups take about as much again
    rows = free_memory(lm.device) // 2 // (2 * per_row)
    return max(8, min(rows, _core_count(lm) * _MOST_ROWS[lm.device.type]) // 8 * 8)


def _core_count(lm: LM) -> int:
    return torch.get_num_threads() if lm.device.type == "cpu" else 1


@torch.inference_mode()
def check_model(lm: LM) -> type[CopiedRows | SharedRows]:
    """Return the kind of rows that decode as the model's plain forward does on each row alone.

    Raises `InputError` if none does: models that keep another state than keys and values, or take
    positions another way, would give wrong texts without an error.
    """
    kind = lm.model.config.model_type
    refused = InputError(
        f"model {lm.name!r} ({kind}) cannot be decoded in rows of different lengths: use a causal "
        "language model with attention and position ids, such as GPT-2, OPT, Llama or Qwen"
    )
    if not accepts(lm.model, "position_ids") or not accepts(lm.model, "past_key_values"):
        raise refused
    size = int(lm.model.config.get_text_config().vocab_size)
    width = min(_CHECKED_TOKENS, max_positions(lm))  # long enough to leave a small window
    tokens = [(7 * number + 3) % size for number in range(width + 2)]
    lengths = [width, max(4, width // 2), max(4, width // 3)]
    rows = [tokens[start : start + length] for start, length in enumerate(lengths)]
    try:
        plain = []
        for row in rows:
            alone = torch.tensor([row], device=lm.device)
            logits = lm.model(input_ids=alone, attention_mask=torch.ones_like(alone)).logits
            plain.append(logits[0, -1])
    except _UNSUITABLE as error:
        raise refused from error
    kinds: list[type[CopiedRows | SharedRows]] = [SharedRows, CopiedRows]
    for rows_type in kinds[lm.device.type != "cpu" :]:
        with suppress(*_UNSUITABLE):
            ours = _decoded(rows_type(lm.model, len(rows), width, _CHECKED_STEPS), rows)
            if all(map(_agree, ours, plain)):
                return rows_type
    raise refused


def _decoded(cache: CopiedRows | SharedRows, rows: list[list[int]]) -> Tensor:
    """Return the logits after each row's last token, (rows, vocab), in a prompt and some steps."""
    known = [row[:-_CHECKED_STEPS] for row in rows]
    prompts = cache.prompts_type(cache.model, len(rows), max(map(len, known)))
    logits = prompts.prefill(known)
    cache.enter(
        range(len(rows)),
        [CachedPrompt(prompts, row, len(ids), logits[row]) for row, ids in enumerate(known)],
    )
    for place in range(-_CHECKED_STEPS, 0):
        tokens = np.array([row[place] for row in rows])
        logits = cache.decode(tokens, np.array([len(row) + place for row in rows]))
    return logits


def _agree(mine: Tensor, plain: Tensor) -> bool:
    """Return whether two rows of logits, (vocab,), are equal but for rounding.

    The difference is divided by the spread of the log-probabilities, so that a flat distribution
    does not hide it. Rounding alone stays below 1e-4 of it in float32 and 0.02 in bfloat16; a wrong
    mask or position gives more than 0.15 on random weights.
    """
    tolerance = 0.01 if plain.dtype == torch.float32 else 0.1
    ours, theirs = mine.float().log_softmax(-1), plain.float().log_softmax(-1)
    if theirs.isnan().any():
        return True  # a broken model: its attempts are dropped as not-a-number
    real = theirs.isfinite()
    difference, spread = (ours - theirs)[real].std(), theirs[real].std()
    return bool(difference <= tolerance * spread)

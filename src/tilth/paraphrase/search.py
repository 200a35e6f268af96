"""Fast beam search and beam search with sampling of translators and rewriters.

The search is `transformers.generate`'s. It is fast because texts of one length run together in
large batches of few shapes, per-row limits on the length stop every row, and keys and values of
the source are not copied at every step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any

import torch
from torch import Tensor

from tilth.errors import InputError
from tilth.limits import BEAMS, Number, check_fields, whole
from tilth.models.lm import Seq2Seq

_MULTIPLE = 8  # of padded lengths: each new shape costs the CPU's kernels some milliseconds
_TOP_K, _TIMES = whole(1, 1_000_000), Number(0, 1000, above=True)
# Of caches and scores over the vocabulary. Fixed, not of the free memory: the batches, and with
# them what is sampled, must not depend on the machine's load.
_BYTES = 768 * 2**20
_BEAM_ROWS = 80
# Without `longest` an output ends at twice the source's tokens and some.
_LONGEST, _MORE = 2.0, 16
# Neutral values for what models' own generation configs hold from other uses, such as the
# `no_repeat_ngram_size=3` of facebook/bart-base. The tokens they begin with, end with, force and
# forbid stay in force.
_NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 50,
    "length_penalty": 1.0,
    "early_stopping": False,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "min_length": 0,
    "min_new_tokens": None,
    "max_new_tokens": None,
    "top_p": 1.0,
    "use_cache": True,
    "output_scores": False,
    "return_dict_in_generate": False,
}
# Shares of the cost: for any word of the source, then more for each equal word before it.
_SHARES = (0.15, 0.35, 0.25, 0.25)
_WORD_BEGINS = ("\u0120", "\u2581")  # marks of byte-level and sentence-piece vocabularies
_WORD_GOES_ON = "##"  # mark of word-piece vocabularies


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Settings of a beam search.

    Attributes:
        beams: 1 is greedy, or plain sampling.
        top_k: tokens that sampling draws from at each step; None: no sampling.
        temperature: of sampling, with `top_k`.
        returned: outputs for each text, at most `beams`.
        shortest: least tokens of an output, in times the input's; tags are not counted.
        longest: most tokens of an output, in times the input's; None: 2.0 and 16 tokens.
        copy_costs: costs of copying the source, in logits. Each text is searched once with each
            cost. Empty: once, without a penalty.
    """

    beams: Annotated[int, BEAMS] = 5
    top_k: Annotated[int | None, _TOP_K] = None
    temperature: Annotated[float | None, _TIMES] = None
    returned: Annotated[int, BEAMS] = 1
    shortest: Annotated[float | None, _TIMES] = None
    longest: Annotated[float | None, _TIMES] = None
    copy_costs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the values."""
        check_fields(self)
        if self.returned > self.beams:
            raise InputError(
                f"returned is {self.returned}: a search with {self.beams} beams has at most so many"
            )
        if (self.top_k is None) != (self.temperature is None):
            raise InputError("top-k and temperature go together: give both to sample, or none")
        if (self.shortest or 0) > (self.longest or math.inf):
            raise InputError(f"shortest is {self.shortest}: it cannot be above longest")

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled."""
        return self.top_k is not None


@torch.inference_mode()
def decode(
    seq2seq: Seq2Seq,
    texts: Sequence[str],
    search: BeamSearch,
    *,
    seed: int = 0,
    rows: int | None = None,
) -> list[list[str]]:
    """Generate outputs for texts, each prefixed with the model's prefix.

    The same texts, search, seed and rows give the same outputs: tokens are sampled batch by batch
    with a generator of (seed, batch), and the global random state is left as it was.

    Args:
        rows: batch size; None: as many texts as a fixed memory budget holds.

    Returns:
        For each text `search.returned` outputs, best first, for each cost of copying in turn; none
        for a text that is empty or longer than the model reads.
    """
    found: list[list[list[str]]] = [[[] for _ in search.copy_costs or "-"] for _ in texts]
    sources = _sources(seq2seq, texts, search)
    for number, batch in enumerate(_batches(seq2seq, sources, search, rows)):
        outputs = _generate(seq2seq, batch, search, f"{seed}/{number}")
        for row, source in enumerate(batch):
            start = row * search.returned
            found[source.text][source.number] = outputs[start : start + search.returned]
    return [[text for some in each for text in some] for each in found]


def is_too_long(seq2seq: Seq2Seq, text: str) -> bool:
    """Tell whether a text, with the prefix, has more tokens than the model reads."""
    return len(_token_ids(seq2seq, [text])[0]) > seq2seq.positions


def _token_ids(seq2seq: Seq2Seq, texts: Sequence[str]) -> list[list[int]]:
    # Half a surrogate pair, which no tokenizer takes, becomes a question mark.
    prefixed = [seq2seq.prefix + text.encode("utf-8", "replace").decode() for text in texts]
    tokenizer: Any = seq2seq.tokenizer
    ids: list[list[int]] = tokenizer(prefixed, verbose=False)["input_ids"] if texts else []
    return ids


@dataclass(frozen=True, slots=True)
class _Source:
    """Token ids of a text for one copy cost, and its output limits without the closing token."""

    text: int
    number: int
    copy_cost: float
    ids: list[int]
    least: int
    most: int


def _sources(seq2seq: Seq2Seq, texts: Sequence[str], search: BeamSearch) -> list[_Source]:
    """Return the texts that can be read, once for each copy cost."""
    tokenizer: Any = seq2seq.tokenizer
    marks = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    marks.discard(tokenizer.unk_token_id)
    sources = []
    for index, ids in enumerate(_token_ids(seq2seq, texts)):
        tokens = sum(token not in marks for token in ids)
        if not texts[index].strip() or not tokens or len(ids) > seq2seq.positions:
            continue
        most = _LONGEST * tokens + _MORE
        if search.longest is not None:
            most = max(1, search.longest * tokens)
        room = seq2seq.positions - 3  # beside the tokens it may have to begin and end with
        least = math.ceil((search.shortest or 0) * tokens)
        limits = min(least, int(most), room), min(int(most), room)
        sources += [
            _Source(index, number, cost, ids, *limits)
            for number, cost in enumerate(search.copy_costs or (0.0,))
        ]
    return sources


def _batches(
    seq2seq: Seq2Seq, sources: Sequence[_Source], search: BeamSearch, rows: int | None
) -> Iterator[list[_Source]]:
    """Yield batches of about equal length, longest first, so that too little memory shows soon."""
    ordered = sorted(sources, key=lambda source: (-_padded(len(source.ids)), -source.most))
    start = 0
    while start < len(ordered):
        first = ordered[start]
        size = rows or _batch_size(seq2seq, _padded(len(first.ids)) + first.most, search.beams)
        yield ordered[start : start + size]
        start += size


def _padded(length: int) -> int:
    return -(-length // _MULTIPLE) * _MULTIPLE


def _batch_size(seq2seq: Seq2Seq, tokens: int, beams: int) -> int:
    """Return the number of texts that fit; `tokens` counts source and output together."""
    config: Any = seq2seq.model.config
    layers = getattr(config, "decoder_layers", None) or config.num_hidden_layers
    cache = 4 * layers * config.hidden_size * seq2seq.model.dtype.itemsize * tokens
    scores = 6 * 4 * len(seq2seq.tokenizer)
    return max(1, min(_BEAM_ROWS, _BYTES // int(cache + scores)) // beams)


def _generate(
    seq2seq: Seq2Seq, batch: Sequence[_Source], search: BeamSearch, key: str
) -> list[str]:
    """Return the outputs of a batch, `search.returned` for each text."""
    from transformers import LogitsProcessorList

    from tilth.paraphrase.fast_beam_search import fast_beam_search

    model: Any = seq2seq.model
    tokenizer: Any = seq2seq.tokenizer
    device = seq2seq.device
    shape = len(batch), _padded(max(len(source.ids) for source in batch))
    ids, mask = torch.full(shape, tokenizer.pad_token_id), torch.zeros(shape, dtype=torch.long)
    for row, source in enumerate(batch):
        ids[row, : len(source.ids)] = torch.tensor(source.ids)  # (texts, length)
        mask[row, : len(source.ids)] = 1
    limits = _LengthLimits(model.generation_config, batch, search.beams, device)
    processors: list[Any] = [limits]
    if any(source.copy_cost for source in batch):
        penalty = CopyPenalty(
            [source.ids for source in batch], [source.copy_cost for source in batch],
            search.beams, word_begins(tokenizer, device), limits.before,
        )  # fmt: skip
        processors.insert(0, penalty)
    options = dict(_NEUTRAL)
    if search.samples:
        options |= {
            "do_sample": True, "temperature": search.temperature, "top_k": search.top_k
        }  # fmt: skip
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        fast_beam_search(model, search.beams, search.top_k, limits.length) as cheaper,
    ):
        torch.manual_seed(int.from_bytes(blake2b(key.encode(), digest_size=7).digest(), "big"))
        outputs = model.generate(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            logits_processor=LogitsProcessorList(processors),
            num_beams=search.beams,
            num_return_sequences=search.returned,
            max_length=limits.length,
            **{**options, **cheaper},
        )  # (texts * returned, tokens)
    return [text.strip() for text in tokenizer.batch_decode(outputs, skip_special_tokens=True)]


class _LengthLimits:
    """Logits processor with length limits for each row; `generate` has one pair for the batch."""

    def __init__(
        self, config: Any, batch: Sequence[_Source], beams: int, device: torch.device
    ) -> None:
        # The token a decoder starts with, and the one that some models are forced to begin with.
        self.before = 1 + (config.forced_bos_token_id is not None)
        ends = config.eos_token_id
        self.ends = torch.tensor(ends if isinstance(ends, list) else [ends], device=device)
        self.least, self.most = (
            torch.tensor(lengths, device=device).repeat_interleave(beams)  # (rows * beams)
            for lengths in ([one.least for one in batch], [one.most for one in batch])
        )
        self.earliest, self.latest = int(self.least.max()), int(self.most.min())
        self.length = self.before + int(self.most.max()) + 1

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Forbid the closing token below the least length, force it at the most."""
        written = ids.shape[1] - self.before
        if written < self.earliest:
            short = self.least > written  # (rows * beams)
            scores[:, self.ends] = scores[:, self.ends].masked_fill(short[:, None], -math.inf)
        if written >= self.latest:
            ended = self.most <= written  # (rows * beams)
            scores = scores.masked_fill(ended[:, None], -math.inf)
            scores[:, self.ends[0]] = scores[:, self.ends[0]].masked_fill(ended, 0.0)
        return scores


class CopyPenalty:
    """Logits processor that penalizes words copied from the source.

    BLEU counts n-grams of up to 4 words; the cost grows likewise and is whole for the fourth word
    in a row. Tokens inside a word cost nothing, so that names stay whole.

    Args:
        sources: token ids of each text.
        costs: of each text, in logits.
        begins: whether a vocabulary entry begins a word. # (vocabulary,)
        before: tokens of the output before its text.
    """

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        costs: Sequence[float],
        beams: int,
        begins: Tensor,
        before: int,
    ) -> None:
        ids = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(source) for source in sources], batch_first=True, padding_value=-1
        )  # (texts, longest)
        self.next = ids.repeat_interleave(beams, dim=0).to(begins.device)  # (rows, longest)
        word = begins[self.next.clamp(min=0)] & (self.next >= 0)
        cost = torch.tensor(costs).repeat_interleave(beams).to(begins.device)
        self.cost = word * cost[:, None]  # (rows, longest)
        self.before = before

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores of the next token, (rows, vocabulary)."""
        written = ids.shape[1] - self.before
        same = torch.ones_like(self.next, dtype=torch.bool)
        share = torch.full(self.next.shape, _SHARES[0], device=scores.device)
        for back in range(1, min(written, len(_SHARES) - 1) + 1):
            moved = torch.full_like(self.next, -2)  # the source's tokens `back` positions before
            moved[:, back:] = self.next[:, :-back]
            same &= moved == ids[:, -back, None]
            share += same * _SHARES[back]
        taken = torch.zeros_like(scores).scatter_reduce_(
            1, self.next.clamp(min=0), (share * self.cost).to(scores.dtype), "amax"
        )
        return scores - taken


@lru_cache(maxsize=4)
def word_begins(tokenizer: Any, device: torch.device) -> Tensor:
    """Return which entries of a vocabulary begin a word, (vocabulary,)."""
    names = [str(name) for name in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    begins = [name.startswith(_WORD_BEGINS) for name in names]
    if not any(begins):
        goes_on = [name.startswith(_WORD_GOES_ON) for name in names]
        kind = type(tokenizer.backend_tokenizer.model).__name__
        if not any(goes_on) and kind != "WordLevel":
            raise InputError(
                f"the model's vocabulary ({kind}) does not mark where words begin, so wording "
                "cannot be steered: rewrite without it, --no-steer"
            )
        special = set(tokenizer.all_special_ids)
        begins = [not inner and number not in special for number, inner in enumerate(goes_on)]
    return torch.tensor(begins, device=device)

"""Fast beam search and beam search with sampling of translators and rewriters.

The outputs are those of `transformers.generate`. Texts of similar lengths run together, each with
its own limits on the length; the model's `generation_config` counts for the tokens that outputs
begin with, end with and must not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import blake2b
from threading import Event
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.errors import InputError
from tilth.limits import BEAMS, Number, check_fields, whole
from tilth.models.cores import on_cores, share_weights
from tilth.models.lm import Seq2Seq
from tilth.models.packed_weights import with_packed_weights
from tilth.paraphrase.beam_search import BeamLoop, Source, Tokens
from tilth.paraphrase.decoders import encode, new_decoder

_TOP_K, _TIMES = whole(1, 1_000_000), Number(0, 1000, above=True)
_BYTES = 768 * 2**20  # of caches and scores over the vocabulary
_BEAM_ROWS = 240  # products of fewer rows are slower
_CORE_ROWS = 160  # of a core that decodes texts of its own; with fewer, all cores divide them
_ENCODED = 2048  # tokens at a time
# Without `longest` an output ends at twice the source's tokens and some.
_LONGEST, _MORE = 2.0, 16
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
) -> list[list[str]]:
    """Generate outputs for texts, each prefixed with the model's prefix.

    What is sampled for a text depends on the text, the search and the seed, not on the other texts;
    the global random state is left as it was.

    Returns:
        For each text `search.returned` outputs, best first, for each cost of copying in turn; none
        for a text that is empty or longer than the model reads.
    """
    model = with_packed_weights(seq2seq.model)
    sources, tokens = _sources(seq2seq, texts, search, seed), _fixed_tokens(seq2seq, search)
    cores = torch.get_num_threads() if model.device.type == "cpu" else 1
    cores = max(1, min(cores, len(sources) * search.beams // _CORE_ROWS))
    places = {text: place for place, text in enumerate(dict.fromkeys(one.text for one in sources))}
    found: list[tuple[Source, list[list[int]]]] = []

    @torch.inference_mode()
    def run(core: int, ours: Seq2Seq, is_stopped: Event) -> None:
        some = [source for source in sources if places[source.text] % cores == core]
        for group, slots in _groups(ours, some, search, _BYTES // cores):
            for one in _run_group(ours, group, slots, search, tokens):
                if is_stopped.is_set():
                    return
                found.append(one)

    if cores == 1:
        run(0, replace(seq2seq, model=model), Event())
    else:
        models = [replace(seq2seq, model=share_weights(model)) for _ in range(cores)]
        on_cores([partial(run, core, ours) for core, ours in enumerate(models)])
    outputs: list[list[list[str]]] = [[[] for _ in search.copy_costs or "-"] for _ in texts]
    for source, written in found:
        some = written[: search.returned]
        read = seq2seq.tokenizer.batch_decode(some, skip_special_tokens=True)
        outputs[source.text][source.number] = [text.strip() for text in read]
    return [[text for some in each for text in some] for each in outputs]


def _run_group(
    seq2seq: Seq2Seq, group: Sequence[Source], slots: int, search: BeamSearch, tokens: Tokens
) -> Iterator[tuple[Source, list[list[int]]]]:
    """Yield texts and their outputs, best first, as they are finished."""
    longest = max(len(source.ids) for source in group)
    width = max(source.most for source in group) + 3  # with what begins and closes an output
    loop = BeamLoop(
        new_decoder(seq2seq.model, slots, search.beams, longest, width),
        tokens, slots, search.beams, width,
        top_k=search.top_k, temperature=search.temperature or 1.0,
    )  # fmt: skip
    return loop.run(_encoded(seq2seq, group))


def is_too_long(seq2seq: Seq2Seq, text: str) -> bool:
    """Tell whether a text, with the prefix, has more tokens than the model reads."""
    return len(_token_ids(seq2seq, [text])[0]) > seq2seq.positions


def _token_ids(seq2seq: Seq2Seq, texts: Sequence[str]) -> list[list[int]]:
    # Half a surrogate pair, which no tokenizer takes, becomes a question mark.
    prefixed = [seq2seq.prefix + text.encode("utf-8", "replace").decode() for text in texts]
    tokenizer: Any = seq2seq.tokenizer
    ids: list[list[int]] = tokenizer(prefixed, verbose=False)["input_ids"] if texts else []
    return ids


def _sources(seq2seq: Seq2Seq, texts: Sequence[str], search: BeamSearch, seed: int) -> list[Source]:
    """Return the texts that can be read, once for each copy cost, the longest first."""
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
        for number, cost in enumerate(search.copy_costs or (0.0,)):
            key = blake2b(f"{seed}/{number}/{ids}".encode(), digest_size=8).digest()
            source = Source(index, number, ids, *limits, cost, int.from_bytes(key, "big"))
            sources.append(source)
    return sorted(sources, key=lambda one: (-len(one.ids), -one.most, one.text))


def _groups(
    seq2seq: Seq2Seq, sources: Sequence[Source], search: BeamSearch, most: int
) -> Iterator[tuple[list[Source], int]]:
    """Yield texts that share tables, of `most` bytes, and how many are decoded at a time."""
    config: Any = seq2seq.model.config
    layers = getattr(config, "decoder_layers", None) or config.num_hidden_layers
    token = 2 * layers * config.hidden_size * seq2seq.model.dtype.itemsize
    start = 0

    def fitting(source: Source) -> int:
        scores = 6 * 4 * len(seq2seq.tokenizer)
        outputs = search.beams * (token * (source.most + 3) + scores)
        many = most // (token * len(source.ids) + outputs)
        return int(max(1, min(_BEAM_ROWS // search.beams, many)))

    while start < len(sources):
        slots, end = fitting(sources[start]), start
        while end < len(sources) and fitting(sources[end]) < 2 * slots:
            end += 1
        yield list(sources[start:end]), min(slots, end - start)
        start = end


def _encoded(seq2seq: Seq2Seq, sources: Sequence[Source]) -> Iterator[tuple[Source, Tensor]]:
    """Yield texts and their encoder states, (tokens, dimension); each text is encoded once."""
    start = 0
    while start < len(sources):
        count = max(1, _ENCODED // len(sources[start].ids))
        some = sources[start : start + count]
        ids = {source.text: source.ids for source in some}
        padding = int(seq2seq.tokenizer.pad_token_id or 0)
        states = dict(zip(ids, encode(seq2seq.model, list(ids.values()), padding), strict=True))
        yield from ((source, states[source.text]) for source in some)
        start += count


def _fixed_tokens(seq2seq: Seq2Seq, search: BeamSearch) -> Tokens:
    """Return what the model's generation config forces and forbids."""
    config: Any = seq2seq.model.generation_config
    start, ends = config.decoder_start_token_id, config.eos_token_id
    many = [ids for ids in config.bad_words_ids or [] if len(ids) > 1]
    if many:
        raise InputError(
            f"model {seq2seq.name!r} forbids sequences of tokens, such as {many[0]}, which are not "
            "supported: remove bad_words_ids from its generation_config.json"
        )
    return Tokens(
        config.bos_token_id if start is None else start,
        config.forced_bos_token_id,
        ends if isinstance(ends, list) else [ends],
        [*(config.suppress_tokens or []), *(one for one, in config.bad_words_ids or [])],
        list(config.begin_suppress_tokens or []),
        word_begins(seq2seq.tokenizer) if any(search.copy_costs) else None,
    )  # fmt: skip


@lru_cache(maxsize=4)
def word_begins(tokenizer: Any) -> NDArray[np.bool_]:
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
    return np.array(begins)

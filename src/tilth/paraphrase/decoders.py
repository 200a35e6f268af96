"""Decode with encoder-decoders token by token, from stored keys and values or a model's own cache.

Each text has a slot, and each of its beams a row: row `slot * beams + beam`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from tilth.models.kernel_arrays import (
    CODES,
    LANES,
    attention_of,
    codes,
    in_parts,
    rounded_up,
)
from tilth.object_code import Compiled

Ints = NDArray[np.int64]
_NAME = "tilth-spans"
# Families whose decoder takes positions from its cache, and attention from the interface.
_FAMILIES = ("bart", "mbart", "marian", "pegasus")

_attend_spans = Compiled("tilth.models.single_query_kernels", "attend_spans")


class Decoder(Protocol):
    """An encoder-decoder with the keys and values of its rows.

    `joins` tells whether texts may enter while others are being decoded.
    """

    joins: bool

    def enter(self, slots: Ints, states: Sequence[Tensor]) -> None:
        """Let texts with these encoder states, each (tokens, dimension), take slots."""

    def step(self, rows: Ints, parents: Ints, tokens: Ints, positions: Ints) -> Tensor:
        """Run the next token of some rows; return the logits after it, (rows, vocabulary).

        Args:
            rows: in ascending order. # (rows,)
            parents: the row of the same text that each continues. # (rows,)
            tokens: # (rows,)
            positions: of the tokens, the first is 0. # (rows,)
        """


def new_decoder(model: Any, slots: int, beams: int, source: int, output: int) -> Decoder:
    """Return a decoder of `slots` texts of at most `source` tokens, and outputs of `output`."""
    config = model.config
    if (
        config.model_type in _FAMILIES
        and config._attn_implementation == "sdpa"
        and model.device.type == "cpu"
        and model.dtype in CODES
        and config.d_model % (config.decoder_attention_heads * LANES) == 0
    ):
        return SpanDecoder(model, slots, beams, source, output)
    return CachedDecoder(model, beams)


def encode(model: Any, ids: Sequence[Sequence[int]], padding: int) -> list[Tensor]:
    """Return the encoder's states of each text, (tokens, dimension)."""
    shape = len(ids), max(map(len, ids))
    padded, mask = torch.full(shape, padding), torch.zeros(shape, dtype=torch.long)
    for row, some in enumerate(ids):
        padded[row, : len(some)] = torch.tensor(some)  # (texts, tokens)
        mask[row, : len(some)] = 1
    given = {"input_ids": padded.to(model.device), "attention_mask": mask.to(model.device)}
    states = model.get_encoder()(**given).last_hidden_state  # (texts, tokens, dimension)
    return [row[: len(some)] for row, some in zip(states, ids, strict=True)]


class _Position(CacheLayerMixin):
    """Gives a decoder the positions of its tokens; `SpanDecoder` stores keys and values."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys = self.values = torch.empty(1, 1, 0, 1)  # of a source: none are passed on
        self.positions = torch.zeros(1, dtype=torch.long)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Pass on keys and values of the new tokens."""
        return key_states, value_states

    def get_seq_length(self) -> Any:
        """Return what is added to the place of each token among the rows."""
        return self.positions

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        """Return no sizes: the mask is not read."""
        return 0, 0

    def get_max_length(self) -> int:
        """Return that there is no limit."""
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.20


class SpanDecoder:
    """A decoder on processors that never copies keys and values.

    The beams of a text share one copy of its source. A beam that continues another one reads its
    tokens from the other's row: `lineage` holds the row in which each token of a row is stored.
    The decoder runs all rows as one sequence, so that each has its own position.
    """

    joins = True

    def __init__(self, model: Any, slots: int, beams: int, source: int, output: int) -> None:
        self.decoder, self.head, self.beams = model.get_decoder(), model.lm_head, beams
        bias = model.final_logits_bias
        self.bias = bias if bias.any() else None
        config, layers = model.config, len(self.decoder.layers)
        heads = config.decoder_attention_heads
        self.size = config.d_model // heads
        own, read = (slots * beams, heads, output, self.size), (slots, heads, source, self.size)
        self.own, self.source = (
            [torch.zeros(2, *shape, dtype=model.dtype) for _ in range(layers)]
            for shape in (own, read)
        )
        self.lineage = np.zeros((slots * beams, output), np.int64)
        self.lengths = np.zeros(slots, np.int64)
        self.last = _Position()
        layer: list[Any] = [self.last] * layers
        self.cache = EncoderDecoderCache(Cache(layers=layer), Cache(layers=layer))
        self.cache.is_updated = dict.fromkeys(range(layers), True)
        self.mask = torch.zeros(1, 1, 1, 1, dtype=model.dtype)
        self.states = torch.zeros(1, 1, config.d_model, dtype=model.dtype)
        shape = torch.get_num_threads(), rounded_up(source + output)
        self.weights = np.empty(shape, np.float32)
        # Where the rows of a step store their tokens, and what they read.
        self.places: tuple[Tensor, Tensor] = (self.last.positions, self.last.positions)
        self.spans: list[tuple[Ints, Ints]] = []

    def enter(self, slots: Ints, states: Sequence[Tensor]) -> None:
        """Compute and store the keys and values of sources."""
        lengths = np.array([len(some) for some in states])
        self.lengths[slots] = lengths
        tokens = torch.cat(list(states))  # (tokens, dimension)
        slot = torch.from_numpy(np.repeat(slots, lengths))
        place = torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))
        for layer, kept in zip(self.decoder.layers, self.source, strict=True):
            attention = layer.encoder_attn
            for held, project in zip(kept, (attention.k_proj, attention.v_proj), strict=True):
                held[slot, :, place] = project(tokens).view(len(tokens), -1, self.size)

    def step(self, rows: Ints, parents: Ints, tokens: Ints, positions: Ints) -> Tensor:
        """Run the next token of some rows; return the logits after it, (rows, vocabulary)."""
        self.lineage[rows] = self.lineage[parents]
        self.lineage[rows, positions] = rows
        self.places = torch.from_numpy(rows), torch.from_numpy(positions)
        slots, every = rows // self.beams, np.arange(len(rows) + 1)
        starts = slots * self.source[0][0, 0].numel() // self.size
        source = np.stack((starts, self.lengths[slots]), axis=1), every  # one span for each row
        self.spans = [self._own_spans(rows, positions), source]
        self.last.positions = self.places[1] - torch.arange(len(rows))
        with attention_of(self.decoder.config, _NAME):
            states = self.decoder(
                input_ids=torch.from_numpy(tokens)[None],
                attention_mask=self.mask,
                encoder_hidden_states=self.states,
                encoder_attention_mask=self.mask,
                past_key_values=self.cache,
                use_cache=True,
                attention=self,
            ).last_hidden_state[0]  # (rows, dimension)
        logits: Tensor = self.head(states)
        return logits if self.bias is None else logits + self.bias

    def _own_spans(self, rows: Ints, positions: Ints) -> tuple[Ints, Ints]:
        """Return the spans that rows read of output tokens, and the first span of each row."""
        width = int(positions.max()) + 1
        stored = self.lineage[rows, :width]
        begins = np.arange(width) <= positions[:, None]  # (rows, width)
        begins[:, 1:] &= stored[:, 1:] != stored[:, :-1]
        of, column = np.nonzero(begins)
        first = np.append(0, np.cumsum(begins.sum(axis=1)))  # (rows + 1,)
        ends = np.append(column[1:], 0)
        ends[first[1:] - 1] = positions + 1
        _, heads, output, _ = self.own[0][0].shape
        starts = stored[of, column] * heads * output + column
        return np.stack((starts, ends - column), axis=1), first

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Return attention to the output, or to the source where no keys are given.

        `query`, `key` and `value` are (rows, heads, size); so is the result.
        """
        kept = self.own[layer] if len(key) else self.source[layer]
        if len(key):
            rows, positions = self.places
            kept[0, rows, :, positions] = key
            kept[1, rows, :, positions] = value
        queries, keys, values = (codes(one) for one in (query, *kept))
        spans, first = self.spans[not len(key)]
        chunks = np.empty((1,) * (self.size // LANES), np.uint8)
        out = torch.empty(query.shape)
        found, head = out.numpy(), kept.shape[3]
        scale *= math.log2(math.e)

        def arguments(rows: slice, thread: int) -> tuple[Any, ...]:
            return (
                chunks, queries[rows], keys.reshape(-1, self.size), values.reshape(-1, self.size),
                spans, first[rows.start : rows.stop + 1], head, scale, self.weights[thread],
                found[rows],
            )  # fmt: skip

        in_parts(_attend_spans, arguments, len(query))
        return out.to(query.dtype)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 - `attention` knows what a token reads
    *,
    attention: SpanDecoder,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' attention functions do; the batch is one sequence."""
    queries, keys, values = (one[0].transpose(0, 1) for one in (query, key, value))
    scale = scaling or query.shape[-1] ** -0.5
    return attention.attend(module.layer_idx, queries, keys, values, scale)[None], None


AttentionInterface.register(_NAME, _attend)


class CachedDecoder:
    """A decoder of any family on any device: its own forward pass and cache, in step."""

    joins = False

    def __init__(self, model: Any, beams: int) -> None:
        self.model, self.beams = model, beams
        self.rows: Ints = np.empty(0, np.int64)  # of the step before
        self.cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self.states = self.mask = torch.empty(0)

    def enter(self, slots: Ints, states: Sequence[Tensor]) -> None:
        """Begin with texts in all slots: the first ones."""
        assert slots.tolist() == list(range(len(slots)))
        self.rows = np.empty(0, np.int64)
        self.cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self.states = torch.nn.utils.rnn.pad_sequence(list(states), batch_first=True)
        lengths = torch.tensor([len(some) for some in states])
        mask = torch.arange(self.states.shape[1]) < lengths[:, None]  # (texts, tokens)
        self.mask = mask.long().to(self.states.device)

    def step(self, rows: Ints, parents: Ints, tokens: Ints, positions: Ints) -> Tensor:
        """Run the next token of some rows; return the logits after it, (rows, vocabulary)."""
        device = self.states.device
        if positions[0]:
            kept: Any = torch.from_numpy(np.searchsorted(self.rows, parents)).to(device)
            self.cache.self_attention_cache.reorder_cache(kept)
            if not np.array_equal(rows, self.rows):
                self.cache.cross_attention_cache.reorder_cache(kept)
        self.rows = rows
        texts = torch.from_numpy(rows // self.beams).to(device)
        logits: Tensor = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self.states[texts]),
            attention_mask=self.mask[texts],
            decoder_input_ids=torch.from_numpy(tokens)[:, None].to(device),
            past_key_values=self.cache,
            use_cache=True,
        ).logits
        return logits[:, -1]

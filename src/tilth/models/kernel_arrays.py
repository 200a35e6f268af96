"""Hand tensors and rows to compiled kernels on processors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.object_code import Compiled

# A block of the kernels that compute products: columns, of which sizes of heads are multiples.
WIDTH, ROWS = 16, 4
TILE = 256  # columns whose largest logits are found together
LANES = 8  # values of an instruction: head sizes of attention are multiples of it
# Columns of the tables that say which keys and values are read: addresses of the first ones, bytes
# from one head to the next, how many tokens there are.
KEYS, VALUES, HEAD_BYTES, TOKENS = range(4)
# Of a row with one query: tokens of its own.
OWN_TOKENS, ROW_FIELDS = 4, 5
# Of a text: bytes from one token to the next, query heads that read one head of keys.
TOKEN_BYTES, TOGETHER, TEXT_FIELDS = 4, 5, 6
# Data types that kernels read, as those of equal width that numpy knows.
CODES = {torch.float32: (torch.float32, np.float32), torch.bfloat16: (torch.int16, np.uint16)}

_attend_texts = Compiled("tilth.models.packed_kernels", "attend_texts")
_move_heads = Compiled("tilth.models.packed_kernels", "move_heads")
_gate = Compiled("tilth.models.gelu_kernels", "gate")
_gate_back = Compiled("tilth.models.gelu_kernels", "gate_back")


def codes(values: Tensor) -> NDArray[Any]:
    """Return values as numpy knows them: bfloat16 as uint16."""
    seen, kind = CODES[values.dtype]
    return values.contiguous().view(seen).numpy().view(kind)


@contextmanager
def attention_of(config: Any, name: str) -> Iterator[None]:
    """Let models of a configuration attend by the function that is registered under a name."""
    before, config._attn_implementation = config._attn_implementation, name
    try:
        yield
    finally:
        config._attn_implementation = before


def attend_texts(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    starts: NDArray[np.int64],
    places: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    scale: float,
    is_causal: bool,
) -> Tensor:
    """Return attention within texts, (tokens, heads, size); 0 for tokens that are of no text.

    Args:
        queries: of the last tokens of each text. # (tokens, heads, size), a multiple of WIDTH
        keys, values: of the first text, or more of that memory. # (kv heads, tokens, size)
        starts: first query of each text, and the end. # (texts + 1,)
        places: of the texts' first keys, in elements after the first text's. # (texts,)
        counts: tokens of each text. # (texts,)
        scale: of products of query and key.
        is_causal: whether a query reads no key after its own token.
    """
    size, item = queries.shape[2], keys.itemsize
    texts = np.zeros((len(counts), TEXT_FIELDS), np.int64)
    for column, held in ((KEYS, keys), (VALUES, values)):
        texts[:, column] = held.data_ptr() + places * item
    texts[:, HEAD_BYTES], texts[:, TOKEN_BYTES] = keys.stride(0) * item, keys.stride(1) * item
    texts[:, TOKENS], texts[:, TOGETHER] = counts, queries.shape[1] // keys.shape[0]
    out = torch.empty_like(queries, memory_format=torch.contiguous_format)
    out[starts[-1] :] = 0
    given, found = codes(queries), codes(out)
    longest = rounded_up(int(counts.max(initial=1)) + ROWS)

    def arguments(some: slice, _: int) -> tuple[Any, ...]:
        # What is not written is computed with, too: with any bits, some processors take long.
        return (
            given, starts[some.start : some.stop + 1], texts[some], int(is_causal),
            scale * math.log2(math.e), np.zeros((size + ROWS, longest), np.float32),
            np.zeros((longest + 2 * ROWS, size), np.float32), found,
        )  # fmt: skip

    in_parts(_attend_texts, arguments, len(texts))
    return out


def move_heads(
    tokens: Sequence[Tensor],
    padded: Sequence[Tensor],
    starts: NDArray[np.int64],
    *,
    to_padded: bool,
    scale: float = 1.0,
    tables: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
) -> None:
    """Copy the heads of tokens into padded batches of texts, or back.

    Args:
        tokens: strided matrices of one type. # each (tokens, heads, size), a multiple of WIDTH
        padded: contiguous; padding becomes 0. # each (texts, heads, width, size)
        starts: first token of each text, and the end. # (texts + 1,)
        scale: factor of the first matrix.
        tables: cosines and sines by which the first two matrices are rotated: halves of a head are
            the pairs, the sines of the lower half are subtracted. # each (width, size)
    """
    heads, width, size = padded[0].shape[1:]
    item, scales = tokens[0].itemsize, np.ones(len(tokens), np.float32)
    scales[0] = scale
    matrices = np.array(
        [
            (one.data_ptr(), other.data_ptr(), one.stride(0) * item, one.stride(1) * item)
            for one, other in zip(tokens, padded, strict=True)
        ]
    )
    like = np.empty(1, CODES[tokens[0].dtype][1])
    empty = np.empty((width, 0), np.float32)
    cosines, sines = tables or (empty, empty)

    def arguments(some: slice, _: int) -> tuple[Any, ...]:
        return (
            like, matrices, scales, 2 if tables else 0, starts[some.start : some.stop + 1],
            some.start, cosines, sines, int(to_padded), np.zeros((2 * heads, size), np.float32),
        )  # fmt: skip

    in_parts(_move_heads, arguments, len(starts) - 1)


def gelu_gate(wide: Tensor) -> Tensor:
    """Return GELU of the first half of each row times the second half, (..., width).

    Args:
        wide: # (..., 2 * width), a multiple of WIDTH
    """
    width = wide.shape[-1] // 2
    out = wide.new_empty(*wide.shape[:-1], width)
    given, found = codes(wide).reshape(-1, 2 * width), codes(out).reshape(-1, width)
    in_parts(_gate, lambda some, _: (given[some], found[some]), len(given))
    return out


def gelu_gate_gradient(wide: Tensor, of_output: Tensor) -> Tensor:
    """Return the gradient of `gelu_gate`; arguments (..., 2 * width) and (..., width)."""
    out = torch.empty_like(wide, memory_format=torch.contiguous_format)
    given, above, found = (codes(one).reshape(-1, one.shape[-1]) for one in (wide, of_output, out))
    in_parts(_gate_back, lambda some, _: (given[some], above[some], found[some]), len(given))
    return out


def rounded_up(count: int, multiple: int = WIDTH) -> int:
    """Return the smallest multiple that is at least `count`."""
    return -(-count // multiple) * multiple


def in_parts(
    kernel: Compiled, arguments: Callable[[slice, int], tuple[Any, ...]], count: int
) -> None:
    """Run a kernel on slices of `count` rows, one for each thread of torch.

    Args:
        arguments: of the kernel for a slice and the number of its thread.
    """
    threads = torch.get_num_threads()
    bounds = [count * number // threads for number in range(threads + 1)]
    parts = map(slice, bounds[:-1], bounds[1:])
    kernel.each([arguments(part, number) for number, part in enumerate(parts)], threads)

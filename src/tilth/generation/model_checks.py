"""Check a local model: positions, rows that fit in memory, and correct decoding in batches."""

from __future__ import annotations

import torch
from torch import Tensor

from tilth.errors import InputError
from tilth.generation.kv_cache import KVCache, accepts, bytes_per_token
from tilth.models.device import free_memory
from tilth.models.lm import LM

_MOST_ROWS = {"cpu": 384, "cuda": 2048}
# Within its window, local attention (Mistral, GPT-Neo, Llama 4) is plain causal attention.
_LIMITS = ("max_position_embeddings", "sliding_window", "window_size", "attention_chunk_size")
_CHECKED_TOKENS = 64


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
    return max(8, min(rows, _MOST_ROWS[lm.device.type]) // 8 * 8)


@torch.inference_mode()
def check_model(lm: LM) -> None:
    """Compare a batch of uneven rows with the model's plain forward on each row alone.

    Raises `InputError` if they differ: models that keep another state than keys and values, or take
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
    lengths = [width, max(2, width // 2), max(2, width // 3)]
    rows = [tokens[start : start + length] for start, length in enumerate(lengths)]
    cache = KVCache(lm.model, len(rows), width)
    try:
        ours = cache.prefill(rows)  # (rows, vocab)
        for row, mine in zip(rows, ours, strict=True):
            alone = torch.tensor([row], device=lm.device)
            plain = lm.model(input_ids=alone, attention_mask=torch.ones_like(alone)).logits
            if not _agree(mine, plain[0, -1]):
                raise refused
    except (TypeError, AttributeError, IndexError, RuntimeError, NotImplementedError) as error:
        raise refused from error


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

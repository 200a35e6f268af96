"""Penalizes copying word n-grams from the source, to lower the wording similarity of a rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tilth.errors import InputError

# Shares of the cost: for any word of the source, then more for each equal word before it.
_SHARES = (0.15, 0.35, 0.25, 0.25)
_WORD_BEGINS = ("\u0120", "\u2581")  # marks of byte-level and sentence-piece vocabularies
_WORD_GOES_ON = "##"  # mark of word-piece vocabularies


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

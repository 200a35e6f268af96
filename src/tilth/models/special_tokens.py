"""Keeps texts apart from the strings that a tokenizer reads as special tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def special_strings(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the strings of two characters or more that are read as special tokens, sorted."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    found = {*tokenizer.all_special_tokens, *(str(one) for one in added if one.special)}
    return tuple(sorted(one for one in found if len(one) > 1))


def break_strings(text: str, strings: Iterable[str]) -> str:
    """Return a text with a space after the first character of each of some strings."""
    for one in strings:
        if one in text:
            text = text.replace(one, f"{one[0]} {one[1:]}")
    return text

"""Tiny models, banks, rows and runs that tests share, built in code."""

from tests.tiny.models import (
    BERT_SHAPE,
    KINDS,
    WORDS,
    graded_pairs,
    salads,
    save_encoder,
    save_model,
    small_parts,
    tiny_bank,
    tiny_lm,
    tiny_model,
    tiny_static,
    tiny_tokenizer,
    word_tokenizer,
    write_lines,
    write_rows,
)

__all__ = [
    "BERT_SHAPE",
    "KINDS",
    "WORDS",
    "graded_pairs",
    "salads",
    "save_encoder",
    "save_model",
    "small_parts",
    "tiny_bank",
    "tiny_lm",
    "tiny_model",
    "tiny_static",
    "tiny_tokenizer",
    "word_tokenizer",
    "write_lines",
    "write_rows",
]

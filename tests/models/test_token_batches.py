import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from tests.models.test_scorer import pair_marks
from tests.tiny.models import WORDS, tiny_tokenizer, word_tokenizer
from tilth.errors import InputError
from tilth.models import token_batches
from tilth.models.names import starter_path
from tilth.models.token_batches import Encoded, batches, encode_texts, encode_words


def tokenizers() -> dict[str, Any]:
    marked = word_tokenizer()
    marked.backend_tokenizer.post_processor = pair_marks()
    starters = {
        name: AutoTokenizer.from_pretrained(starter_path(name)) for name in ("encoder", "lm")
    }
    return {"words": marked, "plain": tiny_tokenizer(), **starters}


@pytest.mark.parametrize("encode", [encode_texts, encode_words])
def test_a_slow_tokenizer_is_refused(encode: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"no fast tokenizer \(tokenizer.json\)"):
        encode(SimpleNamespace(), [("a",)], 8)


@pytest.mark.parametrize("name", ["words", "plain", "encoder", "lm"])
def test_texts_and_pairs_are_cut_as_the_tokenizer_cuts_them(name: str) -> None:
    ours, theirs = tokenizers()[name], tokenizers()[name]
    rng = random.Random(0)
    rows: list[tuple[str, ...]] = []
    for _ in range(120):
        texts = [
            " ".join(rng.choices([*WORDS, "[SEP]", "xyzzy"], k=rng.randint(0, 30))) for _ in "ab"
        ]
        rows.append(tuple(texts[: rng.choice((1, 2, 2))]))
    for max_length in (3, 4, 7, 12, 13, 32):
        theirs.backend_tokenizer.enable_truncation(max_length, strategy="longest_first")
        expected = theirs.backend_tokenizer.encode_batch(
            [row[0] if len(row) == 1 else row for row in rows]
        )
        found = encode_texts(ours, rows, max_length, with_types=True)
        ends = np.cumsum(found.lengths)[:-1]
        assert [part.tolist() for part in np.split(found.ids, ends)] == [e.ids for e in expected]
        types = [part.tolist() for part in np.split(found.types, ends)]
        assert types == [e.type_ids for e in expected]
        assert found.cut == sum(bool(e.overflowing) for e in expected)


def test_a_pair_of_long_texts_is_cut_after_it_was_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer's own truncation makes all combinations of what overflows: 161,507 here."""
    cut = Mock(wraps=token_batches._longest_first)
    monkeypatch.setattr(token_batches, "_longest_first", cut)
    long = " ".join(random.Random(0).choices(WORDS, k=5000))
    found = encode_texts(tokenizers()["words"], [(long, long)], 32, with_types=True)
    assert (found.lengths.tolist(), found.cut) == ([32], 1)
    (call,) = cut.call_args_list
    assert len(call.args[0]) > 10_000


def test_a_length_that_holds_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="max_length is 2: give at least 3"):
        encode_texts(tokenizers()["words"], [("a man", "a dog")], 2)


@pytest.mark.parametrize("budget", [40, 3000])
@pytest.mark.parametrize("is_float32", [True, False])
def test_batches_hold_each_text_once_within_the_budget(is_float32: bool, budget: int) -> None:
    lengths = np.random.default_rng(0).integers(20, 28, 700)
    encoded = Encoded(np.arange(1, lengths.sum() + 1), None, lengths)
    starts = np.cumsum(lengths) - lengths
    seen, padding = [], 0
    for rows, inputs in batches(
        encoded, longest=27, padding=0, device=torch.device("cpu"), is_float32=is_float32,
        batch_tokens=budget,
    ):  # fmt: skip
        ids, mask = inputs["input_ids"].numpy(), inputs["attention_mask"].numpy()
        assert ids.size <= budget
        assert is_float32 or ids.shape[1] in (24, 27)
        for row, found, seen_of in zip(rows, ids, mask, strict=True):
            length = lengths[row]
            assert seen_of.sum() == length
            assert (found[:length] == starts[row] + np.arange(1, length + 1)).all()
        seen += rows.tolist()
        padding += int((1 - mask).sum())
    assert sorted(seen) == list(range(700))
    assert (padding == 0) == is_float32


def test_few_texts_of_a_length_are_batched_with_longer_ones() -> None:
    lengths = np.arange(5, 20)
    encoded = Encoded(np.ones(lengths.sum(), np.int64), None, lengths)
    made = list(batches(encoded, longest=30, padding=0, device=torch.device("cpu")))
    assert [rows.tolist() for rows, _ in made] == [list(range(15))]

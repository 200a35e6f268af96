"""What it costs to go on as the source does."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from tests.tiny import tiny_tokenizer
from tilth.errors import InputError
from tilth.models.best_tokens import best_tokens
from tilth.paraphrase import beam_search
from tilth.paraphrase.beam_search import BeamLoop, Source, Tokens, copy_shares
from tilth.paraphrase.search import word_begins

BEGINS = np.array([True] * 8 + [False] * 2)  # entry 8 goes on inside a word, 9 closes an output


def shares(source: list[int], *written: int) -> list[float]:
    last = [*written[::-1], -2, -2, -2][:3]
    found = copy_shares(np.array([source]), np.array([last]))[0]
    return [round(float(share), 3) for share in found]


def test_the_share_grows_with_the_words_that_are_the_same() -> None:
    assert shares([1, 2, 3, 4, 5]) == [0.15, 0.15, 0.15, 0.15, 0.15]
    assert shares([1, 2, 3, 4, 5], 1) == [0.15, 0.5, 0.15, 0.15, 0.15]
    assert shares([1, 2, 3, 4, 5], 1, 2) == [0.15, 0.15, 0.75, 0.15, 0.15]
    assert shares([1, 2, 3, 4, 5], 1, 2, 3) == [0.15, 0.15, 0.15, 1.0, 0.15]
    assert shares([1, 2, 3, 4, 5], 7, 3) == [0.15, 0.15, 0.15, 0.5, 0.15]


class Asked:
    """A decoder that keeps what the loop asks, and finds all tokens equal."""

    joins = True

    def enter(self, slots: np.ndarray, states: list[torch.Tensor]) -> None: ...

    def step(self, rows: np.ndarray, *_: np.ndarray) -> torch.Tensor:
        return torch.zeros(len(rows), len(BEGINS))


def costs(monkeypatch: pytest.MonkeyPatch, sources: list[Source]) -> list[np.ndarray]:
    """Return the costs of each token at each step, (rows, vocabulary)."""
    seen = []

    def best(logits: torch.Tensor, columns: np.ndarray, costs: np.ndarray, count: int) -> object:
        dense = np.zeros(logits.shape, np.float32)
        np.maximum.at(
            dense, (np.arange(len(dense))[:, None], columns), np.where(columns < 0, 0, costs)
        )
        seen.append(dense)
        return best_tokens(logits, columns, costs, count)

    monkeypatch.setattr(beam_search, "best_tokens", best)
    tokens = Tokens(0, None, [9], [], [], BEGINS)
    loop = BeamLoop(Asked(), tokens, 2, 2, 9, top_k=None, temperature=1.0)  # type: ignore[arg-type]
    list(loop.run(iter([(source, torch.zeros(1, 1)) for source in sources])))
    return seen


def test_each_text_has_its_own_source_and_cost_for_all_of_its_beams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = [
        Source(0, 0, [4, 8, 5, 6], 0, 3, 10.0, 0), Source(1, 0, [7], 0, 3, 0.0, 0),
    ]  # fmt: skip
    first, second, *_ = costs(monkeypatch, sources)
    assert [round(float(cost), 3) for cost in first[0]] == [
        0,
        0,
        0,
        0,
        1.5,
        1.5,
        1.5,
        0,
        0,
        0,
    ]  # 8 is inside a word
    assert not first[1].any()
    assert [row.max() > 0 for row in second] == [True, True, False, False]


def test_words_begin_where_the_vocabulary_says_so() -> None:
    tokenizer = tiny_tokenizer()
    begins = word_begins(tokenizer)
    inside, begin = tokenizer.convert_tokens_to_ids(["man", "Ġman"])
    assert begins[begin]
    assert not begins[inside]


def other_tokenizer(model: models.Model) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), unk_token="[UNK]")


def test_word_pieces_and_whole_words_begin_words_too() -> None:
    entries = {"[UNK]": 0, "man": 1, "##kind": 2, "sea": 3}
    pieces = word_begins(other_tokenizer(models.WordPiece(entries, unk_token="[UNK]")))
    assert pieces.tolist() == [False, True, False, True]
    del entries["##kind"]
    entries["sea"] = 2
    words = word_begins(other_tokenizer(models.WordLevel(entries, unk_token="[UNK]")))
    assert words.tolist() == [False, True, True]


def test_a_vocabulary_that_marks_no_words_is_refused() -> None:
    tokenizer = other_tokenizer(models.BPE({"[UNK]": 0, "a": 1, "b": 2}, [], unk_token="[UNK]"))
    with pytest.raises(InputError, match=r"vocabulary \(BPE\) does not mark .*--no-steer"):
        word_begins(tokenizer)

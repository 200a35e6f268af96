"""What it costs to go on as the source does."""

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from tests.tiny import tiny_tokenizer
from tilth.errors import InputError
from tilth.paraphrase.search import CopyPenalty, word_begins

CPU = torch.device("cpu")
BEGIN = 9  # what a decoder starts with
BEGINS = torch.tensor([True] * 8 + [False] * 2)  # entry 8 goes on inside a word


def taken(copying: CopyPenalty, *written: list[int]) -> torch.Tensor:
    ids = torch.tensor([[BEGIN, *row] for row in written])
    return -copying(ids, torch.zeros(len(written), len(BEGINS)))


def test_the_cost_grows_with_the_words_that_are_the_same() -> None:
    copying = CopyPenalty([[1, 2, 3, 4, 5]], [10.0], 1, BEGINS, 1)
    costs = [taken(copying, row)[0] for row in ([], [1], [1, 2], [1, 2, 3], [7, 3])]
    assert [round(float(cost[4]), 3) for cost in costs] == [1.5, 1.5, 1.5, 10.0, 5.0]
    assert [round(float(cost[3]), 3) for cost in costs] == [1.5, 1.5, 7.5, 1.5, 1.5]
    assert all(float(cost[7]) == 0 for cost in costs)  # no word of the source


def test_pieces_inside_a_word_cost_nothing() -> None:
    copying = CopyPenalty([[1, 8, 2]], [10.0], 1, BEGINS, 1)
    assert float(taken(copying, [1])[0][8]) == 0
    assert float(taken(copying, [1, 8])[0][2]) == pytest.approx(7.5)


def test_each_text_has_its_own_source_and_cost_for_all_of_its_beams() -> None:
    copying = CopyPenalty([[1, 2, 3], [4]], [10.0, 0.0], 2, BEGINS, 1)
    cost = taken(copying, [1], [5], [4], [4])
    assert float(cost[0][2]) == pytest.approx(5.0)
    assert float(cost[1][2]) == pytest.approx(1.5)
    assert not cost[2:].any()  # padding of the shorter source, too


def test_words_begin_where_the_vocabulary_says_so() -> None:
    tokenizer = tiny_tokenizer()
    begins = word_begins(tokenizer, CPU)
    inside, begin = tokenizer.convert_tokens_to_ids(["man", "Ġman"])
    assert begins[begin]
    assert not begins[inside]


def other_tokenizer(model: models.Model) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model), unk_token="[UNK]")


def test_word_pieces_and_whole_words_begin_words_too() -> None:
    entries = {"[UNK]": 0, "man": 1, "##kind": 2, "sea": 3}
    pieces = word_begins(other_tokenizer(models.WordPiece(entries, unk_token="[UNK]")), CPU)
    assert pieces.tolist() == [False, True, False, True]
    del entries["##kind"]
    entries["sea"] = 2
    words = word_begins(other_tokenizer(models.WordLevel(entries, unk_token="[UNK]")), CPU)
    assert words.tolist() == [False, True, True]


def test_a_vocabulary_that_marks_no_words_is_refused() -> None:
    tokenizer = other_tokenizer(models.BPE({"[UNK]": 0, "a": 1, "b": 2}, [], unk_token="[UNK]"))
    with pytest.raises(InputError, match=r"vocabulary \(BPE\) does not mark .*--no-steer"):
        word_begins(tokenizer, CPU)

from dataclasses import replace

import pytest
import torch

from tests.tiny import salads
from tests.tiny.writers import FAMILIES, POSITIONS, writer
from tilth.errors import InputError
from tilth.models.lm import Seq2Seq
from tilth.paraphrase import fast_beam_search as beams
from tilth.paraphrase.search import BeamSearch, decode, is_too_long

SAMPLING = BeamSearch(beams=4, top_k=5, temperature=2.0)


def plainly(seq2seq: Seq2Seq, text: str, search: BeamSearch) -> list[str]:
    """BeamSearch with `generate` alone, one text by itself."""
    given = seq2seq.tokenizer(text, return_tensors="pt")
    tokens = given["input_ids"].shape[1] - 1  # beside the closing one
    before = 1 + (seq2seq.model.generation_config.forced_bos_token_id is not None)
    outputs = seq2seq.model.generate(
        **given, num_beams=search.beams, num_return_sequences=search.returned, do_sample=False,
        forced_eos_token_id=2,
        max_length=before + min(2 * tokens + 16, POSITIONS - 3) + 1,
    )  # fmt: skip
    return [text.strip() for text in seq2seq.tokenizer.batch_decode(outputs, True)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("search", [BeamSearch(beams=1), BeamSearch(beams=4, returned=3)])
def test_batches_give_what_generate_gives_for_each_text(family: str, search: BeamSearch) -> None:
    seq2seq, texts = writer(family), salads(12)
    assert decode(seq2seq, texts, search) == [plainly(seq2seq, text, search) for text in texts]


def test_drawing_from_the_best_is_drawing_with_the_others_at_nothing() -> None:
    torch.manual_seed(0)
    scores = torch.randn(2, 3 * 11)  # (texts, beams * vocabulary)
    seen = []

    def draw(**given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        seen.append(given["accumulated_log_probs"])
        kept = torch.tensor([[0, 5, 11], [4, 3, 8]])  # places among 3 beams' best 4
        sequences = torch.zeros(2, 3, 6, dtype=torch.long)
        indices = torch.zeros(2, 3, 5, dtype=torch.int32)
        sequences[:, :, 2] = kept % 4
        indices[:, :, 1] = kept // 4 + torch.tensor([[0], [3]])
        return seen[0].gather(1, kept), sequences, indices

    values, sequences, _ = beams._draw_continuations(
        draw, 4, accumulated_log_probs=scores, num_beams=3, cur_len=2, decoder_prompt_len=1,
        beams_to_keep=6,
    )  # fmt: skip
    each = scores.view(2, 3, 11)
    assert torch.equal(seen[0], each.topk(4).values.flatten(1))
    for text, places in enumerate(([0, 5, 11], [4, 3, 8])):
        for kept, place in enumerate(places):
            token = int(sequences[text, kept, 2])
            assert each[text, place // 4, token] == values[text, kept]


def test_sampling_follows_the_seed_alone_and_leaves_the_global_state() -> None:
    seq2seq, texts = writer(), salads(10)
    before = torch.random.get_rng_state()
    first = decode(seq2seq, texts, SAMPLING, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert decode(seq2seq, texts, SAMPLING, seed=1) == first
    assert decode(seq2seq, texts, SAMPLING, seed=2) != first
    hotter = replace(SAMPLING, temperature=9.0)
    assert decode(seq2seq, texts, hotter, seed=1) != first
    assert decode(seq2seq, texts, replace(SAMPLING, top_k=30), seed=1) != first


def test_sampling_from_one_token_at_a_beam_is_greedy() -> None:
    seq2seq, texts = writer(), salads(6)
    one = BeamSearch(beams=1, top_k=1, temperature=1.0)
    assert decode(seq2seq, texts, one) == decode(seq2seq, texts, BeamSearch(beams=1))


@pytest.mark.parametrize("sampling", [False, True])
def test_every_row_keeps_its_own_limits(sampling: bool) -> None:
    seq2seq, texts = writer(), salads(12)
    search = BeamSearch(
        beams=4, shortest=0.75, longest=1.5, top_k=20 if sampling else None,
        temperature=3.0 if sampling else None,
    )  # fmt: skip
    for text, (output,) in zip(texts, decode(seq2seq, texts, search, rows=12), strict=True):
        asked = len(seq2seq.tokenizer(text, add_special_tokens=False)["input_ids"])
        assert len(output.split()) <= 1.5 * asked
    short = decode(seq2seq, texts, BeamSearch(beams=4, longest=0.3), rows=12)
    assert all(len(o.split()) <= 0.3 * 13 for (o,) in short)


def test_bad_texts_have_no_outputs_or_some_and_raise_nothing() -> None:
    texts = ["", " \n", "dog " * 5000, "\U0001f600 dog", "dog \x00\x07", "\ud800 dog", "犬です"]
    found = decode(writer(), texts, BeamSearch(beams=2))
    assert [bool(outputs) for outputs in found] == [False, False, False, True, True, True, True]
    assert is_too_long(writer(), texts[2])
    assert not is_too_long(writer(), texts[3])
    assert decode(writer(), [], BeamSearch()) == []


def test_the_prefix_is_read() -> None:
    texts = salads(8)
    assert decode(writer(prefix=">>de<< "), texts, BeamSearch()) == decode(
        writer(), [f">>de<< {text}" for text in texts], BeamSearch()
    )
    assert decode(writer(prefix=">>de<< "), texts, BeamSearch()) != decode(
        writer(), texts, BeamSearch()
    )


def test_the_model_is_left_as_it_was() -> None:
    seq2seq = writer()
    before = seq2seq.model.config._attn_implementation
    decode(seq2seq, salads(2), SAMPLING)
    assert seq2seq.model.config._attn_implementation == before
    assert "_get_top_k_continuations" not in vars(seq2seq.model)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"beams": 0}, "beams is 0"),
        ({"beams": 2, "returned": 3}, "returned is 3"),
        ({"top_k": 5}, "go together"),
        ({"top_k": 0, "temperature": 1.0}, "top_k is 0"),
        ({"top_k": 5, "temperature": float("nan")}, "temperature is nan"),
        ({"shortest": 2.0, "longest": 1.0}, "cannot be above longest"),
    ],
)
def test_settings_out_of_range_are_one_line(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        BeamSearch(**wrong)

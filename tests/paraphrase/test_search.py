import copy
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency

from tests.tiny import salads
from tests.tiny.writers import FAMILIES, POSITIONS, writer
from tilth.errors import InputError
from tilth.models import load_seq2seq
from tilth.models.lm import Seq2Seq
from tilth.paraphrase import search as search_module
from tilth.paraphrase.search import BeamSearch, _sources, decode, is_too_long

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


def test_the_starter_searches_as_generate_does() -> None:
    seq2seq = load_seq2seq("starter", precision="float32", prefix=">>de<< ")
    texts = ["The kite hangs in the oak.", "Who asked?", "They opened the old bridge again today."]
    config = copy.deepcopy(seq2seq.model.generation_config)
    for beams in (1, 5):
        found = decode(seq2seq, texts, BeamSearch(beams, returned=beams))
        for text, ours in zip(texts, found, strict=True):
            given = seq2seq.tokenizer(seq2seq.prefix + text, return_tensors="pt")
            tokens = given["input_ids"].shape[1] - 2  # beside the prefix and the closing one
            outputs = seq2seq.model.generate(
                **given, num_beams=beams, num_return_sequences=beams, max_length=2 * tokens + 18
            )
            theirs = seq2seq.tokenizer.batch_decode(outputs, skip_special_tokens=True)
            assert ours == [text.strip() for text in theirs]
    assert seq2seq.model.generation_config == config


@pytest.mark.parametrize("family", ["bart", "t5"])
@pytest.mark.parametrize(
    "search", [BeamSearch(beams=3, longest=0.5), replace(SAMPLING, longest=0.5)]
)
def test_a_text_does_not_depend_on_the_others(
    monkeypatch: pytest.MonkeyPatch, family: str, search: BeamSearch
) -> None:
    seq2seq, texts = writer(family), salads(5)
    together = decode(seq2seq, texts, search, seed=3)
    assert [decode(seq2seq, [text], search, seed=3)[0] for text in texts] == together
    monkeypatch.setattr("tilth.paraphrase.search._BEAM_ROWS", 3 * search.beams)
    assert decode(seq2seq, texts[::-1], search, seed=3) == together[::-1]


def test_threads_share_the_rows() -> None:
    seq2seq, texts, before = writer(), salads(6), torch.get_num_threads()
    search = replace(SAMPLING, longest=0.5)
    torch.set_num_threads(1)
    alone = decode(seq2seq, texts, search)
    torch.set_num_threads(3)
    try:
        assert decode(seq2seq, texts, search) == alone
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_cores_decode_texts_of_their_own(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seq2seq, texts, search = writer(family), [*salads(9), "", "a"], replace(SAMPLING, returned=2)
    expected = decode(seq2seq, texts, search)
    monkeypatch.setattr(search_module, "_CORE_ROWS", 8)
    threads, used = torch.get_num_threads(), []
    on_cores = search_module.on_cores
    monkeypatch.setattr(
        search_module, "on_cores", lambda works: used.append(len(works)) or on_cores(works)
    )
    torch.set_num_threads(3)
    try:
        assert decode(seq2seq, texts, search) == expected
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert used == [3]


def test_bfloat16_searches_where_it_is_asked_for() -> None:
    seq2seq = writer()
    low = replace(seq2seq, model=copy.deepcopy(seq2seq.model).to(torch.bfloat16))
    texts = salads(12)
    ours, full = (decode(one, texts, BeamSearch(beams=1)) for one in (low, seq2seq))
    assert np.mean([mine == theirs for mine, theirs in zip(ours, full, strict=True)]) >= 0.5


@pytest.mark.parametrize("beams", [1, 2])
def test_sampling_has_the_law_of_generate(beams: int) -> None:
    seq2seq, draws = writer(), 1500
    search = BeamSearch(beams=beams, top_k=3, temperature=2.0, longest=0.2)  # two tokens
    (text,) = salads(1)
    group = _sources(seq2seq, [text], search, 0)
    many = [replace(group[0], text=number, key=number) for number in range(draws)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "_sources", lambda *_: many)
        ours = [found for (found,) in decode(seq2seq, [text] * draws, search)]
    given = seq2seq.tokenizer([text] * draws, return_tensors="pt")
    torch.manual_seed(0)
    theirs = seq2seq.tokenizer.batch_decode(
        seq2seq.model.generate(
            **given, do_sample=True, num_beams=beams, top_k=3, temperature=2.0, max_length=4,
            forced_eos_token_id=2,
        ),
        skip_special_tokens=True,
    )  # fmt: skip
    counts = [Counter(one.strip() for one in some) for some in (ours, theirs)]
    table = np.array([[count[one] for count in counts] for one in counts[0] | counts[1]])
    table = table[table.sum(axis=1) >= 10]
    assert len(table) >= 3
    assert chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_what_a_config_forbids_and_forces_counts(family: str) -> None:
    seq2seq, texts = writer(family), salads(8)
    before = decode(seq2seq, texts, BeamSearch(beams=2))
    config = seq2seq.model.generation_config
    config.forced_bos_token_id = 9
    config.suppress_tokens, config.begin_suppress_tokens = [10], [11]
    config.bad_words_ids = [[12]]
    assert decode(seq2seq, texts, BeamSearch(beams=2)) != before
    assert decode(seq2seq, texts, BeamSearch(beams=2, returned=2)) == [
        plainly(seq2seq, text, BeamSearch(beams=2, returned=2)) for text in texts
    ]
    config.bad_words_ids = [[12, 13]]
    with pytest.raises(InputError, match=r"forbids sequences of tokens, such as \[12, 13\]"):
        decode(seq2seq, texts, BeamSearch())


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
    for text, (output,) in zip(texts, decode(seq2seq, texts, search), strict=True):
        asked = len(seq2seq.tokenizer(text, add_special_tokens=False)["input_ids"])
        assert len(output.split()) <= 1.5 * asked
    short = decode(seq2seq, texts, BeamSearch(beams=4, longest=0.3))
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

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.tiny import WORDS, read_json, save_encoder, tiny_tokenizer, word_tokenizer
from tilth.errors import InputError, TilthError
from tilth.models import predict, token_batches
from tilth.models.classifier import Classifier, new_classifier
from tilth.models.predict import probabilities, tag_probabilities
from tilth.models.token_batches import encode_words

LABELS = ["sea", "land", "air"]
TAGS = ["O", "B-sea", "I-sea"]


def made(base: str, kind: Any = "class", **options: Any) -> Classifier:
    labels = TAGS if kind == "tags" else LABELS
    classifier = new_classifier(base, kind=kind, labels=labels, device="cpu", **options)
    with torch.no_grad():  # else all rows are nearly alike
        for name, weight in classifier.model.named_parameters():
            weight.mul_(1 if "LayerNorm" in name else 8)
    return classifier


def sentences(count: int, *, longest: int = 12, seed: int = 0) -> list[list[str]]:
    rng = random.Random(seed)
    return [rng.choices(WORDS, k=rng.randint(1, longest)) for _ in range(count)]


def texts(count: int, **options: Any) -> list[tuple[str, ...]]:
    return [(" ".join(words),) for words in sentences(count, **options)]


def one_by_one(classifier: Classifier, rows: list[tuple[str, ...]]) -> np.ndarray:
    found = []
    for row in rows:
        inputs = classifier.tokenizer(*row, truncation=True, return_tensors="pt")
        with torch.no_grad():
            logits = classifier.model(**inputs).logits[0]
        found.append(logits.softmax(-1) if classifier.kind == "class" else logits.sigmoid())
    return torch.stack(found).numpy()


@pytest.mark.parametrize("kind", ["class", "multi", "number"])
@pytest.mark.parametrize("tokens", [2048, 1, 40])
def test_texts_are_labelled_as_one_by_one(
    base: str, kind: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(token_batches._TOKENS, "cpu", tokens)
    classifier, rows = made(base, kind), texts(50)
    found = probabilities(classifier, rows, precision="float32")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, one_by_one(classifier, rows), atol=1e-5)
    assert np.ptp(found, axis=0).max() > 0.1
    if kind == "class":
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("with_types", [True, False])
def test_pairs_are_labelled_as_one_by_one(tmp_path: Path, with_types: bool) -> None:
    save_encoder(tmp_path)
    tokenizer = word_tokenizer()
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )  # fmt: skip
    tokenizer.save_pretrained(tmp_path)
    if with_types:
        config = read_json(tmp_path / "tokenizer_config.json")
        config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    classifier = made(str(tmp_path))
    rows = [(one, two) for (one,), (two,) in zip(texts(30), texts(30, seed=1), strict=True)]
    assert ("token_type_ids" in classifier.tokenizer(*rows[0])) == with_types
    found = probabilities(classifier, rows, precision="float32")
    np.testing.assert_allclose(found, one_by_one(classifier, rows), atol=1e-5)
    turned = probabilities(classifier, [(two, one) for one, two in rows], precision="float32")
    assert np.abs(found - turned).max() > 1e-3


def test_order_and_repeats_change_nothing(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, rows = made(base), texts(40)
    found = probabilities(classifier, rows)
    twice = probabilities(classifier, [*reversed(rows), *rows])
    np.testing.assert_array_equal(twice[:40][::-1], found)
    np.testing.assert_array_equal(twice[40:], found)
    monkeypatch.setattr(predict, "TEXTS_AT_ONCE", 7)
    np.testing.assert_allclose(probabilities(classifier, rows), found, atol=1e-5)


def test_each_different_text_is_read_once(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, read = made(base), 0
    forward = type(classifier.model).forward

    def counted(self: Any, **inputs: Any) -> Any:
        nonlocal read
        read += len(inputs["input_ids"])
        return forward(self, **inputs)

    monkeypatch.setattr(type(classifier.model), "forward", counted)
    probabilities(classifier, texts(5) * 20)
    assert read == len(set(texts(5)))


def test_long_texts_are_cut_with_a_warning(base: str, caplog: pytest.LogCaptureFixture) -> None:
    classifier = made(base, max_length=8)
    rows = [("a man reads and sings near the old red boat",), ("a man reads and sings near",)]
    one, two = probabilities(classifier, rows)
    np.testing.assert_allclose(one, two, atol=1e-5)
    assert "1 of 2 texts are longer than the 8 tokens" in caplog.text


def test_lower_precision_is_near_and_leaves_the_weights(base: str) -> None:
    classifier, rows = made(base), texts(40)
    before = {key: weight.clone() for key, weight in classifier.model.state_dict().items()}
    exact = probabilities(classifier, rows, precision="float32")
    rough = probabilities(classifier, rows, precision="bfloat16")
    assert 0 < np.abs(exact - rough).max() < 0.1
    for key, weight in classifier.model.state_dict().items():
        assert torch.equal(weight, before[key])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_model_in_training_labels_without_dropout_and_goes_on(base: str, precision: str) -> None:
    classifier, rows = made(base, dropout=0.5), texts(10)
    found = probabilities(classifier, rows, precision=precision)
    classifier.model.train()
    # As a trainer does that computes in lower precision.
    classifier.model.forward = lambda *_, **__: (
        pytest.fail("the trainer's")
        if (precision != "float32")
        else type(classifier.model).forward(classifier.model, *_, **__)
    )
    np.testing.assert_array_equal(probabilities(classifier, rows, precision=precision), found)
    assert classifier.model.training
    del classifier.model.forward
    classifier.model(**classifier.tokenizer("a man", return_tensors="pt")).logits.sum().backward()


class Counted:
    def __init__(self) -> None:
        self.done = 0

    def advance(self, done: int = 0) -> None:
        self.done += done


def test_progress_counts_all_rows(base: str) -> None:
    rows, progress = texts(20), Counted()
    probabilities(made(base), rows * 2, progress=progress)
    assert progress.done == 40
    tokens, progress = sentences(20), Counted()
    tag_probabilities(made(base, "tags"), tokens * 2, progress=progress)
    assert progress.done == 40


def test_nothing_to_label(base: str) -> None:
    assert probabilities(made(base), []).shape == (0, 3)
    assert tag_probabilities(made(base, "tags"), []) == []
    (empty,) = tag_probabilities(made(base, "tags"), [[]])
    assert empty.shape == (0, 3)


def test_tags_are_of_each_tokens_first_piece(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(token_batches._TOKENS, "cpu", 50)
    classifier, rows = made(base, "tags"), sentences(30)
    found = tag_probabilities(classifier, rows, precision="float32")
    for words, one in zip(rows, found, strict=True):
        inputs = classifier.tokenizer(words, is_split_into_words=True, return_tensors="pt")
        first = [inputs.word_ids().index(place) for place in range(len(words))]
        with torch.no_grad():
            logits = classifier.model(**inputs).logits[0]
        np.testing.assert_allclose(one, logits.softmax(-1)[first].numpy(), atol=1e-5)


def test_long_sentences_have_a_row_for_each_token(base: str) -> None:
    classifier = made(base, "tags", max_length=10)
    rows = sentences(20, longest=60)
    found = tag_probabilities(classifier, rows)
    for words, one in zip(rows, found, strict=True):
        assert one.shape == (len(words), 3)
        np.testing.assert_allclose(one.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("max_length", [4, 5, 9, 32])
def test_windows_hold_each_word_once_with_the_most_around_it(max_length: int) -> None:
    tokenizer, rows = word_tokenizer(), sentences(40, longest=70)
    asked: list[list[str]] = [[] for _ in rows]
    for window in encode_words(tokenizer, rows, max_length):
        assert len(window.token_ids) <= max_length
        words = tokenizer.convert_ids_to_tokens(window.token_ids[window.word_starts].tolist())
        assert window.first == len(asked[window.row])
        asked[window.row] += words
        assert (window.token_ids[0], window.token_ids[-1]) == (2, 3)
        whole = len(window.token_ids) < max_length or len(rows[window.row]) == max_length - 2
        if not whole and max_length > 5:
            room = max_length - 2
            last = window.first + len(words) == len(rows[window.row])
            # Around a word that is not at the end of the sentence is a quarter of a window.
            assert window.first == 0 or window.word_starts[0] - 1 >= (room // 4 if not last else 1)
    assert asked == rows


def test_a_piece_may_begin_with_the_space_before_its_word() -> None:
    tokenizer = tiny_tokenizer()  # of bytes, without a mark before or after a text
    (window,) = encode_words(tokenizer, [["the", "xyz", "\u00e9t\u00e9"]], 32)
    pieces = tokenizer.convert_ids_to_tokens(window.token_ids.tolist())
    assert [pieces[place] for place in window.word_starts] == ["the", "x", "\u00c3"]
    vocabulary = {"\u0120": 0, "m": 1, "\u0120m": 2, "a": 3}
    backend = Tokenizer(models.BPE(vocabulary, [("\u0120", "m")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    joined = PreTrainedTokenizerFast(tokenizer_object=backend)
    (window,) = encode_words(joined, [["m", "m", "mm"]], 32)
    assert window.token_ids.tolist() == [1, 2, 2, 1]
    assert window.word_starts.tolist() == [0, 1, 2]


def test_special_tokens_stand_around_texts_of_a_script_without_latin_letters() -> None:
    vocabulary = {"<s>": 0, "</s>": 1, "ж": 2, "щ": 3}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    (window,) = encode_words(tokenizer, [["ж", "щ"]], 32)
    assert window.token_ids.tolist() == [0, 2, 3, 1]
    first, second = encode_words(tokenizer, [["<s>"], ["ж"]], 32)
    assert (first.token_ids.tolist(), second.token_ids.tolist()) == ([0, 0, 1], [0, 2, 1])


def test_a_word_without_pieces_is_unknown_and_moves_no_other(base: str) -> None:
    tokenizer = word_tokenizer()
    (window,) = encode_words(tokenizer, [["a", "", "man", "", ""]], 32)
    assert tokenizer.convert_ids_to_tokens(window.token_ids.tolist()) == [
        "[CLS]", "a", "[UNK]", "man", "[UNK]", "[UNK]", "[SEP]",
    ]  # fmt: skip
    assert window.word_starts.tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(InputError, match="give more than 2"):
        encode_words(tokenizer, [["a"]], 2)


def test_what_does_not_go_with_the_model_is_refused(base: str) -> None:
    with pytest.raises(InputError, match="is a tagger"):
        probabilities(made(base, "tags"), texts(1))
    with pytest.raises(InputError, match="is no tagger"):
        tag_probabilities(made(base), sentences(1))
    wrong: Any = [("a", "b", "c")]
    with pytest.raises(InputError, match=r"text 0: .* is neither a text nor a pair"):
        probabilities(made(base), wrong)
    for odd in ((3,), None, 3):
        wrong = [("a man",), odd]
        with pytest.raises(InputError, match=r"text 1: .* is neither a text nor a pair"):
            probabilities(made(base), wrong)
    with pytest.raises(InputError, match="texts is one text, 'a man': give a list of texts"):
        made(base).probabilities("a man")
    trained = made(base)
    for reads, count, given in ((1, 2, "single texts"), (2, 1, "pairs of texts")):
        trained.note_texts(reads)
        with pytest.raises(InputError, match=f"text 0: .*: model .* reads {given}"):
            probabilities(trained, [("a man",) * count])


def test_weights_that_are_broken_are_said(base: str) -> None:
    for kind in ("class", "tags"):
        classifier = made(base, kind)
        classifier.model.classifier.bias.data[0] = float("nan")
        label: Any = tag_probabilities if kind == "tags" else probabilities
        with pytest.raises(TilthError, match="returned NaN for"):
            label(classifier, [("a man",)])


@pytest.mark.parametrize("kind", ["class", "tags"])
def test_cores_that_label_a_batch_each_give_the_same_rows(
    base: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(token_batches._TOKENS, "cpu", 64)
    classifier = made(base, kind)
    rows: Any = texts(80, longest=9) if kind == "class" else sentences(80, longest=9)
    label: Any = probabilities if kind == "class" else tag_probabilities
    threads, found, advanced = torch.get_num_threads(), [], []
    for count in (1, 3):
        torch.set_num_threads(count)
        try:
            progress: Any = SimpleNamespace(advance=advanced.append)
            found.append(label(classifier, rows, precision="float32", progress=progress))
            assert torch.get_num_threads() == count
        finally:
            torch.set_num_threads(threads)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert sum(advanced) == 2 * len(rows)


def test_cores_label_in_the_autocast_of_the_caller(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, threads = made(base), torch.get_num_threads()
    monkeypatch.setitem(token_batches._TOKENS, "cpu", 64)
    rows = texts(80, longest=9)
    exact = probabilities(classifier, rows, precision="float32")
    found = []
    for count in (1, 3):
        torch.set_num_threads(count)
        try:
            with torch.autocast("cpu", torch.bfloat16):
                found.append(probabilities(classifier, rows, precision="float32"))
        finally:
            torch.set_num_threads(threads)
    assert np.abs(found[0] - exact).max() > 1e-4
    assert np.abs(found[1] - exact).max() > 1e-4


def test_an_error_of_one_core_ends_the_labelling(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, threads = made(base), torch.get_num_threads()
    torch.set_num_threads(2)

    def fail(*_: Any, **__: Any) -> Any:
        raise TilthError("a batch went wrong")

    monkeypatch.setattr("tilth.models.predict.share_weights", lambda _: fail)
    monkeypatch.setitem(token_batches._TOKENS, "cpu", 32)
    try:
        with pytest.raises(TilthError, match="a batch went wrong"):
            probabilities(classifier, texts(40), precision="float32")
    finally:
        torch.set_num_threads(threads)

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
)

from tests.tiny import BERT_SHAPE, WORDS, save_encoder, save_model, tiny_static, word_tokenizer
from tilth.errors import InputError, TilthError
from tilth.models import load_scorer

SIGMOID = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
IDENTITY = "torch.nn.modules.linear.Identity"
SHAPE = {**BERT_SHAPE, "initializer_range": 0.35}
# Beside the words of the tokenizer.
FIRST = ["a man reads", "the dog sleeps near the river", "two birds", "red", "the sun and the sea"]
SECOND = ["a man sings", "the cat sleeps under the boat", "rain", "many many fast boat", "a sun"]


def save_scorer(folder: Path, *, labels: int = 1, seed: int = 0, **config: Any) -> Path:
    """Save a tiny cross-encoder of the tiny tokenizer's words."""
    torch.manual_seed(seed)
    tokenizer = word_tokenizer()
    tokenizer.backend_tokenizer.post_processor = pair_marks()
    model = BertForSequenceClassification(
        BertConfig(vocab_size=len(tokenizer), num_labels=labels, **SHAPE, **config)
    )
    return save_model(folder, model, tokenizer)


def pair_marks() -> Any:
    from tokenizers import processors

    return processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_scorer(tmp_path_factory.mktemp("scorer") / "bert", sentence_transformers=SIGMOID)


def salads(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 13))) for _ in range(count)]


def by_hand(folder: Path, first: str, second: str) -> float:
    """One pair at a time, no padding, with transformers alone."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer(
        first, second, truncation="longest_first", max_length=32, return_tensors="pt"
    )
    with torch.no_grad():
        return 100 * float(torch.sigmoid(model(**inputs).logits)[0, 0])


def test_scores_are_the_sigmoid_of_the_logit_in_percent(folder: Path) -> None:
    scorer = load_scorer(str(folder), device="cpu", precision="float32")
    found = scorer.scores(FIRST, SECOND)
    expected = [by_hand(folder, *pair) for pair in zip(FIRST, SECOND, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert np.ptp(found) > 1
    assert (scorer.kind, scorer.name, found.dtype) == ("cross-encoder", str(folder), np.float32)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_order_and_neighbours_change_nothing(folder: Path, precision: str) -> None:
    scorer = load_scorer(str(folder), device="cpu", precision=precision)
    first, second = salads(300, 1), salads(300, 2)
    found = scorer.scores(first, second)
    order = list(range(300))
    random.Random(3).shuffle(order)
    shuffled = scorer.scores([first[i] for i in order], [second[i] for i in order])
    np.testing.assert_array_equal(shuffled, found[order])
    alone = np.array([scorer.scores([a], [b])[0] for a, b in zip(first, second, strict=True)][:40])
    np.testing.assert_allclose(alone, found[:40], atol=1e-3 if precision == "float32" else 2)


def test_precision_is_that_of_the_products(folder: Path) -> None:
    exact = load_scorer(str(folder), device="cpu", precision="float32")
    rough = load_scorer(str(folder), device="cpu", precision="bfloat16")
    one, two = exact.scores(FIRST, SECOND), rough.scores(FIRST, SECOND)
    assert (one != two).any()
    np.testing.assert_allclose(one, two, atol=3)
    assert exact.fingerprint != rough.fingerprint


def test_the_fingerprint_is_of_the_weights(folder: Path, tmp_path: Path) -> None:
    printed = load_scorer(str(folder)).fingerprint
    assert load_scorer(str(folder)).fingerprint == printed
    other = save_scorer(tmp_path / "other", seed=1)
    assert load_scorer(str(other)).fingerprint != printed
    cosine = load_scorer(f"cosine:{save_encoder(tmp_path / 'encoder')}")
    assert cosine.fingerprint not in {printed, load_scorer(str(other)).fingerprint}


def test_both_long_texts_are_cut_and_that_is_said_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scorer = load_scorer(str(folder), device="cpu", precision="float32")
    long, longer = " ".join(WORDS[:20] * 20), " ".join(WORDS[5:] * 20)
    found = scorer.scores(["a dog", long, "red", long], ["the cat", longer, longer, "red"])
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "3 of 4 pairs are longer than the 32 tokens that the scorer reads: both texts were cut"
    ]
    expected = [by_hand(folder, *pair) for pair in ((long, longer), ("red", longer), (long, "red"))]
    np.testing.assert_allclose(found[1:], expected, atol=1e-3)


def test_unknown_characters_are_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    scorer = load_scorer(str(folder), device="cpu")
    found = scorer.scores(["a dog", "собака спит"], ["the cat", "新しい"])
    assert np.isfinite(found).all()
    assert [record.getMessage() for record in caplog.records] == [
        "1 of 2 pairs are mostly of characters that the scorer does not know: their meaning says "
        "little"
    ]


def test_odd_input(folder: Path) -> None:
    scorer = load_scorer(str(folder), device="cpu")
    assert scorer.scores([], []).shape == (0,)
    odd = scorer.scores(["", "\U0001f600", "red\n"], ["", "a\tdog", "\x00"])
    assert ((odd >= 0) & (odd <= 100)).all()
    with pytest.raises(InputError, match="2 first texts and 1 second ones"):
        scorer.scores(["a", "b"], ["a"])
    with pytest.raises(InputError, match=r"pair 1: .* are not two texts"):
        scorer.scores(["a", "b"], ["a", None])


def test_a_score_that_is_no_number_names_the_text(tmp_path: Path) -> None:
    save_scorer(tmp_path)
    model = BertForSequenceClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    model.save_pretrained(tmp_path)
    with pytest.raises(TilthError, match="returned NaN for 'a dog'"):
        load_scorer(str(tmp_path)).scores(["a dog"], ["a cat"])


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (
            {"sentence_transformers": {"activation_fn": IDENTITY}},
            "linear",
        ),
        ({"sbert_ce_default_activation_function": IDENTITY}, "linear"),
        ({"problem_type": "regression"}, "regression"),
    ],
)
def test_raw_values_are_no_similarity(tmp_path: Path, config: dict[str, Any], named: str) -> None:
    save_scorer(tmp_path, **config)
    with pytest.raises(InputError, match=rf"gives raw values \(.*{named}.*\), not a similarity"):
        load_scorer(str(tmp_path))


def test_several_outputs_are_refused(tmp_path: Path) -> None:
    save_scorer(tmp_path / "three", labels=3)
    with pytest.raises(InputError, match=r"has 3 outputs: give one that has a single"):
        load_scorer(str(tmp_path / "three"))


def test_cosines_are_those_of_the_vectors(tmp_path: Path) -> None:
    encoder = tiny_static()
    encoder.save(str(tmp_path), create_model_card=False)
    scorer = load_scorer(f"cosine:{tmp_path}", precision="float32")
    first, second = salads(30, 1), salads(30, 2)
    one, two = (encoder.encode(texts).astype(float) for texts in (first, second))
    cosines = (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)
    assert cosines.min() < 0 < cosines.max()
    np.testing.assert_allclose(
        scorer.scores(first, second), 100 * np.maximum(cosines, 0), atol=1e-3
    )
    assert (scorer.kind, scorer.name) == ("cosine", f"cosine:{tmp_path}")
    with pytest.raises(InputError, match="no model folder"):
        load_scorer("cosine:./nothing")


def test_the_starter_tells_a_paraphrase_from_another_sentence() -> None:
    scorer = load_scorer()
    source = "The train to the coast was cancelled because of heavy snow."
    same = "Because it snowed so much, the train to the sea did not run."
    other = "My sister is learning to play the guitar."
    near = "The bus to the mountains was late because of heavy traffic."
    first, second = [source] * 4, [source, same, near, other]
    equal, paraphrase, related, unrelated = scorer.scores(first, second)
    assert equal > 90
    assert paraphrase > unrelated + 50
    assert paraphrase > related + 10
    assert unrelated < 20
    swapped = scorer.scores(second, first)
    np.testing.assert_allclose(swapped, [equal, paraphrase, related, unrelated], atol=10)

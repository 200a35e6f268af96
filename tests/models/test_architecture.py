from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.report.augmented_run import ROWS
from tests.tiny import save_encoder
from tests.tiny.models import BERT_SHAPE, save_model, word_tokenizer
from tilth.classifiers.collate import encode
from tilth.classifiers.examples import labeled_examples
from tilth.classifiers.finetune import fine_tune
from tilth.classifiers.logistic import begin_head, head_inputs
from tilth.classifiers.settings import Finetuning
from tilth.data.examples import read_examples
from tilth.errors import InputError
from tilth.models import load_encoder
from tilth.models.classifier import Classifier, load_classifier, new_classifier

TEXTS = ["a dog runs", "the car stands in the rain and waits", "red"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a tiny sentence encoder: a BERT that pools the mean."""
    folder = tmp_path_factory.mktemp("base")
    load_encoder(str(save_encoder(folder / "bert")), pooling="mean", device="cpu").save(
        str(folder / "encoder")
    )
    return str(folder / "encoder")


def made(base: str, labels: tuple[str, ...] = ("animal", "none", "water")) -> Classifier:
    return new_classifier(base, kind="class", labels=labels, dropout=0.0, device="cpu")


def test_the_pooler_gives_the_normalised_mean_of_the_encoder(base: str) -> None:
    classifier = made(base)
    assert classifier.reads_embedding
    body: Any = classifier.model.bert
    assert {id(one.config) for one in body.modules() if hasattr(one, "config")} == {id(body.config)}
    given = classifier.tokenizer(TEXTS, padding=True, return_tensors="pt")
    given.pop("token_type_ids", None)
    with torch.no_grad():
        pooled = classifier.model.bert(**given).pooler_output.numpy()
    mean = load_encoder(base, device="cpu").encode(TEXTS)
    for one, two in zip(np.arctanh(pooled), mean, strict=True):
        assert np.corrcoef(one, two)[0, 1] > 0.98


def test_it_is_saved_and_loaded_as_a_plain_model(base: str, tmp_path: Path) -> None:
    classifier = made(base)
    classifier.save(tmp_path / "saved")
    again = load_classifier(str(tmp_path / "saved"), device="cpu")
    assert again.model.config.num_hidden_layers == 3  # the base has 2
    np.testing.assert_allclose(
        again.probabilities(TEXTS), classifier.probabilities(TEXTS), atol=1e-6
    )
    assert not again.reads_embedding
    further = new_classifier(str(tmp_path / "saved"), kind="class", labels=["x", "y"])
    assert further.model.config.num_hidden_layers == 3  # no other layer is added


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_the_head_reads_what_the_encoder_pools(tmp_path: Path, kind: str, pooling: str) -> None:
    from transformers import RobertaConfig, RobertaModel

    if kind == "bert":
        plain = save_encoder(tmp_path / "plain")
    else:
        config = RobertaConfig(
            vocab_size=len(word_tokenizer()), bos_token_id=2, eos_token_id=3, **BERT_SHAPE
        )
        plain = save_model(tmp_path / "plain", RobertaModel(config))
    encoder = load_encoder(str(plain), pooling=pooling, device="cpu")
    encoder.save(str(tmp_path / "encoder"))
    classifier = made(str(tmp_path / "encoder"))
    assert classifier.reads_embedding
    rows = labeled_examples(read_examples([{"text": text, "label": text[0]} for text in TEXTS]))
    read = head_inputs(classifier, encode(classifier, rows, bfloat16=False), np.arange(3))
    for one, two in zip(np.arctanh(read), encoder.encode(TEXTS), strict=True):
        assert np.corrcoef(one, two)[0, 1] > 0.98


def test_other_bases_and_taggers_have_their_own_head(base: str) -> None:
    assert not made(str(Path(base).parent / "bert")).reads_embedding
    tagger = new_classifier(base, kind="tags", labels=["O", "B-x"])
    assert (tagger.reads_embedding, tagger.model.config.num_hidden_layers) == (False, 2)


def test_training_begins_with_the_regression(base: str) -> None:
    rows = labeled_examples(read_examples(ROWS["class"](60, seed=2)))
    classifier = made(base, tuple(rows.labels))
    gold = np.asarray(rows.targets).argmax(1)
    before = (classifier.answers(rows).argmax(1) == gold).mean()
    begin_head(classifier, encode(classifier, rows, bfloat16=False))
    after = (classifier.answers(rows).argmax(1) == gold).mean()
    assert after > before + 0.2
    trained = made(base, tuple(rows.labels))
    fine_tune(trained, rows, None, Finetuning(epochs=0.01, learning_rate=1e-9), quiet=True)
    np.testing.assert_allclose(trained.answers(rows), classifier.answers(rows), atol=1e-4)


def test_a_classifier_prints_as_one_line(base: str) -> None:
    line = repr(made(base))
    assert line.startswith(f"Classifier({base!r}, class of 3 labels: animal, none, water; bert, ")
    assert "\n" not in line


def test_a_shipped_name_that_is_none_lists_those_that_are() -> None:
    said = "no model 'starter-bogus' is shipped for this: there are starter, starter-encoder, "
    with pytest.raises(InputError, match=said):
        new_classifier("starter-bogus", kind="class", labels=["x", "y"])

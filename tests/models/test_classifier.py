import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    RobertaConfig,
    RobertaModel,
)

from tests.tiny import BERT_SHAPE, read_json, save_encoder, save_model, word_tokenizer
from tilth.errors import InputError
from tilth.models import load_encoder
from tilth.models.classifier import (
    Classifier,
    fingerprint_classifier,
    load_classifier,
    new_classifier,
)
from tilth.models.pretrained import max_input_tokens

TEXTS = ["a man reads", "the old dog sleeps near the river"]


def made(base: str, **options: Any) -> Classifier:
    given: dict[str, Any] = {"kind": "class", "labels": ["sea", "land", "air"], "device": "cpu"}
    return new_classifier(base, **{**given, **options})


def other_base(name: str, folder: Path) -> str:
    vocabulary = {"vocab_size": len(word_tokenizer())}
    ends = {"bos_token_id": 2, "eos_token_id": 3}
    if name == "modernbert":
        config = ModernBertConfig(
            **BERT_SHAPE, **vocabulary, **ends, cls_token_id=2, sep_token_id=3,
            classifier_pooling="mean", layer_types=["full_attention"] * 2,
        )  # fmt: skip
        return str(save_model(folder, ModernBertForMaskedLM(config)))
    if name == "roberta":
        return str(
            save_model(folder, RobertaModel(RobertaConfig(**BERT_SHAPE, **vocabulary, **ends)))
        )
    distil = {
        "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 32,
    }  # fmt: skip
    return str(save_model(folder, DistilBertModel(DistilBertConfig(**distil, **vocabulary))))


def weights(classifier: Classifier) -> dict[str, torch.Tensor]:
    return dict(classifier.model.state_dict())


def test_the_head_is_drawn_from_the_seed_and_nothing_else_changes(base: str) -> None:
    before = torch.random.get_rng_state()
    one, again, other = made(base), made(base), made(base, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    assert one.fresh >= {"classifier.weight", "classifier.bias"}
    for key, weight in weights(one).items():
        assert torch.equal(weight, weights(again)[key])
        if key in one.fresh and key.endswith("weight"):
            assert not torch.equal(weight, weights(other)[key]), key
        if key not in one.fresh:
            assert torch.equal(weight, weights(other)[key]), key
    assert {weight.dtype for weight in one.model.parameters()} == {torch.float32}
    assert not one.model.training


def test_the_body_is_that_of_the_base(base: str) -> None:
    encoder = load_encoder(base, device="cpu")[0].auto_model.state_dict()
    same = [key for key in encoder if f"bert.{key}" not in made(base).fresh]
    assert same
    for key in same:
        assert torch.equal(encoder[key], weights(made(base))[f"bert.{key}"]), key


@pytest.mark.parametrize("name", ["bert", "modernbert", "roberta", "distilbert"])
@pytest.mark.parametrize("kind", ["class", "tags"])
def test_every_dropout_is_the_one_asked_for(
    base: str, tmp_path: Path, name: str, kind: str
) -> None:
    folder = base if name == "bert" else other_base(name, tmp_path)
    classifier = made(folder, dropout=0.37, kind=kind)
    dropouts = [part.p for part in classifier.model.modules() if isinstance(part, torch.nn.Dropout)]
    assert set(dropouts) == {0.37}
    inner = {
        value for part in classifier.model.modules() for key, value in vars(part).items()
        if "dropout" in key and isinstance(value, float)
    }  # fmt: skip
    assert inner <= {0.37}
    plain = made(folder, kind=kind)
    assert 0.37 not in {
        part.p for part in plain.model.modules() if isinstance(part, torch.nn.Dropout)
    }


def test_the_starters_pooling_stays(tmp_path: Path) -> None:
    classifier = made(other_base("modernbert", tmp_path))
    assert classifier.model.config.classifier_pooling == "mean"


@pytest.mark.parametrize(("kind", "labels"), [
    ("class", ["sea", "land"]), ("multi", ["sea"]), ("tags", ["O", "B-sea", "I-sea"]),
])  # fmt: skip
def test_a_saved_classifier_loads_again(
    base: str, tmp_path: Path, kind: Any, labels: list[str]
) -> None:
    classifier = made(base, kind=kind, labels=labels, max_length=16)
    classifier.save(tmp_path)
    assert not list(tmp_path.glob("*.bin"))
    loaded = load_classifier(str(tmp_path), device="cpu")
    assert (loaded.kind, loaded.labels, loaded.max_length) == (kind, labels, 16)
    assert loaded.fresh == frozenset()
    for key, weight in weights(classifier).items():
        assert torch.equal(weight, weights(loaded)[key]), key
    if kind == "tags":
        tokens = [text.split() for text in TEXTS]
        for one, two in zip(
            classifier.tag_probabilities(tokens), loaded.tag_probabilities(tokens), strict=True
        ):
            np.testing.assert_array_equal(one, two)
    else:
        np.testing.assert_array_equal(classifier.probabilities(TEXTS), loaded.probabilities(TEXTS))


def test_the_run_of_a_training_is_its_classifier_and_can_be_a_base(
    base: str, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text("{}")
    made(base).save(tmp_path / "model")
    loaded = load_classifier(str(tmp_path), device="cpu")
    assert loaded.labels == ["sea", "land", "air"]
    assert loaded.name == str(tmp_path)
    for labels in (["yes", "no", "perhaps"], ["yes", "no"]):
        anew = made(str(tmp_path), labels=labels)
        assert anew.fresh == {"classifier.weight", "classifier.bias"}
        assert not torch.equal(
            weights(anew)["classifier.weight"][:2], weights(loaded)["classifier.weight"][:2]
        )
        key = "bert.pooler.dense.weight"
        assert torch.equal(weights(anew)[key], weights(loaded)[key])


def test_the_fingerprint_is_of_weights_and_labels_not_of_the_fresh_head(
    base: str, tmp_path: Path
) -> None:
    one = fingerprint_classifier(made(base))
    assert len(one) == 16
    assert one == fingerprint_classifier(made(base, seed=1))
    assert one != fingerprint_classifier(made(base, labels=["a", "b", "c"]))
    assert one != fingerprint_classifier(made(base, max_length=16))
    changed = made(base)
    with torch.no_grad():
        changed.model.bert.encoder.layer[1].intermediate.dense.weight[37, 5] += 1e-3
    assert one != fingerprint_classifier(changed)
    other = str(save_encoder(tmp_path / "other", seed=1))
    assert one != fingerprint_classifier(made(other))
    made(base).save(tmp_path / "zero")
    made(base, seed=1).save(tmp_path / "one")
    trained = [load_classifier(str(tmp_path / name), device="cpu") for name in ("zero", "one")]
    assert fingerprint_classifier(trained[0]) != fingerprint_classifier(trained[1])


def test_what_is_no_finished_classifier_is_refused(base: str, tmp_path: Path) -> None:
    said = rf"no classifying head \(BertModel\): train one, tilth train classifier --base {base}"
    with pytest.raises(InputError, match=said):
        load_classifier(base)
    folder = Path(made(base).model.config.name_or_path)
    config = read_json(folder / "config.json")
    save_encoder(tmp_path / "lying")
    config["architectures"] = ["BertForSequenceClassification"]
    (tmp_path / "lying/config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"has no trained head \(.*is not in its weights"):
        load_classifier(str(tmp_path / "lying"))
    number = BertForSequenceClassification(
        BertConfig(**BERT_SHAPE, vocab_size=len(word_tokenizer()), num_labels=1)
    )
    with pytest.raises(InputError, match="gives a number, not a class"):
        load_classifier(str(save_model(tmp_path / "number", number)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": ["one"]}, "give at least 2"),
        ({"labels": [], "kind": "multi"}, "give at least 1"),
        ({"labels": ["a", "b", "a"]}, "label 'a' is given twice"),
        ({"labels": ["a", ""]}, "label '' is no text"),
        ({"kind": "pairs"}, "kind 'pairs' is unknown: use class, multi, tags or number"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"max_length": 33}, "reads 4 to 32 tokens"),
        ({"max_length": 3}, "reads 4 to 32 tokens"),
    ],
)
def test_wrong_arguments(base: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(base, **options)


def test_positions_that_stand_for_padding_are_not_read(tmp_path: Path) -> None:
    assert made(other_base("roberta", tmp_path)).max_length == 31


@pytest.mark.parametrize("kind", ["roberta-prelayernorm", "xmod", "ibert", "luke", "esm"])
def test_texts_are_cut_to_the_positions_that_a_model_has(kind: str, tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        kind, **BERT_SHAPE, vocab_size=len(word_tokenizer()),
        **({"languages": ["en"], "default_language": "en"} if kind == "xmod" else {}),
    )  # fmt: skip
    base = str(save_model(tmp_path, AutoModel.from_config(config)))
    assert made(base).probabilities([("a man sleeps " * 40,)]).shape == (1, 3)


def test_a_model_of_any_number_of_positions_reads_as_many_tokens_as_its_tokenizer_says() -> None:
    config = SimpleNamespace(model_type="xlnet", max_position_embeddings=-1)
    assert max_input_tokens(config, SimpleNamespace(model_max_length=300)) == 300
    assert max_input_tokens(config, SimpleNamespace(model_max_length=10**30)) == 512


@pytest.mark.parametrize("name", ["starter-mlm", "starter-encoder"])
def test_the_starters_can_be_bases(name: str) -> None:
    classifier = made(name)
    found = classifier.probabilities([("a boy runs", "a child plays"), ("rain", "sun")])
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)

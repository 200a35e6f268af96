from __future__ import annotations

import gzip
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy
from transformers import BertConfig, BertModel

from tests.tiny import WORDS, graded_pairs, paraphrases, word_tokenizer, write_rows
from tests.tiny.models import BERT_SHAPE, save_encoder, save_model, tiny_model
from tests.tiny.trained import read_curve, same_weights
from tilth.encoders.contrastive_sets import read_contrastive
from tilth.encoders.settings import SimcseTraining, Training
from tilth.encoders.simcse import (
    CachedSimcseLoss,
    SimcseLoss,
    TrainingProjection,
    embed_by_length,
    train_simcse,
)
from tilth.errors import InputError
from tilth.models import load_encoder
from tilth.runs import RunMismatch

QUICK: dict[str, Any] = {
    "learning_rate": 2e-3, "batch": 16, "evaluate_every": 4, "precision": "float32",
    "device": "cpu", "quiet": True,
}  # fmt: skip


def texts(count: int, *, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 12))) for _ in range(count)]


def pairs(count: int) -> Dataset:
    """Return texts beside the same words in another order."""
    rng = random.Random(1)
    first = texts(count)
    second = [" ".join(rng.sample(text.split(), len(text.split()))) for text in first]
    return Dataset.from_dict({"text_a": first, "text_b": second})


def triples(count: int) -> Dataset:
    return pairs(count).add_column("negative", texts(count, seed=7))  # type: ignore[call-arg]


@pytest.fixture(scope="module")
def encoder(base: str) -> SentenceTransformer:
    return load_encoder(base)  # in evaluation mode: no dropout


def tokens(encoder: SentenceTransformer, columns: list[list[str]]) -> list[dict[str, Tensor]]:
    return [encoder.preprocess(column) for column in columns]


def reference(columns: list[Tensor], temperature: float) -> Tensor:
    """Return SimCSE's loss: each text against every positive and hard negative of the batch."""
    candidates = torch.cat(columns[1:])
    losses = []
    for place, text in enumerate(columns[0]):
        logits = torch.stack([cosine_similarity(text, one, dim=0) for one in candidates])
        losses.append(cross_entropy(logits[None] / temperature, torch.tensor([place])))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("rows", [pairs(9), triples(9)], ids=["pairs", "triples"])
def test_both_losses_are_the_reference(encoder: SentenceTransformer, rows: Dataset) -> None:
    columns = [rows[name][:] for name in rows.column_names]
    vectors = [encoder.encode(column, convert_to_tensor=True) for column in columns]
    expected = reference(vectors, 0.1)
    labels = torch.empty(0)
    for loss in (SimcseLoss(encoder, 0.1), CachedSimcseLoss(encoder, 0.1, 4)):
        found = loss(tokens(encoder, columns), labels)
        assert found.item() == pytest.approx(expected.item(), rel=1e-4)


def test_the_losses_give_the_same_gradients(base: str) -> None:
    rows = triples(9)
    gradients = []
    for kind in (SimcseLoss, partial(CachedSimcseLoss, rows=2)):
        model = load_encoder(base)
        columns = tokens(model, [rows[name][:] for name in rows.column_names])
        kind(model, temperature=0.05)(columns, torch.empty(0)).backward()
        weights = dict(model.named_parameters())
        gradients.append({n: one.grad for n, one in weights.items() if one.grad is not None})
    one, other = gradients
    assert one.keys() == other.keys()
    assert one
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("negatives", [False, True])
def test_the_loss_falls_where_positives_come_near_and_negatives_go(negatives: bool) -> None:
    loss = SimcseLoss.__new__(SimcseLoss)
    model = torch.nn.Identity()
    SimcseLoss.__init__(loss, model, 0.05)  # type: ignore[arg-type]
    anchors = torch.eye(4)
    near, far = anchors + 0.1, anchors.roll(1, 0)
    if negatives:
        good, bad = [anchors, near, far - anchors], [anchors, near, anchors]
    else:
        good, bad = [anchors, near], [anchors, far]
    labels = torch.empty(0)
    assert loss.compute_loss_from_embeddings(good, labels) < loss.compute_loss_from_embeddings(
        bad, labels
    )


def test_passes_of_similar_lengths_give_every_text_its_own_vector(
    encoder: SentenceTransformer,
) -> None:
    columns = [texts(50), texts(50, seed=3)]
    found = embed_by_length(encoder, tokens(encoder, columns))
    for vectors, column in zip(found, columns, strict=True):
        expected = encoder.encode(column, convert_to_tensor=True)
        torch.testing.assert_close(vectors, expected, rtol=1e-4, atol=1e-5)


def test_texts_that_are_padded_on_the_left_keep_their_tokens(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    folder = save_model(tmp_path, tiny_model("qwen3", len(tokenizer)).model, tokenizer)
    body = Transformer(str(folder))
    body.tokenizer.padding_side = "left"
    width = body.get_embedding_dimension()
    encoder = SentenceTransformer(modules=[body, Pooling(width, pooling_mode="lasttoken")])
    columns = [texts(20), texts(20, seed=3)]
    given = tokens(encoder, columns)
    assert not given[0]["attention_mask"][:, 0].all()
    found = embed_by_length(encoder.eval(), given, processor_chunk=4)
    for vectors, column in zip(found, columns, strict=True):
        expected = encoder.encode(column, convert_to_tensor=True)
        torch.testing.assert_close(vectors, expected, rtol=1e-4, atol=1e-4)


def test_the_projection_counts_in_training_only() -> None:
    layer = TrainingProjection(3, 3)
    vectors = torch.randn(2, 3)
    trained = layer.train()({"sentence_embedding": vectors})["sentence_embedding"]
    torch.testing.assert_close(trained, torch.tanh(layer.linear(vectors)))
    assert layer.eval()({"sentence_embedding": vectors})["sentence_embedding"] is vectors


def test_the_best_checkpoint_on_dev_is_kept_without_the_projection(
    base: str, tmp_path: Path
) -> None:
    dev = Dataset.from_dict(graded_pairs(60))
    trained = train_simcse(pairs(160), base, tmp_path, validation=dev, **QUICK, epochs=2)
    curve = read_curve(tmp_path)
    assert curve["step"] == [4, 8, 12, 16, 20]
    assert all(-100 <= value <= 100 for value in curve["spearman"])
    assert not any(isinstance(module, TrainingProjection) for module in trained)
    assert trained.get_embedding_dimension() == load_encoder(base).get_embedding_dimension()
    assert same_weights(load_encoder(str(tmp_path)), trained)
    assert not same_weights(load_encoder(base, pooling="cls"), trained)


def test_partners_come_near(base: str) -> None:
    held_out = paraphrases(100, seed=9)
    trained = train_simcse(paraphrases(400), base, **QUICK, epochs=4, pooling="mean")

    def nearest(encoder: SentenceTransformer) -> float:
        x, y = (
            encoder.encode(held_out[name][:], normalize_embeddings=True) for name in ("en", "de")
        )
        return float(((x @ y.T).argmax(1) == range(100)).mean())

    assert nearest(load_encoder(base, pooling="mean")) < 0.1 < 0.5 < nearest(trained)


def test_an_interrupted_training_ends_with_the_same_weights(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Dataset.from_dict({"text": texts(120)})
    whole = train_simcse(source, base, tmp_path / "whole", **QUICK)
    forward, calls = SimcseLoss.forward, [0]

    def stop(self: SimcseLoss, *args: Any) -> Tensor:
        calls[0] += 1
        if calls[0] == 6:
            raise KeyboardInterrupt
        return forward(self, *args)

    monkeypatch.setattr(SimcseLoss, "forward", stop)
    with pytest.raises(KeyboardInterrupt):
        train_simcse(source, base, tmp_path / "cut", **QUICK)
    assert list((tmp_path / "cut").glob("checkpoints/checkpoint-4"))
    monkeypatch.undo()
    assert same_weights(train_simcse(source, base, tmp_path / "cut", **QUICK), whole)


@pytest.fixture(scope="module")
def plain(base: str) -> SentenceTransformer:
    """Return an encoder of the usual settings."""
    return train_simcse(pairs(60), base, **QUICK)


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.5}, {"batch": 8}, {"epochs": 0.5}, {"learning_rate": 1e-3}, {"seed": 1},
        {"pooling": "mean"}, {"max_length": 5}, {"group_lengths": True},
    ],
)  # fmt: skip
def test_every_setting_counts(
    base: str, plain: SentenceTransformer, changed: dict[str, Any]
) -> None:
    assert not same_weights(plain, train_simcse(pairs(60), base, **{**QUICK, **changed}))


def test_few_rows_at_once_train_the_same(base: str) -> None:
    """Without dropout only rounding differs."""
    found = []
    for rows in (None, 3):
        encoder = train_simcse(pairs(40), base, **{**QUICK, "learning_rate": 1e-4}, rows=rows)
        found.append(encoder.encode(texts(5)))
    assert float(abs(found[0] - found[1]).max()) < 0.05


def test_repeated_passes_have_the_same_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = str(save_encoder(tmp_path / "bert"))  # with BERT's dropout
    seen: dict[tuple[int, int], list[Tensor]] = {}
    embed = CachedSimcseLoss.embed_minibatch

    def watched(self: Any, **how: Any) -> Any:
        found = embed(self, **how)
        key = id(how["sentence_feature"]), how["begin"]
        seen.setdefault(key, []).append(found[0].detach())
        return found

    monkeypatch.setattr(CachedSimcseLoss, "embed_minibatch", watched)
    train_simcse(pairs(32), base, **{**QUICK, "epochs": 0.5}, rows=5)
    assert seen
    for first, second in seen.values():
        assert torch.equal(first, second)


def test_single_texts_have_dropout_whatever_the_base(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    single, how = Dataset.from_dict({"text": texts(32)}), {**QUICK, "epochs": 0.5}
    names = "hidden_dropout_prob", "attention_probs_dropout_prob"
    config = BertConfig(vocab_size=len(word_tokenizer()), **BERT_SHAPE, **dict.fromkeys(names, 0.0))
    none = str(save_model(tmp_path / "none", BertModel(config)))

    def trained(rows: Dataset, **changed: Any) -> tuple[SentenceTransformer, list[float]]:
        encoder = train_simcse(rows, none, **how, **changed)
        trained_config: Any = encoder[0].auto_model.config
        return encoder, [getattr(trained_config, name) for name in names]

    assert trained(pairs(32))[1] == [0, 0]
    assert trained(pairs(32), dropout=0.3)[1] == [0.3, 0.3]
    by_default, found = trained(single)
    assert found == [0.1, 0.1]
    assert same_weights(by_default, trained(single, dropout=0.1)[0])
    assert "has no dropout" not in caplog.text
    without, found = trained(single, dropout=0.0)
    assert found == [0, 0]
    assert not same_weights(by_default, without)
    assert "has no dropout: a text's positive has the very vector of the text" in caplog.text


def test_an_adapted_starter_has_its_defaults(tmp_path: Path) -> None:
    run = {
        "command": "train adapt", "settings": {"base": "starter-mlm"}, "fingerprints": {},
        "parts": 1, "resolved": {}, "versions": {}, "outputs": [],
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    for name in ("starter-mlm", str(tmp_path)):
        found = SimcseTraining().training(name, triples=False)
        assert (found.pooling, found.learning_rate) == ("mean", 1e-4)
        assert Training().for_base(name).learning_rate == 5e-4
    (tmp_path / "run.json").write_text(json.dumps({**run, "command": "train encoder"}))
    assert Training().for_base(str(tmp_path)).learning_rate == 2e-5


def test_what_is_trained_in_memory_is_what_is_saved_and_no_random_state_changes(
    base: str, tmp_path: Path
) -> None:
    states = random.getstate(), torch.get_rng_state()
    encoder = train_simcse(pairs(40), base, **{**QUICK, "precision": "bfloat16"})
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    encoder.save(str(tmp_path / "saved"))
    again = load_encoder(str(tmp_path / "saved"), device="cpu")
    assert (encoder.encode(texts(5)) == again.encode(texts(5))).all()


def test_another_training_is_refused(base: str, tmp_path: Path) -> None:
    train_simcse(pairs(40), base, tmp_path, **QUICK)
    for name, value in (("temperature", 0.2), ("seed", 3), ("group_lengths", True)):
        with pytest.raises(RunMismatch, match=name):
            train_simcse(pairs(40), base, tmp_path, **{**QUICK, name: value})
    with pytest.raises(RunMismatch, match="train"):
        train_simcse(triples(40), base, tmp_path, **QUICK)


def test_defaults_are_those_of_texts_or_of_triples(base: str, tmp_path: Path) -> None:
    for name, rows, batch, epochs, rate in (
        ("texts", pairs(40), 64, 1, 3e-5), ("triples", triples(40), 512, 3, 5e-5),
    ):  # fmt: skip
        train_simcse(rows, base, tmp_path / name, device="cpu", quiet=True, precision="float32")
        settings = json.loads((tmp_path / name / "run.json").read_text())["settings"]
        assert settings["batch"] == batch
        assert settings["epochs"] == epochs
        assert settings["learning_rate"] == rate
        assert settings["pooling"] == "cls"
        assert settings["max_length"] == 32


@pytest.mark.parametrize(
    ("base", "pooling", "rate"),
    [("starter-mlm", "mean", 1e-4), ("starter-static", None, 1e-3), ("x/bert", "cls", 3e-5)],
)
def test_a_starter_has_its_own_pooling_and_rate(
    base: str, pooling: str | None, rate: float
) -> None:
    training = SimcseTraining().training(base, triples=False)
    assert (training.pooling, training.learning_rate) == (pooling, rate)
    assert SimcseTraining(pooling="max").training(base, triples=False).pooling == "max"


def test_single_texts_are_their_own_positives(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt.gz"
    path.write_bytes(gzip.compress(b"A first line.\n\nA second line.\nA first line.\n"))
    rows = read_contrastive(path)
    assert rows["text_a"][:] == rows["text_b"][:] == ["A first line.", "A second line."]


def test_rewrites_are_the_positives_of_their_originals() -> None:
    rows = Dataset.from_dict({
        "text": ["A dog ran.", "It rained.", "One more."],
        "original": ["The dog ran off.", "There was rain.", None],
        "meaning": [90.0, 91.0, None],
    })  # fmt: skip
    assert read_contrastive(rows).to_list() == [
        {"text_a": "The dog ran off.", "text_b": "A dog ran."},
        {"text_a": "There was rain.", "text_b": "It rained."},
        {"text_a": "One more.", "text_b": "One more."},
    ]


def test_nli_gives_a_triple_for_each_entailed_hypothesis() -> None:
    names = ["entailment", "neutral", "contradiction"]
    rows = [
        ("A man sleeps.", "Somebody rests.", 0), ("A man sleeps.", "He is at home.", 1),
        ("A man sleeps.", "A man runs.", 2), ("A man sleeps.", "A person is asleep.", 0),
        ("A dog barks.", "There is noise.", 0),
    ]  # fmt: skip
    keys = ("premise", "hypothesis", "label")
    named = Dataset.from_list(
        [dict(zip(keys, (a, b, names[label]), strict=True)) for a, b, label in rows]
    )
    lacking = {"premise": "A dog barks.", "hypothesis": "It is loud.", "label": None}
    numbered = named.add_item(lacking).cast_column("label", ClassLabel(names=names))
    capitals = named.rename_columns({key: key.capitalize() for key in keys})
    for source in (named, numbered, capitals):
        assert read_contrastive(source).to_list() == [
            {"text_a": "A man sleeps.", "text_b": "Somebody rests.", "negative": "A man runs."},
            {"text_a": "A man sleeps.", "text_b": "A person is asleep.", "negative": "A man runs."},
        ]  # fmt: skip


REWRITTEN = Dataset.from_dict({
    "sentence1": ["a 1", "new a 1", "new a 2"], "sentence2": ["b 1", "new b 1", "new b 2"],
    "original_sentence1": ["a 1", "a 1", "a 2"], "original_sentence2": ["b 1", "b 1", "b 2"],
    "rewrite": [0, 1, 1],
})  # fmt: skip


def test_columns_of_other_names_are_named(tmp_path: Path) -> None:
    rows = [
        {"id": f"no {n}", "body": f"a wren {n}", "other": f"a bird {n}", "negative": f"a car {n}"}
        for n in range(4)
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    single = read_contrastive(str(path), text="body")
    assert single[0] == {"text_a": "a wren 0", "text_b": "a wren 0"}
    triples = read_contrastive(str(path), text=["body", "other"])
    assert triples[0] == {"text_a": "a wren 0", "text_b": "a bird 0", "negative": "a car 0"}
    with pytest.raises(InputError, match=r"rows\.jsonl: no column 'nope': there are id, body"):
        read_contrastive(str(path), text="nope")
    with pytest.raises(InputError, match="leave text out"):
        read_contrastive(str(path), "A'B", "body")


@pytest.mark.parametrize(
    ("variant", "pairs"),
    [
        ("AB", ["a 1|b 1", "a 2|b 2"]),
        ("A'B'", ["new a 1|new b 1", "new a 2|new b 2"]),
        ("A'B", ["new a 1|b 1", "new a 2|b 2"]),
        ("AB'", ["a 1|new b 1", "a 2|new b 2"]),
        ("AB+A'B'", ["a 1|b 1", "a 2|b 2", "new a 1|new b 1", "new a 2|new b 2"]),
    ],
)
def test_a_variant_takes_originals_or_rewrites_of_pairs(variant: str, pairs: list[str]) -> None:
    rows = read_contrastive(REWRITTEN, variant).to_list()
    assert [f"{row['text_a']}|{row['text_b']}" for row in rows] == pairs


def test_a_variant_needs_rewrites_of_both_texts() -> None:
    for name in ("original_sentence1", "original_sentence2"):
        with pytest.raises(InputError, match="variant A'B needs a run of `tilth paraphrase`"):
            read_contrastive(REWRITTEN.remove_columns(name), "A'B")


def test_a_variant_is_what_is_trained_on(base: str, tmp_path: Path) -> None:
    rows = triples(20)
    for name in ("text_a", "text_b"):
        rows = rows.add_column(f"original_{name}", [f"old {text}" for text in rows[name]])
    found = {
        variant: train_simcse(rows, base, tmp_path / str(number), variant=variant, **QUICK)
        for number, variant in enumerate(("AB", "A'B'"))
    }
    alone = train_simcse(rows.select_columns(["text_a", "text_b"]), base, **QUICK)
    assert same_weights(found["A'B'"], alone)
    assert not same_weights(found["AB"], alone)


def test_several_sources_join(tmp_path: Path) -> None:
    one = write_rows(tmp_path / "one.jsonl", pairs(5).to_list())
    other = write_rows(tmp_path / "other.jsonl", pairs(8).to_list())
    assert len(read_contrastive([one, other])) == 8  # five are in both


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([pairs(4), triples(4)], "holds triples, .* has no negatives"),
        (Dataset.from_dict({"text": ["one", "one", ""]}), "1 rows are left"),
        (
            Dataset.from_dict({"sent0": ["a", "c"], "sent1": ["b", "d"], "hard_neg": ["x", " "]}),
            r"row 1 .* has no negative",
        ),
        (
            Dataset.from_dict({"premise": ["a"], "hypothesis": ["b"], "label": ["yes"]}),
            "no premise has both .* its labels are yes",
        ),
        (
            Dataset.from_dict({"a": ["x", "y"], "b": ["x", "y"], "c": ["x", "y"]}),
            "which columns of a, b, c hold the pairs",
        ),
        (
            Dataset.from_dict({"text_a": ["x", "z"], "text_b": ["y", "w"], "label": [0.2, 0.9]}),
            "grades the pairs",
        ),
    ],
)  # fmt: skip
def test_wrong_sources_are_refused(sources: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_contrastive(sources)


def test_rows_and_frames_are_read_as_data_sets_are() -> None:
    given = Dataset.from_dict({"text_a": ["a", "c"], "text_b": ["b", "d"]})
    expected = read_contrastive(given)[:]
    for other in (given.to_list(), given.to_pandas(), DatasetDict(train=given), [given]):
        assert read_contrastive(other)[:] == expected


def test_a_wrong_dev_set_is_refused(base: str, tmp_path: Path) -> None:
    same = Dataset.from_dict({"text_a": ["x"] * 5, "text_b": ["y"] * 5, "label": [3.0] * 5})
    for dev, message in ((same, "every label of the validation part is 3"), (pairs(5), "label")):
        with pytest.raises(InputError, match=message):
            train_simcse(pairs(40), base, tmp_path, validation=dev, **QUICK)
    assert not (tmp_path / "run.json").exists()


def test_a_static_encoder_is_trained_on_pairs(tmp_path: Path) -> None:
    before = load_encoder("starter-static", device="cpu").encode(["red"])
    found = train_simcse(
        pairs(40),
        "starter-static",
        tmp_path / "run",
        batch=8,
        learning_rate=0.1,
        device="cpu",
        quiet=True,
    )  # fmt: skip
    assert not np.allclose(found.encode(["red"]), before)

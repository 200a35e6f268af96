import json
import pickle
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Dense, StaticEmbedding
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tests.tiny import WORDS, word_tokenizer
from tilth.bank.encoder import TextEncoder
from tilth.errors import InputError
from tilth.models import load_encoder, static, token_cache
from tilth.models.encoder import fingerprint_encoder
from tilth.models.names import starter_path
from tilth.models.static import StaticEncoder, fast_static, read_static

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPLITTERS = {
    "bert": pre_tokenizers.BertPreTokenizer(),
    "words": pre_tokenizers.Whitespace(),
    "white": pre_tokenizers.WhitespaceSplit(),
    "sequence": pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next")]
    ),
}
NORMALIZERS = {
    "bert": normalizers.BertNormalizer(),
    "cased": normalizers.BertNormalizer(lowercase=False),
    "composed": normalizers.Sequence([normalizers.Lowercase(), normalizers.NFKC()]),
    "stripped": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
}
AWKWARD = [
    "", " ", "  ", "...", "a man", " A  MAN ", "a\u00a0man", "the\tdog\nruns\r\n", "man\u2003dog",
    "man\u2028dog", "man\u200bdog", "man\x00dog", "man\x0bdog\x85sea", "\ufffd", "caf\u00e9",
    "cafe\u0301", " \u0301a", "=\u0338 man=\u0338", "\u4e2d\u6587 man\u4e2d", "\U0001f600 dog",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "[UNK] a [SEP]man", "x[CLS]", "[cls]", "[MASK ]",
    "man,dog (sea) 3.5%", "\u03a3\u0391\u03a3 \u0130I", "\u00df \ufb01 \u2126", "\u00a8 \u00b4",
    "dog" * 200, "man " * 300, "a-b_c", "'s", "\u2019s", "\u061c\u0628 dog", "\u0e01\u0e33",
]  # fmt: skip


def tokenizer(
    normalizer: str = "bert", splitter: str = "bert", special: Sequence[str] = SPECIAL
) -> Tokenizer:
    letters = [chr(n) for n in range(33, 127)] + [
        "é", "中", "文", "=", "\u0301", "\u0338", "\u03c3",
    ]  # fmt: skip
    entries = [*SPECIAL, *WORDS, *letters, *("##" + letter for letter in letters), "##man", "##og"]
    vocabulary = {entry: n for n, entry in enumerate(dict.fromkeys(entries))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = NORMALIZERS[normalizer]
    made.pre_tokenizer = SPLITTERS[splitter]
    made.add_special_tokens(list(special))
    return made


def static_encoder(made: Any, *, seed: int = 0) -> SentenceTransformer:
    rows = np.random.default_rng(seed).normal(size=(made.get_vocab_size(), 16))
    return SentenceTransformer(
        modules=[StaticEmbedding(made, embedding_weights=rows.astype(np.float32))], device="cpu"
    )


def fast(encoder: SentenceTransformer) -> StaticEncoder:
    found = fast_static(encoder)
    assert found is not None
    return found


def agree(
    encoder: SentenceTransformer, texts: list[str], rows: StaticEncoder | None = None
) -> None:
    expected = encoder.encode(texts, normalize_embeddings=True)
    found = (rows or fast(encoder)).encode(pa.array(texts))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("splitter", SPLITTERS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_any_text_has_the_vector_that_encode_gives(normalizer: str, splitter: str) -> None:
    encoder = static_encoder(tokenizer(normalizer, splitter))
    rows = fast(encoder)
    agree(encoder, AWKWARD, rows)
    some = st.sampled_from([*AWKWARD, *SPECIAL, *WORDS, " ", ",", "."])

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.one_of(st.text(), st.lists(some).map("".join)), min_size=1))
    def check(texts: list[str]) -> None:
        agree(encoder, texts, rows)

    check()


def test_words_of_a_shared_tokenizer_and_other_models_of_pieces() -> None:
    agree(static_encoder(word_tokenizer()._tokenizer), AWKWARD)
    unigram = Tokenizer(
        models.Unigram([("<unk>", -9.0), *((word, -float(len(word))) for word in WORDS)], unk_id=0)
    )
    unigram.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    agree(static_encoder(unigram), AWKWARD)


def test_long_texts_and_many_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=rng.choice([0, 3, 20]))) for _ in range(500)]
    texts[7] = " ".join(rng.choices(WORDS, k=10_000))
    monkeypatch.setattr(static, "_BYTES_AT_ONCE", 900)
    agree(static_encoder(tokenizer()), texts)


@pytest.mark.parametrize("limit", [1, 3, 128])
def test_truncation_is_kept(limit: int) -> None:
    made = tokenizer()
    made.enable_truncation(limit)
    made.enable_padding(length=9)
    agree(static_encoder(made), [*AWKWARD, "the dog sees a cat in the rain"])


def test_arrays_of_every_shape() -> None:
    rows = fast(static_encoder(tokenizer()))
    texts = ["a man", "the dog", "", "rain", "the sea"]
    expected = rows.encode(pa.array(texts))
    np.testing.assert_array_equal(rows.encode(pa.array(texts, pa.large_string())), expected)
    np.testing.assert_array_equal(rows.encode(pa.array(texts)[1:4]), expected[1:4])
    assert rows.encode(pa.array([], pa.string())).shape == (0, 16)
    assert not rows.encode(pa.array(["", " "])).any()
    assert not fast(static_encoder(tokenizer())).encode(pa.array([""])).any()  # its first texts
    for missing in (pa.array(["a", None]), ["a", None]):
        with pytest.raises(InputError, match="1 texts are missing"):
            rows.encode(missing)
    with pytest.raises(InputError, match="of type int64"):
        rows.encode(pa.array([1]))


def test_what_is_remembered_changes_nothing_and_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_cache, "_CACHED", 40)
    encoder = static_encoder(tokenizer())
    rows = fast(encoder)
    rng = random.Random(0)
    for _ in range(20):
        texts = ["".join(rng.choices("abc,", k=rng.randint(1, 30))) for _ in range(30)]
        agree(encoder, texts, rows)
        # What one call adds is forgotten with the next.
        assert rows.cache.known == len(rows.cache._starts) < 40 + 30 * 30
    before = rows.cache.known
    rows.encode(pa.array(texts))
    assert rows.cache.known <= max(before, 41)


@pytest.mark.parametrize("normalizer", ["bert", "cased"])
def test_pieces_of_many_new_words_are_those_of_the_tokenizer(
    monkeypatch: pytest.MonkeyPatch, normalizer: str
) -> None:
    texts = [*AWKWARD, "x" * 100, "x" * 101, "manogman dogx", "a~b \x7f\x01 É~"]
    texts = [text for text in texts if not any(token in text for token in SPECIAL)]
    encoder = static_encoder(tokenizer(normalizer))
    expected = fast(encoder).encode(texts)
    monkeypatch.setattr(token_cache, "_FEW", 0)
    monkeypatch.setattr(static, "_FEW", 0)
    rows = fast(encoder)
    np.testing.assert_array_equal(rows.encode(texts), expected)
    assert "_pieces" in vars(rows.cache)


@pytest.mark.parametrize("is_half", [True, False])
def test_vectors_of_half_precision_are_read_as_such_for_many_texts(
    monkeypatch: pytest.MonkeyPatch, is_half: bool
) -> None:
    encoder = static_encoder(tokenizer())
    if is_half:
        encoder[0].embedding.half()
    rows = fast(encoder)
    expected = rows.encode(AWKWARD)
    assert "_narrow" not in vars(rows)
    monkeypatch.setattr(static, "_FEW", 0)
    np.testing.assert_array_equal(rows.encode(AWKWARD), expected)
    assert rows._narrow.dtype == (np.uint16 if is_half else np.float32)


def test_a_pickled_one_gives_the_same() -> None:
    rows = fast(static_encoder(tokenizer()))
    again = pickle.loads(pickle.dumps(rows))
    texts = pa.array(AWKWARD)
    np.testing.assert_array_equal(again.encode(texts), rows.encode(texts))


def test_normalised_narrowed_and_half_models() -> None:
    module = static_encoder(tokenizer())[0]
    agree(SentenceTransformer(modules=[module, Normalize()], device="cpu"), AWKWARD)
    narrow = SentenceTransformer(modules=[module], truncate_dim=5, device="cpu")
    assert fast(narrow).dimension == 5
    agree(narrow, AWKWARD)


def test_none_for_models_it_does_not_know() -> None:
    encoder = static_encoder(tokenizer())
    module = encoder[0]
    assert fast_static(SentenceTransformer(modules=[module, Dense(16, 8)], device="cpu")) is None
    prompted = SentenceTransformer(
        modules=[module], prompts={"query": "a "}, default_prompt_name="query", device="cpu"
    )
    assert fast_static(prompted) is None
    module.embedding.mode = "sum"
    assert fast_static(encoder) is None


@pytest.mark.parametrize(
    "part",
    [
        {"pre_tokenizer": pre_tokenizers.Metaspace()},
        {"pre_tokenizer": pre_tokenizers.ByteLevel()},
        {"pre_tokenizer": pre_tokenizers.Punctuation()},
        {"normalizer": normalizers.Replace(" ", "_")},
        {"normalizer": normalizers.Prepend("_")},
    ],
    ids=lambda part: type(next(iter(part.values()))).__name__,
)
def test_none_for_tokenizers_that_look_across_spaces(part: dict[str, Any]) -> None:
    made = tokenizer()
    for name, value in part.items():
        setattr(made, name, value)
    assert fast_static(static_encoder(made)) is None
    assert fast_static(static_encoder(tokenizer(special=[*SPECIAL, "red dog"]))) is None
    made = tokenizer()
    made.enable_truncation(3, direction="left")
    assert fast_static(static_encoder(made)) is None


@pytest.mark.parametrize("kind", ["plain", "normalised", "narrowed", "half", "truncating"])
def test_files_are_read_as_the_loaded_model_encodes(kind: str, tmp_path: Path) -> None:
    made = tokenizer()
    if kind == "truncating":
        made.enable_truncation(3)
    encoder = static_encoder(made)
    if kind == "normalised":
        encoder.append(Normalize())
    if kind == "half":
        encoder[0].embedding.half()
    if kind == "narrowed":
        encoder.truncate_dim = 5
    encoder.save(str(tmp_path / "run" / "model"))
    (tmp_path / "run" / "run.json").write_text("{}")
    expected = load_encoder(str(tmp_path / "run" / "model"))
    for place in ("run", "run/model"):
        found = read_static(str(tmp_path / place))
        assert found is not None
        assert found.fingerprint == fingerprint_encoder(expected)
        agree(expected, AWKWARD, found)
        np.testing.assert_array_equal(found.encode(AWKWARD), found.encode(pa.array(AWKWARD)))


def test_the_shipped_files_are_read_as_the_loaded_model_encodes() -> None:
    found, expected = read_static("starter-static"), load_encoder("starter-static")
    assert found is not None
    assert found.fingerprint == fingerprint_encoder(expected)
    agree(expected, [*AWKWARD, "The film was wonderful."], found)


def test_no_files_of_other_models_and_none_that_are_damaged(tmp_path: Path) -> None:
    assert read_static("starter-encoder") is None
    assert read_static("nobody/nothing") is None
    static_encoder(tokenizer()).save(str(tmp_path / "good"))
    assert read_static(str(tmp_path / "good")) is not None
    modules = json.loads((tmp_path / "good" / "modules.json").read_text())
    dense = [*modules, {**modules[0], "type": "sentence_transformers.models.Dense"}]
    others = {
        "modules.json": ["[]", "{", json.dumps(dense), json.dumps(modules).replace("sent", "own")],
        "config_sentence_transformers.json": [
            json.dumps({"prompts": {"query": "a "}, "default_prompt_name": "query"})
        ],
        "tokenizer.json": ["", tokenizer("bert", "words").to_str().replace("Whitespace", "Other")],
        "model.safetensors": [""],
    }
    wide = tokenizer()
    wide.add_tokens(["moonlight"])  # without a vector
    others["tokenizer.json"].append(wide.to_str())
    for file, contents in others.items():
        for number, content in enumerate(contents):
            place = tmp_path / f"{number}-{file}"
            shutil.copytree(tmp_path / "good", place)
            (place / file).write_text(content)
            assert read_static(str(place)) is None, (file, content)


def test_the_shipped_model_is_small_and_knows_a_paraphrase() -> None:
    encoder = load_encoder("starter-static")
    folder = starter_path("static")
    assert sum(file.stat().st_size for file in folder.rglob("*")) < 12e6
    texts = [
        "The film was wonderful.",
        "It was a really great movie.",
        "He repaired the engine of the old tractor.",
    ]
    rows = fast(encoder)
    assert rows.dimension == 256
    vectors = rows.encode(pa.array(texts))
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2] + 0.2
    agree(encoder, [*AWKWARD, *texts], rows)
    # As anyone loads it, in half precision.
    plain = SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(plain, vectors, atol=5e-3)


def test_fingerprints_tell_static_models_apart() -> None:
    made = tokenizer()
    encoder = static_encoder(made)
    found = fingerprint_encoder(encoder)
    assert fingerprint_encoder(static_encoder(tokenizer())) == found
    assert fingerprint_encoder(static_encoder(made, seed=1)) != found
    changed = static_encoder(made)
    changed[0].embedding.weight.data[7, 3] += 1.0
    assert fingerprint_encoder(changed) != found
    entries = tokenizer().get_vocab()
    entries["cow"] = entries.pop("dog")
    other = Tokenizer(models.WordPiece(entries, unk_token="[UNK]"))
    assert fingerprint_encoder(static_encoder(other)) != found


@pytest.mark.parametrize(("device", "said"), [("cuda:99", "is not there"), ("warp", "is unknown")])
def test_a_device_that_is_not_there_is_refused(device: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        TextEncoder.load("starter-static", device=device)
    assert read_static("starter-static", "cpu") is not None

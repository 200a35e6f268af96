from __future__ import annotations

import gzip
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer

from tilth.encoders import vector_files as reader
from tilth.encoders import word_vectors as module
from tilth.encoders.vector_files import read_vectors
from tilth.encoders.word_vectors import word_vectors
from tilth.errors import InputError

WORDS = [
    "the", "a", "man", "dog", "runs", "well", "known", "well-known", "do", "n't", "not", "u.s.",
    "'s",
]  # fmt: skip
SENTENCES = ["The man runs.", "a dog", "The dog runs the man!", "unheard words", "the the"]


def vectors_of(words: list[str]) -> NDArray[np.float64]:
    return np.random.default_rng(7).normal(size=(len(words), 6)).round(4)


def write_vectors(path: Path, words: list[str], *, header: str = "", end: str = "\n") -> Path:
    lines = [
        f"{word} {' '.join(map(str, row))}"
        for word, row in zip(words, vectors_of(words), strict=True)
    ]
    text = header + "".join(line + end for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_vectors(tmp_path / "vectors.txt", WORDS)


def encode(encoder: SentenceTransformer, texts: list[str]) -> NDArray[np.float32]:
    return np.asarray(encoder.encode(texts))


def average(text: str, weight: dict[str, float] | None = None) -> NDArray[np.float64]:
    """Average by a plain loop; the words of these texts are letters alone."""
    vectors = dict(zip(WORDS, vectors_of(WORDS), strict=True))
    known = [word for word in re.findall(r"[a-z]+", text.lower()) if word in vectors]
    total = sum(((weight or {}).get(word, 1.0) * vectors[word] for word in known), np.zeros(6))
    return np.asarray(total / max(len(known), 1))


def assert_averages(
    encoder: SentenceTransformer, texts: list[str], weight: dict[str, float] | None = None
) -> None:
    expected = np.array([average(text, weight) for text in texts])
    np.testing.assert_allclose(encode(encoder, texts), expected, atol=1e-6)


def test_plain_average_as_by_a_loop(path: Path) -> None:
    assert_averages(word_vectors(path), SENTENCES)


def test_idf_as_scikit_learn_has_it(path: Path) -> None:
    oracle = TfidfVectorizer(token_pattern=r"[a-z]+").fit(SENTENCES)
    weight = dict.fromkeys(WORDS, np.log(1 + len(SENTENCES)) + 1)  # of a word in no sentence
    weight |= dict(zip(oracle.get_feature_names_out(), oracle.idf_, strict=True))
    encoder = word_vectors(path, weights="idf", sentences=iter(SENTENCES))
    assert_averages(encoder, [*SENTENCES, "do a man"], weight)


def test_sentences_are_counted_across_blocks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = word_vectors(path, weights="idf", sentences=SENTENCES)
    monkeypatch.setattr(module, "_TEXTS_AT_ONCE", 2)
    blocks = word_vectors(path, weights="idf", sentences=SENTENCES)
    assert torch.equal(whole[0].weights, blocks[0].weights)


def test_sif_by_rank(path: Path) -> None:
    total = sum(1 / rank for rank in range(1, len(WORDS) + 1))
    weight = {w: 1e-3 / (1e-3 + 1 / rank / total) for rank, w in enumerate(WORDS, start=1)}
    assert_averages(word_vectors(path, weights="sif"), SENTENCES, weight)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(The) man, runs!?", ["the", "man", "runs"]),
        ("A well-known dog", ["a", "well-known", "dog"]),
        ("a dog-man", ["a", "dog", "man"]),
        ("man/dog_known...", ["man", "dog", "known"]),
        ("don't", ["do", "n't"]),
        ("Don\u2019t.", ["do", "n't"]),
        ("do n't", ["do", "n't"]),
        ("the man 's dog's", ["the", "man", "'s", "dog", "'s"]),
        ("In the U.S., a man", ["the", "u.s.", "a", "man"]),
        ("The U.S. man", ["the", "u.s.", "man"]),
        ("man.", ["man"]),
        ("... -- !", []),
        ("", []),
    ],
)
def test_words_are_found(path: Path, text: str, found: list[str]) -> None:
    numbers, _ = word_vectors(path)[0].word_ids([text])
    assert [WORDS[number] for number in numbers] == found


def test_a_negation_without_a_vector_of_its_own_is_not(tmp_path: Path) -> None:
    words = [word for word in WORDS if word != "n't"]
    encoder = word_vectors(write_vectors(tmp_path / "v.txt", words))
    for text in ("don't", "do n't"):
        numbers, _ = encoder[0].word_ids([text])
        assert [words[number] for number in numbers] == ["do", "not"]


def test_case_counts_when_the_vectors_have_it(tmp_path: Path) -> None:
    words = ["The", "the", "man"]
    numbers, _ = word_vectors(write_vectors(tmp_path / "v.txt", words))[0].word_ids(["The Man the"])
    assert [words[number] for number in numbers] == ["The", "the"]


def test_marks_belong_to_their_letters(tmp_path: Path) -> None:
    words = ["\u0915\u0940", "\u0915"]  # the second is the first without its vowel sign
    numbers, _ = word_vectors(write_vectors(tmp_path / "v.txt", words))[0].word_ids(
        [words[0] + "!"]
    )
    assert numbers.tolist() == [0]


def test_memory_of_chunks_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CACHED", 3)
    encoder = word_vectors(path)
    assert_averages(encoder, SENTENCES * 2)
    assert len(encoder[0].cache) <= 3


def test_unknown_and_empty_texts_are_zero(path: Path) -> None:
    got = encode(word_vectors(path), ["man", "", "unheard", "\n"])
    assert not got[1:].any()
    assert got[0].any()
    assert not encode(word_vectors(path), ["", ""]).any()


def test_batches_change_nothing(path: Path) -> None:
    encoder = word_vectors(path, weights="sif")
    one = np.asarray(encoder.encode(SENTENCES, batch_size=1))
    np.testing.assert_array_equal(one, np.asarray(encoder.encode(SENTENCES, batch_size=8)))


def test_a_prompt_stands_before_the_text(path: Path) -> None:
    encoder = word_vectors(path)
    np.testing.assert_array_equal(
        np.asarray(encoder.encode(["dog"], prompt="the ")), encode(encoder, ["the dog"])
    )


def test_saved_and_loaded_it_is_the_same(path: Path, tmp_path: Path) -> None:
    encoder = word_vectors(path, weights="sif")
    encoder.save(str(tmp_path / "saved"), safe_serialization=False)
    loaded = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)
    texts = [*SENTENCES, "a well-known man", ""]
    np.testing.assert_array_equal(encode(loaded, texts), encode(encoder, texts))
    assert loaded.get_embedding_dimension() == 6
    names = {item.name for item in (tmp_path / "saved").rglob("*") if item.is_file()}
    assert not any(name.endswith((".bin", ".pkl", ".pt")) for name in names)
    (tmp_path / "saved" / "words.json").unlink()
    with pytest.raises(InputError, match=r"words\.json is missing"):
        SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)


def test_vectors_can_be_trained(path: Path) -> None:
    encoder = word_vectors(path)
    features = encoder.preprocess(["the man", ""])
    encoder(features)["sentence_embedding"].sum().backward()
    gradient = encoder[0].vectors.grad
    assert gradient[WORDS.index("man")].tolist() == [0.5] * 6
    assert not gradient[WORDS.index("dog")].any()


@pytest.mark.parametrize("header", ["", f"{len(WORDS)} 6\n"])
@pytest.mark.parametrize("name", ["vectors.txt", "vectors.vec.gz"])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n", "\n\n"])
def test_every_form_of_file(tmp_path: Path, header: str, name: str, end: str) -> None:
    words, vectors = read_vectors(write_vectors(tmp_path / name, WORDS, header=header, end=end))
    assert words == WORDS
    np.testing.assert_array_equal(vectors, vectors_of(WORDS).astype(np.float32))
    assert vectors.dtype == np.float32


def test_words_with_spaces_tabs_and_digits(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("7 1 2\n. . . 3 4\nat name@x.org 5 6\ntab\t7\t8\n\u00a0 9 1e1\n", "utf-8")
    words, vectors = read_vectors(path)
    assert words == ["7", ". . .", "at name@x.org", "tab", "\u00a0"]
    assert vectors.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]


def test_many_blocks_grow_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_LINES_AT_ONCE", 3)
    words = [f"w{number}" for number in range(50)]
    path = write_vectors(tmp_path / "v.txt", [*words[:20], *words], header="70 6\n")
    got, vectors = read_vectors(path)
    assert got == words
    rows = vectors_of([*words[:20], *words])
    np.testing.assert_array_equal(vectors, rows[[*range(20), *range(40, 70)]].astype(np.float32))


def test_the_first_of_two_words_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "v.txt"
    path.write_text("a 1 2\nb 3 4\na 5 6\n")
    with caplog.at_level(logging.WARNING):
        words, vectors = read_vectors(path)
    assert words == ["a", "b"]
    assert vectors.tolist() == [[1, 2], [3, 4]]
    assert "1 words stand there again" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"v\.txt: the file is empty"),
        ("\n \n", r"v\.txt: the file is empty"),
        ("a 1 2\nb 3\n", r"v\.txt:2: 1 values, not 2"),
        ("a 1 2\nb 3 4 5\n", r"v\.txt:2: 3 values, not 2"),
        ("a 1 2\n 3 4\n", r"v\.txt:2: no word stands before the values"),
        ("a 1 2\nb 3 x\n", r"v\.txt:2: 'x' is no finite number"),
        ("a 1 2\nb 3 1.5-2\n", r"v\.txt:2: '1\.5-2' is no finite number"),
        ("a 1 2\nb nan 4\n", r"v\.txt:2: 'nan' is no finite number"),
        ("a 1 2\nb 3 -inf\n", r"v\.txt:2: '-inf' is no finite number"),
        ("a 1 2\nb 3 1e50\n", r"v\.txt:2: '1e50' is no finite number"),
        ("just some words\n", r"v\.txt:1: 'just some words' is no word with its numbers"),
        ("3 2\na 1 2\nb 3 4\n", r"v\.txt:1: the first line promises 3 words, 2 are there"),
        ("0 2\n", r"v\.txt:1: the first line promises 0 words"),
        ("2 3\na 1 2\nb 3 4\n", r"v\.txt:2: 2 values, not 3"),
        ("a 1 2\nb\0 3 4\n", r"v\.txt:2: NUL byte"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        word_vectors(tmp_path / "v.txt")
    assert "\n" not in str(error.value)


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.txt: no such file"):
        word_vectors(tmp_path / "none.txt")
    with pytest.raises(InputError, match="no such file"):
        word_vectors(tmp_path)
    cut = write_vectors(tmp_path / "v.txt.gz", WORDS)
    cut.write_bytes(cut.read_bytes()[:-30])
    with pytest.raises(InputError, match="cut short"):
        word_vectors(cut)
    (tmp_path / "b.txt").write_bytes(bytes(range(128, 256)))
    with pytest.raises(InputError, match=r"b\.txt:1: .* is not UTF-8"):
        word_vectors(tmp_path / "b.txt")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"weights": "tfidf"}, "'tfidf' is unknown"),
        ({"sentences": ["a"]}, "leave sentences out"),
        ({"weights": "sif", "sentences": ["a"]}, "leave sentences out"),
        ({"weights": "idf"}, "give sentences"),
        ({"weights": "idf", "sentences": "one text"}, "one text"),
        ({"weights": "idf", "sentences": []}, "no sentences"),
        ({"weights": "idf", "sentences": ["a", 3]}, "holds a int"),
    ],
)
def test_wrong_arguments_are_named(path: Path, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        word_vectors(path, **asked)

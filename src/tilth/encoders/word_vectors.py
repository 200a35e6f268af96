"""Provides averaged word vectors as a sentence encoder without training."""

from __future__ import annotations

import json
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.input_module import InputModule
from torch import Tensor
from torch.nn.functional import embedding_bag

from tilth.encoders.vector_files import read_vectors
from tilth.errors import InputError

_TEXTS_AT_ONCE = 10_000
_SIF_A = 1e-3  # the paper's
_CACHED = 1_000_000  # chunks; natural text repeats few of its chunks often
_ENDINGS = ("n't", "'s", "'re", "'ve", "'ll", "'d", "'m")
_HUB = ("token", "cache_folder", "revision", "local_files_only")

# Ids of the known words of all texts, (words,), and where each text's begin, (texts,).
WordIds = tuple[NDArray[np.int64], NDArray[np.int64]]


def word_vectors(
    path: str | Path,
    *,
    weights: Literal["idf", "sif"] | None = None,
    sentences: Iterable[str] | None = None,
) -> SentenceTransformer:
    r"""Make an encoder that averages word vectors: the weighted sum over the number of known words.

    Dividing by that number, not by the sum of the weights, is the average of Arora et al.; the
    cosine is the same. A text without a known word has the zero vector. sentence-transformers
    loads a saved encoder only under `trust_remote_code=True`, though the folder holds no code.

    Args:
        path: a text file of word vectors, `word v1 ... vn` in each line, plain or .gz; a first
            line `words dimensions` (word2vec, fastText) is allowed.
        weights: of a word: None 1; `idf` log((1 + N) / (1 + sentences with it)) + 1; `sif`
            a / (a + p), with p the word's probability by Zipf's law from its rank in `path`: right
            for files sorted by frequency, as GloVe's are.
        sentences: texts in which words are counted for `idf`.

    Reference:
        Arora, Liang and Ma 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings"
        (sif, a = 1e-3; their removal of the first principal component is not done).

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "vectors.txt"
        >>> _ = path.write_text("a 1 0\nman 0 4\n")
        >>> word_vectors(path).encode(["A man.", ""]).tolist()
        [[0.5, 2.0], [0.0, 0.0]]
    """
    if weights not in (None, "idf", "sif"):
        raise InputError(f"weights {weights!r} is unknown: use idf, sif or None")
    if weights == "idf" and sentences is None:
        raise InputError("weights 'idf' counts sentences: give sentences")
    if weights != "idf" and sentences is not None:
        raise InputError("only weights 'idf' counts sentences: leave sentences out")
    module = WordVectors(*read_vectors(path))
    if sentences is not None:
        texts_with, texts = module.document_frequencies(sentences)
        module.set_weights(np.log((1 + texts) / (1 + texts_with)) + 1)  # as scikit-learn smooths it
    elif weights == "sif":
        p = 1 / np.arange(1, len(module.words) + 1)  # Zipf's law
        module.set_weights(_SIF_A / (_SIF_A + p / p.sum()))
    return SentenceTransformer(modules=[module])


class WordVectors(InputModule):
    """Module that maps texts to (weighted) averages of their known words' vectors.

    A text is split at white space and stripped of punctuation; each chunk is looked up whole
    (`well-known`), then with its full stop (`u.s.`), then in parts (`well`, `known`; `do`, `n't`).
    Texts are lower-cased if no word of the vectors has an upper-case letter.

    Args:
        words: each once, in the order of the vectors.
        vectors: float32. # (words, width)
        weights: of each word; None: 1. # (words,)
        per_dimension: divide each dimension by its norm over the text's words (uSIF), unless 0.
    """

    config_file_name = "word_vectors.json"
    config_keys = ["per_dimension"]  # noqa: RUF012 (as declared by the base class)

    def __init__(
        self,
        words: Sequence[str],
        vectors: NDArray[np.float32] | Tensor,
        weights: NDArray[np.float32] | Tensor | None = None,
        *,
        per_dimension: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.words = list(words)
        self.vectors = torch.nn.Parameter(torch.as_tensor(vectors))
        self.weights: Tensor
        self.register_buffer(
            "weights", torch.ones(len(words)) if weights is None else torch.as_tensor(weights)
        )
        self.per_dimension = per_dimension
        self.cache = _WordCache(self.words)

    def get_embedding_dimension(self) -> int:
        """Return the width of the vectors."""
        return self.vectors.shape[1]

    def set_weights(self, weights: NDArray[np.float64]) -> None:
        """Set the weight of each word."""
        self.weights.copy_(torch.from_numpy(weights))  # (words,)

    def word_ids(self, texts: Iterable[str]) -> WordIds:
        """Return the ids of the known words of texts."""
        cache, ids, starts = self.cache, array("q"), array("q")
        for text in texts:
            starts.append(len(ids))
            for chunk in text.split():
                ids.extend(cache[chunk])
        return np.array(ids, np.int64), np.array(starts, np.int64)

    def id_blocks(self, sentences: Iterable[str]) -> Iterator[WordIds]:
        """Yield the word ids of many sentences, some thousands at once."""
        if isinstance(sentences, str):
            raise InputError("sentences is one text: give a list of texts")
        rest = iter(sentences)
        block = list(islice(rest, _TEXTS_AT_ONCE))
        if not block:
            raise InputError("there are no sentences: give at least one")
        while block:
            for sentence in block:
                if not isinstance(sentence, str):
                    raise InputError(
                        f"sentences holds a {type(sentence).__name__}, no text: give texts alone"
                    )
            yield self.word_ids(block)
            block = list(islice(rest, _TEXTS_AT_ONCE))

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Any]:
        """Return word ids of texts, (words of all texts,), and offsets, (texts,)."""
        ids, starts = self.word_ids([prompt + text for text in inputs] if prompt else inputs)
        return {"input_ids": torch.from_numpy(ids), "offsets": torch.from_numpy(starts)}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add `sentence_embedding`, (texts, width)."""
        ids, starts = features["input_ids"], features["offsets"]
        sums = embedding_bag(
            ids, self.vectors, starts, mode="sum", per_sample_weights=self.weights[ids]
        )  # (texts, width)
        if self.per_dimension:
            order = torch.arange(len(ids), device=ids.device)
            squares = embedding_bag(order, self.vectors[ids].square(), starts, mode="sum")
            sums = sums / squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
        known = torch.diff(starts, append=starts.new_tensor([len(ids)]))  # (texts,)
        features["sentence_embedding"] = sums / known.clamp_min(1)[:, None]  # (texts, width)
        return features

    def count(self, blocks: Iterable[WordIds]) -> NDArray[np.int64]:
        """Return how often each word occurs in sentences, from `id_blocks`, (words,)."""
        counts = np.zeros(len(self.words), np.int64)
        for ids, _ in blocks:
            counts += np.bincount(ids, minlength=len(counts))
        if not counts.any():
            raise InputError("no word of the sentences has a vector: give others, or other vectors")
        return counts

    def document_frequencies(self, sentences: Iterable[str]) -> tuple[NDArray[np.int64], int]:
        """Return the number of sentences with each word, (words,), and of all sentences."""
        counts, texts = np.zeros(len(self.words), np.int64), 0
        for ids, starts in self.id_blocks(sentences):
            text = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(ids)))
            pairs = np.unique(text * len(counts) + ids)
            counts += np.bincount(pairs % len(counts), minlength=len(counts))
            texts += len(starts)
        return counts, texts

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write vectors and weights as safetensors, words and settings as JSON; never a pickle."""
        self.save_config(output_path)
        self.save_torch_weights(output_path)
        with open(Path(output_path, "words.json"), "w", encoding="utf-8") as file:
            json.dump(self.words, file, ensure_ascii=False)

    @classmethod
    def load(
        cls, model_name_or_path: str, subfolder: str = "", *_: Any, **kwargs: Any
    ) -> WordVectors:
        """Read what `save` wrote, from a folder or the hub."""
        where = {"subfolder": subfolder} | {key: kwargs[key] for key in _HUB if key in kwargs}
        path = cls.load_file_path(model_name_or_path, "words.json", **where)
        if path is None:
            raise InputError(f"{model_name_or_path}: words.json is missing: save the encoder again")
        words = json.loads(Path(path).read_text(encoding="utf-8"))
        tensors = cls.load_torch_weights(model_name_or_path, **where)
        if len(words) != len(tensors["vectors"]):
            raise InputError(
                f"{path}: it names {len(words)} words, the encoder has vectors of "
                f"{len(tensors['vectors'])}: save the encoder again"
            )
        config = cls.load_config(model_name_or_path, **where)
        return cls(words, tensors["vectors"], tensors["weights"], **config)


class _WordCache(dict[str, tuple[int, ...]]):
    """Cached word ids of each chunk between white space."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self.row = {word: row for row, word in enumerate(words)}
        self.lower = all(word == word.lower() for word in words)

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        if len(self) >= _CACHED:
            self.clear()
        found = self[chunk] = self._look_up(chunk)
        return found

    def _look_up(self, chunk: str) -> tuple[int, ...]:
        plain = (chunk.lower() if self.lower else chunk).replace("\u2019", "'")
        inner = [place for place, char in enumerate(plain) if _in_word(char)]
        if not inner:
            return ()
        # Tokenised text has separate endings: `do n't`, `man 's`.
        core = plain if plain in _ENDINGS else plain[inner[0] : inner[-1] + 1]
        for whole in (core, core + "." if plain[inner[-1] + 1 :].startswith(".") else core):
            if whole in self.row:
                return (self.row[whole],)
        parts = self._parts(core)
        return tuple(self.row[part] for part in parts if part in self.row)

    def _parts(self, core: str) -> list[str]:
        for ending in _ENDINGS:
            if core.endswith(ending):
                # Vectors trained on text that was not split like this lack `n't`.
                last = "not" if ending == "n't" and ending not in self.row else ending
                first = core[: -len(ending)]
                return [*([first] if first in self.row else self._parts(first)), last]
        return "".join(char if _in_word(char) else " " for char in core).split()


def _in_word(char: str) -> bool:
    # Vowel signs and accents of their own are marks, neither letters nor punctuation.
    return char.isalnum() or unicodedata.category(char).startswith("M")

"""uSIF: word vectors weighted by smoothed inverse frequency, without their common components."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense

from tilth.encoders.vector_files import read_vectors
from tilth.encoders.word_vectors import WordIds, WordVectors
from tilth.errors import InputError


def usif(
    path: str | Path,
    *,
    sentences: Iterable[str],
    components: int = 5,
    walk: int = 11,
) -> SentenceTransformer:
    r"""Make an encoder of unsupervised smoothed inverse frequency.

    The common components are fitted once, on `sentences`; the authors fit them on the sentences
    they embed, so give sentences of that kind. A text without a known word has the zero vector
    (the authors': a in every dimension) and does not enter the fit.

    Args:
        path: word vectors, as in `word_vectors`.
        sentences: texts to fit the components on and to count words in. A word that they lack
            has the probability of the rarest.
        components: number of components to remove, 0 to the width of the vectors.
        walk: assumed words of a sentence, from 1.

    Reference:
        Ethayarajh 2018, "Unsupervised Random Walk Sentence Embeddings: A Strong but Simple
        Baseline" (W18-3012; walk 11 and 5 components), and the author's code. Words are split as
        in `word_vectors`: hyphenated ones are looked up whole first.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "vectors.txt"
        >>> _ = path.write_text("a 1 0\nman 0 4\n")
        >>> encoder = usif(path, sentences=["a a a man"], components=1, walk=1)
        >>> encoder.encode(["", "man"]).shape
        (2, 2)
    """
    if isinstance(walk, bool) or not isinstance(walk, int) or walk < 1:
        raise InputError(f"walk is {walk!r}: give a whole number from 1")
    words, vectors = read_vectors(path)
    width = vectors.shape[1]
    whole = isinstance(components, int) and not isinstance(components, bool)
    if not whole or not 0 <= components <= width:
        raise InputError(f"components is {components!r}: give a whole number from 0 to {width}")
    module = WordVectors(words, vectors, per_dimension=True)
    blocks = list(module.id_blocks(sentences))
    counts = module.count(blocks)
    p = np.maximum(counts, counts[counts > 0].min()) / counts.sum()  # (words,)
    module.set_weights(usif_weights(p, p[counts > 0], walk))
    modules: list[torch.nn.Module] = [module]
    if components:
        modules.append(_removal(_gram(module, blocks), components))
    return SentenceTransformer(modules=modules)


def usif_weights(
    p: NDArray[np.float64], counted: NDArray[np.float64], walk: int
) -> NDArray[np.float64]:
    """Return a / (a / 2 + p), a from the share of words likelier than chance in a sentence.

    `p` holds the probabilities of the words to weigh, `counted` those of all words counted.
    """
    total = len(counted)
    threshold = 1 - (1 - 1 / total) ** walk
    alpha = float(np.mean(counted > threshold))
    if not alpha:
        raise InputError(
            f"no word has a probability above {threshold:.3g}, which walk {walk} asks for among "
            f"{total} words: count the words of more text, or give a shorter walk"
        )
    a = (1 - alpha) / (alpha * total / 2)
    return a / (a / 2 + p)  # (words,)


def _gram(module: WordVectors, blocks: list[WordIds]) -> NDArray[np.float64]:
    """Return the sum of the outer products of all sentence vectors."""
    width = module.get_embedding_dimension()
    gram = np.zeros((width, width))
    for ids, starts in blocks:
        features = {"input_ids": torch.from_numpy(ids), "offsets": torch.from_numpy(starts)}
        with torch.no_grad():
            vectors = module(features)["sentence_embedding"].double().numpy()  # (texts, width)
        gram += vectors.T @ vectors  # (width, width)
    return gram


def _removal(gram: NDArray[np.float64], components: int) -> Dense:
    """Return the layer that removes the leading components, each by its share of their variance."""
    variance, directions = np.linalg.eigh(gram)  # (width,), (width, width): ascending, in columns
    variance, directions = variance[-components:].clip(0), directions[:, -components:]
    share = variance / variance.sum()  # (components,): lambda
    kept = np.eye(len(gram)) - (directions * share) @ directions.T  # (width, width)
    return Dense(
        len(gram), len(gram), bias=False, activation_function=None,
        init_weight=torch.from_numpy(kept).float(),
    )  # fmt: skip

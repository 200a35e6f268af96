"""Stage 1 of the starter encoder: its tokenizer, its tokenised text, and first word vectors.

    python -m starter.training.mlm.data --data ../shared/data --work /tmp/mlm-work

reads the corpora that may be shipped, writes `tokenizer/` (lower-cased WordPiece), `tokens.npy`
with `offsets.npy` (segments of at most 62 tokens), and `vectors.npy`: for every token the leading
singular vectors of the positive mutual information of tokens that stand near each other (Levy and
Goldberg 2014). They are where the masked language model's embeddings begin. No similarity label,
no pair of sentences and no other model enters anywhere.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from starter.training.lm.sentences import DEFAULT_DATA, read_lines, read_rows, tidy, untokenise
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

ENTRIES, WIDTH = 12_032, 256
LENGTH = 62  # tokens of a segment, without [CLS] and [SEP]
WINDOW = 4  # tokens on either side that count as near
BANK = ("wikipedia", "wikinews", "novels", "dialogue-turns", "biomedical", "wiki-questions-mix")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def texts(data: Path) -> Iterator[str]:
    """Yield every paragraph, turn or sentence of the corpora once."""
    for source in BANK:
        for line in read_lines(data / "bank" / f"{source}.txt.gz"):
            text = tidy(untokenise(line) if source == "biomedical" else line)
            if text.count(" ") >= 2:
                yield text
    for row in read_rows(data / "parallel/tatoeba/train.jsonl.gz"):
        yield tidy(row["en"])
    for row in read_rows(data / "classify/clinc150/train.jsonl.gz"):
        yield tidy(row["text"])
    for row in read_rows(data / "nli/cad/train.jsonl.gz"):
        yield tidy(row["premise"])
        yield tidy(row["hypothesis"])


def train_tokenizer(sample: list[str], folder: Path) -> PreTrainedTokenizerFast:
    """Train a lower-cased WordPiece tokenizer and write it to a folder."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        sample,
        trainers.WordPieceTrainer(
            vocab_size=ENTRIES, special_tokens=SPECIAL, limit_alphabet=300, show_progress=False
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=512, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.save_pretrained(folder)
    return fast


def segments(lines: list[str], tokenizer: PreTrainedTokenizerFast) -> tuple[np.ndarray, np.ndarray]:
    """Return all tokens and where segments begin; a paragraph is cut into even pieces."""
    flat: list[np.ndarray] = []
    lengths: list[int] = []
    for start in range(0, len(lines), 20_000):
        batch = tokenizer(lines[start : start + 20_000], add_special_tokens=False)["input_ids"]
        for ids in batch:
            if len(ids) < 3:
                continue
            pieces = np.array_split(np.array(ids, dtype=np.uint16), -(-len(ids) // LENGTH))
            flat.extend(pieces)
            lengths.extend(map(len, pieces))
    return np.concatenate(flat), np.cumsum([0, *lengths])


def first_vectors(tokens: np.ndarray, offsets: np.ndarray, entries: int) -> np.ndarray:
    """Return (entries, WIDTH) float32 vectors from the tokens' neighbourhoods."""
    counts = np.zeros(entries * entries, dtype=np.float32)
    segment = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    for distance in range(1, WINDOW + 1):
        same = segment[:-distance] == segment[distance:]
        left, right = tokens[:-distance][same], tokens[distance:][same]
        for start in range(0, len(left), 20_000_000):
            cells = left[start : start + 20_000_000].astype(np.int64) * entries
            cells += right[start : start + 20_000_000]
            found, times = np.unique(cells, return_counts=True)
            counts[found] += times * ((WINDOW + 1 - distance) / WINDOW)
    near = torch.from_numpy(counts.reshape(entries, entries))
    near += near.T.clone()
    row = near.sum(1).clamp(min=1e-9)
    context = row**0.75
    information = near.clamp(min=1e-12).log_() - row.log()[:, None]
    information -= (context / context.sum()).log()[None, :]
    information.clamp_(min=0.0)
    torch.manual_seed(0)
    left, values, _ = torch.svd_lowrank(information, q=WIDTH + 32, niter=4)
    vectors = left[:, :WIDTH] * values[:WIDTH].sqrt()
    vectors -= vectors.mean(0)
    return (vectors / vectors.std() * 0.05).numpy().astype(np.float32)


def main() -> None:
    """Write the three files; what is there already is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=Path("/tmp/mlm-work"))
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    began = time.time()

    lines = list(dict.fromkeys(texts(arguments.data)))
    random.Random(0).shuffle(lines)
    print(f"{len(lines)} texts, {time.time() - began:.0f} s", flush=True)
    tokenizer = train_tokenizer(lines[: len(lines) // 2], work / "tokenizer")
    print(f"{len(tokenizer)} entries, {time.time() - began:.0f} s", flush=True)
    tokens, offsets = segments(lines, tokenizer)
    np.save(work / "tokens.npy", tokens)
    np.save(work / "offsets.npy", offsets)
    unknown = float((tokens == 1).mean())
    print(f"{len(tokens)} tokens, {unknown:.4%} unknown, {time.time() - began:.0f} s", flush=True)
    np.save(work / "vectors.npy", first_vectors(tokens, offsets, len(tokenizer)))
    (work / "counts.json").write_text(json.dumps({"texts": len(lines), "tokens": len(tokens)}))
    print(f"vectors, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

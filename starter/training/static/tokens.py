"""Stage 2 of the starter static encoder: its tokenizer, its tokens, and what its vectors begin as.

    python -m starter.training.static.tokens --work /tmp/static-work

writes `tokenizer.json` (lower-cased WordPiece: of the teacher's entries and the whole words that it
cuts up, those that the texts use most), `tokens.npy` with `offsets.npy`, and `entries.npy`: the
teacher's vector of every entry read by itself (float16, as in static_data.py).
"""

from __future__ import annotations

import argparse
import re
import time
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from starter.training.static.data import DEFAULT_WORK, Teacher
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from tilth.models.token_cache import TokenCache

ENTRIES = 22_000
FEWEST = 20  # times a character must be used for an entry of its own
WORD = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """Return the words of a text, lower-cased, without accents."""
    lowered = text.lower()
    if not lowered.isascii():
        parts = unicodedata.normalize("NFD", lowered)
        lowered = "".join(char for char in parts if unicodedata.category(char) != "Mn")
    return WORD.findall(lowered)


def choose_entries(counts: Counter[str], teacher: Teacher) -> list[str]:
    """Return the entries most used, in that order, after [UNK]."""
    known = set(teacher.tokenizer.get_vocab())
    used: Counter[str] = Counter()
    kinds = list(counts)
    encoded = teacher.tokenizer(kinds, add_special_tokens=False)["input_ids"]
    for word, ids in zip(kinds, encoded, strict=True):
        pieces = teacher.tokenizer.convert_ids_to_tokens(ids)
        used.update(dict.fromkeys(pieces, 0))
        for piece in pieces:
            used[piece] += counts[word]
        if word not in known and word.isalpha():
            used[word] += counts[word]
    del used["[UNK]"]
    # Single characters keep rare words from being unknown as a whole.
    letters = [
        entry for entry, count in used.items()
        if len(entry.removeprefix("##")) == 1 and count >= FEWEST
    ]  # fmt: skip
    letters += [begin + char for begin in ("", "##") for char in "abcdefghijklmnopqrstuvwxyz"]
    chosen = dict.fromkeys(letters)
    for entry, _ in sorted(used.items(), key=lambda item: (-item[1], item[0])):
        if len(chosen) == ENTRIES - 1:
            break
        chosen[entry] = None
    return ["[UNK]", *sorted(chosen, key=lambda entry: (-used[entry], entry))]


def make_tokenizer(entries: list[str]) -> Tokenizer:
    """Return the tokenizer: no added tokens, nothing put around a text."""
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def entry_vectors(entries: list[str], teacher: Teacher) -> np.ndarray:
    """Return the teacher's vectors of the entries, (entries, 384)."""
    known = teacher.tokenizer.get_vocab()
    begin, end = teacher.tokenizer.cls_token_id, teacher.tokenizer.sep_token_id
    ids = [
        [known[entry]]
        if entry in known
        else teacher.tokenizer(entry, add_special_tokens=False)["input_ids"]
        for entry in entries
    ]
    return teacher.encode_ids([[begin, *pieces, end] for pieces in ids])


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    work: Path = parser.parse_args().work
    began = time.time()
    texts = (work / "texts.txt").read_text(encoding="utf-8").split("\n")[:-1]
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(text))
    print(f"{len(counts)} words, {time.time() - began:.0f} s", flush=True)
    teacher = Teacher()
    entries = choose_entries(counts, teacher)
    added = len(set(entries) - set(teacher.tokenizer.get_vocab()))
    tokenizer = make_tokenizer(entries)
    tokenizer.save(str(work / "tokenizer.json"), pretty=False)
    array = pa.array(texts, pa.large_string())
    data = np.frombuffer(array.buffers()[2], np.uint8)
    bounds = np.frombuffer(array.buffers()[1], np.int64)
    ids, offsets = TokenCache(tokenizer).tokenize(data, bounds)
    np.save(work / "tokens.npy", ids.astype(np.uint16))
    np.save(work / "offsets.npy", offsets)
    print(
        f"{len(entries)} entries, {added} of them new; {len(ids)} tokens, "
        f"{(ids == 0).mean():.4%} unknown, {time.time() - began:.0f} s",
        flush=True,
    )
    np.save(work / "entries.npy", entry_vectors(entries, teacher))
    print(f"vectors, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

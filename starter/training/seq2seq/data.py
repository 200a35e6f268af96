"""Stage 1 of the starter translator and rewriter: tokenizer, tokenised pairs, first embeddings.

    python -m starter.training.seq2seq.data --data ../shared/data --work /tmp/s2s-work

writes `tokenizer/`, `embeddings.npy`, `sentences.txt` (English sentences of the shippable
corpora), `translate.npz` (both directions of Tatoeba's pairs, and damaged sentences to mend, which
teaches the words and the length that Tatoeba lacks) and `translate-dev.npz`.
"""

from __future__ import annotations

import argparse
import random
import zlib
from pathlib import Path

import numpy as np
from starter.training.lm.sentences import DEFAULT_DATA, read_lines, read_rows, segment, untokenise
from starter.training.seq2seq.mix import save
from starter.training.seq2seq.model import TO_ENGLISH, TO_GERMAN, embeddings, train_tokenizer
from starter.training.static.data import is_text

DEFAULT_WORK = Path("/tmp/s2s-work")
# Sentences kept of each source, and of one of its documents.
QUOTA = {
    "wikipedia": (110_000, 2),
    "wikinews": (70_000, 6),
    "dialogue-turns": (60_000, 3),
    "novels": (50_000, 3),
    "biomedical": (10_000, 1),
}
MENDED = 30_000  # sentences to mend in the translators' mix
HELD_OUT = 1000  # pairs for the loss on unseen text
LONGEST = 100  # tokens


def held_out(sentence: str) -> bool:
    """Tell whether a sentence of the corpora is kept from all training, to measure on: a tenth."""
    return zlib.crc32(sentence.encode()) % 10 == 0


def sentences(data: Path, path: Path) -> list[str]:
    """Return sentences of the corpora that training may use, written to a file once."""
    if not path.exists():
        found = []
        for source, (quota, each) in QUOTA.items():
            documents = list(read_lines(data / "bank" / f"{source}.txt.gz"))
            rng = random.Random(source)
            rng.shuffle(documents)
            for document in documents:
                text = untokenise(document) if source == "biomedical" else document
                text = " ".join(text.replace("_", "").split())
                usable = [s for s in segment(text) if is_text(s) and 3 < s.count(" ") < 36]
                chosen = rng.sample(usable, min(each, len(usable), quota))
                quota -= len(chosen)
                found.extend(s for s in chosen if not held_out(s))
                if not quota:
                    break
        found = sorted(set(found))
        random.Random(0).shuffle(found)
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").splitlines()


def damaged(sentence: str, rng: random.Random) -> str:
    """Return a sentence with words dropped, moved by a few places and doubled."""
    words = sentence.split()
    places = sorted(range(len(words)), key=lambda i: i + rng.random() * 3.0)
    words = [words[i] for i in places if rng.random() > 0.12]
    return " ".join(words) or sentence


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    rows = list(read_rows(arguments.data / "parallel/tatoeba/train.jsonl.gz"))
    rng.shuffle(rows)
    dev, rows = rows[:HELD_OUT], rows[HELD_OUT:]
    english = sentences(arguments.data, work / "sentences.txt")
    texts = [row[side] for row in rows for side in ("en", "de")]
    tokenizer = train_tokenizer([*texts, *english[:120_000]], work / "tokenizer")
    to = {
        side: tokenizer.convert_tokens_to_ids(tag)
        for side, tag in (("en", TO_ENGLISH), ("de", TO_GERMAN))
    }

    def ids(found: list[str]) -> list[list[int]]:
        return tokenizer(found, truncation=True, max_length=LONGEST)["input_ids"]

    for name, chosen in (("translate-dev", dev), ("translate", rows)):
        pairs = []
        tokens = {side: ids([row[side] for row in chosen]) for side in ("en", "de")}
        for e, g in zip(tokens["en"], tokens["de"], strict=True):
            pairs += [([to["de"], *e], g), ([to["en"], *g], e)]
        if name == "translate":
            sides = [
                [np.array(t[:-1], dtype=np.int32) for t in tokens[side]] for side in ("en", "de")
            ]
            np.save(work / "embeddings.npy", embeddings(tokenizer, *sides).numpy())
            whole = english[:MENDED]
            broken = ids([damaged(sentence, rng) for sentence in whole])
            pairs += [
                ([to["en"], *b], w) for b, w in zip(broken, ids(whole), strict=True)
            ]  # fmt: skip
        save(work / f"{name}.npz", pairs)
        print(name, len(pairs), "pairs", sum(len(a) + len(b) for a, b in pairs), "tokens")


if __name__ == "__main__":
    main()

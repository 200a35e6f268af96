"""Stage 3 of the starter rewriter: drafts scored, filtered and drawn evenly, then tokenised.

    python -m starter.training.seq2seq.rewrite_data --work /tmp/s2s-work

makes the corpus as `tilth paraphrase corpus` does, from all files in `drafts/`, and writes
`rewrite.npz` and `rewrite-dev.npz`, pairs with their tags as `train.py` reads them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

from starter.training.seq2seq.data import DEFAULT_WORK
from starter.training.seq2seq.mix import save
from transformers import AutoTokenizer

from tilth.paraphrase.corpus import make_corpus
from tilth.paraphrase.settings import CorpusSettings
from tilth.paraphrase.similarity import wording
from tilth.paraphrase.tags import MOST_WORDING

LONGEST = 100  # tokens
FULL_CELL = 2000  # pairs; cells with fewer are repeated


def gathered(work: Path) -> Path:
    """Put the drafts into one file, those that are too alike in wording to be kept left out."""
    path = work / "drafts.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for drafts in sorted((work / "drafts").glob("*.jsonl")):
            rows = [json.loads(line) for line in drafts.read_text(encoding="utf-8").splitlines()]
            alike = wording([row["text_a"] for row in rows], [row["text_b"] for row in rows])
            kept = [
                row
                for row, score in zip(rows, alike, strict=True)
                if score <= MOST_WORDING and not stutters(row["text_b"])
            ]
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in kept)
            print(f"{drafts.name}: {len(kept)} of {len(rows)}", flush=True)
    return path


def stutters(text: str) -> bool:
    """Tell whether a text says two words in a row twice, or one word twice at once."""
    words = text.lower().split()
    twos = list(pairwise(words))
    return len(set(twos)) < len(twos) or any(one == other for one, other in twos)


def repeats(tags: list[str]) -> list[int]:
    """Return how often a pass learns from each pair, 1 to 6: more where its cell is small."""
    counts = Counter(tags)
    return [min(6, max(1, round((FULL_CELL / counts[tag]) ** 0.7))) for tag in tags]


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--size", type=int, default=200_000, help="pairs to train on")
    arguments = parser.parse_args()
    work: Path = arguments.work
    corpus = make_corpus(
        gathered(work),
        work / "corpus",
        CorpusSettings(size=arguments.size, validation=1350, test=1350),
        quiet=True,
    )
    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    for split, name in (("train", "rewrite"), ("validation", "rewrite-dev")):
        rows = corpus[split]
        sides = [
            tokenizer(texts, truncation=True, max_length=LONGEST)["input_ids"]
            for texts in (
                [f"{a} {b}" for a, b in zip(rows["tags"], rows["text_a"], strict=True)],
                list(rows["text_b"]),
            )
        ]
        pairs = list(zip(*sides, strict=True))
        if split == "train":
            times = repeats(list(rows["tags"]))
            pairs = [pair for pair, often in zip(pairs, times, strict=True) for _ in range(often)]
        save(work / f"{name}.npz", pairs)
        print(name, len(pairs), "pairs", sum(len(a) + len(b) for a, b in pairs), "tokens")


if __name__ == "__main__":
    main()

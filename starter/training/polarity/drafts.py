"""Write rewrites by the starter rewriter, of which the polarity check learns what it will meet.

    python -m starter.training.polarity.drafts --data ../shared/data --work /tmp/polarity-work

Writes `drafts.jsonl` (text_a, text_b, meaning, wording): three of each sentence where as many are
found, at four cells in turn. Ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

import torch
from starter.training.lm.sentences import DEFAULT_DATA, read_lines, read_rows, segment, tidy

from tilth.paraphrase.rewriter import load_paraphraser
from tilth.paraphrase.settings import RewriteSettings

CELLS = ((95, 5), (95, 20), (95, 40), (85, 20))  # meaning, wording
NEGATED, PLAIN = 600, 700  # sentences of Tatoeba with a negation, and of all
QUOTA = {"dialogue-turns": 500, "wikipedia": 500, "novels": 300}
LEAST, MOST = 5, 24  # words of a sentence
TEXTS_AT_ONCE = 128


def _sentences(data: Path, source: str, quota: int, rng: random.Random) -> list[str]:
    found: list[str] = []
    for line in read_lines(data / "bank" / f"{source}.txt.gz"):
        if rng.random() < 0.05:
            some = (tidy(sentence) for sentence in segment(line.strip()))
            found += [s for s in some if LEAST <= len(s.split()) <= MOST and s[-1] in ".!?"]
        if len(found) > quota * 4:
            break
    return rng.sample(found, quota)


def main() -> None:
    """Write the drafts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=Path("/tmp/polarity-work"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(5)
    english = {row["en"] for row in read_rows(arguments.data / "parallel/tatoeba/train.jsonl.gz")}
    plain = sorted(text for text in english if LEAST - 1 <= len(text.split()) <= MOST)
    negated = [t for t in plain if re.search(r"\b(not|never|no|nobody|nothing|without)\b|n't", t)]
    texts = rng.sample(negated, NEGATED) + rng.sample(plain, PLAIN)
    for source, quota in QUOTA.items():
        texts += _sentences(arguments.data, source, quota, rng)
    rng.shuffle(texts)
    rewriter = load_paraphraser("starter", polarity=False)
    arguments.work.mkdir(parents=True, exist_ok=True)
    with (arguments.work / "drafts.jsonl").open("w", encoding="utf-8") as file:
        for number, start in enumerate(range(0, len(texts), TEXTS_AT_ONCE)):
            some = texts[start : start + TEXTS_AT_ONCE]
            meaning, wording = CELLS[number % len(CELLS)]
            asked = RewriteSettings(meaning, wording, min_meaning=50, n=3, seed=number)
            for text, found in zip(some, rewriter.rewrites(some, asked), strict=True):
                for one in found:
                    if one.problem is None:
                        row = {
                            "text_a": text, "text_b": one.text, "meaning": one.meaning,
                            "wording": one.wording,
                        }  # fmt: skip
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

"""Stage 2 of the starter rewriter: sentence pairs that may be paraphrases, from several makers.

    drafts='python -m starter.training.seq2seq.rewrite_drafts'
    $drafts rules        --data ../shared/data --work /tmp/s2s-work
    $drafts cotranslated --data ../shared/data --work /tmp/s2s-work
    $drafts neighbours   --work /tmp/s2s-work --vectors /tmp/static-work
    $drafts translated   --data ../shared/data --work /tmp/s2s-work
    $drafts round-trips  --work /tmp/s2s-work

Each writes `drafts/MAKER.jsonl` (text_a, text_b); `translated` and `round-trips` need the trained
translator. Nothing is checked for meaning here: `rewrite_data.py` scores all and keeps the good.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import sacrebleu
from starter.training.lm.changes import negate, opposite, other_name, other_number
from starter.training.lm.rewrites import rewrite
from starter.training.lm.sentences import DEFAULT_DATA, read_rows
from starter.training.lm.wordings import Fluency
from starter.training.seq2seq.data import DEFAULT_WORK, held_out

from tilth.models import load_seq2seq
from tilth.paraphrase.search import BeamSearch, decode

SOURCES = 190_000  # sentences that the rules rewrite
CHANGED = 0.12  # share of their rewrites with a changed fact, for the lower meanings
NEAREST = 40_000  # pairs of neighbours
TRANSLATED, TRIPPED = 60_000, 50_000  # sentences that the translator rewrites
SETTINGS = ((20, 3.0), (30, 2.0), (10, 1.3))
AT_ONCE = 2048  # sentences
MOST_WORDING = 45.0
BLEU = sacrebleu.BLEU(lowercase=True, effective_order=True)

Pairs = Iterator[tuple[str, str]]


def sources(work: Path) -> list[str]:
    """Return the bank's sentences that training may use."""
    return (work / "sentences.txt").read_text(encoding="utf-8").splitlines()


def rules(arguments: argparse.Namespace) -> Pairs:
    """Yield, of a few rewrites of each sentence, the most changed and a less changed one."""
    rng = random.Random(1)
    texts = sources(arguments.work)
    tatoeba = [row["en"] for row in read_rows(arguments.data / "parallel/tatoeba/train.jsonl.gz")]
    fluency = Fluency(texts[:150_000])
    chosen = texts[: int(SOURCES * 0.8)] + rng.sample(tatoeba, int(SOURCES * 0.2))
    for text in chosen:
        text = text.strip()
        words = len(text.split())
        if not 5 <= words <= 26:
            continue
        found = set()
        for _ in range(4):
            draft = text
            for _ in range(rng.choice((1, 1, 2, 3))):
                draft, _edits = rewrite(draft, rng, rng.choice((0.6, 1.0, 1.0)), fluency)
            if rng.random() < CHANGED:
                change = rng.choice((negate, opposite, other_number, other_name))
                draft = change(draft, rng) or draft
            if len(draft.split()) >= 0.6 * words:
                found.add(draft)
        graded = sorted((BLEU.sentence_score(draft, [text]).score, draft) for draft in found)
        usable = [draft for wording, draft in graded if wording <= MOST_WORDING]
        yield from ((text, draft) for draft in dict.fromkeys(usable[:1] + usable[-1:]))


def cotranslated(arguments: argparse.Namespace) -> Pairs:
    """Yield English sentences that translate the same German one, in both orders."""
    english = defaultdict(set)
    for row in read_rows(arguments.data / "parallel/tatoeba/train.jsonl.gz"):
        english[row["de"]].add(row["en"])
    for found in english.values():
        if 1 < len(found) <= 5:
            yield from permutations(sorted(found), 2)


def neighbours(arguments: argparse.Namespace) -> Pairs:
    """Yield sentences whose vectors are near, from the static encoder's training files."""
    lines = (arguments.vectors / "texts.txt").read_text(encoding="utf-8").splitlines()
    parts = sorted((arguments.vectors / "vectors").glob("part-*.npy"))
    vectors = np.concatenate([np.load(part) for part in parts]).astype(np.float32)
    places = [
        i
        for i, text in enumerate(lines[: len(vectors)])
        if 5 <= text.count(" ") + 1 <= 26 and text[-1] in ".?!" and not held_out(text)
    ]
    texts, vectors = [lines[i] for i in places], vectors[places]
    left = NEAREST
    for start in range(0, len(texts), 2048):
        near = vectors[start : start + 2048] @ vectors.T
        near[np.arange(len(near)), np.arange(start, start + len(near))] = -1.0
        best = np.argpartition(-near, 3, axis=1)[:, :3]
        for row, found in enumerate(best):
            for other in found:
                if 0.8 <= near[row, other] < 0.985:
                    pair = texts[start + row], texts[other]
                    if BLEU.sentence_score(pair[1], [pair[0]]).score <= MOST_WORDING:
                        yield pair
                        left -= 1
        if left <= 0:
            return


def translated(arguments: argparse.Namespace) -> Pairs:
    """Yield English sentences with new translations of their German ones."""
    rows = list(read_rows(arguments.data / "parallel/tatoeba/train.jsonl.gz"))
    rng = random.Random(2)
    rows = [row for row in rng.sample(rows, len(rows)) if len(row["en"].split()) >= 4]
    model = load_seq2seq(str(arguments.model), prefix=">>en<< ")
    for start in range(0, min(TRANSLATED, len(rows)), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        for number, (top_k, temperature) in enumerate(SETTINGS):
            search = BeamSearch(beams=4, top_k=top_k, temperature=temperature)
            outputs = decode(model, [row["de"] for row in some], search, seed=start + number)
            for row, found in zip(some, outputs, strict=True):
                yield from ((row["en"], text) for text in found)


def round_trips(arguments: argparse.Namespace) -> Pairs:
    """Yield sentences of the bank that went to German and back."""
    texts = [t for t in sources(arguments.work)[::-1] if 4 <= len(t.split()) <= 22]
    there = load_seq2seq(str(arguments.model), prefix=">>de<< ")
    back = load_seq2seq(str(arguments.model), prefix=">>en<< ")
    for start in range(0, min(TRIPPED, len(texts)), AT_ONCE):
        some = texts[start : start + AT_ONCE]
        pivots = decode(there, some, BeamSearch(beams=2), seed=start)
        for number, (top_k, temperature) in enumerate(SETTINGS[:2]):
            search = BeamSearch(beams=3, top_k=top_k, temperature=temperature)
            read = [pivot[0] if pivot else "" for pivot in pivots]
            outputs = decode(back, read, search, seed=start + number)
            for text, found in zip(some, outputs, strict=True):
                yield from ((text, other) for other in found)


MAKERS: dict[str, Callable[[argparse.Namespace], Pairs]] = {
    "rules": rules,
    "cotranslated": cotranslated,
    "neighbours": neighbours,
    "translated": translated,
    "round-trips": round_trips,
}


def main() -> None:
    """Write the drafts of one maker, as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("maker", choices=MAKERS)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--vectors", type=Path, default=Path("/tmp/static-work"))
    parser.add_argument("--model", type=Path, default=DEFAULT_WORK / "final")
    arguments = parser.parse_args()
    folder = arguments.work / "drafts"
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    with (folder / f"{arguments.maker}.jsonl").open("w", encoding="utf-8") as file:
        for first, second in MAKERS[arguments.maker](arguments):
            if first.strip() and second.strip() and first != second:
                row = {"text_a": first.strip(), "text_b": second.strip()}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                count += 1
                if count % 2_000 == 0:
                    file.flush()
    print(arguments.maker, count, "pairs")


if __name__ == "__main__":
    main()

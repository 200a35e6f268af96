"""Sentence segmenters: where they find boundaries, and how fast.

    python benchmarks/segment.py --data ../shared/data

Sentences known to be single are joined to paragraphs of five and taken apart again; a boundary
counts when it stands after the same character. Peers that are not installed are left out.
The sets: hand-written hard cases (`segment_cases.py`), Tatoeba, Tatoeba in lower case, biomedical
abstracts (tokenised); the speed is measured on documents of the bank folder.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np

from inputs import script_parser
from segment_cases import CASES
from tilth.data.segment import split_paragraphs

Segmenter: TypeAlias = Callable[[list[str]], list[list[str]]]
SPEED = ("wikipedia", "imdb-unlabelled", "novels", "tweets", "dialogue-turns")


def segmenters() -> Iterator[tuple[str, Segmenter, int]]:
    """Yield names, functions from paragraphs to their sentences, documents per file to time."""

    def tilth(paragraphs: list[str]) -> list[list[str]]:
        texts, paragraph = split_paragraphs(paragraphs)
        sentences = iter(texts.to_pylist())
        counts = np.bincount(paragraph, minlength=len(paragraphs)).tolist()
        return [list(islice(sentences, count)) for count in counts]

    yield "tilth", tilth, 4000
    if find_spec("sentencex"):
        import sentencex

        yield "sentencex", lambda all_: [sentencex.segment("en", one) for one in all_], 4000
    if find_spec("blingfire"):
        import blingfire

        yield (
            "blingfire",
            lambda all_: [blingfire.text_to_sentences(one).split("\n") for one in all_],
            4000,
        )
    if find_spec("syntok"):
        import syntok.segmenter

        def syntok_(paragraphs: list[str]) -> list[list[str]]:
            return [
                ["".join(token.spacing + token.value for token in sentence) for sentence in part]
                for one in paragraphs
                for part in [[s for p in syntok.segmenter.analyze(one) for s in p]]
            ]

        yield "syntok", syntok_, 100
    if find_spec("pysbd"):
        import pysbd

        engine = pysbd.Segmenter(language="en", clean=False)
        yield "pysbd", lambda all_: [engine.segment(one) for one in all_], 30
    # What a rule-based splitter without abbreviations does (spaCy's sentencizer among them).
    end = re.compile(r"(?<=[.!?\u2026])[\"')\u201d\u2019]*\s+")
    yield "terminators", lambda all_: [end.split(one) for one in all_], 4000


def boundaries(sentences: list[str]) -> set[int]:
    """Return after how many characters, white space left out, a paragraph is cut."""
    found, place = set(), 0
    for sentence in sentences:
        place += len("".join(sentence.split()))
        found.add(place)
    return found - {0, place}


def measure(segmenter: Segmenter, paragraphs: list[list[str]]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of the inner boundaries."""
    found = segmenter([" ".join(sentences) for sentences in paragraphs])
    right = given = gold = 0
    for sentences, pieces in zip(paragraphs, found, strict=True):
        ours, theirs = boundaries(pieces), boundaries(sentences)
        right, given, gold = right + len(ours & theirs), given + len(ours), gold + len(theirs)
    precision, recall = right / max(given, 1), right / gold
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def joined(sentences: Iterator[str], paragraphs: int) -> list[list[str]]:
    """Return paragraphs of five distinct sentences that end as sentences do."""
    distinct = dict.fromkeys(
        one for one in sentences if one.rstrip("\"' )").endswith((".", "!", "?"))
    )
    rows = list(distinct)[: 5 * paragraphs]
    return [rows[at : at + 5] for at in range(0, len(rows), 5)]


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a gz file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.strip()


def main() -> None:
    """Measure and print."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--paragraphs", type=int, default=2000)
    options = parser.parse_args()
    tatoeba = joined(
        (
            json.loads(line)["en"]
            for line in lines(options.data / "parallel/tatoeba/train.jsonl.gz")
        ),
        options.paragraphs,
    )
    sets = {
        "hard cases": CASES,
        "tatoeba": tatoeba,
        "tatoeba, lower case": [[one.lower() for one in rows] for rows in tatoeba],
        "biomedical": joined(lines(options.data / "bank/biomedical.txt.gz"), options.paragraphs),
    }
    print(f"{'':14}" + "".join(f"{name:>28}" for name in sets) + f"{'sentences/s':>14}")
    print(f"{'':14}" + f"{'P':>12}{'R':>8}{'F1':>8}" * len(sets))
    for name, segmenter, documents in segmenters():
        row = ""
        for paragraphs in sets.values():
            few = paragraphs[: max(documents // 5, 100)]
            row += "{:12.3f}{:8.3f}{:8.3f}".format(*measure(segmenter, few))
        texts = [
            one
            for part in SPEED
            for one in islice(lines(options.data / f"bank/{part}.txt.gz"), documents)
        ]
        start = time.perf_counter()
        count = sum(map(len, segmenter(texts)))
        print(f"{name:14}{row}{count / (time.perf_counter() - start):14,.0f}", flush=True)


if __name__ == "__main__":
    main()

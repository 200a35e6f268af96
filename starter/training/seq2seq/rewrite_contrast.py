"""Stage 4 of the starter rewriter: several rewrites of each sentence, in different cells.

    python -m starter.training.seq2seq.rewrite_contrast --data ../shared/data --work /tmp/s2s-work

Where one source has targets in several cells, only the tags explain the difference. The rewriter
of stage 3 writes them with copy penalties; Tatoeba's co-translations are added. Writes
`contrast/part-*.jsonl` (text_a, text_b, meaning, wording): ordered pairs of a sentence and its
rewrites, all measured. Pairs outside the grid, stutters and rewrites of opposite polarity are left
out. Parts that are there are not made again. Then writes `contrast.npz` and `contrast-dev.npz`, of
each cell about as many pairs.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from zlib import crc32

import torch
from starter.training.lm.sentences import DEFAULT_DATA, read_rows
from starter.training.seq2seq.data import DEFAULT_WORK, sentences
from starter.training.seq2seq.mix import save
from starter.training.seq2seq.rewrite_data import stutters
from transformers import AutoTokenizer

from tilth.data.normalize import normalize_text
from tilth.models.polarity import load_polarity
from tilth.paraphrase.rewriter import LONGEST, SHORTEST, Rewriter, load_paraphraser
from tilth.paraphrase.search import BeamSearch, decode
from tilth.paraphrase.similarity import long_enough, meaning, wording
from tilth.paraphrase.tags import CELLS, UNITS, Cell, cells_of

FEWEST, MOST = 4, 24  # words of a sentence
AT_ONCE = 192  # sentences of a part
COPY_COSTS, BEAMS = (0.6, 1.2, 2.4, 4.8), 4
OWN_ONLY = 0.5  # share kept of the pairs of two rewrites
MOST_OFTEN, LEAST_OFTEN = 3.0, 0.5  # times that a pass learns from a pair, by the size of its cell
DEV = 100  # one text in so many serves the loss on unseen text
LONGEST_TEXT = 100  # tokens
PROMPTS = (Cell(95, 0), Cell(85, 0), Cell(95, 20))  # of the parts in turn

Group = tuple[str, list[str]]  # a sentence and rewrites of it


def sources(data: Path, work: Path) -> list[Group]:
    """Return sentences with their co-translations: of Tatoeba and of the bank in turn."""
    english = defaultdict(set)
    for row in read_rows(data / "parallel/tatoeba/train.jsonl.gz"):
        english[row["de"]].add(row["en"].strip())
    groups = {(some := sorted(found))[0]: some[1:] for _, found in sorted(english.items()) if found}
    tatoeba = [
        (text, others) for text, others in groups.items() if FEWEST <= len(text.split()) <= MOST
    ]
    bank = [
        (text.strip(), list[str]()) for text in sentences(data, work / "sentences.txt")
        if FEWEST <= len(text.split()) <= MOST
    ]  # fmt: skip
    rng = random.Random(4)
    rng.shuffle(tatoeba)
    tatoeba.sort(key=lambda group: not group[1])  # those with co-translations first
    rng.shuffle(bank)
    return [group for both in zip(tatoeba, bank, strict=False) for group in both]


def rewritten(rewriter: Rewriter, groups: Sequence[Group], cell: Cell) -> list[Group]:
    """Add what the rewriter writes to each group."""
    model = replace(rewriter.seq2seq, prefix=f"{cell.tags} ")
    search = BeamSearch(
        beams=BEAMS, returned=BEAMS, shortest=SHORTEST, longest=LONGEST, copy_costs=COPY_COSTS
    )
    outputs = decode(model, [text for text, _ in groups], search)
    return [
        (text, [*known, *(other for other in found if not stutters(other))])
        for (text, known), found in zip(groups, outputs, strict=True)
    ]


def chosen(rewriter: Rewriter, groups: Sequence[Group]) -> list[Group]:
    """Keep the first rewrite of each cell that does not say the opposite."""
    pairs = [(text, other) for text, others in groups for other in dict.fromkeys(others)]
    cells = cells_of(*measured(rewriter, pairs))
    best: dict[tuple[str, int], str] = {}
    for (text, other), place in zip(pairs, cells.tolist(), strict=True):
        if place >= 0:
            best.setdefault((text, place), other)
    kept = [(text, other) for (text, _), other in best.items()]
    polarity = rewriter.polarity or load_polarity()
    flips = polarity.flips([a for a, _ in kept], [b for _, b in kept]).tolist()
    made = defaultdict(list)
    for (text, other), is_flip in zip(kept, flips, strict=True):
        if not is_flip:
            made[text].append(other)
    return list(made.items())


def measured(rewriter: Rewriter, pairs: Sequence[tuple[str, str]]) -> tuple[list[float], ...]:
    """Return meaning and wording of pairs."""
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    return meaning(first, second, rewriter.scorer).tolist(), wording(first, second).tolist()


def rows_of(rewriter: Rewriter, groups: Sequence[Group]) -> list[dict[str, str | float]]:
    """Return all ordered pairs of each group that lie in the grid."""
    pairs = [pair for text, others in groups for pair in permutations([text, *others], 2)]
    pairs = [pair for pair in pairs if normalize_text(pair[0]) != normalize_text(pair[1])]
    scores = measured(rewriter, pairs)
    inside = cells_of(*scores) >= 0
    inside &= long_enough([a for a, _ in pairs], [b for _, b in pairs])
    return [
        {"text_a": a, "text_b": b, "meaning": round(m, 2), "wording": round(w, 2)}
        for (a, b), m, w, used in zip(pairs, *scores, inside.tolist(), strict=True)
        if used
    ]


def main() -> None:
    """Write the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--model", default="starter", help="the rewriter of stage 3")
    parser.add_argument("--parts", type=int, default=40, help="parts of 192 sentences")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.work / "contrast"
    folder.mkdir(parents=True, exist_ok=True)
    groups = sources(arguments.data, arguments.work)
    rewriter = load_paraphraser(arguments.model, precision="bfloat16")
    most = arguments.parts * AT_ONCE
    for start in range(0, most, AT_ONCE):
        path = folder / f"part-{start // AT_ONCE:03}.jsonl"
        if not path.exists():
            cell = PROMPTS[start // AT_ONCE % len(PROMPTS)]
            some = rewritten(rewriter, groups[start : start + AT_ONCE], cell)
            write(path, rows_of(rewriter, chosen(rewriter, some)))
    path = folder / "cotranslated.jsonl"
    if not path.exists():
        some = [group for group in groups[most:] if group[1]]
        write(path, rows_of(rewriter, chosen(rewriter, some)))
    tokenise(arguments.work, {text for known, others in groups for text in (known, *others)})


def write(path: Path, rows: Sequence[dict[str, str | float]]) -> None:
    """Write a part; an interrupted one is not there."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.with_suffix(".tmp").write_text(text, encoding="utf-8")
    path.with_suffix(".tmp").rename(path)
    print(path.name, len(rows), "pairs", flush=True)


def tokenise(work: Path, human: set[str]) -> None:
    """Draw the pairs over the cells and write them as the training reads them."""
    rng = random.Random(6)
    rows = {}
    for path in sorted((work / "contrast").glob("*.jsonl")):
        for one in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            pair = one["text_a"], one["text_b"]
            if human & set(pair) or rng.random() < OWN_ONLY:
                rows.setdefault(pair, (one["meaning"], one["wording"]))
    cells = cells_of(*zip(*rows.values(), strict=True)).tolist()
    counts = Counter(cells)
    unit = len(cells) / UNITS
    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    drawn: dict[str, list[tuple[str, str]]] = {"contrast": [], "contrast-dev": []}
    for (a, b), place in zip(rows, cells, strict=True):
        cell = CELLS[place]
        if any(crc32(text.encode()) % DEV == 0 for text in (a, b)):
            drawn["contrast-dev"].append((f"{cell.tags} {a}", b))
        else:
            often = min(MOST_OFTEN, max(LEAST_OFTEN, cell.units * unit / counts[place]))
            drawn["contrast"] += [(f"{cell.tags} {a}", b)] * int(often + rng.random())
    for name, pairs in drawn.items():
        sides = [
            tokenizer(list(texts), truncation=True, max_length=LONGEST_TEXT)["input_ids"]
            for texts in zip(*pairs, strict=True)
        ]
        save(work / f"{name}.npz", list(zip(*sides, strict=True)))
        print(name, len(pairs), "pairs,", sum(map(len, sides[0] + sides[1])), "tokens")


if __name__ == "__main__":
    main()

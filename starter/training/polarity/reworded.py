"""Pairs of the polarity check's third stage: both classes are reworded, not copied.

    python -m starter.training.polarity.reworded --data ../shared/data --work /tmp/polarity-work

Flips and harmless pairs come from sentences with places and their wordings (`frames.txt`), from
co-translations of Tatoeba of which one side is changed by opposites (`opposites.txt`, WordNet) or by
the rules of data.py, from sentences whose German differs by a negation or an antonym
alone, from drafts of the starter rewriter and from counterfactual NLI. Written: `stage3.jsonl` or
`stage4.jsonl`.
"""

# Word lists are easier to read on one line than wrapped.
# ruff: noqa: E501

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from starter.training.lm.rewrites import rewrite
from starter.training.lm.sentences import DEFAULT_DATA, bank_sentences, read_rows
from starter.training.lm.wordings import Fluency, reword
from starter.training.polarity.data import (
    DEFAULT_WORK,
    Rules,
    polarity_pairs,
    second_pairs,
)
from starter.training.polarity.frames import Pair, frame_pairs, sentence_pairs
from starter.training.polarity.opposites import Opposites
from starter.training.polarity.words import WORDNET, load_lexicon

QUOTA = {"wikipedia": 3_000, "novels": 2_000, "dialogue-turns": 3_000, "wikinews": 2_000}
SHARES = {  # stage -> pairs of each kind
    3: {
        "roles": 7_000, "frames": 6_000, "turned": 3_300, "opposites": 9_000, "co": 4_000, "hard": 820, "drafts": 2_000,
        "rules": 4_000, "rules 2": 2_000, "nli": 3_000, "sentences": 0,
    },
    4: {
        "roles": 11_000, "frames": 2_500, "turned": 600, "opposites": 2_200, "co": 500, "hard": 600,
        "drafts": 600, "rules": 0, "rules 2": 0, "nli": 400, "sentences": 3_000,
    },
}  # fmt: skip
FRAMES = {3: (70, 0.1), 4: (110, 0.4)}  # pairs of each frame, and the share of one wording twice
LONGEST = 22  # words of a sentence

# German words that turn a sentence round when one stands for the other.
TURNED = [
    tuple(pair.split("/")) for pair in ["nicht/", "kein/ein", "keine/eine", "keinen/einen", "keinem/einem", "keiner/einer", "kein/", "keine/", "keinen/", "nie/", "nie/immer", "nie/oft", "niemals/", "niemals/immer", "nichts/etwas", "nichts/alles", "niemand/jemand", "niemand/jeder", "niemanden/jemanden", "keiner/jeder", "keiner/jemand", "ohne/mit", "selten/oft", "selten/immer", "wenig/viel", "wenige/viele", "weniger/mehr", "nicht mehr/noch", "nicht mehr/immer noch", "noch nicht/schon", "noch nicht/bereits", "keine/viele", "kein/viel", "kaum/", "kaum/viel", "groß/klein", "alt/jung", "alt/neu", "gut/schlecht", "leicht/schwer", "einfach/schwierig", "leicht/schwierig", "richtig/falsch", "früh/spät", "lang/kurz", "schnell/langsam", "warm/kalt", "heiß/kalt", "reich/arm", "stark/schwach", "teuer/billig", "teuer/günstig", "glücklich/unglücklich", "glücklich/traurig", "mag/hasse", "liebe/hasse", "liebt/hasst", "mag/hasst", "liebte/hasste", "öffnete/schloss", "öffne/schließe", "gewonnen/verloren", "gewann/verlor", "voll/leer", "laut/leise", "laut/ruhig", "sauber/schmutzig", "gesund/krank", "oben/unten", "ein/aus", "auf/zu", "an/aus", "gekauft/verkauft", "kaufte/verkaufte", "möglich/unmöglich", "freundlich/unfreundlich", "wichtig/unwichtig", "lebt/starb", "lebendig/tot", "wach/müde", "fleißig/faul", "dumm/klug", "dumm/schlau", "mutig/feige", "hässlich/schön", "hell/dunkel", "nass/trocken", "hoch/niedrig", "hoch/tief", "breit/schmal", "dick/dünn", "näher/weiter", "besser/schlechter", "größer/kleiner", "älter/jünger", "schneller/langsamer", "anwesend/abwesend", "vor/nach", "mit/gegen", "für/gegen", "erlaubt/verboten", "angenommen/abgelehnt", "lachte/weinte", "lacht/weint", "vergaß/erinnerte", "immer/manchmal nicht", "interessant/langweilig", "nützlich/nutzlos", "sicher/gefährlich", "sicher/unsicher", "weit/nah", "nichts/viel", "beide/keiner", "alle/keine", "alles/nichts"]
]  # fmt: skip


def turned_pairs(german: dict[str, list[str]], rng: random.Random) -> Iterator[Pair]:
    """Yield flips: translations of German sentences that differ by what turns them round."""
    plain = defaultdict(list)
    for text in german:
        if not text.endswith("?"):
            plain[re.sub(r"[^\w ]", "", text.lower())].append(text)
    for key in sorted(plain):
        found = {
            re.sub(r" +", " ", f" {key} ".replace(f" {one} ", f" {other} ", 1)).strip()
            for one, other in TURNED if f" {one} " in f" {key} "
        }  # fmt: skip
        for words in re.findall(r"\bun([a-z]{4,})", key):
            found.add(key.replace("un" + words, words, 1))
        for other in sorted(found - {key}):
            if other in plain:
                for _ in range(2):
                    first, second = (rng.choice(german[rng.choice(plain[k])]) for k in (key, other))
                    yield first, second, 1, "German turned"


def co_translations(german: dict[str, list[str]], rng: random.Random) -> list[tuple[str, str]]:
    """Return English sentences that share a German one, or, fewer, are two such steps apart."""
    steps = defaultdict(set)
    for some in german.values():
        if 1 < len(some) <= 6:
            for text in some:
                steps[text].update(set(some) - {text})
    pairs = []
    for text, others in sorted(steps.items()):
        pairs += [(text, other) for other in others if text < other]
        further = sorted({far for other in others for far in steps[other]} - others - {text})
        if further and rng.random() < 0.15:
            pairs.append((text, rng.choice(further)))
    return sorted(pairs)


def with_opposites(
    opposites: Opposites, pairs: list[tuple[str, str]], rng: random.Random
) -> Iterator[Pair]:
    """Yield pairs of which one side has an opposite, or another word that says the same."""
    for first, second in pairs:
        flip = rng.random() < 0.55
        made = opposites.put(second, rng, flip)
        if not made:
            continue
        if rng.random() < 0.5 and (again := opposites.same(first, rng)):
            first = again
        if rng.random() < 0.5:
            first = reword(first, rng, 0.4, opposites.fluency)[0]
        yield first, made, int(flip), f"opposites {'flip' if flip else 'same'}"


def joined(made: list[Pair], pairs: list[tuple[str, str]], rng: random.Random) -> Iterator[Pair]:
    """Yield the pairs, some beside another sentence, which is reworded."""
    for first, second, flip, kind in made:
        if rng.random() < 0.12 and len(first.split()) < 15:
            beside = rng.choice(pairs)
            order = rng.random() < 0.5
            first, second = (
                f"{one} {text}" if order else f"{text} {one}"
                for text, one in zip((first, second), beside, strict=True)
            )
        yield (first, second, flip, kind) if rng.random() < 0.5 else (second, first, flip, kind)


def main() -> None:
    """Write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--wordnet", type=Path, default=WORDNET)
    parser.add_argument("--stage", type=int, default=3, choices=SHARES)
    arguments = parser.parse_args()
    rng = random.Random(18 + arguments.stage)
    german = defaultdict(set)
    for row in read_rows(arguments.data / "parallel/tatoeba/train.jsonl.gz"):
        if len(row["en"].split()) <= LONGEST:
            german[row["de"]].add(row["en"])
    by_german = {text: sorted(some) for text, some in sorted(german.items())}
    sentences = sorted({text for some in by_german.values() for text in some})
    bank = [
        row["text"] for source, quota in QUOTA.items()
        for row in bank_sentences(arguments.data, source, quota, 9)
        if 4 <= len(row["text"].split()) <= LONGEST
    ]  # fmt: skip
    counts = Counter(word for text in sentences + bank for word in re.findall("[a-z]+", text.lower()))  # fmt: skip
    rules = Rules(load_lexicon(counts, arguments.wordnet))
    opposites = Opposites(Fluency(sentences + bank))
    pairs = co_translations(by_german, rng)
    drafts = []
    for line in (arguments.work / "drafts.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["meaning"] >= 60 and not rules.suspicious(row["text_a"], row["text_b"]):
            drafts.append((row["text_a"], row["text_b"]))
    bank = [(text, rewrite(text, rng, fluency=opposites.fluency)[0]) for text in bank]
    hard = [pair for pair in pairs if rules.suspicious(*pair)]
    print(
        f"{len(pairs):,} co-translations, {len(hard):,} with other negations, {len(drafts):,} drafts"
    )
    some = pairs + pairs + drafts + bank
    base = [(*pair, "reworded") for pair in pairs + drafts * 2 + bank]
    framed = [*frame_pairs(opposites, *FRAMES[arguments.stage], rng)]
    made = {
        "roles": [row for row in framed if row[3] != "frame "],
        "frames": [row for row in framed if row[3] == "frame "],
        "turned": [*turned_pairs(by_german, rng)],
        "opposites": [*with_opposites(opposites, some, rng)],
        "co": [(*pair, 0, "co-translation") for pair in pairs],
        "hard": [(*pair, 0, "co-translation, hard") for pair in hard * 3],
        "drafts": [(*pair, 0, "draft") for pair in drafts],
        "rules": [*polarity_pairs(rules, base, rng)],
        "rules 2": [*second_pairs(rules, base, rng)],
        "nli": [*nli_pairs(arguments.data / "nli/cad/train.jsonl.gz", rng)],
        "sentences": [*sentence_pairs(opposites, random.Random(31))],
    }
    for name, rows in made.items():
        print(f"{name}: {len(rows):,}, {sum(row[2] for row in rows):,} flips")
    every = [
        row for name, rows in made.items()
        for row in rng.sample(rows, min(len(rows), SHARES[arguments.stage][name])) if row[0] != row[1]
    ]  # fmt: skip
    rng.shuffle(every)
    with (arguments.work / f"stage{arguments.stage}.jsonl").open("w", encoding="utf-8") as file:
        for first, second, flip, kind in joined(every, pairs, rng):
            row = {"first": first, "second": second, "flip": flip, "kind": kind}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def nli_pairs(path: Path, rng: random.Random) -> Iterator[Pair]:
    """Yield premises and hypotheses; a neutral one counts as harmless, and few are kept."""
    for row in read_rows(path):
        if row["label"] != "neutral" or rng.random() < 0.2:
            flip = int(row["label"] == "contradiction")
            yield row["premise"], row["hypothesis"], flip, f"nli {row['label']}"


if __name__ == "__main__":
    main()

"""Word-for-word rewording from the table in wordings.txt, with English inflection."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from starter.training.lm.inflect import mend_articles, plural, verb_forms

TABLE = Path(__file__).with_name("wordings.txt")

VERB_CUES = {
    "to", "will", "would", "can", "could", "should", "must", "may", "might", "not", "i",
    "you", "we", "they",
    "please", "did", "do", "does", "don't", "didn't", "doesn't", "won't", "cannot", "can't",
    "let's", "who", "that", "which", "'ll", "i'll", "we'll", "you'll", "couldn't", "wouldn't",
}  # fmt: skip
NOUN_CUES = {
    "the", "a", "an", "his", "her", "its", "their", "our", "my", "your", "this", "that", "these",
    "those", "some", "any", "no", "of", "in", "on", "for", "with", "by", "new", "first", "last",
    "other", "many", "several", "few", "two", "three", "four", "five", "another", "each", "every",
    "large", "small", "major", "old", "young", "local", "own", "same", "and", "at", "from", "into",
}  # fmt: skip
PARTICIPLE_CUES = {
    "has", "have", "had", "was", "were", "been", "be", "is", "are", "being", "having", "got", "by",
    "also", "not", "never", "first", "later",
}  # fmt: skip


Entry = tuple[str, str, tuple[str, ...]]  # kind (v, n, w), form, replacements


@cache
def table() -> dict[tuple[str, ...], list[Entry]]:
    """Return the table by the words of each replaceable form, lower case."""
    entries: dict[tuple[str, ...], list[Entry]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        kind, _, body = line.partition(" ")
        source, *targets = (part.strip() for part in re.split(r"[|>]", body))
        for form, word, replacements in inflected(kind, source, targets):
            entries.setdefault(tuple(word.split()), []).append((kind, form, tuple(replacements)))
    return entries


def inflected(kind: str, source: str, targets: list[str]) -> list[tuple[str, str, list[str]]]:
    """Return (form name, source form, target forms) for every inflection of a table line."""
    if kind == "v":
        heads, goals = verb_forms(source), [verb_forms(t) for t in targets]
        return [(form, heads[form], [goal[form] for goal in goals]) for form in heads]
    if kind == "n":
        rows = [("singular", source, targets)]
        many = plural(source)
        goals_many = [p for p in (plural(t) for t in targets) if p]
        if many and many != source and goals_many:
            rows.append(("plural", many, goals_many))
        return rows
    return [("as is", source, targets)]


def fits(entry: Entry, previous: str, following: str, ambiguous: bool) -> bool:
    """Tell whether the words around an occurrence agree with the entry's word class."""
    kind, form, _ = entry
    if kind == "w":
        return True
    if kind == "n":
        # A noun before another noun, or one that could be a verb, is left alone without a cue.
        return previous in NOUN_CUES if ambiguous or form == "singular" else True
    if form == "base":
        return previous in VERB_CUES
    if form == "s":
        return not ambiguous or (previous not in NOUN_CUES and following in NOUN_CUES)
    if form == "past":
        return previous not in PARTICIPLE_CUES
    if form == "participle":
        return previous in PARTICIPLE_CUES
    return previous not in NOUN_CUES - {"of", "in", "for", "by", "and"}


class Fluency:
    """Counts of neighbouring words, to keep a replacement out of places where nobody writes it."""

    def __init__(self, texts: Iterable[str], least: int = 2, rare: int = 40) -> None:
        counts: Counter[tuple[str, str]] = Counter()
        single: Counter[str] = Counter()
        for text in texts:
            words = ["^", *self.words(text)]
            single.update(words)
            counts.update(pairwise(words))
        self.frequent = {word for word, n in single.items() if n >= rare}
        self.counts = {pair: n for pair, n in counts.items() if n >= least}

    @staticmethod
    def words(text: str) -> list[str]:
        """Split into lower-case words and punctuation marks; every number reads as 0."""
        text = re.sub(r"\d+", "0", text.lower())
        return re.findall(r"[a-z][a-z'\-.]*[a-z]|[a-z]|0|[^\sa-z0]", text)

    def joins(self, a: str, b: str) -> int:
        """Return how often b followed a; 1 where either is too rare to tell."""
        known = a in self.frequent and b in self.frequent
        return self.counts.get((a, b), 0) if known else 1

    def best(
        self, before: str, options: Sequence[str], after: str, rng: random.Random
    ) -> str | None:
        """Draw an option in proportion to how well it joins both sides; None where none does."""
        left = (["^", *self.words(before)])[-1]
        right = (self.words(after) or ["."])[0]
        weights = []
        for option in options:
            words = self.words(option)
            joins = [self.joins(a, b) for a, b in pairwise([left, *words, right])]
            weights.append(min(joins) ** 0.5)
        return rng.choices(options, weights)[0] if any(weights) else None


def reword(
    text: str, rng: random.Random, rate: float, fluency: Fluency | None = None
) -> tuple[str, int]:
    """Replace words and phrases of a sentence by others of like meaning.

    Args:
        text: One sentence.
        rng: Source of randomness.
        rate: Probability of replacing each replaceable place.
        fluency: Where given, replacements must join their neighbours in a way seen before.

    Returns:
        The new sentence and the number of replacements.
    """
    words = re.findall(r"[A-Za-z][A-Za-z'\-.]*[A-Za-z]|[A-Za-z]|[^A-Za-z]+", text)
    plain = [i for i, word in enumerate(words) if word[0].isalpha()]
    lower = [words[i].lower() for i in plain]
    entries, done, k = table(), 0, 0
    while k < len(plain):
        for size in (5, 4, 3, 2, 1):
            key = tuple(lower[k : k + size])
            if len(key) < size or key not in entries:
                continue
            between = words[plain[k] + 1 : plain[k + size - 1]]
            if any(b != " " for b in between if not b[0].isalpha()):
                continue
            original = words[plain[k]]
            # A capital inside the sentence marks a name; an upper-case word an acronym.
            if k and original[0].isupper() and size == 1 and original not in ("TV",):
                continue
            previous = lower[k - 1] if k else ""
            following = lower[k + size] if k + size < len(lower) else ""
            kinds = {e[0] for e in entries[key]}
            ambiguous = "v" in kinds and "n" in kinds
            usable = [e for e in entries[key] if fits(e, previous, following, ambiguous)]
            if not usable or rng.random() > rate:
                continue
            goal: str | None = rng.choice(rng.choice(usable)[2])
            if fluency is not None:
                goals = sorted({g for entry in usable for g in entry[2]})
                before = "".join(words[max(0, plain[k] - 4) : plain[k]])
                after = "".join(words[plain[k + size - 1] + 1 : plain[k + size - 1] + 4])
                goal = fluency.best(before, goals, after, rng)
            if goal is None:
                continue
            if original[0].isupper() and k == 0:
                goal = goal[0].upper() + goal[1:]
            words[plain[k]] = goal
            for i in range(plain[k] + 1, plain[k + size - 1] + 1):
                words[i] = ""
            done += 1
            k += size - 1
            break
        k += 1
    return mend_articles("".join(words)), done

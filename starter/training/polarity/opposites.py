"""Opposites of words and phrases, and what says the same, put into sentences."""

# Word lists are easier to read on one line than wrapped.
# ruff: noqa: E501

from __future__ import annotations

import random
import re
from collections import defaultdict
from pathlib import Path

from starter.training.lm.edits import raise_first
from starter.training.lm.inflect import mend_articles, plural, verb_forms
from starter.training.lm.wordings import Fluency, fits

TABLE = Path(__file__).with_name("opposites.txt")


class Opposites:
    """Words and phrases of `opposites.txt`, put for one another in sentences."""

    def __init__(self, fluency: Fluency) -> None:
        self.fluency = fluency
        self.places: dict[tuple[str, ...], list[tuple[str, str, list[str], list[str]]]] = (
            defaultdict(list)
        )
        self.degrees: list[tuple[list[str], list[str]]] = []
        for line in TABLE.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            kind, _, body = line.partition(" ")
            sides = [[word.strip() for word in side.split(",")] for side in body.split("|")]
            self._add(kind[0], sides[0], sides[1])
            self._add(kind[0], sides[1], sides[0])
            if kind[0] == "g":
                self.degrees += [(sides[0], sides[1]), (sides[1], sides[0])]
        self.longest = max(map(len, self.places))

    def _add(self, kind: str, own: list[str], others: list[str]) -> None:
        if kind == "v":
            tables = [[verb_forms(word) for word in side] for side in (own, others)]
            names = list(tables[0][0])
            forms = [(name, *([t[name] for t in table] for table in tables)) for name in names]
        elif kind == "n":
            many = [[p for word in side if (p := plural(word))] for side in (own, others)]
            forms = [("singular", own, others), ("plural", *many)]
        else:
            forms = [("as is", own, others)]
            if kind == "g":
                more = [[m for word in side if (m := comparative(word))] for side in (own, others)]
                forms.append(("as is", *more))
        for name, mine, theirs in forms:
            for word in mine:
                same = [other for other in mine if other != word]
                self.places[tuple(word.split())].append(
                    ("w" if kind == "g" else kind, name, same, theirs)
                )

    def put(self, text: str, rng: random.Random, opposite: bool) -> str | None:
        """Put a word's opposite for it, or another word that says the same."""
        tokens = [*re.finditer(r"[A-Za-z][A-Za-z'\-]*", text)]
        words = [token[0].lower() for token in tokens]
        found = []
        for start in range(len(words)):
            for end in range(min(len(words), start + self.longest), start, -1):
                entries = self.places.get(tuple(words[start:end]), ())
                before = words[start - 1] if start else ""
                after = words[end] if end < len(words) else ""
                fitting = [
                    entry for entry in entries
                    if entry[3 if opposite else 2] and fits((entry[0], entry[1], ()), before, after, len(entries) > 1)
                ]  # fmt: skip
                found += [(start, end, entry) for entry in fitting]
                if entries:
                    break
        rng.shuffle(found)
        for start, end, entry in found:
            first, last = tokens[start], tokens[end - 1]
            head, tail = text[: first.start()], text[last.end() :]
            new = self.fluency.best(head, entry[3 if opposite else 2], tail, rng)
            if new:
                new = raise_first(new) if first[0][0].isupper() else new
                return mend_articles(head + new + tail)
        return None

    def opposite(self, text: str, rng: random.Random) -> str | None:
        """Put an opposite."""
        return self.put(text, rng, True)

    def same(self, text: str, rng: random.Random) -> str | None:
        """Put a word that says the same."""
        return self.put(text, rng, False)


def comparative(word: str) -> str | None:
    """Return an adjective's comparative, or None where it has none."""
    known = {"good": "better", "bad": "worse", "far": "further", "ill": "sicker", "well": "better"}
    if word in known:
        return known[word]
    if " " in word or word.endswith("less") or word in {"alive", "dead", "present", "absent", "single", "married"}:  # fmt: skip
        return None
    if re.fullmatch(r"[^aeiou]*[aeiouy]+[^aeiouy]+e?", word) and len(word) < 8:
        if word.endswith("e"):
            return word + "r"
        return word + word[-1] + "er" if re.search(r"[^aeiou][aiou][bdgmnpt]$", word) else word + "er"  # fmt: skip
    if word.endswith("y") and len(word) < 8:
        return word[:-1] + "ier"
    return f"more {word}"

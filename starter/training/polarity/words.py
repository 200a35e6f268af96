"""Antonyms, synonyms and verb forms from WordNet's files.

WordNet 3.0 (Princeton University; free for any use with its notice) is Debian's package
`wordnet-base`; it is read when the training data is made and is no part of the distribution.
"""

# Regular expressions and word lists are easier to read on one line than wrapped.
# ruff: noqa: E501, SIM905

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from starter.training.lm.changes import OPPOSITES
from starter.training.lm.inflect import DOUBLED, IRREGULAR, add_s, ing_form, past_forms

WORDNET = Path("/usr/share/wordnet")
LEAST = 8  # times that a word must occur in the corpora
PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "mis", "a", "anti")
# A change of sex or age changes a fact, not a polarity.
PERSONS = frozenset(
    "man woman men women boy girl boys girls father mother son daughter brother sister husband wife "
    "king queen he she his her him male female uncle aunt nephew niece lord lady mr mrs sir madam "
    "prince princess actor actress waiter waitress host hostess child parent children parents baby "
    "bull cow guy mum dad gentleman day night morning evening summer winter lad lass god devil "
    "brothers sisters sons daughters fathers mothers right left".split()
)
# Words of so many senses that their antonyms fit but rarely.
LOOSE = frozenset(
    "i one two three four five six seven eight nine ten first second third fourth fifth last a an as "
    "at be but by can do for go going gone had has have he here how if in is it like likes liked may "
    "might must no nor not of off okay ok on or out own over so some such than that the then there "
    "these this those to under up very was well were what when where which while who why will yet "
    "may lead leading let other others same different get gets got make makes made take takes took "
    "give gives gave answer question questions find found come came set put run ran part whole "
    "living drama third".split()
)


@dataclass
class Lexicon:
    """Words and what stands against them.

    Attributes:
        opposites: word -> its antonyms, inflected alike.
        strict: those of `opposites` for which "not X" says nearly the same as the antonym.
        indirect: adjective -> those that are like an antonym of one like it.
        synonyms: adjective -> words of its synset.
        forms: verb form -> (base, kind), kind one of base, s, past, participle, ing.
    """

    opposites: dict[str, list[str]] = field(default_factory=dict)
    strict: dict[str, list[str]] = field(default_factory=dict)
    indirect: dict[str, list[str]] = field(default_factory=dict)
    synonyms: dict[str, list[str]] = field(default_factory=dict)
    forms: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass
class _Synset:
    kind: str
    words: list[str]
    antonyms: list[tuple[int, str, int]]  # own word (1 and more; 0: all), offset, other's word
    similar: list[str]


def _synsets(folder: Path, part: str) -> dict[str, _Synset]:
    found = {}
    for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            continue
        fields = line.split(" | ")[0].split()
        count = int(fields[3], 16)
        words = [word.split("(")[0] for word in fields[4 : 4 + 2 * count : 2]]
        synset = _Synset(fields[2], words, [], [])
        pointers = fields[5 + 2 * count :]
        for place in range(0, 4 * int(fields[4 + 2 * count]), 4):
            symbol, offset, _, ends = pointers[place : place + 4]
            if symbol == "!":
                synset.antonyms.append((int(ends[:2], 16), offset, int(ends[2:], 16)))
            elif symbol == "&":
                synset.similar.append(offset)
        found[fields[0]] = synset
    return found


def _pairs(synsets: dict[str, _Synset]) -> Iterator[tuple[str, str]]:
    for synset in synsets.values():
        for own, offset, other in synset.antonyms:
            yield synset.words[own - 1], synsets[offset].words[other - 1]


def _indirect(
    synsets: dict[str, _Synset], usual: dict[str, list[str]]
) -> Iterator[tuple[str, str]]:
    """Yield adjectives of two clusters whose heads are antonyms, each in its usual sense."""
    for place, synset in synsets.items():
        for own, offset, other in synset.antonyms:
            heads = synset.words[own - 1], synsets[offset].words[other - 1]
            if place not in usual.get(heads[0], ()) or offset not in usual.get(heads[1], ()):
                continue
            near, far = (
                [
                    word
                    for one in similar
                    for word in synsets[one].words
                    if one in usual.get(word, [])[:1]
                ]
                for similar in (synset.similar, synsets[offset].similar)
            )
            yield from ((word, heads[1]) for word in near)
            yield from ((heads[0], word) for word in far)
            yield from ((a, b) for a in near for b in far)


def _usual_senses(folder: Path, part: str, most: int = 2) -> dict[str, list[str]]:
    """Return word -> its synsets, the most frequent senses first."""
    senses = {}
    for line in (folder / f"index.{part}").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            fields = line.split()
            senses[fields[0]] = fields[-int(fields[2]) :][:most]
    return senses


def is_prefixed(first: str, second: str) -> bool:
    """Tell whether one word is the other behind a negating prefix, or ends in -less for -ful."""
    long, short = (first, second) if len(first) > len(second) else (second, first)
    if first.endswith(("less", "ful")) and second.endswith(("less", "ful")):
        return True
    return any(long == prefix + short for prefix in PREFIXES)


def verb_table(folder: Path, counts: Counter[str]) -> dict[str, dict[str, str]]:
    """Return base -> kind -> form, of verbs that occur."""
    doubled, known = set(DOUBLED), defaultdict(list)
    for line in (folder / "verb.exc").read_text(encoding="utf-8").splitlines():
        form, base = line.split()[:2]
        known[base].append(form)
        if form == base + base[-1] + "ed":
            doubled.add(base)
    table = {}
    for line in (folder / "index.verb").read_text(encoding="utf-8").splitlines():
        base = line.split(" ")[0]
        if not base.isalpha() or len(base) < 3 or counts[base] < LEAST or base in {"have", "does"}:
            continue
        if base not in IRREGULAR and known[base] and base not in doubled:
            continue  # irregular, and nobody says which form is which
        past, participle = past_forms(base)
        ing = ing_form(base)
        if base in doubled and base not in IRREGULAR:
            past = participle = base + base[-1] + "ed"
        if base in doubled:
            ing = base + base[-1] + "ing"
        table[base] = {
            "base": base, "s": add_s(base), "past": past, "participle": participle, "ing": ing,
        }  # fmt: skip
    return table


def load_lexicon(counts: Counter[str], folder: Path = WORDNET) -> Lexicon:
    """Read WordNet; keep the words that the corpora use.

    Args:
        counts: how often each lower-case word occurs in the corpora.
        folder: of WordNet's files.
    """
    lexicon = Lexicon()
    pairs: set[tuple[str, str]] = set()
    strict: set[tuple[str, str]] = set()
    verbs = verb_table(folder, counts)
    for base, kinds in sorted(verbs.items()):
        for kind, form in kinds.items():
            lexicon.forms.setdefault(form, (base, kind))
    for first, second in (
        pair for pair in OPPOSITES[: OPPOSITES.index(("asleep", "awake")) + 1] if len(pair) == 2
    ):
        pairs |= {(first, second), (second, first)}
    for part in ("adj", "adv", "noun"):
        synsets = _synsets(folder, part)
        direct = set(_pairs(synsets))
        pairs |= direct
        if part == "adj":
            strict |= direct
            lexicon.indirect = _table(
                set(_indirect(synsets, _usual_senses(folder, part))) - direct, counts
            )
            together = defaultdict(set)
            usual = _usual_senses(folder, part, most=1)
            for place, synset in synsets.items():
                shared = {word for word in synset.words if place in usual.get(word.lower(), ())}
                for word in shared:
                    together[word].update(shared - {word})
            lexicon.synonyms = {
                word: kept
                for word, others in sorted(together.items())
                if word not in LOOSE
                and (kept := sorted(o for o in others - LOOSE if o.isalpha() and counts[o] >= 20))
            }
    for first, second in sorted(_pairs(_synsets(folder, "verb"))):
        if first in verbs and second in verbs:
            both = {(verbs[first][kind], verbs[second][kind]) for kind in verbs[first]}
            pairs |= both
            if is_prefixed(first, second):
                strict |= both
    lexicon.opposites, lexicon.strict = _table(pairs, counts), _table(strict, counts)
    return lexicon


def _table(pairs: set[tuple[str, str]], counts: Counter[str]) -> dict[str, list[str]]:
    table = defaultdict(list)
    for first, second in sorted(pairs):
        usable = first.isalpha() and second.isalpha() and first != second
        if (
            usable
            and not {first, second} & (PERSONS | LOOSE)
            and min(counts[first], counts[second]) >= LEAST
        ):
            table[first].append(second)
    return dict(table)

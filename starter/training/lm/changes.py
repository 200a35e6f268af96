"""Rule-made changes of a sentence's facts: negation, opposites, other numbers and other names."""

# Regular expressions and word lists are easier to read on one line than wrapped.
# ruff: noqa: E501, SIM905

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from starter.training.lm.edits import NUMBERS, drop_small, lower_first
from starter.training.lm.inflect import mend_articles
from starter.training.lm.rewrites import compress, rewrite
from starter.training.lm.wordings import Fluency

OPPOSITES = [
    tuple(pair.split("/"))
    for pair in (
        "big/small large/small long/short high/low tall/short old/young old/new good/bad best/worst "
        "better/worse more/less more/fewer many/few first/last early/late earlier/later hot/cold "
        "warm/cool rich/poor strong/weak happy/sad easy/hard easy/difficult fast/slow quickly/slowly "
        "open/closed full/empty light/dark heavy/light clean/dirty safe/dangerous cheap/expensive "
        "true/false right/wrong public/private major/minor increase/decrease increased/decreased "
        "rise/fall rose/fell rising/falling win/lose won/lost winning/losing accept/reject "
        "accepted/rejected allow/forbid allowed/forbidden love/hate loved/hated start/end started/ended "
        "begin/stop began/stopped before/after above/below inside/outside inside/outdoors north/south "
        "northern/southern east/west eastern/western left/right front/back top/bottom day/night "
        "morning/evening summer/winter man/woman men/women boy/girl boys/girls father/mother son/daughter "
        "brother/sister husband/wife king/queen he/she his/her always/never often/rarely "
        "everyone/nobody everything/nothing all/none with/without buy/sell bought/sold arrived/left "
        "remembered/forgot success/failure victory/defeat war/peace friend/enemy friends/enemies "
        "supported/opposed support/oppose agreed/refused born/buried alive/dead asleep/awake "
        "sitting/standing walking/sleeping running/sitting standing/lying smiling/crying dog/cat "
        "dogs/cats car/bus bike/horse red/blue black/white green/yellow piano/guitar coffee/tea "
        "soccer/tennis football/chess beach/forest city/village house/office school/hospital "
        "doctor/lawyer teacher/farmer police/firefighters president/mayor film/book song/painting "
        "river/mountain ship/train company/school army/church month/year week/month days/years "
        "hundreds/dozens millions/thousands Monday/Friday Tuesday/Saturday Thursday/Sunday January/June "
        "March/October April/November July/December"
    ).split()
]
SWAPS = {a: b for pair in OPPOSITES for a, b in (pair, pair[::-1])}
PLACES = (
    "France Germany Italy Spain Russia China Japan India Brazil Mexico Canada Australia Egypt Turkey "
    "Greece Poland Sweden Norway Ireland Scotland England Israel Iraq Iran Pakistan Korea Vietnam "
    "Africa Europe Asia America London Paris Berlin Rome Madrid Moscow Tokyo Beijing Boston Chicago "
    "Houston Seattle Dallas Denver Atlanta Miami Toronto Sydney Melbourne Vienna Prague Dublin "
    "Texas California Florida Ohio Virginia Georgia Michigan"
).split()
PEOPLE = (
    "John Mary Tom James Robert David William Richard Thomas Charles Daniel Paul Mark George Henry "
    "Peter Michael Anna Sarah Laura Emma Julia Helen Alice Susan Karen Linda Martin Simon Alan "
    "Smith Johnson Brown Miller Wilson Taylor Anderson Clark Lewis Walker Young King Bush Obama"
).split()
SUBJECTS = (
    "The committee|A spokesman|The mayor|Two witnesses|The company|Their neighbor|The old teacher|"
    "A young doctor|Some students|The government|The team|My sister|Her friend|The minister|"
    "A farmer|The children|The crew|A tourist"
).split("|")
Change = Callable[[str, random.Random], "str | None"]
AUXILIARY = r"(is|are|was|were|has|have|had|can|could|will|would|should|must|does|did|do)"


def negate(text: str, rng: random.Random) -> str | None:
    """Put "not" after the first auxiliary, or take it away."""
    out = re.sub(rf"\b{AUXILIARY}(?: not|n't)\b", r"\1", text, count=1)
    if out != text:
        return out
    match = re.search(
        rf"(?<=[a-z\"] ){AUXILIARY} (?!n't|not|you\b|I\b|it\b|he\b|she\b|they\b|we\b)(?=[a-z])",
        text,
    )
    if not match or text.endswith("?"):
        return None
    word = match[1]
    filler = "never " if rng.random() < 0.25 else "not "
    if word in {"do", "did", "does"} or (
        word in {"has", "have", "had"}
        and not re.match(
            r"(?:been|\w+ed|\w+en|had|made|found|held|won|lost|said)\b", text[match.end() :]
        )
    ):
        filler = "never " if filler == "not " and word.startswith("ha") else "not "
    return text[: match.end()] + filler + text[match.end() :]


def opposite(text: str, rng: random.Random) -> str | None:
    """Replace one word by its opposite, or by another of its kind."""
    words = list(re.finditer(r"\b[A-Za-z]+\b", text))
    found = [w for w in words if w[0] in SWAPS or (w.start() == 0 and w[0].lower() in SWAPS)]
    if not found:
        return None
    word = rng.choice(found)
    swap = SWAPS.get(word[0]) or SWAPS[word[0].lower()].capitalize()
    return text[: word.start()] + swap + text[word.end() :]


def other_number(text: str, rng: random.Random) -> str | None:
    """Replace one number by another of its size."""
    found = list(re.finditer(rf"\b(?:\d+|{'|'.join(NUMBERS[2:])})\b", text))
    if not found:
        return None
    match = rng.choice(found)
    if match[0].isdigit():
        old = int(match[0])
        if 1500 < old < 2100:
            swap = str(old + rng.choice((-21, -13, -8, -4, -2, 2, 3, 5, 9, 14)))
        else:
            swap = str(max(2, int(old * rng.choice((0.4, 0.6, 1.5, 2, 3))) + rng.randint(1, 3)))
    else:
        swap = rng.choice([n for n in NUMBERS[2:13] if n != match[0]])
    return text[: match.start()] + swap + text[match.end() :]


def other_name(text: str, rng: random.Random) -> str | None:
    """Replace one place or person by another."""
    for names in rng.sample((PLACES, PEOPLE), 2):
        found = list(re.finditer(rf"\b(?:{'|'.join(names)})\b", text))
        if found:
            match = rng.choice(found)
            swap = rng.choice([n for n in names if n != match[0]])
            return text[: match.start()] + swap + text[match.end() :]
    return None


def other_subject(text: str, rng: random.Random) -> str | None:
    """Give the predicate of a short sentence to somebody else."""
    match = re.match(r"^((?:The|A|An|Mr\.|[A-Z][a-z]+)[^,;:]{0,30}?|He|She|They|Tom|I) (?=(?:was|has|had|said|is|will|"
                     r"went|took|came|made|won|lost|gave|wrote|found|left|[a-z]{3,}ed) )", text)  # fmt: skip
    if not match or text.endswith("?"):
        return None
    verb = text[match.end() :].split()[0]
    options = [
        s
        for s in SUBJECTS
        if verb not in {"was", "has", "is"} or not s.endswith(("ses", "nts", "ren"))
    ]
    return f"{rng.choice(options)} {text[match.end() :]}"


CONTRADICTIONS: list[Change] = [negate, negate, opposite, opposite, other_number, other_name]
OTHER_FACTS: list[Change] = [other_subject, other_subject, other_number, other_name, opposite]


def change(text: str, rng: random.Random, changes: list[Change], number: int) -> str | None:
    """Apply some of the changes, in random order; None where none applies."""
    made = 0
    for edit in rng.sample(changes, len(changes)):
        out = edit(text, rng)
        if out and out != text:
            text, made = out, made + 1
        if made >= number:
            break
    return mend_articles(text) if made else None


def gloss(text: str) -> str | None:
    """Take the definition out of "X is a Y that Z.", as a dictionary would word it."""
    match = re.match(
        r"^[A-Z][^,.;:()]{2,40} (?:is|are|was|were|means|refers to) ((?:an?|the|to) [^.;:()\"]{14,80})\.$",
        text,
    )
    if not match or re.search(r"[A-Z0-9]", match[1]):
        return None
    return lower_first(match[1])


def changed_pairs(
    texts: list[str], fluency: Fluency, count: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield inference pairs and "somewhat similar" pairs made from single sentences.

    A shortened sentence follows from the whole one; the whole one may or may not be true given the
    short one; a negated or changed one must be false.
    """
    rng = random.Random(seed)
    for text in rng.sample(texts, min(len(texts), count)):
        draw = rng.random()
        words = len(text.split())
        if draw < 0.33:
            out = change(text, rng, CONTRADICTIONS, 1)
            kind, label = "nli", "contradiction"
        elif draw < 0.66 and words >= 9:
            shorter = compress(text, rng, max(5, int(words * rng.uniform(0.45, 0.75))))
            out = shorter if len(shorter.split()) < words else drop_small(text, rng)
            kind, label = "nli", "entailment"
            if out and rng.random() < 0.4:
                text, out, label = out, text, "neutral"
        else:
            out = change(text, rng, OTHER_FACTS, 2)
            kind, label = "altered", "0.5"
        if not out or out == text:
            continue
        if rng.random() < 0.6:
            out, _ = rewrite(out, rng, fluency=fluency)
        yield {"kind": kind, "label": label, "x1": text, "x2": out}

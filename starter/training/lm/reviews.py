"""Review sentences with a known sentiment, from hand-written sentences and slots (reviews.txt).

A review is one or two sentences: written as they stand, or built from a frame whose slots are a
thing (of a domain), one of its aspects, and praise or blame that fits the domain.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

from starter.training.lm.inflect import mend_articles

SLOTS = Path(__file__).with_name("reviews.txt")
OPENERS = {
    "positive": ("Honestly, ", "Wow, ", "To my surprise, ", "As always, ", "Once again, ",
                 "For the price, ", "I must say, ", "Without a doubt, "),
    "negative": ("Honestly, ", "Sadly, ", "Unfortunately, ", "To be fair, ", "Once again, ",
                 "For that price, ", "I am sorry to say, ", "Sad but true, "),
}  # fmt: skip


@cache
def slots() -> dict[str, list[str]]:
    """Return the lines of every section."""
    table: dict[str, list[str]] = {}
    name = ""
    for line in SLOTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            table.setdefault(name, [])
        elif line and not line.startswith("#"):
            table[name].append(line)
    return table


def fill(frame: str, domain: str, label: str, rng: random.Random) -> str:
    """Fill the slots of one frame."""
    table = slots()
    values = {
        "thing": rng.choice(table[f"{domain} thing"]),
        "aspect": rng.choice(table[f"{domain} aspect"]),
        "other": rng.choice(table[f"{domain} aspect"]),
        "is": rng.choice(table[f"{label} is"] + table.get(f"{domain} {label} is", [])),
        "is2": rng.choice(table[f"{label} is"]),
        "event": rng.choice(table[f"{domain} {label}"]),
        "end": rng.choice(table[f"{label} end"]),
        "time": rng.choice(table["time"]),
        "adverb": rng.choice(table["adverb"]),
    }
    text = frame
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return mend_articles(text)


def sentence(domain: str, label: str, rng: random.Random) -> str:
    """Write one sentence of a review."""
    table = slots()
    draw = rng.random()
    if draw < 0.25:
        text = rng.choice(table[f"{domain} {label}"])
        text = f"{text[0].upper()}{text[1:]}."
    elif draw < 0.45:
        text = rng.choice(table[f"{label} whole"])
    else:
        text = fill(rng.choice(table[f"{label} frame"]), domain, label, rng)
    if rng.random() < 0.08:
        opener = rng.choice(OPENERS[label])
        small = text if text.startswith(("I ", "I'")) else text[0].lower() + text[1:]
        text = opener + small
    return text[0].upper() + text[1:]


def reviews(count: int, seed: int) -> list[dict[str, Any]]:
    """Return labelled reviews, half of each sentiment."""
    rng = random.Random(seed)
    domains = sorted({n.split()[0] for n in slots() if n.endswith(" thing")})
    rows: dict[str, dict[str, Any]] = {}
    for number in range(count * 2):
        label = "positive" if number % 2 else "negative"
        domain = rng.choice(domains)
        parts = [sentence(domain, label, rng) for _ in range(rng.choice((1, 1, 1, 2)))]
        text = " ".join(dict.fromkeys(parts))
        rows[text] = {"kind": "review", "label": label, "x1": "", "x2": text}
        if len(rows) >= count:
            break
    return list(rows.values())

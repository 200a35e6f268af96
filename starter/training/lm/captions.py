"""Caption-like sentence pairs from a hand-written grammar (captions.txt).

A scene is a choice of subject, look, action and place; a caption words it. Two wordings of one
scene mean the same; scenes that share some slots are somewhat similar; others are unrelated.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

SLOTS = Path(__file__).with_name("captions.txt")
ANIMALS = ("dog", "cat", "kitten", "puppy", "horse", "monkey", "panda", "bird")
Scene = dict[str, tuple[str, ...]]


@cache
def slots() -> dict[str, list[tuple[str, ...]]]:
    """Return the wordings of every slot value."""
    table: dict[str, list[tuple[str, ...]]] = {}
    name = ""
    for line in SLOTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif line and not line.startswith("#"):
            table.setdefault(name, []).append(tuple(w.strip() for w in line.split("|")))
    return table


def is_animal(subject: tuple[str, ...]) -> bool:
    """Tell whether a subject is an animal."""
    return any(a in subject[0] for a in ANIMALS)


def scene(rng: random.Random, like: Scene | None = None, keep: tuple[str, ...] = ()) -> Scene:
    """Draw a scene; slots named in keep are taken from another one."""
    table = slots()
    subject = like["subject"] if like and "subject" in keep else rng.choice(table["subject"])
    actions = table["animal" if is_animal(subject) else "human"]
    action = like["action"] if like and "action" in keep else rng.choice(actions)
    drawn: Scene = {"subject": subject, "action": action}
    if like and "action" in keep and is_animal(like["subject"]) != is_animal(subject):
        drawn["subject"] = like["subject"]
    for slot, chance in (("place", 0.55), ("look", 0.3)):
        if like and slot in keep:
            if slot in like:
                drawn[slot] = like[slot]
        elif rng.random() < chance and not (slot == "look" and is_animal(drawn["subject"])):
            drawn[slot] = rng.choice(table[slot])
    return drawn


def caption(drawn: Scene, rng: random.Random) -> str:
    """Word a scene."""
    subject, action = rng.choice(drawn["subject"]), rng.choice(drawn["action"])
    if "look" in drawn:
        subject += f" {rng.choice(drawn['look'])}"
    plural = drawn["subject"][0].startswith(("two", "three", "a group", "a couple", "a family"))
    verb = "are" if plural else "is"
    place = f" {rng.choice(drawn['place'])}" if "place" in drawn else ""
    form = rng.random()
    if form < 0.5:
        text = f"{subject} {verb} {action}{place}"
    elif form < 0.75 or not action.split()[0].endswith("ing"):
        text = f"{subject} {action}{place}" if action.split()[0].endswith("ing") else (
            f"{subject} {verb} {action}{place}"
        )  # fmt: skip
    elif form < 0.85:
        text = f"there {verb} {subject} {action}{place}"
    elif form < 0.93 and place and not subject.startswith("a person"):
        text = f"{place.strip()}, {subject} {verb} {action}"
    else:
        the = subject.replace("a ", "the ", 1) if subject.startswith("a ") else subject
        text = f"{the} {verb} {action}{place}"
    return text[0].upper() + text[1:] + ("." if rng.random() < 0.8 else "")


def captions(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield caption pairs of the three levels of similarity, and of the three NLI labels."""
    rng = random.Random(seed)
    kept = [("action",), ("subject",), ("action", "place"), *[("subject", "place")] * 2]
    for _ in range(count):
        first = scene(rng)
        label = rng.choice(("1", "1", "0.5", "0", "entailment", "neutral", "contradiction"))
        x1 = caption(first, rng)
        if label == "1":
            second = first
        elif label == "0.5":
            second = scene(rng, first, rng.choice(kept))
        elif label == "0":
            second = scene(rng)
            if second["subject"] == first["subject"] or second["action"] == first["action"]:
                continue
        elif label == "entailment":
            gone = [s for s in ("place", "look") if s in first]
            second = {k: v for k, v in first.items() if k not in gone[: rng.randint(1, 2)]}
        elif label == "neutral":
            table = slots()
            second = {**first, "place": rng.choice(table["place"])} if "place" not in first else {
                **first, "look": rng.choice(table["look"])}  # fmt: skip
            if second.get("look") and is_animal(second["subject"]):
                continue
        else:
            second = scene(rng, first, ("subject", "look"))
            if second["action"] == first["action"]:
                continue
        x2 = caption(second, rng)
        for _ in range(4):
            if x2.rstrip(".").lower() != x1.rstrip(".").lower():
                break
            x2 = caption(second, rng)
        else:
            continue
        kind = "caption" if label in {"1", "0.5", "0"} else "nli"
        yield {"kind": kind, "label": label, "x1": x1, "x2": x2}

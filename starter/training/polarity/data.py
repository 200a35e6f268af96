"""Pairs that train the polarity check: rewrites that keep what is said, and such that turn it round.

    python -m starter.training.polarity.data --data ../shared/data --work /tmp/polarity-work

A pair begins as a sentence beside itself, a co-translation, a rewrite by rule or a draft of the
starter rewriter (`drafts.jsonl`). Rules then turn one side round (a flip), both sides, one side
twice, or word a negation in another way (no flip). Written: `pairs.jsonl` and, of the second
stage, `second.jsonl` (first, second, flip, kind). Sources: Tatoeba (CC BY 2.0 FR), Wikipedia,
novels, dialogue turns (CC BY-SA), counterfactual NLI (Apache-2.0), WordNet's antonyms.
"""

# Regular expressions are easier to read on one line than wrapped.
# ruff: noqa: E501

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from starter.training.lm.changes import other_name, other_number
from starter.training.lm.edits import (
    contract,
    lower_first,
    passive_to_active,
    raise_first,
    swap_names,
)
from starter.training.lm.inflect import mend_articles
from starter.training.lm.rewrites import rewrite
from starter.training.lm.sentences import DEFAULT_DATA, bank_sentences, read_rows
from starter.training.lm.wordings import Fluency
from starter.training.polarity.words import WORDNET, Lexicon, load_lexicon

DEFAULT_WORK = Path("/tmp/polarity-work")
QUOTA = {"wikipedia": 15_000, "novels": 12_000, "dialogue-turns": 12_000}
SECOND = 36_000  # base pairs of the second stage, and those that compare two things
COMPARED = re.compile(r"^\S+(?: \S+)? (?:is|was) [a-z]+er than \S+(?: \S+)?\.$")
LONGEST = 20  # words of a sentence
SUBJECT = r"(?:(?:I|You|We|They|He|She|It|Tom|Mary|[A-Z][a-z]+|(?:The|My|Your|His|Her|Our|Their|This|That|These|Those) (?:[a-z]+ )?[a-z]+)(?: (?:always|often|usually|just|really|also|still))?)"
AUX = r"(?:is|are|was|were|am|can|could|will|would|should|must|may|might|has|have|had|does|do|did)"
AUX_OR_CONTRACTED = rf"(?:\b{AUX}|(?<=\w)'(?:s|re|m|ll|ve|d))"
SWAPS = [
    ("always", "never"), ("always", "rarely"), ("often", "never"), ("often", "seldom"), ("often", "rarely"),
    ("usually", "rarely"), ("frequently", "rarely"), ("sometimes", "never"), ("everyone", "no one"),
    ("everyone", "nobody"), ("everybody", "nobody"), ("everything", "nothing"), ("something", "nothing"),
    ("someone", "no one"), ("someone", "nobody"), ("somebody", "nobody"), ("everywhere", "nowhere"),
    ("somewhere", "nowhere"), ("all of", "none of"), ("most of", "none of"), ("some of", "none of"),
    ("both of", "neither of"), ("with", "without"), ("with", "without"), ("still", "no longer"),
    ("many", "few"), ("much", "little"), ("too much", "too little"), ("agreed to", "refused to"),
    ("managed to", "failed to"), ("managed to", "was unable to"), ("remembered to", "forgot to"),
    ("wants to", "refuses to"), ("wanted to", "refused to"), ("able to", "unable to"), ("has", "lacks"),
    ("likes", "dislikes"), ("like", "dislike"), ("accepted", "declined"), ("includes", "excludes"),
    ("allowed", "prevented"), ("more", "less"), ("most", "least"), ("on", "off"), ("up", "down"),
    ("turned on", "turned off"), ("almost always", "almost never"), ("a lot of", "no"), ("lots of", "no"),
    ("full of", "free of"), ("far from", "very"), ("too", "not very"), ("succeeded in", "failed at"),
    ("confirmed", "denied"), ("kept", "stopped"), ("started", "stopped"), ("a few", "no"), ("several", "no"),
    ("certainly", "hardly"), ("easily", "hardly"), ("clearly", "barely"), ("fortunately", "unfortunately"),
    ("very", "not at all"), ("completely", "not at all"), ("really", "not really"), ("anything but", "quite"),
]  # fmt: skip
# What says the same with and without a negation; \1 stands for what the first side captured.
EQUAL = [
    (r"\bnobody\b", "no one"), (r"\bno one\b", "nobody"), (r"\bnothing but\b", "only"),
    (r"\b(is|are|was|were) unable to\b", r"\1 not able to"), (r"\b(is|are) unable to\b", "cannot"),
    (r"\b(?:was|were) unable to\b", "could not"), (r"\bcan(?:not|'t) (?=[a-z])", "is unable to "),
    (r"\bcould(?: not|n't) (?=[a-z])", "was unable to "), (r"\bcould(?: not|n't) (?=[a-z])", "was not able to "),
    (r"\bimpossible\b", "not possible"), (r"\bnot possible\b", "impossible"),
    (r"\b(?:has|have) no\b", "does not have any"), (r"\bdo(?:es)? not have (?:any |an? )?", "has no "),
    (r"\bdo(?:es)?n't have (?:any |an? )?", "lacks "), (r"\bhas no\b", "lacks"), (r"\blacks (?:an? )?", "has no "),
    (r"\bhad no\b", "didn't have any"), (r"\bhad no\b", "lacked"), (r"\bdid(?: not|n't) have (?:any |an? )?", "had no "),
    (r"\b(is|are|was|were) no\b", r"\1n't any"), (r"\b(is|are|was|were)n't any\b", r"\1 no"),
    (r"\b(is|are|was|were) not an?\b", r"\1 no"), (r"\brarely\b", "seldom"), (r"\bseldom\b", "rarely"),
    (r"\brarely\b", "hardly ever"), (r"\bhardly ever\b", "almost never"), (r"\bseldom\b", "not often"),
    (r"\bhardly\b", "barely"), (r"\bbarely\b", "scarcely"), (r"\bhardly any\b", "almost no"),
    (r"\brefused to\b", "would not"), (r"\bwould not\b", "refused to"), (r"\brefuses to\b", "won't"),
    (r"\bforgot to\b", "did not remember to"), (r"\b[Dd](?:o not|on't) forget to\b", "remember to"),
    (r"\b[Rr]emember to\b", "don't forget to"), (r"\bnever\b", "not ever"), (r"\bnever\b", "at no time"),
    (r"\bno longer\b", "not any more"), (r"\bwithout\b", "with no"), (r"\bwithout any\b", "without"),
    (r"\bdid(?: not|n't) succeed in\b", "failed at"), (r"\bfailed to\b", "didn't manage to"),
    (r"\bfailed to\b", "was not able to"), (r"\bdidn't manage to\b", "failed to"), (r"\bnever fails to\b", "always manages to"),
    (r"\bcan't wait to\b", "is eager to"), (r"\b(?:[Tt]here is|[Tt]here's) no doubt (?:that )?", "certainly "),
    (r"\b[Nn]o doubt\b", "certainly"), (r"\bcertainly\b", "without a doubt"), (r"\bdefinitely\b", "without doubt"),
    (r"\bnot only (\w+) but(?: also)?\b", r"both \1 and"), (r"\bas well as\b", "and not only"),
    (r"\b(?:do not|don't) mind\b", "have no objection to"), (r"\bquickly\b", "in no time"), (r"\bonly\b", "nothing but"),
    (r"\beasily\b", "without difficulty"), (r"\bsilently\b", "without a word"), (r"\bfree\b", "at no cost"),
    (r"\bdenied that\b", "said it was not true that"), (r"\bavoid(?:s|ed)?\b", "does not go near"),
    (r"\bmissed\b", "did not catch"), (r"\bmissed\b", "was not in time for"), (r"\babsent\b", "not present"), (r"\babsent\b", "not there"),
    (r"\bignored?\b", "paid no attention to"), (r"\bfail(?:s|ed) to\b", "does not"), (r"\bpoor\b", "not good"),
    (r"\bbad\b", "not good"), (r"\bgood\b", "not bad"), (r"\bgreat\b", "not bad at all"), (r"\bnot bad\b", "good"),
    (r"\bmediocre\b", "not very good"), (r"\bterrible\b", "not good at all"), (r"\beveryone\b", "everybody without exception"),
    (r"\balways\b", "without fail"), (r"\balways\b", "never not"), (r"\beveryone\b", "nobody did otherwise, everyone"),
    (r"\ball\b", "without exception all"), (r"\bmust\b", "has no choice but to"), (r"\bbest\b", "second to none"),
    (r"\bperfect(?:ly)?\b", "without fault"), (r"\bsafe\b", "without danger"), (r"\bat once\b", "without delay"),
    (r"\bimmediately\b", "without delay"), (r"\bhate(s?)\b", r"can't stand"), (r"\bdislike(s?)\b", "don't like"),
    (r"\bsure\b", "without doubt"), (r"\bsad\b", "not happy"), (r"\bwrong\b", "not right"), (r"\bdifficult\b", "not easy"),
    (r"\bhard to\b", "not easy to"), (r"\beasy to\b", "not hard to"), (r"\bfalse\b", "not true"), (r"\bstay\b", "not leave"),
    (r"\bweren't\b", "were not"), (r"\b(\w+)n't\b", r"\1 not"), (r"\b(\w+) not\b(?! only)", r"\1n't"),
]  # fmt: skip
CANNOT, NOT = ("cannot", "can't"), (" not", "n't")
NEGATION = re.compile(
    r"\b(?:not|never|no|nobody|none|nothing|nowhere|neither|nor|without|hardly|barely|scarcely|seldom|"
    r"rarely|fail\w*|lack\w*|refus\w*|cannot|unable|few|little)\b|n't\b",
    re.IGNORECASE,
)
Op = Callable[[str, random.Random], "str | None"]


class Rules:
    """Operations on a sentence; each returns None where it does not apply."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.table: dict[str, dict[str, str]] = defaultdict(dict)
        self.verbs_and_strict = {
            word: others
            for word, others in lexicon.opposites.items()
            if word in lexicon.strict or word in lexicon.forms
        }
        for form, (base, kind) in lexicon.forms.items():
            self.table[base].setdefault(kind, form)

    def _form(self, base: str, kind: str) -> str | None:
        return self.table.get(base, {}).get(kind)

    def insert(self, text: str, rng: random.Random) -> str | None:
        """Negate the first auxiliary, or the main verb of a plain clause."""
        match = re.search(rf"{AUX_OR_CONTRACTED}(?= (?!not\b|n't|never\b)[a-z])", text)
        if (
            match
            and not text.endswith("?")
            and not re.match(r"(?:do|does|did|has|have|had|'d)$", match[0])
        ):
            words = rng.choice(
                (
                    " not",
                    " not",
                    "n't",
                    " never",
                    " hardly",
                    " no longer",
                    " not really",
                    " by no means",
                )
            )
            if words == " hardly" and rng.random() < 0.5:
                words = rng.choice((" barely", " scarcely", " rarely", " seldom"))
            if words == "n't" and match[0] in {"am", "may", "might"} | {
                "'s",
                "'re",
                "'m",
                "'ll",
                "'ve",
                "'d",
            }:
                words = " not"
            head, tail = text[: match.start()], text[match.end() :]
            if match[0] + words == "cann't":
                return f"{head}{rng.choice(CANNOT)}{tail}"
            if match[0] + words == "willn't":
                return f"{head}won't{tail}"
            return f"{head}{match[0]}{words}{tail}"
        return self._with_verb(
            text, rng, rng.choice(("do", "do", "do", "never", "hardly", "fail", "refuse"))
        )

    def fails(self, text: str, rng: random.Random) -> str | None:
        """Say that the main verb's action failed or was refused."""
        return self._with_verb(
            text, rng, rng.choice(("fail", "fail", "refuse", "forget", "unable", "stop"))
        )

    def same_negated(self, text: str, rng: random.Random) -> tuple[str, str] | None:
        """Return two wordings of the main verb's negation."""
        ways = rng.sample(("do", "do", "fail", "never-do", "unable"), 2)
        one, two = (self._with_verb(text, rng, way) for way in ways)
        return (one, two) if one and two and one != two else None

    def _with_verb(self, text: str, rng: random.Random, way: str) -> str | None:
        match = re.match(rf"({SUBJECT}) ([a-z]+)\b(?= |\.|!)", text)
        if not match or text.endswith("?"):
            return None
        base, kind = self.lexicon.forms.get(match[2], ("", ""))
        if kind not in ("past", "s", "base") or (
            base in ("be", "can", "will", "do", "have", "like") and kind == "base"
        ):
            return None
        if kind == "base" and not re.match(r"(?:I|You|We|They|These|Those)\b", match[1]):
            return None
        subject, tail = match[1], text[match.end() :]
        do = {"past": "did", "s": "does", "base": "do"}[kind]
        place = ("past", "s", "base").index(kind)
        if way in ("do", "never-do"):
            return f"{subject} {do}{rng.choice(NOT)} {base}{tail}"
        if way == "unable":
            be = ("was", "is", "am" if subject == "I" else "are")[place]
            return f"{subject} {be} unable to {base}{tail}"
        if way == "stop":
            ing = self._form(base, "ing")
            return f"{subject} {('stopped', 'stops', 'stop')[place]} {ing}{tail}" if ing else None
        if way in ("never", "hardly"):
            word = (
                way
                if way == "never"
                else rng.choice(("hardly", "barely", "rarely", "seldom", "scarcely"))
            )
            return f"{subject} {word} {match[2]}{tail}"
        verb = {
            "fail": ("failed", "fails", "fail"),
            "refuse": ("refused", "refuses", "refuse"),
            "forget": ("forgot", "forgets", "forget"),
        }[way][place]
        return f"{subject} {verb} to {base}{tail}"

    def remove(self, text: str, rng: random.Random) -> str | None:
        """Take a negation away."""
        text = re.sub(r"\bcan't\b|\bcannot\b", "can not", text).replace("won't", "will not")
        match = re.search(r"\b(do|does|did)(?: not|n't) ([a-z]+)\b", text)
        if match:
            kind = {"do": "base", "does": "s", "did": "past"}[match[1]]
            form = self._form(match[2], kind)
            return text[: match.start()] + form + text[match.end() :] if form else None
        out = re.sub(rf"\b({AUX})(?: not|n't) ", r"\1 ", text, count=1)
        if out != text:
            return out
        out = re.sub(
            r"\b(?:never|hardly|barely|scarcely) ",
            rng.choice(("", "always ", "often ")),
            text,
            count=1,
        )
        if out != text:
            return out
        out = re.sub(
            r"\b(is|are|was|were|has|have|had) no\b",
            rf"\1 {rng.choice(('a', 'some', 'the', 'plenty of'))}",
            text,
            count=1,
        )
        if out != text:
            return out
        match = re.search(r"\b(failed|fails|refused|refuses) to ([a-z]+)\b", text)
        form = self._form(match[2], "past" if match[1].endswith("ed") else "s") if match else None
        return text[: match.start()] + form + text[match.end() :] if match and form else None

    def no(self, text: str, rng: random.Random) -> str | None:
        """Put "no" for an article or "some"."""
        out = re.sub(
            r"\b(is|was|are|were|has|have|had|gives|gave|made|makes|found|saw|see|with|offers|contains|brought|took|got|get) (?:an?|some|any) ",
            r"\1 no ",
            text,
            count=1,
        )
        out = out.replace("with no", "without") if rng.random() < 0.5 else out
        if out == text:
            out = re.sub(
                r"\b([Aa]n?|[Ss]ome|[Tt]he) (?=[a-z]+ (?:is|was|can|could|will|has)\b)",
                lambda m: "No " if m[1][0].isupper() else "no ",
                text,
                count=1,
            )
        return out if out != text else None

    def swap(self, text: str, rng: random.Random) -> str | None:
        """Put a word of quantity, frequency or success for its opposite."""
        for first, second in rng.sample(SWAPS, len(SWAPS)):
            for one, two in ((first, second), (second, first)):
                match = re.search(rf"\b{one}\b", text, re.IGNORECASE)
                if match and (
                    one not in ("on", "up", "with", "has", "like", "more") or rng.random() < 0.15
                ):
                    new = raise_first(two) if match[0][0].isupper() else two
                    return text[: match.start()] + new + text[match.end() :]
        return None

    def opposite(self, text: str, rng: random.Random) -> str | None:
        """Put an antonym for a word."""
        table = self.lexicon.indirect if rng.random() < 0.3 else self.lexicon.opposites
        return self._word(text, rng, table)

    def _word(self, text: str, rng: random.Random, table: dict[str, list[str]]) -> str | None:
        found = [
            match for match in re.finditer(r"\b[A-Za-z]+\b", text) if match[0].lower() in table
        ]
        if not found:
            return None
        match = rng.choice(found)
        new = rng.choice(table[match[0].lower()])
        new = raise_first(new) if match[0][0].isupper() else new
        return text[: match.start()] + new + text[match.end() :]

    def synonym(self, text: str, rng: random.Random) -> str | None:
        """Put an adjective of its synset for a word."""
        return self._word(text, rng, self.lexicon.synonyms)

    def not_opposite(self, text: str, rng: random.Random) -> str | None:
        """Say "not" and the antonym after a form of be, or take both away."""
        match = re.search(
            r"\b(is|are|was|were|am|be|been|seems|looks)(n't| not)? (a |an |very |so |quite )?([a-z]+)\b",
            text,
        )
        others = self.lexicon.strict.get(match[4]) if match else None
        if not match or not others or text.endswith("?"):
            return None
        middle = "" if match[2] else " not"
        if not middle and match[1] in ("seems", "looks"):
            return None
        degree = "" if match[3] in ("very ", "so ", "quite ") else match[3] or ""
        return f"{text[: match.start()]}{match[1]}{middle} {degree}{rng.choice(others)}{text[match.end() :]}"

    def not_prefixed(self, text: str, rng: random.Random) -> str | None:
        """Say "do not" and a verb for its antonym, or the other way round."""
        match = re.search(r"\b(do|does|did)(?: not|n't) ([a-z]+)\b", text)
        if match and match[2] in self.lexicon.strict:
            base = rng.choice(self.lexicon.strict[match[2]])
            form = self._form(base, {"do": "base", "does": "s", "did": "past"}[match[1]])
            return text[: match.start()] + form + text[match.end() :] if form else None
        found = [
            m
            for m in re.finditer(r"\b[a-z]+\b", text)
            if m[0] in self.lexicon.strict
            and self.lexicon.forms.get(m[0], ("", ""))[1] in ("past", "s")
        ]
        if not found:
            return None
        match = rng.choice(found)
        other, kind = self.lexicon.forms.get(rng.choice(self.lexicon.strict[match[0]]), ("", ""))
        do = "did" if kind == "past" else "does"
        return f"{text[: match.start()]}{do}n't {other}{text[match.end() :]}" if other else None

    def equal(self, text: str, rng: random.Random) -> str | None:
        """Word a negation, or its absence, in another way."""
        for pattern, new in rng.sample(EQUAL, len(EQUAL)):
            out = re.sub(pattern, new, text, count=1)
            if out != text and not re.search(
                r"\b(?!are|is|was|were|do|does|did|ca|could|wo|would|should|has|have|had|must|might|need)\w+n't\b",
                out,
            ):
                return raise_first(out)
        return None

    def roles(self, text: str, rng: random.Random) -> str | None:  # noqa: ARG002
        """Let subject and object change places."""
        thing = r"(?:(?:[Tt]he|[Mm]y|[Hh]is|[Hh]er|[Oo]ur|[Tt]heir|[Aa]|[Yy]our) (?:[a-z]+ )?[a-z]+|[A-Z][a-z]+)"
        match = re.match(
            rf"({thing}) ((?:was |is )?[a-z]+(?: (?:than|by|more [a-z]+ than))?) ({thing})(?=\.|!| (?:in|on|at|yesterday|to|for|with|from|last)\b)",
            text,
        )
        if not match:
            return None
        verb = match[2]
        base, kind = self.lexicon.forms.get(verb, ("", ""))
        fit = (
            kind in ("past", "s")
            or re.match(r"(?:is|was) (?:[a-z]+er|more [a-z]+) than$", verb)
            or re.match(r"was [a-z]+ed by$", verb)
        )
        if not fit or base in {
            "meet",
            "marry",
            "resemble",
            "become",
            "look",
            "join",
            "match",
            "equal",
            "remain",
            "seem",
            "go",
            "work",
            "live",
        }:
            return None
        first, second = (
            lower_first(s)
            if s.split()[0] in {"The", "My", "His", "Her", "Our", "Their", "A", "Your"}
            else s
            for s in (match[1], match[3])
        )
        return raise_first(f"{second} {verb} {first}{text[match.end() :]}")

    def passive(self, text: str, rng: random.Random) -> str | None:
        """Put a plain active clause into the passive, or back; it says the same."""
        match = re.match(
            r"((?:The|My|His|Her|Our|Their|A) (?:[a-z]+ )?[a-z]+|[A-Z][a-z]+) ([a-z]+) ((?:the|my|his|her|our|their|a) (?:[a-z]+ )?[a-z]+|[A-Z][a-z]+)(?=[.!])",
            text,
        )
        base, kind = self.lexicon.forms.get(match[2], ("", "")) if match else ("", "")
        done = self._form(base, "participle") or self._form(base, "past")
        if not match or kind != "past" or not done:
            return passive_to_active(text, rng)
        first = match[1] if re.fullmatch(r"[A-Z][a-z]+", match[1]) else lower_first(match[1])
        return raise_first(f"{match[3]} was {done} by {first}{text[match.end() :]}")

    def converse(self, text: str, rng: random.Random) -> str | None:
        """Compare the other way round: A is older than B, B is younger than A."""
        turned = self.roles(text, rng)
        match = re.search(r"\b(?:is|was) ([a-z]+)er than\b", text)
        if not turned or not match:
            return None
        stems = [
            match[1],
            match[1] + "e",
            re.sub(r"i$", "y", match[1]),
            re.sub(r"(.)\1$", r"\1", match[1]),
        ]
        other = next(
            (self.lexicon.opposites[s][0] for s in stems if s in self.lexicon.opposites), None
        )
        if other is None:
            return None
        more = re.sub(r"y$", "i", other)
        more = other + "r" if other.endswith("e") else more + "er"
        return turned.replace(f"{match[1]}er than", f"{more} than")

    def flips(self) -> list[tuple[str, Op, float]]:
        """Return what turns a sentence round, with weights."""
        return [
            ("insert", self.insert, 4), ("remove", self.remove, 4), ("swap", self.swap, 4), ("no", self.no, 2),
            ("fails", self.fails, 2), ("opposite", self.opposite, 4), ("roles", self.roles, 3),
        ]  # fmt: skip

    def double(self, text: str, rng: random.Random) -> str | None:
        """Turn a sentence round twice, by an opposite and by a negation or a quantity."""
        turned = self._word(text, rng, self.verbs_and_strict)
        rules = rng.sample((self.swap, self.insert, self.remove, self.no), 4)
        outs = (rule(turned, rng) for rule in rules) if turned else ()
        return next((out for out in outs if out and out != text), None)

    def prefixed(self, text: str, rng: random.Random) -> str | None:
        """Put an adjective's strict antonym, such as that with a negating prefix, for it."""
        return self._word(text, rng, self.lexicon.strict)

    def like_opposite(self, text: str, rng: random.Random) -> str | None:
        """Put what is like an antonym for an adjective."""
        return self._word(text, rng, self.lexicon.indirect)

    def equals(self) -> list[tuple[str, Op, float]]:
        """Return what keeps what a sentence says, with weights."""
        return [
            ("equal", self.equal, 5), ("not_opposite", self.not_opposite, 4), ("not_prefixed", self.not_prefixed, 2),
            ("passive", self.passive, 2), ("converse", self.converse, 3), ("synonym", self.synonym, 2),
            ("contract", contract, 1), ("names", swap_names, 1),
        ]  # fmt: skip

    def flipped(self, text: str, rng: random.Random) -> tuple[str, str] | None:
        """Turn a sentence round with one rule; return it and the rule's name."""
        return _apply(text, rng, self.flips())

    def equalled(self, text: str, rng: random.Random) -> tuple[str, str] | None:
        """Word a sentence otherwise with one rule about negation."""
        return _apply(text, rng, self.equals())

    def suspicious(self, first: str, second: str) -> bool:
        """Tell whether the negations of a pair, or an antonym, make its label uncertain."""
        counts = [len(NEGATION.findall(text)) for text in (first, second)]
        words = [set(re.findall("[a-z]+", text.lower())) for text in (first, second)]
        only = words[0] - words[1], words[1] - words[0]
        opposite = any(set(self.lexicon.opposites.get(word, ())) & only[1] for word in only[0])
        return counts[0] % 2 != counts[1] % 2 or opposite


def _apply(
    text: str, rng: random.Random, rules: list[tuple[str, Op, float]]
) -> tuple[str, str] | None:
    left = list(rules)
    while left:
        place = rng.choices(range(len(left)), [weight for *_, weight in left])[0]
        name, rule, _ = left.pop(place)
        out = rule(text, rng)
        if out and out != text:
            return mend_articles(re.sub(r"\s+", " ", out)).strip(), name
    return None


def base_pairs(
    data: Path, work: Path, sentences: list[str], rng: random.Random
) -> Iterator[tuple[str, str, str]]:
    """Yield pairs that say the same, with their kind."""
    english = defaultdict(set)
    for row in read_rows(data / "parallel/tatoeba/train.jsonl.gz"):
        english[row["de"]].add(row["en"])
    for some in english.values():
        if 1 < len(some) <= 5:
            first, second = rng.sample(sorted(some), 2)
            for _ in range(3):
                yield first, second, "co-translation"
    for line in (work / "drafts.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["meaning"] >= 60:
            for _ in range(2):
                yield row["text_a"], row["text_b"], "draft"
    fluency = Fluency(sentences)
    for text in sentences:
        yield text, text, "itself"
        if rng.random() < 0.6:
            yield text, rewrite(text, rng, fluency=fluency)[0], "rules"


def polarity_pairs(
    rules: Rules, pairs: list[tuple[str, str, str]], rng: random.Random
) -> Iterator[tuple[str, str, int, str]]:
    """Yield training pairs (first, second, flip, kind) from pairs that say the same."""
    for first, second, kind in pairs:
        uncertain = kind == "draft" and rules.suspicious(first, second)
        if uncertain:
            continue
        draw = rng.random()
        if draw < 0.42:
            flipped = rules.flipped(second, rng)
            if not flipped:
                continue
            if rng.random() < 0.15 and (again := rules.equalled(flipped[0], rng)):
                flipped = again[0], f"{flipped[1]}+{again[1]}"
            yield first, flipped[0], 1, f"{kind} {flipped[1]}"
        elif draw < 0.57 or (kind == "draft" and draw < 0.85):
            if first != second:
                yield first, second, 0, kind
        elif draw < 0.72:  # both sides turned round in the same way
            seed = rng.random()
            ops = rules.flips()[:4]
            one, two = (_apply(text, random.Random(seed), ops) for text in (first, second))
            if one and two and one[1] == two[1] and first != second:
                yield one[0], two[0], 0, f"{kind} both {one[1]}"
            elif both := rules.same_negated(first, rng):
                yield *both, 0, f"{kind} negated"
        elif draw < 0.95:
            equal = rules.equalled(second, rng)
            if equal:
                yield first, equal[0], 0, f"{kind} {equal[1]}"
        else:
            other = rng.choice((other_name, other_number))(second, rng)
            if other:
                yield first, other, 0, f"{kind} fact"


def second_pairs(
    rules: Rules, pairs: list[tuple[str, str, str]], rng: random.Random
) -> Iterator[tuple[str, str, int, str]]:
    """Yield pairs of the second stage: opposites, roles and sentences turned round twice."""
    flips: list[tuple[str, Op, float]] = [
        ("prefixed", rules.prefixed, 4), ("like", rules.like_opposite, 4),
        ("opposite", rules.opposite, 3), ("roles", rules.roles, 5), ("swap", rules.swap, 1),
        ("insert", rules.insert, 1), ("remove", rules.remove, 1), ("no", rules.no, 1),
        ("fails", rules.fails, 1),
    ]  # fmt: skip
    same: list[tuple[str, Op, float]] = [
        ("double", rules.double, 5), ("not_opposite", rules.not_opposite, 3),
        ("converse", rules.converse, 9), ("passive", rules.passive, 3),
        ("not_prefixed", rules.not_prefixed, 3), ("equal", rules.equal, 3),
    ]  # fmt: skip
    for first, second, kind in pairs:
        if kind == "draft" and rules.suspicious(first, second):
            continue
        draw = rng.random()
        if draw < 0.8:
            flip = draw < 0.4
            made = _apply(second, rng, flips if flip else same)
            if made:
                yield first, made[0], int(flip), f"{kind} {made[1]}"
        elif first != second:
            yield first, second, 0, kind
        elif both := rules.same_negated(first, rng):
            yield *both, 0, f"{kind} negated"


def nli_pairs(rules: Rules, path: Path) -> Iterator[tuple[str, str, int, str]]:
    """Yield NLI pairs; of contradictions those that a negation or an antonym makes."""
    for row in read_rows(path):
        pair = row["premise"], row["hypothesis"]
        contradicts = row["label"] == "contradiction"
        if contradicts == rules.suspicious(*pair):
            yield *pair, int(contradicts), f"nli {row['label']}"


def main() -> None:
    """Write the pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--wordnet", type=Path, default=WORDNET)
    arguments = parser.parse_args()
    rng = random.Random(11)
    english = sorted(
        {row["en"] for row in read_rows(arguments.data / "parallel/tatoeba/train.jsonl.gz")}
    )
    sentences = rng.sample(english, 40_000)
    for source, quota in QUOTA.items():
        sentences += [row["text"] for row in bank_sentences(arguments.data, source, quota, 3)]
    sentences = [text for text in dict.fromkeys(sentences) if 3 <= len(text.split()) <= LONGEST]
    counts: Counter[str] = Counter()
    for text in sentences:
        counts.update(re.findall("[a-z]+", text.lower()))
    rules = Rules(load_lexicon(counts, arguments.wordnet))
    pairs = [*base_pairs(arguments.data, arguments.work, sentences, rng)]
    short = [pair for pair in pairs if pair[2] != "rules" and len(pair[0].split()) <= 14]
    short = random.Random(12).sample(short, SECOND) + [
        (text, text, "itself") for text in english if COMPARED.search(text) for _ in range(3)
    ]
    again = [*second_pairs(rules, short, random.Random(12))]
    made = [
        *polarity_pairs(rules, pairs, rng),
        *nli_pairs(rules, arguments.data / "nli/cad/train.jsonl.gz"),
    ]
    made = list(
        {
            (first, second): (first, second, flip, kind) for first, second, flip, kind in made
        }.values()
    )
    made = [row if rng.random() < 0.5 else (row[1], row[0], *row[2:]) for row in made]
    rng.shuffle(made)
    again += rng.sample(made, len(again) // 4)
    rng.shuffle(again)
    for name, rows in (("pairs", made), ("second", again)):
        with (arguments.work / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for row in rows:
                named = dict(zip(("first", "second", "flip", "kind"), row, strict=True))
                file.write(json.dumps(named, ensure_ascii=False) + "\n")
    print(Counter(flip for *_, flip, _ in made), Counter(kind for *_, kind in made).most_common(60))


if __name__ == "__main__":
    main()

"""English inflection by rule, with the exceptions that occur in wordings.txt."""

from __future__ import annotations

import re

# base: (past, past participle); everything else is regular.
IRREGULAR = {
    "become": ("became", "become"), "begin": ("began", "begun"), "bear": ("bore", "borne"),
    "beat": ("beat", "beaten"), "break": ("broke", "broken"), "bring": ("brought", "brought"),
    "build": ("built", "built"), "burn": ("burned", "burned"), "buy": ("bought", "bought"),
    "choose": ("chose", "chosen"), "come": ("came", "come"), "cost": ("cost", "cost"),
    "cut": ("cut", "cut"), "do": ("did", "done"), "draw": ("drew", "drawn"),
    "drink": ("drank", "drunk"), "drive": ("drove", "driven"), "eat": ("ate", "eaten"),
    "fall": ("fell", "fallen"), "find": ("found", "found"), "flee": ("fled", "fled"),
    "forbid": ("forbade", "forbidden"), "forget": ("forgot", "forgotten"),
    "get": ("got", "got"), "give": ("gave", "given"), "go": ("went", "gone"),
    "grow": ("grew", "grown"), "have": ("had", "had"), "hear": ("heard", "heard"),
    "hide": ("hid", "hidden"), "hit": ("hit", "hit"), "hold": ("held", "held"),
    "hurt": ("hurt", "hurt"), "keep": ("kept", "kept"), "know": ("knew", "known"),
    "lead": ("led", "led"), "leap": ("leapt", "leapt"), "learn": ("learned", "learned"),
    "leave": ("left", "left"), "lend": ("lent", "lent"), "let": ("let", "let"),
    "lie": ("lay", "lain"), "lose": ("lost", "lost"), "make": ("made", "made"),
    "mean": ("meant", "meant"), "overcome": ("overcame", "overcome"), "pay": ("paid", "paid"),
    "put": ("put", "put"), "quit": ("quit", "quit"), "read": ("read", "read"),
    "ride": ("rode", "ridden"), "rise": ("rose", "risen"), "run": ("ran", "run"),
    "say": ("said", "said"), "see": ("saw", "seen"), "seek": ("sought", "sought"),
    "sell": ("sold", "sold"), "send": ("sent", "sent"), "set": ("set", "set"),
    "show": ("showed", "shown"), "shut": ("shut", "shut"), "sink": ("sank", "sunk"),
    "sit": ("sat", "sat"), "slay": ("slew", "slain"), "sleep": ("slept", "slept"),
    "speak": ("spoke", "spoken"), "spend": ("spent", "spent"), "split": ("split", "split"),
    "stand": ("stood", "stood"), "steal": ("stole", "stolen"), "strike": ("struck", "struck"),
    "sue": ("sued", "sued"), "take": ("took", "taken"), "teach": ("taught", "taught"),
    "tear": ("tore", "torn"), "tell": ("told", "told"), "think": ("thought", "thought"),
    "throw": ("threw", "thrown"), "understand": ("understood", "understood"),
    "wear": ("wore", "worn"), "wed": ("wed", "wed"), "weep": ("wept", "wept"),
    "win": ("won", "won"), "write": ("wrote", "written"), "blow": ("blew", "blown"),
    "bind": ("bound", "bound"), "catch": ("caught", "caught"), "feel": ("felt", "felt"),
    "fight": ("fought", "fought"), "fly": ("flew", "flown"), "hang": ("hung", "hung"),
    "meet": ("met", "met"), "sing": ("sang", "sung"), "swim": ("swam", "swum"),
    "lay": ("laid", "laid"), "ring": ("rang", "rung"), "shoot": ("shot", "shot"),
}  # fmt: skip
DOUBLED = {
    "stop", "chop", "slap", "grab", "rob", "ban", "plan", "fit", "drop", "step", "admit", "permit",
    "cut", "get", "hit", "let", "put", "quit", "run", "set", "shut", "sit", "split", "win", "begin",
    "forget", "forbid", "jog", "hop", "swim", "compel", "refer", "occur", "sip", "tug", "wed",
    "chat", "clap", "hug", "nod", "spin", "skip", "rip", "mop", "tap", "wrap", "zip", "dig",
}  # fmt: skip
IRREGULAR_PLURAL = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "wife": "wives",
    "policeman": "policemen", "spokesman": "spokesmen", "clergyman": "clergymen",
    "serviceman": "servicemen", "forefather": "forefathers", "series": "series", "half": "halves",
    "spokesperson": "spokespeople", "aircraft": "aircraft", "offspring": "offspring",
    "young man": "young men", "young woman": "young women", "woods": "woods", "funds": "funds",
}  # fmt: skip
MASS = {
    "money", "cash", "funds", "work", "labour", "music", "tunes", "food", "clothes", "clothing",
    "furniture", "staff", "personnel", "military", "armed forces", "research", "garbage", "trash",
    "rubbish", "fuel", "gas", "woods", "equipment", "gear", "funding", "freedom", "liberty",
    "happiness", "joy", "anger", "rage", "sorrow", "sadness", "grief", "pleasure", "delight",
    "head of state", "mother or father", "member of staff", "person next door", "things to eat",
    "person using it", "dimensions", "number of inhabitants", "house of worship", "most part",
}  # fmt: skip


def past_forms(base: str) -> tuple[str, str]:
    """Return the past and the past participle of a verb given in its base form."""
    if base in IRREGULAR:
        return IRREGULAR[base]
    if base.endswith("e"):
        past = base + "d"
    elif re.search(r"[^aeiou]y$", base):
        past = base[:-1] + "ied"
    elif base in DOUBLED:
        past = base + base[-1] + "ed"
    else:
        past = base + "ed"
    return past, past


def add_s(base: str) -> str:
    """Return the third person of a verb, or the regular plural of a noun."""
    if base in {"have", "be"}:
        return {"have": "has", "be": "is"}[base]
    if re.search(r"(?:s|x|z|ch|sh)$", base) or base in {"go", "do"}:
        return base + "es"
    if re.search(r"[^aeiou]y$", base):
        return base[:-1] + "ies"
    return base + "s"


def ing_form(base: str) -> str:
    """Return the -ing form of a verb."""
    if base in {"die", "lie", "tie"}:
        return base[:-2] + "ying"
    if base.endswith("e") and base not in {"see", "be", "flee", "agree", "guarantee"}:
        return base[:-1] + "ing"
    if base in DOUBLED:
        return base + base[-1] + "ing"
    return base + "ing"


def verb_forms(phrase: str) -> dict[str, str]:
    """Return the inflected forms of a verb phrase, keyed base, s, past, participle, ing."""
    head, _, rest = phrase.partition(" ")
    tail = f" {rest}" if rest else ""
    if head == "be":
        forms = ("be", "is", "was", "been", "being")
    else:
        forms = (head, add_s(head), *past_forms(head), ing_form(head))
    return dict(
        zip(("base", "s", "past", "participle", "ing"), (f + tail for f in forms), strict=True)
    )


def plural(noun: str) -> str | None:
    """Return the plural of a noun phrase, or None for mass nouns."""
    if noun in MASS:
        return None
    if noun in IRREGULAR_PLURAL:
        return IRREGULAR_PLURAL[noun]
    if noun.endswith("life"):
        return noun[:-2] + "ves"
    head, separator, rest = noun.partition(" of ")
    return add_s(head) + separator + rest


def mend_articles(text: str) -> str:
    """Make "a" and "an" agree with the word that follows."""

    def mend(match: re.Match[str]) -> str:
        article, space, word = match.groups()
        silent = re.match(r"(?:hour|honest|honou?r|heir)", word, re.IGNORECASE)
        consonant = re.match(
            r"(?:uni[^nm]|use|usu|euro|one\b|once|u\.?[skn]\b)", word, re.IGNORECASE
        )
        vowel = (word[0] in "aeiouAEIOU" and not consonant) or silent
        if len(word) > 1 and word.isupper():
            vowel = word[0] in "AEFHILMNORSX"
        return article[0] + ("n" if vowel else "") + space + word

    return re.sub(r"\b([Aa]n?)( )([A-Za-z][\w.\-]*)", mend, text)

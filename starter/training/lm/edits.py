"""Edits of a sentence's structure that keep its meaning.

Every edit is a function from a sentence and a source of randomness to a new sentence, or None where
it does not apply.
"""

# Regular expressions and word lists are easier to read on one line than wrapped.
# ruff: noqa: E501, SIM905, UP031

from __future__ import annotations

import random
import re

from starter.training.lm.inflect import (
    DOUBLED,
    IRREGULAR,
    add_s,
    ing_form,
    mend_articles,
    past_forms,
)

NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
).split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
# Sentence openers that may be written small when they leave the first place.
SMALL = set(
    "the a an he she it they we you this that these those his her its their our my your there in on "
    "at when if after before while because although as since some many most all both several each "
    "every one two three four five no people others however it's he's she's there's".split()
)
CONTRACTIONS = [
    ("do not", "don't"), ("does not", "doesn't"), ("did not", "didn't"), ("is not", "isn't"),
    ("are not", "aren't"), ("was not", "wasn't"), ("were not", "weren't"), ("cannot", "can't"),
    ("could not", "couldn't"), ("would not", "wouldn't"), ("should not", "shouldn't"),
    ("will not", "won't"), ("has not", "hasn't"), ("have not", "haven't"), ("had not", "hadn't"),
    ("I am", "I'm"), ("you are", "you're"), ("we are", "we're"), ("they are", "they're"),
    ("it is", "it's"), ("that is", "that's"), ("he is", "he's"), ("she is", "she's"),
    ("there is", "there's"), ("what is", "what's"), ("who is", "who's"), ("I have", "I've"),
    ("you have", "you've"), ("we have", "we've"), ("they have", "they've"), ("I will", "I'll"),
    ("you will", "you'll"), ("we will", "we'll"), ("they will", "they'll"), ("he will", "he'll"),
    ("she will", "she'll"), ("it will", "it'll"), ("I would", "I'd"), ("let us", "let's"),
    ("where is", "where's"), ("how is", "how's"), ("I had", "I'd"), ("you would", "you'd"),
]  # fmt: skip
TIME = (
    r"(?:(?:in|since|until|by|during) (?:(?:early|late|mid-)?\s?(?:%s),? ?)?(?:1[0-9]|20)\d\d|"
    r"on (?:%s)(?: (?:morning|afternoon|evening|night))?|on \d{1,2} (?:%s)(?: \d{4})?|"
    r"on (?:%s) \d{1,2}(?:, \d{4})?|(?:last|next|this|earlier this) (?:week|month|year|night|summer|"
    r"winter|spring|autumn|morning|evening)|yesterday|today|tomorrow|at the same time|every day|"
    r"in the (?:morning|afternoon|evening|past|future|end|1\d\d0s|20\d0s)|at (?:night|first|last)|"
    r"for the first time|at the end of the (?:day|war|year|century|season)|two (?:days|years) later)"
) % ("|".join(MONTHS), "|".join(DAYS), "|".join(MONTHS), "|".join(MONTHS))  # fmt: skip
PARTICIPLES = {past_forms(b)[1]: b for b in IRREGULAR} | {
    past_forms(b)[1]: b
    for b in (
        "direct produce discover design create develop publish release invent paint kill destroy "
        "attack own manage host perform announce arrest award elect appoint found introduce "
        "inspire influence use play visit describe record compose edit replace damage injure "
        "capture occupy organize sponsor support support close open save rescue chase cause "
        "defeat criticize reject approve sign"
    ).split()
}
# The gap may not hold a comma: the subject of a passive must be one plain noun phrase.
NP = r"[^,.;:()\"]{2,45}?"


def raise_first(text: str) -> str:
    """Write the first letter large."""
    return text[:1].upper() + text[1:]


def lower_first(text: str) -> str:
    """Write the first letter small where the first word is no name."""
    head = re.split(r"[\s,]", text, maxsplit=1)[0]
    return text[:1].lower() + text[1:] if head.lower() in SMALL and head != "I" else text


def contract(text: str, rng: random.Random) -> str | None:
    """Exchange a full form for its contraction, or the other way."""
    found = []
    for full, brief in CONTRACTIONS:
        for old, new in ((full, brief), (brief, full)):
            for a, b in ((old, new), (raise_first(old), raise_first(new))):
                if re.search(rf"\b{a}\b(?!')", text) and not text.endswith(f"{a}."):
                    found.append((a, b))
    if not found:
        return None
    old, new = rng.choice(found)
    if new.endswith(("'d", "'s", "'ve")) and re.search(rf"{old}[.?!,]", text):
        return None
    return re.sub(rf"\b{old}\b", new, text, count=1)


def numbers(text: str, rng: random.Random) -> str | None:
    """Write a number in words as digits, or the other way; `%` as `percent`."""
    del rng
    out = re.sub(r"(\d)%", r"\1 percent", text)
    if out == text:
        out = re.sub(r"(\d) (?:percent|per cent)\b", r"\1%", text)
    if out == text:
        out = re.sub(
            r"(?<![\d.,:$-])\b(1\d|20|[2-9])(?= [a-z])", lambda m: NUMBERS[int(m[1])], text, count=1
        )
    if out == text:
        out = re.sub(
            rf"(?<=[a-z] )\b({'|'.join(NUMBERS[2:])})(?= [a-z])",
            lambda m: str(NUMBERS.index(m[1])),
            text,
            count=1,
        )
    return raise_first(out) if out != text else None


def dates(text: str, rng: random.Random) -> str | None:
    """Exchange "12 May 2010" and "May 12, 2010"; drop or keep the year as it is."""
    del rng
    months = "|".join(MONTHS)
    out = re.sub(rf"\b(\d{{1,2}}) ({months}) (\d{{4}})\b", r"\2 \1, \3", text)
    if out == text:
        out = re.sub(rf"\b({months}) (\d{{1,2}}), (\d{{4}}),?", r"\2 \1 \3", text)
    if out == text:
        out = re.sub(rf"\b({months}) (\d{{1,2}})\b", r"\2 \1", text)
    return out if out != text else None


def time_to_front(text: str, rng: random.Random) -> str | None:
    """Move a closing expression of time to the front."""
    del rng
    match = re.match(rf"^([^,;:]*?),? ({TIME})\.$", text)
    if not match or len(match[1].split()) < 3 or re.search(r"\b(?:said|and|or|to)$", match[1]):
        return None
    return f"{raise_first(match[2])}, {lower_first(match[1])}."


def time_to_end(text: str, rng: random.Random) -> str | None:
    """Move an opening expression of time to the end."""
    del rng
    match = re.match(rf"^({TIME}),? ([^;:]*)\.$", text, re.IGNORECASE)
    if not match or not (match[2][:1].isupper() or match[2].split()[0] in SMALL):
        return None
    opener = match[1][:1].lower() + match[1][1:]
    return f"{raise_first(match[2])} {opener}."


def swap_clauses(text: str, rng: random.Random) -> str | None:
    """Exchange "When X, Y." and "Y when X."."""
    del rng
    join = "when|if|after|before|because|although|though|while|once|since|as soon as|unless"
    match = re.match(rf"^({join}) ([^,;:]+), ([^,;:]+)([.?!])$", text, re.IGNORECASE)
    if match:
        return f"{raise_first(match[3])} {match[1].lower()} {match[2]}{match[4]}"
    match = re.match(rf"^([^,;:?]{{12,}}?),? ({join}) ([^,;:?]{{8,}})\.$", text)
    if match and not re.search(r"\b(?:ever|the|a|of|even|day|time|years?)$", match[1]):
        return f"{raise_first(match[2])} {match[3]}, {lower_first(match[1])}."
    return None


def drop_aside(text: str, rng: random.Random) -> str | None:
    """Leave out a parenthesis, an apposition or a relative clause between commas."""
    found = [m.span() for m in re.finditer(r" \([^()]*\)", text)]
    found += [
        m.span()
        for m in re.finditer(r", (?:who|which|where|whose|a|an|the|one|known|also|including|former|"
                             r"born|located|[0-9]+)\b[^,.;\"]{2,60},(?= (?!and|or)[a-z])", text)
    ]  # fmt: skip
    found += [
        (m.start(), m.end() - 1)
        for m in re.finditer(r", (?:which|where|who|including|according to|saying|making|with|while|"
                             r"although|but|leaving|and is|and was|and the|an?) [^;\"]{4,90}[.]$", text)
    ]  # fmt: skip
    found = [s for s in found if s[0] >= 15 and len(text) - (s[1] - s[0]) > 24]
    if not found:
        return None
    start, end = rng.choice(found)
    return text[:start] + text[end:]


def drop_opener(text: str, rng: random.Random) -> str | None:
    """Leave out an opening connective, or set one mid-sentence."""
    match = re.match(
        r"^((?:And|But|Also|Then)(?=,? )|(?:However|In addition|Therefore|Thus|Moreover|Furthermore|"
        r"For example|As a result|Meanwhile|In fact|Eventually|Additionally|Finally|Currently|"
        r"Nevertheless|Well|So|Oh|Yes|No|Okay|Sure)(?=, )),? (.+)$",
        text,
    )
    if not match or len(match[2].split()) < 4:
        return None
    middle = re.match(r"^(\S+(?: \S+){0,2}?) (is|was|are|were|has|have|can|will) (.+)$", match[2])
    if match[1] == "However" and middle and rng.random() < 0.5:
        return f"{raise_first(middle[1])}, however, {middle[2]} {middle[3]}"
    return raise_first(match[2])


def drop_small(text: str, rng: random.Random) -> str | None:
    """Leave out an adverb, or an adjective between a determiner and a noun."""
    found = list(
        re.finditer(
            r"\b(?:very|also|really|quite|just|actually|highly|mainly|previously|then|still|even|"
            r"simply|currently|officially|reportedly|already|completely|successfully|recently) "
            r"(?=[a-z])|(?<=\b(?:the|its|his|her) )(?:own|new|famous|old|young|large|small|great|"
            r"big|little|nearby|entire|beautiful|local|main) (?=[a-z]{4,})",
            text,
        )
    )
    if not found:
        return None
    match = rng.choice(found)
    return mend_articles(text[: match.start()] + text[match.end() :])


def speech(text: str, rng: random.Random) -> str | None:
    """Turn reported speech around: "S said that Y.", "Y, S said.", "According to S, Y."."""
    forms = ["{s} said that {y}.", "{Y}, {s} said.", "According to {s}, {y}.", "{Y}, according to {s}.",
             "{S} says {y}.", "{S} said {y}."]  # fmt: skip
    for pattern, s, y, own in (
        (
            r"^([A-Z][^,;:\"]{2,50}?) (?:said|says|stated|announced|claimed|reported) that (.+)\.$",
            1,
            2,
            0,
        ),
        (
            r"^([A-Z][^,;:\"]{2,50}?) (?:said|says) ((?:the|he|she|it|they|there|a|his) .+)\.$",
            1,
            2,
            5,
        ),
        (r"^(.{15,}), ([^,;:\"]{2,45}?) (?:said|says)(?: [A-Z][a-z]+day)?\.$", 2, 1, 1),
        (r"^(.{15,}), (?:said|says) ([^,;:\"]{2,45}?)\.$", 2, 1, 1),
        (r"^According to ([^,;:]{3,45}), (.+)\.$", 1, 2, 2),
        (r"^(.{15,}),? according to ([^,;:]{3,45})\.$", 2, 1, 3),
    ):
        match = re.match(pattern, text)
        if not match or (re.match(r"^(?:It|They|He|She|I|We)\b", match[s]) and own in (2, 3)):
            continue
        pronoun = match[s].split()[0].lower() in {"he", "she", "it", "they", "i", "we", "you"}
        choices = [f for i, f in enumerate(forms) if i != own and not (pronoun and "ccording" in f)]
        form = rng.choice(choices)
        small_s, small_y = lower_first(match[s]), lower_first(match[y])
        out = form.format(s=small_s, y=small_y, S=raise_first(match[s]), Y=raise_first(match[y]))
        return raise_first(out)
    return None


def passive_to_active(text: str, rng: random.Random) -> str | None:
    """Turn "X was V-ed by Y." into "Y V-ed X."."""
    del rng
    match = re.match(
        rf"^({NP}) (was|were|is|are|has been|have been) ([a-z]+) by ((?:the |a |an )?[^,;:()\"]{{2,40}}?)"
        rf"((?: {TIME}|(?: in| on| at| during| and) [^,]*)?)\.$",
        text,
    )
    if not match or match[3] not in PARTICIPLES or re.match(r".*ing\b|night|day", match[4]):
        return None
    base = PARTICIPLES[match[3]]
    past = match[2] in ("was", "were")
    plural_agent = match[4].endswith("s") or " and " in match[4]
    if past:
        verb = past_forms(base)[0]
    elif match[2].endswith("been"):
        verb = ("have " if plural_agent else "has ") + match[3]
    else:
        verb = base if plural_agent else add_s(base)
    subject = lower_first(match[1])
    subject = {"he": "him", "she": "her", "they": "them", "we": "us", "I": "me"}.get(
        subject, subject
    )
    return f"{raise_first(match[4])} {verb} {subject}{match[5]}."


def possessive(text: str, rng: random.Random) -> str | None:
    """Exchange "the capital of France" and "France's capital"."""
    del rng
    name = r"((?!(?:It|He|She|That|What|There|Here|Let|Who|Where|How|One|Today)\b)(?:[A-Z][\w.\-]+)(?: [A-Z][\w\-]+){0,2})"
    out = re.sub(
        rf"\b([Tt])he ((?:new |former |first )?[a-z]{{3,}}) of {name}(?= [a-z]|[.,])(?! of)",
        lambda m: f"{m[3]}'{'' if m[3].endswith('s') else 's'} {m[2]}", text, count=1,
    )  # fmt: skip
    if out != text:
        return out
    out = re.sub(rf"(?<![\w'])(?<![\w'] ){name}'s ((?:[a-z]+ )?[a-z]{{3,}})(?=[.,]| (?:is|was|has|in|to|and)\b)",
                 r"the \2 of \1", text, count=1)  # fmt: skip
    return raise_first(out) if out != text else None


def progressive(text: str, rng: random.Random) -> str | None:
    """Rephrase "A clerk is sorting a parcel.": simple present, bare participle, or "There is"."""
    match = re.match(
        r"^((?:A|An|The|Two|Three|Some|Four|Several)\b[^,.]{2,40}?) (is|are) (\w+ing)\b(.*)$", text
    )
    if not match:
        match = re.match(r"^((?:A|An|Two|Three|Some)\b[^,.]{2,30}?)( )(\w{3,}ing)\b(.*)$", text)
        if not match or re.search(r"\b(?:is|are|was|were|has|have)\b", text):
            return None
        verb = "is" if match[1].startswith(("A ", "An ")) else "are"
        return f"{match[1]} {verb} {match[3]}{match[4]}"
    base = base_of_ing(match[3])
    choices = [f"{match[1]} {match[3]}{match[4]}"]
    if base:
        choices += [f"{match[1]} {add_s(base) if match[2] == 'is' else base}{match[4]}"] * 2
    if not match[1].startswith("The"):
        choices.append(f"There {match[2]} {lower_first(match[1])} {match[3]}{match[4]}")
    return rng.choice(choices)


def base_of_ing(word: str) -> str | None:
    """Return the base form of an -ing form, or None where the rule is unsure."""
    stem = word[:-3]
    for base in (*IRREGULAR, *DOUBLED):
        if ing_form(base) == word:
            return base
    if len(stem) > 2 and stem[-1] == stem[-2] and stem[-1] not in "lsz":
        return stem[:-1]
    if re.search(
        r"(?:[^aeiou][iauo][vcsgz]|[aeiou][rtklnm]|[rn][gcsv]|dl|bl|tl|gl|pl|ng|ur|ir)$", stem
    ):
        known = {"mak", "tak", "rid", "driv", "danc", "smil", "hold", "us", "writ", "hik", "skat",
                 "hav", "giv", "com", "leav", "typ", "pos", "slic", "chas", "rac", "bik", "serv",
                 "practic", "exercis", "mov", "wav", "prepar", "shar", "challeng"}  # fmt: skip
        return stem + "e" if stem in known else stem if stem[-1] in "rtklnm" else None
    return stem if len(stem) > 2 else None


def there_is(text: str, rng: random.Random) -> str | None:
    """Turn "There is a man in the room." into "A man is in the room."."""
    del rng
    match = re.match(r"^There (is|are|was|were) ((?:an?|two|three|some|many|several) [^,.]{2,30}?)"
                     r" (in|on|at|near|under|behind|inside|outside|with|\w+ing) (.+)$", text)  # fmt: skip
    if not match:
        return None
    return f"{raise_first(match[2])} {match[1]} {match[3]} {match[4]}"


def swap_names(text: str, rng: random.Random) -> str | None:
    """Exchange the two parts of "X and Y" where both are names or both plain plurals."""
    del rng
    out = re.sub(
        r"(?<=[a-z] )([A-Z][a-z]+) and ([A-Z][a-z]+)(?=[.,]| [a-z])", r"\2 and \1", text, count=1
    )
    if out == text:
        out = re.sub(
            r"\b(?<! to )([a-z]{3,}s) and ([a-z]{3,}s)(?=[.,])", r"\2 and \1", text, count=1
        )
    return out if out != text else None


def headline(text: str, rng: random.Random) -> str | None:
    """Compress to the style of a headline: no articles, fewer auxiliaries, no final stop."""
    if len(text.split()) < 6 or text[-1] != ".":
        return None
    out = re.sub(r"\b(?:the|The|a|A|an|An) (?=\w)", "", text[:-1])
    out = re.sub(r" (?:is|are|was|were) (?=(?:\w+ed|\w+ing|found|held|shot|hit|set)\b)", " ", out)
    out = re.sub(r" (?:has|have) (?=\w+ed\b)", " ", out)
    if rng.random() < 0.5:
        out = re.sub(r" and (?=\w)", ", ", out, count=1)
    return raise_first(out)


def polite(text: str, rng: random.Random) -> str | None:
    """Rephrase requests and questions of conversation."""
    tables = [
        (r"^(?:Can|Could|Would|Will) you (?:please )?(?!like)(.+)\?$", ["Please {}.", "Could you {}?", "Can you {}?",
         "I'd like you to {}.", "Would you {}?", "I want you to {}."]),
        (r"^(?:Please|Kindly),? (.+)\.$", ["Could you {}?", "Can you please {}?", "Would you mind if I asked you to {}?",
         "I would like you to {}."]),
        (r"^(?:I would like|I'd like|I want|I need|I wish) to (.+)\.$", ["I want to {}.", "I'd like to {}.",
         "Can I {}?", "I need to {}.", "I would like to {}.", "Could I {}?"]),
        (r"^(?:Do you want|Would you like|Do you wish) to (.+)\?$", ["Do you want to {}?", "Would you like to {}?",
         "Shall we {}?", "Are you interested in having to {}?"][:3]),
        (r"^(?:I think|I believe|I guess|I suppose)(?: that)? (.+)\.$", ["I believe {}.", "In my opinion, {}.",
         "I think that {}.", "It seems to me that {}."]),
        (r"^You (?:should|ought to|had better|need to) (.+)\.$", ["You ought to {}.", "You should {}.",
         "It would be best to {}.", "I think you should {}.", "You need to {}."]),
        (r"^(?:You don't|You do not) (?:have|need) to (.+)\.$", ["There is no need to {}.", "You needn't {}.",
         "It isn't necessary to {}.", "You don't need to {}."]),
        (r"^It depends on (.+)\.$", ["It really depends on {}.", "That depends on {}.", "This will depend on {}."]),
        (r"^Maybe (.+)\.$", ["Perhaps {}.", "It is possible that {}."]),
        (r"^It is (?:possible|likely) that (.+)\.$", ["Perhaps {}.", "It may be that {}."]),
        (r"^How do I (.+)\?$", ["What is the best way to {}?", "How can I {}?", "How should I {}?"]),
        (r"^How can I (.+)\?$", ["How do I {}?", "What can I do to {}?", "What is the way to {}?"]),
        (r"^What is the best way to (.+)\?$", ["How should I {}?", "How can I best {}?", "How do I {}?"]),
        (r"^Is it (?:okay|ok|possible|all right) to (.+)\?$", ["Can I {}?", "May one {}?", "Is it fine to {}?"]),
        (r"^Is there (.+)\?$", ["Do you know if there is {}?", "Does there exist {}?"]),
        (r"^What does (.+) mean\?$", ["What is the meaning of {}?", "What is meant by {}?"]),
    ]  # fmt: skip
    for pattern, forms in tables:
        match = re.match(pattern, text)
        if match:
            body = match[1] if match[1].startswith(("I ", "I'")) else lower_first(match[1])
            outs = [f.format(body) for f in forms]
            outs = [o for o in outs if o.lower() != text.lower()]
            return rng.choice(outs) if outs else None
    return None

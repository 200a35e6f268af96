"""Pairs of the polarity check's third stage: both classes are reworded, not copied.

    python -m starter.training.polarity.reworded --data ../shared/data --work /tmp/polarity-work

Flips and harmless pairs come from sentences with places and their wordings (`frames.txt`), from
co-translations of Tatoeba of which one side is changed by opposites (`opposites.txt`, WordNet) or by
the rules of data.py, from sentences whose German differs by a negation or an antonym
alone, from drafts of the starter rewriter and from counterfactual NLI. Written: `stage3.jsonl` or
`stage4.jsonl`.
"""

# Word lists are easier to read on one line than wrapped.
# ruff: noqa: E501, SIM905

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from starter.training.lm.edits import raise_first
from starter.training.lm.inflect import mend_articles, plural, verb_forms
from starter.training.lm.rewrites import rewrite
from starter.training.lm.sentences import DEFAULT_DATA, bank_sentences, read_rows
from starter.training.lm.wordings import Fluency, fits, reword
from starter.training.polarity.data import (
    DEFAULT_WORK,
    NEGATION,
    Rules,
    polarity_pairs,
    second_pairs,
)
from starter.training.polarity.words import WORDNET, load_lexicon

HERE = Path(__file__).parent
Pair = tuple[str, str, int, str]  # first, second, flip, kind
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

PERSONS = [
    one.split("/") for one in (
        "my sister,my brother,my father/my dad,my mother/my mum,my uncle,my aunt,my boss/my manager,our neighbour/the man next door,"
        "the doctor/the physician,the teacher,the policeman/the police officer,the lawyer/the attorney,the old man/the elderly man,"
        "the girl,the boy/the lad,the driver/the man at the wheel,the nurse,the cook/the chef,the farmer,the mayor,the minister,"
        "the guest/the visitor,the coach/the trainer,the captain/the skipper,the student,the child/the kid,the secretary,the tenant/the lodger,"
        "Tom,Mary,Mr Brown,Mrs Lee,Anna,Peter,Sami,Lena,Karl,Yuki,Ahmed,Rosa,Dr Weber,Julia,Omar,Ivan,Eva,Paul,Professor Klein,Nina,"
        "my cousin,my roommate/my flatmate,my friend/my mate,her husband,his wife,the singer,the actress,the plumber,the painter,the king,"
        "the thief/the robber,the soldier,the editor,the director,the landlord,the waiter,the author/the writer,the witness,the scientist/the researcher"
    ).split(",")
]  # fmt: skip
THINGS = [
    one.split("/") for one in (
        "the red car,the blue car,the new phone/the new mobile,the old phone/the old mobile,the first book,the second book,the film/the movie,the novel,the sofa/the couch,"
        "the armchair,the bicycle/the bike,the bus,the train,the plane/the aircraft,the flat/the apartment,the house,the kitchen,the cellar/the basement,the table,"
        "the desk,the laptop,the printer,the lamp,the carpet/the rug,the box,the suitcase/the case,the bag,the knife,the coat,the jacket,the hotel,the restaurant,"
        "the museum,the church,the bridge,the tower,the garden/the yard,the lake,the river,the road/the street,the shop/the store,the factory/the plant,"
        "the report,the letter,the contract,the test/the exam,the speech/the talk,the job,the plan,the machine,the engine/the motor,the battery,the washing machine/the washer,"
        "the left door,the right door,the old software,the new software,the picture/the painting,the piano,the guitar,the boat,the tent,the lorry/the truck"
    ).split(",")
]  # fmt: skip
EVENTS = [p.split("/") for p in "the meeting,the concert,the war,the strike,the game/the match,the party,the trial,the film/the movie,the wedding,the lesson/the class,the election,the conference,the exhibition,the holiday/the vacation,the storm,the lecture/the talk,the crisis,the fire/the blaze,the scandal,the accident/the crash,the flood".split(",")]  # fmt: skip
SLOTS: dict[str, list[list[str]]] = {
    "person": PERSONS, "thing": THINGS,
    "place": [[p] for p in "Paris,Berlin,London,Rome,Madrid,Oslo,Boston,Chicago,Texas,Japan,Canada,Spain,Norway,Kyoto,Vienna,Prague,Cairo,Lima,Sydney,Moscow,Hamburg,Naples,the village,the city,the island,the coast,the valley,the capital,our town,the north,the mountains".split(",")],
    "plural": [p.split("/") for p in "men,women,children/kids,adults/grown-ups,students,teachers,cats,dogs,cyclists,drivers/motorists,boys,girls,doctors,nurses,tourists/visitors,locals,cars/vehicles,trains,old people/the elderly,young people/the young,supporters,opponents,buyers,sellers,lawyers,engineers".split(",")],
    "food": [p.split("/") for p in "tea,coffee,apples,pears,rice,potatoes,fish,meat,wine,beer,milk,water,juice,chocolate,cheese,bread,pasta,soup,salad,cake,ice cream,butter,honey,chicken,beef,fruit,vegetables,sweets/candy,chips/French fries,biscuits/cookies".split(",")],
    "doing": [p.split("/") for p in "swimming,running/jogging,cycling,reading,watching films/watching movies,cooking,dancing,singing,skiing,painting,gardening,travelling by train,flying,walking/going on foot,driving,living in the country,living in the city,working alone,working in a team,playing chess,playing football/playing soccer,sleeping,studying at home,going out,staying at home".split(",")],
    "event": EVENTS, "team": [p.split("/") for p in "our team/our side,the Lions,the Bears,the visitors/the away side,the hosts/the home team,Milan,Chelsea,the Eagles,the Tigers,their team/their side,the champions,the newcomers".split(",")],
}  # fmt: skip
MASS = "milk,bread,money,petrol,paper,time,sugar,coffee,water,salt,wood,space,work,food,cash,soap,ink,evidence,hope,luck".split(",")  # fmt: skip
VERBS = [
    p.split("/") for p in (
        "pay the bill/settle the bill,call the police/ring the police,lock the door,answer the question/reply to the question,take the medicine,win the prize,read the contract,sign the form,"
        "eat breakfast/have breakfast,wash the dishes/do the dishes,feed the cat,clean the kitchen/tidy the kitchen,repair the car/fix the car,sell the house,buy a ticket/purchase a ticket,"
        "write a letter,find the key,solve the problem,learn German,pass the test,finish the work/complete the work,close the window/shut the window,open the box,visit the museum,"
        "phone the office/ring the office,help the neighbours/assist the neighbours,tell the truth/be honest,drink wine,smoke in the house,work at night,get up early/rise early,"
        "leave the house/go out of the house,follow the rules/stick to the rules,keep the promise/honour the promise,cook dinner/make dinner,drive to work/go to work by car,"
        "use the lift/take the elevator,wait outside,sleep in the tent,swim in the lake,join the club/become a member of the club,vote for the party,save money/put money aside,"
        "turn off the light/switch off the light,lend out books,apologise for the mistake/say sorry for the mistake,explain the plan,accept the offer/take up the offer,attend the meeting/go to the meeting,"
        "check the figures,water the flowers,book a room/reserve a room,cancel the order,eat meat,wear a helmet,catch the bus,send the parcel/post the package,travel by plane/fly,play the piano,speak to the press,"
        "take part/participate,come to the party/turn up at the party,show the passport,move to the city,complain about the noise,mention the accident,see a doctor,return the money/give the money back"
    ).split(",")
]  # fmt: skip
TO_PERSON = [
    p.split("/") for p in "thank/say thank you to,help/assist,visit/call on,invite,hug/embrace,kiss,warn,praise/commend,criticise/find fault with,hit/strike,insult/be rude to,follow/go after,push,call/phone,interview,love,hate/detest,trust,save/rescue,hire/employ,fire/sack,attack,defend,photograph/take a picture of,arrest,treat,fool/trick,annoy/irritate,frighten/scare,greet/say hello to,recognise,support/back,admire/look up to,cheat,accuse,marry off,teach,catch,kill,wake/wake up,interrupt,beat,bite,betray,comfort/console,ignore,mock/make fun of,pay,question,sue,cure/heal".split(",")
]  # fmt: skip
TIMES = ["", "", "", "last week/a week ago", "yesterday", "this year", "in the end/finally", "at the moment/right now", "these days/nowadays", "last night", "on Monday", "in spring", "as everyone knows/as is well known", "according to the paper/the paper says", "in my opinion/I think", "as far as I know", "to be honest/frankly", "after the holidays/after the vacation"]  # fmt: skip
# German words that turn a sentence round when one stands for the other.
TURNED = [
    tuple(pair.split("/")) for pair in (
        "nicht/,kein/ein,keine/eine,keinen/einen,keinem/einem,keiner/einer,kein/,keine/,keinen/,nie/,nie/immer,nie/oft,niemals/,niemals/immer,nichts/etwas,nichts/alles,niemand/jemand,niemand/jeder,niemanden/jemanden,"
        "keiner/jeder,keiner/jemand,ohne/mit,selten/oft,selten/immer,wenig/viel,wenige/viele,weniger/mehr,nicht mehr/noch,nicht mehr/immer noch,noch nicht/schon,noch nicht/bereits,keine/viele,kein/viel,kaum/,kaum/viel,"
        "groß/klein,alt/jung,alt/neu,gut/schlecht,leicht/schwer,einfach/schwierig,leicht/schwierig,richtig/falsch,früh/spät,lang/kurz,schnell/langsam,warm/kalt,heiß/kalt,reich/arm,stark/schwach,teuer/billig,teuer/günstig,"
        "glücklich/unglücklich,glücklich/traurig,mag/hasse,liebe/hasse,liebt/hasst,mag/hasst,liebte/hasste,öffnete/schloss,öffne/schließe,gewonnen/verloren,gewann/verlor,voll/leer,laut/leise,laut/ruhig,sauber/schmutzig,gesund/krank,"
        "oben/unten,ein/aus,auf/zu,an/aus,gekauft/verkauft,kaufte/verkaufte,möglich/unmöglich,freundlich/unfreundlich,wichtig/unwichtig,lebt/starb,lebendig/tot,wach/müde,fleißig/faul,dumm/klug,dumm/schlau,mutig/feige,"
        "hässlich/schön,hell/dunkel,nass/trocken,hoch/niedrig,hoch/tief,breit/schmal,dick/dünn,näher/weiter,besser/schlechter,größer/kleiner,älter/jünger,schneller/langsamer,anwesend/abwesend,vor/nach,mit/gegen,für/gegen,"
        "erlaubt/verboten,angenommen/abgelehnt,lachte/weinte,lacht/weint,vergaß/erinnerte,immer/manchmal nicht,interessant/langweilig,nützlich/nutzlos,sicher/gefährlich,sicher/unsicher,weit/nah,nichts/viel,beide/keiner,alle/keine,alles/nichts"
    ).split(",")
]  # fmt: skip


class Opposites:
    """Words and phrases of `opposites.txt`, put for one another in sentences."""

    def __init__(self, fluency: Fluency) -> None:
        self.fluency = fluency
        self.places: dict[tuple[str, ...], list[tuple[str, str, list[str], list[str]]]] = (
            defaultdict(list)
        )
        self.degrees: list[tuple[list[str], list[str]]] = []
        for line in (HERE / "opposites.txt").read_text(encoding="utf-8").splitlines():
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


def frame_pairs(
    opposites: Opposites, number: int, copied: float, rng: random.Random
) -> Iterator[Pair]:
    """Yield pairs of wordings of each frame, its places filled."""
    for line in (HERE / "frames.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        kind, colon, body = line.partition(": ")
        if not colon or kind not in SLOTS:
            kind, body = "", line
        alike, body = body.startswith("~"), body.removeprefix("~")
        sides = [[one.strip() for one in side.split(" = ")] for side in body.split(" # ")]
        for turn in range(number):
            flip = turn % 2 if len(sides) > 1 or not alike else 0
            values = filled(kind, opposites, rng)
            side = rng.randrange(len(sides))
            first = rng.choice(sides[side])
            if flip and len(sides) > 1:
                second, changed = rng.choice(sides[1 - side]), False
            else:
                rest = [one for one in sides[side] if one != first] or sides[side]
                second = first if rng.random() < copied else rng.choice(rest)
                changed = bool(flip) or (alike and rng.random() < 0.5)
            time = rng.choice(TIMES).split("/")
            made = []
            for text, turned in ((first, False), (second, changed)):
                if turned:
                    text = re.sub(r"\{([ab])\}", lambda m: "{b}" if m[1] == "a" else "{a}", text)
                text = re.sub(r"\{([a-z-]+)\}", lambda m: rng.choice(values[m[1]]), text)
                when = rng.choice(time)
                if when and rng.random() < 0.6:
                    text = f"{when}, {text}"
                elif when:
                    text = f"{text}, {when}"
                made.append(mend_articles(raise_first(text.strip())) + ".")
            yield made[0], made[1], flip, f"frame {kind}"


def sentence_pairs(opposites: Opposites, rng: random.Random) -> Iterator[Pair]:
    """Yield pairs of the wordings and the opposites of each written sentence, some reworded."""
    for line in (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        sides = [side.split(" = ") for side in line.split(" # ")]
        for turn in range(10):
            side = rng.choice(sides)
            if turn % 2:
                first, second = (rng.choice(one) for one in sides)
            else:
                first, second = rng.sample(side, 2)
            if rng.random() < 0.4:
                second = opposites.same(second, rng) or second
            if rng.random() < 0.4:
                first = reword(first, rng, 0.4, opposites.fluency)[0]
            yield first, second, turn % 2, "sentence"


def filled(kind: str, opposites: Opposites, rng: random.Random) -> dict[str, list[str]]:
    """Return what may stand in each place of a frame: wordings of one thing."""
    a, b = rng.sample(SLOTS[kind or "person"], 2)
    values = {"a": a, "b": b}
    others = [p for p in PERSONS if p not in (a, b)]
    values["p"] = rng.choice(others) if rng.random() < 0.7 else [rng.choice(("he", "she"))]
    values["t"], values["e"] = rng.choice(THINGS), rng.choice(EVENTS)
    values["m"], values["n"] = [rng.choice(MASS)], [rng.choice(("ten", "five", "20", "a hundred", "three", "forty"))]  # fmt: skip
    mine, theirs = rng.choice(opposites.degrees)
    mine = rng.sample(mine, min(2, len(mine)))
    theirs = rng.sample(theirs, min(2, len(theirs)))
    values["adj"], values["opp"] = mine, theirs
    for name, side in (("er", mine), ("opper", theirs)):
        values[name] = [m for word in side if (m := comparative(word))] or [f"more {side[0]}"]
    for suffix, verbs in (("", VERBS), ("-to", TO_PERSON)):
        forms = [verb_forms(verb) for verb in rng.choice(verbs)]
        for place, name in (("do", "base"), ("does", "s"), ("did", "past"), ("done", "participle"), ("doing", "ing")):  # fmt: skip
            values[place + suffix] = [form[name] for form in forms]
    return values


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

"""Pairs of written sentences: those with places (`frames.txt`) and whole ones (`sentences.txt`)."""

# Word lists are easier to read on one line than wrapped.
# ruff: noqa: E501

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

from starter.training.lm.edits import raise_first
from starter.training.lm.inflect import mend_articles, verb_forms
from starter.training.lm.wordings import reword
from starter.training.polarity.opposites import Opposites, comparative

HERE = Path(__file__).parent
Pair = tuple[str, str, int, str]  # first, second, flip, kind
PERSONS = [
    one.split("/") for one in ["my sister", "my brother", "my father/my dad", "my mother/my mum", "my uncle", "my aunt", "my boss/my manager", "our neighbour/the man next door", "the doctor/the physician", "the teacher", "the policeman/the police officer", "the lawyer/the attorney", "the old man/the elderly man", "the girl", "the boy/the lad", "the driver/the man at the wheel", "the nurse", "the cook/the chef", "the farmer", "the mayor", "the minister", "the guest/the visitor", "the coach/the trainer", "the captain/the skipper", "the student", "the child/the kid", "the secretary", "the tenant/the lodger", "Tom", "Mary", "Mr Brown", "Mrs Lee", "Anna", "Peter", "Sami", "Lena", "Karl", "Yuki", "Ahmed", "Rosa", "Dr Weber", "Julia", "Omar", "Ivan", "Eva", "Paul", "Professor Klein", "Nina", "my cousin", "my roommate/my flatmate", "my friend/my mate", "her husband", "his wife", "the singer", "the actress", "the plumber", "the painter", "the king", "the thief/the robber", "the soldier", "the editor", "the director", "the landlord", "the waiter", "the author/the writer", "the witness", "the scientist/the researcher"]
]  # fmt: skip
THINGS = [
    one.split("/") for one in ["the red car", "the blue car", "the new phone/the new mobile", "the old phone/the old mobile", "the first book", "the second book", "the film/the movie", "the novel", "the sofa/the couch", "the armchair", "the bicycle/the bike", "the bus", "the train", "the plane/the aircraft", "the flat/the apartment", "the house", "the kitchen", "the cellar/the basement", "the table", "the desk", "the laptop", "the printer", "the lamp", "the carpet/the rug", "the box", "the suitcase/the case", "the bag", "the knife", "the coat", "the jacket", "the hotel", "the restaurant", "the museum", "the church", "the bridge", "the tower", "the garden/the yard", "the lake", "the river", "the road/the street", "the shop/the store", "the factory/the plant", "the report", "the letter", "the contract", "the test/the exam", "the speech/the talk", "the job", "the plan", "the machine", "the engine/the motor", "the battery", "the washing machine/the washer", "the left door", "the right door", "the old software", "the new software", "the picture/the painting", "the piano", "the guitar", "the boat", "the tent", "the lorry/the truck"]
]  # fmt: skip
EVENTS = [p.split("/") for p in ["the meeting", "the concert", "the war", "the strike", "the game/the match", "the party", "the trial", "the film/the movie", "the wedding", "the lesson/the class", "the election", "the conference", "the exhibition", "the holiday/the vacation", "the storm", "the lecture/the talk", "the crisis", "the fire/the blaze", "the scandal", "the accident/the crash", "the flood"]]  # fmt: skip
SLOTS: dict[str, list[list[str]]] = {
    "person": PERSONS, "thing": THINGS,
    "place": [[p] for p in ["Paris", "Berlin", "London", "Rome", "Madrid", "Oslo", "Boston", "Chicago", "Texas", "Japan", "Canada", "Spain", "Norway", "Kyoto", "Vienna", "Prague", "Cairo", "Lima", "Sydney", "Moscow", "Hamburg", "Naples", "the village", "the city", "the island", "the coast", "the valley", "the capital", "our town", "the north", "the mountains"]],
    "plural": [p.split("/") for p in ["men", "women", "children/kids", "adults/grown-ups", "students", "teachers", "cats", "dogs", "cyclists", "drivers/motorists", "boys", "girls", "doctors", "nurses", "tourists/visitors", "locals", "cars/vehicles", "trains", "old people/the elderly", "young people/the young", "supporters", "opponents", "buyers", "sellers", "lawyers", "engineers"]],
    "food": [p.split("/") for p in ["tea", "coffee", "apples", "pears", "rice", "potatoes", "fish", "meat", "wine", "beer", "milk", "water", "juice", "chocolate", "cheese", "bread", "pasta", "soup", "salad", "cake", "ice cream", "butter", "honey", "chicken", "beef", "fruit", "vegetables", "sweets/candy", "chips/French fries", "biscuits/cookies"]],
    "doing": [p.split("/") for p in ["swimming", "running/jogging", "cycling", "reading", "watching films/watching movies", "cooking", "dancing", "singing", "skiing", "painting", "gardening", "travelling by train", "flying", "walking/going on foot", "driving", "living in the country", "living in the city", "working alone", "working in a team", "playing chess", "playing football/playing soccer", "sleeping", "studying at home", "going out", "staying at home"]],
    "event": EVENTS, "team": [p.split("/") for p in ["our team/our side", "the Lions", "the Bears", "the visitors/the away side", "the hosts/the home team", "Milan", "Chelsea", "the Eagles", "the Tigers", "their team/their side", "the champions", "the newcomers"]],
}  # fmt: skip
MASS = ["milk", "bread", "money", "petrol", "paper", "time", "sugar", "coffee", "water", "salt", "wood", "space", "work", "food", "cash", "soap", "ink", "evidence", "hope", "luck"]  # fmt: skip
VERBS = [
    p.split("/") for p in ["pay the bill/settle the bill", "call the police/ring the police", "lock the door", "answer the question/reply to the question", "take the medicine", "win the prize", "read the contract", "sign the form", "eat breakfast/have breakfast", "wash the dishes/do the dishes", "feed the cat", "clean the kitchen/tidy the kitchen", "repair the car/fix the car", "sell the house", "buy a ticket/purchase a ticket", "write a letter", "find the key", "solve the problem", "learn German", "pass the test", "finish the work/complete the work", "close the window/shut the window", "open the box", "visit the museum", "phone the office/ring the office", "help the neighbours/assist the neighbours", "tell the truth/be honest", "drink wine", "smoke in the house", "work at night", "get up early/rise early", "leave the house/go out of the house", "follow the rules/stick to the rules", "keep the promise/honour the promise", "cook dinner/make dinner", "drive to work/go to work by car", "use the lift/take the elevator", "wait outside", "sleep in the tent", "swim in the lake", "join the club/become a member of the club", "vote for the party", "save money/put money aside", "turn off the light/switch off the light", "lend out books", "apologise for the mistake/say sorry for the mistake", "explain the plan", "accept the offer/take up the offer", "attend the meeting/go to the meeting", "check the figures", "water the flowers", "book a room/reserve a room", "cancel the order", "eat meat", "wear a helmet", "catch the bus", "send the parcel/post the package", "travel by plane/fly", "play the piano", "speak to the press", "take part/participate", "come to the party/turn up at the party", "show the passport", "move to the city", "complain about the noise", "mention the accident", "see a doctor", "return the money/give the money back"]
]  # fmt: skip
TO_PERSON = [
    p.split("/") for p in ["thank/say thank you to", "help/assist", "visit/call on", "invite", "hug/embrace", "kiss", "warn", "praise/commend", "criticise/find fault with", "hit/strike", "insult/be rude to", "follow/go after", "push", "call/phone", "interview", "love", "hate/detest", "trust", "save/rescue", "hire/employ", "fire/sack", "attack", "defend", "photograph/take a picture of", "arrest", "treat", "fool/trick", "annoy/irritate", "frighten/scare", "greet/say hello to", "recognise", "support/back", "admire/look up to", "cheat", "accuse", "marry off", "teach", "catch", "kill", "wake/wake up", "interrupt", "beat", "bite", "betray", "comfort/console", "ignore", "mock/make fun of", "pay", "question", "sue", "cure/heal"]
]  # fmt: skip
TIMES = ["", "", "", "last week/a week ago", "yesterday", "this year", "in the end/finally", "at the moment/right now", "these days/nowadays", "last night", "on Monday", "in spring", "as everyone knows/as is well known", "according to the paper/the paper says", "in my opinion/I think", "as far as I know", "to be honest/frankly", "after the holidays/after the vacation"]  # fmt: skip


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
                text = re.sub(
                    r"\{([a-z-]+)\}", lambda m, values=values: rng.choice(values[m[1]]), text
                )
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

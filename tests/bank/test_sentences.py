import sys
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.bank.ingest.cleaning import (
    _NFC_MAY_CHANGE,
    clean_lines,
    clean_text,
    filter_sentences,
)
from tilth.bank.ingest.documents import Block
from tilth.bank.ingest.parts import SCHEMA, sentences_of_documents
from tilth.bank.settings import LANGUAGES, Rules
from tilth.data.near_duplicates import NEAR, near_keys
from tilth.data.normalize import exact_keys, normalize_texts
from tilth.errors import InputError

OPEN = {"min_chars": 1, "min_words": 1, "max_chars": 4000, "min_letters": 0, "max_symbols": 1}


def lines(*documents: str, first: int = 1) -> Block:
    data = "\n".join(documents).encode()
    return Block("talk.txt", 0, first, data, len(data))


def kept(*texts: str, **rules: object) -> list[bool]:
    options = {**OPEN, "markup": False, "language": None, **rules}
    places, _, _ = filter_sentences(pa.array(texts, pa.large_string()), Rules(**options))
    return [place in places for place in range(len(texts))]


def test_sentences_know_their_document_and_keys() -> None:
    found = sentences_of_documents(
        lines("Book a table for two. Is it far?", "", "We walked home.", first=7)
    )
    texts = ["Book a table for two.", "Is it far?", "We walked home."]
    assert found.table.schema == SCHEMA
    assert found.table["text"].to_pylist() == texts
    assert found.table["document"].to_pylist() == [7, 7, 9]
    assert found.table["exact"].to_pylist() == exact_keys(pa.array(texts)).tolist()
    keys = np.stack([found.table[name].to_numpy() for name in NEAR], 1)
    assert (keys == near_keys(normalize_texts(pa.array(texts)))).all()
    assert (found.documents, found.drops) == (2, {})
    block = Block("a.csv", 0, 2, ["The first line\nand a second.", "Here is more."], 43, [2, 5])
    found = sentences_of_documents(block)
    assert found.table["text"].to_pylist() == ["The first line", "and a second.", "Here is more."]
    assert found.table["document"].to_pylist() == [2, 2, 5]
    assert found.documents == 2


def test_an_empty_block_and_one_where_all_is_dropped() -> None:
    for text in ("", "\n\n", "...\nNo.\n"):
        found = sentences_of_documents(lines(text))
        assert found.table.num_rows == 0
        assert found.table.schema == SCHEMA


def test_the_first_rule_broken_names_the_reason() -> None:
    found = sentences_of_documents(
        lines(
            "Go.",
            "It is so " + "very " * 120 + "long.",
            "See <b>this</b> one now.",
            "12 34 56 78 90 12 34",
            "Home + Shop + Help + Cart + Log",
            "Das Haus ist nicht sehr groß.",
            "This one is good.",
        ),
        Rules(max_symbols=0.1),
    )
    assert found.drops == {
        "too short": 1, "too long": 1, "markup": 1, "few letters": 1, "many symbols": 1,
        "another language": 1,
    }  # fmt: skip
    assert found.table["text"].to_pylist() == ["This one is good."]


@pytest.mark.parametrize(
    ("rules", "stay", "go"),
    [
        ({"min_words": 4}, ["Four word sentence here."], ["Three words here."]),
        # Scripts without spaces: two letters are a word.
        ({"min_words": 3}, ["昨日は一日中雨が降っていました。"], ["Antidisestablishment."]),
        ({"min_words": 3}, ["วันนี้ฝนตกตลอดทั้งวัน"], ["Indeed."]),
        ({"min_chars": 6}, ["Ümläut"], ["Short"]),
        ({"max_chars": 6}, ["Ümläut"], ["Too long"]),
        ({"min_letters": 0.5}, ["Call me at 12"], ["Call 12 34 56"]),
        ({"max_symbols": 0.2}, ["a nice day 😀", "“So \u2013 what…”"], ["a b 😀 😀"]),
        (
            {"markup": True},
            [
                "It rose by < 5 percent; then it fell;", "He said [sic] that 2 > 1.",
                "We laughed :) and went --> home.", "A | B was the choice.",
                "The room (No. 4) was cold.",
            ],
            [
                "A line<br/>break.", "See [[Paris|the city]] there.", "== History ==",
                "{{Infobox person}} He was born.", '{"name": "Ann", "age": 3}',
                "if (x) { return y; }", "total_sum = total_sum + my_value;",
                "[url=http://a.example]here[/url]", "Read [this](http://a.example) now.",
            ],
        ),
        ({"language": "en"}, ["the " * 900], ["und " * 900, "Я не знаю.", "これは本です。"]),
    ],
)  # fmt: skip
def test_each_rule(rules: dict[str, object], stay: list[str], go: list[str]) -> None:
    assert kept(*stay, *go, **rules) == [True] * len(stay) + [False] * len(go)
    off = {"min_words": 1, "markup": False, "language": None}
    assert all(kept(*stay, *go, **{name: off[name] for name in rules if name in off}))


ENGLISH = [
    "Book a table for two.",
    "Tom laughed.",
    "Man, that was great!",
    "Las Vegas rocks.",
    "lol u r so funny",
    "Mary met Tom in San Jose.",
    "BRCA1 expression increases with malignancy.",
    "Café prices soared.",
]
OTHERS = {
    "de": "Ich habe das Buch nicht gelesen.",
    "fr": "Je ne sais pas où elle est.",
    "es": "No sé qué hacer con esto.",
    "it": "Non so che cosa fare con questo.",
    "pt": "Eu não sei o que fazer com isso.",
    "nl": "Ik weet niet wat ik moet doen.",
    "sv": "Jag vet inte vad jag ska göra.",
    "da": "Jeg ved ikke hvad jeg skal gøre.",
    "nb": "Jeg vet ikke hva jeg skal gjøre.",
    "pl": "Nie wiem, co to jest.",
    "cs": "Nevím, co jsem měl dělat.",
    "tr": "Bu kadar çok şey var ve ben yok.",
    "id": "Saya tidak tahu apa yang harus.",
    "ro": "Nu știu ce este asta pentru tine.",
    "hu": "Nem tudom, hogy mit kell most.",
}


def test_the_language_wanted_stays_and_others_go() -> None:
    assert set(OTHERS) | {"en"} == set(LANGUAGES)
    assert kept(*ENGLISH, language="en") == [True] * len(ENGLISH)
    assert kept(*OTHERS.values(), language="en") == [False] * len(OTHERS)
    assert kept(*OTHERS.values(), language=None) == [True] * len(OTHERS)
    for language, text in OTHERS.items():
        assert kept(text, "This is what they have said.", language=language) == [True, False]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_chars": 20, "max_chars": 10}, "min_chars is 20: it cannot be above max_chars, 10"),
        ({"language": "xx"}, "language 'xx' is not known: use one of en, de"),
    ],
)
def test_rules_are_checked_at_the_door(options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Rules(**options)


def test_clean_text() -> None:
    assert clean_text("a\t\tb\xa0c\u2003d\u200b\ufeff\x07e\xadf\n g") == "a b c def\n g"
    assert clean_text("&lt;b&gt; &amp; &#233;&nope; AT&T &#10;x") == "<b> & é&nope; AT&T x"
    assert clean_text("e\u0301\u212b") == "éÅ"
    assert clean_text("👩\u200d🚀 क्\u200c") == "👩\u200d🚀 क्\u200c"  # joiners stay


@settings(deadline=None)
@given(
    st.text()
    | st.text(
        "a  \n&;#\t\xa0\xad\u2003\u200b\u2028\u2010\u2026\u20ac\u0301\u0300\u02ffé\ufeff",
        max_size=30,
    )
)
def test_lines_are_cleaned_as_the_whole_text(text: str) -> None:
    assert clean_lines(text) == clean_text(text).split("\n")


def test_every_character_is_cleaned_in_a_line_of_its_own() -> None:
    characters = [chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000]
    text = "\n".join(f"a{character}b" for character in characters if character != "\n")
    assert clean_lines(text) == clean_text(text).split("\n")
    assert clean_lines("a\ud800 \tb\nc") == ["a\ud800 b", "c"]


def test_all_that_nfc_changes_is_looked_at() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.combining(char) or not unicodedata.is_normalized("NFC", char):
            assert _NFC_MAY_CHANGE.match(char), hex(code)
        # What may join with the character before it.
        for part in unicodedata.normalize("NFD", char)[1:]:
            assert _NFC_MAY_CHANGE.match(part), hex(code)


@settings(deadline=None)
@given(st.text())
def test_tidy_texts_are_nfc_and_stay(text: str) -> None:
    once = clean_text(text)
    assert unicodedata.is_normalized("NFC", once)
    assert once.count("\n") == text.count("\n")


def test_keys_do_not_depend_on_the_batch() -> None:
    texts = [
        f"Sentence number {number} of the {'long ' * (number % 7)}list." for number in range(500)
    ]
    together = sentences_of_documents(lines(*texts)).table
    alone = pa.concat_tables(
        [sentences_of_documents(lines(text, first=at)).table for at, text in enumerate(texts, 1)]
    )
    assert together.equals(alone)

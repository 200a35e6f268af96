import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.data.tokenize import ENGLISH, WordTokenizer, learn_tokenizer

NEWS = [
    ["Mr.", "Lind", "said", "the", "well-known", "U.S.", "firm", "wo", "n't", "pay", "$", "3.5",
     "million", ",", "and", "that", "'s", "--", "he", "thinks", "--", "5", "%", "more", "."],
    ["The", "Times", "wrote", "that", "."],
    ["\"", "It", "is", "over", ",", "\"", "she", "said", "(", "again", ")", "."],
]  # fmt: skip
APART = [
    ["A", "beta", "-", "catenin", "mutation", "(", "c", ".", "35", "-", "2A", ")", "is", "new"],
    ["Tumour", "-", "suppressor", "genes", ",", "e", ".", "g", ".", "one", ",", "is", "out", "."],
]  # fmt: skip
TWEETS = [
    ["@ann", "so", "true!!!", "#rain", "don't", "go,", "ok."],
    ["@bo", ":)", "yes.", "#sun", ":)"],
]


@pytest.mark.parametrize(
    ("learned", "text", "tokens"),
    [
        (NEWS, "I can't pay $4,000.5 (or 10.5%) -- \"It's the U.S. co-owner,\" said Mr. Roth.",
         "I ca n't pay $ 4,000.5 ( or 10.5 % ) -- \" It 's the U.S. co-owner , \" said Mr. Roth ."),
        (APART, "Well-known (c.1A), e.g. 3-5.", "Well - known ( c . 1A ) , e . g . 3 - 5 ."),
    ],
)  # fmt: skip
def test_hyphens_and_contractions_are_cut_as_in_the_set(
    learned: Any, text: str, tokens: str
) -> None:
    assert learn_tokenizer(learned).tokenize(text) == tokens.split()


@pytest.mark.parametrize("learned", [NEWS, APART, TWEETS])
def test_rules_are_kept_as_json(learned: Any) -> None:
    rules = learn_tokenizer(learned)
    assert WordTokenizer.of(json.loads(json.dumps(asdict(rules)))) == rules


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"letters": "'"},
        {**asdict(ENGLISH), "kept": "Mr."},
        {**asdict(ENGLISH), "endings": [""]},
    ],
)
def test_what_are_no_rules_gives_the_usual_ones(found: Any) -> None:
    assert WordTokenizer.of(found) is ENGLISH


def test_a_set_cut_at_spaces_is_followed() -> None:
    assert learn_tokenizer(TWEETS).tokenize("@cy I don't know, #snow!!! :) no.") == [
        "@cy", "I", "don't", "know,", "#snow!!!", ":)", "no.",
    ]  # fmt: skip


def test_a_sign_that_stays_at_an_end_is_none_where_an_ending_begins() -> None:
    said = [["The", "players'", "union", "said", "it", "'s", "over", "."]]
    rule = learn_tokenizer([*said, ["Both", "teams'", "coaches", "left", "."]])
    assert rule.tokenize("The team's players' coach says it's over.") == [
        "The", "team", "'s", "players'", "coach", "says", "it", "'s", "over", ".",
    ]  # fmt: skip


def test_words_that_are_cut_otherwise_than_most_are_kept() -> None:
    rule = learn_tokenizer([*NEWS, *NEWS])
    assert rule.kept == ("Mr.",)
    assert rule.tokenize("Mr. Roth is the Mr.") == ["Mr.", "Roth", "is", "the", "Mr."]
    assert rule.tokenize("Sirmr. x") == ["Sirmr", ".", "x"]


def test_signs_that_the_set_lacks_are_like_their_plain_ones() -> None:
    rule = learn_tokenizer(NEWS)
    assert rule.tokenize("It\u2019s \u201ca co\u2011owner\u201d") == [
        "It", "\u2019s", "\u201c", "a", "co\u2011owner", "\u201d",
    ]  # fmt: skip
    assert learn_tokenizer(APART).tokenize("co\u2011owner") == ["co", "\u2011", "owner"]


def test_without_any_evidence_the_usual_is_done() -> None:
    assert learn_tokenizer([["rain"]]).tokenize("It's 3.5, a-b...") == WordTokenizer().tokenize(
        "It's 3.5, a-b..."
    )
    assert WordTokenizer().tokenize("It's 3.5, well-known...") == [
        "It's", "3.5", ",", "well-known", "...",
    ]  # fmt: skip


def test_each_way_of_a_rule_counts() -> None:
    text = "@a 'b-c' 1.5 x+ !! it's U.S. Mr. z"
    assert WordTokenizer(letters="").tokenize(text) != WordTokenizer().tokenize(text)
    assert WordTokenizer(digits="").tokenize("1.5") == ["1", ".", "5"]
    assert WordTokenizer(begins="@").tokenize("@a @") == ["@a", "@"]
    assert WordTokenizer(ends="+").tokenize("x+ C++") == ["x+", "C++"]
    assert WordTokenizer(runs="!").tokenize("!! ?? !") == ["!!", "?", "?", "!"]
    assert WordTokenizer(endings=("'s",)).tokenize("it's 's is'st") == ["it", "'s", "'s", "is'st"]
    assert WordTokenizer(kept=("Mr.",)).tokenize("Mr. a.") == ["Mr.", "a", "."]
    assert WordTokenizer(initials=True).tokenize("the U.S. a.") == ["the", "U.S.", "a", "."]


def test_marks_and_other_scripts_stay_in_their_words() -> None:
    assert WordTokenizer().tokenize("café, cafe\u0301 नमस्ते! тест_1") == [
        "café", ",", "cafe\u0301", "नमस्ते", "!", "тест_1",
    ]  # fmt: skip


@given(st.text(), st.sampled_from([NEWS, APART, TWEETS, [["x"]]]))
def test_no_character_is_lost(text: str, tokens: list[list[str]]) -> None:
    rule = learn_tokenizer(tokens)
    assert "".join(rule.tokenize(text)) == "".join(text.split())


def test_tokens_that_were_learnt_from_come_back() -> None:
    for tokens in (NEWS, APART, TWEETS):
        rule = learn_tokenizer(tokens)
        assert [rule.tokenize(" ".join(sentence)) for sentence in tokens] == tokens

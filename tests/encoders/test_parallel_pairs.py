from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from tests.tiny import salads, write_rows
from tilth.encoders.contrastive_sets import read_contrastive
from tilth.encoders.graded_pairs import TrainingPairs
from tilth.encoders.parallel_pairs import read_parallel
from tilth.errors import InputError

TEXTS = salads(80, seed=3)


def rows(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns)


def sides(count: int = 40) -> tuple[list[str], list[str]]:
    return TEXTS[:count], TEXTS[count : 2 * count]


def texts_of(pairs: TrainingPairs) -> set[tuple[str, str]]:
    return {
        (row["text_a"], row["text_b"]) for part in (pairs.train, pairs.validation) for row in part
    }


def names_of(pairs: TrainingPairs) -> dict[tuple[str, str], list[int]]:
    return {
        (row["text_a"], row["text_b"]): row["label"]
        for part in (pairs.train, pairs.validation)
        for row in part
    }


@pytest.mark.parametrize(
    "names",
    [
        ("text_a", "text_b"), ("sentence1", "sentence2"), ("anchor", "positive"), ("en", "de"),
        ("english", "indonesian"),
    ],
)  # fmt: skip
def test_two_columns_by_their_usual_names(names: tuple[str, str]) -> None:
    one, two = sides()
    pairs = read_parallel(rows(**{names[0]: one, names[1]: two}, number=list(range(40))))
    assert texts_of(pairs) == set(zip(one, two, strict=True))
    assert (len(pairs.train), len(pairs.validation)) == (36, 4)
    assert pairs.train.column_names == ["text_a", "text_b", "label"]


def test_known_names_come_before_other_columns_of_texts() -> None:
    one, two = sides()
    pairs = read_parallel(rows(licence=["free"] * 40, text_b=two, text_a=one))
    assert texts_of(pairs) == set(zip(one, two, strict=True))


def test_a_column_of_translations() -> None:
    one, two = sides()
    both = [{"en": a, "fr": b} for a, b in zip(one, two, strict=True)]
    given = rows(id=[str(n) for n in range(40)], translation=both)
    assert texts_of(read_parallel(given)) == set(zip(one, two, strict=True))


def test_lists_are_paired_within_and_are_no_negatives() -> None:
    lists = [TEXTS[n : n + 4] for n in range(0, 80, 4)]
    lists += [[TEXTS[0]], [], [TEXTS[1], TEXTS[2]], ["one more", None, "one more", "and another"]]
    pairs = names_of(read_parallel(rows(captions=lists, url=["x"] * len(lists))))
    assert (TEXTS[0], TEXTS[1]) in pairs
    assert (TEXTS[3], TEXTS[0]) in pairs
    assert (TEXTS[3], TEXTS[4]) not in pairs
    assert ("one more", "and another") in pairs
    assert (TEXTS[1], TEXTS[2]) in pairs
    within = {(texts[n - 1], texts[n]) for texts in lists[:20] for n in range(4)}
    assert set(pairs) - within == {("one more", "and another")}
    first = pairs[TEXTS[0], TEXTS[1]]
    assert first[2] == pairs[TEXTS[2], TEXTS[3]][2] != pairs[TEXTS[4], TEXTS[5]][2]


def test_what_two_translations_share_makes_them_paraphrases() -> None:
    english = [*TEXTS[:60], "I am late.", "I'm late."]
    german = [*(f"Satz {n // 2}" for n in range(60)), "Ich bin zu spät.", "Ich bin zu spät."]
    given = rows(en=english, de=german)
    pairs = texts_of(read_parallel(given, pivot="de"))
    assert ("I am late.", "I'm late.") in pairs
    assert (TEXTS[0], TEXTS[1]) in pairs
    assert len(pairs) == 31
    assert not any("Satz" in text for pair in pairs for text in pair)
    more = texts_of(read_parallel([given, rows(a=TEXTS[60:70], b=TEXTS[70:80])], pivot="de"))
    assert more - pairs == set(zip(TEXTS[60:70], TEXTS[70:80], strict=True))
    with pytest.raises(InputError, match="no source has a column 'fr' of texts to pivot on"):
        read_parallel([given, rows(captions=[TEXTS])], pivot="fr")


def test_several_sources(tmp_path: Path) -> None:
    one, two = sides()
    first = write_rows(tmp_path / "one.jsonl", {"en": one[:20], "de": two[:20]})
    second = write_rows(tmp_path / "two.jsonl", {"captions": list(zip(one, two, strict=True))})
    expected = set(zip(one, two, strict=True))
    assert texts_of(read_parallel(f"{first}, {second}")) == expected
    assert texts_of(read_parallel([str(first), second])) == expected
    assert texts_of(read_parallel([first, rows(a=one[20:], b=two[20:])])) == expected


def test_a_path_with_a_comma_is_one_source(tmp_path: Path) -> None:
    one, two = sides()
    path = write_rows(tmp_path / "one,two.jsonl", {"en": one, "de": two})
    assert len(texts_of(read_parallel(str(path)))) == 40


def test_what_teaches_nothing_is_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    one, two = sides()
    more_a = ["", "The man.", one[0], two[1].upper(), None, " ".join(["", one[2]])]
    more_b = ["a", "the  man", two[0], one[1], "b", two[2] + "  "]
    with caplog.at_level(logging.INFO, "tilth.encoders.parallel_pairs"):
        pairs = read_parallel(rows(x=[*one, *more_a], y=[*two, *more_b]))
    assert texts_of(pairs) == set(zip(one, two, strict=True))
    for said in ("2 pairs with an empty", "1 pairs of a text with itself", "3 pairs that were"):
        assert said in caplog.text


def test_names_tell_which_texts_are_the_same() -> None:
    one, two = sides()
    found = names_of(
        read_parallel(rows(a=[*one, "A man, too", two[0]], b=[*two, one[5], "a man too"]))
    )
    assert found["A man, too", one[5]][0] == found[two[0], "a man too"][1]
    assert found["A man, too", one[5]][1] == found[one[5], two[5]][0]
    flat = [name for names in found.values() for name in names[:2]]
    assert len(set(flat)) == 81


def test_what_is_held_out_follows_from_content_and_is_not_trained_on() -> None:
    one, two = sides()
    doubled = rows(a=one + one, b=two + two[1:] + two[:1])  # each text stands in two pairs
    pairs = read_parallel(doubled)
    assert len(pairs.validation) == 8
    held, trained = (
        {text for row in part for text in (row["text_a"], row["text_b"])}
        for part in (pairs.validation, pairs.train)
    )
    assert not held & trained
    again = read_parallel(doubled.select(range(79, -1, -1)))
    assert set(again.validation["text_a"]) == set(pairs.validation["text_a"])
    other = read_parallel(doubled, seed=1)
    assert set(other.validation["text_a"]) != set(pairs.validation["text_a"])


def test_a_thousand_are_held_out_at_most() -> None:
    texts = salads(21_000, seed=8)
    pairs = read_parallel(rows(a=texts[:10_500], b=texts[10_500:]))
    assert len(pairs.validation) == 1000


def test_wrong_sources(tmp_path: Path) -> None:
    one, two = sides()
    graded = rows(text_a=one, text_b=two, label=[0.1, 0.9] * 20)
    with pytest.raises(InputError, match="column 'label' grades the pairs"):
        read_parallel(graded)
    read_parallel(rows(text_a=one, text_b=two, label=[1] * 40))
    for name, labels in (("label", ["good", "bad"] * 20), ("labels", [["good"], ["bad"]] * 20)):
        with pytest.raises(InputError, match=f"which columns of text, {name} hold the pairs"):
            read_parallel(rows(text=one, **{name: labels}))
    with pytest.raises(InputError, match="which columns of a, b, c hold the pairs"):
        read_parallel(rows(a=one, b=two, c=two))
    with pytest.raises(InputError, match="10 pairs of different texts are too few"):
        read_parallel(rows(a=one[:10], b=two[:10]))
    with pytest.raises(InputError, match=r"no\.jsonl"):
        read_parallel(str(tmp_path / "no.jsonl"))
    with pytest.raises(InputError, match="no source is named"):
        read_parallel([])


@pytest.mark.parametrize(
    "names",
    [("anchor", "positive", "negative"), ("sent0", "sent1", "hard_neg"),
     ("query", "positive", "negative"), ("text_a", "text_b", "negative"),
     ("Anchor", "Positive", "Negative")],
)  # fmt: skip
def test_the_negatives_of_triples_are_kept_and_named(names: tuple[str, str, str]) -> None:
    one, two = sides(30)
    third = [*TEXTS[60:80], *[None, "", *TEXTS[60:68]]]
    pairs = read_parallel(rows(**dict(zip(names, (one, two, third), strict=True))))
    assert pairs.train.column_names == ["text_a", "text_b", "negative", "label"]
    found = [row for part in (pairs.train, pairs.validation) for row in part]
    negatives = {row["text_a"]: row["negative"] for row in found}
    for a, negative in zip(one, third, strict=True):
        assert negatives.get(a, negative) == (negative or "")
    keys = {row["negative"]: row["label"][3] for row in found}
    assert keys.pop("") == 0
    assert len(set(keys.values())) == len(keys)
    assert 0 not in keys.values()


def test_a_pair_with_several_negatives_has_a_row_for_each() -> None:
    one, two = sides(30)
    twice = rows(anchor=one * 2, positive=two * 2, negative=TEXTS[20:50] + TEXTS[50:80])
    pairs = read_parallel(twice)
    found = [row for part in (pairs.train, pairs.validation) for row in part]
    assert len([row for row in found if row["text_a"] == pairs.train[0]["text_a"]]) == 2


def test_a_held_out_text_is_no_negative_that_is_trained_on() -> None:
    one, two = TEXTS[:40], [f"{text} too" for text in TEXTS[:40]]
    pairs = read_parallel(rows(anchor=one, positive=two, negative=two[1:] + two[:1]))
    held = {text for row in pairs.validation for text in (row["text_a"], row["text_b"])}
    assert not held & set(pairs.train["negative"])
    assert len(pairs.train) < 40 - len(pairs.validation)


def test_sources_with_and_without_negatives_go_together() -> None:
    one, two = sides()
    triples = rows(anchor=one[:20], positive=two[:20], negative=TEXTS[59:79])
    pairs = read_parallel([triples, rows(a=one[20:], b=two[20:])])
    found = {row["text_a"]: row for part in (pairs.train, pairs.validation) for row in part}
    assert found[one[30]]["negative"] == ""
    assert found[one[30]]["label"][3] == 0


def test_graded_pairs_count_from_a_score_on(tmp_path: Path) -> None:
    one, two = sides()
    scores = [n % 6 for n in range(40)]
    graded = rows(sentence1=one, sentence2=two, score=scores)
    with pytest.raises(InputError, match=r"column 'score' grades the pairs.*--min-score"):
        read_parallel(graded)
    kept = [n for n in range(40) if scores[n] >= 2]
    assert texts_of(read_parallel(graded, min_score=2)) == {(one[n], two[n]) for n in kept}
    path = tmp_path / "pairs.csv"
    lines = [f"{a},{b},{n % 6}.5" for n, (a, b) in enumerate(zip(one, two, strict=True))]
    path.write_text("\n".join(["text_a,text_b,label", *lines]))
    assert texts_of(read_parallel(path, min_score=2.5)) == {(one[n], two[n]) for n in kept}
    again = [f"{text} again" for text in TEXTS[:20]]
    plain = rows(a=again[:10], b=again[10:])
    both = texts_of(read_parallel([graded, plain], min_score=2))
    assert len(both) == len(kept) + 10


def test_columns_are_named(caplog: pytest.LogCaptureFixture) -> None:
    one, two = sides()
    scores = [n % 6 for n in range(40)]
    given = rows(id=["x"] * 40, a=one, b=two, text_a=["y"] * 40, how=scores, score=[0, 1] * 20)
    kept = {(one[n], two[n]) for n in range(40) if scores[n] >= 2}
    assert texts_of(read_parallel(given, min_score=2, names=(("a", "b"), "how"))) == kept
    with pytest.raises(InputError, match="column 'score' grades the pairs"):
        read_parallel(given, names=(("a", "b"), None))
    with pytest.raises(InputError, match="text and pivot both name columns"):
        read_parallel(given, pivot="a", names=(("a", "b"), None))
    with pytest.raises(InputError, match="no column 'c'"):
        read_parallel(given, names=(("a", "c"), None))
    caplog.clear()
    read_parallel(rows(a=one, b=two, how=scores), names=(("a", "b"), None))
    assert "not read: how; each pair counts as of the same meaning" in caplog.text
    caplog.clear()
    found = read_contrastive(rows(a=one, b=two, score=scores), None, ("a", "b"))
    assert len(found) == 40
    assert "not read: score; each pair counts as of the same meaning" in caplog.text


@pytest.mark.parametrize(
    ("columns", "min_score", "said"),
    [
        ({}, 3.0, "min-score is 3, but no source grades its pairs"),
        ({"label": [0.0] * 40}, None, "column 'label' is 0 in every row"),
        ({"label": ["a", "b"] * 20}, 3.0, "column 'label' holds no numbers"),
        ({"score": [0.5, 1.5] * 20}, 2.0, "0 pairs of different texts are too few"),
        ({"negative_1": ["x"] * 40}, None, "'negative_1' holds one of several negatives"),
        ({"negative": [["x"]] * 40}, None, "column 'negative' holds list"),
    ],
)
def test_wrong_triples_and_grades_are_refused(
    columns: dict[str, Any], min_score: float | None, said: str
) -> None:
    one, two = sides()
    with pytest.raises(InputError) as error:
        read_parallel(rows(text_a=one, text_b=two, **columns), min_score=min_score)
    assert said in str(error.value)

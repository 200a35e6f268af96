import logging
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.data import curate_rows as curate_with
from tilth.data.curate import Curated, curate
from tilth.data.normalize import normalize_text
from tilth.data.settings import CurateOptions
from tilth.errors import InputError

Row = tuple[str, str, Any]


def curate_rows(dataset: Dataset, **options: Any) -> Curated:
    return curate_with(dataset, CurateOptions(**options))


def pairs(rows: list[Row], **columns: list[Any]) -> Dataset:
    a, b, label = (list(column) for column in zip(*rows, strict=True))
    return Dataset.from_dict({"text_a": a, "text_b": b, "label": label, **columns})


def rows_of(dataset: Dataset) -> list[Row]:
    return list(zip(dataset["text_a"], dataset["text_b"], dataset["label"], strict=True))


def written(inputs: int = 30, seed: int = 0) -> list[Row]:
    """Return rows as a run writes them, with duplicates and identical pairs."""
    random_ = random.Random(seed)
    return [
        (
            f"input {i}",
            f"input {i}" if random_.random() < 0.1 else f"text {random_.randrange(90)}",
            y,
        )
        for i in range(inputs)
        for y in (0.0, 0.5, 1.0)
        for _ in range(4)
    ]


def drop_reasons(rows: list[Row], per_label: int) -> list[str | None]:
    """Find the reasons as plainly as can be: the oracle."""
    seen: set[Row] = set()
    kept: Counter[tuple[str, Any]] = Counter()
    reasons: list[str | None] = []
    for text_a, text_b, label in rows:
        row = (text_a.strip(), text_b.strip(), label)
        reason = None
        if not row[0] or not row[1]:
            reason = "empty"
        elif row[0] == row[1]:
            reason = "identical-pair"
        elif row in seen:
            reason = "duplicate"
        else:
            seen.add(row)
            kept[row[0], label] += 1
            if kept[row[0], label] > per_label:
                reason = "over-per-label"
        reasons.append(reason)
    return reasons


def everything(curated: Curated) -> list[list[dict[str, Any]]]:
    return [part.to_list() for part in (curated.train, curated.validation, curated.dropped)]


texts = st.sampled_from(["a", "b", "b ", " c", "c", "d e", "e f g", "é", "", "👍", "אב"])
labels = st.sampled_from([0.0, 0.5, 1.0])
row_lists = st.lists(st.tuples(texts, texts, labels), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(row_lists, st.integers(1, 3), st.integers(0, 3), st.integers(0, 5))
def test_any_set(rows: list[Row], per_label: int, sampled: int, seed: int) -> None:
    reasons = drop_reasons(rows, per_label)
    if None not in reasons:
        with pytest.raises(InputError, match="no row is left"):
            curate_rows(pairs(rows), per_label=per_label)
        return
    curated = curate_rows(
        pairs(rows), per_label=per_label, sampled_pairs=sampled, smoothing=0, validation_share=0.3,
        seed=seed,
    )  # fmt: skip
    kept = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
    dropped = [row for row, reason in zip(rows, reasons, strict=True) if reason is not None]
    assert rows_of(curated.dropped) == dropped
    assert list(curated.dropped["drop_reason"]) == [reason for reason in reasons if reason]

    partners = {(a.strip(), b.strip()) for a, b, _ in rows}
    ready = rows_of(curated.train) + rows_of(curated.validation)
    drawn = Counter(ready)
    drawn.subtract(kept)
    new = list(drawn.elements())
    assert min(drawn.values()) >= 0  # every kept row is there
    assert len(set(new)) == len(new) == curated.counts["sampled pairs"]
    firsts, seconds = {a.strip() for a, _, _ in kept}, {b.strip() for _, b, _ in kept}
    possible = Counter(
        {a: sum(b != a and not {(a, b), (b, a)} & partners for b in seconds) for a in firsts}
    )
    if len(firsts) == 1:
        assert not new
    else:
        found = Counter(a.strip() for a, _, _ in new)
        assert all(found[a] == min(sampled, possible[a]) for a in firsts)
    for a, b, label in new:
        assert label == 0.0
        assert a.strip() != b.strip()
        assert not {(a.strip(), b.strip()), (b.strip(), a.strip())} & partners
        assert b.strip() in seconds

    counts = curated.counts
    assert counts["rows in"] == len(rows)
    assert counts["rows in"] + counts["sampled pairs"] == (
        counts["train"] + counts["validation"] + len(curated.dropped)
    )
    assert {k: v for k, v in counts.items() if k in set(reasons)} == Counter(filter(None, reasons))
    for split in (curated.train, curated.validation):
        own = [row for row in rows_of(split) if row not in set(new)]
        places = [kept.index(row) for row in own]
        assert places == sorted(places)  # rows keep their order


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_order_of_inputs_changes_neither_pairs_nor_split(seed: int) -> None:
    groups = [written(20)[at : at + 12] for at in range(0, 240, 12)]
    shuffled = random.Random(seed).sample(groups, len(groups))
    one, two = (
        curate_rows(pairs([row for group in order for row in group]), seed=3)
        for order in (groups, shuffled)
    )
    assert sorted(rows_of(one.train)) == sorted(rows_of(two.train))
    assert sorted(rows_of(one.validation)) == sorted(rows_of(two.validation))


def test_same_seed_same_rows_other_seed_others() -> None:
    dataset = pairs(written())
    assert everything(curate_rows(dataset, seed=1)) == everything(curate_rows(dataset, seed=1))
    one, two = curate_rows(dataset, seed=1), curate_rows(dataset, seed=2)
    assert rows_of(one.validation) != rows_of(two.validation)
    zeros = [[row for row in rows_of(c.train) if row[2] == 0.0] for c in (one, two)]
    assert zeros[0] != zeros[1]


def test_known_rows_on_any_machine() -> None:
    rows = [(f"input {i}", f"text {i} {y}", y) for i in range(4) for y in (0.0, 1.0)]
    curated = curate_rows(pairs(rows), sampled_pairs=1, validation_share=0.25, seed=7)
    assert rows_of(curated.train)[-3:] == [
        ("input 0", "text 1 0.0", 0.0),
        ("input 1", "text 0 1.0", 0.0),
        ("input 2", "text 0 0.0", 0.0),
    ]
    assert rows_of(curated.validation) == [
        ("input 3", "text 3 0.0", 0.1),
        ("input 3", "text 3 1.0", 0.9),
        ("input 3", "text 0 0.0", 0.0),
    ]


def test_no_group_straddles_the_split() -> None:
    rows = written(60)
    origin = [f"source {place // 24}" for place in range(len(rows))]  # of two first texts each
    curated = curate_rows(pairs(rows, source_id=origin))
    for name in ("text_a", "source_id"):
        assert not set(curated.train[name]) & set(curated.validation[name])
    share = len(curated.validation) / (len(curated.train) + len(curated.validation))
    assert 0.05 < share < 0.15
    texts = Dataset.from_dict({
        "text": [f"text {n % 50}" for n in range(100)], "label": ["yes"] * 50 + ["no"] * 50,
    })  # fmt: skip
    single = curate_rows(texts)
    assert not set(single.train["text"]) & set(single.validation["text"])
    assert Counter(single.validation["label"]) == {"yes": 5, "no": 5}


def test_more_rows_move_few_others() -> None:
    rows = written(100)
    one, two = (set(rows_of(curate_rows(pairs(given)).validation)) for given in (rows, rows[:-12]))
    assert len(one ^ two) <= 16


@pytest.mark.parametrize("given", [["0", "0.5", "1"], [0, 0.5, 1], [0.0, 0.5, 1.0]])
@pytest.mark.parametrize(
    ("smoothing", "expected"),
    [(None, [0.1, 0.5, 0.9]), (0.2, [0.1, 0.5, 0.9]), (0, [0.0, 0.5, 1.0]), (1, [0.5, 0.5, 0.5])],
)
def test_smoothing(given: list[Any], smoothing: float | None, expected: list[float]) -> None:
    dataset = pairs([("x", f"p{label}", label) for label in given])
    curated = curate_rows(dataset, smoothing=smoothing, sampled_pairs=0, validation_share=0)
    assert list(curated.train["label"]) == expected


def test_smoothing_uses_the_mean_of_distinct_labels_and_spares_sampled_pairs() -> None:
    rows = [(f"a{i}", f"b{i}", 1.0) for i in range(9)] + [("a9", "b9", 0.0)]
    curated = curate_rows(pairs(rows), validation_share=0)
    assert Counter(curated.train["label"]) == {0.9: 9, 0.1: 1, 0.0: 20}
    assert curated.train.features["label"] == Value("float64")
    rows = [("x", "p", 0.0), ("x", "q", 1.0), ("x", "x", 4.5)]  # the last is dropped
    curated = curate_rows(pairs(rows), sampled_pairs=0, validation_share=0)
    assert list(curated.train["label"]) == [0.1, 0.9]
    assert list(curated.dropped["label"]) == [4.5]
    dataset = Dataset.from_dict({"text": ["good", "bad"], "label": [1, 0]})
    assert list(curate_rows(dataset, validation_share=0).train["label"]) == [1, 0]
    smoothed = curate_rows(dataset, validation_share=0, smoothing=0.2).train
    assert list(smoothed["label"]) == [0.9, 0.1]


def test_text_labels_are_left_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    rows = [(f"a{i}", f"b{i}", "yes" if i % 2 else "no") for i in range(40)]
    with caplog.at_level(logging.INFO, "tilth"):
        curated = curate_rows(pairs(rows))
    assert "no smoothing, no sampled pairs" in caplog.text
    assert Counter(curated.validation["label"]) == {"yes": 2, "no": 2}
    assert curated.counts["sampled pairs"] == 0
    assert sorted(rows_of(curated.train) + rows_of(curated.validation)) == sorted(rows)


def test_classes_become_their_names() -> None:
    features = Features(
        text_a=Value("string"), text_b=Value("string"), label=ClassLabel(names=["no", "yes"])
    )
    dataset = Dataset.from_dict(
        {"text_a": ["x", "y"], "text_b": ["p", "q"], "label": [0, 1]}, features=features
    )
    curated = curate_rows(dataset, validation_share=0)
    assert list(curated.train["label"]) == ["no", "yes"]
    assert curated.train.features["label"] == Value("string")


def test_origin_columns_stay_and_sampled_pairs_say_so() -> None:
    rows = [("x", "p", 0.0), ("y", "q", 1.0)]
    origin = {
        "source_id": ["1", "2"], "task": ["t", "t"], "model": ["m", "m"], "try": [0, 3],
        "seed": [9, 9], "note": ["n", "n"],
    }  # fmt: skip
    curated = curate_rows(pairs(rows, **origin), sampled_pairs=1, validation_share=0, seed=5)
    assert curated.train[1] == {
        "text_a": "y", "text_b": "q", "label": 0.9, "source_id": "2", "task": "t", "model": "m",
        "try": 3, "seed": 9, "note": "n",
    }  # fmt: skip
    assert curated.train[2] == {
        "text_a": "x", "text_b": "q", "label": 0.0, "source_id": "1", "task": "sampled",
        "model": "sampled", "try": -1, "seed": 5, "note": None,
    }  # fmt: skip


def test_a_partner_in_another_spelling_is_no_sampled_pair() -> None:
    given = pairs([("A dog", "A dog barks.", 1.0), ("B cat", "a dog  barks", 1.0),
                   ("C man", "A man sings.", 1.0)])  # fmt: skip
    rows = [row for part in everything(curate_rows(given, sampled_pairs=2, validation_share=0))[:2]
            for row in part if row["label"] < 0.5]  # fmt: skip
    others = {row["text_b"] for row in rows if row["text_a"] in ("A dog", "B cat")}
    assert others == {"A man sings."}


def test_whole_numbers_of_single_texts_are_split_as_classes() -> None:
    labels = [n % 77 for n in range(77 * 5)]
    given = Dataset.from_dict({"text": [f"text {n}" for n in range(385)], "label": labels})
    found = curate_rows(given)
    named = curate_rows(given.cast_column("label", Value("string")))
    assert len(set(found.validation["label"])) == len(set(named.validation["label"])) == 77


def test_many_partners_leave_one_text() -> None:
    rows = [("x", f"p{i}", float(i)) for i in range(200)] + [("y", "only", 0.0)]
    curated = curate_rows(pairs(rows), validation_share=0, smoothing=0, sampled_pairs=1)
    assert ("x", "only", 0.0) in rows_of(curated.train)


def test_sampled_texts_are_drawn_evenly() -> None:
    rows = [(f"a{i}", f"b{i}", 1.0) for i in range(4000)]
    sampled = rows_of(curate_rows(pairs(rows), validation_share=0, sampled_pairs=2).train)[4000:]
    assert len(sampled) == 8000
    assert max(Counter(b for _, b, _ in sampled).values()) < 35
    assert len({b for _, b, _ in sampled}) > 2400


def test_split_is_stratified() -> None:
    rows = [(f"a{i}", f"b{i}", (0.0, 0.0, 0.5, 1.0)[i % 4]) for i in range(400)]
    curated = curate_rows(pairs(rows), smoothing=0, sampled_pairs=0)
    assert Counter(curated.validation["label"]) == {0.0: 20, 0.5: 10, 1.0: 10}
    assert len(curate_rows(pairs(rows), validation_share=0).validation) == 0


def test_rare_labels_stay_in_train(caplog: pytest.LogCaptureFixture) -> None:
    rows = [(f"a{i}", f"b{i}", "often") for i in range(40)] + [("x", "y", "rare")]
    curated = curate_rows(pairs(rows), validation_share=0.5)
    assert Counter(curated.validation["label"]) == {"often": 20}
    assert not curate_rows(pairs([("x", "y", "rare")])).validation.num_rows
    assert "too rare" in caplog.text


def test_grades_are_split_by_neighbourhood() -> None:
    rows = [(f"a{i}", f"b{i}", i / 100) for i in range(500)]
    held = curate_rows(pairs(rows), sampled_pairs=0, smoothing=0).validation
    assert Counter(int(label / 0.5) for label in held["label"]) == dict.fromkeys(range(10), 5)


def test_single_texts() -> None:
    dataset = Dataset.from_dict(
        {"text": ["good", "good ", "good", "bad", " "], "label": ["1", "1", "0", "0", "0"]}
    )
    curated = curate_rows(dataset, validation_share=0)
    assert curated.train.to_dict() == {"text": ["good", "good", "bad"], "label": ["1", "0", "0"]}
    assert list(curated.dropped["drop_reason"]) == ["duplicate", "empty"]
    assert curated.counts == {
        "rows in": 5, "empty": 1, "duplicate": 1, "sampled pairs": 0, "train": 3, "validation": 0,
    }  # fmt: skip


def test_near_duplicates_are_dropped_within_a_label() -> None:
    long = "a man is playing the old guitar in a park"
    rows = [("x", long, 1.0), ("x", long.title() + ".", 1.0), ("x", long + " now", 0.0)]
    assert curate_rows(pairs(rows)).counts.get("near-duplicate") is None
    curated = curate_rows(pairs(rows), near_duplicates=0.8)
    assert rows_of(curated.dropped) == [rows[1]]
    assert curated.counts["near-duplicate"] == 1


def test_curate_returns_the_splits() -> None:
    dataset = pairs(written(), label_fit=[0.1] * len(written()))
    options: dict[str, Any] = {
        "smoothing": 0.1, "sampled_pairs": 1, "per_label": 1, "validation_share": 0.2,
        "near_duplicates": 0.9, "min_label_fit": 0.1, "seed": 4,
    }  # fmt: skip
    splits, curated = curate(dataset, **options), curate_rows(dataset, **options)
    assert list(splits) == ["train", "validation"]
    assert splits["train"].to_list() == curated.train.to_list()
    assert splits["validation"].to_list() == curated.validation.to_list()
    assert curated.settings == options


def test_rows_chosen_by_select_are_the_ones_read() -> None:
    rows = written()
    dataset = pairs(rows).select(range(50, 20, -1))
    again = pairs(rows[50:20:-1])
    assert everything(curate_rows(dataset)) == everything(curate_rows(again))


def test_a_drop_reason_column_without_reasons_is_taken_out() -> None:
    curated = curate_rows(pairs([("x", "p", 0.0)], drop_reason=[None]), validation_share=0)
    assert curated.train.column_names == ["text_a", "text_b", "label"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text_a": ["x"], "label": [0.0]}, "no column 'text_b' among text_a, label"),
        ({"label": [0.0]}, "no column 'text' among label"),
        ({"text": ["x"]}, "no column 'label' among text"),
        ({"text_a": [], "text_b": [], "label": []}, "the set has no rows"),
        ({"text_a": ["x"], "text_b": [1], "label": [0.0]}, "column 'text_b' holds int64"),
        ({"text": ["x", None], "label": ["a", "b"]}, "row 1 .*: text is empty"),
        ({"text": ["x", "y"], "label": ["a", None]}, "row 1 .*: no label"),
        ({"text": ["x", "y"], "label": [1.0, float("nan")]}, "row 1 .*: label is nan"),
        ({"text": ["x"], "label": [["a"]]}, "column 'label' holds list"),
        ({"text": ["x"], "label": ["a"], "drop_reason": ["newline"]}, "row 0 was dropped"),
        ({"text_a": ["x"], "text_b": ["x "], "label": [0.0]}, r"no row is left of 1 \(1 identical"),
    ],
)
def test_bad_rows(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        curate_rows(Dataset.from_dict(columns))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([("x", "p", "neutral")], {"smoothing": 0.2}, "such as 'neutral'"),
        ([("x", "p", "neutral")], {"sampled_pairs": 1}, "such as 'neutral'"),
        ([("x", "p", -1.0), ("y", "q", 1.0)], {"sampled_pairs": 1}, "lowest label is -1"),
        (
            [("x", "p", 1.5e308), ("x", "q", 1.6e308)],
            {"smoothing": 0.2},
            "too large to be smoothed",
        ),
        ([("x", 1.0)], {"sampled_pairs": 1}, "rows are single texts"),
    ],
)
def test_what_cannot_apply_is_refused_or_left_out(
    rows: list[Any], options: dict[str, Any], said: str
) -> None:
    single = Dataset.from_dict({"text": ["x"], "label": [1.0]})
    dataset = pairs(rows) if len(rows[0]) == 3 else single
    with pytest.raises(InputError, match=said):
        curate(dataset, **options)
    assert curate_rows(dataset, smoothing=0).counts["sampled pairs"] == 0


def test_a_label_that_loses_all_rows_is_named(caplog: pytest.LogCaptureFixture) -> None:
    rows = {
        "text": list("abcd"),
        "label": ["x", "y", "x", "z"],
        "label_fit": [0.2, -0.1, 0.1, -0.4],
    }
    curate_rows(Dataset.from_dict(rows), validation_share=0)
    assert "no row is left of label 'y', 'z'" in caplog.text
    caplog.clear()
    curate_rows(Dataset.from_dict(rows), validation_share=0, min_label_fit=-1)
    assert "no row is left" not in caplog.text


def test_texts_with_several_labels_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    rows = {"text": ["a", "a", "b", "b", "A"], "label": ["x", "y", "x", "x", "z"]}
    assert curate_rows(Dataset.from_dict(rows), validation_share=0).counts["duplicate"] == 1
    assert "1 texts occur more than once with different labels; all are kept" in caplog.text


def test_texts_that_do_not_fit_their_label_are_dropped() -> None:
    fits = [0.2, 0.0, -0.01, None, -0.3]
    rows = Dataset.from_dict(
        {"text": list("abcde"), "label": ["x"] * 5, "label_fit": fits},
        features=Features(
            {"text": Value("string"), "label": Value("string"), "label_fit": Value("float32")}
        ),
    )
    curated = curate_rows(rows, validation_share=0)
    assert curated.train["text"] == ["a", "b", "d"]
    assert curated.dropped["drop_reason"] == ["label-fit"] * 2
    assert curated.counts["label-fit"] == 2
    assert curate_rows(rows, validation_share=0, min_label_fit=-0.1).train["text"] == list("abcd")
    assert "label-fit" not in curate_rows(rows.remove_columns("label_fit")).counts


def test_texts_of_one_spelling_and_mirrored_pairs_stay_in_one_part() -> None:
    texts = [f"A good text number {n}." for n in range(60)]
    both = [one for text in texts for one in (text, text.lower().rstrip("."))]
    single = curate_rows(Dataset.from_dict({"text": both, "label": ["x", "y"] * 60}))
    mirrored = [pair for a, b in pairwise(texts) for pair in ((a, b, 0.4), (b.upper(), a, 0.4))]
    paired = curate_rows(pairs(mirrored[::3] + mirrored[1::3]), sampled_pairs=0, smoothing=0)
    for found, columns in ((single, ["text"]), (paired, ["text_a", "text_b"])):
        train, held = (
            {tuple(sorted(normalize_text(row[name]) for name in columns)) for row in part.to_list()}
            for part in (found.train, found.validation)
        )
        assert held
        assert not train & held


def test_rare_whole_numbers_of_single_texts_stay_in_train(caplog: pytest.LogCaptureFixture) -> None:
    rows = {"text": [f"text {n}" for n in range(36)], "label": [n % 12 for n in range(36)]}
    curated = curate_rows(Dataset.from_dict(rows))
    assert (len(curated.train), len(curated.validation)) == (36, 0)
    assert "no validation rows" in caplog.text
    blank = {**rows, "text": [text if n % 12 else "" for n, text in enumerate(rows["text"])]}
    curate_rows(Dataset.from_dict(blank))
    assert "no row is left of label '0'" in caplog.text


def test_texts_of_one_origin_are_no_sampled_pair() -> None:
    names = ("original", "rewrite")
    rows = [(f"a{n} {name}", f"b{n} {name}", 1.0) for n in range(12) for name in names]
    origins = {"source_id": [str(n) for n in range(12) for _ in names]}
    for seed in range(10):
        curated = curate_rows(pairs(rows, **origins), seed=seed, validation_share=0)
        sampled = [row for row in curated.train.to_list() if row["label"] == 0.0]
        assert len(sampled) == 48
        assert all(row["text_a"].split()[0][1:] != row["text_b"].split()[0][1:] for row in sampled)


def test_whole_numbers_that_may_be_classes_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    rows = [(f"a{n}", f"b{n}", float(n % 3)) for n in range(30)]
    curated = curate_rows(pairs(rows), validation_share=0)
    assert Counter(curated.train["label"]) == {0.0: 10, 1.0: 10, 2.0: 10}
    assert "no smoothing: labels may be classes" in caplog.text
    assert "no sampled pairs: labels may be classes" in caplog.text
    caplog.clear()
    asked = curate_rows(pairs(rows), validation_share=0, smoothing=0.3, sampled_pairs=1)
    assert Counter(asked.train["label"]) == {0.3: 10, 1.0: 10, 1.7: 10, 0.0: 30}
    assert not caplog.text


@pytest.mark.parametrize("fit", [["-0.5", "0.3", ""], [-1, 1, None], [-0.5, 0.3, None]])
def test_fit_is_read_of_any_column_of_numbers(fit: list[Any]) -> None:
    dataset = pairs([(f"a{n}", f"b{n}", 1.0) for n in range(3)], label_fit=fit)
    assert curate_rows(dataset, validation_share=0, sampled_pairs=0).counts["label-fit"] == 1


def test_a_least_fit_of_rows_without_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"min-label-fit is 0\.5, but there is no column"):
        curate_rows(pairs([("x", "p", 0.0)]), min_label_fit=0.5)


def test_grades_from_1_on_have_no_sampled_pairs(caplog: pytest.LogCaptureFixture) -> None:
    rows = [(f"a{n}", f"b{n}", 1.0 + n % 5) for n in range(20)]
    assert curate_rows(pairs(rows)).counts["sampled pairs"] == 0
    assert "no sampled pairs: their label is 0, and grades are 1 to 5" in caplog.text
    assert curate_rows(pairs(rows), sampled_pairs=1).counts["sampled pairs"] == 20

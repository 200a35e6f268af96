import json
import random
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.tiny.rows import SENTENCES, pair_rows, single_rows, table
from tilth.report.quality import Quality, Thresholds
from tilth.report.tries import distinct, label_order, load_tries


def measure(
    tables: list[pa.Table],
    *,
    unmeasured: dict[str, str] | None = None,
    **limits: Any,
) -> Quality:
    with load_tries(tables) as tries, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilth.report.quality.Thresholds", partial(Thresholds, **limits))
        return tries.quality(unmeasured=unmeasured)


def row(text_b: str, **other: Any) -> dict[str, Any]:
    return {
        "source_id": other.get("text_a", "A dog runs."),
        "text_a": "A dog runs.",
        "text_b": text_b,
        "label": "1",
        "tokens": 10,
        "floor_share": 0.0,
        "drop_reason": None,
        "try": 0,
        "item": 0,
    } | other


def figures_of(rows: list[dict[str, Any]], label: str = "1") -> Any:
    return next(one for one in measure([table(rows)]).labels if one.label == label)


def warned(rows: list[dict[str, Any]], **limits: Any) -> set[tuple[str, str]]:
    return {(w.label, w.figure) for w in measure([table(rows)], **limits).warnings}


def test_figures_by_hand() -> None:
    rows = [
        row("a dog, RUNS"),
        row("The dog is running.", tokens=6, floor_share=0.5),
        row("A dog is", drop_reason="not-closed", tokens=40),
        row("Look", drop_reason="newline", tokens=4),
        row("", drop_reason="empty", tokens=0),
        row("A cat sleeps.", label="0", floor_share=1.0),
    ]
    one = figures_of(rows)
    assert (one.tries, one.closed, one.kept, one.copies) == (5, 3, 2, 1)
    assert one.closed_share == pytest.approx(0.6)
    assert one.copy_share == pytest.approx(0.5)
    assert one.dropped == {"empty": 1, "newline": 1, "not-closed": 1}
    assert one.mean_tokens == pytest.approx(8.0)
    assert one.mean_words == pytest.approx(3.5)
    assert one.all_tokens == 60
    assert one.floor_share == pytest.approx(3 / 60)  # by tokens, not by tries
    # a dog runs / the dog is running: 6 of 7 words, 5 of 5 pairs differ
    assert one.distinct_1 == pytest.approx(6 / 7)
    assert one.distinct_2 == pytest.approx(1.0)
    assert figures_of(rows, "0").floor_share == pytest.approx(1.0)


def test_distinct_does_not_reach_over_texts() -> None:
    assert distinct(["a b", "b a"], 2) == 1.0
    assert distinct(["a b", "a b"], 2) == 0.5
    assert distinct(["a b a"], 1) == pytest.approx(2 / 3)
    assert distinct(["a"], 2) is None
    assert distinct([], 1) is None


def test_distinct_is_taken_on_a_bounded_draw() -> None:
    rows = [row(f"word{i} other{i}") for i in range(1500)]
    assert figures_of(rows).distinct_outputs == 1000


def test_figures_do_not_depend_on_the_parts() -> None:
    whole = table(pair_rows(SENTENCES))
    parts = [whole.slice(start, 37) for start in range(0, len(whole), 37)]
    assert measure([whole]).to_dict() == measure(parts).to_dict()


def test_a_label_that_comes_late_is_counted_in_full() -> None:
    first, late = [row("One text.")], [row("Another.", label="0"), row("Third.", label="0")]
    found = measure([table(first), table(late), table(first)])
    assert {label.label: label.kept for label in found.labels} == {"1": 2, "0": 2}


def test_repeats_and_duplicates() -> None:
    rows = [row("Same."), row("same"), row("Same!", text_a="Other.", source_id="b")]
    one = figures_of(rows)
    assert (one.duplicates, one.repeated) == (1, 1)


def test_dropped_rows_are_neither_copies_nor_repeats() -> None:
    rows = [row("A dog runs", drop_reason="not-closed"), row("A dog runs", drop_reason="newline")]
    one = figures_of(rows)
    assert (one.copies, one.repeated, one.duplicates, one.kept) == (0, 0, 0, 0)


def test_task_without_inputs() -> None:
    one = figures_of(single_rows({"good": ["Nice.", "Nice", "Fine."]}), "good")
    assert one.copy_share is None
    assert one.floor_share is None
    assert (one.repeated, one.duplicates) == (1, 0)


def test_columns_an_endpoint_leaves_out_are_not_needed() -> None:
    thin = table([row("Hello there.")]).drop_columns(["floor_share", "source_id", "try", "item"])
    assert measure([thin]).labels[0].floor_share is None


def test_no_rows() -> None:
    found = measure([])
    assert (found.labels, found.warnings, found.tries) == ([], [], 0)


def test_healthy_run_warns_of_nothing() -> None:
    rows = [row(f"A tale of {i} {i * 7} {i * 13} and more {i * 3}.") for i in range(60)]
    assert not measure([table(rows)]).warnings


many = range(60)
fresh = [f"tale {i} of {i * 7} and {i * 13} more {i * 3}" for i in many]


@pytest.mark.parametrize(
    ("figure", "rows"),
    [
        ("closed_share", [row(fresh[i], drop_reason="newline" if i % 3 else None) for i in many]),
        ("kept", [row(t, drop_reason="newline") for t in fresh]),
        ("copy_share", [row(fresh[i] if i % 4 else "A dog runs", source_id=str(i)) for i in many]),
        ("distinct_2", [row("one two three four", source_id=str(i)) for i in many]),
        ("floor_share", [row(t, floor_share=0.4) for t in fresh]),
        ("repeated_share", [row(fresh[i % 50], source_id=str(i)) for i in many]),
        ("duplicate_share", [row(fresh[i % 40], source_id=str(i % 40)) for i in many]),
        ("shared", [row(t, label=label, source_id=t) for t in fresh for label in ("1", "0")]),
    ],
)  # fmt: skip
def test_each_symptom_is_seen(figure: str, rows: list[dict[str, Any]]) -> None:
    found = measure([table(rows)])
    assert ("1", figure) in {(w.label, w.figure) for w in found.warnings}
    for warning in found.warnings:
        assert warning.text.startswith("Label ")
        assert "\n" not in warning.text
        assert ";" in warning.text  # the figure before it, the mend after it
        assert warning.text.endswith(".")


@pytest.mark.parametrize(
    ("limit", "figure", "lax"),
    [
        ("closed", "closed_share", 0.1),
        ("copies", "copy_share", 1.0),
        ("distinct_2", "distinct_2", 0.0),
        ("floor_share", "floor_share", 1.0),
        ("repeated", "repeated_share", 1.0),
        ("duplicates", "duplicate_share", 1.0),
        ("shared", "shared", 1.0),
        ("enough", "copy_share", 10_000),
    ],
)
def test_each_limit_is_used(limit: str, figure: str, lax: float) -> None:
    rows = [
        row("A dog runs", label=label, floor_share=0.9, source_id=str(i // 8),
            drop_reason=None if i % 4 == 0 else "not-closed")
        for i in range(300) for label in ("1", "0")
    ]  # fmt: skip
    assert ("1", figure) in warned(rows)
    assert ("1", figure) not in warned(rows, **{limit: lax})


def fitting(fits: dict[str, list[float | None]], column: str = "label_fit") -> pa.Table:
    rows = [
        row(f"{label} {fresh[i]}", label=label, source_id=str(i))
        for label, values in fits.items()
        for i in range(len(values))
    ]
    values = [value for each in fits.values() for value in each]
    return table(rows).append_column(column, pa.array(values, pa.float32()))


def test_a_label_whose_texts_do_not_fit_is_warned_of_with_the_remedy() -> None:
    found = measure([fitting({"a": [0.1] * 40 + [-0.1] * 20, "b": [0.1] * 60})])
    assert [label.fit_share for label in found.labels] == [pytest.approx(2 / 3), 1.0]
    (warning,) = found.warnings
    assert (warning.label, warning.figure) == ("a", "fit_share")
    assert warning.text.startswith("Label a: 67% of its kept texts fit")
    assert "tilth predict" in warning.text
    assert not found.summary
    head, *lines = found.table()
    assert [line[head.index("fits")] for line in lines] == ["67%", "100%"]
    assert not measure([fitting({"a": [0.1] * 40 + [-0.1] * 20})], fits=0.6).warnings


def test_a_model_that_cannot_write_the_task_is_told_in_one_loud_line() -> None:
    tables = [fitting({"a": [-0.1] * 40, "b": [0.1] * 30})]
    first = measure(tables).warnings[0]
    assert (first.label, first.figure) == ("", "fit_share")
    assert first.text.startswith("THE MODEL CANNOT WRITE THIS TASK: 57% of 70 texts")
    assert "endpoint" in first.text
    assert all(w.label for w in measure(tables, writes=0.4).warnings)


def test_health_is_claimed_only_where_the_fit_was_measured() -> None:
    few = measure([fitting({name: [0.1] * 29 for name in "abcdefg"})]).summary
    assert few == "Too few kept texts to judge, fewer than 30: a, b, c, d, e and 2 more."
    assert measure([fitting({"a": [0.1] * 60})]).summary == "No label has a warning."
    assert "Not measured" in measure([fitting({"a": [0.1] * 60, "b": [None] * 60})]).summary
    why = measure([fitting({"a": [None] * 60})], unmeasured={"a": "too near to b"})
    assert "too near to b" in why.summary
    assert why.to_dict()["unmeasured"] == {"a": "too near to b"}


def test_graded_pairs_are_compared_with_the_next_lower_label() -> None:
    grades = {"1": [0.9, 0.5] * 30, "0.5": [0.5] * 60, "0": [-0.1] * 60}
    found = measure([fitting(grades, "similarity")])
    one, half, none = found.labels
    assert (one.below, half.below, none.below) == ("0.5", "0", None)
    assert one.similarity == pytest.approx(0.7)
    assert one.separation == pytest.approx(0.75)  # half are above, half are equal
    assert (half.separation, none.separation) == (1.0, None)
    assert found.summary == "No label has a warning."
    grades["0.5"] = [0.9] * 60
    wrong = measure([fitting(grades, "similarity")]).warnings
    assert [(w.label, w.figure) for w in wrong] == [("1", "separation")]
    assert "those of label 0.5 in only 25% of comparisons" in wrong[0].text
    assert not measure([fitting(grades, "similarity")], separation=0.2).warnings


def test_labels_of_very_different_lengths_are_warned_of() -> None:
    rows = [row(f"{label} {t} {t if label == '1' else ''} {t if label == '1' else ''}",
                label=label, source_id=t) for t in fresh for label in ("1", "0")]  # fmt: skip
    assert ("1", "mean_words") in warned(rows, length_ratio=2)
    assert ("1", "mean_words") not in warned(rows, length_ratio=3)


def test_few_tries_say_nothing() -> None:
    assert not warned([row("A dog runs", drop_reason="not-closed") for _ in range(29)])


def test_json_and_table() -> None:
    found = measure([table(pair_rows(SENTENCES[:20]))])
    data = json.loads(json.dumps(found.to_dict()))
    assert [one["label"] for one in data["labels"]] == ["1", "0.5", "0"]
    assert data["kept"] + sum(data["dropped"].values()) == data["tries"]
    headings, *rows = found.table()
    assert all(len(cells) == len(headings) for cells in rows)
    assert rows[0][headings.index("tries")] == f"{found.labels[0].tries:,}"


def test_label_order() -> None:
    assert label_order(["0", "1", "0.5"]) == ["1", "0.5", "0"]
    assert label_order(["b", "a", "1"]) == ["b", "a", "1"]


def test_lengths_hold_every_kept_output() -> None:
    rows = [row("one two"), row(" ".join(["w"] * 500)), row("x", drop_reason="newline")]
    with load_tries([table(rows)]) as tries:
        lengths = tries.lengths()["1"]
    assert (lengths[2], lengths[-1], sum(lengths)) == (1, 1, 2)


def test_samples_are_of_every_label_whatever_the_parts() -> None:
    whole = table(pair_rows(SENTENCES))
    samples = []
    for tables in ([whole], [whole.slice(0, 50), whole.slice(50)]):
        with load_tries(tables) as tries:
            kept, dropped = tries.sample_kept(10), tries.sample_dropped(2)
        assert [one.label for one in kept] == ["1"] * 10 + ["0.5"] * 10 + ["0"] * 10
        assert all(one.reason is None for one in kept)
        assert all(one.reason for one in dropped)
        samples.append((kept, dropped))
    assert samples[0] == samples[1]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("paired", [True, False])
def test_counts_equal_a_slow_loop(seed: int, paired: bool) -> None:
    draw = random.Random(seed)
    rows = [
        (draw.randrange(4), draw.choice("abcdefgh"), draw.choice("xyz") if paired else "")
        for _ in range(120)
    ]
    repeated, duplicates = [0] * 4, [0] * 4
    for place, (label, output, source) in enumerate(rows):
        earlier = [row for row in rows[:place] if row[:2] == (label, output)]
        repeated[label] += any(row[2] != source for row in earlier)
        duplicates[label] += any(row[2] == source for row in earlier)
    shared = [
        [
            sum(
                (other, output, source) in set(rows) and other != label
                for mine, output, source in rows
                if mine == label
            )
            for other in range(4)
        ]
        for label in range(4)
    ]
    tries = [
        {"label": f"{label}", "text_a": source or None, "text": output}
        for label, output, source in rows
    ]
    found = {int(one.label): one for one in measure([pa.Table.from_pylist(tries)]).labels}
    for label, one in found.items():
        assert one.repeated == (repeated if paired else duplicates)[label]
        assert one.duplicates == (duplicates[label] if paired else 0)
        expected = {f"{other}": n for other, n in enumerate(shared[label]) if n}
        assert one.shared == expected

"""Filters, orders, pages, search and distributions, against the same done row by row."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tiny import salads
from tests.view.pages import pairs, write_run
from tilth.runs import Run
from tilth.view.rows import canonical_tables, detail_of
from tilth.view.runs import RunList
from tilth.view.store import DROPPED, KEPT, RowFilter, RowStore


def files_of(folder: Path) -> list[tuple[str, Path]]:
    entry = RunList(folder).entry(".")
    assert entry is not None
    return entry.row_files


def opened(folder: Path) -> RowStore:
    store = RowStore()
    store.refresh(files_of(folder))
    return store


def kept(rows: dict[str, list[Any]], test: Any) -> list[int]:
    count = len(rows["label"])
    return [row for row in range(count) if test({name: v[row] for name, v in rows.items()})]


@pytest.mark.parametrize(
    ("chosen", "test"),
    [
        (RowFilter(), lambda row: True),
        (RowFilter(state=KEPT), lambda row: row["drop_reason"] is None),
        (RowFilter(state=DROPPED), lambda row: row["drop_reason"] is not None),
        (RowFilter(label="0.5"), lambda row: row["label"] == "0.5"),
        (RowFilter(label="none such"), lambda row: False),
        (RowFilter(reason="empty"), lambda row: row["drop_reason"] == "empty"),
        (RowFilter(group="id-3"), lambda row: row["source_id"] == "id-3"),
        (
            RowFilter(ranges={"similarity": (0.3, 0.6)}),
            lambda row: row["similarity"] is not None and 0.3 <= row["similarity"] <= 0.6,
        ),
        (
            RowFilter(words="NUMBER7 dry", label="0.5"),
            lambda row: "number7." in row["text_b"] and row["label"] == "0.5",
        ),
        (RowFilter(words="number1*"), lambda row: "number1" in row["text_b"]),
        (RowFilter(words="number"), lambda row: "number " in row["text_b"]),
        (RowFilter(words="?!"), lambda row: False),
    ],
)
def test_filters(tmp_path: Path, chosen: RowFilter, test: Any) -> None:
    rows = pairs(100)
    store = opened(write_run(tmp_path / "run", rows))
    expected = kept(rows, test)
    assert store.select(chosen).tolist() == expected
    assert store.count(chosen) == len(expected)


@pytest.mark.parametrize("few", [0, 50_000])  # 0: rows are looked for in the order of all
@pytest.mark.parametrize("sort", ["", "similarity"])
@pytest.mark.parametrize("descending", [False, True])
def test_pages_hold_each_row_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: str, descending: bool, few: int
) -> None:
    monkeypatch.setattr("tilth.view.store._FEW", few)
    monkeypatch.setattr("tilth.view.store._WALKED", 9)
    rows = pairs(100)
    store = opened(write_run(tmp_path / "run", rows))
    chosen = RowFilter(state=KEPT, sort=sort, descending=descending)
    found: list[int] = []
    after = None
    while True:
        page = store.page(chosen, size=7, after=after)
        found += [row["row"] for row in page.rows]
        assert page.has_before == (after is not None)
        if not page.has_after:
            break
        after = found[-1]
        again = store.page(chosen, size=7, before=after)  # the page before holds what stood there
        assert [row["row"] for row in again.rows] == found[:-1][-7:]
    expected = kept(rows, lambda row: row["drop_reason"] is None)
    sign = -1 if descending else 1
    if sort:
        similarity = rows["similarity"]
        expected.sort(key=lambda row: (similarity[row] is None, sign * (similarity[row] or 0)))
    elif descending:
        expected.reverse()
    assert found == expected


@pytest.mark.parametrize("sort", ["", "similarity"])
def test_a_page_before_a_row_that_does_not_pass(tmp_path: Path, sort: str) -> None:
    rows = pairs(100)
    store = opened(write_run(tmp_path / "run", rows))
    chosen = RowFilter(state=KEPT, sort=sort)
    passing = store.select(chosen).tolist()
    other = next(row for row in range(20, 100) if row not in passing)
    page = store.page(chosen, size=7, before=other)
    expected = passing[:7] if sort else [row for row in passing if row < other][-7:]
    assert [row["row"] for row in page.rows] == expected
    assert page.has_after


def test_distributions_count_what_the_other_filters_pass(tmp_path: Path) -> None:
    rows = pairs(100)
    store = opened(write_run(tmp_path / "run", rows))
    chosen = RowFilter(label="1", state=KEPT)
    assert store.counts("label", chosen)["0"] == len(
        kept(rows, lambda row: row["label"] == "0" and row["drop_reason"] is None)
    )
    assert store.states(chosen)[DROPPED] == len(
        kept(rows, lambda row: row["label"] == "1" and row["drop_reason"] is not None)
    )
    histogram = store.histogram("similarity", chosen)
    assert histogram is not None
    values = [
        rows["similarity"][row]
        for row in kept(rows, lambda row: row["label"] == "1" and row["drop_reason"] is None)
        if rows["similarity"][row] is not None
    ]
    counts, _ = np.histogram(np.float32(values), bins=24, range=(0, 1))
    assert sum(histogram.counts) == sum(counts) == len(values)
    assert (histogram.low, histogram.high) == (0.0, 1.0)


def test_rows_of_later_parts_are_added(tmp_path: Path) -> None:
    rows = pairs(40)
    folder = write_run(tmp_path / "run", rows, parts=4, done=2)
    store = RowStore()
    store.refresh(files_of(folder))
    assert store.rows == 20
    assert store.select(RowFilter(words="number25")).tolist() == []
    write_run(folder, rows, parts=4)
    store.refresh(files_of(folder))
    assert store.rows == 40
    assert store.select(RowFilter(words="number25")).tolist() == [25]
    assert store.fetch([25, 3])[0]["text"] == rows["text_b"][25]
    found = store.file_of(25)
    assert found is not None
    assert (found[0].name, found[1]) == ("part-00002.parquet", 5)


def test_a_damaged_part_is_left_out_and_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "parts" / "part-00000.parquet").write_bytes(b"PAR1 no parquet")
    store = opened(folder)
    assert store.rows == 30
    assert store.notices == ["part-00000.parquet could not be read and is left out."]
    found = store.file_of(0)
    assert found is not None
    assert found[0].name == "part-00001.parquet"


def test_rows_of_an_unexpected_form_do_not_hide_others(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", parts=3)
    twice = pa.table([["a"], ["b"]], names=["text", "text"])
    pq.write_table(twice, folder / "parts" / "part-00001.parquet")
    store = opened(folder)
    assert store.rows == 40
    assert store.notices == ["part-00001.parquet could not be read and is left out."]


@pytest.mark.parametrize(
    ("text", "search"),
    [
        ("Straße nach Köln", "straße"),
        ("東京の天気", "京"),
        ("Привет, мир", "мир"),
        ("it's", "s"),
        ("İstanbul", "İstanbul"),
        ("ΟΔΟΣ", "ΟΔΟΣ"),
    ],
)
def test_words_of_other_scripts_are_found(tmp_path: Path, text: str, search: str) -> None:
    rows = {"text": [text, "other"], "label": ["a", "b"], "drop_reason": [None, None]}
    store = opened(write_run(tmp_path / "run", rows, parts=1))
    assert store.select(RowFilter(words=search)).tolist() == [0]


def test_rows_are_indexed_by_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pairs(100)
    folder = write_run(tmp_path / "run", rows, parts=10)
    monkeypatch.setattr("tilth.view.store._TOGETHER", 20)
    store = opened(folder)
    assert len(store._index._segments) == 5
    for words, holds in (("number7*", "number7"), ("dry", "dry"), ("river number42", "number42.")):
        expected = kept(rows, lambda row, holds=holds: holds in row["text_b"])
        assert store.select(RowFilter(words=words)).tolist() == expected
    assert [row["text"] for row in store.fetch([99, 0, 50])] == [
        rows["text_b"][place] for place in (99, 0, 50)
    ]


def test_texts_of_any_kind_are_kept(tmp_path: Path) -> None:
    texts = ["", "a\nb\0c", "\U0001f600 " * 3, "\u0131 \u0130 ß", "x" * 100_000]
    rows = {"original": [None, *texts[:-1]], "text": texts}
    store = opened(write_run(tmp_path / "run", rows, command="paraphrase", parts=1))
    found = store.fetch(range(5))
    assert [row["text"] for row in found] == texts
    assert [row["first"] for row in found] == rows["original"]
    assert store.select(RowFilter(words="xxx*")).tolist() == [4]


def test_a_full_disk_is_said_and_nothing_is_added_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", pairs(40), parts=4, done=2)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tilth.view.text_index.TextFile.append", full)
        store = opened(folder)
    assert store.rows == 0
    assert "No space left" in store.notices[0]
    write_run(folder, pairs(40), parts=4)
    store.refresh(files_of(folder))
    assert store.rows == 0


def test_what_is_remembered_is_of_the_same_rows(tmp_path: Path) -> None:
    rows = pairs(40)
    folder = write_run(tmp_path / "run", rows, parts=4, done=2)
    store = opened(folder)
    made = iter(range(9))
    assert [store.remembered("a", lambda: next(made)) for _ in range(2)] == [0, 0]
    write_run(folder, rows, parts=4)
    store.refresh(files_of(folder))
    assert store.remembered("a", lambda: next(made)) == 1
    assert store.count(RowFilter(label="1")) == len(kept(rows, lambda row: row["label"] == "1"))


@pytest.mark.parametrize("together", [7, 50_000])
def test_similar_rows_share_rare_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr("tilth.view.store._TOGETHER", together)
    texts = [*salads(60), "the dog eats a heron", "A heron swims!", "two herons, the sea"]
    groups = [f"g{row}" for row in range(60)] + ["g1", "g2", "g3"]
    rows = {"text": texts, "source_id": groups, "drop_reason": [None] * 63}
    store = opened(write_run(tmp_path / "run", rows, parts=9))
    words = [set(re.findall(r"\w+", text.lower())) for text in texts]
    weight = {
        word: math.log(63 / sum(word in one for one in words)) for one in words for word in one
    }

    def share(one: int, other: int) -> float:
        return sum(weight[word] for word in words[one] & words[other]) / sum(
            weight[word] for word in words[one]
        )

    for row in (0, 17, 60):
        others = [other for other in range(63) if other != row and groups[other] != groups[row]]
        expected = sorted(others, key=lambda other: (-round(share(row, other), 6), other))[:5]
        found = store.similar(row, 5, groups[row])
        assert [round(value, 5) for _, value in found] == [
            round(share(row, other), 5) for other in expected
        ]
        assert {other for other, _ in found} <= set(others)
    assert store.similar(60, 5, None)[0][0] == 61


def test_the_database_is_removed(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    assert any(tmp_path.iterdir())
    store.close()
    assert not any(tmp_path.iterdir())


def test_texts_of_arrow_and_pandas_are_texts(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"review": pa.array(["x y", "z"], pa.large_string()), "label": ["a", "b"]}), file
    )
    (table,) = canonical_tables(file)
    assert table["text"].to_pylist() == ["x y", "z"]


def test_predicted_rows_are_shown_by_the_column_that_was_read(tmp_path: Path) -> None:
    columns = {"id": ["T1", "T2"], "text": ["none", "none"], "body": salads(2)}
    Run.open(tmp_path, command="predict", settings={"text": ["body"]}, fingerprints={}, parts=0)
    file = tmp_path / "dataset" / "data" / "train.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), file)
    (table,) = canonical_tables(file)
    assert table["text"].to_pylist() == columns["body"]
    assert detail_of(file, 1, (None, "shown")) == {"id": "T2", "text": "none", "body": "shown"}

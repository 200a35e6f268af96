from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilth.bank.ingest import deduplicate as duplicates
from tilth.bank.ingest.deduplicate import (
    EXACT_DUPLICATE,
    NEAR_DUPLICATE,
    REASONS,
    DamagedPart,
    find_duplicates,
)
from tilth.bank.ingest.parts import SCHEMA
from tilth.data.near_duplicates import NEAR, SIMILARITY, jaccard, near_keys
from tilth.data.normalize import exact_keys, normalize_texts
from tilth.errors import TilthError

LONG = "The old mill by the river was sold to a family from the north last {} of the year"


def write(path: Path, texts: Sequence[str]) -> Path:
    column = pa.array(texts, pa.string())
    keys = near_keys(normalize_texts(column))
    columns = [column, pa.array(range(len(texts)), pa.int64()), pa.array(exact_keys(column))]
    table = pa.Table.from_arrays([*columns, *(pa.array(key) for key in keys.T)], schema=SCHEMA)
    pq.write_table(table, path)
    return path


def drops(folder: Path, *parts: Sequence[str], **options: object) -> list[dict[int, str]]:
    """Return row -> reason of each part."""
    folder.mkdir(exist_ok=True, parents=True)
    paths = [write(folder / f"part-{at}.parquet", texts) for at, texts in enumerate(parts)]
    found = find_duplicates(paths, folder=folder / "out", **options)
    answer = []
    for part, texts in enumerate(parts):
        marks = found.marks[found.starts[part] : found.starts[part + 1]]
        answer.append({row: REASONS[mark] for row, mark in enumerate(marks) if mark})
        assert found.kept(part).tolist() == [row not in answer[-1] for row in range(len(texts))]
    counted = [reason for one in answer for reason in one.values()]
    assert found.counts == {reason: counted.count(reason) for reason in set(counted)}
    assert {item.name for item in (folder / "out").iterdir()} <= {"duplicates.u8"}
    return answer


def brute_force(texts: Sequence[str]) -> dict[int, str]:
    """Do the same in loops, with all the pairs that share a key."""
    plains = normalize_texts(pa.array(texts, pa.string()))
    exact, keys = exact_keys(plains), near_keys(plains)
    found = {
        row: EXACT_DUPLICATE
        for row in range(len(texts))
        if any(exact[row] == exact[earlier] for earlier in range(row))
    }
    for band in range(len(NEAR)):
        groups: dict[int, list[list[int]]] = {}
        for row in range(len(texts)):
            if row in found:
                continue
            leaders = groups.setdefault(int(keys[row, band]), [])
            for leader in leaders:
                if jaccard(plains, np.array([leader]), np.array([row]))[0] >= SIMILARITY:
                    found[row] = NEAR_DUPLICATE
                    break
            else:
                if len(leaders) < duplicates._LEADERS:
                    leaders.append(row)
    return found


def test_near_duplicates_and_without_them(tmp_path: Path) -> None:
    texts = [LONG.format("week"), "Nothing like it.", LONG.format("month"), "Page 12.", "Page 37."]
    assert drops(tmp_path, texts) == [{2: NEAR_DUPLICATE, 4: NEAR_DUPLICATE}]
    assert drops(tmp_path, texts, near=False) == [{}]


def test_known_sentences_count_as_earlier(tmp_path: Path) -> None:
    known = ["It rains today.", LONG.format("week"), LONG.format("day"), "Alone here."]
    keys = [write(tmp_path / f"{at}.parquet", known[at : at + 2]) for at in (0, 2)]
    for path in keys:  # a key file needs neither text nor document
        pq.write_table(pq.read_table(path, columns=["exact", *NEAR]), path)
    new = ["Not known yet.", "it rains today", LONG.format("month"), "Not known, yet!"]
    asked: list[int] = []

    def texts(rows: np.ndarray) -> pa.Array:
        asked.extend(rows.tolist())
        return pa.array([known[row] for row in rows])

    found = drops(tmp_path / "a", new, stored=keys, stored_texts=texts)
    assert found == [{1: EXACT_DUPLICATE, 2: NEAR_DUPLICATE, 3: EXACT_DUPLICATE}]
    assert set(asked) <= {1, 2}
    found = drops(tmp_path / "b", new, stored=keys, near=False)
    assert found == [{1: EXACT_DUPLICATE, 3: EXACT_DUPLICATE}]


WORDS = st.sampled_from(["old", "mill", "river", "sold", "1", "2"])
TEXTS = st.lists(st.lists(WORDS, min_size=3, max_size=24).map(" ".join), max_size=30)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(TEXTS, st.integers(0, 30))
def test_as_a_loop_finds_them(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cut: int
) -> None:
    one, two = drops(tmp_path_factory.mktemp("loop"), texts[:cut], texts[cut:])
    shifted = {row + len(texts[:cut]): reason for row, reason in two.items()}
    assert one | shifted == brute_force(texts)


def corpus() -> list[str]:
    """Return sentences of which many are alike, some in one large group."""
    generator = np.random.default_rng(1)
    words = [f"{a}{b}{c}" for a in "bcdfgm" for b in "aeiou" for c in "lnrst"]
    texts = [" ".join(generator.choice(words, 18)) for _ in range(400)]
    for text in texts[:200]:
        row = text.split()
        for place in generator.integers(0, 18, generator.integers(1, 3)):
            row[place] = str(generator.choice(words))
        texts.append(" ".join(row))
    texts += [f"Posted on page {number} by the editor" for number in range(300)]
    texts += [f"Posted by {word} {word}{word} {word[::-1]}" for word in words]
    return [texts[at] for at in generator.permutation(len(texts))]


def test_neither_parts_nor_threads_nor_batches_change_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = corpus()
    expected = brute_force(texts)
    assert len(expected) > 400
    assert drops(tmp_path / "a", texts, threads=1) == [expected]
    monkeypatch.setattr(duplicates, "_ROWS_AT_ONCE", 64)
    monkeypatch.setattr(duplicates, "_MEMORY", "200MB")
    parts = [texts[at : at + 97] for at in range(0, len(texts), 97)]
    found = drops(tmp_path / "b", *parts, threads=2)
    assert {
        97 * at + row: reason for at, one in enumerate(found) for row, reason in one.items()
    } == (expected)


def test_a_run_cut_short_leaves_nothing_that_matters(tmp_path: Path) -> None:
    (tmp_path / "out" / "spill").mkdir(parents=True)
    (tmp_path / "out" / "spill" / "keys.duckdb").write_bytes(b"half a file")
    (tmp_path / "out" / "duplicates.u8").write_bytes(b"\1\2\1\2")
    assert drops(tmp_path, ["One of it.", "One of it."]) == [{1: EXACT_DUPLICATE}]
    folder = tmp_path / "it's [new] *"
    assert drops(folder, ["One of it."], ["One of it."]) == [{}, {0: EXACT_DUPLICATE}]


def test_parts_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"no")
    with pytest.raises(DamagedPart, match=r"a\.parquet: no readable Parquet"):
        find_duplicates([path], folder=tmp_path / "out")
    pq.write_table(pa.table({"text": ["One of it."]}), path)
    with pytest.raises(DamagedPart, match=r"out: .*exact"):
        find_duplicates([path], folder=tmp_path / "out")
    assert not (tmp_path / "out" / "spill").exists()


def test_no_parts_and_parts_without_rows(tmp_path: Path) -> None:
    assert drops(tmp_path) == []
    assert drops(tmp_path, []) == [{}]
    assert drops(tmp_path, [], ["One of it."], []) == [{}, {}, {}]


@pytest.mark.parametrize(
    ("kind", "said", "wanted"),
    [
        (RuntimeError, "Query interrupted", KeyboardInterrupt),
        (duckdb.InterruptException, "INTERRUPT Error: Interrupted!", KeyboardInterrupt),
        (duckdb.TransactionException, "Failed to commit: Could not write file", TilthError),
        (duckdb.OutOfMemoryException, "Out of Memory Error: failed to pin block", TilthError),
        (duckdb.InvalidInputException, "ZSTD Decompression failure", DamagedPart),
    ],
)
def test_what_stops_the_engine(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Exception],
    said: str,
    wanted: type[BaseException],
) -> None:
    def stop(*_: object) -> None:
        raise kind(said)

    monkeypatch.setattr(duplicates, "_mark_exact", stop)
    with pytest.raises(wanted) as caught:
        drops(tmp_path, ["One of it."])
    assert caught.type is wanted
    assert not (tmp_path / "out" / "spill").exists()

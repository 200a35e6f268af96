import resource
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilth.bank.ingest import deduplicate, near
from tilth.bank.ingest.deduplicate import (
    EXACT_DUPLICATE,
    NEAR_DUPLICATE,
    REASONS,
    Duplicates,
    find_duplicates,
)
from tilth.bank.ingest.duplicate_steps import KeyFile, _allow_many_files
from tilth.bank.ingest.exchange import Batches, write_batches
from tilth.bank.ingest.parts import SCHEMA
from tilth.bank.ingest.workers import end_processes, in_processes
from tilth.data.near_duplicates import NEAR, SIMILARITY, jaccard, near_keys
from tilth.data.normalize import exact_keys, normalize_texts
from tilth.errors import TilthError

LONG = "The old mill by the river was sold to a family from the north last {} of the year"


def write(path: Path, texts: Sequence[str]) -> KeyFile:
    column = pa.array(texts, pa.string())
    keys = near_keys(normalize_texts(column))
    columns = [column, pa.array(range(len(texts)), pa.int64()), pa.array(exact_keys(column))]
    table = pa.Table.from_arrays([*columns, *(pa.array(key) for key in keys.T)], schema=SCHEMA)
    pq.write_table(table, path)
    return KeyFile(path, path, len(texts))


def find(files: Sequence[KeyFile], folder: Path, **options: Any) -> Duplicates:
    return find_duplicates(files, folder=folder, **{"spread": partial(in_processes, 1), **options})


def drops(folder: Path, *parts: Sequence[str], **options: Any) -> list[dict[int, str]]:
    """Return row -> reason of each part."""
    folder.mkdir(exist_ok=True, parents=True)
    paths = [write(folder / f"part-{at}.parquet", texts) for at, texts in enumerate(parts)]
    found = find(paths, folder / "out", **options)
    answer = []
    for (path, number), texts, outcome in zip(found.places, parts, found.found, strict=True):
        marks = Batches(path)[number]["reason"].to_pylist()
        assert len(marks) == len(texts)
        answer.append({row: REASONS[mark] for row, mark in enumerate(marks) if mark})
        kept = found.kept(len(answer) - 1)
        assert kept.tolist() == [row not in answer[-1] for row in range(len(texts))]
        assert outcome.kept == kept.sum()
        assert outcome.digest == blake2b(kept.tobytes(), digest_size=8).hexdigest()
    counted = [reason for one in answer for reason in one.values()]
    assert found.counts == {reason: counted.count(reason) for reason in set(counted)}
    assert not list((folder / "out").rglob(".*"))
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
                if len(leaders) < near._LEADERS:
                    leaders.append(row)
    return found


def test_near_duplicates_and_without_them(tmp_path: Path) -> None:
    texts = [LONG.format("week"), "Nothing like it.", LONG.format("month"), "Page 12.", "Page 37."]
    assert drops(tmp_path, texts) == [{2: NEAR_DUPLICATE, 4: NEAR_DUPLICATE}]
    assert drops(tmp_path, texts, near=False) == [{}]


def test_known_sentences_count_as_earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ["It rains today.", LONG.format("week"), LONG.format("day"), "Alone here."]
    stored = []
    for at in (0, 2):
        file = write(tmp_path / f"{at}.parquet", known[at : at + 2])
        # A key file needs neither text nor document: the shard has the texts.
        pq.write_table(pq.read_table(file.keys, columns=["exact", *NEAR]), file.keys)
        texts = pa.record_batch({"text": known[at : at + 2]})
        with pa.ipc.new_file(tmp_path / f"{at}.arrow", texts.schema) as writer:
            writer.write_batch(texts)
        stored.append(replace(file, texts=tmp_path / f"{at}.arrow"))
    new = ["Not known yet.", "it rains today", LONG.format("month"), "Not known, yet!"]
    for size in (1, 1 << 20):
        monkeypatch.setattr(deduplicate, "_GROUP_ROWS", size)
        found = drops(tmp_path / f"a{size}", new, stored=stored)
        assert found == [{1: EXACT_DUPLICATE, 2: NEAR_DUPLICATE, 3: EXACT_DUPLICATE}]
    found = drops(tmp_path / "b", new, stored=stored, near=False)
    assert found == [{1: EXACT_DUPLICATE, 3: EXACT_DUPLICATE}]


def test_groups_are_cut_by_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplicate, "_GROUP_ROWS", 10)
    file = write(tmp_path / "some.parquet", ["It rains today."])
    files = [replace(file, rows=rows) for rows in (1, 1, 1, 12, 30, 4, 6, 2)]
    groups = deduplicate._groups(files)
    assert [[one.rows for one in group] for group in groups] == [[1, 1, 1, 12], [30], [4, 6], [2]]


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


def test_neither_parts_nor_ranges_nor_workers_nor_batches_change_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = corpus()
    expected = brute_force(texts)
    assert len(expected) > 400
    assert drops(tmp_path / "a", texts) == [expected]
    monkeypatch.setattr(near, "_ROWS_AT_ONCE", 64)
    monkeypatch.setattr(near, "_MEMORY", "200MB")
    monkeypatch.setattr(deduplicate, "_GROUP_ROWS", 200)
    monkeypatch.setattr(deduplicate, "_RANGE_ROWS", 100)
    parts = [texts[at : at + 97] for at in range(0, len(texts), 97)]
    rows = {97 * (row // 97) + row % 97: reason for row, reason in expected.items()}
    for workers in (1, 2):
        out = tmp_path / f"of-{workers}"
        found = drops(out, *parts, spread=partial(in_processes, workers))
        end_processes()
        assert rows == {
            97 * at + row: reason for at, one in enumerate(found) for row, reason in one.items()
        }
        names = {path.name.rpartition("-")[0] for path in (out / "out").rglob("*.arrow")}
        near_steps = [f"{step}-{key}" for step in ("shared", "dropped") for key in NEAR]
        assert names == {"keys-", "dropped-exact", "texts-", "reasons-", *near_steps}
        numbers = [path.stem[-5:] for path in (out / "out").rglob("shared-near_0-*")]
        assert len(numbers) == -(-((len(texts) / 100) ** 0.5) // 1)


def test_large_texts_are_sorted_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "_MEMORY", "150MB")
    texts = pa.array([f"{number:06d} " + "x" * 400 for number in range(400_000)], pa.large_string())
    keys = pa.array(np.arange(400_000)[::-1] // 2, pa.uint64())
    batches = pa.table({"key": keys, "id": pa.array(range(400_000)), "text": texts})
    found = near.similar_ids(iter(batches.cast(near.CANDIDATES).to_batches(1000)), tmp_path / "s")
    assert found.tolist() == list(range(1, 400_000, 2))
    assert not (tmp_path / "s").exists()


def test_where_no_rows_share_a_key_no_engine_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near.duckdb, "connect", None)
    assert near.similar_ids(iter(()), tmp_path / "s").tolist() == []


def test_a_step_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    texts = corpus()
    path = write(tmp_path / "a.parquet", texts)
    done: list[str] = []

    def spread(work: Any, tasks: Any, *common: Any) -> Any:
        for task in tasks:
            done.append(f"{task.step} {task.key}")
            if len(done) == 7:
                raise KeyboardInterrupt
            yield work(task, *common)

    (tmp_path / "out" / "0123456789abcdef").mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        find([path], tmp_path / "out", spread=spread)
    (folder,) = (tmp_path / "out").iterdir()  # what another set of parts left is gone
    (folder / ".tmp-01234567").touch()
    (folder / ".tmp-01234567-spill").mkdir()
    found = find([path], tmp_path / "out", spread=spread)
    assert not list(folder.glob(".*"))
    assert done[6] == done[7]
    assert len(done) == len(set(done)) + 1
    assert found.counts == find([path], tmp_path / "b").counts
    done.clear()
    assert find([path], tmp_path / "out", spread=spread) == found
    assert done == []


def test_a_damaged_file_is_removed_and_made_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", corpus())
    expected = find([path], tmp_path / "out").counts
    (folder,) = (tmp_path / "out").iterdir()
    for name in ("dropped-near_2-00000.arrow", "texts--00000.arrow"):
        for damaged in (b"", (folder / name).read_bytes()[:-3]):
            (folder / "reasons--00000.arrow").unlink()
            (folder / "dropped-near_5-00000.arrow").unlink()
            (folder / name).write_bytes(damaged)
            with pytest.raises(TilthError, match=rf"{name}: was damaged and is removed: run the"):
                find([path], tmp_path / "out")
            assert find([path], tmp_path / "out").counts == expected


@pytest.mark.parametrize(
    ("soft", "allowed", "set_to"),
    [(256, 61_440, 16_384), (1024, 1 << 20, 65_536), (30_000, 40_000, None), (64, 100, None)],
)
def test_as_many_files_as_the_system_allows(
    monkeypatch: pytest.MonkeyPatch, soft: int, allowed: int, set_to: int | None
) -> None:
    found = []

    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        if limits[0] > allowed:
            raise ValueError("not allowed to raise maximum limit")
        found.append(limits[0])

    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    _allow_many_files()
    assert found == ([] if set_to is None else [set_to])


@pytest.mark.parametrize("step", [17, 1009])
def test_no_damaged_batch_is_taken_for_good(tmp_path: Path, step: int) -> None:
    path = tmp_path / "keys.arrow"
    batch = pa.record_batch({"key": pa.array(np.arange(900, dtype=np.uint64) ** 3)})
    write_batches(path, batch.schema, [batch, batch.slice(5, 0)])
    whole = path.read_bytes()
    refused = []
    for at in range(0, len(whole), step):
        damaged = bytearray(whole)
        damaged[at : at + step] = bytes(len(damaged[at : at + step]))
        path.write_bytes(damaged)
        try:
            assert Batches(path)[0].equals(batch)
        except TilthError as error:
            refused.append((str(error), path.exists()))
    assert set(refused) == {
        (f"{path}: was damaged and is removed: run the same command again", False)
    }
    assert len(refused) > len(whole) // step // 2


def test_parts_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    file = KeyFile(path, path, 1)
    path.write_bytes(b"no")
    with pytest.raises(TilthError, match=r"a\.parquet: was damaged and is removed: run the same"):
        find([file], tmp_path / "out")
    assert not path.exists()


def test_no_parts_and_parts_without_rows(tmp_path: Path) -> None:
    assert drops(tmp_path) == []
    assert drops(tmp_path, []) == [{}]
    assert drops(tmp_path, [], ["One of it."], []) == [{}, {}, {}]
    assert drops(tmp_path / "all", [], ["One of it."], ["One of it."]) == [
        {},
        {},
        {0: EXACT_DUPLICATE},
    ]


@pytest.mark.parametrize(
    ("kind", "said", "wanted"),
    [
        (RuntimeError, "Query interrupted", KeyboardInterrupt),
        (RuntimeError, "something else", RuntimeError),
        (duckdb.InterruptException, "INTERRUPT Error: Interrupted!", KeyboardInterrupt),
        (duckdb.TransactionException, "Failed to commit: Could not write file", TilthError),
        (duckdb.OutOfMemoryException, "Out of Memory Error: failed to pin block", TilthError),
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

    monkeypatch.setattr(near._Group, "add", stop)
    with pytest.raises(wanted) as caught:
        drops(tmp_path, ["One of it.", "one of it, too", "one of it, TOO, 1", "one of it, too, 2"])
    assert caught.type is wanted


def test_errors_of_the_candidates_come_as_they_are(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        raise TilthError("texts.arrow: was damaged")
        yield

    with pytest.raises(TilthError, match=r"^texts\.arrow: was damaged$"):
        near.similar_ids(broken(), tmp_path / "spill")

import gzip
import json
import pickle
import re
import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tilth.bank.ingest.documents import (
    Block,
    RawSource,
    find_sources,
    read_blocks,
    read_sources,
)
from tilth.errors import InputError


def one(path: Path, **options: str) -> RawSource:
    (source,) = find_sources(path, **options)
    return source


def blocks(path: Path, size: int = 1 << 20, **options: str) -> list[Block]:
    return list(read_blocks(one(path, **options), block_bytes=size))


def texts(path: Path, **options: str) -> list[tuple[int, str]]:
    found = []
    for block in blocks(path, 20, **options):
        assert block.first == block.lines[0]
        found += list(zip(block.lines, block.data, strict=True))
    return found


def test_blocks_hold_whole_lines_and_know_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    path.write_bytes(b"One.\nTwo is long.\n\nFour.\r\nFive")
    found = blocks(path, 10)
    assert [block.data for block in found] == [
        b"One.\n", b"Two is long.\n", b"\nFour.\r\n", b"Five",
    ]  # fmt: skip
    assert [block.number for block in found] == [0, 1, 2, 3]
    assert [block.first for block in found] == [1, 2, 3, 5]
    assert [block.start for block in found] == [0, 5, 18, 26]
    assert {block.source for block in found} == {str(path)}
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_blocks_are_the_same_from_gz_and_however_a_file_is_read(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(b"Line %d of it.\n" % number * (number % 5) for number in range(300))
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(data))
    plain, packed = blocks(tmp_path / "a.txt", size), blocks(tmp_path / "b.txt.gz", size)
    assert [block.data for block in plain] == [block.data for block in packed]
    assert b"".join(block.data for block in plain if isinstance(block.data, bytes)) == data
    monkeypatch.setattr("tilth.data.formats._READ_BYTES", 13)
    assert blocks(tmp_path / "a.txt", size) == plain


def test_other_formats_keep_their_line_numbers(tmp_path: Path) -> None:
    rows = [{"text": "One."}, {"text": "Two and three."}, {"text": "Four."}]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n\n".join(lines))
    assert texts(tmp_path / "a.jsonl") == [(1, "One."), (3, "Two and three."), (5, "Four.")]
    (tmp_path / "a.csv").write_text('id,say\n1,"One.\nTwo."\n2,Three.\n')
    assert texts(tmp_path / "a.csv", column="say") == [(2, "One.\nTwo."), (4, "Three.")]
    pq.write_table(pa.table({"text": ["One.", "Two."]}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == [(1, "One."), (2, "Two.")]


def test_the_files_of_a_folder_are_sources_by_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b.txt", "a.txt", "in/c.txt"):
        (tmp_path / name).write_text(f"It is {name}.")
    found = find_sources(tmp_path)
    assert [source.name for source in found] == [
        str(tmp_path / name) for name in ("a.txt", "b.txt", "in/c.txt")
    ]
    assert len({source.fingerprint for source in found}) == 3


def test_fingerprints_follow_name_and_content(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "a.txt").write_text("One.")
    (tmp_path / "x" / "a.txt").write_text("One.")
    same = one(tmp_path / "a.txt").fingerprint
    assert re.fullmatch("sha256:[0-9a-f]{32}", same)
    assert same == one(tmp_path / "x" / "a.txt").fingerprint
    text = "It rains.\n" * 100_000
    found = set()
    for changed in (text, text[:300_000] + "It snows." + text[300_009:]):  # anywhere in the file
        (tmp_path / "a.txt").write_text(changed)
        found.add(one(tmp_path / "a.txt").fingerprint)
    assert len({*found, same}) == 3


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One.")
    with pytest.raises(InputError, match=r"a\.txt: named twice, also by .*: name it once"):
        find_sources([path, tmp_path])
    with pytest.raises(InputError, match="no source is named"):
        find_sources([])


def test_a_column_is_of_tables_and_txt_files_beside_them_have_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,body\n1,One.\n")
    (tmp_path / "b.txt").write_text("Two.\n")
    found = [block.data for _, block in read_sources(find_sources(tmp_path, column="body"))]
    assert found == [["One."], b"Two.\n"]


def test_a_missing_file_and_a_wrong_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        find_sources(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("One.")
    with pytest.raises(InputError, match="no column 'body'"):
        blocks(tmp_path / "a.txt", column="body")
    for name, data in (("a.txt", ""), ("a.txt", "\n \n\t\n"), ("a.jsonl", '{"text": " "}\n')):
        (tmp_path / name).write_text(data)
        with pytest.raises(InputError, match=f"{name}: holds no text"):
            list(read_sources([one(tmp_path / name)]))


def test_files_without_text_and_links_to_others_are_told_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, data in (("a.txt", "One.\n"), ("b.txt", " \n\n"), ("c.csv", "text\n")):
        (tmp_path / name).write_text(data)
    (tmp_path / "A.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "d.txt").symlink_to(tmp_path / "a.txt")
    sources = find_sources(tmp_path)
    assert [Path(source.name).name for source in sources] == ["a.txt", "b.txt", "c.csv"]
    found = [block.data for _, block in read_sources(sources)]
    assert found == [b"One.\n", b" \n\n"]
    said = [line.removeprefix(f"{tmp_path}/") for line in caplog.messages]
    assert said == [
        f"A.txt: leads to {tmp_path}/a.txt: left out",
        f"d.txt: leads to {tmp_path}/a.txt: left out", "b.txt: holds no text",
        "c.csv: holds no text",
    ]  # fmt: skip


def test_the_split_that_is_asked_for_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    assert [block.data for block in blocks(tmp_path)] == [b"train.txt\n"]
    assert [block.data for block in blocks(tmp_path, split="test")] == [b"test.txt\n"]
    assert "of its splits test, train, train is read" in caplog.text


def test_empty_files_of_a_folder_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, data in (("a.txt", "One."), ("b.txt", ""), ("c.jsonl", "")):
        (tmp_path / name).write_text(data)
    assert [Path(source.name).name for source in find_sources(tmp_path)] == ["a.txt"]
    assert "left out, as they are empty" in caplog.text
    (tmp_path / "a.txt").write_text("")
    assert len(find_sources(tmp_path)) == 3  # which `read_blocks` refuses


def test_a_line_of_fifty_megabytes_is_refused_in_flat_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.txt.gz"
    path.write_bytes(gzip.compress(b"short\n" + b"x" * 50_000_000 + b"\nshort\n", 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"gz:2: the line is longer than 16,000,000 bytes"):
        blocks(path, 1000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000


def test_bad_bytes_in_a_later_block_are_named_by_line_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"One.\nTwo.\nThr\xffee.\nFour.\n")
    found = blocks(path, 6)
    assert found[0].text() == "One.\n"
    with pytest.raises(
        InputError, match=r"a\.txt:3: byte 0xff at byte 13 of the file is not UTF-8"
    ):
        found[2].text()
    path.write_bytes(b"One.\nTwo.\nThree.\nFo\0ur.\n")
    with pytest.raises(InputError, match=r"a\.txt:4: NUL byte at byte 19 of the file"):
        blocks(path, 6)[3].text()

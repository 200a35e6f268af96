import gzip
import logging
import os
import re
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import put
from tilth.data import DatasetWriter, load_folder, read_rows, read_texts
from tilth.data.examples import open_rows, read_examples
from tilth.data.formats import rows_of_file, split_of
from tilth.data.parquet import parquet_tables, schema_class_names
from tilth.data.readers import row_location
from tilth.data.sources import split_names
from tilth.errors import InputError, TilthError


def refused(path: Path, **options: str) -> str:
    with pytest.raises(InputError) as error:
        read_texts(path, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


READERS = (read_texts, read_rows, read_examples, load_folder)
CONTENTS = {
    "a.txt": "One.\nTwo, with comma.\n",
    "a.jsonl": '{"text": "One."}\n{"text": "Two, with comma."}\n',
    "list.json": '\n[{"text": "One."},\n\n {"n": 2, "text": "Two, with comma."}]\n',
    "lines.json": '{"text": "One."}\n{"text": "Two, with comma."}\n',
    "a.csv": 'text,n\nOne.,1\n"Two, with comma.",2\n',
    "a.tsv": "text\tn\nOne.\t1\nTwo, with comma.\t2\n",
}
FIRST_LINE = {"a.txt": 1, "a.jsonl": 1, "list.json": 1, "lines.json": 1, "a.csv": 2, "a.tsv": 2}


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("name", CONTENTS)
def test_each_format_plain_and_gz(tmp_path: Path, name: str, ending: str) -> None:
    path = put(tmp_path / (name + ending), CONTENTS[name])
    rows = read_texts(path)
    assert rows["text"][:] == ["One.", "Two, with comma."]
    first = FIRST_LINE[name]
    assert rows["origin"][:] == [f"{path}:{first}", f"{path}:{first + 1}"]


def test_lists_are_read_where_they_are_named_and_not_in_folders(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", CONTENTS["a.jsonl"])
    named = put(tmp_path / "more.json", '[{"text": "Three."}]')
    assert read_texts(tmp_path)["text"][:] == ["One.", "Two, with comma."]
    assert read_texts(named)["text"][:] == ["Three."]


def test_parquet_without_columns_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}).select([]), tmp_path / "a.parquet")
    assert not any(table.num_columns for table in parquet_tables(tmp_path / "a.parquet"))


def test_class_numbers_of_parquet_have_their_names(tmp_path: Path) -> None:
    names, tags = ["bad", "good"], ["O", "B-x"]
    rows = {"text": ["a", "b", "c"], "label": [1, 0, -1], "tags": [[0, 1], [0], []], "n": [1, 2, 3]}
    features = Features({
        "text": Value("string"), "label": ClassLabel(names=names),
        "tags": List(ClassLabel(names=tags)), "n": Value("int64"),
    })  # fmt: skip
    Dataset.from_dict(rows, features).to_parquet(tmp_path / "a.parquet")
    found = read_rows(tmp_path / "a.parquet")
    assert found["label"][:] == ["good", "bad", None]
    assert found["tags"][:] == [["O", "B-x"], ["O"], []]
    assert found["n"][:] == [1, 2, 3]
    for about in (b"no JSON", b'{"info": []}', b'{"info": {"features": {"label": 3}}}'):
        table = pa.table({"label": [0]}).replace_schema_metadata({b"huggingface": about})
        assert schema_class_names(table.schema) == {}


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["One.", "Two."], "n": [1, 2]}), tmp_path / "a.parquet")
    rows = read_texts(tmp_path / "a.parquet")
    assert rows[1] == {"text": "Two.", "origin": f"{tmp_path}/a.parquet:2"}
    assert read_rows(tmp_path / "a.parquet")["n"][:] == [1, 2]


@pytest.mark.parametrize(
    ("name", "part"),
    [("eng.testa", "dev"), ("eng.testb.gz", "test"), ("x.valid", "dev"), ("x.train", "train"),
     ("train.jsonl.gz", "train"), ("dev.conll", "dev"), ("test.2003.txt", "test")],
)  # fmt: skip
def test_the_part_of_a_set_that_a_file_holds(name: str, part: str) -> None:
    assert split_of(Path(name)) == part


def test_crlf_bom_and_missing_last_line_end(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\nThree.")
    rows = read_texts(path)
    assert rows["text"][:] == ["One.", "Two.", "Three."]
    assert rows["origin"][2].endswith(":4")
    path = put(tmp_path / "b.csv", b"\xef\xbb\xbftext\r\nOne.\r\n")
    assert read_texts(path)["text"][:] == ["One."]


def test_fields_of_a_csv_file_may_be_separated_by_semicolons(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", b'\xef\xbb\xbfReview;n\r\n"Good; warm, too.";1\r\nBad.;2,5\r\n')
    assert read_rows(path)[:] == {"Review": ["Good; warm, too.", "Bad."], "n": ["1", "2,5"]}
    for line in (b"\xef\xbb\xbfsep=|", b'"SEP=|"'):
        path = put(tmp_path / "sep.csv", line + b"\r\na|b\r\nx,y|1\r\n")
        assert read_rows(path)[:] == {"a": ["x,y"], "b": ["1"]}
    path = put(tmp_path / "b.csv", "a;b,n\nx;y,1\n")
    assert read_rows(path)[:] == {"a;b": ["x;y"], "n": ["1"]}


def test_a_csv_file_of_tabs_or_with_blanks_after_commas(tmp_path: Path) -> None:
    path = put(tmp_path / "tabs.csv", "text\tn\nGood, warm.\t1\n")
    assert read_rows(path)[:] == {"text": ["Good, warm."], "n": ["1"]}
    path = put(tmp_path / "blanks.csv", 'text, n\n"Good, warm.", "a b"\nBad., c\n')
    assert read_rows(path)[:] == {"text": ["Good, warm.", "Bad."], "n": ["a b", "c"]}


def test_missing_values_of_any_kind_are_no_texts(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", '{"Text": "One."}\n{"Text": null}\n{"Text": "Two."}\n')
    assert read_texts(path)["text"][:] == ["One.", "Two."]
    path = put(tmp_path / "b.jsonl", '{"text": "a", "x": NaN}\n{"text": "b", "x": "y"}\n')
    assert read_rows(path)["x"][:] == [None, "y"]


def test_whole_numbers_longer_than_64_bits_are_texts(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", '{"id": 12345678901234567890}\n{"id": -1}\n{"id": null}\n')
    assert read_rows(path)["id"][:] == ["12345678901234567890", "-1", None]
    path = put(tmp_path / "b.jsonl", '{"id": 12345678901234567890}\n{"id": 1.5}\n')
    assert read_rows(path)["id"][:] == ["12345678901234567890", "1.5"]


def test_long_fields_of_a_csv_file(tmp_path: Path) -> None:
    text = "ein Wort " * 30_000
    path = put(tmp_path / "a.csv", f'text,n\n"{text}",1\n')
    assert read_rows(path)["text"][0] == text


def test_emoji_right_to_left_and_unusual_separators_stay(tmp_path: Path) -> None:
    texts = ["👩‍👩‍👧 היי", "مرحبا بالعالم", "a\u2028b", "c\x0bd\x85e", "e\u0301"]
    path = put(tmp_path / "a.txt", "\n".join(texts))
    assert read_texts(path)["text"][:] == texts


def test_empty_lines_are_skipped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path / "a.txt", "\n  One.\t\n \n")
    with caplog.at_level(logging.INFO):
        assert read_texts(path)["text"][:] == ["One."]
    assert "2 empty lines skipped" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.txt", b"", ["holds no text"]),
        ("a.txt", b"\n \n", ["holds no text"]),
        ("a.txt", b"good\ncaf\xe9\n", [":2: byte 0xe9 at byte 8 of the file", "save the file"]),
        ("a.txt", b"\xef\xbb\xbfgood\xe9\n", [":1: byte 0xe9 at byte 7 of the file"]),
        ("a.txt", b"good\nno\0no\n", [":2: NUL byte at byte 7 of the file"]),
        ("a.txt", "text".encode("utf-16"), [":1: the file is UTF-16: save it as UTF-8, or iconv"]),
        ("a.txt", b"short\n" + b"x" * 10_000_000, [":2: the line is longer than 400,000 bytes"]),
        ("a.txt", b"x" * 100_001, [":1: the text has 100,001 characters"]),
        ("a.txt.gz", b"", ["holds no text"]),
        ("a.txt", gzip.compress(b"x"), [":1: the file is compressed with gz: name it a.txt.gz"]),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', [":2: no JSON: Expecting value at character"]),
        ("a.jsonl", '{"text": "a"}\n["b"]\n', [":2: holds a JSON list, not an object"]),
        ("a.jsonl", "\n5", [":2: holds a JSON number"]),
        ("a.jsonl", "[" * 100_000, [":1: nested too deep"]),
        ("a.jsonl", '{"text": "a", "n": ' + "1" * 5_000 + "}", [":1: a number is too long: write"]),
        ("a.jsonl", '{"text": "a"}\n{"label": "b"}', [":2: no column 'text': there are label"]),
        ("a.jsonl", '{"text": "a"}\n{"text": 5}', [":2: column 'text' holds 5, no text"]),
        ("a.jsonl", '{"text": null}', ["holds no text"]),
        ("a.jsonl", '{"review": null, "author": "Bob"}', [":1: which column holds the texts"]),
        ("a.jsonl", '{"text": "a\\u0000b"}', [":1: NUL character"]),
        ("a.jsonl", '{"text": "\\ud83d"}', [":1: half a character"]),
        ("a.jsonl", '{"a": "x", "b": "y"}', ["name one of a, b with --column"]),
        ("a.csv", "text,n\na,1\nb\n", [":3: 1 field, the header has 2: write all fields"]),
        ("a.csv", "text,n\na,1\nb,2,3\n", [":3: 3 fields, the header has 2: quote fields that"]),
        ("a.csv", 'text,n\n"a\nb",1\nc\n', [":4: 1 field, the header has 2"]),
        ("a.csv", "text|n\na|1\na, b|2\n", [":3: 2 fields, the header has 1: divide fields by"]),
        ("a.csv", "sep=|\nn|n\n", [":2: two columns are named 'n'"]),
        ("a.csv", 'text,n\na,1\n"b,2\nc,3\n', [":3: unexpected end of data: close quoted"]),
        ("a.csv", 'text\n"a"b\n', [":2: ',' expected after '\"'"]),
        ("a.csv", "text,text\na,b\n", [":1: two columns are named 'text'"]),
        ("a.tsv", "text\tn\na\tb\tc\n", [":2: 3 fields, the header has 2"]),
        ("a.tsv", 'text\tn\na\tb\n"c\n', [":3: unexpected end of data: close quoted"]),
        ("a.csv", "text\n", ["holds no text"]),
        ("a.parquet", b"PAR1 not really", ["no readable Parquet"]),
        ("a.parquet", b"", ["no readable Parquet"]),
        ("a.docx", b"x", ["the ending is not known: use .txt, .jsonl"]),
        ("a.json", b"[]", ["holds no text"]),
        (
            "a.json",
            b'\n[{"text": "a"},\n3 4]',
            [":3: no JSON: Expecting ',' delimiter: write a list"],
        ),
        ("a.json", b'[{"text": "a"}, 5]', [":2: holds a JSON number, not an object"]),
        ("a.json", b'{\n"text": "a"}', [":1: no JSON: "]),
        ("a.json", b'[{"n": ' + b"1" * 5000 + b"}]", ["a number is too long"]),
        ("a.json", b"[" * 100_000, ["nested too deep"]),
        ("a.json", b'[{"text": "\\ud83d"}]', [":1: half a character"]),
        ("a.XLSX", b"x", ["the ending is not known: save the sheet as .csv in UTF-8"]),
        ("a.csv", "text;n\na;1\nb;2;3\n", [":3: 3 fields, the header has 2"]),
        ("a", b"x", ["the ending is not known"]),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, parts: list[str]) -> None:
    path = put(tmp_path / name, content)
    message = refused(path)
    assert message.startswith(str(path))
    for part in parts:
        assert part in message


def test_long_texts_are_not_gathered_in_memory(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", ("x" * 99_999 + "\n") * 400)
    assert len(read_texts(path).data.table.column("text").chunks) > 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('"One.\ta\nTwo."\tb\n', [(2, '"One.', "a"), (3, 'Two."', "b")]),
        ('"Yes," she said.\ta\n"A ""b"""\tb\n', [(2, '"Yes," she said.', "a"), (3, 'A "b"', "b")]),
        ('"One\n\ntwo"\ta\n\nc\t"d\n', [(2, "One\n\ntwo", "a"), (6, "c", '"d')]),
        ('a\t"One\ntwo"\nb\t"c\nd\te"\n', [(2, "a", "One\ntwo"), (4, "b", '"c'), (5, "d", 'e"')]),
        ('"a\tb"\tc\n', [(2, "a\tb", "c")]),
        ("a\tb\r\r\n\r\r\nc\td\r\n", [(2, "a", "b"), (4, "c", "d")]),
        ('a\t"One\n\nb\ttwo"\n', [(2, "a", '"One'), (4, "b", 'two"')]),
        ('a\t"One\n\n', [(2, "a", '"One')]),
        ('a\t"""One"" ""and""\ntwo"\n', [(2, "a", '"One" "and"\ntwo')]),
    ],
)
def test_tabs_divide_records_with_quoted_fields_and_without(
    tmp_path: Path, content: str, expected: list[tuple[int, str, str]]
) -> None:
    path = put(tmp_path / "a.tsv", "text\tlabel\n" + content)
    found = [(number, row["text"], row["label"]) for number, row in rows_of_file(path)]
    assert found == expected


def test_a_tsv_file_of_one_column_or_with_a_quoted_header_is_quoted(tmp_path: Path) -> None:
    one = put(tmp_path / "one.tsv", 'text\n"One\ntwo"\n"Yes," she said.\nthree\n')
    assert read_texts(one)["text"][:] == ["One\ntwo", '"Yes," she said.', "three"]
    quoted = put(tmp_path / "all.tsv", '"text"\t"n"\n"One\tand\ntwo"\t"1"\n"3"\t"4\n5\t6"\n')
    assert read_rows(quoted).to_list() == [
        {"text": "One\tand\ntwo", "n": "1"}, {"text": "3", "n": "4\n5\t6"},
    ]  # fmt: skip


def test_newlines_in_quoted_fields_stay_and_lines_are_counted(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", 'text,n\n"two\nlines ""quoted""",1\nafter,2\n')
    rows = read_texts(path)
    assert rows["text"][:] == ['two\nlines "quoted"', "after"]
    assert rows["origin"][:] == [f"{path}:2", f"{path}:4"]


def test_the_only_string_column_is_found_and_a_named_one_read(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", '{"sentence": "One.", "n": 1}')
    assert read_texts(path)["text"][:] == ["One."]
    path = put(tmp_path / "b.jsonl", '{"text": "One.", "other": "Two."}')
    assert read_texts(path, column="other")["text"][:] == ["Two."]
    assert "no column 'x': there are text, other" in refused(path, column="x")


def test_no_such_file(tmp_path: Path) -> None:
    assert "no such file or folder" in refused(tmp_path / "a.txt")
    with pytest.raises(InputError, match="no such file"):
        read_texts("folder/none.jsonl")
    with pytest.raises(InputError, match="no source is named"):
        read_texts("")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "One.")
    path.chmod(0)
    assert "Permission denied" in refused(path)


def test_a_folder_is_read_by_name_with_its_folders_but_no_hidden_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "no file to read in the folder" in refused(tmp_path)
    put(tmp_path / "notes.md", "no")
    assert "no file to read in the folder: use .txt" in refused(tmp_path)
    for name in ("b", "b/inner", ".git"):
        (tmp_path / name).mkdir()
        put(tmp_path / name / "x.txt", name)
    put(tmp_path / "a.jsonl.gz", '{"text": "a"}')
    put(tmp_path / ".hidden.txt", "no")
    (tmp_path / "C.TXT.GZ").write_bytes(gzip.compress(b"C"))
    (tmp_path / "b" / "circle").symlink_to(tmp_path, target_is_directory=True)
    assert read_texts(tmp_path)["text"][:] == ["C", "a", "b/inner", "b"]
    assert "not read: b/circle (a link to a folder), notes.md" in caplog.text


def test_a_folder_of_one_split_tells_that_it_is_read_as_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "train.jsonl", '{"text": "a"}\n')
    told = f"{tmp_path}: all its files are named train: they are read as test"
    assert read_rows(tmp_path, split="train")["text"][:] == ["a"]
    assert read_rows(tmp_path / "train.jsonl", split="test")["text"][:] == ["a"]
    assert told not in caplog.text
    assert read_rows(tmp_path, split="test")["text"][:] == ["a"]
    assert told in caplog.text


def test_files_named_after_splits_are_splits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("trec-train.jsonl", "dev.csv", "sub/test-00000-of-00001.jsonl"):
        text = f'{{"text": "{name}"}}' if name.endswith("l") else f"text\n{name}\n"
        put(tmp_path / name, text)
    for split, name in (
        ("train", "trec-train.jsonl"), ("dev", "dev.csv"), ("validation", "dev.csv"),
        ("test", "sub/test-00000-of-00001.jsonl"),
    ):  # fmt: skip
        assert read_rows(tmp_path, split=split)["text"][:] == [name]
        assert read_texts(tmp_path, split=split)["text"][:] == [name]
        caplog.clear()
        assert Path(row_location(tmp_path, 0, split).rpartition(":")[0]).name == Path(name).name
    assert split_names(tmp_path) == ["validation", "test", "train"]
    with pytest.raises(InputError, match="no split 'other': there are validation, test, train"):
        read_rows(tmp_path, split="other")
    assert not caplog.records  # of rows nothing is said
    put(tmp_path / "notes.jsonl", '{"text": "more"}')  # belongs to none of them
    assert len(read_rows(tmp_path)) == 4
    assert "notes.jsonl: named after no split, so that all files are read" in caplog.text
    for name in ("crash-test.txt", "train-timetable.txt"):  # raw text of any names
        put(tmp_path / "raw" / name, "x\n")
    assert len(read_texts(tmp_path / "raw")) == 2
    for name in ("train.txt", "test.txt.gz"):
        put(tmp_path / "txt" / name, f"{name}\n")
    caplog.clear()
    assert read_texts(tmp_path / "txt", split="test")["text"][:] == ["test.txt.gz"]
    assert "of its splits test, train, test is read" in caplog.text
    put(tmp_path / "one" / "test.jsonl", '{"text": "a"}')
    assert read_rows(tmp_path / "one")["text"][:] == ["a"]


def test_damaged_gz_files_are_named(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt.gz", "\n".join(f"line {n}" for n in range(50_000)))
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]
    for damaged, said in (
        (data[:-1000], "the gz file is cut short"),
        (flipped, "the gz file is broken|not UTF-8"),
        (b"plain text\n", "take .gz off the name"),
    ):
        path.write_bytes(damaged)
        assert re.search(said, refused(path))


def test_a_folder_of_runs_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "one")
    assert "'one' in it is a data set of its own" in refused(tmp_path)


def test_rows_keep_their_types_and_missing_values_are_null(tmp_path: Path) -> None:
    lines = [
        '{"text": "a", "label": 1, "meta": {}}', '{"text": "b", "label": 0.5}',
        '{"text": "c", "x": [1]}',
    ]  # fmt: skip
    rows = read_rows(put(tmp_path / "a.jsonl", "\n".join(lines)))
    assert rows["label"][:] == [1.0, 0.5, None]
    assert rows["x"][:] == [None, None, [1]]
    assert rows["meta"][:] == [None] * 3  # objects without fields


@pytest.mark.parametrize("later", [1, 10_400])
def test_numbers_and_texts_in_one_column_are_texts(tmp_path: Path, later: int) -> None:
    lines = [*['{"n": 1, "m": "a"}'] * later, '{"n": "x", "m": 0.5}', '{"n": 2, "m": null}']
    rows = read_rows(put(tmp_path / "a.jsonl", "\n".join(lines)))
    assert rows["n"][:] == [*["1"] * later, "x", "2"]
    assert rows["m"][-3:] == ["a", "0.5", None]


def test_types_that_change_far_down_are_widened_or_named(tmp_path: Path) -> None:
    many = ['{"n": 1}'] * 10_500
    rows = read_rows(put(tmp_path / "a.jsonl", "\n".join([*many, '{"n": 0.5}', '{"m": 2}'])))
    assert rows["n"][10_499:] == [1.0, 0.5, None]
    assert rows["m"][-1] == 2
    path = put(tmp_path / "b.jsonl", "\n".join([*many[:100], '{"n": [1]}', *many[:9]]))
    with pytest.raises(InputError, match=r"b\.jsonl:101: column 'n' holds \[1\]"):
        read_rows(path)
    path = put(tmp_path / "c.jsonl", "\n".join([*many[:10_000], '{"n": [1]}']))
    with pytest.raises(InputError, match=r"c\.jsonl:10001 .*give each column one type"):
        read_rows(path)
    lines = [f'{{"n": {2**53 + 1}}}'] * 10_000 + ['{"n": 0.5}']  # too long to be a fraction
    path = put(tmp_path / "d.jsonl", "\n".join(lines))
    with pytest.raises(InputError, match=r"d\.jsonl:10001 and below: Integer value 90071"):
        read_rows(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"a": {}}', "holds objects without fields inside other values: leave it out"),
        ("[{}]", "holds objects without fields inside other values"),
        ("[" * 900 + "]" * 900, "holds values nested more than 32 deep: leave it out, or store"),
        ('{"a":' * 900 + "1" + "}" * 900, "holds values nested more than 32 deep"),
    ],
)
def test_values_that_no_file_holds_are_named(tmp_path: Path, value: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text": "a", "meta": {value}}}\n')
    with pytest.raises(InputError, match=f":1 and below: column 'meta' {message}"):
        read_rows(path)


def test_half_a_character_in_a_list_of_rows_is_named() -> None:
    with pytest.raises(InputError, match=r"column 'text' holds '.udcff', which has half a"):
        open_rows([{"text": "a"}, {"text": "\udcff"}], "train")


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    (tmp_path / "link.txt").symlink_to("/dev/zero")
    for path in (pipe, tmp_path / "link.txt", Path("/dev/null")):
        for read in READERS:
            with pytest.raises(InputError, match=f"{path}: is a pipe, a device or a socket: give"):
                read(path)
    (tmp_path / "a.txt").write_text("a")
    assert read_texts(tmp_path)["text"][:] == ["a"]  # of a folder, its files


@pytest.mark.parametrize("name", ["\udcff.txt", "a\0.txt"])
def test_names_that_are_no_text_are_refused(tmp_path: Path, name: str) -> None:
    if "\0" not in name:
        (tmp_path / name).write_text("a")
        with pytest.raises(InputError, match="the name is not UTF-8: rename the file"):
            read_texts(tmp_path)
    for read in READERS:
        with pytest.raises(InputError, match="the name is not UTF-8: rename the file"):
            read(tmp_path / name)


def test_names_that_are_too_long_and_links_to_themselves_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("link.txt")
    for name, message in (("x" * 300, "File name too long"), ("link.txt", "Too many levels")):
        for read in READERS:
            with pytest.raises(InputError, match=f"{message}.*: check the path"):
                read(tmp_path / name)


def test_texts_of_parquet_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    wrong = pa.array([b"a", b"\xff"]).view(pa.string())
    (tmp_path / "data").mkdir()
    for path in (tmp_path / "a.parquet", tmp_path / "data" / "train.parquet"):
        pq.write_table(pa.table({"text": wrong}), path)
    for read in (read_texts, read_rows):
        with pytest.raises(InputError, match=r"no readable Parquet .*UTF8"):
            read(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"no readable Parquet .*UTF8"):
        load_folder(tmp_path)


def test_a_small_file_that_expands_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 times a text of 90 kB are 90 MB in a file of some kB."""
    path = tmp_path / "bomb.parquet"
    texts = ["x" * 90_000] * 1_000 + [None]
    pq.write_table(pa.table({"text": texts, "n": range(1_001)}), path)
    for name, most in (
        ("DECODED_BYTES", 6_000_000),
        ("TABLE_BYTES", 1_000_000),
        ("FEWEST_ROWS", 8),
    ):
        monkeypatch.setattr(f"tilth.data.parquet._{name}", most)
    tables = list(parquet_tables(path))
    assert pa.concat_tables(tables).to_pydict() == {"text": texts, "n": list(range(1_001))}
    assert max(table.nbytes for table in tables) < 7_000_000


def test_row_groups_that_are_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"text": ["x" * 5_000], "n": [1]}), path)
    monkeypatch.setattr("tilth.data.parquet._GROUP_BYTES", 4_000)
    with pytest.raises(InputError, match=r"row group 0 holds .* bytes, at most 4,000 are read"):
        read_texts(path)
    assert next(parquet_tables(path, ["n"])).to_pydict() == {"n": [1]}


def written(folder: Path) -> Path:
    with DatasetWriter(folder) as writer:
        writer.write(pa.table({"text": ["One.", "Two."], "label": [0.1, 0.9]}))
        writer.write(pa.table({"text": ["Three."], "label": [0.5]}), split="validation")
        writer.write(pa.table({"text": ["x"], "why": ["empty"]}), config="dropped")
    return folder


def test_a_written_set_and_a_run_are_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = written(run / "dataset")
    (run / "run.json").write_text("{}")
    for source in (run, folder):
        assert read_texts(source)["text"][:] == ["One.", "Two."]
        assert load_folder(source)["text"][:] == ["One.", "Two."]
    assert read_rows(run, split="validation")[0] == {"text": "Three.", "label": 0.5}
    with pytest.raises(InputError, match="no split 'test': there are train, validation"):
        read_rows(run, split="test")


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert "the run holds no data set: name one that does" in refused(tmp_path)


def test_saved_to_disk(tmp_path: Path) -> None:
    one = Dataset.from_dict({"text": ["One."]})
    one.save_to_disk(tmp_path / "one")
    DatasetDict(train=one).save_to_disk(tmp_path / "two")
    assert read_texts(tmp_path / "one")["text"][:] == ["One."]
    assert read_texts(tmp_path / "two")["text"][:] == ["One."]


def test_the_hub_without_a_network_is_one_line() -> None:
    with pytest.raises(TilthError, match=r"^owner/name: no such file here, and the hub cannot"):
        read_texts("owner/name:config")


def test_no_room_for_the_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(TilthError, match="set TMPDIR"):
        read_texts(put(tmp_path / "a.txt", "One."))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_any_text_survives_jsonl(texts: list[str]) -> None:
    import json

    wanted = [text.strip() for text in texts if text.strip()]
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder) / "a.jsonl", "\n".join(json.dumps({"text": t}) for t in texts))
        if any("\0" in text for text in wanted) or not wanted:
            refused(path)
        else:
            assert read_texts(path)["text"][:] == wanted

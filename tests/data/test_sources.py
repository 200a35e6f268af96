import gc
import json
import pickle
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value, load_dataset

from tests.tiny.calls import python
from tilth.data import DatasetWriter, load_folder, read_rows, read_texts
from tilth.data.sources import split_names
from tilth.errors import InputError


def write(folder: Path, *texts: str) -> Path:
    with DatasetWriter(folder) as writer:
        writer.write(pa.table({"text": pa.array(texts, pa.string())}))
        writer.write(pa.table({"text": ["bad"], "drop_reason": ["newline"]}), config="dropped")
    return folder


def test_configs_and_splits(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", "a", "b")
    assert load_folder(folder)["text"][:] == ["a", "b"]
    assert load_folder(folder, config="dropped")[0] == {"text": "bad", "drop_reason": "newline"}
    with pytest.raises(InputError, match=r"no config 'x': there are default, dropped$"):
        load_folder(folder, config="x")
    with pytest.raises(InputError, match=r"no split 'test': there are train$"):
        load_folder(folder, "test")
    with pytest.raises(InputError, match="no such data set folder"):
        load_folder(tmp_path / "none")


def test_a_folder_written_again_is_never_served_stale(tmp_path: Path) -> None:
    """Neither by us nor by `datasets`, whose cache knows a folder by its last name and its card."""
    cache = str(tmp_path / "cache")
    for place, text in (("one", "a"), ("two", "b"), ("one", "c")):
        folder = write(tmp_path / place / "dataset", text)
        for file in folder.rglob("*.*"):
            file.touch()
        assert load_folder(folder)["text"][:] == [text]
        assert read_texts(folder)["text"][:] == [text]
        stored = load_dataset(str(folder), split="train", cache_dir=cache)
        assert stored["text"][:] == [text]


def test_splits_without_rows_load_with_their_columns(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path) as writer:
        writer.write(pa.table({"text": pa.array([], pa.string())}))
        writer.write(pa.table({"text": pa.array([], pa.string())}), split="validation")
    for split in ("train", "validation"):
        rows = load_folder(tmp_path, split)
        assert len(rows) == 0
        assert rows.features == {"text": Value("string")}


def test_features_and_many_row_groups(tmp_path: Path) -> None:
    features = Features({"n": Value("int64"), "label": ClassLabel(names=["no", "yes"])})
    with DatasetWriter(tmp_path, {"default": features}) as writer:
        writer.write(pa.table({"n": range(45_000), "label": [0, 1, 1] * 15_000}))
    rows = load_folder(tmp_path)
    assert rows.features == features
    assert rows["n"][:] == list(range(45_000))


def test_shards_named_as_on_the_hub_with_and_without_a_card(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(2):
        name = f"train-{number:05d}-of-00002.parquet"
        pq.write_table(pa.table({"text": [f"{number}"]}), tmp_path / "data" / name)
    assert load_folder(tmp_path)["text"][:] == ["0", "1"]
    head = (
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        "  - split: all\n    path: data/train-*\n---\n"
    )
    (tmp_path / "README.md").write_text(head)
    assert load_folder(tmp_path, "all")["text"][:] == ["0", "1"]


@pytest.mark.parametrize(
    "files",
    [
        "data_files: {path}",
        "data_files: [{path}]",
        "data_files: [data/train.parquet, {path}]",
        "data_files: [{{split: train, path: {path}}}]",
        "data_files: [{{split: train, path: [data/train.parquet, {path}]}}]",
        "data_files: {{train: {path}}}",
        "data_files: {{train: [{path}]}}",
        "data_dir: {path}",
    ],
)
@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
def test_a_card_cannot_point_outside_the_folder(tmp_path: Path, files: str, card: str) -> None:
    pq.write_table(pa.table({"text": ["secret"]}), tmp_path / "secret.parquet")
    folder = write(tmp_path / "set", "a")
    for path in (
        "../secret.parquet", "a/../../secret.parquet", str(tmp_path / "secret.parquet"),
        "hf://datasets/a/b/c.parquet", "https://example.com/c.parquet", "file:///c.parquet",
    ):  # fmt: skip
        head = f"configs:\n- config_name: default\n  {files.format(path=json.dumps(path))}\n"
        (folder / card).write_text(head if card[0] == "." else f"---\n{head}---\n")
        for read in (load_folder, read_rows):
            with pytest.raises(InputError) as error:
                read(folder)
            assert "which is not in its folder: name files of the folder" in str(error.value)
            assert path in str(error.value)


@pytest.mark.parametrize(
    "entry", ["3", "[[1]]", "{data_files: {1: 2}}", "{data_files: 'a**'}", "{config_name: [1]}"]
)
def test_an_odd_card_is_no_traceback(tmp_path: Path, entry: str) -> None:
    folder = write(tmp_path / "set", "a")
    (folder / "README.md").write_text(f"---\nconfigs: [{entry}]\n---\n")
    with suppress(InputError):
        assert load_folder(folder)["text"][:] == ["a"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "set", "a") / "data" / "train.parquet"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"train\.parquet: no readable Parquet"):
        load_folder(tmp_path / "set")


def test_the_temporary_file_stays_as_long_as_any_rows_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    folder = write(tmp_path / "set", "a", "b", "c")
    rows = load_folder(folder).select_columns(["text"])
    gc.collect()
    again: Dataset = pickle.loads(pickle.dumps(rows))  # what map(num_proc=2) does
    assert again["text"][:] == ["a", "b", "c"]
    assert list((tmp_path / "temporary").rglob("*.arrow"))
    last = rows.select([1])
    del rows, again
    gc.collect()
    assert last[0]["text"] == "b"
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff")
    with pytest.raises(InputError):
        read_texts(tmp_path / "bad.txt")
    del last
    gc.collect()
    assert not list((tmp_path / "temporary").rglob("*.arrow"))


UPPER = "rows.map(lambda row: {'text': row['text'].upper()})"
CHECK = "print(pickle.loads(pickle.dumps(made))['text'][:])"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", ""),
        ("print(len(os.listdir(os.environ['TMPDIR'])))", "1\n"),
        (f"made = {UPPER}; del rows; gc.collect(); {CHECK}", "['A', 'B']\n"),
        (f"made = {UPPER}; {CHECK}", "['A', 'B']\n"),
    ],
)
def test_temporary_rows_go_with_the_process_and_not_before(
    tmp_path: Path, rest: str, said: str
) -> None:
    code = "import gc, os, pickle, signal, sys; from tilth.data import load_folder\n"
    code += f"rows = load_folder(sys.argv[1])\n{rest}"
    folder, temporary = write(tmp_path / "set", "a", "b"), tmp_path / "temporary"
    temporary.mkdir()
    # What a killed process left goes with the next one.
    for words in (code, "import sys; from tilth.data import load_folder; load_folder(sys.argv[1])"):
        done = python(words, folder, check=False, TMPDIR=str(temporary))
        assert done.stdout == (said if words == code else "")
        assert not done.stderr
    assert not list(temporary.iterdir())


def test_a_full_disk_for_the_temporary_rows_is_one_line(tmp_path: Path) -> None:
    code = """
import resource, sys
from tilth.data import read_texts
from tilth.errors import TilthError
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    read_texts(sys.argv[1])
except TilthError as error:
    print(error)
"""
    (tmp_path / "texts.txt").write_text("some text\n" * 10_000)
    done = python(code, tmp_path / "texts.txt", TMPDIR=str(tmp_path))
    assert "File too large: free space, or set TMPDIR to a larger disk\n" in done.stdout
    assert [item.name for item in tmp_path.iterdir()] == ["texts.txt"]


def test_splits_without_rows_are_not_filled(tmp_path: Path) -> None:
    empty = pa.table({"text": pa.array([], pa.string())})
    with DatasetWriter(tmp_path / "set") as writer:
        writer.write(pa.table({"text": ["one"]}), split="train")
        writer.write(empty, split="validation")
    assert split_names(tmp_path / "set") == ["train", "validation"]
    assert split_names(tmp_path / "set", filled=True) == ["train"]
    assert len(load_folder(tmp_path / "set", "validation")) == 0

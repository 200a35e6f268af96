import os
import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Features, Value, get_dataset_config_names, load_dataset

from tests.tiny.calls import python
from tilth.data import DatasetWriter, load_folder
from tilth.errors import InputError, TilthError


def table(*texts: str) -> pa.Table:
    return pa.table({"text": list(texts), "label": [float(n) for n in range(len(texts))]})


def test_every_config_and_split_loads_with_datasets(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with DatasetWriter(folder) as writer:
        writer.write(table("a", "b"))
        writer.write(table("c"), split="validation")
        writer.write(pa.table({"text": ["d"], "drop_reason": ["empty"]}), config="dropped")
        writer.write(table("e"))
    found = load_dataset(str(folder))
    assert set(found) == {"train", "validation"}
    assert found["train"]["text"][:] == ["a", "b", "e"]
    assert found["train"].features == {"text": Value("string"), "label": Value("float64")}
    assert load_dataset(str(folder), "dropped")["train"][0] == {"text": "d", "drop_reason": "empty"}


def test_a_split_or_config_without_rows_does_not_spoil_the_others(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "set") as writer:
        writer.write(table("a"))
        writer.write(table(), split="validation")
        writer.write(table(), config="dropped")
    found = load_dataset(str(tmp_path / "set"))
    assert {split: len(rows) for split, rows in found.items()} == {"train": 1}
    assert get_dataset_config_names(str(tmp_path / "set")) == ["default"]  # each one loads
    assert not len(load_folder(tmp_path / "set", config="dropped"))


def test_a_column_that_comes_late_is_not_lost_in_silence(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "set") as writer:
        writer.write(table("a"))
        with pytest.raises(ValueError, match="the first table had no column 'extra'"):
            writer.write(table("b").append_column("extra", pa.array([1])))


def test_features_are_kept(tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    with DatasetWriter(tmp_path / "set", {"default": features}) as writer:
        writer.write(pa.table({"text": ["a"], "label": [1]}))
    assert load_dataset(str(tmp_path / "set"), split="train").features == features


def test_small_tables_share_row_groups_and_memory_stays_flat(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "set") as writer:
        for _ in range(500):
            writer.write(table(*["text"] * 100))
    metadata = pq.read_metadata(tmp_path / "set" / "data" / "train.parquet")
    assert metadata.num_rows == 50_000
    assert metadata.num_row_groups == 3


def test_a_set_is_replaced_whole_and_kept_on_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with DatasetWriter(folder) as writer:
        writer.write(table("old"))
        writer.write(table("old"), split="validation")
    with pytest.raises(ZeroDivisionError), DatasetWriter(folder) as writer:  # noqa: PT012
        writer.write(table("new"))
        raise ZeroDivisionError
    assert pq.read_table(folder / "data" / "train.parquet")["text"].to_pylist() == ["old"]
    with DatasetWriter(folder) as writer:
        writer.write(table("new"))
    assert pq.read_table(folder / "data" / "train.parquet")["text"].to_pylist() == ["new"]
    assert sorted(p.name for p in (folder / "data").iterdir()) == ["train.parquet"]
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_leftovers_of_a_dead_writer_go_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    stale = tmp_path / ".tmp-0123abcd-set"
    stale.mkdir()
    (stale / "README.md").touch()
    with DatasetWriter(tmp_path / "set") as living:
        living.write(table("a"))
        with DatasetWriter(tmp_path / "set") as writer:
            writer.write(table("b"))
        assert len([item for item in tmp_path.iterdir() if item.name != "set"]) == 1
        assert not stale.exists()
    assert [item.name for item in tmp_path.iterdir()] == ["set"]
    assert pq.read_table(tmp_path / "set" / "data" / "train.parquet")["text"].to_pylist() == ["a"]


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "set").symlink_to(tmp_path / "far")
    for text in ("old", "new"):
        with DatasetWriter(tmp_path / "set") as writer:
            writer.write(table(text))
    assert (tmp_path / "set").is_symlink()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["far", "set"]
    assert pq.read_table(tmp_path / "far" / "data" / "train.parquet")["text"].to_pylist() == ["new"]


def test_foreign_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"holds 'thesis.tex', which is no part of a data set"):
        DatasetWriter(tmp_path).__enter__()
    (tmp_path / "thesis.tex").unlink()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").write_text("x")
    with pytest.raises(InputError, match="holds 'data'"):
        DatasetWriter(tmp_path).__enter__()


def test_same_rows_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with DatasetWriter(tmp_path / name) as writer:
            writer.write(table("a", "b"))
    one, two = (tmp_path / n / "data" / "train.parquet" for n in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """The limit on file sizes makes the system refuse a write in the middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # Python ignores SIGXFSZ
    try:
        with (
            pytest.raises(TilthError, match="the file would be larger than allowed") as said,
            DatasetWriter(tmp_path / "set") as writer,
        ):
            writer.write(pa.table({"noise": [os.urandom(400_000)]}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(said.value)
    assert not list(tmp_path.iterdir())


def test_a_kill_while_the_new_set_takes_its_place_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    with DatasetWriter(folder) as writer:
        writer.write(table("old"))
    code = f"""
import os, pathlib, signal
import pyarrow as pa
from tilth.data import DatasetWriter
rename, calls = pathlib.Path.rename, []
def killed(self, target):
    calls.append(target)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
pathlib.Path.rename = killed
with DatasetWriter({str(folder)!r}) as writer:
    writer.write(pa.table({{"text": ["new"]}}))
"""
    python(code, check=False)
    assert not folder.exists()
    with pytest.raises(ZeroDivisionError), DatasetWriter(folder):
        raise ZeroDivisionError
    assert pq.read_table(folder / "data" / "train.parquet")["text"].to_pylist() == ["old"]
    assert [p.name for p in tmp_path.iterdir()] == ["set"]

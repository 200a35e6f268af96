import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.tiny import read_json, salads, save_encoder, tiny_bank, tiny_static
from tilth.bank import Bank
from tilth.bank.manifest import (
    MANIFEST,
    QUANTIZER,
    SHARDS,
    Manifest,
    Shard,
    read_manifest,
    write_manifest,
)
from tilth.bank.quantization import Codes, fit_quantizer
from tilth.bank.store import TEXT, TEXT_FILE, read_shard, write_shard
from tilth.errors import InputError, TilthError
from tilth.files import disk_errors
from tilth.runs import Run

MANIFESTS = Manifest(
    "starter", "0f" * 8, 4, "compact", {"min_chars": 3}, False, 64, 128, "cc", ("ä.txt",),
    {"ä.txt": "ab"}, 7, 2, {"too short": 4},
    (Shard("0000-00000", 5, 99, {"codes.npy": (10, "ee"), TEXT_FILE: (4, "a")}),
     Shard("0001-00000", 2, 9, {"codes.npy": (6, "ff")})),
    "2024-01-01T00:00:00+00:00", {"python": "3"},
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_bank(tmp_path, salads(300)).path


@pytest.fixture(scope="module")
def bank_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bank(tmp_path_factory.mktemp("once"), salads(60)).path


def file_of(folder: Path, name: str) -> Path:
    (shard,) = (folder / SHARDS).iterdir()
    return shard / name


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFESTS)
    assert read_manifest(tmp_path) == MANIFESTS
    assert MANIFESTS.sentences == 7
    assert MANIFESTS.file_bytes == {"codes.npy": 16, TEXT_FILE: 4}
    assert [item.name for item in tmp_path.iterdir()] == [MANIFEST]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"version": 1, "shards": [{}]}', "\0", "[" * 100_000]
)
def test_damaged_manifests(text: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(TilthError, match=r"bank\.json: .*: restore it from a copy"):
        Bank.open(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encoder": None}, "encoder is None"),
        ({"dimension": "16"}, "dimension is '16'"),
        ({"dimension": 0}, "no shard or dimension"),
        ({"dimension": 17}, "codec.safetensors"),
        ({"format": "int4"}, "format is 'int4'"),
        ({"format": "compact", "fours": 3, "twos": 29}, "codec.safetensors"),
        ({"rules": {"min_chars": "many"}}, "min_chars"),
        ({"rules": {"unheard": 1}}, "unheard"),
        ({"near": 1}, "near is 1"),
        ({"jobs": 1.5}, "jobs is 1.5"),
        ({"sources": {"a.txt": 3}}, "sources is 3"),
        ({"dropped": [1]}, r"dropped is \[1\]"),
        ({"shards": []}, "no shard or dimension"),
        ({"shards": [{"name": "a", "sentences": 5, "text_bytes": 2}]}, "shards is"),
        ({"shards": [{"name": "../a", "sentences": 5, "text_bytes": 2, "files": {}}]}, r"\.\./a"),
        ({"shards": [{"name": "a", "sentences": 0, "text_bytes": 2, "files": {}}]}, "shard 'a'"),
        ({"more": 1}, "all of it is"),
        ({"format": "missing"}, "is not what tilth wrote"),
    ],
)
def test_odd_values_in_a_manifest(
    bank_once: Path, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    shutil.copytree(bank_once, tmp_path / "bank")
    file = tmp_path / "bank" / MANIFEST
    found = read_json(file) | changes
    file.write_text(json.dumps({key: found[key] for key in found if found[key] != "missing"}))
    with pytest.raises(TilthError, match=said):
        Bank.open(tmp_path / "bank")


def test_no_bank_a_later_one_and_one_that_is_not_finished(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"holds no bank\.json: name the folder of a bank"):
            Bank.open(place)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file: .*name the folder of a bank"):
        Bank.open(tmp_path / "file")
    asked = {"settings": {}, "fingerprints": {}, "parts": 0}
    with Run.open(tmp_path / "begun", command="bank build", **asked):
        pass
    with pytest.raises(InputError, match=r"not finished: run the same `tilth bank build` again"):
        Bank.open(tmp_path / "begun")
    with Run.open(tmp_path / "run", command="generate", **asked):
        pass
    with pytest.raises(InputError, match=r"is the run of `tilth generate`: name the folder of a"):
        Bank.open(tmp_path / "run")
    write_manifest(tmp_path, MANIFESTS)
    text = (tmp_path / MANIFEST).read_text().replace('"version": 1,', '"version": 2,')
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(InputError, match="is a bank of version 2, this tilth reads 1"):
        Bank.open(tmp_path)


FILES = [TEXT_FILE, "codes.npy", "scales.npy", "fine.npy", "signs.npy", "sign_scales.npy"]


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_named(folder: Path, name: str) -> None:
    file, manifest = file_of(folder, name), read_manifest(folder)
    data = file.read_bytes()
    bank = Bank.open(folder)
    assert bank.check(quiet=True) == []
    middle = len(data) // 2
    file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    lines = Bank.open(folder).check(quiet=True)
    assert lines == [f"{file}: its bytes are not those that were written"]
    file.write_bytes(data[:-1])
    (line,) = bank.check(quiet=True)
    assert line.startswith(f"{file}: has {len(data) - 1:,} bytes")
    with pytest.raises(TilthError, match=f"{name}: has {len(data) - 1:,} bytes, .*says"):
        Bank.open(folder)
    file.unlink()
    with pytest.raises(TilthError, match=f"{name}: is missing"):
        Bank.open(folder)
    assert bank.check(quiet=True) == [f"{file}: cannot be read (No such file or directory)"]
    file.write_bytes(b"x" * len(data))
    wrong = [None]
    if name != TEXT_FILE:  # compiled loops would read beyond the end of a narrower array
        wrong += [np.zeros(()), np.zeros((300, 4), np.uint8), np.zeros(300, np.uint8)]
    for array in wrong:
        if array is not None:
            np.save(file, array)
        (shard,) = Bank(folder, manifest).shards
        with pytest.raises(TilthError, match=f"{name}: .*run `tilth bank check`"):
            _ = shard.table, shard.codes, shard.scales, shard.residual, shard.signs


def test_wrong_places_of_texts_are_not_followed(folder: Path) -> None:
    file, bank = file_of(folder, TEXT_FILE), Bank.open(folder)
    places = np.frombuffer(bank.shards[0].table[TEXT].chunks[0].buffers()[1], np.int32)
    data = file.read_bytes()
    start = data.index(places[:8].tobytes())
    for wrong in (-1, int(places[4]), 2**30):
        file.write_bytes(data[: start + 8] + np.int32(wrong).tobytes() + data[start + 12 :])
        with pytest.raises(TilthError, match=f"{TEXT_FILE}: .*run `tilth bank check`"):
            _ = Bank.open(folder)[0]


def test_a_manifest_of_another_number_of_sentences_is_told(folder: Path) -> None:
    file = folder / MANIFEST
    found = json.loads(file.read_text())
    found["shards"][0]["sentences"] -= 1
    file.write_text(json.dumps(found))
    (line,) = Bank.open(folder).check(quiet=True)
    assert re.fullmatch(r".*\.\w+: does not fit bank\.json: one of the two was edited", line)


def test_a_codec_that_is_missing_altered_or_of_another_bank(folder: Path) -> None:
    quantizer = (folder / QUANTIZER).read_bytes()
    other = fit_quantizer("int8", np.eye(3, dtype=np.float32)).save()
    for wrong in (quantizer[:-1] + bytes([quantizer[-1] ^ 1]), other, None):
        (folder / QUANTIZER).unlink()
        if wrong is not None:
            (folder / QUANTIZER).write_bytes(wrong)
        with pytest.raises(TilthError, match=r"codec\.safetensors: "):
            Bank.open(folder)


def test_another_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    Bank.open(folder, encoder=tiny_static())
    with pytest.raises(InputError, match=r"its vectors have 16 dimensions, those of encoder .* 12"):
        Bank.open(folder, encoder=tiny_static(dimension=12))
    with pytest.raises(InputError, match=r"was built with another encoder .*fingerprint"):
        Bank.open(folder, encoder=tiny_static(seed=1))
    with pytest.raises(InputError, match="dimensions"):
        Bank.open(folder, encoder=str(save_encoder(tmp_path / "bert")))


def test_arrays_are_mapped_not_read(folder: Path) -> None:
    bank = Bank.open(folder)
    (shard,) = bank.shards
    for array in (shard.codes, shard.scales, shard.residual):
        assert array is not None
        base = array
        while base.base is not None and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap)
    before = pa.total_allocated_bytes()
    assert shard.table["text"][5].as_py() == bank[5]
    assert pa.total_allocated_bytes() - before < 10_000


def a_shard(count: int = 4) -> tuple[pa.Table, Codes]:
    table = pa.table({"text": pa.array(["ä b"] * count), "source": pa.array(["s"] * count)})
    some = np.random.default_rng(0).normal(size=(count, 8)).astype(np.float32)
    return table, fit_quantizer("int8", some).encode(some)


def test_a_shard_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, codes = a_shard()
    written = write_shard(tmp_path, "0000-00000", "of this", table, codes)
    assert (written.sentences, written.text_bytes) == (4, 16)
    assert set(written.files) == set(FILES)
    assert read_shard(tmp_path, "0000-00000", "of this") == written
    assert read_shard(tmp_path, "0000-00000", "of that") is None
    assert read_shard(tmp_path, "0000-00001", "of this") is None
    write_shard(tmp_path, "0000-00000", "of that", *a_shard(5))
    assert read_shard(tmp_path, "0000-00000", "of this") is None
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(TilthError, match="the disk is full"):
            write_shard(tmp_path, "0000-00001", "of this", table, codes)
    with (  # numpy says only "400000 requested and 0 written"
        pytest.raises(TilthError, match="the disk is full"),
        disk_errors(tmp_path),
        open("/dev/full", "wb", buffering=0) as full,
    ):
        np.save(full, np.zeros(100_000))
    assert [item.name for item in tmp_path.iterdir()] == ["0000-00000"]


def full_disk(handle: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("said", ["", "{}", "[]", '{"made_of": "a", "files": 3}'])
def test_a_shard_that_says_nothing_sensible_is_made_again(said: str, tmp_path: Path) -> None:
    (tmp_path / "0000-00000").mkdir()
    (tmp_path / "0000-00000" / "shard.json").write_text(said)
    assert read_shard(tmp_path, "0000-00000", "a") is None


def test_a_manifest_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path, MANIFESTS)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(TilthError, match="the disk is full"):
        write_manifest(tmp_path, replace(MANIFESTS, documents=99))
    assert read_manifest(tmp_path) == MANIFESTS
    assert [item.name for item in tmp_path.iterdir()] == [MANIFEST]

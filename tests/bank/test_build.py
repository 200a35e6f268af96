import csv
import gzip
import json
import os
import shutil
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from tests.tiny import (
    read_json,
    salads,
    save_encoder,
    small_parts,
    tiny_bank,
    tiny_static,
    write_lines,
    write_vectors,
)  # fmt: skip
from tests.tiny.calls import stopped as stopped_at
from tests.tiny.calls import watched
from tilth.bank import Bank, build
from tilth.bank.build import _are_small
from tilth.bank.ingest import exchange, shards, workers
from tilth.bank.ingest import parts as parts_module
from tilth.bank.ingest.documents import find_sources
from tilth.bank.ingest.exchange import read_columns
from tilth.bank.ingest.workers import end_processes, in_processes
from tilth.bank.manifest import MANIFEST, SHARDS, read_manifest
from tilth.bank.settings import Rules
from tilth.bank.store import TEXT
from tilth.encoders.word_vectors import word_vectors
from tilth.errors import InputError, TilthError
from tilth.limits import FORMAT
from tilth.runs import RunLocked, RunMismatch

TEXTS = salads(1500)
QUERY = "The old man sees a bird near the sea"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)


def make(path: Path, sources: Any, **options: Any) -> Bank:
    return Bank.build(
        path, sources, **{"encoder": tiny_static(), "workers": 1, "quiet": True, **options}
    )


def add(path: Path, sources: Any, **options: Any) -> Bank:
    bank = Bank.open(path, encoder=options.pop("encoder", None) or tiny_static())
    return bank.add(sources, **{"workers": 1, "quiet": True, **options})


def three(folder: Path) -> list[Path]:
    """Write three sources; some sentences stand in two of them."""
    return [
        write_lines(folder / "a.txt", TEXTS[:600]),
        write_lines(folder / "b.txt", TEXTS[550:1200]),
        write_lines(folder / "c.txt", TEXTS[1200:]),
    ]


def content(path: Path) -> dict[str, bytes]:
    """Return what a bank is: the files that the manifest names, and the manifest."""
    found = {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted((path / SHARDS).rglob("*"))
        if file.is_file()
    }
    found["codec.safetensors"] = (path / "codec.safetensors").read_bytes()
    manifest = read_json(path / MANIFEST)
    del manifest["created"]
    return {**found, "manifest": json.dumps(manifest).encode()}


def left(path: Path) -> set[str]:
    return {item.name for item in path.iterdir()}


def test_what_a_bank_holds(tmp_path: Path, parts: None) -> None:
    sources = three(tmp_path)
    bank = make(tmp_path / "bank", sources)
    manifest = bank.manifest
    assert manifest.documents == 1550
    assert len(bank) + sum(manifest.dropped.values()) == 1550
    assert manifest.dropped["exact duplicate"] == 50
    assert set(bank) <= set(TEXTS)
    assert len(set(bank)) == len(bank)
    assert list(manifest.sources) == [str(source) for source in sources]
    assert (manifest.format, manifest.dimension, manifest.jobs) == ("int8", 16, 1)
    assert manifest.rules == asdict(Rules())
    assert sum(shard.text_bytes for shard in manifest.shards) == sum(map(len, bank))
    assert [shard.name for shard in manifest.shards] == [
        f"0000-{number:05d}" for number in range(len(manifest.shards))
    ]
    assert bank.check(quiet=True) == []
    with pytest.MonkeyPatch.context() as patch:
        for form in FORMAT.names:
            ended: list[str] = []
            patch.setattr(workers, "end_processes", lambda ended=ended: ended.append("processes"))
            one = make(tmp_path / f"one {form}", sources, format=form)
            two = make(tmp_path / f"two {form}", sources, format=form, workers=2)
            assert ended
            assert content(one.path) == content(two.path)
    end_processes()
    assert left(bank.path) == {
        ".tilth-lock", "bank.json", "codec.safetensors", "parts", "run.json", "shards",
    }  # fmt: skip


HOMES = {"_make_part": parts_module, "_make_shard": shards}


def stopped(name: str, call: int, *, after: bool = False) -> AbstractContextManager[None]:
    """Stop the build at some call of one of its functions."""
    return stopped_at(HOMES.get(name, build), name, call, after=after)


STAGES = [
    ("_make_part", 0, False), ("_make_part", 2, True), ("find_duplicates", 0, False),
    ("find_duplicates", 0, True), ("fit_quantizer", 0, True), ("_make_shard", 0, True),
    ("_make_shard", 2, False), ("write_manifest", 0, False), ("write_manifest", 0, True),
    ("_remove_strays", 0, True), ("_remove_job", 0, False),
]  # fmt: skip


@dataclass
class Calm:
    """Banks that nobody interrupted: of a source, and of it with two others added."""

    sources: list[Path]
    built: Path
    grown: Path


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Calm:
    folder = tmp_path_factory.mktemp("calm")
    found = Calm(three(folder), folder / "built", folder / "grown")
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        make(found.built, found.sources[:1])
        shutil.copytree(found.built, found.grown)
        add(found.grown, found.sources[1:])
    return found


@pytest.mark.parametrize(("name", "call", "after"), STAGES)
def test_interrupted_at_any_stage_it_is_the_same_bank(
    tmp_path: Path, name: str, call: int, after: bool, calm: Calm, parts: None
) -> None:
    path, sources = tmp_path / "stopped", calm.sources[:1]
    with stopped(name, call, after=after):
        make(path, sources)
    if not (path / MANIFEST).exists():
        with pytest.raises(InputError, match="its building is not finished"):
            Bank.open(path)
    shards = {file: file.stat().st_ino for file in path.glob(f"{SHARDS}/*/*")}
    make(path, sources)
    assert content(path) == content(calm.built)
    assert left(path) == left(calm.built)
    again = {file for file, inode in shards.items() if file.stat().st_ino != inode}
    assert not again, "a shard was made twice"


@pytest.mark.parametrize(
    ("name", "call", "after"), [stage for stage in STAGES if stage[0] != "fit_quantizer"]
)
def test_an_interrupted_adding_leaves_the_bank_and_goes_on(
    tmp_path: Path, name: str, call: int, after: bool, calm: Calm, parts: None
) -> None:
    path, sources = tmp_path / "stopped", calm.sources[1:]
    shutil.copytree(calm.built, path)
    before = read_manifest(path)
    with stopped(name, call, after=after):
        add(path, sources)
    if (name, after) in {
        ("write_manifest", True),
        ("_remove_strays", True),
        ("_remove_job", False),
    }:
        assert len(read_manifest(path).shards) > len(before.shards)  # it was done but for the rest
    else:
        assert read_manifest(path) == before
    bank = Bank.open(path, encoder=tiny_static())
    assert bank.check(quiet=True) == []
    assert len(bank.search(QUERY, k=5).texts(0)) == 5
    add(path, sources)
    assert content(path) == content(calm.grown)
    assert left(path) == left(calm.grown)


def test_added_sentences_are_those_that_are_new(tmp_path: Path, parts: None) -> None:
    a, b, c = three(tmp_path)
    before = make(tmp_path / "bank", [a])
    own, old = list(before), {shard.name for shard in before.manifest.shards}
    bank = add(tmp_path / "bank", [b])
    assert list(bank)[: len(own)] == own
    assert len(before) == len(own), "an open bank stays what it was"
    assert bank.manifest.dropped["exact duplicate"] == 50
    assert not set(list(bank)[len(own) :]) & set(own)
    assert bank.manifest.jobs == 2
    assert bank.manifest.documents == 600 + 650
    new = {shard.name for shard in bank.manifest.shards} - old
    assert all(name.startswith("0001-") for name in new)
    assert list(bank.manifest.sources) == [str(a), str(b)]
    assert len(Bank.open(bank.path, encoder=tiny_static()).add([c], workers=1, quiet=True)) > len(
        bank
    )
    # In one go or one after the other: the same sentences.
    assert set(make(tmp_path / "at once", [a, b])) == set(bank)


def long(word: str) -> str:
    start = "The old man and the small dog sleeps under the big red boat near the green river with"
    return f"{start} a {word}."


def test_an_adding_has_the_rules_of_the_build(tmp_path: Path) -> None:
    known = ["The man sleeps.", TEXTS[0], long("cat"), long("bird")]
    bank = tiny_bank(tmp_path / "near", known, rules=Rules(min_words=5))
    assert list(bank) == [TEXTS[0], long("cat")]
    new = ["The bird sings.", "The red bird sings in the sun.", TEXTS[0].upper(), long("sun")]
    more = write_lines(tmp_path / "more.txt", new)
    grown = add(bank.path, [more])
    assert list(grown) == [*bank, new[1]]
    assert grown.manifest.dropped == {
        "exact duplicate": 1, "near duplicate": 2, "too short": 2
    }  # fmt: skip
    bank = tiny_bank(tmp_path / "all", known, near=False)
    assert len(bank) == 4
    assert list(add(bank.path, [more]))[4:] == [*new[:2], long("sun")]
    other = write_lines(tmp_path / "other.txt", [long("woman")])
    assert len(add(bank.path, [other], near=True)) == 7


def test_a_source_that_is_there_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b, _ = three(tmp_path)
    make(tmp_path / "bank", [a])
    before = content(tmp_path / "bank")
    add(tmp_path / "bank", [a])
    assert f"1 of 1 sources are in the bank already, as they are now, such as {a}" in caplog.text
    assert content(tmp_path / "bank") == before
    grown = add(tmp_path / "bank", [a, b])
    assert grown.manifest.documents == 1250
    make(tmp_path / "bank", [a])
    write_lines(a, [*TEXTS[:600], "The green bird sees no rain."])
    assert list(add(tmp_path / "bank", [a]))[-1] == "The green bird sees no rain."


def test_an_unfinished_adding_of_other_sources(tmp_path: Path, parts: None) -> None:
    a, b, c = three(tmp_path)
    make(tmp_path / "bank", [a])
    with stopped("write_manifest", 0):
        add(tmp_path / "bank", [b])
    with pytest.raises(InputError, match="an addition of other sources or settings is unfinished"):
        add(tmp_path / "bank", [c])
    with pytest.raises(InputError, match="unfinished"):
        add(tmp_path / "bank", [b], near=False)
    make(tmp_path / "calm", [a])
    add(tmp_path / "calm", [c])
    add(tmp_path / "bank", [c], overwrite=True)
    assert content(tmp_path / "bank") == content(tmp_path / "calm")


def test_a_dropped_adding_leaves_nothing_that_is_taken_for_the_next(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("one", "two"), *zip(TEXTS[:90], TEXTS[100:190], strict=True)])
    bank = tiny_bank(tmp_path, TEXTS[200:250])
    with stopped("write_manifest", 0):
        add(bank.path, [table], column="one", near=False)
    grown = add(bank.path, [table], column="two", near=False, overwrite=True)
    assert list(grown)[50:] == TEXTS[100:190]


def test_building_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    a, b, _ = three(tmp_path)
    make(tmp_path / "bank", [a])
    before = content(tmp_path / "bank")
    make(tmp_path / "bank", [a])
    assert content(tmp_path / "bank") == before
    assert not caplog.records
    write_lines(a, TEXTS[:10])
    with pytest.raises(RunMismatch, match=rf"{a} changed since .* `tilth bank add` .* --overwrite"):
        make(tmp_path / "bank", [a])
    assert content(tmp_path / "bank") == before
    assert len(make(tmp_path / "bank", [a], overwrite=True)) == 10
    for options, message in (
        ({"format": "compact"}, 'format is "int8" in the folder, "compact" asked'),
        ({"seed": 1}, "seed is 0 in the folder, 1 asked"),
        ({"near": False}, "near is true in the folder, false asked"),
        ({"rules": Rules(min_words=5)}, "rules is .* asked"),
        ({"shard_megabytes": 8}, "shard_megabytes is .* asked"),
        ({"column": "text"}, 'column is null in the folder, "text" asked'),
        ({"encoder": tiny_static(seed=1)}, "the encoder is not the same"),
    ):
        with pytest.raises(RunMismatch, match=message):
            make(tmp_path / "bank", [a], **options)
    with pytest.raises(InputError, match=f"{a}: no split 'test': leave --split out"):
        make(tmp_path / "bank", [a], split="test")
    with pytest.raises(RunMismatch, match=rf"built from {a}, not from {a}, {b}: `tilth bank add`"):
        make(tmp_path / "bank", [a, b])


@pytest.mark.parametrize("wrong", ["missing", "empty", "bytes", "short", "column", "seed"])
def test_overwriting_keeps_the_bank_where_the_new_one_fails(tmp_path: Path, wrong: str) -> None:
    bank = tiny_bank(tmp_path, TEXTS[:50])
    before = content(bank.path)
    raw = tmp_path / "new.txt"
    if wrong != "missing":
        found = {"empty": b"", "bytes": b"It rains today.\n\xff\xfe\n", "short": b"Why?\n"}
        raw.write_bytes(found.get(wrong, b"The old man sees a bird.\n"))
    options: dict[str, Any] = {"column": {"column": "body"}, "seed": {"seed": -1}}.get(wrong, {})
    with pytest.raises(InputError):
        make(bank.path, [raw], overwrite=True, **options)
    assert content(bank.path) == before
    assert make(bank.path, [tmp_path / "raw.txt"])[0] == bank[0]


def test_the_number_of_an_adding_that_is_none_is_refused(tmp_path: Path) -> None:
    a, b, _ = three(tmp_path)
    make(tmp_path / "bank", [a])
    with stopped("_remove_job", 0, after=False):
        add(tmp_path / "bank", [b])
    file = tmp_path / "bank" / "adding" / "run.json"
    asked = read_json(file)
    file.write_text(json.dumps({**asked, "resolved": {"job": "x"}}))
    with pytest.raises(TilthError, match=r"run\.json: is not what tilth wrote \(job is 'x'\)"):
        add(tmp_path / "bank", [b])


def test_a_bad_source_may_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: None
) -> None:
    a, b, _ = three(tmp_path)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"Fine so far.\n\xff\xfe broken\n")
    with pytest.raises(InputError, match=r"bad\.txt"):
        make(tmp_path / "bank", [bad, a])
    make(tmp_path / "bank", [a], format="compact")  # nothing was made: settings may differ
    with pytest.raises(InputError, match=r"bad\.txt"):
        make(tmp_path / "more", [a, bad, b])
    there = list((tmp_path / "more" / "adding" / "parts").iterdir())
    assert len(there) > 1
    made = watched(monkeypatch, parts_module, "_make_part")
    assert len(make(tmp_path / "more", [a, b])) > 100
    assert made
    assert not {given[0][1] for given, _ in made} & set(there)
    with pytest.raises(InputError, match="bad"):
        add(tmp_path / "more", [tmp_path / "bad.txt"])
    assert not (tmp_path / "more" / "adding").exists()  # it had no part


def test_a_job_stopped_before_its_first_part_is_no_overwritten_one(
    tmp_path: Path, parts: None, caplog: pytest.LogCaptureFixture
) -> None:
    a, b, c = three(tmp_path)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"\xff\xfe broken\n")
    for act, sources in ((make, [a, b]), (add, [c])):
        with stopped("_make_part", 0), pytest.raises(KeyboardInterrupt, match="no part"):
            act(tmp_path / "bank", sources)
        with pytest.raises(InputError, match=r"bad\.txt"):
            act(tmp_path / "bank", [*sources, bad])
        assert list((tmp_path / "bank" / "adding" / "parts").iterdir())
        assert not list(tmp_path.rglob(".tilth-old"))
        act(tmp_path / "bank", sources, **({"overwrite": True} if act is add else {}))
    assert not caplog.messages


def test_a_stopped_overwriting_keeps_the_earlier_bank_until_the_new_one_is_built(
    tmp_path: Path, parts: None
) -> None:
    a, b, c = three(tmp_path)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"\xff\xfe broken\n")
    bank = tmp_path / "bank"
    make(bank, [a, b])
    before = content(bank)
    with stopped("_make_part", 1), pytest.raises(KeyboardInterrupt):
        make(bank, [b, c, bad], overwrite=True)
    with stopped("_make_part", 1), pytest.raises(KeyboardInterrupt):
        make(bank, [b, c, bad])
    assert (bank / ".tilth-old").is_dir()
    with pytest.raises(InputError, match=r"bad\.txt"):
        make(bank, [b, c, bad])
    assert content(bank) == before


def test_a_stopped_overwriting_is_not_taken_for_the_earlier_bank(
    tmp_path: Path, parts: None
) -> None:
    a, b, c = three(tmp_path)
    bank = tmp_path / "bank"
    make(bank, [a])
    add(bank, [b])
    before = content(bank)
    for sources in ([a], [a, b]):
        with stopped("_make_part", 1), pytest.raises(KeyboardInterrupt):
            make(bank, [c], overwrite=True)
        with pytest.raises(RunMismatch, match=r"of other sources .* the earlier bank is back"):
            make(bank, sources)
        assert content(bank) == before
    assert len(make(bank, [a])) > 1000


def test_building_again_leaves_an_unfinished_adding(tmp_path: Path, parts: None) -> None:
    a, b, c = three(tmp_path)
    make(tmp_path / "bank", [a])
    with stopped("find_duplicates", 0):
        add(tmp_path / "bank", [b, c])
    done = set((tmp_path / "bank" / "adding" / "parts").iterdir())
    assert done
    make(tmp_path / "bank", [a])
    assert set((tmp_path / "bank" / "adding" / "parts").iterdir()) == done


@pytest.mark.parametrize("name", ["write_manifest", "_remove_strays", "_remove_job"])
def test_what_a_finished_job_left_is_in_nobodys_way(tmp_path: Path, name: str) -> None:
    a, b, c = three(tmp_path)
    after = name != "_remove_job"
    for step, sources in ((make, [a]), (add, [b])):
        with stopped(name, 0, after=after):
            step(tmp_path / "bank", sources)
    add(tmp_path / "bank", [c])
    for step, sources in ((make, [a]), (add, [b]), (add, [c])):
        step(tmp_path / "calm", sources)
    assert content(tmp_path / "bank") == content(tmp_path / "calm")
    assert not (tmp_path / "bank" / "adding").exists()


def test_two_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one comes while the first is at work; locks hold within a process, too."""
    a, b, c = three(tmp_path)
    new, bank = tmp_path / "new", tmp_path / "bank"
    make(bank, [a])
    before = content(bank)
    overwrite = {"overwrite": True}
    refused: list[Any] = []
    real = build.find_duplicates

    def others_come(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(build, "find_duplicates", real)
        for step, path, sources, more in refused:
            with pytest.raises(RunLocked, match=r"process \d+ .* is writing here: wait for it"):
                step(path, sources, **more)
        make(bank, [a])  # there already, and leaves the adding alone
        assert content(bank) == before
        return real(*arguments, **options)

    monkeypatch.setattr(build, "find_duplicates", others_come)
    refused = [(make, new, [a], {}), (make, new, [a], overwrite)]
    assert len(make(new, [a])) > 500
    monkeypatch.setattr(build, "find_duplicates", others_come)
    refused = [
        (add, bank, [b], {}), (add, bank, [c], {}), (add, bank, [c], overwrite),
        (make, bank, [a], overwrite),
    ]  # fmt: skip
    assert len(add(bank, [b])) > 1000


def test_folders_that_are_something_else(tmp_path: Path) -> None:
    a, _, _ = three(tmp_path)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").touch()
    with pytest.raises(InputError, match=r"the folder holds 'thesis\.txt' and is no run"):
        make(tmp_path / "foreign", [a])
    with pytest.raises(InputError, match="the folder holds"):
        make(tmp_path / "foreign", [a], overwrite=True)
    assert left(tmp_path / "foreign") == {"thesis.txt"}
    with pytest.raises(InputError, match="holds no bank"):
        add(tmp_path / "foreign", [a])


def test_wrong_arguments_leave_no_folder(tmp_path: Path) -> None:
    a, _, _ = three(tmp_path)
    for options, message in (
        ({"format": "int4"}, "format 'int4' is unknown: use int8 or compact"),
        ({"shard_megabytes": 0}, "shard_megabytes is 0: give a whole number from 1"),
        ({"workers": 0}, "workers is 0: give a whole number from 1"),
        ({"encoder": str(tmp_path / "nowhere")}, "nowhere"),
    ):
        with pytest.raises(InputError, match=message):
            make(tmp_path / "bank", [a], **options)
    with pytest.raises(InputError):
        make(tmp_path / "bank", [tmp_path / "missing.txt"])
    with pytest.raises(InputError, match="named twice"):
        make(tmp_path / "bank", [a, a])
    assert not (tmp_path / "bank").exists()
    make(tmp_path / "bank", [a])
    for options in ({"workers": -1}, {"shard_megabytes": 0}):
        with pytest.raises(InputError, match="give a whole number from 1"):
            add(tmp_path / "bank", [a], **options)
    with pytest.raises(InputError, match="was built with another encoder"):
        add(tmp_path / "bank", [tmp_path / "b.txt"], encoder=tiny_static(seed=1))


def test_small_sources_share_a_part_and_large_ones_do_not(tmp_path: Path, parts: None) -> None:
    texts = salads(900, seed=4)
    small = [write_lines(tmp_path / f"{n}.txt", texts[n * 10 : n * 10 + 10]) for n in range(4)]
    large = [write_lines(tmp_path / f"l{n}.txt", texts[100 + n * 300 :][:300]) for n in range(2)]
    assert len(make(tmp_path / "small", small).manifest.shards) == 1
    bank = make(tmp_path / "large", large)
    for shard in bank.shards:
        assert len(set(shard.table["source"].to_pylist())) == 1
    assert bank.manifest.documents == 600


@pytest.mark.parametrize("workers", [1, 2])
def test_a_broken_source_is_named_and_mended(
    tmp_path: Path, workers: int, parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, c = (write_lines(tmp_path / f"{name}.txt", TEXTS[:700]) for name in "ac")
    write_lines(c, TEXTS[1200:])
    b = tmp_path / "b.txt.gz"
    lines = [text.encode() + b"\n" for text in TEXTS[700:1200]]
    b.write_bytes(gzip.compress(b"".join([*lines[:100], b"\x00\xff\x00\n"])))
    with pytest.raises(InputError, match=r"b\.txt\.gz:101: .*(NUL byte|not UTF-8)") as caught:
        make(tmp_path / "bank", [a, b, c], workers=workers)
    assert "\n" not in str(caught.value)
    b.write_bytes(gzip.compress(b"".join(lines)))
    there = set((tmp_path / "bank" / "adding" / "parts").iterdir())
    made = watched(monkeypatch, parts_module, "_make_part")
    bank = make(tmp_path / "bank", [a, b, c])
    assert there
    assert not {given[0][1] for given, _ in made} & there
    assert content(bank.path) == content(make(tmp_path / "calm", [a, b, c]).path)


def test_sources_of_which_nothing_is_left(tmp_path: Path) -> None:
    empty = write_lines(tmp_path / "empty.txt", ["", " "])
    with pytest.raises(InputError, match=r"empty\.txt: holds no text"):
        make(tmp_path / "bank", [empty])
    short = write_lines(tmp_path / "short.txt", ["No.", "Well.", "12 34 56 78 90 12 34."])
    with pytest.raises(InputError, match=r"no sentence is left of 3: 2 too short, 1 few letters"):
        make(tmp_path / "short", [short])
    unheard = write_lines(tmp_path / "unheard.txt", ["Quite unheard words only."])
    with pytest.raises(InputError, match=r"no sentence is left of 1: 1 no vector"):
        make(tmp_path / "unheard", [unheard])
    bank = make(tmp_path / "some", [*three(tmp_path), short, unheard])
    assert bank.manifest.dropped["no vector"] == 1
    assert bank.manifest.dropped["too short"] == 2
    # Adding nothing new is no error: the bank has sentences.
    more = write_lines(tmp_path / "more.txt", ["Other unheard words.", "Oh."])
    grown = add(bank.path, [more])
    assert len(grown) == len(bank)
    assert grown.manifest.dropped["no vector"] == 2
    assert str(more) in grown.manifest.sources


def test_columns_splits_seeds_and_sizes(tmp_path: Path) -> None:
    both = {"train": TEXTS[:20], "test": TEXTS[20:30]}
    data = DatasetDict({name: Dataset.from_dict({"text": some}) for name, some in both.items()})
    data.save_to_disk(tmp_path / "data")
    for split, texts in both.items():
        assert list(make(tmp_path / split, [tmp_path / "data"], split=split)) == texts
    table = tmp_path / "table.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("one", "two"), (TEXTS[0], TEXTS[1])])
    assert list(make(tmp_path / "two", [table], column="two")) == [TEXTS[1]]
    for _ in range(2):
        both_columns = add(tmp_path / "two", [table], column="one")
        assert list(both_columns) == [TEXTS[1], TEXTS[0]]
        assert both_columns.manifest.jobs == 2
    assert list(make(tmp_path / "two", [table], column="two")) == [TEXTS[1], TEXTS[0]]
    for split in ("train", "test"):  # the first is there, the second is not
        assert add(tmp_path / "train", [tmp_path / "data"], split=split).manifest.documents == (
            20 if split == "train" else 30
        )
    source = write_lines(tmp_path / "a.txt", TEXTS[:50])
    one, two = (make(tmp_path / f"seed {seed}", [source], seed=seed) for seed in (1, 2))
    assert (one.quantizer.rotation != two.quantizer.rotation).any()
    many = write_lines(tmp_path / "many.txt", salads(60_000))
    assert 2 << 20 < many.stat().st_size < 3 << 20
    small = make(tmp_path / "small", [many], near=False, shard_megabytes=1)
    assert [shard.text_bytes >> 20 for shard in small.manifest.shards] == [0, 0, 0]
    assert len(make(tmp_path / "large", [many], near=False, shard_megabytes=4).manifest.shards) == 1


def test_transformers_and_word_vectors(tmp_path: Path) -> None:
    name = str(save_encoder(tmp_path / "bert"))
    words = word_vectors(write_vectors(tmp_path / "vectors.txt"))
    for number, encoder in enumerate((name, words)):
        for form in ("int8", "compact"):
            folder = tmp_path / f"{number} {form}"
            bank = tiny_bank(folder, TEXTS[:60], encoder=encoder, format=form, workers=1)
            assert bank.search(TEXTS[7], k=3).texts(0)[0] == TEXTS[7]
            more = write_lines(folder / "more.txt", TEXTS[100:110])
            assert len(add(bank.path, [more], encoder=encoder)) == len(bank) + 10
    assert Bank.open(tmp_path / "0 int8" / "bank").search("a man", k=1).counts == 1


def test_leftovers_of_killed_jobs_are_removed(tmp_path: Path, parts: None) -> None:
    a, b, _ = three(tmp_path)
    bank = make(tmp_path / "bank", [a])
    clean = left(bank.path)
    for folder in (".tmp-1-adding/parts", "shards/.tmp-99999-0001-00000", "shards/0001-00007"):
        (bank.path / folder).mkdir(parents=True)
    (bank.path / ".tmp-99999-bank.json").touch()
    make(bank.path, [a])
    assert not (bank.path / ".tmp-1-adding").exists()
    with stopped("find_duplicates", 0):
        add(bank.path, [b])
    (bank.path / "adding" / "parts" / ".tmp-99999-part-00000.parquet").touch()
    grown = add(bank.path, [b])
    assert left(bank.path) == clean
    assert left(bank.path / SHARDS) == {shard.name for shard in grown.manifest.shards}


def test_a_full_disk_is_said_and_the_same_command_goes_on(tmp_path: Path, parts: None) -> None:
    sources = three(tmp_path)
    calls = 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 40:
            raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr(exchange, "remove", lambda path: pytest.fail(f"{path} is removed"))
        with pytest.raises(TilthError, match="the disk is full: free some space"):
            make(tmp_path / "bank", sources)
    bank = make(tmp_path / "bank", sources)
    assert content(bank.path) == content(make(tmp_path / "calm", sources).path)


def test_progress_is_shown_unless_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.runs.progress._SECONDS_BETWEEN_LINES", 0.0)
    source = write_lines(tmp_path / "a.txt", TEXTS[:50])
    make(tmp_path / "quiet", [source])
    assert capsys.readouterr().err == ""
    make(tmp_path / "loud", [source], quiet=False)
    assert "sentences" in capsys.readouterr().err


def test_a_part_that_the_disk_has_damaged(tmp_path: Path) -> None:
    a, _, _ = three(tmp_path)
    with stopped("make_shards", 0):
        make(tmp_path / "bank", [a])
    (part,) = (tmp_path / "bank" / "adding" / "parts").iterdir()
    data = bytearray(part.read_bytes())
    data[4:2000] = bytes(1996)  # the texts; what the file says of itself stands at its end
    part.write_bytes(data)
    with pytest.raises(TilthError, match="was damaged and is removed: run the same command again"):
        make(tmp_path / "bank", [a])
    assert not part.exists()
    make(tmp_path / "bank", [a])
    make(tmp_path / "calm", [a])
    assert content(tmp_path / "bank") == content(tmp_path / "calm")


def test_one_bit_of_a_part_is_noticed(tmp_path: Path) -> None:
    a, _, _ = three(tmp_path)
    with stopped("make_shards", 0):
        make(tmp_path / "bank", [a])
    (part,) = (tmp_path / "bank" / "adding" / "parts").iterdir()
    whole = part.read_bytes()
    texts = read_columns(part, [TEXT])
    for at in range(100, len(whole) // 2, 211):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        part.write_bytes(damaged)
        with suppress(TilthError):
            assert read_columns(part, [TEXT]).equals(texts)


@pytest.mark.parametrize("name", ["codes.npy", "text.arrow"])
def test_a_shard_that_is_not_whole_is_made_again(tmp_path: Path, name: str) -> None:
    a, _, _ = three(tmp_path)
    with stopped("write_manifest", 0):
        make(tmp_path / "bank", [a])
    (file,) = (tmp_path / "bank" / SHARDS).glob(f"*/{name}")
    file.write_bytes(file.read_bytes()[:-9])
    make(tmp_path / "bank", [a])
    make(tmp_path / "calm", [a])
    assert content(tmp_path / "bank") == content(tmp_path / "calm")


def test_workers_that_were_started_elsewhere_find_the_bank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(in_processes(2, abs, iter([-1, -2]))) == [1, 2]
    monkeypatch.chdir(tmp_path)
    small_parts(monkeypatch, 1_000)
    write_lines(Path("raw.txt"), salads(100))
    bank = Bank.build("bank", ["raw.txt"], encoder=tiny_static(), workers=2, quiet=True)
    assert len(bank) == 100


def test_a_data_set_folder_is_not_taken_for_a_small_file(tmp_path: Path) -> None:
    Dataset.from_dict({"text": TEXTS[:10]}).save_to_disk(tmp_path / "saved")
    text = write_lines(tmp_path / "some.txt", TEXTS[:10])
    assert not _are_small(find_sources([str(tmp_path / "saved")]))
    assert _are_small(find_sources([str(text)]))

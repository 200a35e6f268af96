import json
import logging
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("faiss")

from tests.tiny import read_json, salads, tiny_bank, tiny_static, write_lines
from tests.tiny.calls import python
from tilth.bank import Bank
from tilth.bank.manifest import Manifest
from tilth.bank.search import ivf as index
from tilth.bank.search import ivf_build as indexing
from tilth.bank.settings import IndexSettings
from tilth.errors import InputError, TilthError
from tilth.models import device
from tilth.runs import RunLocked, lock_folder

MANY, K = 1500, 10


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bank of three shards; tests that change it copy it."""
    folder = tmp_path_factory.mktemp("indexed")
    texts = salads(MANY)
    sources = [
        write_lines(folder / f"{name}.txt", texts[start : start + 500])
        for start, name in zip(range(0, MANY, 500), "abc", strict=True)
    ]
    bank = Bank.build(
        folder / "bank", sources[:1], encoder=tiny_static(), workers=1, quiet=True, near=False
    )
    for source in sources[1:]:
        bank = bank.add([source], workers=1, quiet=True, near=False)
    assert len(bank.manifest.shards) == 3
    return folder / "bank"


@pytest.fixture(scope="module")
def built_index(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index") / "bank"
    make(copied(built, folder))
    return folder


@pytest.fixture
def bank(built: Path, tmp_path: Path) -> Bank:
    return copied(built, tmp_path / "bank")


def copied(built: Path, to: Path) -> Bank:
    shutil.copytree(built, to)
    return Bank.open(to, encoder=tiny_static())


def make(bank: Bank, **options: Any) -> index.Index:
    return bank.make_index(**{"centroids": 16, "threads": 1, "quiet": True, **options})


def asked(bank: Bank, count: int = 40) -> np.ndarray:
    found = np.random.default_rng(5).normal(size=(count, bank.manifest.dimension))
    return found.astype(np.float32)


def recall(exact: np.ndarray, found: np.ndarray) -> float:
    return float(np.mean([np.isin(a, b).mean() for a, b in zip(exact, found, strict=True)]))


@pytest.mark.parametrize(
    ("codes", "pca"),
    [(codes, pca) for codes in ("SQ8", "SQ4", "fp16") for pca in (None, 16, 12)] + [("PQ2", None)],
)
def test_recall_rises_with_nprobe_to_that_of_the_scan(
    bank: Bank, codes: str, pca: int | None
) -> None:
    made = make(bank, codes=codes, pca=pca, per_centroid=40)
    assert made.info.factory == (f"PCAR{pca}," if pca else "") + "IVF16," + (
        "SQfp16" if codes == "fp16" else codes
    )
    queries = asked(bank)
    exact = bank.search(queries, K, threads=1)
    found = {
        nprobe: bank.search(queries, K, index=True, nprobe=nprobe, threads=1)
        for nprobe in (1, 4, 16)
    }
    shares = [recall(exact.ids, hits.ids) for hits in found.values()]
    assert shares[0] < 0.75
    assert shares[0] < shares[1] <= shares[2]
    if codes in ("SQ8", "fp16") and pca != 12:
        np.testing.assert_array_equal(found[16].ids, exact.ids)
        np.testing.assert_array_equal(found[16].similarity, exact.similarity)
    every = bank.search(queries, K, index=True, nprobe=16, oversample=MANY, threads=1)
    np.testing.assert_array_equal(every.ids, exact.ids)
    np.testing.assert_array_equal(every.similarity, exact.similarity)


def test_compact_banks_are_encoded_again(tmp_path: Path) -> None:
    bank = tiny_bank(tmp_path, salads(300), format="compact", near=False)
    make(bank, centroids=4)
    queries = asked(bank, 7)
    exact = bank.search(queries, K, oversample=300, threads=1)
    found = bank.search(queries, K, index=True, nprobe=4, threads=1)
    np.testing.assert_array_equal(found.ids, exact.ids)
    np.testing.assert_allclose(found.similarity, exact.similarity, atol=1e-6)


@pytest.mark.parametrize("form", ["int8", "compact"])
def test_a_source_of_which_no_sentence_was_kept_has_no_hits(tmp_path: Path, form: str) -> None:
    raw = [
        write_lines(tmp_path / "all.txt", salads(60)),
        write_lines(tmp_path / "no.txt", ["Why?"]),
    ]
    encoder = tiny_static()
    bank = Bank.build(tmp_path / "bank", raw, encoder=encoder, format=form, workers=1, quiet=True)
    make(bank, centroids=1)
    for index_too in (False, True):
        hits = bank.search(
            ["old man"], k=3, sources=[str(raw[1])], index=index_too, without={"test": ["old man"]}
        )
        assert hits.counts.tolist() == [0]
        assert hits.removed == {"test, exact": 0, "test, near": 0}


def test_everybody_gets_k_hits_and_none_is_minus_one(bank: Bank) -> None:
    make(bank)
    hits = bank.search(asked(bank), 700, index=True, nprobe=1, threads=1)  # far more than a cell
    assert hits.counts.tolist() == [700] * 40
    assert (hits.ids >= 0).all()
    near = bank.search([bank[3]], 400, threads=1).texts(0)
    hits = bank.search([bank[3]], 50, without={"test": near}, index=True, nprobe=1, threads=1)
    assert hits.counts.tolist() == [50]
    assert not set(near) & set(hits.texts(0))
    everything = bank.search(asked(bank, 2), MANY, index=True, nprobe=1, threads=1)
    assert sorted(everything.ids[0].tolist()) == list(range(MANY))


def test_filters_are_those_of_the_scan(bank: Bank) -> None:
    make(bank)
    texts = [bank[number] for number in range(0, MANY, 60)]
    source = next(name for name in bank.manifest.sources if name.endswith("b.txt"))
    kinds: list[dict[str, Any]] = [
        {"min_similarity": 0.8},
        {"sources": [source]},
        {"without": {"test": texts}},
        {"own": False},
        {"sources": [source], "without": {"test": texts}, "min_similarity": 0.3},
    ]
    for options in kinds:
        exact = bank.search(texts, 30, threads=1, **options)
        found = bank.search(texts, 30, index=True, nprobe=16, threads=1, **options)
        np.testing.assert_array_equal(found.ids, exact.ids)
        np.testing.assert_array_equal(found.similarity, exact.similarity)
        np.testing.assert_array_equal(found.counts, exact.counts)
        few = bank.search(texts, 30, index=True, nprobe=1, threads=1, **options)
        if "min_similarity" not in options:
            assert few.counts.tolist() == [30] * len(texts)
        behind = few.ids < 0
        np.testing.assert_array_equal(np.isnan(few.similarity), behind)
        np.testing.assert_array_equal(behind.sum(axis=1), 30 - few.counts)
    assert (bank.search(texts, 500, sources=[source], index=True, nprobe=1).counts == 500).all()
    assert set(
        bank.search(texts, 30, sources=[source], index=True).table(0)["source"].to_pylist()
    ) == {source}


def test_a_small_part_of_the_bank_is_scanned(bank: Bank) -> None:
    made = make(bank, nprobe=1)
    sizes = bank.sources()
    by_size = sorted(sizes, key=lambda name: sizes[name])
    few, all_ = (bank.source_filter(some) for some in (by_size[:1], by_size))
    assert sizes[by_size[0]] * 16 <= 8 * len(bank)
    assert (made.nprobe(None, bank, few), made.nprobe(None, bank, all_)) == (None, 1)
    assert made.nprobe(1, bank, few) == 1
    queries = asked(bank)
    exact = bank.search(queries, K, threads=1, sources=by_size[:1])
    found = bank.search(queries, K, index=True, threads=1, sources=by_size[:1])
    np.testing.assert_array_equal(found.ids, exact.ids)


def test_a_part_of_the_bank_is_looked_for_in_more_cells(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_VISIT", 0)  # no part is scanned
    made = make(bank, nprobe=3)
    (one, *_), two = bank.manifest.sources, list(bank.manifest.sources)[:2]
    cells = [made.nprobe(None, bank, bank.source_filter(some)) for some in (None, two, [one])]
    assert cells == [3, 5, 9]
    assert made.nprobe(2, bank, bank.source_filter([one])) == 2
    assert made.nprobe(None, bank, lambda shard: np.zeros(shard.sentences, np.bool_)) is None
    queries = asked(bank)
    for options in ({"nprobe": 9, "sources": [one]}, {"nprobe": 3}):
        found = bank.search(queries, K, index=True, threads=1, **options)
        usual = bank.search(queries, K, index=True, threads=1, sources=options.get("sources"))
        np.testing.assert_array_equal(usual.ids, found.ids)


def test_threads_and_company_change_nothing(bank: Bank) -> None:
    made = make(bank, nprobe=3)
    queries = asked(bank)
    first = bank.search(queries, K, index=True, threads=1)
    for threads in (2, 3):
        again = Bank.open(bank.path).search(queries, K, index=True, threads=threads)
        np.testing.assert_array_equal(again.ids, first.ids)
        np.testing.assert_array_equal(again.similarity, first.similarity)
    for row in range(3):
        alone = bank.search(queries[row], K, index=True, threads=1)
        np.testing.assert_array_equal(alone.ids[0], first.ids[row])
    before = (bank.path / "index" / made.info.file).read_bytes()
    other = make(bank, nprobe=3, threads=2)
    assert (bank.path / "index" / other.info.file).read_bytes() == before


def test_sentences_added_later_are_scanned(bank: Bank, tmp_path: Path) -> None:
    make(bank)
    new = write_lines(tmp_path / "new.txt", salads(120, seed=9))
    grown = bank.add([new], workers=1, quiet=True, near=False)
    assert len(grown) > MANY
    queries = asked(bank)
    exact = grown.search(queries, K, threads=1)
    assert (exact.ids >= MANY).any()
    found = grown.search(queries, K, index=True, nprobe=16, threads=1)
    np.testing.assert_array_equal(found.ids, exact.ids)
    np.testing.assert_array_equal(found.similarity, exact.similarity)
    only = grown.search(queries, 5, index=True, nprobe=1, sources=[str(new)], threads=1)
    assert (only.ids >= MANY).all()
    assert (only.counts == 5).all()
    make(grown)
    assert grown.index.info.sentences == len(grown)


def test_recall_is_measured_and_chooses_nprobe(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tilth")
    made = make(bank)
    said = read_json(bank.path / "index" / "index.json")
    assert [row["nprobe"] for row in said["recall"]] == [1, 4, 16]
    assert said["recall"][-1]["recall_10"] == said["recall"][-1]["recall_100"] == 1
    assert said["recall"][0]["recall_100"] < said["recall"][1]["recall_100"]
    good = [row["nprobe"] for row in said["recall"] if row["recall_100"] >= 0.95]
    assert said["nprobe"] == made.info.nprobe == made.nprobe(None, bank) == good[0]
    assert "recall@100 by nprobe: 1: 0." in caplog.text
    assert "GB of memory" in caplog.text
    assert make(bank, nprobe=2).nprobe(None, bank) == 2
    assert made.nprobe(5, bank) == 5


def test_recall_is_that_of_a_loop() -> None:
    exact = np.array([[4, 1, 2, 3], [9, 8, 7, -1]])
    found = np.array([[1, 4, 9, 3], [9, 5, 7, 8]])
    # Without the sentences themselves, 4 and 9: {1, 2} of {1, 9}, {8, 7} of {5, 7}.
    assert indexing._recall(exact, found, np.array([4, 9]), 2) == 0.5
    assert indexing._recall(exact, found, np.array([4, 9]), 3) == pytest.approx((2 / 3 + 1) / 2)


def test_each_option_counts(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    sizes, files = {}, set()
    options: list[dict[str, Any]] = [
        {}, {"centroids": 8}, {"codes": "SQ4"}, {"pca": 4}, {"per_centroid": 39}, {"seed": 1},
    ]  # fmt: skip
    for some in options:
        about = make(bank, **some).info
        sizes[str(some)] = about.bytes
        files.add(about.digest)
        assert {"seed": 0, "codes": "SQ8", "per_centroid": 64, "pca": None, **some}.items() <= (
            about.asked.items()
        )
    assert len(files) == len(options)
    assert sizes["{}"] - sizes["{'codes': 'SQ4'}"] == MANY * 16 // 2
    assert make(bank, centroids=None).info.centroids == 32  # 1500 / 39, to a power of 2
    assert len(list((bank.path / "index").glob("*.faiss"))) == 1  # earlier ones are gone
    make(bank, codes="SQ4", pca=1)
    assert "of the 100 nearest: take finer codes" in caplog.text


def test_defaults_grow_with_the_root(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    for many, centroids in ((30, 1), (10_000, 256), (1_000_000, 4096), (100_000_000, 32768)):
        monkeypatch.setattr(Bank, "__len__", lambda _, many=many: many)
        assert indexing._plan(bank, IndexSettings()).centroids == centroids


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"centroids": MANY + 1}, "centroids is 1,501: give 1 to 1,500"),
        ({"pca": 17}, "pca is 17: give 1 to 16"),
        ({"codes": "SQ5"}, "codes 'SQ5' are unknown: use one of SQ4, SQ8, fp16, PQ<bytes>"),
        ({"codes": "PQ0"}, "codes 'PQ0' are unknown"),
        ({"codes": "PQ3"}, "must divide the 16 dimensions"),
        ({"nprobe": 17}, "nprobe is 17: give 1 to 16"),
        ({"per_centroid": 38}, "per_centroid is 38: give a whole number from 39 to 256"),
    ],
)
def test_wrong_arguments(bank: Bank, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make(bank, **options)
    assert not (bank.path / "index").exists()
    with pytest.raises(InputError, match="has no index: make one"):
        bank.search(["the"], 1, index=True)
    with pytest.raises(InputError, match="only a search with index=True"):
        bank.search(["the"], 1, nprobe=3)


def test_few_sentences(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bank = tiny_bank(tmp_path, salads(20), near=False)
    with pytest.raises(InputError, match=r"20 sentences, too few for codes PQ4 .* needs 256"):
        make(bank, centroids=1, codes="PQ4")
    make(bank, centroids=20)
    assert "20 sentences train 20 centroids badly: give 1 or fewer" in caplog.text
    found = bank.search(asked(bank), 20, index=True, nprobe=1, threads=1)
    np.testing.assert_array_equal(found.ids, bank.search(asked(bank), 20, threads=1).ids)


def test_equal_vectors_make_empty_cells(tmp_path: Path) -> None:
    words = ("old man", "red boat")
    texts = [" ".join(words[n % 2].split()[:: 1 - 2 * (n // 2)] * 3) for n in range(4)]
    bank = tiny_bank(tmp_path, [f"{text} {text}." for text in texts], near=False)
    made = make(bank, centroids=4)
    assert made.info.recall[-1]["recall_10"] == 1


@pytest.mark.parametrize("nprobe", [0, -1, 17, 2.5])
def test_wrong_searches(built_index: Path, nprobe: Any) -> None:
    bank = Bank.open(built_index, encoder=tiny_static())
    with pytest.raises(InputError, match=f"nprobe is {nprobe}: give 1 to 16"):
        bank.search(asked(bank), K, index=True, nprobe=nprobe)


def test_damaged_files(bank: Bank) -> None:
    about = make(bank).info
    file, head = bank.path / "index" / about.file, about.head[0]
    assert bank.check(quiet=True) == []
    good = file.read_bytes()
    flipped = bytes([*good[: head // 2], good[head // 2] ^ 1, *good[head // 2 + 1 :]])
    # The last is read: the numbers of the sentences are not those of any.
    for data in (
        None,
        good[:-1],
        flipped,
        bytes(about.bytes),
        good[:head].ljust(len(good), b"\x7f"),
    ):
        file.unlink(missing_ok=True)
        if data is not None:
            file.write_bytes(data)
        fresh = Bank.open(bank.path, encoder=tiny_static())
        said = "cannot be read" if data is None else "not what was written: make the index again"
        with pytest.raises(TilthError, match=said):
            fresh.search(asked(bank), K, index=True, threads=1)
        (line,) = fresh.check(quiet=True)
        assert file.name in line
        assert fresh.search(asked(bank), K, threads=1).counts.all()  # the bank is whole
    make(Bank.open(bank.path, encoder=tiny_static()))


@pytest.mark.parametrize(
    "changes",
    [
        "{", "[]", '{"version": 1}', '{"version": 2}', "{}", None, {"nprobe": 0}, {"nprobe": 17},
        {"nprobe": "4"}, {"sentences": -1}, {"sentences": 1499}, {"centroids": 99}, {"head": [3]},
        {"head": [-1, "a"]}, {"shards": [["a"]]}, {"shards": 3}, {"recall": None}, {"codes": 8},
        {"more": 1}, {"file": "../../other.faiss"},
    ],
)  # fmt: skip
def test_a_wrong_index_json(built_index: Path, tmp_path: Path, changes: Any) -> None:
    bank = copied(built_index, tmp_path / "bank")
    shutil.copy(bank.path / "index" / bank.index.info.file, tmp_path / "other.faiss")
    file = bank.path / "index" / "index.json"
    about = read_json(file)
    file.unlink()
    if changes is None:
        os.mkfifo(file)
    else:
        file.write_text(changes if isinstance(changes, str) else json.dumps(about | changes))
    fresh = Bank.open(bank.path, encoder=tiny_static())
    with pytest.raises(TilthError, match=r"index\.json: |make the index again"):
        fresh.search(asked(bank), K, index=True)
    make(fresh)
    assert fresh.check(quiet=True) == []


def test_another_banks_index_is_refused(bank: Bank, tmp_path: Path) -> None:
    make(bank)
    other = tiny_bank(tmp_path / "other", salads(MANY, seed=3), near=False)
    shutil.copytree(bank.path / "index", other.path / "index")
    with pytest.raises(InputError, match="was made of another bank"):
        other.search(asked(bank), K, index=True)
    manifest: Manifest = replace(bank.manifest, fingerprint="another")
    with pytest.raises(InputError, match="was made of another bank"):
        index.Index.open(bank.path, manifest)
    assert bank.search(asked(bank), K, index=True, threads=1).counts.all()


@pytest.mark.parametrize("step", ["_train_and_fill", "_write", "write_json"])
def test_a_crash_leaves_the_earlier_index(
    bank: Bank, step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = make(bank).info
    first = bank.search(asked(bank), K, index=True, threads=1).ids

    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(indexing, step, crash)
        with pytest.raises(KeyboardInterrupt):
            make(bank, seed=4)
    for again in (bank, Bank.open(bank.path)):
        assert again.index.info == before
        np.testing.assert_array_equal(
            again.search(asked(bank), K, index=True, threads=1).ids, first
        )
    monkeypatch.setattr(device, "free_memory", lambda _: 10)
    about = make(bank, seed=4).info
    assert "GB are free: take SQ4, a smaller pca or fewer centroids" in caplog.text
    left = {file.name for file in (bank.path / "index").iterdir()}
    assert left == {".tilth-lock", "index.json", about.file}


def test_one_makes_it_at_a_time(bank: Bank) -> None:
    folder = bank.path / "index"
    folder.mkdir()
    (folder / ".tmp-0123abcd").touch()  # a killed process was writing it
    with lock_folder(folder), pytest.raises(RunLocked, match="is writing here"):
        make(bank)
    make(bank)
    assert not (folder / ".tmp-0123abcd").exists()


def test_the_file_is_mapped_not_read(bank: Bank) -> None:
    import faiss

    for pca in (None, 8):
        make(bank, pca=pca)
        opened = Bank.open(bank.path)  # FAISS frees what nobody holds
        ivf = faiss.extract_index_ivf(opened.index._index)
        assert isinstance(faiss.downcast_InvertedLists(ivf.invlists), faiss.OnDiskInvertedLists)


def test_a_disk_that_cannot_be_written(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    import faiss

    def full(*_: Any) -> None:
        raise RuntimeError("Error in write: No space left on device")

    monkeypatch.setattr(faiss, "write_index", full)
    with pytest.raises(TilthError, match=r"/index: the disk is full: free some space"):
        make(bank)


def test_without_faiss_the_extra_is_named(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    make(bank)
    monkeypatch.setitem(sys.modules, "faiss", None)
    for call in (
        lambda: make(bank),
        lambda: Bank.open(bank.path).search(asked(bank), K, index=True),
    ):
        with pytest.raises(TilthError, match=r'pip install "tilth\[index\]"'):
            call()
    assert bank.search(asked(bank), K, threads=1).counts.all()


def test_nothing_but_an_index_loads_faiss() -> None:
    code = "import sys; from tilth.bank import Bank; print('faiss' in sys.modules)"
    said = python(code)
    assert said.stdout.strip() == "False"


def test_a_sample_is_spread_over_all() -> None:
    drawn = indexing._spread(1000, 100, seed=2)
    np.testing.assert_array_equal(drawn // 10, np.arange(100))
    assert len(np.unique(drawn % 10)) == 10
    np.testing.assert_array_equal(indexing._spread(7, 7, seed=0), np.arange(7))
    assert (indexing._spread(1000, 100, seed=3) != drawn).any()

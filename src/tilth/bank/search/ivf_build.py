"""Makes the index of a bank: cells trained on a sample, sentences added, recall measured."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tilth.bank.quantization import Codec, Codes, Floats
from tilth.bank.search.exact import Ids
from tilth.bank.search.ivf import (
    ABOUT,
    FOLDER,
    VERSION,
    About,
    Index,
    checked_nprobe,
    digest_head,
    faiss_threads,
    load_faiss,
    named_shards,
    one_line,
    read_about,
)
from tilth.bank.store import OpenShard, checksum, open_shards
from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY, atomic_write, disk_errors, remove_leftovers, sync_folder
from tilth.limits import CORES, PER_CENTROID, SEED
from tilth.runs import Progress, RunLocked

if TYPE_CHECKING:
    from tilth.bank.bank import Bank

# As FAISS trains its inverted lists.
ITERATIONS = 10
_PRODUCTS_AT_ONCE = 1 << 24


class Cells:
    """Says which cell a vector lies in: the one whose direction has the largest product with it.

    Where the processor is made for small integers, products are of values rounded to 8 bits: two
    and a half times as fast, and one vector in thirty goes to another cell, whose product is less
    by 0.001.

    Args:
        directions: L2-normalised. # (cells, dimension)
    """

    def __init__(self, directions: Floats) -> None:
        self._whole = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        self._rows = max(1, _PRODUCTS_AT_ONCE // len(directions))
        values = torch.from_numpy(directions)
        if self._whole:
            # One step for all: products are compared between cells.
            step = values.abs().max().clamp(min=1e-12) / 127
            values = (values / step).round().to(torch.int8)
        self._directions = values.T.contiguous()  # (dimension, cells)

    def nearest(self, vectors: Floats) -> NDArray[np.int64]:
        """Return the cell of each vector, (vectors,); of equal ones the first."""
        found = np.empty(len(vectors), np.int64)
        for start in range(0, len(vectors), self._rows):
            some = torch.from_numpy(vectors[start : start + self._rows])
            if self._whole:
                steps = some.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
                products = torch._int_mm((some / steps).round().to(torch.int8), self._directions)
            else:
                products = some @ self._directions  # (rows, cells)
            # numpy's is ten times as fast as torch's.
            found[start : start + self._rows] = products.numpy().argmax(axis=1)
        return found


def find_directions(
    vectors: Floats,
    count: int,
    *,
    seed: int,
    advance: Callable[[int], Any] = lambda _: None,
) -> Floats:
    """Divide vectors among cells by k-means over directions.

    Args:
        vectors: a sample. # (rows, dimension)
        count: of cells, at most as many as there are rows.
        seed: of the first directions and of those that take the place of empty ones.
        advance: called with 1 after each of `ITERATIONS` rounds.

    Returns:
        L2-normalised, # (count, dimension)
    """
    generator = np.random.default_rng(seed)
    first = np.sort(generator.choice(len(vectors), count, replace=False))
    directions = _unit(vectors[first])
    for _ in range(ITERATIONS):
        owners = Cells(directions).nearest(vectors)
        sums = torch.zeros(directions.shape)
        sums.index_add_(0, torch.from_numpy(owners), torch.from_numpy(vectors))
        empty = np.bincount(owners, minlength=count) == 0
        directions = _unit(sums.numpy())
        # Where nothing lies, a vector drawn anew, most likely of a large cell, makes one.
        directions[empty] = _unit(vectors[generator.integers(len(vectors), size=empty.sum())])
        advance(1)
    return directions


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit


log = logging.getLogger(__name__)

# The original's menu, SQ4 and SQ8, in FAISS's words; PQ with a number of bytes is taken as well.
CODES = {"SQ4": "SQ4", "SQ8": "SQ8", "fp16": "SQfp16"}
# k-means wants so many training sentences a centroid (FAISS's guideline), at least and at most.
_LEAST = int(PER_CENTROID.low)
_PQ_CENTROIDS = 256
_ROWS_AT_ONCE = 1 << 16
# Lists grow by doubling while sentences are added.
_GROWTH = 1.5
# Recall is measured at these; searches take the first that finds this share of the 100 nearest.
PROBES = (1, 4, 16, 64, 256, 1024)
_RECALL = 0.95
_PROBED_SENTENCES, _PROBED_HITS = 100, 100
_LOCK = ".lock"


def make_index(
    bank: Bank,
    *,
    centroids: int | None = None,
    codes: str = "SQ8",
    pca: int | None = None,
    nprobe: int | None = None,
    per_centroid: int = 64,
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = False,
) -> Index:
    """Make the index of a bank, in the place of an earlier one. The bank itself stays as it is.

    Memory does not grow with the bank but for the index itself. An interrupted making leaves what
    there was before.

    Args:
        bank: whose sentences are to be found.
        centroids: cells; default: 4 times the root of the number of sentences, to a power of 2.
        codes: of a sentence in the index: `SQ4` and `SQ8` (bits a dimension), `fp16`, or `PQ` with
            the number of bytes of a sentence, such as `PQ32`.
        pca: dimensions kept; None: all.
        nprobe: cells that searches look at unless they say otherwise; default: as many as find
            0.95 of the 100 nearest of a probe of stored sentences.
        per_centroid: training sentences for each cell, 39 to 256.
        seed: of the training.
        threads: default: one per core.
        quiet: show no progress.

    Raises:
        InputError: an argument is wrong.
        TilthError: FAISS is not installed, or the disk is full.

    Reference:
        Du et al. 2020 (SentAugment), arXiv:2010.02194, whose indexes have 32,768 cells for 100 and
        262,144 for 1,000 million sentences. Inner products are of vectors that are not centred:
        FAISS's PCA would centre them, and rank them otherwise than cosines do.
    """
    faiss = load_faiss()
    asked = {
        "centroids": centroids, "codes": codes, "pca": pca, "nprobe": nprobe,
        "per_centroid": per_centroid, "seed": seed,
    }  # fmt: skip
    SEED.check("seed", seed)
    if threads is not None:
        CORES.check("threads", threads)
    plan = _plan(bank, centroids, codes, pca, nprobe, per_centroid)
    threads = threads or os.cpu_count() or 1
    folder = bank.path / FOLDER
    with disk_errors(folder):
        _remove_others(folder, _kept(bank.path))
    with faiss_threads(threads):
        built = _build(bank, plan, seed, quiet)
    ivf = faiss.extract_index_ivf(built)
    name, size, digest = _write(folder, built)
    head = size - len(bank) * (ivf.code_size + 8)
    about = About(
        asked=asked, factory=plan.factory, centroids=plan.centroids, codes=codes, pca=pca,
        nprobe=nprobe or plan.centroids, sentences=len(bank), shards=named_shards(bank.manifest),
        fingerprint=bank.manifest.fingerprint, file=name, bytes=size,
        head=(head, digest_head(folder / name, head)), digest=digest, recall=[],
        faiss=str(faiss.__version__),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )  # fmt: skip
    del built, ivf
    return Index(bank.path, about)


@contextmanager
def making(path: Path) -> Iterator[None]:
    """Hold the lock on the index of a bank while it is made, measured and kept.

    Raises:
        RunLocked: another process holds it.
    """
    folder = path / FOLDER
    begun = folder.exists()
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
        lock = open(folder / _LOCK, "ab")  # noqa: SIM115 - closed below
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunLocked(f"{folder}: another process makes this index: wait for it") from None
        with disk_errors(folder):
            remove_leftovers(folder)
        try:
            yield
        except InputError:
            if not begun:  # refused: nothing stays of it
                shutil.rmtree(folder)
            raise


def keep_index(index: Index, recall: list[dict[str, float]]) -> Index:
    """Make an index that is measured the bank's own; an earlier one goes."""
    about = replace(index.about, recall=recall)
    if about.asked["nprobe"] is None:
        good = [row for row in recall if row["recall_100"] >= _RECALL] or recall[-1:]
        about = replace(about, nprobe=int(good[0]["nprobe"]))
        if good[0]["recall_100"] < _RECALL:
            log.warning(
                "%s: even %d cells find only %.2f of the 100 nearest: take finer codes than %s, "
                "or more dimensions, or search with a larger nprobe or oversample",
                index.path, about.nprobe, good[0]["recall_100"], about.factory,
            )  # fmt: skip
    folder = index.path / FOLDER
    text = json.dumps({"version": VERSION, **asdict(about)}, indent=1, ensure_ascii=False)
    atomic_write(folder / ABOUT, lambda file: file.write(text.encode() + b"\n"))
    with disk_errors(folder):
        _remove_others(folder, about.file)
    said = ", ".join(f"{row['nprobe']:g}: {row['recall_100']:.3f}" for row in recall)
    log.info(
        "%s: recall@100 by nprobe: %s; searches take %d", index.path, said or "none", about.nprobe
    )
    index.about = about
    return index


def measure_recall(
    bank: Bank, index: Index, *, threads: int | None = None
) -> list[dict[str, float]]:
    """Search stored sentences' vectors by the index and exactly; return the recall by nprobe.

    A sentence itself does not count among what it finds.

    Args:
        bank: whose `search(index=True)` uses the index.
        index: to be measured.
        threads: see `Bank.search`.
    """
    own = _spread(len(bank), min(_PROBED_SENTENCES, len(bank)), seed=0)
    vectors = _decoded(open_shards(bank.path, bank.manifest), bank.codec, own)
    there = vectors.any(axis=1)
    own, vectors = own[there], vectors[there]
    k = min(_PROBED_HITS + 1, len(bank))
    exact = bank.search(vectors, k, threads=threads).ids
    most = index.about.centroids
    rows = []
    for nprobe in [*(probe for probe in PROBES if probe < most), *([most] * (most <= PROBES[-1]))]:
        begun = time.perf_counter()
        found = bank.search(vectors, k, index=True, nprobe=nprobe, threads=threads).ids
        seconds = time.perf_counter() - begun
        rows.append(
            {
                "nprobe": nprobe,
                "recall_10": round(_recall(exact, found, own, 10), 4),
                "recall_100": round(_recall(exact, found, own, 100), 4),
                "milliseconds": round(1000 * seconds / len(own), 3),
            }
        )
    return rows


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is built, once all arguments are known to be right."""

    factory: str
    centroids: int
    dimension: int
    pca: int | None
    sample: int


def _plan(
    bank: Bank,
    centroids: int | None,
    codes: str,
    pca: int | None,
    nprobe: int | None,
    per_centroid: int,
) -> _Plan:
    many, dimension = len(bank), bank.manifest.dimension
    PER_CENTROID.check("per_centroid", per_centroid)
    if centroids is None:
        most = max(1, many // _LEAST)
        centroids = min(2 ** round(np.log2(4 * np.sqrt(many))), 2 ** int(np.log2(most)))
    if not 1 <= centroids <= many:
        raise InputError(
            f"centroids is {centroids:,}: give 1 to {many:,}, as many as {bank.path} has sentences"
        )
    if many < _LEAST * centroids:
        log.warning(
            "%s: %s sentences train %s centroids badly: give %s or fewer",
            bank.path, f"{many:,}", f"{centroids:,}", f"{max(1, many // _LEAST):,}",
        )  # fmt: skip
    checked_nprobe(nprobe, centroids)
    if pca is not None and not 1 <= pca <= dimension:
        raise InputError(f"pca is {pca}: give 1 to {dimension}, the dimension of {bank.path}")
    kept = dimension if pca is None else pca
    sample = min(many, per_centroid * centroids)
    bytes_ = re.fullmatch(r"PQ([1-9][0-9]*)", codes)
    if codes not in CODES and not bytes_:
        raise InputError(f"codes {codes!r} are unknown: use one of {', '.join(CODES)}, PQ<bytes>")
    if bytes_ and kept % int(bytes_[1]):
        raise InputError(f"codes {codes}: their number must divide the {kept} dimensions kept")
    if many < (least := max(_PQ_CENTROIDS if bytes_ else 1, pca or 1)):
        raise InputError(
            f"{bank.path}: has {many:,} sentences, too few for codes {codes} and pca {pca}: that "
            f"needs {least:,}"
        )
    parts = [f"PCAR{pca}"] * (pca is not None) + [f"IVF{centroids}", CODES.get(codes, codes)]
    return _Plan(",".join(parts), centroids, kept, pca, max(sample, least))


def _build(bank: Bank, plan: _Plan, seed: int, quiet: bool) -> Any:
    """Return the index, trained and filled, in memory."""
    faiss = load_faiss()
    ivf = faiss.index_factory(
        plan.dimension, plan.factory.split(",", 1)[-1] if plan.pca else plan.factory,
        faiss.METRIC_INNER_PRODUCT,
    )  # fmt: skip
    _say_cost(bank, plan, ivf.code_size)
    shards = open_shards(bank.path, bank.manifest)
    sample = _decoded(shards, bank.codec, _spread(len(bank), plan.sample, seed))
    turn = None
    if plan.pca is not None:
        turn = faiss.PCAMatrix(bank.manifest.dimension, plan.pca, 0, True)
        turn.train(sample)
        # Centred, inner products would no longer rank as cosines do.
        faiss.copy_array_to_vector(np.zeros(plan.pca, np.float32), turn.b)
        sample = turn.apply(sample)
    with Progress(ITERATIONS, quiet=quiet, what="rounds of training") as progress:
        directions = find_directions(sample, plan.centroids, seed=seed, advance=progress.advance)
    ivf.quantizer.add(directions)
    if hasattr(ivf, "pq"):
        ivf.pq.cp.min_points_per_centroid = 1  # said before, in our words
    ivf.train(sample)
    del sample
    cells = Cells(directions)
    with Progress(len(bank), quiet=quiet, what="sentences") as progress:
        for start in range(0, len(bank), _ROWS_AT_ONCE):
            rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(bank)))
            vectors = _decoded(shards, bank.codec, rows)
            if turn is not None:
                vectors = turn.apply(vectors)
            owners = cells.nearest(vectors)
            pointers = [faiss.swig_ptr(array) for array in (vectors, rows, owners)]
            ivf.add_core(len(rows), *pointers)
            progress.advance(len(rows))
    return ivf if turn is None else faiss.IndexPreTransform(turn, ivf)


def _say_cost(bank: Bank, plan: _Plan, code_size: int) -> None:
    """Say what memory and time are needed; warn if memory will not do."""
    import torch

    from tilth.models.device import free_memory

    vectors = bank.manifest.dimension * (1 if plan.pca is None else 2)
    needed = int(_GROWTH * len(bank) * (code_size + 8)) + 4 * plan.sample * vectors
    rows, cells = 8192, min(plan.centroids, 1024)
    blank = np.ones((max(rows, cells), plan.dimension), np.float32)
    few = Cells(blank[:cells])
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        few.nearest(blank[:rows])
        seconds.append(time.perf_counter() - begun)
    each = min(seconds) / (rows * cells) * plan.centroids
    log.info(
        "%s: index %s of %s sentences: about %.1f GB of memory, %s to train, %s to add",
        bank.path, plan.factory, f"{len(bank):,}", needed / 1e9,
        _duration(each * plan.sample * ITERATIONS), _duration(each * len(bank)),
    )  # fmt: skip
    free = free_memory(torch.device("cpu"))
    if needed > free:
        log.warning(
            "%s: the index needs about %.1f GB of memory, %.1f GB are free: take SQ4, a smaller "
            "pca or fewer centroids", bank.path, needed / 1e9, free / 1e9,
        )  # fmt: skip


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _spread(many: int, count: int, seed: int) -> Ids:
    """Draw numbers of sentences, one of each of `count` equal stretches of the bank, in order."""
    places = np.random.default_rng(seed).random(count)
    drawn = ((np.arange(count) + places) * (many / count)).astype(np.int64)
    return np.minimum(drawn, many - 1)


def _decoded(shards: Sequence[OpenShard], codec: Codec, ids: Ids) -> Floats:
    """Return vectors of sentences, whose numbers ascend, from what a scan reads of them."""
    parts = []
    for shard in shards:
        own = ids[slice(*np.searchsorted(ids, [shard.first, shard.first + shard.sentences]))]
        if len(own):
            rows = own - shard.first
            parts.append(codec.decode(Codes(shard.codes[rows], shard.scales[rows], None)))
    return np.ascontiguousarray(np.concatenate(parts), np.float32)  # (ids, dimension)


def _recall(exact: Ids, found: Ids, own: Ids, k: int) -> float:
    """Return which part of the k nearest is found among k, the sentences themselves aside."""
    shares = []
    for right, row, number in zip(exact, found, own, strict=True):
        wanted = right[(right != number) & (right >= 0)][:k]
        got = row[row != number][:k]
        shares.append(np.isin(wanted, got).mean() if len(wanted) else 1.0)
    return float(np.mean(shares)) if shares else 1.0


def _write(folder: Path, index: Any) -> tuple[str, int, str]:
    """Write the index's file under a name of its own; return the name, its bytes and blake2b."""
    faiss = load_faiss()
    temporary = folder / f"{TEMPORARY}{os.getpid()}.faiss"
    try:
        with disk_errors(temporary):
            try:
                faiss.write_index(index, str(temporary))
            except RuntimeError as error:
                raise TilthError(
                    f"{temporary}: cannot be written ({one_line(error)}): free some space or "
                    "change the permissions, and make the index again"
                ) from error
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            size, digest = checksum(temporary)
            name = f"{digest[:16]}.faiss"
            os.replace(temporary, folder / name)
            sync_folder(folder)
    finally:
        temporary.unlink(missing_ok=True)
    return name, size, digest


def _kept(path: Path) -> str | None:
    try:
        return read_about(path).file
    except TilthError:
        return None


def _remove_others(folder: Path, name: str | None) -> None:
    """Remove index files that index.json does not name: earlier ones, and of killed processes."""
    for file in folder.glob("*.faiss"):
        if file.name != name:
            file.unlink(missing_ok=True)

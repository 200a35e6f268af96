"""Build the index of a bank: train centroids on a sample, add all sentences, measure recall."""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from tilth.bank.manifest import checksum
from tilth.bank.quantization import Codes, Floats
from tilth.bank.search.ivf import (
    INDEX,
    INDEX_JSON,
    VERSION,
    Index,
    IndexInfo,
    check_nprobe,
    faiss_threads,
    load_faiss,
    named_shards,
)
from tilth.bank.settings import IndexSettings, core_count
from tilth.bank.store import Ids, Store
from tilth.errors import InputError, TilthError, one_line
from tilth.files import (
    TEMPORARY,
    check_writable,
    disk_errors,
    remove_leftovers,
    sync_folder,
    write_json,
)
from tilth.limits import CORES, PER_CENTROID
from tilth.models import device
from tilth.runs import Progress, lock_folder
from tilth.storage import push, remove

log = logging.getLogger(__name__)

# As FAISS trains its inverted lists.
_ITERATIONS = 10
# The menu of SentAugment, SQ4 and SQ8, as factory strings; PQ with a number of bytes as well.
_CODES = {"SQ4": "SQ4", "SQ8": "SQ8", "fp16": "SQfp16"}
# Least training sentences per centroid (FAISS's guideline); it takes no more than 256 of each.
_LEAST = int(PER_CENTROID.low)
_PQ_CENTROIDS = 256
_ROWS_AT_ONCE = 1 << 16
# Lists grow by doubling while sentences are added.
_GROWTH = 1.5
# Recall is measured at these nprobe; the default is the first that reaches this recall@100.
PROBES = (1, 4, 16, 64, 256, 1024)
_RECALL = 0.95
_PROBED_SENTENCES, _PROBED_HITS = 100, 100

Search: TypeAlias = Callable[[Floats, int, "Index | None", "int | None"], Ids]
"""(vectors, k, index or None for a scan, nprobe) -> ids, # (queries, k)"""


def build_index(
    store: Store,
    settings: IndexSettings,
    search: Search,
    *,
    threads: int | None = None,
    quiet: bool = False,
) -> Index:
    """Train, fill, write and measure an index, then replace an earlier one.

    Vectors are not centred: FAISS's PCA would centre them, and inner products would no longer rank
    as cosines do. `search` measures recall, by the index and by a scan.
    """
    faiss = load_faiss()
    if threads is not None:
        CORES.check("threads", threads)
    plan = _plan(store, settings)
    folder = store.path / INDEX
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
        check_writable(folder)
    with lock_folder(folder):
        remove_leftovers(folder)
        with faiss_threads(threads or core_count()):
            built = _train_and_fill(store, plan, settings.seed, quiet)
        name, size, digest = _write(folder, built)
        head = size - len(store) * (faiss.extract_index_ivf(built).code_size + 8)
        del built
        info = IndexInfo(
            asked=asdict(settings), factory=plan.factory, centroids=plan.centroids,
            codes=settings.codes, pca=settings.pca, nprobe=settings.nprobe or plan.centroids,
            sentences=len(store), shards=named_shards(store.manifest),
            fingerprint=store.manifest.fingerprint, file=name, bytes=size,
            head=(head, checksum(folder / name, head)[1]), digest=digest, recall=[],
            faiss=str(faiss.__version__),
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )  # fmt: skip
        index = Index(store.path, info)
        index.info = _measured(store.path, info, _measure_recall(store, index, search))
        push(folder, clean=False)
        write_json(folder / INDEX_JSON, {"version": VERSION, **asdict(index.info)})
        with disk_errors(folder):  # earlier ones, and those of killed processes
            for file in folder.glob("*.faiss"):
                if file.name != name:
                    remove(file)
    return index


@dataclass(frozen=True, slots=True)
class _Plan:
    """The validated settings of a build."""

    factory: str
    centroids: int
    dimension: int
    pca: int | None
    sample: int


def _plan(store: Store, settings: IndexSettings) -> _Plan:
    many, dimension = len(store), store.manifest.dimension
    centroids, codes, pca = settings.centroids, settings.codes, settings.pca
    if centroids is None:
        most = max(1, many // _LEAST)
        centroids = min(2 ** round(np.log2(4 * np.sqrt(many))), 2 ** int(np.log2(most)))
    if not 1 <= centroids <= many:
        raise InputError(
            f"centroids is {centroids:,}: give 1 to {many:,}, as many as {store.path} has sentences"
        )
    if centroids > 1 and many < _LEAST * centroids:
        log.warning(
            "%s: %s sentences train %s centroids badly: give %s or fewer",
            store.path, f"{many:,}", f"{centroids:,}", f"{max(1, many // _LEAST):,}",
        )  # fmt: skip
    check_nprobe(settings.nprobe, centroids)
    if pca is not None and not 1 <= pca <= dimension:
        raise InputError(f"pca is {pca}: give 1 to {dimension}, the dimension of {store.path}")
    kept = dimension if pca is None else pca
    product = re.fullmatch(r"PQ([1-9][0-9]*)", codes)
    if codes not in _CODES and not product:
        raise InputError(f"codes {codes!r} are unknown: use one of {', '.join(_CODES)}, PQ<bytes>")
    if product and kept % int(product[1]):
        raise InputError(f"codes {codes}: their number must divide the {kept} dimensions kept")
    if many < (least := max(_PQ_CENTROIDS if product else 1, pca or 1)):
        raise InputError(
            f"{store.path}: has {many:,} sentences, too few for codes {codes} and pca {pca}: that "
            f"needs {least:,}"
        )
    parts = [f"PCAR{pca}"] * (pca is not None) + [f"IVF{centroids}", _CODES.get(codes, codes)]
    sample = max(min(many, settings.per_centroid * centroids), least)
    return _Plan(",".join(parts), centroids, kept, pca, sample)


def _train_and_fill(store: Store, plan: _Plan, seed: int, quiet: bool) -> Any:
    """Return the trained and filled index, in memory."""
    faiss = load_faiss()
    factory = plan.factory.split(",", 1)[1] if plan.pca else plan.factory
    ivf = faiss.index_factory(plan.dimension, factory, faiss.METRIC_INNER_PRODUCT)
    _check_memory(store, plan, ivf.code_size)
    sample = _decoded(store, _spread(len(store), plan.sample, seed))
    pca = None
    if plan.pca is not None:
        pca = faiss.PCAMatrix(store.manifest.dimension, plan.pca, 0, True)
        pca.train(sample)
        # Centred, inner products would no longer rank as cosines do.
        faiss.copy_array_to_vector(np.zeros(plan.pca, np.float32), pca.b)
        sample = pca.apply(sample)
    kmeans = faiss.Kmeans(
        plan.dimension, plan.centroids, niter=1, spherical=True, min_points_per_centroid=1,
        seed=seed % 2**31 + 1,
    )  # fmt: skip
    with Progress(_ITERATIONS, quiet=quiet, what="iterations of k-means") as progress:
        for _ in range(_ITERATIONS):
            kmeans.train(sample, init_centroids=kmeans.centroids)
            progress.advance(1)
    ivf.quantizer.add(kmeans.centroids)
    if hasattr(ivf, "pq"):
        ivf.pq.cp.min_points_per_centroid = 1  # `_plan` warns of too few
    ivf.train(sample)
    del sample
    index = ivf if pca is None else faiss.IndexPreTransform(pca, ivf)
    with Progress(len(store), quiet=quiet, what="sentences") as progress:
        for start in range(0, len(store), _ROWS_AT_ONCE):
            rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(store)))
            index.add(_decoded(store, rows))
            progress.advance(len(rows))
    return index


def _check_memory(store: Store, plan: _Plan, code_size: int) -> None:
    """Log the memory that the index needs; warn if too little is free."""
    vectors = store.manifest.dimension * (1 if plan.pca is None else 2)
    needed = int(_GROWTH * len(store) * (code_size + 8)) + 4 * plan.sample * vectors
    log.info(
        "%s: index %s of %s sentences: about %.1f GB of memory",
        store.path, plan.factory, f"{len(store):,}", needed / 1e9,
    )  # fmt: skip
    free = device.free_memory(torch.device("cpu"))
    if needed > free:
        log.warning(
            "%s: the index needs about %.1f GB of memory, %.1f GB are free: take SQ4, a smaller "
            "pca or fewer centroids", store.path, needed / 1e9, free / 1e9,
        )  # fmt: skip


def _spread(many: int, count: int, seed: int) -> Ids:
    """Draw one sentence id from each of `count` equal ranges of the bank, in order."""
    places = np.random.default_rng(seed).random(count)
    drawn = ((np.arange(count) + places) * (many / count)).astype(np.int64)
    return np.minimum(drawn, many - 1)


def _decoded(store: Store, ids: Ids) -> Floats:
    """Return vectors of ascending ids, decoded from the codes that a scan reads."""
    parts = []
    for shard in store.shards:
        own = ids[slice(*np.searchsorted(ids, [shard.first, shard.first + shard.sentences]))]
        if len(own):
            rows = own - shard.first
            codes = Codes(shard.codes[rows], shard.scales[rows], None)
            parts.append(store.quantizer.decode(codes))
    return np.ascontiguousarray(np.concatenate(parts), np.float32)  # (ids, dimension)


def _measure_recall(store: Store, index: Index, search: Search) -> list[dict[str, float]]:
    """Return the recall by nprobe for stored sentences; a sentence is not its own hit."""
    own = _spread(len(store), min(_PROBED_SENTENCES, len(store)), seed=0)
    vectors = _decoded(store, own)
    has_vector = vectors.any(axis=1)
    own, vectors = own[has_vector], vectors[has_vector]
    k = min(_PROBED_HITS + 1, len(store))
    exact = search(vectors, k, None, None)
    most = index.info.centroids
    rows = []
    for nprobe in [*(probe for probe in PROBES if probe < most), *([most] * (most <= PROBES[-1]))]:
        begun = time.perf_counter()
        found = search(vectors, k, index, nprobe)
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


def _recall(exact: Ids, found: Ids, own: Ids, k: int) -> float:
    """Return the mean recall at k, without the sentences themselves."""
    shares = []
    for right, row, number in zip(exact, found, own, strict=True):
        wanted = right[(right != number) & (right >= 0)][:k]
        got = row[row != number][:k]
        shares.append(np.isin(wanted, got).mean() if len(wanted) else 1.0)
    return float(np.mean(shares)) if shares else 1.0


def _measured(path: Path, info: IndexInfo, recall: list[dict[str, float]]) -> IndexInfo:
    """Return the info with its recall and, if none was given, the chosen nprobe."""
    info = replace(info, recall=recall)
    if info.asked["nprobe"] is None:
        good = [row for row in recall if row["recall_100"] >= _RECALL] or recall[-1:]
        info = replace(info, nprobe=int(good[0]["nprobe"]))
        if good[0]["recall_100"] < _RECALL:
            log.warning(
                "%s: even %d cells find only %.2f of the 100 nearest: take finer codes than %s, "
                "or more dimensions, or search with a larger nprobe or oversample",
                path, info.nprobe, good[0]["recall_100"], info.factory,
            )  # fmt: skip
    shown = ", ".join(f"{row['nprobe']:g}: {row['recall_100']:.3f}" for row in recall)
    log.info("%s: recall@100 by nprobe: %s; default %d", path, shown or "none", info.nprobe)
    return info


def _write(folder: Path, index: Any) -> tuple[str, int, str]:
    """Write the index's file under a unique name; return name, bytes and blake2b."""
    faiss = load_faiss()
    temporary = folder / f"{TEMPORARY}{secrets.token_hex(4)}"
    try:
        with disk_errors(folder):
            faiss.write_index(index, str(temporary))
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            size, digest = checksum(temporary)
            name = f"{digest[:16]}.faiss"
            os.replace(temporary, folder / name)
            sync_folder(folder)
    except RuntimeError as error:  # of faiss, for a reason that the system did not name
        raise TilthError(
            f"{temporary}: cannot be written ({one_line(error)[-160:]}): free some space or change "
            "the permissions, and make the index again"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return name, size, digest

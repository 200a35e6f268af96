"""An inverted index beside a bank: many queries look at a few cells instead of all sentences.

    BANK/index/
      index.json           what was asked, which shards it covers, its file, recall by nprobe
      NAME.faiss           the index; read through a map of the file, so it may exceed memory

What the index proposes is scored again as after a scan, so that similarities are the same; what
was added to the bank after the index was made is scanned. This is the one home of FAISS.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tilth.bank.cells import ITERATIONS, Cells, find_directions
from tilth.bank.codes import Codec, Codes, Floats
from tilth.bank.search import Chosen, Ids, find
from tilth.bank.store import Manifest, OpenShard, checksum, open_shards
from tilth.errors import InputError, TilthError
from tilth.runs import Progress, RunLocked
from tilth.runs.files import TEMPORARY, disk_errors, sync_folder, write_whole

if TYPE_CHECKING:
    from tilth.bank.bank import Bank

log = logging.getLogger(__name__)

FOLDER, ABOUT, VERSION = "index", "index.json", 1
_LOCK = ".lock"
# The original's menu, SQ4 and SQ8, in FAISS's words; PQ with a number of bytes is taken as well.
CODES = {"SQ4": "SQ4", "SQ8": "SQ8", "fp16": "SQfp16"}
# How many candidates are scored again for each one wanted, by how coarse the codes are.
_OVERSAMPLE = {"SQ4": 6.0, "SQ8": 1.5, "fp16": 1.2}
_OVERSAMPLE_COARSE = 10.0
# k-means wants so many training sentences a centroid (FAISS's guideline), at least and at most.
_LEAST, _MOST = 39, 256
_PQ_CENTROIDS = 256
_ROWS_AT_ONCE = 1 << 16
_HITS_AT_ONCE = 1 << 25
# Lists grow by doubling while sentences are added.
_GROWTH = 1.5
# Recall is measured at these; searches take the first that finds this share of the 100 nearest.
PROBES = (1, 4, 16, 64, 256, 1024)
_RECALL = 0.95
_PROBED_SENTENCES, _PROBED_HITS = 100, 100
_WIDEN = 4


@dataclass(frozen=True, slots=True)
class About:
    """What index.json says.

    Attributes:
        asked: the arguments of `make_index`.
        factory: the index in FAISS's words.
        centroids: how many cells there are.
        codes: see `make_index`.
        pca: see there.
        nprobe: cells looked at unless a search says otherwise.
        sentences: covered.
        shards: covered, in their order: names, and digests of their codes.
        fingerprint: of the bank's encoder.
        file: name of the index's file.
        bytes: of the file.
        head: bytes before the sentences' codes; blake2b of them.
        digest: blake2b of the file.
        recall: rows of nprobe, recall_10, recall_100 and milliseconds a query.
        faiss: version.
        created: when, in UTC.
    """

    asked: dict[str, Any]
    factory: str
    centroids: int
    codes: str
    pca: int | None
    nprobe: int
    sentences: int
    shards: list[list[str]]
    fingerprint: str
    file: str
    bytes: int
    head: tuple[int, str]
    digest: str
    recall: list[dict[str, float]]
    faiss: str
    created: str


class Index:
    """An index that is open.

    Attributes:
        path: of the bank.
        about: what index.json says.
    """

    def __init__(self, path: Path, about: About) -> None:
        self.path, self.about = path, about
        self._index = _read(path / FOLDER / about.file, about)

    @classmethod
    def open(cls, path: Path, manifest: Manifest) -> Index:
        """Open the index of a bank.

        Raises:
            InputError: there is none, or it was made of another bank or encoder.
            TilthError: a file of it is missing or damaged.
        """
        _faiss()
        about = read_about(path)
        if (
            about.fingerprint != manifest.fingerprint
            or about.shards != _named(manifest)[: len(about.shards)]
        ):
            raise InputError(
                f"{path / FOLDER}: was made of another bank than the one in {path}: make the index "
                "again"
            )
        return cls(path, about)

    @property
    def oversample(self) -> float:
        """How many candidates are to be scored again for each one wanted."""
        if self.about.pca is not None:
            return _OVERSAMPLE_COARSE
        return _OVERSAMPLE.get(self.about.codes, _OVERSAMPLE_COARSE)

    def nprobe(self, asked: int | None) -> int:
        """Return how many cells are looked at.

        Raises:
            InputError: too few or too many are asked for.
        """
        return _checked_nprobe(asked, self.about.centroids) or self.about.nprobe

    def find(
        self,
        shards: Sequence[OpenShard],
        codec: Codec,
        queries: Floats,
        wanted: int,
        best: int,
        *,
        nprobe: int,
        threads: int,
        least: float | None = None,
        chosen: Chosen | None = None,
    ) -> Ids:
        """Return candidates of each query: the best of the cells looked at.

        A query whose cells hold fewer than it wants looks at more of them, so that nobody gets
        fewer hits than there are. Sentences that the index does not cover are scanned.

        Args:
            shards: of the bank, all.
            codec: of the bank.
            queries: L2-normalised. # (queries, dimension)
            wanted: candidates that each needs if there are so many.
            best: candidates that each may have.
            nprobe: cells that each looks at.
            threads: how many work; the answer does not depend on it.
            least: see `tilth.bank.search.find`.
            chosen: see there.

        Returns:
            -1 behind the last of each part, # (queries, candidates)
        """
        covered, rest = shards[: len(self.about.shards)], shards[len(self.about.shards) :]
        parts = [self._probe(covered, queries, wanted, best, nprobe, threads, chosen)]
        if rest:
            new = sum(shard.sentences for shard in rest)
            log.info(
                "%s: %s sentences were added after the index was made and are scanned: make it "
                "again to have them in it", self.path, f"{new:,}",
            )  # fmt: skip
            scanned = find(
                rest, codec, queries, min(best, new), threads=threads, least=least, chosen=chosen
            )
            parts.append(scanned.ids)
        return np.concatenate(parts, axis=1)

    def _probe(
        self,
        shards: Sequence[OpenShard],
        queries: Floats,
        wanted: int,
        best: int,
        nprobe: int,
        threads: int,
        chosen: Chosen | None,
    ) -> Ids:
        mask = _mask(shards, chosen)
        there = self.about.sentences if mask is None else int(mask.sum())
        best = min(best, there)
        ids = np.full((len(queries), best), -1, np.int64)
        rows = np.arange(len(queries) if best else 0)
        at_once = max(1, _HITS_AT_ONCE // max(best, 1))
        with _threads(threads):
            while len(rows):
                how = _parameters(self._index, nprobe, mask)
                for start in range(0, len(rows), at_once):
                    some = rows[start : start + at_once]
                    ids[some] = self._index.search(queries[some], best, params=how)[1]
                if nprobe == self.about.centroids:
                    break
                rows = rows[(ids[rows] >= 0).sum(axis=1) < min(wanted, there)]
                nprobe = min(_WIDEN * nprobe, self.about.centroids)
        if ids.size and ids.max() >= self.about.sentences:
            raise TilthError(_broken(self.path / FOLDER / self.about.file))
        return ids


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
    faiss = _faiss()
    asked = {
        "centroids": centroids, "codes": codes, "pca": pca, "nprobe": nprobe,
        "per_centroid": per_centroid, "seed": seed,
    }  # fmt: skip
    plan = _plan(bank, centroids, codes, pca, nprobe, per_centroid)
    threads = threads or os.cpu_count() or 1
    folder = bank.path / FOLDER
    with disk_errors(folder):
        _remove_others(folder, _kept(bank.path))
    with _threads(threads):
        built = _build(bank, plan, seed, quiet)
    ivf = faiss.extract_index_ivf(built)
    name, size, digest = _write(folder, built)
    head = size - len(bank) * (ivf.code_size + 8)
    about = About(
        asked=asked, factory=plan.factory, centroids=plan.centroids, codes=codes, pca=pca,
        nprobe=nprobe or plan.centroids, sentences=len(bank), shards=_named(bank.manifest),
        fingerprint=bank.manifest.fingerprint, file=name, bytes=size,
        head=(head, _digest_head(folder / name, head)), digest=digest, recall=[],
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
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
        lock = open(folder / _LOCK, "ab")  # noqa: SIM115 - closed below
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunLocked(f"{folder}: another process makes this index: wait for it") from None
        yield


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
    write_whole(folder / ABOUT, lambda file: _put(file, text.encode() + b"\n"))
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


def read_about(path: Path) -> About:
    """Read what a bank's index.json says.

    Raises:
        InputError: there is no index, or it is of a later version.
        TilthError: the file is damaged.
    """
    file = path / FOLDER / ABOUT
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        version = found.pop("version")
        if version == VERSION:
            about = About(**{**found, "head": tuple(found["head"])})
            if Path(about.file).name == about.file:  # none is read but from the bank's own folder
                return about
    except FileNotFoundError:
        raise InputError(
            f"{path}: has no index: make one with Bank.make_index, or search without"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TilthError(f"{file}: cannot be read ({error}): make the index again") from error
    if version != VERSION:
        raise InputError(f"{file}: is of version {version}, this tilth reads {VERSION}")
    raise TilthError(f"{file}: is not what tilth wrote: make the index again")


def damaged_index(path: Path) -> list[str]:
    """Read every byte of a bank's index; return a line if it is not as it was written."""
    if not (path / FOLDER / ABOUT).exists():
        return []
    try:
        about = read_about(path)
        file = path / FOLDER / about.file
        if checksum(file) != (about.bytes, about.digest):
            return [_broken(file)]
    except TilthError as error:
        return [str(error)]
    except OSError as error:
        return [f"{file}: cannot be read ({error.strerror or error})"]
    return []


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
    if not _LEAST <= per_centroid <= _MOST:
        raise InputError(f"per_centroid is {per_centroid}: give {_LEAST} to {_MOST}")
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
    _checked_nprobe(nprobe, centroids)
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
    faiss = _faiss()
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
    free = _free_memory()
    if free is not None and needed > free:
        log.warning(
            "%s: the index needs about %.1f GB of memory, %.1f GB are free: take SQ4, a smaller "
            "pca or fewer centroids", bank.path, needed / 1e9, free / 1e9,
        )  # fmt: skip


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _free_memory() -> int | None:
    """Return the bytes that can be had, where Linux says so."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


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


def _mask(shards: Sequence[OpenShard], chosen: Chosen | None) -> NDArray[np.bool_] | None:
    """Return which covered sentences are looked at; None: all."""
    if chosen is None:
        return None
    masks = [
        np.ones(shard.sentences, np.bool_) if (mask := chosen(shard)) is None else mask
        for shard in shards
    ]
    return np.concatenate(masks)


def _parameters(index: Any, nprobe: int, mask: NDArray[np.bool_] | None) -> Any:
    """Say how to search: given with each call, so that nothing set before it counts."""
    faiss = _faiss()
    options = {}
    if mask is not None:
        options["sel"] = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
    inner = faiss.SearchParametersIVF(nprobe=nprobe, **options)
    if isinstance(index, faiss.IndexPreTransform):
        return faiss.SearchParametersPreTransform(index_params=inner)
    return inner


def _checked_nprobe(nprobe: int | None, centroids: int) -> int | None:
    if nprobe is not None and not 1 <= nprobe <= centroids:
        raise InputError(
            f"nprobe is {nprobe:,}: give 1 to {centroids:,}, the centroids of the index"
        )
    return nprobe


def _named(manifest: Manifest) -> list[list[str]]:
    return [[shard.name, shard.files["codes.npy"][1]] for shard in manifest.shards]


def _write(folder: Path, index: Any) -> tuple[str, int, str]:
    """Write the index's file under a name of its own; return the name, its bytes and blake2b."""
    faiss = _faiss()
    temporary = folder / f"{TEMPORARY}{os.getpid()}.faiss"
    try:
        with disk_errors(temporary):
            try:
                faiss.write_index(index, str(temporary))
            except RuntimeError as error:
                raise TilthError(
                    f"{temporary}: cannot be written ({_one_line(error)}): free some space or "
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


def _read(file: Path, about: About) -> Any:
    """Map an index's file, after a look at its size and at all that tells where its lists lie."""
    faiss = _faiss()
    try:
        same = file.stat().st_size == about.bytes
        if not same or _digest_head(file, about.head[0]) != about.head[1]:
            raise TilthError(_broken(file))
        index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
    except OSError as error:
        raise TilthError(
            f"{file}: cannot be read ({error.strerror}): make the index again"
        ) from error
    except RuntimeError as error:
        raise TilthError(
            f"{file}: FAISS {faiss.__version__} cannot read it ({_one_line(error)}): make the "
            "index again"
        ) from error
    ivf = faiss.extract_index_ivf(index)
    lists = faiss.downcast_InvertedLists(ivf.invlists)
    if hasattr(lists, "prefetch_nthread"):
        lists.prefetch_nthread = 0  # threads made anew for every search cost more than they bring
    return index


def _digest_head(file: Path, size: int) -> str:
    digest = blake2b(digest_size=16)
    with open(file, "rb") as opened:
        while size > 0 and (block := opened.read(min(size, 1 << 22))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _broken(file: Path) -> str:
    return f"{file}: is not what was written: make the index again"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[-160:]


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


@contextmanager
def _threads(count: int) -> Iterator[None]:
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _faiss() -> Any:
    """Import FAISS.

    Raises:
        TilthError: it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of its wrapper, on import
            import faiss
    except ImportError as error:
        raise TilthError(
            'an index needs FAISS, which is not installed: pip install "tilth[index]", or search '
            "without the index"
        ) from error
    return faiss

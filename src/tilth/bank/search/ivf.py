"""Search a bank's inverted index (FAISS IVF), where each query visits a few cells.

    BANK/index/
      index.json           settings, the shards it covers, its file, recall by nprobe
      NAME.faiss           the index; memory-mapped, so it may exceed memory

Candidates are rescored as after a scan, so similarities are the same. Sentences added after the
index was made are scanned. No other module imports FAISS.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.bank.manifest import Manifest, checksum, from_json
from tilth.bank.quantization import Floats
from tilth.bank.store import Ids, MappedShard, Selected, Store
from tilth.errors import InputError, TilthError, one_line
from tilth.files import check_input

log = logging.getLogger(__name__)

INDEX, INDEX_JSON, VERSION = "index", "index.json", 1
# Candidates rescored per hit, by how coarse the codes are.
_OVERSAMPLE = {"SQ4": 6.0, "SQ8": 1.5, "fp16": 1.2}
_OVERSAMPLE_COARSE = 10.0
_HITS_AT_ONCE = 1 << 25
# Visiting a sentence of a cell costs as much as scanning so many (2.65 million sentences, 150
# queries: `python benchmarks/bank.py index`).
_VISIT = 8
_WIDEN = 4


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """The content of index.json.

    Attributes:
        asked: settings of `Bank.make_index`.
        factory: FAISS factory string.
        nprobe: cells that a search visits by default.
        shards: name and codes digest of each covered shard, in order.
        head: number and blake2b of the bytes before the sentences' codes.
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
    """An open index of a bank."""

    def __init__(self, path: Path, info: IndexInfo) -> None:
        self.path, self.info = path, info
        self._index = _read(path / INDEX / info.file, info)

    @classmethod
    def open(cls, path: Path, manifest: Manifest) -> Index:
        """Open the index of a bank."""
        load_faiss()
        info = read_info(path)
        covered = manifest.shards[: len(info.shards)]
        if (
            info.fingerprint != manifest.fingerprint
            or info.shards != named_shards(manifest)[: len(info.shards)]
            or info.sentences != sum(shard.sentences for shard in covered)
        ):
            raise InputError(
                f"{path / INDEX}: was made of another bank than the one in {path}: make the index "
                "again"
            )
        return cls(path, info)

    @property
    def oversample(self) -> float:
        """Return the number of candidates to rescore per hit."""
        if self.info.pca is not None:
            return _OVERSAMPLE_COARSE
        return _OVERSAMPLE.get(self.info.codes, _OVERSAMPLE_COARSE)

    def nprobe(
        self, asked: int | None, store: Store, selected: Selected | None = None
    ) -> int | None:
        """Return the number of cells to visit; None: scanning the selected sentences costs less.

        Where a share of the sentences is selected, the nearest are spread over more cells: the
        index's default, where none is asked for, grows by as much.
        """
        check_nprobe(asked, self.info.centroids)
        if asked is not None or selected is None:
            return asked or self.info.nprobe
        count = int(_mask(store.shards[: len(self.info.shards)], selected).sum())
        share = self.info.nprobe / self.info.centroids  # of the sentences, which a query visits
        if count <= _VISIT * share * self.info.sentences:
            return None
        return min(-(-self.info.nprobe * self.info.sentences // count), self.info.centroids)

    def find_candidates(
        self,
        store: Store,
        queries: Floats,
        wanted: int,
        candidates: int,
        *,
        nprobe: int,
        threads: int,
        selected: Selected | None = None,
    ) -> Ids:
        """Return the best candidates of the cells that each query visits.

        A query that finds fewer than `wanted` candidates visits more cells. Sentences that the
        index does not cover are scanned.

        Args:
            queries: L2-normalised. # (queries, dimension)
            wanted: minimum per query, if that many exist.
            candidates: maximum per query.

        Returns:
            Ids; -1 after the last of each part. # (queries, candidates)
        """
        from tilth.bank.search.exact import find_candidates  # not above: numba

        count = len(self.info.shards)
        covered, rest = store.shards[:count], store.shards[count:]
        mask = None if selected is None else _mask(covered, selected)
        parts = [self._visit(queries, wanted, candidates, nprobe, threads, mask)]
        if rest:
            new = sum(shard.sentences for shard in rest)
            log.info(
                "%s: %s sentences were added after the index was made and are scanned: make it "
                "again to have them in it", self.path, f"{new:,}",
            )  # fmt: skip
            candidates = min(candidates, new)
            parts.append(
                find_candidates(
                    rest, store.quantizer, queries, candidates, threads=threads, selected=selected
                )
            )
        return np.concatenate(parts, axis=1)

    def _visit(
        self,
        queries: Floats,
        wanted: int,
        candidates: int,
        nprobe: int,
        threads: int,
        mask: NDArray[np.bool_] | None,
    ) -> Ids:
        available = self.info.sentences if mask is None else int(mask.sum())
        candidates = min(candidates, available)
        ids = np.full((len(queries), candidates), -1, np.int64)
        rows = np.arange(len(queries) if candidates else 0)
        at_once = max(1, _HITS_AT_ONCE // max(candidates, 1))
        with faiss_threads(threads):
            while len(rows):
                parameters = _parameters(self._index, nprobe, mask)
                for start in range(0, len(rows), at_once):
                    some = rows[start : start + at_once]
                    ids[some] = self._index.search(queries[some], candidates, params=parameters)[1]
                if nprobe == self.info.centroids:
                    break
                rows = rows[(ids[rows] >= 0).sum(axis=1) < min(wanted, available)]
                nprobe = min(_WIDEN * nprobe, self.info.centroids)
        if ids.size and ids.max() >= self.info.sentences:
            raise TilthError(_broken(self.path / INDEX / self.info.file))
        return ids


def read_info(path: Path) -> IndexInfo:
    """Read the index.json of a bank."""
    file = path / INDEX / INDEX_JSON
    check_input(file)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        version = found.pop("version")
        if version == VERSION:
            info: IndexInfo = from_json(IndexInfo, found)
            # No file outside the bank's own folder is read.
            if (
                Path(info.file).name == info.file
                and 1 <= info.nprobe <= info.centroids
                and min(info.sentences, info.bytes, info.head[0]) >= 0
                and all(len(shard) == 2 for shard in info.shards)
            ):
                return info
    except FileNotFoundError:
        raise InputError(
            f"{path}: has no index: make one (tilth bank index, Bank.make_index), or search without"
        ) from None
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise TilthError(f"{file}: cannot be read ({error}): make the index again") from error
    if version != VERSION:
        raise InputError(f"{file}: is of version {version}, this tilth reads {VERSION}")
    raise TilthError(f"{file}: is not what tilth wrote: make the index again")


def damaged_index(path: Path) -> list[str]:
    """Verify the checksum of a bank's index; return a line if it is damaged."""
    if not (path / INDEX / INDEX_JSON).exists():
        return []
    try:
        info = read_info(path)
        file = path / INDEX / info.file
        return [] if checksum(file) == (info.bytes, info.digest) else [_broken(file)]
    except TilthError as error:
        return [str(error)]
    except OSError as error:
        return [f"{file}: cannot be read ({error.strerror or error})"]


def _mask(shards: Sequence[MappedShard], selected: Selected) -> NDArray[np.bool_]:
    masks = [
        np.ones(shard.sentences, np.bool_) if (mask := selected(shard)) is None else mask
        for shard in shards
    ]
    return np.concatenate(masks)


def _parameters(index: Any, nprobe: int, mask: NDArray[np.bool_] | None) -> Any:
    """Return FAISS's search parameters for one call."""
    faiss = load_faiss()
    options = {}
    if mask is not None:
        options["sel"] = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
    inner = faiss.SearchParametersIVF(nprobe=int(nprobe), **options)
    if isinstance(index, faiss.IndexPreTransform):
        return faiss.SearchParametersPreTransform(index_params=inner)
    return inner


def check_nprobe(nprobe: int | None, centroids: int) -> None:
    """Raise InputError unless nprobe is None or 1 to the number of centroids."""
    is_whole = isinstance(nprobe, int | np.integer) and not isinstance(nprobe, bool)
    if nprobe is not None and not (is_whole and 1 <= nprobe <= centroids):
        given = f"{nprobe:,}" if is_whole else repr(nprobe)
        raise InputError(f"nprobe is {given}: give 1 to {centroids:,}, the centroids of the index")


def named_shards(manifest: Manifest) -> list[list[str]]:
    """Return the shards of a bank as index.json names them."""
    return [[shard.name, shard.files["codes.npy"][1]] for shard in manifest.shards]


def _read(file: Path, info: IndexInfo) -> Any:
    """Map an index's file after checking its size and the bytes that locate its lists."""
    faiss = load_faiss()
    try:
        if file.stat().st_size != info.bytes or checksum(file, info.head[0])[1] != info.head[1]:
            raise TilthError(_broken(file))
        index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
    except OSError as error:
        raise TilthError(
            f"{file}: cannot be read ({error.strerror}): make the index again"
        ) from error
    except RuntimeError as error:
        raise TilthError(
            f"{file}: FAISS {faiss.__version__} cannot read it ({one_line(error)[-160:]}): "
            "make the index again"  # the end of its message names the cause
        ) from error
    ivf = faiss.extract_index_ivf(index)
    if (ivf.nlist, ivf.ntotal) != (info.centroids, info.sentences):
        raise TilthError(_broken(file))
    lists = faiss.downcast_InvertedLists(ivf.invlists)
    if hasattr(lists, "prefetch_nthread"):
        lists.prefetch_nthread = 0  # starting threads for every search costs more than it saves
    return index


def _broken(file: Path) -> str:
    return f"{file}: is not what was written: make the index again"


@contextmanager
def faiss_threads(count: int) -> Iterator[None]:
    """Set FAISS's number of threads within the context."""
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def load_faiss() -> Any:
    """Import FAISS."""
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

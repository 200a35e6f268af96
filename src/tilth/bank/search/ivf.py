"""An inverted index beside a bank: many queries look at a few cells instead of all sentences.

    BANK/index/
      index.json           what was asked, which shards it covers, its file, recall by nprobe
      NAME.faiss           the index; read through a map of the file, so it may exceed memory

What the index proposes is scored again as after a scan, so that similarities are the same; what
was added to the bank after the index was made is scanned. FAISS is loaded here alone.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilth.bank.quantization import Codec, Floats
from tilth.bank.search.exact import Chosen, Ids, find
from tilth.bank.store import Manifest, OpenShard, checksum, from_json
from tilth.errors import InputError, TilthError
from tilth.files import check_input

if TYPE_CHECKING:
    pass

log = logging.getLogger(__name__)

FOLDER, ABOUT, VERSION = "index", "index.json", 1
# How many candidates are scored again for each one wanted, by how coarse the codes are.
_OVERSAMPLE = {"SQ4": 6.0, "SQ8": 1.5, "fp16": 1.2}
_OVERSAMPLE_COARSE = 10.0
_HITS_AT_ONCE = 1 << 25
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
        load_faiss()
        about = read_about(path)
        if (
            about.fingerprint != manifest.fingerprint
            or about.shards != named_shards(manifest)[: len(about.shards)]
            or about.sentences
            != sum(shard.sentences for shard in manifest.shards[: len(about.shards)])
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
        return checked_nprobe(asked, self.about.centroids) or self.about.nprobe

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
            chosen: see `tilth.bank.search.exact.find`.

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
            scanned = find(rest, codec, queries, min(best, new), threads=threads, chosen=chosen)
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
        with faiss_threads(threads):
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


def read_about(path: Path) -> About:
    """Read what a bank's index.json says.

    Raises:
        InputError: there is no index, or it is of a later version.
        TilthError: the file is damaged.
    """
    file = path / FOLDER / ABOUT
    check_input(file)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        version = found.pop("version")
        if version == VERSION:
            about: About = from_json(About, found)
            # None is read but from the bank's own folder.
            if (
                Path(about.file).name == about.file
                and 1 <= about.nprobe <= about.centroids
                and min(about.sentences, about.bytes, about.head[0]) >= 0
                and all(len(shard) == 2 for shard in about.shards)
            ):
                return about
    except FileNotFoundError:
        raise InputError(
            f"{path}: has no index: make one with Bank.make_index, or search without"
        ) from None
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
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
    faiss = load_faiss()
    options = {}
    if mask is not None:
        options["sel"] = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
    inner = faiss.SearchParametersIVF(nprobe=nprobe, **options)
    if isinstance(index, faiss.IndexPreTransform):
        return faiss.SearchParametersPreTransform(index_params=inner)
    return inner


def checked_nprobe(nprobe: int | None, centroids: int) -> int | None:
    """Return what was asked for.

    Raises:
        InputError: it is too little or too much.
    """
    if nprobe is not None and not 1 <= nprobe <= centroids:
        raise InputError(
            f"nprobe is {nprobe:,}: give 1 to {centroids:,}, the centroids of the index"
        )
    return nprobe


def named_shards(manifest: Manifest) -> list[list[str]]:
    """Return the shards of a bank as index.json names them."""
    return [[shard.name, shard.files["codes.npy"][1]] for shard in manifest.shards]


def _read(file: Path, about: About) -> Any:
    """Map an index's file, after a look at its size and at all that tells where its lists lie."""
    faiss = load_faiss()
    try:
        same = file.stat().st_size == about.bytes
        if not same or digest_head(file, about.head[0]) != about.head[1]:
            raise TilthError(_broken(file))
        index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP)
    except OSError as error:
        raise TilthError(
            f"{file}: cannot be read ({error.strerror}): make the index again"
        ) from error
    except RuntimeError as error:
        raise TilthError(
            f"{file}: FAISS {faiss.__version__} cannot read it ({one_line(error)}): make the "
            "index again"
        ) from error
    ivf = faiss.extract_index_ivf(index)
    if (ivf.nlist, ivf.ntotal) != (about.centroids, about.sentences):
        raise TilthError(_broken(file))
    lists = faiss.downcast_InvertedLists(ivf.invlists)
    if hasattr(lists, "prefetch_nthread"):
        lists.prefetch_nthread = 0  # threads made anew for every search cost more than they bring
    return index


def digest_head(file: Path, size: int) -> str:
    """Return the blake2b of the first bytes of a file."""
    digest = blake2b(digest_size=16)
    with open(file, "rb") as opened:
        while size > 0 and (block := opened.read(min(size, 1 << 22))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def _broken(file: Path) -> str:
    return f"{file}: is not what was written: make the index again"


def one_line(error: Exception) -> str:
    """Return the end of what FAISS says, where the cause stands."""
    return " ".join(str(error).split())[-160:]


@contextmanager
def faiss_threads(count: int) -> Iterator[None]:
    """Let FAISS work with so many threads meanwhile."""
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def load_faiss() -> Any:
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

"""Store millions of sentences with their vectors on disk and search them: `Bank`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.bank.hits import Hits, best_hits
from tilth.bank.manifest import Manifest, read_manifest
from tilth.bank.quantization import Floats
from tilth.bank.queries import (
    MANY_TEXTS,
    AnyQueries,
    check_characters,
    query_texts,
    query_vectors,
)
from tilth.bank.search.decontaminate import Exclusion, remove_excluded
from tilth.bank.search.exact import find_candidates, rescore
from tilth.bank.search.ivf import INDEX, INDEX_JSON, Index, damaged_index
from tilth.bank.settings import BankSettings, Format, IndexSettings, Rules, core_count
from tilth.bank.store import TEXT, Ids, Selected, Store, check_files, load_quantizer, miscounted
from tilth.errors import InputError, TilthError
from tilth.limits import CORES, OVERSAMPLE, SIMILARITY
from tilth.models.names import FITTED
from tilth.runs import Progress
from tilth.runs.cluster import Cluster
from tilth.storage import as_path, pull
from tilth.urls import url_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.bank.encoder import TextEncoder
    from tilth.bank.search.cluster_scan import ClusterScan

# Candidates rescored per hit.
DEFAULT_OVERSAMPLE = {"int8": 1.2, "compact": 4.0}
# Extra candidates, which matter for a small k.
_MORE = 32
# Candidates encoded at a time.
_ENCODED_AT_ONCE = 200_000


class Bank(Store):
    r"""A folder of sentences with their vectors; may be larger than memory.

    `bank[i]` returns one sentence.

    Example:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "raw.txt").write_text(
        ...     "The train to Oslo leaves at nine. She poured the soup into two bowls.\n"
        ... )
        >>> bank = Bank.build(folder / "bank", [folder / "raw.txt"], quiet=True)
        >>> hits = bank.search(["When does the train go?"], k=1)
        >>> hits.texts(0)
        ['The train to Oslo leaves at nine.']
    """

    _device = "auto"
    _index: Index | None = None
    _scan: ClusterScan | None = None

    def __repr__(self) -> str:
        """Return one line."""
        about = f"{len(self):,} sentences, encoder {self.manifest.encoder!r}"
        return f"Bank({url_of(self.path) or str(self.path)!r}, {about})"

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        encoder: str | SentenceTransformer | TextEncoder | None = None,
        device: str = "auto",
    ) -> Bank:
        """Open a bank; load its encoder when a text is first encoded.

        Args:
            encoder: the encoder of the build, by its current name or loaded; None: the name that
                the bank stores.

        Raises:
            InputError: there is no bank, or the encoder is not the bank's.
            TilthError: a file is missing or has the wrong size.
        """
        bank = super().open(path)
        assert isinstance(bank, Bank)
        bank._device = device
        if encoder is not None:
            from tilth.bank.encoder import load_bank_encoder

            bank.text_encoder = load_bank_encoder(bank.path, bank.manifest, encoder, device=device)
        return bank

    @classmethod
    def build(
        cls,
        path: str | Path,
        sources: str | Path | Sequence[str | Path],
        *,
        encoder: str | SentenceTransformer | TextEncoder = "starter-static",
        format: Format = "int8",  # noqa: A002 - the word of the command line
        rules: Rules | None = None,
        near: bool = True,
        column: str | None = None,
        split: str = "train",
        seed: int = 0,
        shard_megabytes: int = 16,
        workers: int | None = None,
        cluster: Cluster | None = None,
        device: str = "auto",
        overwrite: bool = False,
        quiet: bool = False,
    ) -> Bank:
        """Build a bank from raw text, or continue an interrupted build.

        Segment, clean and deduplicate texts over all sources, encode them and write shards.
        Memory use does not grow with the text.

        Args:
            sources: files, folders or data sets, as `find_sources` takes them.
            near: also drop near duplicates.
            seed: seed of the random rotation of the vectors.
            shard_megabytes: raw text per shard; use 128 or more for billions of sentences.
            workers: processes; None: one per core, one alone for less than 1 MB of sources. A
                non-static encoder runs in the main process.
            cluster: where parts and shards are made; None: on this machine. Its `workers` are
                those of this call.

        Raises:
            InputError: a source is invalid, or the folder holds something else.
            RunMismatch: the folder holds a bank with other settings.
            RunLocked: another process builds the bank.
            TilthError: the disk is full, or a file is damaged.
        """
        from tilth.bank.build import build_bank

        settings = BankSettings(
            format, rules or Rules(), near, column, split, seed, shard_megabytes, workers, quiet,
            cluster or Cluster(),
        )  # fmt: skip
        text_encoder = build_bank(
            as_path(path), sources, encoder, settings, device=device, overwrite=overwrite
        )
        return cls.open(path, encoder=text_encoder)

    def add(
        self,
        sources: str | Path | Sequence[str | Path],
        *,
        near: bool | None = None,
        column: str | None = None,
        split: str = "train",
        shard_megabytes: int = 16,
        workers: int | None = None,
        cluster: Cluster | None = None,
        overwrite: bool = False,
        quiet: bool = False,
    ) -> Bank:
        """Add new sentences from raw text, or continue an interrupted addition.

        Skip unchanged sources and sentences that the bank holds. Return the extended bank; this
        object keeps the old one. `Bank.build` describes the other arguments.

        Args:
            near: None: as in the build.
            overwrite: drop an unfinished addition of other sources.

        Raises:
            InputError: a source is invalid, or an addition of other sources is unfinished.
            RunLocked: another process adds to the bank.
            TilthError: the disk is full, or a file is damaged.
        """
        from tilth.bank.build import add_to_bank

        settings = BankSettings(
            self.manifest.format, Rules(**self.manifest.rules),
            self.manifest.near if near is None else near, column, split,
            shard_megabytes=shard_megabytes, workers=workers, quiet=quiet,
            cluster=cluster or Cluster(),
        )  # fmt: skip
        add_to_bank(self.path, sources, self.text_encoder, settings, overwrite=overwrite)
        return Bank.open(self.path, encoder=self.text_encoder)

    @cached_property
    def text_encoder(self) -> TextEncoder:
        """Return the wrapper that encodes texts with the bank's encoder."""
        from tilth.bank.encoder import load_bank_encoder

        return load_bank_encoder(self.path, self.manifest, None, device=self._device)

    @property
    def encoder(self) -> SentenceTransformer:
        """Return the bank's encoder model."""
        return self.text_encoder.model

    @property
    def language(self) -> str:
        """The language whose rules divide texts into sentences."""
        return str(self.manifest.rules["language"] or "en")

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the unit vectors of texts, (texts, dimension)."""
        quiet = self.text_encoder.static is not None or len(texts) <= MANY_TEXTS
        with Progress(len(texts), quiet=quiet, what="sentences") as progress:
            return self.text_encoder.encode(texts, progress)

    def search(
        self,
        queries: AnyQueries,
        k: int = 100,
        *,
        min_similarity: float | None = None,
        sources: Sequence[str] | None = None,
        without: Mapping[str, Sequence[str]] | None = None,
        near: bool = True,
        own: bool = True,
        oversample: float | None = None,
        index: bool = False,
        nprobe: int | None = None,
        threads: int | None = None,
        cluster: Cluster | None = None,
    ) -> Hits:
        """Return the k nearest sentences of each query by cosine, or all of a smaller bank.

        Compare all sentences, or the candidates of the index. Rescore the best of 8-bit codes
        with 12 bits (int8), or by encoding the sentences again (compact).

        Args:
            queries: task queries, vectors (queries, dimension), or texts.
            min_similarity: drop hits below this cosine; a query may then have fewer than k.
            sources: search only these sources: names, patterns with `*`, or folders.
            without: name -> sentences to exclude, such as a test set's, by equality after
                normalisation or as near duplicates; counted in `Hits.removed`.
            near: also exclude near duplicates.
            own: allow hits equal to a query's text or to a sentence that a task query averages.
            oversample: candidates rescored per hit; None: 1.2 for int8, 4 for compact, up to 10
                with an index of coarse codes.
            index: use the bank's index, which is approximate; scan sentences added after it, and
                `sources` that are so small a part of the bank that this costs less.
            nprobe: index cells that each query visits; None: the choice of `make_index`, more
                where `sources` leave a part of the bank.
            threads: None: one per core, on a cluster one per core of a worker.
            cluster: where shards are scanned; None: in this process.

        Raises:
            InputError: an argument is invalid, or a query has no vector.
        """
        if isinstance(queries, Iterator):
            queries = list(queries)
        vectors, names = query_vectors(queries, self.encode, self.manifest.dimension)
        if isinstance(min_similarity, np.floating):  # such as one of `Hits.similarity`
            min_similarity = float(min_similarity)
        _check_numbers(k, min_similarity, oversample, threads)
        k = min(k, len(self))
        selected = self.source_filter(sources)
        language = self.language
        exclusions = [
            Exclusion(name, texts, near=near, language=language)
            for name, texts in _named(without).items()
        ]
        if not own:
            texts = query_texts(queries)
            exclusions.append(
                Exclusion("the queries' own texts", texts, near=False, language=language)
            )
        if nprobe is not None and not index:
            raise InputError(f"nprobe is {nprobe}: only a search with index=True takes it")
        if index and cluster is not None and cluster.on is not None:
            raise InputError("an index is searched in this process: leave --on or --index out")
        factor = DEFAULT_OVERSAMPLE[self.manifest.format]
        if index:
            nprobe = self.index.nprobe(nprobe, self, selected)
            factor = factor if nprobe is None else max(factor, self.index.oversample)
        factor = factor if oversample is None else oversample
        wanted, candidates = k, int(np.ceil(k * factor)) + _MORE
        least = (k + candidates) // 2  # to be left of them
        with self.on_cluster(cluster):
            while True:
                candidates = min(candidates, len(self))
                ids, similarities = self._nearest(
                    vectors, (wanted, candidates), nprobe=nprobe, threads=threads, selected=selected
                )
                if min_similarity is not None:
                    similarities[similarities < min_similarity] = -np.inf
                before = np.isfinite(similarities).sum(axis=1)
                removed = remove_excluded(self, ids, similarities, exclusions, k)
                # Search more candidates where exclusions leave too few hits, or too few to choose
                # them from.
                left = np.isfinite(similarities).sum(axis=1)
                cut = (left < k) | (candidates - (before - left) < least)
                cut &= (before >= min(wanted, candidates)) & (candidates < len(self))
                if not (exclusions and cut.any()):
                    return best_hits(self, names, ids, similarities, k, removed)
                wanted, candidates = 2 * wanted, 2 * candidates

    @contextmanager
    def on_cluster(self, cluster: Cluster | None) -> Iterator[None]:
        """Let the workers of a cluster scan the shards, and keep them for the next search."""
        if cluster is None or cluster.on is None or self._scan is not None:
            yield
            return
        from tilth.bank.search.cluster_scan import ClusterScan

        with ClusterScan(self, cluster) as self._scan:
            try:
                yield
            finally:
                self._scan = None

    def _nearest(
        self,
        vectors: Floats,
        most: tuple[int, int],
        *,
        nprobe: int | None,
        threads: int | None,
        selected: Selected | None,
    ) -> tuple[Ids, Floats]:
        """Return candidates and their similarities, each (queries, candidates).

        Args:
            most: wanted of the index, and candidates.
            nprobe: None: scan all.
        """
        wanted, candidates = most
        if nprobe is None and self._scan is not None:
            ids, similarities = self._scan.nearest(
                vectors, candidates, threads=threads, selected=selected
            )
            if similarities is not None:
                return ids, similarities
        threads = threads or core_count()
        if nprobe is not None:
            ids = self.index.find_candidates(
                self, vectors, wanted, candidates, nprobe=nprobe, threads=threads,
                selected=selected,
            )  # fmt: skip
        elif self._scan is None:
            ids = find_candidates(
                self.shards, self.quantizer, vectors, candidates, threads=threads,
                selected=selected,
            )  # fmt: skip
        ids = np.sort(ids, axis=1, kind="stable")
        return ids, self._rescore(vectors, ids, threads)

    def _rescore(self, vectors: Floats, ids: Ids, threads: int) -> Floats:
        """Return full-precision similarities; -inf where the id is -1."""
        if self.manifest.format == "int8":
            return rescore(self.shards, self.quantizer, vectors, ids, threads=threads)
        similarities = np.full(ids.shape, -np.inf, np.float32)
        columns = range(0, ids.shape[1], _ENCODED_AT_ONCE)
        at_once = max(1, _ENCODED_AT_ONCE // max(ids.shape[1], 1))
        for start, first in itertools.product(range(0, len(ids), at_once), columns):
            block = slice(start, start + at_once), slice(first, first + _ENCODED_AT_ONCE)
            distinct, places = np.unique(ids[block], return_inverse=True)
            exists = distinct >= 0
            encoded = np.zeros((len(distinct), self.manifest.dimension), np.float32)
            encoded[exists] = self.text_encoder.encode(self.rows(distinct[exists])[TEXT])
            found = similarities[block]
            for row, own in enumerate(places.reshape(found.shape)):
                found[row] = encoded[own] @ vectors[start + row]
        similarities[ids < 0] = -np.inf
        return similarities

    def make_index(
        self,
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
        """Build the bank's index for many queries and replace an earlier one.

        Memory use grows with the index only. An interrupted build keeps the earlier index.
        `info.recall` of the result holds the recall by nprobe.

        Args:
            centroids: cells; None: 4 times the square root of the number of sentences, as a power
                of 2.
            codes: `SQ4` or `SQ8` (bits per dimension), `fp16`, or `PQ` with the bytes per
                sentence, such as `PQ32`.
            nprobe: cells that a search visits by default; None: the fewest that find 0.95 of the
                100 nearest for a sample of stored sentences.
            per_centroid: training sentences per cell, 39 to 256.
            threads: None: one per core.

        Raises:
            InputError: an argument is invalid.
            TilthError: FAISS is not installed, or the disk is full.

        Reference:
            Du et al. 2020 (SentAugment), arXiv:2010.02194, whose indexes have 32,768 cells for 100
            and 262,144 for 1,000 million sentences.
        """
        from tilth.bank.search.ivf_build import build_index

        settings = IndexSettings(centroids, codes, pca, nprobe, per_centroid, seed)

        def search(vectors: Floats, k: int, index: Index | None, nprobe: int | None) -> Ids:
            self._index = index
            return self.search(
                vectors, k, index=index is not None, nprobe=nprobe, threads=threads
            ).ids

        try:
            self._index = build_index(self, settings, search, threads=threads, quiet=quiet)
        except BaseException:
            self._index = None
            raise
        return self._index

    @property
    def index(self) -> Index:
        """Return the bank's index.

        Raises:
            InputError: there is no index, or it belongs to another bank.
            TilthError: the index is damaged, or FAISS is not installed.
        """
        if self._index is None:
            self._index = Index.open(self.path, self.manifest)
        return self._index

    def check(self, *, quiet: bool = False) -> list[str]:
        """Verify the checksums of all files; return a line for each damaged file."""
        return check_bank(self.path, quiet=quiet).damaged


def _check_numbers(
    k: Any,
    min_similarity: float | None,
    oversample: float | None,
    threads: int | None,
) -> None:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise InputError(f"k is {k!r}: give a whole number")
    if k < 1:
        raise InputError(f"k is {k}: ask for at least 1 hit")
    if min_similarity is not None:
        SIMILARITY.check("min_similarity", min_similarity)
    if oversample is not None:
        OVERSAMPLE.check("oversample", oversample)
    if threads is not None:
        CORES.check("threads", threads)


def _named(without: Mapping[str, Sequence[str]] | None) -> Mapping[str, Sequence[str]]:
    if without is None:
        return {}
    if not isinstance(without, Mapping) or any(
        isinstance(texts, str)
        or not hasattr(texts, "__len__")
        or not all(isinstance(text, str) for text in texts)
        for texts in without.values()
    ):
        raise InputError('without: give names with lists of texts, such as {"test": texts}')
    for name, texts in without.items():
        for text in texts:
            check_characters(f"without {name!r}: {text!r:.60}", text)
    return without


@dataclass(frozen=True, slots=True)
class BankCheck:
    """The result of verifying all files of a bank.

    Attributes:
        size: bytes by the manifest.
        damaged: a message for each damaged file.
    """

    files: int
    size: int
    damaged: list[str]


def check_bank(path: Path, *, quiet: bool = False) -> BankCheck:
    """Verify the checksums of all files of a bank, even one that `Bank.open` refuses."""
    manifest: Manifest = read_manifest(path)
    pull(path)
    lines = []
    try:
        load_quantizer(path, manifest)
    except TilthError as error:
        lines.append(str(error))
    size, done = sum(manifest.file_bytes.values()), 0
    with Progress(size >> 20, quiet=quiet, what="MB") as progress:
        for read, damage in check_files(path, manifest):
            progress.advance((done + read >> 20) - (done >> 20))
            done += read
            lines += damage
    if not lines:
        lines += miscounted(path, manifest)
    lines += damaged_index(path)
    if manifest.encoder.partition(":")[0] in FITTED:  # on the bank's own sentences
        from tilth.bank.encoder import load_bank_encoder

        try:
            load_bank_encoder(path, manifest, None, device="cpu")
        except TilthError as error:
            lines.append(str(error))
    files = 1 + sum(len(shard.files) for shard in manifest.shards)
    return BankCheck(files + (path / INDEX / INDEX_JSON).is_file(), size, lines)

"""A bank: millions of sentences on disk, and the search for those nearest to a query."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tilth.bank.hits import Hits, best_hits
from tilth.bank.manifest import Manifest, read_manifest
from tilth.bank.quantization import Floats, Format
from tilth.bank.queries import AnyQueries, query_texts, query_vectors
from tilth.bank.search.decontaminate import Exclusion, remove_excluded
from tilth.bank.search.exact import find_candidates, rescore
from tilth.bank.search.ivf import INDEX, INDEX_JSON, Index, damaged_index
from tilth.bank.store import TEXT, Ids, Store, damaged_files, load_quantizer
from tilth.errors import InputError, TilthError
from tilth.limits import CORES, OVERSAMPLE, SIMILARITY
from tilth.runs import Progress

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.bank.encoder import TextEncoder
    from tilth.bank.ingest.cleaning import Rules

# How many of the best candidates by their codes are rescored for each hit wanted.
DEFAULT_OVERSAMPLE = {"int8": 1.2, "compact": 4.0}
# Lets a small k have some candidates to choose from, too.
_MORE = 32
# Candidates whose vectors are in memory at a time.
_ENCODED_AT_ONCE = 200_000
# Texts from which on encoding shows its progress.
_MANY_TEXTS = 4096


class Bank(Store):
    r"""Sentences with their vectors, in a folder. It may be larger than memory.

    Open one with `Bank.open`, make one with `Bank.build`. `bank[i]` is one sentence.

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

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        encoder: str | SentenceTransformer | TextEncoder | None = None,
        device: str = "auto",
    ) -> Bank:
        """Open a bank. Its encoder is loaded when a text is to be encoded.

        Args:
            path: the folder.
            encoder: the one the bank was built with, where the name it was given by then does not
                lead to it now, or a loaded one; None: that name.
            device: of the encoder; see `tilth.load_encoder`.

        Raises:
            InputError: there is no bank, or the encoder is another than the bank's.
            TilthError: a file of it is missing or has another size than was written.
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
        device: str = "auto",
        overwrite: bool = False,
        quiet: bool = False,
    ) -> Bank:
        """Build a bank of raw text, or continue an interrupted build.

        Texts are segmented, cleaned, deduplicated over all sources, encoded and written in
        shards. Memory does not grow with the text.

        Args:
            path: the bank's folder.
            sources: see `tilth.bank.ingest.documents.find_sources`.
            encoder: what `tilth.load_encoder` takes, or a loaded encoder.
            format: of the vectors: `int8` or `compact`; see `Quantizer`.
            rules: what sentences must be like; None: the defaults.
            near: whether near duplicates are dropped, too.
            seed: of the random rotation of the vectors.
            shard_megabytes: raw text of a shard; with billions of sentences take 128 or more.
            workers: processes; default: one per core. A non-static encoder runs in this one.
            device: of the encoder.
            overwrite: remove an earlier bank in the folder first.

        Raises:
            InputError: a source is wrong, or the folder holds something else.
            RunMismatch: it holds a bank with other settings.
            RunLocked: another process builds it.
            TilthError: the disk is full, or a file is damaged.
        """
        from tilth.bank.build import build_bank
        from tilth.bank.ingest.cleaning import Rules
        from tilth.bank.ingest.parts import IngestSettings

        rules = Rules() if rules is None else rules
        settings = IngestSettings(rules, near, column, split, shard_megabytes, workers, quiet)
        path = Path(path)
        text_encoder = build_bank(
            path, sources, encoder, settings, format=format, seed=seed, device=device,
            overwrite=overwrite,
        )  # fmt: skip
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
        overwrite: bool = False,
        quiet: bool = False,
    ) -> Bank:
        """Add raw text without what the bank holds already, or continue an interrupted addition.

        A source that is in the bank as it is now is passed over. This object stays the old bank.

        Args:
            sources: see `Bank.build`, like all that follow.
            near: None: as the bank was built.
            shard_megabytes: raw text of a shard.
            workers: processes.
            overwrite: drop an unfinished addition of other sources.

        Returns:
            The bank with the new sentences.

        Raises:
            InputError: a source is wrong, or an addition of other sources is unfinished.
            RunLocked: another process adds to the bank.
            TilthError: the disk is full, or a file is damaged.
        """
        from tilth.bank.build import add_to_bank
        from tilth.bank.ingest.cleaning import Rules
        from tilth.bank.ingest.parts import IngestSettings

        near = self.manifest.near if near is None else near
        rules = Rules(**self.manifest.rules)
        settings = IngestSettings(rules, near, column, split, shard_megabytes, workers, quiet)
        add_to_bank(self.path, sources, self.text_encoder, settings, overwrite=overwrite)
        return Bank.open(self.path, encoder=self.text_encoder)

    @cached_property
    def text_encoder(self) -> TextEncoder:
        """The bank's encoder as a bank uses it."""
        from tilth.bank.encoder import load_bank_encoder

        return load_bank_encoder(self.path, self.manifest, None, device=self._device)

    @property
    def encoder(self) -> SentenceTransformer:
        """The bank's encoder."""
        return self.text_encoder.model

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the unit vectors of texts, (texts, dimension)."""
        quiet = self.text_encoder.static is not None or len(texts) <= _MANY_TEXTS
        with Progress(len(texts), quiet=quiet, what="sentences") as progress:
            return self.text_encoder.encode(pa.array(texts, pa.large_string()), progress)

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
    ) -> Hits:
        """Return the nearest sentences of each query by cosine.

        All sentences are compared, or with an index the candidates that it proposes. The best of
        int8 banks by their 8-bit codes are rescored with 12 bits, of compact ones by encoding them
        again.

        Args:
            queries: task queries, vectors (queries, dimension), or texts.
            k: hits wanted of each query.
            min_similarity: hits have at least this cosine; a query may have fewer than k then. The
                hits are those of a search without it, less the ones that are less similar.
            sources: only sentences of these: names, with `*` for any characters, or folders.
            without: name -> sentences that no hit may be, such as a test set's: equal ones after
                normalisation and near duplicates are excluded, and counted in `Hits.removed`.
            near: whether near duplicates are excluded as well.
            own: whether a hit may be the very text of a query, or one of the sentences that a task
                query averages.
            oversample: candidates rescored for each hit wanted; default 1.2 for int8, 4 for
                compact, and up to 10 with an index of coarse codes.
            index: whether to use the bank's index, which finds nearly all of the nearest.
                Sentences added after it was made are scanned.
            nprobe: cells of the index that each query visits; default: what `make_index` chose.
            threads: default: one per core.

        Raises:
            InputError: an argument is wrong, or a query has no vector.
        """
        vectors, names = query_vectors(queries, self.encode, self.manifest.dimension)
        _check_numbers(len(self), k, min_similarity, oversample, threads)
        selected = self.source_filter(sources)
        exclusions = [Exclusion(name, texts, near=near) for name, texts in _named(without).items()]
        if not own:
            texts = query_texts(queries)
            exclusions.append(Exclusion("the queries' own texts", texts, near=False))
        if nprobe is not None and not index:
            raise InputError(f"nprobe is {nprobe}: only a search with index=True takes it")
        threads = threads or os.cpu_count() or 1
        factor = DEFAULT_OVERSAMPLE[self.manifest.format]
        if index:
            nprobe, factor = self.index.nprobe(nprobe), max(factor, self.index.oversample)
        factor = factor if oversample is None else oversample
        wanted, candidates = k, int(np.ceil(k * factor)) + _MORE
        while True:
            candidates = min(candidates, len(self))
            if nprobe is None:
                ids = find_candidates(
                    self.shards, self.quantizer, vectors, candidates, threads=threads,
                    selected=selected,
                ).ids  # fmt: skip
            else:
                ids = self.index.find_candidates(
                    self, vectors, wanted, candidates, nprobe=nprobe, threads=threads,
                    selected=selected,
                )  # fmt: skip
            ids = np.sort(ids, axis=1, kind="stable")
            similarities = self._rescore(vectors, ids, threads)
            if min_similarity is not None:
                similarities[similarities < min_similarity] = -np.inf
            enough = np.isfinite(similarities).sum(axis=1) >= min(wanted, candidates)
            removed = remove_excluded(self, ids, similarities, exclusions, k)
            # Where exclusions leave too few of enough candidates, look at more.
            left = np.isfinite(similarities).sum(axis=1)
            cut = enough & (left < k) & (candidates < len(self))
            if not (exclusions and cut.any()):
                return best_hits(self, names, ids, similarities, k, removed)
            wanted, candidates = 2 * wanted, 2 * candidates

    def _rescore(self, vectors: Floats, ids: Ids, threads: int) -> Floats:
        """Return similarities at full precision; -inf where there is no sentence."""
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
        """Make the bank's index for many queries, in the place of an earlier one.

        Memory grows with the index alone. An interrupted build leaves the earlier index.

        Args:
            centroids: cells; default: 4 times the root of the number of sentences, to a power of 2.
            codes: of a sentence in the index: `SQ4` and `SQ8` (bits a dimension), `fp16`, or `PQ`
                with the number of bytes of a sentence, such as `PQ32`.
            nprobe: cells that a search visits by default; None: as many as find 0.95 of the 100
                nearest of a sample of stored sentences.
            per_centroid: training sentences for each cell, 39 to 256.
            seed: of the training.
            threads: default: one per core.

        Returns:
            The index; its `info.recall` is the recall by nprobe.

        Raises:
            InputError: an argument is wrong.
            TilthError: FAISS is not installed, or the disk is full.

        Reference:
            Du et al. 2020 (SentAugment), arXiv:2010.02194, whose indexes have 32,768 cells for 100
            and 262,144 for 1,000 million sentences.
        """
        from tilth.bank.search.ivf_build import IndexSettings, build_index

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
        """The bank's index.

        Raises:
            InputError: there is none, or it was made of another bank.
            TilthError: it is damaged, or FAISS is not installed.
        """
        if self._index is None:
            self._index = Index.open(self.path, self.manifest)
        return self._index

    def check(self, *, quiet: bool = False) -> list[str]:
        """Read every byte; return a line for each file that is not as it was written."""
        return check_bank(self.path, quiet=quiet).damaged


def _check_numbers(
    sentences: int,
    k: Any,
    min_similarity: float | None,
    oversample: float | None,
    threads: int | None,
) -> None:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise InputError(f"k is {k!r}: give a whole number")
    if k < 1:
        raise InputError(f"k is {k}: ask for at least 1 hit")
    if k > sentences:
        raise InputError(f"k is {k:,}, the bank holds {sentences:,} sentences: ask for fewer")
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
        isinstance(texts, str) for texts in without.values()
    ):
        raise InputError('without: give names with lists of texts, such as {"test": texts}')
    return without


@dataclass(frozen=True, slots=True)
class BankCheck:
    """The result of reading all files of a bank.

    Attributes:
        size: their bytes, by the manifest.
        damaged: a line for each file that is not as it was written.
    """

    files: int
    size: int
    damaged: list[str]


def check_bank(path: Path, *, quiet: bool = False) -> BankCheck:
    """Read every byte of a bank, also of one that `Bank.open` refuses."""
    manifest: Manifest = read_manifest(path)
    lines = []
    try:
        load_quantizer(path, manifest)
    except TilthError as error:
        lines.append(str(error))
    size = sum(manifest.file_bytes.values())
    with Progress(size >> 20, quiet=quiet, what="MB") as progress:
        done = 0

        def advance(read: int) -> None:
            nonlocal done
            progress.advance((done + read >> 20) - (done >> 20))
            done += read

        lines += damaged_files(path, manifest, advance)
    lines += damaged_index(path)
    files = 1 + sum(len(shard.files) for shard in manifest.shards)
    return BankCheck(files + (path / INDEX / INDEX_JSON).is_file(), size, lines)

"""The bank: millions of sentences on disk, and what is nearest to a query among them."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.bank.check import check_bank
from tilth.bank.hits import Hits, Ids, nearest
from tilth.bank.quantization import Floats
from tilth.bank.query_vectors import Asked, check_numbers, choose, own_texts, query_vectors
from tilth.bank.search.decontaminate import Sought
from tilth.bank.search.exact import find, rescore
from tilth.bank.search.ivf import Index
from tilth.bank.store import (
    DOCUMENT,
    SOURCE,
    TEXT,
    Manifest,
    check_sizes,
    load_codec,
    open_shards,
    read_manifest,
)
from tilth.errors import InputError
from tilth.limits import CORES

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.bank.encoder import TextEncoder
    from tilth.bank.queries import Encoder

# How many of the best by their codes are scored again, for each one wanted.
OVERSAMPLE = {"int8": 1.2, "compact": 4.0}
# Lets small numbers wanted have some to choose from, too.
_MORE = 32
# Candidates whose vectors, or texts, are in memory at a time.
_ENCODED_AT_ONCE = 200_000
_COMPARED_AT_ONCE = 100_000


class Bank:
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

    def __init__(self, path: Path, manifest: Manifest, encoder: TextEncoder | None) -> None:
        self.path, self.manifest = path, manifest
        self._encoder = encoder
        self._shards = open_shards(path, manifest)
        self._firsts = np.array([shard.first for shard in self._shards], np.int64)
        self.codec = load_codec(path, manifest)

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
        path = Path(path)
        manifest = read_manifest(path)
        check_sizes(path, manifest)
        bank = cls(path, manifest, None)
        bank._device = device
        if encoder is not None:
            from tilth.bank.encoder import TextEncoder

            bank._encoder = bank._checked(TextEncoder.load(encoder, device=device))
        return bank

    _device = "auto"

    @classmethod
    def build(cls, path: str | Path, sources: Sequence[str | Path], **options: object) -> Bank:
        """Make a bank of raw text; see `tilth.bank.build.build_bank` for the options."""
        from tilth.bank.build import build_bank

        return build_bank(path, sources, **options)  # type: ignore[arg-type]

    def add(self, sources: Sequence[str | Path], **options: object) -> Bank:
        """Add raw text; see `tilth.bank.build.add_to_bank`. This bank is the old one still.

        Returns:
            The bank with what was added.
        """
        from tilth.bank.build import add_to_bank

        return add_to_bank(self.path, sources, **options)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Return the number of sentences."""
        return self.manifest.sentences

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        """Return a sentence, or some; negative numbers count from the end."""
        if isinstance(number, slice):
            some: list[str] = self.texts(np.arange(*number.indices(len(self)))).to_pylist()
            return some
        place = operator.index(number)
        place += len(self) if place < 0 else 0
        return str(self.texts(np.array([place], np.int64))[0])

    def __iter__(self) -> Iterator[str]:
        """Yield all sentences in order."""
        for shard in self._shards:
            for batch in shard.table.select([TEXT]).to_batches(max_chunksize=10_000):
                yield from batch.column(0).to_pylist()

    @cached_property
    def text_encoder(self) -> TextEncoder:
        """The bank's encoder as a bank uses it."""
        if self._encoder is not None:
            return self._encoder
        from tilth.bank.encoder import STARTER, TextEncoder

        name = self.manifest.encoder
        if name == "starter":  # as it was called in banks before the starters were renamed
            name = STARTER
        try:
            encoder = TextEncoder.load(name, device=self._device)
        except InputError as error:
            raise InputError(
                f"{self.path}: its encoder {name!r} does not load ({error}): open the bank with "
                "the encoder that it was built with"
            ) from error
        return self._checked(encoder)

    def _checked(self, encoder: TextEncoder) -> TextEncoder:
        """Refuse another encoder than the bank's.

        Raises:
            InputError: it is another.
        """
        manifest = self.manifest
        if encoder.dimension != manifest.dimension:
            raise InputError(
                f"{self.path}: its vectors have {manifest.dimension} dimensions, those of encoder "
                f"{encoder.name!r} {encoder.dimension}: use {manifest.encoder!r}, or build a bank "
                "with this one"
            )
        if encoder.fingerprint != manifest.fingerprint:
            same = "; it may be the same one, if an earlier version fingerprinted it"
            raise InputError(
                f"{self.path}: was built with another encoder ({manifest.encoder!r}, fingerprint "
                f"{manifest.fingerprint}; {encoder.name!r} has {encoder.fingerprint}"
                f"{same if encoder.name == manifest.encoder else ''}): name the "
                "one it was built with, or build a bank with this one"
            )
        return encoder

    @property
    def encoder(self) -> SentenceTransformer:
        """The bank's encoder."""
        return self.text_encoder.model

    @property
    def query_encoder(self) -> Encoder:
        """What `task_queries` encodes with fastest: a static encoder at once, others in blocks."""
        return self.encoder if self.text_encoder.rows is None else self.encode

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the unit vectors of texts, (texts, dimension)."""
        return self.text_encoder.encode(pa.array(texts, pa.large_string()))

    def texts(self, ids: Ids) -> pa.Array:
        """Return sentences, in the order of their numbers; see `rows`."""
        return self.rows(ids)[TEXT].combine_chunks()

    def rows(self, ids: Ids) -> pa.Table:
        """Return the columns text, source and document of sentences, in the order of their numbers.

        Raises:
            IndexError: there is no such sentence.
        """
        ids = np.asarray(ids, np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < len(self):
            raise IndexError(f"the bank holds sentences 0 to {len(self) - 1:,}")
        owners = np.searchsorted(self._firsts, ids, "right") - 1
        order = np.argsort(owners, kind="stable")
        tables = []
        for place, start, stop in _runs(owners[order]):
            shard = self._shards[place]
            rows = pa.array(ids[order[start:stop]] - shard.first)
            tables.append(shard.table.take(rows))
        if not tables:
            return _ROWS.empty_table()
        back = np.empty(len(ids), np.int64)
        back[order] = np.arange(len(ids))
        table = pa.concat_tables(tables).select([TEXT, SOURCE, DOCUMENT])
        table = table.set_column(1, SOURCE, pc.cast(table[SOURCE], pa.string()))
        return table.take(pa.array(back))

    def search(
        self,
        queries: Asked,
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

        All sentences are compared, or with an index those that it proposes. Of int8 banks the best
        by their 8-bit codes are scored again with 12 bits, of compact ones by encoding them again.

        Args:
            queries: task queries, vectors (queries, dimension), or texts.
            k: hits wanted of each query.
            min_similarity: hits have at least this cosine; a query may have fewer than k then. The
                hits are those of a search without it, less the ones that are less similar.
            sources: only sentences of these: names, with `*` for any characters, or folders.
            without: name -> sentences that no hit may be, such as a test set's: equal ones after
                normalisation and near duplicates are left out, and counted in `Hits.removed`.
            near: whether near duplicates are left out as well.
            own: whether a hit may be the very text of a query, or one of the sentences that a task
                query averages.
            oversample: hits scored again for each one wanted; default 1.2 for int8, 4 for compact,
                and up to 10 with an index of coarse codes.
            index: whether to ask the bank's index, which finds nearly all of the nearest. What was
                added after it was made is scanned.
            nprobe: cells of the index that each query looks at; default: what `make_index` chose.
            threads: that scan; default: one per core.

        Raises:
            InputError: an argument is wrong, or a query has no vector.
        """
        vectors, names = query_vectors(self, queries)
        check_numbers(len(self), k, min_similarity, oversample)
        if threads is not None:
            CORES.check("threads", threads)
        threads = threads or os.cpu_count() or 1
        chosen = choose(self, sources)
        sought = [Sought(name, texts, near=near) for name, texts in _named(without).items()]
        if not own:
            sought.append(Sought("the queries' own texts", own_texts(queries), near=False))
        if nprobe is not None and not index:
            raise InputError(f"nprobe is {nprobe}: only a search with index=True takes it")
        times = OVERSAMPLE[self.manifest.format]
        if index:
            nprobe, times = self.index.nprobe(nprobe), max(times, self.index.oversample)
        times = times if oversample is None else oversample
        wanted, best = k, int(np.ceil(k * times)) + _MORE
        scope: dict[str, Any] = {"threads": threads, "chosen": chosen}
        while True:
            best = min(best, len(self))
            if nprobe is None:
                ids = find(self._shards, self.codec, vectors, best, **scope).ids
            else:
                ids = self.index.find(
                    self._shards, self.codec, vectors, wanted, best, nprobe=nprobe, **scope
                )
            ids = np.sort(ids, axis=1, kind="stable")
            similarities = self._rescore(vectors, ids, threads)
            if min_similarity is not None:
                similarities[similarities < min_similarity] = -np.inf
            enough = np.isfinite(similarities).sum(axis=1) >= min(wanted, best)
            removed = self._remove(ids, similarities, sought, k)
            # Where what was left out has made too few of enough, more are looked at.
            left = np.isfinite(similarities).sum(axis=1)
            cut = enough & (left < k) & (best < len(self))
            if not (sought and cut.any()):
                break
            wanted, best = 2 * wanted, 2 * best
        return nearest(self, names, ids, similarities, k, removed)

    def make_index(self, **options: Any) -> Index:
        """Make the bank's index for many queries; see `tilth.bank.search.ivf_build.make_index`.

        Returns:
            The index; its `about.recall` says which part of the nearest it finds by nprobe.
        """
        from tilth.bank.search.ivf_build import keep_index, make_index, making, measure_recall

        with making(self.path):
            made = make_index(self, **options)
            self._index = made  # measured as searches will use it
            try:
                recall = measure_recall(self, made, threads=options.get("threads"))
                return keep_index(made, recall)
            except BaseException:
                self._index = None
                raise

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

    _index: Index | None = None

    def _rescore(self, vectors: Floats, ids: Ids, threads: int) -> Floats:
        if self.manifest.format == "int8":
            return rescore(self._shards, self.codec, vectors, ids, threads=threads)
        similarities = np.full(ids.shape, -np.inf, np.float32)
        columns = range(0, ids.shape[1], _ENCODED_AT_ONCE)
        at_once = max(1, _ENCODED_AT_ONCE // max(ids.shape[1], 1))
        for start, first in itertools.product(range(0, len(ids), at_once), columns):
            block = slice(start, start + at_once), slice(first, first + _ENCODED_AT_ONCE)
            distinct, places = np.unique(ids[block], return_inverse=True)
            there = distinct >= 0
            again = np.zeros((len(distinct), self.manifest.dimension), np.float32)
            again[there] = self.text_encoder.encode(self.rows(distinct[there])[TEXT])
            found = similarities[block]
            for row, own in enumerate(places.reshape(found.shape)):
                found[row] = again[own] @ vectors[start + row]
        similarities[ids < 0] = -np.inf
        return similarities

    def _remove(
        self, ids: Ids, similarities: Floats, sought: Sequence[Sought], k: int
    ) -> dict[str, int]:
        """Give hits that are sought a similarity below all others; count the sentences.

        Those count that are nearer than the last of the k hits that are left, of any query.
        """
        removed: dict[str, list[Ids]] = {}
        if not sought:
            return {}
        before = similarities.copy()
        distinct = np.unique(ids[ids >= 0])
        for start in range(0, max(len(distinct), 1), _COMPARED_AT_ONCE):
            some = distinct[start : start + _COMPARED_AT_ONCE]
            texts = self.texts(some)
            for item in sought:
                for reason, mask in item.among(texts).items():
                    removed.setdefault(reason, []).append(some[mask])
        gone = {reason: np.concatenate(parts) for reason, parts in removed.items()}
        for numbers in gone.values():
            similarities[np.isin(ids, numbers)] = -np.inf
        last = -np.sort(-similarities, axis=1)[:, k - 1 : k]  # (queries, 1), or none of so many
        nearer = before > last if last.size else np.isfinite(before)
        counted = np.unique(ids[nearer])
        return {reason: int(np.isin(numbers, counted).sum()) for reason, numbers in gone.items()}

    def sources(self) -> dict[str, int]:
        """Count the sentences of each source; reads a number for every sentence."""
        counts = dict.fromkeys(self.manifest.sources, 0)
        for shard in self._shards:
            for chunk in shard.table[SOURCE].chunks:
                names = chunk.dictionary.to_pylist()
                found = np.bincount(chunk.indices.to_numpy(), minlength=len(names))
                for name, count in zip(names, found.tolist(), strict=True):
                    counts[name] = counts.get(name, 0) + count
        return counts

    def check(self, *, quiet: bool = False) -> list[str]:
        """Read every byte; return a line for each file that is not as it was written."""
        return check_bank(self.path, quiet=quiet).damaged


_ROWS = pa.schema([(TEXT, pa.string()), (SOURCE, pa.string()), (DOCUMENT, pa.int64())])


def _named(without: Mapping[str, Sequence[str]] | None) -> Mapping[str, Sequence[str]]:
    if without is None:
        return {}
    if not isinstance(without, Mapping) or any(
        isinstance(texts, str) for texts in without.values()
    ):
        raise InputError('without: give names with lists of texts, such as {"test": texts}')
    return without


def _runs(owners: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield (value, start, stop) of the stretches of equal values."""
    if not len(owners):
        return
    cuts = np.append(0, np.flatnonzero(np.diff(owners)) + 1)
    for start, stop in zip(cuts, np.append(cuts[1:], len(owners)), strict=True):
        yield int(owners[start]), int(start), int(stop)

"""Parts to shards: what is left of each part, encoded and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.bank.encoder import TextEncoder
from tilth.bank.ingest.deduplicate import Duplicates
from tilth.bank.ingest.parts import Part, Work
from tilth.bank.ingest.workers import in_processes
from tilth.bank.quantization import Codec, Codes, Floats
from tilth.bank.store import (
    CODEC,
    DOCUMENT,
    SHARDS,
    SOURCE,
    TEXT,
    Manifest,
    Shard,
    load_codec,
    read_shard,
    write_shard,
)
from tilth.files import disk_errors
from tilth.runs import Progress

_ENCODED_AT_ONCE = 1 << 15
# Sentences that the codec is fitted on; means and variances are sharp with far fewer.
_SAMPLE = 1 << 15
_SAMPLED_PARTS = 64


def sample_vectors(paths: Sequence[Path], duplicates: Duplicates, encoder: TextEncoder) -> Floats:
    """Return vectors of sentences from all over the parts, (sentences, dimension)."""
    places = np.unique(np.linspace(0, len(paths) - 1, min(len(paths), _SAMPLED_PARTS)).astype(int))
    each = -(-_SAMPLE // max(len(places), 1))
    texts = []
    for place in places:
        rows = np.flatnonzero(duplicates.kept(place))
        rows = rows[:: max(1, len(rows) // each)][:each]
        texts += pq.read_table(paths[place], columns=[TEXT])[TEXT].take(pa.array(rows)).to_pylist()
    vectors = encoder.encode(pa.array(texts, pa.large_string()))
    known: Floats = vectors[vectors.any(axis=1)]
    return known if len(known) else np.zeros((1, encoder.dimension), np.float32)


def make_shards(
    work: Work,
    paths: Sequence[Path],
    parts: Sequence[Part],
    duplicates: Duplicates,
    manifest: Manifest,
    encoder: TextEncoder,
) -> tuple[list[Shard], int]:
    """Encode what is left of each part into a shard; shards that are there are passed over.

    Returns:
        The shards, and how many sentences had no vector.
    """
    codec = load_codec(work.bank, manifest)
    folder = work.bank / SHARDS
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
        mark = blake2b((work.bank / CODEC).read_bytes(), digest_size=8).hexdigest()
    shards: dict[int, Shard] = {}
    total = int(sum(duplicates.kept(number).sum() for number in range(len(paths))))
    with Progress(total, quiet=work.quiet, what="sentences") as progress:

        def missing() -> Iterator[tuple[int, Path, NDArray[np.bool_], str, str]]:
            for number, path in enumerate(paths):
                kept = duplicates.kept(number)
                if not kept.any():
                    continue
                digest = blake2b(kept.tobytes(), digest_size=8).hexdigest()
                made_of = f"{parts[number].key} {digest} {encoder.fingerprint} {mark}"
                name = f"{manifest.jobs:04d}-{number:05d}"
                if (shard := read_shard(folder, name, made_of)) is None:
                    yield number, path, kept, name, made_of
                else:
                    shards[number] = shard
                    progress.skip(int(kept.sum()))

        # A table of vectors goes to every worker; other encoders use all cores by themselves.
        workers = work.workers if encoder.rows is not None else 1
        encode = encoder.encode if encoder.rows is None else encoder.rows.encode
        made = in_processes(workers, _make_shard, missing(), folder, codec, encode)
        for number, shard, asked in made:
            if shard is not None:
                shards[number] = shard
            progress.advance(asked)
    found = [shards[number] for number in sorted(shards)]
    return found, total - sum(shard.sentences for shard in found)


def _make_shard(
    task: tuple[int, Path, NDArray[np.bool_], str, str],
    folder: Path,
    codec: Codec,
    encode: Callable[[pa.Array], Floats],
) -> tuple[int, Shard | None, int]:
    """Encode and write a shard; runs in a worker."""
    number, path, kept, name, made_of = task
    table = pq.read_table(path, columns=[TEXT, SOURCE, DOCUMENT]).filter(pa.array(kept))
    texts = table[TEXT].combine_chunks()
    coded, known = [], []
    for start in range(0, len(texts), _ENCODED_AT_ONCE):
        vectors = encode(texts.slice(start, _ENCODED_AT_ONCE))
        there = vectors.any(axis=1)
        coded.append(codec.encode(vectors[there]))
        known.append(there)
    mask = np.concatenate(known)
    if not mask.any():
        return number, None, len(texts)
    if not mask.all():
        table = table.filter(pa.array(mask))
    shard = write_shard(folder, name, made_of, table.combine_chunks(), Codes.joined(coded))
    return number, shard, len(texts)

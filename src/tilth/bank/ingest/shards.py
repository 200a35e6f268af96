"""Encode what deduplication leaves of each part and write it as a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa

from tilth.bank.encoder import TextEncoder
from tilth.bank.ingest.deduplicate import Duplicates
from tilth.bank.ingest.duplicate_steps import read_kept
from tilth.bank.ingest.exchange import read_columns
from tilth.bank.ingest.parts import Part, part_path
from tilth.bank.ingest.workers import Spread, in_processes
from tilth.bank.manifest import QUANTIZER, SHARDS, Manifest, Shard
from tilth.bank.quantization import Codes, Floats, Quantizer
from tilth.bank.settings import BankSettings
from tilth.bank.store import DOCUMENT, SOURCE, TEXT, load_quantizer, read_shard, write_shard
from tilth.files import disk_errors
from tilth.runs import Progress

_ENCODED_AT_ONCE = 1 << 15
# Sentences that the quantizer is fitted on; means and variances are sharp with far fewer.
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
        texts += read_columns(paths[place], [TEXT])[TEXT].take(pa.array(rows)).to_pylist()
    vectors = encoder.encode(pa.array(texts, pa.large_string()))
    known: Floats = vectors[vectors.any(axis=1)]
    return known if len(known) else np.zeros((1, encoder.dimension), np.float32)


def make_shards(
    bank: Path,
    parts: Sequence[Part],
    duplicates: Duplicates,
    manifest: Manifest,
    encoder: TextEncoder,
    settings: BankSettings,
    spread: Spread,
) -> tuple[list[Shard], int]:
    """Encode what is left of each part into a shard; shards that exist are skipped.

    Returns:
        The shards, and how many sentences had no vector.
    """
    quantizer = load_quantizer(bank, manifest)
    folder = bank / SHARDS
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
        mark = blake2b((bank / QUANTIZER).read_bytes(), digest_size=8).hexdigest()
    shards: dict[int, Shard] = {}
    total = sum(one.kept for one in duplicates.found)
    with Progress(total, quiet=settings.quiet, what="sentences") as progress:

        def missing() -> Iterator[tuple[int, Path, tuple[Path, int], str, str]]:
            for number, part in enumerate(parts):
                found = duplicates.found[number]
                if not found.kept:
                    continue
                made_of = f"{part.key} {found.digest} {encoder.fingerprint} {mark}"
                name = f"{manifest.jobs:04d}-{number:05d}"
                if (shard := read_shard(folder, name, made_of)) is None:
                    place = duplicates.places[number]
                    yield number, part_path(bank, part.key), place, name, made_of
                else:
                    shards[number] = shard
                    progress.skip(found.kept)

        # A static model goes to every worker; other encoders use all cores of a machine.
        if encoder.static is None and settings.cluster.on is None:
            spread = partial(in_processes, 1)
        encode = encoder.encode if encoder.static is None else encoder.static.encode
        made = spread(_make_shard, missing(), folder, quantizer, encode)
        for number, shard, encoded in made:
            if shard is not None:
                shards[number] = shard
            progress.advance(encoded)
    found = [shards[number] for number in sorted(shards)]
    return found, total - sum(shard.sentences for shard in found)


def _make_shard(
    task: tuple[int, Path, tuple[Path, int], str, str],
    folder: Path,
    quantizer: Quantizer,
    encode: Callable[[pa.Array], Floats],
) -> tuple[int, Shard | None, int]:
    """Encode and write a shard; runs in a worker."""
    number, path, place, name, made_of = task
    table = read_columns(path, [TEXT, SOURCE, DOCUMENT]).filter(pa.array(read_kept(*place)))
    texts = table[TEXT].combine_chunks()
    codes, known = [], []
    for start in range(0, len(texts), _ENCODED_AT_ONCE):
        vectors = encode(texts.slice(start, _ENCODED_AT_ONCE))
        has_vector = vectors.any(axis=1)
        codes.append(quantizer.encode(vectors[has_vector]))
        known.append(has_vector)
    mask = np.concatenate(known)
    if not mask.any():
        return number, None, len(texts)
    if not mask.all():
        table = table.filter(pa.array(mask))
    shard = write_shard(folder, name, made_of, table.combine_chunks(), Codes.joined(codes))
    return number, shard, len(texts)

"""Searching a bank: tilth against torch (the original's way) and FAISS, sentences per second.

    python benchmarks/bank.py scan                          # 4 million x 256, 2 queries, k = 10,000
    python benchmarks/bank.py scan --sentences 16000000     # needs 20 GB of memory, 8 GB of disk
    python benchmarks/bank.py scan --vectors FILE.npy       # real vectors, repeated with noise
    python benchmarks/bank.py many                          # 5,000 queries, 1 million, k = 100
    python benchmarks/bank.py build --data ../shared/data   # a bank of DATA/bank, from raw text
    python benchmarks/bank.py query --bank runs/bank        # what one query costs, step by step
    python benchmarks/bank.py index --bank runs/bank        # its index: recall in each source
    python benchmarks/bank.py encode --data ../shared/data  # static encoding, one core

All sides answer the same queries over the same vectors in one process, in turn, several rounds.
Ours is timed as `Bank.search` does it, scan and rescoring, over files mapped into memory and read
once before. Recall is measured against exact float32 products. The last lines of `scan` compare
what the scan reads with a plain read of the same array, by a compiled sum in as many threads: its
median in the same rounds, and the fastest of several. On a machine that others use, processor time
tells more than time: `query` prints both.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import faiss
import numba
import numpy as np
import psutil
import pyarrow as pa
import torch
from numpy.typing import NDArray

from bank_build import build
from inputs import script_parser
from tilth.bank import Bank
from tilth.bank.bank import DEFAULT_OVERSAMPLE
from tilth.bank.ingest.documents import Block
from tilth.bank.ingest.parts import sentences_of_documents
from tilth.bank.manifest import Shard
from tilth.bank.quantization import Quantizer, Signs, fit_quantizer
from tilth.bank.search import exact
from tilth.bank.search.exact import find_candidates, rescore
from tilth.bank.settings import Format, core_count
from tilth.bank.store import MappedShard
from tilth.models.static import read_static

Floats = NDArray[np.float32]
Sides = dict[str, Callable[[], object]]
DIMENSION = 256
SHARD = 1 << 17
THREADS = core_count()
READ = "plain read of int8 codes"


class Made:
    """Vectors like those of sentences: topics, some dimensions stronger than others, a mean.

    The same for every chunk and run; with a file, its rows over and over, each with a little noise.
    """

    def __init__(self, count: int, file: Path | None) -> None:
        self.count = count
        self._real = None if file is None else np.load(file, mmap_mode="r")
        rng = np.random.default_rng(0)
        strength = np.arange(1, DIMENSION + 1) ** -0.35
        self._strength = (strength / np.linalg.norm(strength)).astype(np.float32)
        self._topics = rng.standard_normal((4096, DIMENSION), dtype=np.float32)
        self._mean = rng.standard_normal(DIMENSION).astype(np.float32) * 0.5
        self._noise = rng.standard_normal((SHARD, DIMENSION), dtype=np.float32)

    def __iter__(self) -> Iterator[Floats]:
        for start in range(0, self.count, SHARD):
            yield self.chunk(start // SHARD, min(SHARD, self.count - start))

    def chunk(self, number: int, rows: int) -> Floats:
        """Return some vectors, (rows, dimension)."""
        rng = np.random.default_rng(number + 1)
        # The same noise, its dimensions and signs moved: new numbers would take most of the time.
        signs = rng.choice(np.array([-1, 1], np.float32), DIMENSION)
        noise = self._noise[:rows, rng.permutation(DIMENSION)] * signs
        if self._real is not None:
            places = (number * SHARD + np.arange(rows)) % len(self._real)
            vectors = self._real[places] + (0.02 / 16) * noise
        else:
            topics = self._topics[rng.integers(len(self._topics), size=rows)]
            vectors = (noise + 0.8 * topics + self._mean) * self._strength
        return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def queries(self, count: int) -> Floats:
        """Return means of a few sentences and single ones, in turn."""
        vectors = self.chunk(10**6, 4 * count)
        means = vectors[:count] + vectors[count : 2 * count] * (np.arange(count) % 2)[:, None]
        queries: Floats = means / np.linalg.norm(means, axis=1, keepdims=True)
        return queries.astype(np.float32)


Stored = dict[str, tuple[list[MappedShard], Quantizer]]


def prepare(
    vectors: Made, queries: Floats, k: int, folder: Path
) -> tuple[NDArray[np.int64], Stored]:
    """Write codes as banks hold them; return the ids of the k truly nearest, and the codes."""
    first = vectors.chunk(0, min(SHARD, vectors.count))
    quantizers = {format_: fit_quantizer(format_, first) for format_ in get_args(Format)}
    stored: Stored = {format_: ([], quantizer) for format_, quantizer in quantizers.items()}
    best, ids = torch.empty((len(queries), 0)), torch.empty((len(queries), 0), dtype=torch.int64)
    for number, chunk in enumerate(vectors):
        products = torch.from_numpy(queries) @ torch.from_numpy(chunk).T  # (queries, rows)
        rows = number * SHARD + torch.arange(len(chunk)).expand(len(queries), -1)
        best, ids = torch.cat([best, products], dim=1), torch.cat([ids, rows], dim=1)
        best, places = best.topk(min(k, best.shape[1]), dim=1)
        ids = ids.gather(1, places)
        for format_, (shards, quantizer) in stored.items():
            place = folder / format_ / f"{number:05d}"
            place.mkdir(parents=True)
            codes = quantizer.encode(chunk)
            arrays: dict[str, NDArray[Any] | None] = {
                "codes.npy": codes.codes,
                "scales.npy": codes.scales,
                "fine.npy": codes.residual,
            }
            if format_ == "int8":
                signs = Signs.of(codes)
                arrays |= {"signs.npy": signs.bits, "sign_scales.npy": signs.scales}
            widths = {}
            for name, array in arrays.items():
                if array is not None:
                    np.save(place / name, array)
                    widths[name] = array.shape[1]
            shard = Shard(place.name, len(chunk), 0, dict.fromkeys(widths, (0, "")))
            shards.append(MappedShard(place, shard, number * SHARD, widths))
    return ids.numpy(), stored


def sizes(shard: MappedShard) -> tuple[int, int]:
    """Return the bytes that a scan reads per sentence, and the bytes on disk."""
    scanned = stored = shard.codes.nbytes + shard.scales.nbytes
    if shard.residual is not None:
        stored += shard.residual.nbytes
    if shard.signs is not None:
        stored += shard.signs.bits.nbytes + shard.signs.scales.nbytes
    return scanned // shard.sentences, stored // shard.sentences  # a last group may not be full


def recall(found: NDArray[np.int64], true: NDArray[np.int64]) -> float:
    """Return the share of the true ids that were found."""
    hits = [np.isin(one, other).mean() for one, other in zip(true, found, strict=True)]
    return float(np.mean(hits))


def timed(rounds: int, sides: Sides) -> dict[str, float]:
    """Run all sides in turn; return the median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(rounds + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            if round_:  # the first one warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


@numba.njit(nogil=True, fastmath=True)
def total(values: NDArray[np.int64]) -> int:
    """Return a sum, to read an array as fast as a processor does."""
    found = np.int64(0)
    for place in range(len(values)):
        found += values[place]
    return int(found)


def read(codes: list[NDArray[np.uint8]], threads: int) -> None:
    """Read arrays once, threads taking the next one."""
    views = [code.reshape(-1).view(np.int64) for code in codes]
    if threads == 1:
        for view in views:
            total(view)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(total, views))


def read_bandwidth(codes: list[NDArray[np.uint8]], rounds: int) -> float:
    """Return the fastest plain read of arrays on all cores, bytes a second."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        read(codes, THREADS)
        times.append(time.perf_counter() - start)
    return sum(code.nbytes for code in codes) / min(times[1:])


def without_signs(side: Callable[..., object], *given: object, **options: object) -> None:
    """Run a side as in a bank that holds no signs."""
    with patch.object(exact, "_MOST_BY_SIGNS", -1.0):
        side(*given, **options)


def query(arguments: argparse.Namespace, folder: Path) -> None:  # noqa: ARG001 - as other parts
    """One query over a bank, step by step: milliseconds, and those of the processor."""
    bank = Bank.open(arguments.bank)
    vector = bank.encode(["Which river runs through the old town?"])
    codes = [shard.codes for shard in bank.shards]
    print(f"{len(bank):,} sentences, {arguments.rounds} rounds: least and median")
    candidates = partial(find_candidates, bank.shards, bank.quantizer, vector, 44)
    for threads in sorted({1, THREADS}):
        ids = np.sort(candidates(threads=threads), axis=1)
        sides: Sides = {
            "plain read of the codes": partial(read, codes, threads),
            "candidates, k = 10": partial(candidates, threads=threads),
            "Bank.search, k = 10": partial(bank.search, vector, 10, threads=threads),
            "the same without signs": partial(
                without_signs, bank.search, vector, 10, threads=threads
            ),
            "Bank.search, k = 10,000": partial(bank.search, vector, 10_000, threads=threads),
        }
        if bank.quantizer.format == "int8":  # compact ones are encoded again, in Bank.search
            sides["rescoring"] = partial(
                rescore, bank.shards, bank.quantizer, vector, ids, threads=threads
            )
        for name, side in sides.items():
            times: list[tuple[float, float]] = []
            for _ in range(arguments.rounds + 1):
                begun = time.perf_counter(), time.process_time()
                side()
                times.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
            taken, used = zip(*times[1:], strict=True)
            figures = f"{1e3 * min(taken):6.1f} {1e3 * statistics.median(taken):6.1f} ms, processor"
            figures += f"{1e3 * min(used):6.1f} {1e3 * statistics.median(used):6.1f} ms"
            print(f"{threads} threads {name:26}{figures}", flush=True)


def index(arguments: argparse.Namespace, folder: Path) -> None:  # noqa: ARG001 - as other parts
    """Search of a bank's index, in all and in each source: recall of what the scan finds, time."""
    bank = Bank.open(arguments.bank)
    places = np.linspace(0, len(bank) - 1, arguments.queries).astype(np.int64)
    vectors = bank.encode(bank.texts(places).to_pylist())
    print(f"{len(bank):,} sentences, {len(places)} of them asked for")
    for source, count in {"all": len(bank), **bank.sources()}.items():
        for k in (10, 100):
            found: list[NDArray[np.int64]] = []
            times = [time.process_time()]
            for by_index in (False, True):
                chosen = None if source == "all" else [source]
                found.append(bank.search(vectors, k, sources=chosen, index=by_index).ids)
                times.append(time.process_time())
            scan, visit = np.diff(times)
            print(
                f"{source:24} {count:12,} sentences, k = {k:3}: "
                f"recall {recall(found[1], found[0]):.4f}, {scan / visit:5.1f} x the scan's speed",
                flush=True,
            )


def encode(arguments: argparse.Namespace, folder: Path) -> None:  # noqa: ARG001 - as other parts
    """Sentences of DATA/bank through the static encoder: processor time of one core."""
    texts: list[str] = []
    for file in sorted((arguments.data / "bank").glob("*.txt.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            data = "".join(islice(lines, 4000)).encode()
            block = Block(file.name, 0, 1, data, len(data))
        texts += sentences_of_documents(block).table["text"].to_pylist()
    encoder = read_static("starter-static")
    assert encoder is not None
    array, times = pa.array(texts, pa.large_string()), []
    for _ in range(arguments.rounds + 1):
        begun = time.process_time()
        encoder.encode(array)
        times.append(time.process_time() - begun)
    rates = [len(texts) / seconds for seconds in times]
    print(
        f"{len(texts):,} sentences, {sum(map(len, texts)) / len(texts):.0f} characters, one core: "
        f"cold {rates[0]:,.0f}, warm {statistics.median(rates[1:]):,.0f} (best {max(rates):,.0f}) "
        "a second of processor time"
    )


def search(
    shards: list[MappedShard], quantizer: Quantizer, queries: Floats, k: int, *, again: bool = True
) -> NDArray[np.int64]:
    """Return the ids of the k nearest as `Bank.search` finds them, (queries, k)."""
    best = int(np.ceil(k * DEFAULT_OVERSAMPLE[quantizer.format])) + 32 if again else k
    ids = find_candidates(shards, quantizer, queries, best, threads=THREADS)
    if not again or quantizer.format == "compact":  # compact ones are encoded again, elsewhere
        return ids
    similarities = rescore(shards, quantizer, queries, ids, threads=THREADS)
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, order, axis=1)


def peers(vectors: Made, queries: Floats, k: int) -> Sides:
    """Return what torch and FAISS do, over float32 vectors in memory."""
    floats = torch.empty((vectors.count, DIMENSION))
    for number, chunk in enumerate(vectors):
        floats[number * SHARD : number * SHARD + len(chunk)] = torch.from_numpy(chunk)
    asked = torch.from_numpy(queries)
    return {
        "torch float32 matmul + topk": lambda: torch.mm(floats, asked.T).topk(k, dim=0),
        "FAISS IndexFlatIP": lambda: faiss.knn(
            queries, floats.numpy(), k, metric=faiss.METRIC_INNER_PRODUCT
        ),
    }


def scan(arguments: argparse.Namespace, folder: Path) -> None:
    """Few queries: all sentences at the speed of memory."""
    vectors = Made(arguments.sentences, arguments.vectors)
    queries, k, count = vectors.queries(arguments.queries), arguments.k, arguments.sentences
    true, stored = prepare(vectors, queries, k, folder)
    faiss.omp_set_num_threads(THREADS)
    codes = [shard.codes for shard in stored["int8"][0]]
    ours: Sides = {READ: lambda: read(codes, THREADS)}
    for format_, (shards, quantizer) in stored.items():
        given = (shards, quantizer, queries, k)
        ours[f"tilth {format_}, scan"] = partial(search, *given, again=False)
        ours[f"tilth {format_}"] = partial(search, *given)
    bytes_of = {format_: sizes(shards[0]) for format_, (shards, _) in stored.items()}
    size = count * (4 * DIMENSION + sum(on_disk for _, on_disk in bytes_of.values()))
    if size < 0.8 * psutil.virtual_memory().total:
        seconds = timed(arguments.rounds, {**peers(vectors, queries, k), **ours})
    else:  # not both at once: ours before and after, and nothing else in memory meanwhile
        before = timed(arguments.rounds, ours)
        seconds = timed(arguments.rounds, peers(vectors, queries, k))
        after = timed(arguments.rounds, ours)
        seconds |= {name: (before[name] + after[name]) / 2 for name in ours}
    print(f"{count:,} x {DIMENSION}, {len(queries)} queries, k = {k:,}, {THREADS} threads")
    torch_rate = count / seconds["torch float32 matmul + topk"]
    faiss_rate = count / seconds["FAISS IndexFlatIP"]
    for name, value in seconds.items():
        rate = count / value
        line = f"{name:28} {1e3 * value:8.1f} ms {rate / 1e6:8.1f} M sentences/s"
        if name.startswith("tilth"):
            format_ = name.split()[1].strip(",")
            shards, quantizer = stored[format_]
            again = not name.endswith("scan")
            found = search(shards, quantizer, queries, k, again=again)
            wanted = "candidates' recall" if again and quantizer.format == "compact" else "recall"
            line += (
                f"  {rate / torch_rate:5.2f} x torch {rate / faiss_rate:5.2f} x FAISS"
                f"  {wanted} {recall(found, true):.4f}"
                "  {} bytes scanned, {} stored".format(*bytes_of[format_])
            )
        print(line, flush=True)
    limits = {
        "the plain read in these rounds": sum(code.nbytes for code in codes) / seconds[READ],
        "the fastest plain read": read_bandwidth(codes, arguments.rounds),
    }
    for name in ("tilth int8, scan", "tilth int8"):
        rate = count * bytes_of["int8"][0] / seconds[name]
        shares = (f"{rate / most:.0%} of {what}, {most / 1e9:.1f}" for what, most in limits.items())
        print(f"{name}: {rate / 1e9:.1f} GB/s; {'; '.join(shares)}")


def many(arguments: argparse.Namespace, folder: Path) -> None:
    """Many queries: products block by block."""
    vectors = Made(arguments.sentences, arguments.vectors)
    queries, k, count = vectors.queries(arguments.queries), arguments.k, arguments.sentences
    floats = np.concatenate(list(vectors))
    flat = faiss.IndexFlatIP(DIMENSION)
    flat.add(floats)
    faiss.omp_set_num_threads(THREADS)
    true, stored = prepare(vectors, queries[:500], k, folder)
    sides: Sides = {"FAISS IndexFlatIP": lambda: flat.search(queries, k)}
    for format_, (shards, quantizer) in stored.items():
        sides[f"tilth {format_}"] = partial(search, shards, quantizer, queries, k)
    seconds = timed(arguments.rounds, sides)
    print(f"{count:,} x {DIMENSION}, {len(queries):,} queries, k = {k:,}, {THREADS} threads")
    for name, value in seconds.items():
        line = f"{name:20} {value:7.2f} s {len(queries) / value:8.1f} queries/s"
        if name.startswith("tilth"):
            shards, quantizer = stored[name.split()[1]]
            found = recall(search(shards, quantizer, queries[:500], k), true)
            line += f"  {seconds['FAISS IndexFlatIP'] / value:5.2f} x FAISS  recall {found:.4f}"
        print(line, flush=True)


PARTS = {
    "scan": scan, "many": many, "build": build, "query": query, "index": index, "encode": encode
}  # fmt: skip


def main() -> None:
    """Run a part."""
    parser = script_parser(__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--sentences", type=int, help="default: 4 million, many: 1 million")
    parser.add_argument("--queries", type=int, help="default: 2, many: 5,000, index: 150")
    parser.add_argument("--k", type=int, help="default: 10,000, many: 100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vectors", type=Path, help="float32 unit vectors as .npy")
    parser.add_argument("--data", type=Path, help="build, encode: a folder with bank/")
    parser.add_argument("--bank", type=Path, help="query, index: a bank of starter-static")
    parser.add_argument(
        "--format", choices=get_args(Format), default="int8", help="build: of the vectors"
    )
    parser.add_argument("--folder", type=Path, help="for the files; default: a temporary one")
    arguments = parser.parse_args()
    defaults = {"many": (1_000_000, 5000, 100), "index": (0, 150, 0)}.get(
        arguments.part, (4_000_000, 2, 10_000)
    )
    arguments.sentences = arguments.sentences or defaults[0]
    arguments.queries = arguments.queries or defaults[1]
    arguments.k = arguments.k or defaults[2]
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        PARTS[arguments.part](arguments, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""Latencies and memory of `tilth view` on a run of a million rows: pages, filters, search, readers.

    python benchmarks/view.py --rows 1000000 --readers 20
    python benchmarks/view.py --bank BANK

Texts are random words with the frequencies of Zipf's law. The server is a process of its own; times
are of whole answers over HTTP, in milliseconds. "alone": one reader; "together": all readers at
once, each asking again `--pause` seconds (on average) after it is answered. With a bank, its search
as one types is measured instead.
"""

import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import psutil
import pyarrow as pa

from inputs import script_parser
from tilth.runs import Run

LABELS = ("1", "0.5", "0")
REASONS = ("newline", "not-closed", "empty", "label-fit")
WORDS = 30_000  # of the vocabulary
PART = 50_000
ROUNDS = 12


def make_run(folder: Path, rows: int) -> None:
    """Write a finished generate run of pairs, a tenth of them dropped."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{place}" for place in range(WORDS)])
    frequency = 1 / np.arange(1, WORDS + 1)
    frequency /= frequency.sum()
    parts = -(-rows // PART)
    run = Run.open(folder, command="generate", settings={"seed": 0}, fingerprints={}, parts=parts)
    with run:
        for part in range(parts):
            count = min(PART, rows - part * PART)
            drawn = words[rng.choice(WORDS, size=(count, 24), p=frequency)]
            numbers = np.arange(part * PART, part * PART + count)
            dropped = rng.random(count) < 0.1
            reasons = rng.choice(REASONS, count)
            table = pa.table(
                {
                    "text_a": [" ".join(row[:12]) for row in drawn],
                    "text_b": [" ".join(row[12:]) for row in drawn],
                    "label": rng.choice(LABELS, count),
                    "source_id": [f"s{number // 6}" for number in numbers],
                    "drop_reason": [
                        reason if is_dropped else None
                        for reason, is_dropped in zip(reasons, dropped, strict=True)
                    ],
                    "similarity": rng.random(count).astype(np.float32),
                    "confidence": rng.random(count).astype(np.float32),
                    "tokens": rng.integers(5, 40, count),
                }
            )
            run.write_part(part, table)


def addresses(rows: int) -> dict[str, Callable[[random.Random], str]]:
    """Return kind of page -> a function that draws an address of it."""

    def word(rng: random.Random) -> str:
        return f"w{int(WORDS ** rng.random())}"

    return {
        "first page": lambda _: "/rows?run=.",
        "a later page": lambda rng: f"/rows?run=.&after={rng.randrange(rows)}",
        "label and state": lambda rng: f"/rows?run=.&label={rng.choice(LABELS)}&state=kept",
        "reason": lambda rng: f"/rows?run=.&reason={rng.choice(REASONS)}",
        "range": lambda rng: f"/rows?run=.&similarity-min={rng.random():.2f}&confidence-max=0.7",
        "sorted": lambda rng: f"/rows?run=.&sort=similarity&order=down&label={rng.choice(LABELS)}",
        "a word": lambda rng: f"/rows?run=.&q={word(rng)}",
        "two words": lambda rng: f"/rows?run=.&q={word(rng)}+{word(rng)}",
        "word, label, sorted": lambda rng: f"/rows?run=.&q={word(rng)}&label=1&sort=confidence",
        "a beginning": lambda rng: f"/rows?run=.&q=w{rng.randrange(10, 300)}*",
        "one row": lambda rng: f"/row?run=.&row={rng.randrange(rows)}",
    }


TYPED = (
    "Which river runs through Vienna?", "the food was cold and the waiter was rude",
    "patients with kidney disease were treated", "how do i reset my password",
    "the president said on tuesday that",
)  # fmt: skip


def search(bank: Path) -> None:
    """Print the latencies of a search after each second character that is typed."""
    command = [sys.executable, "-m", "tilth", "view", str(bank), "--bank", str(bank)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = re.search(r"http://\S+", server.stderr.readline())
        assert url is not None
        base = url[0].partition("/?")[0]
        with httpx.Client(base_url=base, timeout=120, headers={"Origin": base}) as client:
            client.get(url[0])
            csrf = re.search(r'name="csrf" value="(\w+)"', client.get("/try/search").text)
            assert csrf is not None
            form = {"csrf": csrf[1], "bank": str(bank), "live": "1"}
            while "<table" not in client.post("/try/search", data={**form, "query": "a"}).text:
                time.sleep(1.0)  # it is opened
            times, process = [], psutil.Process(server.pid)
            used = sum(process.cpu_times()[:2])
            for text in TYPED * 3:
                for end in range(3, len(text) + 1, 2):
                    begun = time.perf_counter()
                    answer = client.post("/try/search", data={**form, "query": text[:end]})
                    times.append(time.perf_counter() - begun)
                    assert answer.status_code == 200, answer.text
            used = sum(process.cpu_times()[:2]) - used
        server.terminate()
    print(f"processor time of the server: {1000 * used / len(times):.0f} ms a search")
    show(f"{len(times)} searches", {"as one types": times})


def ask(
    url: str, kinds: dict[str, Callable[[random.Random], str]], seed: int, pause: float = 0.0
) -> dict[str, list[float]]:
    """Ask for each kind of page in turn, some rounds; return the seconds of each."""
    rng = random.Random(seed)
    found: dict[str, list[float]] = {name: [] for name in kinds}
    with httpx.Client(base_url=url.partition("/?")[0], timeout=120) as client:
        client.get(url)
        for _ in range(ROUNDS):
            for name in rng.sample(list(kinds), len(kinds)):
                time.sleep(2 * pause * rng.random())
                begun = time.perf_counter()
                answer = client.get(kinds[name](rng))
                found[name].append(time.perf_counter() - begun)
                assert answer.status_code == 200, answer.text
    return found


def show(title: str, found: dict[str, list[float]]) -> None:
    """Print the median and the 95th percentile of each kind of page."""
    print(f"\n{title:24} median    95%  (ms)")
    every = [seconds for times in found.values() for seconds in times]
    for name, times in {**found, "all": every}.items():
        high = statistics.quantiles(times, n=20)[-1]
        print(f"{name:24} {1000 * statistics.median(times):6.0f} {1000 * high:6.0f}")


def main() -> None:
    """Make the run, serve it, measure."""
    options = script_parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--readers", type=int, default=20)
    options.add_argument("--pause", type=float, default=0.0, help="seconds a reader reads, mean")
    options.add_argument("--bank", type=Path)
    given = options.parse_args()
    if given.bank is not None:
        search(given.bank)
        return
    root = Path(tempfile.mkdtemp())
    try:
        begun = time.perf_counter()
        make_run(root / "run", given.rows)
        print(f"{given.rows:,} rows written in {time.perf_counter() - begun:.0f} s")
        measure(root / "run", given.rows, given.readers, given.pause)
    finally:
        shutil.rmtree(root)


def measure(run: Path, rows: int, readers: int, pause: float) -> None:
    """Serve a run and print the figures."""
    command = [sys.executable, "-m", "tilth", "view", str(run)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = re.search(r"http://\S+", server.stderr.readline())
        assert url is not None
        process = psutil.Process(server.pid)
        memory = process.memory_info

        def processor_ms(since: float = 0.0) -> float:
            times = process.cpu_times()
            return 1000 * float(times.user + times.system) - since

        with httpx.Client(base_url=url[0].partition("/?")[0], timeout=120) as client:
            client.get(url[0])
            begun = time.perf_counter()
            client.get("/rows?run=.")
            print(f"first page of the run: {time.perf_counter() - begun:.1f} s")
            while f"All {rows:,} rows" not in client.get("/live/rows?run=.").text:
                time.sleep(0.2)
            print(f"all rows indexed after {time.perf_counter() - begun:.0f} s, "
                  f"memory {memory().rss / 1e6:.0f} MB")  # fmt: skip
        kinds = addresses(rows)
        used = processor_ms()
        show("alone", ask(url[0], kinds, 0))
        each = processor_ms(used) / (ROUNDS * len(kinds))
        print(f"processor time of the server: {each:.0f} ms a page")
        found: list[dict[str, list[float]]] = []

        def read(seed: int) -> None:
            found.append(ask(url[0], kinds, seed, pause))

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(1, readers + 1)]
        begun, used = time.perf_counter(), processor_ms()
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        seconds = time.perf_counter() - begun
        together = {name: [s for one in found for s in one[name]] for name in kinds}
        show(f"together, {readers} readers", together)
        pages = sum(len(times) for times in together.values())
        print(f"{pages / seconds:.0f} pages a second, {processor_ms(used) / pages:.0f} ms of "
              f"processor time each; memory {memory().rss / 1e6:.0f} MB")  # fmt: skip
        server.terminate()


if __name__ == "__main__":
    main()

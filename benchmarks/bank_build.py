"""Building a bank of raw text: seconds, size, peak memory, query times; linear in the text.

A tenth, a third and all of the lines of DATA/bank, each by the command line in processes of its
own. Peak memory is the sum over all of them of what each has for itself and its share of what they
share (PSS). Cold queries come after the operating system was told to forget the bank's files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tilth.bank import Bank

PARTS = (10, 3, 1)
QUERIES = ["The committee will vote on the new budget next week.", "Her fever rose in the night."]


def build(arguments: argparse.Namespace, folder: Path) -> None:
    """Build banks of a tenth, a third and all of the text, and search each."""
    if arguments.data is None:
        raise SystemExit("build: name the data with --data")
    print(f"raw text of {arguments.data / 'bank'}, {os.cpu_count()} cores", flush=True)
    for part in PARTS:
        text = folder / f"text-{part}"
        lines = take(arguments.data / "bank", text, part)
        bank = folder / f"bank-{part}"
        seconds, peak = timed_build(text, bank, arguments.format)
        opened = Bank.open(bank)
        manifest, count = opened.manifest, len(opened)
        found, size = count + sum(manifest.dropped.values()), sum(manifest.file_bytes.values())
        print(
            f"1/{part}: {lines:,} documents, {found:,} sentences, {count:,} kept: {seconds:.1f} s, "
            f"{found / seconds:,.0f} sentences/s, peak memory {peak / 1e9:.2f} GB, on disk "
            f"{size / 1e6:,.0f} MB, {size / count:.0f} bytes a sentence",
            flush=True,
        )
        print(f"    dropped: {json.dumps(manifest.dropped)}")
        print(f"    {query_times(bank)}", flush=True)


def take(source: Path, folder: Path, part: int) -> int:
    """Copy every nth line of every file; return how many."""
    folder.mkdir()
    lines = 0
    for file in sorted(source.glob("*.txt.gz")):
        with gzip.open(file, "rb") as old, gzip.open(folder / file.name, "wb", 1) as new:
            for number, line in enumerate(old):
                if number % part == 0:
                    new.write(line)
                    lines += 1
    return lines


def timed_build(text: Path, bank: Path, format_: str) -> tuple[float, int]:
    """Build a bank by the command line; return seconds and the peak of its processes' memory."""
    command = [sys.executable, "-m", "tilth", "bank", "build", str(text), "--out", str(bank)]
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen([*command, "--format", format_], stdout=subprocess.DEVNULL)
    root = psutil.Process(process.pid)
    while process.poll() is None:
        peak = max(peak, sum(map(own_bytes, (root, *root.children(recursive=True)))))
        time.sleep(0.5)
    if process.returncode:
        raise SystemExit(process.returncode)
    return time.perf_counter() - start, peak


def own_bytes(process: psutil.Process) -> int:
    """Return what a process has for itself and its share of what it shares; 0 when it has ended."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def query_times(folder: Path) -> str:
    """Return how long two queries take, cold and warm, k = 10 and 10,000."""
    times = []
    for k in (10, 10_000):
        for file in folder.glob("shards/*/*"):
            with open(file, "rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        bank = Bank.open(folder)
        bank.encode(QUERIES)  # loads the encoder
        k = min(k, len(bank))
        milliseconds = []
        for _ in range(6):
            start = time.perf_counter()
            bank.search(QUERIES, k)
            milliseconds.append(1e3 * (time.perf_counter() - start))
        warm = sorted(milliseconds[1:])[2]
        times.append(f"k = {k:,}: cold {milliseconds[0]:.0f} ms, warm {warm:.1f} ms")
    return "2 queries, " + "; ".join(times)

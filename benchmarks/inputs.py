"""What benchmarks share: their options' parser, a file's lines, input sentences of any number."""

from __future__ import annotations

import gzip
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from tilth.workflows.quickstart import quickstart_sentences


def script_parser(description: str | None) -> ArgumentParser:
    """Return a parser whose help shows a module's docstring, its lines kept."""
    return ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)


def lines(file: Path) -> list[str]:
    """Return the lines of a gz file."""
    with gzip.open(file, "rt", encoding="utf-8") as text:
        return text.read().splitlines()


def joined_sentences(count: int) -> list[str]:
    """Return different sentences: beginnings and ends of the shipped ones joined anew."""
    shipped = quickstart_sentences()
    if count <= len(shipped):
        return shipped[:count]
    beginnings = [" ".join(sentence.split()[:5]) for sentence in shipped]
    ends = [" ".join(sentence.split()[-6:]) for sentence in shipped]
    joined = (
        f"{beginnings[n % len(shipped)]} {ends[(n + n // len(shipped) * 7 + 3) % len(shipped)]}"
        for n in range(4 * count)
    )
    return list(dict.fromkeys(joined))[:count]

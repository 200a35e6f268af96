"""A command that makes a run of numbers under a URL: URL PARTS SECONDS-A-PART [--overwrite]."""

import logging
import sys
import time

import pyarrow as pa

from tilth.errors import TilthError
from tilth.runs import Progress, Run, complete


def main(url: str, parts: int, seconds: float, *, overwrite: bool = False) -> None:
    run = Run.open(
        url, command="test", settings={"seed": 0}, fingerprints={}, parts=parts,
        overwrite=overwrite,
    )  # fmt: skip

    def work(index: int, progress: Progress) -> pa.Table:
        time.sleep(seconds)
        return pa.table({"number": [index] * 3})

    with run:
        complete(run, work, [3] * parts, quiet=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    try:
        main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), overwrite="--overwrite" in sys.argv)
    except TilthError as error:
        sys.exit(f"error: {error}")

"""Compares the rows that two commits make from the same settings and seeds.

    python benchmarks/same_rows.py REVISION

The commands `generate`, `paraphrase`, `bank build` and `bank search` run on sentences of this
repository, once with the working tree's code and once with that of REVISION (in a temporary git
worktree). Every column of every row of their data sets has to be equal; the exit code is 1 if not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from inputs import script_parser

ROOT = Path(__file__).resolve().parents[1]
SENTENCES = "quickstart_sentences.txt"
COMMANDS = {
    "pairs": "generate sts-x2 --inputs {in}/few.txt --seed 3 --precision float32",
    "classes": "generate {in}/task.yaml --count 12 --seed 4 --precision float32",
    "rewrites": "paraphrase {in}/few.txt --seed 5",
    "bank": "bank build {in}/all.txt",
    "compact": "bank build {in}/all.txt --format compact",
    "hits": "bank search {out}/bank --queries {in}/few.txt -k 20",
    "compact hits": "bank search {out}/compact --queries {in}/few.txt -k 20",
    "label hits": "bank search {out}/bank --task {in}/labelled.jsonl -k 30",
}


def run(source: Path, inputs: Path, out: Path) -> None:
    """Run the commands with a source tree's code."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
    for name, words in COMMANDS.items():
        said = words.format(**{"in": inputs, "out": out}).split()
        command = [sys.executable, "-m", "tilth", *said, "--out", str(out / name.replace(" ", "-"))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=out)
        if done.returncode:
            sys.exit(f"{source}: {name}: {done.stderr.strip()}")


def rows(folder: Path) -> pa.Table:
    """Return the rows of a run's data set, or of a bank's shards, in order."""
    place = folder / "dataset" if (folder / "dataset").is_dir() else folder
    files = sorted(map(str, [*place.rglob("*.parquet"), *place.rglob("*.arrow")]))
    if not files:
        sys.exit(f"{folder}: no rows")
    kind = "parquet" if files[0].endswith(".parquet") else "ipc"
    return ds.dataset(files, format=kind).to_table()


def main() -> int:
    """Run both versions and compare."""
    parser = script_parser(__doc__)
    parser.add_argument("revision", help="that the working tree is compared with")
    revision = parser.parse_args().revision
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        old, inputs = place / "old", place / "inputs"
        subprocess.run(
            ["git", "-C", ROOT, "worktree", "add", "--detach", "-q", old, revision], check=True
        )
        try:
            inputs.mkdir()
            texts = next((ROOT / "src").rglob(SENTENCES)).read_text(encoding="utf-8").splitlines()
            (inputs / "all.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
            (inputs / "few.txt").write_text("\n".join(texts[:24]) + "\n", encoding="utf-8")
            (inputs / "task.yaml").write_bytes((ROOT / "examples/task.yaml").read_bytes())
            (inputs / "labelled.jsonl").write_text(
                "".join(
                    f'{{"text": "{text}", "label": "{n % 2}"}}\n'
                    for n, text in enumerate(texts[:30])
                    if '"' not in text
                ),
                encoding="utf-8",
            )
            for name, source in (("before", old), ("after", ROOT)):
                (place / name).mkdir()
                run(source, inputs, place / name)
            unlike = 0
            for name in COMMANDS:
                one, two = (
                    rows(place / side / name.replace(" ", "-")) for side in ("before", "after")
                )
                same = one.equals(two)
                unlike += not same
                print(f"{name}: {len(two)} rows, {'equal' if same else 'NOT EQUAL'}")
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", old], check=True)
    return int(unlike > 0)


if __name__ == "__main__":
    sys.exit(main())

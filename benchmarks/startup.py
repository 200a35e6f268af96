"""What starting costs: the processor time of each command on a few rows, and what it imports.

    python benchmarks/startup.py                          # every command
    python benchmarks/startup.py --bank runs/bank         # searches this bank, not a small one
    python benchmarks/startup.py --only help search --rounds 9

Each command runs in processes of its own, with one thread, the commands in turn; the first round,
in which Python writes its byte code and numba compiles, does not count. Printed are the median,
least and most user and system seconds of a process with its children, and the heavy libraries that
it imported. The jobs are so short that nearly all of it is start-up; `python` is the bare
interpreter.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from inputs import joined_sentences, script_parser

HEAVY = (
    "numpy", "pyarrow", "numba", "scipy", "sklearn", "pandas", "datasets", "tokenizers", "duckdb",
    "torch", "transformers", "sentence_transformers",
)  # fmt: skip
# {f} is a folder of inputs, {bank} a bank, {out} a new folder. Later ones read what earlier made.
JOBS = {
    "help": "--help",
    "wrong": "bank search no-such-bank text",
    "help-train": "train classifier --help",
    "recipes": "recipe list",
    "build": "bank build {f}/sentences.txt --workers 1 --out {out}",
    "info": "bank info {bank}",
    "search": "bank search {bank} {query} -k 5",
    "sts-static": "evaluate sts starter-static --data {f}/pairs.jsonl --bootstrap 0",
    "sts": "evaluate sts starter-encoder --data {f}/pairs.jsonl --bootstrap 0",
    "embed-static": "predict starter-static {f}/few.txt --out {out}",
    "embed": "predict starter-encoder {f}/few.txt --out {out}",
    "generate": "generate sts-x2 --inputs {f}/few.txt --per-input 1 --out {out}",
    "curate": "curate {f}/pairs.jsonl --out {out}",
    "paraphrase": "paraphrase {f}/one.txt --out {out}",
    "train": "train classifier {f}/labelled.jsonl --epochs 1 --out {out}",
    "classify": "evaluate classify {train} --data {f}/labelled.jsonl --bootstrap 0",
    "label": "predict {train} {f}/few.txt --out {out}",
    "report": "report {generate}",
}
# Of a job, the one that makes what it reads. Training is work, and not timed unless it is named.
NEEDED = {
    "info": "build", "search": "build", "classify": "train", "label": "train", "report": "generate",
}  # fmt: skip
QUERY = "Which river runs through the old town?"
# Runs a command as the shell does, and writes down the libraries that it has imported.
TRACED = """
import atexit, pathlib, sys
into, *words = sys.argv[1:]
sys.argv = ["tilth", *words]
found = lambda: "\\n".join(name for name in HEAVY if name in sys.modules)
atexit.register(lambda: pathlib.Path(into).write_text(found()))
from tilth.__main__ import main
main()
""".replace("HEAVY", repr(HEAVY))


class Commands:
    """Runs the jobs in a folder."""

    def __init__(self, folder: Path, bank: Path | None) -> None:
        self.folder, self.bank, self.made = folder, bank, 0
        self.outputs: dict[str, Path] = {}  # of each job, the folder that its last run wrote
        write_inputs(folder)

    def words(self, job: str) -> list[str]:
        """Return the words of a job, with a new folder for what it writes."""
        self.made += 1
        bank = self.bank or self.outputs.get("build")
        given = {**self.outputs, "f": self.folder, "bank": bank, "query": QUERY}
        self.outputs[job] = self.folder / f"{job}-{self.made}"
        return [word.format(**given, out=self.outputs[job]) for word in JOBS[job].split()]

    def libraries(self, job: str) -> list[str]:
        """Run a job; return the heavy libraries that it imported."""
        into = self.folder / "imported.txt"
        run([sys.executable, "-c", TRACED, str(into), *self.words(job)], job)
        return into.read_text().split()

    def seconds(self, job: str) -> float:
        """Run a job; return its user and system seconds."""
        if job == "python":
            return run([sys.executable, "-c", ""], job)
        return run([sys.executable, "-m", "tilth", *self.words(job)], job)


def write_inputs(folder: Path) -> None:
    """Write a few sentences, scored pairs and labelled rows."""
    sentences = joined_sentences(2000)
    for name, count in (("sentences", 2000), ("few", 4), ("one", 1)):
        (folder / f"{name}.txt").write_text("\n".join(sentences[:count]) + "\n")
    pairs = [
        {"text_a": sentences[n], "text_b": sentences[n + n % 5], "label": 4.0 - n % 5}
        for n in range(40)
    ]
    labelled = [{"text": sentences[n], "label": "ab"[n % 2]} for n in range(24)]
    for name, rows in (("pairs", pairs), ("labelled", labelled)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def run(command: list[str], job: str) -> float:
    """Run a command with one thread; return the user and system seconds of it and its children."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != (2 if job == "wrong" else 0):
            said.seek(0)
            raise SystemExit(f"{' '.join(command)}\n{said.read().decode()}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run every job in turn and print what each took."""
    parser = script_parser(__doc__)
    parser.add_argument("--bank", type=Path, help="a bank built with starter-static")
    parser.add_argument("--only", nargs="+", choices=list(JOBS), help="these jobs alone")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    only = asked.only or [job for job in JOBS if job != "train"]
    with tempfile.TemporaryDirectory() as folder:
        commands = Commands(Path(folder), asked.bank)
        first = {*only, *(NEEDED[job] for job in only if job in NEEDED)}
        imported = {job: commands.libraries(job) for job in JOBS if job in first}
        seconds: dict[str, list[float]] = {job: [] for job in ("python", *only)}
        for _ in range(asked.rounds):
            for job, taken in seconds.items():
                taken.append(commands.seconds(job))
    print(f"{asked.rounds} rounds, load {os.getloadavg()[0]:.1f}: median, least and most seconds")
    for job, taken in seconds.items():
        figures = f"{statistics.median(taken):7.2f} {min(taken):7.2f} {max(taken):7.2f}"
        print(f"{job:14}{figures}  {' '.join(imported.get(job, []))}", flush=True)


if __name__ == "__main__":
    main()

"""How time, memory and disk grow with the size of a job.

    python benchmarks/scaling.py                              # every job, three hours
    python benchmarks/scaling.py --most 10000                 # the smaller sizes
    python benchmarks/scaling.py --jobs build search --most 300000
    python benchmarks/scaling.py --plot scaling.png           # needs matplotlib

Each job is a command on inputs of growing size, in a process of its own with one thread. Printed
are processor seconds, peak memory of a process and bytes written, and of each the exponent p of
size^p: the slope between the two largest sizes, once the cost of the smallest job, which is
start-up, is taken away. Sentences are random words, so that no two are alike; the language model of
`generate` and the teacher of `augment` are tiny and random, so that what tilth itself does counts.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inputs import joined_sentences, script_parser

# {n}.txt holds n sentences, {n}.jsonl n pairs, {n}-texts.jsonl n texts. Then unit, sizes, and units
# for each line of input.
JOBS = {
    "generate": ("generate sts-x2 --model {f}/lm --inputs {f}/{n}.txt --per-input 1 --max-tries 1 "
                 "--out {out}", "attempts", (10, 300, 1_000, 3_000, 10_000, 333_334), 3),
    "starter": ("generate sts-x2 --inputs {f}/{n}.txt --per-input 1 --out {out}",
                "kept pairs", (1, 100, 300, 1_000), 3),
    "curate": ("curate {f}/{n}.jsonl --out {out}", "rows",
               (10, 10_000, 30_000, 100_000, 300_000, 1_000_000), 1),
    "build": ("bank build {f}/{n}.txt --workers 1 --out {out}", "sentences",
              (10, 30_000, 100_000, 300_000, 1_000_000, 3_000_000), 1),
    "search": ("bank search {build} query -k 10", "sentences",
               (10, 30_000, 100_000, 300_000, 1_000_000, 3_000_000), 1),
    "augment": ("augment {f}/{n}-texts.jsonl --bank {f}/bank --teacher {f}/teacher --multiple 10 "
                "--out {out}", "rows wanted", (10, 100, 1_000, 10_000), 10),
    "paraphrase": ("paraphrase {f}/{n}.txt --out {out}", "sentences",
                   (1, 30, 100, 300, 1_000, 3_000, 10_000), 1),
    "predict": ("predict starter-encoder {f}/{n}.txt --out {out}", "texts",
                (10, 1_000, 3_000, 10_000), 1),
    "report": ("report {generate}", "attempts", (10, 300, 1_000, 3_000, 10_000, 333_334), 3),
}  # fmt: skip
BANK = 300_000  # sentences of the bank of `augment`
TINY = """
import sys
from dataclasses import replace
from transformers import BertConfig, BertForSequenceClassification
from generate import gpt2_shape
from tilth.models.classifier import new_classifier
small = gpt2_shape(n_layer=1, n_embd=32, n_head=2, vocab_size=2_000)
small.model.save_pretrained(sys.argv[1] + "/lm")
small.tokenizer.save_pretrained(sys.argv[1] + "/lm")
teacher = new_classifier("starter-encoder", kind="class", labels=["even", "odd"], device="cpu")
shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
names = {"id2label": teacher.model.config.id2label, "label2id": teacher.model.config.label2id}
config = BertConfig(vocab_size=len(teacher.tokenizer), intermediate_size=64, **shape, **names)
replace(teacher, model=BertForSequenceClassification(config)).save(sys.argv[1] + "/teacher")
"""
NEEDED = {"search": "build", "report": "generate"}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a job of `size` cost: processor seconds, peak memory in MiB, bytes written."""

    size: int
    seconds: float
    memory: float
    disk: int


def sentences(count: int) -> Iterator[str]:
    """Yield sentences of 8 to 15 words, the same for every run."""
    words = sorted({word for text in joined_sentences(400) for word in text.lower().split()})
    rng = np.random.default_rng(0)
    for start in range(0, count, 10_000):
        for length in rng.integers(8, 16, min(10_000, count - start)).tolist():
            chosen = rng.integers(len(words), size=length)
            yield " ".join(words[place] for place in chosen.tolist()).capitalize() + "."


def write_inputs(folder: Path, size: int) -> None:
    """Write sentences, labelled pairs for `curate`, and labelled texts for `augment`."""
    with (folder / f"{size}.txt").open("w") as text:
        text.writelines(f"{one}\n" for one in sentences(size))
    with (folder / f"{size}-texts.jsonl").open("w") as texts:
        for number, one in enumerate(sentences(size)):
            texts.write(json.dumps({"text": one, "label": ("even", "odd")[number % 2]}) + "\n")
    with (folder / f"{size}.jsonl").open("w") as rows:
        for number, one in enumerate(sentences(size)):
            first, second = one.split()[:5], one.split()[5:]
            row = {"text_a": " ".join(first), "text_b": " ".join(second), "label": number % 2}
            rows.write(json.dumps(row) + "\n")


def run(command: list[str], size: int, out: Path) -> Cost:
    """Run a command with one thread; return what it and its children cost."""
    with tempfile.TemporaryFile() as said:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{' '.join(command)}\n{said.read().decode()}")
    disk = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return Cost(size, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**10, disk)


def exponent(costs: list[Cost], name: str) -> float:
    """Return p of size^p between the two largest sizes, beyond the smallest job's cost."""
    first, *_, smaller, larger = costs
    begun = float(getattr(first, name))
    grown = [max(float(getattr(cost, name)) - begun, 1e-9) for cost in (smaller, larger)]
    return math.log(grown[1] / grown[0]) / math.log(larger.size / smaller.size)


def plot(found: dict[str, list[Cost]], file: Path) -> None:
    """Draw seconds and memory against size."""
    from matplotlib import pyplot

    _, axes = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for axis, name, unit in zip(axes, ("seconds", "memory"), ("processor s", "MiB"), strict=True):
        for job, costs in found.items():
            values = [getattr(cost, name) for cost in costs]
            axis.loglog([cost.size for cost in costs], values, marker="o", label=job)
        axis.set(xlabel="size", ylabel=unit)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    pyplot.tight_layout()
    pyplot.savefig(file, dpi=110)


def main() -> None:
    """Run the jobs and print what they cost."""
    parser = script_parser(__doc__)
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--most", type=int, default=10**7, help="no input of more lines")
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    jobs = [job for job in JOBS if job in asked.jobs or job in map(NEEDED.get, asked.jobs)]
    found: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        # In a process of its own: the peak of a job is no less than what this process holds.
        subprocess.run(
            [sys.executable, "-c", TINY, str(folder)], check=True, cwd=Path(__file__).parent
        )
        if "augment" in jobs:
            write_inputs(folder, BANK)
            build = ["bank", "build", str(folder / f"{BANK}.txt"), "--out", str(folder / "bank")]
            run([sys.executable, "-m", "tilth", *build], BANK, folder / "bank")
        for job in jobs:
            template, unit, sizes, each = JOBS[job]
            print(f"{job:12}{unit:>12}{'seconds':>10}{'MiB':>8}{'disk, B':>14}", flush=True)
            found[job] = []
            for size in (one for one in sizes if one <= asked.most):
                if not (folder / f"{size}.txt").exists():
                    write_inputs(folder, size)
                made = {other: folder / f"{other}-{size}" for other in JOBS}
                words = template.format(f=folder, n=size, out=made[job], **made).split()
                if not found[job]:  # the first run compiles kernels
                    first = template.format(f=folder, n=size, out=folder / f"first-{job}", **made)
                    run([sys.executable, "-m", "tilth", *first.split()], size, folder)
                cost = run([sys.executable, "-m", "tilth", *words], size * each, made[job])
                found[job].append(cost)
                print(
                    f"{'':12}{cost.size:12,}{cost.seconds:10.1f}{cost.memory:8.0f}{cost.disk:14,}",
                    flush=True,
                )
            if len(found[job]) > 2:
                powers = [exponent(found[job], name) for name in ("seconds", "memory", "disk")]
                print(f"{'':12}{'exponent':>12}{powers[0]:10.2f}{powers[1]:8.2f}{powers[2]:14.2f}")
    if asked.plot:
        plot(found, asked.plot)


if __name__ == "__main__":
    main()

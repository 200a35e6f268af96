"""Measures the README's four jobs with all defaults, and with the bases that were defaults before.

    python benchmarks/jobs.py --data DIR --out DIR [--seeds 3] [--jobs classifier,doubled,encoder]

DIR holds classify/sst2, trec and insults, sts/ and bank/ (see `tilth recipe show`). Each seed draws
300 labelled rows of a task, or 300 raw sentences, gives them to the commands, and reads what they
wrote in their run folders. The test sets decide nothing here. The commands go on where they
stopped, so this script does too. Printed are means over the seeds, and the difference between the
default and the best of what is at hand untrained or simpler, with 95% (Student's t over the seeds).
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from inputs import lines, script_parser
from tilth.metrics.significance import mean_interval
from tilth.report.systems import BOTH, TRAINED
from tilth.workflows.train_encoder import AFTER

TASKS = ("sst2", "trec", "insults")
AUGMENTED = ("sst2", "trec")
LABELLED, SENTENCES, RETRIEVED = 300, 300, 3_000
STS = ("sts12", "sts14", "sts16", "stsb-test")
BANK_LINES = 20_000  # of each file of raw text
# The default of each job, and the base that was its default before.
WAYS = {"default": "all defaults", "before": "the earlier default base"}
CLASSIFIERS = {"default": [], "before": ["--base", "starter-mlm"]}
STUDENTS = {"default": [], "before": ["--base", "starter-small"]}
Scores = dict[str, float]


def tilth(*words: object, out: Path) -> Path:
    """Run a command into a run folder, unless it ended there before."""
    if not (out / "finished").is_file():
        command = [sys.executable, "-m", "tilth", *map(str, words), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        (out / "finished").touch()
    return out


def drawn(file: Path, some: list[str], count: int, seed: int) -> Path:
    """Write lines drawn without replacement."""
    if not file.is_file():
        places = np.random.default_rng((2, seed)).permutation(len(some))[:count]
        file.write_text("\n".join(some[at] for at in sorted(places)) + "\n", encoding="utf-8")
    return file


def tested(run: Path) -> Scores:
    """Return the test accuracy of each system that a classifier's training measured."""
    systems = json.loads((run / "results.json").read_text())["tested"]["systems"]
    return {one["name"]: one["scores"]["accuracy"]["value"] for one in systems}


def classifier(data: Path, out: Path, task: str, seed: int) -> dict[str, Scores]:
    """Train on 300 labelled rows."""
    folder = data / "classify" / task
    rows = drawn(out / f"{task}-{seed}.jsonl", lines(folder / "train.jsonl.gz"), LABELLED, seed)
    return _classifiers("classifier", rows, folder, out, task, seed)


def doubled(data: Path, out: Path, task: str, seed: int) -> dict[str, Scores]:
    """Train on 300 labelled rows and their paraphrases."""
    folder = data / "classify" / task
    rows = drawn(out / f"{task}-{seed}.jsonl", lines(folder / "train.jsonl.gz"), LABELLED, seed)
    both = tilth(
        "paraphrase", rows, "--column", "text", "--originals", "--seed", seed,
        out=out / f"{task}-{seed}-both",
    )  # fmt: skip
    return _classifiers("doubled", both, folder, out, task, seed)


def _classifiers(
    job: str, source: Path, folder: Path, out: Path, task: str, seed: int
) -> dict[str, Scores]:
    test = ("--test", folder / "test.jsonl.gz", "--seed", seed)
    return {
        name: tested(
            tilth(
                "train", "classifier", source, *test, *base, out=out / f"{task}-{seed}-{job}-{name}"
            )
        )
        for name, base in CLASSIFIERS.items()
    }


def augmented(data: Path, out: Path, task: str, seed: int) -> dict[str, Scores]:
    """Augment 300 labelled rows by retrieved sentences, and train students on both."""
    folder, texts = data / "classify" / task, out / "texts"
    rows = drawn(out / f"{task}-{seed}.jsonl", lines(folder / "train.jsonl.gz"), LABELLED, seed)
    texts.mkdir(exist_ok=True)
    for file in sorted((data / "bank").glob("*.txt.gz")):
        drawn(texts / file.name.removesuffix(".gz"), lines(file), BANK_LINES, 0)
    bank = tilth("bank", "build", texts, out=out / "bank")
    more = out / f"{task}-{seed}-more"
    tilth(
        "augment", rows, "--bank", bank, "--test", folder / "test.jsonl.gz", "--count", RETRIEVED,
        "--seed", seed, out=more,
    )  # fmt: skip
    return {
        name: tested(
            tilth(
                "train", "classifier", more, "--seed", seed, *base,
                out=out / f"{task}-{seed}-student-{name}",
            )
        )
        for name, base in STUDENTS.items()
    }  # fmt: skip


def encoder(data: Path, out: Path, task: str, seed: int) -> dict[str, Scores]:
    """Train an encoder on pairs that the language model writes for 300 raw sentences."""
    raw = lines(data / "bank" / f"{task}.txt.gz")
    sentences = drawn(out / f"{task}-{seed}.txt", raw, SENTENCES, seed)
    sts = out / "sts"
    sts.mkdir(exist_ok=True)
    for name in STS:
        if not (sts / f"{name}.jsonl.gz").exists():
            (sts / f"{name}.jsonl.gz").symlink_to((data / "sts" / f"{name}.jsonl.gz").resolve())
    pairs = tilth(
        "generate", "sts-x2", "--inputs", sentences, "--seed", seed, out=out / f"pairs-{seed}"
    )
    found = {}
    for name, base in CLASSIFIERS.items():
        run = tilth(
            "train", "encoder", pairs, "--sts", sts, "--seed", seed, *base,
            out=out / f"encoder-{seed}-{name}",
        )  # fmt: skip
        scores = json.loads((run / "results.json").read_text())["scores"]
        found[name] = {one: each["mean"]["spearman"] for one, each in scores.items()}
    return found


JOBS = {
    "classifier": (classifier, TASKS),
    "doubled": (doubled, TASKS),
    "encoder": (encoder, ("wikinews",)),
    "augmented": (augmented, AUGMENTED),
}


def print_job(job: str, found: dict[str, list[dict[str, Scores]]]) -> None:
    """Print of each task what every system reached, over the seeds."""
    for task, seeds in found.items():
        print(f"\n{job}, {task}, {len(seeds)} seeds: mean, and each seed")
        each: dict[str, list[float]] = {}
        for one in seeds:
            for way, reached in one.items():
                for system, score in reached.items():
                    mine = system in (TRAINED, BOTH, AFTER)
                    if mine or way == "default":
                        name = f"trained, {WAYS[way]}" if mine else system
                        each.setdefault(name, []).append(score)
        for name, scores in each.items():
            print(f"  {name:44} {np.mean(scores):5.1f}   {' '.join(f'{s:.1f}' for s in scores)}")
        own = np.array(each.pop(f"trained, {WAYS['default']}"))
        others = {name: np.array(scores) for name, scores in each.items()}
        best = max(others, key=lambda name: others[name].mean())
        gain: Any = mean_interval((own - others[best]).tolist())
        ends = "" if gain.low is None else f" ({gain.low:+.1f} to {gain.high:+.1f})"
        print(f"  the default less {best}: {gain.value:+.1f}{ends}")


def main() -> int:
    """Run what is missing, seed by seed, and print."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", default=",".join(JOBS))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, list[dict[str, Scores]]]] = {}
    for job, seed in itertools.product(asked.jobs.split(","), range(asked.seeds)):
        run, tasks = JOBS[job]
        for task in tasks:
            scores = run(asked.data, asked.out, task, seed)
            found.setdefault(job, {}).setdefault(task, []).append(scores)
            print(job, task, seed, json.dumps(scores), flush=True)
    for job, tasks_found in found.items():
        print_job(job, tasks_found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

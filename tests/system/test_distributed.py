"""Trainings in two processes on two cores, which torchrun starts: the losses of one process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.selftrain.labelled import classed, tagged
from tests.tiny import graded_pairs, save_model, word_tokenizer, write_lines, write_rows
from tests.tiny.models import BERT_SHAPE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
ALONE = [sys.executable, "-m"]
TOGETHER = [*ALONE, "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
ACCELERATED = [  # several processes without GPUs, too; with --cpu it starts one
    *ALONE, "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
    "--num_machines", "1",
    "--mixed_precision", "no", "--dynamo_backend", "no", "--num_cpu_threads_per_process", "1",
    "--module",
]  # fmt: skip
_QUICK = ["--precision", "float32", "--device", "cpu", "--quiet", "--epochs", "2"]


def run(launcher: list[str], *words: Any, fails: bool = False) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*launcher, "tilth", *map(str, words)], capture_output=True, text=True, env=environment,
        timeout=900, check=False,
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr


def run_until(there: Path, pattern: str, launcher: list[str], *words: Any) -> None:
    """Run a command; kill all its processes as soon as a file is there."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    begun = subprocess.Popen(
        [*launcher, "tilth", *map(str, words)], env=environment,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not any(there.glob(pattern)):
            assert begun.poll() is None
            time.sleep(0.01)
    finally:
        for process in (begun.pid, *children(begun.pid)):
            os.kill(process, signal.SIGKILL)
        begun.wait()


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [one for child in map(int, found) for one in (child, *children(child))]


def curve(out: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = pq.read_table(out / "parts" / "part-00000.parquet").to_pydict()
    return found


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Save a tiny BERT without dropout, whose random numbers differ between processes."""
    from transformers import BertConfig, BertModel

    shape = {**BERT_SHAPE, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    model = BertModel(BertConfig(vocab_size=len(word_tokenizer()), **shape))
    return save_model(tmp_path / "base", model)


@pytest.mark.parametrize("kind", ["classifier", "tagger", "encoder"])
def test_two_processes_have_the_losses_of_one(kind: str, base: Path, tmp_path: Path) -> None:
    """A batch of 7 is shared unequally."""
    train, words = tmp_path / "train.jsonl", [*_QUICK, "--batch", 7]
    if kind == "encoder":
        write_rows(train, graded_pairs(134))
    else:
        write_rows(train, (classed if kind == "classifier" else tagged)(134))
        words += ["--no-baseline", "--dropout", 0]
    words += ["--base", base, "--evaluate-every", 5, "--learning-rate", "1e-2"]
    for name, launcher in (("one", ALONE), ("two", TOGETHER)):
        run(launcher, "train", kind, train, "--out", tmp_path / name, *words)
    one, two = curve(tmp_path / "one"), curve(tmp_path / "two")
    assert len(one["step"]) > 4
    assert one["step"] == two["step"]
    assert one["loss"] == pytest.approx(two["loss"], rel=1e-4)
    run(TOGETHER, "train", kind, train, "--out", tmp_path / "two", *words)  # is finished
    assert curve(tmp_path / "two") == two


@pytest.mark.parametrize("launcher", ["torch.distributed.run", "accelerate"])
def test_a_killed_training_goes_on_as_if_it_was_not(
    launcher: str, base: Path, tmp_path: Path
) -> None:
    """With dropout: each process goes on with its own random numbers."""
    train, out = tmp_path / "train.jsonl", tmp_path / "killed"
    write_rows(train, classed(134))
    together = TOGETHER if launcher != "accelerate" else ACCELERATED
    words = ["train", "classifier", train, "--base", base, *_QUICK, "--batch", 7, "--no-baseline",
             "--dropout", 0.1, "--epochs", 8, "--evaluate-every", 10,
             "--learning-rate", "3e-3"]  # fmt: skip
    run(together, *words, "--out", tmp_path / "calm")
    run_until(out, "checkpoints/**/checkpoint-20", together, *words, "--out", out)
    assert not (out / "parts" / "part-00000.parquet").exists()
    assert any(out.glob("checkpoints/**/checkpoint-*/rng_state_1.pth"))
    run(together, *words, "--out", out)
    assert curve(out) == curve(tmp_path / "calm")
    weights = "model/model.safetensors"
    assert (out / weights).read_bytes() == (tmp_path / "calm" / weights).read_bytes()


def test_trainings_that_take_one_process_say_so(base: Path, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "a.txt", ["the old man sees two dogs", "rain and sun"] * 20)
    said = run(TOGETHER, "train", "simcse", texts, "--out", tmp_path / "run", "--base", base,
               fails=True)  # fmt: skip
    assert "this training runs in one process: start it without torchrun" in said
    assert not (tmp_path / "run").exists()

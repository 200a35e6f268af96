"""Trainings in two processes on two cores, which torchrun starts: the losses of one process."""

import os
import subprocess
import sys
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
_QUICK = ["--precision", "float32", "--device", "cpu", "--quiet", "--epochs", "2"]


def run(launcher: list[str], *words: Any, fails: bool = False) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*launcher, "tilth", *map(str, words)], capture_output=True, text=True, env=environment,
        timeout=900, check=False,
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr


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


def test_trainings_that_take_one_process_say_so(base: Path, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "a.txt", ["the old man sees two dogs", "rain and sun"] * 20)
    said = run(TOGETHER, "train", "simcse", texts, "--out", tmp_path / "run", "--base", base,
               fails=True)  # fmt: skip
    assert "this training runs in one process: start it without torchrun" in said
    assert not (tmp_path / "run").exists()

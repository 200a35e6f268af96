"""Tiny models, sets, a bank and a finished run of each command, made once for a campaign."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification
from typer.testing import CliRunner

from tests.campaign.commands import LINES, NO_RUN, commands
from tests.selftrain.labelled import classed, tagged
from tests.tiny import (
    graded_pairs,
    salads,
    save_encoder,
    tiny_bank,
    tiny_lm,
    tiny_static,
    word_tokenizer,
    write_lines,
    write_rows,
)
from tests.tiny.bart import corpus, save_bart
from tilth.cli.main import app

TASK = {
    "task_name": "mood",
    "labels": {
        "good": {"instruction": 'Task: Write a good text.\nText: "', "counter_labels": ["bad"]},
        "bad": {"instruction": 'Task: Write a bad text.\nText: "', "counter_labels": []},
    },
}


def make_sets(w: Path) -> None:
    """Write the sets that the right lines name."""
    w.mkdir(parents=True, exist_ok=True)
    (w / "empty").mkdir()
    (w / "task.json").write_text(json.dumps(TASK))
    labels = {
        name: {"instruction": f'Task: Write a text about {name}.\nText: "', "counter_labels": []}
        for name in ("animal", "none", "water")
    }
    (w / "labels.json").write_text(json.dumps({"task_name": "topic", "labels": labels}))
    write_lines(w / "sentences.txt", salads(24))
    write_lines(w / "more.txt", salads(12, seed=5))
    write_rows(w / "labelled.jsonl", classed(24))
    write_rows(w / "test.jsonl", classed(12, seed=9))
    write_rows(w / "tagged.jsonl", tagged(24))
    write_rows(w / "graded.jsonl", graded_pairs(30))
    first, second = salads(24, seed=1), salads(24, seed=2)
    write_rows(w / "parallel.jsonl", {"text_a": first, "text_b": second})
    rng = random.Random(0)
    texts = iter(salads(160, seed=3))
    write_rows(
        w / "scored.jsonl",
        [
            {"text_a": a, "text_b": next(texts), "meaning": rng.uniform(70, 100),
             "wording": rng.uniform(0, 45)}
            for a in salads(80, seed=4)
        ],
    )  # fmt: skip


def make_world(w: Path) -> Path:
    """Make everything; the runs of commands lie in `runs/`, with the command's name."""
    make_sets(w)
    lm = tiny_lm("gpt2")
    lm.model.save_pretrained(w / "lm")
    lm.tokenizer.save_pretrained(w / "lm")
    save_encoder(w / "encoder")
    save_bart(w / "rewriter")
    save_bart(w / "backward", seed=1)
    tiny_static().save(str(w / "static"))
    tokenizer = word_tokenizer()
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32,
        "pad_token_id": 0,
    }  # fmt: skip
    torch.manual_seed(0)
    for name, model in (
        ("masked", BertForMaskedLM(BertConfig(**shape))),
        ("scorer", BertForSequenceClassification(BertConfig(**shape, num_labels=1))),
    ):
        model.save_pretrained(w / name)
        tokenizer.save_pretrained(w / name)
    (w / "corpus").mkdir()
    for name, rows in corpus(32, 8).items():
        write_rows(w / "corpus" / f"{name}.jsonl", rows)
    tiny_bank(w, salads(60), encoder=str(w / "static"))
    (w / "raw.txt").unlink()
    shutil.copytree(w / "bank", w / "copied")
    runner = CliRunner()
    known = {command.name: command for command in commands()}
    for name in LINES:
        if known[name].makes_run and name not in NO_RUN:
            out = w / "runs" / known[name].slug
            done = runner.invoke(app, known[name].line(w, out=out))
            assert done.exit_code == 0, f"{name}: {done.output}"
    return w

"""Train the starter LM on the mix that lm_data.py wrote.

    python -m starter.training.lm.train --work /tmp/starter-work --tokens 10_000_000

Passes run in bfloat16, weights and optimiser state stay in float32. The learning
rate warms up, stays, and falls to zero over the last third of the token budget; it depends on the
tokens seen alone, so an interrupted run goes on from its checkpoint with the same command.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from pathlib import Path

import numpy as np
import torch
from starter.training.lm.data import INSTRUCTIONS
from starter.training.lm.mix import Batch, Mix
from starter.training.lm.tokenizer import initial_model
from starter.training.threads import (
    Replicas,
    learning_rate,
    load_checkpoint,
    save_checkpoint,
    save_model,
)
from torch import Tensor
from torch.nn import functional
from transformers import AutoTokenizer, BertLMHeadModel

PIECES = 2  # parts of a batch that threads take on one after the other


def batch_loss(model: BertLMHeadModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the weighted sum of the losses and, detached, the mean loss of sentence 2's tokens.

    Rows are padded on the right and attention is causal, so no attention mask is needed.
    """
    cache = None
    if batch.prefix.numel():
        cache = model.bert(input_ids=batch.prefix, use_cache=True).past_key_values
        rows = len(batch.inputs)
        for layer in getattr(cache, "self_attention_cache", cache).layers:
            layer.keys = layer.keys.expand(rows, -1, -1, -1)  # (rows, heads, prefix, 32)
            layer.values = layer.values.expand(rows, -1, -1, -1)
    hidden = model.bert(
        input_ids=batch.inputs, past_key_values=cache, use_cache=cache is not None
    ).last_hidden_state  # (rows, length, 384)
    hidden = hidden.reshape(-1, hidden.shape[-1])[batch.used]  # (used, 384)
    losses = functional.cross_entropy(model.cls(hidden), batch.targets, reduction="none").float()
    second = losses.detach()[batch.weights == 1.0].mean()
    return (losses * batch.weights).sum(), second


@torch.no_grad()
def dev_loss(model: BertLMHeadModel, mix: Mix) -> float:
    """Return the mean loss over sentence 2's tokens of the held-out examples."""
    replica = copy.deepcopy(model).to(torch.bfloat16)
    losses = [batch_loss(replica, mix.collate(rows))[1] for rows in mix.batches(8192, seed=0)]
    return float(torch.stack(losses).mean())


def main() -> None:
    """Train until the token budget is used, then write the final model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("/tmp/starter-work"))
    parser.add_argument("--tokens", type=int, default=10_000_000, help="token budget, padding out")
    parser.add_argument("--batch", type=int, default=2048, help="tokens per step")
    parser.add_argument("--rate", type=float, default=8e-4, help="peak learning rate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="default: WORK/lm-final")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--start", type=Path, default=None,
        help="begin with the weights of this model folder; for a second stage in another --state",
    )  # fmt: skip
    parser.add_argument("--state", type=Path, default=None, help="checkpoints; default: WORK")
    arguments = parser.parse_args()
    work: Path = arguments.work
    state_folder: Path = arguments.state or work
    state_folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # in each of the threads
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)

    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    head = INSTRUCTIONS["1"].partition("<X1>")[0]
    same_meaning = np.array(tokenizer(head)["input_ids"], dtype=np.uint16)
    train, dev = (
        Mix(work / "mix-train.npz", same_meaning if arguments.start else None),
        Mix(work / "mix-dev.npz"),
    )
    counts = torch.from_numpy(np.bincount(train.tokens, minlength=len(tokenizer)))
    model = initial_model(tokenizer, counts).train()
    if arguments.start is not None:
        model.load_state_dict(BertLMHeadModel.from_pretrained(arguments.start).state_dict())
    # Torch 2.13 runs the backward pass of fused bfloat16 attention slowly on processors.
    model.set_attn_implementation("eager")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    state = {"step": 0, "seen": 0, "epoch": 0, "batch": 0}
    if (state_folder / "checkpoint.json").exists():
        state = load_checkpoint(state_folder, model, optimizer)
        print(f"resumed at {state}", flush=True)

    replicas = Replicas(model, arguments.threads, batch_loss)
    began, begun_at, saved = time.time(), state["seen"], time.time()
    exported = time.time()
    recent: list[float] = []
    while state["seen"] < arguments.tokens:
        batches = list(train.batches(arguments.batch // PIECES, arguments.seed + state["epoch"]))
        for start in range(state["batch"], len(batches), PIECES):
            rate = learning_rate(arguments.rate, state["seen"], arguments.tokens)
            for group in optimizer.param_groups:
                group["lr"] = rate
            pieces = batches[start : start + PIECES]
            optimizer.zero_grad(set_to_none=True)
            recent.append(replicas.gradients([train.collate(rows) for rows in pieces]))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            state["step"] += 1
            state["batch"] += len(pieces)
            state["seen"] += sum(
                int((train.offsets[rows + 1] - train.offsets[rows]).sum()) for rows in pieces
            )
            if state["step"] % 50 == 0:
                speed = (state["seen"] - begun_at) / (time.time() - began)
                print(
                    f"step {state['step']} seen {state['seen'] / 1e6:.2f}M loss "
                    f"{np.mean(recent):.3f} rate {rate:.1e} {speed:.0f} tokens/s",
                    flush=True,
                )
                recent.clear()
            if time.time() - saved > 240:
                save_checkpoint(state_folder, model, optimizer, state)
                saved = time.time()
            if time.time() - exported > 480:
                print(f"dev loss {dev_loss(model, dev):.4f}", flush=True)
                save_model(model, tokenizer, work / "lm-latest")
                exported = time.time()
            if state["seen"] >= arguments.tokens:
                break
        else:
            state["epoch"] += 1
            state["batch"] = 0
    save_checkpoint(state_folder, model, optimizer, state)
    print(f"done: {state}, dev loss {dev_loss(model, dev):.4f}", flush=True)
    save_model(model, tokenizer, arguments.out or work / "lm-final")


if __name__ == "__main__":
    main()

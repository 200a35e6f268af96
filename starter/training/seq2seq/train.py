"""Train the starter translator and rewriter on the pairs that earlier stages wrote.

    python -m starter.training.seq2seq.train --work WORK --mix translate --tokens 30_000_000

Passes run in bfloat16, weights and optimiser state stay in float32. The learning rate depends on
the tokens seen alone, so an interrupted run goes on from its checkpoint with the same command.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import numpy as np
import torch
from starter.training.seq2seq.mix import Batch, Mix
from starter.training.seq2seq.model import initial_model
from starter.training.threads import (
    Replicas,
    learning_rate,
    load_checkpoint,
    save_checkpoint,
    save_model,
)
from torch import Tensor
from torch.nn import functional
from transformers import AutoTokenizer, BartForConditionalGeneration

SMOOTHING = 0.1


def batch_loss(
    model: BartForConditionalGeneration, batch: Batch, smoothing: float = SMOOTHING
) -> tuple[Tensor, Tensor]:
    """Return the sum of the smoothed losses and, detached, the mean loss without smoothing."""
    hidden = model.model(
        input_ids=batch.inputs,
        attention_mask=batch.mask,
        decoder_input_ids=batch.shifted,
        use_cache=False,
    ).last_hidden_state  # (pairs, length, 384)
    hidden = hidden.reshape(-1, hidden.shape[-1])[batch.used]  # (used, 384)
    logs = functional.log_softmax(model.lm_head(hidden).float(), dim=-1)
    plain = -logs.gather(1, batch.targets[:, None]).squeeze(1)
    loss = (1 - smoothing) * plain.sum() - smoothing * logs.mean(1).sum()
    return loss, plain.detach().mean()


@torch.no_grad()
def dev_loss(model: BartForConditionalGeneration, mix: Mix) -> float:
    """Return the mean loss of the held-out pairs' tokens."""
    replica = copy.deepcopy(model).to(torch.bfloat16)
    losses = [batch_loss(replica, mix.collate(rows))[1] for rows in mix.batches(8192, seed=0)]
    return float(torch.stack(losses).mean())


def main() -> None:
    """Train until the token budget is used, then write the final model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("/tmp/s2s-work"))
    parser.add_argument("--mix", nargs="+", default=["translate"], help="files of pairs, as in Mix")
    parser.add_argument("--tokens", type=int, default=30_000_000, help="budget, padding left out")
    parser.add_argument("--batch", type=int, default=6144, help="padded tokens per step")
    parser.add_argument("--rate", type=float, default=8e-4, help="peak learning rate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, default=None, help="begin with this model's weights")
    parser.add_argument("--state", type=Path, default=None, help="checkpoints; default: WORK")
    parser.add_argument("--out", type=Path, default=None, help="default: STATE/final")
    arguments = parser.parse_args()
    work: Path = arguments.work
    state_folder: Path = arguments.state or work
    state_folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # in each of the threads
    torch.manual_seed(arguments.seed)

    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    train = Mix(work, *arguments.mix)
    names = [name.partition(":")[0] for name in arguments.mix]
    devs = {name: Mix(work, f"{name}-dev") for name in names}
    model = initial_model(tokenizer, torch.from_numpy(np.load(work / "embeddings.npy"))).train()
    if arguments.start is not None:
        model.load_state_dict(
            BartForConditionalGeneration.from_pretrained(
                arguments.start, dtype=torch.float32
            ).state_dict()
        )
    # Torch 2.13 runs the backward pass of fused bfloat16 attention slowly on processors.
    model.set_attn_implementation("eager")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    state = {"step": 0, "seen": 0, "epoch": 0, "batch": 0}
    if (state_folder / "checkpoint.json").exists():
        state = load_checkpoint(state_folder, model, optimizer)
        print(f"resumed at {state}", flush=True)

    def report() -> None:
        found = ", ".join(f"{name} {dev_loss(model, dev):.4f}" for name, dev in devs.items())
        print(f"dev loss {found}", flush=True)

    replicas = Replicas(model, arguments.threads, batch_loss)
    began, begun_at, saved = time.time(), state["seen"], time.time()
    exported = time.time()
    recent: list[float] = []
    while state["seen"] < arguments.tokens:
        batches = list(
            train.batches(arguments.batch // arguments.threads, arguments.seed + state["epoch"])
        )
        for start in range(state["batch"], len(batches), arguments.threads):
            rate = learning_rate(arguments.rate, state["seen"], arguments.tokens)
            for group in optimizer.param_groups:
                group["lr"] = rate
            pieces = batches[start : start + arguments.threads]
            optimizer.zero_grad(set_to_none=True)
            recent.append(replicas.gradients([train.collate(rows) for rows in pieces]))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            state["step"] += 1
            state["batch"] += len(pieces)
            state["seen"] += sum(int(train.lengths[rows].sum()) for rows in pieces)
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
                report()
                save_model(model, tokenizer, state_folder / "latest")
                exported = time.time()
            if state["seen"] >= arguments.tokens:
                break
        else:
            state["epoch"] += 1
            state["batch"] = 0
    save_checkpoint(state_folder, model, optimizer, state)
    print(f"done: {state}", flush=True)
    report()
    save_model(model, tokenizer, arguments.out or state_folder / "final")


if __name__ == "__main__":
    main()

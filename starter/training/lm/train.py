"""Train the starter LM on the mix that data.py wrote.

    python -m starter.training.lm.train --work /tmp/starter-work --tokens 10_000_000

Passes run in bfloat16, weights and optimiser state stay in float32. The learning
rate warms up, stays, and falls to zero over the last third of the token budget; it depends on the
tokens seen alone, so an interrupted run goes on from its checkpoint with the same command.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from starter.training.lm.data import INSTRUCTIONS
from starter.training.lm.mix import Batch, Mix
from starter.training.lm.tokenizer import initial_model
from starter.training.threads import Replicas, Training, dev_loss, save_model
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
    training = Training(
        Replicas(model, arguments.threads, batch_loss), tokenizer, optimizer, state_folder,
        arguments.tokens, arguments.rate, PIECES,
    )  # fmt: skip
    training.run(
        lambda epoch: train.batches(arguments.batch // PIECES, arguments.seed + epoch),
        lambda rows, _: train.collate(rows),
        lambda rows: int((train.offsets[rows + 1] - train.offsets[rows]).sum()),
        lambda: f"{dev_loss(model, dev, batch_loss):.4f}",
    )
    save_model(model, tokenizer, arguments.out or work / "lm-final")


if __name__ == "__main__":
    main()

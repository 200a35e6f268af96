"""Train the starter translator and rewriter on the pairs that earlier stages wrote.

    python -m starter.training.seq2seq.train --work WORK --mix translate --tokens 30_000_000

Passes run in bfloat16, weights and optimiser state stay in float32. The learning rate depends on
the tokens seen alone, so an interrupted run goes on from its checkpoint with the same command.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from starter.training.seq2seq.mix import Batch, Mix
from starter.training.seq2seq.model import WORDING, initial_model
from starter.training.threads import Replicas, Training, dev_loss, save_model
from torch import Tensor
from torch.nn import functional
from transformers import (
    AutoTokenizer,
    BartForConditionalGeneration,
    PreTrainedTokenizerFast,
)

from tilth.paraphrase.beam_search import copy_shares
from tilth.paraphrase.search import word_begins

SMOOTHING = 0.1
# With `--copy-bonus`: what each wording tag adds to the logits of words that go on copying. With
# such a copy penalty, the rewriter of stage 3 came nearest to 5, 20 and 40; the others lie between.
COPY_BONUS = dict(zip(WORDING, (4.8, 3.8, 3.1, 2.4, 1.9, 1.5, 1.2, 1.0), strict=True))


def batch_loss(
    model: BartForConditionalGeneration, batch: Batch, copies: Copies | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sum of the smoothed losses and, detached, the mean loss without smoothing.

    Logits with a bonus for copies have to fit the targets, so the model itself learns to copy less:
    the most likely output of a small model copies far more than its training pairs do.
    """
    hidden = model.model(
        input_ids=batch.inputs,
        attention_mask=batch.mask,
        decoder_input_ids=batch.shifted,
        use_cache=False,
    ).last_hidden_state  # (pairs, length, 384)
    hidden = hidden.reshape(-1, hidden.shape[-1])[batch.used]  # (used, 384)
    logits = model.lm_head(hidden).float()  # (used, vocabulary)
    if copies is not None:
        logits = logits + copies.bonus(batch)
    logs = functional.log_softmax(logits, dim=-1)
    plain = -logs.gather(1, batch.targets[:, None]).squeeze(1)
    loss = (1 - SMOOTHING) * plain.sum() - SMOOTHING * logs.mean(1).sum()
    return loss, plain.detach().mean()


class Copies:
    """The bonus for copies, by the wording tag of each source.

    Args:
        factor: of COPY_BONUS.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, factor: float) -> None:
        self.begins = torch.from_numpy(word_begins(tokenizer))
        self.costs = torch.zeros(len(tokenizer))
        for tag, cost in COPY_BONUS.items():
            self.costs[tokenizer.convert_tokens_to_ids(tag)] = factor * cost

    def bonus(self, batch: Batch) -> Tensor:
        """Return what is added to the logits of a batch's real targets, (used, vocabulary)."""
        width = batch.shifted.shape[1]
        costs = self.costs[batch.inputs].amax(1, keepdim=True)  # (pairs, 1)
        costs = costs * (self.begins[batch.inputs] & batch.mask.bool())  # (pairs, source length)
        pair = batch.used // width
        padded = functional.pad(batch.shifted, (2, 0), value=-9)  # equals no token
        before = padded.unfold(1, 3, 1).reshape(-1, 3)[batch.used].flip(1)  # (used, 3)
        sources = batch.inputs[pair]  # (used, source length)
        shares = torch.from_numpy(copy_shares(sources.numpy(), before.numpy()))
        bonus = torch.zeros(len(pair), len(self.costs))
        return bonus.scatter_reduce_(1, sources, shares * costs[pair], "amax")


def main() -> None:
    """Train until the token budget is used, then write the final model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("/tmp/s2s-work"))
    parser.add_argument("--mix", nargs="+", default=["translate"], help="files of pairs, as in Mix")
    parser.add_argument("--tokens", type=int, default=30_000_000, help="budget, padding left out")
    parser.add_argument("--batch", type=int, default=6144, help="padded tokens per step")
    parser.add_argument("--rate", type=float, default=8e-4, help="peak learning rate")
    parser.add_argument("--copy-bonus", type=float, default=0.0, help="factor of COPY_BONUS")
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
    if arguments.start is None:
        model = initial_model(tokenizer, torch.from_numpy(np.load(work / "embeddings.npy")))
    else:
        model = BartForConditionalGeneration.from_pretrained(arguments.start, dtype=torch.float32)
    model.train()
    # Torch 2.13 runs the backward pass of fused bfloat16 attention slowly on processors.
    model.set_attn_implementation("eager")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )

    def report() -> str:  # without a bonus for copies
        return ", ".join(
            f"{name} {dev_loss(model, dev, batch_loss):.4f}" for name, dev in devs.items()
        )

    copies = Copies(tokenizer, arguments.copy_bonus) if arguments.copy_bonus else None
    loss = partial(batch_loss, copies=copies)
    training = Training(
        Replicas(model, arguments.threads, loss), tokenizer, optimizer, state_folder,
        arguments.tokens, arguments.rate, arguments.threads,
    )  # fmt: skip
    training.run(
        lambda epoch: train.batches(arguments.batch // arguments.threads, arguments.seed + epoch),
        lambda rows, _: train.collate(rows),
        lambda rows: int(train.lengths[rows].sum()),
        report,
    )
    save_model(model, tokenizer, arguments.out or state_folder / "final")


if __name__ == "__main__":
    main()

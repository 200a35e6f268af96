"""Stage 2 of starter-mlm: masked language modelling on what data.py wrote.

    python -m starter.training.mlm.train --work /tmp/mlm-work --tokens 60_000_000

A quarter of the tokens is masked (more than BERT's 15%, as small budgets like it: Wettig et al.
2023). Passes run in bfloat16, weights and optimiser state stay in float32. The learning rate
depends on the tokens seen alone, so an interrupted run goes on with the same command.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from starter.training.threads import Replicas, Training, save_model
from torch import Tensor
from torch.nn import functional
from transformers import AutoTokenizer, ModernBertConfig, ModernBertForMaskedLM

CLS, SEP, MASK, FIRST_WORD = 2, 3, 4, 5
SHARE = 0.25  # of the tokens is to be told from the others
BATCH = 2048  # tokens of one piece of a step, padding counted
PIECES = 4
HELD_OUT = 2000  # segments for the dev loss


@dataclass(frozen=True)
class Batch:
    """Masked rows, the places asked for and what stood there."""

    inputs: Tensor  # (rows, length)
    mask: Tensor  # (rows, length), 1 where a token stands
    places: Tensor  # (asked,) in the flattened rows
    targets: Tensor  # (asked,)

    @property
    def weights(self) -> Tensor:
        """Every place counts the same."""
        return torch.ones(len(self.targets))


def initial_model(entries: int, vectors: np.ndarray) -> ModernBertForMaskedLM:
    """Return the untrained model; only its embeddings know something, from co-occurrence."""
    width = vectors.shape[1]
    model = ModernBertForMaskedLM(
        ModernBertConfig(
            vocab_size=entries, hidden_size=width, num_hidden_layers=6, num_attention_heads=4,
            intermediate_size=640, max_position_embeddings=512, global_attn_every_n_layers=1,
            rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 10_000.0}},
            classifier_pooling="mean", pad_token_id=0, cls_token_id=CLS, sep_token_id=SEP,
            bos_token_id=CLS, eos_token_id=SEP, attn_implementation="eager",
        )
    )  # fmt: skip
    with torch.no_grad():
        model.get_input_embeddings().weight[FIRST_WORD:] = torch.from_numpy(vectors)[FIRST_WORD:]
    model.tie_weights()
    return model


class Segments:
    """Segments of text in batches of like lengths."""

    def __init__(self, work: Path) -> None:
        self.tokens = np.load(work / "tokens.npy", mmap_mode="r")
        self.offsets = np.load(work / "offsets.npy")

    def batches(self, epoch: int) -> Iterator[np.ndarray]:
        """Yield the rows of one pass over all but the held-out segments."""
        rng = np.random.default_rng(epoch)
        order = rng.permutation(np.arange(HELD_OUT, len(self.offsets) - 1))
        for start in range(0, len(order), 16_384):
            yield from self.cut(order[start : start + 16_384], rng)

    def cut(self, rows: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        """Return batches of at most BATCH tokens, in random order."""
        lengths = self.offsets[rows + 1] - self.offsets[rows] + 2
        rows = rows[np.argsort(lengths, kind="stable")]
        padded = -(-np.sort(lengths, kind="stable") // 8) * 8
        found = []
        for width in np.unique(padded):
            # Few shapes keep oneDNN's cache of compiled products small.
            same, count = rows[padded == width], BATCH // int(width)
            found += [same[i : i + count] for i in range(0, len(same), count)]
        return [found[i] for i in rng.permutation(len(found))]

    def collate(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        """Return a batch with a quarter of its tokens masked (of these 10% kept, 10% others)."""
        lengths = self.offsets[rows + 1] - self.offsets[rows] + 2
        width = int(-(-lengths.max() // 8) * 8)
        inputs = np.zeros((len(rows), width), dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for i, row in enumerate(rows):
            length = lengths[i]
            inputs[i, 0], inputs[i, length - 1] = CLS, SEP
            inputs[i, 1 : length - 1] = self.tokens[self.offsets[row] : self.offsets[row + 1]]
            mask[i, :length] = 1
        flat = inputs.reshape(-1)
        words = np.flatnonzero(mask.reshape(-1) & (flat != CLS) & (flat != SEP))
        asked = max(1, int(SHARE * len(words)) // 64 * 64)
        places = np.sort(rng.permutation(words)[:asked])
        targets = flat[places].copy()
        kind = rng.random(len(places))
        flat[places[kind < 0.8]] = MASK
        others = places[kind > 0.9]
        flat[others] = rng.integers(FIRST_WORD, self.entries, len(others))
        return Batch(*(torch.from_numpy(x) for x in (inputs, mask, places, targets)))

    entries = 12_032


def batch_loss(model: ModernBertForMaskedLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the sum of the losses and, detached, their mean."""
    hidden = model.model(input_ids=batch.inputs, attention_mask=batch.mask).last_hidden_state
    asked = hidden.reshape(-1, hidden.shape[-1])[batch.places]  # (asked, width)
    logits = model.decoder(model.head(asked)).float()  # (asked, entries)
    loss = functional.cross_entropy(logits, batch.targets, reduction="sum")
    return loss, loss.detach() / len(batch.targets)


@torch.no_grad()
def dev_loss(model: ModernBertForMaskedLM, segments: Segments) -> float:
    """Return the mean loss over the held-out segments, masked the same way every time."""
    replica = copy.deepcopy(model).to(torch.bfloat16)
    rng = np.random.default_rng(0)
    batches = segments.cut(np.arange(HELD_OUT), rng)
    losses = [batch_loss(replica, segments.collate(rows, rng))[1] for rows in batches]
    return float(torch.stack(losses).mean())


def main() -> None:
    """Train until the token budget is used, then write the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("/tmp/mlm-work"))
    parser.add_argument("--tokens", type=int, default=60_000_000)
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="default: WORK/final")
    arguments = parser.parse_args()
    work: Path = arguments.work
    torch.set_num_threads(1)  # in each of the threads
    torch.manual_seed(0)

    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    segments = Segments(work)
    segments.entries = len(tokenizer)
    model = initial_model(len(tokenizer), np.load(work / "vectors.npy")).train()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        lr=arguments.rate, betas=(0.9, 0.98), fused=True,
    )  # fmt: skip
    training = Training(
        Replicas(model, arguments.threads, batch_loss), tokenizer, optimizer, work,
        arguments.tokens, arguments.rate, PIECES,
    )  # fmt: skip
    training.run(
        segments.batches,
        segments.collate,
        lambda rows: int((segments.offsets[rows + 1] - segments.offsets[rows]).sum()),
        lambda: f"{dev_loss(model, segments):.4f}",
    )
    save_model(model, tokenizer, arguments.out or work / "final")


if __name__ == "__main__":
    main()

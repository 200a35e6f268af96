"""The small starter: two layers that learn what all-MiniLM-L6-v2 knows after six.

    python -m starter.training.small.train --data ../shared/data --out FOLDER

Layers, word pieces and positions begin as all-MiniLM-L6-v2's (its first and fourth layer, the
pieces of the starter scorer). Of every sentence some pieces are masked; the small model is to give
each token the vector that the large one gives it in the whole sentence, the sentence its mean, and
each masked piece a name. An interrupted run goes on with the same command.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from starter.training.encoder.pieces import (
    PIECES,
    base_folder,
    choose_pieces,
    pruned_tokenizer,
    without_pieces,
)
from starter.training.lm.sentences import DEFAULT_DATA, read_lines, read_rows
from starter.training.threads import Replicas, Training, save_model
from torch import Tensor
from torch.nn import functional
from transformers import BertForMaskedLM, BertModel, PreTrainedTokenizerFast

from tilth.data.segment import split_paragraphs

# Paragraphs or lines drawn of each corpus, all under licences that let weights be shipped.
QUOTA = {
    "wikipedia": 60_000, "wikinews": 10_000, "novels": 20_000, "dialogue-turns": 60_000,
    "biomedical": 30_000, "wiki-questions-mix": 14_000,
}  # fmt: skip
TATOEBA = 60_000
LAYERS = (0, 3)
LONGEST, HELD_OUT = 64, 1_000
SHARE = 0.15  # of the pieces is masked
BATCH, BATCHES = 2048, 4  # tokens of a batch, batches of a step
FIRST_PIECE = 5  # after the special ones
NAMES = 0.2  # weight of the masked pieces' names beside the vectors


@dataclass(frozen=True)
class Batch:
    """Sentences whole and masked."""

    whole: Tensor  # (rows, length)
    inputs: Tensor  # (rows, length), some masked
    mask: Tensor  # (rows, length), 1 where a token stands
    asked: Tensor  # (masked,) places in the flattened rows

    @property
    def weights(self) -> Tensor:
        """Every token counts the same."""
        return self.mask.float()


def sentences(data: Path) -> list[str]:
    """Return sentences of every corpus in a fixed random order, each once."""
    rng, found = random.Random(0), []
    for name, quota in QUOTA.items():
        lines = list(read_lines(data / "bank" / f"{name}.txt.gz"))
        some = rng.sample(lines, min(quota, len(lines)))
        found += split_paragraphs(some)[0].to_pylist()
    rows = list(read_rows(data / "parallel/tatoeba/train.jsonl.gz"))
    found += [row["en"] for row in rng.sample(rows, TATOEBA)]
    found += [row["text"] for row in read_rows(data / "classify/clinc150/train.jsonl.gz")]
    found = list(dict.fromkeys(found))
    rng.shuffle(found)
    return found


def numbers(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[np.ndarray]:
    """Return the pieces of each sentence, with the special ones at both ends."""
    found: list[np.ndarray] = []
    for start in range(0, len(texts), 10_000):
        some = tokenizer(texts[start : start + 10_000], truncation=True, max_length=LONGEST)
        found += [np.array(ids, np.int64) for ids in some["input_ids"]]
    return found


def cut(lengths: np.ndarray, places: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return batches of places, of one padded length each, in random order."""
    padded = -(-lengths[places] // 8) * 8
    found = []
    for width in np.unique(padded):
        same = rng.permutation(places[padded == width])
        count = BATCH // int(width)
        found += [same[i : i + count] for i in range(0, len(same), count)]
    return [found[i] for i in rng.permutation(len(found))]


def collate(rows: list[np.ndarray], entries: int, rng: np.random.Generator) -> Batch:
    """Return a batch with some pieces masked (of these 10% kept, 10% others)."""
    width = -(-max(map(len, rows)) // 8) * 8
    whole = np.zeros((len(rows), width), np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for place, row in enumerate(rows):
        whole[place, : len(row)], mask[place, : len(row)] = row, 1
    inputs = whole.copy()
    words = np.flatnonzero(inputs.reshape(-1) >= FIRST_PIECE)
    asked = np.sort(rng.permutation(words)[: max(1, int(SHARE * len(words)))])
    kind = rng.random(len(asked))
    flat = inputs.reshape(-1)
    flat[asked[kind < 0.8]] = FIRST_PIECE - 1  # [MASK]
    others = asked[kind > 0.9]
    flat[others] = rng.integers(FIRST_PIECE, entries, len(others))
    return Batch(*(torch.from_numpy(array) for array in (whole, inputs, mask, asked)))


class Lesson:
    """The loss: the large model's token vectors, its sentence vector, the masked pieces."""

    def __init__(self, teacher: BertModel) -> None:
        self.teacher = teacher

    def __call__(self, model: BertForMaskedLM, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss times the number of tokens and, detached, the loss."""
        with torch.no_grad():
            wanted = self.teacher(batch.whole, batch.mask).last_hidden_state.float()
        hidden = model.bert(batch.inputs, batch.mask).last_hidden_state
        given, mask = hidden.float(), batch.mask[..., None].float()
        tokens = mask.sum()
        vectors = ((given - wanted).square() * mask).sum() / wanted.square().mul(mask).sum()
        means = [(side * mask).sum(1) / mask.sum(1) for side in (given, wanted)]  # (rows, width)
        sentence = 1 - functional.cosine_similarity(*means).mean()
        masked = hidden.reshape(-1, hidden.shape[-1])[batch.asked]  # (masked, width)
        targets = batch.whole.reshape(-1)[batch.asked]
        names = functional.cross_entropy(model.cls(masked).float(), targets)
        loss = vectors + sentence + NAMES * names
        return loss * tokens, loss.detach()


def initial_model(pruned: BertModel) -> BertForMaskedLM:
    """Return two layers of a model under a new head that names pieces."""
    config = pruned.config.to_dict() | {
        "num_hidden_layers": len(LAYERS), "tie_word_embeddings": True,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    }  # fmt: skip
    torch.manual_seed(0)
    model = BertForMaskedLM(type(pruned.config).from_dict(config))
    model.bert.embeddings.load_state_dict(pruned.embeddings.state_dict())
    for place, layer in enumerate(LAYERS):
        model.bert.encoder.layer[place].load_state_dict(pruned.encoder.layer[layer].state_dict())
    model.tie_weights()
    return model


@torch.no_grad()
def dev_losses(lesson: Lesson, model: BertForMaskedLM, batches: list[Batch]) -> float:
    """Return the mean loss over batches that served no step."""
    model.eval()
    losses = [lesson(model, batch)[1] for batch in batches]
    model.train()
    return float(torch.stack(losses).mean())


def passes(lengths: np.ndarray, epoch: int) -> Iterator[np.ndarray]:
    """Yield the batches of one pass over all but the held-out sentences."""
    rng = np.random.default_rng(epoch)
    order = rng.permutation(np.arange(HELD_OUT, len(lengths)))
    for start in range(0, len(order), 32_768):
        yield from cut(lengths, order[start : start + 32_768], rng)


def main() -> None:
    """Train until the token budget is used, then write the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=Path("/tmp/small-work"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=6_000_000)
    parser.add_argument("--rate", type=float, default=5e-4, help="peak learning rate")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # in each of the threads
    pieces = choose_pieces(arguments.data, PIECES)
    tokenizer = pruned_tokenizer(pieces)
    large = BertModel.from_pretrained(base_folder(), add_pooling_layer=False)
    teacher = without_pieces(large, pieces).eval()
    model = initial_model(teacher).train()
    lesson = Lesson(teacher.to(torch.bfloat16))
    rows = numbers(tokenizer, sentences(arguments.data))
    lengths = np.array([len(row) for row in rows])
    dev_rng = np.random.default_rng(0)
    dev = [
        collate([rows[place] for place in some], len(pieces), dev_rng)
        for some in cut(lengths, np.arange(HELD_OUT), dev_rng)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.01)
    print(f"{len(rows):,} sentences, {lengths.sum() / 1e6:.1f}M tokens")
    print(f"dev loss {dev_losses(lesson, model, dev):.4f}", flush=True)
    training = Training(
        Replicas(model, arguments.threads, lesson), tokenizer, optimizer, work,
        arguments.tokens, arguments.rate, BATCHES,
    )  # fmt: skip
    training.run(
        lambda epoch: passes(lengths, epoch),
        lambda places, rng: collate([rows[place] for place in places], len(pieces), rng),
        lambda places: int(lengths[places].sum()),
        lambda: f"{dev_losses(lesson, model, dev):.4f}",
    )
    save_model(model, tokenizer, arguments.out)


if __name__ == "__main__":
    main()

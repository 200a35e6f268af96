"""Stage 3 of the starter static encoder: its training, from what the first two stages wrote.

    python -m starter.training.static.train --work /tmp/static-work --out FOLDER

The vectors begin as the teacher's vectors of the entries, in the leading dimensions of its sentence
vectors, times a / (a + p) (Arora et al. 2017), p how often an entry is used. They are then trained
so that a sentence's mean has the direction of its teacher vector (as tokenlearn does), at last with
co-translations as paraphrases, each to be nearest its own among those of a batch. `stages/` keeps
what each step adds for measure_static.py. An interrupted training goes on after its last epoch with
the same command.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from starter.training.lm.sentences import DEFAULT_DATA, read_rows
from starter.training.static.data import DEFAULT_WORK
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy, embedding_bag, normalize

DIMENSION = 256
SIF_A = 1e-3
BATCH = 2048  # sentences
EPOCHS, RATE = 4, 2e-3
PAIRS, PAIRS_WEIGHT, TEMPERATURE = 512, 0.02, 0.05  # of the step with paraphrases
DEV = ("stsb-dev", "sick-dev")


class Texts:
    """Sentences as tokens, with their teacher vectors in DIMENSION dimensions.

    Attributes:
        mean: of the teacher vectors. # (384,)
        axes: the leading dimensions about it. # (384, DIMENSION)
        targets: unit vectors. # (texts, DIMENSION)
        shares: how much of the tokens each entry is. # (entries,)
    """

    def __init__(self, work: Path, entries: int) -> None:
        parts = sorted((work / "vectors").glob("part-*.npy"))
        teacher = np.concatenate([np.load(part) for part in parts]).astype(np.float32)
        self.count = len(teacher)
        self.tokens = np.load(work / "tokens.npy").astype(np.int32)
        self.offsets = np.load(work / "offsets.npy")
        self.pairs = np.load(work / "pairs.npy")
        self.mean = teacher.mean(0)
        centred = teacher - self.mean
        values, axes = np.linalg.eigh(centred.T @ centred)
        self.axes = axes[:, ::-1][:, :DIMENSION].copy()
        self.kept = float(values[-DIMENSION:].sum() / values.sum())
        self.targets = normalize(torch.from_numpy(centred @ self.axes))
        used = np.bincount(self.tokens[: self.offsets[self.count]], minlength=entries)
        self.shares = used / used.sum()

    def rows(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the tokens of some sentences, and where each begins."""
        begins, sizes = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        before = np.cumsum(sizes) - sizes
        places = np.repeat(begins - before, sizes) + np.arange(sizes.sum())
        return torch.from_numpy(self.tokens[places]), torch.from_numpy(before.astype(np.int32))


def distilled(work: Path, texts: Texts) -> Tensor:
    """Return the entries' own teacher vectors, (entries, DIMENSION)."""
    vectors = (np.load(work / "entries.npy").astype(np.float32) - texts.mean) @ texts.axes
    vectors -= vectors[1:].mean(0)
    vectors[0] = 0.0  # [UNK] says nothing
    return torch.from_numpy(vectors)


def weighted(table: Tensor, shares: np.ndarray) -> Tensor:
    """Return vectors times a / (a + p), (entries, DIMENSION)."""
    return table * torch.from_numpy(SIF_A / (SIF_A + shares)).float()[:, None]


def encode(table: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
    """Return the unit vectors of sentences, (sentences, DIMENSION)."""
    return normalize(embedding_bag(ids, table, offsets, mode="mean"))


class Dev:
    """The dev sets, tokenised."""

    def __init__(self, data: Path, tokenizer: Tokenizer) -> None:
        self.sets = []
        for name in DEV:
            rows = list(read_rows(data / "sts" / f"{name}.jsonl.gz"))
            sides = [
                [code.ids for code in tokenizer.encode_batch([row[side] for row in rows])]
                for side in ("text_a", "text_b")
            ]
            self.sets.append((sides, [row["score"] for row in rows]))

    def measure(self, table: Tensor) -> list[float]:
        """Return Spearman x 100 of each set."""
        found = []
        for sides, scores in self.sets:
            a, b = (normalize(torch.stack([table[ids].mean(0) for ids in side])) for side in sides)
            found.append(round(float(100 * spearmanr((a * b).sum(1), scores).statistic), 2))
        return found


def train(
    texts: Texts, start: Tensor, dev: Dev, state: Path, *, epochs: int, rate: float, pairs: float
) -> Tensor:
    """Return the trained table; `state` is kept up to date after every epoch.

    Args:
        texts: what it learns from.
        start: the table before. # (entries, DIMENSION)
        dev: what is measured after every epoch.
        state: a file of table, moments and epoch.
        epochs: passes over the texts.
        rate: the highest learning rate; it falls to zero.
        pairs: weight of the paraphrases' loss.
    """
    table = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([table], lr=rate, fused=True)
    steps = texts.count // BATCH
    first = 0
    if state.exists():
        saved = load_file(state)
        first = int(saved["epoch"])
        table.data.copy_(saved["table"])
        moments = {key: saved[key] for key in ("step", "exp_avg", "exp_avg_sq")}
        optimizer.load_state_dict(optimizer.state_dict() | {"state": {0: moments}})
    for epoch in range(first, epochs):
        began, total = time.time(), 0.0
        rng = np.random.default_rng(epoch)
        order = rng.permutation(texts.count)
        for step in range(steps):
            done = (epoch * steps + step) / (epochs * steps)
            optimizer.param_groups[0]["lr"] = rate * min(1.0, 20 * done + 0.05, 1 - done)
            rows = order[step * BATCH : (step + 1) * BATCH]
            loss = 1 - (encode(table, *texts.rows(rows)) * texts.targets[rows]).sum(1).mean()
            total += float(loss.detach())
            if pairs:
                chosen = texts.pairs[rng.choice(len(texts.pairs), PAIRS, replace=False)]
                a, b = (encode(table, *texts.rows(side)) for side in chosen.T)
                scores = a @ b.T / TEMPERATURE  # (PAIRS, PAIRS)
                loss = loss + pairs * cross_entropy(scores, torch.arange(PAIRS))
            optimizer.zero_grad()
            loss.backward()
            table.grad[0] = 0.0
            optimizer.step()
        print(
            f"epoch {epoch}: distance {total / steps:.4f}, dev {dev.measure(table.data)}, "
            f"{time.time() - began:.0f} s",
            flush=True,
        )
        moments = {key: value.clone() for key, value in optimizer.state[table].items()}
        moments |= {"table": table.data.clone(), "epoch": torch.tensor(epoch + 1)}
        save_file(moments, state.with_suffix(".tmp"))
        state.with_suffix(".tmp").replace(state)
    return table.data


def as_encoder(table: Tensor, tokenizer: Tokenizer) -> SentenceTransformer:
    """Return the model, with weights in float16."""
    static = StaticEmbedding(tokenizer, embedding_weights=table.half())
    return SentenceTransformer(modules=[static, Normalize()], device="cpu")


def save_encoder(encoder: SentenceTransformer, folder: Path) -> None:
    """Write the model folder; the card there is kept, the tokenizer written without spaces."""
    encoder.save(str(folder), create_model_card=False)
    encoder[0].tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "model.safetensors").chmod(0o644)


def main() -> None:
    """Train, and write the model folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--out", type=Path, default=None, help="default: WORK/final")
    arguments = parser.parse_args()
    work: Path = arguments.work
    (work / "stages").mkdir(exist_ok=True)
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    dev = Dev(arguments.data, tokenizer)
    texts = Texts(work, tokenizer.get_vocab_size())
    tokens = int(texts.offsets[texts.count])
    print(f"{texts.count} texts, {tokens} tokens, {texts.kept:.1%} of the variance", flush=True)

    stages = {"distilled": distilled(work, texts)}
    stages["weighted"] = weighted(stages["distilled"], texts.shares)
    stages["trained"] = train(
        texts, stages["weighted"], dev, work / "trained.safetensors",
        epochs=EPOCHS, rate=RATE, pairs=0.0,
    )  # fmt: skip
    stages["paraphrases"] = train(
        texts, stages["trained"], dev, work / "paraphrases.safetensors",
        epochs=1, rate=RATE / 2, pairs=PAIRS_WEIGHT,
    )  # fmt: skip
    for name, table in stages.items():
        print(f"{name}: dev {dev.measure(table)}", flush=True)
        save_encoder(as_encoder(table, tokenizer), work / "stages" / name)
    save_encoder(as_encoder(stages["paraphrases"], tokenizer), arguments.out or work / "final")


if __name__ == "__main__":
    main()

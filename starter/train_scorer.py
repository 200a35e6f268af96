"""The starter scorer: a cross-encoder of meaning, from all-MiniLM-L6-v2 and STSb.

    python starter/static_data.py  --data ../shared/data --work /tmp/static-work
    python starter/train_scorer.py --static /tmp/static-work --work /tmp/scorer-work

First all-MiniLM-L6-v2's own similarities (of its whole vocabulary) are learnt on pairs of the
shippable corpora, which teaches the pruned model to compare two texts and to read words in shorter
pieces. Then STSb train, with several seeds; the best on STSb dev is kept, or the mean of their
weights if that is better. What is done is not repeated when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from lm_sentences import DEFAULT_DATA, read_rows
from safetensors.torch import load_file, save_file
from scorer_pieces import PIECES, choose_pieces, pruned_model, pruned_tokenizer
from static_data import DEFAULT_WORK as STATIC_WORK
from torch import Tensor
from torch.nn import functional
from training import load_checkpoint, save_checkpoint, save_model
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

DEFAULT_WORK = Path("/tmp/scorer-work")
BATCH = 32
LONGEST = 128  # tokens of a pair
POOL = 40_000  # texts among which neighbours are looked for
FARTHEST = 300  # the last neighbour that makes a pair
CO_TRANSLATIONS, ENTAILMENTS = 0.2, 0.2  # shares of the pairs; the others are neighbours
WARMUP = 0.1  # share of the steps

Pairs = tuple[list[str], list[str], np.ndarray]  # texts, texts, scores from 0 to 1


def gold(data: Path, name: str) -> Pairs:
    """Return the pairs of a set of STSb."""
    rows = list(read_rows(data / "sts" / f"{name}.jsonl.gz"))
    scores = np.array([row["score"] for row in rows], np.float32) / 5
    return [row["text_a"] for row in rows], [row["text_b"] for row in rows], scores


def silver(data: Path, static: Path, count: int) -> Pairs:
    """Return pairs of the corpora, with the base model's cosines on the scale of STSb."""
    parts = sorted((static / "vectors").glob("part-*.npy"))
    vectors = np.concatenate([np.load(part) for part in parts])  # (texts, 384)
    texts = (static / "texts.txt").read_text(encoding="utf-8").split("\n")[: len(vectors)]
    line = {text.lower(): number for number, text in enumerate(texts)}
    rng = np.random.default_rng(0)
    fits = np.array([3 <= text.count(" ") <= 20 for text in texts])

    pairs = np.load(static / "pairs.npy")
    pairs = pairs[(pairs < len(texts)).all(axis=1)]
    chosen = [rng.permutation(pairs)[: int(CO_TRANSLATIONS * count)]]
    named = [
        [line.get(" ".join(row[key].split()).lower(), -1) for key in ("premise", "hypothesis")]
        for row in read_rows(data / "nli/cad/train.jsonl.gz")
    ]
    both = np.array([pair for pair in named if min(pair) >= 0])
    chosen.append(rng.permutation(both)[: int(ENTAILMENTS * count)])
    left = count - sum(map(len, chosen))
    pool = rng.permutation(np.flatnonzero(fits))[:POOL]
    near = torch.from_numpy(vectors[pool]).to(torch.bfloat16)
    found = []
    for start in range(0, left, 512):
        rows = min(512, left - start)
        best = (near[start : start + rows] @ near.T).topk(FARTHEST + 1).indices[:, 1:].numpy()
        # Near ranks as often as far ones: 1 to 17 as often as 17 to 300.
        ranks = np.exp(rng.uniform(0, np.log(FARTHEST), rows)).astype(int) - 1
        found.append(np.stack([pool[start : start + rows], pool[best[np.arange(rows), ranks]]], 1))
    chosen.append(np.concatenate(found))
    pairs = np.concatenate(chosen)  # (pairs, 2)
    cosines = np.einsum("pw,pw->p", *(vectors[pairs[:, i]].astype(np.float32) for i in (0, 1)))
    slope, offset = scale_of(data)
    scores = np.clip(slope * cosines + offset, 0, 1).astype(np.float32)
    return [texts[i] for i in pairs[:, 0]], [texts[i] for i in pairs[:, 1]], scores


def scale_of(data: Path) -> tuple[float, float]:
    """Return the line from the base model's cosines to the scores of some pairs of STSb train."""
    from static_data import Teacher

    first, second, scores = gold(data, "stsb-train")
    rows = np.random.default_rng(0).permutation(len(first))[:1000]
    teacher = Teacher()
    one, two = (
        teacher.encode([texts[i] for i in rows]).astype(np.float32) for texts in (first, second)
    )
    slope, offset = np.polyfit(np.einsum("pw,pw->p", one, two), scores[rows], 1)
    return float(slope), float(offset)


class Encoded:
    """Pairs as token numbers, in batches of like lengths."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, pairs: Pairs) -> None:
        first, second, self.scores = pairs
        self.orders = [
            tokenizer(a, b, truncation=True, max_length=LONGEST, return_token_type_ids=True)
            for a, b in ((first, second), (second, first))
        ]
        self.lengths = np.array([len(ids) for ids in self.orders[0]["input_ids"]])

    def __len__(self) -> int:
        return len(self.scores)

    def batches(self, seed: int, epoch: int) -> list[np.ndarray]:
        """Return the rows of each batch of an epoch, in random order."""
        rng = np.random.default_rng((seed, epoch))
        order = rng.permutation(len(self))
        found: list[np.ndarray] = []
        for start in range(0, len(order), 20 * BATCH):
            rows = order[start : start + 20 * BATCH]
            rows = rows[np.argsort(self.lengths[rows], kind="stable")]
            found += [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
        return [found[i] for i in rng.permutation(len(found))]

    def collate(self, rows: np.ndarray, swapped: np.ndarray) -> tuple[dict[str, Tensor], Tensor]:
        """Return the inputs of some rows, each in one of both orders, and their scores."""
        width = int(-(-self.lengths[rows].max() // 8) * 8)
        inputs = {
            name: torch.zeros(len(rows), width, dtype=torch.long)
            for name in ("input_ids", "token_type_ids", "attention_mask")
        }
        for i, (row, swap) in enumerate(zip(rows, swapped, strict=True)):
            for name, values in inputs.items():
                found = self.orders[int(swap)][name][row]
                values[i, : len(found)] = torch.tensor(found)
        return inputs, torch.from_numpy(self.scores[rows])


def logits(model: BertForSequenceClassification, inputs: dict[str, Tensor]) -> Tensor:
    """Return a logit for each pair, (rows,)."""
    with torch.autocast("cpu", torch.bfloat16):
        found: Tensor = model(**inputs).logits
    return found.float().squeeze(-1)


def steps(pairs: Encoded, epochs: int, seed: int) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Yield the batches of all epochs; the order of a pair's texts changes with every epoch."""
    first = np.random.default_rng((seed, 99)).random(len(pairs)) < 0.5
    for epoch in range(epochs):
        for rows in pairs.batches(seed, epoch):
            yield pairs.collate(rows, first[rows] ^ bool(epoch % 2))


def train(
    model: BertForSequenceClassification,
    pairs: Encoded,
    epochs: int,
    rate: float,
    seed: int,
    unfinished: Path,
) -> None:
    """Train with a learning rate that rises over a tenth of the steps and falls to zero.

    An interrupted training goes on from its last checkpoint in the folder `unfinished`.
    """
    total = epochs * -(-len(pairs) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, fused=True)
    model.train()
    unfinished.mkdir(exist_ok=True)
    done = 0
    if (unfinished / "checkpoint.json").exists():
        done = load_checkpoint(unfinished, model, optimizer)["step"]
        print(f"resumed at step {done}", flush=True)
    began, losses = time.time(), []
    for step, (inputs, scores) in enumerate(steps(pairs, epochs, seed)):
        if step < done:
            continue
        torch.manual_seed(total * seed + step)  # of the dropout
        part = min(1.0, (step + 1) / (WARMUP * total), (total - step) / ((1 - WARMUP) * total))
        for group in optimizer.param_groups:
            group["lr"] = rate * part
        loss = functional.binary_cross_entropy_with_logits(logits(model, inputs), scores)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if (step + 1) % 50 == 0:
            seconds = time.time() - began
            print(f"step {step + 1}/{total} loss {np.mean(losses):.4f} {seconds:.0f} s", flush=True)
            losses.clear()
            save_checkpoint(unfinished, model, optimizer, {"step": step + 1})
    model.eval()


@torch.inference_mode()
def pearson(model: BertForSequenceClassification, pairs: Encoded) -> float:
    """Return the correlation of the scores with the given ones, x 100."""
    found = np.empty(len(pairs))
    order = np.argsort(pairs.lengths, kind="stable")
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        inputs, _ = pairs.collate(rows, np.zeros(len(rows), bool))
        found[rows] = torch.sigmoid(logits(model, inputs)).numpy()
    return 100 * float(np.corrcoef(found, pairs.scores)[0, 1])


def write_weights(model: BertForSequenceClassification, path: Path) -> None:
    """Write weights; the file is there when it is whole, and the checkpoint is then gone."""
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)
    shutil.rmtree(path.parent / "unfinished", ignore_errors=True)


def main() -> None:
    """Prune, learn the base model's scores, then STSb's with every seed; keep the best on dev."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--static", type=Path, default=STATIC_WORK, help="of static_data.py")
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--pairs", type=int, default=12_000, help="of the corpora; 0: none")
    parser.add_argument("--pairs-rate", type=float, default=2e-4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None, help="default: WORK/final")
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    unfinished = work / "unfinished"
    if not (work / "pieces.json").exists():
        pieces = choose_pieces(arguments.data, PIECES)
        (work / "pieces.json").write_text(json.dumps(pieces, ensure_ascii=False))
    pieces = json.loads((work / "pieces.json").read_text())
    tokenizer, model = pruned_tokenizer(pieces), pruned_model(pieces, seed=0)
    dev = Encoded(tokenizer, gold(arguments.data, "stsb-dev"))
    print(f"{len(pieces)} pieces, {dev.lengths.mean():.1f} tokens in a dev pair", flush=True)

    start = work / "start.safetensors"
    if not start.exists():
        if arguments.pairs:
            pairs = Encoded(tokenizer, silver(arguments.data, arguments.static, arguments.pairs))
            print(f"{len(pairs)} pairs, mean score {pairs.scores.mean():.3f}", flush=True)
            train(model, pairs, 1, arguments.pairs_rate, 0, unfinished)
        print(f"dev {pearson(model, dev):.2f} before STSb train", flush=True)
        write_weights(model, start)
    truth = Encoded(tokenizer, gold(arguments.data, "stsb-train"))
    found: dict[str, float] = {}
    weights: dict[str, dict[str, Tensor]] = {}
    for seed in range(arguments.seeds):
        path = work / f"seed-{seed}.safetensors"
        if not path.exists():
            model.load_state_dict(load_file(start))
            train(model, truth, arguments.epochs, arguments.rate, seed, unfinished)
            write_weights(model, path)
        weights[f"seed {seed}"] = load_file(path)
        if seed:
            weights[f"mean of {seed + 1} seeds"] = {
                name: torch.stack([weights[f"seed {i}"][name] for i in range(seed + 1)]).mean(0)
                for name in weights["seed 0"]
            }
        for name in set(weights) - set(found):
            model.load_state_dict(weights[name])
            found[name] = pearson(model.eval(), dev)
            print(f"dev {found[name]:.2f} {name}", flush=True)
    best = max(found, key=lambda name: found[name])
    model.load_state_dict(weights[best])
    out = arguments.out or work / "final"
    card = (out / "README.md").read_text() if (out / "README.md").exists() else None
    shutil.rmtree(out, ignore_errors=True)
    save_model(model, tokenizer, out)
    path = out / "tokenizer.json"
    compact = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(compact, ensure_ascii=False, separators=(",", ":")), "utf-8")
    if card:
        (out / "README.md").write_text(card)
    print(f"kept {best}, dev {found[best]:.2f}: {out}", flush=True)


if __name__ == "__main__":
    main()

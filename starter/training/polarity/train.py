"""Train the polarity check: a low-rank update of starter-encoder that reads two texts together.

    python -m starter.training.polarity.train --work /tmp/polarity-work --out /tmp/polarity-work/first

The stages and their commands are in the model's card, starter/src/tilth_starter/polarity/README.md.
The encoder's matrices stay as they are; what is learnt is added to each of them as a product of two
narrow ones (LoRA, Hu et al. 2021), with the segment vectors, the pooler and a head of one output.
"""

# ruff: noqa: E501

from __future__ import annotations

import argparse
import csv
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tilth.models.polarity import add_low_rank_update, new_polarity_model
from tilth.models.scorer import CrossEncoder

DEV = Path(__file__).parents[3] / "tests/paraphrase/polarity_dev.tsv"
RANK = 16
PAIRS_AT_ONCE, LONGEST = 64, 96  # tokens of a pair
WARM_UP = 0.05
FALSE_ALARMS, THRESHOLD = 0.05, 0.955


class Updated(nn.Module):
    """A frozen linear map with a trained product of two narrow ones added."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.update_down = nn.Parameter(
            torch.randn(rank, linear.in_features) / linear.in_features**0.5
        )
        self.update_up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the map of x, (..., out)."""
        return self.linear(x) + nn.functional.linear(
            nn.functional.linear(x, self.update_down), self.update_up
        )


def updatable(model: Any) -> list[str]:
    """Return the names of the matrices that are updated: all of the encoder's layers."""
    return [
        name for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and ".layer." in name
    ]  # fmt: skip


def trained(model: Any) -> dict[str, Tensor]:
    """Return what was learnt, as it is saved."""
    found = {}
    for name, value in model.named_parameters():
        if value.requires_grad:
            found[name] = value.detach().to(torch.float16).contiguous()
    return found


def load_learnt(model: Any, folder: Path) -> dict[str, Tensor]:
    """Return what a stage before has learnt, by the names of this model."""
    learnt = load_file(folder / "model.safetensors")
    unknown = set(learnt) - set(model.state_dict())
    assert not unknown, sorted(unknown)
    own = model.state_dict()
    wider = {name: own[name].clone() for name in learnt}  # a rank added begins at a product of 0
    for name, value in learnt.items():
        wider[name][tuple(slice(size) for size in value.shape)] = value.float()
    return wider


def measured(tokenizer: Any, weights: dict[str, Tensor], rows: list[dict[str, Any]]) -> np.ndarray:  # fmt: skip
    """Return the probabilities of rows by the weights as they are loaded."""
    plain, _ = new_polarity_model()
    plain.load_state_dict(add_low_rank_update(plain, weights))
    pairs = CrossEncoder(plain.eval(), tokenizer, torch.float32)
    return pairs.scores([r["first"] for r in rows], [r["second"] for r in rows]) / 100


def figures(probabilities: np.ndarray, rows: list[dict[str, Any]], false_alarms: float) -> tuple[float, float, float]:  # fmt: skip
    """Return the threshold of a rate of false alarms, the flips found there, and the AUC."""
    flips = np.array([row["flip"] for row in rows], bool)
    threshold = float(np.quantile(probabilities[~flips], 1 - false_alarms))
    order = np.argsort(np.argsort(probabilities))
    auc = (order[flips].mean() - (flips.sum() - 1) / 2) / (~flips).sum()
    return threshold, float((probabilities[flips] > threshold).mean()), float(auc)


def main() -> None:
    """Train, choose the threshold, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("/tmp/polarity-work"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=80_000)
    parser.add_argument("--start", type=Path, help="what to go on from")
    parser.add_argument("--file", default="pairs.jsonl", help="pairs to learn from")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    path = arguments.work / arguments.file
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    with DEV.open(encoding="utf-8") as file:
        dev = [
            row | {"flip": row["label"] == "flip"} for row in csv.DictReader(file, delimiter="\t")
        ]
    rng = random.Random(arguments.seed)
    rows = (rows * (-(-arguments.pairs // len(rows))))[: arguments.pairs]
    model, tokenizer = new_polarity_model()
    for parameter in model.parameters():
        parameter.requires_grad = False
    for name in updatable(model):
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], Updated(model.get_submodule(name), arguments.rank))
    for name, parameter in model.named_parameters():
        if name.startswith(("bert.pooler", "classifier")) or "token_type" in name:
            parameter.requires_grad = True
    if arguments.start:
        model.load_state_dict(load_learnt(model, arguments.start), strict=False)
    model.set_attn_implementation(
        "eager"
    )  # of short texts twice as fast as the fused one, on a CPU
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    print(f"{sum(p.numel() for p in learnt):,} parameters, {len(rows):,} pairs, {len(dev):,} dev")
    optimizer = torch.optim.AdamW(learnt, lr=arguments.rate, weight_decay=0.01)
    encoded = tokenizer(
        [row["first"] for row in rows], [row["second"] for row in rows],
        truncation=True, max_length=LONGEST,
    )  # fmt: skip
    lengths = [len(ids) for ids in encoded["input_ids"]]
    batches: list[list[int]] = []
    for start in range(0, len(rows), PAIRS_AT_ONCE * 20):  # like lengths together
        some = sorted(
            range(start, min(start + PAIRS_AT_ONCE * 20, len(rows))), key=lengths.__getitem__
        )
        groups = [some[at : at + PAIRS_AT_ONCE] for at in range(0, len(some), PAIRS_AT_ONCE)]
        rng.shuffle(groups)
        batches += groups
    begun, sums = time.monotonic(), 0.0
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for step, batch in enumerate(batches):
        done = step / len(batches)
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * min(
                1.0, done / WARM_UP, (1 - done) / (1 - WARM_UP) + 1e-3
            )
        inputs = tokenizer.pad(
            {name: [encoded[name][place] for place in batch] for name in encoded},
            return_tensors="pt",
        )
        labels = torch.tensor([float(rows[place]["flip"]) for place in batch])
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(**inputs).logits.squeeze(-1)  # (pairs,)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        sums += loss.item()
        if (step + 1) % 50 == 0:
            seconds = time.monotonic() - begun
            print(
                f"step {step + 1}/{len(batches)} loss {sums / 50:.4f} {seconds:.0f} s", flush=True
            )
            sums = 0.0
    weights = trained(model)
    probabilities = measured(tokenizer, weights, dev)
    threshold, found, auc = figures(probabilities, dev, FALSE_ALARMS)
    print(
        f"dev: AUC {auc:.4f}; at {FALSE_ALARMS:.0%} false alarms (above {threshold:.3f}) {found:.1%} found"
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, arguments.out / "model.safetensors")
    (arguments.out / "model.safetensors").chmod(0o644)
    config = {"base": "starter-encoder", "rank": arguments.rank, "threshold": THRESHOLD}
    (arguments.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""`starter-encoder`: all-MiniLM-L6-v2 with fewer word pieces, trained on STSb for its cosines.

    python -m starter.training.encoder.train --data ../shared/data --out FOLDER

The cosine of a pair learns its score on STSb train, with and without symbols; the best epoch on
STSb dev is kept; then the rare word pieces are taken out.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from scipy.stats import pearsonr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from starter.training.encoder.pieces import (
    PIECES,
    POSITIONS,
    base_folder,
    choose_pieces,
    pruned_tokenizer,
    without_pieces,
)
from starter.training.lm.sentences import DEFAULT_DATA, read_rows
from torch import Tensor
from torch.nn import functional
from transformers import AutoTokenizer, BertModel, PreTrainedTokenizerFast

from tilth.paraphrase.similarity import without_symbols

BATCH = 32
WARMUP = 0.1  # share of the steps
LONGEST = 96  # tokens
TOKENIZER_SAYS = (
    "cls_token", "mask_token", "model_input_names", "model_max_length", "pad_token",
    "padding_side", "sep_token", "unk_token",
)  # fmt: skip
SHUFFLED = 16  # batches among which texts of like length are put together


def vectors(model: BertModel, tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> Tensor:
    """Return the texts' unit vectors, shape (texts, 384): the mean of their tokens' vectors."""
    inputs = tokenizer(
        texts, padding=True, truncation=True, max_length=LONGEST, pad_to_multiple_of=8,
        return_tensors="pt",
    )  # fmt: skip
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(**inputs).last_hidden_state  # (texts, tokens, 384)
    mask = inputs["attention_mask"][..., None]
    return functional.normalize((hidden.float() * mask).sum(1) / mask.sum(1), dim=1)


def batches(lengths: list[int], size: int, rng: random.Random) -> Iterator[list[int]]:
    """Yield one pass of batches of places, of like lengths."""
    order = rng.sample(range(len(lengths)), len(lengths))
    for start in range(0, len(order), size * SHUFFLED):
        chunk = sorted(order[start : start + size * SHUFFLED], key=lengths.__getitem__)
        found = [chunk[begin : begin + size] for begin in range(0, len(chunk), size)]
        yield from rng.sample(found, len(found))


def optimised(model: BertModel, rate: float, steps: int) -> Iterator[torch.optim.Optimizer]:
    """Yield the optimiser for each step, its rate set; it steps after the backward pass."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / (WARMUP * steps), 1.02 - step / steps)
        optimizer.zero_grad(set_to_none=True)
        yield optimizer
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def pairs(data: Path, name: str) -> list[tuple[str, str, float]]:
    """Return an STS set's texts and scores from 0 to 1."""
    rows = read_rows(data / "sts" / f"{name}.jsonl.gz")
    return [(row["text_a"], row["text_b"], row["score"] / 5) for row in rows]


@torch.no_grad()
def pearson(
    model: BertModel, tokenizer: PreTrainedTokenizerFast, rows: list[tuple[str, str, float]]
) -> float:
    """Return the correlation of cosines and scores, x 100, without symbols as tilth scores."""
    found = []
    for start in range(0, len(rows), 64):
        some = rows[start : start + 64]
        sides = [without_symbols(row[side]) for side in (0, 1) for row in some]  # type: ignore[arg-type]
        first, second = vectors(model, tokenizer, sides).chunk(2)
        found += (first * second).sum(1).tolist()
    return 100 * float(pearsonr(found, [score for _, _, score in rows])[0])


def tune(
    model: BertModel,
    tokenizer: PreTrainedTokenizerFast,
    data: Path,
    *,
    epochs: int,
    rate: float,
    seed: int,
) -> None:
    """Learn STSb's scores and leave the weights that are best on dev, maybe those it came with."""
    torch.manual_seed(seed)
    rng, began = random.Random(seed), time.time()
    rows, dev = pairs(data, "stsb-train"), pairs(data, "stsb-dev")
    lengths = [len(first) + len(second) for first, second, _ in rows]
    order = [list(batches(lengths, BATCH, rng)) for _ in range(epochs)]
    steps = optimised(model, rate, sum(map(len, order)))
    best = pearson(model.eval(), tokenizer, dev)
    kept = copy.deepcopy(model.state_dict())
    for epoch, some in enumerate(order):
        model.train()
        for places, _ in zip(some, steps, strict=False):
            sides = [
                without_symbols(text) if plain else text
                for side in (0, 1)
                for text, plain in ((rows[p][side], (p + epoch) % 2) for p in places)
            ]
            first, second = vectors(model, tokenizer, sides).chunk(2)
            wanted = torch.tensor([rows[place][2] for place in places])
            functional.mse_loss((first * second).sum(1), wanted).backward()
        found = pearson(model.eval(), tokenizer, dev)
        print(f"epoch {epoch} dev {found:.2f} {time.time() - began:.0f} s", flush=True)
        if found > best:
            best, kept = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)


def main() -> None:
    """Train and write the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=Path("/tmp/scorer-work"))
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tuned = work / "tuned.safetensors"
    model = BertModel.from_pretrained(base_folder(), add_pooling_layer=False)
    if not tuned.exists():
        whole = AutoTokenizer.from_pretrained(base_folder())
        tune(model, whole, arguments.data, epochs=3, rate=4e-5, seed=0)
        save_file(model.state_dict(), tuned)
    model.load_state_dict(load_file(tuned))
    pieces = choose_pieces(arguments.data, PIECES)
    tokenizer, model = pruned_tokenizer(pieces), without_pieces(model, pieces)
    dev = pairs(arguments.data, "stsb-dev")
    print(f"dev {pearson(model.eval(), tokenizer, dev):.2f} without the rare pieces", flush=True)
    write(model, tokenizer, work / "model", arguments.out)


def write(model: BertModel, tokenizer: PreTrainedTokenizerFast, work: Path, out: Path) -> None:
    """Write the model as sentence-transformers loads it, in float16, no pooling layer."""
    model.save_pretrained(work)
    tokenizer.save_pretrained(work)
    transformer = Transformer(str(work), max_seq_length=POSITIONS)
    transformer.auto_model.pooler = None
    whole = SentenceTransformer(modules=[transformer, Pooling(384, "mean")], device="cpu").half()
    whole.save(str(out), create_model_card=False)
    (out / "model.safetensors").chmod(0o644)
    made = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))
    made |= {"truncation": None, "padding": None}
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    (out / "tokenizer.json").write_text(text, encoding="utf-8")
    config = json.loads((out / "tokenizer_config.json").read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name in TOKENIZER_SAYS}
    # The name every release of transformers knows.
    kept["tokenizer_class"] = "PreTrainedTokenizerFast"
    (out / "tokenizer_config.json").write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

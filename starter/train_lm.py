"""Train the starter LM on the mix that lm_data.py wrote.

    python starter/train_lm.py --work /tmp/starter-work --tokens 10_000_000

Passes run in bfloat16, weights and optimiser state stay in float32. The learning
rate warms up, stays, and falls to zero over the last third of the token budget; it depends on the
tokens seen alone, so an interrupted run goes on from its checkpoint with the same command.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch
from lm_data import INSTRUCTIONS
from lm_mix import Batch, Mix
from lm_tokenizer import initial_model
from safetensors.torch import load_file, save_file
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


class Replicas:
    """Copies of a model in bfloat16, one for each thread; the model itself stays in float32.

    Threads that work on their own examples lose less to other programs on the machine than
    threads that share each matrix product and wait for one another.
    """

    def __init__(self, model: BertLMHeadModel, threads: int) -> None:
        self.model = model
        self.copies = [copy.deepcopy(model).to(torch.bfloat16) for _ in range(threads)]
        self.idle: SimpleQueue[BertLMHeadModel] = SimpleQueue()
        for replica in self.copies:
            self.idle.put(replica)
        self.pool = ThreadPoolExecutor(threads)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the model's weights into the replicas."""
        for replica in self.copies:
            for own, master in zip(replica.parameters(), self.model.parameters(), strict=True):
                own.copy_(master)

    def gradients(self, batches: list[Batch]) -> float:
        """Put the gradient of the mean loss into the model; return sentence 2's mean loss."""
        self.refresh()
        total = float(sum(batch.weights.sum() for batch in batches))

        def work(batch: Batch) -> float:
            replica = self.idle.get()
            loss, second = batch_loss(replica, batch)
            (loss / total).backward()
            self.idle.put(replica)
            return float(second)

        seconds = list(self.pool.map(work, batches))
        for replica in self.copies:
            for own, master in zip(replica.parameters(), self.model.parameters(), strict=True):
                if own.grad is not None:
                    if master.grad is None:
                        master.grad = own.grad.float()
                    else:
                        master.grad.add_(own.grad)
                    own.grad = None
        return sum(seconds) / len(seconds)


def learning_rate(peak: float, seen: int, budget: int) -> float:
    """Warm up over 1 M tokens, stay, fall linearly to zero over the last third."""
    done = seen / budget
    return peak * min(1.0, (seen + 20_000) / 1_000_000, max(0.0, (1.0 - done) / 0.35))


def save_model(model: BertLMHeadModel, tokenizer: AutoTokenizer, folder: Path) -> None:
    """Write a loadable float16 model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    half = BertLMHeadModel(model.config).to(torch.float16)
    half.load_state_dict(model.state_dict())
    half.tie_weights()
    half.generation_config = model.generation_config
    half.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    # The name every release of transformers knows; and nothing about where it was trained.
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config = {
        k: v for k, v in config.items() if k not in {"backend", "is_local", "local_files_only"}
    }
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def save_checkpoint(
    work: Path, model: BertLMHeadModel, optimizer: torch.optim.Optimizer, state: dict[str, int]
) -> None:
    """Write weights, optimiser moments and counters; the counters last, so they are never ahead."""
    tensors = {f"model.{k}": v.contiguous().clone() for k, v in model.state_dict().items()}
    for i, moments in optimizer.state_dict()["state"].items():
        for name in ("exp_avg", "exp_avg_sq", "step"):
            tensors[f"optimizer.{i}.{name}"] = moments[name].clone()
    save_file(tensors, work / "checkpoint.tmp")
    (work / "checkpoint.tmp").replace(work / "checkpoint.safetensors")
    (work / "checkpoint.json").write_text(json.dumps(state))


def load_checkpoint(
    work: Path, model: BertLMHeadModel, optimizer: torch.optim.Optimizer
) -> dict[str, int]:
    """Restore what save_checkpoint wrote and return its counters."""
    tensors = load_file(work / "checkpoint.safetensors")
    model.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
    model.tie_weights()
    state = optimizer.state_dict()
    state["state"] = {
        i: {n: tensors[f"optimizer.{i}.{n}"] for n in ("exp_avg", "exp_avg_sq", "step")}
        for i in range(len(state["param_groups"][0]["params"]))
    }
    optimizer.load_state_dict(state)
    counters: dict[str, int] = json.loads((work / "checkpoint.json").read_text())
    return counters


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

    replicas = Replicas(model, arguments.threads)
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

"""What training scripts share: threads with copies of the model, steps, checkpoints, folders."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

CHECKPOINT_SECONDS, REPORT_SECONDS = 240, 480
SHOWN_STEPS = 50  # between two lines of progress


class Replicas:
    """Copies of a model in bfloat16, one for each thread; the model itself stays in float32.

    Threads that work on their own examples lose less to other programs on the machine than
    threads that share each matrix product and wait for one another.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        threads: int,
        loss: Callable[[Any, Any], tuple[Tensor, Tensor]],
    ) -> None:
        self.model, self.loss = model, loss
        self.copies = [copy.deepcopy(model).to(torch.bfloat16) for _ in range(threads)]
        self.idle: SimpleQueue[PreTrainedModel] = SimpleQueue()
        for replica in self.copies:
            self.idle.put(replica)
        self.pool = ThreadPoolExecutor(threads)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the model's weights into the replicas."""
        for replica in self.copies:
            for own, master in zip(replica.parameters(), self.model.parameters(), strict=True):
                own.copy_(master)

    def gradients(self, batches: list[Any]) -> float:
        """Put the mean loss's gradient into the model; return the mean of what the loss shows."""
        self.refresh()
        total = float(sum(batch.weights.sum() for batch in batches))

        def work(batch: Any) -> float:
            replica = self.idle.get()
            loss, second = self.loss(replica, batch)
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


@dataclass(frozen=True)
class Training:
    """A training of so many tokens, which goes on from the checkpoint in its folder.

    Attributes:
        replicas: of the model.
        folder: holds checkpoints, and in `latest` the model of the last report.
        tokens: budget, padding left out.
        rate: peak learning rate.
        pieces: batches of a step.
    """

    replicas: Replicas
    tokenizer: PreTrainedTokenizerFast
    optimizer: torch.optim.Optimizer
    folder: Path
    tokens: int
    rate: float
    pieces: int

    def run(
        self,
        epoch: Callable[[int], Iterable[np.ndarray]],
        collate: Callable[[np.ndarray, np.random.Generator], Any],
        count: Callable[[np.ndarray], int],
        report: Callable[[], str],
    ) -> None:
        """Train until the budget is used; print progress and reports.

        Args:
            epoch: gives the rows of each batch of an epoch.
            collate: makes a batch of rows.
            count: gives the number of tokens of rows.
            report: gives the losses of held-out rows in words.
        """
        model, optimizer = self.replicas.model, self.optimizer
        state = {"step": 0, "seen": 0, "epoch": 0, "batch": 0}
        if (self.folder / "checkpoint.json").exists():
            state = load_checkpoint(self.folder, model, optimizer)
            print(f"resumed at {state}", flush=True)
        began, begun_at = time.time(), state["seen"]
        saved = reported = began
        recent: list[float] = []
        while state["seen"] < self.tokens:
            batches = list(epoch(state["epoch"]))
            for start in range(state["batch"], len(batches), self.pieces):
                rate = learning_rate(self.rate, state["seen"], self.tokens)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                pieces = batches[start : start + self.pieces]
                rng = np.random.default_rng((state["epoch"], start))
                optimizer.zero_grad(set_to_none=True)
                recent.append(self.replicas.gradients([collate(rows, rng) for rows in pieces]))
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                state["step"] += 1
                state["batch"] += len(pieces)
                state["seen"] += sum(map(count, pieces))
                if state["step"] % SHOWN_STEPS == 0:
                    speed = (state["seen"] - begun_at) / (time.time() - began)
                    print(
                        f"step {state['step']} seen {state['seen'] / 1e6:.2f}M loss "
                        f"{np.mean(recent):.3f} rate {rate:.1e} {speed:.0f} tokens/s",
                        flush=True,
                    )
                    recent.clear()
                if time.time() - saved > CHECKPOINT_SECONDS:
                    save_checkpoint(self.folder, model, optimizer, state)
                    saved = time.time()
                if time.time() - reported > REPORT_SECONDS:
                    print(f"dev loss {report()}", flush=True)
                    save_model(model, self.tokenizer, self.folder / "latest")
                    reported = time.time()
                if state["seen"] >= self.tokens:
                    break
            else:
                state |= {"epoch": state["epoch"] + 1, "batch": 0}
        save_checkpoint(self.folder, model, optimizer, state)
        print(f"done: {state}, dev loss {report()}", flush=True)


@torch.no_grad()
def dev_loss(
    model: PreTrainedModel, mix: Any, loss: Callable[[Any, Any], tuple[Tensor, Tensor]]
) -> float:
    """Return the mean of what the loss shows of held-out examples."""
    replica = copy.deepcopy(model).to(torch.bfloat16)
    losses = [loss(replica, mix.collate(rows))[1] for rows in mix.batches(8192, seed=0)]
    return float(torch.stack(losses).mean())


def learning_rate(peak: float, seen: int, budget: int) -> float:
    """Warm up over 1 M tokens, stay, fall linearly to zero over the last third."""
    done = seen / budget
    return peak * min(1.0, (seen + 20_000) / 1_000_000, max(0.0, (1.0 - done) / 0.35))


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a loadable float16 model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    half = type(model)(model.config).to(torch.float16)
    half.load_state_dict(model.state_dict())
    half.tie_weights()
    if model.can_generate():
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
    work: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, state: dict[str, int]
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
    work: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer
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

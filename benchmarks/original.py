"""The peer: DINO's published algorithm, as its code ran it, on today's transformers.

One input and one label at a time; a batch is the samples times (label + counter labels), each
prompt repeated and run anew; always 40 tokens, split at the quotation mark afterwards; loops over
rows in Python; float32. Written from the paper and a description of the code, none of it copied.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LogitsProcessorList, TopKLogitsWarper, TopPLogitsWarper

from tilth.generation.task import Label, Task

LENGTH = 40


class OriginalDino:
    """Generates with self-debiasing the way the original does."""

    def __init__(self, model: Any, tokenizer: Any, *, decay: float = 100.0, floor: float = 0.01):
        self.model, self.tokenizer = model, tokenizer
        self.decay, self.floor = decay, floor
        self.warpers: Any = LogitsProcessorList([TopKLogitsWarper(5), TopPLogitsWarper(0.9)])
        self.banned = list(tokenizer.all_special_ids)

    def generate(
        self, task: Task, texts: list[str], *, per_input: int = 2, max_tries: int = 5
    ) -> list[tuple[str, str, str]]:
        """Return (text_a, text_b, label) of every output that was closed."""
        rows = []
        for text in texts:
            for label in task.labels:
                kept: list[str] = []
                tries = 0
                while len(kept) < per_input and tries < max_tries:
                    samples = min(per_input - len(kept), max_tries - tries)
                    tries += samples
                    for output in self._sample(task, label, text, samples):
                        before, mark, _ = output.partition('"')
                        if mark and before and "\n" not in before:
                            kept.append(before)
                rows += [(text, output, label.name) for output in kept]
        return rows

    @torch.no_grad()
    def _sample(self, task: Task, label: Label, text: str, samples: int) -> list[str]:
        prompts = [p for p in task.prompts(label, text) for _ in range(samples)]
        ids = [self.tokenizer(prompt)["input_ids"] for prompt in prompts]
        width = max(map(len, ids))
        device = self.model.device
        tokens = torch.zeros(len(ids), width, dtype=torch.long, device=device)
        mask = torch.zeros(len(ids), width, dtype=torch.long, device=device)
        for row, prompt in enumerate(ids):
            tokens[row, width - len(prompt) :] = torch.tensor(prompt, device=device)
            mask[row, width - len(prompt) :] = 1
        cache = DynamicCache(config=self.model.config)
        drawn = tokens[:, :0]
        step = tokens
        for _ in range(LENGTH):
            positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -step.shape[1] :]
            logits = self.model(
                input_ids=step,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]  # (rows, vocab)
            logits[:, self.banned] = -torch.inf
            scores = self._debias(logits, samples)
            scores = self.warpers(tokens, scores)
            step = torch.multinomial(scores.softmax(-1), 1)  # (rows, 1)
            for row in range(samples, len(ids)):  # counter rows follow the regular row's text
                step[row] = step[row % samples]
            drawn = torch.cat((drawn, step), dim=1)
            mask = torch.cat((mask, torch.ones_like(mask[:, :1])), dim=1)
        texts: list[str] = self.tokenizer.batch_decode(drawn[:samples])
        return texts

    def _debias(self, logits: Tensor, samples: int) -> Tensor:
        shares = logits.softmax(-1)
        if len(shares) == samples:
            return logits
        debiased = logits.clone()
        for row in range(samples):
            counter = torch.stack(
                [shares[other] for other in range(row + samples, len(shares), samples)]
            )
            delta = shares[row] - counter.max(dim=0).values
            factor = torch.clamp(torch.exp(self.decay * delta.clamp(max=0)), min=self.floor)
            final = factor * shares[row]
            debiased[row] = (final / final.sum()).log()
        return debiased

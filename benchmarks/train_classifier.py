"""Steps of our training against a plain torch loop on the same batches: what the trainer costs.

    python benchmarks/train_classifier.py [--base starter-small] [--rows 640] [--rounds 5]

Both take the same batches of the same texts, with the same optimizer and rates, in interleaved
rounds; time is that of the processor, so that neighbours on the machine count little. Printed is
the median ratio.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import get_linear_schedule_with_warmup

from inputs import script_parser
from tilth.classifiers.collate import encode
from tilth.classifiers.examples import LabeledExamples, labeled_examples
from tilth.classifiers.finetune import fine_tune
from tilth.classifiers.settings import Finetuning
from tilth.classifiers.trainer import soft_label_loss
from tilth.models.classifier import Classifier, new_classifier
from tilth.models.pretrained import seeded
from tilth.models.trainer import LengthBatchSampler

WORDS = [
    "the", "a", "old", "red", "man", "dog", "sea", "boat", "runs", "sees", "near", "under", "rain",
    "sun", "two", "many", "and", "but",
]  # fmt: skip


def rows(count: int) -> LabeledExamples:
    """Return texts of words in any order, of four classes."""
    from tilth.data.examples import read_examples

    rng = random.Random(0)
    return labeled_examples(
        read_examples(
            [
                {"text": " ".join(rng.choices(WORDS, k=rng.randint(5, 20))), "label": n % 4}
                for n in range(count)
            ]
        )
    )


def plain(classifier: Classifier, data: LabeledExamples, settings: Finetuning) -> None:
    """Train with a loop of ten lines."""
    encoded, loss = (
        encode(classifier, data, bfloat16=False),
        soft_label_loss(classifier, settings, bfloat16=False),
    )
    model, steps = classifier.model, settings.steps(len(data))[0]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate or 0, weight_decay=0.0, fused=True
    )
    warm = int(steps * settings.warmup) + 1
    schedule = get_linear_schedule_with_warmup(optimizer, warm, steps)  # type: ignore[no-untyped-call]
    model.train()
    with seeded(settings.seed):
        for batch in LengthBatchSampler(encoded.ids.lengths, settings.batch, settings.seed):
            torch.autograd.backward(loss(model, encoded[batch]))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


def main() -> int:
    """Measure and print."""
    parser = script_parser(__doc__)
    parser.add_argument("--base", default="starter-small")
    parser.add_argument("--rows", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = rows(asked.rows)
    settings = Finetuning(epochs=1, precision="float32", dropout=0.0).for_base(asked.base)
    steps = settings.steps(len(data))[0]
    ways = ("plain loop", "in memory", "with checkpoints")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(asked.rounds + 1):
        for way in ways:
            classifier = new_classifier(
                asked.base, kind="class", labels=data.labels, dropout=0.0, device="cpu"
            )
            begun = time.process_time()
            if way == "plain loop":
                plain(classifier, data, settings)
            elif way == "in memory":
                fine_tune(classifier, data, None, settings, quiet=True)
            else:
                with tempfile.TemporaryDirectory() as folder:
                    fine_tune(classifier, data, None, settings, Path(folder), quiet=True)
            seconds[way].append(time.process_time() - begun)
    for way, found in seconds.items():
        found.pop(0)  # the first round meets new shapes
        ratio = statistics.median(
            one / two for one, two in zip(found, seconds["plain loop"], strict=True)
        )
        per_step = 1000 * statistics.median(found) / steps
        print(f"{way:18} {per_step:7.1f} ms of processor a step, {ratio:.2f} of the plain loop")
    return 0


if __name__ == "__main__":
    sys.exit(main())

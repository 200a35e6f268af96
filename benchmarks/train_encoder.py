"""Training an encoder: tilth against sentence-transformers' plain defaults, pairs per second.

    python benchmarks/train_encoder.py                  # starter-mlm
    python benchmarks/train_encoder.py --base FOLDER    # another one, such as all-MiniLM-L6-v2
    python benchmarks/train_encoder.py --pairs FILE     # other pairs than the made ones

Both train the same base on the same pairs with the same loss, batch size and optimiser, in turn,
several rounds, in one process; the clock runs from the end of step 5 to the end of the last step.
The plain side is `SentenceTransformerTrainer` with its defaults (float32, batches drawn at random);
ours is what `tilth.train_encoder` runs (bfloat16 autocast where the hardware is fast at it, batches
of like lengths, without padding where the architecture allows it). Evaluations and saving are left
out on both sides. The limit is what the matrix products of our steps take at the rate of a large
product.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from transformers import PrinterCallback, TrainerCallback

from inputs import script_parser
from limits import product_count, product_rate
from tilth.encoders.bi_encoder import cosine_objective
from tilth.encoders.graded_pairs import TrainingPairs, read_pairs
from tilth.encoders.settings import Training
from tilth.encoders.train import make_encoder_trainer
from tilth.models import load_encoder
from tilth.models.device import choose_precision
from tilth.models.trainer import run_trainer
from tilth.runs import Progress
from tilth.workflows.quickstart import quickstart_sentences

WARM = 5


def made_pairs(count: int) -> Dataset:
    """Return pairs of the shipped sentences' words, as long as sentences of the STS sets are.

    Words per text are log-normal with median 10; one text in twenty has 26 or more.
    """
    rng = np.random.default_rng(0)
    words = " ".join(quickstart_sentences()).split()

    def texts() -> list[str]:
        lengths = np.clip(np.exp(rng.normal(2.3, 0.58, count)), 3, 60).astype(int)
        return [" ".join(rng.choice(words, length)) for length in lengths]

    return Dataset.from_dict(
        {"text_a": texts(), "text_b": texts(), "label": rng.choice([0.1, 0.5, 0.9], count)}
    )


class Clock(TrainerCallback):
    """Notes when steps end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the time."""
        self.ends.append(time.perf_counter())

    def pairs_per_second(self, batch: int) -> float:
        """Return the throughput after the first steps."""
        return batch * (len(self.ends) - WARM) / (self.ends[-1] - self.ends[WARM - 1])


def plain(base: str, pairs: TrainingPairs, settings: Training, steps: int, folder: Path) -> float:
    """Train with sentence-transformers' defaults; return pairs per second."""
    encoder, clock = load_encoder(base), Clock()
    trainer = SentenceTransformerTrainer(
        model=encoder,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=settings.batch,
            learning_rate=settings.learning_rate or 0,
            warmup_steps=settings.warmup,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=pairs.train,
        loss=CosineSimilarityLoss(encoder),
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return clock.pairs_per_second(settings.batch)


def ours(base: str, pairs: TrainingPairs, settings: Training, steps: int, folder: Path) -> float:
    """Train as tilth does; return pairs per second."""
    encoder, clock = load_encoder(base), Clock()
    settings = replace(settings, epochs=steps / -(-len(pairs.train) // settings.batch))
    trainer = make_encoder_trainer(
        encoder, pairs, cosine_objective(), settings, folder, Progress(steps, quiet=True),
        resumable=False,
    )  # fmt: skip
    trainer.add_callback(clock)
    run_trainer(trainer, too_large="")
    return clock.pairs_per_second(settings.batch)


def main() -> None:
    """Run both in turn and print each round's ratio and their median."""
    parser = script_parser(__doc__)
    parser.add_argument("--base", default="starter-mlm")
    parser.add_argument("--pairs", default=None, help="a set that `tilth train encoder` reads")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="auto")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    settings = Training(evaluate_every=arguments.steps + 1, precision=arguments.precision).for_base(
        arguments.base
    )
    pairs = read_pairs(arguments.pairs or made_pairs(40 * arguments.steps))
    small = TrainingPairs(
        pairs.train, pairs.validation.select(range(min(64, len(pairs.validation))))
    )
    given = (arguments.base, small, settings, arguments.steps)
    dtype = choose_precision(settings.precision, torch.device("cpu"))
    ratios, shares = [], []
    with tempfile.TemporaryDirectory() as folder:
        count = product_count(partial(ours, *given, Path(folder) / "counted"))
        a_pair = count / arguments.steps / settings.batch
        for number in range(arguments.rounds):
            theirs = plain(*given, Path(folder) / f"plain-{number}")
            mine = ours(*given, Path(folder) / f"ours-{number}")
            ratios.append(mine / theirs)
            shares.append(mine * a_pair / product_rate(time.perf_counter, dtype))
            print(
                f"round {number + 1}: sentence-transformers {theirs:.0f} pairs/s, tilth {mine:.0f} "
                f"pairs/s in {str(dtype).removeprefix('torch.')}, ratio {ratios[-1]:.2f}, "
                f"{shares[-1]:.0%} of the limit",
                flush=True,
            )
    ratio, share = statistics.median(ratios), statistics.median(shares)
    print(f"median ratio {ratio:.2f}, {share:.0%} of the limit")


if __name__ == "__main__":
    main()

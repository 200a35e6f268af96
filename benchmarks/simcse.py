"""Contrastive training (SimCSE): tilth against the loss used plainly, pairs per second.

    python benchmarks/simcse.py                  # the starter masked language model
    python benchmarks/simcse.py --base FOLDER    # another one, such as all-MiniLM-L6-v2
    python benchmarks/simcse.py --texts FILE     # other texts than the made ones

Both train the same base on the same texts, each its own positive under another dropout mask, with
batches of 64 random texts and a limit of 32 tokens, in turn, several rounds, in one process; the
clock runs from the end of step 5 to the end of the last step. The plain side is
`SentenceTransformerTrainer` with `MultipleNegativesRankingLoss` and its defaults; ours is what
`tilth.train_simcse` runs: bfloat16 autocast where the hardware is fast at it, both columns in one
pass without padding, or in passes of texts of similar lengths. Evaluations and saving are left out
on both sides.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import PrinterCallback

from inputs import script_parser
from tilth.encoders.contrastive_sets import read_contrastive
from tilth.encoders.graded_pairs import TrainingPairs
from tilth.encoders.settings import SimcseTraining
from tilth.encoders.simcse import simcse_objective
from tilth.encoders.train import make_encoder_trainer
from tilth.models import load_encoder
from tilth.models.trainer import run_trainer
from tilth.runs import Progress
from train_encoder import Clock, made_pairs


def plain(base: str, rows: Dataset, settings: SimcseTraining, steps: int, folder: Path) -> float:
    """Train with sentence-transformers' defaults; return pairs per second."""
    encoder = load_encoder(base, pooling=settings.pooling, max_length=settings.max_length)
    training, clock = settings.training(base, triples=False), Clock()
    trainer = SentenceTransformerTrainer(
        model=encoder,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=training.batch,
            learning_rate=training.learning_rate or 0,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=rows,
        loss=MultipleNegativesRankingLoss(encoder, scale=1 / settings.temperature),
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return clock.pairs_per_second(training.batch)


def ours(base: str, rows: Dataset, settings: SimcseTraining, steps: int, folder: Path) -> float:
    """Train as tilth does; return pairs per second."""
    encoder = load_encoder(base, pooling=settings.pooling, max_length=settings.max_length)
    training, clock = settings.training(base, triples=False), Clock()
    training = replace(
        training, epochs=steps / -(-len(rows) // training.batch), evaluate_every=steps + 1
    )
    trainer = make_encoder_trainer(
        encoder, TrainingPairs(rows, rows.select([])), simcse_objective(settings), training, folder,
        Progress(steps, quiet=True), resumable=False,
    )  # fmt: skip
    trainer.add_callback(clock)
    run_trainer(trainer, too_large="")
    return clock.pairs_per_second(training.batch)


def main() -> None:
    """Run both in turn and print each round's ratio and their median."""
    parser = script_parser(__doc__)
    parser.add_argument("--base", default="starter-mlm")
    parser.add_argument("--texts", default=None, help="texts that `tilth train simcse` reads")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    settings = SimcseTraining()
    made = (
        made_pairs(64 * arguments.steps).select_columns(["text_a"]).rename_column("text_a", "text")
    )
    rows = read_contrastive(arguments.texts or made)
    ratios = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            theirs = plain(arguments.base, rows, settings, arguments.steps, Path(folder))
            own = ours(arguments.base, rows, settings, arguments.steps, Path(folder))
        ratios.append(own / theirs)
        print(f"round {number + 1}: plain {theirs:.0f}, tilth {own:.0f} pairs/s, {ratios[-1]:.2f}x")
    print(f"median of {len(ratios)} rounds: {statistics.median(ratios):.2f}x")


if __name__ == "__main__":
    main()

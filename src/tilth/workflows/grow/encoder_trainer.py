"""Trains encoders on the pairs of an arm's sources, one source after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, concatenate_datasets
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss

from tilth.encoders.bi_encoder import METRIC, CorrelationEvaluator, cosine_objective
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, TrainingPairs
from tilth.encoders.settings import SINGLE_TEXTS_DROPOUT, SimcseTraining, Training
from tilth.encoders.simcse import simcse_objective
from tilth.encoders.train import EncoderTraining, Objective
from tilth.limits import later_seed
from tilth.models.encoder import load_encoder
from tilth.workflows.grow.arms import Arm, Teacher
from tilth.workflows.grow.pair_sources import PairSources, cosines_of, training_rows
from tilth.workflows.grow.similarity import (
    AS_IT_IS,
    DENOISED,
    GENERATED_PAIRS,
    NEAR,
    PAIRS,
    REWRITTEN,
    SIMCSE,
    STAGES,
    SimilarityTask,
    grades_of,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.workflows.grow.task import Fold

LABELLED_EPOCHS = 4.0
_PAIRS_EACH = 8  # of a generated set: three labels, two texts each, and sampled ones
_FEWEST_STEPS = 8  # of a pass over rows: batches of few rows are small
_NEVER = 10_000_000  # steps between checkpoints: none


class EncoderTrainer:
    """Trains arms on folds; an arm without labelled pairs is trained once for a repeat."""

    teacher = Teacher()  # part of `Trains`; no sentence is labelled here

    def __init__(
        self, task: SimilarityTask, sources: PairSources, base: str, counts: Mapping[str, int]
    ) -> None:
        self.task, self.sources, self.base, self.counts = task, sources, base, counts
        self._cosines: dict[tuple[str, int], NDArray[np.float64]] = {}  # of all labelled pairs

    @property
    def alone(self) -> str:
        """Return the name of the arm that all gains are over."""
        return AS_IT_IS.format(self.base)

    def answers(self, arm: Arm, fold: Fold) -> NDArray[np.float64]:
        """Train an arm on a fold, unless it was for another one; return the cosines, (pairs, 1)."""
        seed = self.sources.settings.seed
        if PAIRS in arm.sources or self.task.validation is not None:
            encoder, _ = self.train(arm, fold, seed=later_seed(seed, fold.number + 1))
            return cosines_of(encoder, fold.rows.texts)[:, None]
        # Its encoder is that of all folds of the repeat: all labelled pairs are measured at once.
        key = (arm.name, fold.repeat)
        if key not in self._cosines:
            encoder, _ = self.train(arm, fold, seed=later_seed(seed, fold.repeat))
            self._cosines[key] = cosines_of(encoder, self.task.rows.texts)
        return self._cosines[key][fold.held, None]

    def forget(self) -> None:
        """Do nothing: the kept cosines are small."""

    def train(self, arm: Arm, fold: Fold, *, seed: int) -> tuple[SentenceTransformer, Dataset]:
        """Train an arm on a fold.

        Returns:
            The encoder, and what it learnt from: text_a, text_b, label (None without), origin.
        """
        device = self.sources.device
        if not arm.sources:
            name = arm.name.removesuffix(AS_IT_IS.format(""))
            return load_encoder(name, device=device), _rows({})
        dropout = SINGLE_TEXTS_DROPOUT if SIMCSE in arm.sources else None
        encoder = load_encoder(self.base, dropout=dropout, device=device)
        learnt: dict[str, Dataset] = {}
        for source in STAGES:
            if source in arm.sources:
                rows = (
                    self._pairs(fold)
                    if source == PAIRS
                    else self.sources.rows(source, self.counts[source])
                )
                fit(encoder, source, rows, self.base, seed)
                learnt[source] = rows
        return encoder.eval(), _rows(learnt)

    def _pairs(self, fold: Fold) -> Dataset:
        rows = self.task.rows.select(fold.train)
        one, two = ([pair[side] for pair in rows.texts] for side in (0, 1))
        return training_rows(one, two, grades_of(rows).tolist())


def fit(encoder: SentenceTransformer, source: str, rows: Dataset, base: str, seed: int) -> None:
    """Train an encoder in place on the rows of a source."""
    objective, how = _objective(source)
    how["batch"] = min(how["batch"], max(len(rows) // _FEWEST_STEPS, 2))
    settings = Training(evaluate_every=_NEVER, seed=seed, **how).for_base(base)
    training = EncoderTraining("grow", base, settings, objective)
    none = rows.select([])
    training.train(encoder, TrainingPairs(rows, none), None, overwrite=False, quiet=True)


def _objective(source: str) -> tuple[Objective, dict[str, Any]]:
    """Return the objective of a source, and its settings of training.

    Reference:
        SimCSE: Gao et al. 2021, arXiv 2104.08821. TSDAE: Wang et al. 2021, arXiv 2104.06979.
    """
    if source == DENOISED:
        return Objective(_denoising, CorrelationEvaluator, METRIC, "spearman"), {"batch": 16}
    if source in (SIMCSE, NEAR, REWRITTEN):
        return simcse_objective(SimcseTraining()), {"batch": 64}
    epochs = LABELLED_EPOCHS if source == PAIRS else 1.0
    return cosine_objective(), {"batch": 16, "epochs": epochs}


def _denoising(encoder: SentenceTransformer) -> Any:
    """Return the loss of restoring damaged texts from their vectors, with tied weights."""
    loss: Any = DenoisingAutoEncoderLoss(encoder, tie_encoder_decoder=True)
    # The decoder is loaded as it was saved, maybe in half precision, and its weights are shared.
    return loss.float().to(encoder.device)


def _rows(learnt: Mapping[str, Dataset]) -> Dataset:
    """Return the rows of all sources: text_a, text_b, label (None without), origin."""
    from datasets import Features, Value

    features = Features({
        TEXT_A: Value("string"), TEXT_B: Value("string"), LABEL: Value("float32"),
        "origin": Value("string"),
    })  # fmt: skip
    tables = [
        Dataset.from_dict({
            TEXT_A: part[TEXT_A][:], TEXT_B: part[TEXT_B][:],
            LABEL: part[LABEL][:] if LABEL in part.column_names else [None] * len(part),
            "origin": [origin] * len(part),
        }, features=features)
        for origin, part in learnt.items()
    ]  # fmt: skip
    if not tables:
        return Dataset.from_dict({name: [] for name in features}, features=features)
    return concatenate_datasets(tables)


@dataclass(frozen=True, slots=True)
class EncoderSpeeds:
    """Speeds on this machine, and what follows from the budget.

    Attributes:
        train: pairs a second in training steps.
        encode: texts a second.
        counts: raw sentences that a training on each source takes.
        shared: trials that share one training of an arm without labelled pairs.
    """

    train: float
    encode: float
    counts: Mapping[str, int]
    shared: int

    def seconds(self, arm: Arm, task: SimilarityTask, *_: Any) -> float:
        """Return the estimated seconds of one trial of an arm."""
        whole = 1.0 + self.training(arm, task) + self.measuring(task)
        return whole if PAIRS in arm.sources else whole / self.shared

    def measuring(self, task: SimilarityTask) -> float:
        """Return the estimated seconds of encoding all pairs that choose."""
        return 2 * len(task.rows if task.validation is None else task.validation) / self.encode

    def training(self, arm: Arm, task: SimilarityTask) -> float:
        """Return the estimated seconds of one training of an arm."""
        pairs = {source: float(count) for source, count in self.counts.items()}
        pairs[PAIRS] = LABELLED_EPOCHS * len(task.rows)
        # Damaged sentences pass through a decoder, too.
        times = {DENOISED: 2, GENERATED_PAIRS: _PAIRS_EACH}
        return sum(times.get(one, 1) * pairs[one] for one in arm.sources) / self.train

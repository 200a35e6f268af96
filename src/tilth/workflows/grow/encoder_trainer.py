"""Trains encoders on what raw text, a language model and labelled pairs give, source by source."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, concatenate_datasets
from numpy.typing import NDArray
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss

from tilth.encoders.bi_encoder import METRIC, CorrelationEvaluator, cosine_objective
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, TrainingPairs, read_pairs
from tilth.encoders.settings import SimcseTraining, Training
from tilth.encoders.simcse import simcse_objective
from tilth.encoders.train import EncoderTraining, Objective
from tilth.errors import InputError
from tilth.evaluate.sts import pair_cosines
from tilth.evaluate.sts_sets import StsSet
from tilth.models.encoder import load_encoder
from tilth.selftrain.retrieve import random_sentences
from tilth.workflows.curate import curate_folder
from tilth.workflows.grow.arms import Arm
from tilth.workflows.grow.settings import PAIR_TASK
from tilth.workflows.grow.similarity import (
    AS_IT_IS,
    DENOISED,
    DISTILLED,
    GENERATED,
    NEAR,
    PAIRS,
    REWRITTEN,
    SIMCSE,
    STAGES,
    STARTER,
    SimilarityTask,
    grades_of,
)
from tilth.workflows.grow.sources import PARAPHRASES, TEXTS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.bank import Bank
    from tilth.generation.generate import GenerateRequest
    from tilth.paraphrase.rewriter import Rewriter
    from tilth.workflows.grow.settings import Growth
    from tilth.workflows.grow.task import Fold

_LONGEST = 300  # characters of a raw sentence
_DELETED = 0.6  # of the words that a decoder restores, as TSDAE
_NEIGHBOURS = 8
_POSITIVE = (0.75, 0.97)  # cosines of near duplicates, by the bank's encoder; nearer ones are same
_DISTILLED = (1, 3, 8)  # ranks of the neighbours that are graded
LABELLED_EPOCHS = 4.0
MOST_MADE = {REWRITTEN: 1_000, GENERATED: 500}  # raw sentences that a model writes about
FEWEST_MADE = 50
_TRIED = 4  # of them, to measure its speed
_PAIRS_EACH = 8  # of a generated set: three labels, two texts each, and sampled ones
_NEVER = 10_000_000  # steps between checkpoints: none


def cosines_of(encoder: Any, pairs: Sequence[tuple[str, ...]]) -> NDArray[np.float64]:
    """Return the cosine of each pair, (pairs,)."""
    one, two = ([pair[side] for pair in pairs] for side in (0, 1))
    none = np.zeros(len(pairs))
    (found,) = pair_cosines(encoder, [StsSet("pairs", one, two, none, [""] * len(pairs))])
    return found


class PairSources:
    """Makes the rows of each source but the labelled pairs.

    Args:
        out: the run folder; rewrites and generated pairs are runs in it, made once.
    """

    def __init__(
        self, task: SimilarityTask, bank: Bank | None, settings: Growth, out: Path, device: str
    ) -> None:
        self.task, self.bank, self.settings = task, bank, settings
        self.out, self.device = out, device
        self._found: dict[tuple[str, int], Dataset] = {}

    def sentences(self, count: int) -> list[str]:
        """Return random raw sentences, none of them of a labelled pair."""
        assert self.bank is not None
        seed = self.settings.seed
        table = random_sentences(self.bank, 2 * count, self.task.held_out, seed)
        found = [text for text in table["text"].to_pylist() if len(text) <= _LONGEST]
        if len(found) < 2:
            raise InputError(
                f"{self.bank.path}: {len(found)} raw sentences are left of up to {_LONGEST} "
                "characters that no labelled pair holds: give more raw text"
            )
        return found[:count]

    def rows(self, source: str, count: int) -> Dataset:
        """Return the rows of a source, made once of so many raw sentences."""
        key = (source, count)
        if key not in self._found:
            make: dict[str, Callable[[int], Dataset]] = {
                SIMCSE: self._same, DENOISED: self._damaged, NEAR: self._near,
                DISTILLED: self._distilled, REWRITTEN: self._rewrites, GENERATED: self._generated,
            }  # fmt: skip
            self._found[key] = make[source](count)
        return self._found[key]

    def _same(self, count: int) -> Dataset:
        texts = self.sentences(count)
        return training_rows(texts, texts)

    def _damaged(self, count: int) -> Dataset:
        """Return texts without most of their words, beside the whole texts."""
        texts, draw = self.sentences(count), random.Random(self.settings.seed)
        damaged = []
        for text in texts:
            words = text.split()
            kept = [word for word in words if draw.random() > _DELETED]
            damaged.append(" ".join(kept or words[:1]))
        return training_rows(damaged, texts)

    def _neighbours(self, count: int) -> tuple[list[str], list[list[str]], NDArray[np.float32]]:
        """Return raw sentences, the raw sentences nearest to each, and their cosines."""
        assert self.bank is not None
        texts = self.sentences(count)
        hits = self.bank.search(
            texts, min(_NEIGHBOURS, len(self.bank)), without=self.task.held_out, own=False
        )
        return texts, [hits.texts(row) for row in range(len(texts))], hits.similarity

    def _near(self, count: int) -> Dataset:
        """Return sentences, each with its nearest neighbour that does not say the very same."""
        pairs = []
        for text, near, cosines in zip(*self._neighbours(count), strict=True):
            inside = [
                other for other, one in zip(near, cosines, strict=False)
                if _POSITIVE[0] <= one <= _POSITIVE[1]
            ]  # fmt: skip
            if inside:
                pairs.append((text, inside[0]))
        if len(pairs) < 2:
            raise InputError(
                f"{len(pairs)} of {count:,} raw sentences have a near duplicate: give more raw text"
            )
        first, second = zip(*pairs, strict=True)
        return training_rows(first, second)

    def _distilled(self, count: int) -> Dataset:
        """Return sentences and neighbours near and far, graded by the starter encoder."""
        pairs = [
            (text, near[rank - 1])
            for text, near, _ in zip(*self._neighbours(count), strict=True)
            for rank in _DISTILLED if rank <= len(near)
        ][:count]  # fmt: skip
        grades = np.clip(cosines_of(load_encoder(STARTER, device=self.device), pairs), 0, 1)
        first, second = zip(*pairs, strict=True)
        return training_rows(first, second, grades.tolist())

    @cached_property
    def _rewriter(self) -> Rewriter:
        from tilth.paraphrase.rewriter import load_paraphraser

        return load_paraphraser(device=self.device)

    def measure_rewriting(self) -> float:
        """Return the seconds that the rewrites of a sentence take."""
        texts = self.sentences(_TRIED)
        began = time.monotonic()
        self._rewriter.rewrite(texts, beams=2)
        return (time.monotonic() - began) / len(texts)

    def _rewrites(self, count: int) -> Dataset:
        from tilth.paraphrase.paraphrase_set import run_paraphrase
        from tilth.paraphrase.settings import RewriteSettings

        made = run_paraphrase(
            Dataset.from_dict({"text": self.sentences(count)}), self._rewriter,
            RewriteSettings(beams=2, seed=self.settings.seed), self.out / PARAPHRASES,
            columns=["text"], quiet=True,
        )  # fmt: skip
        return training_rows(made["original"][:], made["text"][:])

    def _request(self, count: int) -> GenerateRequest:
        from tilth.generation.generate import GenerateRequest
        from tilth.generation.settings import GenerateSettings
        from tilth.generation.task import load_task
        from tilth.models import load_lm

        return GenerateRequest(
            load_task(PAIR_TASK), load_lm(str(self.settings.model), device=self.device),
            GenerateSettings(seed=self.settings.seed), self.sentences(count),
            any_task=self.settings.any_task,
        )  # fmt: skip

    def measure_generation(self) -> float:
        """Return the seconds that the language model takes for a sentence."""
        from tilth.generation.estimate import estimate_run

        request = self._request(MOST_MADE[GENERATED])
        return estimate_run(request).seconds / len(request.items())

    def _generated(self, count: int) -> Dataset:
        from tilth.generation.generate import run_generate

        run_generate(self._request(count), self.out / TEXTS, quiet=True)
        folder, _ = curate_folder(str(self.out / TEXTS), None)
        return read_pairs(folder, seed=self.settings.seed).all_rows()


class EncoderTrainer:
    """Trains arms on folds; an arm without labelled pairs is trained once for a repeat."""

    temperature = 1.0

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
            encoder, _ = self.train(arm, fold, seed=seed + fold.number + 1)
            return cosines_of(encoder, fold.rows.texts)[:, None]
        # Its encoder is that of all folds of the repeat: all labelled pairs are measured at once.
        key = (arm.name, fold.repeat)
        if key not in self._cosines:
            encoder, _ = self.train(arm, fold, seed=seed + fold.repeat)
            self._cosines[key] = cosines_of(encoder, self.task.rows.texts)
        return self._cosines[key][fold.held, None]

    def forget(self) -> None:
        """Keep what was measured: it is small."""

    def train(self, arm: Arm, fold: Fold, *, seed: int) -> tuple[SentenceTransformer, Dataset]:
        """Train an arm on a fold.

        Returns:
            The encoder, and what it learnt from: text_a, text_b, label (None without), origin.
        """
        device = self.sources.device
        if not arm.sources:
            name = arm.name.removesuffix(AS_IT_IS.format(""))
            return load_encoder(name, device=device), _rows({})
        encoder = load_encoder(self.base, device=device)
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


def training_rows(
    first: Sequence[str], second: Sequence[str], labels: Sequence[float] | None = None
) -> Dataset:
    """Return pairs to train on, graded ones if there are labels."""
    graded = {} if labels is None else {LABEL: list(labels)}
    return Dataset.from_dict({TEXT_A: list(first), TEXT_B: list(second), **graded})


def fit(encoder: SentenceTransformer, source: str, rows: Dataset, base: str, seed: int) -> None:
    """Train an encoder in place on the rows of a source."""
    objective, how = _objective(source)
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

    def seconds(self, arm: Arm, task: SimilarityTask, sources: Any) -> float:  # noqa: ARG002
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
        times = {DENOISED: 2, GENERATED: _PAIRS_EACH}
        return sum(times.get(one, 1) * pairs[one] for one in arm.sources) / self.train

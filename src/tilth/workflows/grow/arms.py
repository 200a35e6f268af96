"""The ways that `tilth grow` tries, and how each trains a model on a fold."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.collate import encode
from tilth.classifiers.examples import LabeledExamples, concatenate, repeat
from tilth.classifiers.finetune import fine_tune, new_for
from tilth.classifiers.load import MOST_TIMES, repeat_count
from tilth.classifiers.logistic import Head, begin_head
from tilth.classifiers.settings import LABELLED_SHARE, Finetuning
from tilth.encoders.label_contrast import train_label_contrast
from tilth.encoders.setfit import train_setfit
from tilth.limits import later_seed
from tilth.models.classifier import Classifier, new_classifier
from tilth.models.encoder import load_encoder
from tilth.models.pretrained import silence_transformers
from tilth.report.systems import AVERAGE, CONTRAST, ENCODER, MAJORITY, SETFIT, TFIDF
from tilth.workflows.baselines import fit_baseline
from tilth.workflows.grow.heads import Heads
from tilth.workflows.grow.sources import (
    DESCRIBED,
    DESCRIPTIONS,
    GENERATED,
    LABELLED,
    MULTIPLE,
    PARAPHRASED,
    RETRIEVED,
    REWRITES,
    RowsByOrigin,
    Sources,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.workflows.grow.settings import Growth
    from tilth.workflows.grow.task import Fold, GrowTask

PLAIN = "fine-tuned on the labelled rows"
BY_DESCRIPTION = "similarity to the descriptions"
CURVE = "{:.0%} of the labelled rows"
SHARES = (0.25, 0.5)  # of the labelled rows, for the learning curve
# Settings of retrieval: name -> (rows for each labelled one, query).
RETRIEVALS = {
    RETRIEVED: (10.0, "label-average"),
    "retrieved, by each row": (10.0, "per-sentence"),
    "retrieved, fewer": (3.0, "label-average"),
}
# Least shares of labelled rows among the rows of a mixture, but for the usual one.
WEIGHTS = (0.5, 0.75)
WEIGHTED = "{}, {:.0%} labelled"
# A point of the learning curve is left out if two rows of each label are more than this times it.
_SHORT = 1.5
_ROUNDS = 2
# Arm -> function that trains its encoder on the labelled rows.
TRAINED: dict[str, Callable[..., Any]] = {CONTRAST: train_label_contrast, SETFIT: train_setfit}


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to train.

    Attributes:
        sources: of rows beside the labelled ones.
        setting: the name of its one source's setting; empty: the usual one.
        weight: the least share of labelled rows among all.
        rounds: of self-training: in the second, another encoder is trained on the sentences that
            the first student labels most surely, and its weights are averaged with the teacher's.
        share: of the labelled rows that are trained on, for the learning curve.
    """

    name: str
    sources: tuple[str, ...] = ()
    setting: str = ""
    weight: float = LABELLED_SHARE
    rounds: int = 1
    share: float = 1.0

    @property
    def needs(self) -> set[str]:
        """The sources and settings whose rows must be made."""
        return {*self.sources, self.setting}

    @property
    def is_first(self) -> bool:
        """Whether the first rung tries it: all but mixtures that need a single training."""
        return (len(self.sources) < 2 or self.rounds > 1) and self.weight == LABELLED_SHARE

    @property
    def is_curve(self) -> bool:
        """Whether it is a point of the learning curve, and no candidate."""
        return self.share < 1

    @property
    def is_simple(self) -> bool:
        """Whether it uses no rows but the labelled ones, and may be chosen."""
        return not self.sources and not self.is_curve

    @property
    def is_saved(self) -> bool:
        """Whether its model is a transformers classifier."""
        return self.name not in (MAJORITY, TFIDF, BY_DESCRIPTION) and not self.is_curve


def _self_trained(*sources: str) -> Arm:
    """Return the arm that trains on sources in two rounds."""
    return Arm(f"{' + '.join(sources)}, {_ROUNDS} rounds", sources, rounds=_ROUNDS)


# The arms that may be kept by default: the first of these that there is.
SELF_TRAINED = (_self_trained(RETRIEVED, DESCRIBED), _self_trained(RETRIEVED))


@dataclass(frozen=True, slots=True)
class Bases:
    """What trained models begin as.

    Attributes:
        encoder: of the ways that put a regression on embeddings; None: there are none of them.
        tuned: of the way that is fine-tuned.
    """

    encoder: str | None
    tuned: str

    @property
    def teacher(self) -> Teacher:
        """The model that labels sentences, as long as nothing better is known."""
        return Teacher(PLAIN if self.encoder is None else CONTRAST)


def encoders_of(name: str) -> tuple[str, ...]:
    """Return the arms whose trained encoders an arm uses: both for the average, else its own."""
    return tuple(TRAINED) if name == AVERAGE else (name,) if name in TRAINED else ()


def arms_of(task: GrowTask, settings: Growth, *, raw: bool, embeds: bool = True) -> list[Arm]:
    """Return all ways to train from what there is, simple ones first, mixtures last.

    Args:
        embeds: whether the base can be an encoder under a regression.
    """
    found = []
    if task.task is not None:
        found.append(Arm(BY_DESCRIPTION))
    if len(task.rows):
        on_embeddings = (ENCODER, *TRAINED, AVERAGE) if embeds else ()
        found += [Arm(name) for name in (MAJORITY, TFIDF, *on_embeddings, PLAIN)]
        labels = np.asarray(task.rows.targets).argmax(axis=1)
        found += [
            Arm(CURVE.format(share), share=share) for share in SHARES
            if len(some_of(labels, share, 0)) <= _SHORT * share * len(labels)
        ]  # fmt: skip
    sources = []
    if raw and len(task.rows):
        found += [Arm(name, (RETRIEVED,), name) for name in RETRIEVALS]
        found.append(_self_trained(RETRIEVED))
        sources.append(RETRIEVED)
    if raw and task.task is not None:
        found += [Arm(DESCRIBED, (DESCRIBED,)), _self_trained(DESCRIBED)]
        sources.append(DESCRIBED)
    if len(sources) == 2:
        found.append(_self_trained(*sources))
    for source, is_there in (
        (DESCRIPTIONS, task.task is not None and len(task.rows)),
        (PARAPHRASED, settings.paraphrase and len(task.rows)),
        (GENERATED, settings.model),
    ):
        if is_there:
            names = REWRITES if source == PARAPHRASED else (source,)
            found += [Arm(name, (source,), name) for name in names]
            sources.append(source)
    every = [
        Arm(" + ".join(some), some)
        for size in range(1, len(sources) + 1) for some in combinations(sources, size)
    ]  # fmt: skip
    found += [arm for arm in every if len(arm.sources) > 1]
    # Of single sources, too: what a mixture is without the others.
    if embeds and len(task.rows) and len(sources) > 1:
        found += [
            replace(arm, name=WEIGHTED.format(arm.name, weight), weight=weight)
            for weight in WEIGHTS for arm in every
        ]  # fmt: skip
    return found


def some_of(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Draw a share of rows, of each label two at least where there are two; return their places."""
    order = np.random.default_rng((seed, 1)).permutation(len(labels))
    chosen = []
    for label in np.unique(labels):
        own = order[labels[order] == label]
        chosen.append(own[: max(2, round(share * len(own)))])
    return np.sort(np.concatenate(chosen))


@dataclass(frozen=True, slots=True)
class Teacher:
    """The model that labels sentences; students are another regression on its encoder.

    Attributes:
        arm: contrastive encoder, SetFit or the average of both: the arm whose encoder it is; or
            the fine-tuned base.
        temperature: divides its logits, so that its probabilities are calibrated.
    """

    arm: str = CONTRAST
    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class Grown:
    """A model that an arm trained.

    Attributes:
        classifier: returns it; None for a model that is no transformers one.
        answer: texts -> probabilities. # (texts, labels)
        rows: what it learnt from, each once; without any, None.
        times: how often labelled rows were repeated among the others.
    """

    classifier: Callable[[], Classifier] | None
    answer: Callable[[Sequence[tuple[str, ...]]], Any]
    rows: RowsByOrigin | None
    times: int = 1


class Trainer:
    """Trains arms on folds, and keeps the teachers of a few folds in memory.

    The teacher is the contrastive encoder, SetFit, or the encoder of the mean of their weights. The
    student is the same encoder under another regression, in a second round its average with a
    contrastive encoder of other rows. Where the fine-tuned base is the teacher, the student is the
    base, fine-tuned on all rows.

    Attributes:
        bases: what arms begin as.
        teacher: of the students that are trained from now on.
    """

    def __init__(
        self, task: GrowTask, sources: Sources, bases: Bases, settings: Growth, device: str
    ) -> None:
        self.task, self.sources, self.bases = task, sources, bases
        self.settings, self.device, self.teacher = settings, device, bases.teacher
        self._encoders: dict[tuple[str, int], Heads] = {}
        self._plain: dict[int, Classifier] = {}

    @property
    def alone(self) -> str:
        """The name of the arm that trains like students, on labelled rows alone."""
        return self.teacher.arm

    def base_of(self, arm: Arm) -> str:
        """Return what an arm's model began as; empty: as nothing."""
        if arm.name in (MAJORITY, TFIDF):
            return ""
        if arm.name == BY_DESCRIPTION:
            return self.sources.comparing
        is_student = bool(arm.sources) or arm.is_curve
        name = self.alone if is_student else arm.name
        return self.bases.tuned if name == PLAIN else str(self.bases.encoder)

    def answers(self, arm: Arm, fold: Fold) -> NDArray[np.float32]:
        """Train an arm on a fold; return its probabilities of the measured rows."""
        found: NDArray[np.float32] = self.train(arm, fold).answer(fold.rows.texts)
        return found  # (rows, labels)

    def train(self, arm: Arm, fold: Fold) -> Grown:
        """Train an arm on a fold."""
        rows = self.task.rows.select(fold.train)
        if arm.name in (MAJORITY, TFIDF):
            return Grown(None, fit_baseline(arm.name, rows).answer, None)
        if arm.name == BY_DESCRIPTION:
            return Grown(
                None, lambda texts: self.sources.by_description([t for (t,) in texts], fold), None
            )
        if arm.sources:
            return self._student(arm, fold, rows)
        if arm.name in (*TRAINED, AVERAGE):
            encoder = self._encoder(arm.name, fold)
            return _headed_by(encoder, encoder.own, RowsByOrigin.of(rows, LABELLED))
        if arm.is_curve:
            labels = np.asarray(rows.targets).argmax(axis=1)
            rows = rows.select(some_of(labels, arm.share, self.settings.seed))
        name = self.alone if arm.is_curve else arm.name
        if name != PLAIN:
            model = self._headed(name, rows, fold)
        elif arm.is_curve or self.alone != PLAIN:
            model = self._tuned(rows, fold)
        else:
            model = self._fine_tuned(fold)
        return _tuned_on(model, RowsByOrigin.of(rows, LABELLED))

    def _fine_tuned(self, fold: Fold) -> Classifier:
        """Return the teacher, the base fine-tuned on the labelled rows outside a fold."""
        if fold.number not in self._plain:
            self._plain[fold.number] = self._tuned(self.task.rows.select(fold.train), fold)
        return self._plain[fold.number]

    def _encoder(self, name: str, fold: Fold) -> Heads:
        """Return the encoder that an arm trains on a fold; without labelled rows, as it was."""
        if (name, fold.number) not in self._encoders:
            rows = self.task.rows.select(fold.train)

            def make() -> Classifier:
                if name != AVERAGE:
                    return self._headed(name, rows, fold)
                return average(*(self._encoder(one, fold).encoder for one in TRAINED))

            self._encoders[name, fold.number] = Heads(make, rows)
        return self._encoders[name, fold.number]

    def _taught_by(self, fold: Fold, texts: Sequence[tuple[str, ...]]) -> NDArray[np.float32]:
        """Return the teacher's probabilities of texts, (texts, labels)."""
        if self.teacher.arm == PLAIN:
            return self._fine_tuned(fold).probabilities(texts)
        encoder = self._encoder(self.teacher.arm, fold)
        return encoder.answer(encoder.own, texts)

    def forget(self) -> None:
        """Free the memory of the folds' models; those of all labelled rows are needed again."""
        self._plain = {number: model for number, model in self._plain.items() if number < 0}
        for (_, number), encoder in self._encoders.items():
            if number >= 0:
                encoder.forget()

    def _finetuning(self, fold: Fold) -> Finetuning:
        seed = later_seed(self.settings.seed, fold.number + 1)
        return Finetuning(seed=seed).for_base(self.bases.tuned)

    def _tuned(self, rows: LabeledExamples, fold: Fold) -> Classifier:
        settings = self._finetuning(fold)
        model = new_for(rows, self.bases.tuned, settings, self.device)
        fine_tune(model, rows, None, settings, quiet=True)
        model.model.train(mode=False)
        return model

    def _headed(self, name: str, rows: LabeledExamples, fold: Fold, **how: bool) -> Classifier:
        """Return the encoder, trained as an arm trains it, under logistic regression."""
        base = str(self.bases.encoder)
        if name == AVERAGE:
            model = average(*(self._headed(one, rows, fold) for one in TRAINED))
        else:
            if name == ENCODER or not len(rows):
                encoder = load_encoder(base, device=self.device)
            else:
                encoder = TRAINED[name](
                    [text for (text,) in rows.texts], np.asarray(rows.targets), base,
                    seed=self._finetuning(fold).seed, device=self.device, **how,
                )  # fmt: skip
            model = replace(headed(encoder, rows.labels, self.device), name=base)
        if len(rows):
            begin_head(model, encode(model, rows, bfloat16=False))
        return model

    def _student(self, arm: Arm, fold: Fold, rows: LabeledExamples) -> Grown:
        """Train on a fold's labelled rows and on those of an arm's sources."""
        grown = self._fit(rows, self.extra(arm, fold), fold, arm.weight)
        for _ in range(arm.rounds - 1):
            origin = self._candidates(arm, fold)
            given = grown.answer(list(origin))
            surest = self.sources.select(list(origin), given, fold, MULTIPLE, "margin")
            by_origin = RowsByOrigin(surest, [origin[text] for text in surest.texts])
            grown = self._second_round(rows, by_origin, fold)
        return grown

    def _candidates(self, arm: Arm, fold: Fold) -> dict[tuple[str, ...], str]:
        """Return the raw sentences that a second round may be trained on, each with its source."""
        found: dict[tuple[str, ...], str] = {}
        for source in arm.sources:
            if source == RETRIEVED:
                table, _ = self._retrieved(arm, fold)
            else:
                table = self.sources.described_candidates(fold)
            found = dict.fromkeys(_texts(table), source) | found
        return found

    def _second_round(self, rows: LabeledExamples, surest: RowsByOrigin, fold: Fold) -> Grown:
        """Train a student on the average of the teacher's encoder and one of pseudo-labelled rows.

        Where labels come from descriptions alone, its regression is of labelled rows alone.
        """
        if self.teacher.arm == PLAIN:
            return self._fit(rows, surest, fold, LABELLED_SHARE)

        def make() -> Classifier:
            other = self._headed(CONTRAST, surest.rows, fold, are_pseudo=True)
            if not len(rows):
                return other
            return average(other, self._encoder(self.teacher.arm, fold).encoder)

        encoder = Heads(make, rows if len(rows) else surest.rows)
        if len(rows) and RETRIEVED not in surest.origin:
            both = RowsByOrigin.of(rows, LABELLED).and_then(surest)
            return _headed_by(encoder, encoder.own, both)
        return self._fit(rows, surest, fold, LABELLED_SHARE, encoder)

    def extra(self, arm: Arm, fold: Fold) -> RowsByOrigin:
        """Return the rows of an arm's sources, each text once."""
        found: RowsByOrigin | None = None
        for source in arm.sources:
            if source == RETRIEVED:
                table, multiple = self._retrieved(arm, fold)
                given = tempered(self._taught_by(fold, _texts(table)), self.teacher.temperature)
                kept = self.sources.select(_texts(table), given, fold, multiple, "random")
                more = RowsByOrigin.of(kept, RETRIEVED)
            elif source == DESCRIBED:
                more = self.sources.described(fold)
            elif source == DESCRIPTIONS:
                more = self.sources.descriptions(fold)
            elif source == PARAPHRASED:
                more = self.sources.paraphrased(fold, arm.setting or PARAPHRASED)
            else:
                more = self.sources.generated(fold)
            found = more if found is None else found.and_then(more)
        assert found is not None
        return found

    def _retrieved(self, arm: Arm, fold: Fold) -> tuple[pa.Table, float]:
        """Return the sentences that an arm retrieves, and how many are kept per labelled row."""
        multiple, query = RETRIEVALS[arm.setting or RETRIEVED]
        return self.sources.candidates(fold, multiple, query), multiple

    def _fit(
        self, rows: LabeledExamples, extra: RowsByOrigin, fold: Fold, weight: float,
        encoder: Heads | None = None,
    ) -> Grown:  # fmt: skip
        """Train a student on both kinds of rows; labelled ones make up a share at least.

        Args:
            encoder: None: the teacher's.
        """
        is_tuned, own, times, trained = self.teacher.arm == PLAIN, rows, 0, extra
        if len(rows):
            most = MOST_TIMES if is_tuned else len(extra.rows)
            times = repeat_count(weight, len(extra.rows), len(rows), most)
            if RETRIEVED in extra.origin or DESCRIBED in extra.origin:
                given = self._taught_by(fold, rows.texts)
                blended = (np.asarray(rows.targets) + given) / 2
                own = replace(rows, targets=blended.astype(np.float32))
            trained = RowsByOrigin.of(own, LABELLED).and_then(extra)
        if is_tuned:
            both = concatenate(extra.rows, repeat(own, times))
            grown = _tuned_on(self._tuned(both, fold), trained)
        else:
            encoder = encoder or self._encoder(self.teacher.arm, fold)
            counts = np.where(np.array(trained.origin) == LABELLED, times, 1)  # (rows,)
            grown = _headed_by(encoder, encoder.fit(trained.rows, counts), trained)
        return replace(grown, times=times)


def _headed_by(heads: Heads, head: Head, rows: RowsByOrigin) -> Grown:
    return Grown(partial(heads.classifier, head), partial(heads.answer, head), rows)


def _tuned_on(model: Classifier, rows: RowsByOrigin) -> Grown:
    return Grown(lambda: model, model.probabilities, rows)


def headed(encoder: SentenceTransformer, labels: list[str], device: str) -> Classifier:
    """Return a sentence encoder as a classifier with a new head."""
    with tempfile.TemporaryDirectory(prefix="tilth-") as folder, silence_transformers():
        encoder.save(folder, create_model_card=False)
        classifier = new_classifier(folder, kind="class", labels=labels, device=device)
        classifier.note_texts(1)
        return classifier


def average(one: Classifier, other: Classifier) -> Classifier:
    """Return a classifier with the mean of the weights of two that began as the same encoder.

    Reference:
        Wortsman et al. 2022, "Model soups", arXiv 2203.05482.
    """
    model = copy.deepcopy(one.model)
    weights = other.model.state_dict()
    for name, weight in model.state_dict().items():
        if weight.is_floating_point():
            weight.copy_((weight + weights[name]) / 2)
    return replace(one, model=model)


def _texts(table: pa.Table) -> list[tuple[str, ...]]:
    return [(text,) for text in table["text"].to_pylist()]


def tempered(probabilities: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """Divide the logits of probabilities, (rows, labels), by a temperature."""
    from scipy.special import softmax

    logits = np.log(np.maximum(probabilities, 1e-9)) / temperature
    return np.asarray(softmax(logits, axis=1), np.float32)


def temperature_of(gold: NDArray[np.int64], probabilities: NDArray[np.float32]) -> float:
    """Return the temperature, 0.2 to 5, that gives the right labels the highest likelihood.

    Reference:
        Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv 1706.04599.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        found = tempered(probabilities, float(np.exp(log_temperature)))
        return -float(np.log(np.maximum(found[np.arange(len(gold)), gold], 1e-9)).mean())

    found = minimize_scalar(loss, bounds=(np.log(0.2), np.log(5.0)), method="bounded")
    return float(np.exp(found.x))

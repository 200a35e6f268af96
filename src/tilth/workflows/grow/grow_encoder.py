"""Grows an encoder in a run folder: plans, searches, keeps the best, measures it once."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from tilth.encoders.bi_encoder import cosine_objective
from tilth.encoders.settings import Training
from tilth.encoders.train import EncoderTraining, save_encoder
from tilth.models.encoder import fingerprint_encoder, load_encoder
from tilth.models.trainer import MODEL
from tilth.workflows.grow.arms import Arm
from tilth.workflows.grow.encoder_trainer import (
    LABELLED_EPOCHS,
    EncoderSpeeds,
    EncoderTrainer,
    fit,
)
from tilth.workflows.grow.growing import Given, Growing, Kept
from tilth.workflows.grow.notes import better_on_test, encoder_notes, raw_warnings
from tilth.workflows.grow.outputs import DATASET, write_pairs
from tilth.workflows.grow.pair_sources import (
    FEWEST_MADE,
    MOST_MADE,
    PairSources,
    cosines_of,
    training_rows,
)
from tilth.workflows.grow.plan import TEXT, Plan, rungs_of
from tilth.workflows.grow.search import rung_bounds
from tilth.workflows.grow.settings import GrowSources, Growth, check_growth
from tilth.workflows.grow.similarity import (
    DENOISED,
    DISTILLED,
    GENERATED_PAIRS,
    NEAR,
    PAIRS,
    REWRITTEN,
    SIMCSE,
    STAGES,
    STARTER,
    SimilaritySearch,
    SimilarityTask,
    compare_cosines,
    encoder_arms,
    pair_folds,
    read_similarity,
)
from tilth.workflows.grow.task import BANK, foreign_share, open_raw

log = logging.getLogger(__name__)

_FEWEST, _MOST = 200, 10_000  # raw sentences of a training
_WRITING = 1 / 6  # of the budget, that rewrites or generated pairs may take to make
_SHARE = 0.7  # of the budget, that the trainings are planned for
_MEASURED = 32  # pairs


def read_encoder_growth(
    sources: GrowSources, settings: Growth, out: Path, device: str
) -> tuple[SimilarityTask, Given]:
    """Read and check everything before a run is begun; an encoder without weights is refused."""
    check_growth(sources, settings, out)
    task = read_similarity(sources)
    base = settings.base or STARTER
    encoder = EncoderTraining("grow", base, Training(), cosine_objective()).load_base(device)
    lacks = _lacks(encoder)
    if lacks and sources.raw:
        why = ", ".join(f"{source} needs {what}" for source, what in lacks.items())
        log.warning("base %s cannot be trained in all ways: %s", base, why)
    arms = encoder_arms(task, settings, raw=bool(sources.raw), without=lacks)
    folds = pair_folds(task, settings.folds, settings.repeats, settings.seed)
    hashes = {"base": fingerprint_encoder(encoder)}
    return task, Given(sources, settings, arms, folds, hashes, device)


def _lacks(encoder: SentenceTransformer) -> dict[str, str]:
    """Return the sources of raw text that an encoder cannot learn from, with what it lacks."""
    if isinstance(encoder[0], StaticEmbedding):
        return {SIMCSE: "dropout", DENOISED: "a decoder that reads embeddings"}
    config: Any = getattr(getattr(encoder[0], "auto_model", None), "config", None)
    decoder: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    reads = decoder is not None and "encoder_hidden_states" in signature(decoder.forward).parameters
    return {} if reads else {DENOISED: "a decoder that reads embeddings"}


class GrowingEncoder(Growing):
    """A run that grows an encoder."""

    search_class, speeds_class = SimilaritySearch, EncoderSpeeds

    @property
    def base(self) -> str:
        """The encoder that is trained."""
        return self.settings.base or STARTER

    @cached_property
    def sources(self) -> PairSources:
        """What makes rows."""
        return PairSources(self.task, self.bank, self.settings, self.run.path, self.device)

    def prepare(self) -> None:
        """Build the bank, plan, and make what all folds share; record the seconds."""
        self._timed(BANK, lambda: self.bank)
        if self.bank is not None:
            for line in raw_warnings({"foreign": foreign_share(self.bank), "far": False}):
                log.warning("%s", line)
            self.sources.sentences(1)  # too little raw text is refused before it is planned with
        self._warn_dropped()
        near = [one for one in (NEAR, DISTILLED) if any(one in arm.sources for arm in self.arms)]
        for source in (*self.plan.sources, *near):
            count = self.trainer.counts[source]
            self._try_to_make(source, partial(self.sources.rows, source, count))

    def _make_plan(self) -> Plan:
        return make_encoder_plan(self.task, self.sources, self.arms, rung_bounds(self.folds))

    @cached_property
    def trainer(self) -> EncoderTrainer:  # type: ignore[override]
        """What trains."""
        speeds: Any = self.plan.speeds
        return EncoderTrainer(self.task, self.sources, self.base, speeds.counts)

    def _train(self, arm: Arm) -> tuple[Callable[[Path], None], Kept]:
        encoder, rows = self.trainer.train(arm, self.whole, seed=self.settings.seed)
        origins = Counter(rows["origin"][:])

        def save(folder: Path) -> None:
            save_encoder(encoder, folder)
            shutil.rmtree(self.run.path / DATASET, ignore_errors=True)
            if origins:
                write_pairs(self.run, rows, arm, self.given)

        return save, Kept(arm.name, dict(origins))

    def _finish(self, results: dict[str, Any], bootstrap: int) -> None:
        if self.task.test is None:
            return
        pairs = self.task.test.texts
        model = load_encoder(str(self.run.path / MODEL), device=self.device)
        cosines = {results["arm"]: cosines_of(model, pairs)}
        for arm in self.arms:
            if not arm.sources and arm.name != results["arm"]:
                encoder, _ = self.trainer.train(arm, self.whole, seed=self.settings.seed)
                cosines[arm.name] = cosines_of(encoder, pairs)
        results["tested"] = compare_cosines(self.task.test, cosines, bootstrap, self.settings.seed)
        results["notes"] += better_on_test(results["tested"])

    def _about(self, best: Arm) -> dict[str, Any]:  # noqa: ARG002
        return {
            "base": self.base,
            "rows": len(self.task.rows),
            "sentences": dict(self.trainer.counts),
        }

    def _notes(self, best: Arm) -> list[str]:
        return encoder_notes(self.search, best, self.base)


def plan_encoder(sources: GrowSources, settings: Growth, out: Path, device: str) -> Plan:
    """Return what growing an encoder will try; `out` is a folder for a while."""
    task, given = read_encoder_growth(sources, settings, out, device)
    makes = PairSources(task, open_raw(sources.raw, out, device=device), settings, out, device)
    return make_encoder_plan(task, makes, given.arms, rung_bounds(given.folds))


def make_encoder_plan(
    task: SimilarityTask, sources: PairSources, arms: Sequence[Arm], bounds: Sequence[int]
) -> Plan:
    """Measure the speed of the base, and divide the budget: how much raw text a training takes.

    Args:
        bounds: number of folds after each rung.
    """
    settings = sources.settings
    base = settings.base or STARTER
    train, encode = _measure(base, task, sources.device)
    asked = [source for source in STAGES if any(source in arm.sources for arm in arms)]
    measures = {REWRITTEN: sources.measure_rewriting, GENERATED_PAIRS: sources.measure_generation}
    each = {name: measure() for name, measure in measures.items() if name in asked}
    written = {
        name: min(MOST_MADE[name], int(_WRITING * settings.seconds / one))
        for name, one in each.items()
    }
    made = {name: written[name] * one for name, one in each.items()}
    dropped = [name for name, count in written.items() if count < FEWEST_MADE]
    usable = [arm for arm in arms if not set(arm.sources) & set(dropped)]
    kept = {name: one for name, one in made.items() if name not in dropped}
    shared = 1 if task.validation is not None else bounds[0]

    def speeds(count: int) -> EncoderSpeeds:
        counts = dict.fromkeys(asked, count) | written
        counts.pop(PAIRS, None)
        return EncoderSpeeds(train, encode, counts, shared)

    def planned(count: int) -> tuple[list[tuple[str, int, int, float]], float]:
        how = speeds(count)
        trained = [how.training(arm, task) for arm in usable if arm.sources]
        rungs = rungs_of(usable, bounds, lambda arm: how.seconds(arm, task, sources))
        least = sum(kept.values()) + 2 * min(trained, default=0.0) + how.measuring(task)
        return rungs, least

    count = _MOST
    rungs, least = planned(count)
    while count > _FEWEST and least + sum(rung[-1] for rung in rungs) > _SHARE * settings.seconds:
        count = max(_FEWEST, round(count / 1.5))
        rungs, least = planned(count)
    how = speeds(count)
    why = "as asked" if settings.base else "the default"
    if how.counts:
        why += f"; {count:,} raw sentences a training"
    return Plan(
        base, why, how, kept, dropped,
        [(arm.name, how.seconds(arm, task, sources)) for arm in usable], bounds, rungs, least,
    )  # fmt: skip


def _measure(base: str, task: SimilarityTask, device: str) -> tuple[float, float]:
    """Return the pairs a second of training and the texts a second of encoding."""
    encoder = load_encoder(base, device=device)
    rng, words = np.random.default_rng(0), TEXT.split()
    texts = [text for pair in task.rows.texts[:_MEASURED] for text in pair]
    texts += [" ".join(rng.permutation(words)) for _ in range(2 * _MEASURED - len(texts))]
    one, two = texts[:_MEASURED], texts[_MEASURED : 2 * _MEASURED]
    rows = training_rows(one, two, np.linspace(0, 1, _MEASURED).tolist())
    fit(encoder, PAIRS, rows.select(range(8)), base, 0)  # the first steps prepare
    began = time.monotonic()
    fit(encoder, PAIRS, rows, base, 0)
    trained = time.monotonic() - began
    began = time.monotonic()
    cosines_of(encoder.eval(), [*zip(one, two, strict=True)])
    return len(rows) * LABELLED_EPOCHS / trained, 2 * len(one) / (time.monotonic() - began)

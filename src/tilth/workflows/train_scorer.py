"""Train a scorer of meaning on graded pairs and compare it with the shipped one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.load import NamedTexts, check_disjoint
from tilth.classifiers.settings import ClassifierTraining
from tilth.data.examples import read_examples
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, read_dev_pairs, read_pairs
from tilth.encoders.parallel_pairs import places_of
from tilth.errors import TilthError
from tilth.metrics.correlation import bootstrap_spearman, pearson, spearman
from tilth.metrics.significance import RESAMPLES, percentile_interval
from tilth.paraphrase.similarity import without_symbols
from tilth.report.systems import generated_words
from tilth.runs import finished_results, refuse_inside, write_results
from tilth.runs.out_folder import refuse_without
from tilth.workflows.settings import ScorerOptions

if TYPE_CHECKING:
    from datasets import Dataset

OUTPUT = "similarity"  # the only label of the model


def train_scorer(
    pairs: str,
    out: Path,
    options: ScorerOptions,
    *,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Train a cross-encoder that reads two texts and gives their similarity in meaning.

    It learns the labels as probabilities (binary cross-entropy of one output), with several seeds,
    and keeps the weights with the highest Pearson correlation on the validation pairs.

    Args:
        pairs: graded pairs, as `read_pairs` reads them.
        out: the run folder; the same call resumes, and `load_scorer(out)` loads the result.

    Returns:
        The results.json: of the training, and `tested`: scorer -> pairs, pearson, spearman (x 100),
        low and high (95%) of the test pairs.

    Reference:
        Ogasa, Kajiwara and Arase, section 4.2: DeBERTaV3-large on STS-B, the best of ten seeds;
        section 6 trains on NLI first, and then on STS-B.
    """
    training = options.training
    read = filter(None, (options.validation, options.test, options.first))
    refuse_inside(out, pairs, *read, named=[options.base])
    if options.test is None and not overwrite:
        refuse_without(out, "tested", "--test")
    names = options.text, options.label
    parts = read_pairs(pairs, seed=training.seed, split=options.validation is None, names=names)
    held, train, test, highest = parts.validation, parts.train, None, parts.highest
    written = parts.written
    learnt = parts.all_rows() if options.validation is None else train
    known: list[NamedTexts] = [("training", pairs, _pairs_of(learnt))]
    if options.first is not None:
        known.append(("first", options.first, read_examples(options.first).texts))
    if options.validation is not None:
        held = read_dev_pairs(options.validation, highest=highest, names=names)
        written = None
        check_disjoint("validation", options.validation, _pairs_of(held), *known)
        known.append(("validation", options.validation, _pairs_of(held)))
    if options.test is not None:
        test = read_dev_pairs(options.test, "test", highest=highest, names=names)
        check_disjoint("test", options.test, _pairs_of(test), *known)
    from tilth.classifiers.train import train_first, train_on_examples  # imports torch

    settings = ClassifierTraining(
        options.base, training, seeds=options.seeds, device=device, overwrite=overwrite,
        quiet=quiet,
    )  # fmt: skip
    chosen = replace(_rows(held, options), written=written)
    if options.first is not None:
        settings = train_first(options.first, settings, out, chosen)
    given = {"train": pairs, "validation": options.validation}
    train_on_examples(
        _rows(train, options), chosen, settings, out,
        recorded={"symbols": options.symbols},
        facts={"sources": {name: places_of(one)[0] for name, one in given.items() if one}},
    )  # fmt: skip
    found = finished_results(out)
    tested = {} if test is None else _compare(out, test, options, device)
    warnings = _warnings(tested)
    if words := generated_words(found.get("validation")):
        remedy = "read the test figures" if tested else "give --test with pairs that people graded"
        warnings.append(f"Validation{words} does not measure real data: {remedy}.")
    found |= {"tested": tested, "warnings": warnings}
    write_results(out, found)
    return found


def _pairs_of(rows: Dataset) -> list[tuple[str, ...]]:
    return list(zip(rows[TEXT_A][:], rows[TEXT_B][:], strict=True))


def _rows(pairs: Dataset, options: ScorerOptions) -> LabeledExamples:
    """Return pairs in the form that a classifier learns from."""
    sides = [_texts(pairs[name][:], options) for name in (TEXT_A, TEXT_B)]
    targets = np.array(pairs[LABEL][:], np.float32)[:, None]  # (pairs, 1)
    return LabeledExamples("number", [OUTPUT], list(zip(*sides, strict=True)), None, targets)


def _texts(texts: list[str], options: ScorerOptions) -> list[str]:
    return texts if options.symbols else [without_symbols(text) for text in texts]


def _compare(
    out: Path, pairs: Dataset, options: ScorerOptions, device: str
) -> dict[str, dict[str, float]]:
    """Return the correlations x 100 of the new and of the shipped scorer with labels of pairs."""
    from tilth.models.polarity import has_polarity
    from tilth.models.scorer import load_scorer

    names = {"trained": str(out), "shipped": "starter"} if has_polarity() else {"trained": str(out)}
    gold = np.array(pairs[LABEL][:], np.float64)  # (pairs,)
    sides = [_texts(pairs[side][:], options) for side in (TEXT_A, TEXT_B)]
    found = {}
    for name, model in names.items():
        said = load_scorer(model, device=device).scores(*sides).astype(np.float64)
        if np.ptp(said) == 0:
            raise TilthError(f"{model}: every test pair has the same score: train it for longer")
        generator = np.random.default_rng(options.training.seed)
        replicates = bootstrap_spearman(gold, said, RESAMPLES, generator)
        low, high = percentile_interval(100 * replicates)
        found[name] = {
            "pairs": len(gold), "pearson": 100 * pearson(gold, said),
            "spearman": 100 * spearman(gold, said), "low": low, "high": high,
        }  # fmt: skip
    return found


def _warnings(tested: dict[str, dict[str, float]]) -> list[str]:
    if len(tested) < 2 or tested["trained"]["pearson"] > tested["shipped"]["pearson"]:
        return []
    return [
        "The shipped scorer is as good or better on the test pairs: leave --scorer out of tilth "
        "paraphrase, or train on more pairs or from a larger base."
    ]

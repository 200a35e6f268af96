"""Controlled paraphrase, Table 3: contrastive training (SimCSE) with rewrites as positives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.errors import InputError
from tilth.recipes.paraphrase_figures import MODELS, SOURCE, WMT19, ParaphraseScale
from tilth.recipes.recipe import Recipe, Result, training_facts
from tilth.recipes.table import AVERAGE, MEASURED, STS_COLUMNS, published

if TYPE_CHECKING:
    from tilth.recipes.recipe import Steps

_SETS = [*STS_COLUMNS.values(), AVERAGE]
PUBLISHED = [
    published("SimCSE", _SETS, [67.19, 81.13, 73.13, 80.51, 77.72, 76.08, 70.66, 75.20]),
    published(
        "SimCSE, round trips", _SETS, [59.16, 71.47, 65.66, 75.55, 72.81, 69.21, 65.84, 68.53]
    ),
    published(
        "SimCSE, rewrites 95/5", _SETS, [69.42, 77.66, 72.07, 80.87, 79.54, 77.99, 72.54, 75.73]
    ),
    published(
        "SimCSE, rewrites 95/20", _SETS, [69.53, 78.95, 72.83, 81.07, 79.19, 77.98, 72.64, 76.02]
    ),
    published(
        "SimCSE, rewrites 95/40", _SETS, [68.92, 78.06, 72.18, 79.96, 78.78, 77.87, 72.86, 75.52]
    ),
]
MEANING = 95


@dataclass(frozen=True, slots=True, kw_only=True)
class SimcseScale(ParaphraseScale):
    """Models and sizes of Table 3.

    Attributes:
        wordings: requested wordings, each a line of the table.
        training: training settings that differ from the paper's.
        base: encoder that is trained.
        pooling: of its tokens.
    """

    base: str
    pooling: str = "cls"
    wordings: tuple[int, ...]
    training: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        wordings = ", ".join(map(str, self.wordings))
        # Not super(): slots make another class of a dataclass.
        return [
            *ParaphraseScale.facts(self),
            ("wordings", f"{wordings} at meaning {MEANING}"),
            *training_facts(self.base, self.training),
        ]


def run(steps: Steps[Any]) -> Result:
    """Train on the same sentences with each kind of positive, and compare."""
    from datasets import Dataset

    from tilth.encoders.simcse import train_simcse
    from tilth.paraphrase.paraphrase_set import run_paraphrase
    from tilth.paraphrase.rewriter import load_paraphraser
    from tilth.paraphrase.round_trip import load_round_trip
    from tilth.paraphrase.settings import RewriteSettings
    from tilth.recipes.paraphrase import PART, sentences
    from tilth.recipes.sts_board import StsBoard

    scale: SimcseScale = steps.scale
    settings = steps.settings
    dev = _dev_file(steps.data)
    board = StsBoard(steps)
    rows = Dataset.from_dict({"text": sentences(steps)})
    # Positives of a line, from nothing (dropout) to a run of rewrites.
    sets: dict[str, Any] = {"SimCSE": rows}
    notes = []
    trips = load_round_trip(*scale.translators, scorer=scale.scorer, device=settings.device)
    rewriter = load_paraphraser(scale.rewriter, scorer=scale.scorer, device=settings.device)
    asked = {"SimCSE, round trips": (trips, RewriteSettings(part_size=PART, round_trip=True))} | {
        f"SimCSE, rewrites {MEANING}/{wording}": (
            rewriter,
            RewriteSettings(MEANING, wording, beams=scale.beams, part_size=PART),
        )
        for wording in scale.wordings
    }
    for name, (model, how) in asked.items():
        folder = steps.at(_step(name, "texts"))
        found = run_paraphrase(rows, model, how, folder, quiet=settings.quiet)
        sets[name] = found
        notes.append(f"{name}: {len(found):,} of {len(rows):,} texts")
    board.measure_base(scale.pooling)
    for name, texts in sets.items():
        runs = []
        for seed in range(settings.seeds):
            folder = steps.at(_step(name, f"seed{seed}"))
            train_simcse(
                texts, scale.base, folder, dev=dev, device=settings.device,
                quiet=settings.quiet, seed=seed, pooling=scale.pooling, **scale.training,
            )  # fmt: skip
            runs.append(folder)
        board.measure_trained(name, runs)
    return board.compared(
        "Controlled paraphrase, Table 3, without labels", PUBLISHED, [*_SETS, MEASURED],
        [
            f"Spearman x 100 of cosines, all pairs of a set. {board.spread()}",
            *board.missing_note(),
            f"Positives: {'; '.join(notes)}; of SimCSE the text itself under dropout.",
            f"The checkpoint was chosen on {dev.name}.",
        ],
    )  # fmt: skip


def _step(name: str, what: str) -> str:
    return f"{name.lower().replace(', ', '-').replace(' ', '-').replace('/', '-')}-{what}"


def _dev_file(data: Path) -> Path:
    """Return the development pairs of STS Benchmark, which choose the checkpoint."""
    found = sorted((data / "sts").glob("stsb-dev.*"))
    if not found:
        raise InputError(f"{data}/sts: no stsb-dev file: put STS Benchmark's dev part there")
    return found[0]


RECIPE = Recipe(
    name="paraphrase-table3",
    title="Contrastive training of encoders with dropout, round trips or rewrites as positives",
    source=f"{SOURCE}, Table 3 and section 5.4",
    run=run,
    steps=(
        "draw sentences from all raw text in bank/",
        "translate them to German and back, greedily; rewrite them at each tag pair",
        "train the base on the sentences alone (dropout), on the round trips and on the rewrites, "
        "once for each seed; keep the best checkpoint on stsb-dev; measure",
    ),
    needs="bank/ with raw text; sts/ with the STS sets and stsb-dev",
    scales={
        "starter": SimcseScale(
            translators=("starter", "starter"),
            scorer="starter",
            sentences=4_000,
            rewriter="starter",
            beams=5,
            base="starter-mlm",
            wordings=(20,),
            # Chosen on STSb's dev part with the texts alone: [CLS] at 5e-4 40.0 and at 3e-5 34.3,
            # the mean of the tokens at 1e-4 59.6.
            pooling="mean",
            training={"learning_rate": 1e-4, "evaluate_every": 25},
            departures=(
                "4,000 sentences of all of bank/ for a million of Wikipedia; 5 beams for 20",
                "the mean of the tokens for [CLS], which a base this small does not train; rate "
                "1e-4",
                "wording 20 alone, the paper's best",
            ),
        ),
        "paper": SimcseScale(
            translators=WMT19,
            scorer="cross-encoder/stsb-roberta-large",
            sentences=1_000_000,
            rewriter="Ogamon/conpgs_model",
            beams=20,
            base="google-bert/bert-base-uncased",
            wordings=(5, 20, 40),
            departures=(
                "this scale has never been run: the settings are the paper's",
                "sentences are drawn from all of bank/, which should hold Wikipedia alone",
            ),
        ),
    },
    models=MODELS
    | {
        "rewriter": ("BART-base, trained on 5 million pairs", ""),
        "base": ("BERT-base", "google-bert/bert-base-uncased"),
    },
    departures=(
        "rewrites are steered and checked for meaning and polarity; the paper takes the best beam",
        "the lines with NLI triples are missing",
    ),
    trains="encoder",
)

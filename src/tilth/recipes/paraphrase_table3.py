"""Controlled paraphrase, Table 3: contrastive training (SimCSE) with rewrites as positives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilth.recipes.paraphrase_figures import MODELS, REWRITER, SOURCE, WMT19, ParaphraseScale
from tilth.recipes.paraphrase_simcse import (
    BASE,
    CHECKED,
    MEANING,
    NEEDS,
    as_many_steps,
    dev_file,
    drawn_triples,
    load_rewriter,
    rewritten,
    trained,
)
from tilth.recipes.recipe import Recipe, Result, training_facts
from tilth.recipes.table import (
    AVERAGE,
    MEASURED,
    SICK_DEV,
    STS_COLUMNS,
    WITH_SICK_DEV,
    published,
)

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.recipes.recipe import Steps

_SETS = [*STS_COLUMNS.values(), AVERAGE]
_PUBLISHED = {
    "SimCSE": (67.19, 81.13, 73.13, 80.51, 77.72, 76.08, 70.66, 75.20),
    "SimCSE, round trips": (59.16, 71.47, 65.66, 75.55, 72.81, 69.21, 65.84, 68.53),
    "SimCSE, rewrites 95/5": (69.42, 77.66, 72.07, 80.87, 79.54, 77.99, 72.54, 75.73),
    "SimCSE, rewrites 95/20": (69.53, 78.95, 72.83, 81.07, 79.19, 77.98, 72.64, 76.02),
    "SimCSE, rewrites 95/40": (68.92, 78.06, 72.18, 79.96, 78.78, 77.87, 72.86, 75.52),
    "NLI": (75.32, 84.81, 80.30, 85.58, 81.05, 84.39, 80.42, 81.70),
    "NLI, round trips": (76.27, 83.82, 80.59, 86.02, 81.76, 84.70, 80.47, 81.95),
    "NLI, rewrites 95/5": (76.75, 84.73, 80.45, 85.95, 81.78, 84.82, 80.56, 82.15),
    "NLI, rewrites 95/20": (76.37, 84.72, 80.46, 85.83, 81.87, 84.76, 80.48, 82.07),
    "NLI, rewrites 95/40": (76.23, 84.87, 80.60, 85.93, 81.63, 84.84, 80.65, 82.11),
}
_SIMCSE, _NLI = "SimCSE", "NLI"
_CONTROL = "NLI, twice the steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimcseScale(ParaphraseScale):
    """Models and sizes of Table 3.

    Attributes:
        wordings: requested wordings, each a line of the table.
        triples: number of NLI triples.
        training: settings without labels that differ from the paper's.
        supervised: settings with NLI triples that do.
        base: encoder that is trained.
        pooling: of its tokens.
    """

    base: str
    pooling: str = "cls"
    wordings: tuple[int, ...]
    triples: int
    training: Mapping[str, Any] = field(default_factory=dict)
    supervised: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        wordings = ", ".join(map(str, self.wordings))
        # Not super(): slots make another class of a dataclass.
        return [
            *ParaphraseScale.facts(self),
            ("wordings", f"{wordings} at meaning {MEANING}"),
            ("NLI triples", f"{self.triples:,}"),
            *training_facts(self.base, self.training),
        ]


def run(steps: Steps[Any]) -> Result:
    """Train on the same rows with and without rewrites, without and with labels, and compare."""
    from datasets import Dataset

    from tilth.evaluate.sts_sets import asked_sets
    from tilth.recipes.paraphrase import sentences
    from tilth.recipes.sts_board import StsBoard, with_sick_dev

    scale: SimcseScale = steps.scale
    dev = dev_file(steps.data)
    board = StsBoard(steps, with_sick_dev(steps.data), averaged=asked_sets(steps.data))
    lines = {
        _SIMCSE: Dataset.from_dict({"text": sentences(steps)}), _NLI: drawn_triples(steps)
    }  # fmt: skip
    notes: list[str] = []
    sets = {
        name: made
        for line, rows in lines.items()
        for name, made in _positives(steps, line, rows, notes).items()
    }
    board.measure_base(scale.pooling)
    for name, rows in sets.items():
        training = scale.supervised if name.startswith(_NLI) else scale.training
        board.measure_trained(name, trained(steps, name, rows, dev, training))
        if name == _NLI:
            longer = as_many_steps(steps, training, triples=True)
            board.measure_trained(_CONTROL, trained(steps, _CONTROL, rows, dev, longer))
    return board.compared(
        "Controlled paraphrase, Table 3",
        [published(name, _SETS, values) for name, values in _PUBLISHED.items()],
        [*_SETS, MEASURED, SICK_DEV, WITH_SICK_DEV],
        [
            f"Spearman x 100 of cosines, all pairs of a set. {board.spread()}",
            *board.missing_note(),
            f"Rewritten: {'; '.join(notes)}. SimCSE: single texts; the positive is the text under "
            "dropout, or its rewrite. NLI: triples, and their rewrites added (twice the steps).",
            f"The checkpoint was chosen on {dev.name}.",
        ],
    )


def _positives(steps: Steps[Any], line: str, rows: Dataset, notes: list[str]) -> dict[str, Dataset]:
    """Return the rows of each line of the table: as they are, round trips, rewrites.

    A note on each is added to `notes`; the triples themselves stay beside their rewrites.
    """
    from tilth.paraphrase.round_trip import load_round_trip
    from tilth.paraphrase.settings import BEAMS, RewriteSettings
    from tilth.recipes.paraphrase import PART

    scale, originals = steps.scale, line == _NLI
    trips = load_round_trip(*scale.translators, scorer=scale.scorer, device=steps.settings.device)
    rewriter = load_rewriter(steps)
    how = RewriteSettings(MEANING, beams=scale.beams, part_size=PART, originals=originals)
    asked: dict[str, tuple[Any, RewriteSettings]] = {
        f"{line}, round trips": (trips, replace(how, beams=BEAMS, round_trip=True))
    }
    for wording in scale.wordings:
        name = f"{line}, rewrites {MEANING}/{wording}"
        asked[name] = (rewriter, replace(how, wording=wording))
    sets = {line: rows}
    for name, (model, settings) in asked.items():
        sets[name] = rewritten(steps, name, rows, model, settings)
        made = len(sets[name]) - (len(rows) if originals else 0)
        notes.append(f"{name} {made:,} of {len(rows):,}")
    return sets


RECIPE = Recipe(
    name="paraphrase-table3",
    title="Contrastive training of encoders with dropout, round trips or rewrites as positives",
    source=f"{SOURCE}, Table 3 and section 5.4",
    run=run,
    steps=(
        "draw sentences from all raw text in bank/",
        "make triples of the NLI sets: a text, what it entails, what contradicts it",
        "translate both to German and back, greedily; rewrite them at each tag pair",
        "train the base on the sentences alone (dropout), on the round trips and on the rewrites; "
        "on the triples alone, also in twice the steps, with round trips added, with rewrites "
        "added; once for each seed",
        "keep the best checkpoint on stsb-dev; measure",
    ),
    needs=f"bank/ with raw text; {NEEDS}",
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
            triples=1_000,
            training={"learning_rate": 1e-4, "evaluate_every": 25},
            supervised={"learning_rate": 1e-4, "batch": 64, "evaluate_every": 25},
            departures=(
                "4,000 sentences of all of bank/ for a million of Wikipedia; 5 beams for 20",
                "the mean of the tokens for [CLS], which a base this small does not train; rate "
                "1e-4",
                "wording 20 alone, the paper's best without labels",
                "1,000 triples of the NLI sets for 280,000 of MNLI and SNLI, in batches of 64",
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
            triples=280_000,
            departures=(
                "this scale has never been run: the settings are the paper's",
                "sentences are drawn from all of bank/, which should hold Wikipedia alone",
            ),
        ),
    },
    models=MODELS | REWRITER | BASE,
    departures=(CHECKED,),
    trains="encoder",
)

"""Tables of the DINO paper: descriptions, scales and departures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilth.recipes.recipe import Recipe, Scale, training_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class DinoScale(Scale):
    """Models and sizes of the DINO tables.

    Attributes:
        inputs: number of first texts taken from the data; None: all.
        first_texts: number of first texts generated from nothing, before deduplication.
        training: training settings that differ from the paper's.
    """

    lm: str
    base: str
    inputs: int | None = None
    first_texts: int
    training: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        return [
            ("language model", self.lm),
            ("first texts", "all" if self.inputs is None else f"{self.inputs:,} of the data"),
            ("first texts from nothing", f"{self.first_texts:,}"),
            *training_facts(self.base, self.training),
        ]


_SOURCE = "Schick and Schütze 2021, Generating Datasets with Pretrained Language Models"
_NEEDS = "sts/ with the STS sets; sts/stsb-train gives the first texts; words/glove*.txt[.gz]"
_MODELS = {
    "lm": ("GPT2-XL (1.5B parameters)", "gpt2-xl"),
    "base": ("RoBERTa-base (125M parameters)", "roberta-base"),
}
_SCALES = {
    "starter": DinoScale(
        lm="starter",
        base="starter-mlm",
        inputs=1500,
        first_texts=1500,
        training={"learning_rate": 5e-4},
        departures=(
            "1,500 first texts for all of STSb's, and from nothing 1,500 for 15,000",
            "learning rate 5e-4 for 2e-5",
        ),
    ),
    "paper": DinoScale(
        lm="gpt2-xl",
        base="roberta-base",
        first_texts=15_000,
        departures=("this scale has never been run: the settings are the paper's",),
    ),
}
_SHARED: dict[str, Any] = {
    "needs": _NEEDS,
    "scales": _SCALES,
    "models": _MODELS,
    "trains": "encoder",
}
_BATCHES = "batches hold pairs of like lengths, the paper's are random"
_TRIES = (
    "first texts from nothing are asked for so many times, with up to 5 tries each; failed and "
    "equal ones are dropped, so fewer are kept (the notes count them); the paper has 15,000"
)
_BASELINES = "mean and [CLS] are of the base, the published rows of BERT-base"

DINO = (
    Recipe(
        name="dino-table1",
        title="STS of encoders trained on generated pairs, against word vectors, mean and [CLS]",
        source=f"{_SOURCE}, Table 1",
        steps=(
            "measure averaged word vectors, and the base encoder mean-pooled and by [CLS]",
            "generate x1x2: first texts from nothing, then second texts for three labels; curate",
            "generate x2: second texts for sentences of STSb's training part; curate",
            "train the base on each, once for each seed; measure",
        ),
        **_SHARED,
        entry="dino_tables1and5:table1",
        departures=(
            "no encoder trained on NLI pairs is measured here, nor one of Zhang et al. or Li et "
            "al.: these rows are published figures alone",
            _BASELINES,
            "word vectors are those of words/, the paper's GloVe as of Reimers and Gurevych 2019",
            _TRIES,
            _BATCHES,
        ),
    ),
    Recipe(
        name="dino-table2",
        title="Without self-debiasing (decay 0), with more (200), no smoothing, no sampled pairs",
        source=f"{_SOURCE}, Table 2",
        steps=(
            "generate x2 with decay 100, 0 and 200; curate",
            "curate the first once more without label smoothing, and without sampled pairs",
            "train the base on each, once for each seed; measure",
        ),
        **_SHARED,
        departures=(_BATCHES,),
    ),
    Recipe(
        name="dino-table5",
        title="The encoders of Table 1, measured by the mean over subsets (protocol mean)",
        source=f"{_SOURCE}, Table 5",
        steps=(
            "measure the base encoder, mean-pooled",
            "generate x1x2 and x2 and train on each; shared with dino-table1 in the same folder",
            "measure on STS12 to STS16, each set the mean over its subsets",
        ),
        **_SHARED,
        entry="dino_tables1and5:table5",
        departures=(_TRIES, _BATCHES),
    ),
)

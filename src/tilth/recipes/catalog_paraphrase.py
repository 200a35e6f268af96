"""Figures of the controlled paraphrase paper: descriptions, scales and departures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilth.recipes.recipe import Recipe, Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class ParaphraseScale(Scale):
    """Models and sizes of the paraphrase figures.

    Attributes:
        translators: English to German, and back.
        scorer: model that measures semantic similarity.
        sentences: number of sentences drawn from raw text.
        rewriter: generates paraphrases; empty: only round trips are measured.
    """

    translators: tuple[str, str]
    scorer: str
    sentences: int
    rewriter: str = ""
    beams: int = 0

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        rewriter = [("rewriter", f"{self.rewriter}, {self.beams} beams")] if self.rewriter else []
        return [
            ("sentences", f"{self.sentences:,}"),
            *rewriter,
            ("translators", ", ".join(self.translators)),
            ("scorer of meaning", self.scorer),
        ]


_SOURCE = "Ogasa, Kajiwara and Arase, controlled paraphrase (English: LREC-COLING 2024)"
_NEEDS = "bank/ with raw text: txt, jsonl, csv, tsv or parquet files, plain or gz"
_WMT19 = ("facebook/wmt19-en-de", "facebook/wmt19-de-en")
_MODELS = {
    "translators": ("the WMT19 models of fairseq", _WMT19),
    "scorer": ("a DeBERTaV3-large cross-encoder, of 10 seeds the best on STS-B's dev part", ""),
}
_STARTER = ParaphraseScale(
    translators=("starter", "starter"),
    scorer="starter",
    sentences=600,
    departures=("600 sentences of all of bank/ for 50,000 of Wikipedia",),
)
_PAPER = ParaphraseScale(
    translators=_WMT19,
    scorer="cross-encoder/stsb-roberta-large",
    sentences=50_000,
    departures=(
        "this scale has never been run: the settings are the paper's",
        "sentences are drawn from all of bank/, which should hold Wikipedia alone",
    ),
)

PARAPHRASE = (
    Recipe(
        name="paraphrase-fig1",
        title="Meaning and wording of round trips, greedy and with sampling",
        source=f"{_SOURCE}, Fig. 1 and section 3.2",
        entry="paraphrase_figures:fig1",
        steps=(
            "draw sentences from all raw text in bank/",
            "translate them to German and back, greedily: one candidate each",
            "the same by beam search with sampling at (k, T) = (20, 3.0) and (30, 2.0): four each",
            "measure meaning and wording, and count",
        ),
        needs=_NEEDS,
        scales={"starter": _STARTER, "paper": _PAPER},
        models=_MODELS,
        departures=(
            "the panels of ParaNMT and ParaCotta are missing: round trips alone are measured",
            "the paper chose the two (k, T) by a search over 16, which is not repeated",
        ),
    ),
    Recipe(
        name="paraphrase-fig3",
        title="Meaning and wording of rewrites, tag pair by tag pair: tags alone, steered, checked",
        source=f"{_SOURCE}, Fig. 3 and section 4.3",
        entry="paraphrase_figures:fig3",
        steps=(
            "draw sentences from all raw text in bank/",
            "rewrite them at meaning 95 and 70 with wording 5, 20 and 40, by tags alone: the best "
            "beam as it is",
            "the same, steered; the same, checked, with up to 5 tries",
            "translate them to German and back, greedily",
            "measure meaning and wording, and count",
        ),
        needs=_NEEDS,
        scales={
            "starter": replace(
                _STARTER,
                rewriter="starter",
                beams=5,
                departures=(*_STARTER.departures, "5 beams for 20"),
            ),
            "paper": replace(_PAPER, rewriter="Ogamon/conpgs_model", beams=20),
        },
        models=_MODELS | {"rewriter": ("BART-base, trained on 5 million pairs", "")},
        departures=(
            "meaning 70, and the lines steered and checked, are not in the paper",
            "the rewriter is not trained here: `tilth paraphrase candidates`, `corpus` and `train` "
            "do that, no recipe joins them",
        ),
    ),
)

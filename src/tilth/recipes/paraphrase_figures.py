"""Controlled paraphrase, Figs. 1 and 3: meaning and wording of round trips and of rewrites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from tilth.recipes.recipe import Recipe, Result, Scale
from tilth.recipes.table import Row, Table, TableCell

if TYPE_CHECKING:
    from tilth.paraphrase.rewriter import Rewriter
    from tilth.paraphrase.tags import Cell
    from tilth.recipes.paraphrase import MeasuredPairs, ParaphraseSteps
    from tilth.report.paraphrase import HeatMap
    from tilth.report.rewrites import RewriteSummary


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


GREEDY, SAMPLED = "greedy round trip", "round trip with sampling"
_CORNER = 95  # lower bound of meaning and wording for the top right cell
QUALITIES = ("meaning", "wording", "high quality, %", "top right corner, %")
OBTAINED = ("meaning", "wording", "inside the cell, %", "wording near, %", "same as source, %")
PAIRS = tuple(product((95, 70), (5, 20, 40)))  # meaning, wording; the paper shows the first three
TRIES = 5
# Kind of search -> whether copying has a cost, whether rewrites outside the cell are tried again.
SEARCHES = {"tags alone": (False, False), "steered": (True, False), "checked": (True, True)}


@dataclass(slots=True)
class Figure:
    """Rows of a figure's table, each with its heat map."""

    title: str
    columns: Sequence[str]
    rows: list[Row] = field(default_factory=list)
    maps: list[HeatMap] = field(default_factory=list)

    def add(
        self,
        name: str,
        values: Sequence[float | None],
        plane: Any,
        said: str = "{}.",
        cell: Cell | None = None,
    ) -> None:
        """Add a row; `said` describes its heat map, with a place for the figures."""
        from tilth.report.paraphrase import HeatMap

        named = zip(self.columns, values, strict=False)
        cells = {column: TableCell(value) for column, value in named if value is not None}
        self.rows.append(Row(name, cells))
        figures = ", ".join(f"{column} {found}" for column, found in cells.items())
        shown = f"{name[0].upper()}{name[1:]}"
        self.maps.append(HeatMap(shown, plane, said.format(figures or "nothing to count"), cell))

    def result(self, notes: Sequence[str]) -> Result:
        """Return the table and the heat maps."""
        return Result(Table(self.title, self.columns, self.rows, notes), maps=self.maps)


def fig1(steps: ParaphraseSteps) -> Result:
    """Make greedy and sampled round trips of the same sentences and count them by similarity."""
    from tilth.paraphrase.settings import SAMPLING
    from tilth.paraphrase.tags import MEANINGS, MOST_WORDING
    from tilth.recipes.paraphrase import measured_pairs, round_trips, sentences

    texts = sentences(steps)
    found = {
        name: measured_pairs(round_trips(steps, texts, sampling))
        for name, sampling in {GREEDY: (), SAMPLED: SAMPLING}.items()
    }
    figure = Figure("Controlled paraphrase, Fig. 1", QUALITIES)
    for name, pairs in found.items():
        figure.add(name, qualities(pairs), pairs.plane, f"{len(pairs.meaning):,} pairs: {{}}.")
    counts = "; ".join(
        f"{name}: {len(pairs.meaning):,} pairs, {pairs.short:,} more with a text under 4 words"
        for name, pairs in found.items()
    )
    return figure.result([
        f"Of the same {len(texts):,} sentences of bank/. Counted: {counts}. Equal candidates "
        "of one sentence count once.",
        f"High quality, as the paper has it: meaning above {MEANINGS[0]} and wording at most "
        f"{MOST_WORDING}. Top right corner: both {_CORNER} or more, nearly the same text.",
        "Published: Fig. 1 is a picture without figures. In words: most round trips are close to "
        "their source in meaning but close in wording, too, and many lie in the top right corner; "
        "few are of high quality, and sampling is what section 3.2 adds for that.",
    ])  # fmt: skip


def fig3(steps: ParaphraseSteps) -> Result:
    """Rewrite the same sentences at each tag pair with three kinds of search, and count."""
    from tilth.paraphrase.rewriter import load_paraphraser
    from tilth.recipes.paraphrase import measured_pairs, round_trips, sentences

    texts = sentences(steps)
    rewriter = load_paraphraser(
        steps.scale.rewriter, scorer=steps.scale.scorer, polarity=False,
        device=steps.settings.device,
    )  # fmt: skip
    figure = Figure("Controlled paraphrase, Fig. 3", OBTAINED)
    uncounted = [
        count for way in SEARCHES for count in add_rewrites(figure, steps, texts, rewriter, way)
    ]
    greedy = measured_pairs(round_trips(steps, texts))
    means = []
    if len(greedy.meaning):
        means = [greedy.meaning.mean(), greedy.wording.mean(), None, None, 100 * greedy.same]
    figure.add(GREEDY, means, greedy.plane)
    return figure.result(_notes(steps, texts, uncounted))


def add_rewrites(
    figure: Figure, steps: ParaphraseSteps, texts: Sequence[str], rewriter: Rewriter, way: str
) -> list[int]:
    """Rewrite sentences at each of `PAIRS` by one kind of search and add a row for each.

    Args:
        way: a kind of search; more words may follow it, for the names of rows and steps.

    Returns:
        The number of sentences of each row that are not counted: short ones, and without rewrite.
    """
    from tilth.paraphrase.paraphrase_set import run_paraphrase
    from tilth.paraphrase.settings import RewriteSettings
    from tilth.paraphrase.tags import asked_cell
    from tilth.recipes.paraphrase import PART
    from tilth.report.rewrites import read_rewrites

    steer, check = SEARCHES[way.partition(", ")[0]]
    rows, uncounted = [{"text": text} for text in texts], []
    for meaning, wording in PAIRS:
        asked = RewriteSettings(
            meaning, wording, min_meaning=0, steer=steer, tries=TRIES if check else 1,
            beams=steps.scale.beams, part_size=PART,
        )  # fmt: skip
        end = way.replace(", ", " ").replace(" ", "-")
        folder = steps.at(f"rewrite-{meaning}-{wording}-{end}")
        run_paraphrase(rows, lambda: rewriter, asked, folder, quiet=steps.settings.quiet)
        summary = read_rewrites(folder).summary
        name = f"meaning {meaning}, wording {wording}, {way}"
        figure.add(name, _obtained(summary), summary.plane, cell=asked_cell(meaning, wording))
        uncounted.append(summary.short + sum(summary.dropped.values()))
    return uncounted


def qualities(pairs: MeasuredPairs) -> list[float]:
    """Return the figures of `QUALITIES`, none without pairs."""
    from tilth.paraphrase.tags import MEANINGS, MOST_WORDING

    if not len(pairs.meaning):
        return []
    good = (pairs.meaning > MEANINGS[0]) & (pairs.wording <= MOST_WORDING)
    corner = (pairs.meaning >= _CORNER) & (pairs.wording >= _CORNER)
    return [pairs.meaning.mean(), pairs.wording.mean(), 100 * good.mean(), 100 * corner.mean()]


def _obtained(summary: RewriteSummary) -> list[float | None]:
    """Return the figures of `OBTAINED`."""
    shares = (summary.inside, summary.near, summary.same)
    in_percent = (None if share is None else 100 * share for share in shares)
    return [summary.meaning, summary.wording, *in_percent]


def span(counts: Sequence[int]) -> str:
    """Return the lowest and the highest count, or the only one."""
    return " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))


def _notes(steps: ParaphraseSteps, texts: Sequence[str], uncounted: Sequence[int]) -> list[str]:
    return [
        f"Of the same {len(texts):,} sentences of bank/; {span(uncounted)} of them are not "
        "counted, for want of a rewrite or of 4 words in a text.",
        f"Tags alone: the best of {steps.scale.beams} beams, be it the sentence itself, as in the "
        "paper (--no-steer). Steered: searched at five costs of copying, the nearest counts. "
        f"Checked: up to {TRIES} such searches (--check). The paper has the first only. Nothing "
        "is left out for its meaning or polarity (--min-meaning 0 --no-polarity).",
        "Inside the cell: meaning and wording both in the asked step. Wording near: in the asked "
        "step or one beside it. Same: but for case, punctuation and white space.",
        "Published: Fig. 3 is a picture without figures, of meaning 95 with wording 5, 20 and 40. "
        "In words: for each tag pair about the asked similarities come out.",
    ]


SOURCE = "Ogasa, Kajiwara and Arase, controlled paraphrase (English: LREC-COLING 2024)"
BANK = "bank/ with raw text: txt, jsonl, json, csv, tsv or parquet files, plain or gz"
WMT19 = ("facebook/wmt19-en-de", "facebook/wmt19-de-en")
MODELS = {
    "translators": ("the WMT19 models of fairseq", WMT19),
    "scorer": ("a DeBERTaV3-large cross-encoder, of 10 seeds the best on STS-B's dev part", ""),
}
REWRITER = {"rewriter": ("BART-base, trained on 5 million pairs", "")}
STARTER = ParaphraseScale(
    translators=("starter", "starter"),
    scorer="starter",
    sentences=600,
    departures=("600 sentences of all of bank/ for 50,000 of Wikipedia",),
)
PAPER = ParaphraseScale(
    translators=WMT19,
    scorer="cross-encoder/stsb-roberta-large",
    sentences=50_000,
    departures=(
        "this scale has never been run: the settings are the paper's",
        "sentences are drawn from all of bank/, which should hold Wikipedia alone",
    ),
)

RECIPES = (
    Recipe(
        name="paraphrase-fig1",
        title="Meaning and wording of round trips, greedy and with sampling",
        source=f"{SOURCE}, Fig. 1 and section 3.2",
        options=(),
        run=fig1,
        steps=(
            "draw sentences from all raw text in bank/",
            "translate them to German and back, greedily: one candidate each",
            "the same by beam search with sampling at (k, T) = (20, 3.0) and (30, 2.0): four each",
            "measure meaning and wording, and count",
        ),
        needs=BANK,
        scales={"starter": STARTER, "paper": PAPER},
        models=MODELS,
        departures=(
            "the panels of ParaNMT and ParaCotta are missing: round trips alone are measured",
            "the two (k, T) are the paper's; paraphrase-sampling repeats its search over 16",
        ),
    ),
    Recipe(
        name="paraphrase-fig3",
        title="Meaning and wording of rewrites, tag pair by tag pair: tags alone, steered, checked",
        source=f"{SOURCE}, Fig. 3 and section 4.3",
        options=(),
        run=fig3,
        steps=(
            "draw sentences from all raw text in bank/",
            "rewrite them at meaning 95 and 70 with wording 5, 20 and 40, by tags alone: the best "
            "beam as it is",
            "the same, steered; the same, checked, with up to 5 tries",
            "translate them to German and back, greedily",
            "measure meaning and wording, and count",
        ),
        needs=BANK,
        scales={
            "starter": replace(
                STARTER,
                rewriter="starter",
                beams=5,
                departures=(*STARTER.departures, "5 beams for 20"),
            ),
            "paper": replace(PAPER, rewriter="Ogamon/conpgs_model", beams=20),
        },
        models=MODELS | REWRITER,
        departures=(
            "meaning 70, and the lines steered and checked, are not in the paper",
            "the rewriter is not trained here: paraphrase-corpus does that",
        ),
    ),
)

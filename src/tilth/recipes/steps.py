"""What a recipe is made of: named steps, each in a run folder of its own, and a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilth.errors import InputError
from tilth.limits import TRAININGS
from tilth.recipes.table import Listing, Table
from tilth.report.encoders import Bar, Curve
from tilth.report.maps import PlaneMap


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a recipe is. What a recipe has no use for is left out.

    Attributes:
        lm: the language model that writes.
        base: the encoder that is trained.
        inputs: first texts taken from the data; None: all.
        first_texts: first texts that are generated from nothing, where a recipe needs them.
        training: settings of the training that are not the paper's.
        smaller: what to say of it under a table.
        encoder: of a bank.
        rewriter: writes rewrites.
        translators: to German and back.
        scorer: measures meaning.
        sentences: drawn from raw text.
        beams: of the search for rewrites.
        teacher: the base that is fine-tuned to label sentences.
        query: the kind of queries that sentences are retrieved with.
    """

    lm: str = ""
    base: str = ""
    inputs: int | None = None
    first_texts: int = 0
    training: Mapping[str, Any] = field(default_factory=dict)
    smaller: str = ""
    encoder: str = ""
    rewriter: str = ""
    translators: tuple[str, str] = ("", "")
    scorer: str = ""
    sentences: int = 0
    beams: int = 0
    teacher: str = ""
    query: str = ""

    def facts(self) -> list[tuple[str, str]]:
        """Return it in words, for `tilth recipe show` and the page."""
        facts = []
        if self.lm:
            inputs = "all" if self.inputs is None else f"{self.inputs:,} of the data"
            facts += [
                ("language model", self.lm),
                ("first texts", inputs),
                ("first texts from nothing", f"{self.first_texts:,}"),
            ]
        if self.base:
            settings = ", ".join(f"{name} {value:g}" for name, value in self.training.items())
            facts += [("base", self.base), ("training", settings or "as published")]
        if self.teacher:
            facts.append(("teacher", self.teacher))
        if self.encoder:
            facts.append(("encoder of the bank", self.encoder))
        if self.query:
            facts.append(("queries", self.query))
        if self.sentences:
            facts.append(("sentences", f"{self.sentences:,}"))
        if self.rewriter:
            facts.append(("rewriter", f"{self.rewriter}, {self.beams} beams"))
        if self.scorer:
            facts += [
                ("translators", ", ".join(self.translators)),
                ("scorer of meaning", self.scorer),
            ]
        return facts


@dataclass(frozen=True, slots=True)
class Steps:
    """Where a recipe works, and with what.

    Attributes:
        folder: holds `steps/NAME`, one run folder for each step, or data set that one made.
            Recipes that share steps share them when they share the folder.
        data: the data folder.
        scale: how large.
        seeds: how many trainings each figure is the mean of.
        drop_overlap: leave training rows out that hold a sentence of an evaluation set.
        say: called with the name of each step as it begins.
        quiet: no progress bars.
        device: where models run.
    """

    folder: Path
    data: Path
    scale: Scale
    seeds: int = 1
    drop_overlap: bool = False
    say: Callable[[str], None] = lambda _: None
    quiet: bool = False
    device: str = "auto"

    def __post_init__(self) -> None:
        TRAININGS.check("seeds", self.seeds)
        if not self.data.is_dir():
            raise InputError(
                f"{self.data}: no such folder: `tilth recipe show` says what --data needs"
            )

    def at(self, name: str) -> Path:
        """Return a step's folder, and say that it begins."""
        self.say(name)
        return self.folder / "steps" / name

    def at_training(self, name: str) -> Path:
        """Return the folder of a step that depends on which rows are trained on."""
        return self.at(f"{name}{'-drop-overlap' if self.drop_overlap else ''}")


@dataclass(frozen=True, slots=True)
class Result:
    """What a recipe found.

    Attributes:
        table: our figures, or sentences, beside the published ones.
        bars: the figures for the page; neither these nor maps: there is no page.
        metric: what the bars' values are; see `tilth.report.encoders.METRICS`.
        interval: what the bars' whiskers are.
        curves: of the trainings.
        wrong: encoder -> most wrong pairs.
        maps: heat maps of meaning and wording, for a page of their own kind.
    """

    table: Table | Listing
    bars: Sequence[Bar] = ()
    metric: str = ""
    interval: str = ""
    curves: Sequence[Curve] = ()
    wrong: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    maps: Sequence[PlaneMap] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """One table or figure of a paper.

    Attributes:
        name: such as `dino-table1`.
        title: one line.
        source: the paper, and where in it.
        steps: what is done, in order, for `tilth recipe show`.
        needs: what must lie in the data folder.
        scales: `starter` and `paper`.
        run: does it.
    """

    name: str
    title: str
    source: str
    steps: Sequence[str]
    needs: str
    scales: Mapping[str, Scale]
    run: Callable[[Steps], Result]

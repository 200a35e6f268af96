"""What a recipe is made of: named steps, each in a run folder of its own, and a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilth.errors import InputError
from tilth.recipes.recipe import RecipeSettings, Scale
from tilth.report.encoders import Bar, Curve
from tilth.report.maps import PlaneMap
from tilth.workflows.table import Listing, Table


@dataclass(frozen=True, slots=True)
class Steps:
    """Where a recipe works, and with what.

    Attributes:
        folder: holds `steps/NAME`, one run folder for each step, or data set that one made.
            Recipes that share steps share them when they share the folder.
        data: the data folder.
        scale: how large.
        settings: what the user asked for.
        say: called with the name of each step as it begins.
    """

    folder: Path
    data: Path
    scale: Scale
    settings: RecipeSettings = field(default_factory=RecipeSettings)
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
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
        return self.at(f"{name}{'-drop-overlap' if self.settings.drop_overlap else ''}")


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

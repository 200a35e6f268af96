"""Recipe of one table or figure of a paper: scales, departures, steps and result.

Imports nothing heavy: `tilth recipe list` and `show` must answer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from tilth.errors import InputError
from tilth.limits import TRAININGS, check_fields
from tilth.models.names import CLASSIFIER, ENCODER, SEQ2SEQ, check_name

if TYPE_CHECKING:
    from tilth.recipes.table import Listing, Table
    from tilth.report.encoders import EncoderComparison
    from tilth.report.paraphrase import GainMap, HeatMap

MODELS = ("base", "teacher", "encoder")  # that a user may choose
_TRAINED = {"classifier": CLASSIFIER, "encoder": ENCODER, "rewriter": SEQ2SEQ}


@dataclass(frozen=True, slots=True)
class RecipeSettings:
    """Options of `tilth recipe run`; those that are given replace the values of the scale."""

    seeds: Annotated[int, TRAININGS, "Trainings behind each figure."] = 1
    tasks: Annotated[
        Sequence[str],
        "Labelled sets to measure, with commas: names of folders in classify/ and ner/, or the "
        "paper's; default: as recipe show says.",
    ] = ()
    base: Annotated[
        str | None,
        "--base -b",
        "The model that is trained; a starter, a folder or a hub id, as of the next two.",
    ] = None
    teacher: Annotated[str | None, "The model that is fine-tuned to label sentences."] = None
    encoder: Annotated[
        str | None, "The encoder of the bank, such as the run of tilth train triplet."
    ] = None
    drop_overlap: Annotated[bool, "Leave training rows out that hold a sentence of the sets."] = (
        False
    )
    device: Annotated[str, "auto, cpu, cuda or cuda:N."] = "auto"
    quiet: Annotated[bool, "--quiet -q", "No progress bar."] = False

    def __post_init__(self) -> None:
        check_fields(self)

    def recorded(self) -> dict[str, Any]:
        """Return the options that decide the result, as run.json holds them."""
        models = {name: getattr(self, name) for name in MODELS if getattr(self, name)}
        tasks = {"tasks": list(self.tasks)} if self.tasks else {}
        return {"seeds": self.seeds, "drop_overlap": self.drop_overlap, **models, **tasks}

    def options(self) -> str:
        """Return the options in command-line form."""
        models = {name: getattr(self, name) for name in MODELS}
        given = {"seeds": self.seeds, "tasks": ",".join(self.tasks), **models}
        written = [f" --{name} {value}" for name, value in given.items() if value]
        return "".join(written) + (" --drop-overlap" if self.drop_overlap else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Models and sizes of a recipe; each paper has a subclass with its own fields.

    Attributes:
        departures: differences from the paper at this scale, except for models.
    """

    departures: tuple[str, ...] = ()

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        return []


def training_facts(base: str, training: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values of a training's settings."""
    settings = ", ".join(f"{name} {value:g}" for name, value in training.items())
    return [("base", base), ("training", settings or "as published")] if base else []


@dataclass(frozen=True, slots=True)
class Recipe:
    """One table or figure of a paper.

    Attributes:
        source: the paper, and the table or figure.
        needs: files that the data folder must hold.
        models: field of a scale (models or tasks) -> the paper's, described and as the field has
            it; "": its weights are not public.
        departures: differences from the paper at every scale.
        run: runs the unfinished steps; imports what it needs when it is called.
        options: of `seeds` and `drop_overlap`, those that count.
        trains: kind of the base, one of `_TRAINED`.
        takes_file: whether the data may be one file.
    """

    name: str
    title: str
    source: str
    steps: Sequence[str]
    needs: str
    scales: Mapping[str, Scale]
    run: Callable[[Steps[Any]], Result]
    models: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    departures: tuple[str, ...] = ()
    options: tuple[str, ...] = ("seeds",)
    trains: str = "classifier"
    takes_file: bool = False

    def departures_at(self, scale: Scale) -> list[str]:
        """Return all differences from the paper, models first."""
        models = []
        for name, (papers, public) in self.models.items():
            ours = getattr(scale, name)
            if ours != public:
                shown = ", ".join(ours) if isinstance(ours, tuple) else ours
                models.append(f"{name} {shown} for {papers}")
        return [*models, *self.departures, *scale.departures]

    def sized(self, scale: str, settings: RecipeSettings) -> Scale:
        """Return a scale with the models and tasks that a user chose."""
        size, usual = self.scales[scale], RecipeSettings()
        for name in ("seeds", "drop_overlap"):
            value = getattr(settings, name)
            if value != getattr(usual, name) and name not in self.options:
                raise InputError(f"{name} {value}: counts not for {self.name}: leave it out")
        roles = {
            "base": _TRAINED[self.trains],
            "teacher": CLASSIFIER,
            "encoder": ENCODER,
        }
        for name in (*MODELS, "tasks"):
            value = getattr(settings, name)
            if not value:
                continue
            if not getattr(size, name, None):
                shown = value if isinstance(value, str) else ",".join(value)
                raise InputError(f"{name} {shown!r}: {self.name} has no {name}: leave it out")
            if name in roles:
                check_name(value, roles[name])
            size = replace(size, **{name: value})
        return size


AnyScale = TypeVar("AnyScale", bound=Scale)


@dataclass(frozen=True, slots=True)
class Steps(Generic[AnyScale]):
    """Folders, scale and settings of one run of a recipe.

    Attributes:
        folder: holds `steps/NAME`, a run folder or data set per step. Recipes with the same
            folder share their common steps.
        say: called with the name of each step as it begins.
    """

    folder: Path
    data: Path
    scale: AnyScale
    settings: RecipeSettings = field(default_factory=RecipeSettings)
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        if not self.data.exists():
            raise InputError(
                f"{self.data}: no such folder: `tilth recipe show` says what --data needs"
            )

    def at(self, name: str) -> Path:
        """Return a step's folder and announce the step."""
        self.say(name)
        return self.folder / "steps" / name

    def at_training(self, name: str) -> Path:
        """Return the folder of a step that depends on the choice of training rows."""
        return self.at(f"{name}{'-drop-overlap' if self.settings.drop_overlap else ''}")

    def bank_folder(self) -> Path:
        """Return the folder of raw text."""
        folder = self.data / "bank"
        if not folder.exists():
            raise InputError(
                f"{folder}: no such folder: put raw text there, txt, jsonl or parquet files"
            )
        return folder


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a recipe.

    Attributes:
        encoders: figures of the report; without these and maps there is no report.
        maps: of pairs or gains by meaning and wording, shown in a separate kind of report.
    """

    table: Table | Listing
    encoders: EncoderComparison | None = None
    maps: Sequence[HeatMap | GainMap] = ()

"""What a recipe is: a table of a paper, its size at each scale, and its departures.

Nothing heavy is imported here: `tilth recipe list` and `show` take no longer than other checks.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from tilth.errors import InputError
from tilth.limits import TRAININGS, check_fields
from tilth.models.names import check_classifier, check_encoder

if TYPE_CHECKING:
    from tilth.recipes.steps import Result, Steps

MODELS = ("base", "teacher", "encoder")  # that a user may choose


@dataclass(frozen=True, slots=True)
class RecipeSettings:
    """What a user asks of a recipe in place of what its scale says.

    Attributes:
        seeds: trainings behind each figure.
        tasks: folders of `classify/` and `ner/`, or the paper's names of them; empty: the scale's.
        base: what is trained; empty: the scale's, as of the next two.
        teacher: the base that is fine-tuned to label sentences.
        encoder: of the bank.
        drop_overlap: leave training rows out that hold a sentence of an evaluation set.
        device: where models run.
        quiet: no progress bars.
    """

    seeds: Annotated[int, TRAININGS] = 1
    tasks: tuple[str, ...] = ()
    base: str = ""
    teacher: str = ""
    encoder: str = ""
    drop_overlap: bool = False
    device: str = "auto"
    quiet: bool = False

    def __post_init__(self) -> None:
        """Check every value at the door."""
        check_fields(self)

    def asked(self) -> dict[str, Any]:
        """Return what decides the result, as a run records it."""
        models = {name: getattr(self, name) for name in MODELS if getattr(self, name)}
        tasks = {"tasks": list(self.tasks)} if self.tasks else {}
        return {"seeds": self.seeds, "drop_overlap": self.drop_overlap, **models, **tasks}

    def options(self) -> str:
        """Return them as the command line takes them."""
        models = {name: getattr(self, name) for name in MODELS}
        given = {"seeds": self.seeds, "tasks": ",".join(self.tasks), **models}
        written = [f" --{name} {value}" for name, value in given.items() if value]
        return "".join(written) + (" --drop-overlap" if self.drop_overlap else "")


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a recipe is. What a recipe has no use for is left out.

    Attributes:
        lm: the language model that writes.
        base: what is trained.
        inputs: first texts taken from the data; None: all.
        first_texts: first texts that are tried from nothing, where a recipe needs them.
        training: settings of the training that are not the paper's.
        encoder: of a bank.
        rewriter: writes rewrites.
        translators: to German and back.
        scorer: measures meaning.
        sentences: drawn from raw text, or learned for each task; 0: in proportion to its rows.
        candidates: retrieved and labelled for each task; at least half as many again as learned.
        select: which of these are learned, see `tilth.selftrain.select.select`.
        beams: of the search for rewrites.
        teacher: the base that is fine-tuned to label sentences.
        query: the kind of queries that sentences are retrieved with.
        tag_query: the kind where tokens have tags; empty: the same.
        small_epochs: times the epochs where no more rows are learned than the training set has.
        tasks: folders of `classify/` and `ner/`, or the paper's names of them.
        departures: what differs from the paper at this scale, but for models.
    """

    lm: str = ""
    base: str = ""
    inputs: int | None = None
    first_texts: int = 0
    training: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    rewriter: str = ""
    translators: tuple[str, str] = ("", "")
    scorer: str = ""
    sentences: int = 0
    candidates: int = 0
    select: str = "random"
    beams: int = 0
    teacher: str = ""
    query: str = ""
    tag_query: str = ""
    small_epochs: float = 1.0
    tasks: tuple[str, ...] = ()
    departures: tuple[str, ...] = ()

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
        if self.tasks:
            facts.append(("tasks", " ".join(self.tasks)))
        if self.base:
            settings = ", ".join(f"{name} {value:g}" for name, value in self.training.items())
            facts += [("base", self.base), ("training", settings or "as published")]
        if self.teacher:
            facts.append(("teacher", self.teacher))
        if self.encoder:
            facts.append(("encoder of the bank", self.encoder))
        if self.query:
            tags = f", {self.tag_query} where tokens have tags" if self.tag_query else ""
            facts.append(("queries", f"{self.query}{tags}"))
        if self.candidates:
            facts.append(("candidates", f"{self.candidates:,}"))
        if self.sentences:
            facts.append(("sentences", f"{self.sentences:,}"))
        if self.teacher:
            facts.append(("selection", self.select))
        if self.rewriter:
            facts.append(("rewriter", f"{self.rewriter}, {self.beams} beams"))
        if self.scorer:
            facts += [
                ("translators", ", ".join(self.translators)),
                ("scorer of meaning", self.scorer),
            ]
        return facts


@dataclass(frozen=True, slots=True)
class Recipe:
    """One table or figure of a paper; the module of its name does the work.

    Attributes:
        name: such as `dino-table1`.
        title: one line.
        source: the paper, and where in it.
        steps: what is done, in order, for `tilth recipe show`.
        needs: what must lie in the data folder.
        scales: `starter` and `paper`.
        models: field of a scale, or tasks -> the paper's, in words and as the field has it; "":
            its weights are not public.
        departures: what differs from the paper at every scale.
        trains: whether the base is an `encoder` or a `classifier`.
    """

    name: str
    title: str
    source: str
    steps: Sequence[str]
    needs: str
    scales: Mapping[str, Scale]
    models: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    departures: tuple[str, ...] = ()
    trains: str = "classifier"

    def departures_at(self, scale: Scale) -> list[str]:
        """Return all that differs from the paper: models first."""
        models = []
        for name, (papers, public) in self.models.items():
            ours = getattr(scale, name)
            if ours != public:
                shown = ", ".join(ours) if isinstance(ours, tuple) else ours
                models.append(f"{name} {shown} for {papers}")
        return [*models, *self.departures, *scale.departures]

    def sized(self, scale: str, settings: RecipeSettings) -> Scale:
        """Return a scale with what a user chose for it.

        Raises:
            InputError: the recipe has no such choice, or there is no such model.
        """
        size = self.scales[scale]
        checks = {
            "base": check_encoder if self.trains == "encoder" else check_classifier,
            "teacher": check_classifier,
            "encoder": check_encoder,
        }
        for name in (*MODELS, "tasks"):
            value = getattr(settings, name)
            if not value:
                continue
            if not getattr(size, name):
                shown = value if isinstance(value, str) else ",".join(value)
                raise InputError(f"{name} {shown!r}: {self.name} has no {name}: leave it out")
            if name in checks:
                checks[name](value)
            size = replace(size, **{name: value})
        return size

    def run(self, steps: Steps) -> Result:
        """Do the work."""
        module = importlib.import_module(f"tilth.recipes.{self.name.replace('-', '_')}")
        result: Result = module.run(steps)
        return result

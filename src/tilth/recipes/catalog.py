"""Catalog of all recipes by name, and the function that runs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilth.errors import InputError
from tilth.limits import SCALE, Choice
from tilth.recipes import (
    dino_table3,
    dino_tables,
    paraphrase_corpus,
    paraphrase_figures,
    paraphrase_sampling,
    paraphrase_table3,
    paraphrase_table4,
    paraphrase_table5,
    sentaugment_table2,
    sentaugment_table3,
    sentaugment_table4,
    sentaugment_table9,
    sentaugment_table10,
    sentaugment_tables5to8,
    tag_search,
)
from tilth.recipes.recipe import Recipe, RecipeSettings, Result, Scale, Steps
from tilth.recipes.table import to_json, to_markdown

if TYPE_CHECKING:
    from tilth.recipes.table import Listing, Table

_ALL = (
    *dino_tables.RECIPES,
    dino_table3.RECIPE,
    paraphrase_corpus.RECIPE,
    *paraphrase_figures.RECIPES,
    paraphrase_sampling.RECIPE,
    paraphrase_table3.RECIPE,
    paraphrase_table4.RECIPE,
    paraphrase_table5.RECIPE,
    sentaugment_table2.RECIPE,
    sentaugment_table3.RECIPE,
    sentaugment_table4.RECIPE,
    *sentaugment_tables5to8.RECIPES,
    sentaugment_table9.RECIPE,
    sentaugment_table10.RECIPE,
    tag_search.RECIPE,
)
RECIPES: dict[str, Recipe] = {one.name: one for one in _ALL}
NAMES = Choice(tuple(RECIPES))


def find_recipe(name: str) -> Recipe:
    """Return a recipe by name."""
    if name not in RECIPES:
        raise InputError(f"no recipe {name!r}: there are {', '.join(RECIPES)}")
    return RECIPES[name]


def run_recipe(
    name: str,
    *,
    scale: str,
    data: Path,
    out: Path,
    settings: RecipeSettings,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Table | Listing, Path]:
    """Run the unfinished steps of a recipe and return its table and the table's folder.

    Args:
        out: holds `steps/`, one run folder per step, and NAME with results.json, results.md and
            report.html. Recipes with the same `out` share their steps.
        say: called with the name of each step as it begins.
    """
    recipe = find_recipe(name)
    SCALE.check("scale", scale)
    size = recipe.sized(scale, settings)
    from tilth.runs import Run, RunMismatch, refuse_foreign  # not above: pyarrow

    if data.is_file() and not recipe.takes_file:
        raise InputError(f"{data}: is a file: `tilth recipe show` says which folder is needed")
    steps = Steps(out / scale, data, size, settings, say)
    folder = steps.folder / (f"{name}-drop-overlap" if settings.drop_overlap else name)
    refuse_foreign(folder)
    try:
        result = recipe.run(steps)
    except RunMismatch as error:
        raise RunMismatch(
            str(error).partition(": --overwrite")[0]
            + f": remove that folder, or all of {steps.folder / 'steps'}, or choose another --out"
        ) from error
    unlike = [f"Unlike in the paper: {one}." for one in recipe.departures_at(size)]
    table = replace(result.table, notes=(*result.table.notes, *unlike))
    run = Run.open(
        folder,
        command=f"recipe run {name}",
        settings={"scale": scale, "data": str(data), **settings.recorded()},
        fingerprints={},
        parts=0,
        outputs=("results.json", "results.md"),
        overwrite=True,
    )
    with run:
        run.write_file("results.json", to_json(table))
        run.write_file("results.md", to_markdown(table))
        command = f"tilth recipe run {name} --scale {scale}{settings.options()}"
        _write_report(run.path / "report.html", replace(result, table=table), recipe, size, command)
    return table, run.path


def _write_report(file: Path, result: Result, recipe: Recipe, size: Scale, command: str) -> None:
    from tilth.report.encoders import write_encoder_report
    from tilth.report.paraphrase import write_map_report

    facts = [("source", recipe.source), ("command", command), *size.facts()]
    table = result.table
    if result.maps:
        write_map_report(
            file, result.maps, title=table.title, facts=facts,
            head=table.head, lines=table.lines(), notes=table.notes,
        )  # fmt: skip
    elif result.encoders is not None:
        write_encoder_report(
            file, result.encoders, title=table.title, facts=facts, notes=table.notes
        )

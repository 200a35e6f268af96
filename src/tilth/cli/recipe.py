"""tilth recipe: list, show and run the recipes of the papers' tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tilth import limits
from tilth.cli.app import App
from tilth.cli.options import OTHER_FOLDER, PATH, Json
from tilth.cli.screen import print_json, print_table, say
from tilth.recipes.catalog import NAMES
from tilth.recipes.recipe import RecipeSettings

app = App(no_args_is_help=True, help="Make a paper's table again, beside its figures.")

_Name = Annotated[str, NAMES, "A recipe's name; tilth recipe list shows them."]


@app.command("list")
def list_recipes(json: Json = False) -> None:
    """List the recipes.

    [dim]tilth recipe list[/dim]
    """
    from tilth.recipes.catalog import RECIPES

    if json:
        print_json({name: recipe.title for name, recipe in RECIPES.items()})
        return
    for name, recipe in RECIPES.items():
        print(f"{name}\n  {recipe.title}\n  {recipe.source}")


@app.command("show")
def show(name: _Name) -> None:
    """Show what a recipe does and needs, what it takes at each scale, and how it departs.

    [dim]tilth recipe show dino-table1[/dim]
    """
    from tilth.recipes.catalog import find_recipe

    recipe = find_recipe(name)
    print(f"{recipe.name}: {recipe.title}\n{recipe.source}\n")
    for number, step in enumerate(recipe.steps, 1):
        print(f"  {number}. {step}")
    print(f"\n--data needs: {recipe.needs}")
    for scale, size in recipe.scales.items():
        facts = ", ".join(f"{fact} {value}" for fact, value in size.facts())
        print(f"\n--scale {scale}: {facts}\n  unlike in the paper:")
        for departure in recipe.departures_at(size):
            print(f"  - {departure}")


@app.command("run")
def run(
    name: _Name,
    data: Annotated[
        Path,
        PATH,
        "--data --task -d",
        "The data folder; of tag-search, that of the task; of dino-table3, annotations.",
    ],
    out: Annotated[
        Path, OTHER_FOLDER, "--out -o", "The folder of the recipes' runs; goes on in it."
    ],
    scale: Annotated[
        str, limits.SCALE, "starter: offline, minutes; paper: the paper's models and sizes."
    ] = "starter",
    *,
    settings: RecipeSettings,
    json: Json = False,
) -> None:
    """Run a recipe, or what is left of it; print its table beside the published one.

    [dim]tilth recipe run dino-table1 --data data --out runs/dino --seeds 3[/dim]
    [dim]tilth recipe run sentaugment-table4 --data data --out runs/mine --tasks trec,mine[/dim]
    [dim]tilth recipe run dino-table3 --data runs/pairs.annotations --out runs/dino[/dim]
    [dim]tilth recipe run tag-search --task data/classify/trec --out runs/tags --seeds 3[/dim]
    """
    from tilth.recipes.catalog import run_recipe
    from tilth.recipes.table import to_json

    table, folder = run_recipe(
        name, scale=scale, data=data, out=out, settings=settings,
        say=(lambda _: None) if settings.quiet else (lambda step: say(f"step: {step}")),
    )  # fmt: skip
    if json:
        print(to_json(table), end="")
        return
    print_table(table.title, table.head, table.lines(), texts=table.texts)
    for line in table.notes:
        say(line)
    pages = [str(page) for page in (folder / "results.md", folder / "report.html") if page.exists()]
    say(f"results: {', '.join(pages)}")

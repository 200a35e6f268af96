"""tilth recipe: list, show and run the recipes of the papers' tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilth import limits
from tilth.cli import options
from tilth.cli.app import App
from tilth.cli.checks import FOLDER, OTHER_FOLDER
from tilth.cli.screen import print_json, print_table, say
from tilth.recipes.catalog import NAMES

app = App(no_args_is_help=True, help="Make a paper's table again, beside its figures.")

_Name = Annotated[str, NAMES, typer.Argument(help="A recipe's name; tilth recipe list shows them.")]


@app.command("list")
def list_recipes(json: options.Json = False) -> None:
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
    data: Annotated[Path, FOLDER, typer.Option("--data", "-d", help="The data folder.")],
    out: Annotated[
        Path,
        OTHER_FOLDER,
        typer.Option("--out", "-o", help="The folder of the recipes' runs; goes on in it."),
    ],
    scale: Annotated[
        str,
        limits.SCALE,
        typer.Option(help="starter: offline, minutes; paper: the paper's models and sizes."),
    ] = "starter",
    seeds: Annotated[int, limits.TRAININGS, typer.Option(help="Trainings behind each figure.")] = 1,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="Labelled sets to measure, with commas: names of folders in classify/ and ner/; "
            "default: as recipe show says."
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            "-b",
            help="The model that is trained; a starter, a folder or a hub id, as of the next two.",
        ),
    ] = None,
    teacher: Annotated[
        str | None, typer.Option(help="The model that is fine-tuned to label sentences.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="The encoder of the bank, such as the run of tilth train triplet."),
    ] = None,
    drop_overlap: Annotated[
        bool,
        typer.Option(
            "--drop-overlap", help="Leave training rows out that hold a sentence of the sets."
        ),
    ] = False,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Run a recipe, or what is left of it; print its table beside the published one.

    [dim]tilth recipe run dino-table1 --data data --out runs/dino --seeds 3[/dim]
    [dim]tilth recipe run sentaugment-table4 --data data --out runs/mine --tasks trec,mine[/dim]
    """
    from tilth.recipes.catalog import run_recipe
    from tilth.recipes.recipe import RecipeSettings
    from tilth.recipes.table import to_json

    asked = RecipeSettings(
        seeds, tuple(options.columns(tasks) or ()), base or "", teacher or "", encoder or "",
        drop_overlap, device, quiet,
    )  # fmt: skip
    table, folder = run_recipe(
        name, scale=scale, data=data, out=out, settings=asked,
        say=(lambda _: None) if quiet else (lambda step: say(f"step: {step}")),
    )  # fmt: skip
    if json:
        print(to_json(table), end="")
        return
    print_table(table.title, table.head, table.lines(), texts=table.texts)
    for line in table.notes:
        say(line)
    pages = [str(page) for page in (folder / "results.md", folder / "report.html") if page.exists()]
    say(f"results: {', '.join(pages)}")

"""All recipes by name, and how one is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tilth.errors import InputError
from tilth.limits import SCALE
from tilth.recipes import (
    dino_table1,
    dino_table2,
    dino_table5,
    paraphrase_fig1,
    paraphrase_fig3,
    sentaugment_table2,
    sentaugment_table3,
    sentaugment_table4,
    sentaugment_table5,
    sentaugment_table6,
    sentaugment_table7,
    sentaugment_table8,
    sentaugment_table9,
    sentaugment_table10,
)
from tilth.recipes.steps import Recipe, Steps
from tilth.report.encoders import write_encoder_report
from tilth.report.maps import write_map_report
from tilth.runs import Run, refuse_foreign
from tilth.runs.folder import RunMismatch

if TYPE_CHECKING:
    from tilth.recipes.table import Listing, Table

RECIPES: dict[str, Recipe] = {
    module.RECIPE.name: module.RECIPE
    for module in (
        dino_table1, dino_table2, dino_table5, paraphrase_fig1, paraphrase_fig3,
        sentaugment_table2, sentaugment_table3, sentaugment_table4, sentaugment_table5,
        sentaugment_table6, sentaugment_table7, sentaugment_table8, sentaugment_table9,
        sentaugment_table10,
    )
}  # fmt: skip


def find_recipe(name: str) -> Recipe:
    """Return a recipe by name.

    Raises:
        InputError: there is none of that name.
    """
    if name not in RECIPES:
        raise InputError(f"no recipe {name!r}: there are {', '.join(RECIPES)}")
    return RECIPES[name]


def run_recipe(
    name: str,
    *,
    scale: str,
    data: Path,
    out: Path,
    seeds: int = 1,
    drop_overlap: bool = False,
    device: str = "auto",
    say: Callable[[str], None] = lambda _: None,
    quiet: bool = False,
) -> tuple[Table | Listing, Path]:
    """Run a recipe, or what is left of it.

    Args:
        name: such as `dino-table1`.
        scale: `starter` or `paper`.
        data: the data folder.
        out: holds `steps/`, one run folder for each step, and NAME with results.json, results.md
            and, of figures, report.html. Recipes with the same `out` share their steps.
        seeds: trainings behind each figure.
        drop_overlap: leave training rows out that hold a sentence of an evaluation set.
        device: where models run.
        say: called with the name of each step as it begins.
        quiet: no progress bars.

    Returns:
        The table and the folder of the result.

    Raises:
        InputError: an argument or the data is wrong, or `out` holds a run with other settings.
        TilthError: a step failed.
    """
    recipe = find_recipe(name)
    SCALE.check("scale", scale)
    steps = Steps(out / scale, data, recipe.scales[scale], seeds, drop_overlap, say, quiet, device)
    folder = steps.folder / (f"{name}-drop-overlap" if drop_overlap else name)
    refuse_foreign(folder)
    try:
        result = recipe.run(steps)
    except RunMismatch as error:
        raise RunMismatch(
            str(error).partition(": --overwrite")[0]
            + f": remove that folder, or all of {steps.folder / 'steps'}, or choose another --out"
        ) from error
    run = Run.open(
        folder,
        command=f"recipe run {name}",
        settings={"scale": scale, "data": str(data), "seeds": seeds, "drop_overlap": drop_overlap},
        fingerprints={},
        parts=0,
        outputs=("results.json", "results.md"),
        overwrite=True,
    )
    with run:
        run.write_file("results.json", result.table.to_json())
        run.write_file("results.md", result.table.to_markdown())
        asked = f" --seeds {seeds}" if result.bars else ""
        facts = [
            ("source", recipe.source),
            ("command", f"tilth recipe run {name} --scale {scale}{asked}"),
            *steps.scale.facts(),
        ]
        if result.maps:
            write_map_report(run.path / "report.html", result.table, facts, result.maps)
        elif result.bars:
            write_encoder_report(
                run.path / "report.html",
                title=result.table.title,
                facts=facts,
                bars=result.bars,
                metric=result.metric,
                interval=result.interval,
                curves=result.curves,
                wrong=result.wrong,
                notes=result.table.notes,
            )
    return result.table, run.path

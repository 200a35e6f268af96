"""tilth curate: clean a generated set, smooth its labels, split it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tilth.cli.app import Fields
from tilth.cli.options import DATA, OTHER_FOLDER, PATH, Common
from tilth.cli.screen import print_json, print_table, say
from tilth.data.settings import CurateOptions
from tilth.workflows.settings import LabelledColumns


def curate(
    source: Annotated[str, DATA, "A generate run, or a labelled file or data set."],
    chosen: CurateOptions,
    out: Annotated[
        Path | None,
        OTHER_FOLDER,
        "--out -o",
        "Where the data set goes; default: SOURCE/curated, of a plain file NAME-curated beside it.",
    ] = None,
    annotations: Annotated[
        Path | None,
        PATH,
        "Annotations of tilth view (RUN.annotations, or an exported file): people's labels count, "
        "rows that they reject are dropped.",
    ] = None,
    *,
    named: LabelledColumns,
    common: Annotated[Common, Fields(only=("overwrite", "json"))],
) -> None:
    """Clean a generated set as the DINO paper does: duplicates, smoothing, sampled pairs, split.

    [dim]tilth curate runs/pairs[/dim]
    """
    from tilth.data.curate import LABEL_FIT
    from tilth.workflows.curate import curate_folder

    folder, counts = curate_folder(
        source,
        out,
        chosen,
        overwrite=common.overwrite,
        annotations=annotations,
        columns=(named.text, named.label),
    )
    if common.json:
        print_json(counts)
        return
    print_table("Rows", ("", "rows"), [(name, str(count)) for name, count in counts.items()])
    dropped, read = counts.get(LABEL_FIT, 0), counts["rows in"]
    if dropped > read / 2:
        say(
            f"warning: {dropped / read:.0%} of the rows do not fit their label: what is left is "
            "few and near the limit; write with a larger model, or label texts of your own by "
            "description (tilth predict TASK FILE)"
        )
    say(f"data set: {folder}")

"""tilth export: a trained classifier or tagger as ONNX."""

from __future__ import annotations

from typing import Annotated

from tilth.cli.app import Fields
from tilth.cli.options import CLASSIFIER, DATA, Common, Out
from tilth.cli.screen import print_json, say
from tilth.workflows.settings import ExportSettings


def export(
    model: Annotated[str, CLASSIFIER, "The run of a training, a folder or a hub id."],
    out: Out,
    settings: ExportSettings,
    texts: Annotated[
        str | None,
        DATA,
        "--texts",
        "Texts to compare the answers on; default: the quickstart's, of no special domain.",
    ] = None,
    *,
    common: Annotated[Common, Fields(only=("overwrite", "json"))],
) -> None:
    """Export a classifier or a tagger to ONNX, 8-bit, and compare its answers with the model's.

    [dim]tilth export runs/student --out runs/small --texts new.jsonl[/dim]
    """
    from dataclasses import asdict

    from tilth.workflows.export import export

    results = export(model, out, texts=texts, overwrite=common.overwrite, **asdict(settings))
    if common.json:
        print_json(results)
        return
    say(
        f"{results['same']:.1%} of {results['rows']:,} answers are the model's; the largest "
        f"difference of a probability is {results['difference']:.4f}"
    )
    say(f"model:    {out / 'model'} ({results['bytes'] / 1e6:.1f} MB)")

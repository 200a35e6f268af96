"""tilth predict: label, tag or encode new texts with a trained model."""

from __future__ import annotations

from typing import Annotated, Any

from tilth.cli.app import Fields
from tilth.cli.options import DATA, ENCODER, PREDICTOR, Common, Out
from tilth.cli.screen import print_json, print_table, say
from tilth.generation.task import is_task, load_classes
from tilth.runs.cluster import Cluster
from tilth.workflows.settings import Prediction

_SHOWN_LABELS = 30


def predict(
    model: Annotated[
        str,
        PREDICTOR,
        "The run of a training, a folder or a hub id: of a classifier, a tagger or a "
        "sentence encoder; or a task file, to label by its descriptions without training.",
    ],
    data: Annotated[
        str,
        DATA,
        "Texts: a txt, jsonl, json, csv, tsv, conll or parquet file (plain or gz), a folder of "
        "them, a run, or a hub data set.",
    ],
    out: Out,
    settings: Annotated[Prediction, Fields(reads={"encoder": ENCODER})],
    cluster: Annotated[Cluster, Fields("Beyond this process")],
    common: Common,
) -> None:
    """Label, tag or encode new texts with a trained model; all their columns are kept.

    [dim]tilth predict runs/student new.jsonl --out runs/labelled[/dim]
    """
    cluster.check_head()
    if is_task(model):
        load_classes(model)  # what is wrong in it is told before torch is imported
    from tilth.workflows.predict import predict_to_run

    results = predict_to_run(model, data, out, settings, cluster=cluster, **common.job)
    if common.json:
        print_json(results)
        return
    _show(model, results)
    say(f"data set: {out / 'dataset'}")


def _show(model: str, results: dict[str, Any]) -> None:
    from tilth.report.html import count_of

    labels = list(results["labels"].items())
    if labels:
        measure = "similarity" if results["kind"] == "described" else "confidence"
        head = ("type", "entities") if results["kind"] == "tags" else ("label", "rows")
        print_table(
            model,
            (*head, f"mean {measure}"),
            [
                (name, f"{found['rows']:,}", f"{found[measure]:.2f}")
                for name, found in labels[:_SHOWN_LABELS]
            ],
        )
    elif results["kind"] == "tags":
        say("no entity was found")
    if len(labels) > _SHOWN_LABELS:
        say(f"{len(labels) - _SHOWN_LABELS:,} more: --json has all")
    say(count_of(results["rows"], "row"))
    if results.get("without_label"):
        say(f"{results['without_label']:,} of them have no label: none is likelier than not")
    if results.get("unrelated"):
        say(
            f"{results['unrelated']:,} of them are unlike every description: "
            "check those with the lowest similarity first"
        )
    if results["without_text"]:
        say(f"without text, and without a prediction: {count_of(results['without_text'], 'row')}")

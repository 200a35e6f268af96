"""tilth report: write the page of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tilth.cli.options import ENCODER, RUN, Json
from tilth.cli.screen import print_json, say
from tilth.runs import read_run_json


def report(
    run: Annotated[
        Path, RUN, "A generate, paraphrase, augment, grow, train classifier or tagger run."
    ],
    encoder: Annotated[
        str | None,
        ENCODER,
        "A sentence-transformers model that compares texts with their inputs; default: what "
        "the run measured, else word overlap.",
    ] = None,
    json: Json = False,
) -> None:
    """Write RUN/report.html anew and print its figures: of a generate run, each label's quality.

    [dim]tilth report runs/pairs[/dim]
    """
    from tilth.report.generation import write_report
    from tilth.report.run_reader import refuse_edited

    command = read_run_json(run)["command"]
    with refuse_edited(run):
        page = write_report(run, encoder=encoder)
        if command == "generate":
            from tilth.cli.generate import print_quality

            print_quality(run, as_json=json)
            return
        if command == "paraphrase":
            from tilth.cli.paraphrase import print_rewrites

            print_rewrites(run, as_json=json)
        elif command == "augment":
            _print_augmented(run, as_json=json)
        elif command == "grow":
            from tilth.cli.grow import print_grown
            from tilth.report.grow import grow_results

            results = grow_results(run)
            print_json(results) if json else print_grown(results)
        else:
            _print_training(run, as_json=json)
    if not json:
        say(f"report:   {page}")


def _print_augmented(run: Path, *, as_json: bool) -> None:
    from tilth.cli.augment import print_classes
    from tilth.cli.train import print_trained
    from tilth.report.retrieved import read_augmentation

    found = read_augmentation(run)
    if as_json:
        print_json({**found.results, "trained": found.students})
        return
    print_classes(found.results, run)
    for name, results in found.students.items():
        say(f"{name}:")
        print_trained(results)


def _print_training(run: Path, *, as_json: bool) -> None:
    from tilth.cli.train import print_trained
    from tilth.report.classifier import training_results

    results = training_results(run)
    if as_json:
        print_json(results)
    else:
        print_trained(results)

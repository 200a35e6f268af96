"""Few-shot experiments: small draws of a task, fine-tuned alone and with retrieved sentences."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tilth.errors import InputError
from tilth.models.classifier import fingerprint_classifier, new_classifier
from tilth.models.training import refuse_several
from tilth.runs import Progress, Run
from tilth.selftrain.fewshot_plan import (
    FINE_TUNED,
    FewShot,
    Outcome,
    SelfTraining,
    plan,
    summarise,
)
from tilth.selftrain.fewshot_study import CHECKPOINTS, Study
from tilth.selftrain.fewshot_task import Task, make_task
from tilth.selftrain.finetune import MEASURES
from tilth.selftrain.labelled import bank_fingerprints
from tilth.selftrain.settings import Finetuning

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.data.examples import Examples
    from tilth.selftrain.rows import Rows

RESULTS = "results.json"
# Both teachers and students are trained so long in the paper.
TRAINING = Finetuning(epochs=50)


def few_shot(
    examples: Examples,
    validation: Rows,
    test: Rows,
    bank: Bank,
    out: str | Path,
    *,
    base: str = "starter-small",
    settings: FewShot | None = None,
    training: Finetuning = TRAINING,
    systems: Mapping[str, SelfTraining] | None = None,
    device: str = "auto",
    quiet: bool = False,
    overwrite: bool = False,
) -> Outcome:
    """Measure on small draws of a task what self-training with a bank's sentences gains.

    Of each draw, several trainings with seeds of their own are measured on the test set, and the
    mean of those that are best by validation counts. The best one teaches: it labels sentences
    that the bank has for the draw, and students learn from these and the draw. Training is
    measured ten times, and the weights that are best by validation are kept.

    Args:
        examples: the large labelled set that is drawn from: single texts with classes, or tokens
            with tags.
        validation: what validation rows are drawn from, once for all draws.
        test: what the scores are of; none of its texts is drawn.
        bank: where sentences are found; never those of the test or validation rows.
        out: the run folder; the same call goes on where it stopped, and loses a training at most.
        base: what is trained, see `new_classifier`.
        settings: how many draws, rows and seeds; None: the paper's.
        training: how teachers and students are trained; the seeds follow its own.
        systems: ways of self-training by name; None: the paper's alone.
        device: `auto`, `cpu`, `cuda` or `cuda:0`.
        quiet: no progress.
        overwrite: begin the run anew.

    Raises:
        InputError: the sets do not go together, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2021, arXiv 2010.02194, section 3.3, "Few-shot learning experiments".
    """
    settings = settings or FewShot()
    systems = {"self-training": SelfTraining()} if systems is None else systems
    if FINE_TUNED in systems:
        raise InputError(f"system {FINE_TUNED!r} is what others are measured against: rename it")
    refuse_several(device)
    task = make_task(examples, validation, test, settings)
    training = training.for_base(base)
    jobs = plan(settings, systems)
    run = Run.open(
        out,
        command="few-shot",
        settings={
            "base": base, "systems": {name: asdict(one) for name, one in systems.items()},
            **asdict(settings), "training": asdict(training),
        },
        fingerprints={
            **task.fingerprints(), **bank_fingerprints(bank, index=False),
            "base": _base(task, base, device),
        },
        parts=len(jobs),
        outputs=(CHECKPOINTS, RESULTS),
        overwrite=overwrite,
    )  # fmt: skip
    with run:
        study = Study(run, jobs, task, bank, base, settings, training, systems, device)
        missing = run.missing()
        with Progress(len(jobs), done=len(jobs) - len(missing), quiet=quiet, what="parts") as bar:
            for place in missing:
                run.write_part(place, study.do(jobs[place]))
                study.tidy(jobs[place])
                bar.advance(1)
        rows = study.trainings(jobs)
        found = summarise(rows, MEASURES[task.train.kind], systems, settings.best)
        run.write_file(RESULTS, json.dumps({**asdict(found), "trainings": rows}, indent=2) + "\n")
        shutil.rmtree(run.path / CHECKPOINTS, ignore_errors=True)
    return found


def _base(task: Task, base: str, device: str) -> str:
    """Return the fingerprint of what is trained."""
    rows = task.train
    return fingerprint_classifier(
        new_classifier(base, kind=rows.kind, labels=rows.labels, device=device)
    )

"""How many texts change when other numbers of rows are decoded side by side: rounding ties only.

    python benchmarks/batch_invariance.py

Decodes the same tries with several numbers of rows, in float32 and bfloat16, and prints the share
of tries whose text is the same.
"""

from __future__ import annotations

import torch

from inputs import joined_sentences, script_parser
from tilth.generation.attempts import Attempts, Job, Outcome, items_from_inputs
from tilth.generation.engine import Engine
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task
from tilth.models.lm import LM, load_lm
from tilth.runs import Progress


@torch.inference_mode()
def texts(lm: LM, rows: int, inputs: list[str]) -> dict[tuple[str, str, int], str]:
    """Return the text of every first try."""
    task = load_task("sts-x2")
    engine = Engine(lm, GenerateSettings(), heads=[x.head for x in task.labels], rows=rows)
    found: dict[tuple[str, str, int], str] = {}

    def then(outcome: Outcome) -> Job | None:
        job = outcome.job
        found[job.source_id, job.label, job.attempt] = outcome.text
        return None

    items = items_from_inputs(task, inputs, inputs)
    engine.run(
        Attempts(task, GenerateSettings(), items, Progress(len(items), quiet=True)).first_jobs(),
        then,
    )
    return found


def main() -> None:
    """Compare every number of rows with the first."""
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="starter")
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 16, 200, 384])
    args = parser.parse_args()
    inputs = joined_sentences(args.inputs)
    for precision in ("float32", "bfloat16"):
        lm = load_lm(args.model, precision=precision)
        assert isinstance(lm, LM), "a server chooses its batches itself"
        first, *others = args.rows
        base = texts(lm, first, inputs)
        for rows in others:
            other = texts(lm, rows, inputs)
            same = sum(base[key] == other[key] for key in base)
            print(
                f"{precision}: {first} against {rows} rows: {same} of {len(base)} tries equal "
                f"({same / len(base):.3%})",
                flush=True,
            )


if __name__ == "__main__":
    main()

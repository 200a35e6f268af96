"""Jobs for the engine's tests: the paper's three similarity labels."""

from collections.abc import Iterable, Iterator

from tilth.generation.attempts import Job, Outcome, job_key
from tilth.generation.engine import Engine
from tilth.generation.task import load_task


def pair_jobs(texts: Iterable[str], *, tries: int = 2, seed: int = 0) -> Iterator[Job]:
    """Yield the jobs of the task sts-x2 for some texts."""
    task = load_task("sts-x2")
    for item, text in enumerate(texts):
        for label in task.labels:
            for attempt in range(tries):
                key = job_key(seed, text, label.name, attempt)
                yield Job(item, text, label.name, attempt, task.prompts(label, text), key)


def run_jobs(engine: Engine, jobs: Iterable[Job]) -> dict[Job, Outcome]:
    """Run jobs without further tries."""
    outcomes: dict[Job, Outcome] = {}

    def then(outcome: Outcome) -> None:
        assert outcome.job not in outcomes
        outcomes[outcome.job] = outcome

    engine.run(jobs, then)
    return outcomes

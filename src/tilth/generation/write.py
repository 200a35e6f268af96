"""The finished data set of a run: kept rows, dropped rows and a card, written from its parts."""

from __future__ import annotations

import json
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields

import pyarrow as pa
import pyarrow.compute as pc

from tilth.data import Card, DatasetWriter
from tilth.generation.task import Task
from tilth.models import LM
from tilth.models.endpoint import Endpoint
from tilth.models.endpoint_client import Usage
from tilth.runs import Run

_KEY = b"tilth.usage"


def with_usage(endpoint: Endpoint, make: Callable[[], pa.Table]) -> pa.Table:
    """Make a part; keep what it took at the endpoint in the table's metadata."""
    before = asdict(endpoint.usage)
    table = make()
    spent = {name: now - before[name] for name, now in asdict(endpoint.usage).items()}
    return table.replace_schema_metadata({_KEY: json.dumps(spent)})


def add_usage(total: Usage, part: pa.Table) -> None:
    """Add what a part took."""
    spent = json.loads((part.schema.metadata or {}).get(_KEY, b"{}"))
    for field in fields(Usage):
        setattr(total, field.name, getattr(total, field.name) + int(spent.get(field.name, 0)))


def usage_section(endpoint: Endpoint, total: Usage) -> tuple[str, str]:
    """Return the card's section on an endpoint: heading and Markdown."""
    repeats = (
        "The server repeated its texts for a repeated seed: another run can give the same rows."
        if endpoint.traits.repeats
        else "The server did not repeat its texts for a repeated seed: another run gives others."
    )
    text = (
        f"The texts were asked for by {'chat' if endpoint.is_chat else 'completions'}. "
        f"Note: {endpoint.statement}.\n\n"
        f"The parts of this set took {total.requests:,} requests, {total.prompt_tokens:,} prompt "
        f"tokens and {total.completion_tokens:,} completion tokens, as the server counts (0 where "
        f"it does not), and {total.retries:,} attempts that failed and were made again. What was "
        f"asked for parts that an interruption cut short is not counted. {repeats}"
    )
    return "Endpoint", text


@dataclass(slots=True)
class RowTally:
    """How many rows were kept, per label, and dropped, per reason; what an endpoint was asked."""

    labels: Tally[str]
    drops: Tally[str]
    usage: Usage

    @property
    def kept(self) -> int:
        """All kept rows."""
        return sum(self.labels.values())


def write_dataset(run: Run, task: Task, lm: LM | Endpoint) -> RowTally:
    """Write the finished set of a run from its parts, kept rows and dropped ones, and its card."""
    tally = RowTally(Tally(), Tally(), Usage())
    with DatasetWriter(run.path / "dataset") as writer:
        for table in _tables(run):
            add_usage(tally.usage, table)
            dropped = pc.is_valid(table["drop_reason"])
            kept = table.filter(pc.invert(dropped))
            tally.labels.update(kept["label"].to_pylist())
            tally.drops.update(table["drop_reason"].drop_null().to_pylist())
            writer.write(_finished(kept, task), split="train")
            writer.write(table.filter(dropped), split="train", config="dropped")
        writer.write_card(_card(run, task, lm, tally))
    return tally


def _tables(run: Run) -> Iterator[pa.Table]:
    for index in range(run.parts):
        yield run.read_part(index)


def _finished(kept: pa.Table, task: Task) -> pa.Table:
    kept = kept.drop_columns(["drop_reason", "item", "tokens", "floor_share"])
    if task.is_numeric:
        place = kept.schema.get_field_index("label")
        kept = kept.set_column(place, "label", kept["label"].cast(pa.float64()))
    return kept


def _card(run: Run, task: Task, lm: LM | Endpoint, tally: RowTally) -> Card:
    kind = "text pairs" if task.is_pair else "texts"
    what = "an instruction for each label"
    return Card(
        title=f"{task.name} written by {lm.name}",
        summary=(
            f"{tally.kept} labelled {kind} written by the language model `{lm.name}` from {what} "
            "(DINO, Schick and Schütze 2021, arXiv 2104.07540), made with tilth. Synthetic text: "
            "labels say what the model was asked for, nobody has checked them."
        ),
        command=run.command,
        settings=run.settings,
        counts={"train": dict(tally.labels)},
        drops=dict(tally.drops),
        model=lm.name,
        seed=int(run.settings["seed"]),
        extra=[] if isinstance(lm, LM) else [usage_section(lm, tally.usage)],
    )

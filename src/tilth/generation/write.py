"""Write the finished data set of a run from its parts: kept rows, dropped rows and a card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields

import pyarrow as pa
import pyarrow.compute as pc

from tilth.data import Card, DatasetWriter
from tilth.generation.task import Task
from tilth.models import LM
from tilth.models.endpoint import Endpoint, Usage
from tilth.runs import Run

_USAGE_KEY = b"tilth.usage"


@dataclass(slots=True)
class RowCounts:
    """Rows kept per label, dropped per reason, and the endpoint's usage."""

    labels: Counter[str] = field(default_factory=Counter)
    drops: Counter[str] = field(default_factory=Counter)
    usage: Usage = field(default_factory=Usage)


def with_usage(endpoint: Endpoint, make: Callable[[], pa.Table]) -> pa.Table:
    """Make a part and record its requests and tokens in the table's metadata."""
    before = asdict(endpoint.usage)
    table = make()
    used = {name: now - before[name] for name, now in asdict(endpoint.usage).items()}
    return table.replace_schema_metadata({_USAGE_KEY: json.dumps(used)})


def write_dataset(run: Run, task: Task, lm: LM | Endpoint) -> RowCounts:
    """Write kept rows, dropped rows and the card of a run from its parts."""
    counts = RowCounts()
    with DatasetWriter(run.path / "dataset") as writer:
        for index in range(run.parts):
            table = run.read_part(index)
            used = json.loads((table.schema.metadata or {}).get(_USAGE_KEY, b"{}"))
            for name in (each.name for each in fields(Usage)):
                total = getattr(counts.usage, name) + int(used.get(name, 0))
                setattr(counts.usage, name, total)
            dropped = pc.is_valid(table["drop_reason"])
            kept = table.filter(pc.invert(dropped))
            counts.labels.update(kept["label"].to_pylist())
            counts.drops.update(table["drop_reason"].drop_null().to_pylist())
            writer.write(_finished(kept, task), split="train")
            writer.write(table.filter(dropped), split="train", config="dropped")
        writer.write_card(_card(run, task, lm, counts))
    return counts


def _finished(kept: pa.Table, task: Task) -> pa.Table:
    kept = kept.drop_columns(["drop_reason", "item", "tokens", "floor_share"])
    if task.is_numeric:
        index = kept.schema.get_field_index("label")
        kept = kept.set_column(index, "label", kept["label"].cast(pa.float64()))
    return kept


def _card(run: Run, task: Task, lm: LM | Endpoint, counts: RowCounts) -> Card:
    kind = "text pairs" if task.is_pair else "texts"
    return Card(
        title=f"{task.name} written by {lm.name}",
        summary=(
            f"{counts.labels.total()} labelled {kind} written by the language model `{lm.name}` "
            "from an instruction for each label (DINO, Schick and Schütze 2021, arXiv 2104.07540), "
            "made with tilth. Synthetic text: labels say what the model was asked for, nobody has "
            "checked them."
        ),
        command=run.command,
        settings=run.settings,
        counts={"train": dict(counts.labels)},
        drops=dict(counts.drops),
        model=lm.name,
        seed=int(run.settings["seed"]),
        extra=[] if isinstance(lm, LM) else [_usage_section(lm, counts.usage)],
    )


def _usage_section(endpoint: Endpoint, usage: Usage) -> tuple[str, str]:
    """Return the heading and Markdown of the card's section on an endpoint."""
    text = (
        f"The texts were asked for by {'chat' if endpoint.is_chat else 'completions'}. "
        f"Note: {endpoint.statement}.\n\n"
        f"The parts of this set took {usage.requests:,} requests, {usage.prompt_tokens:,} prompt "
        f"tokens and {usage.completion_tokens:,} completion tokens, as the server counts (0 where "
        f"it does not), and {usage.retries:,} attempts that failed and were made again. What was "
        f"asked for parts that an interruption cut short is not counted."
    )
    return "Endpoint", text

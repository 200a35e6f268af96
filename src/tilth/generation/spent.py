"""What an endpoint was asked for, kept with each part: counts that survive interruptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields

import pyarrow as pa

from tilth.models.asking import Usage
from tilth.models.endpoint import Endpoint

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

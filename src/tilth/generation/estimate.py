"""What a run will take, from a trial on some inputs: outputs, tokens, time, disk, requests."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.generation.attempts import make_part
from tilth.generation.generate import Order, make_sampler
from tilth.generation.settings import Item, items_from_nothing
from tilth.models import LM
from tilth.runs import Progress

TRIAL = 20
# A local model's time is measured on more inputs where that takes no longer than this: the first
# ones also pay for what is prepared once for each new number of rows, and the last for rows that
# stay empty.
_MORE, _SECONDS = 40, 15.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will take, extrapolated from a trial.

    Attributes:
        items: inputs, or numbers of a single-text task.
        trial_items: how many of them were tried.
        outputs: rows that will be kept.
        tries: tries that will be made.
        kept: share of tries kept, label by label.
        tokens: output tokens that will be decoded for the labels' own texts.
        seconds: time at the trial's speed, with whatever else the machine does meanwhile. A trial
            fills the rows of the engine less well than a run does: the run is rather faster.
        disk_bytes: size of parts and data set together.
        requests: to an endpoint; None for a local model.
        endpoint_tokens: prompt and output tokens an endpoint will count; None for a local model.
    """

    items: int
    trial_items: int
    outputs: int
    tries: int
    kept: dict[str, float]
    tokens: int
    seconds: float
    disk_bytes: int
    requests: int | None = None
    endpoint_tokens: int | None = None

    def lines(self) -> list[tuple[str, str]]:
        """Return the plan as lines to print."""
        lines = [
            ("inputs" if self.requests is None else "inputs (endpoint)", f"{self.items:,}"),
            ("tried for this plan", f"{self.trial_items:,}"),
            ("rows kept", f"{self.outputs:,}"),
            *((f"  kept of tries, label {name}", f"{share:.0%}") for name, share in
              self.kept.items()),
            ("tries", f"{self.tries:,}"),
            ("tokens decoded", f"{self.tokens:,}"),
            ("time, at this load", _duration(self.seconds)),
            ("disk", f"{self.disk_bytes / 2**20:,.1f} MiB"),
        ]  # fmt: skip
        if self.requests is not None:
            lines.append(("requests", f"{self.requests:,}"))
            lines.append(("tokens the endpoint counts", f"{self.endpoint_tokens or 0:,}"))
        return lines


def make_plan(order: Order, *, rows: int | None = None) -> Plan:
    """Try some twenty inputs, evenly spread, and say what the whole run will take.

    Nothing is written. With from-x1 the trial writes its first texts from nothing, and the time
    for all of them is part of the plan.
    """
    if order.from_x1 is not None:
        return _plan_from_nothing(order, order.from_x1, rows)
    items = order.items()
    return _scale(order, items, len(items), rows)


def _plan_from_nothing(order: Order, count: int, rows: int | None) -> Plan:
    """Plan both stages: the first texts, then the pairs."""
    stage = order.first_stage()
    firsts = items_from_nothing(stage.task, min(TRIAL, count), each_label=False)
    table, seconds = _try(stage, firsts, rows)
    texts = [row["text"].strip() for row in table.to_pylist() if row["drop_reason"] is None]
    pairs = order.with_inputs(texts or ["nothing was written"])
    plan = _scale(pairs, pairs.items(), max(1, round(count * len(texts) / len(firsts))), rows)
    return Plan(
        **{
            **{name: getattr(plan, name) for name in Plan.__slots__},
            "items": count,
            "seconds": plan.seconds + seconds * count / len(firsts),
        }
    )


def _spread(items: Sequence[Item], most: int) -> list[Item]:
    """Return some items, evenly spread: inputs are often sorted."""
    count = min(most, len(items))
    return [items[place * len(items) // count] for place in range(count)]


def _try(order: Order, items: Sequence[Item], rows: int | None) -> tuple[pa.Table, float]:
    sampler = make_sampler(order, items, None, rows)
    if isinstance(order.lm, LM):  # a model's first steps take longer than all that follow
        make_part(
            order.task,
            order.lm.name,
            order.settings,
            items[:2],
            sampler,
            Progress(len(items), quiet=True),
        )
    start = time.perf_counter()
    table = make_part(
        order.task, order.lm.name, order.settings, items, sampler, Progress(len(items), quiet=True)
    )
    return table, time.perf_counter() - start


def _scale(order: Order, items: Sequence[Item], count: int, rows: int | None) -> Plan:
    """Try some of the items and multiply."""
    before = _usage(order)
    trial = _spread(items, TRIAL)
    table, seconds = _try(order, trial, rows)
    each = seconds / len(trial)
    tried = {item.number for item in trial}
    others = _spread([item for item in items if item.number not in tried], _MORE)
    if isinstance(order.lm, LM) and others and each * len(others) < _SECONDS:
        more, seconds = _try(order, others, rows)
        each = seconds / len(others)
        table = pa.concat_tables([table, more])
        trial += others
    used = [now - then for now, then in zip(_usage(order), before, strict=True)]
    factor = count / len(trial)
    kept: dict[str, list[int]] = {}
    for row in table.select(["label", "drop_reason"]).to_pylist():
        kept.setdefault(row["label"], []).append(row["drop_reason"] is None)
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    local = isinstance(order.lm, LM)
    return Plan(
        items=count,
        trial_items=len(trial),
        outputs=round(factor * sum(map(sum, kept.values()))),
        tries=round(factor * table.num_rows),
        kept={label: sum(rows) / len(rows) for label, rows in kept.items()},
        tokens=round(factor * sum(table["tokens"].to_pylist())),
        seconds=count * each,
        disk_bytes=round(2 * factor * file.tell()),
        requests=None if local else round(factor * used[0]),
        endpoint_tokens=None if local else round(factor * (used[1] + used[2])),
    )


def _usage(order: Order) -> tuple[int, int, int]:
    if isinstance(order.lm, LM):
        return 0, 0, 0
    usage = order.lm.usage
    return usage.requests, usage.prompt_tokens, usage.completion_tokens


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

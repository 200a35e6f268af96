"""Estimate rows, tokens, time, disk space and requests of a run from a trial on some inputs."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.generation.attempts import Item, items_from_nothing, make_part
from tilth.generation.generate import GenerateRequest, make_sampler
from tilth.models import LM
from tilth.models.endpoint import Endpoint
from tilth.runs import Progress
from tilth.runs.progress import duration_words

TRIAL = 20
# A local model's time is measured on more inputs where that takes no longer than this: the first
# ones also pay for one-off preparation, and the last for rows that stay empty.
_MORE, _SECONDS = 40, 15.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Resources of a run, extrapolated from a trial.

    Attributes:
        kept: share of attempts kept, by label.
        tokens: output tokens decoded for the labels' own texts.
        seconds: at the trial's speed under the present load; a full run fills the engine's rows
            better and is rather faster.
        disk_bytes: of parts and data set together.
        requests: to an endpoint; None for a local model.
        endpoint_tokens: prompt and output tokens; None for a local model.
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
        """Return the estimate as lines to print."""
        lines = [
            ("inputs" if self.requests is None else "inputs (endpoint)", f"{self.items:,}"),
            ("tried for this plan", f"{self.trial_items:,}"),
            ("rows kept", f"{self.outputs:,}"),
            *((f"  kept of attempts, label {name}", f"{share:.0%}")
              for name, share in self.kept.items()),
            ("attempts", f"{self.tries:,}"),
            ("tokens decoded", f"{self.tokens:,}"),
            ("time, at this load", duration_words(self.seconds)),
            ("disk", f"{self.disk_bytes / 2**20:,.1f} MiB"),
        ]  # fmt: skip
        if self.requests is not None:
            lines.append(("requests", f"{self.requests:,}"))
            lines.append(("tokens the endpoint counts", f"{self.endpoint_tokens or 0:,}"))
        return lines


def estimate_run(request: GenerateRequest, *, rows: int | None = None) -> Estimate:
    """Try about twenty inputs, evenly spread, and extrapolate to the whole run; write nothing.

    With from-x1 the trial generates its first texts; the time and requests for all of them are
    included.
    """
    if request.from_x1 is None:
        items = request.items()
        return _extrapolate(request, items, len(items), rows)
    count, stage, lm = request.from_x1, request.first_stage(), request.lm
    firsts = items_from_nothing(stage.task, min(TRIAL, count), each_label=False)
    before = _used(lm)
    table, seconds = _try(stage, firsts, rows)
    asked = [after - used for after, used in zip(_used(lm), before, strict=True)]
    texts = [row["text"].strip() for row in table.to_pylist() if row["drop_reason"] is None]
    pairs = request.with_inputs(texts or ["nothing was written"])
    kept = max(1, round(count * len(texts) / len(firsts)))
    estimate = _extrapolate(pairs, pairs.items(), kept, rows)
    factor = count / len(firsts)
    estimate = replace(estimate, items=count, seconds=estimate.seconds + factor * seconds)
    if estimate.requests is None or estimate.endpoint_tokens is None:
        return estimate
    requests, tokens = (round(factor * some) for some in asked)
    return replace(
        estimate,
        requests=estimate.requests + requests,
        endpoint_tokens=estimate.endpoint_tokens + tokens,
    )


def _used(lm: LM | Endpoint) -> tuple[int, int]:
    """Return the requests to an endpoint, and the tokens that it counts; 0 for a local model."""
    if isinstance(lm, LM):
        return 0, 0
    return lm.usage.requests, lm.usage.prompt_tokens + lm.usage.completion_tokens


def _spread(items: Sequence[Item], most: int) -> list[Item]:
    """Return some items, evenly spread: inputs are often sorted."""
    count = min(most, len(items))
    return [items[index * len(items) // count] for index in range(count)]


def _try(
    request: GenerateRequest, items: Sequence[Item], rows: int | None
) -> tuple[pa.Table, float]:
    """Return the attempts for some items and the seconds they took."""
    sampler, task = make_sampler(request, items, None, rows), request.prompted()

    def make(chosen: Sequence[Item]) -> pa.Table:
        progress = Progress(len(chosen), quiet=True)
        return make_part(task, request.lm.name, request.settings, chosen, sampler, progress)

    if isinstance(request.lm, LM):  # a model's first steps take longer than all that follow
        make(items[:2])
    start = time.perf_counter()
    return make(items), time.perf_counter() - start


def _extrapolate(
    request: GenerateRequest, items: Sequence[Item], count: int, rows: int | None
) -> Estimate:
    """Try some of the items and extrapolate to all."""
    lm = request.lm
    before = _used(lm)
    trial = _spread(items, TRIAL)
    table, seconds = _try(request, trial, rows)
    each = seconds / len(trial)
    tried = {item.number for item in trial}
    others = _spread([item for item in items if item.number not in tried], _MORE)
    if isinstance(lm, LM) and others and each * len(others) < _SECONDS:
        more, seconds = _try(request, others, rows)
        each = seconds / len(others)
        table = pa.concat_tables([table, more])
        trial += others
    factor = count / len(trial)
    kept: dict[str, list[bool]] = {}
    for row in table.select(["label", "drop_reason"]).to_pylist():
        kept.setdefault(row["label"], []).append(row["drop_reason"] is None)
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    estimate = Estimate(
        items=count,
        trial_items=len(trial),
        outputs=round(factor * sum(map(sum, kept.values()))),
        tries=round(factor * table.num_rows),
        kept={label: sum(rows) / len(rows) for label, rows in kept.items()},
        tokens=round(factor * sum(table["tokens"].to_pylist())),
        seconds=count * each,
        disk_bytes=round(2 * factor * file.tell()),
    )
    if isinstance(lm, LM):
        return estimate
    requests, tokens = (
        round(factor * (after - used)) for after, used in zip(_used(lm), before, strict=True)
    )
    return replace(estimate, requests=requests, endpoint_tokens=tokens)

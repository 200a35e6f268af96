"""From task and model to a labelled data set: the generate run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tilth.data import load_folder, text_id
from tilth.errors import InputError, TilthError
from tilth.files import disk_errors
from tilth.generation.attempts import make_part
from tilth.generation.jobs import REMEDIES, Sampler, Sampling
from tilth.generation.label_fit import choose_encoder, with_fit
from tilth.generation.settings import Item, Settings, items_from_inputs, items_from_nothing
from tilth.generation.task import Task, first_text_task, load_task
from tilth.generation.write import with_usage, write_dataset
from tilth.limits import BATCH, TEXTS
from tilth.models import LM
from tilth.runs import Progress, Run, complete, refuse_foreign, refuse_other_command

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.models import Endpoint

# The paper draws the x1 of a pair task with top-p alone (section 4).
FIRST_TEXT_TOP_K = 0
# A first text takes one row where an input of a pair task takes a dozen.
_FIRST_TEXTS_A_PART = 8


@dataclass(frozen=True, slots=True)
class Order:
    """An order that can be carried out."""

    task: Task
    lm: LM | Endpoint
    settings: Settings
    inputs: Sequence[str] | None = None
    count: int | None = None
    from_x1: int | None = None

    def __post_init__(self) -> None:
        """Check that the task and what it is given go together."""
        if not isinstance(self.lm, LM) and self.settings.sampling.decay:
            # An endpoint gives no distributions: the settings say what is really done.
            plain = replace(self.settings.sampling, decay=0.0)
            object.__setattr__(self, "settings", replace(self.settings, sampling=plain))
        if isinstance(self.lm, LM) and self.settings.sampling.multiline:
            raise InputError("multiline counts at endpoints only: a local model writes one line")
        name = self.task.name
        if self.task.is_pair:
            if self.count is not None:
                raise InputError(f"task {name!r} writes pairs: give inputs (or from-x1), no count")
            if (self.inputs is None) == (self.from_x1 is None):
                raise InputError(f"task {name!r} writes pairs: give either inputs or from-x1")
            if self.inputs is not None and not len(self.inputs):
                raise InputError("there are no inputs: give at least one text")
            if self.from_x1 is not None:
                first_text_task(self.task)
                TEXTS.check("from_x1", self.from_x1)
        else:
            if self.inputs is not None or self.from_x1 is not None:
                raise InputError(
                    f"task {name!r} writes single texts without an input: give a count instead"
                )
            if self.count is None:
                raise InputError(f"task {name!r} writes single texts: say how many, --count")
            TEXTS.check("count", self.count)
            if self.settings.per_input not in (1, Settings().per_input):
                raise InputError(
                    f"task {name!r} writes single texts without an input: leave per-input away, "
                    "count is the number of texts for each label"
                )

    def items(self) -> list[Item]:
        """Return what texts are written for."""
        if self.inputs is None:
            return items_from_nothing(self.task, self.count or 0, each_label=True)
        return items_from_inputs(self.task, self.inputs, [text_id(text) for text in self.inputs])

    def first_stage(self) -> Order:
        """Return the order for the first texts, where they are written from nothing."""
        sampling = replace(self.settings.sampling, top_k=FIRST_TEXT_TOP_K)
        size = self.settings.part_size * _FIRST_TEXTS_A_PART
        settings = replace(self.settings, per_input=1, sampling=sampling, part_size=size)
        return Order(first_text_task(self.task), self.lm, settings, count=self.from_x1)

    def with_inputs(self, texts: Sequence[str]) -> Order:
        """Return the order with its first texts given."""
        return replace(self, inputs=texts, from_x1=None)


_STOP = "\x1f"
_FIRST = "x1"  # holds the run that wrote the first texts of pairs from nothing


def generate(
    task: Task | str | Mapping[str, Any],
    lm: LM | Endpoint,
    inputs: Sequence[str] | Dataset | None = None,
    *,
    count: int | None = None,
    from_x1: int | None = None,
    per_input: int = 2,
    max_tries: int = 5,
    decay: float = 100.0,
    floor: float = 0.01,
    temperature: float = 1.0,
    top_k: int = 5,
    top_p: float = 0.9,
    max_new_tokens: int = 40,
    multiline: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
    part_size: int = 256,
    rows: int | None = None,
    quiet: bool = True,
) -> Dataset:
    """Write a labelled data set with a language model, from a task's instructions.

    Args:
        task: a shipped name, the path of a spec, a spec as a dict, or a loaded task.
        lm: what `load_lm` returns.
        inputs: the first texts of a pair task; a list of texts, or a data set with a column
            `text`. Equal texts count once.
        count: for single-text tasks: texts wanted for each label.
        from_x1: for pair tasks without inputs: write this many first texts from nothing before.
        per_input: for pair tasks: texts wanted for each (input, label).
        max_tries: tries made to get them.
        decay: lambda of self-debiasing; 0 turns it off.
        floor: smallest factor of self-debiasing (epsilon).
        temperature: of sampling, above 0.
        top_k: 0 keeps all tokens.
        top_p: 1 keeps all tokens.
        max_new_tokens: a text not closed by then is dropped.
        multiline: at an endpoint, keep texts of several lines.
        seed: same settings and seed, same rows.
        out: the run folder, where the work can go on after an interruption; without it the rows
            live in a temporary folder.
        overwrite: start the run folder anew.
        part_size: inputs decoded and written as one closed unit.
        rows: sequences decoded side by side, chosen from the free memory when None; at an
            endpoint, requests under way at the same time, 8 when None.
        quiet: no progress bar.

    Returns:
        The kept rows: text_a, text_b, label (or text, label), their origin, and `label_fit` (of
        graded pairs `similarity`): above 0, the text fits its label; see `label_fit.with_fit`.

    Raises:
        InputError: a setting, the task or the inputs are wrong.
        TilthError: no row was kept; the reasons are counted.

    Reference:
        Schick and Schütze 2021, "Generating Datasets with Pretrained Language Models".
    """
    if rows is not None:
        BATCH.check("rows", rows)
    sampling = Sampling(decay, floor, temperature, top_k, top_p, max_new_tokens, multiline)
    settings = Settings(per_input, max_tries, sampling, seed, part_size)
    order = Order(
        task if isinstance(task, Task) else load_task(task),
        lm,
        settings,
        inputs=None if inputs is None else _texts(inputs),
        count=count,
        from_x1=from_x1,
    )
    if out is not None:
        return run_generate(order, Path(out), overwrite=overwrite, rows=rows, quiet=quiet)
    with tempfile.TemporaryDirectory(prefix="tilth-") as folder:
        return run_generate(order, Path(folder) / "run", rows=rows, quiet=quiet)


def _texts(inputs: Sequence[str] | Dataset) -> Sequence[str]:
    if isinstance(inputs, str):
        raise InputError(f"inputs is one text, {inputs!r:.80}: give a list of texts")
    names = getattr(inputs, "column_names", None)
    if names is not None and "text" not in names:
        raise InputError(f"the inputs have no column 'text': there are {', '.join(names)}")
    texts = list(inputs if names is None else inputs["text"])  # type: ignore[call-overload]
    for number, text in enumerate(texts):
        where = f"inputs[{number}]" if names is None else f"inputs, column 'text', row {number},"
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{where} is {text!r:.80}: every input is a text")
        if "\0" in text:
            raise InputError(f"{where} holds a NUL character: remove it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            bad = text[error.start]
            raise InputError(f"{where} holds half a character, {bad!r}: remove it") from None
    return texts


def run_generate(
    order: Order,
    out: Path,
    *,
    overwrite: bool = False,
    rows: int | None = None,
    quiet: bool = False,
) -> Dataset:
    """Do what an order asks in a run folder, or what is left of it, and load the finished set."""
    given = order.from_x1 is None
    if not given:
        refuse_foreign(out)  # before the first texts, which take long
        refuse_other_command(out, "generate")
        firsts = _first_texts(order, out / _FIRST, overwrite=overwrite, rows=rows, quiet=quiet)
        order = order.with_inputs(firsts)
    items = order.items()
    _make(order, items, out, overwrite=overwrite, rows=rows, quiet=quiet, measured=True)
    if given and overwrite and (out / _FIRST / "run.json").is_file():
        with disk_errors(out):
            shutil.rmtree(out / _FIRST)  # of the earlier run; this one was given its inputs
    return load_rows(out)


def _first_texts(
    order: Order, out: Path, *, overwrite: bool, rows: int | None, quiet: bool
) -> list[str]:
    """Write the first texts of a pair task from nothing, in a run folder of their own."""
    stage = order.first_stage()
    items = items_from_nothing(stage.task, stage.count or 0, each_label=False)
    _make(stage, items, out, overwrite=overwrite, rows=rows, quiet=quiet, measured=False)
    texts = [text.strip() for text in load_rows(out)["text"]]
    return list(dict.fromkeys(texts))


def _make(
    order: Order,
    items: Sequence[Item],
    out: Path,
    *,
    overwrite: bool,
    rows: int | None,
    quiet: bool,
    measured: bool,
) -> None:
    """Make the missing parts of a run and its finished data set.

    Args:
        order: what is to be written.
        items: what it is written for.
        out: the run folder.
        overwrite: start the run folder anew.
        rows: sequences decoded side by side.
        quiet: no progress bar.
        measured: whether it is measured how well the texts fit their labels.
    """
    task, lm, settings = order.task, order.lm, order.settings
    parts = -(-len(items) // settings.part_size)
    run = Run.open(
        out,
        command="generate",
        settings={**settings.to_dict(), "task": task.to_dict(), "rows": rows, **_model_facts(lm)},
        fingerprints={"inputs": _fingerprint(items), "model": lm.fingerprint},
        parts=parts,
        outputs=("dataset",),
        overwrite=overwrite,
    )
    with run, Progress(len(items), quiet=quiet) as progress:
        sampler: Sampler | None = None

        def work(index: int, progress: Progress) -> pa.Table:
            nonlocal sampler
            if sampler is None:  # a finished run is not worth loading an engine for
                sampler = make_sampler(order, items, run, rows)
            start = index * settings.part_size
            chosen = items[start : start + settings.part_size]
            make = partial(make_part, task, lm.name, settings, chosen, sampler, progress)
            table = make() if isinstance(lm, LM) else with_usage(lm, make)
            if not measured:
                return table
            return with_fit(table, task, run.resolve("label_fit", lambda: choose_encoder(task)))

        size = settings.part_size
        progress.skip(sum(len(items[part * size : (part + 1) * size]) for part in run.done()))
        complete(run, work, progress=progress)
        tally = write_dataset(run, task, lm)
    if not tally.kept:
        reasons = ", ".join(f"{count} {reason}" for reason, count in tally.drops.most_common())
        remedy = REMEDIES[tally.drops.most_common(1)[0][0]]
        raise TilthError(
            f"{out}: 0 rows kept of {sum(tally.drops.values())} tries ({reasons}): the tries stand "
            f"in its parts; {remedy}"
        )


def _model_facts(lm: LM | Endpoint) -> dict[str, Any]:
    if isinstance(lm, LM):
        return {"model": lm.name, "precision": lm.precision}
    return {"model": lm.name}


def _fingerprint(items: Sequence[Item]) -> str:
    return text_id(_STOP.join(f"{item.source_id}{_STOP}{item.labels[0].name}" for item in items))


def make_sampler(order: Order, items: Sequence[Item], run: Run | None, rows: int | None) -> Sampler:
    """Return what runs the jobs: the local engine, with as many rows as fit, or the endpoint."""
    if not isinstance(order.lm, LM):
        from tilth.generation.endpoint_sampler import CONCURRENCY, EndpointSampler

        concurrency = rows or CONCURRENCY
        return EndpointSampler(order.lm, order.settings.sampling, concurrency=concurrency)
    from tilth.generation.engine import Engine, choose_rows

    lm, sampling = order.lm, order.settings.sampling

    def choose() -> int:
        longest = longest_prompt(order, items)
        return choose_rows(lm, prompt_tokens=longest, max_new_tokens=sampling.max_new_tokens)

    if rows is None:
        rows = int(run.resolve("rows", choose)) if run is not None else choose()
    heads = [label.head for label in order.task.labels]
    return Engine(lm, sampling, heads=heads, rows=rows)


def longest_prompt(order: Order, items: Sequence[Item]) -> int:
    """Return the tokens of the longest prompt the model can still read."""
    from tilth.generation.engine import max_positions

    if not isinstance(order.lm, LM):
        raise TypeError("an endpoint's prompts are counted by its server")
    room = max_positions(order.lm) - order.settings.sampling.max_new_tokens
    longest = sorted(items, key=lambda item: len(item.text or ""))[-64:]
    prompts = [
        prompt
        for item in longest
        for label in item.labels
        for prompt in order.task.prompts(label, item.text)
    ]
    lengths = map(len, order.lm.tokenizer(prompts, verbose=False)["input_ids"])
    return max((length for length in lengths if length <= room), default=room)


def load_rows(out: Path) -> Dataset:
    """Load the kept rows of a finished run."""
    return load_folder(out / "dataset")

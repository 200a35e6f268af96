"""Generate a labelled data set from a task and a language model, in a run folder.

`tilth.generation.attempts` says which texts are dropped, and why.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tilth.data import Card, DatasetWriter, load_folder, text_id
from tilth.data.examples import listed_texts
from tilth.errors import InputError, TilthError
from tilth.files import disk_errors
from tilth.generation.attempts import (
    DROP_REASONS,
    Item,
    Sampler,
    items_from_inputs,
    items_from_nothing,
    make_part,
)
from tilth.generation.contrast import ContrastiveSampler
from tilth.generation.label_fit import choose_encoder, with_fit
from tilth.generation.settings import GenerateSettings, check_amounts
from tilth.generation.task import Task, first_text_task, load_task, refuse_untrained
from tilth.limits import BATCH
from tilth.models import LM, load_lm
from tilth.models.chat import chat_prompt, has_chat_template
from tilth.models.endpoint import Endpoint
from tilth.models.names import loaded
from tilth.models.special_tokens import special_strings
from tilth.runs import (
    Progress,
    Run,
    part_sizes,
    read_run_json,
    refuse_foreign,
    refuse_other_command,
)
from tilth.runs.backends import PartJob, PartWork, make_parts
from tilth.runs.cluster import Cluster, check_fingerprints
from tilth.runs.out_folder import refuse_changes
from tilth.storage import as_path, remove

if TYPE_CHECKING:
    from datasets import Dataset

# The paper draws the x1 of a pair task with top-p alone (section 4).
_FIRST_TEXT_TOP_K = 0
# A first text takes one row where an input of a pair task takes a dozen.
_FIRST_TEXTS_A_PART = 8
_PART, _PAID_PART = 256, 32  # inputs; a stopped run loses the answers of a part
_LONGEST = 64  # items whose prompts are measured to choose the rows
_ASKED_TOGETHER = 64  # jobs whose candidates an endpoint is asked for together
_FIRST = "x1"  # folder of the run that writes the first texts of pairs from nothing
_STOP = "\x1f"
_USAGE_KEY = b"tilth.usage"


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A checked generate request: task, model, items and settings.

    `any_task` lets a model write for instructions that it was not trained on.
    """

    task: Task
    lm: LM | Endpoint
    settings: GenerateSettings
    inputs: Sequence[str] | None = None
    count: int | None = None
    from_x1: int | None = None
    any_task: bool = False

    def __post_init__(self) -> None:
        # The settings record what is done.
        if isinstance(self.lm, LM):
            is_chat = self.settings.chat and has_chat_template(self.lm.tokenizer)
            done = replace(self.settings, chat=is_chat)
        else:  # an endpoint gives no distributions, and applies its own template
            is_chat = self.lm.is_chat
            done = replace(self.settings, chat=False, decay=0.0)
        if done.part_size is None:
            done = replace(done, part_size=_PART if isinstance(self.lm, LM) else _PAID_PART)
        object.__setattr__(self, "settings", done)
        if self.settings.system and not is_chat:
            raise InputError(
                f"model {self.lm.name!r} is prompted without a chat template: leave out --system"
            )
        if isinstance(self.lm, LM) and not self.any_task:
            refuse_untrained(self.task, self.lm.name, self.lm.instructions)
        if isinstance(self.lm, LM) and self.settings.multiline:
            raise InputError("multiline counts at endpoints only: a local model writes one line")
        check_amounts(
            self.task, self.settings, has_inputs=self.inputs is not None, count=self.count,
            from_x1=self.from_x1,
        )  # fmt: skip
        if self.inputs is not None and not len(self.inputs):
            raise InputError("there are no inputs: give at least one text")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model's name: a worker of a cluster loads it."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "lm"}
        precision = self.lm.precision if isinstance(self.lm, LM) else "auto"
        return _load_request, (self.lm.name, precision, self.lm.fingerprint, given)

    def sample(self, items: Sequence[Item]) -> GenerateRequest:
        """Return the request with its longest inputs alone, to choose the rows by."""
        if self.inputs is None:
            return replace(self, count=1)
        longest = nlargest(_LONGEST, items, key=lambda item: len(item.text or ""))
        return self.with_inputs([item.text or "" for item in longest])

    def prompted(self) -> Task:
        """Return the task as the model reads it: in a chat, inputs without special tokens."""
        if not isinstance(self.lm, LM):
            return self.task
        labels, tokenizer = self.task.labels, self.lm.tokenizer
        if self.settings.chat:
            labels = tuple(
                replace(
                    label,
                    instruction=chat_prompt(tokenizer, label.instruction, self.settings.system),
                )
                for label in labels
            )
        special = special_strings(tokenizer)
        return Task(self.task.name, tuple(replace(label, special=special) for label in labels))

    @property
    def part_size(self) -> int:
        """Return the number of inputs of a part."""
        assert self.settings.part_size is not None  # set above
        return self.settings.part_size

    def items(self) -> list[Item]:
        """Return the items to write texts for."""
        if self.inputs is None:
            return items_from_nothing(self.task, self.count or 0, each_label=True)
        return items_from_inputs(self.task, self.inputs, [text_id(text) for text in self.inputs])

    def first_stage(self) -> GenerateRequest:
        """Return the request that generates the first texts (from-x1)."""
        size = self.part_size * _FIRST_TEXTS_A_PART
        settings = replace(self.settings, per_input=1, top_k=_FIRST_TEXT_TOP_K, part_size=size)
        return replace(
            self,
            task=first_text_task(self.task),
            settings=settings,
            count=self.from_x1,
            from_x1=None,
        )

    def with_inputs(self, texts: Sequence[str]) -> GenerateRequest:
        """Return the request with these first texts as inputs."""
        return replace(self, inputs=texts, from_x1=None)


def _load_request(
    name: str, precision: str, fingerprint: str, given: dict[str, Any]
) -> GenerateRequest:
    """Load the model of a pickled request."""
    lm = load_lm(name, precision=precision)
    check_fingerprints({f"model {name}": lm.fingerprint}, {f"model {name}": fingerprint})
    return GenerateRequest(lm=lm, **given)


def generate(
    task: Task | str | Mapping[str, Any],
    lm: LM | Endpoint | str | Path,
    inputs: Sequence[str] | Dataset | None = None,
    *,
    count: int | None = None,
    from_x1: int | None = None,
    per_input: int = 2,
    max_tries: int = 5,
    candidates: int = 1,
    decay: float = 100.0,
    floor: float = 0.01,
    temperature: float = 1.0,
    top_k: int = 5,
    top_p: float = 0.9,
    max_new_tokens: int = 40,
    multiline: bool = False,
    chat: bool = True,
    system: str = "",
    seed: int = 0,
    any_task: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    part_size: int | None = None,
    rows: int | None = None,
    cluster: Cluster | None = None,
    quiet: bool = True,
) -> Dataset:
    """Generate a labelled data set with a language model from a task's instructions.

    `GenerateSettings` describes the arguments from `per_input` to `seed`; same settings and seed,
    same rows.

    Args:
        task: a shipped name, the path of a spec, a spec as a dict, or a loaded task.
        lm: what `load_lm` returns, or its name.
        inputs: the first texts of a pair task; a list of texts, or a data set with a column
            `text`. Equal texts count once.
        count: for single-text tasks: texts wanted for each label.
        from_x1: for pair tasks without inputs: generate this many first texts.
        max_new_tokens: a text not closed by then is dropped.
        chat: prompt a local model by its tokenizer's chat template, if there is one; False for a
            base model whose tokenizer has one nevertheless.
        system: system prompt of a chat model.
        any_task: let a model write for a task that it was not trained on, such as the starter.
        out: the run folder, from which work resumes; default: a temporary folder.
        overwrite: start the run folder anew.
        part_size: inputs decoded and written as one part; None: 256, of an endpoint 32.
        rows: sequences decoded in parallel, chosen from the free memory when None; at an
            endpoint, concurrent requests, 8 when None.
        cluster: where parts are made; None: in this process. Workers load the model by its name.
        quiet: no progress bar.

    Returns:
        The kept rows: text_a, text_b, label (or text, label), their origin, and `label_fit` (of
        graded pairs `similarity`): above 0, the text fits its label.

    Raises:
        InputError: a setting, the task or the inputs are wrong.
        TilthError: no row was kept; the reasons are counted.

    Reference:
        Schick and Schütze 2021, "Generating Datasets with Pretrained Language Models".
    """
    if rows is not None:
        BATCH.check("rows", rows)
    settings = GenerateSettings(
        decay, floor, temperature, top_k, top_p, max_new_tokens, multiline, chat, system,
        per_input, max_tries, candidates, seed, part_size,
    )  # fmt: skip
    request = GenerateRequest(
        task if isinstance(task, Task) else load_task(task),
        loaded(lm, "lm", "tilth.models.lm:load_lm", "fingerprint"),
        settings,
        inputs=None if inputs is None else listed_texts(inputs, "inputs"),
        count=count,
        from_x1=from_x1,
        any_task=any_task,
    )
    how: dict[str, Any] = {"rows": rows, "cluster": cluster, "quiet": quiet}
    if out is not None:
        return run_generate(request, as_path(out), overwrite=overwrite, **how)
    with tempfile.TemporaryDirectory(prefix="tilth-") as folder:
        return run_generate(request, Path(folder) / "run", **how)


def run_generate(
    request: GenerateRequest,
    out: Path,
    *,
    overwrite: bool = False,
    rows: int | None = None,
    cluster: Cluster | None = None,
    quiet: bool = False,
) -> Dataset:
    """Complete a request's run folder and load the finished data set."""
    options: dict[str, Any] = {
        "overwrite": overwrite, "rows": rows, "cluster": cluster, "quiet": quiet
    }  # fmt: skip
    has_inputs = request.from_x1 is None
    if not has_inputs:
        refuse_foreign(out)  # before the first texts, which take long
        refuse_other_command(out, "generate")
        if not overwrite and (out / "run.json").is_file() and not (out / _FIRST).is_dir():
            raise InputError(
                f"{out}: holds a run that was given its inputs: choose another --out, or "
                "--overwrite it"
            )
        stage = request.first_stage()
        items = items_from_nothing(stage.task, stage.count or 0, each_label=False)
        _complete_run(stage, items, out / _FIRST, **options, is_measured=False)
        texts = (text.strip() for text in load_rows(out / _FIRST)["text"])
        request = request.with_inputs(list(dict.fromkeys(texts)))
    _complete_run(request, request.items(), out, **options)
    if has_inputs and overwrite and (out / _FIRST / "run.json").is_file():
        with disk_errors(out):
            remove(out / _FIRST)  # of the earlier run; this one was given its inputs
    return load_rows(out)


def _check_count(out: Path, count: int | None) -> None:
    """Refuse a run of another count; its items would only be said to be others."""
    found = count
    with suppress(TilthError):  # there is no run
        found = read_run_json(out)["resolved"].get("count", count)
    if None not in (found, count) and found != count:
        refuse_changes(out, [f"count is {found} in the folder, {count} asked"])


def _complete_run(
    request: GenerateRequest,
    items: Sequence[Item],
    out: Path,
    *,
    overwrite: bool,
    rows: int | None,
    cluster: Cluster | None,
    quiet: bool,
    is_measured: bool = True,
) -> None:
    """Make the missing parts and the data set of a run; measure label fit with `is_measured`."""
    task, lm, settings = request.task, request.lm, request.settings
    size = request.part_size
    if isinstance(lm, LM):
        _check_room(request.prompted(), lm, settings.max_new_tokens)
    if not overwrite:
        _check_count(out, request.count)
    precision = {"precision": lm.precision} if isinstance(lm, LM) else {}
    joined = _STOP.join(f"{item.source_id}{_STOP}{item.labels[0].name}" for item in items)
    prints = {"inputs": text_id(joined), "model": lm.fingerprint}
    prompted = request.prompted()
    if settings.chat:
        prints["chat prompts"] = text_id(_STOP.join(each.instruction for each in prompted.labels))
    run = Run.open(
        out,
        command="generate",
        settings={
            **asdict(settings), "task": task.to_dict(), "model": lm.name, **precision,
            "rows": rows if isinstance(lm, LM) else None,  # requests at once change no text
        },
        fingerprints=prints,
        parts=-(-len(items) // size),
        outputs=("dataset",),
        overwrite=overwrite,
    )  # fmt: skip
    job = PartJob(
        partial(_start, request.sample(items), rows, is_measured),
        lambda index: items[index * size : (index + 1) * size],
        part_sizes(len(items), size),
    )
    with run:
        run.resolve("count", lambda: request.count)
        make_parts(run, job, cluster, quiet=quiet)
        labels, drops = _write_dataset(run, task, lm)
    if not labels:
        reasons = ", ".join(f"{count} {reason}" for reason, count in drops.most_common())
        remedy = DROP_REASONS[drops.most_common(1)[0][0]]
        raise TilthError(
            f"{out}: 0 rows kept of {drops.total()} attempts ({reasons}): its parts hold "
            f"the attempts; {remedy}"
        )


def _start(sample: GenerateRequest, rows: int | None, is_measured: bool, run: Run) -> PartWork:
    """Return the work on the items of a part."""
    task, prompted, lm, settings = sample.task, sample.prompted(), sample.lm, sample.settings
    sampler = make_sampler(sample, sample.items(), run, rows)
    fit = run.resolve("label_fit", lambda: choose_encoder(task)) if is_measured else None

    def work(_: int, items: Sequence[Item], progress: Progress) -> pa.Table:
        make = partial(make_part, prompted, lm.name, settings, items, sampler, progress)
        table = make() if isinstance(lm, LM) else with_usage(lm, make)
        return table if fit is None else with_fit(table, task, fit)

    return work


def make_sampler(
    request: GenerateRequest, items: Sequence[Item], run: Run | None, rows: int | None
) -> Sampler:
    """Return the sampler: the endpoint's, or the local engine with as many rows as fit."""
    lm, settings = request.lm, request.settings
    if not isinstance(lm, LM):
        from tilth.generation.endpoint_sampler import CONCURRENCY, EndpointSampler

        begun = run is not None and bool(run.done())
        remote = EndpointSampler(lm, settings, concurrency=rows or CONCURRENCY, begun=begun)
        if settings.candidates == 1:
            return remote
        lm.find_scoring()  # before a text is asked for
        return ContrastiveSampler(remote, settings.candidates, decay=0.0, window=_ASKED_TOGETHER)
    from tilth.generation.engine import Engine, choose_rows

    task = request.prompted()

    def choose() -> int:
        longest = _longest_prompt(task, lm, settings, items)
        return choose_rows(lm, prompt_tokens=longest, max_new_tokens=settings.max_new_tokens)

    if rows is None:
        rows = int(run.resolve("rows", choose)) if run is not None else choose()
    heads = [label.head for label in task.labels]
    engine = Engine(lm, settings, heads=heads, rows=rows)
    if settings.candidates == 1:
        return engine
    return ContrastiveSampler(engine, settings.candidates, decay=settings.decay, window=rows)


def _check_room(task: Task, lm: LM, max_new_tokens: int) -> None:
    """Refuse texts for which the model has no room, not even without an input."""
    from tilth.generation.engine import max_positions

    prompts = [label.prompt("" if task.is_pair else None) for label in task.labels]
    shortest = min(map(len, lm.tokenizer(prompts, verbose=False)["input_ids"]))
    if shortest + max_new_tokens > (most := max_positions(lm)):
        raise InputError(
            f"max-new-tokens is {max_new_tokens:,}, and the model reads {most:,} tokens, of which "
            f"the instruction takes {shortest}: lower --max-new-tokens"
        )


def _longest_prompt(task: Task, lm: LM, settings: GenerateSettings, items: Sequence[Item]) -> int:
    """Return the token count of the longest prompt that fits into the model's positions."""
    from tilth.generation.engine import max_positions

    room = max_positions(lm) - settings.max_new_tokens
    longest = nlargest(_LONGEST, items, key=lambda item: len(item.text or ""))
    prompts = [
        label.prompt(item.text)  # those of counter labels are the label's own of another
        for item in longest
        for label in task.labels
    ]
    lengths = map(len, lm.tokenizer(prompts, verbose=False)["input_ids"])
    return max((length for length in lengths if length <= room), default=room)


def load_rows(out: Path) -> Dataset:
    """Load the kept rows of a finished run."""
    return load_folder(out / "dataset")


def with_usage(endpoint: Endpoint, make: Callable[[], pa.Table]) -> pa.Table:
    """Make a part and record its requests and tokens in the table's metadata."""
    before = asdict(endpoint.usage)
    table = make()
    used = {name: now - before[name] for name, now in asdict(endpoint.usage).items()}
    return table.replace_schema_metadata({_USAGE_KEY: json.dumps(used)})


def _write_dataset(run: Run, task: Task, lm: LM | Endpoint) -> tuple[Counter[str], Counter[str]]:
    """Write the data set and its card; count kept rows by label, dropped ones by reason."""
    labels, usage = Counter[str](), Counter[str]()
    with DatasetWriter(run.path / "dataset") as writer:
        for index in range(run.parts):
            table = run.read_part(index)
            usage.update(json.loads((table.schema.metadata or {}).get(_USAGE_KEY, b"{}")))
            kept = writer.write_dropped(table).drop_columns(["item", "tokens", "floor_share"])
            labels.update(kept["label"].to_pylist())
            if task.is_numeric:
                index_of_label = kept.schema.get_field_index("label")
                kept = kept.set_column(index_of_label, "label", kept["label"].cast(pa.float64()))
            writer.write(kept)
        if isinstance(lm, Endpoint):
            run.resolve("usage", lambda: dict(usage))
        writer.write_card(_card(run, task, lm, labels, writer.drops, usage))
    return labels, writer.drops


def _card(
    run: Run,
    task: Task,
    lm: LM | Endpoint,
    labels: Counter[str],
    drops: Counter[str],
    usage: Counter[str],
) -> Card:
    kind = "text pairs" if task.is_pair else "texts"
    return Card(
        title=f"{task.name} written by {lm.name}",
        summary=(
            f"{labels.total()} labelled {kind} written by the language model `{lm.name}` "
            "from an instruction for each label (DINO, Schick and Schütze 2021, arXiv 2104.07540), "
            "made with tilth. Synthetic text: labels say what the model was asked for, nobody has "
            "checked them."
        ),
        command=run.command,
        settings=run.settings,
        counts={"train": dict(labels)},
        drops=dict(drops),
        model=lm.name,
        seed=int(run.settings["seed"]),
        extra=[] if isinstance(lm, LM) else [_usage_section(lm, usage)],
    )


def _usage_section(endpoint: Endpoint, usage: Counter[str]) -> tuple[str, str]:
    """Return the heading and Markdown of the card's section on an endpoint."""
    text = (
        f"The texts were asked for by {'chat' if endpoint.is_chat else 'completions'}. "
        f"Note: {endpoint.statement}.\n\n"
        f"The parts of this set took {usage['requests']:,} requests, {usage['prompt_tokens']:,} "
        f"prompt tokens and {usage['completion_tokens']:,} completion tokens, as the server counts "
        f"(0 where it does not), and {usage['retries']:,} attempts that failed and were made "
        "again. What was asked for parts that an interruption cut short is not counted."
    )
    return "Endpoint", text

"""The pages to try models: rewrite a text, write for a task, search a bank, label a text."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from tilth.errors import InputError
from tilth.generation.task import Task, load_task, parse_task, shipped_tasks
from tilth.view.site import Asked, HttpReply, NotFoundError, Site, go
from tilth.view.workbench import (
    GENERATE,
    KINDS,
    LABEL,
    REWRITE,
    SEARCH,
    Say,
    TryJob,
    banks_of,
    chosen,
    classifiers_of,
)

Fields = Mapping[str, str]
Work = Callable[[Say], Any]

_CANDIDATES, _HITS = 10, 20
_LONGEST = {"text": 2_000, "second": 2_000, "query": 300, "task": 8_000, "inputs": 2_000}
_MOST_LABELS, _MOST_INPUTS, _MOST_ATTEMPTS = 12, 3, 5
_KEPT_CHARACTERS = 8_000  # of a field that is shown again
_SECONDS_FOR_RESULT = 0.25
_DEFAULTS = {
    REWRITE: {"text": "", "meaning": "95", "wording": "20", "tries": "1"},
    GENERATE: {"task": "", "inputs": "A dog sleeps in the sun.", "attempts": "3", "decay": "100",
               "seed": "0", "any_task": ""},
    SEARCH: {"query": "", "bank": ""},
    LABEL: {"text": "", "second": "", "classifier": ""},
}  # fmt: skip


def first_page(_: Site, __: Asked) -> HttpReply:
    """Lead to the first of the pages."""
    return go(f"/try/{REWRITE}")


def try_page(kind: str) -> Callable[[Site, Asked], HttpReply]:
    """Return the page of a kind: its form, and the result of a job if the address names one."""

    def page(site: Site, asked: Asked) -> HttpReply:
        number = asked.query.get("job", "")
        job = site.bench.job(number)
        given = {name: value for name, value in asked.query.items() if name in _DEFAULTS[kind]}
        fields = _DEFAULTS[kind] | given | (dict(job.fields) if job is not None else {})
        lists: dict[str, Any] = {}
        if kind == GENERATE:
            if job is None:
                name = asked.query.get("begin", "sts-x2")
                if name not in shipped_tasks():
                    raise NotFoundError(f"there is no task {name[:80]!r}")
                fields["task"] = _task_text(load_task(name))
            lists = {"tasks": shipped_tasks(), "lm": site.bench.models.lm}
        if kind == SEARCH:
            lists = {"banks": list(banks_of(site.runs, site.bench.models))}
        if kind == LABEL:
            lists = {"classifiers": list(classifiers_of(site.runs, site.bench.models))}
        return site.page(
            f"try_{kind}", kind=kind, kinds=KINDS, fields=fields, job=job, job_id=number,
            page=secrets.token_urlsafe(6), **lists,
        )  # fmt: skip

    return page


def live_job(site: Site, asked: Asked) -> HttpReply:
    """Return the result of a job alone, or what is done for it."""
    return site.page("try_result", job=site.bench.job(asked.query.get("job", "")))


def try_now(kind: str) -> Callable[[Site, Asked], HttpReply]:
    """Return the answer to a form: the work is begun, and the page of its result is next.

    A form that is sent as somebody types is answered with the result, or what is done for it.
    """

    def answer(site: Site, asked: Asked) -> HttpReply:
        form = {name: value[:_KEPT_CHARACTERS] for name, value in asked.form.items()
                if name != "csrf"}  # fmt: skip
        job = TryJob(kind, form, page=form.get("page", "")[:20])
        try:
            _check_lengths(asked.form)
            work, is_quick = _PREPARE[kind](site, form)
        except InputError as error:
            is_quick, work = True, _raising(error)
        if is_quick:
            site.bench.run(job, work, keep=not form.get("live"))
        else:
            site.bench.submit(job, work)
        if not form.get("live"):
            return go(f"/try/{kind}", job=job.id)
        job.done.wait(_SECONDS_FOR_RESULT)
        return site.page("try_result", job=job)

    return answer


def check_task(site: Site, asked: Asked) -> HttpReply:
    """Return what is wrong with a task that is being typed, or what it asks for."""
    task, problem = None, ""
    try:
        _check_lengths(asked.form)
        task = parse_task(asked.form.get("task", ""), most_labels=_MOST_LABELS)
        _inputs_of(task, asked.form)
    except InputError as error:
        problem = str(error)
    return site.page("try_check", task=task, problem=problem)


def _check_lengths(form: Fields) -> None:
    for name, most in _LONGEST.items():
        if len(form.get(name, "")) > most:
            raise InputError(f"the {name} has more than {most:,} characters: shorten it")


def _raising(error: InputError) -> Work:
    def work(_: Say) -> Any:
        raise error

    return work


def _rewrite(site: Site, form: Fields) -> tuple[Work, bool]:
    from tilth.paraphrase.settings import RewriteSettings
    from tilth.view.try_work import rewrites

    text = _text(form, "text")
    settings = RewriteSettings(
        meaning=_number(form, "meaning"), wording=_number(form, "wording"),
        tries=_whole(form, "tries"), n=_CANDIDATES,
    )  # fmt: skip
    bench, models = site.bench, site.bench.models

    def work(say: Say) -> Any:
        from tilth.paraphrase.rewriter import load_paraphraser

        rewriter = bench.load(
            "rewriter", models.rewriter,
            lambda: load_paraphraser(models.rewriter, scorer=models.scorer, device=models.device),
            say,
        )  # fmt: skip
        say("Rewriting.")
        return rewrites(rewriter, text, settings)

    return work, False


def _generate(site: Site, form: Fields) -> tuple[Work, bool]:
    from tilth.generation.settings import GenerateSettings
    from tilth.view.try_work import attempts

    task = parse_task(form.get("task", ""), most_labels=_MOST_LABELS)
    inputs = _inputs_of(task, form)
    count = _whole(form, "attempts")
    if not 1 <= count <= _MOST_ATTEMPTS:
        raise InputError(f"attempts is {count}: give 1 to {_MOST_ATTEMPTS}")
    settings = GenerateSettings(
        decay=_number(form, "decay"), seed=_whole(form, "seed"),
        per_input=count if task.is_pair else 1, max_tries=count if task.is_pair else 1,
    )  # fmt: skip
    bench, models = site.bench, site.bench.models

    def work(say: Say) -> Any:
        from tilth.generation.generate import GenerateRequest
        from tilth.models import load_lm

        lm = bench.load(
            "language model", models.lm, lambda: load_lm(models.lm, device=models.device), say
        )
        request = GenerateRequest(
            task, lm, settings, inputs=inputs, count=None if task.is_pair else count,
            any_task=bool(form.get("any_task")),
        )  # fmt: skip
        return attempts(request, say)

    return work, False


def _search(site: Site, form: Fields) -> tuple[Work, bool]:
    from tilth.view.try_work import hits

    query = _text(form, "query")
    name = form.get("bank", "")
    folder = chosen(banks_of(site.runs, site.bench.models), name, "bank")
    bench = site.bench

    def work(say: Say) -> Any:
        from tilth.bank import Bank

        bank = bench.load(
            "bank", folder, lambda: Bank.open(folder, device=bench.models.device), say
        )
        with bench.searching:
            return hits(bank, query, _HITS)

    return work, bench.loaded("bank", folder) is not None


def _label(site: Site, form: Fields) -> tuple[Work, bool]:
    from tilth.view.try_work import labelled, tagged

    texts = (_text(form, "text"), *filter(None, [form.get("second", "").strip()]))
    name = form.get("classifier", "")
    folder = chosen(classifiers_of(site.runs, site.bench.models), name, "classifier")
    bench = site.bench

    def work(say: Say) -> Any:
        from tilth.models.classifier import load_classifier

        model = bench.load(
            "classifier", folder, lambda: load_classifier(folder, device=bench.models.device), say
        )
        if model.kind != "tags" and model.texts_per_input not in (None, len(texts)):
            remedy = "leave the second text empty" if len(texts) == 2 else "write a second text"
            raise InputError(f"the classifier was not trained on such texts: {remedy}")
        say("Labelling.")
        return tagged(model, " ".join(texts)) if model.kind == "tags" else labelled(model, texts)

    return work, False


_PREPARE: dict[str, Callable[[Site, Fields], tuple[Work, bool]]] = {
    REWRITE: _rewrite, GENERATE: _generate, SEARCH: _search, LABEL: _label
}  # fmt: skip


def _inputs_of(task: Task, form: Fields) -> list[str] | None:
    """Return the first texts of a pair task, one a line."""
    if not task.is_pair:
        return None
    lines = [line.strip() for line in form.get("inputs", "").split("\n") if line.strip()]
    if not 1 <= len(lines) <= _MOST_INPUTS:
        raise InputError(
            f"the task writes a second text for each input, and there are {len(lines)}: give 1 to "
            f"{_MOST_INPUTS}, one a line"
        )
    return lines


def _task_text(task: Task) -> str:
    """Return a shipped task as YAML that is easily changed."""
    lines = [f"task_name: {task.name}", "labels:"]
    for label in task.labels:
        lines += [f"  {json.dumps(label.name)}:", "    instruction: |-"]
        lines += [f"      {line}" for line in label.instruction.split("\n")]
        lines.append(f"    counter_labels: {json.dumps(label.counter_labels)}")
    return "\n".join(lines) + "\n"


def _text(form: Fields, name: str) -> str:
    text = " ".join(form.get(name, "").split())
    if not text:
        raise InputError(f"the {name} is empty: write something")
    return text


def _whole(form: Fields, name: str) -> int:
    value = _number(form, name)
    if not isinstance(value, int):
        raise InputError(f"{name} is {value:g}: give a whole number")
    return value


def _number(form: Fields, name: str) -> float:
    given = form.get(name, "")
    try:
        value = float(given)
        return int(value) if value == int(value) else value
    except (ValueError, OverflowError):
        raise InputError(f"{name} is {given[:40]!r}: give a number") from None

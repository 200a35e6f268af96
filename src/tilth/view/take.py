"""Take annotated rows away: a data set with a card, or a file; bring annotations back."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from tilth.data.card import Card
from tilth.data.writer import DatasetWriter
from tilth.errors import InputError
from tilth.metrics.scores import times_100
from tilth.report.html import count_of
from tilth.view.annotate import sample_of
from tilth.view.annotations import (
    CLASSES,
    GRADE,
    GRADES,
    NOBODY,
    SAME,
    SPANS,
    Annotation,
    Sample,
    SampleItem,
)
from tilth.view.exchange import (
    FORMATS,
    JSONL,
    matched,
    read_records,
    records_of,
    studio_config,
)
from tilth.view.results import SampleResult, is_right, sample_result
from tilth.view.site import Asked, HttpReply, Site, go

ACCEPTED, CORRECTED = "accepted", "corrected"
KINDS = (ACCEPTED, CORRECTED)


def take_file(site: Site, asked: Asked) -> HttpReply:
    """Return a sample with its answers as a file to keep."""
    _, notes, sample = sample_of(site, asked)
    form = asked.query.get("format", JSONL)
    items = notes.items(sample.id)
    if form == "label-studio-config":
        is_pair = any(item.first is not None for item in items)
        config = studio_config(sample.about, is_pair=is_pair)
        return HttpReply(config, "application/xml", filename=f"{_slug(sample)}.xml")
    if form not in FORMATS:
        raise InputError(f"format is {form[:40]!r}: use {', '.join(FORMATS)}")
    text = records_of(sample, items, notes.answers(sample.id), form)
    ending = "jsonl" if form == JSONL else f"{form}.json"
    return HttpReply(
        text.encode("utf-8", errors="replace"),
        "application/json; charset=utf-8",
        filename=f"{_slug(sample)}.{ending}",
    )


def take_set(site: Site, asked: Asked) -> HttpReply:
    """Write the accepted or the corrected rows as a data set, beside the annotations."""
    entry, notes, sample = sample_of(site, asked)
    kind = asked.form.get("kind", "")
    if kind not in KINDS:
        raise InputError(f"kind is {kind[:40]!r}: use {', '.join(KINDS)}")
    folder = notes.folder / f"{_slug(sample)}-{kind}"
    write_set(
        folder, sample, notes.items(sample.id), notes.answers(sample.id), kind, str(entry.folder)
    )
    return go("/results", run=entry.name, sample=sample.id, written=folder.name)


def bring(site: Site, asked: Asked) -> HttpReply:
    """Take the answers of a file into a sample; answers of the same person are replaced."""
    _, notes, sample = sample_of(site, asked)
    records = read_records(asked.body, sample.about)
    found = matched(records, notes.items(sample.id))
    if records and not found:
        raise InputError("no record of the file is a row of this sample: choose the right one")
    known = {(one.place, one.person): one for one in notes.answers(sample.id)}
    given = []
    for place, record in found:
        for name, value, note, flagged in record.answers:
            person, seconds = " ".join(name.split())[:60] or NOBODY, None
            if old := known.get((place, person)):  # other tools have no flags, notes or times
                note, seconds = note or old.note, old.seconds
                value = old.value if value is None and flagged else value  # a flag alone
                flagged = flagged or old.flagged
            given.append(Annotation(place, person, value, note, flagged, time.time(), seconds))
    notes.answer(sample.id, *given)
    left = len(records) - len(found)
    taken = len({(one.place, one.person) for one in given})
    said = f"taken in: {count_of(taken, 'answer')}"
    if left:
        said += f"; left out, no rows of this sample: {count_of(left, 'record')}"
    return HttpReply(f"{said}.\n", "text/plain; charset=utf-8")


def write_set(
    folder: Path,
    sample: Sample,
    items: list[SampleItem],
    answers: list[Annotation],
    kind: str,
    run: str,
) -> None:
    """Write a data set of judged rows with its card.

    Args:
        kind: `ACCEPTED`: rows whose generated label people confirm; `CORRECTED`: all that were
            judged, with the people's label. Rows that somebody flagged are left out.

    Raises:
        InputError: there is no such row.
    """
    found = sample_result(sample, items, answers)
    flagged = {one.place for one in answers if one.flagged}
    chosen = [
        place for place, value in sorted(found.verdicts.items())
        if place not in flagged
        and (sample.about.task != SPANS or items[place].words)  # no training takes no tokens
        and (kind == CORRECTED or is_right(sample.about.task, items[place], value))
    ]  # fmt: skip
    if not chosen:
        raise InputError(f"no row is {kind} yet: judge some first")
    people = Counter(one.place for one in answers if one.value is not None)
    rows = [
        {**_row(sample.about.task, items[place], found.verdicts[place], kind),
         "generated_label": items[place].label or "", "people": people[place]}
        for place in chosen
    ]  # fmt: skip
    with DatasetWriter(folder) as writer:
        names = dict.fromkeys(name for row in rows for name in row)
        writer.write(pa.Table.from_pylist([{**dict.fromkeys(names), **row} for row in rows]))
        left_out = len(flagged & found.verdicts.keys())
        writer.write_card(_card(sample, found, rows, left_out, kind, run))


def _row(task: str, item: SampleItem, value: Any, kind: str) -> dict[str, Any]:
    """Return the texts and the label of a row as trainings read them."""
    if task == SPANS:
        tokens = item.words
        tags = ["O"] * len(tokens)
        for first, last, name in value:
            tags[first:last] = [f"B-{name}", *[f"I-{name}"] * (last - first - 1)]
        return {"tokens": tokens, "tags": tags}
    texts = {"text": item.text} if item.first is None else {
        "text_a": item.first, "text_b": item.text}  # fmt: skip
    if task == GRADE:
        return {**texts, "label": value / GRADES}
    if task == SAME:
        if kind == ACCEPTED and item.label is None:
            return texts
        return {**texts, "label": item.label if kind == ACCEPTED else value}
    return {**texts, "labels" if task == CLASSES else "label": value}


def _card(
    sample: Sample, found: SampleResult, rows: list[dict[str, Any]], flagged: int, kind: str,
    run: str,
) -> Card:  # fmt: skip
    about = sample.about
    labels = Counter(str(row.get("label", row.get("labels", ""))) for row in rows)
    people = len(found.people)
    checked = (
        f"{found.judged:,} rows were checked by {people} {'person' if people == 1 else 'people'}"
        f" (task: {about.task}; drawn {about.draw}, seed {about.seed})."
    )
    if found.whole is not None and about.task != SPANS:
        share, low, high = (times_100(one) for one in found.whole)
        checked += (
            f" Of the rows that the sample was drawn from, {share:.1f}% have the right label "
            f"(95% interval {low:.1f} to {high:.1f})."
        )
    if found.shared:
        alpha = "undefined" if found.alpha is None else f"{found.alpha:.2f}"
        checked += f" {found.shared:,} rows were judged by several people: Krippendorff's alpha "
        checked += f"{alpha}."
    what = {ACCEPTED: "whose generated label people confirmed", CORRECTED: "with people's label"}
    drops = {"flagged": flagged, "judged, not accepted": found.judged - flagged - len(rows)}
    scale = f" Grades from 0 to {GRADES} are divided by {GRADES}." if about.task == GRADE else ""
    return Card(
        title=f"{Path(run).name}: {sample.name}, {kind}",
        summary=f"{len(rows):,} rows {what[kind]}. {checked}{scale}",
        command="view",
        settings={"run": Path(run).name, "sample": sample.name, "task": about.task,
                  "draw": about.draw, "filter": about.fields},
        counts={"train": dict(labels) if len(labels) <= 50 else {"": len(rows)}},
        drops={name: count for name, count in drops.items() if count},
        seed=about.seed,
        texts="those of the run, labelled by people" if kind == CORRECTED else "those of the run",
    )  # fmt: skip


def _slug(sample: Sample) -> str:
    """Return a sample's name as a file name that no other sample has."""
    slug = re.sub(r"[^\w.-]+", "-", sample.name, flags=re.ASCII).strip("-.") or "sample"
    is_own = slug == sample.name and not re.search(r"-\d+\Z", slug)  # as those with an id end
    return slug if is_own else f"{slug}-{sample.id}"

"""The pages to annotate: samples of a run, the row to judge, results as they come."""

from __future__ import annotations

import time
from typing import Any

from tilth.errors import InputError, TilthError
from tilth.runs import read_run_json
from tilth.view.annotations import (
    CLASS,
    CLASSES,
    GRADE,
    GRADES,
    SAME,
    SECONDS_HELD,
    SPANS,
    TASKS,
    Annotation,
    Annotations,
    Sample,
    SampleAbout,
    annotations_folder,
    checked_value,
)
from tilth.view.browse import fields_of, filter_of
from tilth.view.draw import draw_sample, draws_of, usual_labels, usual_task
from tilth.view.results import sample_result
from tilth.view.runs import RunEntry
from tilth.view.site import Asked, HttpReply, NotFoundError, Site, go, number_of

_MOST_ROWS = 20_000
_MOST_DISPUTED = 50  # rows that a page shows
_MOST_LABELS = 1_000
_LONGEST_NAME, _LONGEST_NOTE = 60, 4_000  # characters
TASK_TEXTS = {
    CLASS: "one label", CLASSES: "several labels", GRADE: "how similar, 0 to 5",
    SAME: "equivalent or not", SPANS: "words and their types",
}  # fmt: skip
_LONGEST_LOOK = 600.0  # seconds; who took longer was away
# SemEval's scale of similarity (Agirre et al. 2012), which STS-B uses.
GRADE_TEXTS = (
    "on different topics",
    "not equivalent, on the same topic",
    "not equivalent, share some details",
    "roughly equivalent, important information differs",
    "mostly equivalent, unimportant details differ",
    "completely equivalent",
)


def sample_list(site: Site, asked: Asked) -> HttpReply:
    """Show the samples of a run, and the form of a new one."""
    entry = site.entry(asked)
    if not entry.has_rows:
        raise NotFoundError(entry.no_rows)
    store = site.store(entry)
    is_loading, is_waiting = store.is_loading, store.is_waiting
    chosen = filter_of(asked.query, store)
    task = asked.query.get("task") or usual_task(entry, store)
    samples, labels = annotations_of(site, entry).samples(), usual_labels(store, task)
    return site.page(
        "samples",
        entry=entry,
        store=store,
        is_loading=is_loading,
        is_waiting=is_waiting,
        samples=samples,
        fields=fields_of(chosen),
        matching=store.count(chosen),
        tasks=TASK_TEXTS,
        task=task if task in TASKS else CLASS,
        draws=draws_of(store),
        labels="\n".join(labels[:_MOST_LABELS]),
        more_labels=max(len(labels) - _MOST_LABELS, 0),
        name=f"sample {len(samples) + 1}",
        folder=annotations_of(site, entry).folder,
    )


def add_sample(site: Site, asked: Asked) -> HttpReply:
    """Draw a sample and go to it."""
    entry, form = site.entry(asked), asked.form
    store = site.store(entry, is_whole=True)
    chosen = filter_of(form, store)
    name = _name(form, "name", "a name of the sample")
    task, seed = form.get("task", ""), _whole(form, "seed", 0, 2**32 - 1)
    if task not in TASKS:
        raise InputError(f"task is {task[:40]!r}: use {', '.join(TASKS)}")
    labels = list(dict.fromkeys(filter(None, map(str.strip, form.get("labels", "").split("\n")))))
    if task in (CLASS, CLASSES, SPANS) and not 0 < len(labels) <= _MOST_LABELS:
        raise InputError(f"there are {len(labels)} labels: give 1 to {_MOST_LABELS}, one a line")
    count, overlap = _whole(form, "count", 1, _MOST_ROWS), _whole(form, "overlap", 0, 100)
    drawn = draw_sample(store, chosen, task=task, draw=form.get("draw", ""), count=count, seed=seed)
    about = SampleAbout(
        task=task, labels=labels, draw=form["draw"], seed=seed, overlap=overlap / 100,
        run=entry.name, start=_start(entry), shares=drawn.shares, fields=fields_of(chosen),
    )  # fmt: skip
    number = annotations_of(site, entry).add(name, about, drawn.items)
    return go("/annotate", run=entry.name, sample=number)


def annotate(site: Site, asked: Asked) -> HttpReply:
    """Show the next row of a sample to one person; without a name, ask for it."""
    entry, notes, sample = sample_of(site, asked)
    person = asked.query.get("person", "").strip()
    if not person:
        return site.page("person", entry=entry, sample=sample)
    _name(asked.query, "person", "your name")
    again = asked.number("place")
    place = notes.next_place(sample.id, person) if again is None else again
    done = sample.people.get(person, 0)
    item = None if place is None else notes.item(sample.id, place)
    answers = [] if place is None else notes.answers(sample.id, place)
    said = [one for one in answers if one.person == person]
    return site.page(
        "annotate",
        entry=entry,
        sample=sample,
        person=person,
        place=place,
        item=item,
        words=item.words if item and sample.about.task == SPANS else [],
        said=said[0] if said else None,
        done=done,
        shown=f"{time.time():.3f}",
        grades=list(enumerate(GRADE_TEXTS)),
        minutes_held=SECONDS_HELD // 60,
        is_moved=bool(sample.about.start and sample.about.start != _start(entry)),
    )


def answer(site: Site, asked: Asked) -> HttpReply:
    """Keep an answer and go to the next row."""
    entry, notes, sample = sample_of(site, asked)
    form = asked.form
    person = _name(form, "person", "your name")
    place = _whole(form, "place", 0, _MOST_ROWS)
    value = checked_value(sample.about, notes.item(sample.id, place), form)
    note = form.get("note", "").strip()
    if len(note) > _LONGEST_NOTE:
        raise InputError(f"the note has {len(note):,} characters: give at most {_LONGEST_NOTE:,}")
    now = time.time()
    try:
        seconds = now - float(form.get("shown", ""))
    except ValueError:
        seconds = -1.0
    given = Annotation(
        place, person, value, note, bool(form.get("flag")), now,
        seconds if 0 <= seconds <= _LONGEST_LOOK else None,
    )  # fmt: skip
    notes.answer(sample.id, given)
    return go("/annotate", run=entry.name, sample=sample.id, person=person)


def undo(site: Site, asked: Asked) -> HttpReply:
    """Take back the latest answer of a person and show its row again."""
    entry, notes, sample = sample_of(site, asked)
    person = _name(asked.form, "person", "your name")
    place = notes.undo(sample.id, person)
    return go("/annotate", run=entry.name, sample=sample.id, person=person, place=place)


def results(site: Site, asked: Asked) -> HttpReply:
    """Show what a sample tells so far."""
    return site.page("results", **_results(site, asked))


def live_results(site: Site, asked: Asked) -> HttpReply:
    """Return the figures of a sample alone."""
    return site.page("results_figures", **_results(site, asked))


def annotations_of(site: Site, entry: RunEntry) -> Annotations:
    """Return the annotations of a run."""
    return Annotations(annotations_folder(entry.folder, site.annotations, site.root))


def _results(site: Site, asked: Asked) -> dict[str, Any]:
    entry, notes, sample = sample_of(site, asked)
    items, answers = notes.items(sample.id), notes.answers(sample.id)
    found = sample_result(sample, items, answers)
    remarks = [(one, items[one.place]) for one in answers if one.flagged or one.note]
    said: dict[int, list[Any]] = {place: [] for place in found.disputed[:_MOST_DISPUTED]}
    for one in answers:
        if one.place in said:
            said[one.place].append((one.person, one.value))
    disputed = [(items[place], some) for place, some in said.items()]
    return {
        "entry": entry, "sample": sample, "found": found, "remarks": remarks,
        "disputed": disputed, "most_grade": GRADES, "folder": notes.folder,
        "written": asked.query.get("written", ""),
    }  # fmt: skip


def sample_of(site: Site, asked: Asked) -> tuple[RunEntry, Annotations, Sample]:
    """Return the run, its annotations and the sample that a request names."""
    entry = site.entry(asked)
    notes = annotations_of(site, entry)
    fields = asked.query if asked.query.get("sample") else asked.form
    return entry, notes, notes.sample(number_of(fields, "sample"))


def _start(entry: RunEntry) -> str:
    try:
        return str(read_run_json(entry.folder).get("start", ""))
    except TilthError:
        return ""


def _name(fields: Any, field: str, what: str) -> str:
    text = " ".join(str(fields.get(field, "")).split())
    if not 0 < len(text) <= _LONGEST_NAME:
        raise InputError(f"{what} is missing or too long: give 1 to {_LONGEST_NAME} characters")
    return text


def _whole(fields: Any, field: str, least: int, most: int) -> int:
    number = number_of(fields, field)
    if number is None or not least <= number <= most:
        raise InputError(f"{field} is {number}: give a whole number from {least} to {most:,}")
    return number

"""Read and write annotations as files: own jsonl, and the JSON of Argilla 2 and of Label Studio.

Rows are found again by the key of their content, or else by their texts.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from xml.sax.saxutils import quoteattr

from tilth.errors import InputError
from tilth.view.annotations import (
    CLASSES,
    GRADE,
    GRADES,
    SAME,
    SPANS,
    TASKS,
    Annotation,
    Sample,
    SampleAbout,
    SampleItem,
    checked_value,
    touched_words,
    word_places,
)

JSONL, ARGILLA, LABEL_STUDIO = "jsonl", "argilla", "label-studio"
FORMATS = (JSONL, ARGILLA, LABEL_STUDIO)
_QUESTION = "label"  # its name in Argilla, and of the control in Label Studio
_FIRST, _TEXT = "text_a", "text"
_PEOPLE = uuid.UUID(
    "6e0f6dd4-7c0f-5f43-8b3d-6b0f0c3f7a11"
)  # ids of people in Argilla follow from it


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A row of a file with what people say: person, value, note, flag.

    Attributes:
        label: the generated one, if the file has it.
        task: that people answered, likewise.
    """

    where: str
    key: str | None
    texts: tuple[str | None, str]
    answers: list[tuple[str, Any, str, bool]]
    label: str | None = None
    task: str | None = None


def records_of(
    sample: Sample, items: Sequence[SampleItem], answers: Sequence[Annotation], form: str
) -> str:
    """Return a sample with its answers as the content of a file; rows without any are included."""
    by_place: dict[int, list[Annotation]] = {}
    for one in answers:
        by_place.setdefault(one.place, []).append(one)
    task = sample.about.task
    rows = ((item, by_place.get(place, [])) for place, item in enumerate(items))
    if form == JSONL:
        lines = [json.dumps(_own_record(task, *row), ensure_ascii=False) for row in rows]
        return "".join(f"{line}\n" for line in lines)
    make = _argilla_record if form == ARGILLA else _studio_task
    return json.dumps([make(task, *row) for row in rows], ensure_ascii=False, indent=1) + "\n"


def _own_record(task: str, item: SampleItem, answers: Sequence[Annotation]) -> dict[str, Any]:
    texts = {} if item.first is None else {_FIRST: item.first}
    return {
        "key": item.key, **texts, _TEXT: item.text, "label": item.label, "task": task,
        "annotations": [
            {"person": one.person, "value": one.value, "note": one.note, "flagged": one.flagged}
            for one in answers
        ],
    }  # fmt: skip


def _argilla_record(task: str, item: SampleItem, answers: Sequence[Annotation]) -> dict[str, Any]:
    """Return what `rg.Dataset.records.from_json` reads; the generated label is in the metadata."""
    fields = {} if item.first is None else {_FIRST: item.first}
    responses = [
        {"value": _argilla_value(task, item, one.value),
         "user_id": _user_id(one.person), "status": "submitted"}
        for one in answers if one.value is not None
    ]  # fmt: skip
    return {
        "id": item.key, "fields": {**fields, _TEXT: item.text},
        "metadata": {"generated": item.label or "", "task": task, "people": json.dumps(
            {_user_id(one.person): one.person for one in answers}), "flagged": json.dumps(
            [_user_id(one.person) for one in answers if one.flagged])},
        "suggestions": {}, "responses": {_QUESTION: responses} if responses else {}, "vectors": {},
    }  # fmt: skip


def _user_id(person: str) -> str:
    """Return a person's id in Argilla: the name of who came from there is the id already."""
    try:
        return str(uuid.UUID(person))
    except ValueError:
        return str(uuid.uuid5(_PEOPLE, person))


def _argilla_value(task: str, item: SampleItem, value: Any) -> Any:
    if task != SPANS:
        return value
    return [{"start": start, "end": end, "label": kind}
            for start, end, kind in _characters(item.text, value)]  # fmt: skip


def _studio_task(task: str, item: SampleItem, answers: Sequence[Annotation]) -> dict[str, Any]:
    """Return what Label Studio imports; it refuses `completed_by` of others than its own users."""
    first = {} if item.first is None else {_FIRST: item.first}
    return {
        "data": {**first, _TEXT: item.text, "key": item.key, "generated": item.label or "",
                 "task": task},
        "annotations": [
            {"person": one.person, "flagged": one.flagged, "was_cancelled": one.value is None,
             "result": _studio_result(task, item, one)}
            for one in answers
        ],
    }  # fmt: skip


def _studio_result(task: str, item: SampleItem, given: Annotation) -> list[dict[str, Any]]:
    named = {"from_name": _QUESTION, "to_name": _TEXT}
    found: list[dict[str, Any]] = []
    if given.value is None:
        pass
    elif task == SPANS:
        for start, end, kind in _characters(item.text, given.value):
            value = {"start": start, "end": end, "text": item.text[start:end], "labels": [kind]}
            found.append({**named, "type": "labels", "value": value})
    elif task == GRADE:
        found.append({**named, "type": "choices", "value": {"choices": [str(given.value)]}})
    else:
        choices = given.value if isinstance(given.value, list) else [given.value]
        found.append({**named, "type": "choices", "value": {"choices": choices}})
    if given.note:
        note = {"from_name": "note", "to_name": _TEXT, "type": "textarea"}
        found.append({**note, "value": {"text": [given.note]}})
    return found


def studio_config(about: SampleAbout, *, is_pair: bool) -> str:
    """Return the labelling interface of Label Studio for a sample."""
    first = f'  <Text name="{_FIRST}" value="${_FIRST}"/>\n' if is_pair else ""
    text = f'  <Text name="{_TEXT}" value="${_TEXT}"/>\n'
    names = about.labels
    if about.task == GRADE:
        names = [str(grade) for grade in range(GRADES + 1)]
    if about.task == SAME:
        names = ["yes", "no"]
    if about.task == SPANS:
        lines = "".join(f"    <Label value={quoteattr(name)}/>\n" for name in names)
        control = f'  <Labels name="{_QUESTION}" toName="{_TEXT}">\n{lines}  </Labels>\n'
    else:
        lines = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in names)
        kind = "multiple" if about.task == CLASSES else "single"
        begun = f'  <Choices name="{_QUESTION}" toName="{_TEXT}" choice="{kind}">'
        control = f"{begun}\n{lines}  </Choices>\n"
    note = f'  <TextArea name="note" toName="{_TEXT}" required="false"/>\n'
    return f"<View>\n{first}{text}{control}{note}</View>\n"


def read_records(content: bytes, about: SampleAbout | None = None) -> list[ReadRecord]:
    """Return the rows of a file of annotations; its format is recognized.

    Args:
        about: the sample that they belong to; None: values are taken as they are.

    Raises:
        InputError: a record is damaged, or in no known format; the message names it.
    """
    try:
        text = content.decode("utf-8-sig")
        if text.lstrip()[:1] == "[":
            named = [(f"record {n}", record) for n, record in enumerate(json.loads(text), 1)]
        else:
            named = [(f"line {n}", json.loads(line))
                     for n, line in enumerate(text.split("\n"), 1) if line.strip()]  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise InputError(f"the file is no JSON ({str(error)[:80]}): export it again") from error
    found = []
    for where, record in named:
        try:
            one = _record(where, record)
            kinds = str | None, str, str | int | None
            if not all(map(isinstance, (*one.texts, one.key), kinds)):
                raise TypeError("a text or a key is none")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{where}: is no record of tilth, Argilla 2 or Label Studio "
                f"({type(error).__name__}: {str(error)[:60]}): export the file again"
            ) from error
        if about is not None:
            one = replace(one, answers=list(_fitting(one, about)))
        found.append(one)
    return found


def _record(where: str, record: Any) -> ReadRecord:
    if "annotations" in record and "data" not in record:
        answers = [(str(one["person"]), one["value"], str(one.get("note") or ""),
                    bool(one.get("flagged"))) for one in record["annotations"]]  # fmt: skip
        texts = record.get(_FIRST), record[_TEXT]
        label, task = _generated(record, "label"), _task(record)
        return ReadRecord(where, record.get("key"), texts, answers, label, task)
    return _read_argilla(where, record) if "fields" in record else _read_studio(where, record)


def _read_argilla(where: str, record: Any) -> ReadRecord:
    fields = record["fields"]
    text = fields[_TEXT]
    about = record.get("metadata") or {}
    names = json.loads(about.get("people") or "{}")
    flagged = {*json.loads(about.get("flagged") or "[]")}
    answers = []
    for given in (record.get("responses") or {}).get(_QUESTION, []):
        if given.get("status", "submitted") != "submitted":
            continue  # a draft, or discarded
        value = given["value"]
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = touched_words(text, [(one["start"], one["end"], one["label"]) for one in value])
        person = str(given.get("user_id") or "argilla")
        answers.append((names.get(person, person), value, "", person in flagged))
        flagged.discard(person)
    answers += [(names.get(person, person), None, "", True) for person in sorted(flagged)]
    texts = fields.get(_FIRST), text
    label, task = _generated(about, "generated"), _task(about)
    return ReadRecord(where, record.get("id"), texts, answers, label, task)


def _read_studio(where: str, record: Any) -> ReadRecord:
    data = record["data"]
    text = data[_TEXT]
    answers = []
    for given in record.get("annotations") or ():
        person = given.get("person") or given.get("completed_by") or "label studio"
        if isinstance(person, dict):
            person = person.get("email") or person.get("id")
        value: Any = None
        note, spans = "", []
        for one in given.get("result") or ():
            held = one["value"]
            if one["type"] == "choices":
                value = held["choices"] if len(held["choices"]) != 1 else held["choices"][0]
            elif one["type"] == "rating":
                value = held["rating"]
            elif one["type"] == "labels":
                spans.append((held["start"], held["end"], held["labels"][0]))
            elif one["type"] == "textarea":
                note = "\n".join(held["text"])
        if spans or data.get("task") == SPANS:  # there may be none
            value = touched_words(text, spans)
        elif value is None and data.get("task") == CLASSES:
            value = []
        if given.get("was_cancelled"):
            value = None
        answers.append((str(person), value, note, bool(given.get("flagged"))))
    texts = data.get(_FIRST), text
    label, task = _generated(data, "generated"), _task(data)
    return ReadRecord(where, data.get("key"), texts, answers, label, task)


def _generated(record: Any, name: str) -> str | None:
    """Return a row's generated label; an empty one is none."""
    label = record.get(name)
    return None if label in (None, "") else str(label)


def _task(record: Any) -> str | None:
    """Return the task that a record of tilth names; of other tools' files, none."""
    task = record.get("task")
    return str(task) if task in TASKS else None


def _fitting(record: ReadRecord, about: SampleAbout) -> Iterator[tuple[str, Any, str, bool]]:
    """Yield the answers of a record as the sample's task has them."""
    first, text = record.texts
    item = SampleItem(row=0, key="", first=first, text=text, label=None)
    for person, value, note, flagged in record.answers:
        if value is None:
            yield person, None, note, flagged
            continue
        given = json.dumps(value) if about.task == SPANS else value
        if about.task == CLASSES:
            given = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
        if about.task == GRADE and isinstance(value, float) and value.is_integer():
            given = int(value)
        try:
            yield person, checked_value(about, item, {"value": str(given)}), note, flagged
        except InputError as error:
            raise InputError(f"{record.where}: {error}") from error


def _characters(text: str, spans: Sequence[Sequence[Any]]) -> list[tuple[int, int, str]]:
    """Return spans of words as spans of characters."""
    words = word_places(text)
    return [(words[first][0], words[last - 1][1], kind) for first, last, kind in spans]


def matched(
    records: Sequence[ReadRecord], items: Sequence[SampleItem]
) -> list[tuple[int, ReadRecord]]:
    """Return the records that belong to rows of a sample, with the rows' places.

    Rows of the same content take the records of their key in turn.
    """
    by_key: dict[str, list[int]] = {}
    by_texts: dict[tuple[str | None, str], list[int]] = {}
    for place, item in enumerate(items):
        by_key.setdefault(item.key, []).append(place)
        by_texts.setdefault((item.first, item.text), []).append(place)
    found, turns = [], Counter[int]()
    for record in records:
        places = by_key.get(record.key or "") or by_texts.get(record.texts)
        if places:
            found.append((places[turns[places[0]] % len(places)], record))
            turns[places[0]] += 1
    return found

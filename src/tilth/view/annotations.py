"""Keep annotations: samples of rows, and what each person answered, in SQLite beside a run.

The file is RUN.annotations/annotations.sqlite: outside the run, so that `--overwrite` and copies of
the run leave it alone. An answer is on the disk before it is confirmed; sent twice, it is one.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilth.errors import InputError, TilthError

FOLDER, FILE = ".annotations", "annotations.sqlite"
CLASS, CLASSES, GRADE, SAME, SPANS = "class", "classes", "grade", "same meaning", "spans"
TASKS = (CLASS, CLASSES, GRADE, SAME, SPANS)
GRADES = 5  # the highest grade
YES, NO = "yes", "no"
NO_LABEL = "(no label)"
NOBODY = "someone"  # who gave an answer without a name
LOWEST = "lowest "  # begins the name of a draw by a number
SECONDS_HELD = 600  # for which a row is kept for the one who looks at it
_SECONDS_TO_WAIT = 30.0  # for another writer
_SCHEMA = """
CREATE TABLE IF NOT EXISTS sample (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, about TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS item (
  sample INTEGER NOT NULL REFERENCES sample, place INTEGER NOT NULL, shared INTEGER NOT NULL,
  content TEXT NOT NULL, PRIMARY KEY (sample, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answer (
  sample INTEGER NOT NULL, place INTEGER NOT NULL, person TEXT NOT NULL, value TEXT, note TEXT NOT
  NULL, flagged INTEGER NOT NULL, at REAL NOT NULL, seconds REAL,
  PRIMARY KEY (sample, place, person)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hold (
  sample INTEGER NOT NULL, place INTEGER NOT NULL, person TEXT NOT NULL, since REAL NOT NULL,
  PRIMARY KEY (sample, place)) WITHOUT ROWID;
"""
_NEXT = """
SELECT place FROM item WHERE sample = :sample AND NOT EXISTS (
  SELECT 1 FROM answer WHERE answer.sample = item.sample AND answer.place = item.place
  AND (item.shared = 0 OR person = :person))
AND (shared OR NOT EXISTS (
  SELECT 1 FROM hold WHERE hold.sample = item.sample AND hold.place = item.place
  AND person <> :person AND since > :since))
ORDER BY place LIMIT 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleAbout:
    """How a sample was drawn, and what is asked.

    Attributes:
        labels: to choose from; of spans, the types.
        shares: label -> rows it was drawn from, where labels were drawn alike; else empty.
        overlap: share of the rows that everybody answers.
        start: of the run, which tells apart runs that were made anew in one folder.
        fields: the filter that rows were drawn from.
    """

    task: str
    labels: list[str]
    draw: str
    seed: int
    overlap: float
    run: str
    start: str = ""
    shares: dict[str, int] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def is_lowest(self) -> bool:
        """Whether it holds the rows of the lowest numbers, which say nothing of the others."""
        return self.draw.startswith(LOWEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleItem:
    """A row to annotate, as it was drawn.

    Attributes:
        key: of its content (`row_key`).
        made: what the run says: a label, a list of labels, or spans [first word, word after the
            last, type].
    """

    row: int
    key: str
    first: str | None
    text: str
    label: str | None
    reason: str | None = None
    made: Any = None

    @property
    def words(self) -> list[str]:
        """What spans count: its tokens, or its words."""
        return words_of(self.text)


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample, with its number of rows and each person's number of answers."""

    id: int
    name: str
    about: SampleAbout
    items: int
    people: dict[str, int]
    answered: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """What one person says of one row; `value` is None where it was skipped."""

    place: int
    person: str
    value: Any
    note: str
    flagged: bool
    at: float
    seconds: float | None


def annotations_folder(run: Path, chosen: Path | None = None, root: Path | None = None) -> Path:
    """Return the folder of a run's annotations.

    A data set inside a run, such as its curated set, has its folder in that of the run.

    Args:
        chosen: a folder for the annotations of all runs; None: beside the run.
        root: the folder of all runs, below which runs in it have their place in `chosen`.
    """
    run = run.resolve()
    outer = run
    for parent in run.parents:
        if (parent / "run.json").is_file():
            outer = parent
    inner = run.relative_to(outer)
    place = outer.parent if chosen is None else chosen
    if chosen is not None and root is not None and root.resolve() in outer.parents:
        place = chosen / outer.parent.relative_to(root.resolve())
    return place / f"{outer.name}{FOLDER}" / inner


class Annotations:
    """The annotations of one run; several servers and threads may use them at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / FILE

    def samples(self) -> list[Sample]:
        """Return all samples; nothing is made where there are none."""
        if not self.file.is_file():
            return []
        with self._open() as db:
            return [self._sample(db, row) for row in db.execute("SELECT * FROM sample ORDER BY id")]

    def sample(self, number: int | None) -> Sample:
        """Return a sample by its id.

        Raises:
            InputError: there is none.
        """
        if self.file.is_file():
            with self._open() as db:
                row = db.execute("SELECT * FROM sample WHERE id = ?", [number]).fetchone()
                if row is not None:
                    return self._sample(db, row)
        wrong = (
            "no sample is named" if number is None else f"there is no sample {number} of this run"
        )
        raise InputError(f"{wrong}: choose one on the page of the run")

    def add(self, name: str, about: SampleAbout, items: Sequence[SampleItem]) -> int:
        """Keep a sample and return its id; rows that everybody answers are spread evenly."""
        with self._write() as db:
            if db.execute("SELECT 1 FROM sample WHERE name = ?", [name]).fetchone():
                raise InputError(f"there is a sample {name!r} already: choose another name")
            added = db.execute(
                "INSERT INTO sample (name, about, created) VALUES (?, ?, ?)",
                [name, json.dumps(asdict(about)), time.time()],
            )
            number = int(added.lastrowid or 0)
            shared = [int((n + 1) * about.overlap) > int(n * about.overlap)
                      for n in range(len(items))]  # fmt: skip
            db.executemany(
                "INSERT INTO item VALUES (?, ?, ?, ?)",
                [
                    (number, place, shared[place], json.dumps(asdict(item)))
                    for place, item in enumerate(items)
                ],
            )
            return number

    def next_place(self, sample: int, person: str) -> int | None:
        """Return the place of the next row for a person, and hold it for some minutes.

        A row that one person answers is not given to two at once.
        """
        with self._write() as db:
            now = time.time()
            asked = {"sample": sample, "person": person, "since": now - SECONDS_HELD}
            found = db.execute(_NEXT, asked).fetchone()
            if found is None:
                return None
            hold = "INSERT OR REPLACE INTO hold VALUES (?, ?, ?, ?)"
            db.execute(hold, [sample, found[0], person, now])
            return int(found[0])

    def items(self, sample: int) -> list[SampleItem]:
        """Return the rows of a sample, in their order."""
        query = "SELECT content FROM item WHERE sample = ? ORDER BY place"
        with self._open() as db:
            return [SampleItem(**json.loads(one[0])) for one in db.execute(query, [sample])]

    def item(self, sample: int, place: int) -> SampleItem:
        """Return a row of a sample.

        Raises:
            InputError: there is none.
        """
        query = "SELECT content FROM item WHERE sample = ? AND place = ?"
        with self._open() as db:
            found = db.execute(query, [sample, place]).fetchone()
        if found is None:
            raise InputError(f"the sample has no row {place}")
        return SampleItem(**json.loads(found[0]))

    def answer(self, sample: int, *given: Annotation) -> None:
        """Keep answers, all or none; others of the same person on the same row are replaced."""
        with self._write() as db:
            db.executemany(
                "INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(sample, one.place, one.person,
                  None if one.value is None else json.dumps(one.value), one.note,
                  one.flagged, one.at, one.seconds) for one in given],
            )  # fmt: skip
            gone = "DELETE FROM hold WHERE sample = ? AND place = ? AND person = ?"
            db.executemany(gone, [(sample, one.place, one.person) for one in given])

    def undo(self, sample: int, person: str) -> int | None:
        """Take back a person's latest answer; return its place, None where there is none."""
        with self._write() as db:
            query = "SELECT place FROM answer WHERE sample = ? AND person = ? ORDER BY at DESC"
            found = db.execute(query, [sample, person]).fetchone()
            if found is None:
                return None
            key = [sample, found[0], person]
            db.execute("DELETE FROM answer WHERE sample = ? AND place = ? AND person = ?", key)
            db.execute("INSERT OR REPLACE INTO hold VALUES (?, ?, ?, ?)", [*key, time.time()])
            return int(found[0])

    def answers(self, sample: int, place: int | None = None) -> list[Annotation]:
        """Return the answers of a sample, or of one of its rows, by place and person."""
        query = (
            "SELECT place, person, value, note, flagged, at, seconds FROM answer WHERE sample = ?"
        )
        query += " ORDER BY place, person" if place is None else " AND place = ? ORDER BY person"
        with self._open() as db:
            key = [sample] if place is None else [sample, place]
            return [
                Annotation(
                    where, person, None if value is None else json.loads(value), note,
                    bool(flagged), at, seconds,
                )
                for where, person, value, note, flagged, at, seconds in db.execute(query, key)
            ]  # fmt: skip

    def _sample(self, db: sqlite3.Connection, row: tuple[Any, ...]) -> Sample:
        number, name, about, _ = row
        items = db.execute("SELECT count(*) FROM item WHERE sample = ?", [number]).fetchone()[0]
        people = dict(
            db.execute(
                "SELECT person, count(*) FROM answer WHERE sample = ? GROUP BY person", [number]
            ).fetchall()
        )
        answered = db.execute(
            "SELECT count(DISTINCT place) FROM answer WHERE sample = ?", [number]
        ).fetchone()[0]
        return Sample(number, name, SampleAbout(**json.loads(about)), items, people, answered)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            # A file in a place that cannot be written is read without its lock, which needs files
            # beside it, unless answers stand in one of these.
            is_fixed = self.folder.is_dir() and not os.access(self.folder, os.W_OK)
            is_whole = not self.file.with_name(f"{FILE}-wal").exists()
            how = ("?immutable=1" if is_whole else "?mode=ro") if is_fixed else ""
            place = f"{self.file.absolute().as_uri()}{how}"
            with closing(
                sqlite3.connect(place, _SECONDS_TO_WAIT, isolation_level=None, uri=True)
            ) as db:
                if not is_fixed:
                    db.execute("PRAGMA journal_mode = WAL")
                    db.execute("PRAGMA synchronous = FULL")
                yield db
        except sqlite3.Error as error:
            raise TilthError(
                f"{self.file}: {error}: check the file and its folder, or choose another with "
                "--annotations"
            ) from error
        except (json.JSONDecodeError, TypeError) as error:
            raise TilthError(
                f"{self.file}: is not what tilth wrote ({error}): move it away"
            ) from error

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose changes are on the disk when the block ends, or are undone."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TilthError(
                f"{self.folder}: {error.strerror}: choose another folder with --annotations"
            ) from error
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                for statement in _SCHEMA.split(";\n")[:-1]:
                    db.execute(statement)
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def words_of(text: str) -> list[str]:
    """Return the words of a text that spans count."""
    return [text[start:end] for start, end in word_places(text)]


def word_places(text: str) -> list[tuple[int, int]]:
    """Return start and end of the words that spans count: other spaces than ASCII's are in them."""
    return [match.span() for match in re.finditer(r"\S+", text, re.ASCII)]


def touched_words(text: str, spans: Iterable[tuple[int, int, str]]) -> list[list[Any]]:
    """Return spans of characters as spans of the words that they touch."""
    words = word_places(text)
    found = set()
    for start, end, kind in spans:
        touched = [place for place, (one, stop) in enumerate(words) if one < end and stop > start]
        if touched:
            found.add((touched[0], touched[-1] + 1, kind))
    return sorted(map(list, found))


def checked_value(about: SampleAbout, item: SampleItem, given: Mapping[str, str]) -> Any:
    """Return the answer of a form; None: skipped.

    Raises:
        InputError: it is none of the task's.
    """
    value = given.get("value", "")
    if given.get("skip"):
        return None
    if about.task == CLASS and value in about.labels:
        return value
    if about.task == CLASSES:
        chosen = value.split("\n") if value else []
        if set(chosen) <= set(about.labels):
            return [label for label in about.labels if label in chosen]
    if about.task == GRADE and value in map(str, range(GRADES + 1)):
        return int(value)
    if about.task == SAME and value in (YES, NO):
        return value
    if about.task == SPANS:
        return _checked_spans(value, about.labels, len(item.words))
    raise InputError(f"{value[:60]!r} is no answer to the task {about.task!r}: choose one")


def _checked_spans(text: str, labels: Sequence[str], words: int) -> list[list[Any]]:
    try:
        found = json.loads(text or "[]")
        spans: list[list[Any]] = sorted(
            [int(first), int(last), str(kind)] for first, last, kind in found
        )
    except (ValueError, TypeError, RecursionError):
        raise InputError("the spans cannot be read: load the page again") from None
    end = 0
    for first, last, kind in spans:
        if not (end <= first < last <= words) or kind not in labels:
            raise InputError(f"the span {first} to {last} ({kind[:40]}) does not fit the text")
        end = last
    return spans

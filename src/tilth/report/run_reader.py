"""Reads run.json and the tries of a run folder, finished or not, with bounded memory."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.errors import InputError, TilthError
from tilth.files import check_input
from tilth.report.figures import Health
from tilth.report.quality import health

log = logging.getLogger(__name__)

COLUMNS = (
    "source_id", "item", "text_a", "text_b", "text", "label", "tokens", "floor_share",
    "drop_reason", "label_fit", "similarity",
)  # fmt: skip


def health_of_run(run_folder: str | Path) -> Health:
    """Return the health of a run folder, finished or not.

    Raises:
        InputError: the folder holds no run, or no tries.
    """
    folder = Path(run_folder)
    asked = read_run_json(folder)
    found = health(read_tries(part_files(folder)), unmeasured=unmeasured(asked))
    if not found.labels:
        raise no_tries(folder)
    return found


def unmeasured(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a run whose fit is not measured, and why."""
    chosen = (asked.get("resolved") or {}).get("label_fit")
    return dict(chosen["unmeasured"]) if chosen else {}


def read_tries(parts: Sequence[Path], notices: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the tries of part files, a bounded number of rows at a time.

    A part that cannot be read is left out; the log and `notices` say so.
    """
    yield from read_tables(parts, COLUMNS, notices)


def read_tables(
    parts: Sequence[Path], columns: Sequence[str], notices: list[str] | None = None
) -> Iterator[pa.Table]:
    """Yield some columns of part files, those that are there; otherwise as `read_tries`."""
    for part in parts:
        try:
            yield from _batches(part, columns)
        except (pa.ArrowException, OSError) as error:  # noqa: PERF203 - one part, not all
            log.warning("%s cannot be read and is left out of the report: %s", part, error)
            if notices is not None:
                notices.append(f"{part.name} could not be read and is left out.")


def _batches(part: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    with pq.ParquetFile(part) as file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=65_536, columns=there):
            yield pa.Table.from_batches([batch])


@contextmanager
def refuse_edited(folder: Path) -> Iterator[None]:
    """Turn what a page fails by, where a run's files are not as tilth wrote them, into a line.

    Raises:
        TilthError: a value of run.json, results.json or a part is of another kind or missing.
    """
    try:
        yield
    except (InputError, TilthError):
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TilthError(
            f"{folder}: run.json, results.json or a part holds what tilth did not write "
            f"({type(error).__name__}: {str(error)[:80]}): restore it, or start the run anew"
        ) from error


def command_of(folder: Path) -> str:
    """Return the tilth command of a run; errors as of `read_run_json`."""
    return str(_read(folder).get("command", "generate"))


def read_run_json(folder: Path, command: str = "generate") -> dict[str, Any]:
    """Return what a run was asked for.

    Raises:
        InputError: there is no run.json, or it is of another command.
        TilthError: it cannot be read.
    """
    asked = _read(folder)
    found = asked.get("command", "generate")
    if found != command:
        raise InputError(
            f"{folder}: holds a run of `tilth {found}`, which writes its own page: name a "
            f"{command} run"
        )
    return asked


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    check_input(path)
    try:
        asked = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: no run.json here; give the folder of a run") from None
    except (OSError, ValueError, RecursionError) as error:
        raise TilthError(f"{path}: cannot be read ({error}); restore it or start anew") from error
    if not isinstance(asked, dict):
        raise TilthError(f"{path}: not a JSON object; restore it or start anew")
    return asked


def no_tries(folder: Path) -> InputError:
    """Return the error for a run without any tries."""
    return InputError(f"{folder}: no tries to report in parts/; run `tilth generate` first")


def part_files(folder: Path) -> list[Path]:
    """Return the parts there are, in order."""
    return sorted(folder.glob("parts/part-*.parquet"))

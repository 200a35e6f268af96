"""Run folders that cannot be written, and finished runs that were edited or damaged."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.campaign.commands import LINES, NO_RUN, Command, commands
from tests.campaign.inputs import nested
from tests.campaign.judge import Campaign

# What a stopped case leaves open is no finding.
pytestmark = pytest.mark.filterwarnings("ignore")

RUNS = [
    pytest.param(command, id=command.slug)
    for command in commands()
    if command.makes_run and command.name in LINES and command.name not in NO_RUN
]
# What else reads a run: R stands for it.
READERS = {
    "generate": ["curate R -o O", "train encoder R -b {w}/encoder --device cpu -o O"],
    "curate": ["train encoder R -b {w}/encoder --device cpu -o O"],
    "augment": ["train classifier R -b {w}/encoder --epochs 1 --device cpu -o O"],
    "paraphrase candidates": ["paraphrase corpus R --size 2 --validation 1 --test 1 -o O"],
    "paraphrase corpus": ["paraphrase train R -b {w}/rewriter --max-epochs 1 --device cpu -o O"],
    "paraphrase train": ["paraphrase rewrite {w}/sentences.txt -m R --scorer {w}/scorer -o O"],
    "bank build": [
        "bank info R", "bank check R", "bank search R dog", "bank index R --centroids 2",
        "bank add R {w}/more.txt --workers 1",
    ],
    "train encoder": ["evaluate sts R -d {w}/graded.jsonl"],
    "train simcse": ["evaluate sts R -d {w}/graded.jsonl"],
    "train scorer": ["paraphrase corpus {w}/parallel.jsonl --scorer R --size 2 -o O"],
    "train triplet": ["bank build {w}/more.txt -e R --workers 1 -o O"],
    "train classifier": ["evaluate classify R -d {w}/test.jsonl"],
    "train tagger": ["evaluate tag R -d {w}/tagged.jsonl"],
}  # fmt: skip


def _file(path: Path) -> Path:
    path.write_text("mine")
    return path


def _foreign(path: Path) -> Path:
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    return path


OUTS: dict[str, Callable[[Path], Path]] = {
    "a file": _file,
    "under a file": lambda path: _file(path) / "run",
    "a foreign folder": _foreign,
    "a pipe": lambda path: (os.mkfifo(path), path)[1],
    "a device": lambda _: Path("/dev/null"),
    "a link to itself": lambda path: (path.symlink_to(path), path)[1],
    "a long name": lambda path: path / ("n" * 300),
    "a long path": lambda path: path.joinpath(*["n" * 200] * 30),
    "no place to write": lambda _: Path("/proc/1/tilth"),
    "a folder in place of run.json": lambda path: (path / "run.json").mkdir(parents=True) or path,
}


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
def test_bad_out(campaign: Campaign, command: Command) -> None:
    for number, (what, make) in enumerate(OUTS.items(), len(command.name)):
        for more in (((), ("--overwrite",))[number % 2],):
            out = make(campaign.fresh())
            own = campaign.folder in out.parents and os.path.isdir(out.parent)
            words = [*command.line(campaign.world, out=out), *more]
            campaign.run(words, kept=out.parent if own else None, may_work=False, what=what,
                         names=[str(out.parent)[:150], "--out"])  # fmt: skip
    for other in ("generate", "bank-build", "train-encoder"):
        if other != command.slug:
            out = campaign.copy(campaign.world / "runs" / other)
            for more in ((), ("--overwrite",)):
                words = [*command.line(campaign.world, out=out), *more]
                campaign.run(words, kept=out, may_work=False, names=[str(out)])
    for name in ("a\nerror: b", os.fsdecode(b"\xff")):
        campaign.run(command.line(campaign.world, out=campaign.fresh(name)))


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
def test_out_holds_the_input(campaign: Campaign, command: Command) -> None:
    """An output that is, holds or lies in the input: refused each time, or fine each time."""
    line = command.line(campaign.world)
    source = Path(line[len(command.name.split())])
    if not source.exists():
        return
    place = campaign.fresh("input")
    (shutil.copytree if source.is_dir() else shutil.copy2)(
        source, place if source.is_dir() else (place.mkdir(), place)[1] / source.name
    )
    line = [str(place) if word == str(source) else word for word in line]
    for out in (place, place.parent):
        for more in ((), ("--overwrite",)):
            campaign.run([*line, "--out", str(out), *more], kept=place, may_work=False)
    first = campaign.run([*line, "--out", str(place / "out")])
    again = campaign.run([*line, "--out", str(place / "out")])
    if first != again:
        campaign.fail("refused later", f"{command.name} --out in its input: {first}, then {again}")


def paths_in(value: Any, depth: int = 3) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value inside a JSON value; of a list its first entry."""
    yield ()
    if depth and isinstance(value, dict):
        for key, inner in value.items():
            yield from ((key, *rest) for rest in paths_in(inner, depth - 1))
    elif depth and isinstance(value, list) and value:
        yield from ((0, *rest) for rest in paths_in(value[0], depth - 1))


_ODD_JSON = ["null", "-1", '"x"', "[]", "{}", str(2**70), "1e400", '["\\ud800"]', nested(400),
             "0.5", '{"a": {"b": [null]}}', "true", '"/etc/hostname"', '"../../x"']  # fmt: skip


def edited(text: str, path: tuple[Any, ...], number: int) -> str:
    """Return JSON with another value at a place."""
    value = json.loads(text)
    mark = "@@"
    if not path:
        return _ODD_JSON[number % len(_ODD_JSON)]
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = mark
    return json.dumps(value).replace(f'"{mark}"', _ODD_JSON[number % len(_ODD_JSON)])


def edits_of(run: Path) -> Iterator[tuple[str, Callable[[Path], Any]]]:
    """Yield what can be done to a run: its name and the change of a copy."""
    files = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    number = 0
    for file in files:
        for name, change in _WHOLE.items():
            yield f"{file} {name}", lambda copy, f=file, c=change: c(copy / f)
        if file.suffix == ".json" and file.name not in ("tokenizer.json", "config.json"):
            text = (run / file).read_text()
            for path in paths_in(json.loads(text)):
                number += 5  # another value for each place, so that each meets some
                new = edited(text, path, number)
                yield (
                    f"{file} {'.'.join(map(str, path))} = {new[:20] if not path else ''}"
                    f"{_ODD_JSON[number % len(_ODD_JSON)][:20]}",
                    lambda copy, f=file, new=new: (copy / f).write_text(new),
                )
    for folder in sorted({file.parent for file in files} - {Path()}):
        yield f"{folder} deleted", lambda copy, f=folder: shutil.rmtree(copy / f)


def _other_rows(path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pq.read_table(path).select([0]).rename_columns(["other"]), path)
    elif path.suffix == ".safetensors":
        path.write_bytes(path.read_bytes()[:8] + b"{}" + path.read_bytes()[10:])
    else:
        path.write_bytes(b"\xff\xfe\0" * 9)


_WHOLE: dict[str, Callable[[Path], Any]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: os.truncate(path, 0),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "of another schema": _other_rows,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
def test_edited_run(campaign: Campaign, command: Command) -> None:
    """The command itself and what reads its run end in one line, whatever the folder holds."""
    run = campaign.world / "runs" / command.slug
    readers = ["", "report R", *READERS.get(command.name, [])]
    # Folders are read in one way: each command meets some of the edits.
    for number, (what, change) in enumerate(list(edits_of(run))[len(command.name) % 4 :: 4]):
        copy = campaign.copy(run)
        change(copy)
        line = readers[number % len(readers)].format(w=campaign.world)
        words = line.replace(" O", f" {campaign.fresh()}").split()
        words = [str(copy) if word == "R" else word for word in words]
        campaign.run(words or command.line(campaign.world, out=copy), what=what)
        shutil.rmtree(copy.parent)


@pytest.mark.slow
@pytest.mark.parametrize("command", RUNS)
def test_altered_parts(campaign: Campaign, command: Command) -> None:
    """Parts that were emptied, swapped or taken from another run are noticed or made again."""
    run = campaign.world / "runs" / command.slug
    parts = sorted(run.glob("parts/part-*.parquet"))
    if not parts or not (run / "dataset").exists():
        return
    alike = list(campaign.world.glob("runs/*/parts/part-00000.parquet"))
    for what, table in (
        ("emptied", pq.read_table(parts[0]).slice(0, 0)),
        ("halved", pq.read_table(parts[0]).slice(0, pq.read_metadata(parts[0]).num_rows // 2)),
        ("of another run", pq.read_table(next(one for one in alike if one != parts[0]))),
    ):
        copy = campaign.copy(run)
        shutil.rmtree(copy / "dataset")
        pq.write_table(table, copy / "parts" / parts[0].name)
        code = campaign.run(command.line(campaign.world, out=copy), what=what)
        if code == 0 and _hash(copy / "dataset") != _hash(run / "dataset"):
            campaign.fail("wrongly accepted", f"{command.name}: a part {what}")


def _hash(folder: Path) -> str:
    rows = [pq.read_table(path).to_pylist() for path in sorted(folder.rglob("*.parquet"))]
    return hashlib.sha256(repr(rows).encode()).hexdigest()

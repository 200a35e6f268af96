"""Bad files and folders: each has a name in the field's words, made once."""

import gzip
import io
import os
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DEEP = 900
ROW = '{"text": "a dog runs", "label": "animal"}\n'
PAIR = '{"text_a": "a dog runs", "text_b": "a cat runs", "label": %s}\n'

LABEL = '{"text": "a", "label": %s}\n'
NAMED = '{"task_name": "a", "labels": %s}'
ONE = '{instruction: "\\""}'


class RunsCode:
    """An object whose unpickling leaves a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> Any:
        return (Path.touch, (Path(self.mark),))


def nested(depth: int = DEEP) -> str:
    return "[" * depth + "]" * depth


def parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def _invalid_utf8() -> bytes:
    raw = pa.array([b"\xff\xfe dog", b"a cat"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    return parquet(pa.table({"text": texts, "label": ["a", "b"]}))


def files() -> dict[str, bytes]:
    """Return the bad files: name -> bytes."""
    good = parquet(pa.table({"text": ["a dog", "a cat"] * 50, "label": ["a", "b"] * 50}))
    zipped = gzip.compress((ROW * 500).encode())
    rows: dict[str, str] = {
        "deep.jsonl": LABEL % nested(),
        "deep.json": NAMED % nested(),
        "deeper.jsonl": LABEL % nested(200_000),
        "long-number.jsonl": LABEL % ("9" * 5000),
        "long-number.json": NAMED % ("9" * 5000),
        "nan-label.jsonl": (PAIR % "NaN") * 4,
        "infinite-label.jsonl": (PAIR % "1e999") * 4,
        "same-key-twice.jsonl": '{"text": "a", "text": "b", "label": 1}\n',
        "other-columns.jsonl": '{"a": 1, "b": "c"}\n' * 3,
        "no-object.jsonl": '[1, 2]\n"a"\n3\n',
        "half-a-row.jsonl": ROW + ROW[:20],
        "mixed-labels.jsonl": ROW + '{"text": "b", "label": 3}\n{"text": "c", "label": null}\n',
        "numbers-as-texts.jsonl": '{"text": 1, "label": "a"}\n{"text": 2, "label": "b"}\n',
        "objects-as-texts.jsonl": '{"text": {"a": 1}, "label": "a"}\n',
        "empty-objects.jsonl": '{"text": "a", "label": "b", "more": {}}\n' * 3,
        "empty-texts.jsonl": '{"text": "", "label": "a"}\n{"text": " ", "label": "b"}\n',
        "empty-labels.jsonl": '{"text": "a", "labels": []}\n{"text": "b", "labels": []}\n',
        "ragged-tags.jsonl": '{"tokens": ["a", "dog"], "tags": ["O"]}\n',
        "no-tags.jsonl": '{"tokens": [], "tags": []}\n' * 3,
        "bad-probabilities.jsonl": '{"text": "a", "label": "x", "probabilities": [2, -1]}\n' * 3,
        "short-probabilities.jsonl": '{"text": "a", "label": "x", "probabilities": []}\n' * 3,
        "lone-surrogate.jsonl": '{"text": "\\ud800", "label": "\\udfff"}\n' * 3,
        "lone-surrogate.json": '{"task_name": "a", "labels": {"\\ud800": {"instruction": "\\""}}}',
        "one-column.csv": "text\na\nb\n",
        "ragged.csv": 'text,label\n"a,b\nc\nd,e,f\n',
        "ragged.tsv": "text\tlabel\na\tb\tc\n\n\n",
        "nul.csv": "text,label\na\0b,c\n",
        "nul.txt": "a dog\0runs\n",
        "nul.jsonl": '{"text": "a\0b", "label": "c"}\n',
        "blank.txt": "\n \n\t\n",
        "10-mb-line.txt": "a dog runs " * 900_000,
        "10-mb-line.jsonl": '{"text": "%s", "label": "a"}\n' % ("dog " * 2_500_000),
        "not.json": "{",
        "not.yaml": "a: [b\n\tc",
    }
    found = {name: text.encode() for name, text in rows.items()}
    found |= {f"empty.{kind}": b"" for kind in ("txt", "jsonl", "csv", "parquet", "json", "yaml")}
    found |= {f"binary.{kind}": bytes(range(256)) * 16 for kind in ("txt", "jsonl", "parquet", "x")}
    found |= {
        "utf-16.txt": ("a dog runs\n" * 5).encode("utf-16"),
        "utf-16.jsonl": ROW.encode("utf-16"),
        "utf-16.json": '{"task_name": "a"}'.encode("utf-16"),
        "bom.csv": b"\xef\xbb\xbf",
        "not-utf-8.txt": b"a dog \xff\xfe runs\n",
        "not-utf-8.jsonl": b'{"text": "\xff", "label": "a"}\n',
        "not-utf-8.csv": b"text,label\n\xff,b\n",
        "truncated.jsonl.gz": zipped[: len(zipped) // 2],
        "changed.jsonl.gz": zipped[:40] + b"\0\0\0\0" + zipped[44:],
        "no-gzip.txt.gz": b"a dog runs\n",
        "bomb.txt.gz": gzip.compress(b"\0" * (64 << 20), 1),
        "truncated.parquet": good[: len(good) // 2],
        "no-footer.parquet": good[:-8] + b"\0" * 8,
        "changed.parquet": good[:60] + b"\xff" * 40 + good[100:],
        "invalid-utf-8.parquet": _invalid_utf8(),
        "no-rows.parquet": parquet(pa.table({"text": pa.array([], pa.string())})),
        "no-columns.parquet": parquet(pa.table({})),
        "other-schema.parquet": parquet(pa.table({"a": [1.5], "b": [[{"c": None}]]})),
        "same-column-twice.parquet": parquet(pa.table([["a"], ["b"]], names=["text", "text"])),
    }
    return found


TASKS = {
    "aliases": 'task_name: t\nlabels: {x: {instruction: "\\"", counter_labels: [&a [x, x], '
    + ", ".join(f"&{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdefghij")) + "]}}\n",
    "aliases-aside": f"task_name: t\nlabels: {{x: {ONE}}}\n"
    + "more: &m0 [1, 1]\n" + "".join(f"m{n}: &m{n} [*m{n - 1}, *m{n - 1}]\n" for n in range(1, 40)),
    "itself": "task_name: t\nlabels: &a {x: *a}\n",
    "date-name": f'task_name: 2020-13-45\nlabels: {{x: {ONE}}}\n',
    "date-label": f'task_name: t\nlabels: {{2020-13-45: {ONE}}}\n',
    "tag-int": "task_name: !!int abc\nlabels: {}\n",
    "tag-bool": "task_name: !!bool maybe\nlabels: {}\n",
    "tag-python": "task_name: !!python/object/apply:os.system ['touch MARK']\nlabels: {}\n",
    "tag-binary": "task_name: !!binary '%%%'\nlabels: {}\n",
    "tag-timestamp": "task_name: !!timestamp nope\nlabels: {}\n",
    "tag-set": "task_name: !!set {a, b}\nlabels: !!omap [a: b]\n",
    "unknown-tag": "task_name: !nope a\nlabels: {}\n",
    "long-number": f"task_name: {'9' * 5000}\nlabels: {{}}\n",
    "long-number-label": f'task_name: t\nlabels: {{{"9" * 5000}: {{instruction: "\\""}}}}\n',
    "deep": f"task_name: t\nlabels: {nested(5000)}\n",
    "surrogate": f'task_name: t\nlabels: {{"\\ud800": {ONE}}}\n',
    "escape": f'task_name: t\nlabels: {{"\\e[31m": {ONE}}}\n',
    "sequence-key": "task_name: t\nlabels: {? [a, b] : c}\n",
    "merge": "task_name: t\nlabels: {<<: [1, 2]}\n",
    "two-documents": "task_name: t\n---\ntask_name: u\n",
    "numbers-alike": f'task_name: t\nlabels: {{"1": {ONE}, "1.0": {ONE}}}\n',
    "numbers-alike-zero": f'task_name: t\nlabels: {{"1": {ONE}, "01": {ONE}}}\n',
    "number-with-line": f'task_name: t\nlabels: {{"1_0": {ONE}, "2": {ONE}}}\n',
    "infinite": f'task_name: t\nlabels: {{"inf": {ONE}, "1": {ONE}}}\n',
    "no-name": f'labels: {{x: {ONE}}}\n',
    "long-name": f'task_name: {"n" * 5000}\nlabels: {{x: {{instruction: "\\""}}}}\n',
    "path-name": f'task_name: ../../x\nlabels: {{x: {ONE}}}\n',
    "empty-name": f'task_name: ""\nlabels: {{x: {ONE}}}\n',
    "list": "- a\n- b\n",
    "number": "3\n",
    "anchors-open": "task_name: *nope\n",
}  # fmt: skip


def make_files(folder: Path, mark: Path) -> dict[str, Path]:
    """Write the bad files and folders; return name -> path."""
    folder.mkdir()
    found: dict[str, Path] = {}
    for name, data in files().items():
        found[name] = folder / name
        found[name].write_bytes(data)
    for name, text in TASKS.items():
        found[f"task-{name}.yaml"] = path = folder / f"task-{name}.yaml"
        path.write_text(text.replace("MARK", str(mark)), encoding="utf-8")
    for name, make in _ODD.items():
        found[name] = make(folder, mark)
    return found


def write(path: Path, data: bytes = ROW.encode()) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _fifo(folder: Path, _: Path) -> Path:
    os.mkfifo(folder / "pipe.jsonl")
    return folder / "pipe.jsonl"


def _loop(folder: Path, _: Path) -> Path:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop"


def _not_utf8(folder: Path, _: Path) -> Path:
    return write(folder / os.fsdecode(b"name-\xff.jsonl"), ROW[:-5].encode())


def _folder(*names: str) -> Callable[[Path, Path], Path]:
    def make(folder: Path, mark: Path) -> Path:
        place = folder / ("folder-of-" + ("-".join(names) or "nothing"))
        place.mkdir()
        for name in names:
            if name == "itself":
                (place / "itself").symlink_to(place)
            elif name == "pipe.txt":
                os.mkfifo(place / name)
            elif name.endswith(".pkl"):
                write(place / name, pickle.dumps(RunsCode(mark)))
            else:
                write(place / name, b"{" if name.endswith("json") else b"\xff\xfe")
        return place

    return make


_ODD: dict[str, Callable[[Path, Path], Path]] = {
    "missing": lambda folder, _: folder / "missing.jsonl",
    "under a file": lambda folder, _: folder / "blank.txt" / "x.jsonl",
    "/dev/zero": lambda *_: Path("/dev/zero"),
    "/dev/null": lambda *_: Path("/dev/null"),
    "/dev/full": lambda *_: Path("/dev/full"),
    "/": lambda *_: Path("/proc/1"),
    "pipe": _fifo,
    "loop": _loop,
    "to a pipe": lambda folder, _: _link(folder / "linked.jsonl", folder / "pipe.jsonl"),
    "long name": lambda folder, _: folder / ("n" * 300 + ".jsonl"),
    "long path": lambda folder, _: folder.joinpath(*["n" * 200] * 30),
    "not UTF-8": _not_utf8,
    "line feed": lambda folder, _: write(folder / "line\nerror: feed.jsonl", b"{\n"),
    "escape": lambda folder, _: write(folder / "\x1b[31mred\x1b]0;title\x07.jsonl", b"{\n"),
    "glob": lambda folder, _: write(folder / "[ab]*?.jsonl", b"{\n"),
    "markup": lambda folder, _: write(folder / "[red]a[/red][/].jsonl", b"{\n"),
    "folder": _folder(),
    "folder of binary": _folder("a.txt", "b.jsonl"),
    "folder of itself": _folder("itself"),
    "folder of pipes": _folder("pipe.txt"),
    "folder of run.json": _folder("run.json"),
    "folder of bank.json": _folder("bank.json"),
    "folder of pickle": _folder("data.pkl", "state.json"),
    "folder of config": _folder("config.json"),
    "folder of modules": _folder("modules.json"),
    "folder of tables": _folder("data.parquet"),
    "folder of arrow": _folder("dataset_info.json", "state.json", "data.arrow"),
    "dataset script": lambda folder, mark: _script(folder / "scripted", mark),
    "card outside": lambda folder, _: _card(folder / "card-outside", "../../labelled.jsonl"),
    "card absolute": lambda folder, _: _card(folder / "card-absolute", "/etc/hostname"),
    "card of the hub": lambda folder, _: _card(folder / "card-hub", "hf://datasets/a/b/c.jsonl"),
    "card of the net": lambda folder, _: _card(folder / "card-net", "http://127.0.0.1:9/c.jsonl"),
    "card bomb": lambda folder, _: _card(folder / "card-bomb", TASKS["aliases"]),
    "card python": lambda folder, _: _card(
        folder / "card-python", "!!python/object/apply:os.abort []"
    ),
    "openai:": lambda *_: Path("openai:http:"),
    "words:": lambda *_: Path("words:/dev/zero"),
    "words-idf:": lambda folder, _: Path(f"words-idf:{folder / 'binary.txt'}"),
    "usif:": lambda folder, _: Path(f"usif:{folder / 'pipe.jsonl'}"),
    "cosine:": lambda folder, _: Path(f"cosine:{folder / 'folder-of-nothing'}"),
    "own home": lambda *_: Path("~nobody-here/x.jsonl"),
    "option": lambda *_: Path("--json"),
    "hub id": lambda *_: Path("no-such-owner-x/no-such-name-x"),
}


def _link(path: Path, to: Path) -> Path:
    path.symlink_to(to)
    return path


def _script(folder: Path, mark: Path) -> Path:
    write(folder / "scripted.py", f"open({str(mark)!r}, 'w')\n".encode())
    write(folder / "train.jsonl", b'{"x": 1}\n')
    return folder


def _card(folder: Path, files: str) -> Path:
    text = f"---\nconfigs:\n- config_name: default\n  data_files: {files}\n---\n"
    write(folder / "README.md", text.encode())
    return folder

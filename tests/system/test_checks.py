"""Arguments are checked before a command begins, and before anything heavy is imported."""

import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.tiny.calls import python
from tilth.cli.app import Command
from tilth.cli.main import app
from tilth.limits import Number
from tilth.recipes.catalog import NAMES

HEAVY = (
    "torch", "transformers", "datasets", "sklearn", "scipy", "numba", "pandas", "pyarrow", "numpy",
)  # fmt: skip
# Of each command, words that it takes but for what is wrong. FILE, BANK and DIR are there.
WHOLE = {
    "quickstart": "",
    "generate": "sts-x2 --inputs FILE --out OUT",
    "curate": "FILE --out OUT",
    "report": "RUN",
    "view": "DIR",
    "paraphrase": "FILE --out OUT",
    "paraphrase candidates": "FILE --out OUT",
    "paraphrase corpus": "FILE --out OUT",
    "paraphrase train": "FILE --out OUT",
    "bank build": "FILE --out OUT",
    "bank add": "BANK FILE",
    "bank search": "BANK text",
    "bank info": "BANK",
    "bank check": "BANK",
    "bank index": "BANK",
    "augment": "FILE --bank BANK --out OUT",
    "grow": "--train FILE --raw FILE --out OUT",
    "fewshot": "FILE --bank BANK --test FILE --out OUT",
    "train encoder": "FILE --out OUT",
    "train simcse": "FILE --out OUT",
    "train scorer": "FILE --out OUT",
    "train triplet": "FILE --out OUT",
    "train classifier": "FILE --out OUT",
    "train tagger": "FILE --out OUT",
    "train adapt": "FILE --out OUT",
    "evaluate sts": "starter --data FILE",
    "evaluate classify": "starter --data FILE",
    "evaluate tag": "starter --data FILE",
    "evaluate glue": "rte=starter --data DIR",
    "predict": "starter FILE --out OUT",
    "export": "starter --out OUT",
    "recipe show": "dino-table1",
    "recipe run": "dino-table1 --data DIR --out OUT",
}
HUGE = (str(2**80), "nan", "inf", "1e308")  # whole numbers refuse the last three as no number


def leaves(group: Any, path: str = "") -> Iterator[tuple[str, Command]]:
    for name, listed in group.commands.items():
        one = getattr(listed, "command", listed)
        where = f"{path} {name}".strip()
        if isinstance(one, Command):
            yield where, one
        else:
            yield from leaves(one, where)


LEAVES = dict(leaves(typer.main.get_command(app)))


def wrong() -> Iterator[tuple[str, str]]:
    """Yield commands with one wrong word, and what is said."""
    huge = cycle(HUGE)
    for name, words in WHOLE.items():
        whole = f"{name} {words}".split()
        for place, word in enumerate(whole):
            if word in ("FILE", "BANK", "RUN", "DIR", "starter"):
                for bad in ("./no-such", "no/such.jsonl")[: 1 if word == "starter" else 2]:
                    yield " ".join([*whole[:place], bad, *whole[place + 1 :]]), "no"
            if word == "OUT":
                for bad in ("FILE", "FILE/out", "LONG", "LOOP"):
                    yield " ".join([*whole[:place], bad, *whole[place + 1 :]]), "choose a"
        path = "paraphrase rewrite" if name == "paraphrase" else name
        for parameter in LEAVES[path].params:
            option = max(parameter.opts, key=len)
            if parameter.name == "device":
                yield f"{name} {words} --device tpu", "device 'tpu' is unknown"
            if not option.startswith("--"):
                continue
            if isinstance(LEAVES[path].limits.get(str(parameter.name)), Number):
                low = "-2" if parameter.name in ("min_similarity", "min_label_fit") else "-1"
                for bad in (low, next(huge)):
                    yield f"{name} {words} {option} {bad}", option
            elif parameter.name in LEAVES[path].limits:
                yield f"{name} {words} {option} nonesuch", "nonesuch"
            if parameter.name in ("text", "label") and name != "bank search" and "FILE" in words:
                yield f"{name} {words} {option} nope", "no column 'nope': there are text, label"
            if parameter.name in ("model", "base", "scorer", "forward", "encoder", "teacher"):
                yield f"{name} {words} {option} ./no-such", "no-such"


def test_the_list_of_commands_shows_the_beginning_of_their_help() -> None:
    for name, listed in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        summary = " ".join(listed.command.help.split("\n\n")[0].split())
        assert (name, listed.help) == (name, summary)


CHILD = """
import contextlib, io, json, sys
import typer.main
from tilth.cli.main import app
commands = typer.main.get_command(app)  # made once: that takes longer than a check
for line in sys.stdin:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            commands.main(json.loads(line))
        except SystemExit as ended:
            code = ended.code
    heavy = [name for name in HEAVY if name in sys.modules]
    print(json.dumps([code, said.getvalue(), heavy]), flush=True)
    if heavy:
        break
""".replace("HEAVY", repr(HEAVY))


def test_wrong_arguments_load_nothing_heavy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "a", "label": "b"}\n')
    (tmp_path / "bank").mkdir()
    shard = {"name": "shard-00000", "sentences": 1, "text_bytes": 1, "files": {}}
    manifest = {
        "version": 1, "encoder": "starter", "fingerprint": "0", "dimension": 8, "format": "int8",
        "rules": {}, "near": True, "fours": 0, "twos": 0, "codec": "", "built": [], "sources": {},
        "documents": 1, "jobs": 1, "dropped": {}, "shards": [shard], "created": "", "versions": {},
    }  # fmt: skip
    (tmp_path / "bank" / "bank.json").write_text(json.dumps(manifest))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "empty").mkdir()
    run = {
        "command": "generate", "settings": {}, "fingerprints": {}, "parts": 1, "resolved": {},
        "versions": {}, "outputs": [],
    }  # fmt: skip
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    places = {
        "FILE": str(file), "FILE/out": f"{file}/out", "BANK": str(tmp_path / "bank"),
        "RUN": str(tmp_path / "run"), "DIR": str(tmp_path / "empty"), "OUT": str(tmp_path / "out"),
        "LONG": str(tmp_path / ("x" * 300)), "LOOP": str(tmp_path / "loop"),
    }  # fmt: skip
    own = tmp_path / "own.yaml"  # a task that the starter was not trained on
    own.write_text("task_name: own\nlabels: {a: a question about an invoice}\n")
    asked = [*wrong(), (f"generate {own} --count 2 --out OUT", "force it with --any-task")]
    words = [[places.get(word, word) for word in line.split()] for line, _ in asked]
    done = python(CHILD, given="\n".join(map(json.dumps, words)))
    found = []
    answers = done.stdout.splitlines()
    for (line, said), answer in zip(asked, answers, strict=False):
        code, output, heavy = json.loads(answer)
        if code != 2 or heavy or output.count("\n") != 1 or said not in output:
            found.append((line, code, output[-300:], heavy))
    assert not found, "\n".join(map(str, found[:20]))
    assert len(answers) == len(asked)
    assert not (tmp_path / "out").exists()


def test_a_real_command_is_as_quick() -> None:
    words = ["train", "encoder", "no.jsonl", "--out", "x"]
    code = "import sys; sys.argv[1:] = {words}; import tilth.__main__ as m\n"
    code += "try: m.main()\nfinally: print('torch' in sys.modules)"
    done = python(code.replace("{words}", repr(words)), check=False)
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert done.stderr == "error: no.jsonl: no such file or folder: check the path\n"


def test_training_sets_are_checked_before_torch_is_imported(tmp_path: Path) -> None:
    odd, tags, out = tmp_path / "odd.jsonl", tmp_path / "tags.jsonl", str(tmp_path / "out")
    odd.write_text('{"first": "Rain.", "second": "weather"}\n')
    tags.write_text('{"tokens": ["Ada", "sang"], "tags": ["B-PER"]}\n')
    known = ("tagger", tags, "tags.jsonl:1: 2 tokens, 1 tags"), *(
        (kind, odd, "there are first, second")
        for kind in ("classifier", "encoder", "scorer")
    )  # fmt: skip
    words = [["train", kind, str(data), "--out", out] for kind, data, _ in known]
    words += [["grow", "--train", str(odd), "--raw", str(odd), "--out", out]]
    known = *known, ("grow", odd, "there are first, second")
    done = python(
        CHILD.replace(repr(HEAVY), repr(HEAVY[:2])), given="\n".join(map(json.dumps, words))
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for (kind, _, said), (code, output, heavy) in zip(known, answers, strict=True):
        assert (code, heavy) == (2, []), kind
        assert said in output
    assert not (tmp_path / "out").exists()


def test_recipes_are_shown_without_anything_heavy() -> None:
    words = [["recipe", "list"], *(["recipe", "show", name] for name in NAMES.names)]
    done = python(CHILD, given="\n".join(map(json.dumps, words)))
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert answers == [[0, "", []]] * len(words)
    assert done.stdout.count("unlike in the paper:") == 2 * len(NAMES.names)


@pytest.mark.parametrize("name", LEAVES)
def test_every_number_has_a_limit(name: str) -> None:
    for parameter in LEAVES[name].params:
        if parameter.bare_type() in (int, float):
            assert parameter.name in LEAVES[name].limits


def test_every_command_is_tested() -> None:
    tested = {"paraphrase rewrite" if name == "paraphrase" else name for name in WHOLE}
    assert tested == set(LEAVES) - {"recipe list"}


@pytest.mark.parametrize(
    ("own", "spins", "milliseconds"),
    [
        ({}, "1000", "0"),
        ({"GOMP_SPINCOUNT": "7"}, "7", "0"),
        ({"KMP_BLOCKTIME": "9"}, "1000", "9"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, None, None),
    ],
)
def test_threads_do_not_spin_for_long_unless_the_user_says_so(
    own: dict[str, str],
    spins: str | None,
    milliseconds: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a process of its own, as libraries read it when they are loaded: after `main` began."""
    words = "import os, sys; import tilth.cli.main as cli; before = 'torch' in sys.modules\n"
    words += "cli.app = lambda: None; cli.main()\n"
    words += "print([before, *map(os.environ.get, ('GOMP_SPINCOUNT', 'KMP_BLOCKTIME'))])"
    for name in ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    done = python(words, **own)
    assert done.stdout.strip() == repr([False, spins, milliseconds])

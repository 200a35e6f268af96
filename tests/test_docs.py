"""README and docs stay true: their Python runs, their commands parse, their specs load."""

import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from tilth.cli.main import app
from tilth.generation.task import load_task

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *DOCS, ROOT / "examples" / "README.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[tuple[str, str]]:
    return [
        (page.relative_to(ROOT).as_posix(), text)
        for page in PAGES
        for found, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if found == kind
    ]


def commands() -> list[tuple[str, str]]:
    return [
        (page, line.partition("   #")[0].strip())
        for kind in ("console", "sh")
        for page, text in blocks(kind)
        for line in text.splitlines()
        if line.startswith("tilth ")
    ]


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_examples_run(
    page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_parse(page: str, line: str) -> None:
    name, *arguments = shlex.split(line)
    command: Any = typer.main.get_command(app)
    while hasattr(command, "get_command"):  # a group, such as `tilth` or `tilth train`
        context = command.make_context(name, arguments)
        left = [*context._protected_args, *context.args]
        name, command, arguments = command.resolve_command(context, left)
        assert command is not None, f"{page}: {line}"
    command.make_context(name, arguments).close()


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_specs_load(page: str, text: str) -> None:
    load_task(yaml.safe_load(text))


def test_linked_files_are_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_no_placeholder_is_left() -> None:
    for page in PAGES:
        assert not re.search(r"RESULT_|QSROWS|TODO|GPT2ROW", page.read_text(encoding="utf-8")), page


QUICKSTART = files("tilth.workflows").joinpath("quickstart_sentences.txt")


@pytest.mark.parametrize(
    ("text", "least"), [(QUICKSTART, 120), (ROOT / "examples" / "sentences.txt", 20)]
)
def test_sentences_are_fit_for_a_prompt(text: Path, least: int) -> None:
    lines = text.read_text(encoding="utf-8").splitlines()
    assert len(lines) >= least
    assert len({line.lower() for line in lines}) == len(lines)
    for line in lines:
        assert 4 <= len(line.split()) <= 25, line
        assert not set(line) & set('"\u201c\u201d<>'), line
        assert line == line.strip()


def test_example_task_loads() -> None:
    task = load_task(ROOT / "examples" / "task.yaml")
    assert task.name == "bank-messages"
    assert not task.is_pair
    assert [label.counter_labels for label in task.labels] == [("exchange-rate",), ("lost-card",)]

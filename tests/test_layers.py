"""The folders form a tree: imports go down, never up or sideways (shared words, no cycles)."""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from tests.tiny.calls import python

ROOT = Path(__file__).parent.parent / "src" / "tilth"
NOT_INSTALLED = {"ray"}

# Each folder and what it may import; errors, files and what else is in OPEN are open to all.
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "urls": set(),
    "storage": set(),
    "files": set(),
    "limits": set(),
    "machine_code": set(),
    "object_code": {"machine_code"},
    "metrics": set(),
    "runs": set(),
    "data": {"metrics"},
    "models": {"runs"},
    "generation": {"models", "data", "runs"},
    "encoders": {"models", "metrics", "data", "runs"},
    "evaluate": {"models", "metrics", "data", "runs"},
    "bank": {"models", "data", "runs"},
    "paraphrase": {"models", "data", "runs"},
    "classifiers": {"models", "metrics", "data", "runs"},
    "selftrain": {"bank", "classifiers", "encoders", "models", "metrics", "data", "runs"},
    "report": {
        "generation", "paraphrase", "selftrain", "classifiers", "models", "metrics", "data", "runs",
    },
}  # fmt: skip
BELOW["view"] = BELOW["report"] | {"report", "bank", "evaluate"}
OPEN = {"errors", "files", "limits", "storage", "urls", "machine_code", "object_code"}
_ALL = set(BELOW) - OPEN
BELOW["workflows"] = _ALL
BELOW["recipes"] = _ALL | {"workflows"}
BELOW["cli"] = _ALL | {"workflows", "recipes"}
HEAVY = (
    "torch", "transformers", "datasets", "pandas", "sklearn", "matplotlib", "pyarrow", "numpy",
    "yaml", "rich.console", "tilth.cli.bank", "tilth.cli.train",
)  # fmt: skip


def imports(path: Path) -> set[str]:
    """Return the folders of tilth that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports name their whole path"
            names = [node.module or ""]
        for name in names:
            parts = name.split(".")
            if parts[0] == "tilth" and len(parts) > 1:
                found.add(parts[1])
    return found


def test_the_map_of_contributing_names_every_module() -> None:
    text = (ROOT.parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\w+", text.split("```text")[1].split("```")[0]))
    by_kind = {ROOT / "cli", ROOT / "recipes", ROOT / "report"}  # a module each
    for file in ROOT.rglob("*.py"):
        assert file.parent in by_kind or file.stem[:2] == "__" or file.stem in named, file


@pytest.mark.parametrize("folder", sorted(BELOW))
def test_imports_go_down(folder: str) -> None:
    place = ROOT / folder
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    assert files
    for file in files:
        above = imports(file) - BELOW[folder] - {folder, *OPEN}
        assert not above, f"{file} imports {above}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Neither when they are loaded nor in functions; annotations alone may name a module above."""
    files = {
        ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): file
        for file in ROOT.rglob("*.py")
    }
    graph = {name: _modules(file) & set(files) - {name} for name, file in files.items()}
    list(TopologicalSorter(graph).static_order())  # raises CycleError


def _modules(file: Path) -> set[str]:
    """Return the modules that a file imports, but for annotations."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names | {str(node.module)}
    # A package's own __init__ only exports what its modules hold.
    return {
        name
        for name in found
        if (ROOT.parent / name.replace(".", "/")).with_suffix(".py").is_file()
    }


@pytest.mark.parametrize("folder", ["benchmarks", "starter/training"])
def test_scripts_import_names_that_exist(folder: str) -> None:
    lacking, files = [], sorted((ROOT.parent.parent / folder).rglob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
            if module.partition(".")[0] == "tilth":
                lacking += [f"{file}: {module}.{name.name}" for name in node.names
                            if not _has(module, name.name)]  # fmt: skip
    assert lacking == []


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name) or bool(import_module(f"{module}.{name}"))
    except ModuleNotFoundError as error:
        return error.name in NOT_INSTALLED


def test_no_class_has_the_name_of_another() -> None:
    classes = Counter(
        node.name
        for file in ROOT.rglob("*.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in classes.items() if count > 1] == []


def test_every_folder_has_its_place() -> None:
    folders = {item.name for item in ROOT.iterdir() if (item / "__init__.py").is_file()}
    assert folders | OPEN == set(BELOW)


@pytest.mark.parametrize("module", ["tilth", "tilth.cli.main"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    said = python(code)
    assert said.stdout.split() == []


def test_print_lives_in_the_command_line_alone() -> None:
    for file in ROOT.rglob("*.py"):
        if "cli" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{file}:{node.lineno}"

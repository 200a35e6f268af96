"""Each tutorial is followed command by command, on small files and for few steps."""

import re
import shlex
from pathlib import Path

import pytest

from tests.selftrain.labelled import classed, tagged
from tests.system.commands import tilth
from tests.test_docs import BLOCK, ROOT
from tests.tiny import graded_pairs, salads, write_lines, write_rows

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
LONG = ("described", "paraphrase")  # their commands take minutes
FEW_STEPS = ["--epochs", 1, "--learning-rate", 1e-4]
# What each command is given beside its words, so that it takes seconds.
SMALLER: dict[str, list[object]] = {
    "generate": ["--max-tries", 1, "--per-input", 1],
    "bank build": ["--workers", 1],
    "curate": ["--min-label-fit", -1],  # of a dozen texts, a label could lose all
    "augment": ["--count", 30, *FEW_STEPS],
    "train classifier": FEW_STEPS,
    "train tagger": FEW_STEPS,
    "train encoder": ["--epochs", 0.5],
    "export": ["--tolerance", 1],  # a tagger of few steps is unsure of all
    "train triplet": ["--epochs", 1],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files that the tutorials name."""
    for name, rows in (("train", classed(24)), ("test", classed(12, seed=5))):
        write_rows(tmp_path / f"{name}.jsonl", rows)
    (tmp_path / "corpus").mkdir()
    write_lines(tmp_path / "corpus" / "raw.txt", salads(300, seed=2))
    for name, count in (("sentences", 12), ("new", 9), ("messages", 9)):
        write_lines(tmp_path / f"{name}.txt", salads(count, seed=3))
    one, two, labels = graded_pairs(40).values()
    pairs = zip(one, two, labels, strict=True)
    scored = [{"text_a": a, "text_b": b, "score": 5 * label} for a, b, label in pairs]
    write_rows(tmp_path / "pairs.jsonl", scored)
    same = [{"anchor": a, "positive": b} for a, b in zip(one, two, strict=True)]
    write_rows(tmp_path / "duplicates.jsonl", same)
    tickets = [{"text": row["text"], "label": ("bug", "billing")[n % 2]}
               for n, row in enumerate(classed(12, seed=7))]  # fmt: skip
    write_rows(tmp_path / "tickets.jsonl", tickets)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("quick_baselines")
@pytest.mark.parametrize(
    "page",
    [pytest.param(one, marks=pytest.mark.slow) if one.stem in LONG else one for one in TUTORIALS],
    ids=lambda page: page.stem,
)
def test_a_tutorial_runs(page: Path, folder: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    if page.stem == "tagger":
        for name, rows in (("train", tagged(24)), ("test", tagged(12, seed=5))):
            write_rows(folder / f"{name}.jsonl", rows)
    for kind, text in blocks:
        if kind == "yaml":
            (folder / "tickets.yaml").write_text(text)
    lines = [line for kind, text in blocks if kind == "console" for line in text.splitlines()]
    assert len(lines) > 3
    for line in lines:
        line = re.sub(r"--count \d+", "--count 12", line)
        words = shlex.split(re.sub(r"--model Qwen\S+", "--any-task", line))  # no hub in tests
        assert words.pop(0) == "tilth"
        for name, more in SMALLER.items():
            if words[: len(name.split())] == name.split():
                words += [str(word) for word in more]
        tilth(*words)

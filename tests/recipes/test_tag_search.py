import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.recipes.contrastive import put_rewriters
from tests.recipes.running import measured, put_scale, run, stopped_and_resumed
from tests.tiny import salads, write_rows
from tilth.errors import InputError
from tilth.paraphrase.settings import RewriteSettings
from tilth.recipes import tag_search
from tilth.recipes.paraphrase_tasks import TaskParts
from tilth.recipes.tag_search import SearchScale
from tilth.selftrain.few_shot import gain_over_draws

NAME = "tag-search"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, base: str) -> list[RewriteSettings]:
    """Put a rewriter that turns words round; return what it is asked."""
    found = put_rewriters(monkeypatch)
    scale = SearchScale(
        scorer="tiny", rewriter="tiny", beams=3, base=base, rounds=(10, 20, 1000),
        training={"epochs": 1.0, "batch": 8, "learning_rate": 1e-3},
    )  # fmt: skip
    put_scale(monkeypatch, scale, NAME)
    return found


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    for seed, part in enumerate(("train", "dev")):
        rows = [{"text": text, "label": n % 2} for n, text in enumerate(salads(40, seed=seed))]
        write_rows(folder / f"{part}.jsonl", rows)
    return folder


def test_half_of_the_pairs_go_on(said: list[RewriteSettings], task: Path, tmp_path: Path) -> None:
    table, _ = run(NAME, task, tmp_path / "out", seeds=2)
    rows = measured(table)
    assert rows[0].name == "no rewrites"
    assert [row.cells["rows"].value for row in rows[1:]] == [40] * 3 + [20] * 2 + [10] * 4
    assert all(len(row.cells["accuracy"].runs) == 2 for row in rows)
    gains = [row.cells["gain"].value for row in rows[1:4]]
    assert gains == sorted(gains, reverse=True)
    assert any("40 dev rows of mine" in note for note in table.notes)


def test_rows_that_the_dev_part_holds_are_not_trained_on(
    said: list[RewriteSettings], task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[TaskParts] = []

    def keep(steps: Any) -> TaskParts:
        read.append(real(steps))
        raise KeyboardInterrupt

    real = tag_search._read_task
    monkeypatch.setattr(tag_search, "_read_task", keep)
    rows = [{"text": f"{text.upper()}!", "label": 1} for text in salads(5, seed=1)]
    with open(task / "train.jsonl", "a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    with pytest.raises(KeyboardInterrupt):
        run(NAME, task, tmp_path / "out")
    assert (len(read[0].train), len(read[0].test)) == (40, 40)


@pytest.mark.slow
def test_a_stopped_search_goes_on_with_the_same_figures(
    said: list[RewriteSettings], task: Path, tmp_path: Path
) -> None:
    whole, again = stopped_and_resumed(NAME, task, tmp_path, 13)
    assert again == whole
    assert any("give --seeds 3" in note for note in whole.notes)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([[60, 60.2, 60.1], [62, 62.1, 62.2], [61, 61.1, 61.1]], "Best: --meaning 95 --wording 5"),
        ([[60, 63, 61], [62, 61, 62], [61, 61, 61]], "No tag pair is surely better"),
    ],
)
def test_the_verdict_counts_chance(scores: list[list[float]], expected: str) -> None:
    none, best, second = scores
    tried = {
        pair: SimpleNamespace(scores=one, gain=gain_over_draws(none, one))
        for pair, one in (((95, 5), best), ((70, 40), second))
    }
    said = tag_search._verdict(list(tried), tried)  # type: ignore[arg-type]
    assert said[0].startswith(expected)
    assert ("surely better than the next" in said[-1]) == (len(said) == 2)


def test_a_task_needs_a_dev_part(said: list[RewriteSettings], task: Path, tmp_path: Path) -> None:
    (task / "dev.jsonl").unlink()
    with pytest.raises(InputError, match="has no file dev"):
        run(NAME, task, tmp_path / "out")


def test_labels_must_be_those_of_the_training_rows(
    said: list[RewriteSettings], task: Path, tmp_path: Path
) -> None:
    write_rows(task / "dev.jsonl", [{"text": "a b c", "label": 0.5}])
    with pytest.raises(InputError, match="the training part has class labels"):
        run(NAME, task, tmp_path / "out")

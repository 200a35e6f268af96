from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipes.contrastive import put_rewriters
from tests.recipes.running import measured, put_scale, run, stopped_and_resumed
from tests.tiny import salads, save_encoder, write_rows
from tests.tiny.sts import jsonl
from tilth.classifiers.examples import LabeledExamples
from tilth.errors import InputError
from tilth.paraphrase.settings import RewriteSettings
from tilth.recipes.paraphrase_table5 import BEST, PLAIN, STILTS, TRIPS, StiltsScale
from tilth.recipes.paraphrase_tasks import TaskParts, recorded_scores, with_rewrites
from tilth.runs import RunMismatch

NAME = "paraphrase-table5"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, base: str) -> list[RewriteSettings]:
    """Put a tiny scale and rewriters; return what these are asked."""
    found = put_rewriters(monkeypatch)
    training = {"epochs": 1.0, "batch": 8, "learning_rate": 1e-3}
    scale = StiltsScale(
        translators=("there", "back"), scorer="tiny", rewriter="tiny", beams=3, base=base,
        pairs=20, rows=24, held=10, tasks=("rte", "stsb", "trec"), first=training,
        training=training,
    )  # fmt: skip
    put_scale(monkeypatch, scale, NAME)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    first, second = salads(60, seed=7), salads(60, seed=8)
    for names, place in (
        (("entailment", "neutral", "contradiction"), "nli/made/train"),
        (("entailment", "not_entailment"), "glue/rte/train"),
        (("entailment", "not_entailment"), "glue/rte/dev"),
    ):
        rows = [
            {"premise": first[n], "hypothesis": second[n], "label": names[n % len(names)]}
            for n in range(60)
        ]
        write_rows(folder / f"{place}.jsonl", rows)
    for part in ("train", "test"):
        rows = [{"text": text, "label": n % 3} for n, text in enumerate(first)]
        write_rows(folder / "classify" / "trec" / f"{part}.jsonl", rows)
    (folder / "sts").mkdir()
    for part in ("train", "test"):
        graded = [
            (*pair, (7 * n % 11) / 2) for n, pair in enumerate(zip(first, second, strict=True))
        ]
        jsonl(folder / "sts" / f"stsb-{part}.jsonl", graded)
    return folder


@pytest.mark.slow
def test_every_line_and_task_is_measured(
    said: list[RewriteSettings], data: Path, tmp_path: Path
) -> None:
    table, folder = run(NAME, data, tmp_path / "out", seeds=2)
    rows = {row.name: row for row in measured(table)}
    assert list(rows)[:4] == [PLAIN, STILTS, TRIPS, BEST]
    assert len(rows) == 4 + 9
    assert list(table.columns) == ["RTE", "STS-B", "TREC", "mean"]
    assert all(len(cell.runs) == 2 for row in rows.values() for cell in row.cells.values())
    assert {(one.meaning, one.wording) for one in said if not one.round_trip} == {
        (meaning, wording) for meaning in (70, 80, 95) for wording in (5, 20, 40)
    }
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count('class="map"') == 3
    assert "meaning 70, wording 5: " in page
    assert not list((folder.parent / "steps").glob("*-first"))


@pytest.mark.slow
def test_a_stopped_recipe_goes_on_with_the_same_figures(
    said: list[RewriteSettings], data: Path, tmp_path: Path
) -> None:
    whole, again = stopped_and_resumed(NAME, data, tmp_path, 17)
    assert again == whole


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("nli/made/train.jsonl", "no NAME/train file"),
        ("glue/rte/dev.jsonl", "task rte has no file dev"),
        ("sts/stsb-train.jsonl", "task stsb has no file train"),
    ],
)
def test_a_missing_set_is_named(
    said: list[RewriteSettings], data: Path, tmp_path: Path, gone: str, message: str
) -> None:
    (data / gone).unlink()
    with pytest.raises(InputError, match=message):
        run(NAME, data, tmp_path / "out")


def _parts(name: str, labels: list[str], targets: Any) -> TaskParts:
    kind = "class" if len(labels) > 1 else "number"
    rows = LabeledExamples(
        kind, labels, [("a",)] * len(targets), None, np.array(targets, np.float32)
    )  # type: ignore[arg-type]
    return TaskParts(name, rows, None, rows)


def test_rows_stand_in_for_missing_rewrites() -> None:
    rows = _parts("trec", ["0", "1"], np.eye(2)[[0, 1, 1, 0]]).train
    for more in (None, rows.select(np.array([2])), rows):
        found = with_rewrites(rows, more)
        assert len(found) == 8
        assert found.select(np.arange(4)).fingerprint() == rows.fingerprint()


def test_each_task_has_its_metric() -> None:
    right = np.eye(2)[[0, 1, 1, 0]]
    half = np.eye(2, dtype=np.float32)[[0, 1, 0, 0]]
    for name, labels, expected in (
        ("mrpc", ["1", "0"], 200 * 2 / (2 * 2 + 1)),
        ("cola", ["0", "1"], 100 / 3**0.5),
        ("trec", ["0", "1"], 75.0),
    ):
        task = _parts(name, labels, right)
        assert task.score(half, task.test) == pytest.approx(expected)
    graded = _parts("stsb", ["similarity"], [[0.0], [0.5], [1.0]])
    assert graded.metric == "Pearson"
    assert graded.score(np.array([[0.1], [0.2], [0.3]], np.float32), graded.test) == pytest.approx(
        100
    )


def test_other_test_rows_or_weights_are_measured_again(tmp_path: Path) -> None:
    made: list[int] = []

    def score() -> dict[str, float]:
        made.append(1)
        return {"test": 1.0}

    rows = _parts("trec", ["0", "1"], np.eye(2)[[0, 1, 1, 0]])
    other = replace(rows, test=rows.test.select(np.array([0, 1])))
    assert rows.sets.keys() == {"trec", "trec test"}
    for seed, task in ((0, rows), (0, rows), (0, other), (1, other)):
        base = save_encoder(tmp_path / "base", seed=seed)
        with suppress(RunMismatch):
            recorded_scores(tmp_path / "step", {"base": str(base)}, task.sets, [score])
            continue
        recorded_scores(tmp_path / f"step{len(made)}", {"base": str(base)}, task.sets, [score])
    assert len(made) == 3

from dataclasses import replace
from pathlib import Path

import pytest

from tests.recipes.contrastive import put_rewriters, write_contrastive_data
from tests.recipes.running import measured, put_scale, run, stopped_and_resumed
from tests.tiny import read_json
from tilth.data import load_folder
from tilth.encoders.settings import VARIANTS
from tilth.paraphrase.settings import RewriteSettings
from tilth.recipes.catalog import RECIPES
from tilth.recipes.paraphrase_table4 import PairScale

NAME = "paraphrase-table4"
CONTROL = "AB, twice the steps"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_contrastive_data(tmp_path / "data")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, data: Path, base: str) -> list[RewriteSettings]:
    """Put a tiny scale and rewriters; return what these are asked."""
    refused = (data / "nli" / "made" / "train.jsonl").read_text().split('"')[3]
    found = put_rewriters(monkeypatch, refused=refused)
    scale = PairScale(
        scorer="tiny", rewriter="tiny", beams=3, base=base, pooling="mean", wordings=(5, 40),
        triples=25, training={"learning_rate": 1e-3, "batch": 8, "evaluate_every": 2},
    )  # fmt: skip
    put_scale(monkeypatch, scale, NAME)
    return found


def test_each_variant_is_a_column_and_each_wording_a_line(
    said: list[RewriteSettings], data: Path, tmp_path: Path
) -> None:
    table, folder = run(NAME, data, tmp_path / "out")
    assert tuple(table.columns) == (*VARIANTS, CONTROL)
    low, high = measured(table)
    assert (low.name, high.name) == ("rewrites 95/5", "rewrites 95/40")
    assert len({cell.value for cell in low.cells.values()}) == len(VARIANTS) + 1
    assert low.cells["AB"] == high.cells["AB"]  # without rewrites there is one training
    published = [row for row in table.rows if row.published]
    assert [row.cells["A'B'"].value for row in published] == [79.25, 79.11, 79.13]
    assert {(one.meaning, one.wording, one.beams) for one in said} == {(95, 5, 3), (95, 40, 3)}
    steps = folder.parent / "steps"
    names = {path.name for path in steps.iterdir()}
    assert {"pairs-ab-seed0", "pairs-a1b1-95-5-seed0", "pairs-ab-a1b1-95-40-seed0"} <= names
    longer = read_json(steps / "ab-twice-the-steps-seed0" / "run.json")["settings"]
    assert (longer["variant"], longer["epochs"]) == ("AB", 2.0)
    training = read_json(steps / "pairs-a1b-95-40-seed0" / "run.json")["settings"]
    assert (training["variant"], training["seed"], training["batch"]) == ("A'B", 0, 8)
    made = load_folder(steps / "pairs-rewrites-95-5-texts" / "dataset")
    assert len(made) < 25  # a pair without a rewrite is left out of all
    assert any(note.startswith(f"{len(made)} of 25 pairs") for note in table.notes)
    assert "negative" not in made.column_names


@pytest.mark.slow
def test_a_stopped_recipe_goes_on_with_the_same_figures(
    monkeypatch: pytest.MonkeyPatch, said: list[RewriteSettings], data: Path, tmp_path: Path
) -> None:
    scale = RECIPES[NAME].scales["starter"]
    assert isinstance(scale, PairScale)
    put_scale(monkeypatch, replace(scale, wordings=(5,)), NAME)
    whole, again = stopped_and_resumed(NAME, data, tmp_path, 5)
    assert again == whole

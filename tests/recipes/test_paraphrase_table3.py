from pathlib import Path

import numpy as np
import pytest

from tests.recipes.contrastive import put_rewriters, write_contrastive_data
from tests.recipes.running import measured, put_scale, run, stopped_and_resumed
from tests.tiny import read_json, salads
from tests.tiny.sts import jsonl
from tilth.data import load_folder
from tilth.errors import InputError
from tilth.paraphrase.settings import RewriteSettings
from tilth.recipes.paraphrase_table3 import SimcseScale
from tilth.recipes.table import STS_COLUMNS

NAME = "paraphrase-table3"
CONTROL = "NLI, twice the steps"
KINDS = ["", ", round trips", ", rewrites 95/5", ", rewrites 95/40"]
LINES = [f"{line}{kind}" for line in ("SimCSE", "NLI") for kind in KINDS]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, base: str) -> list[RewriteSettings]:
    """Put a tiny scale and rewriters; return what these are asked."""
    found = put_rewriters(monkeypatch)
    scale = SimcseScale(
        translators=("there", "back"), scorer="tiny", sentences=60, rewriter="tiny", beams=3,
        base=base, pooling="mean", wordings=(5, 40),
        triples=20, training={"learning_rate": 1e-3, "batch": 16, "evaluate_every": 2},
        supervised={"learning_rate": 1e-3, "batch": 8, "epochs": 1.0},
    )  # fmt: skip
    put_scale(monkeypatch, scale, NAME)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_contrastive_data(tmp_path / "data")


def test_each_kind_of_positive_is_a_line(
    said: list[RewriteSettings], data: Path, tmp_path: Path
) -> None:
    sides = zip(salads(9, seed=4), salads(9, seed=5), strict=True)
    sick = [(*pair, 1 + n % 5) for n, pair in enumerate(sides)]
    jsonl(data / "sts" / "sick-dev.jsonl", sick)
    table, folder = run(NAME, data, tmp_path / "out", seeds=2)
    names = [row.name for row in measured(table)]
    assert [name for name in names[1:] if name != CONTROL] == LINES
    assert (
        read_json(folder.parent / "steps" / "nli-twice-the-steps-seed0" / "run.json")["settings"][
            "epochs"
        ]
        == 2.0
    )
    assert "mean-pooled" in names[0]
    cell = measured(table)[1].cells["STSb"]
    assert len(cell.runs) == 2
    cells = measured(table)[1].cells
    of_sets = [cells[name].value for name in (*STS_COLUMNS.values(), "SICK dev") if name in cells]
    assert cells["Avg. with SICK dev"].value == pytest.approx(np.mean(of_sets))
    assert cells["Avg. of measured"].value == pytest.approx(np.mean(of_sets[:-1]))
    assert {(one.round_trip, one.wording) for one in said} == {
        (True, 20.0),
        (False, 5),
        (False, 40),
    }
    steps = folder.parent / "steps"
    training = read_json(steps / "simcse-rewrites-95-5-seed1" / "run.json")["settings"]
    assert (training["seed"], training["pooling"], training["batch"]) == (1, "mean", 16)
    assert next(row.name for row in table.rows if row.published) == "SimCSE"
    added = load_folder(steps / "nli-round-trips-texts" / "dataset")
    assert len(added) == 40  # 20 triples and their round trips
    assert {"text_a", "text_b", "negative", "asked_wording"} <= set(added.column_names)
    assert any("simcse, round trips".casefold() in note.casefold() for note in table.notes)


@pytest.mark.slow
def test_a_stopped_recipe_goes_on_with_the_same_figures(
    said: list[RewriteSettings], data: Path, tmp_path: Path
) -> None:
    whole, again = stopped_and_resumed(NAME, data, tmp_path, 6)
    assert again == whole


@pytest.mark.parametrize("name", [NAME, "paraphrase-table4"])
def test_the_dev_part_is_needed(
    name: str, said: list[RewriteSettings], data: Path, tmp_path: Path
) -> None:
    (data / "sts" / "stsb-dev.jsonl").unlink()
    with pytest.raises(InputError, match="no stsb-dev file"):
        run(name, data, tmp_path / "out")


def test_nli_sets_are_needed(said: list[RewriteSettings], data: Path, tmp_path: Path) -> None:
    (data / "nli" / "made" / "train.jsonl").unlink()
    with pytest.raises(InputError, match="no NAME/train file"):
        run(NAME, data, tmp_path / "out")

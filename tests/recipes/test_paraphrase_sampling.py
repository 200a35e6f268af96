from pathlib import Path

import pytest

from tests.recipes.paraphrase_fakes import Fakes, put_fakes, write_bank
from tests.recipes.running import put_scale, run
from tests.tiny.calls import stopped
from tilth.paraphrase import make_candidates as trips
from tilth.recipes.paraphrase_figures import ParaphraseScale
from tilth.recipes.paraphrase_sampling import GRID

NAME = "paraphrase-sampling"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    scale = ParaphraseScale(translators=("there", "back"), scorer="tiny", sentences=48)
    put_scale(monkeypatch, scale, NAME)
    return put_fakes(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_bank(tmp_path / "data")


def test_each_top_k_and_temperature_is_a_line(data: Path, tmp_path: Path, fakes: Fakes) -> None:
    table, folder = run(NAME, data, tmp_path / "out")
    assert fakes.settings == [(pair,) for pair in GRID]
    assert not any(fakes.greedy)
    shares = [row.cells["high quality, %"].value for row in table.rows]
    assert shares == [0.0, 50.0, pytest.approx(200 / 3), 75.0] * 4
    names = [row.name for row in table.rows]
    assert (names[0], names[9], names[6]) == (
        "k 10, T 1", "k 30, T 2, the paper's", "k 20, T 3, the paper's",
    )  # fmt: skip
    notes = " ".join(table.notes)
    assert "The most: k 10, T 4 and k 20, T 4." in notes
    assert "or more in both texts: 48." in notes
    assert "±14 points" in notes
    assert (folder / "report.html").read_text().count('role="img"') == 16


def test_a_stopped_recipe_goes_on_with_the_same_figures(
    data: Path, tmp_path: Path, fakes: Fakes
) -> None:
    whole, _ = run(NAME, data, tmp_path / "whole")
    with stopped(trips, "round_trip", 9):
        run(NAME, data, tmp_path / "cut")
    fakes.settings.clear()
    again, _ = run(NAME, data, tmp_path / "cut")
    assert again == whole
    assert len(fakes.settings) == 7

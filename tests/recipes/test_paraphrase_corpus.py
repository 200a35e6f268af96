from pathlib import Path

import pytest

from tests.recipes.paraphrase_fakes import Fakes, put_fakes, write_bank
from tests.recipes.running import measured, put_scale, run, stopped_and_resumed
from tests.tiny import read_json
from tests.tiny.bart import save_bart
from tilth.data import load_folder
from tilth.errors import InputError
from tilth.recipes.paraphrase_corpus import CorpusScale
from tilth.recipes.paraphrase_figures import PAIRS

NAME = "paraphrase-corpus"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fakes:
    scale = CorpusScale(
        rewriter="tiny", translators=("there", "back"), scorer="tiny", sentences=120, measured=20,
        beams=3, base=str(save_bart(tmp_path / "base")), sampling=((5, 1.0), (6, 1.5)),
        corpus={"size": 108, "validation": 27, "test": 0},
        training={"max_epochs": 2, "batch": 16, "rows": 16, "learning_rate": 3e-3},
    )  # fmt: skip
    put_scale(monkeypatch, scale, NAME)
    return put_fakes(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_bank(tmp_path / "data")


def test_counts_of_each_stage_and_rewrites_are_lines(
    data: Path, tmp_path: Path, fakes: Fakes
) -> None:
    said: list[str] = []
    table, folder = run(NAME, data, tmp_path / "out", say=said.append)
    assert said[:4] == ["sentences", "round-trip-k5-t1-k6-t1.5", "corpus", "rewriter"]
    assert set(fakes.settings) == {((5, 1.0), (6, 1.5))}
    rows = {row.name: row for row in measured(table)}
    counts = {name: row.cells["count"].value for name, row in rows.items() if "count" in row.cells}
    steps = folder.parent / "steps"
    made = {name: len(load_folder(steps / "corpus", name)) for name in ("train", "validation")}
    assert counts["candidates"] == 200  # of 100 sentences
    assert counts["of high quality, distinct"] <= 200
    assert counts["drawn to train on"] == made["train"] > 0
    assert counts["drawn to validate with"] == made["validation"] > 0
    assert counts["cells of 48 short of pairs"] > 40  # the meaning is always 92
    assert rows["candidates"].cells["meaning"].value == 92.0
    for meaning, wording in PAIRS:
        for by in ("tiny", "trained"):
            name = f"meaning {meaning}, wording {wording}, tags alone, {by}"
            assert rows[name].cells["wording near, %"].value >= 0
    assert fakes.rewriters == ["tiny", str(steps / "rewriter")]
    losses = read_json(steps / "rewriter" / "results.json")["curve"]["validation_loss"]
    assert any(f"Validation loss {losses[0]:.3f}" in note for note in table.notes)
    shown = {line[0]: line[-1] for line in table.lines()}
    assert shown["candidates"] == "200"
    assert shown["candidates (published)"] == "120,000,000"
    written = set(load_folder(steps / "rewrite-95-5-tags-alone-trained")["original"])
    assert len(written) == 20
    assert not written & set(load_folder(steps / "corpus", "train")["text_a"])


def test_a_stopped_recipe_goes_on_with_the_same_figures(
    data: Path, tmp_path: Path, fakes: Fakes
) -> None:
    whole, again = stopped_and_resumed(NAME, data, tmp_path, 6)
    assert again == whole


@pytest.mark.parametrize("name", [NAME, "paraphrase-sampling"])
def test_raw_text_is_needed(name: str, tmp_path: Path, fakes: Fakes) -> None:
    with pytest.raises(InputError, match="put raw text there"):
        run(name, tmp_path, tmp_path / "out")

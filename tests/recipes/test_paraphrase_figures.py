from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.recipes.paraphrase_fakes import TEXTS, Fakes, put_fakes, write_bank
from tests.recipes.running import put_scale, run
from tests.tiny import read_json, write_lines
from tests.tiny.calls import stopped
from tilth.errors import InputError
from tilth.paraphrase import make_candidates as trips
from tilth.paraphrase.tags import Cell
from tilth.recipes import paraphrase as rewriting
from tilth.recipes.catalog import RECIPES
from tilth.recipes.paraphrase_figures import PAIRS, ParaphraseScale
from tilth.recipes.recipe import Steps
from tilth.recipes.table import Table

FIG1, FIG3 = "paraphrase-fig1", "paraphrase-fig3"
SCALE = ParaphraseScale(
    rewriter="tiny", translators=("there", "back"), scorer="tiny", sentences=70, beams=3,
    departures=("nothing is real",),
)  # fmt: skip


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    put_scale(monkeypatch, SCALE, FIG1, FIG3)
    return put_fakes(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_bank(tmp_path / "data")


def cells(table: Table) -> dict[str, dict[str, float]]:
    return {row.name: {name: cell.value for name, cell in row.cells.items()} for row in table.rows}


def test_figure_1_compares_greedy_and_sampled(data: Path, tmp_path: Path, fakes: Fakes) -> None:
    said: list[str] = []
    table, folder = run(FIG1, data, tmp_path / "out", say=said.append)
    assert said == ["sentences", "round-trip-greedy", "round-trip-sampling"]
    found = cells(table)
    assert found["greedy round trip"] == {
        "meaning": 92.0, "wording": 100.0, "high quality, %": 0.0, "top right corner, %": 0.0
    }  # fmt: skip
    sampled = found["round trip with sampling"]
    assert sampled["wording"] < 30
    assert sampled["high quality, %"] == 100.0
    notes = "\n".join(table.notes)
    assert "greedy round trip: 70 pairs, 0 more" in notes
    assert "round trip with sampling: 140 pairs" in notes  # equal ones count once
    assert "Published: Fig. 1 is a picture" in notes
    assert "nothing is real" in notes
    page = (folder / "report.html").read_text()
    assert page.count('role="img"') == 2
    assert "Greedy round trip" in page
    assert "round trip with sampling" in (folder / "results.md").read_text()
    assert len(read_json(folder / "results.json")["rows"]) == 2


def test_figure_1_goes_on_where_it_stopped(data: Path, tmp_path: Path, fakes: Fakes) -> None:
    whole, _ = run(FIG1, data, tmp_path / "whole")
    asked = list(fakes.greedy)
    assert asked == [True, True, False, False]  # two parts of each
    with stopped(trips, "round_trip", 1):
        run(FIG1, data, tmp_path / "out")
    fakes.greedy.clear()
    again, _ = run(FIG1, data, tmp_path / "out")
    assert fakes.greedy == [True, False, False]
    assert again == whole
    fakes.greedy.clear()
    run(FIG1, data, tmp_path / "out")
    assert fakes.greedy == []


def test_figure_3_has_a_step_for_each_tag_pair(data: Path, tmp_path: Path, fakes: Fakes) -> None:
    table, folder = run(FIG3, data, tmp_path / "out")
    assert PAIRS == ((95, 5), (95, 20), (95, 40), (70, 5), (70, 20), (70, 40))
    wanted = {(Cell(m, 0 if w == 5 else w), 1, tries, 3) for m, w in PAIRS for tries in (1, 5)}
    assert set(fakes.rewrites) == wanted
    assert fakes.greedy == [True, True]
    found = cells(table)
    assert len(found) == 19
    assert found["meaning 95, wording 20, steered"] == {
        "meaning": 96.0, "wording": 32.0, "inside the cell, %": 0.0, "wording near, %": 0.0,
        "same as source, %": 0.0,
    }  # fmt: skip
    assert found["meaning 95, wording 5, steered"]["wording near, %"] == 100.0  # 10 to 15
    assert found["meaning 70, wording 40, checked"] == {
        "meaning": 71.0, "wording": 41.0, "inside the cell, %": 100.0, "wording near, %": 100.0,
        "same as source, %": 0.0,
    }  # fmt: skip
    assert found["greedy round trip"] == {
        "meaning": 92.0, "wording": 100.0, "same as source, %": 100.0
    }  # fmt: skip
    page = (folder / "report.html").read_text()
    assert page.count('role="img"') == 19
    assert page.count('class="frame"') == 18
    fakes.rewrites.clear()
    assert run(FIG3, data, tmp_path / "out")[0] == table
    assert fakes.rewrites == []


def test_both_figures_share_sentences_and_greedy_round_trips(
    data: Path, tmp_path: Path, fakes: Fakes
) -> None:
    run(FIG1, data, tmp_path / "out")
    sentences = tmp_path / "out/starter/steps/sentences/parts/part-00000.parquet"
    before = sentences.stat().st_mtime_ns
    fakes.greedy.clear()
    run(FIG3, data, tmp_path / "out")
    assert fakes.greedy == []
    assert sentences.stat().st_mtime_ns == before
    rows = pq.read_table(
        tmp_path / "out/starter/steps/rewrite-95-5-steered/parts/part-00000.parquet"
    )
    assert rows["original"][0].as_py() == pq.read_table(sentences)["text"][0].as_py()


def drawn(data: Path, out: Path, count: int = 70) -> list[str]:
    return rewriting.sentences(Steps(out, data, replace(SCALE, sentences=count)))


def test_sentences_follow_from_the_text_not_from_its_place(data: Path, tmp_path: Path) -> None:
    found = drawn(data, tmp_path / "one")
    assert len(found) == len(set(found)) == 70
    assert set(found) <= set(TEXTS)
    assert len(set(found) & set(TEXTS[:100])) >= 5  # of both files
    assert len(set(found) & set(TEXTS[100:])) >= 20
    other = tmp_path / "other"
    (other / "bank").mkdir(parents=True)
    write_lines(other / "bank" / "c.txt", [*reversed(TEXTS), *TEXTS[:50]])
    assert drawn(other, tmp_path / "two") == found
    assert drawn(other, tmp_path / "ten", 10) == found[:10]
    assert set(drawn(other, tmp_path / "all", 1000)) == set(TEXTS)


def test_most_keys_are_kept_over_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rewriting._drawn(TEXTS, 40)
    monkeypatch.setattr(rewriting, "_BATCH", 7)
    assert rewriting._drawn(TEXTS, 40) == whole


def test_changed_text_is_another_run(data: Path, tmp_path: Path, fakes: Fakes) -> None:
    run(FIG1, data, tmp_path / "out")
    write_lines(data / "bank" / "more.txt", ["A sentence that was not there."])
    with pytest.raises(InputError, match=r"the text is not the same: remove that folder"):
        run(FIG1, data, tmp_path / "out")


def test_text_is_needed(data: Path, tmp_path: Path, fakes: Fakes) -> None:
    for file in (data / "bank").iterdir():
        file.unlink()
    with pytest.raises(InputError, match="no file to read in the folder"):
        run(FIG1, data, tmp_path / "none")
    write_lines(data / "bank" / "a.txt", ["Too short."])
    with pytest.raises(InputError, match="no sentence of 4 words or more"):
        run(FIG1, data, tmp_path / "short")
    (data / "bank" / "a.txt").unlink()
    (data / "bank").rmdir()
    with pytest.raises(InputError, match="put raw text there"):
        run(FIG3, data, tmp_path / "missing")


def test_scales_are_the_papers_or_say_what_is_smaller() -> None:
    for name in (FIG1, FIG3):
        paper, starter = (RECIPES[name].scales[scale] for scale in ("paper", "starter"))
        assert (paper.sentences, starter.sentences) == (50_000, 600)
        assert paper.translators == ("facebook/wmt19-en-de", "facebook/wmt19-de-en")
        facts = dict(starter.facts())
        assert facts["sentences"] == "600"
        assert facts["translators"] == "starter, starter"
        assert "language model" not in facts
    beams = {scale: RECIPES[FIG3].scales[scale].beams for scale in ("paper", "starter")}
    assert beams == {"paper": 20, "starter": 5}
    facts = dict(RECIPES[FIG3].scales["starter"].facts())
    assert facts["rewriter"] == "starter, 5 beams"
    assert "rewriter" not in dict(RECIPES[FIG1].scales["starter"].facts())
    assert "scorer of meaning" not in dict(RECIPES["dino-table1"].scales["starter"].facts())

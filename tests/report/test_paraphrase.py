import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.report.page import Page
from tests.system.commands import tilth
from tests.tiny import read_json
from tilth.errors import InputError, TilthError
from tilth.paraphrase.tags import Cell
from tilth.report.generation import write_report
from tilth.report.paraphrase import asked_plane, write_rewrite_report
from tilth.report.rewrites import SHOWN_EXAMPLES, read_rewrites
from tilth.report.run_reader import refuse_edited
from tilth.runs import Run

SETTINGS = {
    "meaning": 95.0, "wording": 20.0, "n": 1, "tries": 5, "beams": 5, "seed": 0,
    "originals": False, "part_size": 2, "columns": ["text"], "model": "tiny-rewriter",
    "scorer": "tiny-scorer", "precision": "float32", "polarity": False,
}  # fmt: skip
TYPES = {
    "source_row": pa.int64(), "rewrite": pa.int32(), "tries": pa.int32(), "inside": pa.bool_(),
    "flips": pa.int32(), "drop_reason": pa.string(),
}  # fmt: skip


def row(
    number: int, source: str, text: str, scores: tuple[float | None, float | None], **more: Any
) -> dict[str, Any]:
    """Return a row of a run whose one text column is `text`."""
    return {
        "text": text, "label": "yes", "original": source, "meaning": scores[0],
        "wording": scores[1], "source_row": number, "rewrite": 1, "tries": 1, "flips": None,
        "drop_reason": None, **more,
    }  # fmt: skip


def dropped(number: int, source: str, reason: str) -> dict[str, Any]:
    return row(number, source, source, (None, None), drop_reason=reason, tries=None)


def write_run(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    size: int = 2,
    parts: int | None = None,
    **more: Any,
) -> Path:
    """Write rows as a run leaves them, `size` a part."""
    pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
    run = Run.open(
        folder, command="paraphrase", settings={**SETTINGS, **more}, fingerprints={},
        parts=len(pieces) if parts is None else parts,
    )  # fmt: skip
    with run:
        for index, piece in enumerate(pieces):
            columns = {
                name: pa.array(
                    [one[name] for one in piece],
                    TYPES.get(name)
                    or (pa.float64() if re.match("meaning|wording", name) else None),
                )
                for name in rows[0]
            }
            run.write_part(index, pa.table(columns))
    return folder


# Asked: meaning 95 to 100, wording 20 to 25.
ROWS = [
    row(0, "The old boat sank fast.", "Fast sank the old boat.", (97.0, 21.0)),
    row(1, "The old boat sank twice.", "Twice the boat had sunk.", (96.0, 29.5), tries=5),
    row(2, "The red dog runs home.", "The red dog runs away.", (80.0, 60.0), tries=5),
    row(3, "A man reads a book.", "A man reads a book!", (100.0, 100.0), tries=3),
    row(4, "Not now, please.", "Please, not now.", (99.0, 22.0), label="no"),
    dropped(5, "Oh", "no rewrite found"),
    dropped(6, "", "no text"),
    dropped(7, "Ah", "no rewrite found"),
    row(8, "The sea is calm today.", "The sea is calm today.", (None, None), rewrite=0, tries=None),
    row(8, "The sea is calm today.", "Today the sea lies still.", (95.0, 15.0), tries=2),
]


def page_of(folder: Path) -> Page:
    return Page(write_rewrite_report(folder).read_text(encoding="utf-8"))


def test_figures_are_those_of_the_rows(tmp_path: Path) -> None:
    found = read_rewrites(write_run(tmp_path, ROWS)).summary
    assert (found.rows, found.asked_rewrites, found.kept) == (9, 9, 6)
    assert found.dropped == {"no rewrite found": 2, "no text": 1}
    assert (found.pairs, found.short) == (6, 1)
    assert found.meaning == pytest.approx((97 + 96 + 80 + 100 + 95) / 5)
    assert found.wording == pytest.approx((21 + 29.5 + 60 + 100 + 15) / 5)
    assert found.inside == 1 / 5
    assert found.near == 3 / 5
    assert found.same == 1 / 5
    assert found.tries == pytest.approx((1 + 5 + 5 + 3 + 1 + 2) / 6)
    assert found.plane.sum() == 5
    assert [found.plane[19, 4], found.plane[19, 5], found.plane[19, 3]] == [1, 1, 1]
    assert [found.plane[16, 12], found.plane[19, 19]] == [1, 1]


def test_figures_as_a_table_and_as_json(tmp_path: Path) -> None:
    found = read_rewrites(write_run(tmp_path, ROWS)).summary
    lines = {name: (asked, obtained) for name, asked, obtained in found.lines()}
    assert lines["rewrites"] == ("9", "6")
    assert lines["dropped: no rewrite found"] == ("", "2")
    assert lines["meaning, mean"] == ("95 (95 to 100)", "93.6")
    assert lines["wording, mean"] == ("20 (20 to 25)", "45.1")
    assert lines["inside the asked cell"] == ("", "20%")
    assert lines["searches, mean"] == ("at most 5", "2.8")
    assert lines["not counted, a text under 4 words"] == ("", "1")
    value = json.loads(json.dumps(found.to_dict()))
    assert value["near"] == 3 / 5
    assert value["dropped"] == {"no rewrite found": 2, "no text": 1}
    assert "plane" not in value


def test_what_was_asked_for_is_made_or_missing(tmp_path: Path) -> None:
    given = [
        *(row(0, "The old boat sank fast.", f"Fast sank boat {n}.", (97.0, 21.0), rewrite=n)
          for n in (1, 2)),
        {**dropped(0, "The old boat sank fast.", "fewer rewrites than asked for"), "rewrite": 3},
        dropped(1, "Oh", "low meaning"),
    ]  # fmt: skip
    found = read_rewrites(write_run(tmp_path, given, n=3)).summary
    assert (found.rows, found.asked_rewrites, found.kept) == (2, 6, 2)
    assert found.dropped == {"low meaning": 3, "fewer rewrites than asked for": 1}


@pytest.mark.parametrize("size", [1, 3, 20])
def test_parts_change_nothing(tmp_path: Path, size: int) -> None:
    rows = [
        row(
            i, f"The old boat {i} sank fast.", f"Fast sank boat {i} again.", (90.0 + i % 9, i + 5.0)
        )
        for i in range(30)
    ]
    one = read_rewrites(write_run(tmp_path / "one", rows, size=100))
    many = read_rewrites(write_run(tmp_path / "many", rows, size=size))
    assert many.summary.to_dict() == one.summary.to_dict()
    assert np.array_equal(many.summary.plane, one.summary.plane)
    assert (many.nearest, many.sample, many.farthest) == (one.nearest, one.sample, one.farthest)


def test_examples_are_the_nearest_a_draw_and_the_farthest(tmp_path: Path) -> None:
    rows = [
        row(i, f"The old boat {i} sank fast.", f"Fast sank boat {i} again.", (97.0, i * 1.0))
        for i in range(60)
    ]
    rows.append(row(60, "Oh no.", "Oh dear no.", (97.0, 22.0)))  # too short to be counted
    found = read_rewrites(write_run(tmp_path, rows))
    assert {one.wording for one in found.nearest} <= {20, 21, 22, 23, 24, 25}
    assert [one.wording for one in found.farthest] == [59, 58, 57, 56, 55, 54]
    assert found.farthest[0].distance == 59 - 25
    assert len(found.sample) == SHOWN_EXAMPLES
    assert "Oh dear no." not in [one.text for one in (*found.nearest, *found.farthest)]
    assert [one.text for one in found.sample] != [one["text"] for one in rows[:SHOWN_EXAMPLES]]


def test_both_texts_of_a_pair_are_counted(tmp_path: Path) -> None:
    rows = [
        {
            "text_a": "Fast sank the old boat.", "text_b": "Two men came home late.", "label": 1.0,
            "original_text_a": "The old boat sank fast.",
            "original_text_b": "Two men got home late.",
            "meaning_text_a": 97.0, "wording_text_a": 20.0, "meaning_text_b": 91.0,
            "wording_text_b": 50.0, "source_row": 0, "rewrite": number, "flips": None, "tries": 4,
            "drop_reason": None,
        }
        for number in (1, 2)
    ]  # fmt: skip
    found = read_rewrites(write_run(tmp_path, rows, columns=["text_a", "text_b"], n=2))
    summary = found.summary
    assert (summary.rows, summary.asked_rewrites, summary.kept, summary.pairs) == (1, 2, 2, 4)
    assert (summary.meaning, summary.wording) == (94.0, 35.0)
    assert (summary.inside, summary.tries) == (0.5, 4.0)
    assert {one.source for one in found.nearest} == {
        "The old boat sank fast.", "Two men got home late."
    }  # fmt: skip
    assert {one.label for one in found.nearest} == {"1"}


def test_page_shows_what_it_promises(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path, ROWS))
    for said in (
        "Meaning 95, wording 20", "6 rewrites of 9 rows by the model tiny-rewriter", "tiny-scorer",
        "93.6", "45.1", "no rewrite found", "nothing but the text itself came out",
        "Twice the boat had sunk.", "A man reads a book!", "Farthest from the asked cell",
        "Of 5 pairs of texts with 4 words or more", "begun",
    ):  # fmt: skip
        assert page.shows(said), said


def test_all_rows_dropped(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [dropped(0, "Oh", "empty"), dropped(1, "Ah", "too long")])
    found = read_rewrites(folder).summary
    assert (found.kept, found.meaning, found.inside, found.tries) == (0, None, None, None)
    assert ["meaning, mean", "95 (95 to 100)", "\u2013"] in found.lines()
    page = page_of(folder)
    assert page.shows("every row was dropped, for the reasons below")
    assert page.shows("a sentence is longer than the model reads")
    assert page.shows("There are none.")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (0, ["1 rewrite of 1 row", "All, the nearest to the asked cell first",
             "Nothing was dropped.", "Fast sank the old boat."]),
        (4, ["all texts are under 4 words", "Please, not now."]),  # shown though not counted
    ],
)  # fmt: skip
def test_one_row(tmp_path: Path, place: int, said: list[str]) -> None:
    page = page_of(write_run(tmp_path, [ROWS[place]]))
    assert all(page.shows(words) for words in said)
    assert "".join(page.text).count(said[-1]) == 1


def test_classes_have_their_names(tmp_path: Path) -> None:
    import pyarrow.parquet as pq
    from datasets import ClassLabel, Features

    folder = write_run(tmp_path, [{**ROWS[0], "label": 1}])
    assert read_rewrites(folder).nearest[0].label == "1"
    features = Features({"label": ClassLabel(names=["bad", "good"])})
    (folder / "dataset" / "data").mkdir(parents=True)
    table = pa.table({"label": [1]}, schema=features.arrow_schema)
    pq.write_table(table, folder / "dataset" / "data" / "train.parquet")
    assert read_rewrites(folder).nearest[0].label == "good"
    assert page_of(folder).shows("good")


@pytest.mark.parametrize(
    ("labels", "shown"), [(["bad", "good"], "bad, good"), ([1], "1"), ([], "none")]
)
def test_several_labels_of_a_row_are_joined(tmp_path: Path, labels: list[Any], shown: str) -> None:
    assert (
        read_rewrites(write_run(tmp_path, [{**ROWS[0], "label": labels}])).nearest[0].label == shown
    )


def test_sets_without_labels_have_no_column_of_them(tmp_path: Path) -> None:
    rows = [{name: value for name, value in one.items() if name != "label"} for one in ROWS]
    html = write_rewrite_report(write_run(tmp_path, rows)).read_text(encoding="utf-8")
    assert 'data-name="label"' not in html
    assert 'data-name="meaning"' in html


def test_unfinished_run_says_so(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path, ROWS, parts=9))
    assert page.shows("The run is not finished: 5 of 9 parts are there.")
    (tmp_path / "parts" / "part-00001.parquet").write_bytes(b"PAR1 and then nothing")
    said = "".join(page_of(tmp_path).text)
    assert said.count("part-00001.parquet could not be read and is left out.") == 1


@pytest.mark.parametrize(
    ("cell", "bins"), [(Cell(95, 0), [(19, 0), (19, 1)]), (Cell(70, 40), [(14, 8)])]
)
def test_asked_plane_has_the_cell_alone(cell: Cell, bins: list[tuple[int, int]]) -> None:
    plane = asked_plane(cell)
    assert [tuple(place) for place in np.argwhere(plane).tolist()] == bins


def test_of_round_trips_nothing_was_asked(tmp_path: Path) -> None:
    folder = write_run(tmp_path, ROWS, round_trip=True)
    page = page_of(folder)
    assert page.shows("6 rewrites of 9 rows by the model tiny-rewriter, translated and back")
    found = read_rewrites(folder)
    assert (found.nearest, found.farthest, found.summary.inside) == ([], [], None)
    assert len(found.sample) == 6
    lines = {name: (asked, obtained) for name, asked, obtained in found.summary.lines()}
    assert lines["meaning, mean"] == ("", "93.6")
    for words in ("inside the asked cell", "Asked for"):
        assert words not in lines
        assert not page.shows(words)


def test_report_command_writes_this_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ROWS)
    assert write_report(folder) == folder / "report.html"
    (folder / "report.html").unlink()
    done = tilth("report", folder, "--json")
    assert json.loads(done.stdout) == read_rewrites(folder).summary.to_dict()
    assert "report of rewrites" in (folder / "report.html").read_text(encoding="utf-8")
    done = tilth("report", folder)
    assert "inside the asked cell" in done.stdout


def test_what_is_no_rewrite_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run.json"):
        read_rewrites(tmp_path)
    edited = write_run(tmp_path / "edited", ROWS)
    about = read_json(edited / "run.json")
    about["settings"]["meaning"] = 1e400
    (edited / "run.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="meaning inf"):
        write_report(edited)
    broken = write_run(tmp_path / "broken", [{**ROWS[0], "text": 5}])
    with pytest.raises(TilthError, match="a part holds what"), refuse_edited(broken):
        write_report(broken)
    with pytest.raises(InputError, match="no rows to report"):
        read_rewrites(write_run(tmp_path / "empty", [], parts=1))
    Run.open(tmp_path / "other", command="paraphrase corpus", settings={}, fingerprints={}, parts=1)
    with pytest.raises(InputError, match="holds a run of `tilth paraphrase corpus`"):
        write_rewrite_report(tmp_path / "other")
    with pytest.raises(InputError, match="only pages of generate"):
        write_report(tmp_path / "other")
    folder = write_run(tmp_path / "run", ROWS)
    done = tilth("report", folder, "--encoder", "starter", code=2)
    assert "--encoder counts for generate runs only" in done.stderr
    assert not (folder / "report.html").exists()

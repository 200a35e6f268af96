"""DINO's Table 3 from annotations: those of `tilth view`, and files exported from them."""

from pathlib import Path
from typing import Any

import pytest

from tests.recipes.running import measured, run
from tests.tiny import read_json
from tilth.errors import InputError
from tilth.metrics.agreement import wilson
from tilth.view.annotations import CLASS, GRADE, Annotation, Annotations, SampleAbout, SampleItem
from tilth.view.exchange import FORMATS, records_of

LABELS = ["0.0", "0.1", "0.5", "0.9"]
# Generated label -> what people say of its pairs; each pair is judged by both.
SAID = {
    "0.0": ["0", "0", "0", "0.5"], "0.1": ["0.1", "0.5"], "0.5": ["0.5", "0.5", "0.9"],
    "0.9": ["0.9", "0.5", "0.1", "0.9", "0.5"],
}  # fmt: skip


def annotate(folder: Path, task: str = CLASS) -> Path:
    """Write a sample with the answers of `SAID`, a disputed pair and one that was skipped."""
    notes = Annotations(folder)
    rows = [(label, said) for label, each in SAID.items() for said in each]
    items = [
        SampleItem(row=n, key=f"k{n}", first=f"first {n}", text=f"second {n}", label=label)
        for n, (label, _) in enumerate([*rows, ("0.9", ""), ("0.0", "")])
    ]
    about = SampleAbout(
        task=task, labels=LABELS, draw="random", seed=0, overlap=1.0, run="pairs"
    )  # fmt: skip
    sample = notes.add("first", about, items)

    def say(place: int, person: str, value: Any) -> None:
        notes.answer(sample, Annotation(place, person, value, "", False, float(place), None))

    for place, (_, said) in enumerate(rows):
        for person in ("Ann", "Bob"):
            say(place, person, said if task == CLASS else 3)
    say(len(rows), "Ann", "0.9" if task == CLASS else 1)
    say(len(rows), "Bob", "0" if task == CLASS else 2)
    say(len(rows) + 1, "Ann", None)
    return folder


@pytest.mark.parametrize("form", ["folder", *FORMATS])
def test_the_share_of_each_score_is_counted_by_label(tmp_path: Path, form: str) -> None:
    data = annotate(tmp_path / "pairs.annotations")
    if form != "folder":
        notes = Annotations(data)
        text = records_of(notes.sample(1), notes.items(1), notes.answers(1), form)
        data = tmp_path / f"pairs.{form}"
        data.write_text(text, encoding="utf-8")
    table, folder = run("dino-table3", data, tmp_path / "out")
    shares = {row.name: row.cells for row in measured(table)}
    for made, said in SAID.items():
        column = f"label {float(made):g}"
        for score in LABELS:
            cell = shares[f"people: {float(score):g}"][column]
            count = sum(float(one) == float(score) for one in said)
            assert cell.value == pytest.approx(100 * count / len(said))
            assert (cell.low, cell.high) == pytest.approx(
                tuple(100 * end for end in wilson(count, len(said)))
            )
        assert shares["pairs"][column].value == len(said)
    published = [row for row in table.rows if row.published]
    assert [row.name for row in published] == [f"people: {float(one):g}" for one in LABELS]
    for column in table.columns:  # the paper's percentages are rounded
        assert 99 <= sum(row.cells[column].value for row in published) <= 101
    notes_said = "\n".join(table.notes)
    assert "Ours: 14 pairs of pairs" in notes_said
    left = 2 if form == "folder" else 1  # a file says nothing of a pair that was only skipped
    assert f"Left out, skipped or without a majority: {left}." in notes_said
    assert "Ours: 40% of the pairs meant to be the same do mean (almost) the same" in notes_said
    assert "people: 0.9 (published)" in (folder / "results.md").read_text()
    assert len(read_json(folder / "results.json")["rows"]) == 9


def test_other_annotations_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no pair with a label .*task class"):
        run("dino-table3", annotate(tmp_path / "graded.annotations", GRADE), tmp_path / "out")
    empty = tmp_path / "empty.annotations"
    empty.mkdir()
    with pytest.raises(InputError, match="holds no answer: annotate a sample"):
        run("dino-table3", empty, tmp_path / "out")
    with pytest.raises(InputError, match="no such folder"):
        run("dino-table3", tmp_path / "nowhere", tmp_path / "out")


def test_other_recipes_take_no_file(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"data.jsonl: is a file: .*which folder"):
        run("dino-table1", tmp_path / "data.jsonl", tmp_path / "out")

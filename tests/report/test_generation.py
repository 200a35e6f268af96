import json
import logging
import os
import shlex
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from tests.tiny.rows import SENTENCES, pair_rows, single_rows, write_curated, write_run
from tilth.errors import InputError, TilthError
from tilth.report import gather, health_of_run

ROWS = pair_rows(SENTENCES[:40])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "sts", ROWS)


def test_figures_and_facts(run: Path) -> None:
    report = gather(run)
    kept = [row for row in ROWS if row["drop_reason"] is None]
    assert (report.health.tries, report.health.kept) == (len(ROWS), len(kept))
    assert report.inputs == 40
    assert (report.task, report.model) == ("sts-x2", "starter")
    assert report.command == "tilth generate sts-x2"
    assert ("decay", "100.0") in report.settings
    assert report.versions["torch"] == "2.9.0"
    assert report.instructions["1"].endswith('"')
    assert not report.notices
    assert health_of_run(run).to_dict() == report.health.to_dict()


def test_same_input_shows_all_labels_of_an_input(run: Path) -> None:
    report = gather(run)
    assert len(report.same_input) == 8
    for rows in report.same_input:
        inputs = {row.text_a for row in rows}
        assert len(inputs) == 1
        expected = {
            (row["label"], row["text_b"])
            for row in ROWS
            if row["text_a"] in inputs and row["drop_reason"] is None
        }
        assert {(row.label, row.text) for row in rows} == expected
        assert [float(row.label) for row in rows] == sorted(
            (float(row.label) for row in rows), reverse=True
        )


def test_seed_changes_the_examples(run: Path) -> None:
    one, again, other = (gather(run, seed=seed).same_input for seed in (0, 0, 1))
    assert one == again
    assert one != other


def test_many_labels_are_shown_label_by_label(tmp_path: Path) -> None:
    rows = [{**row, "label": f"intent {i % 9}"} for i, row in enumerate(ROWS)]
    report = gather(write_run(tmp_path / "r", rows))
    assert not report.same_input
    assert len({row.label for row in report.kept_examples}) == 9


def test_dropped_examples_cover_the_reasons(run: Path) -> None:
    found = {(row.label, row.reason) for row in gather(run).dropped_examples}
    assert found == {
        (row["label"], row["drop_reason"]) for row in ROWS if row["drop_reason"] is not None
    }


def test_similarity_is_word_overlap_unless_told(run: Path) -> None:
    report = gather(run)
    medians = {k: float(np.median(v)) for k, v in report.likeness.values.items()}
    assert medians["1"] > medians["0.5"] > medians["0"]
    assert "Word overlap" in report.likeness.method

    def half(list_a: object, list_b: object) -> np.ndarray:
        return np.full(len(list_a), 0.5)

    told = gather(run, similarity=half, method="Always a half.")
    assert told.likeness.method == "Always a half."
    assert set(told.likeness.values["1"]) == {0.5}


def test_encoder(run: Path) -> None:
    class Same:
        def encode(self, sentences: list[str]) -> np.ndarray:
            return np.ones((len(sentences), 3))

    report = gather(run, encoder=Same())
    assert np.allclose(report.likeness.values["0"], 1.0)
    assert "sentence encoder" in report.likeness.method


def test_time(run: Path) -> None:
    assert gather(run, seconds=12.5).seconds == 12.5
    began = datetime(2026, 11, 21, 9, tzinfo=timezone.utc).timestamp()
    for part in (run / "parts").iterdir():
        os.utime(part, (began + 90, began + 90))
    report = gather(run)
    assert report.seconds == pytest.approx(90)
    assert "pauses included" in report.time_note
    for part in (run / "parts").iterdir():
        os.utime(part, (began - 90, began - 90))  # copied from elsewhere
    assert gather(run).seconds is None


def test_command_can_be_given(run: Path) -> None:
    assert gather(run, command="tilth generate x --out y").command == "tilth generate x --out y"


def test_next_steps(run: Path) -> None:
    commands = [command for _, command in gather(run).next_steps]
    assert commands[0] == f"tilth curate {run}"
    assert f"{run}/dataset" in commands[1]
    write_curated(run / "curated", {1.0: 10}, {})
    commands = [command for _, command in gather(run).next_steps]
    assert f"{run}/curated" in commands[0]
    assert not any("tilth curate" in command for command in commands)
    assert gather(run, next_steps=[("Rest", "true")]).next_steps == [("Rest", "true")]


def test_next_steps_after_nothing_was_kept(tmp_path: Path) -> None:
    rows = [{**row, "drop_reason": "not-closed"} for row in ROWS]
    commands = [command for _, command in gather(write_run(tmp_path / "r", rows)).next_steps]
    assert len(commands) == 1
    assert "--plan" in commands[0]


def test_folders_with_odd_names_are_quoted(tmp_path: Path) -> None:
    commands = [c for _, c in gather(write_run(tmp_path / "it's; rm", ROWS)).next_steps]
    for command in commands[:2]:
        assert "it's; rm" in " ".join(shlex.split(command))
        assert "rm" not in shlex.split(command)
    code = shlex.split(commands[1])[2]
    compile(code, "step", "exec")


def test_curated_folder(run: Path, tmp_path: Path) -> None:
    labels = {0.0: 40, 0.1: 30, 0.5: 20, 0.9: 10}
    folder = write_curated(tmp_path / "clean", labels, {"duplicate": 3, "identical-pair": 1})
    curated = gather(run, curated=folder).curated
    assert curated.splits == {"train": 90, "validation": 10}
    assert curated.labels == {"0.9": 10, "0.5": 20, "0.1": 30, "0": 40}
    assert curated.dropped == {"duplicate": 3, "identical-pair": 1}
    assert curated.rows == 100


def test_curated_inside_the_run_is_found(run: Path) -> None:
    assert gather(run).curated is None
    write_curated(run / "curated", {1.0: 10}, {"duplicate": 1})
    assert gather(run).curated.rows == 10


def test_curated_folder_without_rows(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no curated rows"):
        gather(run, curated=tmp_path / "empty")


def test_single_texts(tmp_path: Path) -> None:
    rows = single_rows({"good": ["Nice."] * 3, "bad": ["Awful."] * 2})
    report = gather(write_run(tmp_path / "r", rows, settings={"model": "m"}))
    assert (report.inputs, report.likeness, report.same_input) == (None, None, [])
    assert [row.text for row in report.kept_examples] == ["Nice."] * 3 + ["Awful."] * 2
    assert report.task == "r"  # nothing names the task: the folder does


def test_unfinished_run(tmp_path: Path) -> None:
    report = gather(write_run(tmp_path / "r", ROWS, parts=3, planned=8))
    assert "3 of 8 parts" in report.notices[0]


def test_damaged_part_is_named_and_left_out(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    (run / "parts" / "part-00001.parquet").write_bytes(b"PAR1 and then nothing")
    with caplog.at_level(logging.WARNING):
        report = gather(run)
    assert 0 < report.health.tries < len(ROWS)
    assert any("part-00001" in notice for notice in report.notices)
    assert "part-00001" in caplog.text


def test_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run\.json"):
        gather(tmp_path)
    with pytest.raises(InputError, match=r"no run\.json"):
        health_of_run(tmp_path)


def test_run_without_tries(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [])
    for read in (gather, health_of_run):
        with pytest.raises(InputError, match="no tries to report"):
            read(run)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_broken_run_json(run: Path, text: str) -> None:
    (run / "run.json").write_text(text)
    with pytest.raises(TilthError, match=r"run\.json"):
        gather(run)


def test_task_named_by_a_string_or_path(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", ROWS, settings={"task": "tasks/mine.yaml", "model": "m"})
    assert gather(run).task == "mine"
    asked = json.loads((run / "run.json").read_text())
    assert ("task", "tasks/mine.yaml") in gather(run).settings
    assert asked["settings"]["model"] == gather(run).model


def test_the_run_of_another_command_is_refused(run: Path) -> None:
    asked = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**asked, "command": "train encoder"}))
    with pytest.raises(InputError, match="holds a run of `tilth train encoder`"):
        gather(run)

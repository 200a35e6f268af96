import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import Dataset, load_dataset

import tilth
from tests.tiny import write_rows
from tilth.data import DatasetWriter, load_folder, read_rows
from tilth.data.settings import CurateOptions
from tilth.errors import InputError, TilthError
from tilth.workflows.curate import curate_folder


def rows(inputs: int = 20) -> list[dict[str, Any]]:
    return [
        {"text_a": f"input {name}", "text_b": f"text {name} {label} {k % 3}", "label": label}
        for name in map(chr, range(97, 97 + inputs))
        for label in (0.0, 0.5, 1.0)
        for k in range(4)
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    write_rows(path, rows())
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    table = pa.Table.from_pylist([{**row, "model": "starter", "try": 0} for row in rows()])
    with DatasetWriter(folder / "dataset") as writer:
        writer.write(table)
    return folder


COLUMNS = ["text_a", "text_b", "label"]
COUNTS = {
    "rows in": 240, "empty": 0, "identical-pair": 0, "duplicate": 60, "over-per-label": 60,
    "sampled pairs": 40, "train": 144, "validation": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("premise", "hypothesis"), "score"),
        (("sentence1", "sent2"), "label"),
        (("text_a", "sentence_b"), "similarity_score"),
    ],
)
def test_usual_names_of_columns_are_found(
    file: Path, tmp_path: Path, names: tuple[str, str], label: str
) -> None:
    new = dict(zip(("text_a", "text_b", "label"), (*names, label), strict=True))
    given = [{new[key]: value for key, value in row.items()} for row in rows()]
    folder, counts = curate_folder(str(write_rows(tmp_path / "other.jsonl", given)), None)
    plain, expected = curate_folder(str(file), tmp_path / "plain")
    assert counts == expected
    assert load_folder(folder)[:] == load_folder(plain)[:]
    texts = [{"review": f"Text {number}.", "label": number % 2} for number in range(9)]
    assert set(tilth.curate(texts)["train"].column_names) == {"text", "label"}
    assert tilth.curate(given)["train"][:] == load_folder(plain)[:]


def test_columns_of_other_names_are_named(file: Path, tmp_path: Path) -> None:
    new = {"text_a": "First, one", "text_b": "second", "label": "grade"}
    given = [{**{new[key]: value for key, value in row.items()}, "label": "no"} for row in rows()]
    other = write_rows(tmp_path / "other.jsonl", given)
    columns = ["First, one", "second"], "grade"
    folder, counts = curate_folder(str(other), tmp_path / "out", columns=columns)
    plain, expected = curate_folder(str(file), tmp_path / "plain")
    assert counts == expected
    for split in ("train", "validation"):
        assert (
            load_folder(folder, split)
            .to_pandas()[COLUMNS]
            .equals(load_folder(plain, split).to_pandas()[COLUMNS])
        )
    single, _ = curate_folder(str(other), tmp_path / "single", columns=("second", "grade"))
    assert set(load_folder(single).column_names) == {"text", "label", "First, one"}
    for columns, said in (
        (("nope", None), "no column 'nope'"), (("second", "nope"), "no column 'nope'"),
        (("second", "second"), "holds the texts: name that of the labels"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            curate_folder(str(other), tmp_path / "wrong", columns=columns)


def content(folder: Path) -> list[Any]:
    parts = [("train", "default"), ("validation", "default"), ("train", "dropped")]
    return [load_folder(folder, split, config).to_list() for split, config in parts]


@pytest.mark.parametrize("inside", ["", "dataset"])
def test_a_run(run: Path, inside: str) -> None:
    folder, counts = curate_folder(str(run / inside), None)
    assert folder == run / "curated"
    assert counts == COUNTS
    card = (folder / "README.md").read_text()
    for fact in ("`tilth curate", "`starter`", "| duplicate | 60 |", "sampled_pairs", "40 of them"):
        assert fact in card
    assert "| train | 0.9 | 36 |" in card


def test_the_folder_loads_with_datasets(file: Path, tmp_path: Path) -> None:
    folder, counts = curate_folder(str(file), None)
    assert folder == tmp_path / "pairs-curated"
    cache = str(tmp_path / "cache")
    loaded = load_dataset(str(folder), cache_dir=cache)
    assert loaded.num_rows == {"train": counts["train"], "validation": counts["validation"]}
    dropped = load_dataset(str(folder), "dropped", split="train", cache_dir=cache)
    assert set(dropped["drop_reason"]) == {"duplicate", "over-per-label"}
    assert len(dropped) == 120


def test_options_reach_the_rows(file: Path, tmp_path: Path) -> None:
    options = CurateOptions(
        smoothing=0.5, sampled_pairs=1, per_label=1, validation_share=0, near_duplicates=0.5, seed=3
    )
    _, counts = curate_folder(str(file), tmp_path / "out", options)
    assert counts["near-duplicate"]
    assert (counts["sampled pairs"], counts["validation"]) == (20, 0)
    train = load_folder(tmp_path / "out")
    assert set(train["label"]) == {0.0, 0.25, 0.5, 0.75}
    assert load_folder(tmp_path / "out", "validation").num_rows == 0
    curate_folder(
        str(file), tmp_path / "other", CurateOptions(sampled_pairs=1, validation_share=0.2, seed=4)
    )
    curate_folder(
        str(file), tmp_path / "again", CurateOptions(sampled_pairs=1, validation_share=0.2, seed=4)
    )
    curate_folder(
        str(file), tmp_path / "seed", CurateOptions(sampled_pairs=1, validation_share=0.2, seed=5)
    )
    assert content(tmp_path / "other") == content(tmp_path / "again")
    assert content(tmp_path / "other") != content(tmp_path / "seed")


def test_an_earlier_curated_set_is_replaced(file: Path) -> None:
    folder, _ = curate_folder(str(file), None)
    _, counts = curate_folder(str(file), None, CurateOptions(sampled_pairs=0))
    assert load_folder(folder).num_rows == counts["train"] == 108


def test_a_folder_of_files_twice(file: Path, tmp_path: Path) -> None:
    source = tmp_path / "files"
    source.mkdir()
    file.rename(source / file.name)
    for _ in range(2):
        folder, counts = curate_folder(str(source), None)
        assert (folder, counts) == (tmp_path / "files-curated", COUNTS)


def test_csv_labels_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    Dataset.from_list(rows()).to_csv(str(path), index=False)
    assert curate_folder(str(path), None)[1] == COUNTS


def test_another_set_is_replaced_when_asked_alone(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    with DatasetWriter(out) as writer:
        writer.write(pa.table({"text": ["mine"]}))
    with pytest.raises(InputError, match="holds no curated set"):
        curate_folder(str(file), out)
    assert read_rows(out)["text"][:] == ["mine"]
    curate_folder(str(file), out, overwrite=True)
    assert "label" in load_folder(out).column_names


def test_foreign_files_are_never_removed(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "notes"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(InputError):
            curate_folder(str(file), out, overwrite=overwrite)
    assert (out / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("out", ["", "dataset"])
def test_the_source_is_never_replaced(run: Path, out: str) -> None:
    with pytest.raises(InputError, match=r"holds .* itself: choose another"):
        curate_folder(str(run), run / out, overwrite=True)
    assert len(read_rows(run)) == 240


def test_a_place_among_the_files_that_are_read_is_refused(file: Path) -> None:
    with pytest.raises(InputError, match=r"lies in .*, which is read: choose another --out"):
        curate_folder(str(file.parent), file.parent / "out")


def test_a_link_to_itself_as_out_is_one_line(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.symlink_to(out)
    with pytest.raises(TilthError, match="out: is no folder: choose another --out"):
        curate_folder(str(file), out)


def test_another_run_is_never_replaced(file: Path, run: Path) -> None:
    with pytest.raises(InputError, match="holds a run"):
        curate_folder(str(file), run, overwrite=True)


def test_a_file_as_out(file: Path) -> None:
    with pytest.raises(InputError, match="is a file"):
        curate_folder(str(file), file)


def test_curating_twice_warns(file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, _ = curate_folder(str(file), None)
    curate_folder(str(folder), tmp_path / "twice")
    assert "once more" in caplog.text


def test_errors_name_the_source(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "x"}')
    with pytest.raises(InputError, match=r"rows\.jsonl: no column 'label'"):
        curate_folder(str(path), None)
    assert not (tmp_path / "rows-curated").exists()
    path.write_text('{"text": "x", "label": "a"}')
    with pytest.raises(InputError, match=r"smoothing is 0\.2, but labels are no numbers"):
        curate_folder(str(path), None, CurateOptions(smoothing=0.2))


@pytest.mark.parametrize("source", ["missing.jsonl", "/missing/folder"])
def test_no_such_source(source: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        curate_folder(source, None)


def test_a_hub_set_needs_a_place() -> None:
    with pytest.raises(InputError, match="--out"):
        curate_folder("owner/name", None)


def test_many_labels_are_summed_up_in_the_card(tmp_path: Path) -> None:
    path = tmp_path / "graded.jsonl"
    graded = [{"text_a": f"a{i}", "text_b": f"b{i}", "label": i / 7} for i in range(99)]
    write_rows(path, graded)
    folder, _ = curate_folder(str(path), None, CurateOptions(sampled_pairs=0, validation_share=0))
    assert "99 different labels" in (folder / "README.md").read_text()


def test_files_of_one_beginning_have_folders_of_their_own(file: Path, tmp_path: Path) -> None:
    for name in ("set.train.jsonl", "set.test.jsonl"):
        shutil.copy(file, tmp_path / name)
        folder, _ = curate_folder(str(tmp_path / name), None)
        assert folder == tmp_path / f"{name.removesuffix('.jsonl')}-curated"

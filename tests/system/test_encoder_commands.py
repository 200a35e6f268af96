"""`tilth train encoder`, `tilth evaluate sts` and `tilth recipe` on tiny models and sets."""

import json
from pathlib import Path

import pytest

from tests.system.commands import error_of, imported_by, tilth
from tests.tiny import graded_pairs, read_json, write_lines, write_rows, write_vectors
from tilth.evaluate import sts
from tilth.models import load_encoder

SETTINGS = [
    "--learning-rate", "1e-3", "--batch", "8", "--evaluate-every", "5", "--precision", "float32",
    "--device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", graded_pairs(300))


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sts")
    for seed, name in ((40, "sts12"), (41, "stsb-test")):
        rows = graded_pairs(45, seed=seed)
        rows["score"] = [5 * label for label in rows.pop("label")]
        write_rows(folder / f"{name}.jsonl", rows)
    return folder


def test_measuring_a_static_encoder_imports_no_torch(static: str, sets: Path) -> None:
    imported = imported_by("evaluate", "sts", static, "--data", sets, "--bootstrap", 0)
    assert "tilth.evaluate.sts" in imported
    assert not imported & {"torch", "transformers", "sentence_transformers", "sklearn", "datasets"}


def test_vectors_of_a_static_encoder_import_no_torch(static: str, tmp_path: Path) -> None:
    imported = imported_by("predict", static, write_lines(tmp_path / "a.txt", ["A dog."]),
                           "--out", tmp_path / "run")  # fmt: skip
    assert (tmp_path / "run" / "dataset").is_dir()
    assert not imported & {"torch", "transformers", "sentence_transformers", "sklearn"}


def test_train_measures_what_was_gained_and_evaluate_agrees(
    base: str, pairs: Path, sets: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    said = tilth("train", "encoder", pairs, "-o", out, "-b", base, "--sts", sets, *SETTINGS)
    for row in ("before training", "after training", "starter-static", "starter-encoder"):
        assert row in said.stdout
    results = read_json(out / "results.json")
    means = {name: found["mean"]["spearman"] for name, found in results["scores"].items()}
    best = max(means, key=means.__getitem__)
    assert best in ("starter-static", "starter-encoder")
    (warning,) = results["warnings"]
    assert warning.startswith(f"Warning: {best} has {means[best]:.1f} in the mean, the trained")
    assert f"take {best} as it is, or train it: --base {best}" in " ".join(said.stderr.split())
    assert "Not measured, and not in the mean: sts13" in said.stderr
    page = (out / "report.html").read_text()
    assert "after training" in page
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sts, "pair_cosines", lambda *_: pytest.fail("measured again"))
        again = tilth("train", "encoder", pairs, "-o", out, "-b", base, "--sts", sets, *SETTINGS)
    assert again.stdout == said.stdout
    assert (out / "report.html").read_text() == page
    assert load_encoder(str(out / "model")).encode(["a man"]).shape == (1, 32)

    kept = tmp_path / "kept"
    told = tilth("evaluate", "sts", out, "-d", sets, "--json", "-o", kept)
    scores = json.loads(told.stdout)
    assert scores["mean"]["sets"] == ["sts12", "stsb"]
    assert scores["sts12"]["low"] < scores["sts12"]["spearman"] < scores["sts12"]["high"]
    assert scores["sts12"]["overlap"] == {"rows": 0, "pairs": 0, "sentences": 0}
    assert read_json(kept / "results.json") == scores
    assert (kept / "report.html").exists()
    before = json.loads(tilth("evaluate", "sts", base, "-d", sets, "--json").stdout)
    assert scores["mean"]["spearman"] > before["mean"]["spearman"]
    shown = tilth("evaluate", "sts", out, "-d", sets, "--sets", "stsb", "--wrong", 2).stdout
    assert f"{scores['stsb']['spearman']:.1f}" in shown
    assert "Most wrong pairs" in shown
    assert "sts12" not in shown


def test_validation_on_generated_pairs_is_named_so(base: str, tmp_path: Path) -> None:
    rows = {**graded_pairs(60), "source_id": [str(n) for n in range(60)], "model": ["lm"] * 60}
    pairs = write_rows(tmp_path / "pairs.jsonl", rows)
    out = tmp_path / "run"
    said = " ".join(
        tilth("train", "encoder", pairs, "-o", out, "-b", base, *SETTINGS).stderr.split()
    )
    assert "validation (generated rows)" in said
    assert "Validation (generated rows) does not measure real data: give --sts" in said
    assert read_json(out / "results.json")["validated"] == {
        "rows": 6, "generated": 6,
    }  # fmt: skip
    assert "validation (generated rows) Spearman" in (out / "report.html").read_text()


def test_overlap_is_counted_and_dropped_on_either_side(
    base: str, sets: Path, tmp_path: Path
) -> None:
    rows, shared = graded_pairs(200, seed=3), graded_pairs(15, seed=40)
    pairs = write_rows(tmp_path / "p.jsonl", {key: rows[key] + shared[key] for key in rows})
    told = tilth("evaluate", "sts", base, "-d", sets, "--train", pairs, "--drop-overlap", "--json")
    scores = json.loads(told.stdout)
    assert scores["sts12"]["overlap"]["pairs"] > 10
    assert scores["sts12"]["n"] == 45 - scores["sts12"]["dropped"]
    said = tilth(
        "train", "encoder", pairs, "-o", tmp_path / "run", "-b", base, "--sts", sets,
        "--drop-overlap", *SETTINGS,
    )  # fmt: skip
    assert "15 pairs hold a sentence of the sets and were left out" in said.stderr
    assert "training rows hold one of its sentences" not in said.stderr
    known = tilth("evaluate", "sts", tmp_path / "run", "-d", sets, "--json", "--bootstrap", 0)
    assert json.loads(known.stdout)["sts12"]["overlap"] == scores["sts12"]["overlap"]
    texts = write_rows(tmp_path / "texts.jsonl", {"text": rows["text_a"] + shared["text_a"]})
    told = tilth("evaluate", "sts", base, "-d", sets, "--train", texts, "--json", "--bootstrap", 0)
    assert json.loads(told.stdout)["sts12"]["overlap"]["rows"] >= 15


def test_named_columns_of_pairs_are_known_to_the_run(base: str, sets: Path, tmp_path: Path) -> None:
    rows, shared = graded_pairs(60, seed=3), graded_pairs(15, seed=40)
    names = {"text_a": "one", "text_b": "two", "label": "alike"}
    pairs = write_rows(
        tmp_path / "p.jsonl", {named: rows[key] + shared[key] for key, named in names.items()}
    )
    out, columns = tmp_path / "run", ("--text", "one,two", "--label", "alike")
    tilth("train", "encoder", pairs, "-o", out, "-b", base, *columns, *SETTINGS)
    told = tilth("evaluate", "sts", out, "-d", sets, "--json", "--bootstrap", 0)
    assert json.loads(told.stdout)["sts12"]["overlap"]["pairs"] > 10
    held = {named: shared[key] for key, named in names.items()}
    other = write_rows(tmp_path / "held.jsonl", held)
    told = tilth("evaluate", "sts", out, "-d", other, "--json", "--bootstrap", 0)
    assert json.loads(told.stdout)["held"]["overlap"]["pairs"] == 15
    usual = write_rows(
        tmp_path / "usual.jsonl", {**shared, "score": shared["label"], "alike": ["x"] * 15}
    )
    told = tilth("evaluate", "sts", out, "-d", usual, "--json", "--bootstrap", 0)
    assert "usual" in json.loads(told.stdout)  # alike is of other texts
    again = tilth(
        "train", "encoder", pairs, "-o", tmp_path / "more", "-b", base, *columns, *SETTINGS,
        "--sts", other,
    )  # fmt: skip
    assert "after training" in again.stdout
    columns = "--text", "one,two", "--label", "more"
    said = tilth("train", "encoder", pairs, "-o", out, "-b", base, *columns, code=2)
    assert "no column 'more'" in said.stderr


def test_word_vectors_are_encoders_too(sets: Path, tmp_path: Path) -> None:
    vectors = write_vectors(tmp_path / "glove.txt")
    found = {}
    for kind in ("words", "words-idf", "words-sif"):
        told = tilth("evaluate", "sts", f"{kind}:{vectors}", "-d", sets, "--json", "--bootstrap", 0)
        scores = json.loads(told.stdout)
        assert scores["mean"]["low"] is None
        found[kind] = scores["mean"]["spearman"]
    assert len(set(found.values())) == 3
    assert min(found.values()) > 50


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "sts", "words:none.txt", "-d", "SETS"], "none.txt: no such file"),
        (["evaluate", "sts", "BASE", "-d", "EMPTY"], "none of the STS sets"),
        (["evaluate", "sts", "BASE", "-d", "SETS", "--sets", "sts99"], "no set 'sts99'"),
        (["evaluate", "sts", "BASE", "-d", "SETS", "--drop-overlap"], "drop_overlap needs"),
        (["train", "encoder", "PAIRS", "-o", "OUT", "--drop-overlap"], "say with --sts"),
        (["evaluate", "sts", "BASE", "-d", "SETS", "-o", "BASE", "--overwrite"], "another --out"),
        (["evaluate", "sts", "BASE", "-d", "SETS", "-o", "ABOVE", "--overwrite"], "another --out"),
        (
            ["train", "encoder", "PAIRS", "-b", "BASE", "-o", "AMONG", "--overwrite"],
            "another --out",
        ),
        (["recipe", "run", "dino-table1", "-d", "EMPTY", "-o", "OUT"], "none of the STS sets"),
    ],
)
def test_wrong_arguments_are_one_line(
    base: str, pairs: Path, sets: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"BASE": base, "PAIRS": pairs, "SETS": sets, "EMPTY": tmp_path / "empty",
              "OUT": tmp_path / "out", "ABOVE": sets.parent, "AMONG": pairs.parent}  # fmt: skip
    assert said in error_of(*(places.get(word, word) for word in arguments))
    assert Path(base, "model.safetensors").exists()
    assert pairs.exists()


def test_recipes_are_listed_and_shown() -> None:
    listed = json.loads(tilth("recipe", "list", "--json").stdout)
    assert {"dino-table1", "dino-table2", "dino-table5", "sentaugment-table9"} <= set(listed)
    shown = tilth("recipe", "show", "dino-table2").stdout
    assert "gpt2-xl" in shown
    assert "roberta-base" in shown

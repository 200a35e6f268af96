import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipes.running import measured, put_scale, run
from tests.tiny import graded_pairs, read_json, save_model, tiny_lm, write_rows, write_vectors
from tilth.errors import InputError
from tilth.evaluate.sts import evaluate_sts, summarise_sts
from tilth.evaluate.sts_sets import read_sets
from tilth.models import load_encoder
from tilth.recipes import dino, dino_tables
from tilth.recipes.catalog import RECIPES, run_recipe
from tilth.recipes.dino_tables import DinoScale
from tilth.recipes.recipe import RecipeSettings, Steps
from tilth.recipes.sts_board import StsBoard, overlap_note, word_files
from tilth.recipes.table import Row, Table, TableCell, over_seeds, published, to_markdown
from tilth.workflows.evaluate_sts import measure

TRAINING = {"learning_rate": 1e-3, "evaluate_every": 20}


def write_set(path: Path, count: int, seed: int) -> None:
    rows = graded_pairs(count, seed=seed)
    rng = np.random.default_rng(seed)
    lines = [
        {"text_a": a, "text_b": b, "score": round(5 * label + rng.uniform(-0.5, 0.5), 2),
         "subset": ("one", "two")[n % 2]}
        for n, (a, b, label) in enumerate(zip(*rows.values(), strict=True))
    ]  # fmt: skip
    write_rows(path, lines)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(("sts12", "sts14", "stsb-test", "stsb-train"), 50):
        write_set(folder / "sts" / f"{name}.jsonl", 60, seed)
    write_rows(folder / "sts" / "quarter.jsonl", graded_pairs(60, seed=7))
    write_vectors(folder / "words" / "glove-tiny.txt", dimension=6)
    return folder


@pytest.fixture
def tiny(
    base: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> DinoScale:
    """Put tiny models in place of the starter ones."""
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "lm", tiny_lm("llama"))
    scale = DinoScale(
        lm=str(folder / "lm"), base=base, inputs=30, first_texts=20, training=TRAINING,
        departures=("tiny models",),
    )  # fmt: skip
    put_scale(monkeypatch, scale, *(name for name in RECIPES if name.startswith("dino")))
    return scale


@pytest.mark.slow
def test_table_1_and_5_share_their_steps_and_say_what_they_are(
    data: Path, tiny: DinoScale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    table, folder = run("dino-table1", data, tmp_path, seeds=2, say=said.append)
    assert [row.name for row in table.rows] == [
        "avg. word vectors (glove-tiny)",
        f"{tiny.base} encoder, mean-pooled",
        f"{tiny.base} encoder, [CLS]",
        "trained on x1x2",
        "trained on x2",
        "InferSent, GloVe (NLI)", "USE", "S-BERT on NLI", "S-RoBERTa on NLI", "Avg. GloVe",
        "Avg. BERT", "BERT CLS", "Zhang et al. 2020 (NLI texts)", "Li et al. 2020 (NLI texts)",
        "Li et al. 2020 (STS texts)", "DINO x1x2", "DINO x2",
    ]  # fmt: skip
    ours = {row.name: row for row in measured(table)}
    assert set(ours["trained on x2"].cells) == {"STS12", "STS14", "STSb", "Avg. of measured"}
    assert ours["trained on x2"].cells["STS12"].deviation is not None
    assert ours[f"{tiny.base} encoder, [CLS]"].cells["STS12"].deviation is None
    # The figures are those that an evaluation of the kept encoders gives.
    both = [
        evaluate_sts(load_encoder(str(path / "model")), data)
        for path in sorted((tmp_path / "starter/steps").glob("train-x2-seed*"))
    ]
    mean = np.mean([scores["stsb"]["spearman"] for scores in both])
    assert ours["trained on x2"].cells["STSb"].value == pytest.approx(mean, abs=1e-6)
    notes = "\n".join(table.notes)
    assert "Not in" in notes
    assert "STS13, STS15, STS16, SICK" in notes
    assert "Unlike in the paper: tiny models." in notes
    assert f"Unlike in the paper: base {tiny.base} for RoBERTa-base (125M parameters)." in notes
    assert "x1x2: of 20 first texts asked for" in notes
    dino_x2 = next(row for row in table.rows if row.name == "DINO x2")
    same_sets = (70.27 + 71.25 + 77.82) / 3
    assert dino_x2.cells["Avg. of measured"].value == pytest.approx(same_sets)
    assert dino_x2.cells["Avg."].value == 75.20
    assert {"x2", "x1x2", "train-x2-seed0", "train-x2-seed1"} <= set(said)

    results = read_json(folder / "results.json")
    assert len(results["rows"]) == len(table.rows)
    assert "DINO x2 (published)" in (folder / "results.md").read_text()
    page = (folder / "report.html").read_text()
    assert "published" in page
    assert "trained on x2" in page

    with monkeypatch.context() as patch:
        patch.setattr("tilth.encoders.train.fit_encoder", lambda *_, **__: pytest.fail("trained"))
        patch.setattr(
            "tilth.generation.engine.Engine.decode", lambda *_: pytest.fail("wrote"), raising=False
        )
        fifth, _ = run("dino-table5", data, tmp_path, seeds=2)
        again, _ = run("dino-table1", data, tmp_path, seeds=2)
    assert again == table
    fifth_row = next(row for row in fifth.rows if row.name == "trained on x2")
    assert set(fifth_row.cells) == {"STS12", "STS14", "Avg. of measured"}
    by_subset = [evaluate_sts(load_encoder(str(p / "model")), data, protocol="mean")
                 for p in sorted((tmp_path / "starter/steps").glob("train-x2-seed*"))]  # fmt: skip
    expected = np.mean([scores["sts12"]["spearman"] for scores in by_subset])
    assert fifth_row.cells["STS12"].value == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_table_2_varies_one_thing_at_a_time(data: Path, tiny: DinoScale, tmp_path: Path) -> None:
    table, _ = run("dino-table2", data, tmp_path, seeds=2)
    steps = tmp_path / "starter" / "steps"
    asked = {
        name: read_json(steps / name / "run.json")["settings"]["decay"]
        for name in ("x2", "x2-decay0", "x2-decay200")
    }
    assert asked == {"x2": 100.0, "x2-decay0": 0.0, "x2-decay200": 200.0}
    labels = {}
    for name in ("x2-curated", "x2-no-smoothing", "x2-no-sampled"):
        rows = dino.read_pairs(steps / name).train
        labels[name] = (set(rows["label"]), len(rows))
    assert labels["x2-curated"][0] == {0.0, 0.1, 0.5, 0.9}
    assert labels["x2-no-smoothing"][0] == {0.0, 0.5, 1.0}
    assert labels["x2-no-sampled"][0] == {0.1, 0.5, 0.9}
    assert labels["x2-no-sampled"][1] < labels["x2-curated"][1]
    assert [row.name for row in measured(table)] == [
        "x2 (decay 100)", "decay 0", "decay 200", "no label smoothing", "no sampled pairs",
    ]  # fmt: skip
    verdicts = [note for note in table.notes if "seeds alone would bring about" in note]
    assert len(verdicts) == 4
    (full,) = [row for row in table.rows if row.name == "x2 (decay 100)"]
    assert set(full.cells) == {"STS12-16", "STSb"}


def test_rows_that_overlap_are_left_out_where_asked(
    data: Path, tiny: DinoScale, tmp_path: Path
) -> None:
    steps = Steps(tmp_path, data, tiny, RecipeSettings(quiet=True, device="cpu"))
    texts = dino.first_texts(steps)
    assert len(texts) == 30
    assert texts == dino.first_texts(steps)
    rows = graded_pairs(60, seed=50)  # the sentences of sts12
    more = graded_pairs(90, seed=99)
    some = write_rows(data / "pairs.jsonl", {key: rows[key] + more[key] for key in rows})
    dropping = replace(steps, settings=replace(steps.settings, drop_overlap=True))
    for where in (steps, dropping):
        dino.train_seeds(where, "train", some)
    counted = overlap_note(steps, dino.read_pairs(some), "these pairs")
    assert "sts12 60 (60)" in counted
    names = ("train-seed0", "train-seed0-drop-overlap")
    fingerprints = [
        read_json(tmp_path / "steps" / name / "run.json")["fingerprints"] for name in names
    ]
    assert fingerprints[0]["train"] != fingerprints[1]["train"]
    only = write_rows(data / "only.jsonl", rows)
    with pytest.raises(InputError, match="drop-overlap leaves none"):
        dino.train_seeds(dropping, "other", only)


def test_stored_cosines_are_not_given_to_other_pairs(
    data: Path, tiny: DinoScale, tmp_path: Path
) -> None:
    sets = tmp_path / "sts"
    sets.mkdir()
    lines = (data / "sts" / "sts12.jsonl").read_text().splitlines(keepends=True)
    encoder = load_encoder(tiny.base, device="cpu")
    expected = evaluate_sts(encoder, data, sets=["sts12"])["sts12"]["spearman"]
    for turned in (lines, lines[20:] + lines[:20]):
        (sets / "sts12.jsonl").write_text("".join(turned))
        for _ in range(2):  # made, then read
            measured = measure(encoder, read_sets(tmp_path), tmp_path / "run")
            scores = summarise_sts(measured, ["sts12"], bootstrap=0)
            assert scores["sts12"]["spearman"] == pytest.approx(expected)
    write_set(sets / "stsb-test.jsonl", 30, 3)  # another set later
    assert len(measure(encoder, read_sets(tmp_path), tmp_path / "run")) == 2


def test_protocol_mean_is_checked_before_any_work(
    data: Path, tiny: DinoScale, tmp_path: Path
) -> None:
    shutil.copytree(data, tmp_path / "data")
    path = tmp_path / "data" / "sts" / "sts12.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["subset"] = "alone"
    write_rows(path, rows)
    with pytest.raises(InputError, match="subset alone of sts12 has 1 pairs"):
        run("dino-table5", tmp_path / "data", tmp_path / "out")
    assert not (tmp_path / "out" / "starter" / "steps").exists()


def test_table_2_without_the_yearly_sets(data: Path, tiny: DinoScale, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    for path in (tmp_path / "data" / "sts").glob("sts1*"):
        path.unlink()
    quiet = RecipeSettings(quiet=True, device="cpu")
    board = StsBoard(Steps(tmp_path, tmp_path / "data", tiny, quiet))
    board.measure("base", tiny.base, "base", pooling="mean")
    (row,) = dino_tables.board_rows(board)
    assert set(row.cells) == {"STSb"}
    assert row.cells["STSb"].low is not None


def test_word_files_keep_their_names_apart(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    for name in ("glove.6B.50d.txt", "glove.6B.300d.txt.gz", "README.txt"):
        (tmp_path / "words" / name).touch()
    assert set(word_files(tmp_path)) == {"glove.6B.50d", "glove.6B.300d"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "dino-table9"}, "no recipe 'dino-table9': there are dino-table1"),
        ({"scale": "huge"}, "scale 'huge' is unknown: use starter or paper"),
        (
            {"settings": RecipeSettings(drop_overlap=True), "name": "paraphrase-table4"},
            "drop_overlap True: counts not for paraphrase-table4: leave it out",
        ),
        (
            {"settings": RecipeSettings(seeds=3), "name": "sentaugment-table9"},
            "seeds 3: counts not for sentaugment-table9",
        ),
        ({"data": Path("no/where")}, "no such folder: `tilth recipe show` says what --data needs"),
    ],
)
def test_wrong_arguments(data: Path, tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    given = {
        "name": "dino-table1", "scale": "starter", "data": data, "out": tmp_path,
        "settings": RecipeSettings(), **arguments,
    }  # fmt: skip
    with pytest.raises(InputError, match=said):
        run_recipe(given.pop("name"), **given)


def test_data_without_what_a_recipe_needs(data: Path, tiny: DinoScale, tmp_path: Path) -> None:
    (tmp_path / "sts").mkdir()
    write_set(tmp_path / "sts" / "sts12.jsonl", 30, 1)
    with pytest.raises(InputError, match=r"words holds no glove\*.txt"):
        run("dino-table1", tmp_path, tmp_path / "out")
    with pytest.raises(InputError, match="stsb-train"):
        run("dino-table2", tmp_path, tmp_path / "out")


def test_the_paper_scale_is_the_papers() -> None:
    for number in (1, 2, 5):  # people make Table 3
        paper = RECIPES[f"dino-table{number}"].scales["paper"]
        assert (paper.lm, paper.base, paper.first_texts) == ("gpt2-xl", "roberta-base", 15_000)
        assert paper.inputs is None
        assert not paper.training


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_says_how_it_departs(name: str) -> None:
    recipe = RECIPES[name]
    assert set(recipe.scales) == {"starter", "paper"}
    never = "this scale has never been run"
    for scale, size in recipe.scales.items():
        departures = recipe.departures_at(size)
        assert len(set(departures)) == len(departures) > 1
        assert any(one.startswith(never) for one in departures) == (scale == "paper")
    public = {field: model for field, (_, model) in recipe.models.items() if model}
    assert not any(getattr(recipe.scales["paper"], field) != model
                   for field, model in public.items())  # fmt: skip


def test_settings_are_written_as_options() -> None:
    chosen = RecipeSettings(2, ("trec", "mine"), base="b", drop_overlap=True)
    assert chosen.options() == " --seeds 2 --tasks trec,mine --base b --drop-overlap"
    assert chosen.recorded() == {
        "seeds": 2, "drop_overlap": True, "base": "b", "tasks": ["trec", "mine"]
    }  # fmt: skip


def test_mean_and_deviation_over_seeds() -> None:
    cell = over_seeds([60.0, 62.0, 67.0])
    assert cell.value == 63.0
    assert cell.deviation == pytest.approx(np.std([60, 62, 67], ddof=1))
    assert over_seeds([60.0]).deviation is None
    assert str(cell) == "63.0 ±3.6"


def test_a_table_as_markdown_has_dashes_for_what_is_missing() -> None:
    table = Table(
        "A table", ["STSb", "SICK"],
        [
            Row("ours", {"STSb": TableCell(61.04)}),
            published("theirs", ["STSb", "SICK"], [77.82, 68.09]),
        ],
        ["A note."],
    )  # fmt: skip
    lines = to_markdown(table).splitlines()
    assert lines[4] == "| ours | 61.0 | - |"
    assert lines[5] == "| theirs (published) | 77.8 | 68.1 |"
    assert lines[-1] == "- A note."

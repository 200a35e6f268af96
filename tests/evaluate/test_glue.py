from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from tests.tiny import read_json, write_rows
from tilth.classifiers.settings import Finetuning
from tilth.errors import InputError
from tilth.evaluate import glue
from tilth.evaluate.glue import FILES, TASKS, check_submission, glue_scores, write_submission
from tilth.workflows.evaluate_glue import evaluate_glue, parse_models
from tilth.workflows.settings import ScorerOptions
from tilth.workflows.train_classifier import train_classifier
from tilth.workflows.train_scorer import train_scorer

RNG = np.random.default_rng(0)
GOLD, SAID = RNG.integers(0, 2, 200), RNG.integers(0, 2, 200)


def table(gold: Any, said: Any) -> tuple[int, int, int, int]:
    """Return true and false positives, true and false negatives."""
    right, yes = gold == said, said == 1
    return (
        int((right & yes).sum()), int((~right & yes).sum()), int((right & ~yes).sum()),
        int((~right & ~yes).sum()),
    )  # fmt: skip


def test_the_metrics_are_the_published_definitions() -> None:
    tp, fp, tn, fn = table(GOLD, SAID)
    matthews = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert glue_scores(TASKS["cola"], GOLD, SAID)["score"] == pytest.approx(100 * matthews)
    f1, accuracy = 2 * tp / (2 * tp + fp + fn), (tp + tn) / 200
    for name in ("mrpc", "qqp"):
        found = glue_scores(TASKS[name], GOLD, SAID)
        assert found["F1"] == pytest.approx(100 * f1)
        assert found["accuracy"] == pytest.approx(100 * accuracy)
        assert found["score"] == pytest.approx(50 * (f1 + accuracy))
    for name in ("sst2", "mnli", "qnli", "rte", "wnli"):
        assert glue_scores(TASKS[name], GOLD, SAID)["score"] == pytest.approx(100 * accuracy)
    scores, said = RNG.uniform(0, 5, 50), RNG.uniform(0, 5, 50)
    both = [100 * one(scores, said).statistic for one in (pearsonr, spearmanr)]
    found = glue_scores(TASKS["stsb"], scores, said)
    assert [found["Pearson"], found["Spearman"]] == pytest.approx(both)
    assert found["score"] == pytest.approx(np.mean(both))


def test_a_constant_answer_scores_0() -> None:
    assert glue_scores(TASKS["cola"], GOLD, np.ones(200, int))["score"] == 0
    assert glue_scores(TASKS["stsb"], RNG.uniform(0, 5, 9), np.ones(9))["score"] == 0
    assert glue_scores(TASKS["mrpc"], np.zeros(9, int), np.zeros(9, int))["F1"] == 0


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test set 12 rows."""
    for name, task in TASKS.items():
        small = replace(task, tests=dict.fromkeys(task.tests, 12))
        monkeypatch.setitem(TASKS, name, small)
        for file in task.tests:
            monkeypatch.setitem(FILES, file, small)


def test_submissions_have_the_servers_names_heads_and_labels(few: None, tmp_path: Path) -> None:
    expected = {
        "CoLA": "1", "SST-2": "1", "MRPC": "1", "QQP": "1", "STS-B": "1.000", "MNLI-m": "neutral",
        "MNLI-mm": "neutral", "QNLI": "not_entailment", "RTE": "not_entailment", "WNLI": "1",
    }  # fmt: skip
    assert set(expected) == set(FILES)
    for file, cell in expected.items():
        path = write_submission(tmp_path, file, np.ones(12))
        lines = path.read_text().splitlines()
        assert lines[:2] == ["index\tprediction", f"0\t{cell}"]
        assert lines[-1] == f"11\t{cell}"
        assert path.name == f"{file}.tsv"
    assert check_submission(tmp_path) == []
    (tmp_path / "RTE.tsv").unlink()
    assert check_submission(tmp_path) == ["RTE"]


def test_scores_are_written_from_0_to_5(few: None, tmp_path: Path) -> None:
    path = write_submission(tmp_path, "STS-B", np.array([-0.2, 5.3, *[2.34567] * 10]))
    cells = [line.split("\t")[1] for line in path.read_text().splitlines()[1:4]]
    assert cells == ["0.000", "5.000", "2.346"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("RTE", "id\tprediction\n", r"RTE.tsv:1: the head"),
        ("RTE", "", r"RTE.tsv:1: the head"),
        ("RTE", "index\tprediction\n0\t1\n", r"RTE.tsv:2: prediction '1': write entailment"),
        ("RTE", "index\tprediction\n1\tentailment\n", r"RTE.tsv:2: .* no index 0"),
        ("RTE", "index\tprediction\n0\tentailment\n", r"1 predictions, the test set has 3,000"),
        ("STS-B", "index\tprediction\n0\tnan\n", r"a number from 0 to 5"),
        ("STS-B", "index\tprediction\n0\t5.1\n", r"a number from 0 to 5"),
        ("CoLA", "index\tprediction\n0\tacceptable\n", r"write 0, 1"),
        ("AX2", "index\tprediction\n", "the server knows no such file"),
        ("RTE", "index\tprediction\n0\t\xe9\n", r"RTE.tsv:2: .*not UTF-8"),
    ],
)
def test_wrong_submissions_are_refused(tmp_path: Path, file: str, text: str, message: str) -> None:
    (tmp_path / f"{file}.tsv").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=message):
        check_submission(tmp_path)


NLI = ["entailment", "not_entailment"]


def rte(count: int, *, names: bool = True) -> list[dict[str, Any]]:
    return [
        {
            "text_a": f"w{n} w{n + 1} w3", "text_b": f"w{n % 2}",
            "label": NLI[n % 2] if names else n % 2,
        }
        for n in range(count)
    ]  # fmt: skip


def test_models_are_measured_and_files_written(
    few: None, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split, count in (("dev", 30), ("test", 12)):
        write_rows(tmp_path / f"glue/rte/{split}.jsonl", rte(count, names=False))
        graded = [{**row, "label": row["label"] * 2.5} for row in rte(count, names=False)]
        write_rows(tmp_path / f"glue/stsb/{split}.jsonl", graded)
    (tmp_path / "glue/rte/dev.md").write_text("# about the rows")
    fast: dict[str, Any] = {"epochs": 1.0, "learning_rate": 1e-3}
    train_classifier(rte(60), base, tmp_path / "rte", quiet=True, device="cpu", **fast)
    pairs = write_rows(
        tmp_path / "pairs.jsonl", [{**r, "label": n % 5} for n, r in enumerate(rte(60))]
    )
    train_scorer(
        str(pairs), tmp_path / "stsb", ScorerOptions(base, seeds=1, training=Finetuning(**fast)),
        device="cpu", quiet=True,
    )  # fmt: skip
    models = parse_models([f"RTE={tmp_path / 'rte'}", f"STS-B={tmp_path / 'stsb'}"])
    found = evaluate_glue(models, str(tmp_path / "glue"), tmp_path / "out", device="cpu")
    scores = found.tasks["rte"]["validation"]
    assert scores["rows"] == 30
    assert scores["score"] == scores["accuracy"] >= 50
    assert set(found.tasks["stsb"]["validation"]) == {"Pearson", "Spearman", "score", "rows"}
    assert [Path(file).stem for file in found.files] == ["RTE", "STS-B"]
    assert "RTE" not in found.missing
    assert "CoLA" in found.missing
    (tmp_path / "out/submission/AX.tsv").write_text("of the diagnostic set")
    one = {"rte": models["rte"]}
    again = evaluate_glue(one, str(tmp_path / "glue"), tmp_path / "out", device="cpu")
    assert again.missing == found.missing
    results = read_json(tmp_path / "out/results.json")
    assert results == {"models": models, "tasks": found.tasks}
    (tmp_path / "out/submission/odd.tsv").write_text("")
    (tmp_path / "out/results.json").unlink()
    with pytest.raises(InputError, match="the server knows no such file"):
        evaluate_glue(one, str(tmp_path / "glue"), tmp_path / "out", device="cpu")
    assert read_json(tmp_path / "out/results.json")["tasks"]["rte"] == found.tasks["rte"]
    monkeypatch.setitem(TASKS, "rte", replace(TASKS["rte"], tests={"RTE": 3000}))
    found = evaluate_glue(
        {"rte": models["rte"]}, str(tmp_path / "glue"), tmp_path / "o", device="cpu"
    )
    assert found.notes == [
        f"RTE.tsv is not written: the server has 3,000 test rows, {tmp_path / 'glue'} has 12"
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["rte"], "write TASK=MODEL"),
        (["snli=x"], "tasks are cola"),
        (["rte=x", "RTE=y"], "'rte' is named twice"),
    ],
)
def test_wrong_arguments_are_refused(given: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_models(given)


def test_models_and_data_of_other_tasks_are_refused(base: str, tmp_path: Path) -> None:
    fast: dict[str, Any] = {"epochs": 1.0, "quiet": True, "device": "cpu"}
    other = [{**row, "label": f"kind {n % 3}"} for n, row in enumerate(rte(30))]
    train_classifier(other, base, tmp_path / "other", **fast)
    train_classifier(rte(30), base, tmp_path / "rte", **fast)
    more = [*rte(30), *({**row, "label": "unsure"} for row in other[:6])]
    train_classifier(more, base, tmp_path / "more", **fast)
    write_rows(tmp_path / "glue/rte/dev.jsonl", rte(9))
    write_rows(tmp_path / "glue/qnli/dev.jsonl", other)
    (tmp_path / "glue/wnli").mkdir()
    for task, model, message in (
        ("rte", "more", "gives entailment, not_entailment, unsure, RTE has"),
        ("rte", "other", "gives kind 0, kind 1, kind 2, RTE has entailment, not_entailment"),
        ("qnli", "rte", "label 'kind 0' is none of QNLI"),
        ("wnli", "rte", "no development rows of wnli"),
        ("mrpc", "rte", "gives entailment, not_entailment, MRPC has"),
        ("cola", "rte", "reads 2 texts a row, CoLA has 1: give a classifier of the task"),
        ("sst2", "rte", "reads 2 texts a row, SST-2 has 1: give a classifier of the task"),
    ):
        with pytest.raises(InputError, match=message):
            evaluate_glue({task: str(tmp_path / model)}, str(tmp_path / "glue"), device="cpu")


def test_figures_of_tasks_before_a_wrong_one_are_kept(base: str, tmp_path: Path) -> None:
    model, data, out = str(tmp_path / "rte"), str(tmp_path / "glue"), tmp_path / "out"
    train_classifier(rte(30), base, model, epochs=1.0, quiet=True, device="cpu")
    write_rows(tmp_path / "glue/rte/dev.jsonl", rte(9))
    (tmp_path / "glue/qnli").mkdir()
    with pytest.raises(InputError, match="MRPC has"):  # before anything is measured
        evaluate_glue({"rte": model, "mrpc": model}, data, out, device="cpu")
    assert not out.exists()
    with pytest.raises(InputError, match="no development rows of qnli"):
        evaluate_glue({"rte": model, "qnli": model}, data, out, device="cpu")
    assert list(read_json(out / "results.json")["tasks"]) == ["rte"]
    (tmp_path / "glue").rename(tmp_path / "other")
    other = str(tmp_path / "other")
    with pytest.raises(InputError, match="--overwrite starts anew"):
        evaluate_glue({"rte": model}, other, out, device="cpu")
    evaluate_glue({"rte": model}, other, out, device="cpu", overwrite=True)
    assert read_json(out / "run.json")["settings"]["data"] == other


def test_every_spelling_of_a_label_is_read() -> None:
    task = glue.TASKS["mrpc"]
    assert [task.label_of(name) for name in ("1", "equivalent", "Not_Equivalent", "x")] == [
        1,
        1,
        0,
        None,
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "one", "label": "entailment"}, "the rows have 1 texts, RTE has 2"),
        ({"text_a": "a", "text_b": "b", "label": ["entailment"]}, "RTE has one label a row"),
    ],
)
def test_rows_of_another_form_are_refused(
    tmp_path: Path, base: str, row: dict[str, Any], message: str
) -> None:
    train_classifier(rte(30), base, tmp_path / "rte", epochs=1.0, quiet=True, device="cpu")
    write_rows(tmp_path / "glue/rte/dev.jsonl", [row, row])
    with pytest.raises(InputError, match=message):
        evaluate_glue({"rte": str(tmp_path / "rte")}, str(tmp_path / "glue"), device="cpu")


def test_a_scorer_is_given_pairs_alone(tmp_path: Path) -> None:
    write_rows(tmp_path / "glue/stsb/dev.jsonl", [{"text": f"one {n}", "label": n} for n in (1, 2)])
    with pytest.raises(InputError, match=r"dev.jsonl: the rows have 1 texts, STS-B has 2"):
        evaluate_glue({"stsb": "starter"}, str(tmp_path / "glue"), device="cpu")

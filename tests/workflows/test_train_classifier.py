from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset

from tests.selftrain.labelled import classed, several, tagged
from tests.tiny import read_json, write_rows
from tests.tiny.classifiers import are_same
from tilth.classifiers.load import TaskSources, read_training_sets
from tilth.data.tokenize import WordTokenizer
from tilth.errors import InputError
from tilth.models.classifier import load_classifier
from tilth.workflows.train_classifier import train_classifier, train_tagger

QUICK: dict[str, Any] = {
    "learning_rate": 3e-3, "epochs": 1, "precision": "float32", "device": "cpu", "quiet": True,
}  # fmt: skip


def soft(count: int) -> Dataset:
    made = Dataset.from_list(classed(count)).cast_column(
        "label", ClassLabel(names=["water", "animal", "none"])
    )
    rng = np.random.default_rng(0)
    given = np.eye(3)[made["label"][:]] * 0.5 + rng.dirichlet([1, 1, 1], count) * 0.5
    return made.add_column("probabilities", given.astype(np.float32).tolist())


def test_a_classifier_from_a_file_and_its_run(base: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, classed(300))
    out = tmp_path / "run"
    trained = train_classifier(str(path), base, out, **{**QUICK, "epochs": 8})
    assert (trained.kind, trained.labels) == ("class", ["animal", "none", "water"])
    rows = classed(60, seed=5)
    found = trained.probabilities([row["text"] for row in rows], precision="float32")
    said = [trained.labels[place] for place in found.argmax(axis=1)]
    assert np.mean([one == row["label"] for one, row in zip(said, rows, strict=True)]) > 0.6
    assert are_same(load_classifier(str(out)), trained)
    run = read_json(out / "run.json")
    assert run["resolved"]["sources"] == {"train": str(path)}
    assert run["settings"]["loss"] == "kl"


def test_probabilities_of_a_curated_set_are_learnt(tmp_path: Path) -> None:
    rows = soft(30)
    (tmp_path / "run.json").write_text("{}")
    rows.remove_columns("probabilities").save_to_disk(tmp_path / "dataset")
    rows.save_to_disk(tmp_path / "curated")
    found, _ = read_training_sets(TaskSources(str(tmp_path)), tags=False)
    assert 0 < np.asarray(found.targets).min() < np.asarray(found.targets).max() < 1


def test_several_classes_and_pairs(base: str) -> None:
    rows = several(60)
    assert train_classifier(rows, base, **QUICK).kind == "multi"
    pairs = [{"text_a": r["text"], "text_b": "a man", "label": len(r["labels"])} for r in rows]
    trained = train_classifier(pairs, base, **QUICK)
    assert trained.labels == ["0", "1", "2"]
    assert trained.probabilities([("a dog", "a man")]).shape == (1, 3)


def test_a_tagger(base: str, tmp_path: Path) -> None:
    trained = train_tagger(tagged(300), base, tmp_path, **{**QUICK, "epochs": 4})
    assert trained.labels == ["O", "B-ANIMAL", "I-ANIMAL", "B-WATER", "I-WATER"]
    assert read_json(tmp_path / "results.json")["measure"] == "span F1"
    assert WordTokenizer.of(trained.word_rules).tokenize("It's") == ["It's"]  # the set has none
    tokens = ["the", "man", "sees", "red", "dog", "near", "boat"]
    (found,) = trained.tag_probabilities([tokens], precision="float32")
    assert [trained.labels[place] for place in found.argmax(axis=1)] == [
        "O", "O", "O", "B-ANIMAL", "I-ANIMAL", "O", "B-WATER",
    ]  # fmt: skip


def test_rows_of_tokens_that_are_too_long_are_learned_in_windows(base: str) -> None:
    long = tagged(40, longest=60)
    trained = train_tagger(long, base, **QUICK, max_length=16)
    assert trained.max_length == 16


def test_soft_and_hard_labels_differ(base: str) -> None:
    rows = soft(90)
    kl, hard = (train_classifier(rows, base, loss=loss, **QUICK) for loss in ("kl", "hard"))
    assert kl.labels == ["water", "animal", "none"]
    assert not are_same(kl, hard)
    plain = train_classifier(
        rows.remove_columns("probabilities"), base, labels=kl.labels,
        validation=classed(9, seed=2), **QUICK,
    )  # fmt: skip
    again = train_classifier(
        rows.remove_columns("probabilities"), base, labels=kl.labels, loss="hard",
        validation=classed(9, seed=2), **QUICK,
    )  # fmt: skip
    assert are_same(plain, again)


def test_labelled_rows_are_learned_too(base: str) -> None:
    rows, chosen = soft(90), classed(9, seed=2)
    plain = train_classifier(rows, base, validation=chosen, **QUICK)
    more = train_classifier(rows, base, validation=chosen, labelled=classed(30, seed=7), **QUICK)
    assert not are_same(plain, more)


def test_columns_are_named(base: str) -> None:
    rows = [{"said": row["text"], "what": row["label"], "id": "x"} for row in classed(60)]
    named = train_classifier(rows, base, text="said", label="what", **QUICK)
    assert are_same(named, train_classifier(classed(60), base, **QUICK))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"rate": 1}, "no setting 'rate': there are epochs, batch"),
        ({"max_length": 1000}, "max_length is 1000"),
        ({"labelled_share": 0.5}, "labelled_share is that of labelled rows: give labelled"),
    ],
)
def test_wrong_settings(base: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        train_classifier(classed(30), base, **{**QUICK, **more})


def test_what_is_read_is_not_overwritten(base: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, classed(30))
    with pytest.raises(InputError, match="choose another --out"):
        train_classifier(str(path), base, tmp_path, overwrite=True, **QUICK)
    assert path.exists()

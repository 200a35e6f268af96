"""Names of models in Python: texts and paths; other things are refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilth
from tests.tiny import read_json, save_encoder
from tilth.errors import InputError

ROWS = [{"text": "a wren sings", "label": "bird"}, {"text": "a boat sinks", "label": "boat"}]
NAMED: dict[str, Callable[[Any], Any]] = {
    "load_lm": tilth.load_lm,
    "load_encoder": tilth.load_encoder,
    "load_classifier": tilth.load_classifier,
    "load_paraphraser": lambda model: tilth.load_paraphraser(scorer=model, polarity=False),
    "predict": lambda model: tilth.predict(model, ["a wren"]),
    "export": lambda model: tilth.export(model, "out"),
    "train_classifier": lambda model: tilth.train_classifier(ROWS, model),
    "train_tagger": lambda model: tilth.train_tagger(ROWS, model),
    "train_encoder": lambda model: tilth.train_encoder(ROWS, model),
    "train_simcse": lambda model: tilth.train_simcse(ROWS, model),
    "train_triplet": lambda model: tilth.train_triplet(ROWS, model),
    "train_rewriter": lambda model: tilth.train_rewriter("corpus", model, "out"),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_model_is_named_by_a_text_or_a_path(name: str) -> None:
    with pytest.raises(InputError, match=r"is of type (NoneType|object): give a name"):
        NAMED[name](object())


@pytest.mark.parametrize(
    "use",
    [
        lambda model: tilth.generate("sts-x2", model, ["A wren sings."]),
        lambda model: tilth.evaluate_sts(model, "pairs.csv"),
        lambda model: tilth.evaluate_classifier(model, ROWS),
        lambda model: tilth.evaluate_tagger(model, ROWS),
        lambda model: tilth.paraphrase_set(ROWS, model),
        lambda model: tilth.task_queries(ROWS, encoder=model),
    ],
)
def test_a_model_that_is_none_is_refused(use: Callable[[Any], Any]) -> None:
    for other in (None, 3):
        with pytest.raises(InputError, match=r"is of type \w+: give a model, or its name"):
            use(other)
    with pytest.raises(InputError, match="no model"):
        use("./nowhere")


def test_a_path_names_a_model(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "encoder")
    vectors = [
        tilth.load_encoder(name).encode(["A wren sings."])  # type: ignore[arg-type]
        for name in (str(folder), Path(folder))
    ]
    np.testing.assert_array_equal(*vectors)


def test_a_name_stands_for_a_loaded_model(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "encoder")
    encoder = tilth.load_encoder(str(folder))
    queries = [tilth.task_queries(ROWS, encoder=one).vectors for one in (folder, encoder)]
    np.testing.assert_array_equal(*queries)
    pairs = [
        {"text_a": f"a wren {word}", "text_b": "a boat sinks", "score": score}
        for score, word in enumerate(("sings", "sinks", "flies", "eats"))
    ]
    scores = [tilth.evaluate_sts(one, pairs, bootstrap=0) for one in (folder, encoder)]
    assert scores[0] == scores[1]
    assert scores[0]["pairs"]["n"] == 4
    model = tilth.train_classifier([*ROWS, *ROWS], str(folder), epochs=1, quiet=True, device="cpu")
    model.save(tmp_path / "model")
    texts = [row["text"] for row in ROWS]
    predicted = [
        tilth.predict(one, texts, tmp_path / name, quiet=True, device="cpu", precision="float32")
        for name, one in (("held", model), ("named", tmp_path / "model"))
    ]
    assert read_json(tmp_path / "held/run.json")["settings"]["model"].endswith(
        ", trained in memory"
    )
    assert predicted[0].to_list() == predicted[1].to_list()
    results = [
        tilth.evaluate_classifier(one, ROWS, bootstrap=0, precision="float32")
        for one in (model, tmp_path / "model")
    ]
    assert results[0] == results[1]


def test_places_of_other_types_are_refused() -> None:
    for given in (None, 3):
        with pytest.raises(InputError, match=f"of type {type(given).__name__}"):
            tilth.evaluate_sts("starter-static", given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"row 0 .*: no column 'text_a'"):
        tilth.evaluate_sts("starter-static", ROWS)
    with pytest.raises(InputError, match="a name is of type NoneType"):
        tilth.augment(ROWS, None)  # type: ignore[arg-type]

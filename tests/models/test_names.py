"""Names of models in Python: texts and paths; other things are refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilth
from tests.tiny import save_encoder
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
LOADED: dict[str, Callable[[Any], Any]] = {
    "load_lm": lambda model: tilth.generate("sts-x2", model, ["A wren sings."]),
    "load_encoder": lambda model: tilth.evaluate_sts(model, "pairs.csv"),
    "load_classifier": lambda model: tilth.evaluate_classifier(model, ROWS),
    "load_paraphraser": lambda model: tilth.paraphrase_set(ROWS, model),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_model_is_named_by_a_text_or_a_path(name: str) -> None:
    with pytest.raises(InputError, match=r"is of type (NoneType|object): give a name"):
        NAMED[name](object())


@pytest.mark.parametrize("name", LOADED)
def test_a_name_is_refused_where_a_loaded_model_is_asked_for(name: str) -> None:
    for model, said in (("starter", "'starter'"), (Path("runs/a"), "'runs/a'"), (None, "None")):
        with pytest.raises(InputError, match=rf"is {said}: .*tilth\.{name}"):
            LOADED[name](model)
    with pytest.raises(InputError, match=r"'starter-encoder': .*tilth.load_encoder"):
        tilth.task_queries(ROWS, encoder="starter-encoder")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'tagger': .*tilth.load_classifier"):
        tilth.evaluate_tagger("tagger", ROWS)  # type: ignore[arg-type]


def test_a_path_names_a_model(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "encoder")
    vectors = [
        tilth.load_encoder(name).encode(["A wren sings."])  # type: ignore[arg-type]
        for name in (str(folder), Path(folder))
    ]
    np.testing.assert_array_equal(*vectors)


def test_places_of_other_types_are_refused() -> None:
    for given in (None, 3, ROWS):
        with pytest.raises(InputError, match=f"is of type {type(given).__name__}"):
            tilth.evaluate_sts(lambda texts: texts, given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a name is of type NoneType"):
        tilth.augment(ROWS, None)  # type: ignore[arg-type]

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset, load_dataset

import tilth
from tests.tiny import tiny_lm
from tilth.errors import InputError, TilthError
from tilth.generation.generate import GenerateRequest
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task
from tilth.models.lm import LM
from tilth.runs import Run, RunMismatch

TEXTS = [f"a dog number {n} runs on the sea" for n in range(9)]


def rows(dataset: Dataset) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in dataset]


def test_generate_answers_a_data_set_with_origin(llama: LM) -> None:
    kept = tilth.generate("sts-x2", llama, inputs=TEXTS, seed=4)
    assert kept.column_names == [
        "text_a", "text_b", "label", "source_id", "task", "model", "seed", "try",
        "similarity",
    ]  # fmt: skip
    assert set(kept["text_a"]) <= set(TEXTS)
    assert set(kept["label"]) == {0.0, 0.5, 1.0}
    assert set(kept["seed"]) == {4}
    assert set(kept["model"]) == {"tiny-llama"}


def test_inputs_may_be_a_data_set_with_a_text_column(llama: LM) -> None:
    plain = tilth.generate("sts-x2", llama, inputs=TEXTS[:3])
    stored = tilth.generate("sts-x2", llama, inputs=Dataset.from_dict({"text": TEXTS[:3]}))
    assert rows(plain) == rows(stored)
    with pytest.raises(InputError, match="no column 'text': there are sentence"):
        tilth.generate("sts-x2", llama, inputs=Dataset.from_dict({"sentence": TEXTS}))


def test_rows_depend_on_the_seed_and_not_on_parts_or_neighbours(llama: LM) -> None:
    # The similarity is measured part by part, in bfloat16 where that is fast: it may be rounded.
    one, large, backwards, other = (
        rows(tilth.generate("sts-x2", llama, **given).remove_columns("similarity"))
        for given in (
            {"inputs": TEXTS, "part_size": 2}, {"inputs": TEXTS, "part_size": 100},
            {"inputs": TEXTS[::-1], "rows": 8}, {"inputs": TEXTS, "seed": 1},
        )
    )  # fmt: skip
    assert one == large
    assert sorted(one) == sorted(backwards)
    assert one != other


@pytest.fixture(scope="module")
def usual(llama: LM) -> list[Any]:
    """Return the rows of the usual settings."""
    return rows(tilth.generate("sts-x2", llama, inputs=TEXTS))


@pytest.mark.parametrize(
    "change",
    [
        {"decay": 0.0}, {"decay": 2000.0, "floor": 0.5}, {"temperature": 2.0}, {"top_k": 50},
        {"top_p": 0.2}, {"max_new_tokens": 6}, {"max_tries": 2}, {"per_input": 1},
    ],
    ids=str,
)  # fmt: skip
def test_no_setting_is_ignored(llama: LM, usual: list[Any], change: dict[str, Any]) -> None:
    assert rows(tilth.generate("sts-x2", llama, inputs=TEXTS, **change)) != usual


def test_the_run_folder_loads_with_the_datasets_library(llama: LM, tmp_path: Path) -> None:
    kept = tilth.generate("sts-x2", llama, inputs=TEXTS, out=tmp_path / "run")
    folder, cache = str(tmp_path / "run" / "dataset"), str(tmp_path / "cache")
    assert rows(load_dataset(folder, split="train", cache_dir=cache)) == rows(kept)
    dropped = load_dataset(folder, "dropped", split="train", cache_dir=cache)
    assert None not in dropped["drop_reason"]


def test_a_task_may_be_a_dict_with_labels_that_are_words(llama: LM) -> None:
    spec = {
        "task_name": "mood",
        "labels": {
            "glad": {"instruction": 'Task: Write something glad.\nText: "', "counter_labels": []},
            "sad": {"instruction": 'Task: Write something sad.\nText: "', "counter_labels": []},
        },
    }
    kept = tilth.generate(spec, llama, count=6)
    assert kept.column_names[:2] == ["text", "label"]
    assert set(kept["label"]) <= {"glad", "sad"}


def test_the_starter_is_refused_for_a_task_that_it_does_not_know(tmp_path: Path) -> None:
    starter = tilth.load_lm("starter", device="cpu")
    out = tmp_path / "run"
    spec = {"task_name": "tickets", "labels": {"billing": "a question about an invoice"}}
    with pytest.raises(InputError, match="task 'tickets', label 'billing': model 'starter' knows"):
        tilth.generate(spec, starter, count=2, out=out)
    assert not out.exists()
    assert len(tilth.generate(spec, starter, count=2, any_task=True))
    assert len(tilth.generate("review-sentiment", starter, count=2))
    pairs = tilth.generate("sts-x2", starter, from_x1=3)
    assert set(pairs["label"]) == {1.0, 0.5, 0.0}


def test_no_row_kept_is_an_error_that_counts_the_reasons(llama: LM) -> None:
    with pytest.raises(TilthError, match=r"0 rows kept of 6 attempts \(6 prompt-too-long\)"):
        tilth.generate("sts-x2", llama, inputs=["the sea " * 500])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "there are no inputs"),
        (["a dog", ""], r"inputs\[1\] is ''"),
        (["a dog", None], r"inputs\[1\] is None"),
        ("hello", "inputs is one text, 'hello': give a list of texts"),
        (["a dog", "rain \ud800"], r"inputs\[1\] holds half a character, '\\ud800'"),
        (["a dog", "ra\0in"], r"inputs\[1\] holds a NUL character"),
        (Dataset.from_dict({"text": ["a dog", None]}), "column 'text', row 1, is None"),
        (Dataset.from_dict({"text": [3, 4]}), "column 'text', row 0, is 3: every one is a text"),
        (Dataset.from_dict({"text": ["a", "b\0"]}), "column 'text', row 1, holds a NUL"),
        (pd.DataFrame({"text": ["a", " "]}), "column 'text', row 1, is ' ': every one is a text"),
        (pd.DataFrame({"title": ["a"]}), "the inputs have no column 'text': there are title"),
        (pd.DataFrame([["a"]]), "the inputs have no column 'text': there are 0"),
        (pd.DataFrame([["a", "b"]], columns=["text"] * 2), "the inputs have two columns 'text'"),
        ({"a dog"}, "inputs is of type set: give a list of texts"),
        ({"text": ["a"]}, "inputs is of type dict: give a list of texts"),
        (Path("s.txt"), r"inputs is one text, 's\.txt': give a list of texts"),
    ],
)
def test_bad_inputs_are_named_by_their_place(llama: LM, inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilth.generate("sts-x2", llama, inputs=inputs)


def test_one_try_is_refused_where_several_texts_are_asked_for(llama: LM) -> None:
    with pytest.raises(InputError, match="max_tries is 1: it cannot be below per_input, 2"):
        tilth.generate("sts-x2", llama, inputs=TEXTS, max_tries=1)
    single = GenerateSettings(max_tries=1)
    assert GenerateRequest(load_task("intents"), llama, single, count=1).settings.max_tries == 1


@pytest.mark.parametrize("wrong", [0, 2.5, True])
def test_rows_and_count_are_whole_numbers_from_one_on(llama: LM, wrong: Any) -> None:
    with pytest.raises(InputError, match=f"count is {wrong}: give a whole number from 1"):
        tilth.generate("intents", llama, count=wrong)
    with pytest.raises(InputError, match=f"rows is {wrong}: give a whole number from 1"):
        tilth.generate("sts-x2", llama, inputs=TEXTS, rows=wrong)


def test_texts_for_an_input_are_not_asked_of_a_task_without_inputs(llama: LM) -> None:
    with pytest.raises(InputError, match="without an input: leave --per-input out"):
        tilth.generate("intents", llama, count=3, per_input=4)
    assert GenerateRequest(load_task("intents"), llama, GenerateSettings(per_input=1), count=3)
    assert GenerateRequest(
        load_task("sts-x2"), llama, GenerateSettings(per_input=4), from_x1=10
    ).first_stage()


def test_first_texts_are_drawn_without_top_k(llama: LM) -> None:
    stage = GenerateRequest(
        load_task("sts-x2"), llama, GenerateSettings(), from_x1=10
    ).first_stage()
    assert stage.settings.top_k == 0
    assert stage.settings.top_p == 0.9
    assert {label.counter_labels for label in stage.task.labels} == {()}


def test_first_texts_are_not_written_into_the_run_of_another_command(
    llama: LM, tmp_path: Path
) -> None:
    Run.open(tmp_path, command="train encoder", settings={}, fingerprints={}, parts=1)
    for overwrite in (False, True):
        with pytest.raises(RunMismatch, match="holds a run of `tilth train encoder`"):
            tilth.generate("sts-x2", llama, from_x1=1, out=tmp_path, overwrite=overwrite)
    assert not (tmp_path / "x1").exists()


def test_first_texts_are_not_written_into_a_run_that_was_given_its_inputs(
    llama: LM, tmp_path: Path
) -> None:
    Run.open(tmp_path, command="generate", settings={}, fingerprints={}, parts=1)
    with pytest.raises(InputError, match="holds a run that was given its inputs"):
        tilth.generate("sts-x2", llama, from_x1=1, out=tmp_path)
    assert not (tmp_path / "x1").exists()


def test_a_pickled_request_loads_the_model_of_its_name(llama: LM, tmp_path: Path) -> None:
    llama.model.save_pretrained(tmp_path / "lm")
    llama.tokenizer.save_pretrained(tmp_path / "lm")
    lm = tilth.load_lm(str(tmp_path / "lm"), device="cpu", precision="bfloat16")
    request = GenerateRequest(load_task("sts-x2"), lm, GenerateSettings(seed=3), inputs=TEXTS)
    found = pickle.loads(pickle.dumps(request))
    assert (found.task, found.settings, found.inputs) == (request.task, request.settings, TEXTS)
    assert (found.lm.name, found.lm.precision) == (lm.name, "bfloat16")
    assert found.lm.fingerprint == lm.fingerprint
    data = pickle.dumps(request)
    other = tiny_lm("llama", seed=1)
    other.model.save_pretrained(tmp_path / "lm")
    with pytest.raises(InputError, match=r"^model \S+lm: the weights on host \S+ are not those of"):
        pickle.loads(data)

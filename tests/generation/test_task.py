import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tilth.errors import InputError
from tilth.generation.task import first_text_task, load_task, refuse_untrained, shipped_tasks
from tilth.models.names import known_instructions

PAIR: dict[str, Any] = {
    "task_name": "mine",
    "labels": {
        "same": {"instruction": 'Same. A: "<X1>" B: "', "counter_labels": []},
        "other": {"instruction": 'Other. A: "<X1>" B: "', "counter_labels": ["same"]},
    },
}


def changed(path: list[str], value: Any) -> dict[str, Any]:
    spec = copy.deepcopy(PAIR)
    place = spec
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return spec


def test_shipped_tasks_load() -> None:
    assert set(shipped_tasks()) == {"sts-x1", "sts-x2", "review-sentiment", "nli", "intents"}
    for name in shipped_tasks():
        task = load_task(name)
        assert task.name == name
        assert load_task(task.to_dict()) == task


def test_the_papers_task_has_the_papers_counter_labels() -> None:
    task = load_task("sts-x2")
    counters = {label.name: label.counter_labels for label in task.labels}
    assert counters == {"1": (), "0.5": ("1",), "0": ("1", "0.5")}
    assert task.is_pair
    assert task.is_numeric
    assert task.prompts(task.labels[1], "A dog.") == (
        'Task: Write two sentences that are somewhat similar.\nSentence 1: "A dog."\nSentence 2: "',
        'Task: Write two sentences that mean the same thing.\nSentence 1: "A dog."\nSentence 2: "',
    )


def test_json_and_yaml_files_load_alike(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(PAIR))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(PAIR, sort_keys=False))
    assert load_task(tmp_path / "mine.json") == load_task(str(tmp_path / "mine.yaml"))
    assert load_task(tmp_path / "mine.yaml") == load_task(PAIR)


def test_numbers_as_yaml_labels_are_their_text(tmp_path: Path) -> None:
    labels = "{1: {instruction: 'A \"', counter_labels: [0.5]}, 0.5: {instruction: 'B \"'}}"
    (tmp_path / "t.yaml").write_text("task_name: t\nlabels: " + labels)
    task = load_task(tmp_path / "t.yaml")
    assert [label.name for label in task.labels] == ["1", "0.5"]
    assert task.labels[0].counter_labels == ("0.5",)
    assert task.is_numeric
    assert not task.is_pair
    (tmp_path / "t.yaml").write_text("task_name: t\nlabels: {010: {instruction: 'A \"'}}")
    assert load_task(tmp_path / "t.yaml").labels[0].name == "010"


@pytest.mark.parametrize("name", ["1_0", "inf", "-Infinity", "nan", "9" * 400, "1e400"])
def test_what_a_column_of_numbers_cannot_hold_is_a_name(name: str) -> None:
    labels = {name: {"instruction": '"'}, "0": {"instruction": '"'}}
    assert not load_task({"task_name": "x", "labels": labels}).is_numeric


def test_yaml_may_merge_what_labels_have_in_common(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "task_name: t\nlabels:\n"
        "  a: &base {instruction: 'A \"', counter_labels: []}\n"
        "  b: &own {<<: *base, instruction: 'B \"'}\n"
        "  c: {<<: *own, counter_labels: [a]}\n"
    )
    labels = load_task(tmp_path / "t.yaml").labels
    assert [label.instruction for label in labels] == ['A "', 'B "', 'B "']
    assert labels[2].counter_labels == ("a",)


def test_labels_may_counter_each_other() -> None:
    task = load_task(changed(["labels", "same", "counter_labels"], ["other"]))
    assert [label.counter_labels for label in task.labels] == [("other",), ("same",)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([], "a task spec is an object with task_name and labels"),
        ({"labels": {"a": "x"}}, "task_name is missing: give the task a name"),
        (changed(["task_name"], "a b"), "task_name is 'a b': use up to 500 letters, digits"),
        (changed(["extra"], 1), "unknown field 'extra'"),
        (changed(["labels"], {}), "labels is missing or empty"),
        (changed(["labels"], ["a", "b"]), "labels is a list: give an object"),
        (changed(["labels", "same"], ["text"]), "label 'same': must be a description, or"),
        (
            changed(["labels", "same", "instruction"], 'A: "<X1>" B: '),
            "label 'same': the instruction must end with an opening quotation mark, it ends with",
        ),
        (
            changed(["labels", "same", "instruction"], '<X1> <X1> "'),
            "label 'same': the instruction holds <X1> more than once",
        ),
        (
            changed(["labels", "same", "instruction"], 'A: "'),
            "label 'same' has no <X1> while others do",
        ),
        (
            changed(["labels", "other", "counter_labels"], ["other"]),
            "label 'other': a label cannot counter itself",
        ),
        (
            changed(["labels", "other", "counter_labels"], ["sane"]),
            "label 'other': counter label 'sane' is no label: there are same, other",
        ),
        (
            changed(["labels", "other", "counter_labels"], ["same", "same"]),
            "label 'other': a counter label is named twice",
        ),
        (
            changed(["labels", "other", "counter_labels"], "same"),
            "label 'other': counter_labels must be a list",
        ),
        (
            changed(["labels", "other", "counter_label"], []),
            "label 'other': unknown field 'counter_label'",
        ),
        (changed(["labels", ""], {"instruction": '"'}), "a label's name is printable text"),
        (
            {"task_name": "x", "labels": {name: {"instruction": '"'} for name in ("1", "1.0")}},
            "two of the labels 1, 1.0 are the same number",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_label(spec: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    with pytest.raises(InputError) as error:
        load_task(tmp_path / "spec.yaml")
    assert message in str(error.value)
    assert str(tmp_path / "spec.yaml") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.json", b'{"task_name": "x",\n "labels": }', "t.json:2: not JSON"),
        ("t.json", b'{"labels": {"a": 1, "a": 2}}', "t.json: 'a' is given twice"),
        ("t.yaml", b"labels:\n  a: {x: 1}\n  'a': {x: 2}", "t.yaml: 'a' is given twice"),
        ("t.yaml", b"task_name: [x\nlabels: {", "t.yaml:2: not YAML"),
        ("t.yaml", b"labels: {yes: {}}\ntask_name: x", "label True is no text: write it in quot"),
        ("t.json", b'{"task_name": "\xff"}', "t.json: not UTF-8 at byte 15"),
        ("t.yaml", b"task_name: 2020-13-45", "t.yaml: labels is missing"),
        ("t.jsonl", b'{"text": "a", "label": "b"}', "t.jsonl: is a file of rows, not of a task"),
        ("t.yaml", b"task_name: !!int abc", "t.yaml: a value cannot be read: invalid literal"),
        ("t.yaml", b"task_name: !!bool {a: b}", "t.yaml:1: not YAML: expected a scalar"),
        ("t.yaml", b"task_name: " + b"9" * 5000, "task_name is '999"),
        ("t.json", b'{"task_name": %s}' % (b"9" * 5000), "value cannot be read: Exceeds the limit"),
        ("t.yaml", b"task_name: !!int 0x" + b"f" * 9000, "t.yaml: task_name is 0xffff"),
        ("t.yaml", b"task_name: t\nlabels: {%s: {}}" % (b"n" * 900), "n... is longer than 500"),
        ("t.yaml", b"task_name: " + b"n" * 501, "task_name is 'nnn"),
        ("t.yaml", b"labels: " + b"[" * 5000, "t.yaml: nested too deep"),
        ("t.json", b'{"labels": ' + b"[" * 500_000, "t.json: nested too deep"),
        (
            "t.yaml",
            b"task_name: t\nlabels: {!!float .inf: {}}",
            "label inf is no text: write it in",
        ),
        ("t.json", b'{"task_name": "t", "labels": {"\\ud800": {}}}', "name is printable text"),
        (
            "t.json",
            b'{"task_name": "t", "labels": {"a": {"instruction": "\\udc00 \\""}}}',
            "label 'a': the instruction holds half a character",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        load_task(tmp_path / name)


@pytest.mark.parametrize("place", ["task_name", "counter_labels", "instruction", "label"])
def test_no_value_of_a_task_is_unfolded(tmp_path: Path, place: str) -> None:
    bomb: list[Any] = ["x"]
    for _ in range(40):
        bomb = [bomb] * 9
    spec = copy.deepcopy(PAIR)
    if place == "task_name":
        spec["task_name"] = bomb
    elif place == "label":
        spec["labels"]["same"] = bomb
    else:
        spec["labels"]["same"][place] = [bomb] if place == "counter_labels" else bomb
    with pytest.raises(InputError) as error:
        load_task(spec)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("name", ["\u0645\u06cc\u200c\u062e", "\U0001f468\u200d\U0001f469"])
def test_labels_may_hold_the_joiners_of_persian_and_of_emoji(name: str) -> None:
    task = load_task({"task_name": "x", "labels": {name: {"instruction": '"'}}})
    assert [label.name for label in task.labels] == [name]


def test_dates_are_names(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "task_name: 2020-01-31\nlabels: {2020-02-30: {instruction: '\"'}}"
    )
    task = load_task(tmp_path / "t.yaml")
    assert (task.name, task.labels[0].name) == ("2020-01-31", "2020-02-30")


def test_an_unknown_task_lists_those_there_are() -> None:
    with pytest.raises(InputError, match=r"no task 'stsx2': .* intents, nli, review-sentiment"):
        load_task("stsx2")


def test_an_input_stands_in_the_prompt_on_one_line_and_without_its_quotation_marks() -> None:
    label = load_task(PAIR).labels[0]
    text = ' He said "go" <X1>\n  now '
    assert label.prompt(text) == 'Same. A: "He said \'go\' <X1> now" B: "'


def test_first_texts_come_from_the_instructions_up_to_the_input() -> None:
    task = first_text_task(load_task("sts-x2"))
    assert task.to_dict()["labels"] == load_task("sts-x1").to_dict()["labels"]
    assert task.name == "sts-x2.x1"
    with pytest.raises(InputError, match="right before <X1>"):
        first_text_task(load_task(changed(["labels", "same", "instruction"], 'A: <X1> B: "')))
    with pytest.raises(InputError, match="has no input"):
        first_text_task(load_task("intents"))


def test_a_label_may_be_a_description_alone() -> None:
    labels = {"billing": " an invoice.\n", "bug": {"description": "a crash"}}
    task = load_task({"task_name": "t", "labels": labels})
    billing, bug = task.labels
    assert billing.instruction == 'Task: Write a text of this kind: an invoice.\nText: "'
    assert (billing.counter_labels, billing.description) == (("bug",), "an invoice.")
    assert bug.counter_labels == ("billing",)
    assert load_task(task.to_dict()) == task


@pytest.mark.parametrize("wrong", ["", " ", 3, 'say "hello', "like <X1>"])
def test_a_description_is_plain_words(wrong: object) -> None:
    labels = {"a": {"instruction": 'A "', "description": wrong}}
    with pytest.raises(InputError, match=r"task: label 'a': .*description"):
        load_task({"task_name": "t", "labels": labels})


EXAMPLES = Path(__file__).parents[2] / "examples"
INTENT = 'Task: Write what a user says to an assistant in order to {}.\nUser: "'


def test_the_starter_knows_the_shipped_tasks_and_their_first_texts() -> None:
    known = known_instructions("starter")
    for name in (*shipped_tasks(), EXAMPLES / "task.yaml"):
        task = load_task(name)
        refuse_untrained(task, "starter", known)
        if task.is_pair:
            refuse_untrained(first_text_task(task), "starter", known)


@pytest.mark.parametrize(
    ("instruction", "is_known"),
    [
        (INTENT.format("ask about a late parcel"), True),
        (INTENT.format("play music").replace("\n", " "), True),
        ('Task: Write two sentences that mean the same thing.\nSentence 1: "A dog." Sentence 2: "',
         True),
        (INTENT.format('say "hello"'), False),
        (INTENT.format("play music").replace("User", "Text"), False),
        ('Task: Write a review with a mixed sentiment.\nReview: "', False),
        ('Task: Write two sentences that mean the same thing.\nSentence A: "<X1>" B: "', False),
    ],
)  # fmt: skip
def test_the_starters_tasks_are_told_by_their_instructions(
    instruction: str, is_known: bool
) -> None:
    known = known_instructions("starter")
    task = load_task({"task_name": "own", "labels": {"a": {"instruction": instruction}}})
    if is_known:
        refuse_untrained(task, "starter", known)
        return
    with pytest.raises(InputError) as refused:
        refuse_untrained(task, "starter", known)
    assert str(refused.value) == (
        "task 'own', label 'a': model 'starter' knows only the instructions of intents, nli, "
        "review-sentiment, sts-x1, sts-x2, and 'Task: Write what a user says to an assistant in "
        "order to *.' (* is yours): give --model a hub id such as gpt2-xl, a folder or an "
        "endpoint, start from labelled rows (tilth augment, tilth paraphrase), or force it with "
        "--any-task"
    )


def test_a_model_lists_what_it_knows_beside_its_weights(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    assert known_instructions(str(tmp_path)) == ()
    assert known_instructions("openai:http://localhost:1/v1#starter") == ()
    assert known_instructions("gpt2-xl") == ()
    (tmp_path / "instructions.json").write_text('["Say *: \\""]')
    assert known_instructions(str(tmp_path)) == ('Say *: "',)
    refuse_untrained(
        load_task({"task_name": "own", "labels": {"a": {"instruction": 'Say yes: "'}}}),
        "mine", ('Say *: "',),
    )  # fmt: skip
    for wrong in ("{}", "[1]", "["):
        (tmp_path / "instructions.json").write_text(wrong)
        with pytest.raises(InputError, match=r"instructions\.json: no JSON list of instructions"):
            known_instructions(str(tmp_path))

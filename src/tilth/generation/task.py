"""Task specs: an instruction for each label, in the form of the original DINO (JSON or YAML)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from tilth.data.formats import as_number, ending_of
from tilth.errors import InputError, one_line
from tilth.models.special_tokens import break_strings

INPUT = "<X1>"
# For a label with a description alone.
_INSTRUCTION = 'Task: Write a text of this kind: {}.\nText: "'
_NAME = re.compile(r"[A-Za-z0-9\-_.]+")
_LONGEST_NAME = 500
_MOST_KEYS = 10_000  # of an object
_HALF = re.compile("[\ud800-\udfff]")
_JOINERS = re.compile("[\u200c\u200d]")  # of Persian words and of emoji
_SHIPPED = files("tilth.generation").joinpath("tasks")


@dataclass(frozen=True, slots=True)
class Label:
    """One label of a task.

    Attributes:
        name: as in the spec; may be a number written as text.
        instruction: ends with an opening quotation mark; pair tasks hold `<X1>` once.
        counter_labels: names of the labels a text must not fit.
        description: what its texts are about; may be empty.
        examples: texts of the label, which measure the fit of generated ones.
        special: strings that the model reads as special tokens; in inputs a space breaks them.
    """

    name: str
    instruction: str
    counter_labels: tuple[str, ...]
    description: str = ""
    examples: tuple[str, ...] = ()
    special: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The instruction up to its input, which all inputs share."""
        return self.instruction.partition(INPUT)[0]

    def prompt(self, text: str | None) -> str:
        """Return the instruction with the input; its double quotation marks become single.

        Its white space becomes one space; the data rows keep the input as given.
        """
        if text is None:
            return self.instruction
        clean = break_strings(" ".join(text.split()).replace('"', "'"), self.special)
        before, _, after = self.instruction.partition(INPUT)
        return before + clean + after


@dataclass(frozen=True, slots=True)
class Task:
    """A checked task spec: its name and labels, in the order of the file."""

    name: str
    labels: tuple[Label, ...]

    @property
    def is_pair(self) -> bool:
        """Whether the task writes a second text for an input."""
        return INPUT in self.labels[0].instruction

    @property
    def is_numeric(self) -> bool:
        """Whether every label is a number, as for similarity scores."""
        return all(as_number(label.name) is not None for label in self.labels)

    def prompts(self, label: Label, text: str | None) -> tuple[str, ...]:
        """Return the label's own prompt, then its counter labels'."""
        known = {other.name: other for other in self.labels}
        return tuple(known[name].prompt(text) for name in (label.name, *label.counter_labels))

    def to_dict(self) -> dict[str, Any]:
        """Return the spec in the original form."""
        labels = {
            label.name: {
                "instruction": label.instruction,
                "counter_labels": list(label.counter_labels),
                **({"description": label.description} if label.description else {}),
                **({"examples": list(label.examples)} if label.examples else {}),
            }
            for label in self.labels
        }
        return {"task_name": self.name, "labels": labels}


def shipped_tasks() -> list[str]:
    """Return the names of the tasks that come with tilth."""
    return sorted(item.name.removesuffix(".json") for item in _SHIPPED.iterdir())


def is_task(name: str) -> bool:
    """Return whether a name is that of a shipped task, or of a file that can hold one."""
    path = Path(name).expanduser()
    is_spec = path.suffix in (".json", ".yaml", ".yml") or name in shipped_tasks()
    return is_spec and not path.is_dir()


def load_task(task: str | Path | Mapping[str, Any]) -> Task:
    """Load and check a task spec.

    Args:
        task: a shipped name, a path of a .json, .yaml or .yml file, or the spec as a dict.

    Raises:
        InputError: there is no such task, or it breaks a rule; the label and the rule are named.

    Example:
        >>> [label.name for label in load_task("sts-x2").labels]
        ['1', '0.5', '0']
    """
    if isinstance(task, Mapping):
        return _check(task, "task")
    if not isinstance(task, str | Path):
        raise InputError(f"a task is of type {type(task).__name__}: give a name, a file or a dict")
    name = str(task)
    if name in shipped_tasks():
        text = _SHIPPED.joinpath(f"{name}.json").read_text(encoding="utf-8")
        return _check(json.loads(text), name)
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(
            f"no task {name!r}: name a spec file or one of {', '.join(shipped_tasks())}"
        )
    if ending_of(path) not in (None, ".txt", ".json"):
        raise InputError(f"{path}: is a file of rows, not of a task: give one in YAML or JSON")
    return _check(_parse(_read(path), str(path), is_json=path.suffix == ".json"), str(path))


def load_classes(task: str | Mapping[str, Any]) -> Task:
    """Load a task whose labels are classes of single texts, two or more.

    Args:
        task: as of `load_task`; a dict without `labels` holds label -> description.
    """
    if isinstance(task, Mapping) and not isinstance(task.get("labels"), Mapping):
        task = {"task_name": "labels", "labels": task}
    found = load_task(task)
    if found.is_pair or len(found.labels) < 2:
        wrong = "is of pairs" if found.is_pair else "has one label"
        name = task if isinstance(task, str) else found.name
        raise InputError(f"task {name!r} {wrong}: give two or more labels of single texts")
    return found


def parse_task(text: str, *, most_labels: int) -> Task:
    """Load and check a task spec that is given as its text, YAML or JSON.

    Raises:
        InputError: it has too many labels, or breaks a rule; the line, or the label and the rule,
            are named.
    """
    spec = _parse(text, "task", is_json=text.lstrip().startswith("{"))
    labels = spec.get("labels") if isinstance(spec, Mapping) else None
    if isinstance(labels, Mapping) and len(labels) > most_labels:
        raise InputError(
            f"task: {len(labels):,} labels are many for a page: give {most_labels} at most, or run "
            "tilth generate"
        )
    return _check(spec, "task")


def first_text_task(task: Task) -> Task:
    """Return the task that generates inputs: each instruction up to its input.

    Raises `InputError` where no quotation mark opens right before the input.

    Reference:
        Schick and Schütze 2021, section 3, last paragraphs.
    """
    if not task.is_pair:
        raise InputError(f"task {task.name!r} has no input: texts are written from nothing anyway")
    for label in task.labels:
        if not label.head.endswith('"'):
            raise InputError(
                f"task {task.name!r}, label {label.name!r}: inputs can be written from nothing "
                f"only where a quotation mark stands right before {INPUT}"
            )
    labels = tuple(Label(label.name, label.head, ()) for label in task.labels)
    return Task(f"{task.name}.x1", labels)


def refuse_untrained(task: Task, model: str, known: Sequence[str]) -> None:
    """Refuse a task with an instruction that a model was not trained on.

    Args:
        known: the instructions the model knows, from `known_instructions`; empty: any. `<X1>` and
            `*` in them stand for any words without a quotation mark.
    """
    if not known:
        return
    # Instructions up to their input are known too: those of `first_text_task`.
    each = {text for one in known for text in (one, one.partition(INPUT)[0])}
    wild = "|".join(map(re.escape, (INPUT, "*")))
    forms = [
        '[^"\n]+'.join(map(re.escape, re.split(wild, " ".join(text.split())))) for text in each
    ]
    pattern = re.compile("|".join(forms))

    def unknown(task: Task) -> list[str]:
        said = {label.name: " ".join(label.instruction.split()) for label in task.labels}
        return [name for name, text in said.items() if not pattern.fullmatch(text)]

    if not (labels := unknown(task)):
        return
    tasks = ", ".join(name for name in shipped_tasks() if not unknown(load_task(name)))
    free = next((one.splitlines()[0] for one in known if "*" in one), None)
    beside = f", and {free!r} (* is yours)" if free else ""
    raise InputError(
        f"task {task.name!r}, label {labels[0]!r}: model {model!r} knows only the instructions of "
        f"{tasks or 'other tasks'}{beside}: give --model a hub id such as gpt2-xl, a folder or an "
        "endpoint, start from labelled rows (tilth augment, tilth paraphrase), or force it with "
        "--any-task"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}: save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _parse(text: str, where: str, *, is_json: bool) -> Any:
    try:
        if is_json:
            return json.loads(text, object_pairs_hook=_no_key_twice)
        return yaml.load(text, _UniqueKeys)
    except _KeyTwiceError as error:
        raise InputError(f"{where}: {error} is given twice: name each label once") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}: not JSON: {error.msg}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise InputError(f"{where}{line}: not YAML: {problem}") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deep: a spec has four levels") from None
    except Exception as error:  # whatever a tag or a number makes of its text
        said = one_line(error)
        raise InputError(f"{where}: a value cannot be read: {said:.200}") from None


class _KeyTwiceError(Exception):
    pass


_NO_TEXT = ("timestamp", "int", "float")


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a duplicate key, where YAML would keep the last."""

    # A name such as 2020-01-31, 010 or 1:30 is the text that is written, no date or number.
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, form) for tag, form in forms if tag.split(":")[-1] not in _NO_TEXT]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            name = self.construct_object(key)
            if name in seen:
                raise _KeyTwiceError(repr(name))
            seen.add(name)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MOST_KEYS:  # merged mappings of merged mappings double at each step
            raise yaml.constructor.ConstructorError(
                None, None, f"more than {_MOST_KEYS:,} keys in one object", node.start_mark
            )


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _KeyTwiceError(repr(key))
        seen.add(key)
    return dict(pairs)


def _check(spec: Any, where: str) -> Task:
    """Parse a spec; an error names the label and the rule it breaks."""
    if not isinstance(spec, Mapping):
        raise InputError(f"{where}: a task spec is an object with task_name and labels")
    _check_fields(where, spec, ("task_name", "labels"))
    name = spec.get("task_name")
    if name is None:
        raise InputError(f"{where}: task_name is missing: give the task a name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InputError(
            f"{where}: task_name is {_shown(name)[:80]}: use up to {_LONGEST_NAME} letters, "
            "digits, '-', '_', '.' only"
        )
    labels = spec.get("labels")
    if isinstance(labels, list | tuple):
        raise InputError(
            f"{where}: labels is a list: give an object, each label's name with what is said of it"
        )
    if not isinstance(labels, Mapping) or not labels:
        raise InputError(f"{where}: labels is missing or empty: give at least one label")
    known = [_name(f"{where}: label", label) for label in labels]
    if len(set(known)) < len(known):
        raise InputError(f"{where}: two labels have the same name")
    numbers = [as_number(label) for label in known]
    if None not in numbers and len(set(numbers)) < len(numbers):
        raise InputError(f"{where}: two of the labels {', '.join(known)} are the same number")
    checked = tuple(
        _check_label(f"{where}: label {label!r}", label, entry, known)
        for label, entry in zip(known, labels.values(), strict=True)
    )
    kinds = {label.name: INPUT in label.instruction for label in checked}
    if len(set(kinds.values())) > 1:
        without = next(label for label, has in kinds.items() if not has)
        raise InputError(
            f"{where}: label {without!r} has no {INPUT} while others do: a pair task holds it in "
            "every instruction, a single-text task in none"
        )
    return Task(name, checked)


def _check_label(where: str, name: str, entry: Any, known: list[str]) -> Label:
    if not name or not _JOINERS.sub("", name).isprintable():
        raise InputError(f"{where}: a label's name is printable text")
    if isinstance(entry, str):  # a description alone
        entry = {"description": entry}
    if not isinstance(entry, Mapping):
        raise InputError(
            f"{where}: must be a description, or an object with instruction and counter_labels"
        )
    _check_fields(where, entry, ("instruction", "counter_labels", "description", "examples"))
    examples = entry.get("examples") or []
    if not isinstance(examples, list) or not all(
        isinstance(text, str) and text.strip() and not _HALF.search(text) for text in examples
    ):
        raise InputError(f"{where}: examples must be a list of texts, none of them empty")
    description = entry.get("description", "")
    if not isinstance(description, str) or ("description" in entry and not description.strip()):
        raise InputError(f"{where}: description is empty or no text")
    if INPUT in description or '"' in description or _HALF.search(description):
        raise InputError(f"{where}: the description is plain words, without {INPUT} and '\"'")
    description = " ".join(description.split())
    instruction = entry.get("instruction")
    if description and instruction is None:
        instruction = _INSTRUCTION.format(description.rstrip("."))
        entry = {"counter_labels": [other for other in known if other != name], **entry}
    if not isinstance(instruction, str):
        raise InputError(f"{where}: instruction is missing or no text")
    if _HALF.search(instruction):
        raise InputError(
            f"{where}: the instruction holds half a character (a lone surrogate): write the "
            "character itself"
        )
    if not instruction.endswith('"'):
        raise InputError(
            f"{where}: the instruction must end with an opening quotation mark, "
            f"it ends with {instruction[-12:]!r}"
        )
    if instruction.count(INPUT) > 1:
        raise InputError(f"{where}: the instruction holds {INPUT} more than once")
    counters = entry.get("counter_labels") or []
    if not isinstance(counters, list):
        raise InputError(f"{where}: counter_labels must be a list of label names")
    counters = [_name(f"{where}: counter label", counter) for counter in counters]
    for counter in counters:
        if counter == name:
            raise InputError(f"{where}: a label cannot counter itself")
        if counter not in known:
            raise InputError(
                f"{where}: counter label {counter!r} is no label: there are {', '.join(known)}"
            )
    if len(set(counters)) < len(counters):
        raise InputError(f"{where}: a counter label is named twice")
    texts = tuple(" ".join(text.split()) for text in examples)
    return Label(name, instruction, tuple(counters), description, texts)


def _check_fields(where: str, entry: Mapping[Any, Any], known: Sequence[str]) -> None:
    unknown = [field for field in entry if field not in known]
    if unknown:
        raise InputError(f"{where}: unknown field {_shown(unknown[0])}: use {', '.join(known)}")


def _name(where: str, value: Any) -> str:
    """Return a label's name: a text, or a number as it is written."""
    is_name = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if not is_name or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"{where} {_shown(value)} is no text: write it in quotation marks")
    shown = _shown(value)
    if len(shown) > _LONGEST_NAME:
        raise InputError(f"{where} {shown[:40]}... is longer than {_LONGEST_NAME} characters")
    return str(value)


def _shown(value: Any) -> str:
    """Return what a message shows of a value; aliases can make a list or object endless."""
    if isinstance(value, (list, tuple, dict, set)):
        return f"a {type(value).__name__}"
    # Python writes no number of more than some thousand digits in decimal.
    return hex(value) if isinstance(value, int) and abs(value) >= 10**1000 else repr(value)

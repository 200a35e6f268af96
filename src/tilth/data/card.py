"""Render the card of a data set: README.md with the hub's YAML head and how the set was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CARD = "README.md"  # the file
SYNTHETIC = "synthetic"
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Describe how a data set was made, for README.md.

    Args:
        summary: Markdown.
        command: the tilth command that made it.
        settings: of the command; JSON values.
        counts: split -> label -> rows.
        drops: reason -> rows left out.
        language: codes, such as `en`; empty: not known.
        model: the model that wrote the texts.
        task_categories: the hub's names, such as `text-classification`.
        tags: the hub's tags beside `tilth` and `synthetic`.
        texts: how the texts were made.
        extra: more sections, (heading, Markdown) pairs.
        configs: config -> split -> path in the folder; set by the writer.
        content: a hash of the files; set by the writer.
    """

    title: str
    summary: str
    command: str
    settings: Mapping[str, Any]
    counts: Mapping[str, Mapping[str, int]]
    drops: Mapping[str, int] = field(default_factory=dict)
    language: Sequence[str] = ()
    model: str | None = None
    seed: int | None = None
    task_categories: Sequence[str] = ()
    tags: Sequence[str] = ()
    texts: str = SYNTHETIC
    extra: Sequence[tuple[str, str]] = ()
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    content: str | None = None

    def render(self) -> str:
        """Return the text of README.md."""
        from huggingface_hub import DatasetCardData

        rows = sum(sum(labels.values()) for labels in self.counts.values())
        synthetic = [SYNTHETIC] if self.texts == SYNTHETIC else []
        configs = [_config(*config, self.content) for config in self.configs.items()]
        head = DatasetCardData(
            pretty_name=self.title,
            language=list(self.language) or None,
            task_categories=list(self.task_categories) or None,
            size_categories=[next((n for top, n in _SIZES if rows < top), "n>1T")],
            tags=[*synthetic, "tilth", *self.tags],
            configs=configs or None,
        )
        return f"---\n{head.to_yaml()}\n---\n\n" + "\n\n".join(self._body()) + "\n"

    def _body(self) -> list[str]:
        body = [f"# {self.title}", self.summary]
        if self.configs:
            body += ["## How to load it", self._loading()]
        body += ["## How it was made", self._facts()]
        settings = dict(self.settings)
        for name, value in self.settings.items():
            if _is_task(value):
                del settings[name]
                body += _task(value)
        if settings:
            rows = [(name, _code(_plain(value))) for name, value in settings.items()]
            body += ["### Settings", _table(("setting", "value"), rows)]
        body += ["## Rows", self._rows()]
        if self.drops:
            body += ["## Left out", self._left_out()]
        for heading, text in self.extra:
            body += [f"## {heading}", text]
        return body

    def _loading(self) -> str:
        lines = ["from datasets import load_dataset", ""]
        for config, splits in self.configs.items():
            named = "" if config == "default" else f', "{config}"'
            lines += [
                f'rows = load_dataset("path/of/this/folder"{named}, split="{split}")'
                for split in splits
            ]
        return "\n".join(["```python", *lines, "```"])

    def _facts(self) -> str:
        facts = [f"- Texts: {self.texts}"]
        if self.command:
            facts.append(f"- Command: {_code(f'tilth {self.command}')}")
        if self.model is not None:
            facts.append(f"- Model: {_code(self.model)}")
        if self.seed is not None:
            facts.append(f"- Seed: {self.seed}")
        facts.append("- Licence: not stated; whoever publishes it decides")
        return "\n".join(facts)

    def _rows(self) -> str:
        rows = []
        for split, labels in self.counts.items():
            rows += [(split, label, f"{count:,}") for label, count in labels.items()]
            if len(labels) > 1:
                rows.append((split, "all", f"{sum(labels.values()):,}"))
        return _table(("split", "label", "rows"), rows)

    def _left_out(self) -> str:
        drops = [(reason, f"{count:,}") for reason, count in self.drops.items()]
        if len(drops) > 1:
            drops.append(("all", f"{sum(self.drops.values()):,}"))
        text = _table(("reason", "rows"), drops)
        if "dropped" in self.configs:
            text += "\n\nThey stand in the config `dropped`."
        return text


def _is_task(value: Any) -> bool:
    """Say whether a setting is a task spec."""
    labels = value.get("labels") if isinstance(value, Mapping) else None
    return isinstance(labels, Mapping) and all(
        isinstance(label, Mapping) and "instruction" in label for label in labels.values()
    )


def _task(spec: Mapping[str, Any]) -> list[str]:
    """Return a task's labels, each with its instruction, whose line ends count."""
    blocks = [f"### Task {_code(str(spec.get('task_name', '')))}"]
    for name, label in spec["labels"].items():
        counters = ", ".join(_code(str(counter)) for counter in label.get("counter_labels") or ())
        against = f", against {counters}" if counters else ""
        instruction = str(label["instruction"])
        fence = _ticks(instruction, 3)
        blocks += [f"Label {_code(str(name))}{against}:", f"{fence}text\n{instruction}\n{fence}"]
    return blocks


def _config(name: str, splits: Mapping[str, str], content: str | None) -> dict[str, Any]:
    files = [{"split": split, "path": path} for split, path in splits.items()]
    config: dict[str, Any] = {"config_name": name, "data_files": files}
    if name == "default":
        config["default"] = True
    if content is not None:
        # `datasets` caches a folder by its last name and this head alone: without a word on the
        # content it would serve another run's rows, or those from before the folder was rewritten.
        config["description"] = f"content {content}"
    return config


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _code(text: str) -> str:
    text = " ".join(text.split())
    ticks = _ticks(text, 1)
    space = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _ticks(text: str, least: int) -> str:
    """Return backticks, more than the text holds in a row."""
    ticks = "`" * least
    while ticks in text:
        ticks += "`"
    return ticks


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").split())

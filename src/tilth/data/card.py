"""The card of a data set: README.md with the hub's YAML head, saying how the set was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

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
    """How a data set was made, for README.md.

    Args:
        title: the set's name for people.
        summary: what it is, in Markdown.
        command: the tilth command that made it.
        settings: what was asked for; JSON values.
        counts: split -> label -> rows.
        drops: reason -> rows left out.
        licence: a licence id of the hub, such as `cc-by-4.0`; None: not stated.
        language: codes, such as `en`.
        model: what wrote the texts.
        seed: of the random numbers.
        task_categories: the hub's names, such as `text-classification`.
        tags: the hub's tags beside `synthetic` and `tilth`.
        sections: more (heading, Markdown) pairs.
        configs: config -> split -> path in the folder; the writer fills it in.
    """

    title: str
    summary: str
    command: str
    settings: Mapping[str, Any]
    counts: Mapping[str, Mapping[str, int]]
    drops: Mapping[str, int] = field(default_factory=dict)
    licence: str | None = None
    language: Sequence[str] = ()
    model: str | None = None
    seed: int | None = None
    task_categories: Sequence[str] = ()
    tags: Sequence[str] = ()
    sections: Sequence[tuple[str, str]] = ()
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def render(self) -> str:
        """Return the text of README.md."""
        head = yaml.safe_dump(self._head(), sort_keys=False, allow_unicode=True)
        return f"---\n{head}---\n\n" + "\n\n".join(self._body()) + "\n"

    def _head(self) -> dict[str, Any]:
        rows = sum(sum(labels.values()) for labels in self.counts.values())
        head: dict[str, Any] = {"pretty_name": self.title}
        if self.licence:
            head["license"] = self.licence
        if self.language:
            head["language"] = list(self.language)
        if self.task_categories:
            head["task_categories"] = list(self.task_categories)
        head["size_categories"] = [next((n for top, n in _SIZES if rows < top), "n>1T")]
        head["tags"] = ["synthetic", "tilth", *self.tags]
        if self.configs:
            head["configs"] = [_config(name, self.configs[name]) for name in self.configs]
        return head

    def _body(self) -> list[str]:
        body = [f"# {self.title}", self.summary, "## How it was made"]
        facts = [f"- Command: `tilth {self.command}`"] if self.command else []
        if self.model is not None:
            facts.append(f"- Model: `{self.model}`")
        if self.seed is not None:
            facts.append(f"- Seed: {self.seed}")
        facts.append(f"- Licence: {self.licence or 'not stated; whoever publishes it decides'}")
        body.append("\n".join(facts))
        settings = json.dumps(dict(self.settings), indent=2, ensure_ascii=False)
        fence = _fence(settings)
        body.append(f"{fence}json\n{settings}\n{fence}")
        rows = [
            (split, label, f"{count:,}")
            for split, labels in self.counts.items()
            for label, count in labels.items()
        ]
        body += ["## Rows", _table(("split", "label", "rows"), rows)]
        if self.drops:
            drops = [(reason, f"{count:,}") for reason, count in self.drops.items()]
            body += ["## Left out", _table(("reason", "rows"), drops)]
            if "dropped" in self.configs:
                body.append(
                    'These rows are kept in the config `dropped`: `load_dataset(folder, "dropped")`.'
                )
        for heading, text in self.sections:
            body += [f"## {heading}", text]
        return body


def _config(name: str, splits: Mapping[str, str]) -> dict[str, Any]:
    files = [{"split": split, "path": path} for split, path in splits.items()]
    config: dict[str, Any] = {"config_name": name, "data_files": files}
    if name == "default":
        config["default"] = True
    return config


def _fence(text: str) -> str:
    """Return a code fence that the text itself does not hold."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").split())

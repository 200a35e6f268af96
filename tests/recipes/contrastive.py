"""Writes the data of the contrastive tables and stands in for their rewriters."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiny import salads, write_lines, write_rows
from tests.tiny.sts import jsonl
from tilth.paraphrase import rewriter as rewriters
from tilth.paraphrase import round_trip as trips
from tilth.paraphrase.rewriter import Rewrite
from tilth.paraphrase.settings import RewriteSettings


def turning_rewriter(name: str, said: list[RewriteSettings], *, refused: str) -> Any:
    """Return a rewriter that turns the words of a text round.

    Args:
        said: what it is asked is added here.
        refused: a text with this word has no rewrite.
    """

    def rewrites(texts: Sequence[str], asked: RewriteSettings) -> list[list[Rewrite]]:
        said.append(asked)
        return [
            [
                Rewrite(
                    " ".join(reversed(text.split())), text, 90.0, 20.0, 95.0, 20.0, inside=True,
                    tries=1, problem="low meaning" if refused and refused in text else None,
                )
            ]
            for text in texts
        ]  # fmt: skip

    model = SimpleNamespace(name=name, precision="float32")
    return SimpleNamespace(
        seq2seq=model, scorer=SimpleNamespace(name="tiny"), polarity=None, rewrites=rewrites,
        fingerprints=lambda: {"model": name},
    )  # fmt: skip


def put_rewriters(patch: pytest.MonkeyPatch, *, refused: str = "") -> list[RewriteSettings]:
    """Let recipes rewrite and translate by turning words round; return what they are asked."""
    said: list[RewriteSettings] = []
    there, back = (turning_rewriter(name, said, refused=refused) for name in ("there", "back"))
    patch.setattr(rewriters, "load_paraphraser", lambda *_, **__: there)
    patch.setattr(trips, "load_round_trip", lambda *_, **__: back)
    return said


def write_contrastive_data(folder: Path) -> Path:
    """Write raw text, an NLI set of 30 triples and three STS sets, one of them the dev part."""
    (folder / "bank").mkdir(parents=True)
    (folder / "sts").mkdir()
    first, second = salads(60, seed=7), salads(60, seed=8)
    rows = [
        {
            "premise": first[n // 2], "hypothesis": second[n],
            "label": ("entailment", "contradiction")[n % 2],
        }
        for n in range(60)
    ]  # fmt: skip
    write_rows(folder / "nli" / "made" / "train.jsonl", rows)
    write_lines(folder / "bank" / "a.txt", [f"{text}." for text in salads(120, seed=3)])
    for seed, name in enumerate(("stsb-dev", "stsb-test", "sts12")):
        texts = salads(60, seed=seed)
        sides = zip(texts[:30], texts[30:], strict=True)
        graded = [(*pair, (7 * n % 11) / 2) for n, pair in enumerate(sides)]
        jsonl(folder / "sts" / f"{name}.jsonl", graded)
    return folder

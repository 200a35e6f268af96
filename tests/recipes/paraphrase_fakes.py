"""Stands in for translators, rewriters and scorers of the paraphrase recipes; writes raw text."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.tiny import salads, write_lines
from tilth.models.scorer import Scorer
from tilth.paraphrase import make_candidates as trips
from tilth.paraphrase import rewriter as rewriters
from tilth.paraphrase.rewriter import Rewrite
from tilth.paraphrase.round_trip import Candidate
from tilth.paraphrase.settings import RewriteSettings
from tilth.paraphrase.tags import Cell, asked_cell

# "a." looks like an initial, after which no sentence ends.
TEXTS = [text for text in salads(320, seed=11) if not text.endswith(" a.")][:300]


class Fakes:
    """Stands in for the models; counts what they are asked."""

    def __init__(self) -> None:
        self.greedy: list[bool] = []
        self.settings: list[Sequence[tuple[int, float]]] = []
        self.rewriters: list[str] = []
        self.rewrites: list[tuple[Cell, int, int, int]] = []

    def translators(self, forward: str, backward: str, **given: Any) -> tuple[Any, Any]:
        assert given["device"] == "cpu"
        there, back = (
            SimpleNamespace(name=name, prefix="", precision="float32", fingerprint=name)
            for name in (forward, backward)
        )
        return there, back

    def scorer(self, name: str, **_: Any) -> Scorer:
        return Scorer(
            name, "cross-encoder", f"scorer {name}",
            lambda first, _: np.full(len(first), 92.0, np.float32),
        )  # fmt: skip

    def round_trip(
        self,
        texts: Sequence[str],
        forward: Any,
        backward: Any,
        *,
        greedy: bool,
        settings: Sequence[tuple[int, float]],
        **_: Any,
    ) -> list[list[Candidate]]:
        """Return the text itself, or its words the other way round, with a word more or without.

        Of one top-k and temperature T, of every T texts but the first the words turned round.
        """
        assert (forward.name, backward.name) == ("there", "back")
        self.greedy.append(greedy)
        self.settings.append(settings)
        if len(settings) == 1:
            ((_, heat),) = settings
            return [
                [Candidate(" ".join(text.split()[:: -1 if place % heat else 1]), "p", "s")]
                for place, text in enumerate(texts)
            ]
        return [
            [Candidate(text, "p", "s")] if greedy
            else [Candidate(f"{back}{' '.join(reversed(text.split()))}", "p", "s")
                  for back in ("", "Well ", "")]
            for text in texts
        ]  # fmt: skip

    def paraphraser(self, name: str, *, scorer: str, polarity: bool, device: str) -> Any:
        assert (scorer, polarity) == ("tiny", False)
        self.rewriters.append(name)
        model = SimpleNamespace(name=name, precision="float32", fingerprint="model")
        return SimpleNamespace(
            seq2seq=model,
            scorer=self.scorer(scorer, device=device),
            polarity=None,
            rewrites=self.rewritten,
            fingerprints=dict,
        )

    def rewritten(self, texts: Sequence[str], asked: RewriteSettings) -> list[list[Rewrite]]:
        """Return rewrites whose wording lies 12 points above the cell, inside it when checked."""
        cell, check = asked_cell(asked.meaning, asked.wording), asked.tries > 1
        assert asked.min_meaning == 0  # nothing is left out for its meaning
        self.rewrites.append((cell, asked.n, asked.tries, asked.beams))
        wording = cell.wording + (1.0 if check else 12.0)
        return [
            [Rewrite(" ".join(reversed(text.split())), text, cell.meaning + 1.0, wording,
                     cell.meaning, cell.wording, check, asked.tries)]
            for text in texts
        ]  # fmt: skip


def put_fakes(patch: pytest.MonkeyPatch) -> Fakes:
    """Let recipes use fake models."""
    found = Fakes()
    patch.setattr(trips, "load_translators", found.translators)
    patch.setattr(trips, "load_scorer", found.scorer)
    patch.setattr(trips, "round_trip", found.round_trip)
    patch.setattr(rewriters, "load_paraphraser", found.paraphraser)
    return found


def write_bank(folder: Path) -> Path:
    """Write `TEXTS` into two files of raw text in bank/."""
    (folder / "bank").mkdir(parents=True)
    write_lines(folder / "bank" / "a.txt", [*TEXTS[:100], "Too short.", ""])
    with gzip.open(folder / "bank" / "b.txt.gz", "wt") as file:
        file.writelines(
            f"{one} {two}\n" for one, two in zip(TEXTS[100::2], TEXTS[101::2], strict=True)
        )
    return folder

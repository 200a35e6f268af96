"""Makes training rows beside the labelled ones: found, written, or the labels' descriptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.logistic import adapt_logits, probabilities
from tilth.data.hashing import random_keys, text_hashes
from tilth.data.normalize import normalize_text
from tilth.data.sources import load_folder
from tilth.errors import InputError
from tilth.generation.label_fit import (
    COSINE_UNIT,
    ENCODER,
    FIT,
    similarity_to_descriptions,
    warn_of_likes,
)
from tilth.models.encoder import load_encoder, saved_pooling
from tilth.selftrain.retrieve import retrieve
from tilth.selftrain.select import PseudoLabels, select
from tilth.selftrain.settings import Augmentation
from tilth.workflows.grow.task import Fold, GrowTask

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from tilth.bank import Bank
    from tilth.generation.generate import GenerateRequest
    from tilth.models.endpoint import Endpoint
    from tilth.models.lm import LM
    from tilth.paraphrase.rewriter import Rewriter
    from tilth.workflows.grow.settings import Growth

Made = TypeVar("Made")
LABELLED = "labelled"
RETRIEVED, DESCRIBED, PARAPHRASED, GENERATED = "retrieved", "described", "paraphrased", "generated"
DESCRIPTIONS = "descriptions as rows"
# Settings of paraphrases: name -> tags of meaning and wording. The first are paraphrase's own.
REWRITES = {
    PARAPHRASED: (95.0, 20.0),
    "paraphrased, closer": (95.0, 40.0),
    "paraphrased, freer": (85.0, 0.0),
}
TEXTS = "generated"  # a nested run
PARAPHRASES = {  # nested runs
    name: name.replace(PARAPHRASED, "paraphrases").replace(", ", "-") for name in REWRITES
}
_CANDIDATES_PER_ROW = 2
_BEAMS = 2  # of paraphrases
_MOST, _FEWEST = 3_000, 200  # rows of a source
MULTIPLE = 10.0  # rows of a source for each labelled row, where it has no settings
_UNLABELLED = 1_000  # rows of a source where there are no labelled rows
_SURE = 4  # candidates by description for each row: the most certain quarter is kept
_PENALTY = 10.0  # of what labelled rows change of that


@dataclass(frozen=True, slots=True)
class RowsByOrigin:
    """Training rows with the source of each.

    Attributes:
        origin: name of the source of each row. # (rows,)
    """

    rows: LabeledExamples
    origin: list[str]

    @classmethod
    def of(cls, rows: LabeledExamples, origin: str) -> RowsByOrigin:
        """Return rows of one source."""
        return cls(rows, [origin] * len(rows))

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each label."""
        likeliest = np.asarray(self.rows.targets).argmax(axis=1)
        counts = np.bincount(likeliest, minlength=len(self.rows.labels))
        return dict(zip(self.rows.labels, counts.tolist(), strict=True))

    def and_then(self, more: RowsByOrigin) -> RowsByOrigin:
        """Return the rows of both; of a text that both have, the first."""
        known = set(self.rows.texts)
        new = []
        for row, text in enumerate(more.rows.texts):
            if text not in known:
                known.add(text)
                new.append(row)
        rows = more.rows.select(np.array(new, np.int64))
        targets = np.concatenate([np.asarray(self.rows.targets), np.asarray(rows.targets)])
        both = replace(self.rows, texts=self.rows.texts + rows.texts, targets=targets)
        return RowsByOrigin(both, self.origin + [more.origin[row] for row in new])


def fastest(work: Callable[[], object], count: int = 2) -> float:
    """Return the seconds of work, the fewest of some times: one may load, or be held up."""
    times = []
    for _ in range(count):
        began = time.monotonic()
        work()
        times.append(time.monotonic() - began)
    return min(times)


def _made_before(folder: Path) -> Dataset | None:
    """Return the rows of a nested run; None: it is not finished."""
    return load_folder(folder / "dataset") if (folder / "dataset").is_dir() else None


class RowSources:
    """What the sources of both tasks read, and the rewriter.

    Args:
        out: the run folder; paraphrases and generated texts are runs in it, made once.
    """

    def __init__(
        self, task: Any, bank: Bank | None, settings: Growth, out: Path, device: str
    ) -> None:
        self.task, self.bank, self.settings = task, bank, settings
        self.out, self.device = out, device
        self._found: dict[Any, Any] = {}  # what is made once

    def _once(self, key: object, make: Callable[[], Made]) -> Made:
        """Return what is made once under a key; make it at first use."""
        if key not in self._found:
            self._found[key] = make()
        found: Made = self._found[key]
        return found

    @cached_property
    def _rewriter(self) -> Rewriter:
        from tilth.paraphrase.rewriter import load_paraphraser

        return load_paraphraser(device=self.device)

    @cached_property
    def _lm(self) -> LM | Endpoint:
        from tilth.models import load_lm

        settings = self.settings
        return load_lm(str(settings.model), device=self.device, precision=settings.precision)

    def _written(self, request: Callable[[], GenerateRequest]) -> Dataset:
        """Return what the language model writes; a finished run is read without the model."""
        from tilth.generation.generate import run_generate

        folder = self.out / TEXTS
        made = _made_before(folder)
        return run_generate(request(), folder, quiet=True) if made is None else made

    def measure_paraphrasing(self, texts: Sequence[str]) -> float:
        """Return the texts a second that are paraphrased."""
        return len(texts) / fastest(lambda: self._rewriter.rewrite(texts, beams=_BEAMS))

    def _paraphrase(self, texts: Sequence[str], setting: str = PARAPHRASED) -> Dataset:
        """Return paraphrases of texts with a setting's tags: original, text and source_row.

        A finished run is read without the models, whose precision another device may change.
        """
        from datasets import Dataset

        from tilth.paraphrase.paraphrase_set import run_paraphrase
        from tilth.paraphrase.settings import RewriteSettings

        folder = self.out / PARAPHRASES[setting]
        if made := _made_before(folder):
            return made
        meaning, wording = REWRITES[setting]
        how = RewriteSettings(meaning, wording, beams=_BEAMS, seed=self.settings.seed)
        return run_paraphrase(
            Dataset.from_dict({"text": list(texts)}), lambda: self._rewriter, how,
            folder, columns=["text"], quiet=True,
        )  # fmt: skip


class Sources(RowSources):
    """Makes the rows of each source for a fold, never from the fold's measured rows."""

    task: GrowTask

    @property
    def comparing(self) -> str:
        """What compares texts with descriptions: the base, if it is saved as a sentence encoder."""
        base = self.settings.base
        return ENCODER if base is None or saved_pooling(base) is None else base

    @cached_property
    def _encoder(self) -> SentenceTransformer:
        encoder = load_encoder(self.comparing, device=self.device)
        warn_of_likes(encoder, dict(zip(self.task.labels, self.task.descriptions, strict=True)))
        return encoder

    @property
    def most_compared(self) -> int:
        """Return the number of sentences that are compared with descriptions, at most."""
        return _SURE * self.count(MULTIPLE)

    def count(self, multiple: float) -> int:
        """Return the number of rows of a source, a multiple of the labelled ones."""
        if not len(self.task.rows):
            return _UNLABELLED
        return int(min(_MOST, max(_FEWEST, round(multiple * len(self.task.rows)))))

    def _left_out(self, fold: Fold) -> dict[str, list[str]]:
        held = {"measured rows": [text for (text,) in fold.rows.texts]} if len(fold.held) else {}
        return {**self.task.held_out, **held}

    def _held(self, fold: Fold) -> set[str]:
        """Return the normalized texts that nothing is trained on in a fold."""
        return {normalize_text(text) for texts in self._left_out(fold).values() for text in texts}

    def candidates(self, fold: Fold, multiple: float, query: str) -> pa.Table:
        """Return the raw sentences that are nearest to a fold's labelled rows; search once."""

        def search() -> pa.Table:
            assert self.bank is not None
            assert self.task.examples is not None
            return retrieve(
                self.bank, self.task.examples.select(fold.train.tolist()),
                _CANDIDATES_PER_ROW * self.count(multiple),
                Augmentation(query=query, seed=self.settings.seed), exclude=self._left_out(fold),
            ).table  # fmt: skip

        return self._once((fold.number, multiple, query), search)

    def described_candidates(self, fold: Fold) -> pa.Table:
        """Return the raw sentences nearest to the descriptions of the labels; search once."""
        return self._once((fold.number, DESCRIBED), partial(self._search_described, fold))

    def _search_described(self, fold: Fold) -> pa.Table:
        assert self.bank is not None
        lines = [line for text in self.task.descriptions for line in text.split("\n")]
        k = min(len(self.bank), -(-self.most_compared // len(lines)))
        known = {"labelled rows": [text for (text,) in self.task.rows.texts]}
        without = {**self._left_out(fold), **(known if len(self.task.rows) else {})}
        hits = self.bank.search(lines, k, without=without, own=False)
        ids = np.unique(hits.ids[hits.ids >= 0])
        if not len(ids):
            raise InputError(f"{self.bank.path}: no sentence was found: give more raw text")
        return self.bank.rows(ids).select(["text"])

    def select(
        self, texts: Sequence[tuple[str, ...]], given: NDArray[np.float32], fold: Fold,
        multiple: float, by: str,
    ) -> LabeledExamples:  # fmt: skip
        """Select some of pseudo-labelled sentences, in the labelled rows' ratio of classes."""
        hashes = text_hashes(pa.array([text for (text,) in texts], pa.large_string()))
        keys = random_keys(self.settings.seed, "grow", hashes)  # (sentences,)
        like = self.task.rows.select(fold.train)
        even = np.full(len(self.task.labels), 1 / len(self.task.labels))
        kept = select(
            PseudoLabels(given, keys), like, self.count(multiple),
            ratio=None if len(like) else even, by=by, seed=self.settings.seed,
        ).kept  # fmt: skip
        return replace(like, texts=[texts[row] for row in kept.tolist()], targets=given[kept])

    def described(self, fold: Fold) -> RowsByOrigin:
        """Return raw sentences labelled by their similarity to the descriptions."""
        texts = self.described_candidates(fold)["text"].to_pylist()
        given = self.by_description(texts, fold)
        kept = self.select([(text,) for text in texts], given, fold, MULTIPLE, "margin")
        return RowsByOrigin.of(kept, DESCRIBED)

    def by_description(self, texts: Sequence[str], fold: Fold) -> NDArray[np.float32]:
        """Return the calibrated probabilities of texts by their similarity to descriptions.

        Each label's mean similarity is taken off; a fold's labelled rows adapt what is left.
        # (texts, labels)
        """
        cosines = self._similarities(texts)  # (texts, labels)
        like = self.task.rows.select(fold.train)
        own = self._similarities([text for (text,) in like.texts]) if len(like) else cosines[:0]
        mean = (own if len(own) else cosines).mean(axis=0)  # (labels,)
        gold = np.asarray(like.targets).argmax(axis=1)
        adapted = adapt_logits((own - mean) / COSINE_UNIT, gold, _PENALTY)
        return probabilities((cosines - mean) / COSINE_UNIT, adapted, "class")

    def _similarities(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the cosine of each text to each label's descriptions, encoding it once."""
        known: dict[str, NDArray[np.float32]] = self._once("cosines", dict)
        new = [text for text in dict.fromkeys(texts) if text not in known]
        found = similarity_to_descriptions(self._encoder, new, self.task.descriptions)
        known.update(zip(new, found, strict=True))
        return np.stack([known[text] for text in texts])  # (texts, labels)

    def descriptions(self, fold: Fold) -> RowsByOrigin:
        """Return each line of the labels' descriptions as a row of its label.

        Measured and held-out texts are left out, and lines that several labels share.
        """
        labels: dict[str, set[int]] = {}
        for label, lines in enumerate(self.task.descriptions):
            for line in lines.split("\n"):
                labels.setdefault(line, set()).add(label)
        held = self._held(fold)
        found = {
            line: min(own)
            for line, own in labels.items()
            if len(own) == 1 and normalize_text(line) not in held
        }
        return RowsByOrigin.of(self._rows_of(found), DESCRIPTIONS)

    def _rows_of(self, label_of: Mapping[str, int]) -> LabeledExamples:
        """Return texts with the index of their label as rows."""
        one = np.eye(len(self.task.labels), dtype=np.float32)
        targets = one[list(label_of.values())]
        return replace(self.task.rows, texts=[(text,) for text in label_of], targets=targets)

    def paraphrased(self, fold: Fold, setting: str) -> RowsByOrigin:
        """Return paraphrases of a fold's labelled rows, with their labels; each text once."""
        (made, places), held = self.paraphrases(setting), self._held(fold)
        own, found = set(fold.train.tolist()), dict[str, int]()
        for text, row in zip(made, places.tolist(), strict=True):
            if row in own and normalize_text(text) not in held:
                found.setdefault(text, row)
        rows = self.task.rows.select(np.array([*found.values()], np.int64))
        return RowsByOrigin.of(replace(rows, texts=[(text,) for text in found]), PARAPHRASED)

    def paraphrases(self, setting: str) -> tuple[list[str], NDArray[np.int64]]:
        """Return paraphrases of all labelled rows, and each one's row; make them at first use."""

        def make() -> tuple[list[str], NDArray[np.int64]]:
            made = self._paraphrase([text for (text,) in self.task.rows.texts], setting)
            return list(made["text"]), np.array(made["source_row"][:], np.int64)

        return self._once(setting, make)

    def generated(self, _: Fold) -> RowsByOrigin:
        """Return texts that the language model wrote of the descriptions, if they fit them."""
        return RowsByOrigin.of(self.texts, GENERATED)

    @cached_property
    def _request(self) -> GenerateRequest:
        from tilth.generation.generate import GenerateRequest

        assert self.task.task is not None
        settings = self.settings
        return GenerateRequest(
            self.task.task, self._lm, settings.writing(per_input=1), count=settings.count,
            any_task=settings.any_task,
        )  # fmt: skip

    def measure_generation(self) -> float:
        """Return the seconds that the language model will take."""
        from tilth.generation.estimate import estimate_run

        return estimate_run(self._request).seconds

    @cached_property
    def texts(self) -> LabeledExamples:
        """All generated texts that fit their label, written at first use."""
        made = self._written(lambda: self._request).with_format("arrow")[:]
        fits = made[FIT].to_pylist() if FIT in made.column_names else [None] * len(made)
        labels = made["label"].to_pylist()
        if pa.types.is_floating(made["label"].type):  # all names are numbers
            names = {float(name): name for name in self.task.labels}
            labels = [names[label] for label in labels]
        texts = chain(*self.task.held_out.values(), (text for (text,) in self.task.rows.texts))
        held = set(map(normalize_text, texts))
        found: dict[str, int] = {}
        for text, label, fit in zip(made["text"].to_pylist(), labels, fits, strict=True):
            if (fit is None or fit > 0) and normalize_text(text) not in held:
                found.setdefault(text, self.task.labels.index(label))
        if not found:
            raise InputError(
                f"{self.out / TEXTS}: no generated text fits its label: describe the labels "
                "otherwise, or name a larger --model"
            )
        return self._rows_of(found)

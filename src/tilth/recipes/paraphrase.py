"""Steps shared by the paraphrase figures: draw sentences, translate them, measure the pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.hashing import random_keys, text_hashes
from tilth.data.normalize import normalize_text
from tilth.data.readers import texts_of_dataset, texts_of_file
from tilth.data.segment import split_paragraphs
from tilth.data.sources import DatasetFolder, HubDataset, locate
from tilth.errors import InputError
from tilth.paraphrase.candidates import plane_counts
from tilth.paraphrase.make_candidates import make_candidates
from tilth.paraphrase.settings import SAMPLING, CandidateSettings
from tilth.paraphrase.similarity import long_enough
from tilth.recipes.recipe import Steps
from tilth.runs import Run

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.recipes.paraphrase_figures import ParaphraseScale

ParaphraseSteps: TypeAlias = "Steps[ParaphraseScale]"

_BATCH = 20_000
_DOCUMENTS = 8  # drawn for each sentence: many hold none of 4 words
PART = 64  # sentences of a part


@dataclass(frozen=True, slots=True)
class MeasuredPairs:
    """Similarities of the pairs with 4 words or more in both texts.

    Attributes:
        meaning: 0-100. # (pairs,)
        wording: 0-100. # (pairs,)
        same: share of pairs equal except for case, punctuation and white space; NaN without pairs.
        short: number of pairs left out.
    """

    meaning: NDArray[np.float64]
    wording: NDArray[np.float64]
    same: float
    short: int

    @property
    def plane(self) -> NDArray[np.int64]:
        """Counts of pairs by meaning and wording, in bins of 5 points: (20, 20)."""
        return plane_counts(self.meaning.astype(np.float32), self.wording.astype(np.float32))


def sentences(steps: ParaphraseSteps) -> list[str]:
    """Draw the scale's number of sentences of 4 words or more from all text in bank/, as a step.

    The draw is keyed by the sentences: it does not depend on their order.
    """
    source, size = steps.bank_folder(), steps.scale.sentences
    files = locate(source)
    run = Run.open(
        steps.at("sentences"),
        command="recipe sentences",
        settings={"sentences": size},
        fingerprints={"text": _names_and_sizes(source)},
        parts=1,
    )
    with run:
        if run.missing():
            # Draw from many documents, then their sentences: all sentences are equally likely.
            documents = _drawn(_documents(source, files), _DOCUMENTS * size)
            pieces = split_paragraphs(" ".join(text.split()) for text in documents)[0].to_pylist()
            long = [
                text for text, one in zip(pieces, long_enough(pieces, pieces), strict=True) if one
            ]
            run.write_part(0, pa.table({"text": pa.array(_drawn(long, size), pa.string())}))
        found: list[str] = run.read_part(0)["text"].to_pylist()
    if not found:
        raise InputError(f"{source}: no sentence of 4 words or more: put running text there")
    return found


def round_trips(
    steps: ParaphraseSteps, texts: Sequence[str], sampling: Sequence[tuple[int, float]] = ()
) -> Dataset:
    """Translate English sentences to German and back, as a step; return the measured candidates.

    Args:
        sampling: (top-k, temperature): beam search with each of these there and each back; none:
            one candidate by greedy decoding.
    """
    from datasets import Dataset

    forward, backward = steps.scale.translators
    kinds = {(): "greedy", SAMPLING: "sampling"}
    single = "-".join(f"k{top_k}-t{temperature:g}" for top_k, temperature in sampling)
    return make_candidates(
        Dataset.from_dict({"text": list(texts)}),
        steps.at(f"round-trip-{kinds.get(tuple(sampling), single)}"),
        CandidateSettings(
            forward, backward, scorer=steps.scale.scorer, greedy=not sampling, sampling=sampling,
            part_size=PART,
        ),
        device=steps.settings.device,
        quiet=steps.settings.quiet,
    )  # fmt: skip


def measured_pairs(rows: Dataset) -> MeasuredPairs:
    """Return the similarities of candidates."""
    table = rows.with_format("arrow")[:]
    first, second = (table[name].to_pylist() for name in ("text_a", "text_b"))
    enough = long_enough(first, second)
    places = np.flatnonzero(enough)
    same = [normalize_text(first[place]) == normalize_text(second[place]) for place in places]
    meanings, wordings = (
        table[name].to_numpy().astype(np.float64)[enough] for name in ("meaning", "wording")
    )
    return MeasuredPairs(
        meanings, wordings, float(np.mean(same)) if same else float("nan"),
        len(first) - len(places),
    )  # fmt: skip


def _documents(source: Path, files: list[Path] | DatasetFolder | HubDataset) -> Iterator[str]:
    if isinstance(files, DatasetFolder):
        rows = texts_of_dataset(str(source), files.load("train"), None)
        yield from (text for _, text in rows)
    elif not isinstance(files, HubDataset):  # no path is a hub's name
        for path in files:
            yield from (text for _, text in texts_of_file(path, None))


def _drawn(texts: Iterable[str], size: int) -> list[str]:
    """Return the distinct texts with the smallest keys, ordered by key."""
    held: dict[int, str] = {}
    limit, stream = np.uint64(2**64 - 1), iter(texts)
    while batch := list(islice(stream, _BATCH)):
        keys = random_keys(0, "paraphrase recipes", text_hashes(pa.array(batch, pa.large_string())))
        for place in np.flatnonzero(keys <= limit):
            held[int(keys[place])] = batch[place]
        if len(held) > size:
            held = {key: held[key] for key in sorted(held)[:size]}
            limit = np.uint64(max(held))
    return [held[key] for key in sorted(held)]


def _names_and_sizes(folder: Path) -> str:
    files = sorted(item for item in folder.rglob("*") if item.is_file())
    text = "\n".join(f"{item.relative_to(folder)} {item.stat().st_size}" for item in files)
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()

"""Continues a base's masked-language-model training on texts, such as retrieved ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler

from tilth.classifiers.collate import Batch, EncodedRows, Gathered
from tilth.classifiers.settings import Adaptation
from tilth.classifiers.trainer import loss_of_masked, make_tuner, own_random, trained
from tilth.data import read_texts
from tilth.errors import InputError, TilthError
from tilth.models.device import choose_precision
from tilth.models.length_sampler import LengthBatchSampler
from tilth.models.masked_lm import MaskedLM, load_masked_lm
from tilth.models.source import silence_transformers
from tilth.models.token_batches import encode_texts
from tilth.models.trainer import (
    CHECKPOINTS,
    MODEL,
    all_finite,
    complete_training,
    require_single_process,
    settings_of,
)
from tilth.runs import Progress, Run, refuse_inside

if TYPE_CHECKING:
    from datasets import Dataset

TARGETS = "labels"
IGNORED = -100
_MASKED, _RANDOM = 0.8, 0.1  # of the tokens to guess; the others stay


def masked(
    ids: NDArray[np.int64],
    special: NDArray[np.bool_],
    share: float,
    mask: int,
    vocabulary: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids with masks, and what is to be guessed.

    Args:
        ids: of a batch. # (rows, tokens)
        special: which are no text: begin, end, padding. # (rows, tokens)
        share: of the tokens of text that are to be guessed; one of a row at least.
        mask: the id of the mask.
        vocabulary: ids that may stand for another.
        rng: draws.

    Returns:
        The ids, and those to guess, -100 elsewhere; both (rows, tokens).

    Reference:
        Devlin et al. 2019, section 3.1: 8 in 10 are masked, 1 in 10 is another, 1 in 10 stays.
    """
    drawn = np.where(special, 2.0, rng.random(ids.shape))  # (rows, tokens)
    asked = drawn < share
    rows = np.arange(len(ids))
    first = drawn.argmin(axis=1)
    asked[rows, first] |= ~special[rows, first]
    how = rng.random(ids.shape)
    others = vocabulary[rng.integers(len(vocabulary), size=ids.shape)]
    given = np.where(asked & (how < _MASKED), mask, ids)
    given = np.where(asked & (how >= 1 - _RANDOM), others, given)
    return given, np.where(asked, ids, IGNORED)


@dataclass(frozen=True, slots=True)
class MaskedRows(torch.utils.data.Dataset[Batch]):
    """Texts of which each batch has masks that follow from its number alone.

    Attributes:
        rows: the texts.
        share: see `masked`.
        mask: see there.
        specials: ids that are no text.
        vocabulary: see there.
        seed: of the run.
    """

    rows: EncodedRows
    share: float
    mask: int
    specials: NDArray[np.int64]
    vocabulary: NDArray[np.int64]
    seed: int

    def __len__(self) -> int:
        """Return the texts."""
        return len(self.rows)

    def __getitem__(self, item: tuple[int, int, Sequence[int]]) -> Batch:
        """Return a batch: of an epoch, its number there, its rows."""
        epoch, number, rows = item
        batch = self.rows[rows]
        ids = batch["input_ids"].numpy()
        special = np.isin(ids, self.specials) | (batch["attention_mask"].numpy() == 0)
        rng = np.random.default_rng((self.seed, epoch, number))
        given, wanted = masked(ids, special, self.share, self.mask, self.vocabulary, rng)
        return {
            "input_ids": torch.from_numpy(given),
            "attention_mask": batch["attention_mask"],
            TARGETS: torch.from_numpy(wanted),
        }


class Numbered(Sampler[tuple[int, int, list[int]]]):
    """Gives the batches of another sampler, each with its epoch and number.

    Args:
        sampler: yields batches of rows, by epochs.
    """

    def __init__(self, sampler: Sampler[list[int]]) -> None:
        self._sampler, self._epoch = sampler, 0

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is next, from 0."""
        self._epoch = epoch
        self._sampler.set_epoch(epoch)  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[tuple[int, int, list[int]]]:
        for number, rows in enumerate(self._sampler):
            yield self._epoch, number, rows


COMMAND = "train adapt"
_TEXTS_AT_ONCE = 10_000


def adapt(
    texts: str | Path | Dataset | Sequence[str],
    base: str = "starter-mlm",
    out: str | Path | None = None,
    *,
    column: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Path:
    """Continue a base's training on texts: it guesses tokens that are hidden from it.

    Args:
        texts: a list, a data set, or what `read_texts` reads: a file, a folder, a run, a hub data
            set.
        base: `starter-mlm`, `starter-small`, a folder or a hub id of a masked language model.
        out: the run folder; the same call goes on where it stopped. It is a base for
            `train_classifier`.
        column: the column of texts; None: `text`, or the only one of strings.
        device: `auto`, `cpu`, `cuda` or `cuda:0`; one GPU.
        overwrite: begin the run anew.
        quiet: no progress.
        settings: see `Adaptation`: epochs, batch, learning_rate, warmup, weight_decay, masked,
            max_length, save_every, precision, seed.

    Returns:
        The run folder.

    Raises:
        InputError: the texts, the base or a setting are wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2021, section 4.1, "in-domain continued pretraining".
    """
    asked = settings_of(Adaptation, settings).for_base(base)
    if out is None:
        raise InputError("no run folder is given: say with out where the model goes")
    require_single_process(device)
    named = isinstance(texts, str | Path)
    refuse_inside(Path(out), str(texts) if named else None, named=[base])
    read = _texts(texts, column)
    lm = load_masked_lm(base, seed=asked.seed, device=device)
    run = Run.open(
        out,
        command=COMMAND,
        settings={"base": base, **asdict(asked)},
        fingerprints={"texts": _fingerprint(read), "base": lm.fingerprint},
        parts=1,
        outputs=(MODEL, CHECKPOINTS),
        overwrite=overwrite,
    )
    with run:
        run.resolve("texts", lambda: str(texts) if named else None)
        complete_training(run, lambda folder: _train(lm, read, asked, folder, quiet=quiet), lm.save)
    return run.path


def _texts(texts: str | Path | Dataset | Sequence[str], column: str | None) -> Sequence[str]:
    """Return texts that are read piece by piece."""
    if isinstance(texts, str | Path):
        found: Any = read_texts(texts, column=column)["text"]
    elif isinstance(texts, Sequence):
        found = texts
    else:
        name = column or "text"
        if name not in texts.column_names:
            raise InputError(f"no column {name!r}: there are {', '.join(texts.column_names)}")
        found = texts[name]
    if not len(found):
        raise InputError("there are no texts: give some to train on")
    return found  # type: ignore[no-any-return]


def _chunks(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        yield texts[start : start + _TEXTS_AT_ONCE]


def _fingerprint(texts: Sequence[str]) -> str:
    digest = blake2b(digest_size=16)
    for chunk in _chunks(texts):
        digest.update(repr(list(chunk)).encode())
    return digest.hexdigest()


def _train(
    lm: MaskedLM, texts: Sequence[str], settings: Adaptation, folder: Path, *, quiet: bool
) -> pa.Table:
    """Train in place; return the mean loss up to each checkpoint."""
    bfloat16 = choose_precision(settings.precision, lm.model.device) is torch.bfloat16
    rows = _encoded(lm, texts, settings, bfloat16=bfloat16)
    steps = settings.steps(len(rows))
    model: Any = lm.model
    if hasattr(model, "sparse_prediction"):  # ModernBERT's: logits of hidden tokens only
        model.sparse_prediction = True
    sampler = Numbered(LengthBatchSampler(rows.ids.lengths, settings.batch, settings.seed))
    with (
        silence_transformers(),
        own_random(settings.seed),
        Progress(steps, quiet=quiet, what="steps") as progress,
    ):
        tuner = make_tuner(
            lm.model, _masked(lm, rows, settings), sampler, loss_of_masked(bfloat16=bfloat16),
            None, settings, folder, keep=True, steps=steps, every=settings.save_every,
            progress=progress,
        )  # fmt: skip
        history = trained(tuner, settings.batch)
    lm.model.train(mode=False)
    losses = {entry["step"]: float(entry["loss"]) for entry in history if "loss" in entry}
    if not all_finite(lm.model) or not all(map(math.isfinite, losses.values())):
        raise TilthError("training gave weights that are no numbers: lower --learning-rate")
    return pa.table({"step": list(losses), "loss": list(losses.values())})


def _encoded(
    lm: MaskedLM, texts: Sequence[str], settings: Adaptation, *, bfloat16: bool
) -> EncodedRows:
    limit = min(settings.max_length, lm.max_length)
    ids = Gathered(np.int32)
    for chunk in _chunks(texts):
        found = encode_texts(lm.tokenizer, [(text,) for text in chunk], limit)
        ids.add_flat(found.ids, found.lengths)
    nothing = np.empty((len(texts), 0), np.float32)  # the masks say what is wanted
    pad = int(lm.tokenizer.pad_token_id or 0)
    return EncodedRows(ids.ragged(), None, None, nothing, None, pad, limit, bfloat16)


def _masked(lm: MaskedLM, rows: EncodedRows, settings: Adaptation) -> MaskedRows:
    specials = np.array(lm.tokenizer.all_special_ids, np.int64)
    vocabulary = np.setdiff1d(np.arange(len(lm.tokenizer), dtype=np.int64), specials)
    mask: Any = lm.tokenizer.mask_token_id
    return MaskedRows(rows, settings.masked, int(mask), specials, vocabulary, settings.seed)


def losses_of(out: str | Path) -> dict[str, float]:
    """Return the mean loss up to the first checkpoint of a finished run, and to the last."""
    losses = pq.read_table(Path(out) / "parts" / "part-00000.parquet")["loss"].to_pylist()
    return {"first": losses[0], "last": losses[-1]}

"""Continued pretraining of a masked language model on texts, such as retrieved sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from tilth.classifiers.collate import TEXTS_AT_ONCE, Batch, EncodedRows, Ragged
from tilth.classifiers.settings import Adaptation
from tilth.classifiers.trainer import Schedule, masked_lm_loss, train_model
from tilth.data import read_texts
from tilth.data.examples import TEXT_COLUMNS, Source, input_columns, open_rows
from tilth.data.formats import usual_name
from tilth.errors import InputError
from tilth.limits import settings_of
from tilth.models.device import choose_precision
from tilth.models.lm import MaskedLM, load_masked_lm
from tilth.models.token_batches import encode_texts
from tilth.models.trainer import (
    CHECKPOINTS,
    MODEL,
    LengthBatchSampler,
    check_processes,
    complete_training,
)
from tilth.models.truncation import warn_of_cuts
from tilth.runs import Run, refuse_inside
from tilth.storage import as_path

TARGETS = "labels"
IGNORED = -100
_MASKED, _RANDOM = 0.8, 0.1  # of the tokens to predict; the others are kept


def mask_tokens(
    ids: NDArray[np.int64],
    special: NDArray[np.bool_],
    share: float,
    mask: int,
    vocabulary: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return masked token ids, and the ids to predict with -100 elsewhere, both (rows, tokens).

    Args:
        ids: # (rows, tokens)
        special: special tokens and padding, which are never masked. # (rows, tokens)
        share: masking probability; at least one token of a row is masked.
        vocabulary: ids that replace tokens.

    Reference:
        Devlin et al. 2019, section 3.1: 80% are masked, 10% replaced, 10% kept.
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
    """Serve tokenised texts whose masks follow from (seed, epoch, batch) alone.

    Attributes:
        share: masking probability.
        mask: id of the mask token.
        specials: ids of the special tokens.
        vocabulary: ids that replace tokens.
    """

    rows: EncodedRows
    share: float
    mask: int
    specials: NDArray[np.int64]
    vocabulary: NDArray[np.int64]
    seed: int

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.rows)

    def __getitem__(self, item: tuple[int, int, Sequence[int]]) -> Batch:
        """Return a batch, from its epoch, its number there and its rows."""
        epoch, number, rows = item
        batch = self.rows[rows]
        ids = batch["input_ids"].numpy()
        special = np.isin(ids, self.specials) | (batch["attention_mask"].numpy() == 0)
        rng = np.random.default_rng((self.seed, epoch, number))
        given, wanted = mask_tokens(ids, special, self.share, self.mask, self.vocabulary, rng)
        return {
            "input_ids": torch.from_numpy(given),
            "attention_mask": batch["attention_mask"],
            TARGETS: torch.from_numpy(wanted),
        }


class NumberedBatches(LengthBatchSampler):
    """Yields each batch with its epoch and its number there."""

    def __iter__(self) -> Iterator[Any]:
        for number, rows in enumerate(super().__iter__()):
            yield self.epoch, number, rows


COMMAND = "train adapt"


def adapt(
    texts: Source | Sequence[str],
    base: str = "starter-mlm",
    out: str | Path | None = None,
    *,
    column: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Path:
    """Continue the pretraining of a masked language model on texts.

    Args:
        texts: a list, a data set, a data frame, or what `read_texts` reads: a file, a folder, a
            run, a hub data set.
        base: `starter-mlm`, `starter-small`, a folder or a hub id of a masked language model.
        out: the run folder; the same call resumes. It is a base for `train_classifier`.
        column: None: `text`, `sentence`, or the only column of strings.
        device: `auto`, `cpu`, `cuda` or `cuda:0`; one GPU.
        overwrite: start the run folder anew.
        quiet: no progress bar.
        settings: fields of `Adaptation`: epochs, batch, learning_rate, masked, max_length, ...

    Reference:
        Du et al. 2020, section 4.1, "in-domain continued pretraining".
    """
    asked = settings_of(Adaptation, settings).for_base(base)
    if out is None:
        raise InputError("no run folder is given: say with out where the model goes")
    check_processes(device)
    named = isinstance(texts, str | Path)
    refuse_inside(as_path(out), str(texts) if named else None, named=[base])
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


def _texts(texts: Source | Sequence[str], column: str | None) -> Sequence[str]:
    """Return texts as a sequence that is read in chunks."""
    if isinstance(texts, str | Path):
        found: Any = read_texts(texts, column=column)["text"]
    elif isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts):
        found = texts
    else:
        rows, _ = open_rows(list(texts) if isinstance(texts, Iterator) else texts, "train")
        usual = usual_name(TEXT_COLUMNS, rows.column_names)
        names = input_columns(rows, "", column or usual, tagged=False)
        if len(names) > 1:
            raise InputError(f"columns {' and '.join(names)} hold pairs: name one with column")
        found = rows[names[0]]
    if not len(found):
        raise InputError("there are no texts: give some to train on")
    for number, chunk in enumerate(_chunks(found)):
        blank = [not isinstance(text, str) or not text.strip() for text in chunk]
        if any(blank):
            row = number * TEXTS_AT_ONCE + blank.index(True)
            raise InputError(f"row {row} holds no text: leave such rows out")
    return found  # type: ignore[no-any-return]


def _chunks(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        yield texts[start : start + TEXTS_AT_ONCE]


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
    rows = _encode(lm, texts, settings, bfloat16=bfloat16)
    model: Any = lm.model
    if hasattr(model, "sparse_prediction"):  # ModernBERT's: logits of hidden tokens only
        model.sparse_prediction = True
    specials = np.array(lm.tokenizer.all_special_ids, np.int64)
    vocabulary = np.setdiff1d(np.arange(len(lm.tokenizer), dtype=np.int64), specials)
    mask: Any = lm.tokenizer.mask_token_id
    masked = MaskedRows(rows, settings.masked, int(mask), specials, vocabulary, settings.seed)
    history = train_model(
        lm.model, masked, NumberedBatches(rows.ids.lengths, settings.batch, settings.seed),
        masked_lm_loss(bfloat16=bfloat16), settings,
        Schedule(settings.steps(len(rows)), settings.save_every), folder, quiet=quiet,
    )  # fmt: skip
    losses = {entry["step"]: float(entry["loss"]) for entry in history if "loss" in entry}
    return pa.table({"step": list(losses), "loss": list(losses.values())})


def _encode(
    lm: MaskedLM, texts: Sequence[str], settings: Adaptation, *, bfloat16: bool
) -> EncodedRows:
    limit = min(settings.max_length, lm.max_length)
    ids, lengths, cut = [], [], 0
    for chunk in _chunks(texts):
        found = encode_texts(lm.tokenizer, [(text,) for text in chunk], limit)
        cut += found.cut
        ids.append(found.ids.astype(np.int32))
        lengths.append(found.lengths)
    who = lm.name if limit == lm.max_length else f"{lm.name} (by --max-length)"
    warn_of_cuts(cut, len(texts), limit, who)
    no_targets = np.empty((len(texts), 0), np.float32)  # the masks make them
    pad = int(lm.tokenizer.pad_token_id or 0)
    joined = Ragged.of(ids, lengths, np.int32)
    return EncodedRows(joined, None, None, no_targets, None, pad, limit, bfloat16)


def losses_of(out: str | Path) -> dict[str, float]:
    """Return the mean losses up to the first and the last checkpoint of a finished run."""
    losses = pq.read_table(Path(out) / "parts" / "part-00000.parquet")["loss"].to_pylist()
    return {"first": losses[0], "last": losses[-1]}

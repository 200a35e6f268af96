"""Continues a base's masked-language-model training on texts, such as retrieved ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tilth.data import read_texts
from tilth.errors import InputError, TilthError
from tilth.models.alike import encode_texts
from tilth.models.checkpoints import CHECKPOINTS, MODEL
from tilth.models.device import choose_precision
from tilth.models.masked import MaskedLM, load_masked
from tilth.models.source import quietly
from tilth.models.training import all_finite, complete_training, refuse_several, settings_of
from tilth.runs import Progress, Run, refuse_inside
from tilth.selftrain.encoded import EncodedRows, Gathered, LikeLengths
from tilth.selftrain.masking import MaskedRows, Numbered
from tilth.selftrain.settings import Adaptation
from tilth.selftrain.trainer import loss_of_masked, make_tuner, own_random, trained

if TYPE_CHECKING:
    from datasets import Dataset

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
    refuse_several(device)
    named = isinstance(texts, str | Path)
    refuse_inside(Path(out), str(texts) if named else None, named=[base])
    read = _texts(texts, column)
    lm = load_masked(base, seed=asked.seed, device=device)
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
    sampler = Numbered(LikeLengths(rows.ids.lengths, settings.batch, settings.seed))
    with (
        quietly(),
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

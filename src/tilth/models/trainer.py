"""Shared parts of trainings with a transformers trainer: arguments, checkpoints, resume, run."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch.utils.data import Sampler
from transformers import PrinterCallback, TrainerCallback, TrainerState
from transformers.trainer_utils import SaveStrategy

from tilth.errors import InputError, TilthError
from tilth.files import disk_errors, sync_folder, write_file
from tilth.models.distributed import from_every, from_first, processes, rank, shares, started
from tilth.models.processor_training import ProcessorLayers
from tilth.models.unpadded import unpadded
from tilth.runs import Progress, Run

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

log = logging.getLogger(__name__)

MODEL, CHECKPOINTS, SUMS = "model", "checkpoints", "checksums.json"
_PREFIX = "checkpoint-"
_CHUNK = 1 << 22  # bytes
_BATCHES_SORTED = 64  # batches of shuffled rows that are sorted by length and cut anew


def save_whole(unfinished: Path, folder: Path, save: Callable[[Path], object]) -> None:
    """Save into `unfinished`, record checksums, then replace `folder` with it, on the same disk."""
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    save(unfinished)
    move_whole(unfinished, folder)


def move_whole(unfinished: Path, folder: Path) -> None:
    """Record the checksums of a written folder's files and move it to `folder`."""
    text = json.dumps(_checksums(unfinished, sync=True), indent=2) + "\n"
    write_file(unfinished / SUMS, text)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    sync_folder(folder.parent)


def is_whole(folder: Path) -> bool:
    """Return whether a folder holds every file it was saved with, unchanged."""
    try:
        recorded = json.loads((folder / SUMS).read_bytes())
        return bool(_checksums(folder).items() >= recorded.items())
    except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError):  # none, no JSON
        return False


def move_aside(folder: Path) -> None:
    """Rename a damaged folder, with a warning; its contents are made again."""
    aside, number = folder.with_name(f"{folder.name}.damaged"), 1
    while aside.exists():
        number += 1
        aside = folder.with_name(f"{folder.name}.damaged-{number}")
    folder.rename(aside)
    log.warning("%s: files are missing or damaged: moved to %s", folder, aside.name)


def checkpoint(folder: Path, step: int) -> Path:
    """Return the folder of a step's checkpoint."""
    return folder / f"{_PREFIX}{step}"


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint that is whole and names a whole best one; move others aside."""
    for step in sorted(_steps(folder), reverse=True):
        last = checkpoint(folder, step)
        if is_whole(last):
            best = json.loads((last / "trainer_state.json").read_bytes())["best_global_step"]
            if best is None or is_whole(checkpoint(folder, best)):
                return last
        move_aside(last)
    return None


def keep_only(folder: Path, steps: set[int | None]) -> None:
    """Remove the checkpoints of other steps."""
    for step in _steps(folder) - steps:
        shutil.rmtree(checkpoint(folder, step), ignore_errors=True)


def _steps(folder: Path) -> set[int]:
    names = (path.name.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*"))
    return {int(name) for name in names if name.isdecimal()}


def _checksums(folder: Path, *, sync: bool = False) -> dict[str, int]:
    """Return the checksum of each file; with `sync`, flush the files to disk first."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != SUMS:
            with open(path, "rb") as file:
                if sync:
                    os.fsync(file.fileno())
                total = 0
                while chunk := file.read(_CHUNK):
                    total = zlib.crc32(chunk, total)
            found[path.relative_to(folder).as_posix()] = total
    return found


ArgumentsT = TypeVar("ArgumentsT", bound="TrainingArguments")

_UNFINISHED = "unfinished"


def check_processes(device: str) -> None:
    """Refuse processes that do not train together, and a GPU that is not the first.

    The trainer ignores the choice of a GPU.
    """
    if started() > processes():
        raise InputError(
            "this training runs in one process: start it without torchrun or accelerate launch; "
            "the commands tilth train classifier, tagger and encoder take several"
        )
    if (name := str(device)).startswith("cuda:") and name != "cuda:0":
        number = name.partition(":")[2]
        raise InputError(
            f"device {device!r}: training takes the first GPU it sees: set "
            f"CUDA_VISIBLE_DEVICES={number} and give --device cuda"
        )


def training_arguments(
    kind: type[ArgumentsT], folder: Path, device: torch.device, seed: int, **options: Any
) -> ArgumentsT:
    """Return a trainer's arguments: those that all trainings share, and its own `options`.

    `folder` holds checkpoints, written each `eval_steps` and `save_steps`; `seed` determines the
    order of rows and dropout. A warm-up of less than a step is none: a step would teach nothing.
    """
    if options.get("warmup_steps", 0) * options["max_steps"] < 1:
        options["warmup_steps"] = 0
    if rank():  # checkpoints of other processes hold nothing that is needed
        folder = Path(tempfile.mkdtemp(prefix="tilth-"))
    arguments = kind(
        output_dir=str(folder / _UNFINISHED),  # the callback moves whole checkpoints out
        use_cpu=device.type == "cpu",
        dataloader_pin_memory=device.type == "cuda",
        seed=seed,
        data_seed=seed,
        report_to="none",
        disable_tqdm=True,
        **options,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # else a batch would be one for each GPU
    return arguments


class CheckpointCallback(TrainerCallback):
    """Shows progress and keeps checkpoints whole.

    A checkpoint follows each evaluation and the last step, so that a resumed training lacks no
    evaluation. Only the last and the best are kept.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Count the steps of an earlier session; let each process draw its own dropout."""
        if rank():
            torch.manual_seed(args.seed + rank())
        if state.global_step:
            self._progress.skip(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Count a step; save after an evaluation, log before saving."""
        self._progress.advance(done=1)
        if control.should_evaluate and args.save_strategy != SaveStrategy.NO:
            control.should_save = True
        if control.should_save or control.should_evaluate or control.should_training_stop:
            control.should_log = True  # mean losses count from the last checkpoint on

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Move a checkpoint into the folder; remove the others but the best."""
        unfinished = Path(str(args.output_dir))
        folder, step = unfinished.parent, state.global_step
        # Rank 0 keeps the states of the others' random generators: each draws its own dropout.
        name = f"rng_state_{rank()}.pth"
        own = (checkpoint(unfinished, step) / name).read_bytes() if rank() else b""
        for number, content in enumerate(from_every(own)[1:], 1):
            (checkpoint(unfinished, step) / f"rng_state_{number}.pth").write_bytes(content)
        move_whole(checkpoint(unfinished, step), checkpoint(folder, step))
        keep_only(folder, {step, state.best_global_step})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Remove the checkpoints of a process that is not rank 0."""
        if rank():
            shutil.rmtree(Path(str(args.output_dir)).parent, ignore_errors=True)


def run_trainer(trainer: Trainer, *, too_large: str) -> list[dict[str, Any]]:
    """Train from the last whole checkpoint, load the best weights, return the log history.

    A training that was over at its last checkpoint is not continued. `too_large` is the error
    message for too little memory.
    """
    unfinished = Path(str(trainer.args.output_dir))
    folder = unfinished.parent
    trainer.remove_callback(PrinterCallback)
    shutil.rmtree(unfinished, ignore_errors=True)
    last = from_first(lambda: last_checkpoint(folder))
    state = TrainerState.load_from_json(str(last / "trainer_state.json")) if last else None
    try:
        control: Any = state.stateful_callbacks["TrainerControl"] if state else None
        if state is not None and control["args"]["should_training_stop"]:
            trainer.state = state
        else:
            with ExitStack() as stack:
                # Passes that are repeated need the same dropout, which these ways draw anew.
                repeats = getattr(getattr(trainer, "loss", None), "repeats_dropout", False)
                if trainer.args.use_cpu and not repeats:
                    stack.enter_context(ProcessorLayers())
                    stack.enter_context(unpadded(trainer.model))
                trainer.train(resume_from_checkpoint=str(last) if last else None)
    except torch.OutOfMemoryError as error:
        raise TilthError(too_large) from error
    # Without a measure the last weights are kept, which a training has at its end.
    step = trainer.state.best_global_step or trainer.state.global_step
    is_loaded = trainer.state is not state and step == trainer.state.global_step
    if not rank() and not is_loaded and checkpoint(folder, step).is_dir():
        trainer._load_from_checkpoint(str(checkpoint(folder, step)))
    return list(trainer.state.log_history)


def complete_training(
    run: Run, train: Callable[[Path], pa.Table], save: Callable[[Path], object]
) -> None:
    """Train the missing model of a one-part run; write its learning curve after the model.

    A damaged model is moved aside and trained again. `train` keeps checkpoints in a folder and
    returns the learning curve.
    """
    model, checkpoints = run.path / MODEL, run.path / CHECKPOINTS
    with disk_errors(run.path):
        if run.missing() or not model_is_whole(run):
            curve = train(checkpoints)
            save_whole(checkpoints / MODEL, model, save)
            run.write_part(0, curve)
    shutil.rmtree(checkpoints, ignore_errors=True)


def model_is_whole(run: Run) -> bool:
    """Return whether a run's model is whole; move a damaged one aside."""
    model = run.path / MODEL
    if is_whole(model):
        return True
    if model.is_dir():
        move_aside(model)
    return False


def all_finite(model: torch.nn.Module) -> bool:
    """Return whether no weight is NaN or infinite."""
    return all(bool(torch.isfinite(weight).all()) for weight in model.parameters())


def length_grouped(
    lengths: NDArray[np.int64], batch: int, *, seed: int, epoch: int, short_last: bool = False
) -> list[NDArray[np.int64]]:
    """Return one epoch's batches of row indices in random order, each of similar lengths.

    Rows are shuffled; within every 64 batches' worth they are sorted by length and cut: a batch is
    random among rows of its length, and at most one is short. With `short_last` that one comes last
    and holds randomly chosen rows of any length. # each (batch,)
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    end = len(order) // batch * batch if short_last else len(order)
    step = batch * _BATCHES_SORTED
    batches = []
    for start in range(0, end, step):
        chunk = order[start : min(start + step, end)]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[i : i + batch] for i in range(0, len(chunk), batch)]
    rest = [order[end:]] if end < len(order) else []
    return [batches[index] for index in rng.permutation(len(batches))] + rest


class LengthBatchSampler(Sampler[Any]):
    """Yields `length_grouped` batches, in an order of seed and epoch alone, even when resumed.

    Each batch comes as one share for each process.
    """

    def __init__(self, lengths: NDArray[np.int64], batch: int, seed: int) -> None:
        self._lengths, self._batch, self._seed, self.epoch = lengths, batch, seed, 0

    def __len__(self) -> int:
        return -(-len(self._lengths) // self._batch) * processes()

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch, from 0."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        for rows in length_grouped(self._lengths, self._batch, seed=self._seed, epoch=self.epoch):
            yield from shares(rows.tolist())


class LengthSampler(LengthBatchSampler):
    """Yields rows for a data loader that cuts batches itself: the short batch comes last."""

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[Any]:
        batches = length_grouped(
            self._lengths, self._batch, seed=self._seed, epoch=self.epoch, short_last=True
        )
        return chain.from_iterable(rows.tolist() for rows in batches)

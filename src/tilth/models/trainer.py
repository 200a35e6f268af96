"""What every training with a transformers trainer shares: settings, steps, checkpoints, its end."""

from __future__ import annotations

import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
import torch
from transformers import PrinterCallback, TrainerCallback, TrainerState
from transformers.trainer_utils import SaveStrategy

from tilth.errors import InputError, TilthError
from tilth.files import atomic_write, disk_errors, sync_folder
from tilth.models.source import silence_transformers
from tilth.runs import Run

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainingArguments

log = logging.getLogger(__name__)

MODEL, CHECKPOINTS, SUMS = "model", "checkpoints", "checksums.json"
_PREFIX = "checkpoint-"
_CHUNK = 1 << 22  # bytes


def save_transformer(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save a model and its tokenizer as a transformers folder, weights as safetensors."""
    drop_limits(tokenizer)
    with silence_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def drop_limits(tokenizer: Any) -> None:
    """Remove what a tokenizer keeps of its last call: padding and truncation.

    Else the saved file would depend on which texts were tokenised last; each call sets them anew.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()


def save_whole(unfinished: Path, folder: Path, save: Callable[[Path], object]) -> None:
    """Save into a new folder, and move it to its place with its files' checksums.

    Args:
        unfinished: where it is written; on the disk of `folder`.
        folder: its place; what lies there is removed.
        save: writes into a folder, which it makes.
    """
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    save(unfinished)
    move_whole(unfinished, folder)


def move_whole(unfinished: Path, folder: Path) -> None:
    """Record the checksums of a written folder's files, and move it to its place."""
    text = json.dumps(_checksums(unfinished, sync=True), indent=2) + "\n"
    atomic_write(unfinished / SUMS, lambda file: file.write(text.encode()))
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    sync_folder(folder.parent)


def is_whole(folder: Path) -> bool:
    """Tell whether a folder holds every file it was saved with, unchanged.

    Of a model saved before checksums were recorded, weights are all that is asked for.
    """
    if not (folder / SUMS).is_file():
        return any(folder.rglob("*.safetensors"))
    try:
        recorded = json.loads((folder / SUMS).read_bytes())
        return bool(_checksums(folder).items() >= recorded.items())
    except (ValueError, AttributeError):  # not JSON, or no object
        return False


def move_aside(folder: Path) -> None:
    """Rename a damaged folder with a warning: what it held is made again."""
    place, number = folder.with_name(f"{folder.name}.damaged"), 1
    while place.exists():
        number += 1
        place = folder.with_name(f"{folder.name}.damaged-{number}")
    folder.rename(place)
    log.warning("%s: files are missing or damaged: moved to %s", folder, place.name)


def checkpoint(folder: Path, step: int) -> Path:
    """Return where the checkpoint of a step lies."""
    return folder / f"{_PREFIX}{step}"


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint that is whole, as is the best one that it names.

    Those after it are damaged, and moved aside.
    """
    for step in sorted(_steps(folder), reverse=True):
        last = checkpoint(folder, step)
        if _is_whole_checkpoint(last):
            best = json.loads((last / "trainer_state.json").read_bytes())["best_global_step"]
            if best is None or _is_whole_checkpoint(checkpoint(folder, best)):
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


def _is_whole_checkpoint(path: Path) -> bool:
    return (path / SUMS).is_file() and is_whole(path)


def _checksums(folder: Path, *, sync: bool = False) -> dict[str, int]:
    """Return the checksum of each file; with `sync`, the files are put on the disk first."""
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


Settings = TypeVar("Settings")
Arguments = TypeVar("Arguments", bound="TrainingArguments")

_UNFINISHED = "unfinished"


def settings_of(kind: type[Settings], given: dict[str, Any]) -> Settings:
    """Return the settings of a training, a dataclass, from what was given by name.

    Raises:
        InputError: there is no setting of a name, or the settings themselves refuse a value.
    """
    known: dict[str, Any] = getattr(kind, "__dataclass_fields__", {})
    wrong = next((name for name in given if name not in known), None)
    if wrong is not None:
        raise InputError(f"no setting {wrong!r}: there are {', '.join(known)}")
    return kind(**given)


def require_single_process(device: str) -> None:
    """Refuse what the trainer would do otherwise than asked.

    Raises:
        InputError: several processes, or a GPU that is not the first.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("training runs in one process: start it without accelerate launch")
    if device.startswith("cuda:") and device != "cuda:0":
        number = device.partition(":")[2]
        raise InputError(
            f"device {device!r}: training takes the first GPU it sees: set "
            f"CUDA_VISIBLE_DEVICES={number} and give --device cuda"
        )


class Steps(Protocol):
    """What shows how far a training is; a `tilth.runs.Progress` can."""

    def skip(self, done: int) -> None:
        """Count steps of an earlier session."""

    def advance(self, done: int = 0) -> None:
        """Count steps of this one."""


def training_arguments(
    kind: type[Arguments], folder: Path, device: torch.device, seed: int, **options: Any
) -> Arguments:
    """Return the arguments of a trainer: those that all trainings share, and its own.

    Args:
        kind: `TrainingArguments`, or those of the trainer.
        folder: for checkpoints.
        device: of the model.
        seed: of the order of rows and of dropout.
        options: its own; `eval_steps` and `save_steps` say when a checkpoint is written.
    """
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
    """Shows how many steps are done, and keeps checkpoints whole.

    Each measurement and the last step have a checkpoint, written after the measurement: so a
    training that goes on from one lacks none. Only the last and the best are kept.
    """

    def __init__(self, progress: Steps) -> None:
        self._progress = progress

    def on_train_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Count the steps of an earlier session."""
        if state.global_step:
            self._progress.skip(state.global_step)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Count a step; what is measured is saved, what is saved is logged before."""
        self._progress.advance(done=1)
        if control.should_evaluate and args.save_strategy != SaveStrategy.NO:
            control.should_save = True
        if control.should_save or control.should_evaluate or control.should_training_stop:
            control.should_log = True  # mean losses count from the last checkpoint on

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Move a checkpoint to its place; remove the others but the best."""
        unfinished = Path(str(args.output_dir))
        folder, step = unfinished.parent, state.global_step
        move_whole(checkpoint(unfinished, step), checkpoint(folder, step))
        keep_only(folder, {step, state.best_global_step})


def run_trainer(trainer: Trainer, *, too_large: str) -> list[dict[str, Any]]:
    """Train, from the last whole checkpoint on, load the best weights, return what was logged.

    Args:
        trainer: made with `training_arguments` and a `CheckpointCallback`; not trained further
            where the last checkpoint says that training was over.
        too_large: what is said when memory is too small.

    Raises:
        TilthError: memory is too small.
    """
    unfinished = Path(str(trainer.args.output_dir))
    folder = unfinished.parent
    trainer.remove_callback(PrinterCallback)
    shutil.rmtree(unfinished, ignore_errors=True)
    last = last_checkpoint(folder)
    state = TrainerState.load_from_json(str(last / "trainer_state.json")) if last else None
    try:
        if state is not None and _was_over(state):
            trainer.state = state
        else:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
    except torch.OutOfMemoryError as error:
        raise TilthError(too_large) from error
    # Without a measure the last weights are kept.
    step = trainer.state.best_global_step or trainer.state.global_step
    if checkpoint(folder, step).is_dir():
        trainer._load_from_checkpoint(str(checkpoint(folder, step)))
    return list(trainer.state.log_history)


def _was_over(state: TrainerState) -> bool:
    """Tell whether training had ended when a state was saved."""
    control: Any = state.stateful_callbacks
    return bool(control["TrainerControl"]["args"]["should_training_stop"])


def complete_training(
    run: Run, train: Callable[[Path], pa.Table], save: Callable[[Path], object]
) -> None:
    """Train what a run of one part lacks; its curve is written after the model.

    Args:
        run: inside its `with` block. A finished one whose model is whole is left alone; a damaged
            model is moved aside, and trained again.
        train: trains, with checkpoints in a folder, and returns the curve.
        save: saves the trained model in a folder.

    Raises:
        TilthError: training failed, or the folder cannot be written.
    """
    model, checkpoints = run.path / MODEL, run.path / CHECKPOINTS
    with disk_errors(run.path):
        if run.missing() or not model_is_whole(run):
            curve = train(checkpoints)
            save_whole(checkpoints / MODEL, model, save)
            run.write_part(0, curve)
    shutil.rmtree(checkpoints, ignore_errors=True)


def model_is_whole(run: Run) -> bool:
    """Tell whether a run's model is there; a damaged one is moved aside."""
    model = run.path / MODEL
    if is_whole(model):
        return True
    if model.is_dir():
        move_aside(model)
    return False


def all_finite(model: torch.nn.Module) -> bool:
    """Tell whether every weight is a number."""
    return all(bool(torch.isfinite(weight).all()) for weight in model.parameters())

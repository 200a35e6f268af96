"""What every training with a transformers trainer shares: settings, steps, checkpoints, its end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from transformers import TrainerCallback, TrainerState

from tilth.errors import InputError

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainingArguments

Settings = TypeVar("Settings")


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


def refuse_several(device: str) -> None:
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


class CountSteps(TrainerCallback):
    """Shows how many steps are done, those of an earlier session too."""

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
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Count a step."""
        self._progress.advance(done=1)


def begin(trainer: Trainer) -> list[dict[str, Any]]:
    """Train from the first step; return what was logged."""
    trainer.train()
    return list(trainer.state.log_history)


def state_of(checkpoint: Path) -> TrainerState:
    """Return how far the training of a checkpoint is, and what it logged."""
    state: TrainerState = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    return state


def go_on(trainer: Trainer, checkpoint: Path) -> list[dict[str, Any]]:
    """Train from a checkpoint on; return what was logged, by earlier sessions too."""
    trainer.train(resume_from_checkpoint=str(checkpoint))
    return list(trainer.state.log_history)


def load_best(trainer: Trainer, checkpoint: Path) -> list[dict[str, Any]]:
    """Load the best weights of a training that was over; return what was logged."""
    state = state_of(checkpoint)
    if state.best_model_checkpoint is not None:
        # The folder may have been moved since: the best lies beside the last.
        best = checkpoint.parent / Path(state.best_model_checkpoint).name
        state.best_model_checkpoint = str(best)
    trainer.state = state
    trainer._load_best_model()
    return list(state.log_history)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last whole checkpoint in a folder; its state is written last."""
    states = folder.glob("checkpoint-*/trainer_state.json")
    whole = [path.parent for path in states if _is_whole(path)]
    return max(whole, key=lambda path: int(path.name.partition("-")[2]), default=None)


def _is_whole(state: Path) -> bool:
    """Tell whether a state was written to its end; a stop may have come in between."""
    try:
        json.loads(state.read_bytes())
    except ValueError:
        return False
    return True


def all_finite(model: torch.nn.Module) -> bool:
    """Tell whether every weight is a number."""
    return all(bool(torch.isfinite(weight).all()) for weight in model.parameters())

"""Make the training data a small language model is missing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilth.bank import Bank, task_queries
    from tilth.data import curate
    from tilth.encoders.bi_encoder import train_encoder
    from tilth.evaluate.sts import evaluate_sts
    from tilth.generation.dataset import generate
    from tilth.generation.task import load_task
    from tilth.models import load_encoder, load_lm

__all__ = [
    "Bank", "curate", "evaluate_sts", "generate", "load_encoder", "load_lm", "load_task",
    "task_queries", "train_encoder",
]  # fmt: skip

# Public name -> where it lives: `import tilth` loads nothing heavy.
_HOMES = {
    "Bank": "tilth.bank",
    "curate": "tilth.data",
    "evaluate_sts": "tilth.evaluate.sts",
    "generate": "tilth.generation.dataset",
    "load_encoder": "tilth.models",
    "load_lm": "tilth.models",
    "load_task": "tilth.generation.task",
    "task_queries": "tilth.bank",
    "train_encoder": "tilth.encoders.bi_encoder",
}


def __getattr__(name: str) -> Any:
    """Import a public name's home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilth' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)

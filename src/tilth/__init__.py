"""Make the training data a small language model is missing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilth.data import curate
    from tilth.generation.dataset import generate
    from tilth.generation.task import load_task
    from tilth.models import load_lm

__all__ = ["curate", "generate", "load_lm", "load_task"]

# Public name -> where it lives: `import tilth` loads nothing heavy.
_HOMES = {
    "curate": "tilth.data",
    "generate": "tilth.generation.dataset",
    "load_lm": "tilth.models",
    "load_task": "tilth.generation.task",
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

"""Load models by name: starter, hub id, folder, OpenAI-compatible endpoint."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilth.models.encoder import load_encoder
    from tilth.models.lm import LM, Seq2Seq, load_lm, load_seq2seq
    from tilth.models.scorer import load_scorer

__all__ = [
    "LM",
    "Seq2Seq",
    "load_encoder",
    "load_lm",
    "load_scorer",
    "load_seq2seq",
]
_HOMES = {
    "LM": "lm",
    "Seq2Seq": "lm",
    "load_encoder": "encoder",
    "load_lm": "lm",
    "load_scorer": "scorer",
    "load_seq2seq": "lm",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: names of models are checked without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""Names to loaded models: starter, hub id, folder, OpenAI-compatible endpoint."""

from typing import TYPE_CHECKING, Any

from tilth.models.encoder import load_encoder
from tilth.models.lm import LM, load_lm
from tilth.models.scorer import Scorer, load_scorer
from tilth.models.seq2seq import Seq2Seq, load_seq2seq
from tilth.models.source import starter_path

if TYPE_CHECKING:
    from tilth.models.endpoint import Endpoint

__all__ = [
    "LM",
    "Endpoint",
    "Scorer",
    "Seq2Seq",
    "load_encoder",
    "load_lm",
    "load_scorer",
    "load_seq2seq",
    "starter_path",
]


def __getattr__(name: str) -> Any:
    """Import the endpoint's client only when it is asked for."""
    if name == "Endpoint":
        from tilth.models.endpoint import Endpoint

        return Endpoint
    raise AttributeError(name)

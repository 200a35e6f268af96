"""From a starter model's name to its folder."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parent


def names() -> list[str]:
    """Return the names of the models in this distribution."""
    return sorted(weights.parent.name for weights in _ROOT.glob("*/model.safetensors"))


def path(name: str) -> Path:
    """Return the folder of a starter model, such as `lm`.

    Raises:
        ValueError: there is no such model.

    Example:
        >>> path("lm").name
        'lm'
    """
    if name not in names():
        raise ValueError(f"no starter model {name!r}: there are {', '.join(names()) or 'none'}")
    return _ROOT / name

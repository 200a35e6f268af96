"""A bank of raw sentences, searched by the similarity of their vectors."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilth.bank.bank import Bank
    from tilth.bank.hits import Hits
    from tilth.bank.queries import Queries, task_queries

__all__ = ["Bank", "Hits", "Queries", "task_queries"]
_HOMES = {
    "Bank": "bank",
    "Hits": "hits",
    "Queries": "queries",
    "task_queries": "queries",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: worker processes start without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tilth.bank.{_HOMES[name]}"), name)

"""A bank of raw sentences, searched by meaning: made, extended, checked, asked."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilth.bank.bank import Bank
    from tilth.bank.build import add_to_bank, build_bank
    from tilth.bank.hits import Hits
    from tilth.bank.ingest.cleaning import Rules
    from tilth.bank.queries import Queries, task_queries

__all__ = ["Bank", "Hits", "Queries", "Rules", "add_to_bank", "build_bank", "task_queries"]
_HOMES = {
    "Bank": "bank",
    "Hits": "hits",
    "Queries": "queries",
    "Rules": "ingest.cleaning",
    "add_to_bank": "build",
    "build_bank": "build",
    "task_queries": "queries",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: worker processes begin without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"tilth.bank.{_HOMES[name]}"), name)

"""A bank of raw sentences, searched by meaning: made, extended, checked, asked."""

from tilth.bank.bank import Bank, Hits
from tilth.bank.build import add_to_bank, build_bank
from tilth.bank.cleaning import Rules
from tilth.bank.query import Queries, task_queries

__all__ = ["Bank", "Hits", "Queries", "Rules", "add_to_bank", "build_bank", "task_queries"]

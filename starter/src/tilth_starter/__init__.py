"""The small models that tilth ships: where they lie."""

from tilth_starter.folders import path

__all__ = ["path"]

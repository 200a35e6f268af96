"""What tests look at in trained models and their run folders."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch


def same_weights(one: torch.nn.Module, two: torch.nn.Module) -> bool:
    """Tell whether all weights of two models are equal."""
    other = two.state_dict()
    return all(torch.equal(value, other[name]) for name, value in one.state_dict().items())


def read_curve(run: Path) -> dict[str, list[Any]]:
    """Return the learning curve of a finished run."""
    return pq.read_table(run / "parts" / "part-00000.parquet").to_pydict()

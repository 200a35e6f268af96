"""What stands for a tensor's values in a fingerprint."""

from __future__ import annotations

import torch
from torch import Tensor

_VALUES = 256


def weight_bytes(tensor: Tensor) -> memoryview:
    """Return all of a tensor's values as bytes: a fingerprint sees a change of any of them.

    Hashing takes about a second for each gigabyte of weights.
    """
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().data  # (bytes,)


def sampled_values(tensor: Tensor) -> bytes:
    """Return up to 256 values spread over a tensor, as float32."""
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // _VALUES)
    return flat[::step][:_VALUES].float().cpu().contiguous().numpy().tobytes()

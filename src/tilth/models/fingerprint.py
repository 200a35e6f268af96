"""What stands for a tensor's values in a fingerprint."""

from __future__ import annotations

from torch import Tensor

_VALUES = 256


def sampled_values(tensor: Tensor) -> bytes:
    """Return up to 256 values spread over a tensor, as float32."""
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // _VALUES)
    return flat[::step][:_VALUES].float().cpu().contiguous().numpy().tobytes()

"""Lay out a model's weights for products in bfloat16 on processors, once instead of in each one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from tilth.models.cores import share_weights
from tilth.models.device import choose_precision, free_memory

_DTYPE = torch.bfloat16
M = TypeVar("M", bound=torch.nn.Module)


def with_packed_weights(model: M, *, is_cast: bool = False) -> M:
    """Return a model that computes the same, with linear layers whose weights are laid out.

    It shares the other weights, and must not be trained. The model itself is returned where that
    brings nothing, and where memory is short: the laid out weights are kept beside the others.

    Args:
        is_cast: whether the model runs in autocast to bfloat16, else in its own precision.
    """
    layers = {name: one for name, one in model.named_modules() if _gains(one, is_cast=is_cast)}
    size = sum(layer.weight.numel() * _DTYPE.itemsize for layer in layers.values())
    if not layers or 4 * size > free_memory(torch.device("cpu")):
        return model
    found = share_weights(model)
    for name, layer in layers.items():
        weight, bias = layer.weight.detach().to(_DTYPE), layer.bias
        if type(layer).__name__ == "Conv1D":
            weight = weight.T.contiguous()
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        bias = None if bias is None else bias.detach().to(_DTYPE)
        found.get_submodule(name).forward = _forward(packed, bias)
    return found


def _gains(module: Any, *, is_cast: bool) -> bool:
    """Return whether a module is a linear layer in bfloat16, on a processor that is fast at it."""
    if type(module).__name__ not in ("Linear", "Conv1D"):
        return False
    device, dtype = module.weight.device, module.weight.dtype
    is_fast = device.type == "cpu" and choose_precision("auto", device) is _DTYPE
    return is_fast and (is_cast or dtype is _DTYPE) and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def _forward(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    # A function, not a method of the module: a copy that shares its weights keeps it as it is.
    def forward(values: Tensor) -> Tensor:
        given = values.to(_DTYPE)
        found: Tensor = torch.ops.mkldnn._linear_pointwise(given, weight, bias, "none", [], "")
        return found

    return forward

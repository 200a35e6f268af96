"""Attention of short texts and dropout for training on processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

_SHORT = 128  # tokens
_WORD = 16  # random bits that decide on one value
_ONE = {torch.bfloat16: np.uint16(0x3F80), torch.float32: np.uint32(0x3F800000)}  # bits of 1.0


class ProcessorLayers(TorchFunctionMode):
    """Computes attention of short texts and dropout in ways that are fast on processors.

    torch's fused attention takes 1.7 to 5.6 times as long as plain products for a forward and a
    backward pass over up to 128 tokens in bfloat16 (up to 2.5 times in float32); its dropout draws
    one value after the other, this one four from a random number.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`, or what is faster."""
        options = kwargs or {}
        if func is scaled_dot_product_attention and args[0].shape[-2] <= _SHORT:
            if not (options.get("is_causal") or options.get("enable_gqa")):
                return self._attend(*args, **options)
            with sdpa_kernel(SDPBackend.MATH):
                return func(*args, **options)
        if func is dropout:
            return self._drop(*args, **options)
        return func(*args, **options)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: ARG002 - torch's signature
        scale: float | None = None,
        enable_gqa: bool = False,  # noqa: ARG002
    ) -> Tensor:
        """Return torch's attention; tensors are (texts, heads, tokens, size)."""
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        scores = (query if scale == 1 else query * scale) @ key.transpose(
            -1, -2
        )  # (texts, heads, tokens, tokens)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = torch.softmax(scores, -1).to(scores.dtype)
        return self._drop(weights, dropout_p) @ value

    def _drop(
        self, values: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """Return torch's dropout of values."""
        if not (training and 0 < p < 1 and values.dtype in _ONE and values.device.type == "cpu"):
            return dropout(values, p, training, inplace)
        seed = torch.empty((), dtype=torch.int64).random_()
        found: Tensor = _Dropout.apply(values, p, int(seed))  # type: ignore[no-untyped-call]
        return found


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, p: float, seed: int) -> Tensor:
        """Return values, each set to 0 with probability `p` (within 2^-17), else 1 / (1 - p)."""
        count = values.numel()
        bits = np.random.SFC64(seed).random_raw(-(-count * _WORD // 64)).view(np.uint16)[:count]
        one = _ONE[values.dtype]
        ones = (bits < round((1 - p) * 2**_WORD)).astype(one.dtype) * one
        kept = torch.from_numpy(ones).view(values.dtype).view(values.shape)
        ctx.save_for_backward(kept)
        ctx.scale = 1 / (1 - p)
        return (values * kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the values that were kept."""
        (kept,) = ctx.saved_tensors
        return (gradients[0] * kept).mul_(ctx.scale), None, None

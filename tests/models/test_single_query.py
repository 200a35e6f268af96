"""The kernel of one query per row against torch's attention."""

import math

import numpy as np
import pytest
import torch

from tilth.models.kernel_arrays import LANES, ROW_FIELDS, codes, rounded_up
from tilth.object_code import Compiled

attend = Compiled("tilth.models.single_query_kernels", "attend")

LENGTHS = [(0, 0), (1, 0), (9, 3), (40, 6)]  # tokens of the prompt, own tokens before the new one


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("heads", "together", "size"), [(1, 1, 8), (2, 3, 32), (3, 1, 64), (1, 2, 80)]
)
def test_kernel_equals_torch(dtype: torch.dtype, heads: int, together: int, size: int) -> None:
    torch.manual_seed(0)
    count, width = len(LENGTHS), 7
    query = torch.randn(count, heads * together, size).to(dtype)
    new = torch.randn(2, count, heads, size).to(dtype)
    own = torch.randn(2, count, heads, width, size).to(dtype)
    prompts = 3 * torch.randn(2, count, heads, 50, size).to(dtype)
    table = np.zeros((count, ROW_FIELDS), np.int64)
    for row, (prompt_tokens, own_tokens) in enumerate(LENGTHS):
        keys, values = (side[row].data_ptr() for side in prompts)
        head_bytes = prompts.stride(2) * prompts.itemsize
        table[row] = keys, values, head_bytes, prompt_tokens, own_tokens
    out = torch.empty(count, heads * together, size)
    attend(
        np.empty((1,) * (size // LANES), np.uint8), codes(query), *map(codes, (*new, *own)), table,
        np.arange(count)[::-1].copy(), math.log2(math.e) / 5,
        np.empty(rounded_up(50 + width), np.float32), out.numpy(),
    )  # fmt: skip
    for row, (prompt_tokens, own_tokens) in enumerate(LENGTHS):
        parts = [
            prompts[:, row, :, :prompt_tokens],
            own[:, row, :, :own_tokens],
            new[:, row, :, None],
        ]
        keys, values = torch.cat(parts, 2).double().repeat_interleave(together, 1)
        weights = (query[row, :, None].double() @ keys.transpose(1, 2) / 5).softmax(-1)
        torch.testing.assert_close(
            out[row].double(), (weights @ values)[:, 0], rtol=1e-5, atol=2e-6
        )
        for side in (0, 1):
            assert torch.equal(own[side, row, :, own_tokens], new[side, row])

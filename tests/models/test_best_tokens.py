"""The kernels that sum up logits and find the best tokens, against torch's functions."""

import numpy as np
import pytest
import torch

from tilth.models.best_tokens import best_tokens, largest_logits, log_totals


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("rows", "width", "count"),
    [(3, 1, 1), (4, 17, 3), (5, 203, 203), (6, 4001, 300), (2, 5000, 64), (3, 256, 1)],
)
def test_totals_and_largest_logits_are_torchs(
    dtype: torch.dtype, rows: int, width: int, count: int
) -> None:
    logits = 4 * torch.randn(rows, width, generator=torch.manual_seed(0))
    logits[:, 3::7] = -torch.inf
    logits = logits.to(dtype)  # in bfloat16 many are equal
    torch.testing.assert_close(log_totals(logits), logits.float().logsumexp(-1))
    asked = torch.tensor([rows - 1, 0])
    values, tokens = largest_logits(logits, asked, count)
    expected, order = logits[asked].float().sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values, expected[:, :count])
    finite = values.isfinite()
    assert torch.equal(logits[asked].float().gather(1, tokens)[finite], values[finite])
    if dtype is not torch.float16:  # of equal ones the kernel takes the first tokens
        assert torch.equal(tokens[finite], order[:, :count][finite])


def test_of_many_ties_at_the_end_the_first_are_taken() -> None:
    logits = torch.full((1, 5000), -torch.inf)
    logits[0, 4000:4010] = torch.arange(10.0)
    logits[0, 100:3900] = 3.0
    values, tokens = largest_logits(logits, torch.zeros(1, dtype=torch.int64), 20)
    assert values[0].tolist() == [9, 8, 7, 6, 5, 4, *[3] * 14]
    assert tokens[0].tolist() == [*range(4009, 4003, -1), *range(100, 114)]


def test_what_is_no_number_shows_in_the_total_and_never_among_the_largest() -> None:
    logits = torch.arange(90.0).reshape(3, 30)
    logits[0, 29] = logits[1] = torch.nan
    totals = log_totals(logits)
    assert totals[:2].isnan().all()
    assert totals[2].isfinite()
    values, tokens = largest_logits(logits, torch.arange(3), 2)
    assert values.tolist() == [[28, 27], [-torch.inf, -torch.inf], [89, 88]]
    assert tokens.tolist() == [[28, 27], [0, 0], [29, 28]]


def test_the_best_tokens_are_those_of_a_sort() -> None:
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(5, 203)).astype(np.float32))
    columns = rng.integers(-1, 203, (5, 40))
    costs = rng.random((5, 40), np.float32) * 3
    costs[0, 3] = np.inf
    expected = logits.log_softmax(-1)
    for row, column in np.ndindex(columns.shape):
        if (place := columns[row, column]) >= 0:
            most = max(costs[row, k] for k in range(40) if columns[row, k] == place)
            expected[row, place] = logits[row].log_softmax(-1)[place] - float(most)
    values, ids = expected.topk(7)
    found, tokens = best_tokens(logits.clone(), columns, costs, 7)
    np.testing.assert_allclose(found, values, atol=2e-6)
    assert (tokens == ids.numpy()).all()
    assert best_tokens(logits.clone(), columns, costs, 300)[1].shape == (5, 203)

from __future__ import annotations

import numpy as np
import pytest

from tests.bank.memory import similarities
from tests.bank.test_quantization import vectors
from tilth.bank.quantization import FORMATS, fit_quantizer
from tilth.bank.search.products import Products


@pytest.mark.parametrize("queries", [1, 15, 16, 17, 70])
@pytest.mark.parametrize("form", FORMATS)
def test_integers_and_floats_give_the_same_as_a_loop(form: str, queries: int) -> None:
    some = vectors(1100, 300)
    quantizer = fit_quantizer(form, some)  # type: ignore[arg-type]
    codes = quantizer.encode(some[:1000])
    coded = quantizer.queries(some[1000 : 1000 + queries])
    products = Products(quantizer, coded)
    answers = []
    for whole in (True, False):
        products._whole = whole
        groups = [group.copy() for group in products(codes.codes)]
        assert len(groups) == codes.scales.shape[1]
        for group in groups:
            assert group.shape == (1000, queries + products.padding)
            assert group.shape[1] % 16 == 0
            assert not group[:, queries:].any()
        answers.append(groups)
    np.testing.assert_array_equal(answers[0], answers[1])
    assert len(products.steps) == queries
    half = 1 if form == "int8" else 0.5
    found = sum(
        group[:, :queries] * codes.scales[:, place : place + 1].astype(np.float64) * half
        for place, group in enumerate(answers[0])
    )
    wanted = similarities(quantizer, codes, some[1000 : 1000 + queries], many=True)
    found = found.T * products.steps[:, None] + coded.offsets[:, None]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("form", FORMATS)
def test_a_zero_query_and_one_row(form: str) -> None:
    some = vectors(100, 25)
    quantizer = fit_quantizer(form, some)  # type: ignore[arg-type]
    codes = quantizer.encode(some[:1])
    products = Products(quantizer, quantizer.queries(np.zeros((2, 25), np.float32)))
    for group in products(codes.codes):
        assert group.shape == (1, 16)
        assert not group.any()


def test_blocks_of_any_size_in_any_order() -> None:
    some = vectors(600, 64)
    quantizer = fit_quantizer("int8", some)
    codes = quantizer.encode(some).codes
    products = Products(quantizer, quantizer.queries(some[:9]))
    whole = products(codes)[0].copy()
    start = 0
    for rows in (1, 2, 300, 17, 280):
        np.testing.assert_array_equal(
            products(codes[start : start + rows])[0], whole[start : start + rows]
        )
        start += rows

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tilth.bank import quantization
from tilth.bank.quantization import Codes, Floats, Quantizer, Signs, fit_quantizer
from tilth.bank.settings import GROUP, LANES
from tilth.errors import InputError, TilthError
from tilth.limits import FORMAT

DIMENSIONS = (25, 300, 768)


def vectors(count: int, dimension: int, *, seed: int = 0) -> Floats:
    """Return unit vectors around some centres, with spread that falls from axis to axis."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(8, dimension))
    found = centres[rng.integers(0, 8, count)] + rng.normal(size=(count, dimension))
    found = found / np.sqrt(np.arange(1, dimension + 1)) + 0.2
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def without_fine(codes: Codes) -> Codes:
    return Codes(codes.codes, codes.scales, None)


def levels_of(quantizer: Quantizer, codes: np.ndarray) -> np.ndarray:
    """Unpack a compact code dimension by dimension, in a loop: values around 0, # (rows, turned)"""
    found = np.zeros((len(codes), quantizer.dims_4bit + quantizer.dims_2bit))
    half, quarter = quantizer.dims_4bit // 2, quantizer.dims_2bit // 4
    for place in range(quantizer.dims_4bit):
        found[:, place] = (codes[:, place % half] >> (4 * (place // half))) % 16 - 7.5
    for place in range(quantizer.dims_2bit):
        byte = codes[:, half + place % quarter]
        found[:, quantizer.dims_4bit + place] = (byte >> (2 * (place // quarter))) % 4 - 1.5
    return found


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_int8_is_off_by_half_a_step_and_by_a_sixteenth_of_it_with_fine_bits(dimension: int) -> None:
    some = vectors(300, dimension)
    quantizer = fit_quantizer("int8", some)
    codes = quantizer.encode(some)
    assert codes.codes.dtype == np.uint8
    assert codes.codes.shape[1] % LANES == 0
    assert (codes.scales.shape, codes.scales.dtype) == ((300, 1), np.float32)
    width = codes.codes.shape[1]
    assert quantizer.row == (width, 1)
    signs = Signs.of(codes)
    more = (codes.residual[:296], signs.bits[: 296 // GROUP], signs.scales[:296])
    assert sum(array.nbytes for array in more) == 296 * (width // 2 + -(-width // 64) * 8 + 4)
    step = codes.scales.astype(np.float32)
    # Turning keeps lengths, so that errors may be looked at in the turned dimensions.
    coarse = (quantizer.decode(without_fine(codes)) - some) @ quantizer.rotation
    exact = (quantizer.decode(codes) - some) @ quantizer.rotation
    assert (np.abs(coarse) <= step / 2 + 1e-6).all()
    assert (np.abs(exact) <= step / 32 + 1e-6).all()
    ratio = np.sqrt((coarse**2).mean() / (exact**2).mean())
    assert 14 < ratio < 18


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_many_vectors_have_the_bytes_of_each(dimension: int) -> None:
    some = vectors(1500, dimension)
    quantizer = fit_quantizer("int8", some)
    some[3], some[4] = 0, quantizer.mean
    found, expected = quantizer.encode(some), quantizer._encode(some)
    assert len(some) >= quantization._MANY
    for name in ("codes", "scales", "residual"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_turns_keep_lengths_and_angles(dimension: int) -> None:
    quantizer = fit_quantizer("int8", vectors(100, dimension))
    np.testing.assert_allclose(
        quantizer.rotation @ quantizer.rotation.T, np.eye(dimension), atol=1e-5
    )
    quantizer = fit_quantizer("compact", vectors(1000, dimension))
    used = quantizer.rotation[:, quantizer.rotation.any(axis=0)]
    np.testing.assert_allclose(used.T @ used, np.eye(used.shape[1]), atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.floats(1e-7, 2.0), st.integers(0, 2**32 - 1))
@example(1, 1e-7, 3628800)  # a vector of length 7e-11
def test_codes_never_clip(dimension: int, length: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    some = (length * rng.normal(size=(20, dimension)) / dimension**0.5).astype(np.float32)
    turn = np.eye(dimension, 32 * -(-dimension // 32), dtype=np.float32)
    quantizer = Quantizer("int8", np.zeros(dimension, np.float32), turn, 0, 0)
    codes = quantizer.encode(some)
    integers = codes.codes.view(np.int8).astype(np.float32)
    assert (np.abs(integers) <= 127).all()
    step = codes.scales.astype(np.float32)
    assert (np.abs(integers * step - some @ turn) <= step * 0.5001).all()


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_compact_packs_into_72_bytes_what_a_loop_unpacks(dimension: int) -> None:
    some = vectors(2000, dimension)
    quantizer = fit_quantizer("compact", some)
    codes = quantizer.encode(some)
    assert quantizer.row == (codes.codes.shape[1], codes.scales.shape[1])
    assert codes.codes.shape[1] + 4 * codes.scales.shape[1] <= 72
    assert codes.scales.dtype == np.float32
    assert quantizer.dims_4bit // 2 % LANES == quantizer.dims_2bit // 4 % LANES == 0
    assert codes.residual is None
    levels = levels_of(quantizer, codes.codes)
    np.testing.assert_array_equal(np.concatenate(quantizer.groups(codes.codes), axis=1), 2 * levels)
    scales = np.repeat(
        codes.scales.astype(np.float64), [quantizer.dims_4bit, quantizer.dims_2bit], axis=1
    )
    expected = (levels * scales) @ quantizer.rotation.T.astype(np.float64) + quantizer.mean
    np.testing.assert_allclose(quantizer.decode(codes), expected, atol=1e-5)


def test_compact_levels_are_the_nearest_but_for_the_ends() -> None:
    some = vectors(2000, 300)
    quantizer = fit_quantizer("compact", some)
    assert quantizer.dims_4bit
    assert quantizer.dims_2bit
    turned = (some - quantizer.mean) @ quantizer.rotation
    levels = levels_of(quantizer, quantizer.encode(some).codes)
    for start, stop, step, end in (
        (0, quantizer.dims_4bit, 0.3352, 7.5),
        (quantizer.dims_4bit, quantizer.dims_4bit + quantizer.dims_2bit, 0.9957, 1.5),
    ):
        own, values = levels[:, start:stop], turned[:, start:stop]
        step = step * np.sqrt((values**2).mean(axis=1, keepdims=True))
        off = np.abs(own * step - values)
        assert ((off <= step * 0.501) | (np.abs(own) == end)).all()
        assert (np.abs(own) < end).any()


@pytest.mark.parametrize("dimension", [16, 256])
@pytest.mark.parametrize("form", FORMAT.names)
def test_bytes_depend_on_nothing_but_the_vector(form: str, dimension: int) -> None:
    some = vectors(3000, dimension)
    quantizer = fit_quantizer(form, some)
    together = quantizer.encode(some)
    rows = np.random.default_rng(0).integers(0, 3000, 2000)
    with threadpool_limits(1):
        alone = quantizer.encode(some)
    with threadpool_limits(2):
        two, elsewhere = quantizer.encode(some), quantizer.encode(some[rows])
    for other, places in ((alone, slice(None)), (two, slice(None)), (elsewhere, rows)):
        np.testing.assert_array_equal(other.codes, together.codes[places])
        np.testing.assert_array_equal(other.scales, together.scales[places])
        if together.residual is not None:
            np.testing.assert_array_equal(other.residual, together.residual[places])


@pytest.mark.parametrize("dimension", [1, 16, 25, 64, 65, 128])
def test_columns_that_fill_up_bytes_do_not_coarsen_the_others(dimension: int) -> None:
    some = np.random.default_rng(0).normal(size=(4000, dimension)).astype(np.float32)
    quantizer = fit_quantizer("compact", some)
    assert quantizer.dims_4bit >= dimension
    errors = ((quantizer.decode(quantizer.encode(some)) - some) ** 2).mean() / (some**2).mean()
    assert errors < 0.017  # 0.01154 by Max's table where the spread is known exactly


def test_more_bits_go_where_the_spread_is() -> None:
    flat = fit_quantizer("compact", unit(np.random.default_rng(0).normal(size=(5000, 256))))
    steep = fit_quantizer("compact", vectors(5000, 256))
    assert flat.dims_2bit > steep.dims_2bit
    assert flat.dims_4bit < steep.dims_4bit
    rng = np.random.default_rng(0)
    few = unit(rng.normal(size=(5000, 3)) @ rng.normal(size=(3, 256)))
    assert fit_quantizer("compact", few).row == (32, 2)  # no bits for what is not there


def unit(some: np.ndarray) -> Floats:
    return (some / np.linalg.norm(some, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("form", FORMAT.names)
@pytest.mark.parametrize("dimension", [1, 2, 25, 256])
def test_constant_vectors_one_sentence_and_the_zero_sample(form: str, dimension: int) -> None:
    one = unit(np.random.default_rng(0).normal(size=(1, dimension)))
    for sample in (one, np.repeat(one, 50, axis=0), np.zeros((1, dimension), np.float32)):
        quantizer = fit_quantizer(form, sample)
        for some in (sample, one):
            codes = quantizer.encode(some)
            assert codes.codes.shape[1] > 0
            decoded = quantizer.decode(codes)
            assert np.isfinite(decoded).all()
            if sample.any():
                np.testing.assert_allclose(decoded, some, atol=1e-3)
        asked = quantizer.queries(one)
        assert np.isfinite(asked.rotated).all()


@pytest.mark.parametrize("form", FORMAT.names)
def test_queries_are_rounded_finely_and_know_the_mean(form: str) -> None:
    some = vectors(500, 300)
    quantizer = fit_quantizer(form, some)
    asked = quantizer.queries(some[:7])
    assert asked.values.dtype == np.int16
    steps = np.abs(asked.rotated).max(axis=1) / np.abs(asked.values).max(axis=1)
    np.testing.assert_allclose(asked.values * steps[:, None], asked.rotated, atol=1e-4)
    assert (np.abs(asked.values).sum(axis=1, dtype=np.int64) * 128 < 2**31).all()
    np.testing.assert_allclose(asked.offsets, some[:7] @ quantizer.mean, rtol=1e-5)
    vector = quantizer.decode(without_fine(quantizer.encode(some)))
    similarity = (
        asked.rotated @ ((vector - quantizer.mean) @ quantizer.rotation).T
    ) + asked.offsets[:, None]
    np.testing.assert_allclose(similarity, some[:7] @ vector.T, atol=2e-3)


@pytest.mark.parametrize("form", FORMAT.names)
def test_saved_and_loaded_it_is_the_same(form: str, tmp_path: Path) -> None:
    some = vectors(500, 50)
    quantizer = fit_quantizer(form, some)
    path = tmp_path / "codec.safetensors"
    path.write_bytes(quantizer.save())
    again = Quantizer.load(path, quantizer.format, quantizer.dims_4bit, quantizer.dims_2bit)
    assert (again.format, again.dims_4bit, again.dims_2bit, again.dimension) == (
        quantizer.format, quantizer.dims_4bit, quantizer.dims_2bit, 50,
    )  # fmt: skip
    np.testing.assert_array_equal(again.encode(some).codes, quantizer.encode(some).codes)
    assert quantizer.save() == again.save() == fit_quantizer(form, some, seed=0).save()
    assert quantizer.save() != fit_quantizer(form, some, seed=1).save()


def test_damaged_codecs_and_unknown_formats(tmp_path: Path) -> None:
    path = tmp_path / "codec.safetensors"
    with pytest.raises(TilthError, match=r"codec\.safetensors: cannot be read"):
        Quantizer.load(path, "int8", 0, 0)
    path.write_bytes(fit_quantizer("int8", vectors(9, 25)).save()[:-9])
    with pytest.raises(TilthError, match=r"codec\.safetensors: cannot be read"):
        Quantizer.load(path, "int8", 0, 0)
    with pytest.raises(InputError, match="format 'int4' is unknown: use int8 or compact"):
        fit_quantizer("int4", vectors(9, 25))

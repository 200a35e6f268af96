import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import caching

from tests.tiny.calls import python
from tilth.models.kernels import kernel, mean_vectors

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


def means(ids: list[int], bounds: list[int]) -> np.ndarray:
    found = np.full((len(bounds) - 1, 3), np.nan, np.float32)
    mean_vectors(np.array(ids, np.int32), np.array(bounds, np.int64), VECTORS, found)
    return found


def test_means_have_unit_length_and_those_of_nothing_are_zero() -> None:
    found = means([3, 1, 1, 2], [0, 3, 3, 4])
    expected = VECTORS[[3, 1, 1]].mean(axis=0)
    np.testing.assert_allclose(found[0], expected / np.linalg.norm(expected), atol=1e-6)
    assert not found[1].any()
    np.testing.assert_allclose(found[2], VECTORS[2] / np.linalg.norm(VECTORS[2]), atol=1e-6)
    assert not means([0], [0, 1])[0, 0]


def test_a_kernel_works_without_a_folder_to_cache_it_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def double(values: Any) -> Any:
        return values * 2

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache"):
        caching.FunctionCache(double)
    assert kernel(double)(21) == 42


def test_the_first_process_says_that_it_compiles_and_the_next_one_does_not(tmp_path: Path) -> None:
    code = "import numpy as np; from tilth.models.kernels import mean_vectors as mean\n"
    code += (
        "mean(np.zeros(1, 'i4'), np.array([0, 1]), np.ones((1, 2), 'f4'), np.ones((1, 2), 'f4'))"
    )
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert "compiling for this processor" in python(code, **cache).stderr
    assert not python(code, **cache).stderr
    shutil.rmtree(tmp_path / "cache")
    assert "compiling for this processor" in python(code, **cache).stderr

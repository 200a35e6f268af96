import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.tiny.calls import python
from tilth import machine_code, object_code
from tilth.models.kernels import kernel
from tilth.models.static import mean_vectors
from tilth.object_code import Compiled


@kernel
def scaled(values, factor, shift, out):  # type: ignore[no-untyped-def]
    """Multiply and add."""
    for place in range(len(values)):
        out[place] = values[place] * factor + shift


@kernel
def doubled(values):  # type: ignore[no-untyped-def]
    """Double values by way of a new array."""
    new = np.empty(len(values))
    for place in range(len(values)):
        new[place] = 2 * values[place]
    for place in range(len(values)):
        values[place] = new[place]


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


@pytest.mark.parametrize("has_openmp", [True, False])
@pytest.mark.parametrize(("parts", "threads"), [(1, 2), (2, 2), (3, 2), (2, 5), (9, 4)])
def test_the_parts_of_a_kernel_run_in_torchs_threads_or_others(
    monkeypatch: pytest.MonkeyPatch, parts: int, threads: int, *, has_openmp: bool
) -> None:
    if not has_openmp:
        monkeypatch.setattr(machine_code, "_openmp", lambda: None)
    elif machine_code._openmp() is None:
        pytest.skip("torch brings no GNU OpenMP")
    values, found = np.arange(40.0), np.zeros(40)
    run, bounds = Compiled(__name__, "scaled"), np.linspace(0, 40, parts + 1).astype(int)
    some = [slice(*ends) for ends in pairwise(bounds)]
    run.each([(values[one], 0.5 * one.start, one.stop, found[one]) for one in some], threads)
    for one in some:
        assert found[one].tolist() == (values[one] * 0.5 * one.start + one.stop).tolist()


def test_a_part_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Compiled(__name__, "scaled")
    monkeypatch.setattr(object_code, "run_parts", lambda *_: [0, 1])
    with pytest.raises(AssertionError, match=r"scaled: status \(0, 1\)"):
        run.each([(np.zeros(1), 1.0, 1, np.zeros(1))] * 2, 2)


def test_the_first_process_says_that_it_compiles_and_the_next_one_imports_no_numba(
    tmp_path: Path,
) -> None:
    code = "import sys; import numpy as np; from tilth.models.static import mean_vectors as mean\n"
    code += (
        "mean(np.zeros(1, 'i4'), np.array([0, 1]), np.ones((1, 2), 'f4'), np.ones((1, 2), 'f4'))\n"
    )
    code += "print('numba' in sys.modules)"
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for place in (cache, {"NUMBA_CACHE_DIR": "", "HOME": str(tmp_path)}):
        first = python(code, **place)
        if place is cache:
            assert "compiling for this processor" in first.stderr
            assert first.stdout == "True\n"
        again = python(code, **place)
        assert not again.stderr
        assert again.stdout == "False\n"
    shutil.rmtree(tmp_path / "cache")
    assert "compiling for this processor" in python(code, **cache).stderr


def test_object_code_is_made_anew_for_other_types_sources_and_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "tilth.models.static_kernels"
    marks = {object_code._fingerprint(module, kinds) for kinds in ((("f", 1),), (("f", 2),))}
    monkeypatch.setattr(object_code, "_versions", lambda: ("0",))
    marks.add(object_code._fingerprint(module, (("f", 1),)))
    monkeypatch.setattr(object_code, "_source", lambda path: path.encode())
    marks.add(object_code._fingerprint(module, (("f", 1),)))
    assert len(marks) == 4


def test_what_a_kernel_imports_from_tilth_counts_as_its_source() -> None:
    models = Path(object_code.__file__).parent / "models"
    source = object_code._source(str(models / "packed_kernels.py"))
    for name in ("packed_kernels", "vector_code", "kernel_arrays", "../object_code"):
        assert (models / f"{name}.py").read_bytes() in source
    assert (models / "single_query_kernels.py").read_bytes() not in source


def test_object_code_is_kept_where_a_folder_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    folders = [tmp_path / "file" / "none", tmp_path / "second"]
    monkeypatch.setattr(object_code, "_folders", lambda _: folders)
    assert object_code._kept("m", "a.o") is None
    object_code._keep("m", "a.o", "function", b"the\ncode")
    assert object_code._kept("m", "a.o") == ("function", b"the\ncode")
    assert [file.name for file in folders[1].iterdir()] == ["a.o"]
    file = folders[1] / "a.o"
    whole = file.read_bytes()
    for damaged in (b"", whole[:12], whole[:-1], whole[:-1] + b"x", b"\xff" + whole):
        file.write_bytes(damaged)
        assert object_code._kept("m", "a.o") is None
    folders.pop()
    object_code._keep("m", "a.o", "function", b"the code")  # nowhere


def test_a_kernel_that_allocates_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with pytest.raises(Exception, match="Failed in nopython mode"):
        Compiled(__name__, "doubled")(np.zeros(1))
    assert not list(tmp_path.iterdir())

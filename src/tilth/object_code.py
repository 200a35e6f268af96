"""Load compiled kernels from object code that an earlier process kept, without importing numba.

Importing numba and what it imports takes half a second of processor time, loading object code a
twentieth. Numba is imported only where a kernel has to be compiled.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from tilth.errors import TilthError
from tilth.files import write_file
from tilth.machine_code import link, run_parts

log = logging.getLogger(__name__)

FAST: dict[str, Any] = {
    "nogil": True, "boundscheck": False, "error_model": "numpy",
    "fastmath": {"reassoc", "contract"},  # sums in any order; infinities keep their meaning
}  # fmt: skip
_CACHE = "NUMBA_CACHE_DIR"  # numba's own variable
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64
_COMPILER = Lock()  # numba sets up its compiler at first use


class Compiled:
    """A kernel of a module that imports numba.

    A kernel returns nothing and allocates no memory. Its object code is kept for each combination
    of types, source files, processor and version of numba.

    Args:
        module: imported to compile; what it imports from tilth counts as its source, too.
        name: the kernel in it, a numba dispatcher.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name
        self._functions: dict[tuple[Any, ...], tuple[Any, int, list[Any]]] = {}

    def __call__(self, *arguments: Any) -> None:
        """Run the kernel without the interpreter's lock.

        Args:
            arguments: C-contiguous arrays, integers and floats.
        """
        kinds, flat = _flat(arguments)
        function, _, _ = self._function(kinds)
        found, error = _POINTER(), _POINTER()
        self._check(function(ctypes.byref(found), ctypes.byref(error), *flat))

    def each(self, parts: Sequence[tuple[Any, ...]], threads: int) -> None:
        """Run the kernel with the arguments of each part, in so many of torch's threads.

        Args:
            parts: arguments of the same types.
        """
        if len(parts) == 1:
            self(*parts[0])
            return
        flat = [_flat(arguments) for arguments in parts]
        _, address, types = self._function(flat[0][0])
        assert all(kinds == flat[0][0] for kinds, _ in flat)
        status = run_parts(address, types, [words for _, words in flat], threads)
        if status is None:
            list(_pool(threads).map(lambda arguments: self(*arguments), parts))
        else:
            self._check(*status)

    def _check(self, *status: int) -> None:
        assert not any(status), f"{self.module}.{self.name}: status {status}"

    def _function(self, kinds: tuple[Any, ...]) -> tuple[Any, int, list[Any]]:
        """Return the function for arguments of these kinds, its address, and their types."""
        function = self._functions.get(kinds)
        if function is None:
            with _COMPILER:
                if (function := self._functions.get(kinds)) is None:  # another thread's
                    function = self._functions[kinds] = self._load(kinds)
        return function

    def _load(self, kinds: tuple[Any, ...]) -> tuple[Any, int, list[Any]]:
        name = f"{self.module}.{self.name}-{_fingerprint(self.module, kinds)}.o"
        kept = _kept(self.module, name)
        if kept is None:
            symbol, code = _compile(getattr(importlib.import_module(self.module), self.name), kinds)
            _keep(self.module, name, symbol, code)
        else:
            symbol, code = kept
        types: list[Any] = []
        for kind in kinds:
            types += [_SIZE] * (5 + 2 * kind[1]) if isinstance(kind, tuple) else [kind]
        address = link(symbol, code=code)
        made = ctypes.CFUNCTYPE(ctypes.c_int32, _POINTER, _POINTER, *types)
        return made(address), address, types


def _flat(arguments: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """Return the kinds of arguments, and them as numba passes them."""
    kinds: list[Any] = []
    flat: list[Any] = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            assert argument.flags.c_contiguous
            kinds.append((argument.dtype.char, argument.ndim))
            flat += (0, 0, argument.size, argument.itemsize, argument.ctypes.data)
            flat += argument.shape + argument.strides
        else:
            kinds.append(ctypes.c_double if isinstance(argument, float) else _SIZE)
            flat.append(argument)
    return tuple(kinds), flat


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


@cache
def _say_compiling() -> None:
    """Say once in a process that kernels are compiled; those that are kept are not."""
    log.warning("compiling for this processor (each part once): this takes some seconds")


def _compile(kernel: Any, kinds: tuple[Any, ...]) -> tuple[str, bytes]:
    """Return the name of the compiled function, and its object code."""
    from numba.core import compiler, types
    from numba.np.numpy_support import from_dtype

    _say_compiling()
    described, flags = kernel.targetdescr, compiler.Flags()  # type: ignore[no-untyped-call]
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
    described.options.parse_as_flags(flags, {**kernel.targetoptions, "nopython": True, **wrappers})
    arguments = [
        types.Array(from_dtype(np.dtype(kind[0])), kind[1], "C")
        if isinstance(kind, tuple)
        else (types.float64 if kind is ctypes.c_double else types.int64)
        for kind in kinds
    ]
    found = compiler.compile_extra(  # type: ignore[no-untyped-call]
        described.typing_context, described.target_context, kernel.py_func, tuple(arguments),
        types.none, flags, {},
    )  # fmt: skip
    return found.fndesc.llvm_func_name, found.library._get_compiled_object()


def _fingerprint(module: str, kinds: tuple[Any, ...]) -> str:
    import llvmlite.binding as llvm

    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    digest = blake2b(_source(found.origin), digest_size=10)
    processor = llvm.get_host_cpu_name(), sorted(llvm.get_host_cpu_features().items())
    digest.update(repr((kinds, processor, _versions())).encode())
    return digest.hexdigest()


@cache
def _source(path: str) -> bytes:
    """Return the source of a module, and of the modules of tilth that it imports itself."""
    own, package = Path(path).read_bytes(), Path(__file__).parent
    names = sorted(set(re.findall(rb"^from tilth\.([\w.]+) import", own, re.MULTILINE)))
    paths = [package.joinpath(*name.decode().split(".")) for name in names]
    files = [one.with_suffix(".py") for one in paths if not one.is_dir()]
    return b"".join([own, Path(__file__).read_bytes(), *(file.read_bytes() for file in files)])


@cache
def _versions() -> tuple[str | bytes, ...]:
    """Return the versions of what makes object code; `importlib.metadata` takes 20 ms."""
    import llvmlite

    found = find_spec("numba")
    assert found is not None
    version = Path(str(found.origin)).with_name("_version.py").read_bytes()
    return llvmlite.__version__, np.__version__, version


def _folders(module: str) -> list[Path]:
    """Return the folders that object code may be kept in, the preferred one first."""
    if chosen := os.environ.get(_CACHE):
        return [Path(chosen)]
    found = find_spec(module)
    assert found is not None
    beside = Path(str(found.origin)).parent / "__pycache__"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    # Without a home no shared folder serves: others could put code there.
    return [beside, cache / "tilth"] if cache.is_absolute() else [beside]


def _kept(module: str, name: str) -> tuple[str, bytes] | None:
    """Return the function's name and the object code that are kept; None: none, or damaged."""
    for folder in _folders(module):
        try:
            head, _, code = (folder / name).read_bytes().partition(b"\n")
        except OSError:
            continue
        symbol, _, digest = head.decode(errors="replace").partition(" ")
        if digest == _digest(symbol, code):
            return symbol, code
    return None


def _digest(symbol: str, code: bytes) -> str:
    return blake2b(symbol.encode() + b"\n" + code, digest_size=10).hexdigest()


def _keep(module: str, name: str, symbol: str, code: bytes) -> None:
    """Keep a function's name and its object code; without a folder every process compiles."""
    content = f"{symbol} {_digest(symbol, code)}\n".encode() + code
    for folder in _folders(module):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, content)
        except (OSError, TilthError):
            continue
        return

"""Load machine code, and run it in parts on the threads that torch's own operations run on.

torch's threads wait for work in a loop. Threads beside them find no free core, and take a tenth of
a millisecond to wake up, about as long as a kernel takes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64
_TEAM = "tilth_team"
_HEAD = 4  # words before the arguments: what tells number and count of threads, kernel, parts


def run_parts(
    kernel: int, kinds: Sequence[Any], parts: Sequence[Sequence[Any]], threads: int
) -> list[int] | None:
    """Call a kernel with the arguments of each part; return the status of each.

    None, and nothing is called, where torch's threads are not GNU OpenMP's.

    Args:
        kernel: address of a function of two addresses and the arguments that returns a status.
        kinds: of the arguments: `ctypes.c_double`, or of an integer or an address.
        parts: arguments, of which a part's are not those of another's output.
    """
    openmp = _openmp()
    if openmp is None:
        return None
    start, number, count = openmp
    team, floats = _team(tuple(kinds))
    words = [number, count, kernel, len(parts)]
    for part in parts:
        some = list(part)
        for place in floats:
            (some[place],) = struct.unpack("q", struct.pack("d", some[place]))
        words += [*some, 0]  # the last is the status
    data = (_SIZE * len(words))(*words)
    start(team, ctypes.addressof(data), threads, 0)
    return data[_HEAD + len(kinds) :: len(kinds) + 1]


@cache
def _openmp() -> tuple[Any, int, int] | None:
    """Return what starts the threads of torch's GNU OpenMP, or None.

    And the addresses of functions that tell a thread's number, and how many threads there are.
    """
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    place = Path(found.origin).parent
    files = [*place.glob("lib/libgomp*.so*"), *place.parent.glob("torch.libs/libgomp*.so*")]
    if len(files) != 1:
        return None
    library = ctypes.CDLL(str(files[0]))
    library.GOMP_parallel.argtypes = [_POINTER, _POINTER, ctypes.c_uint, ctypes.c_uint]
    library.GOMP_parallel.restype = None
    names = ("omp_get_thread_num", "omp_get_num_threads")
    number, count = (
        int(ctypes.cast(getattr(library, name), _POINTER).value or 0) for name in names
    )
    return library.GOMP_parallel, number, count


_ENGINES: list[Any] = []  # own the code of the functions


def link(symbol: str, *, assembly: str = "", code: bytes | None = None) -> int:
    """Load a function from LLVM's assembly or from object code; return its address."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(assembly), machine)
    if code is not None:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    address: int = engine.get_function_address(symbol)
    return address


@cache
def _team(kinds: tuple[Any, ...]) -> tuple[int, list[int]]:
    """Return the address of the function of the threads, and the places of arguments of floats.

    Thread i of n runs the parts i, i + n, i + 2n, ...
    """
    types = ["double" if kind is ctypes.c_double else "i64" for kind in kinds]
    loads = "\n".join(
        f"  %p{place} = getelementptr i64, ptr %block, i64 {place}\n"
        f"  %a{place} = load {kind}, ptr %p{place}"
        for place, kind in enumerate(types)
    )
    given = ", ".join(f"{kind} %a{place}" for place, kind in enumerate(types))
    code = f"""
define void @{_TEAM}(ptr %data) {{
begin:
  %value = alloca ptr
  %error = alloca ptr
  %number_of = load ptr, ptr %data
  %count_place = getelementptr i64, ptr %data, i64 1
  %count_of = load ptr, ptr %count_place
  %kernel_place = getelementptr i64, ptr %data, i64 2
  %kernel = load ptr, ptr %kernel_place
  %parts_place = getelementptr i64, ptr %data, i64 3
  %parts = load i64, ptr %parts_place
  %number = call i32 %number_of()
  %first = sext i32 %number to i64
  %count = call i32 %count_of()
  %step = sext i32 %count to i64
  br label %next
next:
  %part = phi i64 [ %first, %begin ], [ %after, %run ]
  %is_part = icmp slt i64 %part, %parts
  br i1 %is_part, label %run, label %end
run:
  %shift = mul i64 %part, {len(types) + 1}
  %place = add i64 %shift, {_HEAD}
  %block = getelementptr i64, ptr %data, i64 %place
{loads}
  %status = call i32 %kernel(ptr %value, ptr %error, {given})
  %wide = sext i32 %status to i64
  %status_place = getelementptr i64, ptr %block, i64 {len(types)}
  store i64 %wide, ptr %status_place
  %after = add i64 %part, %step
  br label %next
end:
  ret void
}}
"""
    floats = [place for place, kind in enumerate(types) if kind == "double"]
    return link(_TEAM, assembly=code), floats

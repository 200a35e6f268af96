"""Choose the device and the precision of a model; measure free memory."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import psutil
import torch

from tilth.errors import InputError
from tilth.limits import PRECISION

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_CGROUP = Path("/sys/fs/cgroup")


def choose_device(name: str) -> torch.device:
    """Return the device of this name; `auto` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device {name!r} is unknown: use auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r} is not supported: use auto, cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} is not there: use --device cpu")
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the data type of this name.

    `auto` is bfloat16 where the hardware multiplies it faster than float32 (GPUs since Ampere,
    CPUs with AMX tiles, AMD's with AVX512-BF16), else float32.
    """
    PRECISION.check("precision", name)
    if name == "auto":
        return torch.bfloat16 if _fast_bfloat16(device) else torch.float32
    if name == "float16" and device.type == "cpu":
        raise InputError("precision float16 is too slow on a CPU: use float32 or bfloat16")
    return PRECISIONS[name]


def dtype_name(dtype: torch.dtype) -> str:
    """Return `float32`, `bfloat16` or `float16`."""
    return str(dtype).removeprefix("torch.")


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a device; on a CPU, within the container's limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(int(psutil.virtual_memory().available), _container_left())


def _container_left() -> int:
    """Return the bytes left to the container; a very large number without a limit."""
    try:
        most = int((_CGROUP / "memory.max").read_text(encoding="ascii"))  # or the word max
        return max(0, most - int((_CGROUP / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        return 2**62


def _fast_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if torch.cpu._is_amx_tile_supported():
        return True
    # Intel's processors without AMX have these instructions too, at 0.6 of float32's speed.
    return bool(torch.cpu._is_avx512_bf16_supported() and "AMD" in _processor())


@cache
def _processor() -> str:
    """Return the system's description of the processor, its maker included."""
    linux = Path("/proc/cpuinfo")
    return linux.read_text(encoding="utf-8") if linux.is_file() else platform.processor()

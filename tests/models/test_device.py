import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from tilth.errors import InputError
from tilth.models import device
from tilth.models.device import choose_device, choose_precision, free_memory


def test_free_memory_is_what_machine_and_container_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = torch.device("cpu")
    assert free_memory(cpu) > 0
    monkeypatch.setattr(device, "_CGROUP", tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=7000))
    assert free_memory(cpu) == 7000
    (tmp_path / "memory.current").write_text("1000\n")
    for limit, left in (("max", 7000), ("5000", 4000), ("500", 0)):
        (tmp_path / "memory.max").write_text(limit + "\n")
        assert free_memory(cpu) == left


def test_devices_and_precisions_that_are_not_there() -> None:
    with pytest.raises(InputError, match="device 'gpu' is unknown"):
        choose_device("gpu")
    with pytest.raises(InputError, match="device 'meta' is not supported"):
        choose_device("meta")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="'cuda' is not there: use --device cpu"):
            choose_device("cuda")
    with pytest.raises(InputError, match="precision 'half' is unknown: use auto, float32"):
        choose_precision("half", torch.device("cpu"))
    with pytest.raises(InputError, match="too slow on a CPU"):
        choose_precision("float16", torch.device("cpu"))


def test_automatic_precision_follows_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for amx, avx512, maker, expected in (
        (True, True, "GenuineIntel", torch.bfloat16),
        (False, True, "GenuineIntel", torch.float32),  # has the instructions, but slow ones
        (False, True, "AuthenticAMD", torch.bfloat16),
        (False, False, "AuthenticAMD", torch.float32),
    ):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda amx=amx: amx)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda avx512=avx512: avx512)
        monkeypatch.setattr(device, "_processor", lambda maker=maker: f"vendor_id: {maker}")
        assert choose_precision("auto", cpu) == expected


@pytest.mark.parametrize("chosen", [None, "64"])
def test_what_pytorch_keeps_is_limited_unless_the_user_says_otherwise(chosen: str | None) -> None:
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    given = {name: value for name, value in os.environ.items() if name not in names}
    given |= dict.fromkeys(names, chosen) if chosen else {}
    code = f"import tilth, os; print(*(os.environ[name] for name in {names}))"
    said = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [chosen or "256"] * 2

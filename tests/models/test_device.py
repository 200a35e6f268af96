from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from tilth.models import device
from tilth.models.device import free_memory


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

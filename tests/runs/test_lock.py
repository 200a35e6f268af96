"""The name of a machine's copies, by which leases tell whose they are."""

from pathlib import Path

import pytest

from tilth.runs import lock


def test_a_name_that_a_killed_process_left_empty_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "cache_folder", lambda: tmp_path)
    (tmp_path / "name").touch()
    name = lock._name_of_copies()
    assert len(name.split()[0]) == 16
    assert lock._name_of_copies() == name
    monkeypatch.setattr(lock.socket, "gethostname", lambda: "a-clone")
    assert lock._name_of_copies() == f"{name.split()[0]} a-clone"

"""Runs `tilth grow` of either task on the files of a folder, also interrupted."""

from pathlib import Path
from typing import Any

import pytest

from tests.tiny import read_json
from tilth.models.trainer import is_whole
from tilth.workflows.grow.arms import Arm
from tilth.workflows.grow.grow import grow_to_run
from tilth.workflows.grow.search import Search
from tilth.workflows.grow.settings import GrowSources, Growth
from tilth.workflows.grow.task import Fold


def run_grow(place: Path, base: str | None, out: str = "out", **options: Any) -> dict[str, Any]:
    """Grow a model from train.jsonl, raw.txt and test.jsonl; options replace any setting."""
    given: dict[str, Any] = {
        "train": str(place / "train.jsonl"), "raw": (str(place / "raw.txt"),),
        "test": str(place / "test.jsonl"),
    }  # fmt: skip
    names = GrowSources.__dataclass_fields__
    given |= {name: options.pop(name) for name in list(options) if name in names}
    settings = Growth(**{
        "base": base, "folds": 2, "repeats": 1, "paraphrase": False, "margin": 0.0,
        "budget": "100h", **options,  # the speed is measured, also beside other work
    })  # fmt: skip
    return grow_to_run(
        GrowSources(**given), place / out, settings, bootstrap=20, device="cpu", quiet=True
    )


def check_resume(
    place: Path, base: str, after: int, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    **options: Any,
) -> None:  # fmt: skip
    """Interrupt a run after some trainings: a model is there, and the same call ends as `whole`."""
    real, tried = Search._try, list[str]()

    def interrupted(self: Search, arm: Arm, fold: Fold) -> None:
        if len(tried) == after:
            raise KeyboardInterrupt
        tried.append(arm.name)
        real(self, arm, fold)

    monkeypatch.setattr(Search, "_try", interrupted)
    out = place / "out"
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_grow(place, base, **options)
    kept = read_json(out / "kept.json")["arm"]
    assert str(stopped.value).startswith(f"model holds the best so far ({kept}), the same command")
    assert is_whole(out / "model")
    assert read_json(out / "kept.json")["arm"] == read_json(out / "results.json")["arm"]
    assert "the best so far" in (out / "report.html").read_text()
    monkeypatch.setattr(Search, "_try", real)
    found = run_grow(place, base, **options)
    assert _scores(found) == _scores(whole)
    assert found["arm"] == whole["arm"]
    assert found["tested"]["systems"] == whole["tested"]["systems"]


def _scores(results: dict[str, Any]) -> list[Any]:
    return [(one["name"], one["trainings"], one["score"]) for one in results["arms"]]

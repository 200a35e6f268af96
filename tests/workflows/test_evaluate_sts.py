import json
from pathlib import Path

import pytest

from tests.tiny import read_json
from tests.tiny.rows import write_run
from tilth.workflows.evaluate_sts import pairs_of


@pytest.mark.parametrize("pairs", [None, 3, ["x"], "nothing-here"])
def test_pairs_of_a_training_that_are_not_there(pairs: object, tmp_path: Path) -> None:
    write_run(tmp_path, [])
    asked = read_json(tmp_path / "run.json")
    (tmp_path / "run.json").write_text(json.dumps({**asked, "resolved": {"pairs": pairs}}))
    assert pairs_of(str(tmp_path)) is None

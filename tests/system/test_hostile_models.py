"""No command runs code that a model's folder names, even where somebody answers yes."""

import json
from pathlib import Path

import pytest

from tests.system.commands import error_of
from tests.tiny import read_json, salads, save_encoder, tiny_bank, write_rows
from tests.tiny.sts import jsonl, pairs_of

COMMANDS = {
    "generate": "generate intents --model MODEL --count 1",
    "paraphrase": "paraphrase TEXTS --model MODEL",
    "paraphrase, scorer": "paraphrase TEXTS --scorer MODEL",
    "paraphrase, cosine": "paraphrase TEXTS --scorer cosine:MODEL",
    "train classifier": "train classifier LABELLED --base MODEL",
    "train adapt": "train adapt TEXTS --base MODEL",
    "train encoder": "train encoder PAIRS --base MODEL",
    "evaluate sts": "evaluate sts MODEL --data STS",
    "evaluate classify": "evaluate classify MODEL --data LABELLED",
    "evaluate tag": "evaluate tag MODEL --data TAGGED",
    "bank build": "bank build TEXTS --encoder MODEL",
    "augment": "augment LABELLED --bank BANK --teacher MODEL",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hostile")
    rows = {
        "LABELLED": [{"text": f"a man {n}", "label": "ab"[n % 2]} for n in range(8)],
        "TAGGED": [{"tokens": ["a", "man"], "tags": ["O", "B-x"]} for _ in range(4)],
        "PAIRS": [{"text_a": f"a {n}", "text_b": f"b {n}", "label": n / 80} for n in range(80)],
        "TEXTS": [{"text": f"a man sleeps near {n} dogs"} for n in range(8)],
    }
    found = {}
    for name, some in rows.items():
        found[name] = folder / f"{name}.jsonl"
        write_rows(found[name], some)
    found["STS"] = folder / "sts"
    jsonl(found["STS"] / "sts12.jsonl", pairs_of(12))
    found["BANK"] = tiny_bank(folder, salads(30)).path
    found["MODEL"] = save_encoder(folder / "model")
    (found["MODEL"] / "evil.py").write_text(
        f"from pathlib import Path\nPath({str(folder / 'ran')!r}).touch()\n"
        "from transformers import BertConfig\n"
        "class EvilConfig(BertConfig):\n    model_type = 'evil'\n"
    )
    config = found["MODEL"] / "config.json"
    evil = {"auto_map": {"AutoConfig": "evil.EvilConfig"}, "model_type": "evil"}
    text = json.dumps({**read_json(config), **evil})
    config.write_text(text.replace("auto_map", "auto\\u005fmap"))
    return found


@pytest.mark.parametrize("name", list(COMMANDS))
def test_no_command_runs_code_of_a_model(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    words = COMMANDS[name].split()
    for place, path in places.items():
        words = [word.replace(place, str(path)) if place in word else word for word in words]
    if not name.startswith("evaluate"):
        words += ["--out", str(tmp_path / "out")]
    said = error_of(*words)
    assert "code of its own, which tilth never runs" in said
    assert not (places["MODEL"].parent / "ran").exists()

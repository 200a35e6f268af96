"""`tilth generate` as a user meets it, on a tiny model saved to a folder."""

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.system.commands import error_of, real_tilth, stopped, tilth
from tests.tiny import save_model, tiny_lm

TEXTS = [f"the dog number {n} runs on the red sea" for n in range(24)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a tiny Llama as a folder that `from_pretrained` loads."""
    return save_model(tmp_path_factory.mktemp("model") / "llama", tiny_lm("llama"))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS[:8]) + "\n")
    return path


def generate(model: Path, inputs: Path, out: Path, *more: object) -> list[object]:
    return ["generate", "sts-x2", "-i", inputs, "-m", model, "-o", out, "--part-size", 2, *more]


def rows(out: Path) -> list[dict[str, Any]]:
    return pq.read_table(out / "dataset" / "data" / "train.parquet").to_pylist()


def test_from_inputs_to_report(model: Path, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = real_tilth(*generate(model, inputs, out, "--seed", 3))
    assert "Quality per label" in done.stdout
    kept = rows(out)
    assert {row["text_a"] for row in kept} <= set(TEXTS)
    assert {row["label"] for row in kept} == {0.0, 0.5, 1.0}
    assert {row["seed"] for row in kept} == {3}
    dropped = pq.read_table(out / "dataset" / "dropped" / "train.parquet").to_pylist()
    assert {row["drop_reason"] for row in dropped} >= {"not-closed"}
    tries = sum(pq.read_table(part).num_rows for part in (out / "parts").iterdir())
    assert tries == len(kept) + len(dropped)
    card = (out / "dataset" / "README.md").read_text()
    assert card.startswith("---\n")
    assert "synthetic" in card
    assert "not-closed" in card
    assert "<html" in (out / "report.html").read_text()


def test_json_goes_to_standard_output_alone(model: Path, inputs: Path, tmp_path: Path) -> None:
    done = tilth(*generate(model, inputs, tmp_path / "run", "--json", "--quiet"))
    health = json.loads(done.stdout)
    assert [label["label"] for label in health["labels"]] == ["1", "0.5", "0"]


def parts_of(out: Path) -> int:
    return len(list((out / "parts").glob("part-*.parquet")))


def test_interrupted_it_says_how_to_go_on(model: Path, inputs: Path, tmp_path: Path) -> None:
    inputs.write_text("\n".join(f"{text} {n}" for n in range(60) for text in TEXTS))
    out = tmp_path / "run"
    said = stopped(
        *generate(model, inputs, out, "--quiet"), when=lambda: parts_of(out) > 0,
        stop=signal.SIGINT, code=130,
    )  # fmt: skip
    assert "stopped: finished parts are kept, the same command goes on from there" in said
    whole = list((out / "parts").glob("part-*.parquet"))
    assert whole
    for part in whole:
        pq.read_table(part)


def test_a_finished_run_is_not_done_again_and_other_settings_are_refused(
    model: Path, inputs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    tilth(*generate(model, inputs, out))
    part = out / "parts" / "part-00000.parquet"
    before = part.stat().st_mtime_ns
    tilth(*generate(model, inputs, out))
    assert part.stat().st_mtime_ns == before
    said = error_of(*generate(model, inputs, out, "--decay", 50), code=2)
    assert "decay is 100.0 in the folder, 50.0 asked" in said
    inputs.write_text("another text\n")
    assert "the inputs are not the same" in error_of(*generate(model, inputs, out), code=2)
    tilth(*generate(model, inputs, out, "--overwrite"))
    assert {row["text_a"] for row in rows(out)} == {"another text"}


def test_first_texts_from_nothing(model: Path, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    tilth("generate", "sts-x2", "--from-x1", 30, "-m", model, "-o", out, "--quiet")
    firsts = pq.read_table(out / "x1" / "dataset" / "data" / "train.parquet").to_pylist()
    assert {row["text_a"] for row in rows(out)} <= {row["text"].strip() for row in firsts}
    again = [(row["text_a"], row["text_b"], row["label"]) for row in rows(out)]
    tilth("generate", "sts-x2", "--from-x1", 30, "-m", model, "-o", out, "--overwrite", "-q")
    assert [(row["text_a"], row["text_b"], row["label"]) for row in rows(out)] == again
    given = ["generate", "sts-x2", "--inputs", inputs, "-m", model, "-o", out, "-q"]
    assert "the inputs are not the same" in error_of(*given, code=2)
    assert (out / "x1").is_dir()
    tilth(*given, "--overwrite")
    assert not (out / "x1").exists()


def test_plan_writes_nothing(model: Path, inputs: Path, tmp_path: Path) -> None:
    inputs.write_text("\n".join(TEXTS))
    done = tilth(*generate(model, inputs, tmp_path / "run", "--plan", "--json"))
    plan = json.loads(done.stdout)
    assert plan["items"] == 24
    assert plan["trial_items"] in (20, 24)  # more where the first took no time
    assert plan["tries"] >= 24 * 3 * 2
    assert plan["tokens"] > plan["tries"]
    assert not (tmp_path / "run").exists()


def test_unusual_texts_are_texts(model: Path, tmp_path: Path) -> None:
    texts = ["שלום עולם, זה טקסט", "a smile \N{GRINNING FACE} and a flag", 'he said "go" <X1> now']
    inputs = tmp_path / "texts.jsonl"
    inputs.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    out = tmp_path / "run"
    tilth(*generate(model, inputs, out))
    assert set(pq.read_table(out / "parts")["text_a"].to_pylist()) == set(texts)


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("stsx2 -o run -i texts.txt", 2, "no task 'stsx2'"),
        ("sts-x2 -o run -i empty.txt", 2, "empty.txt"),
        ("sts-x2 -o run -i bad.txt", 2, "bad.txt:2"),
        ("sts-x2 -o run", 2, "give either --inputs or --from-x1"),
        ("sts-x2 --from-x1 2 --column x -o run", 2, "--column goes with --inputs"),
        ("sts-x2 -o run -i texts.txt --count 3", 2, "leave --count out"),
        ("intents -o run -i texts.txt", 2, "give --count instead"),
        ("intents -o run", 2, "say how many with --count"),
        ("intents --count 2 --per-input 3 -o run", 2, "leave --per-input out"),
        ("sts-x2 -o /proc/x -i texts.txt", 1, "/proc/x"),
    ],
)
def test_wrong_arguments_are_one_line(
    line: str, code: int, message: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("the dog runs\n")
    Path("empty.txt").touch()
    Path("bad.txt").write_bytes(b"good\n" + b"x" * 10_000_000)
    said = error_of("generate", *line.split(), "-m", model, code=code)
    assert message in said
    assert len(said) < 400
    assert not Path("run").exists()


def test_a_report_of_no_run_is_one_line() -> None:
    assert "no-run" in error_of("report", "no-run")

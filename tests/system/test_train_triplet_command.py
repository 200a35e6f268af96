"""`tilth train triplet` on tiny models and sets, and what its run is good for."""

import json
import random
from pathlib import Path

import pytest

from tests.system.commands import error_of, tilth
from tests.tiny import WORDS, write_lines
from tilth.models import load_encoder

SETTINGS = [
    "--learning-rate", "1e-3", "--batch", "16", "--evaluate-every", "5", "--precision", "float32",
    "--device", "cpu", "--dimension", "8",
]  # fmt: skip


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write one file of pairs and one of lists."""
    folder, rng = tmp_path_factory.mktemp("pairs"), random.Random(0)

    def shuffled(count: int) -> list[str]:
        words = rng.sample(WORDS, 7)
        return [" ".join(rng.sample(words, 6)) for _ in range(count)]

    translated = [dict(zip(("en", "de"), shuffled(2), strict=True)) for _ in range(150)]
    captions = [{"captions": shuffled(3)} for _ in range(50)]
    return [
        write_lines(folder / f"{name}.jsonl", [json.dumps(row) for row in rows])
        for name, rows in (("translated", translated), ("captions", captions))
    ]


def test_its_run_is_an_encoder_of_a_bank_and_is_measured(
    base: str, pairs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    told = tilth("train", "triplet", *pairs, "-o", out, "-b", base, *SETTINGS, "--json")
    found = json.loads(told.stdout)
    assert found["step"][0] == 5
    assert found["best"] in found["step"]
    assert 0 < max(found["reciprocal_rank"]) <= 100
    assert load_encoder(str(out)).encode(["a man"]).shape == (1, 8)

    texts = write_lines(
        tmp_path / "raw.txt", [f"The {word} is near the old river." for word in WORDS]
    )
    bank = tmp_path / "bank"
    tilth("bank", "build", texts, "--out", bank, "--encoder", out, "--quiet")
    hits = tilth("bank", "search", bank, "The boat is near the old river.", "--json")
    assert "boat" in hits.stdout
    rows = [
        json.dumps({"text_a": f"the {a}", "text_b": f"a {b}", "score": n % 6})
        for n, (a, b) in enumerate(zip(WORDS, WORDS[3:], strict=False))
    ]
    sets = write_lines(tmp_path / "stsb-test.jsonl", rows)
    scores = json.loads(
        tilth("evaluate", "sts", out, "-d", sets, "--json", "--bootstrap", 0).stdout
    )
    assert -100 <= scores["mean"]["pearson"] <= 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["PAIRS", "-o", "OUT", "--pivot", "fr"], "no source has a column 'fr'"),
        (["PAIRS", "-o", "FOLDER"], "choose another --out"),
    ],
)
def test_wrong_arguments_are_one_line(
    pairs: list[Path], tmp_path: Path, arguments: list[str], said: str
) -> None:
    places = {"PAIRS": pairs[0], "OUT": tmp_path / "out", "FOLDER": pairs[0].parent}
    assert said in error_of("train", "triplet", *(places.get(word, word) for word in arguments))

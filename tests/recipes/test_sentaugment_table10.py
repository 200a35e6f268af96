import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipes.running import measured, put_scale, run
from tests.tiny import graded_pairs, write_rows, write_vectors
from tilth.errors import InputError
from tilth.evaluate.sts import evaluate_sts
from tilth.models import load_encoder
from tilth.recipes import sentaugment_table10
from tilth.recipes.sentaugment import SentAugmentScale
from tilth.workflows.evaluate_sts import open_encoder

NAME = "sentaugment-table10"


def set_pairs(seed: int) -> dict[str, list[Any]]:
    """Return pairs in which one word is frequent, as uSIF asks."""
    rows = graded_pairs(60, seed=seed)
    return {
        **rows,
        **{key: [f"{text} the the the" for text in rows[key]] for key in list(rows)[:2]},
    }


def write_set(path: Path, seed: int) -> None:
    rows = set_pairs(seed)
    rows["score"] = [1 + 4 * label for label in rows.pop("label")]
    rows["subset"] = ["one" if n % 5 < 2 else "two" for n in range(60)]
    write_rows(path, rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(("sts12", "sts14", "stsb-test", "sick-test"), 50):
        write_set(folder / "sts" / f"{name}.jsonl", seed)
    same = [
        (a, b)
        for a, b, label in zip(*graded_pairs(240, seed=7).values(), strict=True)
        if label == 0.9
    ]
    german = [f"satz {n // 2}" for n in range(160)]
    translated = {"en": [text for pair in same for text in pair], "de": german}
    write_rows(folder / "parallel/talk/train.jsonl", translated)
    captions = {"captions": [["a man", "the man"]]}
    write_rows(folder / "paraphrase/pictures/train.jsonl", captions)
    write_vectors(folder / "words" / "glove-tiny.txt", dimension=6)
    return folder


@pytest.fixture
def tiny(base: str, static: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a tiny base, and a tiny encoder that is ready, in place of the starter's."""
    training = {"batch": 16, "learning_rate": 1e-3, "dimension": 8}
    scale = SentAugmentScale(base=base, training=training, departures=("a tiny base",))
    put_scale(monkeypatch, scale, NAME)
    monkeypatch.setattr(sentaugment_table10, "ENGLISH_ONLY", (base,))
    monkeypatch.setattr(sentaugment_table10, "READY", static)
    return base


def test_encoders_stand_beside_the_published_ones(
    data: Path, tiny: str, static: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, folder = run(NAME, data, tmp_path / "out", seeds=2)
    ours = {row.name: row.cells for row in measured(table)}
    trained = f"{tiny} encoder, triplets"
    assert list(ours) == [
        "avg. word vectors (glove-tiny)", "uSIF (glove-tiny)", f"{static} encoder",
        f"{tiny} encoder, mean-pooled", trained,
    ]  # fmt: skip
    assert set(ours[trained]) == {"STS12", "STS14", "STSb", "Avg. of measured"}
    # Years by the mean over subsets, STSb all at once, both Pearson.
    encoder = open_encoder(f"words:{data}/words/glove-tiny.txt", device="cpu")
    cells = ours["avg. word vectors (glove-tiny)"]
    for column, name, protocol in (("STS12", "sts12", "mean"), ("STSb", "stsb", "all")):
        scores = evaluate_sts(encoder, data, sets=[name], protocol=protocol, bootstrap=0)
        assert cells[column].value == pytest.approx(scores[name]["pearson"], abs=1e-6)
    both = [
        load_encoder(str(tmp_path / f"out/starter/steps/train-triplet-seed{n}")) for n in (0, 1)
    ]
    found = [evaluate_sts(one, data, sets=["stsb"], bootstrap=0)["stsb"]["pearson"] for one in both]
    assert ours[trained]["STSb"].value == pytest.approx(np.mean(found), abs=1e-5)
    assert ours[trained]["STSb"].deviation == pytest.approx(np.std(found, ddof=1), abs=1e-5)
    sase = next(row for row in table.rows if row.name == "SASE")
    assert sase.cells["Avg. of measured"].value == pytest.approx((69.7 + 77.3) / 2)
    assert sase.cells["Avg."].value == 73.5
    bert = next(row for row in table.rows if row.name == "BERT (Mean)")
    assert "STSb" not in bert.cells
    notes = "\n".join(table.notes)
    for words in ("STS13, STS15, STS16", "a tiny base", "pairs of talk, pictures", "sts12 0 (0)"):
        assert words in notes
    page = (folder / "report.html").read_text()
    assert "triplets" in page
    assert "Spearman" not in page
    assert "Validation reciprocal rank" in page
    with monkeypatch.context() as patch:
        patch.setattr("tilth.encoders.train.fit_encoder", lambda *_, **__: pytest.fail("trained"))
        again, _ = run(NAME, data, tmp_path / "out", seeds=2)
    assert again == table


@pytest.mark.usefixtures("tiny")
def test_what_lies_in_a_set_is_counted_and_left_out(data: Path, tmp_path: Path) -> None:
    held = tmp_path / "held"
    shutil.copytree(data, held)
    rows = set_pairs(50)  # the sentences of sts12
    same = {"text_a": rows["text_a"][::3], "text_b": rows["text_b"][::3]}
    write_rows(held / "paraphrase" / "taken" / "train.jsonl", same)
    table, _ = run(NAME, held, tmp_path / "out", drop_overlap=True)
    notes = "\n".join(table.notes)
    assert "Trained on 7" in notes
    assert "sts12 20 (20)" in notes
    assert "were left out" in notes
    shutil.rmtree(held / "paraphrase")
    shutil.rmtree(held / "parallel")
    with pytest.raises(InputError, match="put pairs that mean the same there"):
        run(NAME, held, tmp_path / "out")
    shutil.rmtree(held / "sts")
    with pytest.raises(InputError):
        run(NAME, held, tmp_path / "out")

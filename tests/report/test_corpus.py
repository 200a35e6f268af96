import json
import random
import re
from pathlib import Path

import pytest
from datasets import Dataset

from tests.report.page import EVIL, Page
from tests.tiny import read_json
from tilth.errors import InputError
from tilth.paraphrase.corpus import make_corpus
from tilth.paraphrase.settings import CorpusSettings
from tilth.report.paraphrase import write_corpus_report, write_rewriter_report
from tilth.runs import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(0)
    rows = [
        {
            "text_a": f"the cat {n} sees the sea {EVIL}",
            "text_b": f"a bird {n} flies to the river now",
            "meaning": rng.uniform(60, 100),
            "wording": rng.uniform(0, 50),
        }
        for n in range(2_000)
    ]
    folder = tmp_path_factory.mktemp("runs") / "corpus"
    settings = CorpusSettings(size=540, validation=54, test=54)
    make_corpus(Dataset.from_list(rows), folder, settings, quiet=True)
    return folder


def test_corpus_page_shows_maps_cells_and_examples(run: Path) -> None:
    html = write_corpus_report(run).read_text()
    page, found = Page(html), read_json(run / "results.json")
    assert sum(svg.get("role") == "img" for svg in page.all("svg")) == 2
    assert html.count('class="frame"') == 2
    assert page.shows(f"{found['kept']:,}")
    assert page.shows("meaning 70 or less")
    assert html.count(">Meaning ") == 4  # corners
    short = sum(cell["train"] < cell["wanted"] for cell in found["cells"])
    assert len(re.findall(r"\d\*<span", html)) == short
    assert page.shows(EVIL)


def test_other_runs_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a run of `tilth paraphrase corpus`"):
        write_rewriter_report(run)
    with pytest.raises(InputError, match=r"no run\.json"):
        write_corpus_report(tmp_path)


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    Run.open(tmp_path, command="paraphrase corpus", settings={}, fingerprints={}, parts=1)
    with pytest.raises(InputError, match="the run is not finished"):
        write_corpus_report(tmp_path)


def test_rewriter_page_shows_both_losses(tmp_path: Path) -> None:
    run = Run.open(
        tmp_path, command="paraphrase train", settings={"batch": 16}, fingerprints={}, parts=1
    )
    results = {
        "base": "tiny", "pairs": {"train": 96, "validation": 24}, "epochs": 3,
        "best": {"epoch": 2, "step": 12, "validation_loss": 1.25},
        "curve": {
            "epoch": [1, 2, 3], "step": [6, 12, 18], "validation_loss": [2.0, 1.25, 1.5],
            "loss": [2.5, 1.75, 1.0],
        },
    }  # fmt: skip
    with run:
        run.write_file("results.json", json.dumps(results))
    page = write_rewriter_report(tmp_path).read_text()
    assert page.count('class="curve"') == 2
    assert "3 values from 2.000 to 1.500, between 1.250 and 2.000" in page
    assert "kept: step 12 with 1.250" in page
    assert "kept: step 12 with 1.750" in page

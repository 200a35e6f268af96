"""Every job that takes a cluster: the files of 1, 2 and 4 workers are those of one process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.invariants.trainings import content
from tests.selftrain.labelled import classed
from tests.tiny import (
    salads,
    save_encoder,
    small_parts,
    small_ranges,
    tiny_lm,
    tiny_static,
    write_lines,
)
from tests.tiny.bart import save_bart
from tilth.paraphrase.settings import CandidateSettings, RewriteSettings
from tilth.paraphrase.tags import TAGS
from tilth.runs.cluster import Cluster

Job = Callable[[Path, Cluster], object]


def generate(folder: Path) -> Job:
    import tilth

    save_lm(folder / "lm")
    lm = tilth.load_lm(str(folder / "lm"), device="cpu", precision="float32")
    return lambda out, cluster: tilth.generate(
        "sts-x2", lm, from_x1=40, out=out, per_input=1, max_new_tokens=20, part_size=2,
        cluster=cluster,
    )  # fmt: skip


def save_lm(folder: Path) -> None:
    lm = tiny_lm("llama")
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)


def paraphrase(folder: Path, **options: Any) -> Job:
    from tilth.paraphrase.paraphrase_set import run_paraphrase
    from tilth.paraphrase.rewriter import load_paraphraser

    rewriter = load_paraphraser(
        str(save_bart(folder / "bart", *TAGS)), scorer=f"cosine:{save_encoder(folder / 'bert')}",
        polarity=False, device="cpu", precision="float32",
    )  # fmt: skip
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(salads(40))]
    asked = RewriteSettings(min_meaning=0, n=2, beams=4, part_size=4)
    return lambda out, cluster: run_paraphrase(
        rows, lambda: rewriter, asked, out, cluster=cluster, quiet=True
    )


def candidates(folder: Path) -> Job:
    from tilth.paraphrase.make_candidates import make_candidates

    there, back = (str(save_bart(folder / name, seed=seed)) for seed, name in enumerate("ab"))
    scorer = f"cosine:{save_encoder(folder / 'bert')}"
    asked = CandidateSettings(there, back, scorer=scorer, precision="float32", part_size=4)
    source = write_lines(folder / "in.txt", salads(40))
    return lambda out, cluster: make_candidates(source, out, asked, device="cpu", cluster=cluster)


def bank(folder: Path, encoder: Any = None) -> Job:
    from tilth.bank import Bank

    texts = salads(1000, seed=2)
    long = "The old man and the dog sleeps under the red boat near the green river with {}"
    texts[300:400] = [
        f"{long.format(text.split()[0])} {number}" for number, text in enumerate(texts[300:400])
    ]
    one = write_lines(folder / "one.txt", texts[:600])
    two = write_lines(folder / "two.txt", texts[500:])
    encoder = encoder or tiny_static()

    def build(out: Path, cluster: Cluster) -> None:
        workers = cluster.workers or 1
        how: dict[str, Any] = {"workers": workers, "cluster": cluster, "quiet": True}
        Bank.build(out, [one], encoder=encoder, device="cpu", **how).add([two], **how)

    return build


def bank_of_transformer(folder: Path) -> Job:
    return bank(folder, str(save_encoder(folder / "bert")))


def augment(folder: Path) -> Job:
    import tilth
    from tests.tiny import tiny_bank

    base = str(save_encoder(folder / "bert"))
    tiny_static().save(str(folder / "static"))
    tiny_bank(folder, salads(300), near=False, encoder=str(folder / "static"))
    train = write_lines(folder / "train.jsonl", [json.dumps(row) for row in classed(60)])
    training = {"epochs": 1, "learning_rate": 2e-3}
    return lambda out, cluster: tilth.augment(
        str(train), folder / "bank", out=out, teacher=base, count=40, training=training,
        device="cpu", precision="float32", cluster=cluster, quiet=True,
    )  # fmt: skip


def search(folder: Path, **options: Any) -> Job:
    from tests.tiny import tiny_bank
    from tilth.workflows.search_bank import search_to_run
    from tilth.workflows.settings import QuerySource, SearchSettings

    texts = salads(1000, seed=2)
    found = tiny_bank(folder, texts, near=False, **options)
    assert len(found.shards) > 4
    test = write_lines(folder / "test.txt", texts[:300])
    asked = SearchSettings(k=50, without=(str(test),), sources=("*raw*",), own=False)
    queries = write_lines(folder / "queries.txt", texts[200:250])
    few, many = QuerySource(texts=tuple(texts[400:403])), QuerySource(queries=str(queries))

    def both(out: Path, cluster: Cluster) -> None:
        for name, source in (("few", few), ("many", many)):
            search_to_run(found, source, asked, out / name, cluster=cluster)

    return both


def search_compact(folder: Path) -> Job:
    return search(folder, format="compact")


def predict(folder: Path) -> Job:
    from tilth.models.classifier import new_classifier
    from tilth.workflows.predict import predict_to_run
    from tilth.workflows.settings import Prediction

    base = str(save_encoder(folder / "bert"))
    made = new_classifier(base, kind="class", labels=["no", "yes"], device="cpu")
    made.save(folder / "classifier")
    rows = write_lines(folder / "in.txt", salads(60))
    asked = Prediction(probabilities=True, precision="float32")
    return lambda out, cluster: predict_to_run(
        str(folder / "classifier"), str(rows), out, asked, device="cpu", cluster=cluster, quiet=True
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "job",
    [
        generate,
        paraphrase,
        candidates,
        bank,
        bank_of_transformer,
        augment,
        search,
        search_compact,
        predict,
    ],
)
def test_files_are_those_of_one_process(
    job: Callable[[Path], Job], ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    small_ranges(monkeypatch)
    monkeypatch.setattr("tilth.workflows.predict.PART", 7)
    make = job(tmp_path)
    make(tmp_path / "local", Cluster())
    local = content(tmp_path / "local")
    assert any(name.endswith((".parquet", ".arrow")) for name in local)
    for workers in (1, 2, 4):
        out = tmp_path / f"of-{workers}"
        make(out, Cluster("ray", workers=workers))
        found = content(out)
        unequal = [name for name in {**local, **found} if local.get(name) != found.get(name)]
        assert unequal == []

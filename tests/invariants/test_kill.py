"""kill -9 of a command at any moment, then the same command: its files equal those left in peace.

`TILTH_KILLS=20` kills each kind of job as often; `pytest -s` shows how many ended the same.
"""

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.invariants.trainings import KINDS, content, training
from tests.selftrain.labelled import classed
from tests.tiny import (
    read_json,
    salads,
    save_encoder,
    small_parts,
    tiny_bank,
    tiny_lm,
    tiny_static,
    write_lines,
)
from tests.tiny.bart import save_bart
from tests.tiny.calls import python

KILLS = int(os.environ.get("TILTH_KILLS", "3"))
BEFORE = "before"  # what a job's folder holds at first, where it holds anything
Job = Callable[[Path], object]


def _generate(_: Path) -> Job:
    from tilth.generation.generate import generate

    texts, lm = salads(60), tiny_lm("llama")
    return lambda out: generate(
        "sts-x2", lm, texts, out=out, per_input=1, max_new_tokens=20, part_size=16
    )


def _paraphrase(folder: Path) -> Job:
    from tests.tiny.rewriter import fake_scorer
    from tilth.models.lm import load_seq2seq
    from tilth.paraphrase.paraphrase_set import run_paraphrase
    from tilth.paraphrase.rewriter import Rewriter
    from tilth.paraphrase.settings import RewriteSettings
    from tilth.paraphrase.tags import TAGS

    base = folder / "base"
    if not base.exists():
        save_bart(base, *TAGS)
    scorer = fake_scorer(lambda one, two: 100.0 * len(one) / (len(one) + len(two)))
    rewriter = Rewriter(load_seq2seq(str(base), device="cpu", precision="float32"), scorer)
    rows = [{"text": text.lower(), "label": number % 2} for number, text in enumerate(salads(40))]
    asked = RewriteSettings(min_meaning=50, n=2, beams=4, part_size=4)
    return lambda out: run_paraphrase(rows, lambda: rewriter, asked, out, quiet=True)


def _augment(folder: Path) -> Job:
    from tilth.bank import Bank
    from tilth.classifiers.load import TaskSources
    from tilth.selftrain.settings import Augmentation, TeacherSettings
    from tilth.workflows.augment import augment_to_run

    base = folder / "base"
    if not base.exists():
        save_encoder(base)
        tiny_static().save(str(folder / "static"))
        tiny_bank(folder, salads(300), near=False, encoder=str(folder / "static"))
        for name, rows in (("train", classed(60)), ("test", classed(20, seed=5))):
            write_lines(folder / f"{name}.jsonl", [json.dumps(row) for row in rows])
    sources = TaskSources(str(folder / "train.jsonl"), test=str(folder / "test.jsonl"))
    training = {"epochs": 1, "learning_rate": 2e-3}
    return lambda out: augment_to_run(
        sources, Bank.open(folder / "bank", device="cpu"), out, Augmentation(count=40),
        TeacherSettings(str(base), 2, training, "cpu"), bootstrap=50, quiet=True,
    )  # fmt: skip


def _predict(folder: Path) -> Job:
    from tilth.models.classifier import new_classifier
    from tilth.workflows import predict as predicting

    pytest.MonkeyPatch().setattr(predicting, "PART", 64)
    model, texts = folder / "model", folder / "texts.txt"
    if not model.exists():
        base = str(save_encoder(folder / "base"))
        new_classifier(base, kind="class", labels=["a", "b"], device="cpu").save(model)
        write_lines(texts, salads(1500))
    return lambda out: predicting.predict(str(model), texts, out, device="cpu", quiet=True)


def _sources(folder: Path) -> list[Path]:
    """Write three sources, of which two have sentences in common."""
    texts = salads(3000, seed=2)
    return [
        write_lines(folder / "a.txt", texts[:1500]),
        write_lines(folder / "b.txt", texts[1400:2600]),
        write_lines(folder / "c.txt", texts[2600:]),
    ]


def _bank_build(folder: Path, workers: int = 1) -> Job:
    from tilth.bank import Bank

    small_parts(pytest.MonkeyPatch())
    sources, encoder = _sources(folder)[:2], tiny_static()
    return lambda out: Bank.build(out, sources, encoder=encoder, workers=workers, quiet=True)


def _bank_workers(folder: Path) -> Job:
    """Let workers take part, of which none may write when the next process has begun."""
    return _bank_build(folder, workers=2)


def _bank_add(folder: Path) -> Job:
    from tilth.bank import Bank

    build, encoder = _bank_build(folder), tiny_static()
    if not (folder / BEFORE).exists():
        build(folder / BEFORE)
    source = folder / "c.txt"
    return lambda out: Bank.open(out, encoder=encoder).add([source], workers=1, quiet=True)


def _bank_index(folder: Path) -> Job:
    from tilth.bank import Bank

    build, encoder = _bank_build(folder), tiny_static()
    if not (folder / BEFORE).exists():
        build(folder / BEFORE)
        Bank.open(folder / BEFORE, encoder=encoder).make_index(centroids=8, threads=1, quiet=True)
    return lambda out: Bank.open(out, encoder=encoder).make_index(
        centroids=32, codes="SQ4", threads=1, quiet=True
    )


def _trainer(kind: str) -> Callable[[Path], Job]:
    return lambda folder: training(kind, folder)


JOBS: dict[str, Callable[[Path], Job]] = {
    "generate": _generate, "paraphrase": _paraphrase, "augment": _augment,
    "predict": _predict,
    **{kind: _trainer(kind) for kind in KINDS},
    "bank-build": _bank_build, "bank-workers": _bank_workers, "bank-add": _bank_add,
    "bank-index": _bank_index,
}  # fmt: skip


def fork(work: Callable[[], object]) -> int:
    """Work in a fork of this process: a kill meets the work and not the import of its modules."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    return child


def code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def bank_is_whole(bank: Path) -> None:
    """Check that a bank has all that its manifest, the old one or the new one, names."""
    from tilth.bank import Bank

    assert Bank.open(bank, encoder=tiny_static()).check(quiet=True) == []


def parts_of(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in out.rglob("part-*.parquet")}


def drive(kind: str, folder: Path, kills: int) -> dict[str, Any]:
    """Kill a job in each of many folders, let it end, count the folders that are the same.

    Every job runs in a fork of this process, which has imported everything and has no threads.
    The first kills are spread over a job's time; in every other folder a second one follows, at
    any moment.
    """

    def prepare() -> None:
        job = JOBS[kind](folder)
        if (folder / BEFORE).exists():
            shutil.copytree(folder / BEFORE, folder / "first")
        job(folder / "first")
        (folder / "modules.json").write_text(json.dumps(list(sys.modules)))

    def begin(out: Path) -> int:
        if (folder / BEFORE).exists() and not out.exists():
            shutil.copytree(folder / BEFORE, out)
        return fork(lambda: JOBS[kind](folder)(out))

    assert code(fork(prepare)) == 0
    for name in read_json(folder / "modules.json"):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    assert threading.active_count() == 1
    began = time.monotonic()
    assert code(begin(folder / "whole")) == 0
    seconds = time.monotonic() - began
    expected = content(folder / "whole")
    first = content(folder / "first")
    unequal = [name for name in {**expected, **first} if expected.get(name) != first.get(name)]
    assert not unequal, f"two runs left in peace differ in {unequal}"
    moments = random.Random(kills)
    counted: dict[str, Any] = {"all": kills, "equal": 0, "kills": 0, "in its middle": 0}
    counted["seconds"] = round(seconds, 2)
    for number in range(kills):
        out = folder / f"killed-{number}"
        faults = []
        for time_of_kill in (number + moments.random()) / kills, moments.random():
            parts = parts_of(out)
            child = begin(out)
            time.sleep(seconds * time_of_kill)
            os.kill(child, signal.SIGKILL)
            counted["kills"] += 1
            counted["in its middle"] += code(child) == -signal.SIGKILL
            if (folder / BEFORE).exists() and code(fork(lambda: bank_is_whole(out))):  # noqa: B023
                faults.append("the bank is not whole")
            if number % 2:
                break
        parts = parts_of(out)
        if code(begin(out)):
            faults.append("it does not go on")
        faults += [
            f"{path.name} was made twice"
            for path, inode in parts_of(out).items()
            if parts.get(path, inode) != inode
        ]
        found = content(out)
        faults += [n for n in {**expected, **found} if expected.get(n) != found.get(n)]
        counted["equal"] += not faults
        if faults:
            sys.stderr.write(f"{out}, killed at {time_of_kill:.2f}: {faults}\n")
        else:
            shutil.rmtree(out)
    return counted


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", JOBS)
def test_killed_at_random_moments_the_files_are_the_same(kind: str, tmp_path: Path) -> None:
    words = "import json, sys; from pathlib import Path\n"
    words += "from tests.invariants.test_kill import drive\n"
    words += "print(json.dumps(drive(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))"
    done = python(words, kind, tmp_path, KILLS, check=False)
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])
    sys.stdout.write(f"{kind}: {counted}\n")
    assert counted["equal"] == counted["all"], done.stderr
    assert counted["in its middle"]

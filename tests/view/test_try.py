"""The pages to try models, with tiny models, as a browser uses them."""

import html
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.page import EVIL, Page
from tests.tiny import WORDS, salads, save_model, tiny_bank, tiny_lm
from tests.tiny.rewriter import fake_rewriter
from tests.view.pages import Visitor, write_run
from tilth.bank import Bank
from tilth.errors import InputError
from tilth.generation.task import load_task, parse_task
from tilth.models.classifier import load_classifier, new_classifier
from tilth.models.lm import load_lm
from tilth.view.settings import TryModels
from tilth.view.workbench import TryJob, Workbench

TASK = """task_name: mine
labels:
  good: {instruction: "Known good. \\"", counter_labels: [bad]}
  bad: {instruction: "Known bad. \\""}
"""
# Each line merges the one before nine times.
MERGED = "l0: &l0 {b: 1, c: 2}\n" + "".join(
    f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 9)}]}}\n" for n in range(1, 9)
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, base: str, static: str) -> Path:
    """Return a folder with a classifier, one of pairs, a tagger, a broken model and a bank."""
    root = tmp_path_factory.mktemp("root")
    for name, kind, labels in (("student", "class", ["land", "water"]),
                               ("tagger", "tags", ["O", "B-ANIMAL", "I-ANIMAL"])):  # fmt: skip
        run = write_run(root / name, command=f"train {name}", parts=1)
        new_classifier(base, kind=kind, labels=labels, seed=3).save(run / "model")  # type: ignore[arg-type]
    broken = write_run(root / "broken", command="train classifier", parts=1) / "model"
    broken.mkdir()
    (broken / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    tiny_bank(root / "corpus", salads(60), encoder=static)
    return root


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "lm"
    save_model(folder, tiny_lm("llama"))
    (folder / "instructions.json").write_text('["Known *. \\""]')
    return str(folder)


@pytest.fixture
def visitor(root: Path, lm: str) -> Iterator[Visitor]:
    visitor = Visitor(root, models=TryModels(lm=lm, device="cpu"))
    yield visitor
    visitor.close()


def tried(visitor: Visitor, kind: str, **fields: Any) -> Page:
    """Send the form of a page and return the page with its result."""
    address = visitor.post(f"/try/{kind}", **fields).headers["location"]
    for _ in range(600):
        page = visitor.page(address)
        if not any("data-wait" in one for one in page.all("p")):
            assert page.all("p")  # a page that is whole
            return page
        time.sleep(0.05)
    raise AssertionError("no result in 30 s")


def spans(page: Page) -> list[tuple[str, float]]:
    """Return shade and figure of each marked piece."""
    found = [one for one in page.all("span") if "title" in one]
    return [(one["class"], float(one["title"].removeprefix("alpha "))) for one in found]


def test_a_text_is_rewritten_and_measured(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewriter, outputs = fake_rewriter(
        monkeypatch, lambda text, _: [f"{text} now", f"a {EVIL}", "so the red dog sleeps"],
        lambda _, second: 97.0 if second.endswith("now") else 84.0,
    )  # fmt: skip
    monkeypatch.setattr("tilth.paraphrase.rewriter.load_paraphraser", lambda *_, **__: rewriter)
    asked = {"text": "the dog sleeps near the sea", "meaning": "85", "wording": "10", "tries": "1"}
    page = tried(visitor, "rewrite", **asked)
    assert page.shows("Asked for meaning 85 to 90, wording 10 to 15")
    assert outputs.calls[0][0] == "<SIM85> <BLEU10> "
    cells = [one["class"] for one in page.all("rect")]
    assert (len(cells), cells.count("cell asked")) == (48, 1)
    assert len(page.all("circle")) == 3
    assert page.shows("the dog sleeps near the sea now 97.0")
    assert "<img" not in visitor.client.get("/try").text
    assert not page.all("img")
    (field,) = (one for one in page.all("input") if one.get("name") == "meaning")
    assert field["value"] == "85"  # the form keeps what was asked


def test_no_rewrite_is_said(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    rewriter, _ = fake_rewriter(monkeypatch, lambda text, _: [text])
    monkeypatch.setattr("tilth.paraphrase.rewriter.load_paraphraser", lambda *_, **__: rewriter)
    page = tried(visitor, "rewrite", text="the dog", meaning="95", wording="20", tries="1")
    assert page.shows("nothing but the text itself came out")


def test_a_task_is_written_with_the_factor_of_each_token(visitor: Visitor, lm: str) -> None:
    from tilth.generation.attempts import make_part
    from tilth.generation.generate import GenerateRequest, make_sampler
    from tilth.generation.settings import GenerateSettings
    from tilth.runs import Progress

    fields = {"task": TASK, "attempts": "3", "decay": "100", "seed": "5", "any_task": "",
              "inputs": ""}  # fmt: skip
    page = tried(visitor, "generate", **fields)
    settings = GenerateSettings(per_input=1, max_tries=1, seed=5)
    request = GenerateRequest(parse_task(TASK, most_labels=2), load_lm(lm), settings, count=3)
    sampler = make_sampler(request, request.items(), None, None)
    rows = make_part(request.task, "", request.settings, request.items(), sampler,
                     Progress(3, quiet=True)).to_pylist()  # fmt: skip
    assert len(rows) == 6
    shown = re.sub("[^a-z]", "", "".join(page.text))  # the model writes bytes, too
    for row in rows:
        assert re.sub("[^a-z]", "", row["text"]) in shown
    found = spans(page)
    assert {shade for shade, _ in found} <= {f"s{step}" for step in range(6)}
    assert len(found) <= sum(row["tokens"] for row in rows)  # bytes of one character are together
    assert min(value for _, value in found) < 1
    plain = tried(visitor, "generate", **{**fields, "decay": "0"})
    assert {value for _, value in spans(plain)} == {1.0}


def test_a_task_that_the_model_does_not_know_is_refused_or_forced(visitor: Visitor) -> None:
    task = TASK.replace("Known", "Other")
    fields = {"task": task, "attempts": "1", "decay": "0", "seed": "0", "inputs": ""}
    assert tried(visitor, "generate", **fields).shows("knows only the instructions of")
    assert tried(visitor, "generate", **fields, any_task="1").shows("Label good")


@pytest.mark.parametrize("name", ["sts-x2", "intents", "nli", "review-sentiment"])
def test_the_editor_begins_with_a_shipped_task(visitor: Visitor, name: str) -> None:
    page = visitor.client.get(f"/try/generate?begin={name}").text
    text = re.search(r'<textarea name="task"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    assert text is not None
    assert parse_task(html.unescape(text[1]), most_labels=12) == load_task(name)
    assert visitor.client.get("/try/generate?begin=../x").status_code == 404


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (TASK, "mine: single texts, 2 labels (good against bad; bad)."),
        ("task_name: x\nlabels: [", "task:2: not YAML"),
        ("{", "task:1: not JSON"),
        ("task_name: x\nlabels: {a: {instruction: 'no end'}}", "must end with an opening"),
        ("x" * 8_001, "the task has more than 8,000 characters"),
        (MERGED, "more than 10,000 keys"),
        ("task_name: x\nlabels: {" + ", ".join(f"k{n}: d" for n in range(700)) + "}",
         "700 labels are many for a page: give 12 at most"),
        ("task_name: x\nlabels: {a: {instruction: 'A <X1> \"'}}", "there are 0: give 1 to 3"),
    ],
)  # fmt: skip
def test_a_task_is_checked_as_it_is_typed(visitor: Visitor, task: str, said: str) -> None:
    answer = visitor.post("/try/check", 200, task=task, inputs="")
    assert Page(answer.text).shows(said)


def test_a_bank_is_searched_as_one_types(visitor: Visitor, root: Path) -> None:
    fields = {"bank": "corpus/bank", "query": "a dog near the sea", "live": "1"}
    first = tried(visitor, "search", **{**fields, "live": ""})
    bank = Bank.open(root / "corpus" / "bank")
    expected = bank.search(["a dog near the sea"], k=20).texts(0)
    assert first.shows("The nearest of 60 sentences")
    answer = Page(visitor.post("/try/search", 200, **fields).text)  # without waiting: it is open
    places = ["".join(answer.text).index(text) for text in expected]
    assert places == sorted(places)
    kept = list(visitor.site.bench._jobs)
    for _ in range(70):
        visitor.post("/try/search", 200, **fields)
    assert list(visitor.site.bench._jobs) == kept
    empty = Page(visitor.post("/try/search", 200, **{**fields, "query": " "}).text)
    assert empty.shows("the query is empty")


def test_a_text_is_labelled_and_its_words_are_measured(visitor: Visitor, root: Path) -> None:
    text = "the dog swims in the sea"
    page = tried(visitor, "label", classifier="student", text=text)
    model = load_classifier(str(root / "student" / "model"))
    own = model.probabilities([text])[0]
    best = int(own.argmax())
    assert page.shows(f"{model.labels[best]} {own[best]:.3f}")
    without = model.probabilities(["dog swims in the sea", "the swims in the sea"])
    effects = [value for _, value in spans(page)]
    assert len(effects) == 6
    assert effects[:2] == pytest.approx([own[best] - one[best] for one in without], abs=6e-4)
    pair = tried(visitor, "label", classifier="student", text=text, second="a cat")
    assert len(spans(pair)) == 8


def test_long_texts_lose_several_words_together(root: Path) -> None:
    from tilth.view.try_work import labelled

    model = load_classifier(str(root / "student" / "model"))
    found = labelled(model, (" ".join(WORDS * 8),))
    pieces = found["texts"][0]
    assert len(pieces) <= 128
    assert " ".join(one.text for one in pieces) == " ".join(WORDS * 8)


def test_a_tagger_shows_its_entities(visitor: Visitor, root: Path) -> None:
    text = "The dog sleeps. Rain!"
    page = tried(visitor, "label", classifier="tagger", text=text)
    tagger = load_classifier(str(root / "tagger" / "model"))
    tags = tagger.tag_probabilities([["The", "dog", "sleeps", ".", "Rain", "!"]])[0].argmax(1)
    assert bool(np.any(tags)) == bool(page.all("mark"))
    assert page.shows("The")


@pytest.mark.parametrize(
    ("second", "texts", "said"),
    [("a cat", 1, "leave the second text empty"), ("", 2, "write a second text")],
)
def test_a_classifier_labels_what_it_was_trained_on(
    visitor: Visitor, root: Path, second: str, texts: int, said: str
) -> None:
    config = root / "student" / "model" / "config.json"
    before = config.read_text()
    config.write_text(json.dumps({**json.loads(before), "texts_per_input": texts}))
    try:
        page = tried(visitor, "label", classifier="student", text="a dog", second=second)
    finally:
        config.write_text(before)
    assert page.shows(f"the classifier was not trained on such texts: {said}")


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("rewrite", {"text": ""}, "the text is empty"),
        ("rewrite", {"text": "x" * 2001}, "the text has more than 2,000 characters"),
        ("rewrite", {"text": "a", "meaning": "69"}, "meaning is 69: give a number from 70 to 100"),
        ("rewrite", {"text": "a", "wording": "x"}, "wording is 'x': give a number"),
        ("rewrite", {"text": "a", "meaning": "nan"}, "meaning is 'nan'"),
        ("generate", {"task": "x" * 8_001}, "the task has more than 8,000 characters"),
        ("generate", {"task": TASK, "attempts": "6"}, "attempts is 6: give 1 to 5"),
        ("generate", {"task": TASK, "attempts": "1", "decay": "-1"}, "decay is -1"),
        ("generate", {"task": TASK, "attempts": "1", "seed": "1e999"}, "seed is '1e999'"),
        ("search", {"query": "a", "bank": "../../etc"}, "there is no bank '../../etc' here"),
        ("search", {"query": "a" * 301, "bank": "corpus/bank"}, "more than 300 characters"),
        ("search", {"query": "zzz", "bank": "corpus/bank"}, "knows no word of it"),
        ("label", {"text": "a", "classifier": "/etc"}, "there is no classifier '/etc' here"),
        ("label", {"text": "a", "classifier": "broken"}, "broken"),
    ],
)
def test_what_cannot_be_is_one_line(
    visitor: Visitor, kind: str, fields: dict[str, str], said: str
) -> None:
    usual = {"rewrite": {"meaning": "95", "wording": "20", "tries": "1"},
             "generate": {"decay": "0", "seed": "0", "inputs": ""}}  # fmt: skip
    page = tried(visitor, kind, **{**usual.get(kind, {}), **fields})
    (alert,) = (one for one in page.all("p") if one.get("role") == "alert")
    assert page.shows(said)
    assert "box warn" in alert["class"]


def test_a_result_that_is_gone_is_said(visitor: Visitor) -> None:
    assert visitor.page("/try/rewrite?job=nowhere").shows("no longer kept: ask again")
    assert visitor.client.get("/try").headers["location"] == "/try/rewrite"
    assert visitor.client.get("/try/other").status_code == 404
    for kind in ("rewrite", "generate", "search", "label", "check"):
        assert visitor.client.post(f"/try/{kind}", data={"text": "a"}).status_code == 403


def test_a_folder_without_models_says_how_they_come(tmp_path: Path) -> None:
    visitor = Visitor(tmp_path)
    assert visitor.page("/try/search").shows("tilth view FOLDER --bank BANK names one")
    assert visitor.page("/try/label").shows("no trained classifier in this folder")
    assert tried(visitor, "label", text="a").shows("give one with --classifier")
    visitor.close()


def test_one_job_runs_at_a_time_and_few_wait() -> None:
    bench = Workbench(TryModels())
    running, most, begun, go = 0, 0, threading.Event(), threading.Event()
    done: list[int] = []

    def work(number: int) -> Any:
        def run(_: Any) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            begun.set()
            assert go.wait(20)
            running -= 1
            done.append(number)
            return number

        return run

    jobs = [TryJob("rewrite", {}, page="one" if number in (2, 3) else "") for number in range(10)]
    for number, job in enumerate(jobs):
        bench.submit(job, work(number))
        assert begun.wait(20)  # the first works, the others wait
    go.set()
    for job in jobs:
        assert job.done.wait(20)
    assert most == 1
    assert jobs[2].problem == "Another request of the same page came after it."
    assert jobs[9].problem == "8 requests wait already: ask again later"
    assert done == [0, 1, 3, 4, 5, 6, 7, 8]
    assert [job.result for job in jobs[3:9]] == [3, 4, 5, 6, 7, 8]
    bench.close()


def test_what_waits_is_not_begun_when_the_server_ends() -> None:
    bench, begun, go = Workbench(TryModels()), threading.Event(), threading.Event()

    def work(_: Any) -> str:
        begun.set()
        go.wait(20)
        return "done"

    jobs = [TryJob("rewrite", {}) for _ in range(3)]
    for job in jobs:
        bench.submit(job, work)
    assert begun.wait(20)
    threading.Timer(0.2, go.set).start()
    bench.close()
    assert bench._thread is not None
    bench._thread.join(20)
    assert [job.result for job in jobs] == ["done", None, None]


def test_models_are_loaded_once_and_the_oldest_is_left() -> None:
    bench = Workbench(TryModels())
    said: list[str] = []
    made: list[str] = []

    def make(name: str) -> Any:
        return bench.load("bank", name, lambda: made.append(name) or name, said.append)  # type: ignore[func-returns-value]

    for name in ("0", "1", "0", "2", "3", "4", "5", "6", "0", "1"):
        assert make(name) == name
    assert made == ["0", "1", "2", "3", "4", "5", "6", "1"]
    assert said[0] == "Loading the bank 0: the first time, this takes some seconds."


def test_a_model_that_was_made_anew_is_loaded_again(tmp_path: Path) -> None:
    bench = Workbench(TryModels())
    file = tmp_path / "config.json"
    (tmp_path / "gone").symlink_to("nowhere")
    for text in ("one", "another"):
        file.write_text(text)
        os.utime(file, ns=(0, len(text)))
        for _ in range(2):
            found = bench.load("classifier", str(tmp_path), file.read_text, lambda _: None)
            assert found == bench.loaded("classifier", str(tmp_path)) == text
    assert len(bench._loaded) == 1


def test_work_that_fails_is_one_line_and_the_next_goes_on() -> None:
    bench = Workbench(TryModels())

    def wrong(_: Any) -> None:
        raise InputError("no such model")

    def worse(_: Any) -> None:
        raise ZeroDivisionError("text of the error")

    problems = []
    for work in (wrong, worse):
        job = TryJob("label", {})
        bench.submit(job, work)
        assert job.done.wait(20)
        problems.append(job.problem)
    assert problems == ["no such model", "ZeroDivisionError: see the terminal for it"]
    bench.close()

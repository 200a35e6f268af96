"""SentAugment's tables of trainings: what each line learns from, and what is kept of it."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipes.running import measured, put_scale, write_bank_data
from tests.recipes.running import run as run_in
from tests.tiny import (
    WORDS,
    read_json,
    salads,
    save_encoder,
    tiny_static,
    write_lines,
    write_rows,
    write_vectors,
)
from tests.tiny.calls import stopped, watched
from tilth.bank import Bank
from tilth.classifiers.examples import LabeledExamples
from tilth.errors import InputError
from tilth.recipes import sentaugment_scores
from tilth.recipes import sentaugment_steps as selftraining
from tilth.recipes.catalog import RECIPES
from tilth.recipes.recipe import RecipeSettings, Steps
from tilth.recipes.sentaugment import SentAugmentScale
from tilth.recipes.sentaugment_scores import (
    MEAN,
    Line,
    SeedScores,
    TaskBoard,
    gain,
    students,
    table_of,
    weights_of,
)
from tilth.recipes.sentaugment_steps import LabelPool, kept_count, read_tasks
from tilth.recipes.sentaugment_table4 import BALANCED, SA
from tilth.recipes.table import Row, Table, TableCell, published
from tilth.runs import RunMismatch

TABLES = [f"sentaugment-table{number}" for number in (2, 4, 5, 7, 8)]


def classed(count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of salads whose class is whether a dog or a cat is in them."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        animal = ("dog", "cat")[number % 2]
        text = " ".join([*rng.choices([w for w in WORDS if w not in ("dog", "cat")], k=6), animal])
        rows.append({"text": text, "label": animal})
    return rows


def tagged(count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of tokens of which the animals are tagged."""
    rows = []
    for text in salads(count, seed=seed):
        tokens = text.rstrip(".").lower().split()
        tags = ["B-ANIMAL" if token in ("dog", "cat", "bird") else "O" for token in tokens]
        rows.append({"tokens": tokens, "tags": tags})
    return rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a data folder with one set of classes, one of tags, and raw text."""
    makers = {"classify/trec": classed, "ner/ncbi-disease": tagged}
    return write_bank_data(tmp_path / "data", makers, (24, 10, 16), salads(400, seed=3))


@pytest.fixture
def tiny(base: str, static: str, monkeypatch: pytest.MonkeyPatch) -> SentAugmentScale:
    """Put tiny models in place of the starters."""
    scale = SentAugmentScale(
        base=base, teacher=base, encoder=static, sentences=30,
        tasks=("trec", "insults", "ncbi-disease"), query="label-average",
        training={"epochs": 1.0, "batch": 8, "learning_rate": 1e-3}, departures=("tiny models",),
    )  # fmt: skip
    monkeypatch.setattr(selftraining, "TEACHING", {"epochs": 1.0, "learning_rate": 1e-3})
    put_scale(monkeypatch, scale, *TABLES)
    few = replace(scale, tasks=("sst2", "trec", "insults"))
    put_scale(monkeypatch, few, "sentaugment-table4")
    return scale


def run(name: str, data: Path, out: Path, **more: Any) -> Table:
    table: Table = run_in(name, data, out, **more)[0]
    return table


def untrained(monkeypatch: pytest.MonkeyPatch) -> list[LabeledExamples]:
    """Leave out trainings, whose models are measured as they are made; return what each got."""
    seen: list[LabeledExamples] = []
    monkeypatch.setattr(
        sentaugment_scores, "fine_tune", lambda _, rows, *rest, **more: seen.append(rows)
    )
    return seen


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", TABLES)
def test_every_line_is_measured_on_every_task(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != "sentaugment-table2":  # one table with its trainings
        untrained(monkeypatch)
    table = run(name, data, tmp_path / "out")
    tasks = ["TREC"] if name == "sentaugment-table4" else ["TREC", "ncbi-disease"]
    means = [MEAN] if len(tasks) > 1 else []
    assert table.columns[: len(tasks) + len(means)] == [*tasks, *means]
    ours = measured(table)
    assert len(ours) >= 2
    for row in ours:
        assert set(tasks) <= set(row.cells)
        for task in tasks:
            assert 0 <= row.cells[task].value <= 100
    theirs = [row for row in table.rows if row.published]
    assert theirs
    assert not any(MEAN in row.cells for row in theirs)  # it is over other tasks
    assert any("tiny models" in note for note in table.notes)
    assert any("Not in the data folder" in note for note in table.notes)


def test_table_6_has_a_bank_of_the_same_sentences_for_each_encoder(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained(monkeypatch)
    name = "sentaugment-table6"
    put_scale(monkeypatch, replace(tiny, tasks=("trec",), sentences=10), name)
    with pytest.raises(InputError, match="holds no word vectors"):
        run(name, data, tmp_path / "none")
    write_vectors(data / "words" / "glove-tiny.txt", dimension=6)
    texts = [f"{text.rstrip('.')} the the the." for text in salads(400, seed=3)]
    write_lines(data / "bank" / "raw.txt", texts)  # uSIF needs a frequent word
    table = run(name, data, tmp_path / "out")
    assert [row.name for row in measured(table)] == [
        "average of word vectors", "uSIF of word vectors", "static encoder", "transformer encoder",
    ]  # fmt: skip
    steps = tmp_path / "out/starter/steps"
    sample = (steps / "bank-sample.txt").read_text().splitlines()
    for bank in ("bank-words", "bank-usif", "bank-starter-static", "bank-static"):
        assert set(Bank.open(steps / bank)) == set(sample)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_table_goes_on_where_it_stopped(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = run("sentaugment-table8", data, tmp_path / "calm", seeds=2)
    ours = measured(calm)
    assert all(len(cell.runs) == 2 for row in ours for cell in row.cells.values())
    with stopped(sentaugment_scores, "fine_tune", 3):
        run("sentaugment-table8", data, tmp_path / "stopped", seeds=2)
    assert run("sentaugment-table8", data, tmp_path / "stopped", seeds=2) == calm
    monkeypatch.setattr(sentaugment_scores, "fine_tune", None)  # nothing is left to train
    assert run("sentaugment-table8", data, tmp_path / "stopped", seeds=2) == calm


@pytest.mark.usefixtures("tiny")
def test_students_of_table_8_differ_in_their_labels_alone(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = untrained(monkeypatch)
    run("sentaugment-table8", data, tmp_path / "out")
    hard, soft = seen[0], seen[2]
    assert hard.texts == soft.texts
    assert set(np.unique(hard.targets)) == {0.0, 1.0}
    assert len(np.unique(soft.targets)) > 2


@pytest.mark.usefixtures("tiny")
def test_nothing_retrieved_stands_in_the_test_set(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (data / "classify/trec/test.jsonl").read_text().splitlines()
    tests = [json.loads(line)["text"] for line in lines]
    with open(data / "bank" / "raw.txt", "a") as file:
        file.writelines(f"{text}\n" for text in tests)
    learned = untrained(monkeypatch)
    run("sentaugment-table4", data, tmp_path / "out")
    seen = [text for rows in learned for row in rows.texts for text in row]
    assert seen
    assert not {text.lower() for text in tests} & {text.lower() for text in seen}


def test_random_sentences_are_drawn_for_each_seed_and_once_in_the_ratio_of_classes(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt: dict[str, list[Any]] = {}

    def only_made(_: Any, __: Any, line: Line, ___: Any) -> SeedScores:
        learnt[line.step] = [line.rows(seed) for seed in (0, 1)]
        return outcome(0.5)

    monkeypatch.setattr(sentaugment_scores, "students", only_made)
    table = run("sentaugment-table4", data, tmp_path / "out", seeds=2)
    size = tiny.sentences
    for step in (f"rd-{size}", f"rb-{size}"):
        first, second = (set(rows.texts) for rows in learnt[step])
        assert len(first & second) < len(first) / 2
    assert len(learnt[f"rd-{size}"][0]) == size
    for step in (f"rb-{size}", f"sa-{size}"):
        counts = [np.bincount(rows.targets.argmax(axis=1), minlength=2) for rows in learnt[step]]
        assert np.max(counts) <= size / 2
    assert any(BALANCED in note and SA in note for note in table.notes)


def steps_of(scale: SentAugmentScale, data: Path, folder: Path) -> Steps:
    scale = replace(scale, tasks=("trec",))
    return Steps(folder, data, scale, RecipeSettings(quiet=True, device="cpu"))


def test_scores_of_other_weights_are_not_taken_for_those_of_a_base(
    tiny: SentAugmentScale, data: Path, tmp_path: Path
) -> None:
    steps = steps_of(tiny, data, tmp_path / "out")
    (task,), _ = read_tasks(steps)

    def measure() -> SeedScores:
        line = Line("alone", "alone", lambda _: task.train, tiny.training)
        return students(steps, task, line, weights_of(task, tiny.base))

    tiny = replace(tiny, base=str(save_encoder(tmp_path / "base")))
    first = measure()
    assert measure().scores == first.scores
    save_encoder(tmp_path / "base", seed=5)
    with pytest.raises(RunMismatch, match="weights of"):
        measure()


def test_training_rows_that_are_in_the_test_set_are_left_out(
    tiny: SentAugmentScale, data: Path, tmp_path: Path
) -> None:
    folder = data / "classify/trec"
    steps = steps_of(tiny, data, tmp_path / "out")
    (clean,), notes = read_tasks(steps)
    assert (clean.shared, notes) == (0, [])
    tests = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
    taken = [json.dumps({**row, "text": f"{row['text'].upper()}!"}) for row in tests[:3]]
    for part, lines in (("train", taken[:2]), ("dev", taken[2:])):
        with open(folder / f"{part}.jsonl", "a") as file:
            file.writelines(f"{line}\n" for line in lines)
    (task,), notes = read_tasks(steps)
    assert task.train.fingerprint() == clean.train.fingerprint()
    assert len(task.examples) == len(clean.examples)
    assert task.validation.fingerprint() == clean.validation.fingerprint()
    assert notes == ["Training and validation rows left out that are in the test set: trec 3."]


def test_teachers_take_the_batch_of_the_scale() -> None:
    scales = [scale for name in TABLES for scale in RECIPES[name].scales.items()]
    batches = {(name, selftraining.teaching(scale)["batch"]) for name, scale in scales}
    assert batches == {("starter", 32), ("paper", 16)}  # the paper has 16


def test_the_papers_scale_is_the_papers() -> None:
    for name in ("sentaugment-table2", *(f"sentaugment-table{n}" for n in range(4, 9))):
        paper = RECIPES[name].scales["paper"]
        assert (paper.candidates, paper.select, paper.query) == (
            3_000_000, "confidence", "label-average"
        )  # fmt: skip
        assert paper.training == {"epochs": 3.0, "batch": 16}
        assert paper.small_epochs == 1
        assert set(paper.tasks) <= {"SST-2", "SST-5", "CR", "IMP", "TREC", "NER"}
        assert paper.sentences == (100_000 if name == "sentaugment-table4" else 0)
    assert RECIPES["sentaugment-table2"].scales["paper"].tag_query == "per-sentence"


def test_sentences_are_learned_in_proportion_to_the_training_set(
    tiny: SentAugmentScale, data: Path
) -> None:
    (task,), _ = read_tasks(steps_of(tiny, data, data))
    assert kept_count(replace(tiny, sentences=0), task) == 100 * 24
    assert kept_count(tiny, task) == 30


def test_a_bank_with_too_few_sentences_is_named(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained(monkeypatch)
    for name in ("sentaugment-table2", "sentaugment-table4", "sentaugment-table7"):
        large = replace(tiny, tasks=("trec",), sentences=5_000)
        put_scale(monkeypatch, large, name)
        monkeypatch.setattr("tilth.classifiers.mlm.adapt", lambda *_, **__: None)
        monkeypatch.setattr(sentaugment_scores, "students", lambda *_: outcome(0.5, 1))
        monkeypatch.setattr(TaskBoard, "gain", lambda *_: "")
        notes = [
            note for note in run(name, data, tmp_path / "out").notes if "to be learned" in note
        ]
        assert all("trec: 5,000 sentences are to be learned, the bank has " in one for one in notes)
        assert len(notes) == (3 if name == "sentaugment-table7" else 1)


def test_the_scale_says_what_is_asked_and_what_is_learned(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrieved = watched(monkeypatch, selftraining, "retrieve")
    drawn = watched(monkeypatch, LabelPool, "draw")
    monkeypatch.setattr("tilth.classifiers.mlm.adapt", lambda *_, **__: None)
    untrained(monkeypatch)
    papers = replace(tiny, candidates=77, select="confidence", tag_query="per-sentence")
    put_scale(monkeypatch, papers, "sentaugment-table2", "sentaugment-table8")

    def drawn_only(_: Any, __: Any, line: Line, ___: Any) -> SeedScores:
        line.rows(0)
        return outcome(0.5, 1)

    monkeypatch.setattr(sentaugment_scores, "students", drawn_only)
    monkeypatch.setattr(TaskBoard, "gain", lambda *_: "")
    run("sentaugment-table2", data, tmp_path / "two")
    asked = [(given[3].query, given[2]) for given, _ in retrieved]
    assert asked == [("label-average", 77), ("per-sentence", 77)]
    assert [given[3] for given, _ in drawn] == ["confidence", "random"] * 2
    retrieved.clear()
    drawn.clear()
    run("sentaugment-table8", data, tmp_path / "eight")
    assert {given[3].query for given, _ in retrieved} == {"label-average"}
    assert {given[3] for given, _ in drawn} == {"confidence"}


def add_task(data: Path, place: str, make: Any = None) -> None:
    for seed, (part, count) in enumerate((("train", 24), ("dev", 10), ("test", 16))):
        write_rows(data / place / f"{part}.jsonl", (make or classed)(count, seed=20 + seed))


def test_tasks_of_ones_own_and_of_the_paper_are_measured(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained(monkeypatch)
    for place in ("classify/cr", "classify/mine"):
        add_task(data, place)
    add_task(data, "ner/conll2003", tagged)
    table = run("sentaugment-table8", data, tmp_path / "out", tasks=("mine", "CR", "conll2003"))
    shared = "mean of CR, NER"
    assert table.columns == ["mine", "CR", "NER", MEAN, shared, "SST-5"]
    rows = {row.name: row.cells for row in table.rows}
    theirs, ours = rows["logits"], rows["soft labels (probabilities)"]
    assert theirs[shared].value == pytest.approx((95.7 + 93.1) / 2)
    assert ours[shared].value == pytest.approx((ours["CR"].value + ours["NER"].value) / 2)
    assert MEAN not in theirs
    assert "(NER: F1 of spans)" in table.notes[0]
    results = tmp_path / "out/starter/sentaugment-table8/run.json"
    assert read_json(results)["settings"]["tasks"] == ["mine", "CR", "conll2003"]


def test_means_are_over_the_same_tasks_for_us_and_the_paper() -> None:
    ours = Row(
        "ours",
        {"SST-2": TableCell(80, runs=(79.0, 81.0)), "TREC": TableCell(90, runs=(88.0, 92.0))},
    )
    papers = published("paper's", ["SST-2", "CR", "TREC"], [96.0, 50.0, 98.0])
    table = table_of("T", ["sst2", "trec"], [ours, papers], [])
    mean = "mean of SST-2, TREC"
    assert table.columns == ["SST-2", "TREC", mean, "CR"]
    assert table.rows[0].cells[mean].runs == (83.5, 86.5)
    assert table.rows[1].cells[mean] == TableCell(97.0)
    alone = table_of("T", ["trec"], [Row("ours", {"TREC": TableCell(90)}), papers], [])
    assert alone.columns == ["TREC", "SST-2", "CR"]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (("nope", "trec"), r"no labelled set nope in .* others with --tasks \(there are imp"),
        (("IMP",), "imp and insults are both IMP: keep one"),
        (("several",), "has one label a row, or tags"),
    ],
)
def test_tasks_that_cannot_be_measured(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, tasks: tuple[str, ...], said: str
) -> None:
    for place in ("classify/imp", "classify/insults"):
        add_task(data, place)
    add_task(data, "classify/several", lambda count, seed: [
        {"text": f"a dog {seed} {number}", "labels": ["x", "y"][: number % 3]}
        for number in range(count)
    ])  # fmt: skip
    with pytest.raises(InputError, match=said):
        run("sentaugment-table8", data, tmp_path / "out", tasks=tasks)


def test_base_teacher_and_encoder_can_be_chosen(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untrained(monkeypatch)
    for name, seed in (("mine", 5), ("tutor", 6)):
        save_encoder(tmp_path / name, seed=seed)
    tiny_static(seed=3).save(str(tmp_path / "sase"))
    given = {
        "base": str(tmp_path / "mine"), "teacher": str(tmp_path / "tutor"),
        "encoder": str(tmp_path / "sase"),
    }  # fmt: skip
    table = run("sentaugment-table8", data, tmp_path / "out", **given)
    notes = "\n".join(table.notes)
    assert f"Unlike in the paper: base {given['base']} for RoBERTa-large." in notes
    assert f"encoder {given['encoder']} for SASE" in notes
    steps = tmp_path / "out/starter/steps"
    assert (steps / "trec-teacher-tutor-0").is_dir()
    assert read_json(steps / "bank/bank.json")["encoder"] == given["encoder"]
    student = read_json(steps / "trec-from-label-average-0/run.json")
    assert student["settings"]["base"] == given["base"]
    asked = read_json(steps.parent / "sentaugment-table8/run.json")["settings"]
    assert {name: asked[name] for name in given} == given
    with pytest.raises(RunMismatch, match="choose another --out"):
        run("sentaugment-table8", data, tmp_path / "out", **{**given, "base": given["teacher"]})
    with pytest.raises(RunMismatch, match="choose another --out"):
        run("sentaugment-table8", data, tmp_path / "out", **{**given, "encoder": tiny.encoder})


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("dino-table1", {"teacher": "starter"}, "teacher 'starter': dino-table1 has no teacher"),
        ("dino-table1", {"tasks": ("trec",)}, "tasks 'trec': dino-table1 has no tasks"),
        ("paraphrase-fig1", {"base": "starter"}, "paraphrase-fig1 has no base"),
        ("sentaugment-table8", {"base": "no/such/model"}, "no/such/model"),
        ("sentaugment-table8", {"encoder": "./none"}, "none"),
    ],
)
def test_choices_that_a_recipe_does_not_have(
    name: str, given: dict[str, Any], said: str, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        run(name, data, tmp_path / "out", **given)


def test_parts_of_the_bank_lie_in_one_another(
    tiny: SentAugmentScale, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = watched(monkeypatch, selftraining, "label_pool")
    untrained(monkeypatch)
    run("sentaugment-table7", data, tmp_path / "out")
    found = {given[1]: set(given[3]["id"].to_pylist()) for given, _ in pools}
    assert all(number % 16 == 0 for number in found["trec-near-16th"])
    assert all(number % 4 == 0 for number in found["trec-near-quarter"])
    assert len(found["trec-near-label-average"]) == round(tiny.sentences * selftraining.SPARE)


def outcome(share: float, trainings: int = 2) -> SeedScores:
    right = (np.arange(400) < 400 * share).astype(np.int64)
    one = np.stack([right, np.ones_like(right), np.ones_like(right)], axis=1)
    return SeedScores([100 * share] * trainings, np.stack([one] * trainings))


def test_a_gain_has_the_right_sign_and_an_interval_around_it() -> None:
    better, worse = {"a": outcome(0.9), "b": outcome(0.8)}, {"a": outcome(0.7), "b": outcome(0.8)}
    found = gain(better, worse)
    assert found.value == pytest.approx(10)
    assert 0 < found.low < 10 < found.high
    assert gain(worse, better).value == pytest.approx(-10)


def test_a_note_says_that_one_training_does_not_tell_how_trainings_vary() -> None:
    for trainings in (1, 2):
        lines = {name: {"a": outcome(share, trainings)} for name, share in (("A", 0.9), ("B", 0.8))}
        note = TaskBoard(None, [], lines).gain("A", "B")
        assert note.endswith(", test rows; one training].") == (trainings == 1)


@pytest.mark.usefixtures("tiny")
def test_a_data_folder_without_tasks_is_refused(data: Path, tmp_path: Path) -> None:
    (data / "classify/trec/test.jsonl").unlink()
    with pytest.raises(InputError, match="has no file test"):
        run("sentaugment-table5", data, tmp_path / "out")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="has no labelled set trec, insults, ncbi-disease"):
        run("sentaugment-table5", empty, tmp_path / "out")

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import Dataset, Features, List, Value

import tilth
from tests.report.augmented_run import ROWS, write_run
from tests.tiny import read_json, save_encoder, write_rows
from tests.tiny.calls import taken
from tilth.classifiers.load import TaskSources, read_task
from tilth.classifiers.settings import ClassifierTraining, Finetuning
from tilth.errors import InputError, TilthError
from tilth.report.retrieved import read_augmentation
from tilth.report.systems import (
    ALONE,
    ENCODER,
    FREQUENT,
    MAJORITY,
    SETFIT,
    TEACHER,
    TFIDF,
    TRAINED,
    WITHOUT_FIRST,
    WORDS,
    comparison,
)
from tilth.runs import RunMismatch
from tilth.workflows import train_and_test as training
from tilth.workflows.augmented_run import open_augmented
from tilth.workflows.train_and_test import BASELINE, train_and_test
from tilth.workflows.train_classifier import train_classifier, train_tagger

pytestmark = pytest.mark.usefixtures("quick_baselines")

FAST: dict[str, Any] = {"epochs": 2.0, "learning_rate": 3e-3, "batch": 32}


@dataclass(frozen=True)
class Made:
    """A base, a teacher of each kind, and a test file of each kind."""

    folder: Path

    @property
    def base(self) -> str:
        return str(self.folder / "base")

    def test(self, kind: str) -> str:
        return str(self.folder / f"{kind}.jsonl")

    def run(self, folder: Path, kind: str = "class", **options: Any) -> Path:
        """Write a run whose teacher is finished, from a larger base."""
        asked = {"teacher": "larger", "test": self.test(kind), "rows": 60, **options}
        write_run(folder, kind, **asked)
        shutil.copytree(self.folder / f"{kind}-teacher", folder / "teacher")
        return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    save_encoder(folder / "base")
    for kind, make in ROWS.items():
        train = train_tagger if kind == "tags" else train_classifier
        train(
            make(30, seed=5), str(folder / "base"), folder / f"{kind}-teacher", quiet=True, **FAST
        )
        write_rows(folder / f"{kind}.jsonl", make(45, seed=9))
    return Made(folder)


@pytest.fixture
def no_simple(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit no simple baselines: nothing is said of them."""
    monkeypatch.setattr("tilth.workflows.baselines.baselines", lambda *_, **__: [])


def train(made: Made, run: Path, *, kind: str = "class", **options: Any) -> Any:
    out = options.pop("out", None)
    sources = TaskSources(str(run), **taken(options, TaskSources))
    training = Finetuning(**options.pop("training", FAST))
    settings = ClassifierTraining(
        made.base, training, quiet=True, **taken(options, ClassifierTraining)
    )
    how = {"bootstrap": 50, **options}
    return train_and_test(sources, settings, out, tags=kind == "tags", **how)


@pytest.mark.parametrize("kind", ["class", "multi", "tags"])
def test_student_baseline_and_teacher_are_measured(made: Made, tmp_path: Path, kind: str) -> None:
    run = made.run(tmp_path / "run", kind)
    trained = train(made, run, kind=kind)
    assert trained.out == run / "classifier"
    results = read_json(run / "classifier" / "results.json")
    assert results == trained.results
    tested = results["tested"]
    simple = [WORDS, FREQUENT] if kind == "tags" else [SETFIT, ENCODER, TFIDF, MAJORITY]
    assert [one["name"] for one in tested["systems"]] == [
        "labelled and retrieved", ALONE, TEACHER, *simple,
    ]  # fmt: skip
    assert (tested["on"], tested["n"]) == ("test", 45)
    rows = results["rows"]
    assert (rows["retrieved"] + rows["left out"], rows["labelled"], rows["validation"]) == (
        60, 18, 18,
    )  # fmt: skip
    head, lines, _ = comparison(trained.results)
    assert [line[0] for line in lines[: len(tested["systems"])]] == [
        one["name"] for one in tested["systems"]
    ]
    assert len(head) == len(lines[0])
    main = {"class": "accuracy", "multi": "macro_f1", "tags": "f1"}[kind]
    values = [one["scores"][main]["value"] for one in tested["systems"]]
    compared = [ALONE, TEACHER, max(zip(values[3:], simple[::-1], strict=False))[1]]
    gains = [tested["differences"][name][main]["value"] for name in compared[:2]]
    assert gains == pytest.approx([values[0] - values[1], values[0] - values[2]])
    for line, name, gain in zip(lines[len(values) :], compared, gains, strict=False):
        assert line[0] == f"{'loss to' if gain < 0 else 'gain over'} {name}"
    for page in (run / "classifier" / "report.html", run / "report.html"):
        for gain in gains:
            assert f"{gain:+.1f}" in page.read_text()


@pytest.mark.usefixtures("no_simple")
def test_a_student_of_the_teachers_base_is_compared_with_the_teacher(
    made: Made, tmp_path: Path
) -> None:
    run = made.run(tmp_path / "run", teacher=made.base)
    trained = train(made, run)
    names = [one["name"] for one in trained.results["tested"]["systems"]]
    assert (ALONE in names, names[1]) == (False, TEACHER)
    assert not (run / "classifier" / BASELINE).exists()


@pytest.mark.usefixtures("no_simple")
def test_baseline_is_not_left_behind_in_steps(made: Made, tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", rows=320)
    trained = train(made, run, with_labelled=False)
    assert trained.results["baseline"]["epochs"] == 20  # 2 epochs of 10 steps, in steps of 1
    asked = read_json(run / "classifier" / BASELINE / "run.json")["settings"]
    assert (asked["epochs"], asked["base"], asked["labels"]) == (
        20, made.base, ["animal", "none", "water"],
    )  # fmt: skip
    assert asked["learning_rate"] == FAST["learning_rate"]


def test_without_baseline_there_is_no_gain(made: Made, tmp_path: Path) -> None:
    run = made.run(tmp_path / "run")
    trained = train(made, run, baseline=False)
    assert not (run / "classifier" / BASELINE).exists()
    names = [line[0] for line in comparison(trained.results)[1]]
    assert names[:2] == ["labelled and retrieved", TEACHER]
    assert names[2:] in (["gain over teacher"], ["loss to teacher"])


@pytest.mark.usefixtures("no_simple")
def test_without_test_the_validation_rows_are_measured_and_said_to_flatter(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made.run(tmp_path / "run", test=None)
    trained = train(made, run)
    assert (trained.results["tested"]["on"], trained.results["tested"]["n"]) == ("validation", 18)
    assert not any("flatter" in note for note in trained.results["notes"])  # they chose nothing
    monkeypatch.setattr("tilth.workflows.train_and_test.ENOUGH", 18)
    assert "flatter" in train(made, run).results["notes"][-1]
    other = made.test("class")
    again = train(made, tmp_path / "run", test=other)
    assert again.results["tested"]["data"] == other
    assert not any("flatter" in note for note in again.results["notes"])


def test_retrieved_test_sentences_are_left_out(made: Made, tmp_path: Path) -> None:
    rows = ROWS["class"](60, seed=1)
    test = write_rows(
        tmp_path / "test.jsonl",
        [{**row, "text": f"{row['text'].upper()}!"} for row in rows[:3]] + ROWS["class"](9, seed=8),
    )
    run = made.run(tmp_path / "run")
    trained = train(made, run, test=str(test), baseline=False)
    assert trained.results["rows"]["left out"] == 3
    assert trained.results["rows"]["retrieved"] == 57


def test_labelled_rows_in_the_test_set_are_said(made: Made, tmp_path: Path) -> None:
    rows = [*ROWS["class"](18, seed=2)[:4], *ROWS["class"](6, seed=77)]
    test = write_rows(tmp_path / "test.jsonl", rows)
    trained = train(made, made.run(tmp_path / "run"), test=str(test), baseline=False)
    assert trained.results["notes"][-1] == (
        "4 of the 10 test rows stand among the labelled rows too: the figures flatter"
    )


@pytest.mark.parametrize("kind", ["class", "tags"])
def test_python_trains_on_the_rows_that_the_command_trains_on(
    made: Made, tmp_path: Path, kind: str
) -> None:
    run = made.run(tmp_path / "run", kind, test=None)
    out = train(made, run, kind=kind, baseline=False).out
    before = read_json(out / "run.json")
    function = tilth.train_tagger if kind == "tags" else tilth.train_classifier
    function(run, made.base, tmp_path / "python", quiet=True, **FAST)
    asked = read_json(tmp_path / "python/run.json")
    for name in ("command", "settings", "fingerprints"):
        assert asked[name] == before[name]
    with pytest.raises(InputError, match="has its labelled rows"):
        function(str(run), made.base, labelled=made.test(kind))
    with pytest.raises(InputError, match="a run of tilth augment has its own"):
        function(str(run), made.base, labels=["a", "b"])
    with pytest.raises(RunMismatch, match=r"labelled_share is 0.25 in the folder, 0.0 asked"):
        function(run, made.base, tmp_path / "python", labelled_share=0.0, quiet=True, **FAST)


@pytest.mark.usefixtures("no_simple")
def test_labelled_rows_are_a_quarter_and_know_what_the_teacher_says(
    made: Made, tmp_path: Path
) -> None:
    from tilth.classifiers import train as student

    run = made.run(tmp_path / "run", rows=108)
    soft = open_augmented(str(run)).labelled.to_pandas()
    soft["probabilities"] = [[0.7 if place == label else 0.15 for place in range(3)]
                             for label in soft["label"]]  # fmt: skip
    seen = []
    real = student.train_on_examples

    def watch(rows: Any, *rest: Any, **more: Any) -> Any:
        seen.append((100 * rows.targets.max(axis=1)).round().astype(int))
        return real(rows, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(student, "train_on_examples", watch)
        patch.setattr(training, "open_augmented", lambda _: with_own(run, soft))
        trained = train(made, run)
        train(made, run, loss="hard", baseline=False, out=tmp_path / "hard")
        train(made, run, labelled_share=0.0, baseline=False, out=tmp_path / "once")
    both, alone, hard, once = seen
    assert set(both) == {70, 90}  # retrieved ones have 0.9
    assert (both == 70).sum() == 2 * 18
    assert trained.results["rows"]["times"] == 2
    assert "18 labelled rows, 2 times each." in (trained.out / "report.html").read_text()
    assert alone.tolist() == [100] * 18  # the baseline knows no teacher
    assert (set(hard), len(hard)) == ({100}, 108 + 2 * 18)
    assert (once == 70).sum() == 18


def with_own(run: Path, labelled: Any) -> Any:
    """Return a run whose labelled rows have a teacher's probabilities."""
    opened = open_augmented(str(run))
    features = Features({**opened.labelled.features, "probabilities": List(Value("float32"))})
    own = Dataset.from_pandas(labelled, features=features, preserve_index=False)
    return replace(opened, labelled=own)


def test_share_of_no_labelled_rows_is_refused(made: Made, tmp_path: Path) -> None:
    run, file = made.run(tmp_path / "run"), Path(made.test("class"))
    said = "--labelled-share: there are no labelled rows beside"
    with pytest.raises(InputError, match=said):
        train(made, run, with_labelled=False, labelled_share=0.2)
    with pytest.raises(InputError, match=said):
        train(made, file, out=tmp_path / "out", labelled_share=0.2)
    with pytest.raises(InputError, match=r"labelled_share is 1.5: give a number from 0 to below 1"):
        train(made, tmp_path / "nothing", labelled=file, labelled_share=1.5, out=tmp_path / "out")


def test_an_edited_run_is_one_line_after_the_training(made: Made, tmp_path: Path) -> None:
    run = made.run(tmp_path / "run")
    asked = read_json(run / "run.json")
    asked["start"], asked["settings"]["seed"] = "\ud800", "x"
    (run / "run.json").write_text(json.dumps(asked))
    with pytest.raises(TilthError, match=r"run: run.json, .* holds what tilth did not write"):
        train(made, run, baseline=False, with_labelled=False)
    results = read_json(run / "classifier" / "results.json")
    assert results["start"] == "\ud800"


def test_another_validation_file_chooses(made: Made, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "validation.jsonl", ROWS["class"](12, seed=7))
    run = made.run(tmp_path / "run", test=None)
    trained = train(made, run, validation=str(file), baseline=False)
    assert trained.results["tested"]["n"] == trained.results["rows"]["validation"] == 12


@pytest.mark.parametrize("test", [True, False])
def test_file_trains_and_is_measured(made: Made, tmp_path: Path, test: bool) -> None:
    file = write_rows(tmp_path / "train.jsonl", ROWS["class"](60, seed=2))
    out = tmp_path / "out"
    trained = train(made, file, out=out, test=made.test("class") if test else None)
    assert (out / "model" / "config.json").is_file()
    page = (out / "report.html").read_text()
    assert "Classifier trained on" in page
    assert [line[0] for line in comparison(trained.results)[1][:5]] == [
        "trained", SETFIT, ENCODER, TFIDF, MAJORITY,
    ]  # fmt: skip
    assert trained.results["validation"] == {"rows": 6, "generated": 0}
    tested = trained.results["tested"]
    if test:
        assert (tested["on"], tested["n"], trained.results["notes"]) == ("test", 45, [])
    else:
        assert (tested["on"], tested["n"]) == ("validation", 6)
        assert trained.results["notes"] == []  # six rows chose nothing
        assert tested["systems"][0]["scores"]["accuracy"]["value"] == pytest.approx(
            trained.results["best"]["score"]
        )


@pytest.mark.usefixtures("no_simple")
def test_figures_of_a_test_set_are_not_replaced_by_those_of_validation_rows(
    made: Made, tmp_path: Path
) -> None:
    file = write_rows(tmp_path / "train.jsonl", ROWS["class"](60, seed=2))
    out = tmp_path / "out"
    before = train(made, file, out=out, test=made.test("class")).results
    with pytest.raises(InputError, match=r"measured on .*: give --test to measure it again, or"):
        train(made, file, out=out)
    assert read_json(out / "results.json") == before
    (out / "results.json").write_text('{"tested": {"on": "test"}}')
    with pytest.raises(InputError, match="was measured on None"):
        train(made, file, out=out)
    train(made, file, out=out, overwrite=True)
    assert read_json(out / "results.json")["tested"]["on"] == "validation"


@pytest.mark.usefixtures("no_simple")
@pytest.mark.parametrize("kind", ["multi", "tags"])
def test_other_kinds_are_measured_on_their_validation_rows(
    made: Made, tmp_path: Path, kind: str
) -> None:
    file = write_rows(tmp_path / "train.jsonl", ROWS[kind](60, seed=2))
    results = train(made, file, kind=kind, out=tmp_path / "out").results
    main = {"multi": "macro_f1", "tags": "f1"}[kind]
    scores = results["tested"]["systems"][0]["scores"][main]
    assert scores["value"] == pytest.approx(results["best"]["score"])


@pytest.mark.usefixtures("no_simple")
def test_validation_and_test_rows_that_a_model_wrote_are_named(made: Made, tmp_path: Path) -> None:
    def written(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "source_id": str(n), "model": "lm"} for n, row in enumerate(rows)]

    file = write_rows(tmp_path / "train.jsonl", written(ROWS["class"](60, seed=2)))
    trained = train(made, file, out=tmp_path / "out")
    assert trained.results["validation"] == {"rows": 6, "generated": 6}
    assert trained.results["tested"]["generated"] == 6
    assert any(
        "does not measure real data: give --test FILE" in note for note in trained.results["notes"]
    )
    page = (tmp_path / "out" / "report.html").read_text()
    assert "validation (generated rows) accuracy" in page
    test = write_rows(tmp_path / "test.jsonl", written(ROWS["class"](9, seed=4))[:3]
                       + ROWS["class"](6, seed=5))  # fmt: skip
    found = train(made, file, out=tmp_path / "tested", test=str(test)).results
    assert (found["tested"]["n"], found["tested"]["generated"]) == (9, 3)
    real = write_rows(tmp_path / "real.jsonl", ROWS["class"](9, seed=6))
    notes = train(made, file, out=tmp_path / "real", test=str(real)).results["notes"]
    assert any("does not measure real data: read the test figures." in note for note in notes)


@pytest.mark.parametrize("tags", [False, True])
def test_no_group_straddles_the_validation_split(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tags: bool
) -> None:
    from tilth.classifiers import train as student

    seen: list[Any] = []

    def watch(rows: Any, chosen: Any, *_: Any, **__: Any) -> None:
        seen.extend((rows, chosen))
        raise TilthError("seen")

    monkeypatch.setattr(student, "train_on_examples", watch)
    kind = "tags" if tags else "class"
    rows = [
        {**row, **({"tokens": [*row["tokens"], "again"], "tags": [*row["tags"], "O"]} if tags
                   else {"text": f"{row['text']} again"}), "source_row": place, "rewrite": 1}
        for place, row in enumerate(ROWS[kind](90, seed=2))
    ]  # fmt: skip
    originals = [
        {**row, "source_row": place, "rewrite": 0}
        for place, row in enumerate(ROWS[kind](90, seed=2))
    ]
    file = write_rows(tmp_path / "train.jsonl", originals + rows)
    with pytest.raises(TilthError, match="seen"):
        train(made, file, kind=kind, out=tmp_path / "out")
    learnt, chosen = ({text.removesuffix(" again") for (text,) in one.texts} for one in seen)
    assert len(chosen) > 3
    assert not learnt & chosen


@pytest.mark.usefixtures("no_simple")
def test_rows_of_a_file_in_its_test_set_are_said(made: Made, tmp_path: Path) -> None:
    rows = ROWS["class"](60, seed=2)
    file = write_rows(tmp_path / "train.jsonl", rows)
    test = write_rows(tmp_path / "test.jsonl", [*rows[:2], *ROWS["class"](9, seed=8)])
    trained = train(made, file, out=tmp_path / "out", test=str(test))
    assert trained.results["notes"][0].startswith(
        "2 of the 11 test rows stand among the training rows too"
    )


def test_a_test_set_that_the_split_of_a_folder_holds_is_refused(made: Made, tmp_path: Path) -> None:
    held = ROWS["class"](12, seed=8)
    write_rows(tmp_path / "set" / "train.jsonl", ROWS["class"](60, seed=2))
    write_rows(tmp_path / "set" / "dev.jsonl", held)
    test = str(write_rows(tmp_path / "test.jsonl", held))
    message = "every text of the test set is in the validation set"
    with pytest.raises(InputError, match=message):
        train(made, tmp_path / "set", out=tmp_path / "out", test=test)
    with pytest.raises(InputError, match=message):
        read_task(TaskSources(str(tmp_path / "set"), test=test))
    assert not (tmp_path / "out").exists()


def test_run_begun_anew_has_no_old_gain(made: Made, tmp_path: Path) -> None:
    run = made.run(tmp_path / "run")
    train(made, run, baseline=False)
    assert list(read_augmentation(run).students) == ["classifier"]
    write_run(run, overwrite=True, rows=40)
    assert list(read_augmentation(run).students) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "tags"}, "its rows have classes: use tilth train classifier"),
        ({"labelled": "more.jsonl"}, "a run has its labelled rows"),
        ({"bootstrap": -1}, "bootstrap is -1"),
        ({"test": "nowhere.jsonl"}, "nowhere.jsonl"),
    ],
)
def test_wrong_calls_are_refused_before_training(
    made: Made, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    run = made.run(tmp_path / "run")
    with pytest.raises(InputError, match=said):
        train(made, run, **options)
    assert not (run / "classifier" / "model").exists()


def test_sets_that_the_run_learnt_from_are_refused_before_training(
    made: Made, tmp_path: Path
) -> None:
    run = made.run(tmp_path / "run")
    opened = open_augmented(str(run))
    files = {}
    for name, rows in (("labelled", opened.labelled), ("validation", opened.validation)):
        pairs = [
            {"text": text, "label": opened.labels[label]}
            for text, label in zip(rows["text"], rows["label"], strict=True)
        ]
        files[name] = str(write_rows(tmp_path / f"{name}.jsonl", pairs))
    for given, said in (
        ({"test": files["labelled"]}, "test set is in the labelled set"),
        ({"test": files["validation"]}, "test set is in the validation set"),
        ({"validation": files["labelled"]}, "validation set is in the labelled set"),
        ({"test": files["validation"], "validation": files["validation"]},
         "test set is in the validation set"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            train(made, run, **given)
    assert not (run / "classifier").exists()


def test_labelled_rows_beside_others_are_no_test_or_validation_set(
    made: Made, tmp_path: Path
) -> None:
    file = write_rows(tmp_path / "train.jsonl", ROWS["class"](30, seed=2))
    more = str(write_rows(tmp_path / "more.jsonl", ROWS["class"](30, seed=5)))
    for name in ("test", "validation"):
        with pytest.raises(InputError, match=f"more.jsonl: every text of the {name} set is in"):
            train(made, file, out=tmp_path / "out", labelled=more, **{name: more})
    for given in ({"validation": str(file)}, {"labelled": more, "validation": more}):
        with pytest.raises(InputError, match="every text of the validation set is in the training"):
            tilth.train_classifier(str(file), **given)


def test_a_recorded_test_set_of_the_hub_may_have_a_dot(made: Made, tmp_path: Path) -> None:
    run = made.run(tmp_path / "run", test="org/name-1.5")
    assert open_augmented(str(run)).test == "org/name-1.5"


def test_wrong_test_labels_are_refused_before_training(made: Made, tmp_path: Path) -> None:
    run = made.run(tmp_path / "run")
    rows = [*ROWS["class"](4, seed=3), {"text": "a plant", "label": "plant"}]
    test = write_rows(tmp_path / "test.jsonl", rows)
    with pytest.raises(InputError, match=r"test.jsonl.*5.*'plant' is none that .* knows"):
        train(made, run, test=str(test))
    with pytest.raises(InputError, match="a list of labels a row"):
        train(made, run, test=made.test("multi"))
    assert not (run / "classifier").exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"test": "gone/test.jsonl"}, "say with --test where it lies"),
        ({"rows": 0}, r"no sentence was kept|not finished"),
    ],
)
def test_runs_that_cannot_be_trained_on(
    made: Made, tmp_path: Path, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        train(made, made.run(tmp_path / "run", **asked))


def test_wrong_places_are_refused(made: Made, tmp_path: Path) -> None:
    file = write_rows(tmp_path / "train.jsonl", ROWS["class"](30, seed=2))
    with pytest.raises(InputError, match="--out is missing"):
        train(made, file)
    with pytest.raises(InputError, match="is no run of tilth augment"):
        train(made, file, out=tmp_path / "out", with_labelled=False)
    run = made.run(tmp_path / "run")
    with pytest.raises(InputError, match=r"holds .* itself"):
        train(made, run, out=tmp_path)
    file = next((run / "dataset").glob("labelled/*.parquet"))
    pq.write_table(pq.read_table(file, columns=["label"]), file)
    with pytest.raises(InputError, match="no column text"):
        open_augmented(str(run))
    shutil.rmtree(run / "dataset")
    with pytest.raises(InputError, match="not finished"):
        open_augmented(str(run))


@pytest.mark.slow
def test_a_set_of_another_task_is_trained_on_first(made: Made, tmp_path: Path) -> None:
    other = [{**row, "label": f"{row['label']} too"} for row in ROWS["class"](60, seed=3)]
    first = str(write_rows(tmp_path / "first.jsonl", other))
    train = str(write_rows(tmp_path / "train.jsonl", ROWS["class"](60, seed=5)))
    settings = ClassifierTraining(
        made.base, Finetuning(**FAST), seeds=3, keep="median", quiet=True, device="cpu"
    )
    sources = TaskSources(train, test=made.test("class"))
    out = tmp_path / "run"
    results = train_and_test(sources, settings, out, first=first, bootstrap=50).results
    runs = {
        name: json.loads((out / name / "run.json").read_text())["settings"]
        for name in ("first", "baseline", ".")
    }
    assert {label.endswith(" too") for label in runs["first"]["labels"]} == {True}
    assert runs["first"]["epochs"] is None  # as many as the paper's, whatever is asked
    assert runs["baseline"]["base"] == made.base
    assert runs["."]["base"] == str(out / "first")
    assert runs["."]["keep"] == "median"
    names = [system["name"] for system in results["tested"]["systems"]]
    assert names[:2] == [TRAINED, WITHOUT_FIRST]
    scores = sorted(seed["score"] for seed in results["seeds"])
    assert results["best"]["score"] == scores[1]
    again = train_and_test(sources, settings, out, first=first, bootstrap=50).results
    assert again == results


def test_a_first_set_is_not_for_runs(made: Made, tmp_path: Path) -> None:
    run = made.run(tmp_path / "run")
    settings = ClassifierTraining(made.base, Finetuning(**FAST), quiet=True)
    with pytest.raises(InputError, match="--first is for files"):
        train_and_test(TaskSources(str(run)), settings, None, first=made.test("class"))


def test_a_test_set_that_was_trained_on_first_is_refused(made: Made, tmp_path: Path) -> None:
    file, test = write_rows(tmp_path / "train.jsonl", ROWS["class"](60, seed=2)), made.test("class")
    with pytest.raises(InputError, match="every text of the test set is in the first set"):
        train(made, file, out=tmp_path / "out", test=test, first=test)
    assert not (tmp_path / "out").exists()

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from tests.tiny import put
from tests.tiny.sts import benchmark, jsonl, pairs_of, semeval, sick
from tilth.data.sources import HubDataset
from tilth.errors import InputError, TilthError
from tilth.evaluate.sts_sets import StsSet, read_sets
from tilth.workflows.settings import StsSettings

SEVEN = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick"]


def texts(sts: StsSet) -> list[tuple[str, str, float]]:
    return list(zip(sts.texts_a, sts.texts_b, sts.gold.tolist(), strict=True))


def refused(data: Path | str, sets: list[str] | None = None) -> str:
    with pytest.raises(InputError) as error:
        read_sets(data, sets)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("below", ["", "sts"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_own_layout(tmp_path: Path, below: str, ending: str) -> None:
    folder = tmp_path / below
    jsonl(folder / f"sts12.jsonl{ending}", pairs_of(4), ["x", "y", "x", "y"])
    jsonl(folder / f"stsb-test.jsonl{ending}", pairs_of(3))
    jsonl(folder / f"stsb-dev.jsonl{ending}", pairs_of(5))
    found = read_sets(tmp_path)
    assert [sts.name for sts in found] == ["sts12", "stsb"]
    assert texts(found[0]) == pairs_of(4)
    assert found[0].subsets == ["x", "y", "x", "y"]
    assert [at.tolist() for at in found[0].subset_places().values()] == [[0, 2], [1, 3]]
    assert found[1].subsets == ["stsb"] * 3
    assert len(read_sets(tmp_path, ["stsb-dev"])[0]) == 5


COLUMNS = [
    ("text_a", "text_b", "score", "subset"),
    ("sentence1", "sentence2", "similarity_score", "dataset"),
    ("Sentence_A", "Sentence_B", "Label", "SUBSET"),
]


@pytest.mark.parametrize("names", COLUMNS)
@pytest.mark.parametrize(
    "ending", ["jsonl", "json", "lines.json", "json.gz", "csv", "tsv", "csv.gz", "parquet"]
)
def test_each_format_and_column_names(tmp_path: Path, ending: str, names: tuple[str, ...]) -> None:
    path = tmp_path / f"mine.{ending}"
    rows = [dict(zip(names, (*pair, "s"), strict=True)) for pair in pairs_of(3)]
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif ending in ("json", "json.gz"):
        put(path, json.dumps(rows, indent=1))
    elif "json" in ending:
        put(path, "\n".join(map(json.dumps, rows)))
    else:
        mark = "," if "csv" in ending else "\t"
        lines = [names, *(row.values() for row in rows)]
        put(path, "".join(mark.join(f'"{value}"' for value in line) + "\n" for line in lines))
    (sts,) = read_sets(path)
    assert sts.name == "mine" if ending != "lines.json" else "mine.lines"
    assert texts(sts) == pairs_of(3)
    assert sts.subsets == ["s"] * 3


def test_columns_of_a_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("Left,Right,text_a,Grade\nA wren.,A bird.,no,4\nRain.,Sun.,no,1.5\n")
    (sts,) = read_sets(path, columns=(("Left", "Right"), "Grade"))
    assert texts(sts) == [("A wren.", "A bird.", 4.0), ("Rain.", "Sun.", 1.5)]
    with pytest.raises(InputError, match=r"own\.csv:2: no column 'Wrong': there are Left"):
        read_sets(path, columns=(("Left", "Wrong"), None))
    with pytest.raises(InputError, match="only columns of a file of pairs can be named"):
        read_sets(tmp_path, columns=(None, "Grade"))
    for wrong in ("Left", "Left,Right,text_a", "Left,Left"):
        with pytest.raises(InputError, match="name the two columns of pairs"):
            StsSettings(text=wrong.split(",")).columns  # noqa: B018


def test_senteval_layout(tmp_path: Path) -> None:
    for year in range(12, 17):
        folder = tmp_path / "STS" / f"STS{year}-en-test"
        semeval(folder, "headlines", pairs_of(3, begin=year))
        semeval(folder, "surprise.OnWN", pairs_of(2, begin=90 + year))
    for split in ("train", "dev", "test"):
        benchmark(tmp_path / "STS" / "STSBenchmark" / f"sts-{split}.csv", pairs_of(len(split)))
    for split in ("train", "trial", "test_annotated"):
        sick(
            tmp_path / "SICK" / f"SICK_{split}.txt",
            [(a, b, 1 + score / 2) for a, b, score in pairs_of(len(split))],
        )
    found = {sts.name: sts for sts in read_sets(tmp_path)}
    assert list(found) == SEVEN
    assert texts(found["sts14"]) == [*pairs_of(3, begin=14), *pairs_of(2, begin=104)]
    assert found["sts14"].subsets == ["headlines"] * 3 + ["OnWN"] * 2
    assert texts(found["stsb"]) == pairs_of(4)
    assert found["stsb"].subsets == ["headlines"] * 4
    assert len(found["sick"]) == len("test_annotated")
    assert found["sick"].gold[1] == 1 + pairs_of(2)[1][2] / 2
    others = read_sets(tmp_path, ["stsb-train", "stsb-dev", "sick-train", "sick-dev", "sick-test"])
    assert [len(sts) for sts in others] == [5, 3, 5, 5, 14]
    assert others[-1].name == "sick"


def test_quotation_marks_are_literal(tmp_path: Path) -> None:
    pairs = [('"Go, he said.', 'A 5" nail', 1.0)]
    benchmark(tmp_path / "sts-test.csv", pairs)
    sick(tmp_path / "SICK_test_annotated.txt", pairs)
    semeval(tmp_path / "STS13", "headlines", pairs)
    for sts in read_sets(tmp_path):
        assert texts(sts) == pairs


def test_semevals_own_archives(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    semeval(tmp_path / "test-gold", "MSRpar", pairs_of(3))
    semeval(tmp_path / "test-gold", "ALL", pairs_of(3))
    semeval(tmp_path / "STS2012-train" / "train", "MSRvid", pairs_of(9))
    semeval(tmp_path / "test-gs", "FNWN", pairs_of(4))
    semeval(tmp_path / "test-gs", "SMT", pairs_of(9))
    semeval(tmp_path / "sts-en-test-gs-2014", "images", pairs_of(5))
    semeval(tmp_path / "sts-es-test-gs-2014", "news", pairs_of(9))
    semeval(tmp_path / "test_evaluation_task2a", "belief", pairs_of(6))
    semeval(tmp_path / "sts2016-english-with-gs-v1.0", "answer-answer", pairs_of(7), "2016")
    semeval(tmp_path / "of-no-year", "plagiarism", pairs_of(9))
    put(tmp_path / "STS13b" / "STS.gs.other.txt", "1\n")
    with caplog.at_level(logging.INFO):
        found = read_sets(tmp_path, SEVEN[:5])
    assert [len(sts) for sts in found] == [3, 4, 5, 6, 7]
    assert found[4].subsets == ["answer-answer"] * 7
    assert "STS.input.ALL.txt: left out: a concatenation" in caplog.text
    assert "the usual STS13 is without SMT" in caplog.text
    assert "STS.input.plagiarism.txt: left out: no year, or no English test set" in caplog.text
    assert "STS.gs.other.txt: scores without their file of texts are left out" in caplog.text


@pytest.mark.parametrize("place", ["sts2014-test", "STS14/data", "x2014/deep/er"])
def test_the_year_of_any_folder_above(tmp_path: Path, place: str) -> None:
    semeval(tmp_path / place, "images", pairs_of(3))
    assert [sts.name for sts in read_sets(tmp_path)] == ["sts14"]
    if place != "x2014/deep/er":  # outside the folder named, a bare year may mean anything
        assert [sts.name for sts in read_sets(tmp_path / place)] == ["sts14"]


def test_blank_scores_and_further_columns(tmp_path: Path) -> None:
    folder = tmp_path / "STS2016"
    put(folder / "STS2016.input.qa.txt", "A wren.\tA bird.\tsrc\tsrc\nOne.\tTwo.\nHay.\tStraw.\n")
    put(folder / "STS2016.gs.qa.txt", "4\n\n2.5\n")
    (sts,) = read_sets(tmp_path)
    assert texts(sts) == [("A wren.", "A bird.", 4.0), ("Hay.", "Straw.", 2.5)]


def test_scores_in_another_folder(tmp_path: Path) -> None:
    put(tmp_path / "sts2015-in" / "STS.input.belief.txt", "A wren.\tA bird.\n")
    assert "no scores for these texts: put STS.gs.belief.txt beside it" in refused(tmp_path)
    put(tmp_path / "sts2015-gold" / "STS.gs.belief.txt", "4\n")
    assert texts(read_sets(tmp_path)[0]) == [("A wren.", "A bird.", 4.0)]


def test_missing_sets_and_unusual_sizes_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jsonl(tmp_path / "sts12.jsonl", pairs_of(4))
    read_sets(tmp_path, ["sts12", "sts13", "stsb-dev"])
    assert f"{tmp_path}: no sts13, stsb-dev: left out of the mean" in caplog.text
    assert "sts12: 4 pairs, the usual set has 3108" in caplog.text


def test_order_and_repeats_of_names(tmp_path: Path) -> None:
    for name in ("sts12", "stsb-test", "own"):
        jsonl(tmp_path / f"{name}.jsonl", pairs_of(4))
    names = ["own", "stsb-test", "sts12", "stsb"]
    assert [sts.name for sts in read_sets(tmp_path, names)] == ["own", "stsb", "sts12"]
    assert [sts.name for sts in read_sets(tmp_path, "own")] == ["own"]
    assert [sts.name for sts in read_sets(tmp_path / "own.jsonl")] == ["own"]


def test_wrong_names(tmp_path: Path) -> None:
    jsonl(tmp_path / "own.jsonl", pairs_of(4))
    message = refused(tmp_path, ["sts99"])
    assert message.startswith("no set 'sts99': known are sts12, ")
    assert message.endswith("own")
    message = refused(tmp_path)
    assert "none of the STS sets sts12, sts13" in message
    assert "looked for sts12.jsonl" in message
    assert message.endswith("found others: own: name them in sets")
    assert "sets is empty" in refused(tmp_path, [])
    assert "no such file or folder" in refused(tmp_path / "nowhere")
    assert "the ending is not known" in refused(put(tmp_path / "a.doc", "x"))
    assert "cannot be named 'mean'" in refused(jsonl(tmp_path / "mean.jsonl", pairs_of(4)))


def test_a_set_in_two_places_is_refused(tmp_path: Path) -> None:
    jsonl(tmp_path / "sts12.jsonl", pairs_of(4))
    semeval(tmp_path / "STS12-en-test", "MSRpar", pairs_of(3))
    assert "set sts12 lies in" in refused(tmp_path, ["sts12"])
    semeval(tmp_path / "STS13-en-test", "FNWN", pairs_of(3))
    semeval(tmp_path / "test-gs", "FNWN", pairs_of(3))
    assert "subset FNWN of sts13 lies in" in refused(tmp_path, ["sts13"])


@pytest.mark.parametrize(
    ("name", "score", "told"),
    [
        ("sts12", 5.5, ":3: score 5.5 is outside 0 to 5, the scale of sts12"),
        ("stsb-dev", -1, ":3: score -1 is outside 0 to 5"),
        ("sick", 0.5, ":3: score 0.5 is outside 1 to 5, the scale of sick"),
        ("own", "high", ":3: score 'high' is no finite number"),
        ("own", None, ":3: score None is no finite number"),
        ("own", True, ":3: score True is no finite number"),
        ("own", "nan", ":3: score 'nan' is no finite number"),
        ("sts12", "inf", ":3: score 'inf' is no finite number"),
    ],
)
def test_wrong_scores(tmp_path: Path, name: str, score: object, told: str) -> None:
    pairs = [(a, b, 2.0) for a, b, _ in pairs_of(4)]
    pairs[2] = (*pairs[2][:2], score)  # type: ignore[assignment]
    path = jsonl(tmp_path / f"{name}.jsonl", pairs)
    assert f"{path}{told}" in refused(tmp_path, [name])


def test_scales(tmp_path: Path) -> None:
    for name, factor in (("sts12", 0.2), ("sick", 0.2), ("own", -100)):
        jsonl(tmp_path / f"{name}.jsonl", [(a, b, s * factor) for a, b, s in pairs_of(11)])
    assert len(read_sets(tmp_path, ["sts12", "sick", "own"])) == 3


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("own.csv", "text_a,text_b,score\nA.,B.,1\n , B.,2\n", "own.csv:3: an empty text"),
        ("own.jsonl", '{"text_a": 3, "text_b": "x", "score": 1}', "own.jsonl:1: 3 is no text"),
        ("own.csv", "text_a,score\nA.,1\n", "own.csv:2: no column 'text_b' (nor sentence2,"),
        ("own.csv", "text_a,text_b,n\nA.,B.,1\n", "no column 'score' (nor similarity_score"),
        ("own.csv", "text_a,text_b,score\n", "holds no scored pairs"),
        ("own.json", '[{"text_a": "x"},\n 3 4]', "own.json:2: no JSON"),
        ("own.json", '\n[{"text_a": "x",}]', "own.json:2: no JSON"),
        ("own.json", '{"text_a": "A.", "text_b": "B.", "score": 1}\n{"b"\n', "own.json:2: no JSON"),
        ("own.json", "[3]", "own.json:1: holds a JSON number"),
        ("sts-test.csv", "a\tb\tc\td\t1\tOne.\n", "sts-test.csv:1: 6 fields between tabs, 7"),
        ("SICK_trial.txt", "a\tb\tc\n1\t2\n", "SICK_trial.txt:2: 2 fields between tabs, the head"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, content: str, told: str) -> None:
    assert told in refused(put(tmp_path / name, content))


def test_wrong_semeval_files(tmp_path: Path) -> None:
    texts_path = tmp_path / "STS12" / "STS.input.x.txt"
    gold = tmp_path / "STS12" / "STS.gs.x.txt"
    put(texts_path, "A.\tB.\nC. D.\n")
    put(gold, "1\n2\n3\n")
    assert f"{texts_path} has 2 lines, {gold} has 3" in refused(tmp_path)
    put(gold, "1\n2\n")
    assert f"{texts_path}:2: no tab" in refused(tmp_path)
    put(texts_path, "A.\tB.\nC.\tD.\n")
    put(gold, "1\n9\n")
    assert f"{texts_path}:2 (STS.gs.x.txt:2): score 9 is outside" in refused(tmp_path)


def test_identity_follows_the_pairs_alone(tmp_path: Path) -> None:
    pairs = pairs_of(5)
    first = read_sets(jsonl(tmp_path / "a.jsonl", pairs))[0].identity
    assert len(first) == 12
    spaced = [(f" {a}", b.replace(" ", "  "), s) for a, b, s in reversed(pairs)]
    assert read_sets(jsonl(tmp_path / "b.jsonl", spaced))[0].identity == first
    for changed in (pairs[:4], [(pairs[0][0], pairs[0][1], 4.0), *pairs[1:]]):
        assert read_sets(jsonl(tmp_path / "c.jsonl", changed))[0].identity != first


def test_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def load(hub: HubDataset, split: str) -> Dataset:
        asked.append((hub.name, split))
        rows = [{"sentence1": a, "sentence2": b, "score": 1 + s / 2} for a, b, s in pairs_of(3)]
        return Dataset.from_list(rows)

    monkeypatch.setattr(HubDataset, "load", load)
    monkeypatch.chdir(tmp_path)
    assert [sts.name for sts in read_sets("hub")] == SEVEN
    repositories = [*(f"mteb/sts{year}-sts" for year in range(12, 17)), "mteb/stsbenchmark-sts"]
    assert asked == [(name, "test") for name in (*repositories, "mteb/sickr-sts")]
    read_sets("hub", ["stsb-dev"])
    assert asked[-1] == ("mteb/stsbenchmark-sts", "validation")
    (own,) = read_sets("someone/birds-sts")
    assert (own.name, asked[-1]) == ("birds-sts", ("someone/birds-sts", "test"))


def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> Dataset:
        raise TilthError("mteb/sts12-sts: the hub cannot be reached")

    monkeypatch.setattr(HubDataset, "load", fail)
    monkeypatch.chdir(tmp_path)
    message = refused("hub")
    assert message.endswith("cannot be reached; or give a folder with the set's files as data")

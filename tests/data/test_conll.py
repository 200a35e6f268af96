from pathlib import Path

import pytest

from tests.tiny import put
from tilth.data import read_rows
from tilth.data.examples import read_examples
from tilth.data.formats import is_conll, rows_of_conll
from tilth.errors import InputError

CONLL = """-DOCSTART- -X- -X- O

Ada NNP I-NP I-PER
Lee NNP I-NP I-PER
flew VBD I-VP O
to TO I-PP O
Oslo NNP I-NP I-LOC
Fjord NNP I-NP B-LOC

Rain NN I-NP O
stopped VBD I-VP O
. . O O
"""
SENTENCES = [["Ada", "Lee", "flew", "to", "Oslo", "Fjord"], ["Rain", "stopped", "."]]
TAGS = [["B-PER", "I-PER", "O", "O", "B-LOC", "B-LOC"], ["O", "O", "O"]]


def refused(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read_examples(path)
    return str(error.value)


@pytest.mark.parametrize(
    "name", ["a.conll", "a.bio", "a.txt", "a.tsv", "eng.train", "eng.testa", "x.dev", "x.conll.gz"]
)
def test_conll_2003_is_read_under_each_name(tmp_path: Path, name: str) -> None:
    examples = read_examples(put(tmp_path / name, CONLL))
    assert examples.tokens == SENTENCES
    assert examples.labels.values == TAGS
    assert examples.labels.kind == "tags"
    assert examples.labels.classes == ["LOC", "PER"]


def test_tabs_may_stand_between_columns_and_spaces_inside_of_a_token(tmp_path: Path) -> None:
    path = put(tmp_path / "a.conll", "New York\tB-LOC\r\n10 000\tO\r\n\r\nHi\u00a0there\tO\r\n")
    assert read_rows(path)["tokens"][:] == [["New York", "10 000"], ["Hi\u00a0there"]]


def test_columns_between_are_there_by_number(tmp_path: Path) -> None:
    path = put(tmp_path / "a.conll", CONLL)
    chunks = read_examples(path, label="column3")
    assert chunks.labels.values[1] == ["B-NP", "B-VP", "O"]
    assert read_rows(path).column_names == ["tokens", "column2", "column3", "tags"]


def test_comments_are_skipped_and_a_hash_that_is_a_token_is_not(tmp_path: Path) -> None:
    spaces = "# sent_id = 1\n# text = Oslo\nOslo B-LOC\n\n# one O\n\n# O\n1 O\n\n#tag O\nx O\n"
    path = put(tmp_path / "a.conll", spaces)
    assert read_rows(path)["tokens"][:] == [["Oslo"], ["#", "1"], ["#tag", "x"]]
    tabs = "# text = Oslo\nOslo\tNNP\n\n#\tSYM\n1\tCD\n"
    path = put(tmp_path / "b.conll", tabs)
    assert read_rows(path)["tokens"][:] == [["Oslo"], ["#", "1"]]


def test_errors_name_file_line_and_remedy(tmp_path: Path) -> None:
    path = put(tmp_path / "a.conll", "Ada B-PER\nflew\n")
    assert refused(path) == (
        f"{path}:2: one column, 'flew': write a token and its tag a line, with a tab or spaces "
        "between them"
    )
    path = put(tmp_path / "b.conll", "Ada NNP B-PER\n\nflew O\n")
    assert refused(path).startswith(f"{path}:3: 2 columns, the lines before it have 3: give each")
    path = put(tmp_path / "c.conll", "Ada\tB-PER\n\n\tO\n")
    assert refused(path).startswith(f"{path}:3: column 1 is empty: fill it in")
    path = put(tmp_path / "d.conll", "x O\n" * 10_001)
    assert refused(path).startswith(f"{path}:1: a sentence of more than 10,000 tokens: put an")
    path = put(tmp_path / "e.conll", "Ada O\n\nLee PERSON\n")
    assert f"{path}:3: tags holds 'PERSON' at token 1 ('Lee'), no IOB tag" in refused(path)
    path = put(tmp_path / "f.conll", "\n\n")
    assert refused(path) == f"{path}: holds no rows: give at least one"


def test_a_slip_in_a_long_file_is_told_by_its_line_and_not_taken_for_text(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "Ada B-PER\nflew O\n\n" * 10 + "oops\n")
    assert refused(path).startswith(f"{path}:31: one column, 'oops'")


@pytest.mark.parametrize(
    "text",
    [
        "He likes vitamin B-12\nMy blood type is O\nIt is A or O\n",
        "text\tlabel\nMy type is\tO\nHers is\tO\nHis is\tO\nTheirs\tA\n",
        "O\nO\nO\n",
        "",
        "O B-PER\nx O\n",
    ],
)
def test_texts_are_no_columns(tmp_path: Path, text: str) -> None:
    assert not is_conll(put(tmp_path / "a.txt", text))


def test_other_files_with_the_name_of_a_part_are_left_out_of_a_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "eng.train", CONLL)
    put(tmp_path / "notes.test", "Nothing to see here.\n")
    (tmp_path / "blob.dev").write_bytes(b"\0\1\2")
    assert len(read_examples(tmp_path)) == 2
    assert f"{tmp_path}: not read: blob.dev, notes.test" in caplog.text


def test_lines_are_those_of_first_tokens(tmp_path: Path) -> None:
    assert [line for line, _ in rows_of_conll(put(tmp_path / "a.conll", CONLL))] == [3, 10]

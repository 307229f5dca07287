"""New rows and sentences as a model takes them: none is lost, and what is wrong is said once."""

from pathlib import Path

import pytest

from podium.data.items import Batch, is_sentence, read_items
from podium.data.preprocessing import TextPreprocessing
from podium.data.preprocessing.table import TableColumn, TablePreprocessing
from podium.data.preprocessing.text import PADDING, UNKNOWN_WORD
from podium.errors import InvalidInput

NUMBERS = TablePreprocessing(columns=(TableColumn(name="a", kind="number", type="integer"),))
WORDS = TextPreprocessing(vocabulary=(PADDING, UNKNOWN_WORD, "good", "bad"), length=2)


def read(recipe: TablePreprocessing | TextPreprocessing, path: Path, **options: str) -> list[Batch]:
    return list(read_items(recipe, [str(path)], path.parent / "scratch", **options))


def test_rows_that_cannot_be_read_are_each_reported_once(tmp_path: Path) -> None:
    file = tmp_path / "joined.csv"
    file.write_text("a,b\n1,2\n2,3\na,b\n3,4\n5\n")
    batches = read(NUMBERS, file)
    rows = [name["row"] for batch in batches for name in batch.names]
    problems = [problem.row for batch in batches for problem in batch.problems]
    assert (rows, problems) == ([1, 2, 4], [3, 5])


def test_a_row_with_several_bad_values_is_one_problem(tmp_path: Path) -> None:
    columns = (TableColumn(name=name, kind="number", type="number") for name in "ab")
    file = tmp_path / "units.csv"
    file.write_text("a,b\nC,hPa\n1,2\n3,kg\n")
    (batch,) = read(TablePreprocessing(columns=tuple(columns)), file)
    assert [name["row"] for name in batch.names] == [2]
    said = "'{}' is not a number that float32 can hold".format
    assert [(problem.where, problem.reason) for problem in batch.problems] == [
        (f"{file}, row 1, column a", f"{said('C')}; column b: {said('hPa')}"),
        (f"{file}, row 3, column b", said("kg")),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_mark_of_bytes_is_in_no_sentence(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "new.txt"
    file.write_text("good bad\nbad\n", encoding=encoding)
    (batch,) = read(WORDS, file)
    assert batch.inputs["tokens"].tolist() == [[2, 3], [3, 0]]


def test_sentences_of_no_encoding_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "new.txt"
    file.write_text("good\n")
    with pytest.raises(InvalidInput, match="there is no encoding 'utf-9'"):
        read(WORDS, file, encoding="utf-9")


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("win at http://prizes.example now", True),
        ("http://prizes.example is where you win", True),
        ("what a film", True),
        ("http://prizes.example", False),
        ("s3://data/new rows.csv", False),
        ("new.csv", False),
    ],
)
def test_a_sentence_may_name_a_page(item: str, expected: bool) -> None:
    assert is_sentence(item) is expected

"""Rows of CSV, Parquet and JSON lines: what is read, and what a bad file is refused with."""

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from podium.data import row_files
from podium.data.row_files import open_rows
from podium.data.rows import Problem
from podium.data.values import to_numbers
from podium.errors import Damaged, InvalidInput, NotFound


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def values(path: Path, **options: str) -> dict[str, list[str | None]]:
    """Return all rows by column."""
    columns: dict[str, list[str | None]] = {}
    for rows in open_rows(path, **options):
        for name, array in rows.columns.items():
            columns.setdefault(name, []).extend(array.to_pylist())
    return columns


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "age,city\n31,Bonn\n40,Köln\n"),
        ("a.csv", "\ufeffage, city \r\n31,Bonn\r\n\r\n40,Köln"),
        ("a.csv", "age;city\n31;Bonn\n40;Köln\n"),
        ("a.tsv", "age\tcity\n31\tBonn\n40\tKöln\n"),
        ("a.csv.gz", gzip.compress("age,city\n31,Bonn\n40,Köln\n".encode())),
        ("a.jsonl", '{"age": 31, "city": "Bonn"}\n\n{"city": "Köln", "age": 40}\n'),
        (
            "a.jsonl.gz",
            gzip.compress('{"age": 31, "city": "Bonn"}\n{"age": 40, "city": "Köln"}'.encode()),
        ),
    ],
    ids=["comma", "windows", "semicolon", "tab", "gzip", "json", "gzipped json"],
)
def test_text_formats_give_equal_rows(name: str, content: str | bytes, tmp_path: Path) -> None:
    assert values(write(tmp_path / name, content)) == {
        "age": ["31", "40"],
        "city": ["Bonn", "Köln"],
    }


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    parquet.write_table(
        pa.table({"age": [31, None], "city": ["Bonn", "Köln"]}), tmp_path / "a.parquet"
    )
    assert values(tmp_path / "a.parquet") == {"age": [31, None], "city": ["Bonn", "Köln"]}


def test_quoted_text_may_hold_delimiters_and_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"one, two\nthree ""four""",1\n')
    assert values(path) == {"text": ['one, two\nthree "four"'], "label": ["1"]}
    for text in ('"one, two\nthree" ,1', '"half \\"inch\\"",1', '"one ""two\nthree"" four",1'):
        write(path, f"text,label\n{text}\n" + '3" pipe,2\n')
        assert values(path)["label"][-1] == "2"


def test_latin_1_is_read_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "city\nKöln\n".encode("latin-1"))
    assert values(path, encoding="latin-1") == {"city": ["Köln"]}
    with pytest.raises(InvalidInput, match="no encoding 'utf-9'"):
        open_rows(path, encoding="utf-9")


@pytest.mark.parametrize("encoding", ["UTF-8", "utf8", "utf-16-le"])
def test_a_mark_of_bytes_is_in_no_name(encoding: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\ufeffzip,city\n01067,Köln\n".encode(encoding))
    assert values(path, encoding=encoding) == {"zip": ["01067"], "city": ["Köln"]}


@pytest.mark.parametrize(
    "header", ["price (EUR, net);city;rooms", '"price, EUR";"city, state";rooms']
)
def test_a_comma_in_a_name_separates_no_columns(header: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"{header}\n1,5;Bonn, NRW;3\n2,5;Ulm, BW;4\n")
    found = list(values(path).values())
    assert found == [["1.5", "2.5"], ["Bonn, NRW", "Ulm, BW"], ["3", "4"]]


@pytest.mark.parametrize("sign", ["\t", ";"])
def test_marks_in_a_quoted_name_hide_no_delimiter(sign: str, tmp_path: Path) -> None:
    header = sign.join(["id", '"length ""L"", cm"', "label"])
    path = write(tmp_path / "a.csv", f"{header}\n{sign.join('123')}\n")
    assert values(path) == {"id": ["1"], 'length "L", cm': ["2"], "label": ["3"]}


def test_a_ragged_file_is_divided_as_its_header_mostly_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'A\t"B, b"\tC\nrow1\t1\t2\t3\n')
    with pytest.raises(InvalidInput, match="row 1: has 4 values, but the header names 3"):
        values(path)


def test_marks_in_a_quoted_name_divide_no_ragged_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '"a;b;c","d"\n1,2,3\n')
    with pytest.raises(InvalidInput, match="row 1: has 3 values, but the header names 2"):
        values(path)


def test_a_bar_in_a_quoted_name_separates_no_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'id,"a|b|c|d"\n1,x|y|z|w\n')
    assert values(path) == {"id": ["1"], "a|b|c|d": ["x|y|z|w"]}


def test_utf_16_without_its_mark_is_refused_in_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b\n1,2\n".encode("utf-16-le"))
    with pytest.raises(InvalidInput, match=r"a\.csv: this is not utf-16"):
        values(path, encoding="utf-16")


def test_a_cell_may_be_as_long_as_a_row(tmp_path: Path) -> None:
    text = "word " * 40_000
    assert values(write(tmp_path / "a.csv", f"text,label\n{text},1\n"))["text"] == [text]


def test_a_late_quotation_mark_is_found_in_many_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 500_000 + '3,"4"\n')
    assert values(path)["b"][-1] == "4"


def test_half_a_character_in_json_is_a_question_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"te\\ud83dxt": "good \\ud83d\\ude00 day \\ud83d"}\n')
    assert values(path) == {"te?xt": ["good 😀 day ?"]}


BAD: dict[str, tuple[str, str | bytes, str]] = {
    "few values": ("a.csv", "a,b\n1,2\n3\n", "a.csv, row 2: has 1 value, but the header names 2"),
    "many values": ("a.csv", "a,b\n1,2\n3,4\n5,6,7\n", "a.csv, row 3: has 3 values"),
    "equal names": ("a.csv", "a,b,a\n1,2,3\n", "column 3 is called 'a', as column 1 is"),
    "no name": ("a.csv", "a,\n1,2\n", "column 2 has no name"),
    "header again": ("a.csv", "a,b\n1,2\na,b\n3,4\n", "a.csv, row 2: is the header again"),
    "a mark of inches": (
        "a.csv",
        'name,size,label\npipe,"3,x\nrod,4,y\nbar,"5,x\nbolt,6,y\n',
        "a.csv, line 2: a quotation mark begins a text that goes on to line 4",
    ),
    "empty": ("a.csv", "", "a.csv is empty"),
    "blank": ("a.csv", "\n \n", "a.csv is empty"),
    "latin-1": (
        "a.csv",
        "a,b\n1,x\n2,Köln\n".encode("latin-1"),
        r"a.csv, row 2, column b: this is not utf-8",
    ),
    "not json": ("a.jsonl", '{"a": 1}\n{"a": \n', "a.jsonl, row 2: this is not a JSON object"),
    "nested json": ("a.jsonl", '{"a": [1]}\n{"a": 1}\n', r"a.jsonl, row 1: .*a is \[1\]"),
    "a key twice": (
        "a.jsonl",
        '{"a": 1}\n{"a": 1, "a": 2}\n',
        "a.jsonl, row 2: .*: the key 'a' stands there twice",
    ),
    "no json": ("a.jsonl", "\n", "a.jsonl is empty"),
    "a json list": ("a.jsonl", '[{"a": 1}, {"a": 2}]', r"a.jsonl, row 1: .* it is .*\[\{'a': 1"),
    "a database": (
        "a.csv",
        b"SQLite format 3\0" + bytes(400),
        "not text, but a database of SQLite",
    ),
    "a spreadsheet": ("a.csv", b"PK\x03\x04\x14\x00", "a.csv is not text, but a spreadsheet"),
    "a packed parquet": (
        "a.csv.gz",
        gzip.compress(b"PAR1\x15"),
        "a.csv.gz is not text, but Parquet",
    ),
    "a header in latin-1": (
        "a.csv",
        "größe,b\n1,x\n".encode("latin-1"),
        "a.csv, header: this is not utf-8",
    ),
    "gzipped by another name": ("a.csv", gzip.compress(b"a,b\n1,2\n"), "not text, but gzipped"),
    "unknown ending": ("a.xls", "a,b\n", "a table ends in .csv"),
    "packed json": ("a.json.gz", gzip.compress(b'[{"a": 1}]'), "a table ends in .csv"),
    "packed database": ("a.db.gz", gzip.compress(b"SQLite format 3"), "a table ends in .csv"),
    "packed parquet": ("a.parquet.gz", gzip.compress(b"PAR1"), "a table ends in .csv"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_its_row(case: str, tmp_path: Path) -> None:
    name, content, message = BAD[case]
    with pytest.raises(InvalidInput, match=message):
        values(write(tmp_path / name, content))


def test_a_file_of_another_kind_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match=r"a\.parquet is not readable as Parquet"):
        open_rows(write(tmp_path / "a.parquet", "hello"))
    with pytest.raises(Damaged, match=r"a\.csv\.gz"):
        values(write(tmp_path / "a.csv.gz", "hello"))
    with pytest.raises(Damaged, match=r"a\.jsonl\.gz cannot be read"):
        values(write(tmp_path / "a.jsonl.gz", "hello"))
    with pytest.raises(NotFound, match=r"there is no file .*nowhere\.csv"):
        open_rows(tmp_path / "nowhere.csv")


def test_a_row_in_a_late_block_keeps_its_number(tmp_path: Path) -> None:
    lines = [f"{row},{'x' * 90}" for row in range(1, 200_001)]
    lines[150_000] = "1,2,3"
    lines[10] = "1"
    path = write(tmp_path / "a.csv", "\n".join(["number,text", *lines]))
    with pytest.raises(InvalidInput, match=r"row 11: has 1"):
        values(path)
    problems: list[Problem] = []
    for rows in open_rows(path).batches(problems.append):
        assert rows.numbers.tolist() == [
            int(number) for number in rows.columns["number"].to_pylist()
        ]
    assert [problem.row for problem in problems] == [11, 150_001]


def test_bad_json_lines_do_not_stop_the_others(tmp_path: Path) -> None:
    lines = [json.dumps({"a": 1}), "no", json.dumps({"a": True, "b": None})]
    problems: list[Problem] = []
    (rows,) = open_rows(write(tmp_path / "a.jsonl", "\n".join(lines))).batches(problems.append)
    assert rows.numbers.tolist() == [1, 3]
    assert {name: column.to_pylist() for name, column in rows.columns.items()} == {
        "a": ["1", "true"],
        "b": [None, None],
    }
    assert [problem.row for problem in problems] == [2]


def test_a_bar_divides_only_where_nothing_else_does(tmp_path: Path) -> None:
    commas = open_rows(write(tmp_path / "a.csv", "id,a|b|c\n1,x|y|z\n"))
    bars = open_rows(write(tmp_path / "b.csv", "id|a,b|c\n1|x|y\n"))
    assert [tuple(file.columns) for file in (commas, bars)] == [("id", "a|b|c"), ("id", "a,b", "c")]


def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    file = open_rows(write(tmp_path / "a.csv", "a;b\n1;2\n"), delimiter=",")
    with pytest.raises(
        InvalidInput, match=r"no column 'b', which is the target\n.*separated by a comma\): a;b"
    ):
        file.require("b", role="the target")
    wide = open_rows(
        write(
            tmp_path / "wide.csv", ",".join(f"x{n}" for n in range(32)) + "\n" + "1," * 31 + "1\n"
        )
    )
    with pytest.raises(InvalidInput, match=r"x18, x19, … 32 in all$"):
        wide.require("b", role="the target")


def test_a_file_that_blanks_divide_is_converted_by_the_hint(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", " mpg  weight   name\n 18.0    3504  volvo\n 9.5 12 fiat \n")
    with pytest.raises(InvalidInput, match="no column 'weight'") as refused:
        open_rows(path).require("weight", role="the target")
    command = str(refused.value.hint).partition("if blanks divide values: ")[2]
    subprocess.run(command, shell=True, check=True)
    (found,) = tmp_path.glob("*.csv")
    assert values(found) == {
        "mpg": ["18.0", "9.5"],
        "weight": ["3504", "12"],
        "name": ["volvo", "fiat"],
    }


def test_numbers_in_the_first_line_are_no_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the first line has to name the columns; its col"):
        open_rows(write(tmp_path / "a.csv", "5.1,3.5,setosa\n4.9,3.0,setosa\n")).require(
            "kind", role="the target"
        )


@pytest.mark.parametrize(
    ("content", "how"),
    [("x,year\r\n1,2,\r\n3,4,\r\n", '",&"'), ('"x";"y"\n"1";1;2\n"2";3;4\n', '/^/, ";"'),
     ("x\tyear\n1\t2\t\n3\t4\t\n", r'"\t&"')],
)  # fmt: skip
def test_rows_of_one_value_more_are_mended_by_the_hint(
    content: str, how: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "it's a.csv", content)
    with pytest.raises(
        InvalidInput, match="row 1: has 3 values, but the header names 2"
    ) as refused:
        values(path)
    command = str(refused.value.hint).partition("so must the header: ")[2]
    assert how in command
    subprocess.run(command, shell=True, check=True)
    mended = values(tmp_path / "it's a-header.csv")
    assert mended["x"] == ["1", "3"]
    assert ("year" in content) is ("year" in mended)


def test_a_sentence_with_a_comma_is_told_to_be_quoted(tmp_path: Path) -> None:
    for content in ("text\nwell, done\nbad, worse\n", "text,place\nwell, done,Ulm\n"):
        with pytest.raises(InvalidInput) as refused:
            values(write(tmp_path / "a.csv", content))
        assert "quoted?" in str(refused.value.hint)
        assert ("as R's do" in str(refused.value.hint)) is ("place" in content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv.gz", "x,y\n1,2,\n3,4,\n"),
        ("a.txt.gz", " x y\n 1  2\n 3 4\n"),
        ("a.jsonl.gz", '[\n{"x": 1}, {"x": 3}\n]'),
    ],
)
def test_a_packed_file_is_unpacked_first_by_the_hint(
    name: str, content: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, gzip.compress(content.encode()))

    def read() -> None:
        open_rows(path).require("x", role="the target")
        values(path)

    with pytest.raises(InvalidInput) as refused:
        read()
    before, _, after = str(refused.value.hint).partition("once gunzip has unpacked it: ")
    assert after, before
    subprocess.run(["gunzip", str(path)], check=True)
    subprocess.run(after.partition(": ")[2] or after, shell=True, check=True)
    assert values(next(tmp_path.glob("*-*.*")))["x"] in (["1", "3"], [1, 3])


@pytest.mark.parametrize(
    ("cell", "number"),
    [("1,5", "1.5"), ("-1,5e-05", "-1.5e-05"), (",5", ".5"), ("1.234,5", "1234.5"), ("1.234.567", "1234567"), ("7", "7"),
     ("31.12.2026", "31.12.2026"), ("a,b", "a,b"), ("1,2,3", "1,2,3")],
)  # fmt: skip
def test_decimal_commas_become_points_in_numbers_only(
    cell: str, number: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.csv", f"x;y\n2,75;{cell}\n")
    assert values(path) == {"x": ["2.75"], "y": [number]}


@pytest.mark.parametrize("point", ["0.123", "1234.567", "1.5", "1,234.5", "1.25e-05"])
def test_a_decimal_point_anywhere_leaves_all_cells_alone(point: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"x;y\n1,5;{point}\n")
    assert values(path) == {"x": ["1,5"], "y": [point]}


def test_wide_files_are_read_or_named(tmp_path: Path) -> None:
    text = "age,city\n31,Köln\n"
    read = {"age": ["31"], "city": ["Köln"]}
    assert values(write(tmp_path / "a.csv", text.encode("utf-16"))) == read
    assert values(write(tmp_path / "a.csv", text.encode("utf-32"))) == read
    assert values(write(tmp_path / "a.csv.gz", gzip.compress(text.encode("utf-16")))) == read
    for encoding in ("utf-16-le", "utf-16-be"):
        path = write(tmp_path / "a.csv", text.encode(encoding))
        with pytest.raises(
            InvalidInput, match=r"a\.csv is not utf-8, but probably UTF-16"
        ) as error:
            values(path)
        assert error.value.hint == f"encoding={encoding}"
        assert values(path, encoding=encoding) == read


def test_the_names_of_many_columns_are_compared_at_once(tmp_path: Path) -> None:
    """Each with each, they took 21 s on an idle core."""
    names = [f"c{at}" for at in range(20_000)]
    file = write(tmp_path / "a.csv", f"{','.join(names)}\n{','.join('1' for _ in names)}\n")
    began = time.process_time()
    assert len(open_rows(file).columns) == len(names)
    assert time.process_time() - began < 5


def test_long_texts_of_an_only_column_are_looked_through_once(tmp_path: Path) -> None:
    """Once for each title that may stand there, they took 3 s on an idle core."""
    file = write(tmp_path / "a.csv", "\n".join(["text", *["word " * 1600] * 1000, ""]))
    began = time.process_time()
    assert open_rows(file).columns == ("text",)
    assert time.process_time() - began < 1.5


def test_the_decimals_of_many_columns_are_judged_at_once(tmp_path: Path) -> None:
    """Each value for itself, they took 5 s on an idle core."""
    row = ",".join(f"{at % 99 + 1}.{at % 900 + 100}" for at in range(2000))
    header = ",".join(f"c{at}" for at in range(2000))
    file = write(tmp_path / "a.csv", "\n".join([header, *[row] * 999, ""]))
    began = time.process_time()
    assert open_rows(file).grouped == ()
    assert time.process_time() - began < 3


def test_rows_with_names_of_their_own_come_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "_MOST_CELLS", 1 << 16)
    lines = [json.dumps({"a": at, f"own {at}": 1}) for at in range(300)]
    read = list(open_rows(write(tmp_path / "a.jsonl", "\n".join(lines))))
    assert max(len(rows) * len(rows.columns) for rows in read) <= 1 << 16
    assert [a for rows in read for a in rows.columns["a"].to_pylist()] == [
        str(at) for at in range(300)
    ]


def test_an_index_is_known_by_its_name_alone(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"age": [31], "__index_level_0__": [7]}), tmp_path / "a.parquet")
    assert open_rows(tmp_path / "a.parquet").index == ("__index_level_0__",)
    for header in (",age", '"",age', ",Unnamed: 0,age"):  # of pandas, of R, and of pandas twice
        file = open_rows(write(tmp_path / "a.csv", f"{header}\n{'7,' * header.count(',')}31\n"))
        assert set(file.columns) - set(file.index) == {"age"}
        assert [rows.columns["age"].to_pylist() for rows in file] == [["31"]]


def test_separators_at_the_end_of_lines_make_no_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "x;y;;\n1;2;;\n3;4;;\n")
    file = open_rows(path)
    assert (file.columns, file.index) == (("x", "y", *file.index), ("Unnamed: 2", "Unnamed: 3"))
    assert values(path)["y"] == ["2", "4"]


def test_an_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a table ends in") as refused:
        open_rows(write(tmp_path / "a.csv.xz", b""))
    assert refused.value.hint == "unpack it"


@pytest.mark.parametrize("kind", ["hive", "folder", "json", "array.jsonl", "feather", "db"])
def test_a_table_of_another_kind_is_converted_by_the_hint(kind: str, tmp_path: Path) -> None:
    table = pa.table({"zip": ["01067", "53113"], "year": [2025, 2026]})
    source = tmp_path / f"a b $x.{kind}"
    if kind == "hive":
        parquet.write_to_dataset(table, source, partition_cols=["year"])
    elif kind == "folder":
        source.mkdir()
        for part, row in (("1", "01067,2025"), ("2", "53113,2026")):
            write(source / f"{part}.csv", f"zip,year\n{row}\n")
    elif kind == "feather":
        feather.write_feather(table, source)
    elif kind == "db":
        if not shutil.which("sqlite3"):
            pytest.skip("sqlite3 is not installed")
        with sqlite3.connect(source) as database:
            database.execute("CREATE TABLE t (zip TEXT, year INTEGER)")
            database.executemany("INSERT INTO t VALUES (?, ?)", [("01067", 2025), ("53113", 2026)])
        database.close()
    else:
        write(source, json.dumps(table.to_pylist(), indent=1 if kind == "json" else None))
    with pytest.raises((InvalidInput, NotFound)) as refused:
        values(source)
    hint = str(refused.value.hint).replace("TABLE", "t").split(": ", 1)[1]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(hint, shell=True, check=True, env=environment)
    found = values(next(path for path in tmp_path.glob("a*.*") if path != source))
    assert found["zip"] == ["01067", "53113"]
    assert [str(year) for year in found["year"]] == ["2025", "2026"]


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed")
@pytest.mark.parametrize("indent", [None, 1])
def test_nested_objects_are_made_flat_by_the_hint(indent: int | None, tmp_path: Path) -> None:
    row = {"a": {"b": 1, "tags": ["x", "y"]}, "ok": False, "none": None}
    path = write(tmp_path / "a.jsonl", "\n".join([json.dumps(row, indent=indent)] * 2))
    with pytest.raises(InvalidInput, match="not a JSON object of plain values") as refused:
        values(path)
    subprocess.run(str(refused.value.hint).partition("nested ones: ")[2], shell=True, check=True)
    assert values(tmp_path / "a-lines.jsonl") == {
        "a.b": ["1", "1"],
        "a.tags.0": ["x", "x"],
        "a.tags.1": ["y", "y"],
        "ok": ["false", "false"],
        "none": [None, None],
    }


def test_a_file_may_follow_one_with_an_index(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"age": [31], "__index_level_0__": [7]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"age": [32]}), tmp_path / "b.parquet")
    both = open_rows(tmp_path / "a.parquet").followed_by(open_rows(tmp_path / "b.parquet"))
    assert [rows.columns["age"].to_pylist() for rows in both] == [[31], [32]]


def test_files_joined_with_their_headers_lose_no_row(tmp_path: Path) -> None:
    problems: list[Problem] = []
    path = write(tmp_path / "a.csv", '"a","b"\n1,2\na, b\n3,4\na,4\n')
    (rows,) = open_rows(path).batches(problems.append)
    assert (rows.numbers.tolist(), rows.columns["a"].to_pylist()) == ([1, 3, 4], ["1", "3", "a"])
    assert [problem.row for problem in problems] == [2]


def test_money_with_decimal_commas_is_a_number(tmp_path: Path) -> None:
    cells = ["1.234,50 €", "-5,25 EUR", "12,5 %", "(3,5)", "\u22120,5", "€ 7,75"]
    (rows,) = open_rows(
        write(tmp_path / "a.csv", "a;b\n" + "".join(f"{cell};x\n" for cell in cells))
    )
    assert to_numbers(rows.columns["a"])[0].tolist() == [1234.5, -5.25, 0.125, -3.5, -0.5, 7.75]


def test_rows_are_reported_where_none_can_be_read(tmp_path: Path) -> None:
    problems: list[Problem] = []
    path = write(tmp_path / "a.csv", "x\n1,2\n3,4\n")
    assert not list(open_rows(path).batches(problems.append))
    assert [problem.row for problem in problems] == [1, 2]


@pytest.mark.parametrize("first", ["sep=;\n", '\ufeff"sep=;"\r\n', "SEP=;\n"])
def test_the_line_above_the_header_of_excel_is_read(first: str, tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_text(f"{first}a;b\n1;2\n3;4;5\n6;7\n")
    bad: list[Problem] = []
    rows = list(open_rows(path).batches(bad.append))
    assert rows[0].columns["b"].to_pylist() == ["2", "7"]
    assert (rows[0].numbers.tolist(), [problem.row for problem in bad]) == ([1, 3], [2])
    path.write_bytes(f"{first}a;b\n1;2\n3;".encode() + b"\xff\n")
    with pytest.raises(InvalidInput, match="row 2, column b: this is not utf-8"):
        list(open_rows(path))


@pytest.mark.parametrize(
    ("above", "sign"),
    [
        ("Report 2026\n\n", ","),
        ("Report 2026\n\n", ";"),
        ("Report 2026, all customers\n", ","),
        ("Report 2026,,,\n,,,\n", ","),
        ("\ufeffReport\r\n\r\nExported 2026-01-02 10:00\r\n", "\t"),
        ('"Data Source","World"\n\n"Last Updated","2026"\n\n', ","),
        ("# instrument X\n# date: 2026-01-01, 10:00\n\n", ","),
    ],
)
def test_lines_above_the_header_are_no_rows(above: str, sign: str, tmp_path: Path) -> None:
    cells = ["id,2025,city,x", "1,3,Bonn,4", "2,5,Ulm", "3,,Köln,7", "4,2,,9", "5,1,Ulm,\udcff"]
    table = (
        "\n".join(cells).replace(",", sign) + "\n" + "\n".join(sign.join("7777") for _ in range(9))
    )
    path = write(tmp_path / "a.csv", (above + table.replace("\udcff", "8")).encode())
    bad: list[Problem] = []
    file = open_rows(path)
    (rows,) = file.batches(bad.append)
    lines = above.count("\n")
    assert file.note.endswith(f", below {lines} line{'s' if lines > 1 else ''}")
    assert file.columns == ("id", "2025", "city", "x")
    assert rows.columns["city"].to_pylist()[:3] == ["Bonn", "Köln", ""]
    assert (rows.numbers.tolist()[:3], [problem.row for problem in bad]) == ([1, 3, 4], [2])
    path.write_bytes((above + table).encode(errors="surrogateescape"))
    with pytest.raises(InvalidInput, match="row 5, column x: this is not utf-8"):
        list(file.batches(bad.append))


@pytest.mark.parametrize(
    "content",
    [
        "text\ngood\nlong; winded\nshort; too\n",
        "text\nfine; good\nbad\nawful\nso so\n",
        "x\n1,2\n3,4\n",
        "a,,,\n1,,,\n2,,,\n",
        "a;b\n1,5;2,5\n1,6;2,6\n",
        "a,b,c,d\n1,,,\n2,,,\n",
        "# a,b\n1,2\n3,4\n",
        "text\nfine; good\nbad; worse\nso; so\nwell; done\n",
        "text\nfine, good\nbad, worse\nso, so\nwell, done\n",
        "customer review\nfine, 5 stars\nbad, 1 star\nso, 3 stars\n",
        "id,label\nx1,red,Ulm,good,yes\nx2,blue,Bonn,bad,no\nx3,red,Metz,bad,no\n",
        "tags\nred,blue\nred,green\nblue,black\n",
        "born\nJan 3, 2020\nJan 4, 2020\nMay 5, 2021\n",
        "address\n1 Main St, Ulm, BW\n2 Main St, Bonn, NW\n3 Rue X, Metz, F\n",
    ],
)
def test_a_first_line_of_names_is_the_header(content: str, tmp_path: Path) -> None:
    file = open_rows(write(tmp_path / "a.csv", content))
    assert "below" not in file.note
    assert content.startswith(file.columns[0])


@pytest.mark.parametrize("above", ["All reviews", "Reviews"])
def test_names_below_a_title_are_above_numbers_or_many(above: str, tmp_path: Path) -> None:
    tables = ["text,stars\ngood,5\nbad,1\nso,3\n", "id,text,place\na,good,Ulm\nb,bad,Bonn\n"]
    tables += ["text,label\ngood,yes\nbad,no\n"] if " " in above else []
    for table in tables:
        file = open_rows(write(tmp_path / "a.csv", f"{above}\n{table}"))
        assert file.columns == tuple(table.split("\n")[0].split(","))
        assert file.note.endswith(", below 1 line")


def test_a_column_has_one_name_with_either_accent(tmp_path: Path) -> None:
    (tmp_path / "mac.csv").write_text("cafe\u0301,b\n1,2\n")
    assert open_rows(tmp_path / "mac.csv").columns == ("caf\u00e9", "b")


def read_numbers(path: Path, column: str, **notation: str) -> list[float]:
    (rows,) = open_rows(path, **notation)
    return to_numbers(rows.columns[column])[0].tolist()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1.234", "987", "2.345", "45.678", "12"], [1234, 987, 2345, 45678, 12]),
        (["1.234.567", "2.345"], [1234567, 2345]),
        (["1,234", "987", "2,345", "45,678", "12"], [1234, 987, 2345, 45678, 12]),
        (["1,234,567", "2,345"], [1234567, 2345]),
        (["$1,234", "$987", "$2,345", "$45,678"], [1234, 987, 2345, 45678]),
        (["1.234", "987", "2.345", "45.6", "1234"], [1.234, 987, 2.345, 45.6, 1234]),
        (["1.234", "5.000", "2.345", "9.012"], [1.234, 5, 2.345, 9.012]),
        (["1,234", "5,000", "2,345", "9,012"], [1.234, 5, 2.345, 9.012]),
        (["1.234", "-99", "2.345", "-99", "9.012"], [1.234, -99, 2.345, -99, 9.012]),
        (["1.234", "0", "2.345", "999", "9.012", "999"], [1.234, 0, 2.345, 999, 9.012, 999]),
        (["10\u202f040,56", "7,5", "1\u00a0234"], [10040.56, 7.5, 1234]),
        (["1.040,56\u00a0€", "7,5\u202f%", "20,25-"], [1040.56, 0.075, -20.25]),
    ],
)
@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_a_sign_between_thousands_is_no_decimal(
    delimiter: str, cells: list[str], expected: list[float], tmp_path: Path
) -> None:
    lines = [f"{at}{delimiter}{cell}" for at, cell in enumerate(cells)]
    path = write(tmp_path / "a.csv", "\n".join([f"n{delimiter}x", *lines, ""]))
    assert read_numbers(path, "x") == expected


def test_clock_times_with_points_leave_decimal_commas(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a;b;at\n1,5;2,25;12.30\n2,75;3,5;7.05\n")
    assert read_numbers(path, "a") == [1.5, 2.75]
    assert values(path)["at"] == ["12.30", "7.05"]


def test_new_rows_that_may_be_thousands_have_the_usual_decimal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a;b\n1.234;1\n2.178;1\n12.345;1\n5;1\n8;1\n")
    assert read_numbers(path, "a", usual=".") == [1.234, 2.178, 12.345, 5, 8]
    assert read_numbers(path, "a", usual=",") == [1234, 2178, 12345, 5, 8]


def test_thousands_that_are_given_are_no_decimal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a;b\n1.234;1\n2.345.678;2\n")
    assert read_numbers(path, "a", thousands=".") == [1234, 2345678]


def test_a_file_that_shows_no_decimal_has_the_usual_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a;b\n1,234;1\n")
    assert read_numbers(path, "a", usual=".") == [1234]
    assert read_numbers(path, "a", usual=",") == read_numbers(path, "a") == [1.234]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("cells", "notation", "expected"),
    [
        (["1,209", "0,5"], {"usual": ","}, [1.209, 0.5]),
        (["1,209", "1.234"], {"usual": ","}, [1.209, 1234]),
        (["1.209", "0.5"], {"usual": ","}, [1.209, 0.5]),
        (["1,209", "987"], {"usual": "."}, [1209, 987]),
        (["1,209", "0,5"], {"decimal": ","}, [1.209, 0.5]),
        (["1.209", "1.234.567"], {"thousands": "."}, [1209, 1234567]),
    ],
)
def test_numbers_in_texts_are_read_as_in_csv(
    form: str, cells: list[str], notation: dict[str, str], expected: list[float], tmp_path: Path
) -> None:
    path, rows = tmp_path / f"a.{form}", [{"x": cell, "y": 1.234} for cell in cells]
    path.write_text("\n".join(map(json.dumps, rows)))
    if form == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    assert read_numbers(path, "x", **notation) == expected
    assert read_numbers(path, "y", **notation) == [1.234] * len(rows)


def test_texts_that_parquet_keeps_as_views_are_texts(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": pa.array(["a", "b"], pa.string_view())}), tmp_path / "a.pq")
    (rows,) = open_rows(tmp_path / "a.pq")
    assert rows.only(rows.numbers > 1).columns["x"].to_pylist() == ["b"]

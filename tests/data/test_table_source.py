"""Tables: types, target, roles and statistics of the training part; a bad file is refused with row and column."""

import gzip
import json
import logging
import math
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from podium.data import preprocessing
from podium.data.options import DataOptions
from podium.data.row_files import open_rows
from podium.data.sources import table, text
from podium.data.sources.source import Raw, Source
from podium.errors import InvalidInput, NotFound, PodiumError
from podium.files.documents import load_yaml
from podium.storage import connect

PEOPLE = """age,city,member,born,label
30,Köln,true,1970-01-02,yes
,Bonn,false,,no
50,,TRUE,1970-01-04,yes
41,Ulm,,1970-01-03,no
"""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text(PEOPLE)
    return tmp_path / "people.csv"


def read(path: Path | str, tmp_path: Path, **options: Any) -> Raw:
    (tmp_path / "scratch").mkdir(parents=True, exist_ok=True)
    given = DataOptions.read(options.pop("target", "label"), options)
    table.TABLE.check(given)
    return table.TABLE.read(str(path), given, tmp_path / "scratch")


def fitted(raw: Raw, *train: int) -> Raw:
    assert raw.fit is not None
    return raw.fit(np.array(train or range(len(raw.items))))


def test_a_table_becomes_numbers_and_categories(people: Path, tmp_path: Path) -> None:
    raw = read(people, tmp_path)
    assert (raw.name, raw.kind, raw.classes, raw.target_name) == (
        "people",
        "classification",
        ("no", "yes"),
        "label",
    )
    assert raw.items.target.tolist() == [1, 0, 1, 0]
    raw = fitted(raw)
    columns = raw.descriptions["table"].columns
    assert [(column.name, column.kind, column.missing) for column in columns] == [
        ("age", "number", 1), ("city", "category", 1), ("member", "category", 1), ("born", "number", 1),
    ]  # fmt: skip
    assert columns[1].categories == ("Bonn", "Köln", "Ulm", "(missing)", "(unknown)")
    assert raw.items.inputs["table"].tolist() == [
        [30, 1, 1, 1],
        [41, 0, 0, 2],
        [50, 3, 1, 3],
        [41, 2, 2, 2],
    ]


def test_medians_and_categories_are_of_the_training_part(people: Path, tmp_path: Path) -> None:
    raw = fitted(read(people, tmp_path), 0, 1)
    assert raw.descriptions["table"].columns[1].categories == (
        "Bonn",
        "Köln",
        "(missing)",
        "(unknown)",
    )
    assert raw.items.inputs["table"][:, :2].tolist() == [[30, 1], [30, 0], [50, 2], [41, 3]]


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv.gz"])
def test_other_formats_give_the_same_bytes(form: str, people: Path, tmp_path: Path) -> None:
    other = tmp_path / f"people.{form}"
    if form == "parquet":
        parquet.write_table(csv.read_csv(people), other)
    elif form == "csv.gz":
        other.write_bytes(gzip.compress(people.read_bytes()))
    else:
        import json

        lines = [json.dumps(row, default=str) for row in csv.read_csv(people).to_pylist()]
        other.write_text("\n".join(lines))
    first, second = fitted(read(people, tmp_path)), fitted(read(other, tmp_path))
    np.testing.assert_array_equal(first.items.inputs["table"], second.items.inputs["table"])
    assert (first.classes, first.preprocessing["columns"][0]) == (
        second.classes,
        second.preprocessing["columns"][0],
    )


def test_prediction_makes_the_bytes_of_preparation(people: Path, tmp_path: Path) -> None:
    raw = fitted(read(people, tmp_path), 0, 2)
    again = preprocessing.read(raw.preprocessing, "preprocessing.json")
    assert isinstance(again, preprocessing.TablePreprocessing)
    (rows,) = open_rows(people)
    assert (
        again.apply(rows).check().inputs["table"].tobytes() == raw.items.inputs["table"].tobytes()
    )


def test_a_table_is_fetched_from_a_storage(people: Path, tmp_path: Path, bucket: str) -> None:
    connect(bucket).put("people.csv", people)
    raw = fitted(read(f"{bucket}/people.csv", tmp_path))
    assert (raw.name, raw.source, len(raw.items)) == ("people", f"{bucket}/people.csv", 4)
    with pytest.raises(NotFound):
        read(f"{bucket}/nowhere.csv", tmp_path)


TARGETS: dict[str, tuple[list[str], dict[str, str], str, tuple[str, ...], list[float]]] = {
    "numbers by value": (["10", "9", "10"], {}, "classification", ("9", "10"), [1, 0, 1]),
    "truth": (["True", "false", "TRUE"], {}, "classification", ("false", "True"), [1, 0, 1]),
    "floats": (["1.5", "2", "-1"], {}, "regression", (), [1.5, 2, -1]),
    "numbers as quantity": (["1", "2", "3"], {"kind": "regression"}, "regression", (), [1, 2, 3]),
    "floats as classes": (
        ["0.5", "1", "0.5"],
        {"kind": "classification"},
        "classification",
        ("0.5", "1"),
        [0, 1, 0],
    ),
}


@pytest.mark.parametrize("case", TARGETS)
def test_the_kind_follows_from_the_target(case: str, tmp_path: Path) -> None:
    values, options, kind, classes, target = TARGETS[case]
    (tmp_path / "a.csv").write_text(
        "\n".join(["x,y", *(f"{at},{value}" for at, value in enumerate(values))])
    )
    raw = read(tmp_path / "a.csv", tmp_path, target="y", **options)
    assert (raw.kind, raw.classes, raw.items.target.tolist()) == (kind, classes, target)


def test_columns_with_a_role_are_no_inputs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "patient,day,half,x,label\nb,2026-01-02,train,1,0\na,2026-01-01,test,2,1\nb,2026-01-03,validation,3,0\n"
    )
    raw = read(tmp_path / "a.csv", tmp_path, group="patient", time="day", part="half")
    assert raw.groups is not None
    assert raw.times is not None
    assert raw.given is not None
    assert raw.groups.tolist() == ["b", "a", "b"]
    assert np.argsort(raw.times).tolist() == [1, 0, 2]
    assert raw.given.tolist() == ["train", "test", "validation"]
    assert [column.name for column in fitted(raw).descriptions["table"].columns] == ["x"]


def test_columns_can_be_dropped_and_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,zip,x,label\n1,53113,1,0\n2,50667,2,1\n")
    raw = fitted(read(tmp_path / "a.csv", tmp_path, drop=["id"], categories=["zip"]))
    assert [(column.name, column.kind) for column in raw.descriptions["table"].columns] == [
        ("zip", "category"), ("x", "number"),
    ]  # fmt: skip
    assert raw.descriptions["table"].columns[0].categories[:2] == ("50667", "53113")


def test_one_column_needs_no_list(people: Path, tmp_path: Path) -> None:
    raw = fitted(read(people, tmp_path, drop="born", categories="age"))
    assert [column.kind for column in raw.descriptions["table"].columns] == ["category"] * 3


def test_ids_constants_and_empty_columns_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "a.csv").write_text("id,land,empty,x,label\n1,DE,,5,0\n2,DE,NA,7,1\n3,DE,,,1\n")
    raw = fitted(read(tmp_path / "a.csv", tmp_path))
    assert [column.name for column in raw.descriptions["table"].columns] == ["id", "land", "x"]
    assert "column id counts the rows" in caplog.text
    assert "column land is always 'DE'" in caplog.text
    assert "column empty has no value and is left out" in caplog.text
    assert "x: number (integer, 1 missing)" in caplog.text


def test_a_box_that_is_ticked_or_empty_is_no_constant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [f"{'x' * (at % 2)},{'1' * (at % 3 > 0)},{at % 7},{'ab'[at % 2]}" for at in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["smoker,fever,x,label", *rows]))
    read(tmp_path / "a.csv", tmp_path)
    assert "smoker" not in caplog.text
    assert "drop" not in caplog.text
    assert "categories=[fever]" in caplog.text
    caplog.clear()
    read(tmp_path / "a.csv", tmp_path, missing="indicator")
    assert "fever" not in caplog.text


@pytest.mark.parametrize("as_parquet", [False, True], ids=["CSV", "Parquet"])
def test_marks_and_infinite_numbers_are_reported_as_missing(
    as_parquet: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / ("a.parquet" if as_parquet else "a.csv")
    if as_parquet:
        cells = pa.array([1.5, math.inf, None, -math.inf, 2.5, math.nan])
        parquet.write_table(pa.table({"x": cells, "label": list("ababab")}), path)
    else:
        path.write_text("x,label\n1.5,a\ninf,b\n,a\n-,b\n2.5,a\nn.d.,b\n")
    fitted(read(path, tmp_path))
    assert "x: number (number, 4 missing)" in caplog.text


@pytest.mark.parametrize("source", [table.TABLE, text.TEXT], ids=["table", "text"])
def test_a_missing_file_is_named_before_a_missing_column(
    source: Source, people: Path, tmp_path: Path
) -> None:
    for target, test in (("", 0.1), ("nowhere", 0.1), ("", str(people))):
        with pytest.raises(NotFound, match=r"there is no file .*nowhere\.csv"):
            source.read(f"{tmp_path}/nowhere.csv", DataOptions(target=target, test=test), tmp_path)
    with pytest.raises(NotFound, match=r"there is no file .*test\.csv"):
        source.read(str(people), DataOptions(test=f"{tmp_path}/test.csv"), tmp_path)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize(
    ("sums", "warned"),
    [
        (["1.234", "987", "2.345", "45.678", "12"], True),
        (["1.234", "2.5", "2.345", "45.678", "12"], False),
        (["0.234", "987", "2.345", "45.678", "12"], False),
        (["1.234", "3.000", "2.345", "45.678", "12.100"], False),
    ],
)
def test_a_point_that_may_group_digits_is_named(
    sums: list[str], warned: bool, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [(value, label) for value in sums for label in "ab"]
    if name.endswith("csv"):
        text = "\n".join(["rent,label", *map(",".join, rows)])
    else:
        text = "\n".join(json.dumps({"rent": rent, "label": label}) for rent, label in rows)
    (tmp_path / name).write_text(text)
    said = "column rent holds numbers with three digits behind a point or none at all"
    read(tmp_path / name, tmp_path)
    assert (said in caplog.text) == warned
    caplog.clear()
    read(tmp_path / name, tmp_path, decimal=",")
    assert said not in caplog.text


@pytest.mark.parametrize(
    ("cell", "hint"), [("3.{:03},5", 'decimal=","'), ("${:03}.5k", "write quantities as plain")]
)
def test_a_target_of_other_numbers_says_how_to_write_them(
    cell: str, hint: str, tmp_path: Path
) -> None:
    rows = [f'"{cell.format(at)}",{at % 7}' for at in range(300)]
    (tmp_path / "a.csv").write_text("\n".join(["label,x", *rows]))
    with pytest.raises(InvalidInput, match="300 different texts, but most look like") as error:
        read(tmp_path / "a.csv", tmp_path)
    assert hint in error.value.hint


def test_a_target_of_few_odd_numbers_makes_no_classes(tmp_path: Path) -> None:
    rows = [f"{at % 100},{at % 7}" for at in range(1200)]
    odd = [f'"{at},5",{at % 7}' for at in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["label,x", *rows, *odd]))
    with pytest.raises(InvalidInput, match="120 different texts, but most look like") as error:
        read(tmp_path / "a.csv", tmp_path)
    assert 'decimal=","' in error.value.hint


BAD: dict[str, tuple[str | bytes, dict[str, Any], str]] = {
    "ragged": ("x,label\n1,0\n2\n", {}, "a.csv, row 2: has 1 value,"),
    "no target option": ("x,label\n1,0\n", {"target": ""}, "no target of .*a.csv is named\nhint: .*--target NAME"),
    "no target column": ("x,y\n1,0\n", {}, "a.csv has no column 'label', which is the target\nhint: .*: x, y"),
    "wrong delimiter": ("x;label\n1;0\n", {"delimiter": ","}, "no column 'label'.*\n.*comma.*x;label"),
    "equal names": ("x,x,label\n1,2,0\n", {}, "column 2 is called 'x'"),
    "empty": ("", {}, "a.csv is empty"),
    "header only": ("x,label\n", {}, "a.csv has no row below its header"),
    "holes in target": ("x,label\n1,0\n2,\n3,NA\n", {}, r"a.csv, row 2, column label: the target is missing \(and in 1"),
    "one class": ("x,label\n1,a\n2,a\n", {}, "target label is always 'a'"),
    "dates as target": ("x,label\n1,2026-01-01\n", {}, "the target label holds dates"),
    "words to regress": ("x,label\n1,2\n2,b\n", {"kind": "regression"}, "row 2, column label: the target must be a fin"),
    "infinite target": ("x,label\n1,2.5\n2,inf\n", {"kind": "regression"}, "row 2, column label: .* but is 'inf'"),
    "latin-1": ("x,label\n1,ja\n2,nö\n".encode("latin-1"), {}, "a.csv, row 2, column label: this is not utf-8"),
    "no number": ("x,label\n1,0\nold,1\n", {"numbers": ["x"]}, "row 2, column x: 'old' is not a number"),
    "word among numbers": ("x,label\n1,0\nb,1\n", {"numbers": ["x"]}, "row 2, column x: 'b' is not a number"),
    "unknown option": ("x,label\n1,0\n2,1\n", {"dropp": ["x"]}, "data_options has no 'dropp'\nhint: did you mean drop"),
    "another's option": ("x,label\n1,0\n2,1\n", {"resize": [2, 2]}, "table has no option resize"),
    "unknown column": ("x,label\n1,0\n2,1\n", {"drop": ["X"]}, "drop: .*a.csv has no column 'X'"),
    "two kinds": ("x,label\n1,0\n2,1\n", {"numbers": ["x"], "categories": ["x"]}, "column x cannot be both a number and a category"),
    "no input": ("x,label\n1,0\n2,1\n", {"drop": ["x"]}, "a.csv has no column to learn from"),
    "no part": ("x,p,label\n1,train,0\n2,,1\n", {"part": "p"}, "row 2, column p: the part is missing"),
    "words as time": ("x,t,label\n1,1,0\n2,soon,1\n", {"time": "t"}, "row 2, column t: the time must be a finite num"),
    "a huge target": ("x,label\n1,0.5\n2,1e300\n", {"kind": "regression"}, "row 2, column label: .* that float32 holds"),
    "no group": ("x,g,label\n1,a,0\n2,,1\n", {"group": "g"}, "row 2, column g: the group is missing"),
    "names": ("x,label\n" + "".join(f"n{row},{row % 2}\n" for row in range(1200)), {}, "column x: more than 1,000 categ"),
    "quantity": ("x,label\n" + "".join(f"1,{row}\n" for row in range(101)), {}, "101 different whole numbers\nhint: if it"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_is_refused_with_its_place(case: str, tmp_path: Path) -> None:
    content, options, message = BAD[case]
    (tmp_path / "a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PodiumError, match=message):
        fitted(read(tmp_path / "a.csv", tmp_path, **options))


def test_a_missing_value_is_refused_when_asked(people: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"people\.csv, row 2, column age: the value is missing"):
        fitted(read(people, tmp_path, missing="refuse"))


def test_a_column_without_training_values_is_refused(people: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="column age has no value in the training part"):
        fitted(read(people, tmp_path), 1)


def test_rows_of_many_blocks_keep_their_order(tmp_path: Path) -> None:
    rng, count = np.random.default_rng(1), 60_000
    columns = {f"x{at}": rng.normal(size=count).round(4) for at in range(6)}
    columns |= {"city": rng.choice(["a", "b", "c"], count), "label": rng.integers(0, 2, count)}
    csv.write_csv(pa.table(columns), tmp_path / "large.csv")
    raw = fitted(read(tmp_path / "large.csv", tmp_path), *range(0, count, 2))
    np.testing.assert_allclose(raw.items.inputs["table"][:, 5], columns["x5"].astype(np.float32))


def test_a_class_named_none_names_missing_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,None\n2,NA\n3,b\n")
    with pytest.raises(InvalidInput, match="the target is missing") as refused:
        read(tmp_path / "a.csv", tmp_path, target="y")
    assert refused.value.hint == "remove these rows; if 'None' is a name: 'missing_values=[\"\"]'"
    raw = read(tmp_path / "a.csv", tmp_path, target="y", missing_values=[""])
    assert raw.classes == ("NA", "None", "b")


@pytest.mark.parametrize("mark", ["-", "unknown"])
def test_a_mark_among_numbers_is_no_class(mark: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"x,y\n1,0\n2,1\n3,{mark}\n4,1\n")
    with pytest.raises(InvalidInput, match=r"a\.csv, row 3, column y: the target is missing"):
        read(tmp_path / "a.csv", tmp_path, target="y")
    raw = read(tmp_path / "a.csv", tmp_path, target="y", missing_values=[""])
    assert sorted(raw.classes) == sorted(["0", "1", mark])


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["$20", "$5"], ("$5", "$20")),
        (['"2,000"', '"1,000"'], ("1,000", "2,000")),
        (["20%", "5%"], ("5%", "20%")),
        (["2e3", "1000"], ("1000", "2e3")),
    ],
)
def test_classes_that_are_amounts_stand_by_value(
    values: list[str], classes: tuple[str, ...], tmp_path: Path
) -> None:
    lines = [f"{at},{value}" for at, value in enumerate(2 * values)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *lines]))
    raw = read(tmp_path / "a.csv", tmp_path, target="y", kind="classification")
    assert raw.classes == classes


@pytest.mark.parametrize("kept", [pa.int32(), pa.float64(), pa.string()], ids=str)
def test_a_test_file_may_write_its_numbers_otherwise(kept: pa.DataType, tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3, 4], "group": [7, 8, 9, 7], "label": [0, 1, 0, 1]})
    parquet.write_table(rows, tmp_path / "a.parquet")
    others = {name: column.cast(kept) for name, column in zip(rows.column_names, rows, strict=True)}
    parquet.write_table(pa.table(others), tmp_path / "b.parquet")
    raw = read(tmp_path / "a.parquet", tmp_path, test=str(tmp_path / "b.parquet"), group="group")
    assert raw.classes == ("0", "1")
    assert raw.items.target.tolist() == [0, 1, 0, 1] * 2
    assert raw.groups is not None
    assert raw.groups.tolist() == ["7", "8", "9", "7"] * 2


def test_a_target_of_another_kind_is_not_to_be_dropped(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2], "label": pa.array([0, 1], pa.time32("s"))})
    parquet.write_table(rows, tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=r"column label: .* here they are time32") as refused:
        read(tmp_path / "a.parquet", tmp_path)
    assert refused.value.hint == "write it as one of these"


@pytest.mark.parametrize("given", ["[]", [], None])
def test_an_empty_list_of_missing_values_means_none(given: Any, tmp_path: Path) -> None:
    """Through YAML and the shell, and as a pipeline hands it on."""
    (tmp_path / "marks.csv").write_text("a,label\nNA,x\nNone,y\nb,x\nNA,y\n")
    options = {"missing_values": load_yaml(given, "")[0] if isinstance(given, str) else given}
    column = (
        fitted(read(tmp_path / "marks.csv", tmp_path, **options)).descriptions["table"].columns[0]
    )
    marks = ("b",) if given is None else ("NA", "None", "b")
    assert column.categories == (*marks, "(missing)", "(unknown)")
    assert column.missing == (3 if given is None else 0)


@pytest.mark.parametrize(
    ("values", "classes"),
    [(("0.0", "1.0"), ("0", "1")), (("10.0", "2.0", "1.0"), ("1", "2", "10"))],
)
def test_few_whole_numbers_with_a_point_are_classes(
    values: tuple[str, ...],
    classes: tuple[str, ...],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "t.csv").write_text(
        "x,y\n" + "".join(f"{at}.5,{values[at % len(values)]}\n" for at in range(60))
    )
    raw = read(tmp_path / "t.csv", tmp_path, target="y")
    assert (raw.kind, raw.classes) == ("classification", classes)
    assert "so these are classes; if it is a quantity: kind=regression" in caplog.text
    assert read(tmp_path / "t.csv", tmp_path, target="y", kind="regression").kind == "regression"


def test_numbers_with_fractions_are_a_quantity(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{at}.5,{at % 3}.5\n" for at in range(60)))
    assert read(tmp_path / "t.csv", tmp_path, target="y").kind == "regression"


SHORT_DATES = [f"{at % 28 + 1:02}{at // 28 + 1:02}26" for at in range(60)]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (SHORT_DATES, "may have the day, the month or the year first, as in '010126'"),
        ([each[2:4] + each[:2] + each[4:] for each in SHORT_DATES], "as in '010126'"),
        ([each.lstrip("0") for each in SHORT_DATES], "as in '10126'"),
        ([1_700_000_000 * 1000 ** (at % 2) + at for at in range(60)], "holds more than one unit"),
    ],
)
def test_times_in_two_readings_are_refused(
    times: Sequence[object], said: str, tmp_path: Path
) -> None:
    rows = (f"{at},{time},{at % 2}" for at, time in enumerate(times))
    (tmp_path / "a.csv").write_text("\n".join(["x,t,label", *rows]))
    with pytest.raises(InvalidInput, match=said) as refused:
        read(tmp_path / "a.csv", tmp_path, time="t")
    assert refused.value.hint


@pytest.mark.parametrize(
    "times",
    [
        range(10_100, 10_160),
        range(100_101, 100_161),
        range(240_101, 240_131),
        [1_700_000_000 + at for at in range(60)],
        [930_00 + 15_00 * at for at in range(60)],
        [5],
    ],
)
def test_counts_and_seconds_are_no_short_dates(times: Sequence[int], tmp_path: Path) -> None:
    rows = (f"{at},{time},{at % 2}" for at, time in enumerate([*times, times[0]]))
    (tmp_path / "a.csv").write_text("\n".join(["x,t,label", *rows]))
    raw = read(tmp_path / "a.csv", tmp_path, time="t")
    assert raw.times is not None
    assert raw.times.tolist() == [*times, times[0]]


@pytest.mark.parametrize(
    ("mark", "cell", "what"), [("*", "{}.5", "numbers"), ("soon", "2026-01-{:02}", "dates")]
)
def test_words_among_many_numbers_or_dates_are_named(
    mark: str, cell: str, what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = [*(cell.format(at) for at in range(1, 29)), *3 * [mark]]
    lines = [f"{value},{'ab'[at % 2]}" for at, value in enumerate(cells)]
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *lines]))
    fitted(read(tmp_path / "a.csv", tmp_path))
    said = f"column x is read as 29 categories: it holds {what}, but for 3 values such as {mark!r};"
    assert said in caplog.text


def test_a_row_of_units_below_the_header_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{at}.5,{at + 100},{'ab'[at % 2]}\n" for at in range(60))
    (tmp_path / "a.csv").write_text(f"weight,height,label\nkg,cm,class\n{rows}")
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "row 1 is probably a second header: 'kg' in weight, 'cm' in height" in caplog.text


@pytest.mark.parametrize(
    ("last", "is_named"), [("Total", True), ("Summe", True), ("合計", True), ("north", False)]
)
def test_a_row_of_totals_is_named(
    last: str, is_named: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{['north', 'south'][at % 2]},{at}.5,{at}.25\n" for at in range(60))
    (tmp_path / "a.csv").write_text(f"region,x,label\n{rows}{last},1800,1785.5\n")
    fitted(read(tmp_path / "a.csv", tmp_path))
    named = f"row 61 is probably a sum or mean of the others: it alone has {last!r} in region"
    assert (named in caplog.text) is is_named


@pytest.mark.parametrize("is_named", [True, False])
def test_a_row_of_totals_without_a_word_is_named(
    is_named: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{at % 7 + at},{at + 33},{at % 2}\n" for at in range(60))
    sums = [sum(int(row.split(",")[column]) for row in rows.split()) for column in (0, 1)]
    last = f"{sums[0]},{sums[1] + (not is_named)}"
    (tmp_path / "a.csv").write_text(f"x,y,label\n{rows}{last},1\n")
    fitted(read(tmp_path / "a.csv", tmp_path))
    named = "row 61 is probably the sum of the others: it is in x and y; remove it"
    assert (named in caplog.text) is is_named


def test_a_row_that_repeats_a_rare_one_is_no_total(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{300 * (at == 5)},{700 * (at == 5)},{at % 2}\n" for at in range(60))
    (tmp_path / "a.csv").write_text(f"x,y,label\n{rows}300,700,1\n")
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "sum of the others" not in caplog.text


def test_totals_that_many_rows_hold_are_a_category(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{['part', 'total'][at % 2]},{at}.5,{at}.25\n" for at in range(60))
    (tmp_path / "a.csv").write_text(f"kind,x,label\n{rows}")
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "sum or mean" not in caplog.text


def test_a_word_among_numbers_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = [*(f"{at}.5" for at in range(97)), *3 * ["<1"]]
    lines = [f"{value},{'ab'[at % 2]}" for at, value in enumerate(cells)]
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *lines]))
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "but for 3 values such as '<1', which count as missing" in caplog.text


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ("{},5", "such as '1,5': 'decimal"),
        ("{} kg", "such as '1 kg': write quantities"),
        ("A/5 2{:03}", "as an id does"),
    ],
)
def test_many_odd_values_among_numbers_do_not_mean_missing(
    odd: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = [cell.format(at) for at in range(1, 11) for cell in (odd, "{}", "9{}", "8{}")]
    rows = (f"{value};{'ab'[at % 2]}" for at, value in enumerate(cells))
    (tmp_path / "a.csv").write_text("\n".join(["x;label", *rows]))
    fitted(read(tmp_path / "a.csv", tmp_path, decimal="."))
    assert said in caplog.text
    assert "mean missing" not in caplog.text


@pytest.mark.parametrize(("first", "is_amount"), [(8, True), (12, False)])
def test_blanks_group_digits_where_widths_differ(
    first: int, is_amount: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{first + at // 9} {100 + 7 * at},{'ab'[at % 2]}\n" for at in range(60))
    (tmp_path / "a.csv").write_text(f"amount,label\n{rows}")
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert ("'thousands=\" \"'" in caplog.text) is is_amount
    assert ("as an id does" in caplog.text) is not is_amount


@pytest.mark.parametrize(
    "form", ["%A, %B %d, %Y", "%a %d %b %y", "%Y-%m", "%m/%Y", "%Y%m%d", "%Y%m"]
)
def test_dates_in_other_forms_are_named_as_such(
    form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    days = (date(2023, 1, 17) + timedelta(days=27 * at) for at in range(40))
    rows = "".join(f'"{day.strftime(form)}",{"ab"[at % 2]}\n' for at, day in enumerate(days))
    (tmp_path / "a.csv").write_text(f"when,label\n{rows}")
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "as 2026-01-31" in caplog.text


@pytest.mark.parametrize("first", [20230199, 19010101, 202300, 20240000])
def test_other_whole_numbers_are_no_dates(
    first: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{first + 371 * at},{'ab'[at % 2]}\n" for at in range(40))
    (tmp_path / "a.csv").write_text(f"when,label\n{rows}")
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "dates" not in caplog.text


def test_wide_digits_are_numbers_and_no_ids(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wide = str.maketrans("0123456789", "０１２３４５６７８９")
    rows = "".join(f"{str(17 * at + 3).translate(wide)},{'ab'[at % 2]}\n" for at in range(40))
    (tmp_path / "a.csv").write_text(f"count,label\n{rows}")
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "write quantities as plain numbers" in caplog.text


def test_numbers_with_hyphens_are_no_dates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = (f"{at + 40}-{at + 10}-{at + 5000},{'ab'[at % 2]}" for at in range(30))
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *rows]))
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "as an id does" in caplog.text
    assert "looks like dates" not in caplog.text


def test_versions_by_year_are_no_dates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = (f"2026.{at % 12 + 1}.{at % 5},{'ab'[at % 2]}" for at in range(240))
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *rows]))
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "dates" not in caplog.text


def test_a_target_of_numbers_names_what_is_none(tmp_path: Path) -> None:
    lines = [f"{at},{value}" for at, value in enumerate([*(f"{at}.5" for at in range(40)), "<1"])]
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *lines]))
    with pytest.raises(InvalidInput, match="holds numbers, but for 1 value such as '<1'"):
        read(tmp_path / "a.csv", tmp_path)


@pytest.mark.parametrize(
    ("cell", "how"),
    [("2026-01-{:02} 10:00 CET", "dates as 2026-01-31"), ("{} days 10:20:30", "times as minutes")],
)
def test_moments_that_are_not_read_are_no_ids(
    cell: str, how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"{cell.format(at)},{'ab'[at % 2]}" for at in range(1, 29)]
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *lines]))
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert f"write {how}" in caplog.text
    assert "as an id does" not in caplog.text


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("-", "row 3, column t: the time is missing"),
        ("soon", "row 3, column t: the time must be a date, but is 'soon'"),
    ],
)
def test_the_row_without_a_date_is_named(cell: str, said: str, tmp_path: Path) -> None:
    times = ["2026-01-01", "2026-01-02", cell, *(f"2026-02-{at:02}" for at in range(1, 29))]
    rows = (f"{at},{time},{'ab'[at % 2]}" for at, time in enumerate(times))
    (tmp_path / "a.csv").write_text("\n".join(["x,t,label", *rows]))
    with pytest.raises(InvalidInput, match=said):
        read(tmp_path / "a.csv", tmp_path, time="t")


def test_blanks_between_thousands_are_named_and_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = (f"{at} {at}00,5;{'ab'[at % 2]}" for at in range(1, 10))
    more = (f"{at} 000,5;{'ab'[at % 2]}" for at in range(10, 40))
    (tmp_path / "a.csv").write_text("\n".join(["x;label", *rows, *more]))
    fitted(read(tmp_path / "a.csv", tmp_path))
    assert "'thousands=\" \"'" in caplog.text
    raw = fitted(read(tmp_path / "a.csv", tmp_path, thousands=" "))
    assert raw.items.inputs["table"][:2, 0].tolist() == [1100.5, 2200.5]


def test_a_table_of_more_than_50_000_columns_is_refused(tmp_path: Path) -> None:
    names = [f"g{at}" for at in range(50_000)]
    file = tmp_path / "wide.csv"
    file.write_text("".join(",".join(row) + "\n" for row in ([*names, "y"], ["1"] * 50_001)))
    with pytest.raises(InvalidInput, match="has 50,001 columns, but a table may have 50,000"):
        read(file, tmp_path, target="y")


def test_of_many_columns_the_first_are_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [[str(at * 7 % (row + 3)) for at in range(300)] + ["ab"[row % 2]] for row in range(40)]
    file = tmp_path / "wide.csv"
    header = [*(f"g{at}" for at in range(300)), "y"]
    file.write_text("".join(",".join(row) + "\n" for row in [header, *rows]))
    caplog.set_level("INFO")
    read(file, tmp_path, target="y")
    shown = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert "  g199: number (integer)" in shown
    assert "  g200: number (integer)" not in shown
    assert "  and more: 100 numbers, 0 categories" in shown


def panel(shops: int, weeks: int, noise: float) -> str:
    """Sales of shops, week by week: each shop has its own level."""
    draw = np.random.default_rng(0)
    level = draw.normal(size=shops)
    rows = [
        f"{shop + 100},{week},{draw.normal():.4f},{level[shop] + noise * draw.normal():.4f}"
        for week in range(weeks)
        for shop in range(shops)
    ]
    return "\n".join(["shop,week,rain,sales", *rows]) + "\n"


@pytest.mark.parametrize(("noise", "warned"), [(0.2, True), (20.0, False)])
def test_shops_week_by_week_are_to_count_together(
    noise: float, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "sales.csv"
    file.write_text(panel(25, 30, noise))
    raw = read(file, tmp_path, target="sales", time="week")
    assert raw.clusters is None
    assert ("count them together: cluster=shop" in caplog.text) is warned
    caplog.clear()
    raw = read(file, tmp_path, target="sales", time="week", cluster="shop")
    assert raw.clusters is not None
    assert raw.clusters[:2].tolist() == ["100", "101"]
    assert raw.groups is None
    assert "shop" in [column.name for column in fitted(raw).descriptions["table"].columns]
    assert "cluster=shop" not in caplog.text
    file.write_text(panel(25, 30, noise).replace("\n103,7,", "\n,7,"))
    read(file, tmp_path, target="sales", time="week")
    assert "cluster=shop" not in caplog.text, "it would be refused"


def test_a_cluster_beside_a_group_is_refused(people: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="leave out group or cluster"):
        read(people, tmp_path, cluster="city", group="member")


def test_a_cluster_that_no_column_has_is_refused(people: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="town"):
        read(people, tmp_path, cluster="town")


def test_a_remote_file_is_converted_in_a_copy_of_it(tmp_path: Path) -> None:
    file = tmp_path / "a b.feather"
    file.touch()
    with pytest.raises(InvalidInput) as refused:
        open_rows(file, name="s3://lake/raw/a b.feather")
    hint = str(refused.value.hint)
    assert hint.startswith("in a copy of it here: write it as Parquet: python -c ")
    assert hint.endswith(" 'a b.feather' 'a b.parquet'")


@pytest.mark.parametrize(
    ("options", "warned"), [({}, True), ({"numbers": ["day"]}, False), ({"categories": ["day"]}, False)]
)  # fmt: skip
def test_dates_in_one_number_are_named_unless_said(
    options: dict[str, Any], warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [f"202601{at + 10},{at},{'ab'[at % 2]}" for at in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["day,x,label", *rows]) + "\n")
    read(tmp_path / "a.csv", tmp_path, **options)
    said = "day looks like dates, but is read as numbers, such as 20260110: write it as 2026-01-31"
    assert (said in caplog.text) is warned
    assert ("if these are numbers: numbers=[day]" in caplog.text) is warned

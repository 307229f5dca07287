"""Preprocessing is fitted on training rows and survives its file; what it cannot read it reports and leaves out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from podium.data import preprocessing
from podium.data.preprocessing import (
    ImagePreprocessing,
    Preprocessing,
    TablePreprocessing,
    TextPreprocessing,
)
from podium.data.preprocessing.table import Field
from podium.data.rows import Rows
from podium.errors import InvalidInput

FIELDS = (
    Field(name="age", kind="number", type="integer"),
    Field(name="born", kind="number", type="date"),
    Field(name="city", kind="category", type="text"),
    Field(name="member", kind="category", type="boolean"),
)
TRAIN: dict[str, list[Any]] = {
    "age": ["30", "", "50", "41"],
    "born": ["1970-01-02", "1970-01-04", "", ""],
    "city": ["Köln", "Bonn", "", "Bonn"],
    "member": ["True", "false", "TRUE", ""],
}


def rows(columns: dict[str, list[Any]], first: int = 1) -> Rows:
    arrays = {name: pa.array(values) for name, values in columns.items()}
    count = len(next(iter(arrays.values())))
    return Rows(file="a.csv", numbers=np.arange(first, first + count), columns=arrays)


def reread(fitted: Preprocessing) -> Preprocessing:
    """Return what is read back from preprocessing.json."""
    read = preprocessing.read(json.loads(json.dumps(fitted.to_json())), "preprocessing.json")
    assert read == fitted
    return read


def test_a_table_is_fitted_on_training_rows() -> None:
    fitted = TablePreprocessing.fit(FIELDS, [rows(TRAIN)])
    age, born, city, member = fitted.columns
    assert (age.fill, age.missing, born.fill) == (41, 1, 2)
    assert (city.categories, city.missing) == (("Bonn", "Köln", "(missing)", "(unknown)"), 1)
    assert member.categories == ("false", "true", "(missing)", "(unknown)")
    table = fitted.apply(rows(TRAIN)).check().inputs["table"]
    assert table.dtype == np.float32
    assert table.tolist() == [[30, 1, 1, 1], [41, 3, 0, 0], [50, 2, 2, 1], [41, 2, 0, 2]]


def test_equal_rows_of_other_types_give_equal_inputs() -> None:
    fitted = reread(TablePreprocessing.fit(FIELDS, [rows(TRAIN)]))
    assert isinstance(fitted, TablePreprocessing)
    days = np.array(["1970-01-02", "1970-01-04", "NaT", "NaT"], "datetime64[D]")
    typed = {"member": [True, False, True, None], "city": ["Köln", "Bonn", None, "Bonn"], "born": days,
             "age": [30, None, 50, 41], "more": [1, 2, 3, 4]}  # fmt: skip
    expected = fitted.apply(rows(TRAIN)).inputs["table"]
    np.testing.assert_array_equal(fitted.apply(rows(typed)).check().inputs["table"], expected)


def test_an_unseen_category_is_the_last_one() -> None:
    fitted = TablePreprocessing.fit(FIELDS[2:3], [rows(TRAIN)])
    assert fitted.apply(rows({"city": ["Ulm", None]})).inputs["table"].tolist() == [[3], [2]]


def test_bad_values_leave_out_their_rows_only() -> None:
    fitted = TablePreprocessing.fit(FIELDS[:3], [rows(TRAIN)])
    new = {
        "age": ["1", "old", "3", "1e39"],
        "born": ["", "", "soon", "1970-01-02"],
        "city": ["Bonn"] * 4,
    }
    applied = fitted.apply(rows(new, first=11))
    assert applied.kept.tolist() == [0]
    assert applied.inputs["table"].tolist() == [[1, 2, 0]]
    assert [str(problem) for problem in applied.problems] == [
        "a.csv, row 12, column age: 'old' is not a number that float32 can hold",
        "a.csv, row 13, column born: 'soon' is not a date (2026-01-31 or 31.1.2026)",
        "a.csv, row 14, column age: '1e+39' is not a number that float32 can hold",
    ]
    with pytest.raises(InvalidInput, match=r"row 12, column age: 'old' .*\(3 like this here\)"):
        applied.check()


def test_missing_numbers_are_marked_when_asked() -> None:
    fitted = reread(TablePreprocessing.fit(FIELDS[:1], [rows(TRAIN)], missing="indicator"))
    assert isinstance(fitted, TablePreprocessing)
    assert fitted.columns[0].names == ("age", "age_missing")
    assert fitted.apply(rows({"age": ["", "7"]})).inputs["table"].tolist() == [[41, 1], [7, 0]]


def test_missing_values_are_refused_when_asked() -> None:
    fitted = TablePreprocessing.fit(FIELDS[:1], [rows({"age": ["1", "2"]})], missing="refuse")
    with pytest.raises(InvalidInput, match=r"a\.csv, row 2, column age: the value is missing"):
        fitted.apply(rows({"age": ["1", "?"]})).check()


def test_a_table_without_a_needed_column_is_refused() -> None:
    fitted = TablePreprocessing.fit(FIELDS[:2], [rows(TRAIN)])
    with pytest.raises(InvalidInput, match=r"a\.csv has no column 'born'.*\n.*age, born"):
        fitted.apply(rows({"age": ["1"]}))


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        (
            Field(name="age", kind="number", type="integer"),
            ["1", "x"],
            r"row 2, column age: 'x' is not a number",
        ),
        (
            Field(name="age", kind="number", type="number"),
            [1e300],
            r"row 1, column age: '1e\+300' is not a number",
        ),
        (
            Field(name="age", kind="number", type="integer"),
            ["", None],
            r"column age has no value in the training part",
        ),
        (
            Field(name="name", kind="category", type="text"),
            list("abcdef"),
            r"column name: more than 5 categories",
        ),
    ],
)
def test_what_cannot_be_fitted_is_named(field: Field, values: list[Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TablePreprocessing.fit([field], [rows({field.name: values})], max_categories=5)


def test_an_indicator_may_not_take_the_name_of_a_column() -> None:
    fields = [Field(name=name, kind="number", type="number") for name in ("age", "age_missing")]
    with pytest.raises(InvalidInput, match="age_missing"):
        TablePreprocessing.fit(
            fields, [rows({"age": ["", "1"], "age_missing": ["1", "0"]})], missing="indicator"
        )


def test_text_becomes_words_and_a_mask() -> None:
    fitted = reread(TextPreprocessing.fit(["A good film.", "A bad film!", "good"], column="review"))
    assert isinstance(fitted, TextPreprocessing)
    assert fitted.vocabulary == ("(padding)", "(unknown)", "a", "film", "good", "!", ".", "bad")
    assert fitted.length == 4
    applied = fitted.apply(rows({"review": ["GOOD film", "worse", "a a a a a", "", None]}))
    assert applied.inputs["tokens"].tolist() == [[4, 3, 0, 0], [1, 0, 0, 0], [2, 2, 2, 2]]
    assert applied.inputs["mask"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert [str(problem) for problem in applied.problems] == [
        "a.csv, row 4, column review: there is no word", "a.csv, row 5, column review: there is no word",
    ]  # fmt: skip


def test_the_vocabulary_is_the_most_frequent_words() -> None:
    fitted = TextPreprocessing.fit(["b a b", "c b a"], max_words=2, length=7)
    assert (fitted.vocabulary[2:], fitted.length) == (("b", "a"), 7)
    with pytest.raises(InvalidInput, match="has no word in the training part"):
        TextPreprocessing.fit(["", " "])


def test_pictures_of_any_kind_become_one_shape(tmp_path: Path) -> None:
    Image.new("RGB", (40, 20), (255, 0, 0)).save(tmp_path / "a.png")
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "b.png")
    Image.fromarray(np.full((9, 9), 65535, np.uint16)).save(tmp_path / "c.png")
    Image.new("CMYK", (30, 30), (0, 255, 255, 0)).save(tmp_path / "d.jpg", quality=95)
    (tmp_path / "e.png").write_text("hello")
    fitted = reread(ImagePreprocessing(size=(6, 8), channels=3))
    assert isinstance(fitted, ImagePreprocessing)
    applied = fitted.apply(sorted(tmp_path.iterdir()))
    images = applied.inputs["images"]
    assert (images.shape, images.dtype, applied.kept.tolist()) == (
        (4, 6, 8, 3),
        np.uint8,
        [0, 1, 2, 3],
    )
    assert images[0].tolist() == np.full((6, 8, 3), (255, 0, 0)).tolist()
    assert images[1].min() == images[2].min() == 255, "nothing and full 16 bits are white"
    assert images[3].mean((0, 1)) == pytest.approx([254, 0, 0], abs=3)
    assert [(problem.row, problem.reason) for problem in applied.problems] == [
        (5, "this is not a picture")
    ]


def test_pixels_that_are_fractions_are_refused_by_name(tmp_path: Path) -> None:
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "a.tiff")
    applied = ImagePreprocessing(size=(4, 4), channels=3).apply([tmp_path / "a.tiff"])
    assert [str(problem) for problem in applied.problems] == [
        f"{tmp_path}/a.tiff: the pixels of this picture are fractions"
    ]


def test_gray_and_turned_pictures_are_as_they_are_seen(tmp_path: Path) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(pixels)).save(tmp_path / "a.png", exif=exif)
    applied = ImagePreprocessing(size=(3, 4), channels=1).apply([tmp_path / "a.png"])
    np.testing.assert_array_equal(applied.check().inputs["images"][0], pixels)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "sound"}, "kind 'sound' is not known"),
        ([], "kind None is not known"),
        ({"kind": "image", "size": [28, 28]}, "p.json has no channels"),
        ({"kind": "image", "size": [28], "channels": 1}, r"not a size of pictures: \[28\]"),
        (
            {"kind": "image", "size": [28, 28], "channels": 3, "recipe": "digit"},
            "recipe digit makes",
        ),
        ({"kind": "text", "vocabulary": ["a"], "length": 3}, "a vocabulary begins with"),
        ({"kind": "table", "columns": []}, "no column besides its target"),
    ],
)
def test_a_wrong_preprocessing_file_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        preprocessing.read(value, "p.json")


def test_no_preprocessing_is_not_guessed() -> None:
    assert preprocessing.read({}, "p.json") is None


def one_number(type_: str, values: list[Any], **options: Any) -> TablePreprocessing:
    """Fit one column of numbers or dates on its values."""
    field = Field(name="x", kind="number", type=type_)
    fitted = reread(TablePreprocessing.fit([field], [rows({"x": values})], **options))
    assert isinstance(fitted, TablePreprocessing)
    return fitted


CODES = [str(100_000_000 + at) for at in range(1, 6)]
MILLISECONDS = [1_764_000_000_000 + at for at in range(2000)]


@pytest.mark.parametrize(
    ("type_", "values"),
    [("integer", CODES), ("integer", MILLISECONDS), ("number", ["1000000.01", "1000000.02", "1000000.03"])],
)  # fmt: skip
def test_different_numbers_stay_different_inputs(type_: str, values: list[Any]) -> None:
    fitted = one_number(type_, values)
    table = fitted.apply(rows({"x": values})).check().inputs["table"]
    assert table.dtype == np.float32
    assert len(np.unique(table)) == len(values)
    read = fitted.columns[0].read(pa.array(values), fitted.missing_values)[0]
    np.testing.assert_allclose(
        table[:, 0].astype(float) + fitted.columns[0].center, read, rtol=0, atol=1e-3
    )


@pytest.mark.parametrize(
    ("type_", "values"),
    [("number", ["0.1", "0.2", "35.7"]), ("integer", [1, 2, 2026]), ("integer", [100_000_001] * 3),
     ("date", ["2026-11-27", "2026-11-28"]), ("number", ["1e9", "3e20", "-1e3"])],
)  # fmt: skip
def test_ordinary_numbers_are_their_own_inputs(type_: str, values: list[Any]) -> None:
    fitted = one_number(type_, values)
    read = fitted.columns[0].read(pa.array(values), fitted.missing_values)[0]
    assert fitted.columns[0].center == 0
    table = fitted.apply(rows({"x": values})).check().inputs["table"]
    np.testing.assert_array_equal(table[:, 0], np.asarray(read).astype(np.float32))


def test_a_date_with_a_time_is_days_and_seconds() -> None:
    moments = [
        f"{year}-11-27 01:{second // 60:02d}:{second % 60:02d}"
        for year in (1926, 2026)
        for second in range(3600)
    ]
    fitted = one_number("date", moments, missing="indicator")
    assert fitted.columns[0].names == ("x", "x_seconds")
    table = fitted.apply(rows({"x": moments})).check().inputs["table"]
    assert set(table[:, 0]) == {-15741, 20784}
    assert table[:, 1].tolist() == [*range(3600, 7200)] * 2


def test_a_missing_number_is_the_exact_median() -> None:
    fitted = one_number("integer", [*CODES, ""], missing="indicator")
    assert fitted.columns[0].fill == 100_000_003
    table = fitted.apply(rows({"x": ["", "100000005"]})).check().inputs["table"]
    assert table.tolist() == [[0, 1], [2, 0]]


def test_a_few_rows_are_read_as_they_are_among_many() -> None:
    usual = [str(at / 8) for at in range(40)]
    odd = ["€ 1,200.50", "12 %", "(30)", "nan", "inf", "1e400", "1e39", "x", "9007199254740993",
           "+5", " 7 ", "N/A", "", "é", "30.00-", "#DIV/0!", "TRUE", "-0", "1e5", "0x1A"]  # fmt: skip
    cells: dict[str, list[Any]] = {
        "plain": usual,
        "odd": odd * 2,
        "loose": ["2.5", *odd[::-1], *usual[:19]],
        "whole": [2**53 + at for at in range(40)],
        "float": [float("nan"), *range(39)],
        "born": ["2024-01-31", "x"] * 20,
    }
    fields = [
        Field(name=name, kind="number", type="date" if name == "born" else "number", loose=name == "loose")
        for name in cells
    ]  # fmt: skip
    train = {name: ["2024-01-31"] if name == "born" else ["1.5"] for name in cells}
    fitted = TablePreprocessing.fit(fields, [rows(train)])
    many = fitted.apply(rows({name: values * 26 for name, values in cells.items()}))
    few = [
        fitted.apply(rows({name: [values[at]] for name, values in cells.items()}, first=at + 1))
        for at in range(40)
    ]
    assert [at for at, one in enumerate(few) if len(one.kept)] == many.kept[
        : many.kept.searchsorted(40)
    ].tolist()
    inputs = np.concatenate([one.inputs["table"] for one in few])
    np.testing.assert_array_equal(inputs, many.inputs["table"][: len(inputs)])
    assert [str(found) for one in few for found in one.problems] == [
        str(found) for found in many.problems if found.row <= 40
    ]
    assert 5 < len(inputs) < 40

"""What the values of a table mean: equal values are equal in every format, and nothing is guessed from a few rows."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from podium.data.preprocessing.table import Field
from podium.data.values import Guess, normal, to_days, to_flags, to_numbers, to_text
from podium.errors import InvalidInput

TYPES: dict[str, tuple[Any, str]] = {
    "integers": (["1", " 2 ", "", "-3", "+4"], "integer"),
    "numbers": (["1", "2.5", "NA", "1e-3"], "number"),
    "postal codes": (["01067", "53113"], "text"),
    "truth": (["True", "false", "?"], "boolean"),
    "near and far": (["n", "f", "F"], "text"),
    "no and yes": (["n", "Y", "no", "1"], "boolean"),
    "dates": (["2026-01-31", "2026-02-01T12:00:00", "2026-02-01T12:00:00Z"], "date"),
    "words": (["1", "2", "two"], "text"),
    "nothing": (["", "NA", "null"], "empty"),
    "dates of spreadsheets": (
        ["2026/01/31", "2026/2/1 9:30", "1-Feb-2026", "2026-02-01 9:30 PM"],
        "date",
    ),
    "dates of East Asia": (
        ["2026年1月31日", "2026. 1. 31.", "2026.01.31", "2026년 1월 31일"],
        "date",
    ),
    "dates with hyphens": (["31-1-2026", "1-2-2026 10:30"], "day/month/year"),
    "no dates": (["2026.1.0", "2026.12.3"], "text"),
    "versions": (["2026.1.2.1", "2026.12.3.1"], "text"),
    "moments of databases": (
        [
            "2026-01-31 10:00:00.123456789",
            "2026-01-31T10:00:00.1234567Z",
            "2026-01-31 10:00:00 UTC",
            "2026-01-31 10:00:00.5 UTC",
            "2026-01-31 11:00:00 +0100",
        ],
        "date",
    ),
    "typed integers": ([1, None], "integer"),
    "typed numbers": ([1.5, math.nan], "number"),
    "typed truth": ([True, None], "boolean"),
    "typed days": (pa.array(np.array(["2026-01-31"], "datetime64[D]")), "date"),
    "typed moments": (pa.array([0], pa.timestamp("ns", "Europe/Berlin")), "date"),
    "encoded words": (pa.array(["a", "b", None]).dictionary_encode(), "text"),
    "decimals": (pa.array(["1.5"]).cast(pa.decimal128(5, 2)), "number"),
    "decimals without a fraction": (pa.array(["1", None]).cast(pa.decimal128(38, 0)), "integer"),
    "decimals as names": (pa.array(["12345678901234567891"]).cast(pa.decimal128(38, 0)), "text"),
}


@pytest.mark.parametrize("case", TYPES)
def test_the_type_follows_from_all_values(case: str) -> None:
    values, expected = TYPES[case]
    guess = Guess(case)
    guess.add(pa.array(values) if isinstance(values, list) else values)
    assert guess.type == expected


@pytest.mark.parametrize("scale", [0, 9])
def test_long_decimals_stay_apart(scale: int) -> None:
    names = ["12345678901234567891", "12345678901234567892"]
    values = pa.array(names).cast(pa.decimal128(38, scale))
    assert to_text(values).to_pylist() == names
    assert normal(values)[1].to_pylist() == normal(pa.array(names))[1].to_pylist()


@pytest.mark.parametrize(
    "text",
    ["2026-01-31 10:00:00 UTC", "2026-01-31T10:00:00.000000999Z", "2026-01-31 12:30:00 +0230"],
)
def test_a_moment_is_one_in_every_zone(text: str) -> None:
    assert to_days(pa.array([text]))[0] == to_days(pa.array(["2026-01-31T10:00:00"]))[0]


def test_one_late_word_makes_a_column_text() -> None:
    guess = Guess("age")
    for batch in (["1", "2"], ["3", "four"]):
        guess.add(pa.array(batch))
    assert (guess.type, guess.count, guess.missing) == ("text", 4, 0)


def test_row_numbers_and_constants_are_noticed() -> None:
    numbers, constant = Guess("id"), Guess("country")
    for batch in (["1", "2"], ["3", "4"]):
        numbers.add(pa.array(batch))
        constant.add(pa.array(["DE", ""]))
    assert (numbers.counting, numbers.constant) == (True, False)
    assert (constant.counting, constant.constant, constant.missing) == (False, True, 2)


@pytest.mark.parametrize(
    "values", [["1", "2.5", "NaN", "-1e3"], [1, 2.5, None, -1000], [1.0, 2.5, math.nan, -1e3]]
)
def test_numbers_are_equal_in_every_format(values: list[Any]) -> None:
    numbers, bad = to_numbers(pa.array(values))
    np.testing.assert_array_equal(numbers, [1, 2.5, np.nan, -1000])
    assert bad.null_count == 4


@pytest.mark.parametrize("values", [["1", "x", "", "1,5"], ["1", "0x10", None, "1e999"]])
def test_what_is_not_a_finite_number_is_reported(values: list[Any]) -> None:
    numbers, bad = to_numbers(pa.array(values))
    np.testing.assert_array_equal(numbers, [1, np.nan, np.nan, np.nan])
    assert bad.to_pylist() == [None, values[1] if values[1] == "x" else "0x10", None, values[3]]


def test_marks_of_missing_numbers_are_missing() -> None:
    for values in (
        ["1", "-", "n/a", ".", "NaN", "inf", "-Infinity", "#DIV/0!", "#WERT!", "#NOMBRE?", "#NV"],
        ["1", r"\N", "(null)", "n.d.", "k.A.", "Not available"],
        [1.0, math.nan, math.inf, None],
    ):
        numbers, bad = to_numbers(pa.array(values))
        assert np.isnan(numbers).tolist() == [False] + [True] * (len(values) - 1)
        assert bad.null_count == len(values)
    assert to_numbers(pa.array(["1", "-"]), ())[1].to_pylist() == [None, "-"]
    assert to_text(pa.array(["+", "-"])).to_pylist() == ["+", "-"]


def test_money_percent_and_thousands_are_numbers() -> None:
    written = ["$5", "-$5", "€1,234.50", "45%", "1,234", "5 EUR", "2'000", "1.5e3"]
    numbers, bad = to_numbers(pa.array([*written, "1,23", "$", "5 cats"]))
    np.testing.assert_array_equal(numbers[:8], [5, -5, 1234.5, 0.45, 1234, 5, 2000, 1500])
    assert bad.drop_null().to_pylist() == ["1,23", "$", "5 cats"]
    abroad = ["1200 zł", "R$ 1,200", "US$1,200.00", "1200 руб.", "1,200円", "Rs. 1,200", "1200 kr"]
    assert to_numbers(pa.array(abroad))[0].tolist() == [1200] * len(abroad)
    spaced = ["1,200\u00a0€", "1\u202f200\u00a0€", "€\u202f1200", "120000\u00a0%"]
    assert to_numbers(pa.array(spaced))[0].tolist() == [1200] * len(spaced)
    indian, bad = to_numbers(
        pa.array(["1,23,456", "12,34,56,789.5", "₹ 1,00,000", "1,2,345", "1,23,45"])
    )
    np.testing.assert_array_equal(indian, [123456, 123456789.5, 100000, np.nan, np.nan])
    assert bad.drop_null().to_pylist() == ["1,2,345", "1,23,45"]


def test_negative_numbers_of_bookkeepers_are_numbers() -> None:
    written = ["(30)", "(1,234.50)", "($5)", "$(5)", "\u221228", "\u20131.5", "-5%", "1,234.50-"]
    numbers, bad = to_numbers(pa.array([*written, "(a)", "(-5)", "2-", "10.-", "1\u20132"]))
    expected = [-30, -1234.5, -5, -5, -28, -1.5, -0.05, -1234.5]
    np.testing.assert_array_equal(numbers, [*expected, *[np.nan] * 5])
    assert bad.drop_null().to_pylist() == ["(a)", "(-5)", "2-", "10.-", "1\u20132"]


def test_a_few_other_values_among_numbers_are_missing() -> None:
    guess = Guess("age")
    guess.add(pa.array([*map(str, range(97)), "old", "-", "n/a"]))
    assert (guess.type, guess.exact, guess.examples["integer"]) == ("integer", "text", ["old"])
    guess.add(pa.array(["young"] * 5))
    assert guess.type == "text"


def test_whole_numbers_beyond_float64_are_names() -> None:
    ids = [12345678901234567, 12345678901234568]
    for values in (ids, list(map(str, ids))):
        guess = Guess("id")
        guess.add(pa.array(values))
        assert (guess.type, guess.huge) == ("text", True)
        assert to_numbers(pa.array(values))[1].to_pylist()[0] == "12345678901234567"
    assert to_numbers(pa.array(["100000000000000000"]))[0].tolist() == [1e17]


SAME = [
    [1, 0, None],
    [1.0, 0.0, math.nan],
    ["1", "0", ""],
    ["1.0", "-0", "NA"],
    [" +1", "0.00", "?"],
]


@pytest.mark.parametrize("values", SAME)
def test_a_value_has_one_normal_form(values: list[Any]) -> None:
    assert to_text(pa.array(values)).to_pylist() == ["1", "0", None]
    numbers, texts = normal(pa.array(values))
    np.testing.assert_array_equal(numbers, [1, 0, np.nan])
    assert texts.null_count == 3


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        ["true", "FALSE"],
        ["Yes", "no"],
        ["T", "F"],
        ["WAHR", "falsch"],
        ["1", "0"],
        [1, 0],
        [1.0, 0.0],
    ],
)
def test_truth_values_of_a_boolean_column_have_one_meaning(values: list[Any]) -> None:
    assert to_flags(pa.array(values)).to_pylist() == ["true", "false"]
    assert normal(pa.array(values), boolean=True)[0].tolist() == [1, 0]
    if isinstance(values[0], str | bool) and values[0] != "1":
        assert normal(pa.array(values))[1].null_count == 0


@pytest.mark.parametrize("values", [["7", "8", ""], [7, 8, None], [7.0, 8.0, None]])
def test_whole_numbers_are_equal_categories_in_every_format(values: list[Any]) -> None:
    assert to_text(pa.array(values)).to_pylist() == ["7", "8", None]


def test_dates_are_days_in_utc() -> None:
    text = pa.array(["1970-01-02", "1970-01-01T12:00:00Z", "1970-01-01T12:00:00+06:00", "soon", ""])
    days, bad = to_days(text)
    np.testing.assert_allclose(days, [1, 0.5, 0.25, np.nan, np.nan])
    assert bad.to_pylist() == [None, None, None, "soon", None]
    written = [
        "1970/01/02",
        "1970/1/2 6:00",
        "2.1.1970 6:00",
        "02-Jan-1970",
        "1970-01-02 6:00 PM",
        "1970-01-02 12:00 am",
        "1970/01/02 1:00:00 PM GMT+1",
        "1970/01/02 12:30:00 AM GMT-5:30",
    ]
    days, bad = to_days(pa.array(written))
    np.testing.assert_allclose(days, [1, 1.25, 1.25, 1, 1.75, 1, 1.5, 1.25])
    assert bad.null_count == len(written)
    typed = to_days(pa.array([43_200_000_000, None], pa.timestamp("us", "Europe/Berlin")))[0]
    np.testing.assert_allclose(typed, [0.5, np.nan])


@pytest.mark.parametrize(
    "values", [pa.array([[1], [2]]), pa.array([b"a"]), pa.array([1], pa.duration("s"))]
)
def test_lists_bytes_and_durations_are_refused(values: pa.Array) -> None:
    with pytest.raises(InvalidInput, match="a table holds numbers, texts, dates and truth values"):
        to_text(values)


def test_small_floats_are_read_as_large_ones() -> None:
    guess = Guess("x")
    values = pa.array([1.5, 2, None], pa.float32())
    guess.add(values)
    assert guess.type == "number"
    assert to_text(values).to_pylist() == ["1.5", "2", None]
    np.testing.assert_array_equal(to_numbers(values)[0], [1.5, 2, np.nan])


def test_slashed_dates_tell_their_order_or_are_text() -> None:
    for dates, kind in {("31/1/2026", "1/2/2026"): "day/month/year", ("1/31/2026 9:00 PM", "2/1/2026"): "month/day/year",
                        ("1/2/2026",): "text", ("31/1/2026", "1/31/2026"): "text"}.items():  # fmt: skip
        guess = Guess("day")
        for date in dates:
            guess.add(pa.array([date]))
        assert (guess.type, guess.slashed) == (kind, True)
    days, bad = to_days(
        pa.array(["31/1/2026", "1/2/2026 12:00", "2026-02-01"]), kind="day/month/year"
    )
    np.testing.assert_array_equal(days, [20484, 20485.5, 20485])
    assert bad.null_count == 3


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([7, 5, 6, 4], True),
        ([-1, 0, 1], True),
        ([1, 1, 3, 3], False),
        ([1, 2, 4], False),
        ([2**62, 1, 2, 3], False),
    ],
)
def test_row_numbers_are_noticed_in_any_order(numbers: list[int], expected: bool) -> None:
    guess = Guess("id")
    for number in numbers:
        guess.add(pa.array([number]))
    assert guess.counting is expected


def test_a_letter_is_one_in_both_of_its_unicode_forms() -> None:
    assert len(set(to_text(pa.array(["Café", "Cafe\u0301"])).to_pylist())) == 1


def test_a_category_is_one_with_and_without_exponent() -> None:
    """Pandas writes 1e-05 where a person writes 0.00001; a code such as 1e5 is what it says."""
    rate = Field(name="rate", kind="category", type="number")
    written, typed = pa.array(["1e5", "1E-05", "0.1", "2.0"]), pa.array([1e5, 1e-5, 0.1, 2.0])
    plain = ["100000", "0.00001", "0.1", "2"]
    assert [rate.read(values, ())[0].to_pylist() for values in (written, typed)] == [plain, plain]
    code = Field(name="code", kind="category", type="text")
    assert code.read(written, ())[0].to_pylist()[0] == "1e5"

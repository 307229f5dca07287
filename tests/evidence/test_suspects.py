"""What looks like a mistake in a table or in pictures is said, with a hint that works."""

import logging
import re
import shlex
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from podium.cli.data import _summary
from podium.data import artifact, look, preprocessing
from podium.data.artifact import DatasetInfo
from podium.data.blocks import Selection
from podium.data.dataset import load_dataset
from podium.data.items import read_items
from podium.data.look import _charts
from podium.data.near import NearItems
from podium.data.option_text import options_as
from podium.data.preprocessing import TablePreprocessing
from podium.data.schema import Column, InputDescription
from podium.data.split import Split
from podium.data.suspects import _find_answers, _near_duplicates, _near_rows, told_class
from podium.data.values import broken_text, twin_names
from podium.errors import InvalidInput
from podium.steps.examples import _shown as shown_item
from podium.steps.prepare_data import DataSettings, prepare_data

Prepare = Callable[..., tuple[DatasetInfo, str]]


@pytest.fixture
def prepare(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Prepare:
    """Prepare data; return their description, and what was said."""

    def run(dataset: str, target: str = "label", **options: Any) -> tuple[DatasetInfo, str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "podium.data"):
            info = prepare_data(
                DataSettings(dataset=dataset, target=target, data_options=options),
                tmp_path / "data",
            )
        return info, caplog.text

    return run


def frame(rows: int = 300) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    noise = {name: draw.normal(size=rows).round(4) for name in "abcd"}
    return pd.DataFrame(
        {
            **noise,
            "city": draw.choice(["Bonn", "Kiel"], rows),
            "label": draw.choice(["y", "n"], rows),
        }
    )


def columns(info: DatasetInfo) -> list[str]:
    return [column.name for column in info.inputs["table"].columns]


def test_the_index_of_a_dataframe_is_no_feature(prepare: Prepare, tmp_path: Path) -> None:
    frame().sample(frac=1, random_state=1).to_parquet(tmp_path / "a.parquet")
    info, said = prepare(f"table:{tmp_path / 'a.parquet'}")
    assert columns(info) == ["a", "b", "c", "d", "city"]
    assert "column __index_level_0__ is the index of a DataFrame and is left out" in said
    frame().sample(frac=1, random_state=1).reset_index(names="Unnamed: 0").to_csv(
        tmp_path / "a.csv", index=False
    )
    assert columns(prepare(f"table:{tmp_path / 'a.csv'}")[0]) == ["a", "b", "c", "d", "city"]


def test_a_line_says_what_columns_were_taken_for(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table.loc[:24, "a"] = None
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "CSV, separated by a comma, 300 rows: 4 numbers, 1 category of 2, " in said
    assert re.search(r", \d\d missing values in the \d\d\d training rows\n", said)


def test_a_column_of_names_is_an_id(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["patient_id"] = [
        f"p{number % 280:05}" for number in np.random.default_rng(1).permutation(300)
    ]
    table.to_csv(tmp_path / "a.csv", index=False)
    assert (
        "as an id does; leave it out: drop=[patient_id]"
        in prepare(f"table:{tmp_path / 'a.csv'}")[1]
    )
    info, said = prepare(f"table:{tmp_path / 'a.csv'}", drop=["patient_id"])
    assert "patient_id" not in columns(info)
    assert "as an id does" not in said


@pytest.mark.parametrize("kind", ["number", "category", "regression"])
def test_a_column_that_is_the_answer_is_named(prepare: Prepare, tmp_path: Path, kind: str) -> None:
    table, draw = frame(), np.random.default_rng(2)
    if kind == "regression":
        table["label"] = draw.normal(size=300)
        table["leak"] = table["label"] * 3 + 1
    elif kind == "number":
        table["leak"] = (table["label"] == "y") * 5 + draw.random(300)
    else:
        table["leak"] = table["label"].map({"y": "granted", "n": "refused"})
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column leak looks like the answer" in said
    assert said.count("looks like the answer") == 1


def test_days_before_months_are_dates(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    days = pd.date_range("2025-03-01", periods=300)
    table["day"] = days.strftime("%d.%m.%Y")
    table.to_csv(tmp_path / "a.csv", index=False)
    info, said = prepare(f"table:{tmp_path / 'a.csv'}")
    assert (
        next(column for column in info.inputs["table"].columns if column.name == "day").kind
        == "number"
    )
    assert "divide them so: time=day" in said
    said = prepare(f"table:{tmp_path / 'a.csv'}", time="day")[1]
    assert (
        "train until 2025-10-29, validation from 2025-10-30 until 2025-11-25, test from 2025-11-26"
        in said
    )


def test_items_that_come_again_may_do_so_in_time(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    table = pd.DataFrame(draw.integers(0, 3, (400, 3)), columns=[*"abc"])
    table["year"], table["label"] = np.repeat(range(2016, 2026), 40), draw.choice(["y", "n"], 400)
    table.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InvalidInput, match=r"^but for year and the target, \d+ of the ") as error:
        prepare(f"table:{tmp_path / 'a.csv'}", time="year")
    assert "come again as time goes on, accept them: allow_duplicates=true" in error.value.hint
    prepare(f"table:{tmp_path / 'a.csv'}", time="year", allow_duplicates=True)


@pytest.mark.parametrize("kind", ["bins", "above", "level"])
def test_ranges_of_the_target_are_named(kind: str, prepare: Prepare, tmp_path: Path) -> None:
    table = frame(600)
    table["label"] = np.random.default_rng(6).normal(size=600)
    ranks = table["label"].rank()
    made = {"bins": pd.qcut(ranks, 9).astype(str), "above": ranks > 250, "level": ranks // 150}
    table["made"] = made[kind]
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column made divides label into ranges that do not overlap, so it may be made of it, if they do not both rise with time: unless it is known when the model is used, leave it out: drop=[made]" in said  # fmt: skip


def test_ties_of_a_sorted_file_divide_no_target(prepare: Prepare, tmp_path: Path) -> None:
    table, draw = frame(5000), np.random.default_rng(7)
    table["label"] = draw.integers(1, 6, 5000) + 0.5
    table.sort_values("city").to_csv(tmp_path / "a.csv", index=False)
    assert "divides" not in prepare(f"table:{tmp_path / 'a.csv'}", kind="regression")[1]


@pytest.mark.parametrize("step", [-2, -1, 0, 1, 2])
def test_what_a_series_has_later_is_named(step: int, prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    table = frame(400).drop(columns="city")
    table["label"] = draw.normal(size=400).cumsum().round(3)
    table["day"] = pd.date_range("2025-01-01", periods=400).astype(str)
    table["other"] = table["label"].shift(step).fillna(0) if step else draw.normal(size=400)
    table.sample(frac=1, random_state=1).to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", time="day")[1]
    sentence = f"column other is the label {-step} {'row' if step == -1 else 'rows'} later"
    assert (sentence in said) == (step < 0)
    assert ("drop=[other]" in said) == (step < 0)


def test_sentences_of_two_classes_are_counted(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(9)
    words = [" ".join(draw.choice([*"abcdefghij"], 8)) for _ in range(300)]
    table = pd.DataFrame({"text": words, "label": ["y", "n"] * 150})
    table.to_csv(tmp_path / "a.csv", index=False)
    assert "more than one class" not in prepare(f"text:{tmp_path / 'a.csv'}")[1]
    table.loc[1:40:2, "text"] = [f"{text}!" for text in table["text"][0:40:2]]
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"text:{tmp_path / 'a.csv'}")[1]
    assert "40 of 300 sentences are there with more than one class, for example items 1 and 2" in said  # fmt: skip


@pytest.mark.parametrize(("groups", "rows"), [(4, 1200), (60, 600), (600, 1200)])
def test_few_groups_say_less_than_their_items(
    groups: int, rows: int, prepare: Prepare, tmp_path: Path
) -> None:
    table = frame(rows)
    table["who"] = [f"p{at % groups}" for at in range(rows)]
    table.to_csv(tmp_path / "a.csv", index=False)
    info, said = prepare(f"table:{tmp_path / 'a.csv'}", group="who")
    few = re.search(r"the test part has only (\d) groups?, of (\d+) items: items of a group may be alike", said)  # fmt: skip
    assert bool(few) == (groups < 600)
    if few:
        assert int(few[2]) == info.parts["test"].count
    assert ("an accuracy of .90 on it means" in said) == (groups == 600)
    assert ("and more where items of a group are alike" in said) == (groups == 600)


def test_copies_at_other_hours_drop_the_column_of_the_file(
    prepare: Prepare, tmp_path: Path
) -> None:
    table, draw = frame(600), np.random.default_rng(10)
    days = [f"2025-03-{day:02}" for day in draw.integers(1, 9, 600)]
    table["asked"] = [f"{day} 10:{at // 60:02}:{at % 60:02}" for at, day in enumerate(days)]
    copies = table.assign(asked=[f"{day} 21:{at // 60:02}:{at % 60:02}" for at, day in enumerate(days)])  # fmt: skip
    pd.concat([table, copies]).to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", split_by=["asked"])[1]
    assert "among the training rows but for asked_seconds: " in said
    assert "or leave it out: drop=[asked]\n" in said


def test_times_in_the_order_of_the_classes_are_the_answer(prepare: Prepare, tmp_path: Path) -> None:
    table = frame(600).sort_values("label")
    table["asked"] = pd.date_range("2025-03-01", periods=600, freq="h").astype(str)
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column asked looks like the answer, since it predicts label alone" in said


def test_a_made_column_is_dropped_with_its_own(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["paid"] = np.where(table["label"] == "y", table["a"], None)
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", missing="indicator")[1]
    assert re.search(r"column paid_missing looks like the answer, .*: drop=\[paid\]\n", said)


@pytest.mark.parametrize("kind", ["number", "category", "date"])
@pytest.mark.parametrize("side", ["with", "without"])
def test_a_value_that_one_class_alone_has_is_named(
    kind: str, side: str, prepare: Prepare, tmp_path: Path
) -> None:
    table, draw = frame(600), np.random.default_rng(3)
    values = {
        "number": pd.Series(draw.normal(size=600).round(3)),
        "category": pd.Series(draw.choice(["moved", "price"], 600)),
        "date": pd.Series(pd.date_range("2025-03-01", periods=600).astype(str)),
    }[kind]
    one = (table["label"] == "y") & (draw.random(600) < 0.5)
    table["paid"] = values.where(one if side == "with" else ~one)
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert re.search(rf"label is 'y' in all 1\d\d training rows {side} a value of paid: ", said)


def test_of_many_rows_those_looked_at_are_said(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.data.suspects._MOST_ROWS", 300)
    table, draw = frame(600), np.random.default_rng(3)
    one = (table["label"] == "y") & (draw.random(600) < 0.5)
    table["paid"] = pd.Series(draw.normal(size=600).round(3)).where(one)
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert re.search(r"a value of paid, of the [12]\d\d looked at: ", said)
    assert "leave it out: drop=[paid]" in said


def test_a_value_that_few_lack_tells_no_class(prepare: Prepare, tmp_path: Path) -> None:
    table, draw = frame(600), np.random.default_rng(4)
    table["visits"] = np.where(table["label"] == "y", 0, draw.poisson(1, 600))
    table.loc[table.index[:3], "visits"] = None
    table["weight"] = np.where(draw.random(600) < 0.4, None, draw.normal(size=600))
    table["late"] = np.where((table["label"] == "y") & (draw.random(600) < 0.03), 1.5, None)
    table.to_csv(tmp_path / "a.csv", index=False)
    assert "a value of" not in prepare(f"table:{tmp_path / 'a.csv'}")[1]


@pytest.mark.parametrize("style", ["%d%m%Y", "%Y%m%d"])
def test_numbers_that_are_dates_are_times(prepare: Prepare, tmp_path: Path, style: str) -> None:
    table = frame()
    table["day"] = pd.date_range("2025-03-01", periods=300).strftime(style).str.lstrip("0")
    table.sample(frac=1, random_state=1).to_csv(tmp_path / "a.csv", index=False)
    assert "test from 2025-11-26" in prepare(f"table:{tmp_path / 'a.csv'}", time="day")[1]


def test_decimal_commas_are_found_and_kept_for_prediction(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["price"] = [f"{1000 + number}.{number:03},5".replace(".", ".") for number in range(300)]
    table.drop(columns="price").to_csv(tmp_path / "plain.csv", index=False)
    table["price"] = [f"1.{number:03},5" for number in range(300)]
    table.to_csv(tmp_path / "a.csv", index=False, sep=";", decimal=",")
    info, said = prepare(f"table:{tmp_path / 'a.csv'}")
    assert "with decimal commas" in said
    assert {column.name for column in info.inputs["table"].columns if column.kind == "number"} == {
        *"abcd",
        "price",
    }
    assert info.preprocessing["decimal"] == ","
    prices = np.concatenate(
        [artifact.load(tmp_path / "data", part).inputs["table"][:, -1] for part in artifact.PARTS]
    )
    assert sorted(prices) == [1000.5 + number for number in range(300)]


def test_a_wide_file_of_a_spreadsheet_is_read(prepare: Prepare, tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False, sep="\t", encoding="utf-16")
    assert columns(prepare(f"table:{tmp_path / 'a.csv'}")[0]) == ["a", "b", "c", "d", "city"]


def test_groups_under_two_names_are_named(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["patient"] = [f"{'Pp'[number % 2]}{number % 60 // 2}" for number in range(300)]
    table.to_csv(tmp_path / "a.csv", index=False)
    assert (
        "30 groups of patient may be one under two names"
        in prepare(f"table:{tmp_path / 'a.csv'}", group="patient")[1]
    )


@pytest.mark.parametrize(
    "mark", ["1970-01-01", "1900-01-01", "9999-12-31", "0001-01-01", "2040-05-05"]
)
def test_dates_that_mean_none_are_named(mark: str, prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    days = pd.date_range("2020-01-01", periods=len(table)).strftime("%Y-%m-%d").to_series()
    table["end"] = days.where(table.index % 4 > 0, mark).to_list()
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert f"column end is {mark} in " in said or mark == "2040-05-05"
    said = prepare(f"table:{tmp_path / 'a.csv'}", time="end")[1]
    assert f"75 of 300 items have the time {mark}" in said
    table.assign(end=days.to_list()).to_csv(tmp_path / "a.csv", index=False)
    assert "have the time" not in prepare(f"table:{tmp_path / 'a.csv'}", time="end")[1]


def test_a_near_date_is_called_frequent_not_far(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    days = pd.date_range("1969-12-02", periods=len(table)).strftime("%Y-%m-%d").to_series()
    table["end"] = days.where(days.index >= "1970-01-02", "1970-01-01").to_list()
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "training rows, far more often than any of its other dates: if it means" in said
    said = prepare(f"table:{tmp_path / 'a.csv'}", time="end")[1]
    assert (
        "31 of 300 items have the time 1970-01-01, far more often than any other time: if" in said
    )


def test_a_late_hour_that_means_none_keeps_its_date(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    hours = pd.date_range("2020-01-01", periods=len(table), freq="h").strftime("%Y-%m-%d %H:%M:%S")
    table["end"] = hours.to_series().where(table.index % 4 > 0, "1969-12-31 19:00:00").to_list()
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", time="end")[1]
    assert "items have the time 1969-12-31T19:00:00, far from all other times: if" in said


@pytest.mark.parametrize("start", ["1970-01-01", "1900-01-01"])
def test_a_series_may_begin_at_a_known_date(start: str, prepare: Prepare, tmp_path: Path) -> None:
    years = pd.date_range(start, periods=50, freq="YS").strftime("%Y-%m-%d")
    frame().assign(year=[*years] * 6).to_csv(tmp_path / "a.csv", index=False)
    assert "have the time" not in prepare(f"table:{tmp_path / 'a.csv'}", time="year")[1]


@pytest.mark.parametrize("absent", [-1, "unknown", "#REF!"])
def test_a_group_that_means_none_is_named(absent: Any, prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    patients = [at % 40 + 1000 for at in table.index]
    table["patient"] = [name if at % 9 else absent for at, name in enumerate(patients)]
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", group="patient")[1]
    assert f"34 rows are of the group {str(absent)!r} of patient: if that means" in said
    table.assign(patient=patients).to_csv(tmp_path / "a.csv", index=False)
    assert "if that means" not in prepare(f"table:{tmp_path / 'a.csv'}", group="patient")[1]


@pytest.mark.parametrize(
    ("classes", "absent"),
    [
        (["y", "n", "#DIV/0!"], "#DIV/0!"),
        ([-1, 0, 1, 2], "-1"),
        ([1, 2, 3, 99], "99"),
        ([0, 1, 2, -999], "-999"),
        ([-1, 0, 1], ""),
        ([-1, 1], ""),
        ([1, 2, 3, 9], ""),
        (["y", "n", "unknown"], ""),
        (["#fun!", "#why?", "#sad"], ""),
        (["y", "n", "#NOMBRE?"], "#NOMBRE?"),
    ],
)
def test_a_class_that_means_none_is_named(
    classes: list[Any], absent: str, prepare: Prepare, tmp_path: Path
) -> None:
    table = frame().assign(label=[classes[at % len(classes)] for at in range(300)])
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert ("may mean that none is known" in said) == bool(absent)
    assert f"the class {absent!r} of label may mean" in said or not absent


@pytest.mark.parametrize("change", ["id", "noise"])
def test_rows_that_are_nearly_the_same_are_counted(
    prepare: Prepare, tmp_path: Path, change: str
) -> None:
    table, draw = pd.concat([frame()] * 5, ignore_index=True), np.random.default_rng(3)
    if change == "id":
        table["serial"] = draw.permutation(10 * len(table))[: len(table)]
    else:
        table[list("abcd")] += draw.normal(scale=1e-4, size=(len(table), 4))
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert (
        f"test rows are among the training rows but for {'serial' if change == 'id' else 'rounding'}"
        in said
    )
    frame().to_csv(tmp_path / "a.csv", index=False)
    assert "test rows are training rows" not in prepare(f"table:{tmp_path / 'a.csv'}")[1]


def test_pictures_saved_again_or_mirrored_are_counted(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    for at in range(60):
        folder = tmp_path / "pets" / "ab"[at % 2] / f"scene{at}"
        folder.mkdir(parents=True)
        small = Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8).astype(np.uint8))
        picture = small.resize((64, 64), Image.Resampling.BICUBIC)
        picture.save(folder / "1.png")
        picture.save(folder / "2.jpg", quality=80)
        picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / "3.png")
    said = prepare(f"images:{tmp_path / 'pets'}", "")[1]
    assert "test pictures are like training pictures" in said
    info, said = prepare(f"images:{tmp_path / 'pets'}", "", group="folder")
    assert "like training pictures" not in said
    assert info.split == "by folder"
    info, said = prepare(f"images:{tmp_path / 'pets'}", "", group="(scene[0-9]+)")
    assert "like training pictures" not in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("case", "two classes of class may be one under two names, for example 'Cat' and 'cat'"),
        ("loose", "1 picture left out, since the folder of a class holds none of them"),
        ("frames", "60 pictures have more than one frame or page: only the first is read"),
        ("format", "the format of a file alone tells its class (JPEG, PNG)"),
        ("size", "the size of a file alone tells its class (8x8, 9x9)"),
        (
            "sizes",
            "the size of a file alone tells its class (28 to 396 pixels)",
        ),
        ("one size", "the size of a file alone tells class 'Cat' (8x8)"),
        ("color", "the color of a file alone tells its class (RGB, gray)"),
        ("CMYK", "the color of a file alone tells its class (CMYK, RGB)"),
        ("deep", "the color of a file alone tells its class (16 bit gray, RGB)"),
        ("one of many", "the color of a file alone tells class 'dog' (gray)"),
        ("twice", "1 picture is in two classes: cat/1.png and dog/copy.bmp show the same"),
        ("", ""),
    ],
)
def test_what_picture_files_hide_is_said(
    prepare: Prepare, tmp_path: Path, change: str, sentence: str
) -> None:
    more_classes = {"case": ["cat"], "one of many": ["bird"]}.get(change, [])
    draw, classes = (
        np.random.default_rng(4),
        ("dog", "cat" if change == "twice" else "Cat", *more_classes),
    )
    for at in range(30 * len(classes)):
        name = classes[at % len(classes)]
        folder, special = tmp_path / "pets" / name, name == "dog"
        folder.mkdir(parents=True, exist_ok=True)
        side = 9 if change == "size" and special else 8
        if change == "sizes" or (change == "one size" and special):
            side = int(draw.integers(*((100, 400) if special else (20, 99))))
        pixels = draw.integers(0, 255, (side, side, 3), np.uint8)
        gray = change in ("color", "one of many") and special
        picture = Image.fromarray(pixels[..., 0] if gray else pixels)
        if change == "CMYK" and special:
            picture = picture.convert("CMYK")
        elif change == "deep" and special:
            picture = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
        form = "jpg" if change == "format" and special else "tif" if change == "CMYK" else "png"
        more = {"save_all": True, "append_images": [picture.rotate(90)]}
        picture.save(folder / f"{at}.{form}", **(more if change == "frames" else {}))
    if change == "loose":
        picture.save(tmp_path / "pets" / "1.png")
    if change == "twice":
        Image.open(tmp_path / "pets/cat/1.png").save(tmp_path / "pets/dog/copy.bmp")
    said = prepare(f"images:{tmp_path / 'pets'}", "", resize=[8, 8])[1]
    assert sentence in said
    assert said.count("WARNING") == 1 + bool(sentence), said


@pytest.mark.parametrize("turn", list(Image.Transpose))
@pytest.mark.parametrize("width", [40, 45, 65])
def test_turned_and_mirrored_pictures_are_found_at_any_width(
    turn: Image.Transpose, width: int
) -> None:
    draw = np.random.default_rng(4)
    scenes = [
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).resize((width, 40))
        for _ in range(150)
    ]
    parts = {
        part: Selection(
            part=Split(inputs={"images": np.stack(pictures)}, target=np.zeros(150, np.int64))
        )
        for part, pictures in (
            ("train", scenes),
            ("test", [scene.transpose(turn) for scene in scenes]),
        )
    }
    (said,) = _near_duplicates(parts, {"images": InputDescription(meaning="image")})
    assert said.startswith(
        "150 test pictures are like training pictures, as they are, mirrored or turned"
    )


def test_a_large_constant_is_compared_without_a_warning() -> None:
    rows = np.stack([np.full(60, 20_240_101.0), np.arange(60) / 7], axis=1)
    parts = {
        part: Selection(part=Split(inputs={"table": rows + shift}, target=np.zeros(60, np.int64)))
        for part, shift in (("train", [0.0, 0.0]), ("test", [1.0, 0.0]))
    }
    columns = tuple(Column(name=name, kind="number") for name in ("day", "size"))
    described = {"table": InputDescription(meaning="table", columns=columns)}
    assert _near_duplicates(parts, described) == []


def test_sentences_that_differ_in_punctuation_are_said(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    texts = [" ".join(draw.choice([f"w{at}" for at in range(300)], 5)) for _ in range(100)]
    lines = [
        f'"{style.format(text)}",{"ny"[at % 2]}'
        for style in ("{}", "{}.", "{} !")
        for at, text in enumerate(texts)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    assert (
        "200 sentences are among the others but for punctuation"
        in prepare(f"text:{tmp_path / 'a.csv'}")[1]
    )
    rows = [f"{line},{'test' if at < 100 else 'train'}" for at, line in enumerate(lines)]
    (tmp_path / "b.csv").write_text("\n".join(["text,label,part", *rows]) + "\n")
    said = prepare(f"text:{tmp_path / 'b.csv'}", part="part")[1]
    assert "100 test sentences are among the training sentences but for punctuation" in said


def test_what_tells_in_sentences_or_is_not_read_is_said(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    words = [f"w{at}" for at in range(300)]
    texts = [" ".join(draw.choice(words, 12)) for _ in range(200)]
    table = pd.DataFrame({"text": texts, "label": draw.choice(["good", "bad"], 200)})
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"text:{tmp_path / 'a.csv'}")[1]
    assert "have the word" not in said
    assert "alone is read" not in said
    assert "but for a word or few" not in said
    other = table.assign(text=[text.rpartition(" ")[0] + " other" for text in texts])
    pd.concat([table, other]).to_csv(tmp_path / "a.csv", index=False)
    assert "40 test sentences are training" in prepare(f"text:{tmp_path / 'a.csv'}")[1]
    begun = " ".join(words[:130])
    tagged = table.assign(text=table.label + " " + table.text, lang="en")
    tagged.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"text:{tmp_path / 'a.csv'}")[1]
    assert "all sentences of class 'bad' have the word 'bad' and no others do" in said
    assert "text alone is read, not lang" in said
    table.assign(text=begun + " " + table.text).to_csv(tmp_path / "a.csv", index=False)
    assert "among the others but for punctuation" not in prepare(f"text:{tmp_path / 'a.csv'}")[1]


def test_a_small_test_part_is_said_to_be(prepare: Prepare, tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "the test part has only 30 items: an accuracy of .90 on it means 0.74 to 0.97" in said


@pytest.mark.parametrize("style", ["%d/%m/%Y", "%m/%d/%Y"])
def test_slashed_dates_are_read_where_their_order_is_certain(
    style: str, prepare: Prepare, tmp_path: Path
) -> None:
    table = frame()
    days = pd.date_range("2025-03-01", periods=300)
    table["day"] = days.strftime(style)
    table.to_csv(tmp_path / "a.csv", index=False)
    info, said = prepare(f"table:{tmp_path / 'a.csv'}")
    assert "divide them so: time=day" in said
    parts = [
        artifact.load(tmp_path / "data", part).inputs["table"][:, -1] for part in artifact.PARTS
    ]
    assert sorted(np.concatenate(parts)) == [20148 + at for at in range(300)]
    assert "train until 2025-10-29" in prepare(f"table:{tmp_path / 'a.csv'}", time="day")[1]
    kept = preprocessing.read(info.preprocessing, "")
    assert isinstance(kept, TablePreprocessing)
    (tmp_path / "new.csv").write_text(
        "a,b,c,d,city,day\n1,1,1,1,Bonn," + pd.Timestamp(2026, 4, 3).strftime(style)
    )
    (batch,) = read_items(kept, [str(tmp_path / "new.csv")], tmp_path)
    assert batch.inputs["table"][0, -1] == 20546


def test_dates_of_unknown_order_are_named_and_refused_as_times(
    prepare: Prepare, tmp_path: Path
) -> None:
    table = frame()
    table["day"] = np.random.default_rng(1).choice(["01/02/2025", "03/04/2025", "05/06/2025"], 300)
    table.to_csv(tmp_path / "a.csv", index=False)
    assert (
        "column day looks like dates, but is read as categories"
        in prepare(f"table:{tmp_path / 'a.csv'}")[1]
    )
    with pytest.raises(InvalidInput, match="the day, the month or the year first"):
        prepare(f"table:{tmp_path / 'a.csv'}", time="day")
    table["day"] = table["day"].str.replace("/", "")
    table.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InvalidInput, match="the day, the month or the year first"):
        prepare(f"table:{tmp_path / 'a.csv'}", time="day")


def test_an_index_that_has_a_role_is_not_left_out(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table.index = pd.Index(np.arange(300) // 3, name="patient")
    table.to_parquet(tmp_path / "a.parquet")
    for options in ({"group": "patient"}, {"drop": ["patient"]}, {"numbers": ["patient"]}):
        assert "is the index" not in prepare(f"table:{tmp_path / 'a.parquet'}", **options)[1]


def test_numbers_of_rows_are_known_in_any_order(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["serial"] = np.random.default_rng(1).permutation(300) + 1000
    table["age"] = np.random.default_rng(1).integers(0, 300, 300)
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column serial counts the rows" in said
    assert said.count("counts the rows") == 1


@pytest.mark.parametrize("name", ["patient_id", "my id: x", "no", "1", "it's, so"])
def test_the_hint_to_drop_a_column_works_in_a_shell(
    name: str, prepare: Prepare, tmp_path: Path
) -> None:
    table = frame().assign(**{name: [f"p{number}" for number in range(300)]})
    table.to_csv(tmp_path / "a.csv", index=False)
    hint = prepare(f"table:{tmp_path / 'a.csv'}")[1].partition("leave it out: ")[2].splitlines()[0]
    (word,) = shlex.split(hint)
    _, _, value = word.partition("=")
    assert name not in columns(
        prepare(f"table:{tmp_path / 'a.csv'}", drop=yaml.safe_load(value))[0]
    )


def test_the_hint_to_allow_categories_names_a_number(prepare: Prepare, tmp_path: Path) -> None:
    frame(1500).assign(word=[f"w{at}" for at in range(1500)]).to_csv(
        tmp_path / "a.csv", index=False
    )
    with pytest.raises(InvalidInput) as error:
        prepare(f"table:{tmp_path / 'a.csv'}")
    assert "drop=[word]" in str(error.value.hint)
    assert "max_categories=10000" in str(error.value.hint)
    prepare(f"table:{tmp_path / 'a.csv'}", max_categories=10000)


def test_a_number_that_tells_three_classes_is_the_answer(prepare: Prepare, tmp_path: Path) -> None:
    table, draw = frame(), np.random.default_rng(2)
    table["label"] = draw.choice(list("xyz"), 300)
    table["leak"] = table["label"].map({"x": 5, "y": 0, "z": 10}) + draw.random(300)
    table["one"] = np.where(table["label"] == "x", 100, 0) + draw.random(
        300
    )  # tells a class, as petals of irises do
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column leak looks like the answer" in said
    assert said.count("looks like the answer") == 1


@pytest.mark.parametrize("share", [1.0, 0.2], ids=["all rows", "some rows"])
@pytest.mark.parametrize("kind", ["text", "number"])
def test_an_id_hides_no_copies_of_rows(
    share: float, kind: str, prepare: Prepare, tmp_path: Path
) -> None:
    first = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 6)), columns=list("abcdef"))
    first["label"] = np.random.default_rng(1).choice(["y", "n"], 300)
    table = pd.concat([first, first[: int(share * 300)]], ignore_index=True)
    names = np.random.default_rng(1).permutation(9 * len(table))[: len(table)]
    table["rid"] = [f"r{name}" for name in names] if kind == "text" else names
    table.to_csv(tmp_path / "a.csv", index=False)
    assert (
        "test rows are among the training rows but for rid"
        in prepare(f"table:{tmp_path / 'a.csv'}")[1]
    )


def test_rows_that_meet_by_chance_are_not_called_copies(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    many = pd.DataFrame(draw.normal(size=(50_000, 3)), columns=list("abc"))
    bits = pd.DataFrame(draw.integers(0, 2, (2000, 3)), columns=list("abc")).assign(
        weight=draw.normal(size=2000)
    )
    for table in (many, bits):
        table["label"] = draw.choice(["y", "n"], len(table))
        table.to_csv(tmp_path / "a.csv", index=False)
        assert "training rows" not in prepare(f"table:{tmp_path / 'a.csv'}")[1]


def test_names_that_are_other_numbers_are_other_groups(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["dose"] = np.random.default_rng(1).choice(
        ["1.05", "1.5", "2.05", "2.5", "7", "8", "10", "9"], 300
    )
    table.to_csv(tmp_path / "a.csv", index=False)
    assert "under two names" not in prepare(f"table:{tmp_path / 'a.csv'}", group="dose")[1]
    table["dose"] = np.random.default_rng(1).choice(
        ["1", "1.0", "01", "P1", "p1", "P01", "8", "9"], 300
    )
    table.to_csv(tmp_path / "a.csv", index=False)
    assert "2 groups of dose" in prepare(f"table:{tmp_path / 'a.csv'}", group="dose")[1]
    twins = twin_names(
        "x", ["New York", "New\xa0 York", "new-york", "St. Ann", "St Ann", "P-1", "P1"]
    )
    assert twins.startswith("3 x may be one under two names")
    assert not twin_names("x", ["1-2", "12", "1.2", "A+", "A-", "A", "v1.1", "v11", "é", "e"])


def test_plain_pictures_are_not_called_copies(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    for at in range(80):  # a dark word somewhere on white paper
        page = np.full((64, 64), 255, np.uint8)
        top, left = draw.integers(0, 56, 2)
        page[top : top + 4, left : left + 4] = draw.integers(0, 255, (4, 4))
        (tmp_path / "pages" / "ab"[at % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(page).save(tmp_path / "pages" / "ab"[at % 2] / f"{at}.png")
    assert "like training pictures" not in prepare(f"images:{tmp_path / 'pages'}", "")[1]


def test_pictures_are_compared_without_loading_all_of_them() -> None:
    pictures = np.random.default_rng(0).integers(0, 255, (2400, 64, 64, 3), np.uint8)
    part = Selection(part=Split(inputs={"images": pictures}, target=np.zeros(2400, np.int64)))
    tracemalloc.start()
    _near_duplicates({"train": part, "test": part}, {"images": InputDescription(meaning="image")})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < pictures.nbytes / 2


def test_predictions_read_the_notation_that_a_file_shows(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()[["a", "b", "label"]]
    table.to_csv(tmp_path / "a.csv", index=False, sep=";", decimal=",")
    kept = preprocessing.read(prepare(f"table:{tmp_path / 'a.csv'}")[0].preprocessing, "")
    assert isinstance(kept, TablePreprocessing)
    for text, numbers in {
        "a;b\n1,5;1.234\n": [1.5, 1234],
        "a;b\n1;1.234\n": [1, 1234],
        "a,b\n1.5,1.234\n": [1.5, 1.234],
        "a,b\n1,1.234\n": [1, 1.234],
        "a;b\n1.5;1.234\n": [1.5, 1.234],
    }.items():
        (tmp_path / "new.csv").write_text(text)
        (batch,) = read_items(kept, [str(tmp_path / "new.csv")], tmp_path)
        assert batch.inputs["table"][0].tolist() == pytest.approx(numbers)


def test_predictions_read_groups_of_digits_as_said(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()[["a", "label"]].assign(price=[f"{1000 * at:,}" for at in range(300)])
    table.to_csv(tmp_path / "a.csv", index=False)
    kept = preprocessing.read(
        prepare(f"table:{tmp_path / 'a.csv'}", thousands=",")[0].preprocessing, ""
    )
    assert isinstance(kept, TablePreprocessing)
    (tmp_path / "new.csv").write_text('a,price\n1.5,"12,000"\n')
    (batch,) = read_items(kept, [str(tmp_path / "new.csv")], tmp_path)
    assert batch.inputs["table"][0].tolist() == [1.5, 12000]


def test_rows_of_large_numbers_are_not_called_equal(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    table = pd.DataFrame(
        {"code": 100_000_001 + draw.permutation(400), "stamp": 1_764_000_000_000 + np.arange(400)}
    )
    table["made"] = pd.Timestamp("1966-11-27 01:00:00") + pd.to_timedelta(
        draw.permutation(400), "s"
    )
    table["label"] = draw.choice(["y", "n"], 400)
    for drop in (["stamp", "made"], ["code", "made"], ["code", "stamp"]):
        table.sample(frac=1, random_state=3).to_csv(tmp_path / "a.csv", index=False)
        said = prepare(f"table:{tmp_path / 'a.csv'}", drop=drop)[1]
        assert "items too" not in said
        assert "training rows but for" not in said


def test_large_numbers_are_shown_and_counted_whole(prepare: Prepare, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    table = pd.DataFrame(
        {"code": 100_000_001 + draw.integers(0, 5, 400), "x": draw.normal(size=400).round(5)}
    )
    table["label"] = draw.choice(["y", "n"], 400)
    table.to_csv(tmp_path / "a.csv", index=False)
    info = prepare(f"table:{tmp_path / 'a.csv'}")[0]
    codes = [100_000_000.0 + at for at in range(1, 6)]
    part = load_dataset(tmp_path / "data").train
    assert sorted(set(part.frame["code"])) == codes
    bins = info.profile.inputs["table"].bins[0]
    assert bins.labels[:2] == ("below 100000001", "from 100000001")
    assert bins.labels[-2] == "above 100000005"
    assert bins.count(part.inputs["table"][:, 0]).tolist() == list(bins.counts)
    found = look.statistics(
        artifact.describe(tmp_path / "data"), partial(artifact.load, tmp_path / "data")
    )
    measured = found["parts"]["train"]["inputs"]["table"]
    assert (measured["min"][0], measured["max"][0]) == (codes[0], codes[-1])
    assert measured["mean"][0] == pytest.approx(part.frame["code"].mean(), abs=1e-6)
    assert "100000005" in _summary(found, "train")
    assert shown_item(info, part, 0)["row"]["code"] in [f"{code:.0f}" for code in codes]
    assert {"100000001", "100000005"} <= {
        end for _, *ends, _ in _charts(part, info) for end in ends
    }


def test_a_share_and_a_percentage_in_one_column_are_said(prepare: Prepare, tmp_path: Path) -> None:
    table = frame().assign(rate=[f"{at}%" if at % 2 else f"{at}" for at in range(300)])
    table["fee"] = ["$5", "€6.50"] * 150
    table["paid"] = "$7"
    table["part"] = [f"{at}%" for at in range(300)]
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column rate holds numbers with and without %: 45% is read as 0.45, and 45 as 45" in said
    assert "column fee holds amounts in $ and €" in said
    assert "column paid holds" not in said
    assert "column part holds" not in said


@pytest.mark.parametrize("mark", [-999, 9999, -32768, 1e20])
def test_a_number_for_a_missing_value_is_named(
    mark: float, prepare: Prepare, tmp_path: Path
) -> None:
    table = frame()
    table["income"] = np.where(
        table["b"] > 0.5, 0, 40_000 + table["a"] * 9_000
    )  # some earn nothing
    table.loc[table.index % 7 == 0, "c"] = mark
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert f"column c is {mark:g} in " in said
    assert said.count("leave these cells empty") == 1
    assert f"column c is {mark:g} in " in prepare(f"table:{tmp_path / 'a.csv'}", "c")[1]


def test_a_word_for_a_missing_value_is_named(prepare: Prepare, tmp_path: Path) -> None:
    table = frame().assign(country=["NA", "DE", "US"] * 100)
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column country: NA means missing, in 100 rows; if it is a value" in said
    table.loc[:9, "a"] = np.nan
    table.to_csv(tmp_path / "r.csv", index=False, na_rep="NA")
    assert "means missing" not in prepare(f"table:{tmp_path / 'r.csv'}")[1]


@pytest.mark.parametrize(
    ("form", "hint"),
    [
        ("{0}.5 kg", "write quantities as plain numbers"),
        ("<{0}", "write quantities as plain numbers"),
        ('="{0}.5"', "write quantities as plain numbers"),
        ("{1}h {0} min", "write quantities as plain numbers"),
        ("P1DT{0}M", "write quantities as plain numbers"),
        ("{0},5", shlex.quote('{"decimal": ","}')),
        ("12.03.{0:02}", "write dates as 2026-01-31"),
        ("Jan {1:02}, {0}", "write dates as 2026-01-31"),
        ("unique days", "write dates as 2026-01-31"),
    ],
)
def test_numbers_that_are_read_as_categories_are_named(
    form: str, hint: str, prepare: Prepare, tmp_path: Path
) -> None:
    table = frame().assign(weight=[form.format(1000 + at % 90, at % 28 + 1) for at in range(300)])
    if "{0:02}" in form:
        table["weight"] = [form.format(at % 90) for at in range(300)]
    if form == "unique days":
        table["weight"] = [f"{at % 28 + 1:02}.{at // 28 + 1:02}.20" for at in range(300)]
    table.to_csv(tmp_path / "a.csv", index=False)
    with options_as({}):
        said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert " categories, but most look like numbers or dates, such as" in said
    assert hint in said


@pytest.mark.parametrize("form", ["C{0}", "0{0}", "10.0.0.{0}", "{0:08x}", "{0}-A7"])
def test_codes_are_no_numbers_in_disguise(form: str, prepare: Prepare, tmp_path: Path) -> None:
    table = frame().assign(code=[form.format(7919 * (at % 90)) for at in range(300)])
    table.to_csv(tmp_path / "a.csv", index=False)
    assert "look like numbers" not in prepare(f"table:{tmp_path / 'a.csv'}")[1]


@pytest.mark.parametrize(
    "values",
    [
        [f"{street}th" for street in range(4, 90)],
        [f"{number}{'abc'[number % 3]}" for number in range(1, 90)],
        [f"{number} {['Main', 'Oak', 'Elm', 'Pine'][number % 4]}" for number in range(1, 90)],
        [f"1.{number % 9}.{10 + number}" for number in range(90)],
        [f"10-{10 + number}-4{number % 10}" for number in range(89)],
    ],
)
def test_streets_versions_and_sort_codes_are_categories(
    values: list[str], prepare: Prepare, tmp_path: Path
) -> None:
    table = frame().assign(code=[values[at % len(values)] for at in range(300)])
    table.to_csv(tmp_path / "a.csv", index=False)
    assert "look like numbers" not in prepare(f"table:{tmp_path / 'a.csv'}")[1]


@pytest.mark.parametrize(
    "form", ["{0}班", "{0}年级", "{0}号线", "{0}호선", "{0} класс", "{0}º", "{0}ème"]
)
def test_classes_that_count_things_are_no_amounts(
    form: str, prepare: Prepare, tmp_path: Path
) -> None:
    labels = [form.format(at % 25 + 1) for at in range(300)]
    frame().assign(label=labels).to_csv(tmp_path / "a.csv", index=False)
    prepared = prepare(f"table:{tmp_path / 'a.csv'}")[0]
    assert len(prepared.classes) == 25


@pytest.mark.parametrize("form", ["{0} kg", "{0}公斤", "{0}岁", "{0} см"])
def test_amounts_with_a_unit_are_no_classes(form: str, prepare: Prepare, tmp_path: Path) -> None:
    labels = [form.format(at % 25 + 1) for at in range(300)]
    frame().assign(label=labels).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InvalidInput, match="most look like numbers"):
        prepare(f"table:{tmp_path / 'a.csv'}")


def test_whole_numbers_in_most_rows_may_be_a_quantity(prepare: Prepare, tmp_path: Path) -> None:
    frame().iloc[:60].assign(label=range(20, 80)).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InvalidInput, match="60 different whole numbers") as refused:
        prepare(f"table:{tmp_path / 'a.csv'}")
    assert "kind=regression" in (refused.value.hint or "")


def test_a_target_of_names_is_refused(prepare: Prepare, tmp_path: Path) -> None:
    frame().assign(label=[f"n{at}" for at in range(300)]).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InvalidInput, match=r"label has 300 different values in 300 rows"):
        prepare(f"table:{tmp_path / 'a.csv'}")
    commas = [f"{at % 90 / 10:.2f}".replace(".", ",") for at in range(300)]
    frame().assign(label=commas).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        InvalidInput, match=r"label has 90 different texts.*\nhint: 'decimal=\",\"'"
    ):
        prepare(f"table:{tmp_path / 'a.csv'}")
    assert prepare(f"table:{tmp_path / 'a.csv'}", decimal=",")[0].kind == "regression"


def test_classes_that_may_be_one_or_a_quantity_are_said(prepare: Prepare, tmp_path: Path) -> None:
    frame().assign(label=["cat", "Cat", "dog"] * 100).to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "two classes of label may be one under two names, for example 'Cat' and 'cat'" in said
    frame().assign(label=[at % 30 for at in range(300)]).to_csv(tmp_path / "b.csv", index=False)
    said = prepare(f"table:{tmp_path / 'b.csv'}")[1]
    assert "the target label has 30 different whole numbers, so these are classes" in said


@pytest.mark.parametrize("where", ["class", "category", "text", "header"])
def test_text_of_another_encoding_is_named(where: str, prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["text"] = [f"word{at} in Köln" for at in range(300)]
    table["city"] = table["city"].map({"Bonn": "München", "Kiel": "Köln"})
    table["label"] = table["label"].map({"y": "Größe", "n": "Maß"})
    broken = {"class": ["label"], "category": ["city"], "text": ["text"], "header": []}[where]
    for name in broken:
        table[name] = [text.encode().decode("cp1252") for text in table[name]]
    if where == "header":
        table = table.rename(columns={"d": "GrÃ¶ÃŸe"})
    table.to_csv(tmp_path / "a.csv", index=False)
    kind = "text" if where == "text" else "table"
    options = {"text": "text"} if where == "text" else {"drop": ["text"]}
    said = prepare(f"{kind}:{tmp_path / 'a.csv'}", **options)[1]
    named = {
        "class": "a class of label holds 'GrÃ¶ÃŸe', which is 'Größe' in UTF-8",
        "category": "column city holds 'KÃ¶ln', which is 'Köln' in UTF-8",
        "text": "column text holds 'KÃ¶ln', which is 'Köln' in UTF-8",
        "header": "the name of a column holds 'GrÃ¶ÃŸe', which is 'Größe' in UTF-8",
    }
    assert named[where] in said
    assert said.count("read as Latin-1") == 1


@pytest.mark.parametrize(
    "text",
    [
        "CAFÉ”",
        "LA MAÇÃ’",
        "Å²",
        "Ångström",
        "São Paulo",
        "“À”…",
        "Ä–Ö",
        "ñ",
        "5 Â",
        "ÂÃ",
        "Ð²",
        "été…»",
        "“café…”",
        "cliché”—he",
        "fiancé’”",
        "Nescafé®’s",
        "olá»”",
        "“Só…”—",
    ],
)
def test_other_letters_are_no_broken_text(text: str) -> None:
    assert not broken_text("", [text])


@pytest.mark.parametrize(
    "text", ["“quoted”", "naïve", "Łódź", "Привет", "東京", "l’été", "5 °C", "č"]
)
@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_broken_text_is_told_with_what_it_was(text: str, encoding: str) -> None:
    with suppress(UnicodeDecodeError):
        said = broken_text("a word", ["fine", text.encode().decode(encoding)])
        assert f"which is {text.split()[-1]!r} in UTF-8" in said


def test_files_that_all_differ_in_size_take_no_time() -> None:
    sizes = [f"{at}x{at}" for at in range(30_000)]
    began = time.monotonic()
    assert told_class(sizes, [str(at % 100) for at in range(30_000)]) == ("", [])
    assert time.monotonic() - began < 10


def test_a_value_that_one_class_alone_has_is_an_answer(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    has = table["label"] == "y"
    table["closed"] = pd.date_range("2022-01-01", periods=300).strftime("%Y-%m-%d").where(has, "")
    table["reference"] = pd.Series([f"R{at % 97}" for at in range(300)]).where(has, "")
    table["gap"] = table["a"].where(table["b"] > 0)
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column closed looks like the answer" in said
    assert "column reference looks like the answer" in said
    assert "column gap looks like the answer" not in said


def test_a_target_on_another_scale_is_an_answer(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["price"] = np.exp(table["a"] * 2).round(6)
    table["logarithm"], table["reciprocal"] = np.log(table["price"]), 1 / table["price"]
    table["near"] = table["price"] + table["b"] * table["price"].std()
    table.drop(columns="a").to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", "price")[1]
    assert "column logarithm looks like the answer" in said
    assert "column reciprocal looks like the answer" in said
    assert "column near looks like the answer" not in said


def test_a_category_may_tell_a_number(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    shop = np.random.default_rng(1).integers(12, size=len(table))
    price = np.random.default_rng(2).permutation(12) + 0.5
    table["shop"], table["number"] = [f"shop {at}" for at in shop], shop
    table.assign(label=price[shop]).to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "column shop looks like the answer" in said
    assert "column number looks like the answer" in said
    assert "column city looks" not in said


def test_one_of_several_targets_may_be_an_input(prepare: Prepare, tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).normal(size=(300, 4))
    np.savez(tmp_path / "a.npz", x=inputs, y=np.stack([inputs[:, 1] ** 2, inputs[:, 2]], axis=1))
    said = prepare(f"npz:{tmp_path / 'a.npz'}", "y")[1]
    assert "array x[2] looks like the answer" in said
    assert "x[1]" not in said


def test_rows_that_meet_by_chance_are_no_copies(prepare: Prepare, tmp_path: Path) -> None:
    warned = 0
    for seed in range(20):
        draw = np.random.default_rng(seed)
        pd.DataFrame(
            {
                "a": draw.normal(size=400).round(3),
                "b": draw.normal(size=400).round(2),
                "c": draw.integers(0, 30, 400),
                "label": draw.choice(["y", "n"], 400),
            }
        ).to_csv(tmp_path / "a.csv", index=False)
        warned += "by heart" in prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert warned <= 1


def _taxed(draw: np.random.Generator) -> pd.DataFrame:
    net = draw.lognormal(3, 0.5, 2000).round(2)
    return pd.DataFrame(
        {"net": net, "gross": (net * 1.19).round(2), "kind": draw.choice(["a", "b"], 2000)}
    )


def _shops(draw: np.random.Generator) -> pd.DataFrame:
    shop = draw.integers(0, 20, 2000)
    celsius = draw.normal(12, 8, 2000).round(2)
    return pd.DataFrame(
        {
            "shop": [f"S{at}" for at in shop],
            "latitude": draw.normal(50, 1, 20).round(4)[shop],
            "area": draw.integers(100, 2000, 20)[shop],
            "hundreds": draw.permutation(20)[shop] // 4,
            "celsius": celsius,
            "fahrenheit": (celsius * 1.8 + 32).round(2),
        }
    )


@pytest.mark.parametrize("make", [_taxed, _shops])
def test_columns_that_follow_from_another_make_no_copies(
    make: Callable[[np.random.Generator], pd.DataFrame], prepare: Prepare, tmp_path: Path
) -> None:
    for seed in range(3):
        draw = np.random.default_rng(seed)
        table = make(draw).assign(label=draw.normal(size=2000).round(3))
        table.to_csv(tmp_path / "a.csv", index=False)
        assert "by heart" not in prepare(f"table:{tmp_path / 'a.csv'}")[1]
        table["noise"] = draw.normal(size=2000).round(3)
        name = "shop" if "shop" in table else "kind"
        again = pd.concat([table, table[:600].assign(**{name: table[name].str.swapcase()})])
        again.to_csv(tmp_path / "b.csv", index=False)
        assert "among the training rows but for" in prepare(f"table:{tmp_path / 'b.csv'}")[1]


@pytest.mark.parametrize("kind", ["together", "clusters"])
def test_rows_of_dense_data_are_no_copies(kind: str) -> None:
    draw = np.random.default_rng(0)
    if kind == "together":
        rows = draw.normal(size=(3000, 1)) + draw.normal(size=(3000, 3)) / 10
    else:
        rows = 5 * draw.normal(size=(20, 3))[draw.integers(0, 20, 3000)]
        rows += draw.normal(size=rows.shape) / 20
    columns = [Column(name=name, kind="number") for name in "abc"]
    train, test = rows[300:], rows[:300]
    assert _near_rows(train, test, columns, {}) == []
    copies = train[:60] + 1e-3 * draw.normal(size=(60, 3))
    noise = draw.normal(size=3000)[:, np.newaxis]
    wide = [
        np.hstack([side, noise[: len(side)]]) for side in (train, np.vstack([copies, test[60:]]))
    ]
    (said,) = _near_rows(*wide, [*columns, Column(name="d", kind="number")], {})
    assert "of the 300 test rows are among the training rows but for" in said


def test_copies_in_other_letters_are_copies(prepare: Prepare, tmp_path: Path) -> None:
    draw, table = np.random.default_rng(0), frame(80).drop(columns="d")
    copies = table.loc[draw.integers(0, 80, 600)].reset_index(drop=True)
    copies["city"] = copies["city"].where(draw.random(600) < 0.5, copies["city"].str.upper())
    copies.to_csv(tmp_path / "a.csv", index=False)
    info, said = prepare(f"table:{tmp_path / 'a.csv'}")
    assert "among the training rows but for rounding or case" in said
    parts = {name: artifact.load(tmp_path / "data", name) for name in ("train", "test")}
    selected = {name: Selection(part=part) for name, part in parts.items()}
    near = NearItems.of([selected["train"]], info.inputs)
    assert near is not None
    again = NearItems.from_arrays(near.to_arrays())
    assert again.holds(parts["test"].inputs).mean() > 0.9


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"city": str.upper}, "city is (unknown) in 100%, not 0%, of its items: are both written"),
        ({"a": lambda value: value * 25.4, "b": lambda value: value * 25.4}, "; b is "),
        ({"a": lambda value: None}, "the test part is unlike the others, as a is from "),
        ({}, ""),
    ],
)
def test_a_test_file_written_otherwise_is_said(
    change: dict[str, Any], sentence: str, prepare: Prepare, tmp_path: Path
) -> None:
    rows = frame(1000)
    rows[:700].to_csv(tmp_path / "a.csv", index=False)
    held_out = rows[700:].copy()
    for name, written in change.items():
        held_out[name] = held_out[name].map(written)
    held_out.to_csv(tmp_path / "b.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", test=str(tmp_path / "b.csv"))[1]
    assert sentence in said
    assert ("unlike" in said) == bool(change)


def test_numbers_of_a_small_test_file_meet_training_rows(prepare: Prepare, tmp_path: Path) -> None:
    rows = frame(360)
    rows[:300].to_csv(tmp_path / "a.csv", index=False)
    rows[300:].to_csv(tmp_path / "b.csv", index=False)
    rows[300:].assign(a=rows["a"] * 25.4 + 70).to_csv(tmp_path / "c.csv", index=False)
    source = f"table:{tmp_path / 'a.csv'}"
    assert "unlike" not in prepare(source, test=str(tmp_path / "b.csv"))[1]
    said = prepare(source, test=str(tmp_path / "c.csv"))[1]
    assert "the test part is unlike the others, as a is " in said


@pytest.mark.parametrize(
    ("target", "written", "sentence"),
    [
        ("d", lambda value: value * 1000, "the test part is unlike the others, as d is "),
        (
            "label",
            lambda value: {"y": "n", "n": "y"}[value],
            "unlike the others, as label is n in 8",
        ),
        ("d", lambda value: value * 1.2, ""),
        ("label", lambda value: value, ""),
    ],
)
def test_a_target_in_another_unit_is_said(
    target: str,
    written: Callable[[Any], Any],
    sentence: str,
    prepare: Prepare,
    tmp_path: Path,
) -> None:
    rows = frame(1000)
    rows["label"] = np.where(np.arange(1000) % 7 == 0, "n", "y")
    rows[:700].to_csv(tmp_path / "a.csv", index=False)
    held_out = rows[700:].copy()
    held_out[target] = held_out[target].map(written)
    held_out.to_csv(tmp_path / "b.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}", target, test=str(tmp_path / "b.csv"))[1]
    assert sentence in said
    assert ("unlike" in said) == bool(sentence)


@pytest.mark.parametrize("times", [1, 3])
def test_rows_that_repeat_others_are_counted_once(
    times: int, prepare: Prepare, tmp_path: Path
) -> None:
    table = pd.concat([frame(600)] * times)
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert ("the test part has only 60 different items, of 180: equal" in said) == (times > 1)


@pytest.mark.parametrize(("unit", "is_said"), [(1000, True), (3, False), (0, False)])
def test_outputs_of_unlike_sizes_are_said(
    unit: float, is_said: bool, prepare: Prepare, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    np.savez(
        tmp_path / "a.npz", x=draw.normal(size=(300, 2)), y=draw.normal(size=(300, 2)) * [1, unit]
    )
    said = prepare(f"npz:{tmp_path / 'a.npz'}", "y")[1]
    assert ("compare models by metric=r2" in said) == is_said


def test_nothing_is_near_a_single_item(prepare: Prepare, tmp_path: Path) -> None:
    frame(80).to_csv(tmp_path / "a.csv", index=False)
    info, _ = prepare(f"table:{tmp_path / 'a.csv'}")
    train = artifact.load(tmp_path / "data", "train")
    assert NearItems.of([Selection(part=train, index=np.array([0]))], info.inputs) is None


@pytest.mark.parametrize(("rows", "found"), [(19, []), (20, ["x"])])
def test_twenty_rows_tell_which_column_is_the_answer(rows: int, found: list[str]) -> None:
    answer = np.arange(rows) % 2
    columns = [Column(name="x", kind="number")]
    assert _find_answers(answer[:, np.newaxis].astype(np.float32), answer, columns) == found

"""What looks like a mistake in a table or in pictures is said, with a hint that works."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from podium.data import artifact
from podium.data.artifact import DatasetInfo
from podium.steps.prepare_data import DataSettings, prepare_data

Prepare = Callable[..., tuple[DatasetInfo, str]]


@pytest.fixture
def prepare(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Prepare:
    """Prepare data; return their description, and what was said."""

    def run(dataset: str, target: str = "label", **options: Any) -> tuple[DatasetInfo, str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "podium.data"):
            info = prepare_data(DataSettings(dataset=dataset, target=target, data_options=options), tmp_path / "data")
        return info, caplog.text

    return run


def frame(rows: int = 300) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    noise = {name: draw.normal(size=rows).round(4) for name in "abcd"}
    return pd.DataFrame({**noise, "city": draw.choice(["Bonn", "Kiel"], rows), "label": draw.choice(["y", "n"], rows)})


def columns(info: DatasetInfo) -> list[str]:
    return [column.name for column in info.inputs["table"].columns]


def test_the_index_of_a_dataframe_is_no_feature(prepare: Prepare, tmp_path: Path) -> None:
    frame().sample(frac=1, random_state=1).to_parquet(tmp_path / "a.parquet")
    info, said = prepare(f"table:{tmp_path / 'a.parquet'}")
    assert columns(info) == ["a", "b", "c", "d", "city"]
    assert "column __index_level_0__ is the index of a DataFrame and is left out" in said
    frame().sample(frac=1, random_state=1).reset_index(names="Unnamed: 0").to_csv(tmp_path / "a.csv", index=False)
    assert columns(prepare(f"table:{tmp_path / 'a.csv'}")[0]) == ["a", "b", "c", "d", "city"]


def test_a_line_says_what_columns_were_taken_for(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table.loc[:24, "a"] = None
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "CSV, separated by a comma, 300 rows: 4 numbers, 1 category of 2, " in said
    assert "missing values" in said


def test_a_column_of_names_is_an_id(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["patient_id"] = [f"p{number % 280:05}" for number in np.random.default_rng(1).permutation(300)]
    table.to_csv(tmp_path / "a.csv", index=False)
    assert "as an id does; leave it out: drop=[patient_id]" in prepare(f"table:{tmp_path / 'a.csv'}")[1]
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
    assert next(column for column in info.inputs["table"].columns if column.name == "day").kind == "number"
    assert "divide them so: time=day" in said
    said = prepare(f"table:{tmp_path / 'a.csv'}", time="day")[1]
    assert "train until 2025-10-29, validation from 2025-10-30 until 2025-11-25, test from 2025-11-26" in said
    table["day"] = days.strftime("%d/%m/%Y")
    table.to_csv(tmp_path / "a.csv", index=False)
    assert "column day looks like dates, but is read as categories" in prepare(f"table:{tmp_path / 'a.csv'}")[1]


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
    assert {column.name for column in info.inputs["table"].columns if column.kind == "number"} == {*"abcd", "price"}
    assert info.preprocessing["decimal"] == ","
    prices = np.concatenate([artifact.load(tmp_path / "data", part).inputs["table"][:, -1] for part in artifact.PARTS])
    assert sorted(prices) == [1000.5 + number for number in range(300)]


def test_a_wide_file_of_a_spreadsheet_is_read(prepare: Prepare, tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False, sep="\t", encoding="utf-16")
    assert columns(prepare(f"table:{tmp_path / 'a.csv'}")[0]) == ["a", "b", "c", "d", "city"]


def test_groups_under_two_names_are_named(prepare: Prepare, tmp_path: Path) -> None:
    table = frame()
    table["patient"] = [f"{'Pp'[number % 2]}{number % 60 // 2}" for number in range(300)]
    table.to_csv(tmp_path / "a.csv", index=False)
    assert (
        "30 groups of patient may be one under two names" in prepare(f"table:{tmp_path / 'a.csv'}", group="patient")[1]
    )


@pytest.mark.parametrize("change", ["id", "noise"])
def test_rows_that_are_nearly_the_same_are_counted(prepare: Prepare, tmp_path: Path, change: str) -> None:
    table, draw = pd.concat([frame()] * 5, ignore_index=True), np.random.default_rng(3)
    if change == "id":
        table["serial"] = draw.permutation(10 * len(table))[: len(table)]
    else:
        table[list("abcd")] += draw.normal(scale=1e-4, size=(len(table), 4))
    table.to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert f"test rows are training rows but for {'serial' if change == 'id' else 'rounding'}" in said
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
    assert "test pictures look like training pictures" in said
    info, said = prepare(f"images:{tmp_path / 'pets'}", "", group="folder")
    assert "look like training pictures" not in said
    assert info.split == "by folder"
    info, said = prepare(f"images:{tmp_path / 'pets'}", "", group="(scene[0-9]+)")
    assert "look like training pictures" not in said


def test_a_small_test_part_is_said_to_be(prepare: Prepare, tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False)
    said = prepare(f"table:{tmp_path / 'a.csv'}")[1]
    assert "the test part has only 30 items: an accuracy of .90 on it means 0.74 to 0.97" in said

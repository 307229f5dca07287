"""The first night's table is the schema of later ones: what differs is refused or said, a line for each."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from judging import Nights
from sklearn.linear_model import LogisticRegression

import podium
from podium.data import artifact
from podium.data.options import DataOptions
from podium.errors import InvalidInput


def rows(seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age = random.integers(18, 90, 1200)
    return pd.DataFrame({
        "age": age.astype(str),
        "income": np.where(random.random(1200) < 0.1, "", random.lognormal(8, 1, 1200).round(2).astype(str)),
        "share": random.integers(1, 100, 1200).astype(str),
        "city": random.choice(["Bonn", "Köln", "Ulm"], 1200),
        "member": random.choice(["yes", "no"], 1200),
        "born": [f"{2026 - years}-01-31" for years in age],
        "label": np.where(age > 50, "old", "young"),
    })  # fmt: skip


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("first")
    rows(0).to_csv(place / "first.csv", index=False)
    podium.prepare_data(f"table:{place}/first.csv", place / "first", target="label")
    return place / "first"


def replaced(column: str, count: int, value: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        table.loc[: count - 1, column] = value
        return table

    return change


BROKEN: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "a unit": (lambda table: table.assign(share=table["share"] + "00"), "column share: the median lies above "),
    "per cent": (lambda table: table.assign(share=table["share"] + " %"), "column share: the median lies below 2"),
    "words": (replaced("age", 100, "7440x"), "column age: 100 of 1,200 values are no whole numbers, such as '7440x'"),
    "a category": (replaced("city", 40, "Bern"), "city: 40 of 1,200 values are none of 3 categories, such as 'Bern'"),
    "a class": (replaced("label", 30, "child"), "label: 30 of 1,200 values are none of 2 categories, such as 'child'"),
    "missing": (replaced("income", 600, ""), "values are missing, and a share of 0.2"),
    "a date": (replaced("born", 90, "soon"), "column born: 90 of 1,200 values are no dates, such as 'soon'"),
    "gone": (lambda table: table.drop(columns="age"), "column age is gone"),
    "new": (lambda table: table.assign(weight=range(1200)), "column weight is new"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_contract_is_refused_in_a_line(case: str, first: Path, tmp_path: Path) -> None:
    change, expected = BROKEN[case]
    change(rows(1)).to_csv(tmp_path / "second.csv", index=False)
    contract = podium.load_dataset(first).contract
    with pytest.raises(
        InvalidInput, match=r"second\.csv breaks the data contract:\n  column "
    ) as refused:
        podium.prepare_data(
            f"table:{tmp_path}/second.csv", tmp_path / "out", target="label", contract=contract
        )
    assert expected in refused.value.message
    warned = podium.prepare_data(f"table:{tmp_path}/second.csv", tmp_path / "out", target="label",
                                 contract={**contract, "on_violation": "warn"})  # fmt: skip
    assert any(expected in sentence for sentence in warned.info.warnings)


@pytest.mark.parametrize("seed", range(1, 6))
def test_other_rows_of_the_same_kind_keep_it(seed: int, first: Path, tmp_path: Path) -> None:
    rows(seed).to_csv(tmp_path / "second.csv", index=False)
    contract = podium.load_dataset(first).contract
    second = podium.prepare_data(
        f"table:{tmp_path}/second.csv", tmp_path / "out", target="label", contract=contract
    )
    kinds = [
        [column["type"] for column in artifact.describe(of).preprocessing["columns"]]
        for of in (first, second)
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("seed", range(3))
def test_other_rows_of_a_small_table_keep_it(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    for name in ("first", "later"):
        wide = pd.DataFrame(random.lognormal(0, 2, (60, 4)).round(3)).add_prefix("c")
        wide = wide.mask(random.random(wide.shape) < 0.02)
        kinds = random.choice(["usual", "odd"], 60, p=[0.99, 0.01])
        wide.assign(kind=kinds, y=random.normal(size=60)).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    podium.prepare_data(f"table:{tmp_path}/first.csv", tmp_path / "data", target="y")
    contract = podium.load_dataset(tmp_path / "data").contract
    podium.prepare_data(
        f"table:{tmp_path}/later.csv", tmp_path / "out", target="y", contract=contract
    )


def test_a_contract_says_how_a_column_is_read(first: Path, tmp_path: Path) -> None:
    """Of 1,200 rows two are bad: numbers stay numbers, though the option takes every other value for missing."""
    table = replaced("age", 2, "7440x")(rows(1))
    table["income"] = "n.d."
    table.loc[:30, "income"] = "7.5"
    table.to_csv(tmp_path / "second.csv", index=False)
    contract = podium.load_dataset(first).contract | {"on_violation": "warn"}
    second = podium.prepare_data(
        f"table:{tmp_path}/second.csv", tmp_path / "out", target="label", contract=contract
    )
    found = {column["name"]: column["kind"] for column in second.info.preprocessing["columns"]}
    assert (found["age"], found["income"], found["city"]) == ("number", "number", "category")


def test_what_the_command_prints_goes_into_podium_yaml(
    first: Path, typed: Callable[..., Any]
) -> None:
    printed = yaml.safe_load(typed("data", "contract", str(first)).stdout)["data_options"]
    assert printed["contract"] == podium.load_dataset(first).contract
    assert DataOptions.read("label", printed).contract is not None


@pytest.mark.parametrize(
    ("contract", "message"),
    [
        (
            {"columns": {"age": {"type": "integer", "rnage": [0, 1]}}},
            "contract.columns.age has no 'rnage'",
        ),
        ({"columns": {"age": {"type": "int"}}}, "no column holds 'int'"),
        ({"columns": {"age": {"type": "text", "range": [0, 1]}}}, r"range cannot be \[0.0, 1.0\]"),
        ({"columns": {}, "on_violation": "ask"}, "on_violation cannot be 'ask'"),
        ({"colums": {}}, "contract has no 'colums'"),
    ],
)
def test_a_contract_that_makes_no_sense_is_refused(contract: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        DataOptions.read("label", {"contract": contract})


def test_without_a_contract_the_champion_is_compared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    clean_environment: None,
) -> None:
    nights = Nights(tmp_path, monkeypatch)
    rows(0).to_csv(tmp_path / "first.csv", index=False)
    nights.prepare(f"table:{tmp_path}/first.csv", "label")
    nights.train(LogisticRegression())
    second = rows(1).assign(share=lambda table: table["share"] + " %", weight=1)
    second.loc[:300, "member"] = "perhaps"
    second.to_csv(tmp_path / "second.csv", index=False)
    with caplog.at_level(logging.WARNING):
        nights.prepare(f"table:{tmp_path}/second.csv", "label")
    said = [line for line in caplog.messages if line.startswith("other data than those of real")]
    assert [line.partition(": ")[2].partition(",")[0] for line in said] == [
        "column member holds categories", "column share has the median 0.49", "column weight is new",
    ]  # fmt: skip

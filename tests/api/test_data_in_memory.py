"""DataFrames, arrays and dicts are data wherever Python takes data."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import podium
from podium.data import artifact
from podium.errors import InvalidInput

pytestmark = pytest.mark.whole

RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": RANDOM.normal(size=200),
        "city": RANDOM.choice(["Bonn", "Ulm"], 200),
        "sold": ["yes", "no"] * 100,
    }
)
ARRAY = RANDOM.normal(size=(200, 4)).astype(np.float32)

TABLES: dict[str, Any] = {
    "a frame of pandas": FRAME,
    "a table of pyarrow": pa.Table.from_pandas(FRAME),
    "columns by name": FRAME.to_dict("list"),
    "rows as dicts": FRAME.to_dict("records"),
    "rows whose first lacks a column": [
        {name: value for name, value in row.items() if at or name != "city"}
        for at, row in enumerate(FRAME.to_dict("records"))
    ],
    "texts with NaN": {**FRAME.to_dict("list"), "city": [float("nan"), *FRAME["city"][1:]]},
    "a frame with an index": FRAME.set_index(np.arange(200)[::-1]),
}


@pytest.mark.parametrize("what", TABLES)
def test_a_table_in_memory_is_a_dataset(what: str, home: Path) -> None:
    dataset = podium.prepare_data(TABLES[what], target="sold")
    assert (dataset.kind, dataset.classes) == ("classification", ["no", "yes"])
    columns = dataset.info.inputs["table"].columns
    assert [(column.name, len(column.categories)) for column in columns] == [
        ("size", 0),
        ("city", 4),
    ]
    assert len(list(home.glob("given/*"))) == 1
    podium.prepare_data(TABLES[what], target="sold", output=home / "again")
    assert len(list(home.glob("given/*"))) == 1


@pytest.mark.parametrize(
    "given",
    [
        (FRAME[["size", "city"]], FRAME["sold"]),
        (FRAME[["size", "city"]].to_dict("list"), list(FRAME["sold"])),
        (FRAME[["size", "city"]], FRAME[["sold"]]),
        (FRAME[["size", "city"]].set_index(np.arange(200) + 7), FRAME["sold"]),
        (FRAME[["size", "city"]], (np.arange(200) % 2)[:, None]),
        (ARRAY, np.array(["yes", "no"] * 100)),
        (ARRAY, FRAME["sold"]),
        (ARRAY, np.arange(200) % 2),
        {"pictures": RANDOM.integers(0, 255, (200, 4, 4), np.uint8), "target": np.arange(200) % 2},
    ],
)
def test_items_and_targets_are_a_dataset(given: Any, home: Path) -> None:
    dataset = podium.prepare_data(given)
    assert dataset.kind == "classification"
    assert len(dataset.classes) == 2


WRONG: dict[str, tuple[Any, str]] = {
    "a frame without a target": (FRAME, "target"),
    "a number": (3, "data cannot be of type int"),
    "another number of targets": ((ARRAY, [1, 2]), "X has 200 items, but y has 2"),
    "columns of several lengths": ({"a": [1, 2], "b": [1]}, "these columns are no table"),
    "targets in another order": (
        (FRAME[["size"]], FRAME["sold"][::-1]),
        "rows may get the targets of others",
    ),
    "two targets": ((FRAME[["size"]], FRAME[["city", "sold"]]), "y has 2 columns"),
    "a target alone": ((FRAME, 3), "y cannot be of type int"),
    "mixed targets": ((ARRAY, ["yes", None] * 100), "target holds objects"),
    "a huge number": ({"a": 2**70}, "these columns are no table"),
    "a column of two types": (
        pd.DataFrame({"age": [1.0, "old"]}),
        "double; Conversion failed for column age with type object",
    ),
    "intervals": (FRAME.assign(size=pd.cut(FRAME["size"], 3)), "column size holds pandas.interval"),
    "targets of intervals": (
        (FRAME[["size"]], pd.cut(FRAME["size"], 3).rename("bin")),
        "column bin holds pandas.interval",
    ),
    "a series": (FRAME["sold"], "data cannot be of type pandas."),
}


@pytest.mark.parametrize("what", WRONG)
def test_other_values_are_refused_without_their_content(what: str, home: Path) -> None:
    data, message = WRONG[what]
    with pytest.raises(InvalidInput) as refused:
        podium.prepare_data(data)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400
    assert not list(home.glob("data/*"))


def test_a_training_and_its_predictions_take_what_is_in_memory(home: Path) -> None:
    training = podium.train((FRAME[["size", "city"]], FRAME["sold"]), model="mlp", epochs=1, seed=1)
    rows = FRAME[["size", "city"]].head(3)
    expected = list(training.predict(rows).values)
    assert list(training.predict(rows.to_dict("records")).values) == expected
    assert list(training.predict(pa.Table.from_pandas(rows)).values) == expected
    assert (
        list(training.predict({"size": rows["size"][0], "city": rows["city"][0]}).values)
        == expected[:1]
    )


def share(x: float, data: str) -> float:
    return len(podium.load_dataset(data).train) / 200 * x


def test_a_function_is_tuned_on_a_frame_with_a_target(home: Path) -> None:
    sweep = podium.tune(share, {"x": (0.9, 1.0)}, data=FRAME, target="sold", trials=1)
    assert 0.7 < sweep.best.value < 0.9


@pytest.mark.parametrize(
    "given",
    [
        lambda **data: podium.train(**data),
        lambda **data: podium.tune("train.py", {"x": (1, 2)}, **data),
        lambda **data: podium.sweep("random", **data),
    ],
)
def test_a_target_of_data_with_a_name_is_refused(given: Any, home: Path) -> None:
    with pytest.raises(InvalidInput, match=r"but table:sold\.csv is no DataFrame"):
        given(data="table:sold.csv", target="sold")


def test_a_run_takes_a_frame(home: Path) -> None:
    """It is stopped once its data are prepared."""
    run = podium.run("train_and_promote", dataset=FRAME, target="sold", network="mlp", epochs=1, workers=0,
                     model_name="houses", wait=False)  # fmt: skip
    late = time.monotonic() + 250
    while run.steps.get("prepare-data") != "succeeded":
        assert run.state == "running", run.logs("prepare-data")
        assert time.monotonic() < late
        time.sleep(0.05)
    run.stop()
    (prepared,) = run.directory.glob("artifacts/*/prepare-data/prepared")
    assert list(artifact.describe(prepared).classes) == ["no", "yes"]


def test_a_table_needs_no_model_and_no_metric() -> None:
    rows = FRAME[["size", "city"]]
    assert podium.train((rows, FRAME["sold"])).metrics["accuracy"] > 0
    numbers = (FRAME["size"].astype(float) * 2).rename("price")
    sweep = podium.sweep("tables", data=(rows, numbers), trials=1, name="numbers")
    assert sweep.best.metrics.keys() >= {"rmse", "r2"}
    sweep.close()

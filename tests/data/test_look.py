import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podium.data import artifact, look
from podium.data.schema import Column, InputInfo
from podium.errors import Damaged


def statistics(uri: Path) -> dict[str, Any]:
    return look.statistics(artifact.describe(uri), partial(artifact.load, uri))


def test_statistics_are_measured_from_the_pixels(tiny_dataset: Path) -> None:
    found = statistics(tiny_dataset)
    images = {part: artifact.load(tiny_dataset, part).inputs["images"] for part in artifact.PARTS}
    test = found["parts"]["test"]
    assert test["count"] == 100
    measured = test["inputs"]["images"]
    assert (measured["min"], measured["max"]) == ([images["test"].min()], [images["test"].max()])
    assert test["class_counts"] == [10] * 10
    both = np.concatenate([images["train"], images["validation"]]) / 255
    measured = found["parts"]["train+validation"]["inputs"]["images"]
    assert measured["mean"] == [pytest.approx(both.mean())]
    assert measured["std"] == [pytest.approx(both.std())]


def test_inspecting_verifies_every_part(tiny_dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_dataset, copy)
    shutil.copytree(artifact.test_uri(tiny_dataset), artifact.test_uri(copy))
    (tmp_path / "copy_test" / "test-target.npy").write_bytes(b"\0" * 228)
    with pytest.raises(Damaged, match="test-target"):
        statistics(copy)


def measure(array: np.ndarray, described: InputInfo, blocks: int = 3) -> dict[str, Any]:
    return look._measure_input(lambda: iter(np.array_split(array, blocks)), described)


def test_columns_are_measured_one_by_one() -> None:
    rng = np.random.default_rng(0)
    table = np.stack(
        [rng.normal(5, 2, 1000), rng.integers(1, 7, 1000), rng.integers(0, 3, 1000)],
        1,
        dtype=np.float32,
    )
    columns = (Column(name="a", kind="number"), Column(name="b", kind="number"),
               Column(name="c", kind="category", categories=("x", "y", "z", "never")))  # fmt: skip
    found = measure(table, InputInfo(meaning="table", dtype="float32", shape=(3,), columns=columns, mean=(0.0,) * 3,
                                     std=(1.0,) * 3))  # fmt: skip
    assert found["mean"] == pytest.approx(table.astype(float).mean(0).tolist())
    assert found["std"] == pytest.approx(table.astype(float).std(0).tolist())
    assert found["min"] == table.min(0).tolist()
    numbers, dice, categories = found["histograms"]
    assert numbers == np.histogram(table[:, 0].astype(float), look.BINS)[0].tolist()
    assert dice == np.bincount(table[:, 1].astype(int), minlength=7)[1:].tolist()
    assert categories == [*np.bincount(table[:, 2].astype(int)), 0]


def test_the_length_of_an_item_is_its_words() -> None:
    tokens = np.array([[5, 6, 0, 0], [7, 0, 0, 0], [1, 2, 3, 4]])
    found = measure(
        tokens, InputInfo(meaning="tokens", dtype="int64", shape=(4,), mean=(0.0,), std=(1.0,))
    )
    assert (found["lengths"]["min"], found["lengths"]["max"]) == ([1], [4])
    assert found["lengths"]["histograms"] == [[1, 1, 0, 1]]


def test_a_constant_is_measured_too() -> None:
    found = measure(
        np.full((10, 2), 3.5),
        InputInfo(meaning="array", dtype="float64", shape=(2,), mean=(0.0,), std=(1.0,)),
    )
    assert (found["mean"], found["std"], sum(found["histograms"][0])) == ((3.5,), (0.0,), 20)

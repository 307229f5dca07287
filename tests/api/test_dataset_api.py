"""`podium.load_dataset`."""

from pathlib import Path

import numpy as np
import pytest

import podium
from podium.data import artifact, artifact_files
from podium.data.schema import Column
from podium.errors import InvalidInput, NotFound


def test_a_dataset_opens_its_parts_when_asked(tiny_dataset: Path) -> None:
    data = podium.load_dataset(tiny_dataset)
    assert repr(data) == "<dataset tiny: classification, train 400, validation 100, test 100>"
    assert (data.kind, data.classes) == ("classification", list("0123456789"))
    assert data.train.inputs["images"].shape == (400, 28, 28)
    assert np.array_equal(data.test.target, artifact.load(tiny_dataset, "test").target)
    assert not data.train.target.flags.writeable


def test_a_dataset_shows_itself_with_pictures(tiny_dataset: Path) -> None:
    data = podium.load_dataset(tiny_dataset)
    assert "[28, 28]" in data._repr_html_()
    html = data.validation._repr_html_()
    assert html.startswith("<p>validation of tiny, 100 items</p><img")
    assert data.validation.picture.size[0] > 100


def test_a_table_is_a_data_frame_with_its_categories(tmp_path: Path) -> None:
    part = artifact.Split(
        inputs={"table": np.array([[1.5, 0], [2.5, 1]], np.float32)}, target=np.array([0.5, 1.5])
    )
    columns = (
        Column(name="x", kind="number"),
        Column(name="color", kind="category", categories=("red", "green")),
    )
    artifact_files.write(
        tmp_path / "rows", dict.fromkeys(("train", "validation", "test"), part), name="rows", kind="regression",
        inputs={"table": artifact.InputDescription(meaning="table", columns=columns)}, target_name="price",
        preprocessing={}, source="typed", split="given",
    )  # fmt: skip
    frame = podium.load_dataset(tmp_path / "rows").train.frame
    assert frame.to_dict("list") == {
        "x": [1.5, 2.5],
        "color": ["red", "green"],
        "price": [0.5, 1.5],
    }


def test_what_is_not_a_dataset_or_table_is_refused(tiny_dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing"):
        podium.load_dataset(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="tiny has no table, but images"):
        podium.load_dataset(tiny_dataset).train.frame  # noqa: B018

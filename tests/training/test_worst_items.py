"""The items a model is most wrong about, as the report shows them, and points of a regression."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from podium.data.profile import Profile
from podium.data.schema import Column, DatasetInfo, FileInfo, InputInfo, PartInfo, TargetInfo
from podium.data.split import Split
from podium.scoring.scores import Scores
from podium.steps.examples import points_of, worst_examples

CLASSES = ("cat", "dog", "elk")


def dataset(
    meaning: str,
    kind: str = "classification",
    columns: tuple[Column, ...] = (),
    preprocessing: dict[str, Any] | None = None,
) -> DatasetInfo:
    shape = (2, 2) if meaning == "image" else (2,)
    some = tuple(0.5 for _ in columns) or (0.5,)
    described = InputInfo(
        meaning=meaning, dtype="float32", shape=shape, columns=columns, mean=some, std=some
    )
    classes = CLASSES if kind == "classification" else ()
    file = FileInfo(file="x.npy", bytes=1, sha256="0" * 64)
    part = PartInfo(
        count=len(classes), class_counts=(1,) * len(classes), inputs={"x": file}, target=file
    )
    return DatasetInfo(
        name="d",
        kind=kind,
        digest="0",
        classes=classes,
        inputs={"x": described},
        target=TargetInfo(name="y", dtype="int64" if classes else "float64"),
        preprocessing=preprocessing or {},
        source="",
        split="",
        seed=0,
        limit=None,
        profile=Profile(inputs={}),
        parts={"train": part, "validation": part, "test": part},
    )


def classified(target: list[int], predictions: Any) -> Scores:
    predicted = np.asarray(predictions)
    return Scores(
        metrics={}, predictions=predicted, target=np.array(target), decided=predicted,
        confusion=np.zeros((3, 3), np.int64),
    )  # fmt: skip


def regressed(target: Any, predictions: Any) -> Scores:
    predicted = np.asarray(predictions, float)
    return Scores(
        metrics={}, predictions=predicted, target=np.asarray(target, float), decided=predicted,
        confusion=None,
    )  # fmt: skip


def test_the_surest_mistakes_come_first() -> None:
    scores = classified([0, 1, 2, 0], [[0.9, 0.1, 0], [0.6, 0.4, 0], [0.2, 0.7, 0.1], [0, 0, 1]])
    part = Split(inputs={"x": np.zeros((9, 2))}, target=np.zeros(9))
    found = worst_examples(dataset("array"), part, scores, np.array([5, 6, 7, 8]))
    assert [(each.item, each.target, each.predicted, each.score) for each in found] == [
        (8, "cat", "elk", 0.0), (7, "elk", "dog", 0.1), (6, "dog", "cat", 0.4),
    ]  # fmt: skip


def test_mistakes_without_probabilities_have_no_score() -> None:
    part = Split(inputs={"x": np.zeros((3, 2))}, target=np.zeros(3))
    found = worst_examples(
        dataset("array"), part, classified([0, 1, 2], [0, 2, 0]), np.array([0, 1, 2])
    )
    assert [(each.item, each.predicted, each.score) for each in found] == [
        (1, "elk", None), (2, "cat", None),
    ]  # fmt: skip


def test_numbers_come_by_their_mean_error() -> None:
    scores = regressed([[1, 2], [3, 4], [5, 6]], [[1, 3], [6, 5], [5, 6]])
    columns = (Column(name="age", kind="number", center=0.5),
               Column(name="plan", kind="category", categories=("basic", "pro")))  # fmt: skip
    part = Split(inputs={"x": np.array([[1, 0], [2, 1], [3, 7]])}, target=np.zeros(3))
    found = worst_examples(
        dataset("table", "regression", columns), part, scores, np.array([0, 1, 2])
    )
    assert [(each.item, each.score, each.target, each.predicted) for each in found] == [
        (1, 2.0, "3, 4", "6, 5"), (0, 0.5, "1, 2", "1, 3"), (2, 0.0, "5, 6", "5, 6"),
    ]  # fmt: skip
    assert [each.row for each in found] == [
        {"age": "2.5", "plan": "pro"}, {"age": "1.5", "plan": "basic"},
        {"age": "3.5", "plan": "7"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("preprocessing", "text"),
    [({}, None), ({"tokens": "x", "vocabulary": ["", "so", "good"]}, "so good")],
)
def test_a_sentence_is_shown_by_its_vocabulary(
    preprocessing: dict[str, Any], text: str | None
) -> None:
    info = dataset("tokens", preprocessing=preprocessing)
    part = Split(inputs={"x": np.array([[1, 2, 0, 9]])}, target=np.zeros(1))
    (found,) = worst_examples(info, part, classified([0], [1]), np.array([0]))
    assert (found.text, found.row, found.image) == (text, None, None)


@pytest.mark.parametrize("pixels", [[[0, 128], [255, 1]], [[-1.0, 0.0], [1.0, 1.0]], [[3.0, 3.0]]])
def test_a_picture_is_shown_over_its_whole_range(pixels: Any) -> None:
    picture = np.array(pixels, np.uint8 if isinstance(pixels[0][0], int) else np.float32)
    part = Split(inputs={"x": picture[None]}, target=np.zeros(1))
    (found,) = worst_examples(dataset("image"), part, classified([0], [1]), np.array([0]))
    assert found.image
    shown = np.array(Image.open(io.BytesIO(base64.b64decode(found.image.partition(",")[2]))))
    spread = picture.max() - picture.min()
    assert (shown.min(), shown.max()) == ((0, 255) if spread else (0, 0))
    assert shown.shape == picture.shape


def test_points_are_thinned_evenly_from_end_to_end() -> None:
    numbers = np.arange(100.0)
    (points,) = points_of(regressed(numbers, numbers + 1), most=12)
    assert points.true == [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99]
    assert points.predicted == [number + 1 for number in points.true]
    two = points_of(regressed([[1, 2], [3, 4]], [[5, 6], [7, 8]]))
    assert [(each.true, each.predicted) for each in two] == [([1, 3], [5, 7]), ([2, 4], [6, 8])]

"""What networks of the tests learn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data import artifact, artifact_files
from podium.data.schema import Column, InputInfo
from podium.trainer.task import Task


def digits(outputs: int = 10, mean: float = 0.13, std: float = 0.31) -> Task:
    """Pictures as MNIST has them."""
    return pictures(28, 28, outputs=outputs, mean=(mean,), std=(std,))


def pictures(*shape: int, outputs: int = 10, mean: tuple[float, ...] = (), std: tuple[float, ...] = (),
             dtype: str = "uint8", **facts: Any) -> Task:  # fmt: skip
    """Pictures of a shape, [h, w] or [h, w, c]."""
    channels = shape[2] if len(shape) == 3 else 1
    mean, std = mean or (0.4, 0.5, 0.6)[:channels], std or (0.2, 0.3, 0.25)[:channels]
    info = InputInfo(meaning="image", dtype=dtype, shape=shape, mean=mean, std=std)
    return Task(
        **{"kind": "classification", "input": "images", "info": info, "outputs": outputs, **facts}
    )


def table(**facts: Any) -> Task:
    """A table with two numbers and two categories in between."""
    columns = (
        Column(name="height", kind="number"),
        Column(name="color", kind="category", categories=("red", "green", "blue")),
        Column(name="weight", kind="number"),
        Column(name="shape", kind="category", categories=("round", "flat")),
    )
    info = InputInfo(meaning="table", dtype="float32", shape=(4,), columns=columns, mean=(170.0, 1.0, 7e4, 0.5),
                     std=(10.0, 0.8, 0.0, 0.5))  # fmt: skip
    return Task(**{"kind": "classification", "input": "table", "info": info, "outputs": 2, **facts})


def write(
    target: Path,
    inputs: Mapping[str, NDArray[Any]],
    outcome: NDArray[Any],
    meaning: str,
    **facts: Any,
) -> Path:
    """Write a dataset: two thirds to train, the rest to validate and to test."""
    third = len(outcome) // 6
    ends = {
        "train": (0, 4 * third),
        "validation": (4 * third, 5 * third),
        "test": (5 * third, 6 * third),
    }
    parts = {part: artifact.Split(inputs={name: array[start:end] for name, array in inputs.items()},
                                 target=outcome[start:end]) for part, (start, end) in ends.items()}  # fmt: skip
    described = {
        name: artifact.InputDescription(meaning=meaning, columns=facts.get("columns", ()))
        for name in inputs
    }
    is_class = outcome.dtype.kind in "iu"
    classes = (
        tuple(f"class {number}" for number in range(int(outcome.max()) + 1)) if is_class else ()
    )
    artifact_files.write(target, parts, name="made", kind="classification" if is_class else "regression", classes=classes,
                   inputs=described, target_name="outcome", preprocessing={}, source="drawn by the tests",
                   split="given")  # fmt: skip
    return target


def striped_pictures(
    count: int, height: int, width: int, seed: int = 1
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return color pictures and their classes: stripes up or across, in one of two colors, on noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 4
    rng.shuffle(labels)
    images = rng.integers(0, 160, (count, height, width, 3))
    for image, label in zip(images, labels, strict=True):
        start, step = rng.integers(0, 4), rng.integers(3, 5)
        lines = image[start::step] if label % 2 else image[:, start::step]
        lines[..., label // 2] = 255
    return images.astype(np.uint8), labels.astype(np.int64)


def houses(count: int, seed: int = 1) -> tuple[NDArray[Any], NDArray[Any], tuple[Column, ...]]:
    """Return a table of houses, their prices, and the columns: size counts, and the town more than it."""
    rng = np.random.default_rng(seed)
    columns = (
        Column(name="size", kind="number"),
        Column(name="town", kind="category", categories=("a", "b", "c")),
    )
    size, town = rng.uniform(40, 200, count), rng.integers(0, 3, count)
    prices = 1000 * size + np.array([0.0, 2e5, 5e5])[town] + rng.normal(0, 1e4, count)
    return np.stack([size, town], 1).astype(np.float32), prices, columns

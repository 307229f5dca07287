"""What networks of the tests learn."""

from typing import Any

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
    return Task(**{"kind": "classification", "input": "images", "info": info, "outputs": outputs, **facts})


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

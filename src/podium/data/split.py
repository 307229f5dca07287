"""A part of a dataset: its arrays, and how it shows itself."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from podium.data.schema import Array, DatasetInfo
from podium.display.notebook import data_frame, shown
from podium.display.text import one_line
from podium.errors import InvalidInput

if TYPE_CHECKING:
    from pandas import DataFrame
    from PIL.Image import Image


@dataclass(frozen=True, kw_only=True, repr=False)
class Split:
    """A part of a dataset: train, validation or test; what a dataset gives is mapped from disk, and
    read-only."""

    inputs: Mapping[str, Array]
    """By name, each [n, …]."""

    target: Array
    """Classification: indices into the classes [n]; regression: floats [n] or [n, k]."""

    name: str = ""
    """``train``, ``validation`` or ``test``; empty before it is one of a dataset's."""

    info: DatasetInfo | None = None
    """The dataset's description."""

    def __post_init__(self) -> None:
        if not self.inputs:
            raise InvalidInput("a part of a dataset needs an input, but has none")
        for name, array in {**self.inputs, "target": self.target}.items():
            if array.ndim == 0:
                raise InvalidInput(
                    f"{name} is a single number, but an array has an entry for each item"
                )
            if array.dtype.kind not in "biuf":
                raise InvalidInput(
                    f"{name} holds {array.dtype}, but inputs and targets are numbers"
                )
            if len(array) != len(self.target):
                raise InvalidInput(
                    f"{name} has {len(array):,} items, but there are {len(self.target):,} targets"
                )

    def __len__(self) -> int:
        return len(self.target)

    @property
    def picture(self) -> "Image":
        """The first images of each class, or histograms of all columns and of the target."""
        from podium.data.draw import draw_split  # trainers import this module

        assert self.info
        return draw_split(self, self.info)

    @property
    def frame(self) -> "DataFrame":
        """A table input with its target, a row for each item; categories by their names.

        Raises:
            InvalidInput: The dataset has no table.
        """
        assert self.info
        tables = [
            name for name, described in self.info.inputs.items() if described.meaning == "table"
        ]
        if not tables:
            raise InvalidInput(
                f"{self.info.name} has no table, but {', '.join(self.info.inputs)}", "part.inputs"
            )
        described, array = self.info.inputs[tables[0]], self.inputs[tables[0]]
        columns: dict[str, Any] = {}
        for at, column in enumerate(described.columns):
            values = (
                array[:, at].astype(np.float64) + column.center if column.center else array[:, at]
            ).tolist()
            columns[column.name] = (
                [column.categories[int(value)] for value in values] if column.categories else values
            )
        classes = self.info.classes
        columns[self.info.target.name] = (
            [classes[at] for at in self.target] if classes else self.target.tolist()
        )
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return data_frame(rows, list(columns))

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {array.dtype} {list(array.shape)}" for name, array in self.inputs.items()
        )
        of = f"{self.name} of {self.info.name}: " if self.info else ""
        return one_line(f"<{of}{len(self):,} items, {shapes}>")

    def _repr_html_(self) -> str | None:
        if self.info is None:
            return None
        png = io.BytesIO()
        self.picture.save(png, "PNG")
        encoded = base64.b64encode(png.getvalue()).decode()
        caption = shown(f"{self.name} of {self.info.name}, {len(self):,} items")
        return f'<p>{caption}</p><img src="data:image/png;base64,{encoded}">'

"""A prepared dataset: ``podium.load_dataset(uri).train.inputs["images"]``."""

import base64
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL.Image import Image

from podium.data import artifact, preprocessing
from podium.data.contract_check import draft, draft_target
from podium.data.look import draw_split
from podium.data.schema import PARTS, DatasetInfo
from podium.data.split import Split
from podium.display.notebook import data_frame, shown, table
from podium.display.text import one_line
from podium.errors import InvalidInput
from podium.storage import absolute
from podium.system.arguments import checked

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, repr=False)
class DatasetPart(Split):
    """A part of a prepared dataset, as a picture or as a DataFrame too."""

    @property
    def picture(self) -> Image:
        """The first images of each class, or histograms of all columns and of the target."""
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

    def _repr_html_(self) -> str | None:
        if self.info is None:
            return None
        png = io.BytesIO()
        self.picture.save(png, "PNG")
        encoded = base64.b64encode(png.getvalue()).decode()
        caption = shown(f"{self.name} of {self.info.name}, {len(self):,} items")
        return f'<p>{caption}</p><img src="data:image/png;base64,{encoded}">'


@checked
class Dataset:
    """A prepared dataset; a part is opened, and every byte of it verified, when it is first used.

    Args:
        uri: A directory, ``file://``, ``s3://`` or ``minio://``.
    """

    def __init__(self, uri: str | Path) -> None:
        self.uri = absolute(uri)
        self.info: DatasetInfo = artifact.describe(self.uri)

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.info.name

    @property
    def kind(self) -> str:
        """``classification`` or ``regression``."""
        return self.info.kind

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by index; empty for regression."""
        return list(self.info.classes)

    @cached_property
    def train(self) -> DatasetPart:
        """The training part."""
        return self._part("train")

    @cached_property
    def validation(self) -> DatasetPart:
        """The validation part."""
        return self._part("validation")

    @cached_property
    def test(self) -> DatasetPart:
        """The test part: it says how good a model is only if nothing was chosen by it."""
        return self._part("test")

    def _part(self, name: str) -> DatasetPart:
        return DatasetPart(**vars(artifact.load(self.uri, name)))

    @property
    def contract(self) -> dict[str, Any]:
        """The contract of a table, which later nights pass as the option ``contract``.

        Raises:
            InvalidInput: It is no table.
        """
        recipe = preprocessing.read(self.info.preprocessing, f"{self.uri}/dataset.json")
        if not isinstance(recipe, preprocessing.TablePreprocessing):
            raise InvalidInput(
                f"{self.name} was not prepared from a table", "podium data prepare table:FILE"
            )
        drafted = draft(recipe, len(self.train), self.info.profile)
        drafted.columns[self.info.target.name] = draft_target(self.info.classes, self.train.target)
        return drafted.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return plain values: its URI and what ``dataset.json`` holds."""
        return {"uri": self.uri, **self.info.to_json()}

    def __fspath__(self) -> str:
        return self.uri

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {self.info.parts[name].count:,}" for name in PARTS)
        return one_line(f"<dataset {self.name}: {self.kind}, {counts}>")

    def _repr_html_(self) -> str:
        inputs = [
            (name, array.meaning, array.dtype, str(list(array.shape)))
            for name, array in self.info.inputs.items()
        ]
        target = self.info.target
        meaning = f"{len(self.classes)} classes" if self.classes else "numbers"
        heads = ("ARRAY", "WHAT", "TYPE", "SHAPE OF AN ITEM")
        arrays = table(
            heads, [*inputs, (target.name, meaning, target.dtype, str(list(target.shape)))]
        )
        parts = [(name, f"{self.info.parts[name].count:,}") for name in PARTS]
        return (
            table(("PART", ">ITEMS"), parts, title=f"{self.name}, {self.kind}; {self.uri}") + arrays
        )


@checked
def load_dataset(uri: str | Path) -> Dataset:
    """Open a prepared dataset (``podium data prepare`` makes one).

    Args:
        uri: A directory, ``file://``, ``s3://`` or ``minio://``.

    Raises:
        NotFound: There is none.
        Damaged: ``dataset.json``, or later a part, does not match its checksum.

    Example:
        >>> import podium
        >>> data = podium.load_dataset(dataset)
        >>> data.train.inputs["images"].shape, data.train.target.shape
        ((400, 28, 28), (400,))
    """
    return Dataset(uri)

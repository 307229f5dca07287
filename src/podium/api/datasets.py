"""Prepared datasets from Python: ``podium.load_dataset(uri).train.inputs["images"]``."""

import base64
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.api.experiments import absolute
from podium.data import artifact
from podium.data.artifact import PARTS, DatasetInfo
from podium.data.artifact import Part as Arrays
from podium.data.draw import histogram_sheet, image_input, picture_grid
from podium.errors import InvalidInput
from podium.frames import data_frame
from podium.heartbeat import doing
from podium.notebook import shown, table
from podium.settings import Settings
from podium.steps import prepare_data as step
from podium.steps.prepare_data import DataSettings
from podium.text import one_line

if TYPE_CHECKING:
    from pandas import DataFrame
    from PIL.Image import Image


@dataclass(frozen=True, kw_only=True, repr=False)
class Part(Arrays):
    """Train, validation or test: read-only arrays mapped from disk."""

    name: str
    """``train``, ``validation`` or ``test``."""

    info: DatasetInfo
    """Of the dataset."""

    @property
    def picture(self) -> "Image":
        """The first images of each class, or histograms of all columns and of the target."""
        draw = picture_grid if image_input(self.info) else histogram_sheet
        return draw(self, self.info)

    @property
    def frame(self) -> "DataFrame":
        """A table input with its target, a row for each item; categories by their names.

        Raises:
            InvalidInput: The dataset has no table.
        """
        tables = [name for name, described in self.info.inputs.items() if described.meaning == "table"]
        if not tables:
            raise InvalidInput(f"{self.info.name} has no table, but {', '.join(self.info.inputs)}", "part.inputs")
        described, array = self.info.inputs[tables[0]], self.inputs[tables[0]]
        columns: dict[str, Any] = {}
        for at, column in enumerate(described.columns):
            values = array[:, at].tolist()
            columns[column.name] = [column.categories[int(value)] for value in values] if column.categories else values
        classes = self.info.classes
        columns[self.info.target.name] = [classes[at] for at in self.target] if classes else self.target.tolist()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return data_frame(rows, list(columns))

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {array.dtype} {list(array.shape)}" for name, array in self.inputs.items())
        return one_line(f"<{self.name} of {self.info.name}: {len(self):,} items, {shapes}>")

    def _repr_html_(self) -> str:
        png = io.BytesIO()
        self.picture.save(png, "PNG")
        encoded = base64.b64encode(png.getvalue()).decode()
        caption = shown(f"{self.name} of {self.info.name}, {len(self):,} items")
        return f'<p>{caption}</p><img src="data:image/png;base64,{encoded}">'


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
    def train(self) -> Part:
        """The training part."""
        return self._part("train")

    @cached_property
    def validation(self) -> Part:
        """The validation part."""
        return self._part("validation")

    @cached_property
    def test(self) -> Part:
        """The test part: it says how good a model is only if nothing was chosen by it."""
        return self._part("test")

    def _part(self, name: str) -> Part:
        arrays = artifact.load(self.uri, name)
        return Part(inputs=arrays.inputs, target=arrays.target, name=name, info=self.info)

    def __fspath__(self) -> str:
        return self.uri

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {self.info.parts[name].count:,}" for name in PARTS)
        return one_line(f"<dataset {self.name}: {self.kind}, {counts}>")

    def _repr_html_(self) -> str:
        inputs = [
            (name, array.meaning, array.dtype, str(list(array.shape))) for name, array in self.info.inputs.items()
        ]
        target = self.info.target
        what = f"{len(self.classes)} classes" if self.classes else "numbers"
        heads = ("ARRAY", "WHAT", "TYPE", "SHAPE OF AN ITEM")
        arrays = table(heads, [*inputs, (target.name, what, target.dtype, str(list(target.shape)))])
        parts = [(name, f"{self.info.parts[name].count:,}") for name in PARTS]
        return table(("PART", ">ITEMS"), parts, title=f"{self.name}, {self.kind}; {self.uri}") + arrays


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


def prepare_data(
    dataset: str | Path = "mnist", output: str | Path | None = None, *, source: str | Path = "", target: str = "",
    limit: int = 0, seed: int | None = None, **options: Any,
) -> Dataset:  # fmt: skip
    """Read, verify, split and write data as one checksummed dataset, as ``podium data prepare`` does.

    Args:
        dataset: ``mnist``, ``fashion-mnist``, ``images:DIRECTORY``, ``table:FILE``, ``text:FILE`` or ``npz:FILE``; or
            the directory or URI of a prepared dataset, which is copied to output, or opened where there is none.
        output: Directory, or ``s3://`` or ``minio://`` prefix; ``$PODIUM_HOME/data/NAME`` if None.
        source: Directory or URI with the idx files of mnist; cache and mirrors if empty.
        target: Name of the target column of a table or of text.
        limit: Most items for train and validation together; 0 takes all. The test part of mnist stays whole.
        seed: Decides which items form which part: the option ``split_seed``, 1 if None.
        **options: Of the source, such as ``validation=0.2`` or ``group="city"``.

    Raises:
        InvalidInput: The data or an option breaks a rule, or output holds something else.
        NotFound: There is no such file.
        Failed: No mirror has the files; the message names each.

    Example:
        >>> import podium
        >>> podium.prepare_data("table:houses.csv", target="price")
        <dataset houses: regression, train 57, validation 6, test 7>
    """
    options |= {} if seed is None else {"split_seed": seed}
    settings = DataSettings(dataset=str(dataset), source=str(source), target=target, limit=limit, data_options=options)
    return write(settings, output)


def write(settings: DataSettings, output: str | Path | None = None) -> Dataset:
    """Prepare a dataset where the user says, or below PODIUM_HOME; a prepared one without output stays where it is."""
    if settings.is_prepared and output is None:
        return Dataset(settings.dataset)
    where = output or Settings.from_environment().home / "data" / settings.name
    with doing(f"preparing {settings.name}"):
        step.prepare_data(settings, str(where))
    return Dataset(where)

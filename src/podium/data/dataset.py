"""A prepared dataset: ``podium.load_dataset(uri).train.inputs["images"]``."""

from functools import cached_property
from pathlib import Path
from typing import Any

from podium.data import artifact, preprocessing
from podium.data.schema import PARTS, DatasetInfo
from podium.data.split import Split
from podium.display.notebook import table
from podium.display.text import one_line
from podium.errors import InvalidInput
from podium.storage import absolute


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
    def train(self) -> Split:
        """The training part."""
        return artifact.load(self.uri, "train")

    @cached_property
    def validation(self) -> Split:
        """The validation part."""
        return artifact.load(self.uri, "validation")

    @cached_property
    def test(self) -> Split:
        """The test part: it says how good a model is only if nothing was chosen by it."""
        return artifact.load(self.uri, "test")

    @property
    def contract(self) -> dict[str, Any]:
        """The contract of a table, which later nights pass as the option ``contract``.

        Raises:
            InvalidInput: It is no table.
        """
        from podium.data.contract_check import draft, draft_target

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
        what = f"{len(self.classes)} classes" if self.classes else "numbers"
        heads = ("ARRAY", "WHAT", "TYPE", "SHAPE OF AN ITEM")
        arrays = table(heads, [*inputs, (target.name, what, target.dtype, str(list(target.shape)))])
        parts = [(name, f"{self.info.parts[name].count:,}") for name in PARTS]
        return (
            table(("PART", ">ITEMS"), parts, title=f"{self.name}, {self.kind}; {self.uri}") + arrays
        )


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

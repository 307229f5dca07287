"""The test part of a dataset, as any model can be measured on it: prepared by the model's own
preprocessing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow import parquet

from podium.data import artifact, preprocessing
from podium.data.blocks import Selection
from podium.data.preprocessing import Applied, ImagePreprocessing, Preprocessing
from podium.data.preprocessing.image import FOLDER, PICTURE
from podium.data.row_files import open_parquet
from podium.data.schema import NUMBERS, Array, DatasetInfo, Hashes
from podium.data.seen import OTHER_NAME, SeenItems
from podium.data.split import Split
from podium.data.values import Guess, to_numbers, to_text
from podium.errors import InvalidInput, suggestion

_PICTURES = 256
"""Decoded at a time."""


@dataclass(frozen=True, kw_only=True)
class TestInputs:
    """The test items as one model takes them."""

    inputs: Mapping[str, Array]
    """By name, each [m, …]."""

    kept: NDArray[np.int64]
    """[m], positions of the items that could be prepared, ascending."""

    def hashes(self) -> Hashes:
        """Return the hash of each item, [m], as the seen items of this model were hashed."""
        target = np.zeros(len(self.kept), np.int8)
        return Selection(part=Split(inputs=self.inputs, target=target)).hashes()


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The test part of a dataset."""

    info: DatasetInfo

    part: Split
    """Its items as the dataset's own preprocessing made them."""

    groups: Hashes | None
    """A hash of each item's group, [n], if items were divided by group."""

    came: Hashes | None
    """A hash of each item as it came, [n], if the dataset keeps it."""

    times: Array | None
    """The time of each item, [n], if items were divided by time."""

    originals: Path | None
    """The items as they came, if the dataset keeps them."""

    @classmethod
    def open(cls, uri: str | Path) -> "HeldOut":
        """Open the test part, every byte verified.

        Args:
            uri: The dataset's, or that of its test part.

        Raises:
            NotFound, InvalidInput, Damaged: As podium.data.artifact.load.
        """
        return cls(
            info=artifact.describe(uri),
            part=artifact.load(uri, "test"),
            groups=artifact.load_facts(uri, "groups"),
            came=artifact.load_facts(uri, "keys"),
            times=artifact.load_facts(uri, "times"),
            originals=artifact.originals(uri),
        )

    def __len__(self) -> int:
        return len(self.part)

    def hashes(self) -> Hashes:
        """Return the hash of each item, [n]."""
        return Selection(part=self.part).hashes()

    @property
    def keys(self) -> Hashes:
        """Hash of each item as it came, [n], which survives another export; else of the item as it
        was prepared."""
        return self.hashes() if self.came is None else self.came

    @property
    def units(self) -> Hashes:
        """Hash of what counts together, [n]: an item's group, else the item itself."""
        return self.hashes() if self.groups is None else self.groups

    def save_items(self, path: Path) -> None:
        """Write hashes, units and keys to a file, as they are compared between versions: uint64
        [n, 3]."""
        np.save(path, np.stack([self.hashes(), self.units, self.keys], axis=1))

    def as_prepared(self) -> TestInputs:
        """Return all items as the dataset's own preprocessing made them."""
        return TestInputs(inputs=self.part.inputs, kept=np.arange(len(self.part)))

    def column(self, name: str) -> Array:
        """Return a column of the items as they came, [n]: floats, or texts with None where none is.

        Raises:
            InvalidInput: They have no such column.
        """
        columns: list[str] = []
        if self.originals is not None:
            columns = parquet.read_schema(self.originals).names
        if PICTURE in columns:
            columns = [FOLDER]
        if name not in columns:
            hint = (
                "rows have columns, and pictures the first folder below that of their class: folder"
            )
            hint = suggestion(name, columns) if columns and columns != [FOLDER] else hint
            raise InvalidInput(f"the test items of {self.info.name} have no column {name!r}", hint)
        values = parquet.read_table(self.originals, columns=[name])[name]
        guess = Guess(name)
        guess.add(values)
        if guess.exact in NUMBERS:
            return to_numbers(values)[0]
        return np.array(to_text(values).to_pylist(), object)

    def inputs_for(self, own: Mapping[str, Any], name: str) -> TestInputs:
        """Prepare the items as a model prepares new ones, which is what ``podium predict`` does.

        Args:
            own: Content of the model's preprocessing.json; empty if it does not say how its inputs
                are made: then it takes the dataset's.

        Raises:
            InvalidInput: The model needs a column that the items lack, or they were not kept as
                they came.
        """
        wanted = {key: value for key, value in own.items() if key not in ("target", "classes")}
        if not wanted or wanted == self.info.preprocessing or not self.info.preprocessing:
            return self.as_prepared()
        if self.originals is None:
            raise InvalidInput(
                f"{name} prepares its inputs otherwise than the dataset {self.info.name}, which does not keep its test "
                "items as they came",
                f"prepare the data again: podium data prepare; or {OTHER_NAME}",
            )
        prepared = preprocessing.read(wanted, f"preprocessing.json of {name}")
        assert prepared is not None
        try:
            batches = list(_apply(prepared, self.originals, f"the test part of {self.info.name}"))
        except InvalidInput as error:
            raise InvalidInput(
                f"{name} cannot be measured: {error.message}",
                f"{error.hint}; or {OTHER_NAME}",
            ) from None
        inputs = {
            of: np.concatenate([batch.inputs[of] for batch in batches]) for of in batches[0].inputs
        }
        return TestInputs(inputs=inputs, kept=np.concatenate([batch.kept for batch in batches]))


def seen_in_training(data: str | Path, before: SeenItems | None) -> SeenItems | None:
    """Return what a model has seen that was trained on a dataset; None if the dataset does not
    tell.

    Args:
        data: URI of the dataset.
        before: What the weights had seen that its training began with, as its directory says.
    """
    of_data = artifact.load_seen(data)
    return None if of_data is None else of_data.plus(before)


def _apply(prepared: Preprocessing, file: Path, name: str) -> Iterator[Applied]:
    """Preprocess original items in batches; positions are among all of them."""
    if isinstance(prepared, ImagePreprocessing):
        yield from _apply_pictures(prepared, file, name)
        return
    for rows in open_parquet(file, name):
        yield _moved(prepared.apply(rows), int(rows.numbers[0]) - 1)


def _apply_pictures(prepared: ImagePreprocessing, file: Path, name: str) -> Iterator[Applied]:
    with parquet.ParquetFile(file) as stored, TemporaryDirectory(prefix="podium-") as scratch:
        if PICTURE not in stored.schema_arrow.names:
            raise InvalidInput(
                f"{name} holds rows, but the model takes pictures", "name a dataset of pictures"
            )
        start = 0
        for batch in stored.iter_batches(_PICTURES, columns=[PICTURE]):
            files = [Path(scratch, str(at)) for at in range(len(batch))]
            for copy, content in zip(files, batch[PICTURE].to_pylist(), strict=True):
                copy.write_bytes(content)
            yield _moved(prepared.apply(files), start)
            start += len(batch)


def _moved(applied: Applied, start: int) -> Applied:
    return replace(applied, kept=applied.kept + start)

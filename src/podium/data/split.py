"""The arrays of a part of a dataset."""

from collections.abc import Mapping
from dataclasses import dataclass

from podium.data.schema import Array, DatasetInfo
from podium.display.text import one_line
from podium.errors import InvalidInput


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

    def __post_init__(self) -> None:
        if not self.inputs:
            raise InvalidInput("a part of a dataset needs an input, but has none")
        for name, array in {**self.inputs, "target": self.target}.items():
            if array.ndim == 0:
                raise InvalidInput(
                    f"{name} is a single number, but an array has an entry for each item"
                )
            if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
                raise InvalidInput(
                    f"{name} holds {array.dtype}, but inputs and targets are numbers of 64 bits or less"
                )
            if len(array) != len(self.target):
                raise InvalidInput(
                    f"{name} has {len(array):,} items, but there are {len(self.target):,} targets"
                )

    def __len__(self) -> int:
        return len(self.target)

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name} {array.dtype} {list(array.shape)}" for name, array in self.inputs.items()
        )
        of = f"{self.name} of {self.info.name}: " if self.info else ""
        return one_line(f"<{of}{len(self):,} items, {shapes}>")

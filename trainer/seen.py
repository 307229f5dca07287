"""Which items a model has seen, by their hashes: those it was trained on or chosen by, and those of what it began with.

Trainers of one's own import it through podium.trainer.kit, so it imports no torch.
"""

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.data.artifact import load_hashes
from podium.errors import PodiumError
from podium.storage import Storage, connect

SEEN = "seen.npy"
"""File of a model directory: 64-bit hashes of the items that its weights have seen, uint64 [n], ascending."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Which items a model has seen."""

    hashes: NDArray[np.uint64] | None
    """64 bits each, [n], ascending; None if the dataset has none."""

    whole: bool
    """Whether this is all that it has seen."""

    @classmethod
    def read(cls, data: str, begun_with: str) -> "Seen":
        """Return what a model has seen after a training.

        Args:
            data: URI of the dataset.
            begun_with: File of the weights that it began with, beside what they had seen; empty for new ones.
        """
        own = load_hashes(data, "seen")
        if own is None or not begun_with:
            return cls(hashes=own, whole=own is not None)
        try:
            before = np.load(io.BytesIO(connect(split(begun_with)[0]).get(SEEN)), allow_pickle=False)
        except (PodiumError, ValueError, EOFError):
            return cls(hashes=own, whole=False)
        return cls(hashes=np.union1d(own, before), whole=True)

    def write(self, storage: Storage) -> None:
        """Put it beside weights."""
        if self.hashes is not None:
            stream = io.BytesIO()
            np.save(stream, self.hashes)
            storage.put(SEEN, stream.getvalue())


def split(uri: str) -> tuple[str, str]:
    """Return the folder and the name of a file."""
    folder, _, name = uri.rpartition("/")
    return folder or ("/" if uri.startswith("/") else "."), name

"""Which items a model has seen: those it was trained on or chosen by, and those of what it began
with.

Trainers of one's own import it through podium.trainer.kit, so it imports no torch.
"""

from dataclasses import dataclass

from podium.data.artifact import load_seen
from podium.data.seen import SEEN, SeenItems
from podium.errors import PodiumError
from podium.storage import Storage, connect


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Which items a model has seen."""

    items: SeenItems | None
    """None if the dataset does not tell."""

    whole: bool
    """Whether this is all that it has seen."""

    @classmethod
    def read(cls, data: str, begun_with: str) -> "Seen":
        """Return what a model has seen after a training.

        Args:
            data: URI of the dataset.
            begun_with: File of the weights that it began with, beside what they had seen; empty for
                new ones.
        """
        own = load_seen(data)
        if own is None or not begun_with:
            return cls(items=own, whole=own is not None)
        try:
            before = SeenItems.read(connect(split(begun_with)[0]))
        except PodiumError:
            return cls(items=own, whole=False)
        return cls(items=own.plus(before), whole=before is not None)

    def write(self, storage: Storage) -> None:
        """Put it beside weights."""
        if self.items is not None:
            storage.put(SEEN, self.items.to_bytes())


def split(uri: str) -> tuple[str, str]:
    """Return the folder and the name of a file."""
    folder, _, name = uri.rpartition("/")
    return folder or ("/" if uri.startswith("/") else "."), name

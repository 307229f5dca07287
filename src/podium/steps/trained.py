"""What training says about a model: ``metrics.json`` of its model directory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from podium.documents import parse, read_json
from podium.errors import NotFound

FILE = "metrics.json"


@dataclass(frozen=True, kw_only=True)
class TrainedMetrics:
    """Content of ``metrics.json``; a trainer may write more."""

    accuracy: float
    """On the validation part, of the weights that were kept."""

    loss: float
    """On the validation part, of the weights that were kept."""

    epoch: int
    """The epoch whose weights were kept."""

    dataset: str | None = None
    """Digest of the dataset."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    """Metrics of every epoch, by name."""

    @classmethod
    def read(cls, directory: Path) -> "TrainedMetrics":
        """Read it from a model directory.

        Raises:
            NotFound: There is no such file.
            InvalidInput: A field is missing or of another type.
        """
        path = directory / FILE
        try:
            return cast(TrainedMetrics, parse(cls, read_json(path), str(path)))
        except FileNotFoundError:
            raise NotFound(f"there is no {path}", "a trainer writes it to its --output") from None

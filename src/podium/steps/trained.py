"""What training says about a model: ``metrics.json`` of its model directory."""

from dataclasses import dataclass, field
from typing import cast

from podium.documents import MAX_JSON, load_json, parse
from podium.errors import NotFound
from podium.storage import connect

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
    def read(cls, uri: str) -> "TrainedMetrics":
        """Read it from a model directory.

        Raises:
            NotFound: There is no such file.
            InvalidInput: A field is missing or of another type.
        """
        name = f"{uri}/{FILE}"
        try:
            return cast(TrainedMetrics, parse(cls, load_json(connect(uri).get(FILE, limit=MAX_JSON + 1), name), name))
        except NotFound:
            raise NotFound(f"there is no {name}", "a trainer writes it to its --output") from None

"""The best trial of a sweep, and the model it left."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.display.notebook import table
from podium.errors import InvalidInput, NotFound, PodiumError
from podium.manifests.experiment import Trial

if TYPE_CHECKING:
    from podium.prediction import Predictions


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best trial of a sweep."""

    name: str
    parameters: dict[str, Any]
    """Value by search parameter, numbers as numbers."""

    metrics: dict[str, Any]
    """Value by metric, by the Experiment's strategies: the best or the latest."""

    value: float
    """The objective."""

    model: str | None
    """URI of its model directory; None if the trial left none."""

    def predict(self, items: Any, *, data: str | Path = "") -> "Predictions":
        """Predict new items with its model, as ``Version.predict`` does.

        Raises:
            NotFound: The trial left no model.
        """
        from podium.prediction import open_model

        if self.model is None:
            hint = "a trainer writes it to its parameter output, to --output or to PODIUM_OUTPUT"
            raise NotFound(f"trial {self.name} left no model", hint)
        return open_model(self.model).predict(items, data=data)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def _repr_html_(self) -> str:
        rows = [(key, str(value)) for key, value in {**self.parameters, **self.metrics}.items()]
        return table(
            ("NAME", ">VALUE"),
            [*rows, *([("model", self.model)] if self.model else [])],
            title=self.name,
        )


def model_of(trial: Trial) -> str | None:
    """Return the URI of a trial's model; None if it left none."""
    from podium.storage import connect
    from podium.training.retention import output_of

    try:
        url = output_of(trial)
    except InvalidInput:
        return None
    with suppress(PodiumError, OSError):
        return url if next(iter(connect(url).list()), None) else None
    return None

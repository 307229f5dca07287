"""Metrics that a training reports of its model: ``metrics.json`` of the model directory."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from podium.errors import InvalidInput
from podium.files.documents import parse

if TYPE_CHECKING:
    from podium.data.schema import DatasetInfo
    from podium.prediction.directory import ModelDirectory

FILE = "metrics.json"


@dataclass(frozen=True, kw_only=True)
class TrainedMetrics:
    """Content of ``metrics.json``: any ``name: number``, and these. A trainer may write more, or no
    such file."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    """On the validation part, of the weights that were kept."""

    epoch: int | None = None
    """The epoch whose weights were kept."""

    dataset: str | None = None
    unknown_weights: str | None = None
    """The weights that the training began with, if it is not known which items they had seen."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    folds: list[dict[str, float]] = field(default_factory=list)
    """Metrics of each fold if it was cross-validated: then it has learned from the validation
    part."""

    @classmethod
    def read(cls, directory: "ModelDirectory") -> "TrainedMetrics":
        """Read it from a model directory; empty if there is no such file.

        Raises:
            InvalidInput: It is not a JSON object, or a field is of another type.
        """
        document = directory.load(FILE)
        if document is None:
            return cls()
        if isinstance(document, dict):
            numbers = {
                key: value
                for key, value in document.items()
                if key != "epoch" and _is_number(value)
            }
            document = {**document, "metrics": numbers}
        return parse(cls, document, f"{directory.uri}/{FILE}")

    @classmethod
    def write(cls, directory: "ModelDirectory", epochs: Sequence[Mapping[str, float]]) -> None:
        """Put into a model directory what a training without such a file reported in its log, the
        last line last."""
        document = {**(epochs[-1] if epochs else {}), "epochs": [dict(epoch) for epoch in epochs]}
        directory.put(FILE, (json.dumps(document, indent=1) + "\n").encode())

    def check_data(self, uri: str, info: "DatasetInfo") -> None:
        """Refuse the model at a URI if it was trained on other data: it may have seen this test
        part.

        Raises:
            InvalidInput: Its metrics.json names another dataset.
        """
        if self.dataset not in (None, info.digest):
            raise InvalidInput(
                f"{uri} was trained on dataset {self.dataset}, but is evaluated on {info.digest}",
                "train every candidate on the dataset artifact of the evaluation",
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

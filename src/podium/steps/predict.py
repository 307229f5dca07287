"""Classify pictures with a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The prediction for one picture."""

    picture: str
    """The file."""

    label: str
    """The most probable class."""

    probabilities: dict[str, float]
    """By class, the most probable first; they sum to 1."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"picture": self.picture, "class": self.label, "probabilities": self.probabilities}


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A picture that could not be classified."""

    picture: str
    """The file."""

    reason: str
    """In one sentence that names the file."""


def predict(
    model: bytes | Path, pictures: Sequence[Path], *, dataset: str, classes: Sequence[str] | None = None
) -> tuple[list[Prediction], list[Unread]]:
    """Classify pictures; one that cannot be classified does not stop the others.

    Args:
        model: ``model.onnx`` or its bytes.
        pictures: .png and .jpg files, or folders of them.
        dataset: The dataset the model was trained on; decides how a picture is prepared.
        classes: Names of the classes; those of the dataset if None.

    Returns:
        Predictions, and the files that are not pictures, are damaged or show nothing.

    Raises:
        NotFound: A picture or the model is not there.
        Damaged: The model is not an ONNX model.
        InvalidInput: It is not known how to prepare pictures for this dataset, or the model has
            other inputs or classes.
        Failed: The model fails on these pictures.
    """
    import numpy as np

    from podium.data.pictures import find_pictures, prepare_picture
    from podium.data.sources.known import DATASETS
    from podium.scoring import OnnxModel

    if dataset not in DATASETS:
        raise InvalidInput(
            f"the model was trained on {dataset}, but pictures can be prepared only for {' and '.join(DATASETS)}",
            "if its images were made in the same way as one of these, name that one: --dataset mnist",
        )
    names = tuple(classes or DATASETS[dataset].classes)
    opened = OnnxModel(model)
    images, unread = {}, []
    for file in find_pictures(pictures):
        try:
            images[str(file)] = prepare_picture(file, dataset)
        except InvalidInput as error:
            unread.append(Unread(picture=str(file), reason=str(error)))
    if not images:
        return [], unread
    rows = opened.predict({opened.inputs[0].name: np.stack(list(images.values()))}, classes=len(names))
    return [_prediction(file, row.tolist(), names) for file, row in zip(images, rows, strict=True)], unread


def _prediction(picture: str, row: list[float], names: Sequence[str]) -> Prediction:
    ranked = dict(sorted(zip(names, row, strict=True), key=lambda pair: -pair[1]))
    return Prediction(picture=picture, label=next(iter(ranked)), probabilities=ranked)

"""Classify pictures with a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model says about one picture."""

    picture: str
    """The file."""

    label: str
    """The most probable class."""

    probabilities: dict[str, float]
    """By class, the most probable first; they sum to 1."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"picture": self.picture, "class": self.label, "probabilities": self.probabilities}


def predict(
    model: bytes | Path, pictures: Sequence[Path], *, dataset: str, classes: Sequence[str] | None = None
) -> list[Prediction]:
    """Classify pictures.

    Args:
        model: ``model.onnx`` or its bytes.
        pictures: .png and .jpg files, or folders of them.
        dataset: What the model was trained on; decides how a picture is prepared.
        classes: Names of the classes; those of the dataset if None.

    Raises:
        NotFound: A picture or the model is not there.
        Damaged: The model is no ONNX model.
        InvalidInput: A picture is none or shows nothing, or the model has other classes.
        Failed: The model fails on these pictures.
    """
    import numpy as np

    from podium.data.known import known_dataset
    from podium.data.pictures import find_pictures, prepare_picture
    from podium.scoring import Model, probabilities

    names = tuple(classes or known_dataset(dataset).classes)
    opened = Model(model)
    files = find_pictures(pictures)
    rows = probabilities(opened.logits(np.stack([prepare_picture(file, dataset) for file in files])))
    if rows.shape[1] != len(names):
        raise InvalidInput(f"{opened.name} has {rows.shape[1]} classes, but {dataset} has {len(names)}",
                           "was it trained on another dataset?")  # fmt: skip
    return [_prediction(str(file), row.tolist(), names) for file, row in zip(files, rows, strict=True)]


def _prediction(picture: str, row: list[float], names: Sequence[str]) -> Prediction:
    ranked = dict(sorted(zip(names, row, strict=True), key=lambda pair: -pair[1]))
    return Prediction(picture=picture, label=next(iter(ranked)), probabilities=ranked)

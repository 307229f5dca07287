"""Predictions of several versions for the same test pictures: as stored with the versions, or by running them."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.errors import Damaged, InvalidInput
from podium.registry import Contest, Model, PromotionRule, Version
from podium.steps.evaluate import LABELS, PREDICTIONS

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Several versions on the same pictures."""

    labels: "np.ndarray"
    """The true classes, integers ``[n]``."""

    predicted: "tuple[np.ndarray, ...]"
    """The predictions of each version, integers ``[n]``."""

    classes: tuple[str, ...]
    """Names of the classes."""

    images: "np.ndarray | None" = None
    """The pictures, uint8 ``[n, 28, 28]``; None for stored predictions."""


def predictions(model: Model, versions: Sequence[Version], data: str | None) -> Predictions:
    """Get the predictions of versions for one test part.

    Args:
        model: Whose versions they are.
        versions: The versions.
        data: URI of a dataset to run them on; None to use the predictions stored with them.

    Raises:
        InvalidInput: No predictions are stored, or they are of different pictures, and no data is given.
    """
    if data is not None:
        return _run(model, versions, data)
    digests = [version.facts.test_digest for version in versions]
    missing = [
        f"{file} of {version.version}"
        for version in versions
        for file in (PREDICTIONS, LABELS)
        if file not in version.files
    ]
    if missing or None in digests or len(set(digests)) != 1:
        why = f"{', '.join(missing)} is not stored" if missing else "they were evaluated on different pictures"
        raise InvalidInput(f"versions are compared on the same test pictures, but {why}", "run them again: --data URI")
    labels = stored_array(model, versions[0], LABELS)
    return Predictions(
        labels=labels,
        predicted=tuple(stored_array(model, version, PREDICTIONS) for version in versions),
        classes=versions[0].facts.dataset_classes or tuple(str(label) for label in range(int(labels.max()) + 1)),
    )


def contest(model: Model, version: str, rule: str, data: str | None, evidence: Mapping[str, Any]) -> Contest:
    """Let a version challenge the champion, with stored predictions or on given data.

    Args:
        model: Whose champion it is.
        version: The challenger, a version or an alias.
        rule: In the notation of PromotionRule.parse.
        data: URI of a dataset; None to use stored predictions.
        evidence: For the history.
    """
    challenger = model.version(version)
    champion = model.champion()
    both = (challenger, champion) if champion else (challenger,)
    seen = predictions(model, both, data)
    known = {of.version: array for of, array in zip(both, seen.predicted, strict=True)}

    def predict(of: Version) -> "np.ndarray":
        # Only a champion promoted since then is not known yet.
        return known[of.version] if of.version in known else predictions(model, (challenger, of), data).predicted[1]

    return model.challenge(challenger.version, PromotionRule.parse(rule), predict, seen.labels, evidence)


def stored_array(model: Model, version: Version, file: str) -> "np.ndarray":
    """Read an array of classes that is stored with a version; never a pickle, which could run any code.

    Raises:
        Damaged: It is not an array of integers.
    """
    import numpy as np

    try:
        array: np.ndarray = np.load(io.BytesIO(model.read(version, file)), allow_pickle=False)
    except (ValueError, EOFError, AttributeError) as error:
        raise Damaged(f"{file} of {version.name} {version.version} is not an array: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise Damaged(f"{file} of {version.name} {version.version} is not an integer array [n]")
    return array


def _run(model: Model, versions: Sequence[Version], data: str) -> Predictions:
    from podium.data.artifact import describe, load
    from podium.scoring import OnnxModel, class_indices

    info, part = describe(data), load(data, "test")
    models = (OnnxModel(model.read(version, "model.onnx")) for version in versions)
    predicted = tuple(class_indices(opened.predict(part.inputs, classes=len(info.classes))) for opened in models)
    return Predictions(labels=part.target, predicted=predicted, classes=info.classes, images=part.inputs["images"])

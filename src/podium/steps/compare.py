"""What versions predict for the same test pictures: as stored with them, or by running them."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.errors import Damaged, InvalidInput
from podium.registry import Contest, PromotionRule, Registry, Version, challenge
from podium.steps.evaluate import LABELS, PREDICTIONS

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Several models on the same pictures."""

    labels: "np.ndarray"
    """The truth, integers ``[n]``."""

    predicted: "tuple[np.ndarray, ...]"
    """What each model says, integers ``[n]``."""

    classes: tuple[str, ...]
    """Names of the classes."""

    images: "np.ndarray | None" = None
    """The pictures, uint8 ``[n, 28, 28]``, where they were at hand."""


def predictions(registry: Registry, versions: Sequence[Version], data: str | None) -> Predictions:
    """Get what versions predict for one test part.

    Args:
        registry: Where they are.
        versions: Which.
        data: URI of a dataset to run them on; None to use what is stored with them.

    Raises:
        InvalidInput: Nothing is stored, or it is of different pictures, and no data is given.
    """
    if data is not None:
        return _run(registry, versions, data)
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
    labels = stored_array(registry, versions[0], LABELS)
    return Predictions(
        labels=labels,
        predicted=tuple(stored_array(registry, version, PREDICTIONS) for version in versions),
        classes=versions[0].facts.dataset_classes or tuple(str(label) for label in range(int(labels.max()) + 1)),
    )


def contest(
    registry: Registry, name: str, version: str, rule: str, data: str | None, evidence: Mapping[str, Any]
) -> Contest:
    """Let a version challenge the champion, with stored predictions or on given data.

    Args:
        registry: Where.
        name: The model.
        version: The challenger, a version or an alias.
        rule: As PromotionRule.parse reads it.
        data: URI of a dataset, or None.
        evidence: Goes into the history.
    """
    challenger = registry.resolve(name, version)
    champion = registry.champion(name)
    both = (challenger, champion) if champion else (challenger,)
    seen = predictions(registry, both, data)
    known = {one.version: array for one, array in zip(both, seen.predicted, strict=True)}

    def predict(one: Version) -> "np.ndarray":
        # Only a champion that was crowned since is not known yet.
        return (
            known[one.version] if one.version in known else predictions(registry, (challenger, one), data).predicted[1]
        )

    return challenge(registry, name, challenger.version, PromotionRule.parse(rule), predict, seen.labels, evidence)


def stored_array(registry: Registry, version: Version, file: str) -> "np.ndarray":
    """Read an array of classes that is stored with a version; never a pickle, which could run anything.

    Raises:
        Damaged: It is something else.
    """
    import numpy as np

    try:
        array: np.ndarray = np.load(io.BytesIO(registry.read(version, file)), allow_pickle=False)
        if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
            return array
    except (ValueError, EOFError, AttributeError) as error:
        raise Damaged(f"{file} of {version.name} {version.version} is not an array: {error}") from None
    raise Damaged(
        f"{file} of {version.name} {version.version} must be integers [n], but is {array.dtype} {array.shape}"
    )


def _run(registry: Registry, versions: Sequence[Version], data: str) -> Predictions:
    from podium.data.artifact import describe, load
    from podium.scoring import Model

    info, part = describe(data), load(data, "test")
    predicted = tuple(Model(registry.read(one, "model.onnx")).logits(part.images).argmax(1) for one in versions)
    return Predictions(labels=part.labels, predicted=predicted, classes=tuple(info.classes), images=part.images)

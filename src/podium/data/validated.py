"""Validation predictions of a trained model, beside its metrics: from them follows how sure the
order of a leaderboard is."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from podium.errors import Damaged, NotFound
from podium.files.arrays import read_arrays
from podium.storage import Storage

VALIDATED = "validation.npz"
"""File of a model directory: ``target`` and ``predictions`` of the validation part, in its order."""

MOST = 1 << 20
"""Bytes of predictions that are kept: of more only the classes, and of too many items nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Validated:
    """The validation part's target, and what a model predicted of it."""

    target: NDArray[np.generic]
    """Class indices ``[n]``, or floats ``[n]`` or ``[n, k]``."""

    predictions: NDArray[np.generic]
    """Probabilities ``[n, classes]`` or class indices ``[n]``; or floats in the target's shape."""

    folds: NDArray[np.generic] | None = None
    """Of cross-validation: the number of the fold that each item was predicted in, ``[n]``."""

    has_groups: bool = False
    """Whether items belong to groups, so that they do not count alone."""

    @classmethod
    def joined(cls, parts: Sequence[tuple[NDArray[Any], NDArray[Any]]], has_groups: bool) -> Self:
        """Return targets and predictions of several folds together."""
        numbers = [np.full(len(target), at) for at, (target, _) in enumerate(parts, 1)]
        predictions = [predicted for _, predicted in parts]
        if (
            len({each.ndim for each in predictions}) > 1
        ):  # of larger folds the classes alone are kept
            predictions = [each.argmax(1) if each.ndim == 2 else each for each in predictions]
        return cls(
            target=np.concatenate([target for target, _ in parts]),
            predictions=np.concatenate(predictions),
            folds=np.concatenate(numbers),
            has_groups=has_groups,
        )

    def mean(self, value: Callable[[NDArray[Any], NDArray[Any]], float]) -> float:
        """Return a figure of target and predictions, or its mean over the folds."""
        if self.folds is None:
            return value(self.target, self.predictions)
        masks = [self.folds == number for number in np.unique(self.folds)]
        return float(np.mean([value(self.target[at], self.predictions[at]) for at in masks]))

    def write(self, storage: Storage) -> None:
        """Put it beside a model; nothing if it is too large."""
        target, predictions = _small(self.target), _small(self.predictions)
        if predictions.nbytes > MOST and target.dtype.kind in "iu" and predictions.ndim == 2:
            predictions = _small(predictions.argmax(1))
        if max(target.nbytes, predictions.nbytes) <= MOST:
            file = io.BytesIO()
            more: dict[str, Any] = {} if self.folds is None else {"folds": _small(self.folds)}
            more |= {"has_groups": np.array(True)} if self.has_groups else {}
            np.savez(file, target=target, predictions=predictions, **more)
            storage.put(VALIDATED, file.getvalue())

    @classmethod
    def read(cls, storage: Storage) -> "Validated | None":
        """Read it; None if there is none, or no two arrays of the same items."""
        try:
            content = storage.get(VALIDATED, limit=4 * MOST)
            arrays = read_arrays(content, VALIDATED)
            found = cls(
                target=_of_one(arrays["target"]),
                predictions=_of_one(arrays["predictions"]),
                folds=arrays.get("folds"),
                has_groups="has_groups" in arrays,
            )
        except (NotFound, Damaged, OSError, KeyError):
            return None
        return found if 0 < len(found.target) == len(found.predictions) else None


def _of_one(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return [n, 1] as [n]: networks leave the one, scikit-learn's models the other."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def _small(array: NDArray[np.generic]) -> NDArray[np.generic]:
    if array.dtype.kind in "iu" and array.size and int(array.min()) >= 0:
        return array.astype(np.min_scalar_type(int(array.max())))
    return array.astype(np.float32) if array.dtype.kind == "f" else array

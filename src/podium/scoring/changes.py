"""The items on which one of two models does better."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.scoring.families import Array, class_indices, only_right

_MOST_ERRORS = 20
"""Items whose error grew, and as many whose error shrank, that are listed."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """An item that two models predict differently."""

    item: int
    """Its index in the test part."""

    target: str

    before: str
    """Prediction of the first model."""

    after: str
    """Prediction of the second model."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The items on which a second model does better or worse than a first."""

    gained: tuple[Change, ...]
    """Classification: wrong before, right after. Regression: the errors that shrank most."""

    lost: tuple[Change, ...]
    """Classification: right before, wrong after. Regression: the errors that grew most."""

    items_gained: int

    items_lost: int
    """How many there are, listed or not."""


def flips(target: Array, before: Array, after: Array, classes: Sequence[str]) -> Changes:
    """List the items that only one of two classifiers has right.

    Args:
        target: Class indices ``[n]``.
        before: Predictions of the first model.
    """
    old, new = class_indices(before), class_indices(after)
    gained, lost = only_right(target, new, old)

    def changes(where: Array) -> tuple[Change, ...]:
        return tuple(
            Change(
                item=at, target=classes[target[at]], before=classes[old[at]], after=classes[new[at]]
            )
            for at in np.flatnonzero(where).tolist()
        )

    return Changes(
        gained=changes(gained),
        lost=changes(lost),
        items_gained=int(gained.sum()),
        items_lost=int(lost.sum()),
    )


def moved_errors(target: Array, before: Array, after: Array) -> Changes:
    """List the items whose absolute error changed most, the largest change first.

    Args:
        target: Floats ``[n]`` or ``[n, k]``; with several numbers their mean error counts.
        before: Predictions of the first model.
    """
    before, after = (
        before.reshape(target.shape),
        after.reshape(target.shape),
    )  # one number may be a column or not
    errors = [np.abs(target - array).reshape(len(target), -1).mean(1) for array in (before, after)]
    growth = errors[1] - errors[0]
    order = np.argsort(growth, kind="stable")

    def changes(indices: Array) -> tuple[Change, ...]:
        return tuple(
            Change(
                item=int(at),
                target=_number(target[at]),
                before=_number(before[at]),
                after=_number(after[at]),
            )
            for at in indices
        )

    shrunk, grown = order[:_MOST_ERRORS], order[::-1][:_MOST_ERRORS]
    return Changes(
        gained=changes(shrunk[growth[shrunk] < 0]),
        lost=changes(grown[growth[grown] > 0]),
        items_gained=int((growth < 0).sum()),
        items_lost=int((growth > 0).sum()),
    )


def _number(value: Any) -> str:
    return ", ".join(f"{number:.6g}" for number in np.atleast_1d(value))

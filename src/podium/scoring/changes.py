"""The items on which one of two models does better."""

from collections.abc import Callable, Sequence
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

    @classmethod
    def of_classes(
        cls, target: Array, before: Array, after: Array, classes: Sequence[str]
    ) -> "Changes":
        """List the items that only one of two classifiers has right.

        Args:
            target: Class indices ``[n]``.
            before: Predictions of the first model.
        """
        old, new = class_indices(before), class_indices(after)
        gained, lost = only_right(target, new, old)
        word = classes.__getitem__
        return cls(
            gained=_changes(np.flatnonzero(gained), target, old, new, word),
            lost=_changes(np.flatnonzero(lost), target, old, new, word),
            items_gained=int(gained.sum()),
            items_lost=int(lost.sum()),
        )

    @classmethod
    def of_numbers(cls, target: Array, before: Array, after: Array) -> "Changes":
        """List the items whose absolute error changed most, the largest change first.

        Args:
            target: Floats ``[n]`` or ``[n, k]``; with several numbers their mean error counts.
            before: Predictions of the first model.
        """
        before, after = (
            before.reshape(target.shape),
            after.reshape(target.shape),
        )  # one number may be a column or not
        errors = [
            np.abs(target - array).reshape(len(target), -1).mean(1) for array in (before, after)
        ]
        growth = errors[1] - errors[0]
        order = np.argsort(growth, kind="stable")
        shrunk, grown = order[:_MOST_ERRORS], order[::-1][:_MOST_ERRORS]
        return cls(
            gained=_changes(shrunk[growth[shrunk] < 0], target, before, after, _number),
            lost=_changes(grown[growth[grown] > 0], target, before, after, _number),
            items_gained=int((growth < 0).sum()),
            items_lost=int((growth > 0).sum()),
        )


def _changes(
    items: Array, target: Array, before: Array, after: Array, word: Callable[[Any], str]
) -> tuple[Change, ...]:
    return tuple(
        Change(item=at, target=word(target[at]), before=word(before[at]), after=word(after[at]))
        for at in items.tolist()
    )


def _number(value: Any) -> str:
    return ", ".join(f"{number:.6g}" for number in np.atleast_1d(value))

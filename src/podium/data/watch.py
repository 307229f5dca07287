"""Counts of a served model's inputs and predictions in the bins of its training part; no item is
stored."""

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.data.profile import Profile

Array = NDArray[Any]
Counts = dict[tuple[str, str], NDArray[np.int64]]
"""Items by bin, of each ``input`` or ``prediction`` and its name."""

HELD_ROWS, HELD_BYTES = 512, 4 << 20
"""Counted together: one by one, a row would take longer to count than to predict."""


class Watch:
    """Counts a share of what passes a model.

    Args:
        profile: Says which bins there are.
        share: Of calls of the model that are counted, 0 to 1.
    """

    def __init__(self, profile: Profile, share: float = 1.0) -> None:
        self.profile, self._share = profile, share
        self._counts: Counts = {
            key: np.zeros(len(bins.labels), np.int64) for key, bins in profile.bins().items()
        }
        self._held = list[tuple[Mapping[str, Array], Array]]()
        self._lock, self._chance = Lock(), np.random.default_rng()
        self.items = 0
        """Counted so far."""

        self.failures = 0
        """Calls that did not fit the bins."""

    def note(self, inputs: Mapping[str, Array], predicted: Array) -> None:
        """Take note of a call of the model: its inputs, each [n, …], and probabilities, classes or
        numbers."""
        with self._lock:
            if self._share < 1 and self._chance.random() >= self._share:
                return
            self._held.append((inputs, predicted))
            rows = sum(len(said) for _, said in self._held)
            size = sum(array.nbytes for given, _ in self._held for array in given.values())
            if rows >= HELD_ROWS or size >= HELD_BYTES:
                self._count()

    def counts(self) -> Counts:
        """Return what was counted so far, by bin."""
        with self._lock:
            self._count()
            return {key: counts.copy() for key, counts in self._counts.items()}

    def _count(self) -> None:
        held, self._held = self._held, []
        if not held:
            return
        try:
            inputs = {
                name: np.concatenate([given[name] for given, _ in held]) for name in held[0][0]
            }
            predicted = np.concatenate([said for _, said in held])
            new = self.profile.count(inputs, predicted)
        except (
            KeyError,
            IndexError,
            ValueError,
        ):  # of another shape than in training, which the model may take
            self.failures += len(held)
            return
        self.items += len(predicted)
        for key, counts in new.items():
            self._counts[key] += counts

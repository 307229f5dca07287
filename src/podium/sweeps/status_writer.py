"""An Experiment's status on its way to where it is kept: conditions at once, mere counts a few
times a second."""

import copy
import time
from collections.abc import Callable

from podium.manifests.experiment.status import Status, same_conditions

_PAUSE_SECONDS = 0.2
"""Interval between writes of mere counts: they grow with the number of trials."""


class StatusWriter:
    """Writes the status of one Experiment.

    Args:
        write: Puts a status where the Experiment is kept.
    """

    def __init__(self, write: Callable[[Status], None]) -> None:
        self._write = write
        self._written: Status = {}
        self._at = 0.0

    def pause(self, status: Status) -> float | None:
        """Return the seconds until the status is due to be written; None if that has been done."""
        return (
            None
            if status == self._written
            else max(0.0, self._at + _PAUSE_SECONDS - time.monotonic())
        )

    def follow(self, status: Status) -> None:
        """Write the status if it is due, or if a condition changed."""
        if self.pause(status) == 0 or not same_conditions(status, self._written):
            self.write(status)

    def write(self, status: Status) -> None:
        """Write the status if it changed.

        Raises:
            NotFound: Somebody removed the Experiment.
        """
        if status != self._written:
            self._at, written = time.monotonic(), copy.deepcopy(status)
            self._write(written)
            self._written = written

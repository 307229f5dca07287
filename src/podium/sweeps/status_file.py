"""An Experiment's status in its file: conditions at once, mere counts a few times a second."""

import copy
import time
from contextlib import suppress
from typing import Any

from podium.cluster.local.store import Store
from podium.errors import NotFound
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.status import same_conditions

PAUSE = 0.2
"""Seconds between two writes of mere counts: they grow with the number of trials."""


class StatusFile:
    """Writes the status of one Experiment.

    Args:
        store: Holds it.
        experiment: Its spec is written too: it may have been edited.
    """

    def __init__(self, store: Store, experiment: Experiment) -> None:
        self._store, self._experiment = store, experiment
        self._written: dict[str, Any] = {}
        self._at = 0.0

    def pause(self, status: dict[str, Any]) -> float | None:
        """Return the seconds until the status is due to be written; None if that has been done."""
        return None if status == self._written else max(0.0, self._at + PAUSE - time.monotonic())

    def follow(self, status: dict[str, Any]) -> None:
        """Write the status if it is due, or if a condition changed."""
        if self.pause(status) == 0 or not same_conditions(status, self._written):
            self.write(status)

    def write(self, status: dict[str, Any]) -> None:
        """Write the status if it changed.

        Raises:
            NotFound: Somebody removed the Experiment.
        """
        if status != self._written:
            self._at, written = time.monotonic(), copy.deepcopy(status)
            spec = dict(self._experiment.spec)
            self._store.update(
                "Experiment", self._experiment.name, lambda manifest: manifest.update(status=written, spec=spec)
            )
            self._written = written

    def close(self, status: dict[str, Any]) -> None:
        """Write the status for the last time; where there is no room, the Experiment reads as one left behind."""
        with suppress(NotFound, OSError):
            self.write(status)
        self._store.disown("Experiment", self._experiment.name)

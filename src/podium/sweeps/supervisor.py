"""What runs an Experiment in the background, and how its deletion takes all it made with it."""

import threading
from typing import TYPE_CHECKING

from podium.cluster.local.cluster import LocalCluster
from podium.cluster.local.store import POLL
from podium.interrupts import Background
from podium.manifests.kinds import JOB_KINDS

if TYPE_CHECKING:
    from podium.sweeps.controller import ExperimentController


class ExperimentSupervisor:
    """An Experiment's controller, and a look at whether somebody, maybe another process, wants it deleted."""

    def __init__(self, cluster: LocalCluster, controller: "ExperimentController") -> None:
        self._cluster, self._controller = cluster, controller
        self._wake, self._closing, self._ended = threading.Event(), threading.Event(), threading.Event()
        controller.at_end = self._note_end
        self._thread = Background(self._run, f"podium-supervisor-{controller.name}")

    def start(self) -> None:
        """Begin."""
        self._controller.start()
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end of all trials, without waiting."""
        self._closing.set()
        self._controller.stop()

    def wake(self) -> None:
        """Ask for a look at the object: it may have to be deleted."""
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no trial is running; return whether that is so."""
        return self._thread.join(timeout)

    def _note_end(self) -> None:
        self._ended.set()
        self._wake.set()

    def _run(self) -> None:
        store, name = self._cluster.store, self._controller.name
        while not self._ended.is_set():
            self._wake.wait(POLL)
            self._wake.clear()
            if store.is_deletion_asked("Experiment", name):
                self._controller.stop()
                self._controller.join()
            elif self._closing.is_set():
                self._controller.join()
            elif store.is_stop_asked("Experiment", name):
                self._controller.stop()
        self._controller.join()
        if store.is_deletion_asked("Experiment", name):
            remove_experiment(self._cluster, name)


def remove_experiment(cluster: LocalCluster, name: str) -> None:
    """Remove an Experiment that no process runs, with its trials and their jobs."""
    for trial in cluster.trials(name):
        for kind in JOB_KINDS:
            if cluster.store.exists(kind, trial.name):
                cluster.delete(kind, trial.name)
        cluster.store.remove("Trial", trial.name)
    cluster.store.remove("Experiment", name)

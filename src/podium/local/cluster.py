"""A cluster inside this process: PyTorchJobs and Jobs as processes, Experiments as trial loops over them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podium.cluster.base import Manifest
from podium.errors import InvalidInput, require
from podium.local.jobs import LocalJobs
from podium.local.katib.supervisor import ExperimentSupervisor, remove_experiment
from podium.local.supervisor import Supervisor


class LocalCluster(LocalJobs):
    """Jobs and Experiments under a directory, which also holds ``{experiments,trials}/<name>/``."""

    creates = (*LocalJobs.creates, "Experiment")

    def _store(self, manifest: Manifest) -> tuple[Manifest, Supervisor]:
        if manifest["kind"] != "Experiment":
            return super()._store(manifest)
        from podium.local.katib.experiment import ExperimentController

        place = self.store.place("Experiment", manifest["metadata"]["name"])
        # Its constructor checks the manifest; nothing is stored if that fails.
        controller = ExperimentController(self, manifest, place)
        return self.store.create(manifest), ExperimentSupervisor(self, controller)

    def _remove(self, kind: str, name: str) -> None:
        if kind == "Experiment":
            remove_experiment(self, name)
        else:
            super()._remove(kind, name)

    def _before_closing(self, supervisors: Mapping[tuple[str, str], Supervisor]) -> None:
        # They would take it for a failure that further trials are refused.
        for (kind, _), supervisor in supervisors.items():
            if kind == "Experiment":
                supervisor.stop()


def open_local(url: str, **options: Any) -> LocalCluster:
    """Open the cluster of a ``local:///dir`` URL.

    Raises:
        InvalidInput: The URL names no absolute directory.
    """
    directory = Path(url.removeprefix("local://"))
    if not directory.is_absolute():
        raise InvalidInput(f"`local:///absolute/dir` must hold, but got {url!r}", f"say local://{directory.absolute()}")
    require(directory.is_dir() or not directory.exists(), "a local cluster's URL names a directory", url=url)
    return LocalCluster(directory, **options)

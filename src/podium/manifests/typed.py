"""The typed object of a manifest, by its kind."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from podium.display.terminal import readable
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.experiment.trial import Trial
from podium.manifests.kinds import JOB_KINDS
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload

_TYPES: dict[str, type[Resource]] = {
    "Experiment": Experiment,
    "Trial": Trial,
    **dict.fromkeys(JOB_KINDS, Workload),
}


def typed(manifest: Mapping[str, Any]) -> Resource:
    """Return the Experiment, Trial or Workload that a manifest is; a Resource if it is of another
    kind.

    Raises:
        InvalidInput: It is not an object.
        BrokenRules: A field of an Experiment has another type than Katib's.
    """
    return _TYPES.get(Resource.parse(manifest).kind, Resource).parse(manifest)


class Reader:
    """Reads what a cluster stores. An Experiment whose spec is as it was is not parsed again for a
    new status."""

    def __init__(self) -> None:
        self._experiments: dict[str, Experiment] = {}

    def read(self, manifest: Mapping[str, Any]) -> Resource:
        name, spec = Resource.parse(manifest).name, manifest.get("spec")
        cached = self._experiments.get(name) if manifest.get("kind") == "Experiment" else None
        if cached and spec in (cached.manifest.get("spec"), cached.defaulted):
            return self.remember(replace(cached, manifest=dict(manifest)))
        return self.remember(typed(manifest))

    def read_all(self, manifests: Iterable[Mapping[str, Any]]) -> Iterator[Resource]:
        """Yield objects; one that anybody wrote with fields of wrong types is left out with a
        warning, once."""
        return readable(
            manifests,
            self.read,
            lambda manifest: f"{manifest.get('kind')} {Resource.parse(manifest).name}",
        )

    def remember(self, resource: Resource) -> Resource:
        """Take in an object that was read or made elsewhere, and return it."""
        if isinstance(resource, Experiment):
            self._experiments[resource.name] = resource
        return resource

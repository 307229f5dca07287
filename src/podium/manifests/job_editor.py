"""A job's manifest while it is altered: the pod templates of every kind are reached, and written
back, in one way."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.errors import InvalidInput, require
from podium.manifests import trainjob
from podium.manifests.fields import items, mapping, present, text, unshared
from podium.manifests.kinds import OPERATOR_KINDS, TRAINJOB

DISRUPTED = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""Rule of a Job's podFailurePolicy: a pod that was evicted or preempted is replaced and is no
failure."""


@dataclass(frozen=True, kw_only=True)
class JobEditor:
    """A copy of a job's manifest to be altered; nothing in it is shared with the original."""

    body: dict[str, Any]
    """The manifest; of a TrainJob without the changes to its pods."""

    node_template: dict[str, Any]
    """Pod template of a TrainJob's nodes; empty for another kind, whose templates stand in the
    manifest."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "JobEditor":
        """Copy a manifest. YAML anchors make Master and Worker one object: here each gets its
        own."""
        nodes = (
            trainjob.node_template(mapping(manifest.get("spec")))
            if manifest.get("kind") == TRAINJOB
            else {}
        )
        return cls(body=unshared(manifest), node_template=nodes)

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest with all changes.

        Raises:
            InvalidInput: A pod has a field that a TrainJob leaves to its runtime.
        """
        if not self.node_template:
            return self.body
        return {
            **self.body,
            "spec": trainjob.with_node_template(mapping(self.body.get("spec")), self.node_template),
        }

    @property
    def templates(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Role and pod template of each replica that has one."""
        spec, kind = mapping(self.body.get("spec")), self.body.get("kind")
        if kind == "Job":
            templates = {"": spec.get("template")}
        elif kind == TRAINJOB:
            templates = {trainjob.training_job(spec).capitalize(): self.node_template}
        else:
            operator = OPERATOR_KINDS.get(text(kind))
            replicas = mapping(spec.get(operator.replica_specs)) if operator else {}
            templates = {
                role: mapping(replica).get("template") for role, replica in replicas.items()
            }
        return (
            (role, template)
            for role, template in templates.items()
            if isinstance(template, dict) and isinstance(template.get("spec"), dict)
        )

    def takes(self, field: str) -> bool:
        """Return whether the manifest may set a field of its pods' spec; a TrainJob's runtime sets
        some of them."""
        return self.body.get("kind") != TRAINJOB or field in trainjob.PATCHED_POD

    @property
    def run_policy(self) -> dict[str, Any]:
        """The mapping of deadlines and limits; created if missing."""
        spec: dict[str, Any] = self.body["spec"]
        if self.body.get("kind") in ("Job", TRAINJOB):
            return spec
        policy: dict[str, Any] = spec.setdefault("runPolicy", {})
        return policy

    def set_restart_policy(self, policy: str) -> None:
        """Set the restart policy of every replica that the training operator runs."""
        if operator := OPERATOR_KINDS.get(text(self.body.get("kind"))):
            for replica in mapping(
                mapping(self.body.get("spec")).get(operator.replica_specs)
            ).values():
                replica["restartPolicy"] = policy

    def limit(self, *, deadline: int, kept: int, tries: int | None = None) -> None:
        """Bound a job's time and tries; the tries of a TrainJob, and how long it is kept, are its
        runtime's.

        Args:
            deadline: Seconds from the start after which it fails.
            kept: Seconds from the end after which it is deleted.
            tries: Failures, or restarts, after which it fails; None leaves them as they are.
        """
        policy = self.run_policy
        policy["activeDeadlineSeconds"] = deadline
        if self.body.get("kind") != TRAINJOB:
            policy["ttlSecondsAfterFinished"] = kept
            policy |= present(backoffLimit=tries)
        self.replace_disrupted()

    def replace_disrupted(self) -> None:
        """Replace a Job's evicted or preempted pod once it has ended.

        A Job that has a podFailurePolicy keeps it; one whose pods restart in place may have none.
        """
        for _, template in self.templates if self.body.get("kind") == "Job" else ():
            if template["spec"].get("restartPolicy") == "Never":
                self.body["spec"].setdefault("podFailurePolicy", {"rules": [unshared(DISRUPTED)]})

    def set_workers(self, workers: int) -> None:
        """Set how many pods a PyTorchJob or TrainJob has beside its first one. A PyTorchJob's
        backoffLimit, which counts the restarts of all pods together, grows or shrinks with them.

        Raises:
            InvalidInput: It is another kind of job, and workers are asked for.
        """
        require(workers >= 0, "workers >= 0", workers=workers)
        spec, kind = self.body.get("spec"), self.body.get("kind")
        if kind == TRAINJOB and isinstance(spec, dict):
            merge(spec, ("trainer",), {"numNodes": workers + 1})
            return
        replicas = spec.get("pytorchReplicaSpecs") if isinstance(spec, dict) else None
        if replicas is None and workers:
            raise InvalidInput(
                f"a {kind} has no workers, but {workers} are asked for",
                "use a PyTorchJob or TrainJob",
            )
        if isinstance(replicas, dict):
            self._scale_tries(replicas, workers + 1)
            roles = {
                str(role).capitalize(): role for role in replicas
            }  # the operator takes any case
            like = replicas.pop(roles.get("Worker"), None)
            like = like or unshared(replicas.get(roles.get("Master"))) or {}
            replicas |= {"Worker": {**like, "replicas": workers}} if workers else {}

    def _scale_tries(self, replicas: dict[str, Any], pods: int) -> None:
        counts = [mapping(each).get("replicas", 1) for each in replicas.values()]
        tries: Any = mapping(self.body["spec"].get("runPolicy")).get("backoffLimit")
        all_integers = isinstance(tries, int) and all(isinstance(each, int) for each in counts)
        if all_integers and sum(counts):
            self.run_policy["backoffLimit"] = -(-tries * pods // sum(counts))

    def identify(self, name: str, owner: Mapping[str, Any] | None) -> None:
        """Give the object a name and an owner; its namespace is left to the cluster."""
        metadata = mapping(self.body.get("metadata"))
        kept = {key: value for key, value in metadata.items() if key in ("labels", "annotations")}
        self.body["metadata"] = {
            "name": name,
            **kept,
            **({"ownerReferences": [dict(owner)]} if owner else {}),
        }

    def label(self, labels: Mapping[str, str]) -> None:
        merge(self.body, ("metadata", "labels"), labels)

    def annotate(self, annotations: Mapping[str, str]) -> None:
        merge(self.body, ("metadata", "annotations"), annotations)

    def label_pods(self, labels: Mapping[str, str]) -> None:
        for _, template in self.templates if labels else ():
            merge(template, ("metadata", "labels"), labels)

    def containers(self, name: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield role and body of every container, or of those of a name."""
        for role, template in self.templates:
            for container in items(template["spec"].get("containers")):
                if isinstance(container, dict) and (name is None or container.get("name") == name):
                    yield role, container

    def replace_texts(self, change: Callable[[str], str]) -> None:
        for holder in (self.body, self.node_template):
            for key, value in holder.items():
                holder[key] = unshared(value, change)

    def default_commands(self, entrypoint: Callable[[str], Sequence[str]]) -> None:
        """Give each container without a command, init containers too, the entrypoint of its image
        if known."""
        for _, template in self.templates:
            for part in ("initContainers", "containers"):
                for container in items(template["spec"].get(part)):
                    has_none = isinstance(container, dict) and not container.get("command")
                    if has_none and (words := entrypoint(text(container.get("image")))):
                        container["command"] = list(words)

    def mount_host_path(
        self, role: str, container: dict[str, Any], name: str, folder: str, host: str
    ) -> None:
        """Mount a directory of the machine into a container of a replica."""
        _mount(container, name, folder)
        self._add(role, "volumes", {"name": name, "hostPath": {"path": host, "type": "Directory"}})

    def add_sidecar(
        self,
        role: str,
        container: dict[str, Any],
        sidecar: Mapping[str, Any],
        *,
        volume: str,
        folder: str,
        host: str = "",
    ) -> None:
        """Add a container that runs beside one of a replica, from before its start to after its
        end, and shares a directory with it.

        Args:
            sidecar: The container; Kubernetes 1.29 and later know init containers that go on.
            folder: Mount path in both containers.
            host: A name by which the pod's containers reach it.
        """
        if host:
            self._add(role, "hostAliases", {"ip": "127.0.0.1", "hostnames": [host]})
        beside = {**sidecar, "restartPolicy": "Always"}
        for body in (container, beside):
            _mount(body, volume, folder)
        self._add(role, "volumes", {"name": volume, "emptyDir": {}})
        self._add(role, "initContainers", beside)

    def _add(self, role: str, field: str, entry: Mapping[str, Any]) -> None:
        for other, template in self.templates:
            if other == role:
                template["spec"][field] = [*items(template["spec"].get(field)), dict(entry)]


def _mount(container: dict[str, Any], name: str, folder: str) -> None:
    container["volumeMounts"] = [
        *items(container.get("volumeMounts")),
        {"name": name, "mountPath": folder},
    ]


def merge(holder: dict[str, Any], path: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Add entries to an object inside another one; objects that are missing or null on the way are
    made."""
    for name in path:
        inner = holder.get(name)
        holder[name] = holder = dict(inner) if isinstance(inner, Mapping) else {}
    holder.update(values)


def set_env(container: dict[str, Any], entries: Iterable[Mapping[str, Any]]) -> None:
    """Add entries to a container's environment; those of the same name are replaced."""
    added = {entry["name"]: dict(entry) for entry in entries}
    kept = [
        entry for entry in items(container.get("env")) if mapping(entry).get("name") not in added
    ]
    if kept or added:
        container["env"] = [*kept, *added.values()]

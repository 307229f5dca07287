"""Checks of a pod template as the API server makes them: types of fields, containers and their
variables."""

from collections.abc import Iterator
from typing import Any

from podium.manifests.fields import numbered
from podium.manifests.rules import Violation, broken
from podium.manifests.structure import INT, OBJECT, TEXT, Schema
from podium.manifests.workload import Pod

ENV: Schema = [{"name": TEXT, "value": TEXT, "valueFrom": OBJECT}]
RESOURCES: Schema = {"requests": OBJECT, "limits": OBJECT}
_CONTAINER: Schema = {
    "name": TEXT,
    "image": TEXT,
    "command": [TEXT],
    "args": [TEXT],
    "workingDir": TEXT,
    "env": ENV,
    "envFrom": [OBJECT],
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "subPath": TEXT}],
    "resources": RESOURCES,
    "securityContext": OBJECT,
}
POD_TEMPLATE: Schema = {
    "metadata": {"labels": OBJECT, "annotations": OBJECT},
    "spec": {
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "volumes": [{"name": TEXT}],
        "restartPolicy": TEXT,
        "terminationGracePeriodSeconds": INT,
        "serviceAccountName": TEXT,
        "imagePullSecrets": [{"name": TEXT}],
        "securityContext": OBJECT,
        "nodeSelector": OBJECT,
        "affinity": OBJECT,
        "tolerations": [OBJECT],
        "schedulingGates": [OBJECT],
    },
}


def broken_containers(pod: Pod) -> Iterator[Violation]:
    """Yield the violations in a pod's containers."""
    if not pod.containers:
        yield broken(f"{pod.path}.spec.containers", "must hold a container", [])
    for container in (*pod.containers, *pod.init_containers):
        if not container.image:
            hint = "any name will do on one machine, where this Python stands for it"
            yield broken(f"{container.path}.image", "must be given", container.image, hint)
        if not container.name:
            yield broken(f"{container.path}.name", "must be given", container.name)
        yield from broken_variables(f"{container.path}.env", container.manifest.get("env"))


def broken_variables(path: str, env: Any) -> Iterator[Violation]:
    """Yield the violations in the entries of an environment."""
    for where, variable in numbered(path, env):
        if not variable.get("name"):
            yield broken(f"{where}.name", "must be given", variable.get("name"))
        if variable.get("value") and variable.get("valueFrom") is not None:
            yield broken(where, "must have either value or valueFrom", dict(variable))

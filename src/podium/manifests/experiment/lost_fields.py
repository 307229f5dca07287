"""Fields of a trial's Job that Katib's webhook would lose.

It reads the Job into Kubernetes' own type, writes that, and refuses the Experiment unless all
comes back (katib 0.19, validatePatchJob): a field that a Job does not have is lost, and so is an
empty value that Kubernetes does not write; 1024Mi comes back as 1Gi. It checks no other kind of
job.

Source of the tables: the types of k8s.io/api 0.34, which Katib 0.19 is built with.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from podium.manifests.admission import schema_of
from podium.manifests.rules import Violation, broken
from podium.manifests.structure import TEXT, kubernetes_schema, unknown_fields
from podium.manifests.workload import Workload

_KEPT_LISTS = {"containers", "monitors", "nodeSelectorTerms", "rules", "sources", "values"}
_LOST: Mapping[str, Any] = {
    "annotations": {}, "labels": {}, "limits": {}, "matchLabels": {}, "nodeSelector": {}, "overhead": {},
    "requests": {}, "volumeAttributes": {},
    "hostIPC": False, "hostNetwork": False, "hostPID": False, "readOnly": False, "stdin": False, "stdinOnce": False,
    "tty": False,
    "failureThreshold": 0, "hostPort": 0, "initialDelaySeconds": 0, "periodSeconds": 0, "successThreshold": 0,
    "timeoutSeconds": 0,
    "dnsPolicy": "", "effect": "", "fsType": "", "hostIP": "", "hostname": "", "image": "", "imagePullPolicy": "",
    "medium": "", "nodeName": "", "priorityClassName": "", "protocol": "", "restartPolicy": "", "schedulerName": "",
    "secretName": "", "serviceAccount": "", "serviceAccountName": "", "subPath": "", "subPathExpr": "", "subdomain": "",
    "terminationMessagePath": "", "terminationMessagePolicy": "", "workingDir": "",
}  # fmt: skip
"""Empty values that are left out, as null and nearly all empty lists are; a pointer to one stays."""

_AMOUNTS = {"divisor", "sizeLimit"}
_KEPT_AMOUNT = re.compile(r"0|\+?0*([1-9]\d*)([KMGTPE]i|[numkMGTPE]?)|.*[eE][-+]?\d+|.*\$\{.*")
"""Amounts that come back as they are written; those of resources are not looked at."""

_KINDS = {"apiVersion": TEXT, "kind": TEXT}


def lost_fields(job: Workload) -> Iterator[Violation]:
    """Yield the fields of a batch/v1 Job that Katib's webhook would lose."""
    path = job.path.rstrip(".")
    yield from _empty(job.manifest, path)
    if any(unknown_fields(job.manifest, {**schema_of("Job"), **_KINDS}, path)):
        # Only then: to import the client takes longer than all else that an Experiment needs.
        for unknown in unknown_fields(job.manifest, kubernetes_schema("V1Job"), path):
            name = unknown.where.rpartition(".")[2]
            yield broken(unknown.where, "must be a field of a Job", name, unknown.hint)


def _empty(value: Any, path: str) -> Iterator[Violation]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _empty(item, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for field, inner in value.items():
            where = f"{path}.{field}"
            if _is_lost(inner, field, path):
                hint = f"leave {field} out, which means the same"
                yield broken(where, "must be left out of a Job where it is empty", inner, hint)
            elif field in _AMOUNTS:
                yield from _changed(inner, where)
            elif _LOST.get(field) != {}:
                yield from _empty(inner, where)


def _changed(amount: Any, where: str) -> Iterator[Violation]:
    found = _KEPT_AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    step = 1024 if found and (found[2] or "").endswith("i") else 1000
    if not found or (found[1] and int(found[1]) % step == 0):
        must = "must be text, a whole number of the largest unit"
        yield broken(where, must, amount, '"1", 2Gi, not 2048Mi, or 1536Mi, not 1.5Gi')


def _is_lost(value: Any, field: str, path: str) -> bool:
    if value is None or (value == [] and field not in _KEPT_LISTS):
        return True
    if field == "value" and ".env[" in path:
        return value == ""
    lost = _LOST.get(field)
    return value == lost and type(value) is type(lost) and not path.endswith((".csi", ".azureDisk"))

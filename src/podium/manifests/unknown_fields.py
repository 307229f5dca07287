"""Fields that no pod and no job has: Kubernetes drops them without a word where a controller makes
the pod, as Katib and the training operator do.

The fields of pods and Jobs are those of the Kubernetes client's own models.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from podium.errors import suggestion
from podium.manifests.admission import schema_of
from podium.manifests.fields import mapping
from podium.manifests.kinds import TRAINJOB
from podium.manifests.rules import Rules, Violation
from podium.manifests.workload import Workload

UNKNOWN_FIELDS = Rules[Workload]()

_OF = re.compile(r"(?:list\[|dict\(str, )?(V1\w+)[\])]?")


@UNKNOWN_FIELDS.rule(
    "warn", "Kubernetes drops a field that it does not know, or refuses the object with it."
)
def _unknown_field(job: Workload) -> Iterator[Violation]:
    if job.operator:
        # All pods of an operator's job lie below its replicas.
        where = job.replicas_path.rpartition(".")[0]
        yield from _of_operator(job, where)
    for replica in job.replicas if job.kind != TRAINJOB else ():
        where, given, model = replica.pod.path, replica.pod.manifest, "V1PodTemplateSpec"
        if job.kind == "Job":
            where, given = where.rpartition(".")[0], mapping(job.manifest.get("spec"))
            model = "V1JobSpec"
        yield from _unknown(given, model, where)


def _of_operator(job: Workload, where: str) -> Iterator[Violation]:
    schema = schema_of(job.kind)["spec"]
    for field in mapping(job.manifest.get("spec")):
        if field in schema:
            continue
        hint = suggestion(str(field), schema)
        if field in schema["runPolicy"]:
            hint = f"{field} belongs below runPolicy"
        yield Violation(f"a {job.kind} has no field {field}", f"{where}.{field}", hint)
    for field in mapping(job.run_policy):
        if field not in schema["runPolicy"]:
            hint = suggestion(str(field), schema["runPolicy"])
            yield Violation(
                f"runPolicy has no field {field}", f"{job.run_policy_path}.{field}", hint
            )


def _unknown(value: Any, model: str, path: str) -> Iterator[Violation]:
    """Yield the fields that a model of the client does not have, at any depth."""
    from kubernetes import client

    kind = getattr(client, model, None)
    if kind is None or not isinstance(value, Mapping):
        return
    types = {kind.attribute_map[name]: text for name, text in kind.openapi_types.items()}
    for field, inner in value.items():
        where = f"{path}.{field}"
        if field not in types:
            yield Violation(f"{path} has no field {field}", where, suggestion(str(field), types))
            continue
        if not (match := _OF.fullmatch(types[field])):
            continue
        if types[field].startswith("list["):
            for number, item in enumerate(inner if isinstance(inner, list) else ()):
                yield from _unknown(item, match[1], f"{where}[{number}]")
        elif types[field].startswith("dict("):
            for name, item in mapping(inner).items():
                yield from _unknown(item, match[1], f"{where}.{name}")
        else:
            yield from _unknown(inner, match[1], where)

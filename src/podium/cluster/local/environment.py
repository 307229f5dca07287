"""The environment of a replica: the operator's variables, the manifest's, and those of this
machine."""

import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podium.cluster.local.pods import ContainerPlan
from podium.cluster.local.pushed import reachable
from podium.errors import InvalidInput
from podium.manifests.kinds import OPERATOR_KINDS
from podium.manifests.labels import CPU_SHARE
from podium.manifests.workload import Workload
from podium.system.machine import cores

_OF_A_RANK = re.compile(
    r"LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|OMP_NUM_THREADS|JOB_COMPLETION_INDEX|PET_.*|TORCHELASTIC_.*|ROLE_.*|KATIB_.*|"
    r"OMPI_COMM_WORLD_.*|PMI_.*|PMIX_.*|MPI_LOCAL.*|SLURM_(?:PROCID|LOCALID|STEP_.*)|"
    + "|".join(name for kind in OPERATOR_KINDS.values() for name in kind.environment)
)
_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")


@dataclass(frozen=True, kw_only=True)
class PodIdentity:
    """A pod's own names (the downward API)."""

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the template and those the controller adds."""

    annotations: Mapping[str, str] = field(default_factory=dict)

    def value_of(self, field_path: str, path: str) -> str:
        """Return a field as the downward API names it.

        Args:
            path: The field of the manifest that asks for it, for the error.

        Raises:
            InvalidInput: There is no such field here.
        """
        plain = {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "spec.nodeName": socket.gethostname(),
            "spec.serviceAccountName": "default",
            "status.hostIP": "127.0.0.1",
            "status.podIP": "127.0.0.1",
        }
        if field_path in plain:
            return plain[field_path]
        if keyed := re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", field_path):
            named = self.labels if keyed[1] == "labels" else self.annotations
            return str(named.get(keyed[2], ""))
        raise InvalidInput(
            f"{path}: one of {', '.join(plain)}, labels or annotations, not {field_path!r}"
        )


MOST_PROCESSES = 1000
"""A typing error in replicas or parallelTrialCount must not take the machine down."""

WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads of PyTorch that wait for each other sleep: on a busy machine those that spin take the
processor from the one that is waited for."""


def threads_per_process(job: Workload) -> int:
    """Return the threads of each process: the processes of a job together fill the cores it may
    use, and no more.

    Args:
        job: Admitted; an annotation may limit its cores.

    Raises:
        InvalidInput: The annotation is not a positive number, or no machine runs so many processes.
    """
    processes, share = job.processes_at_once, job.cpu_share
    if processes > MOST_PROCESSES:
        problem = (
            f"a job runs at most {MOST_PROCESSES} processes at once on one machine, not {processes}"
        )
        raise InvalidInput(problem, "fewer replicas, or a cluster")
    try:
        available = cores() if share is None else float(share)
        if not 0 < available < float("inf"):
            raise ValueError
    except ValueError:
        path = f"metadata.annotations['{CPU_SHARE}']"
        raise InvalidInput(
            f"{path}: a number of cores above 0, not {share!r}", 'for example "1.5"'
        ) from None
    return max(1, int(available // processes))


def container_environment(
    plan: ContainerPlan,
    pod: PodIdentity,
    forced: Mapping[str, str],
    threads: int,
    translate: Callable[[str], str],
) -> dict[str, str]:
    """Return the whole environment of a container.

    From weak to strong: this process's own (without what belongs to a rank), what one machine
    needs, the manifest's in its order with $(VAR) expanded, the controller's.

    Args:
        forced: Set by the controller; wins.
        threads: OMP_NUM_THREADS unless the manifest says otherwise.
        translate: Replaces mount paths by local ones.

    Raises:
        InvalidInput: The downward API has no such field.
    """
    env = {name: value for name, value in os.environ.items() if not _OF_A_RANK.fullmatch(name)}
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    env |= {"OMP_NUM_THREADS": str(threads), "HOSTNAME": pod.name}
    # A host name that does not resolve would stop gloo, and all replicas are here anyway.
    env = {"GLOO_SOCKET_IFNAME": loopback, **WAITING} | env
    env["PATH"] = plan.image.search_path(os.environ.get("PATH", ""))
    declared = dict(plan.supplied)
    for number, variable in enumerate(plan.env):
        value: str | None = translate(expand(variable.value, declared))
        if "fieldRef" in variable.source:
            path = f"{plan.path}.env[{number}].valueFrom.fieldRef.fieldPath"
            value = pod.value_of(variable.source["fieldRef"].get("fieldPath") or "", path)
        elif variable.source:
            value = plan.values.get(variable.name)
        if value is not None:
            declared[variable.name] = value
    return reachable({**env, **declared, **forced})


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand $(VAR) as Kubernetes does: unknown names stay as they are, $$ is one $."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    return _REFERENCE.sub(value, text)


def translator(mounts: Iterable[tuple[str, Path]]) -> Callable[[str], str]:
    """Return a function that replaces mount paths in a text by the local directories, longest
    first."""
    pairs = sorted(mounts, key=lambda pair: -len(pair[0]))
    patterns = [
        (re.compile(rf"(?<![\w.\-/]){re.escape(where)}(?![\w.\-])"), str(here))
        for where, here in pairs
    ]

    def translate(text: str) -> str:
        for pattern, here in patterns:
            text = pattern.sub(lambda _: here, text)  # noqa: B023  used at once
        return text

    return translate

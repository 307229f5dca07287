"""PyTorchJobs for tests: as podium writes them, with more settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from podium.manifests.fields import present
from podium.manifests.job_editor import JobEditor
from podium.manifests.job_kinds import build_pytorchjob


def write_pytorchjob(
    *,
    image: str,
    command: Sequence[str],
    args: Sequence[str] = (),
    name: str | None = None,
    workers: int = 0,
    namespace: str | None = None,
    processes_per_worker: int | None = None,
    env: Mapping[str, str] | None = None,
    secret_env: Mapping[str, tuple[str, str]] | None = None,
    resources: Mapping[str, str] | None = None,
    gpus_per_worker: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Mapping[str, Any] | None = None,
    restart_policy: str = "OnFailure",
    backoff_limit: int | None = None,
    active_deadline_seconds: int | None = None,
    ttl_seconds_after_finished: int | None = None,
    clean_pod_policy: str = "Running",
    service_account: str | None = None,
    image_pull_policy: str | None = None,
) -> dict[str, Any]:
    """Write a PyTorchJob; secret_env has the name of a Secret and its key by variable."""
    editor = JobEditor.of(
        build_pytorchjob(image=image, command=command, args=args, name=name, workers=workers)
    )
    editor.set_restart_policy(restart_policy)
    owners = [dict(owner)] if owner else None
    more = present(
        namespace=namespace, labels=labels, annotations=annotations, ownerReferences=owners
    )
    editor.body["metadata"] = {**editor.body.get("metadata", {}), **more}
    editor.body["spec"] |= present(
        nprocPerNode=None if processes_per_worker is None else str(processes_per_worker)
    )
    editor.run_policy.update(
        present(
            backoffLimit=backoff_limit,
            activeDeadlineSeconds=active_deadline_seconds,
            ttlSecondsAfterFinished=ttl_seconds_after_finished,
            cleanPodPolicy=clean_pod_policy,
        )
    )
    for _, template in editor.templates:
        template["metadata"]["labels"] |= labels or {}
        template["spec"] |= present(serviceAccountName=service_account)
    gpus = {"nvidia.com/gpu": str(gpus_per_worker)} if gpus_per_worker else {}
    secrets = (secret_env or {}).items()
    entries = [{"name": variable, "value": value} for variable, value in (env or {}).items()]
    entries += [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for variable, (secret, key) in secrets
    ]
    asked = present(limits=gpus or None, requests={**(resources or {}), **gpus} or None)
    for _, container in editor.containers():
        container |= present(
            env=entries or None, resources=asked or None, imagePullPolicy=image_pull_policy
        )
    return editor.manifest

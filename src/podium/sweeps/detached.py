"""A sweep on a namespace that serves no Experiments, run by a Job of its own, so that its user can
log out.

The Experiment is stored where the Job's process finds it, and the Job is the command that a person
would type to go on with it; a pod in place of another goes on in the same way.
"""

import os

from podium.cluster.base import Cluster
from podium.cluster.kubernetes.store_access import find_access, grant_access
from podium.errors import Conflict, InvalidInput
from podium.manifests.experiment.experiment import Experiment
from podium.manifests.job_kinds import job_manifest
from podium.manifests.placement import Pods, place
from podium.manifests.workload import Workload
from podium.storage import local_path
from podium.sweeps.namespace import IMAGE, NamespaceSweeps, loop_job
from podium.system.settings import STORAGE, Settings

_ACCOUNT = "podium-steps"
"""Service account with the rights that a sweep needs: deploy/base/steps.yaml."""

DEADLINE, KEPT = 30 * 24 * 3600, 7 * 24 * 3600
"""Seconds after which the Job is ended, and for which it is kept after its end."""

_TRIES = 6
"""Pods in place of one that failed or was evicted."""


def detach(namespace: Cluster, experiment: Experiment) -> str:
    """Begin a sweep in a Job; return the URL of the cluster at which commands find it.

    Args:
        namespace: Serves no Experiments; a cluster of another kind is refused.
        experiment: Named.

    Raises:
        InvalidInput: It breaks a rule, or no pod reaches the storage.
        Conflict: There is one of this name.
    """
    if not isinstance(namespace, NamespaceSweeps):
        raise InvalidInput(
            "a sweep on this machine ends with its command", "--cluster kubernetes://NAMESPACE"
        )
    storage = (os.environ.get(STORAGE) or Settings.from_environment().storage).rstrip("/")
    if local_path(storage) is not None:
        problem = f"a sweep that outlives this command cannot keep its trials in {storage} on this machine"
        raise InvalidInput(problem, "PODIUM_STORAGE=s3://BUCKET/PREFIX")
    name = experiment.name
    url = f"kubernetes://{namespace.api.namespace}?engine=here&state={storage}/sweeps/{name}"
    with NamespaceSweeps(url) as kept:
        assert kept.loops is not None
        manifest = job_manifest(
            loop_job(name),
            image=kept.loops.image,
            command=["podium", "experiment", "resume", name, "--cluster", url],
            labels={},
            owner=None,
            active_deadline_seconds=DEADLINE,
            ttl_seconds_after_finished=KEPT,
        )
        job = Workload(manifest=manifest).changed_job(
            lambda editor: editor.run_policy.update(backoffLimit=_TRIES)
        )
        env = {IMAGE: kept.loops.image, STORAGE: storage, "HOME": "/tmp"}
        job = place(job, Pods(service_account=_ACCOUNT, env=env))
        if kept.loops.store.exists("Experiment", name):
            raise Conflict(
                f"Experiment {name} exists in {storage}/sweeps/{name}",
                "choose another name: --name",
            )
        kept.loops.keep(experiment)
        try:
            namespace.create(grant_access(job, find_access(namespace.url)))
        except BaseException:
            kept.loops.delete("Experiment", name)
            raise
    return url

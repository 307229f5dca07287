"""Where a step launches its objects, and their start: a retry adopts them, and none outlives its
step."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from podium.cluster.base import Cluster
from podium.cluster.kubernetes.store_access import Access, grant_access
from podium.cluster.traits import traits_of
from podium.code.reference import Code
from podium.errors import Conflict, Denied, InvalidInput, PodiumError, Unavailable
from podium.manifests.experiment import Experiment
from podium.manifests.experiment.trainer import run_by
from podium.manifests.job_editor import JobEditor
from podium.manifests.labels import RUN_NAMESPACE
from podium.manifests.placement import Pods, place
from podium.manifests.resource import Resource
from podium.manifests.workload import Workload
from podium.storage import local_path as path_here, path_of
from podium.system.interrupts import Terminated
from podium.system.pod import pod_namespace
from podium.system.settings import CLUSTER, TRAINER_IMAGE
from podium.training.base import require_at_least, say
from podium.training.identity import StepContext

T = TypeVar("T", bound=Resource)


@dataclass(frozen=True, kw_only=True)
class LaunchTarget:
    """Cluster, image, GPUs and pod settings of what a step launches; fields are named as
    in the pipelines."""

    trainer_image: str = ""
    """Image of every launched pod; empty for the Experiment's own."""

    podium_image: str = TRAINER_IMAGE
    """Takes the place of TRAINER_IMAGE and of an image that is missing."""

    cluster: str = ""
    """URL; empty for the cluster that the step's own pod runs in."""

    gpus_per_worker: int = 0
    """Per replica, the master included; 0 trains on the CPU."""

    pods: Mapping[str, Any] = field(default_factory=dict)
    """Settings of every launched pod, see podium.manifests.placement.Pods."""

    code: str = ""
    """URI of code in which the commands run, see podium.code; empty for what the image has."""

    install_requirements: bool = False
    """Whether each pod installs the code's requirements.txt."""

    predict: Sequence[str] = ()
    """Command that predicts with what a trainer leaves that knows nothing of podium, see
    podium.training.own_files."""

    def __post_init__(self) -> None:
        require_at_least(self, gpus_per_worker=0)
        if isinstance(self.predict, str) or not all(isinstance(word, str) for word in self.predict):
            raise InvalidInput(
                f"predict is a list of words, but got {self.predict!r}", '["python", "predict.py"]'
            )
        if not self.code and (files := [word for word in self.predict[1:] if _is_own_file(word)]):
            raise InvalidInput(
                f"predict names {files[0]}, but no code is given", "name its directory: code=."
            )
        if self.code:
            Code.parse(self.code)
        if self.install_requirements and not self.code:
            hint = "name the directory with requirements.txt: code=."
            raise InvalidInput("install_requirements needs code, but no code is given", hint)
        if self.cluster:
            traits_of(self.cluster)
        Pods.read(self.pods)

    def image(self, own: str) -> str:
        """Return the image of a container whose manifest names this one."""
        return self.trainer_image or (self.podium_image if own in ("", TRAINER_IMAGE) else own)

    def cluster_url(self) -> str:
        """Return the cluster to launch on: the given one, else PODIUM_CLUSTER's, else the one this
        process's pod is in.

        Raises:
            PodiumError: None is given and this process does not run in a pod.
        """
        if url := self.cluster or os.environ.get(CLUSTER):
            return url
        if namespace := pod_namespace():
            return f"kubernetes://{namespace}"
        hint = "cluster=kubernetes://NAMESPACE or local:///DIRECTORY"
        raise PodiumError("no cluster is given, and this process does not run in a pod", hint)

    def place(self, resource: T, container: str | None = None) -> T:
        """Return a job, or an Experiment's trials, with the settings in every pod template.

        Args:
            container: Name of the containers that run in the code; None for all.
        """
        coded = with_code(
            resource, self.code, install_requirements=self.install_requirements, container=container
        )
        return place(coded, Pods.read(self.pods))


def with_code(
    resource: T, uri: str, *, install_requirements: bool = False, container: str | None = None
) -> T:
    """Return a job, or an Experiment's trials, whose containers fetch code and run their command in
    it.

    Args:
        uri: URI of the code; empty changes nothing.
        install_requirements: Whether to install the code's requirements.txt first.
        container: Name of the containers; None for all.

    Raises:
        InvalidInput: The URI is not one of code, or a container leaves its command to the image.
    """
    if not uri:
        return resource
    code = Code.parse(uri)
    options = ["--install-requirements"] if install_requirements else []
    prefix = ["python", "-m", "podium.code", code.uri, "--digest", code.digest, *options, "--"]

    def change(editor: JobEditor) -> None:
        for _, body in editor.containers(container):
            run_by(body, prefix)

    return resource.changed_job(change)


def data_url(data: str, step: StepContext, cluster: Cluster) -> str:
    """Return where launched jobs read a dataset: where it is, or a copy in the storage if they run
    elsewhere.

    Args:
        data: URI of the dataset artifact, or its directory.
        step: Its run owns the copy.

    Raises:
        PodiumError: The dataset and the storage are on this machine, and the jobs are not.
    """
    if cluster.traits.shares_files or path_here(data) is None:
        return data
    if path_here(step.storage) is not None:
        hint = "storage=s3://BUCKET/PREFIX, or prepare the data there"
        raise PodiumError(
            f"the pods of {cluster.url} cannot read {data} on this machine, "
            f"nor write {step.storage}",
            hint,
        )
    from podium.data import artifact_files

    copied = step.url("data")
    say(f"copying the data to {copied}, where the pods of {cluster.url} read them")
    artifact_files.copy(data, copied, held_out=False)
    return copied


def _is_own_file(word: str) -> bool:
    return word.endswith((".py", ".sh")) and not word.startswith("/")


def say_kind(own: Workload, launched: Workload) -> None:
    """Print that a job is launched as another kind than it was written as."""
    if own.kind != launched.kind:
        say(
            f"the {own.kind} is launched as a {launched.kind}; `podium migrate` reports what may differ"
        )


def local_path(url: str) -> str:
    """Return the path of a ``file://`` URL, which any program can open; another URL or a path
    stays."""
    return path_of(url) if url.startswith("file://") else url


DEADLINE = 24 * 3600
"""Deadline of a job in seconds, in case its step cannot end it."""

KEPT = 7 * 24 * 3600
"""Seconds for which a finished job is kept."""


@contextmanager
def launched(cluster: Cluster, resource: "Workload | Experiment") -> Iterator[None]:
    """Start an object that runs only as long as the context is open.

    A retried step adopts the object of its earlier attempt, found by name, unless that failed. A
    finished object is kept; one that still runs when the step fails is deleted, unless the step
    failed because the cluster does not answer. KFP gives a cancelled step a few tenths of a second
    (observed), enough for one call without waiting.

    Raises:
        InvalidInput: The manifest breaks a rule; nothing was started.
        Unavailable: The cluster does not answer; the object may run.
        Denied: The cluster no longer allows what it did; the object may run.
    """
    kind, name = resource.kind, resource.name
    try:
        launch(cluster, resource)
        yield
    except Terminated:
        cluster.abandon(kind, name)
        raise
    except (Unavailable, Denied) as error:
        # The object may still run: a retry adopts it, and it has its own deadline.
        why = "no longer allows it" if isinstance(error, Denied) else "does not answer"
        say(f"{kind} {name} is not deleted: its cluster {why}")
        raise
    except BaseException:
        # Report the original error, not one of the cleanup.
        with suppress(PodiumError):
            if not cluster.get(kind, name).state.finished:
                cluster.delete(kind, name)
        raise


def launch(cluster: Cluster, resource: "Workload | Experiment") -> None:
    """Start an object, or adopt that of its name.

    Raises:
        InvalidInput: The manifest breaks a rule; nothing was started.
    """
    _create_or_adopt(cluster, _of_run(cluster, grant_access(resource, _access(cluster, resource))))


def _of_run(cluster: Cluster, resource: "Workload | Experiment") -> "Workload | Experiment":
    """Return an object of a pipeline's run as its namespace may hold it, with a note for the reaper
    where the run is.

    In another namespace it has no owner: the garbage collector takes an owner from elsewhere for
    one that is gone, and deletes what it owned (Kubernetes' documentation, "Owners and
    Dependents").
    """
    home = pod_namespace()
    if not cluster.traits.collects_garbage or home is None or not resource.owners:
        return resource
    noted = resource.with_metadata(
        {**resource.metadata, "annotations": {**resource.annotations, RUN_NAMESPACE: home}}
    )
    return noted if cluster.url == f"kubernetes://{home}" else noted.without_owners()


def _access(cluster: Cluster, resource: "Workload | Experiment") -> Access | None:
    """Return the store set in the namespace of the pods, or else in this step's namespace.

    A Service has another name from elsewhere, and a pod may read the Secrets of its own namespace
    only.
    """
    asked = not cluster.traits.shares_files and (pod_namespace() or resource.opens_store)
    there = Access.find(cluster.url) if asked else None
    return there or Access.find()


def _create_or_adopt(cluster: Cluster, resource: "Workload | Experiment") -> None:
    kind, name = resource.kind, resource.name
    try:
        cluster.create(resource)
        return
    except Conflict:
        existing = cluster.get(kind, name)
        state = existing.state
    if kind == "Experiment" and cluster.experiment(name).is_resumable:
        say(f"{kind} {name} was stopped; continuing it")
        cluster.resume(kind, name)
    elif state.finished and not state.succeeded:
        say(f"{kind} {name} of an earlier attempt failed; starting it again")
        cluster.delete(kind, name)
        cluster.create(resource)
    else:
        say(f"{kind} {name} of an earlier attempt exists; continuing it")

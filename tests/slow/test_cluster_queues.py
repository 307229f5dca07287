"""Jobs in a live queue of Kueue with room for one: pytest --cluster, any kubeconfig that may make queues.

PODIUM_TEST_IMAGE names an image with python3 that does not run as root (podium-steps:0.1.0).
"""

import os
import time
import uuid
from collections.abc import Iterator

import pytest
from livekubeflow import has_katib, podium, until
from pytorchjobs import write_pytorchjob
from queues import GROUP, VERSION, queue_objects
from sweep_manifests import space, write_experiment

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import PodiumError
from podium.manifests.conditions import Manifest, status_of
from podium.manifests.job_kinds import job_manifest
from podium.manifests.placement import Pods, place
from podium.manifests.typed import typed
from podium.manifests.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]
IMAGE = os.environ.get("PODIUM_TEST_IMAGE", "podium-steps:0.1.0")
QUOTA = {"cpu": "50m", "memory": "256Mi"}
CLUSTER_WIDE = ("clusterqueues", "resourceflavors", "workloadpriorityclasses")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    """A namespace of its own with the local queue ``team``; skipped where there is no Kueue."""
    name = f"podium-test-{uuid.uuid4().hex[:8]}"
    with KubernetesCluster(f"kubernetes://{name}") as there:
        custom, core = there.api.custom, there.api.core
        try:
            there.api.call(
                "look for Kueue", custom.list_cluster_custom_object, GROUP, VERSION, "clusterqueues"
            )
        except PodiumError:
            pytest.skip("this cluster has no Kueue")
        labels = {
            "kueue-managed": "true",
            "katib.kubeflow.org/metrics-collector-injection": "enabled",
        }
        core.create_namespace({"metadata": {"name": name, "labels": labels}})
        try:
            for plural, item in queue_objects(name, namespace=name, quota=QUOTA).items():
                stamped = {"apiVersion": f"{GROUP}/{VERSION}", "metadata": {"name": name}, **item}
                custom.create_cluster_custom_object(GROUP, VERSION, plural, stamped)
            local = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "LocalQueue",
                "metadata": {"name": "team"},
            }
            custom.create_namespaced_custom_object(
                GROUP, VERSION, name, "localqueues", {**local, "spec": {"clusterQueue": name}}
            )
            yield there
        finally:
            core.delete_namespace(name)
            for plural in CLUSTER_WIDE:
                custom.delete_cluster_custom_object(GROUP, VERSION, plural, name)


def write(kind: str, seconds: int, deadline: int = 300) -> Workload:
    """Write a job that fills the queue."""
    name, command = (
        f"test-{uuid.uuid4().hex[:8]}",
        ("python3", "-c", f"import time; time.sleep({seconds})"),
    )
    if kind == "Job":
        job = job_manifest(name, image=IMAGE, command=command, labels={}, owner=None,
                           active_deadline_seconds=deadline, ttl_seconds_after_finished=600)  # fmt: skip
    else:
        job = write_pytorchjob(name=name, image=IMAGE, command=command, restart_policy="Never",
                                   active_deadline_seconds=deadline)  # fmt: skip
    return place(Workload.parse(job), Pods(cpu="50m", memory="32Mi", queue="team"))


def launch(cluster: KubernetesCluster, job: Workload) -> tuple[str, str]:
    """Create a job; its kind and name."""
    cluster.create(job)
    return job.kind, job.name


def phase(cluster: KubernetesCluster, where: tuple[str, str]) -> str:
    """Return where a job stands."""
    return cluster.get(*where).state.phase


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_the_second_job_waits_says_why_and_runs(cluster: KubernetesCluster, kind: str) -> None:
    first = launch(cluster, write(kind, 300))
    until(lambda: phase(cluster, first) == "Running", 120)
    second = launch(cluster, write(kind, 1, deadline=20))
    waiting = until(
        lambda: "insufficient" in cluster.get(*second).state.message and cluster.get(*second), 60
    )
    assert waiting.state.phase == "Waiting"
    assert waiting.state.message.startswith("Queue team: couldn't assign flavors")
    shown = podium("job", "status", second[1], "--cluster", cluster.url).stdout
    assert f"{kind} {second[1]}: Waiting. Queue team: couldn't assign flavors" in shown
    watch = (stored.manifest for stored in cluster.watch(*second, timeout=20))
    assert status_of(next(watch)).phase == "Waiting"
    time.sleep(22)  # longer than its deadline and the watch's timeout
    cluster.delete(*first)
    assert [status_of(seen).phase for seen in watch][-1] == "Succeeded"


def test_an_urgent_job_takes_the_place_of_another(cluster: KubernetesCluster) -> None:
    first = launch(cluster, write("Job", 120))
    until(lambda: phase(cluster, first) == "Running", 120)
    ahead = Pods(queue="team", queue_priority=cluster.api.namespace)
    urgent = launch(cluster, place(write("Job", 1), ahead))
    until(lambda: phase(cluster, urgent) == "Succeeded", 180)
    cluster.stop(*first)
    until(lambda: cluster.get(*first).state.reason == "Deactivated", 60)
    assert phase(cluster, first) == "Suspended"
    cluster.resume(*first)
    until(lambda: phase(cluster, first) == "Running", 120)
    cluster.delete(*first)


def experiment(name: str) -> Manifest:
    """Write two parallel trials that fill the queue each."""
    job = write("Job", 0).manifest
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", "(sleep 5; echo accuracy=${trialParameters.lr}; sleep 5)"]
    trial = {**job, "metadata": {"labels": job["metadata"]["labels"]}}
    return write_experiment(
        trial, name=name, container=container["name"], parameters=[space("lr", min="0.1", max="0.2")],
        objective={"type": "maximize", "objectiveMetricName": "accuracy"}, parallelTrialCount=2, maxFailedTrialCount=0,
    )  # fmt: skip


def test_parallel_trials_queue_up(cluster: KubernetesCluster) -> None:
    if not has_katib(cluster):
        pytest.skip("this cluster has no Katib")
    cluster.create(typed(experiment("sweep")))
    waiting = until(
        lambda: [trial for trial in cluster.trials("sweep") if trial.phase == "Waiting"], 180
    )
    assert waiting[0].message.startswith("Queue team: ")
    until(lambda: cluster.experiment("sweep").trials.get("Waiting"), 10)
    *_, last = (stored.manifest for stored in cluster.watch("Experiment", "sweep", timeout=300))
    assert status_of(last).phase == "Succeeded"
    assert [trial.phase for trial in cluster.trials("sweep")] == ["Succeeded", "Succeeded"]

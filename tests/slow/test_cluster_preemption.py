"""Trainings that are evicted in the midst of an epoch, on a live cluster: they go on elsewhere to the same bytes.

The nodes have the image podium-trainer:0.1.0, deploy/ is applied. Kinds that the cluster lacks are skipped.
"""

import json
import os
import re
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from datasets import synthetic_part, write_pictures
from livekubeflow import NAMESPACE, until
from pytorchjobs import write_pytorchjob
from queues import GROUP, VERSION, queue_objects
from sweep_manifests import job, space, write_experiment

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.store_access import AccessByReference, grant_access
from podium.errors import PodiumError
from podium.manifests.conditions import Manifest
from podium.manifests.job_editor import DISRUPTED
from podium.manifests.placement import Pods, place
from podium.manifests.typed import typed
from podium.manifests.workload import Workload
from podium.metrics import RESUMED
from podium.storage import connect

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900)]
IMAGE = os.environ.get("PODIUM_TEST_TRAINER_IMAGE", "podium-trainer:0.1.0")
ITEMS, BATCH, EPOCHS = 3000, 32, 3
STEPS = [(epoch, done) for epoch in range(1, EPOCHS + 1) for done in range(0, ITEMS, BATCH)]
LITTLE = {"cpu": "100m", "memory": "256Mi"}


@pytest.fixture(scope="module")
def folder(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder of the cluster's own bucket with a dataset in it; removed in the end."""
    sizes = {"train": (1, ITEMS), "validation": (2, 500), "test": (3, 100)}
    drawn = tmp_path_factory.mktemp("data") / "drawn"
    write_pictures(drawn, {part: synthetic_part(*size) for part, size in sizes.items()})
    url = f"{store.removesuffix('podium')}podium-test/{uuid.uuid4().hex[:8]}"
    storage = connect(url)
    for file in drawn.rglob("*"):
        if file.is_file():
            storage.put(f"data/{file.relative_to(drawn)}", file.read_bytes())
    yield url
    for entry in list(storage.list("")):
        storage.delete(entry.key)


def command(folder: str, output: str) -> list[str]:
    """Write a training of a network without batch normalization: two processes end with the bits of two."""
    return [
        "python", "-m", "podium.trainer", f"--data={folder}/data", f"--output={folder}/{output}", "--model=tutorial",
        f"--batch-size={BATCH}", f"--epochs={EPOCHS}", "--log-interval=1", "--no-cuda", "--threads=1",
    ]  # fmt: skip


def write(
    kind: str,
    folder: str,
    output: str,
    workers: int = 0,
    *flags: str,
    restart: str = "ExitCode",
    outlives: bool = False,
) -> Workload:
    """Write a training as a job of this kind; a Job is tried once.

    Args:
        outlives: Whether an eviction of a Job's pod is no try.
    """
    name, words = f"test-{uuid.uuid4().hex[:8]}", [*command(folder, output), *flags]
    if kind == "PyTorchJob":
        manifest = write_pytorchjob(
            name=name,
            image=IMAGE,
            command=words,
            workers=workers,
            resources=LITTLE,
            restart_policy=restart,
        )
    elif kind == "TrainJob":
        trainer = {
            "numNodes": workers + 1,
            "image": IMAGE,
            "command": words,
            "resourcesPerNode": {"requests": LITTLE},
        }
        spec: Manifest = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
        manifest = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        }  # fmt: skip
    else:
        manifest = {
            **job(words, image=IMAGE, resources={"requests": LITTLE}),
            "metadata": {"name": name},
        }
        manifest["spec"] |= {"podFailurePolicy": {"rules": [DISRUPTED]}} if outlives else {}
    return grant_access(Workload.parse(manifest), AccessByReference())


class Seen:
    """A job that runs, and the log of its reporting replica from the first line of its first pod to the last."""

    def __init__(self, cluster: KubernetesCluster, kind: str, name: str) -> None:
        self.cluster, self.kind, self.name, self.lines = cluster, kind, name, list[str]()
        until(self._pods, 60)  # a trial is there before its job
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.cluster.logs(self.kind, self.name, follow=True):
            self.lines.append(line)

    @property
    def steps(self) -> list[tuple[int, int]]:
        """The steps whose lines were printed: epoch, and items before it in that epoch."""
        found = (re.match(r"Train Epoch: (\d+) \[(\d+)/", line) for line in self.lines)
        return [(int(step[1]), int(step[2])) for step in found if step]

    def reach(self, epoch: int) -> None:
        """Wait until it is in the midst of an epoch."""
        until(lambda: any(step >= (epoch, 10 * BATCH) for step in self.steps), 90)

    def end(self) -> list[str]:
        """Wait for its end; its log."""
        *_, last = self.cluster.watch(self.kind, self.name, timeout=400)
        self._reader.join(30)
        assert last.state.phase == "Succeeded", "\n".join(self.lines[-20:])
        return self.lines

    def _pods(self) -> list[Any]:
        return self.cluster.api.pods(f"{SELECTORS[self.kind]}={self.name}")

    def pod(self, replica: str = "") -> str:
        """Return the name of the pod that runs a replica."""
        live = [
            pod
            for pod in self._pods()
            if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
        ]
        names = [str(pod.metadata.name) for pod in live]
        return next(name for name in names if replica in name)


SELECTORS = {
    "Job": "job-name",
    "PyTorchJob": "training.kubeflow.org/job-name",
    "TrainJob": "jobset.sigs.k8s.io/jobset-name",
}


def evict(seen: Seen, replica: str) -> None:
    """Evict a pod as `kubectl drain` does, with 30 seconds to end."""
    name = seen.pod(replica)
    body = {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 30}}
    seen.cluster.api.core.create_namespaced_pod_eviction(name, NAMESPACE, body)


def drain(seen: Seen, replica: str) -> None:
    """Drain the pod's node, which is free again once the pod has gone."""
    name = seen.pod(replica)
    pod = seen.cluster.api.core.read_namespaced_pod(name, NAMESPACE)
    words = ("--pod-selector", f"{SELECTORS[seen.kind]}={seen.name}", "--grace-period", "30")
    for line in (
        ("drain", pod.spec.node_name, "--ignore-daemonsets", *words),
        ("uncordon", pod.spec.node_name),
    ):
        done = subprocess.run(
            ["kubectl", *line], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        print(done.stdout)


@contextmanager
def running(cluster: KubernetesCluster, job: Workload) -> Iterator[Seen]:
    try:
        cluster.create(job)
        yield Seen(cluster, job.kind, job.name)
    finally:
        cluster.delete(job.kind, job.name)


def result(folder: str, output: str) -> tuple[bytes, dict[str, Any]]:
    """Return the weights that a training left, and its metrics without times."""
    storage = connect(f"{folder}/{output}")
    metrics = json.loads(storage.get("metrics.json"))
    for epoch in metrics["epochs"]:
        del epoch["seconds"]
    return storage.get("model.safetensors"), metrics


def went_on(seen: Seen, times: int = 1) -> None:
    """Check that every step was taken, and that each new start says where it goes on and repeats one at most."""
    lines = seen.end()
    starts = [line for line in lines if line.startswith(RESUMED)]
    assert len(starts) == times, lines
    assert set(seen.steps) == set(STEPS)
    assert len(seen.steps) <= len(STEPS) + times
    for start in starts:
        _, step, of = map(int, re.findall(r"\d+", start))
        assert (of, step > 0) == (len(STEPS) // EPOCHS, True), start
        print(seen.kind, start, len(seen.steps) - len(STEPS), "repeated")


@pytest.fixture(scope="module")
def undisturbed(
    cluster: KubernetesCluster, folder: str
) -> Callable[[int], tuple[bytes, dict[str, Any]]]:
    """Weights and metrics of a training with so many workers that nobody disturbs; trained once."""
    results: dict[int, tuple[bytes, dict[str, Any]]] = {}

    def of(workers: int) -> tuple[bytes, dict[str, Any]]:
        if workers not in results:
            with running(
                cluster, write("PyTorchJob", folder, f"undisturbed-{workers}", workers)
            ) as seen:
                seen.end()
            results[workers] = result(folder, f"undisturbed-{workers}")
        return results[workers]

    return of


@pytest.mark.parametrize("disturb", [evict, drain])
@pytest.mark.parametrize(
    ("kind", "workers", "replica"),
    [
        ("Job", 0, ""),
        ("PyTorchJob", 0, "master-0"),
        ("PyTorchJob", 1, "worker-0"),
        ("PyTorchJob", 1, "master-0"),
        ("TrainJob", 0, "node-0-0"),
        ("TrainJob", 1, "node-0-1"),
    ],
)
def test_an_evicted_training_goes_on_to_the_same_bytes(
    cluster: KubernetesCluster,
    folder: str,
    undisturbed: Any,
    disturb: Any,
    kind: str,
    workers: int,
    replica: str,
) -> None:
    output = f"{disturb.__name__}-{kind}-{workers}-{replica}".lower()
    if not cluster.api.serves(kind):
        pytest.skip(f"this cluster does not know the kind {kind}")
    restart = "ExitCode" if disturb is evict else "OnFailure"
    with running(
        cluster, write(kind, folder, output, workers, restart=restart, outlives=True)
    ) as seen:
        seen.reach(epoch=2)
        disturb(seen, replica)
        went_on(seen)
    assert result(folder, output) == undisturbed(workers)


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_an_evicted_trial_goes_on_and_counts_once(
    cluster: KubernetesCluster, folder: str, kind: str
) -> None:
    if cluster.has_katib or not cluster.api.serves("Experiment"):
        pytest.skip("podium-engine does not run the Experiments of this cluster: deploy/engine")
    rate = "${trialParameters.lr}"
    trial = write(kind, folder, f"trial-{kind}-{rate}", 0, f"--lr={rate}")
    manifest = write_experiment(
        {key: value for key, value in trial.manifest.items() if key != "metadata"}, name=trial.name,
        container=trial.replicas[0].pod.containers[0].name, template={"retain": True}, maxFailedTrialCount=0,
        parameters=[space("lr", "discrete", list=["1.0", "0.5"])], algorithm={"algorithmName": "grid"},
    )  # fmt: skip
    cluster.create(typed(manifest))
    try:
        (begun,) = until(lambda: cluster.trials(trial.name), 60)
        seen = Seen(cluster, begun.workload.kind, begun.name)
        seen.reach(epoch=2)
        evict(seen, "")
        went_on(seen)
        *_, last = cluster.watch("Experiment", trial.name, timeout=300)
        assert last.state.phase == "Succeeded"
        trials = cluster.trials(trial.name)
        assert [each.phase for each in trials] == ["Succeeded", "Succeeded"]
        _, metrics = result(folder, f"trial-{kind}-{begun.assignments['lr']}")
        (loss,) = (
            each for each in trials[0].status["observation"]["metrics"] if each["name"] == "loss"
        )
        losses = [epoch["loss"] for epoch in metrics["epochs"]]
        expected = {"max": max(losses), "min": min(losses), "latest": losses[-1]}
        assert {how: float(loss[how]) for how in expected} == pytest.approx(expected, rel=1e-3)
    finally:
        cluster.delete("Experiment", trial.name)


@pytest.fixture
def queue(cluster: KubernetesCluster) -> Iterator[str]:
    """A queue of Kueue in the tests' namespace with room for one training, and a priority of the same name."""
    name, custom = f"podium-test-{uuid.uuid4().hex[:8]}", cluster.api.custom
    try:
        cluster.api.call(
            "look for Kueue", custom.list_cluster_custom_object, GROUP, VERSION, "clusterqueues"
        )
    except PodiumError:
        pytest.skip("this cluster has no Kueue")
    stamped = {"apiVersion": f"{GROUP}/{VERSION}", "metadata": {"name": name}}
    objects = queue_objects(name, namespace=NAMESPACE, quota=LITTLE)
    with ExitStack() as made:
        for plural, item in objects.items():
            custom.create_cluster_custom_object(GROUP, VERSION, plural, {**stamped, **item})
            made.callback(custom.delete_cluster_custom_object, GROUP, VERSION, plural, name)
        local = {**stamped, "kind": "LocalQueue", "spec": {"clusterQueue": name}}
        custom.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, "localqueues", local)
        made.callback(
            custom.delete_namespaced_custom_object, GROUP, VERSION, NAMESPACE, "localqueues", name
        )
        yield name


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_a_preempted_training_goes_on_to_the_same_bytes(
    cluster: KubernetesCluster, folder: str, undisturbed: Any, queue: str, kind: str
) -> None:
    output = f"preempted-{kind}"
    training = place(write(kind, folder, output), Pods(queue=queue))
    ahead = Pods(queue=queue, queue_priority=queue)
    brief = job(["sleep", "5"], image=IMAGE, resources={"requests": LITTLE})
    urgent = place(Workload.parse({**brief, "metadata": {"name": f"urgent-{queue}"}}), ahead)
    with running(cluster, training) as seen:
        seen.reach(epoch=2)
        cluster.create(urgent)
        until(lambda: cluster.get("Job", urgent.name).state.phase == "Succeeded", 120)
        went_on(seen)
    cluster.delete("Job", urgent.name)
    assert result(folder, output) == undisturbed(0)

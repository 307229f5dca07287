"""Jobs on a live cluster with the training operator: pytest --cluster, any kubeconfig.

PODIUM_TEST_IMAGE names an image with python3 that does not run as root (podium-steps:0.1.0).
PODIUM_TEST_RESTART_API is a command that restarts the cluster's API server; its test is skipped without it.
"""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from kubernetes.client import ApiException
from livekubeflow import until
from pytorchjobs import write_pytorchjob

from podium.cluster import connect
from podium.cluster.base import Cluster
from podium.cluster.kubernetes.api import Waits
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import Conflict, Failed, InvalidInput, NotFound, PodiumError
from podium.manifests.conditions import Manifest, status_of
from podium.manifests.typed import typed

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
IMAGE = os.environ.get("PODIUM_TEST_IMAGE", "podium-steps:0.1.0")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The namespace of the kubeconfig's context; what a test launched there is deleted."""
    with connect("kubernetes://?grace=15") as there:
        before = {job.name for job in there.list("PyTorchJob")}
        yield there
        for job in there.list("PyTorchJob"):
            if job.name not in before:
                there.delete("PyTorchJob", job.name)


def job(script: str, **changes: object) -> Manifest:
    """A PyTorchJob of one line of Python."""
    settings = {
        "name": f"test-{uuid.uuid4().hex[:8]}",
        "image": IMAGE,
        "command": ("python3", "-u", "-c", script),
        "resources": {"cpu": "10m", "memory": "16Mi"},
        "restart_policy": "Never",
        "active_deadline_seconds": 300,
        "ttl_seconds_after_finished": 600,
    }
    return write_pytorchjob(**(settings | changes))


def launch(cluster: Cluster, manifest: Manifest) -> str:
    return str(cluster.create(typed(manifest)).name)


def test_the_end_of_a_job_is_seen_at_once(cluster: Cluster) -> None:
    script = "import os, time; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE']); time.sleep(2)"
    name = launch(cluster, job(script, workers=1, clean_pod_policy="None"))
    phases = [update.state.phase for update in cluster.watch("PyTorchJob", name, timeout=240)]
    seen = time.time()
    assert phases[-1] == "Succeeded"
    ended = cluster.get("PyTorchJob", name).manifest["status"]["completionTime"]
    assert seen - _epoch(ended) < 4  # the API's times have whole seconds
    pods = cluster.api.pods(f"training.kubeflow.org/job-name={name}")
    assert [pod.spec.automount_service_account_token for pod in pods] == [False, False]
    assert list(cluster.logs("PyTorchJob", name)) == ["rank 0 of 2"]
    # The job has ended with its master; its worker may be about to begin.
    assert until(lambda: list(cluster.logs("PyTorchJob", name, "worker-0")), 60) == ["rank 1 of 2"]


def _epoch(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_the_log_arrives_while_the_job_runs(cluster: Cluster) -> None:
    script = "import time\nfor n in range(5): print(n, flush=True); time.sleep(3)"
    name = launch(cluster, job(script))
    arrived = [time.monotonic() for _ in cluster.logs("PyTorchJob", name, follow=True)]
    assert len(arrived) == 5
    assert arrived[-1] - arrived[0] > 2.5


def test_a_name_that_is_taken_is_a_conflict(cluster: Cluster) -> None:
    manifest = job("print()")
    launch(cluster, manifest)
    with pytest.raises(Conflict, match="already exists"):
        cluster.create(typed(manifest))


def test_an_unknown_field_is_refused_with_the_servers_words(cluster: Cluster) -> None:
    manifest = job("print()")
    manifest["spec"]["runPolicy"]["backofLimit"] = 3
    with pytest.raises(InvalidInput, match="backofLimit"):
        cluster.create(typed(manifest))


def test_a_failed_job_says_which_pod_and_its_last_words(cluster: Cluster) -> None:
    name = launch(cluster, job("raise SystemExit('the data is damaged')"))
    assert list(cluster.watch("PyTorchJob", name, timeout=240))[-1].state.phase == "Failed"
    error = cluster.failure("PyTorchJob", name)
    assert f"pod {name}-master-0: Error (container pytorch, exit code 1)" in error.message
    assert "  | the data is damaged" in error.message


def test_memory_beyond_the_limit_is_called_by_its_name(cluster: Cluster) -> None:
    manifest = job("x = bytearray(400 * 2**20); import time; time.sleep(5)")
    container = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][
        0
    ]
    container["resources"] = {"limits": {"memory": "64Mi"}}
    name = launch(cluster, manifest)
    assert list(cluster.watch("PyTorchJob", name, timeout=240))[-1].state.phase == "Failed"
    error = cluster.failure("PyTorchJob", name)
    assert "OOMKilled" in error.message
    assert "memory limit" in str(error.hint)


def test_an_image_that_cannot_be_pulled_fails_within_a_minute(cluster: Cluster) -> None:
    started = time.monotonic()
    name = launch(cluster, job("print()", image="registry.invalid/nobody/nothing:1"))
    with pytest.raises(
        Failed, match=r"(ErrImagePull|ImagePullBackOff).*registry\.invalid/nobody/nothing"
    ):
        list(cluster.watch("PyTorchJob", name, timeout=240))
    assert time.monotonic() - started < 60


def test_a_gpu_nobody_has_fails_after_its_grace(cluster: Cluster) -> None:
    name = launch(cluster, job("print()", gpus_per_worker=64))
    with pytest.raises(Failed, match=r"Insufficient nvidia\.com/gpu"):
        list(cluster.watch("PyTorchJob", name, timeout=120))


@pytest.fixture
def fenced() -> Iterator[Cluster]:
    """A namespace of its own that admits no pod of more than 100 MiB, and one pod at a time."""
    name = f"podium-cluster-{uuid.uuid4().hex[:8]}"
    with connect(f"kubernetes://{name}") as there:
        core = there.api.core
        core.create_namespace({"metadata": {"name": name}})
        limit = {
            "limits": [
                {
                    "type": "Container",
                    "max": {"memory": "100Mi"},
                    "defaultRequest": {"memory": "16Mi"},
                }
            ]
        }
        core.create_namespaced_limit_range(name, {"metadata": {"name": "small"}, "spec": limit})
        quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "1"}}}
        core.create_namespaced_resource_quota(name, quota)
        yield there
        core.delete_namespace(name)


def refused(cluster: Cluster, manifest: Manifest, words: str) -> None:
    """Check that a job ends within 30 s with the words of what refuses its pods, and that no step would wait for it."""
    name = launch(cluster, manifest)
    started = time.monotonic()
    with pytest.raises(Failed, match=words):
        list(cluster.watch(manifest["kind"], name, timeout=120))
    assert time.monotonic() - started < 30


def test_pods_beyond_a_quota_end_the_wait_with_its_words(fenced: Cluster) -> None:
    manifest = job("import time; time.sleep(300)", workers=1)
    refused(
        fenced, manifest, r"exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1"
    )


@pytest.mark.parametrize("kind", ["PyTorchJob", "Job"])
def test_pods_beyond_a_limit_range_end_the_wait(fenced: Cluster, kind: str) -> None:
    manifest = job("pass", resources={"memory": "200Mi"})
    template = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    template["spec"]["containers"][0]["resources"]["limits"] = {"memory": "200Mi"}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
        spec = {"backoffLimit": 0, "template": {"spec": template["spec"]}}
        manifest = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": manifest["metadata"],
            "spec": spec,
        }
    refused(fenced, manifest, "maximum memory usage per Container is 100Mi, but limit is 200Mi")


def test_pods_that_pod_security_forbids_end_the_wait(fenced: Cluster) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    fenced.api.core.patch_namespace(fenced.api.namespace, {"metadata": {"labels": label}})
    manifest = job("pass")
    template = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    template["spec"]["securityContext"] = {"runAsNonRoot": False}  # else podium makes the pod fit
    refused(fenced, manifest, 'violates PodSecurity "restricted')


@pytest.fixture
def hooked(fenced: Cluster) -> Iterator[Callable[[], None]]:
    """A webhook for PyTorchJobs at which nobody listens; a call to remove it."""
    from kubernetes.client import AdmissionregistrationV1Api

    namespace = fenced.api.namespace
    hooks = AdmissionregistrationV1Api(fenced.api.client)
    operations = {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "operations": ["CREATE"]}
    hook = {
        "name": "nobody.podium.dev",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [{**operations, "resources": ["pytorchjobs"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    hooks.create_validating_webhook_configuration(
        {"metadata": {"name": namespace}, "webhooks": [hook]}
    )
    with ExitStack() as stack:
        stack.callback(hooks.delete_validating_webhook_configuration, namespace)
        yield stack.close


def test_a_webhook_that_is_away_for_seconds_is_waited_out(
    fenced: Cluster, hooked: Callable[[], None]
) -> None:
    def is_refused() -> bool:  # the API server takes a moment to learn of a webhook
        where = ("kubeflow.org", "v1", fenced.api.namespace, "pytorchjobs")
        try:
            fenced.api.custom.create_namespaced_custom_object(*where, job("pass"), dry_run="All")
        except ApiException as error:
            return "failed calling webhook" in str(error)
        return False

    end = time.monotonic() + 30
    while not is_refused():
        assert time.monotonic() < end, "nothing was refused"
        time.sleep(0.1)
    timer = threading.Timer(4.0, hooked)
    timer.start()
    launch(fenced, job("pass"))
    timer.join()


def test_delete_leaves_no_pod(cluster: Cluster) -> None:
    # The first process of a container ignores SIGTERM unless it says otherwise: its pod would stay for 30 s.
    script = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(1)); print('ready'); time.sleep(300)"
    name = launch(cluster, job(script, workers=1))
    for replica in ("master-0", "worker-0"):
        assert next(cluster.logs("PyTorchJob", name, replica, follow=True)) == "ready"
    cluster.delete("PyTorchJob", name)
    pods = cluster.api.pods(f"training.kubeflow.org/job-name={name}")
    assert pods == []


def test_without_katib_an_experiment_is_refused_before_it_is_made(cluster: Cluster) -> None:
    try:
        [stored.manifest for stored in cluster.list("Experiment")]
    except PodiumError:
        pass
    else:
        pytest.skip("this cluster has Katib")
    experiment = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "x"},
        "spec": {},
    }
    with pytest.raises(
        PodiumError, match=r"(does not know the kind Experiment|collects no metrics)"
    ):
        cluster.create(typed(experiment))


def test_a_quiet_job_outlives_a_restart_of_the_api_server(cluster: Cluster) -> None:
    restart = os.environ.get("PODIUM_TEST_RESTART_API")
    if not restart:
        pytest.skip("no command restarts the API server: PODIUM_TEST_RESTART_API")
    assert isinstance(cluster, KubernetesCluster)
    cluster.api.waits = Waits(outage=45.0)
    name = launch(cluster, job("import time; time.sleep(100)"))
    changes = (stored.manifest for stored in cluster.watch("PyTorchJob", name, timeout=400))
    next(change for change in changes if status_of(change).phase == "Running")
    subprocess.run(restart, shell=True, check=True, timeout=60)
    assert status_of(list(changes)[-1]).phase == "Succeeded"


STEP = """if True:
    import sys
    from podium.cluster import connect
    from podium.steps.process import step_process
    from podium.manifests.workload import Workload
    from podium.training.target import launched
    import json, time
    job = Workload.parse(json.loads(sys.argv[1]))
    with step_process({}), connect("kubernetes://") as there, launched(there, job):
        print("launched", flush=True)
        time.sleep(300)
"""


def test_a_terminated_step_ends_its_job_within_a_second(cluster: Cluster) -> None:
    manifest = job("import time; time.sleep(300)")
    name = manifest["metadata"]["name"]
    step = subprocess.Popen(
        [sys.executable, "-c", STEP, json.dumps(manifest)], stdout=subprocess.PIPE, text=True
    )
    assert step.stdout is not None
    with step, step.stdout:
        assert step.stdout.readline() == "launched\n"
        started = time.monotonic()
        step.terminate()
        with suppress(NotFound):
            while time.monotonic() - started < 10:
                cluster.get("PyTorchJob", name)
        assert time.monotonic() - started < 1.0
        assert step.wait(20) == 143


def test_a_repeated_step_goes_on_with_its_job(cluster: Cluster) -> None:
    manifest = job("import time; time.sleep(300)")
    name = manifest["metadata"]["name"]
    again = [sys.executable, "-c", STEP, json.dumps(manifest)]
    with subprocess.Popen(again, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "launched\n"
        first.kill()
    started = cluster.get("PyTorchJob", name).manifest["metadata"]["uid"]
    with subprocess.Popen(again, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        said = second.stdout.readline()
        assert said == f"podium | PyTorchJob {name} of an earlier attempt exists; continuing it\n"
        assert second.stdout.readline() == "launched\n"
        assert cluster.get("PyTorchJob", name).manifest["metadata"]["uid"] == started
        second.terminate()
    with pytest.raises(NotFound):
        cluster.get("PyTorchJob", name)

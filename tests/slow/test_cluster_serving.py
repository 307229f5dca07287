"""`podium models deploy` on a live cluster: no request is lost while champions, pods and settings change.

The nodes have the image of the server (PODIUM_TEST_SERVE_IMAGE); the namespace enforces Pod Security "restricted".
"""

import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes import client
from livekubeflow import NAMESPACE, podium, until
from onnx import TensorProto, helper

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.job_kinds import job_manifest
from podium.manifests.workload import Workload
from podium.models import Model, open_registry

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]
IMAGE = os.environ.get("PODIUM_TEST_SERVE_IMAGE", "podium-serve:0.1.0")
LITTLE = ("--image", IMAGE, "--cpu", "50m", "--memory", "512Mi")

ASK = """
import http.client, json, sys, threading, time
host, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
body = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [0]}]})
end, lock, seen, failed = time.monotonic() + seconds, threading.Lock(), {}, []

def ask(keep):
    connection = http.client.HTTPConnection(host, timeout=30)
    while time.monotonic() < end:
        try:
            connection.request("POST", path, body)
            answer = connection.getresponse()
            said = json.loads(answer.read())
            right = answer.status == 200 and f"v{said['outputs'][0]['data'][0]:g}" == said["model_version"]
            with lock:
                version = said["model_version"] if right else failed.append(str(said))
                seen[version] = seen.get(version, 0) + 1
        except OSError as error:
            connection.close()
            with lock:
                failed.append(repr(error))
        if not keep:
            connection.close()
        time.sleep(0.02)

threads = [threading.Thread(target=ask, args=(number % 2,)) for number in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps({"seen": seen, "failed": failed}))
"""
"""Asks a server for some seconds, on connections that stay and on new ones; prints what came of it."""


def constant(value: float) -> bytes:
    """A model that says one number of every row."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in "xy")
    numbers = [
        helper.make_tensor(name, TensorProto.FLOAT, [1], [given])
        for name, given in (("zero", 0), ("one", value))
    ]
    nodes = [
        helper.make_node("Mul", ["x", "zero"], ["none"]),
        helper.make_node("Add", ["none", "one"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "constant", [x], [y], numbers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def restricted() -> Iterator[KubernetesCluster]:
    """A namespace of its own that enforces restricted and reaches the cluster's bucket."""
    name = f"podium-serving-{uuid.uuid4().hex[:8]}"
    with KubernetesCluster(f"kubernetes://{name}") as there:
        core = there.api.core
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        core.create_namespace({"metadata": {"name": name, "labels": labels}})
        settings = core.read_namespaced_config_map("podium-storage", NAMESPACE).data
        place = urlsplit(settings["endpoint"])
        host = place.hostname if "." in str(place.hostname) else f"{place.hostname}.{NAMESPACE}"
        address = {"endpoint": f"{place.scheme}://{host}:{place.port or 80}"}
        core.create_namespaced_config_map(
            name, {"metadata": {"name": "podium-storage"}, "data": address}
        )
        keys = core.read_namespaced_secret(settings["secret"], NAMESPACE).data
        core.create_namespaced_secret(name, {"metadata": {"name": "keys"}, "data": keys})
        yield there
        core.delete_namespace(name)


@pytest.fixture(scope="module")
def model(store: str) -> Iterator[Model]:
    """A model with three versions, whose champion is the first."""
    url = f"{store}-test-serving/{uuid.uuid4().hex[:8]}"
    model = open_registry(url).model("numbers")
    for number in (1, 2, 3):
        model.upload({"model.onnx": constant(number)}, {"run_id": f"v{number}"})
    model.set_champion("v1", {}, expect=None)
    yield model
    for entry in [*model.storage.list("")]:
        model.storage.delete(entry.key)


def deploy(
    cluster: KubernetesCluster, model: Model, to: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """Deploy the model as a user does."""
    where = (
        "--storage",
        model.storage.url,
        "--namespace",
        cluster.api.namespace,
        "--secret",
        "keys",
    )
    return podium("models", "deploy", "numbers", "--to", to, *where, *LITTLE, *words, "--apply")


def asked(
    cluster: KubernetesCluster, address: str, seconds: int, change: Callable[[], None]
) -> dict[str, Any]:
    """Change something while a pod asks the server; what the pod has seen."""
    name, place = f"ask-{uuid.uuid4().hex[:8]}", urlsplit(address)
    command = ["python3", "-c", ASK, str(place.hostname), f"{place.path}/infer", str(seconds)]
    job = job_manifest(name, image=IMAGE, command=command, labels={}, owner=None, active_deadline_seconds=seconds + 120,
                       ttl_seconds_after_finished=600)  # fmt: skip
    cluster.create(Workload.parse(job))
    until(lambda: [one for one in cluster.replicas("Job", name) if one.phase == "Running"], 60)
    change()
    (*_, last) = cluster.logs("Job", name, follow=True)
    return dict(json.loads(last))


def pods(cluster: KubernetesCluster) -> list[Any]:
    return cluster.api.pods("app.kubernetes.io/instance=numbers")


@pytest.fixture(scope="module", params=["kubernetes", "kserve"])
def address(
    request: pytest.FixtureRequest, restricted: KubernetesCluster, model: Model
) -> Iterator[str]:
    """The model's server, deployed each way."""
    if request.param == "kserve" and not restricted.api.serves("InferenceService"):
        pytest.skip("this cluster has no KServe")
    done = deploy(restricted, model, request.param)
    assert done.returncode == 0, done.stderr
    yield done.stdout.strip()
    restricted.api.delete(
        "Deployment" if request.param == "kubernetes" else "InferenceService", "numbers"
    )
    until(lambda: not pods(restricted), 120)


def test_promotion_and_rollback_lose_no_request(
    address: str, restricted: KubernetesCluster, model: Model
) -> None:
    def change() -> None:
        model.promote("v2" if model.champion.version == "v3" else "v3")
        time.sleep(12)
        model.rollback()

    answers = asked(restricted, address, 30, change)
    assert answers["failed"] == []
    assert len(answers["seen"]) == 2


def test_a_deploy_with_other_settings_loses_no_request(
    address: str, restricted: KubernetesCluster, model: Model
) -> None:
    to = "kserve" if "-predictor." in address else "kubernetes"
    before = {pod.metadata.name for pod in pods(restricted)}
    answers = asked(
        restricted, address, 45, lambda: print(deploy(restricted, model, to, "--memory", "600Mi"))
    )
    assert answers["failed"] == []
    assert not before & {
        pod.metadata.name for pod in pods(restricted) if not pod.metadata.deletion_timestamp
    }


def test_a_pod_that_is_deleted_loses_no_request(
    address: str, restricted: KubernetesCluster
) -> None:
    name = pods(restricted)[0].metadata.name
    core, namespace = restricted.api.core, restricted.api.namespace
    answers = asked(restricted, address, 25, lambda: core.delete_namespaced_pod(name, namespace))
    assert answers["failed"] == []


def test_an_eviction_leaves_one_pod(address: str, restricted: KubernetesCluster) -> None:
    namespace = restricted.api.namespace

    def evict(name: str) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        restricted.api.core.create_namespaced_pod_eviction(name, namespace, body)

    until(
        lambda: len([pod for pod in pods(restricted) if not pod.metadata.deletion_timestamp]) == 2,
        60,
    )
    until(lambda: all(pod.status.container_statuses[0].ready for pod in pods(restricted)), 60)
    first, second = (pod.metadata.name for pod in pods(restricted))
    evict(first)
    with pytest.raises(client.ApiException, match="disruption budget"):
        evict(second)


def test_another_range_of_the_autoscaler_is_applied_at_once(
    address: str, restricted: KubernetesCluster, model: Model
) -> None:
    to = "kserve" if "-predictor." in address else "kubernetes"

    def present() -> set[str]:
        return {
            pod.metadata.name for pod in pods(restricted) if not pod.metadata.deletion_timestamp
        }

    assert deploy(restricted, model, to, "--replicas", "2..3").returncode == 0
    until(lambda: len(present()) == 2, 90)  # a Deployment begins anew with one
    before = present()
    assert deploy(restricted, model, to, "--replicas", "2..4").returncode == 0
    assert present() == before


def test_a_missing_secret_is_named(restricted: KubernetesCluster, model: Model) -> None:
    done = deploy(restricted, model, "kubernetes", "--name", "lost", "--secret", "nowhere")
    assert done.returncode == 1
    assert 'secret "nowhere" not found' in done.stderr
    restricted.api.delete("Deployment", "lost")


@pytest.mark.parametrize(
    ("to", "kind"), [("kubernetes", "Deployment"), ("kserve", "InferenceService")]
)
def test_a_deploy_mends_one_that_cannot_read_the_bucket(
    to: str, kind: str, restricted: KubernetesCluster, model: Model
) -> None:
    if not restricted.api.serves(kind):
        pytest.skip("this cluster has no KServe")
    name, core = f"locked-out-{to}", restricted.api.core
    wrong = {
        "metadata": {"name": name},
        "stringData": {"accesskey": "nobody", "secretkey": "nothing-at-all"},
    }
    core.create_namespaced_secret(restricted.api.namespace, wrong)
    done = deploy(restricted, model, to, "--name", name, "--secret", name)
    assert done.returncode == 1
    assert "exit code 1" in done.stderr
    assert "  | error: " in done.stderr
    mended = deploy(restricted, model, to, "--name", name)
    assert mended.returncode == 0, mended.stderr
    restricted.api.delete(kind, name)

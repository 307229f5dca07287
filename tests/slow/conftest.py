"""A live Kubeflow for whole pipelines: its server, its store and MNIST in it. KUBECONFIG is all that is needed.

PODIUM_TEST_NAMESPACE names the namespace runs live in (kubeflow). The server and the store are reached through
`kubectl port-forward`; KF_PIPELINES_ENDPOINT names another way to the server.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from livekubeflow import NAMESPACE, Submit, has_katib, podium

from podium.cluster.kubernetes.cluster import KubernetesCluster

# Of the cores little: a test cluster may be one small node, where three pods of as many threads stand in each other's way.
SMALL = {"limit": "3000", "epochs": "1", "pods": '{"cpu": "100m"}'}


@contextmanager
def forwarded(service: str, port: int, namespace: str) -> Iterator[str]:
    """Reach a Service from this machine; its address here."""
    command = [
        "kubectl",
        "--namespace",
        namespace,
        "port-forward",
        f"service/{service}",
        f":{port}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()  # Forwarding from 127.0.0.1:40123 -> 9000
        try:
            assert said.startswith("Forwarding from "), f"{' '.join(command)} said {said!r}"
            yield f"http://{said.split()[2]}"
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Address of the Kubeflow Pipelines server."""
    if given := os.environ.get("KF_PIPELINES_ENDPOINT"):
        yield given
        return
    with (
        forwarded("ml-pipeline", 8888, NAMESPACE) as address,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("KF_PIPELINES_ENDPOINT", address)  # for the commands the tests run
        yield address


@pytest.fixture(scope="session")
def store() -> Iterator[str]:
    """URL of what podium keeps in the cluster's own bucket; the environment opens it."""
    from kubernetes import client, config

    config.load_kube_config()
    settings = client.CoreV1Api().read_namespaced_config_map("podium-storage", NAMESPACE).data
    place = urlsplit(settings["endpoint"])
    service, namespace, *_ = *str(place.hostname).split("."), NAMESPACE
    with (
        forwarded(service, place.port or 80, namespace) as address,
        pytest.MonkeyPatch.context() as patch,
    ):
        for own in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(own, raising=False)
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("PODIUM_S3_SECRET", f"{NAMESPACE}/{settings['secret']}")
        yield f"s3://{settings['bucket']}/podium"


@pytest.fixture(scope="session")
def source(store: str) -> Iterator[str]:
    """Where the pods find the files of MNIST: carried there from this machine's cache; pods may reach no mirror."""
    from podium.data.sources.known import known_dataset
    from podium.data.sources.mnist import _fetch
    from podium.storage import connect
    from podium.system.settings import Settings

    files = _fetch(known_dataset("mnist"), cache=Settings.from_environment().cache).files
    url = f"{store.removesuffix('podium')}podium-test/mnist"
    storage = connect(url)
    for name, data in files.items():
        storage.put(name, data)
    yield url
    for name in files:
        storage.delete(name)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    """The namespace of the runs."""
    with KubernetesCluster(f"kubernetes://{NAMESPACE}") as there:
        yield there


@pytest.fixture(scope="module")
def submit(server: str, source: str) -> Submit:
    """Start a pipeline with these parameters; the run's id."""
    assert podium("upload", "train_and_promote").returncode == 0

    def start(pipeline: str = "train-and-promote", **changes: int | str) -> str:
        parameters = {"source": source, **SMALL, **changes}
        account = ("--service-account", "podium-steps")
        result = podium(
            "submit",
            pipeline,
            *account,
            *(f"{name}={value}" for name, value in parameters.items()),
            "--json",
        )
        assert result.returncode == 0, result.stderr
        return str(json.loads(result.stdout)["run_id"])

    return start


@pytest.fixture
def katib(cluster: KubernetesCluster, server: str) -> None:
    """Skip where there is none."""
    if not has_katib(cluster):
        pytest.skip("this cluster has no Katib")
    assert podium("upload", "tune_and_promote").returncode == 0

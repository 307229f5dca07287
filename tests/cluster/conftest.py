"""A Kubernetes API server in memory and a cluster connected to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server import ApiServer, World

from podium.cluster.kubernetes.cluster import KubernetesCluster


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A running API server that KUBECONFIG points at."""
    running = ApiServer()
    running.start()
    config = tmp_path / "kubeconfig"
    config.write_text(running.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(config))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield running
    running.stop()


@pytest.fixture
def world(server: ApiServer) -> World:
    """What the server knows."""
    return server.world


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[KubernetesCluster]:
    """A cluster over the server, in the namespace of the kubeconfig."""
    with KubernetesCluster("kubernetes://") as opened:
        yield opened

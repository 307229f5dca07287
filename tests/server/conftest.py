"""A Kubeflow Pipelines server in memory and a connection to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kfp_server import KfpServer, KfpWorld

from podium.kfp import client
from podium.kfp.client import Server


@pytest.fixture(params=["2.0.5", "2.16.1"])
def kfp(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[KfpServer]:
    """A running server of each release; the developer's own kfp context is kept out."""
    monkeypatch.setattr(client, "CONTEXT", tmp_path / "none")
    for name in ("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    running = KfpServer(request.param)
    yield running
    running.stop()


@pytest.fixture
def server(kfp: KfpServer) -> Server:
    """A connection."""
    return Server(kfp.host)


@pytest.fixture
def world(kfp: KfpServer) -> KfpWorld:
    """What the server knows."""
    return kfp.world

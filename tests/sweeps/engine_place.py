"""A namespace of an API server in memory in which podium-engine runs Experiments and an operator runs their jobs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from api_server import ApiServer
from job_operator import JobOperator

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.sweeps.engine import Engine

LEASE_SECONDS = 3.0


class EngineThread:
    """An engine in a thread, as a pod of its Deployment.

    Args:
        holder: Its name.
        storage: URL of the storage of pools.
    """

    def __init__(self, holder: str = "engine-a", storage: str = "") -> None:
        self.said: list[str] = []
        self.failure: BaseException | None = None
        self.cluster = KubernetesCluster("kubernetes://team")
        self.engine = Engine(
            self.cluster,
            holder=holder,
            image="podium",
            storage=storage,
            report=self.said.append,
            lease_seconds=LEASE_SECONDS,
        )
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.engine.run()
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        """End it as a rollout does."""
        self.engine.stop()
        self.thread.join()
        self.cluster.close()


@contextmanager
def namespace(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Serve a namespace without Katib; KUBECONFIG points at it."""
    server = ApiServer()
    server.world.katib = False
    server.start()
    (directory / "kubeconfig").write_text(server.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(directory / "kubeconfig"))
    with JobOperator(server.world, directory / "operator"):
        yield server
    server.stop()

"""What `podium job` says of a job whose pods do not start, and of an API server that does not answer."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer
from click.testing import Result

from podium.api.cluster_spec import ClusterSpec
from podium.api.jobs import Job
from podium.api.launched import Session
from podium.cli.live import JobView
from podium.cluster.kubernetes.api import Waits
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.errors import Failed, Unavailable

COMMAND, OPTIONS = ("job",), ("--cluster", "kubernetes://team")
pytestmark = pytest.mark.usefixtures("server")
LABELS = {"training.kubeflow.org/job-name": "spirals", "training.kubeflow.org/replica-type": "master",
          "training.kubeflow.org/replica-index": "0", "training.kubeflow.org/job-role": "master"}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """An API server without objects; the kubeconfig points at it."""
    running = ApiServer()
    running.start()
    (tmp_path / "kubeconfig").write_text(running.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield running
    running.stop()


def waiting(image: str = "nowhere/x:1") -> dict[str, Any]:
    """Return the status of a pod whose image cannot be had."""
    state = {
        "waiting": {"reason": "ImagePullBackOff", "message": f"Back-off pulling image {image}"}
    }
    container = {
        "name": "pytorch",
        "image": image,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    return {"phase": "Pending", "containerStatuses": [container]}


def put_job(server: ApiServer) -> None:
    server.world.put(
        "pytorchjobs", {"kind": "PyTorchJob", "metadata": {"name": "spirals"}, "spec": SPEC}
    )
    server.world.status("pytorchjobs", "spirals", "Created", "Running")


POD = {"spec": {"containers": [{"name": "pytorch", "image": "nowhere/x:1"}]}}
SPEC = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": POD}}}


def test_a_job_whose_pods_wait_is_pending_and_says_why(
    podium: Callable[..., Result], server: ApiServer
) -> None:
    put_job(server)
    server.world.pod("spirals-master-0", LABELS, **waiting())
    (row,) = json.loads(podium("list", "--json").stdout)
    assert row["state"] == "Pending"
    assert (
        row["message"]
        == "pod spirals-master-0: ImagePullBackOff (Back-off pulling image nowhere/x:1)"
    )
    assert "\n  pod spirals-master-0: ImagePullBackOff (Back-off" in podium("list").stdout
    assert (
        "PyTorchJob spirals: Pending. pod spirals-master-0: ImagePullBackOff"
        in podium("status", "spirals").stdout
    )
    server.world.pod("spirals-master-0", LABELS, phase="Running")
    assert json.loads(podium("list", "--json").stdout)[0]["state"] == "Running"


def test_a_job_whose_pods_are_refused_is_pending(
    podium: Callable[..., Result], server: ApiServer
) -> None:
    put_job(server)
    server.world.event("pytorchjobs", "spirals", "FailedCreatePod", "exceeded quota: gpus")
    (row,) = json.loads(podium("list", "--json").stdout)
    assert (row["state"], row["message"]) == ("Pending", "FailedCreatePod (exceeded quota: gpus)")


@dataclass(frozen=True, kw_only=True)
class Impatient(Waits):
    """Gives no registry time to recover."""

    image_grace: float = 0.0


def test_a_job_that_cannot_start_is_named_with_its_deletion(
    podium: Callable[..., Result],
    server: ApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("podium.cluster.kubernetes.cluster.Waits", Impatient)
    file = tmp_path / "spirals.yaml"
    file.write_text(json.dumps({"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "metadata": {"name": "spirals"},
                                "spec": SPEC}))  # fmt: skip
    server.world.pod("spirals-master-0", LABELS, **waiting())
    error = podium("run", str(file)).exception
    assert isinstance(error, Failed)
    assert "PyTorchJob spirals cannot start" in error.message
    assert str(error.hint).endswith("podium job delete spirals --cluster kubernetes://team")


def test_an_api_server_that_does_not_answer_is_said(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_job(server)
    server.world.pod("spirals-master-0", LABELS, phase="Running")
    with KubernetesCluster("kubernetes://team") as cluster:
        view = JobView(
            cluster,
            [Job(Session(ClusterSpec.of(cluster.url), cluster), "PyTorchJob", "spirals")],
            logs=False,
        )
        view.look()
        assert "has not answered" not in view.doing()
        server.stop()
        cluster.api.patience = 0.0
        with pytest.raises(Unavailable):
            view.look()
        assert cluster.api.silence.since is not None
        cluster.api.silence.since -= 200
        assert (
            "the API server has not answered for 200 s; before that: spirals Running"
            in view.doing()
        )
        server.start()
        view.look()
        assert "has not answered" not in view.doing()

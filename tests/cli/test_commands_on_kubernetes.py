"""`podium experiment` on a namespace: the same output as on this machine, over an API server in memory."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer
from click.testing import Result
from pytorchjobs import write_pytorchjob

from podium.api.experiments import with_store
from podium.errors import InvalidInput
from podium.manifests.experiment import load
from podium.manifests.workload import Workload

OPTIONS = ("--cluster", "kubernetes://team")
pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """An API server with an Experiment of two trials."""
    running = ApiServer()
    running.start()
    (tmp_path / "kubeconfig").write_text(running.kubeconfig())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    spec = load("random-job")["spec"]
    labels = {"katib.kubeflow.org/experiment": "sweep"}
    running.world.put(
        "experiments", {"kind": "Experiment", "metadata": {"name": "sweep"}, "spec": spec}
    )
    running.world.status(
        "experiments", "sweep", "Created", "Running", trials=2, succeededTrialList=["a", "b"]
    )
    for name, value in (("a", "0.5"), ("b", "0.9")):
        trial = {
            "parameterAssignments": [{"name": "lr", "value": "0.1"}],
            "objective": {"type": "maximize", "objectiveMetricName": "accuracy"},
        }
        running.world.put(
            "trials", {"kind": "Trial", "metadata": {"name": name, "labels": labels}, "spec": trial}
        )
        metric = {"name": "accuracy", "min": value, "max": value, "latest": value}
        running.world.status(
            "trials", name, "Created", "Succeeded", observation={"metrics": [metric]}
        )
    yield running
    running.stop()


def test_experiments_of_katib_and_podium_are_shown_alike(podium: Callable[..., Result]) -> None:
    (row,) = json.loads(podium("experiment", "list", "--json").stdout)
    assert (row["sweep"], row["state"], row["trials"]) == ("sweep", "running", 2)
    assert "sweep: Running, 2 trials" in podium("experiment", "status", "sweep").stdout
    assert json.loads(podium("experiment", "best", "sweep", "--json").stdout)["name"] == "b"
    rows = podium("experiment", "trials", "sweep").stdout.splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [["b", "Succeeded"], ["a", "Succeeded"]]


def test_a_failed_trial_of_katib_says_why(podium: Callable[..., Result], server: ApiServer) -> None:
    server.world.status("trials", "a", "Created", "Failed")
    ended = {"terminated": {"exitCode": 2, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}
    status = {
        "name": "pytorch",
        "image": "x",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": ended,
    }
    server.world.pod(
        "a-0", {"katib.kubeflow.org/trial": "a"}, phase="Failed", containerStatuses=[status]
    )
    server.world.logs["a-0"] = ["error: unrecognized arguments: --netwrk=fast"]
    rows = json.loads(podium("experiment", "trials", "sweep", "--json").stdout)
    (reason,) = [row["reason"] for row in rows if row["name"] == "a"]
    assert (
        reason
        == "pod a-0: Error (container pytorch, exit code 2)\n  | error: unrecognized arguments: --netwrk=fast"
    )
    assert "unrecognized arguments: --netwrk=fast" in podium("experiment", "trials", "sweep").stdout


def test_an_experiment_of_katib_is_deleted_but_never_stopped(
    podium: Callable[..., Result], server: ApiServer
) -> None:
    refused: Any = podium("experiment", "stop", "sweep").exception
    assert isinstance(refused, InvalidInput)
    assert "Katib cannot stop Experiment sweep and keep it" in refused.message
    command, _, then = str(refused.hint).partition(" removes it")
    assert command.startswith("podium experiment delete sweep --cluster kubernetes://")
    assert then == "; its trials' models stay"
    assert podium(*command.split()[1:]).exit_code == 0
    assert ("experiments", "sweep") not in server.world.objects


def test_nobody_is_told_to_delete_a_trial_of_katib(
    podium: Callable[..., Result], server: ApiServer
) -> None:
    """Katib makes one of the same name again."""
    server.world.status("trials", "a", "Created", "Running")
    refused: Any = podium("experiment", "stop", "sweep", "--trial", "a").exception
    assert isinstance(refused, InvalidInput)
    assert "Katib starts a deleted trial again" in str(refused.hint)


def test_jobs_are_listed_where_the_training_operator_is_missing(
    podium: Callable[..., Result], server: ApiServer
) -> None:
    server.world.plurals.discard("pytorchjobs")
    server.world.put("jobs", {"kind": "Job", "metadata": {"name": "count"}, "spec": {}})
    assert [row["name"] for row in json.loads(podium("job", "list", "--json").stdout)] == ["count"]


@pytest.mark.parametrize("option", ["--image-dir", "--entrypoint"])
def test_a_namespace_takes_nothing_in_place_of_an_image(
    podium: Callable[..., Result], option: str
) -> None:
    refused: Any = podium("experiment", "run", "random-job", option, "trainer=src").exception
    assert isinstance(refused, InvalidInput)
    assert "no directory and no entrypoint can stand for trainer" in refused.message


def test_a_job_launched_on_a_namespace_gets_its_storage_keys(
    server: ApiServer, tmp_path: Path
) -> None:
    server.world.plurals.add("configmaps")
    data = {"endpoint": "http://store:9000", "secret": "keys"}
    server.world.put("configmaps", {"metadata": {"name": "podium-storage"}, "data": data})
    job = Workload.parse(
        write_pytorchjob(name="train", image="i", command=("train", "--data=s3://b/mnist"))
    )
    granted = with_store(job, "kubernetes://team", print)
    ((_, container),) = granted.containers()
    assert container.env["AWS_ENDPOINT_URL"].value == "http://store:9000"
    assert container.env["AWS_ACCESS_KEY_ID"].source["secretKeyRef"]["name"] == "keys"


def test_a_namespace_without_a_store_is_reported(server: ApiServer) -> None:
    said: list[str] = []
    server.world.plurals.add("configmaps")
    job = Workload.parse(
        write_pytorchjob(name="train", image="i", command=("train", "--data=s3://b/mnist"))
    )
    assert with_store(job, "kubernetes://team", said.append).manifest == job.manifest
    assert "no ConfigMap podium-storage" in said[0]

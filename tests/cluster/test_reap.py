"""Only what runs on after its run is an orphan, and nothing is deleted unasked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from api_server import ApiServer, World
from click.testing import CliRunner

from podium.cli import app
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.reap import orphans
from podium.errors import InvalidInput, PodiumError
from podium.manifests.labels import RUN_NAMESPACE


@pytest.fixture(autouse=True)
def runs(world: World) -> None:
    """Jobs of four runs: one goes on, one was cancelled, one's workflow is gone, others are none of ours."""
    for run, phase in (("going", "Running"), ("cancelled", "Failed")):
        workflow = {"metadata": {"name": f"wf-{run}", "labels": {"pipeline/runid": run}}, "status": {"phase": phase}}
        world.put("workflows", workflow)
    for run in ("going", "cancelled", "gone"):
        job(world, f"train-{run}", {"podium/run-id": run})
    job(world, "somebody-elses", {})
    job(world, "finished", {"podium/run-id": "gone"}, "Succeeded")
    job(world, "of-a-trial", {"podium/run-id": "gone"}, home="")
    job(world, "of-a-notebook", {"podium/run-id": "20260102-030405-1a2b"}, home="")


def job(world: World, name: str, labels: dict[str, str], phase: str = "Running", home: str = "team") -> None:
    """Put a job there; a step launched it if it names the namespace of its run."""
    metadata = {"name": name, "labels": labels, "annotations": {RUN_NAMESPACE: home} if home else {}}
    world.put("pytorchjobs", {"kind": "PyTorchJob", "metadata": metadata, "spec": {}})
    world.status("pytorchjobs", name, phase)


def podium(*words: str) -> str:
    result = CliRunner().invoke(app, ["reap", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_jobs_of_runs_that_are_over_or_gone_are_orphans(cluster: KubernetesCluster) -> None:
    assert {one.name: one.why for one in orphans(cluster)} == {
        "train-cancelled": "its workflow is Failed",
        "train-gone": "its workflow is gone",
    }


def test_a_trainjob_of_a_finished_run_is_an_orphan(cluster: KubernetesCluster, world: World) -> None:
    for run in ("going", "cancelled"):
        metadata = {"labels": {"podium/run-id": run}, "annotations": {RUN_NAMESPACE: "team"}}
        world.put("trainjobs", {"metadata": {"name": f"nodes-{run}", **metadata}, "spec": {}})
    assert [one.name for one in orphans(cluster) if one.kind == "TrainJob"] == ["nodes-cancelled"]
    podium("--delete")
    assert {name for plural, name in world.objects if plural == "trainjobs"} == {"nodes-going"}


def test_runs_of_another_namespace_are_looked_for_there(cluster: KubernetesCluster, world: World) -> None:
    job(world, "from-elsewhere", {"podium/run-id": "going-elsewhere"}, home="pipelines")
    orphans(cluster)
    asked = [request for request in world.requests if "/workflows" in request]
    assert sum("/namespaces/pipelines/" in request for request in asked) == 1
    assert len(asked) == 4


def test_nothing_is_deleted_unasked(cluster: KubernetesCluster, world: World) -> None:
    before = set(world.objects)
    assert "train-gone" in podium()
    assert set(world.objects) == before


def test_orphans_are_deleted_and_nothing_else(world: World) -> None:
    assert {one["name"] for one in json.loads(podium("--delete", "--json"))} == {"train-cancelled", "train-gone"}
    left = {name for plural, name in world.objects if plural == "pytorchjobs"}
    assert left == {"train-going", "somebody-elses", "finished", "of-a-trial", "of-a-notebook"}


def test_the_reaper_goes_on_through_an_outage(server: ApiServer, world: World) -> None:
    command = [str(Path(sys.executable).with_name("podium")), "reap", "--delete", "--every", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reaper:
        assert reaper.stdout is not None
        first = [reaper.stdout.readline().split()[2] for _ in "12"]
        assert first == ["train-cancelled", "train-gone"]
        server.stop()
        world.status("workflows", "wf-going", phase="Succeeded")
        server.start()
        assert reaper.stdout.readline().split()[:3] == ["deleted", "PyTorchJob", "train-going"]
        reaper.terminate()
        assert reaper.wait(20) == 143


def test_a_reaper_that_deletes_nothing_makes_no_sense() -> None:
    with pytest.raises(InvalidInput, match="--every goes with --delete"):
        podium("--every", "10")


def test_without_katib_there_is_still_something_to_reap(cluster: KubernetesCluster, world: World) -> None:
    world.plurals -= {"experiments", "trials"}
    assert len(orphans(cluster)) == 2


def test_without_the_workflows_nothing_is_called_an_orphan(cluster: KubernetesCluster, world: World) -> None:
    world.plurals -= {"workflows"}
    with pytest.raises(PodiumError, match="cannot read the workflow of run"):
        orphans(cluster)

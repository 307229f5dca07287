"""Only what runs on after its run is an orphan, and nothing is deleted unasked."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from api_server import ApiServer, World
from click.testing import CliRunner, Result

from podium.cli import app
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.reap import Reaper, _Orphan, look
from podium.errors import InvalidInput
from podium.manifests.labels import RUN_NAMESPACE

COMMAND = ("reap",)


@pytest.fixture(autouse=True)
def runs(world: World) -> None:
    """Jobs of four runs: one goes on, one was cancelled, one's workflow is gone, others are none of ours."""
    for run, phase in (("going", "Running"), ("cancelled", "Failed")):
        workflow = {
            "metadata": {"name": f"wf-{run}", "labels": {"pipeline/runid": run}},
            "status": {"phase": phase},
        }
        world.put("workflows", workflow)
    for run in ("going", "cancelled", "gone"):
        job(world, f"train-{run}", {"podium/run-id": run})
    job(world, "somebody-elses", {})
    job(world, "finished", {"podium/run-id": "gone"}, "Succeeded")
    job(world, "of-a-trial", {"podium/run-id": "gone"}, home="")
    job(world, "of-a-notebook", {"podium/run-id": "20260102-030405-1a2b"}, home="")


def job(
    world: World, name: str, labels: dict[str, str], phase: str = "Running", home: str = "team"
) -> None:
    """Put a job there; a step launched it if it names the namespace of its run."""
    metadata = {
        "name": name,
        "labels": labels,
        "annotations": {RUN_NAMESPACE: home} if home else {},
    }
    world.put("pytorchjobs", {"kind": "PyTorchJob", "metadata": metadata, "spec": {}})
    world.status("pytorchjobs", name, phase)


def orphans(cluster: KubernetesCluster) -> list[_Orphan]:
    found = look(cluster)
    assert not found.errors
    return found.orphans


def test_jobs_of_runs_that_are_over_or_gone_are_orphans(cluster: KubernetesCluster) -> None:
    assert {orphan.name: orphan.why for orphan in orphans(cluster)} == {
        "train-cancelled": "its workflow is Failed",
        "train-gone": "its workflow is gone",
    }


def test_what_is_being_deleted_is_not_reaped_again(
    cluster: KubernetesCluster, world: World
) -> None:
    leaving = world.objects["pytorchjobs", "train-gone"]
    metadata = {
        **leaving["metadata"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["example.com/x"],
    }
    world.put("pytorchjobs", {**leaving, "metadata": metadata})
    assert [orphan.name for orphan in orphans(cluster)] == ["train-cancelled"]


def test_a_trainjob_of_a_finished_run_is_an_orphan(
    cluster: KubernetesCluster, world: World, podium: Callable[..., Result]
) -> None:
    for run in ("going", "cancelled"):
        metadata = {"labels": {"podium/run-id": run}, "annotations": {RUN_NAMESPACE: "team"}}
        world.put("trainjobs", {"metadata": {"name": f"nodes-{run}", **metadata}, "spec": {}})
    assert [orphan.name for orphan in orphans(cluster) if orphan.kind == "TrainJob"] == [
        "nodes-cancelled"
    ]
    assert podium("--delete").exit_code == 0
    assert {name for plural, name in world.objects if plural == "trainjobs"} == {"nodes-going"}


def test_runs_of_another_namespace_are_looked_for_there(
    cluster: KubernetesCluster, world: World
) -> None:
    job(world, "from-elsewhere", {"podium/run-id": "going-elsewhere"}, home="pipelines")
    orphans(cluster)
    asked = [request for request in world.requests if "/workflows" in request]
    assert sum("/namespaces/pipelines/" in request for request in asked) == 1
    assert len(asked) == 4


def test_nothing_is_deleted_unasked(
    cluster: KubernetesCluster, world: World, podium: Callable[..., Result]
) -> None:
    before = set(world.objects)
    assert "train-gone" in podium().stdout
    assert set(world.objects) == before


def test_orphans_are_deleted_and_nothing_else(world: World, podium: Callable[..., Result]) -> None:
    assert {entry["name"] for entry in json.loads(podium("--delete", "--json").stdout)} == {
        "train-cancelled",
        "train-gone",
    }
    left = {name for plural, name in world.objects if plural == "pytorchjobs"}
    assert left == {"train-going", "somebody-elses", "finished", "of-a-trial", "of-a-notebook"}


def test_the_reaper_goes_on_through_an_outage(server: ApiServer, world: World) -> None:
    command = [str(Path(sys.executable).with_name("podium")), "reap", "--delete", "--every", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reaper:
        assert reaper.stdout is not None
        assert reaper.stdout.readline().startswith("namespace team: looking every 0.2 s")
        first = [reaper.stdout.readline().split()[2] for _ in "12"]
        assert first == ["train-cancelled:", "train-gone:"]
        server.stop()
        world.status("workflows", "wf-going", phase="Succeeded")
        server.start()
        lines = iter(reaper.stdout.readline, "")
        assert (
            next(line for line in lines if line.startswith("deleted")).split()[2] == "train-going:"
        )
        reaper.terminate()
        assert reaper.wait(20) == 143


def test_a_reaper_that_deletes_nothing_makes_no_sense(podium: Callable[..., Result]) -> None:
    error = podium("--every", "10").exception
    assert isinstance(error, InvalidInput)
    assert "--every needs --delete" in error.message


def test_without_katib_there_is_still_something_to_reap(
    cluster: KubernetesCluster, world: World
) -> None:
    world.plurals -= {"experiments", "trials"}
    assert len(orphans(cluster)) == 2


def test_without_the_workflows_nothing_is_called_an_orphan(
    cluster: KubernetesCluster, world: World
) -> None:
    world.plurals -= {"workflows"}
    found = look(cluster)
    assert found.orphans == []
    assert found.seen == 3
    assert {str(error)[:31] for error in found.errors.values()} == {
        "cannot read the workflow of run"
    }


def test_one_object_out_of_reach_does_not_shield_the_others(
    cluster: KubernetesCluster, world: World
) -> None:
    job(world, "from-elsewhere", {"podium/run-id": "foreign"}, home="not-ours")
    world.forbidden.add("not-ours")
    found = look(cluster)
    assert [orphan.name for orphan in found.orphans] == ["train-cancelled", "train-gone"]
    assert list(found.errors) == ["PyTorchJob from-elsewhere"]
    result = CliRunner().invoke(app, ["reap", "--delete"])
    assert result.exit_code == 1
    assert "PyTorchJob from-elsewhere is left alone: cannot read the workflow" in result.stderr
    left = {name for plural, name in world.objects if plural == "pytorchjobs"}
    assert "from-elsewhere" in left
    assert not {"train-cancelled", "train-gone"} & left


def test_the_reaper_shows_what_it_does(cluster: KubernetesCluster, world: World) -> None:
    job(world, "from-elsewhere", {"podium/run-id": "foreign"}, home="not-ours")
    world.forbidden.add("not-ours")
    lines: list[str] = []
    reaper = Reaper(cluster, 0.05, lines.append)
    port = reaper.serve(0).server_address[1]
    threading.Thread(target=reaper.run, daemon=True).start()
    until(lambda: reaper.errors >= 3)
    metrics = read(port, "metrics")
    assert "\npodium_reaper_deleted_total 2\n" in metrics
    assert "\npodium_reaper_seen 2\n" in metrics
    assert read(port, "healthz") == "ok\n"
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1, "an error that stays is said once"
    assert errors[0].startswith(
        "error: PyTorchJob from-elsewhere: cannot read the workflow of run foreign"
    )
    events = {
        item["involvedObject"]["name"]: item
        for (kind, _), item in world.objects.items()
        if kind == "events"
    }
    assert events.keys() == {"train-cancelled", "train-gone"}
    assert events["train-gone"]["reason"] == "Reaped"
    assert "run gone is over: its workflow is gone" in events["train-gone"]["message"]
    world.forbidden.clear()
    until(lambda: "no more errors about PyTorchJob from-elsewhere" in lines)


def test_a_reaper_that_hangs_is_not_alive(cluster: KubernetesCluster) -> None:
    reaper = Reaper(cluster, 0.05, print)
    port = reaper.serve(0).server_address[1]
    reaper.round -= 100
    with pytest.raises(urllib.error.HTTPError, match="503"):
        read(port, "healthz")


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def read(port: int, page: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
        return str(answer.read().decode())

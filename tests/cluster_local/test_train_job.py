"""TrainJobs as processes: what Trainer's torch plugin sets, restarts in place, deadline, suspension, status and trials."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep_manifests import space, write_experiment
from trainjobs import patch, program, trainjob

from podium.errors import InvalidInput
from podium.manifests.conditions import State, status_of
from podium.manifests.labels import IGNORED_FIELDS
from podium.manifests.typed import typed
from podium.sweeps.local import LocalSweeps

NAMES = "RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|PET_|JOB_COMPLETION|PYTHONUNBUFFERED"
SHOW = f"import json, os, re; print(json.dumps({{k: v for k, v in os.environ.items() if re.match('{NAMES}', k)}}))"
COUNT = "import pathlib, sys; f = pathlib.Path('tries'); n = len(f.read_text()) if f.exists() else 0; f.write_text('x' * (n + 1))\n"  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalSweeps]:
    with LocalSweeps(tmp_path / "cluster") as there:
        yield there


def run(cluster: LocalSweeps, manifest: dict[str, Any]) -> State:
    cluster.create(typed(manifest))
    *_, last = (stored.manifest for stored in cluster.watch("TrainJob", "job", timeout=60))
    return status_of(last)


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def conditions(cluster: LocalSweeps) -> list[tuple[str, str, str]]:
    listed = cluster.get("TrainJob", "job").manifest["status"]["conditions"]
    return [(condition["type"], condition["status"], condition["reason"]) for condition in listed]


def counts(cluster: LocalSweeps) -> dict[str, int]:
    (node,) = cluster.get("TrainJob", "job").manifest["status"]["jobsStatus"]
    assert node.pop("name") == "node"
    return {state: number for state, number in node.items() if number}


def test_nodes_get_what_trainer_sets_and_nothing_else(cluster: LocalSweeps) -> None:
    assert run(cluster, program(SHOW, nodes=2)).phase == "Succeeded"
    seen = [
        json.loads(*cluster.logs("TrainJob", "job", replica)) for replica in ("node-0", "node-1")
    ]
    port = seen[0].pop("PET_MASTER_PORT")
    assert int(port) > 1024
    assert seen[1].pop("PET_MASTER_PORT") == port
    common = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "127.0.0.1"}
    assert seen == [
        common | {"PET_NODE_RANK": rank, "JOB_COMPLETION_INDEX": rank} for rank in ("0", "1")
    ]


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ({"numProcPerNode": 3}, "3"),
        ({"resourcesPerNode": {"requests": {"cpu": "250m"}}}, "1"),
        ({"resourcesPerNode": {"requests": {"cpu": "2500m"}}}, "3"),
        ({"resourcesPerNode": {"limits": {"cpu": "2"}}}, "2"),
        ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "4"}}}, "auto"),
    ],
)
def test_processes_of_a_node_follow_its_resources(
    cluster: LocalSweeps, trainer: dict[str, Any], processes: str
) -> None:
    manifest = program(SHOW)
    manifest["spec"]["trainer"] |= trainer
    run(cluster, manifest)
    assert json.loads(*cluster.logs("TrainJob", "job"))["PET_NPROC_PER_NODE"] == processes


def test_a_trainjob_completes_when_all_nodes_have(cluster: LocalSweeps) -> None:
    state = run(
        cluster,
        program("import os, time; time.sleep(0.3 * int(os.environ['PET_NODE_RANK']))", nodes=2),
    )
    assert state == ("Succeeded", "AllJobsCompleted", "jobset completed successfully")
    assert conditions(cluster) == [("Complete", "True", "AllJobsCompleted")]
    assert counts(cluster) == {"succeeded": 1}
    assert [(replica.name, replica.phase) for replica in cluster.replicas("TrainJob", "job")] == [
        ("node-0", "Succeeded"),
        ("node-1", "Succeeded"),
    ]


def test_a_running_trainjob_has_no_condition_but_an_active_job(cluster: LocalSweeps) -> None:
    cluster.create(typed(program("import time; time.sleep(60)")))
    until(lambda: cluster.get("TrainJob", "job").state.phase == "Running")
    assert counts(cluster) == {"active": 1, "ready": 1}
    assert cluster.get("TrainJob", "job").conditions == ()


def test_a_killed_node_restarts_in_place(cluster: LocalSweeps) -> None:
    script = COUNT + "import time; print('try', n, flush=True); time.sleep(0.1 if n else 60)"
    cluster.create(typed(program(script, nodes=2)))
    until(
        lambda: (
            [replica.phase for replica in cluster.replicas("TrainJob", "job")]
            == ["Running", "Running"]
        )
    )
    until(lambda: all(list(cluster.logs("TrainJob", "job", node)) for node in ("node-0", "node-1")))
    pids = [replica.pid or 0 for replica in cluster.replicas("TrainJob", "job")]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    *_, last = (stored.manifest for stored in cluster.watch("TrainJob", "job", timeout=30))
    assert status_of(last).phase == "Succeeded"
    assert list(cluster.logs("TrainJob", "job", "node-1")) == ["try 0", "try 1"]
    assert [replica.restarts for replica in cluster.replicas("TrainJob", "job")] == [1, 1]


def test_six_restarts_of_all_nodes_fail_the_job(cluster: LocalSweeps) -> None:
    state = run(cluster, program("import sys; sys.exit(3)", nodes=3))
    message = "jobset failed due to one or more job failures (first failed job: job-node-0)"
    assert state == ("Failed", "FailedJobs", message)
    assert counts(cluster) == {"failed": 1}
    replicas = cluster.replicas("TrainJob", "job")
    assert sum(replica.restarts for replica in replicas) >= 6
    # Whatever the nodes were at when the last failure took them along, they show the failure, not the SIGTERM.
    assert {replica.exit_code for replica in replicas if replica.restarts} == {3}


def test_a_stopped_node_shows_the_failure_that_restarted_it(cluster: LocalSweeps) -> None:
    cluster.create(
        typed(
            program(
                COUNT + "import time; print('try', n, flush=True); n or sys.exit(3); time.sleep(60)"
            )
        )
    )
    until(lambda: list(cluster.logs("TrainJob", "job")) == ["try 0", "try 1"])
    cluster.stop("TrainJob", "job")
    assert cluster.join("TrainJob", "job", 10)
    (node,) = cluster.replicas("TrainJob", "job")
    assert (node.phase, node.restarts, node.exit_code) == ("Stopped", 1, 3)


def test_a_deadline_ends_all_nodes(cluster: LocalSweeps) -> None:
    state = run(cluster, program("import time; time.sleep(60)", nodes=2, activeDeadlineSeconds=1))
    assert state == ("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline")
    cluster.join("TrainJob", "job", 10)
    assert {replica.phase for replica in cluster.replicas("TrainJob", "job")} == {"Stopped"}


def test_a_suspended_trainjob_starts_nothing(cluster: LocalSweeps) -> None:
    cluster.create(typed(program("print('never')", suspend=True)))
    until(lambda: cluster.get("TrainJob", "job").state.phase == "Suspended")
    assert conditions(cluster) == [("Suspended", "True", "Suspended")]
    assert cluster.replicas("TrainJob", "job") == []


def test_nodes_run_with_the_volumes_of_runtime_patches(cluster: LocalSweeps) -> None:
    pod = {"volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"disk": "fast"},
           "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/scratch"}]}]}  # fmt: skip
    script = "import pathlib, sys; pathlib.Path('/scratch/a').write_text('b'); print(pathlib.Path('/scratch/a').read_text())"
    job = trainjob(
        patch("acme.com/x", pod), name="job", numNodes=1, command=["python3", "-c", script], args=[]
    )
    stored = cluster.create(typed(job))
    *_, last = (stored.manifest for stored in cluster.watch("TrainJob", "job", timeout=30))
    assert status_of(last).phase == "Succeeded"
    assert list(cluster.logs("TrainJob", "job")) == ["b"]
    assert stored.annotations[IGNORED_FIELDS] == "nodeSelector"


def test_a_runtime_of_the_users_own_runs_as_torch_distributed(cluster: LocalSweeps) -> None:
    stored = cluster.create(typed(program("print(1)", runtimeRef={"name": "our-torch"})))
    assert "runtimeRef.name" in stored.annotations[IGNORED_FIELDS]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runtimeRef": {"name": "jax-distributed"}}, "no runtime jax-distributed"),
        ({"initializer": {"dataset": {"storageUri": "s3://a/b"}}}, r"spec\.initializer"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "managedBy"),
    ],
)
def test_what_needs_a_cluster_is_refused(
    cluster: LocalSweeps, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        cluster.create(typed(program("pass", **change)))
    assert cluster.list("TrainJob") == []


def test_a_trainjob_without_a_command_is_refused(cluster: LocalSweeps) -> None:
    with pytest.raises(InvalidInput, match=r"spec\.trainer\.command"):
        cluster.create(typed(trainjob(name="job", command=[])))


SCRIPT = "import os, sys; print('accuracy=' + (sys.argv[1] if os.environ['PET_NODE_RANK'] == '0' else '0.99'))"


def sweep(command: list[str]) -> dict[str, Any]:
    trial = trainjob(numNodes=2, command=command, args=[])
    del trial["metadata"]
    return write_experiment(
        trial, name="sweep", container="node", parameters=[space("value", "categorical", list=["0.5", "0.7"])],
        objective={"type": "maximize", "objectiveMetricName": "accuracy"}, algorithm={"algorithmName": "grid"},
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "-c", SCRIPT, "${trialParameters.value}"],
        ["sh", "-c", f'python3 -c "{SCRIPT}" $(echo ${{trialParameters.value}})'],
    ],
    ids=["plain", "shell"],
)
def test_trainjob_trials_report_what_their_first_node_prints(
    cluster: LocalSweeps, command: list[str]
) -> None:
    if command[0] == "python3":  # the collector's shell splits words
        command[2] = f"'{command[2].replace(chr(39), chr(34))}'"
    cluster.create(typed(sweep(command)))
    *_, last = (stored.manifest for stored in cluster.watch("Experiment", "sweep", timeout=60))
    assert status_of(last).phase == "Succeeded"
    assert sorted(trial.value or 0 for trial in cluster.trials("sweep")) == [0.5, 0.7]
    cluster.join("Experiment", "sweep")  # trials are cleared away after the last result is known
    assert cluster.list("TrainJob") == []
